/* Products of rows that are grouped by expert: an expert's rows times its part of a matrix, which
 * has the parts of all experts, one after the other. */
#ifndef PENSTOCK_CUDA_GEMM_GROUPED_CUH
#define PENSTOCK_CUDA_GEMM_GROUPED_CUH

#include "kernels/cuda/gemm/mainloop.cuh"

/* The rows that a block works on: some neighbours, all of one expert. */
struct expert_rows {
    int32_t expert;
    int32_t first, rows; /* rows 0: the block has none */
};
enum { GROUPED_ROWS = 16 };

/* All rows of x, as blocks take them. The list is the device's: which rows an expert has is known
 * there alone. So its length depends on the number of rows and experts only, and it ends with
 * entries of 0 rows. */
struct grouping {
    const struct expert_rows *rows; /* [n] in device memory */
    int n;
    int N; /* outputs of one expert, a multiple of 16 */
};

/* An expert's part of a product, but for the place of its weights. */
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

/* y of the activations' type, in the order of x. The job may be a pair; it has no residual, and its
 * matrices [E * N][K]. */
void grouped_product(const struct gemm_job *job, const void *x, const struct grouping *g,
                     cudaStream_t stream);

/* The same of one matrix of GEMM_FLOAT. */
void grouped_float(const struct gemm_job *job, const void *x, const struct grouping *g,
                   cudaStream_t stream);

#endif
