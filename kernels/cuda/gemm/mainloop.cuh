/* The arguments of product kernels, several products per launch, and their epilogue. */
#ifndef PENSTOCK_CUDA_GEMM_PRODUCT_CUH
#define PENSTOCK_CUDA_GEMM_PRODUCT_CUH

#include "kernels/cuda/gemm/format.cuh"
#include "kernels/cuda/rows/math.cuh"

/* A product as an argument of kernels. */
template <class T> struct Product {
    struct gemm_weights w, up;
    int pair; /* 1 with an `up`, else 0 */
    struct gemm_epilogue end;
    void *y;
    const T *x;
    int M;
};
/* A block of the skinny kernel has a warp per range of both matrices of a pair. */
constexpr int MAX_WARPS = 16, MAX_PAIR_RANGES = MAX_WARPS / 2;
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
    if (p.pair && p.w.ranges > MAX_PAIR_RANGES) p.w.ranges = p.up.ranges = MAX_PAIR_RANGES;
    return p;
}

/* The memory for the sums of blocks that share K in a launch. */
struct Sharing {
    int blocks;                   /* number of blocks that share K; 1: no sharing */
    int first[GEMM_MAX_JOBS + 1]; /* first[i] is the first part of product i */
    struct gemm_shared in;
};

/* The products of one launch. Their blocks are contiguous in one dimension of the grid: first[i] is
 * the first block of product i. */
template <class T> struct Products {
    Product<T> of[GEMM_MAX_JOBS];
    int first[GEMM_MAX_JOBS + 1];
    struct norm norm; /* of x; gain NULL: no norm */
    struct Sharing share;
};
/* A block takes `each` tiles; for a pair half of them belong to each matrix, or if `each` is 1, one
 * tile of both. */
template <class T>
Products<T> products_of(const struct gemm_job *jobs, int n, const void *x, int M, int each) {
    assert(n > 0 && n <= GEMM_MAX_JOBS);
    Products<T> all = {};
    for (int i = 0; i < GEMM_MAX_JOBS; i++) {
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
/* The product of a block. */
template <class T> __device__ __forceinline__ int number_of(const Products<T> &all, int block) {
    int i = 0;
#pragma unroll
    for (int next = 1; next < GEMM_MAX_JOBS; next++) i += block >= all.first[next];
    return i;
}

/* ---- the end of a product ------------------------------------------------------------------- */

/* Finishes and stores y[m][n]; sum(0) is its sum over K, sum(1) that of `up`. */
template <class T, class Sum>
__device__ __forceinline__ void store_output(const Product<T> &p, int m, int n, Sum sum) {
    const int N = p.w.N;
    if (m >= p.M || n >= N) return;
    float value = sum(0);
    if (p.end.bias) value = value + p.end.bias[n];
    if (p.pair) {
        float up = sum(1);
        if (p.end.up_bias) up = up + p.end.up_bias[n];
        value = gated(p.end.activation, value, up);
    } else if (p.end.activate) {
        value = activated(p.end.activation, value);
    }
    value = capped(value * p.end.scale, p.end.cap);
    const size_t at = (size_t)m * N + n;
    if (p.end.residual) value = value + to_float(static_cast<const T *>(p.end.residual)[at]);
    if (p.end.float_out)
        static_cast<float *>(p.y)[at] = value;
    else
        static_cast<T *>(p.y)[at] = from_float<T>(value);
}

/* ---- the kernels' launchers ----------------------------------------------------------------- */

/* For n matrices of one mma format: gemm_skinny for up to GEMM_SKINNY_ROWS rows, optionally with a
 * norm; gemm_tiled for any number of rows. gemm_float is for one matrix of GEMM_FLOAT. */
void gemm_skinny(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm, int M,
                 cudaStream_t stream);
void gemm_tiled(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream,
                const struct gemm_scratch *scratch);
void gemm_float(const struct gemm_job *job, const void *x, int M, cudaStream_t stream);

#endif
