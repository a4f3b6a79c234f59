/* Products by expert: like the kernel for few rows, but its blocks find their rows on the device. A
 * block computes 16 outputs of one expert, or of both matrices of a pair, for up to 16 of its rows.
 * Experts with more rows have several blocks, which share the weights in the caches. All rows use
 * this kernel, so their bits do not depend on the number of rows. */
#include "kernels/cuda/gemm/grouped.cuh"

#include "kernels/cuda/gemm/skinny.cuh"

template <class F, class T, bool ALIGNED>
__global__ void __launch_bounds__(MAX_WARPS *WARP)
    grouped_kernel(const __grid_constant__ Product<T> all, struct grouping g) {
    constexpr int C = GROUPED_ROWS / GEMM_GROUP;
    grid_begin();
    const struct expert_rows of = g.rows[blockIdx.y];
    if (of.rows == 0) return;
    const Product<T> p = part_of(all, of, g.N);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, tile = (int)blockIdx.x;
    const int ranges = p.w.ranges, slabs = p.w.slabs, up = warp >= ranges;
    const int mine = warp - (up ? ranges : 0);
    const struct gemm_weights &w = up ? all.up : all.w;
    const int tile_of_all = of.expert * (g.N / GEMM_TILE) + tile;
    Range<F> range = {&w, place_of_tile<F>(w, tile_of_all), range_start(slabs, ranges, mine),
                      range_start(slabs, ranges, mine + 1)};
    range.load_first(lane);
    float *sums = dyn_smem<float>(); /* [warps][GROUPED_ROWS][SUMS_WIDE] */
    float acc[C][4] = {};
    sum_range<F, T, C, ALIGNED>(acc, range, p.x, p.w.K, p.M, lane);
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int m = c * GEMM_GROUP + lane % 4 * 2 + i % 2, n = lane / 4 + i / 2 * 8;
            sums[(warp * GROUPED_ROWS + m) * SUMS_WIDE + n] = acc[c][i];
        }
    __syncthreads();
    for (int i = threadIdx.x; i < GROUPED_ROWS * GEMM_TILE; i += blockDim.x) {
        const int m = i / GEMM_TILE, n = i % GEMM_TILE;
        store_output(p, m, tile * GEMM_TILE + n, [&](int part) {
            float total = 0.0f;
            for (int r = part * ranges; r < (part + 1) * ranges; r++)
                total = total + sums[(r * GROUPED_ROWS + m) * SUMS_WIDE + n];
            return total;
        });
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

template <class F, class T>
static void grouped(const Product<T> &p, const struct grouping *g, cudaStream_t stream) {
    const int warps = p.w.ranges << p.pair;
    const size_t smem = sizeof(float) * warps * GROUPED_ROWS * SUMS_WIDE;
    static_assert(sizeof(float) * MAX_WARPS * GROUPED_ROWS * SUMS_WIDE <= DEFAULT_SMEM, "sums fit");
    assert(warps <= MAX_WARPS && g->N % GEMM_TILE == 0);
    auto kernel = grouped_kernel<F, T, true>;
    if constexpr (F::ANY_K)
        if (p.w.K % F::RUN != 0) kernel = grouped_kernel<F, T, false>;
    launch(kernel, dim3((unsigned)(g->N / GEMM_TILE), (unsigned)g->n), dim3(warps * WARP), smem,
           stream, p, *g);
}

template <class T>
static void grouped_of(const struct gemm_job *job, const void *x, const struct grouping *g,
                       cudaStream_t stream) {
    const Product<T> p = product_of<T>(job, x, GROUPED_ROWS);
    auto run = [&](auto format) { grouped<decltype(format), T>(p, g, stream); };
    if (job->w->format == GEMM_ROWS)
        run(FormatRows());
    else
        for_format(job->w->format, run);
}

void grouped_product(const struct gemm_job *job, const void *x, const struct grouping *g,
                     cudaStream_t stream) {
    assert(!job->epilogue || !job->epilogue->residual);
    if (job->w->format == GEMM_FLOAT)
        grouped_float(job, x, g, stream);
    else if (job->w->act == DTYPE_F16)
        grouped_of<__half>(job, x, g, stream);
    else
        grouped_of<__nv_bfloat16>(job, x, g, stream);
}
