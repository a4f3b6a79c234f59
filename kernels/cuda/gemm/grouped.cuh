/* Products of rows grouped by expert: an expert's rows times its part of a matrix, in which the
 * parts of all experts are concatenated. */
#ifndef PENSTOCK_CUDA_GEMM_GROUPED_CUH
#define PENSTOCK_CUDA_GEMM_GROUPED_CUH

#include "kernels/cuda/gemm/mainloop.cuh"

/* The rows of a block: adjacent rows of one expert. */
struct expert_rows {
    int32_t expert;
    int32_t first, rows; /* rows 0: the block has no work */
};
enum { GROUPED_ROWS = 16 };

/* All rows of x, divided into blocks. Only the device knows the rows of each expert, so the list is
 * device memory. Its length depends only on the number of rows and experts, and it ends with
 * entries of 0 rows. */
struct grouping {
    const struct expert_rows *rows; /* [n] in device memory */
    int n;
    int N; /* outputs of one expert, a multiple of 16 */
};

/* An expert's part of a product, without the place of its weights. */
template <class T>
__device__ __forceinline__ Product<T> part_of(Product<T> p, const struct expert_rows &of, int N) {
    p.M = of.rows;
    p.x += (size_t)of.first * p.w.K;
    p.y = static_cast<T *>(p.y) + (size_t)of.first * N;
    p.w.N = N;
    if (p.end.bias) p.end.bias += (size_t)of.expert * N;
    if (p.end.up_bias) p.end.up_bias += (size_t)of.expert * N;
    return p;
}

/* y has the activations' type and the order of x. The job may be a pair; it must not have a
 * residual, and its matrices are [E * N][K]. */
void grouped_product(const struct gemm_job *job, const void *x, const struct grouping *g,
                     cudaStream_t stream);

/* The same for one matrix of GEMM_FLOAT. */
void grouped_float(const struct gemm_job *job, const void *x, const struct grouping *g,
                   cudaStream_t stream);

#endif
