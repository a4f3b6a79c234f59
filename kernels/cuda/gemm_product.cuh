/* Products as their kernels are given them, several to a launch, and what is done at their end. */
#ifndef PENSTOCK_CUDA_GEMM_PRODUCT_CUH
#define PENSTOCK_CUDA_GEMM_PRODUCT_CUH

#include "kernels/cuda/gemm_format.cuh"

/* A product, as kernels are given it. */
template <class T> struct Product {
    struct gemm_weights w, up;
    int pair; /* 1 where there is an `up`, 0 where there is none */
    struct gemm_epilogue end;
    void *y;
    const T *x;
    int M;
};
/* A pair has no more ranges than leave both their warps in a block of the skinny kernel. */
constexpr int MOST_WARPS = 16, MOST_PAIR_RANGES = MOST_WARPS / 2;
template <class T> Product<T> product_of(const struct gemm_job *job, const void *x, int M) {
    static const struct gemm_epilogue none = {};
    Product<T> p = {*job->w,
                    job->up ? *job->up : *job->w,
                    job->up != nullptr,
                    job->epilogue ? *job->epilogue : none,
                    job->y,
                    static_cast<const T *>(x),
                    M};
    assert(!p.pair || gemm_is_pair(job->w, job->up, M));
    if (p.pair && p.w.ranges > MOST_PAIR_RANGES) p.w.ranges = p.up.ranges = MOST_PAIR_RANGES;
    return p;
}

/* The products of one launch. Those of several tiles each follow one another in the grid: product i
 * has the block numbers (of one of the grid's dimensions) from first[i] on. */
template <class T> struct Products {
    Product<T> of[GEMM_MOST_JOBS];
    int first[GEMM_MOST_JOBS + 1];
    struct norm norm; /* of x; without a gain there is none */
};
/* Blocks take `each` tiles, half of them of the one and half of the other where they are of a
 * pair; or one of both. */
template <class T>
Products<T> products_of(const struct gemm_job *jobs, int n, const void *x, int M, int each) {
    assert(n > 0 && n <= GEMM_MOST_JOBS);
    Products<T> all = {};
    for (int i = 0; i < GEMM_MOST_JOBS; i++) {
        int blocks = 0;
        if (i < n) {
            all.of[i] = product_of<T>(&jobs[i], x, M);
            const int of_one = each > 1 ? each >> all.of[i].pair : 1;
            blocks = (jobs[i].w->tiles + of_one - 1) / of_one;
        }
        all.first[i + 1] = all.first[i] + blocks;
    }
    return all;
}
/* Which of them a block works on. */
template <class T> __device__ __forceinline__ int number_of(const Products<T> &all, int block) {
    int i = 0;
#pragma unroll
    for (int next = 1; next < GEMM_MOST_JOBS; next++) i += block >= all.first[next];
    return i;
}

/* ---- the end of a product ------------------------------------------------------------------- */

__device__ __forceinline__ float silu(float x) {
    return x / (1.0f + expf(-x));
}

/* Finishes and stores y[m][n], where sum(0) is its sum over K, and sum(1) that of `up`. */
template <class T, class Sum>
__device__ __forceinline__ void store_output(const Product<T> &p, int m, int n, Sum sum) {
    const int N = p.w.N;
    if (m >= p.M || n >= N) return;
    float value = sum(0);
    if (p.end.bias) value = value + p.end.bias[n];
    if (p.pair) {
        float up = sum(1);
        if (p.end.bias) up = up + p.end.bias[N + n];
        value = silu(value) * up;
    }
    const size_t at = (size_t)m * N + n;
    if (p.end.residual) value = value + to_float(static_cast<const T *>(p.end.residual)[at]);
    if (p.end.float_out)
        static_cast<float *>(p.y)[at] = value;
    else
        static_cast<T *>(p.y)[at] = from_float<T>(value);
}

/* ---- the kernels' launchers ----------------------------------------------------------------- */

/* For n matrices of one of the mma formats, up to GEMM_SKINNY_ROWS rows, perhaps with a norm, and
 * for any number; and for one of GEMM_FLOAT. */
void gemm_skinny(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm, int M,
                 cudaStream_t stream);
void gemm_tiled(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream);
void gemm_float(const struct gemm_job *job, const void *x, int M, cudaStream_t stream);

#endif
