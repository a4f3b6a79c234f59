/* Products of float32: the mode with the bits of the CPU's oracle. Each output is one chain of
 * fused multiply-adds in the order of K, so K is not split; blocks of rows and outputs share their
 * inputs through shared memory. */
#include "kernels/cuda/gemm/grouped.cuh"

constexpr int FLOAT_ROWS = 16, FLOAT_OUTPUTS = 64, FLOAT_DEEP = 32, FLOAT_THREADS = 256;
constexpr int FLOAT_EACH = FLOAT_ROWS * FLOAT_OUTPUTS / FLOAT_THREADS;

/* Copies FLOAT_DEEP columns, starting at k, of some rows of K floats to shared memory, with zeros
 * outside. Rows are ROWS + 1 apart to avoid bank conflicts. */
template <int ROWS>
__device__ __forceinline__ void fill(float (&to)[FLOAT_DEEP][ROWS + 1], const float *from,
                                     int first, int rows, int k, int K) {
    for (int i = threadIdx.x; i < ROWS * FLOAT_DEEP; i += FLOAT_THREADS) {
        const int r = first + i / FLOAT_DEEP, at = k + i % FLOAT_DEEP;
        to[i % FLOAT_DEEP][i / FLOAT_DEEP] = r < rows && at < K ? from[(size_t)r * K + at] : 0.0f;
    }
}

/* With GROUPED, a block's rows belong to one expert, and blockIdx.x is their number. */
template <bool GROUPED>
__global__ void __launch_bounds__(FLOAT_THREADS) float_kernel(Product<float> p, struct grouping g) {
    __shared__ float xs[FLOAT_DEEP][FLOAT_ROWS + 1];
    __shared__ float ws[FLOAT_DEEP][FLOAT_OUTPUTS + 1];
    __shared__ float sums[FLOAT_ROWS][FLOAT_OUTPUTS];
    grid_begin();
    const int n = threadIdx.x % FLOAT_OUTPUTS, m = threadIdx.x / FLOAT_OUTPUTS * FLOAT_EACH;
    const int first_m = GROUPED ? 0 : (int)blockIdx.x * FLOAT_ROWS;
    const int first_n = (int)blockIdx.y * FLOAT_OUTPUTS;
    const float *weights = reinterpret_cast<const float *>(p.w.codes);
    int outputs = p.w.tiles * GEMM_TILE;
    if constexpr (GROUPED) {
        const struct expert_rows of = g.rows[blockIdx.x];
        if (of.rows == 0) return;
        p = part_of(p, of, g.N);
        weights += (size_t)of.expert * g.N * p.w.K;
        outputs = g.N;
    }
    float acc[FLOAT_EACH] = {};
    for (int k = 0; k < p.w.K; k += FLOAT_DEEP) {
        fill<FLOAT_ROWS>(xs, p.x, first_m, p.M, k, p.w.K);
        fill<FLOAT_OUTPUTS>(ws, weights, first_n, outputs, k, p.w.K);
        __syncthreads();
        const int deep = min(FLOAT_DEEP, p.w.K - k);
        for (int i = 0; i < deep; i++) /* the padding is skipped: infinity times 0 is not 0 */
#pragma unroll
            for (int e = 0; e < FLOAT_EACH; e++) acc[e] = fmaf(xs[i][m + e], ws[i][n], acc[e]);
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < FLOAT_EACH; e++) sums[m + e][n] = acc[e];
    __syncthreads();
    for (int i = threadIdx.x; i < FLOAT_ROWS * FLOAT_OUTPUTS; i += FLOAT_THREADS) {
        const int row = i / FLOAT_OUTPUTS, here = i % FLOAT_OUTPUTS;
        store_output(p, first_m + row, first_n + here, [&](int) { return sums[row][here]; });
    }
}

void gemm_float(const struct gemm_job *job, const void *x, int M, cudaStream_t stream) {
    const Product<float> p = product_of<float>(job, x, M);
    const unsigned outputs = (unsigned)(p.w.tiles * GEMM_TILE);
    launch(float_kernel<false>,
           dim3((unsigned)((M + FLOAT_ROWS - 1) / FLOAT_ROWS),
                (outputs + FLOAT_OUTPUTS - 1) / FLOAT_OUTPUTS),
           dim3(FLOAT_THREADS), 0, stream, p, grouping());
}

void grouped_float(const struct gemm_job *job, const void *x, const struct grouping *g,
                   cudaStream_t stream) {
    static_assert(FLOAT_ROWS == GROUPED_ROWS, "a block takes an entry of the list");
    const Product<float> p = product_of<float>(job, x, GROUPED_ROWS);
    launch(float_kernel<true>,
           dim3((unsigned)g->n, (unsigned)(g->N + FLOAT_OUTPUTS - 1) / FLOAT_OUTPUTS),
           dim3(FLOAT_THREADS), 0, stream, p, *g);
}
