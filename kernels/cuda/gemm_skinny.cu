/* Products for up to 16 rows, bound by the reading of the weights.
 *
 * A block is one tile of 16 outputs, a warp one range of its slabs. Each warp reads its weights
 * once, in pieces of 512 bytes, with several slabs under way, and the rows of x beside them, which
 * all blocks share and the caches hold. At the end the ranges' sums meet in shared memory and are
 * added in the order of the ranges. */
#include "kernels/cuda/gemm_format.cuh"

constexpr int MOST_WARPS = 16;
constexpr int SUMS_WIDE = TILE + 4; /* keeps the lanes that write in different banks */

/* A lane's runs of a row of x: where the first begins, and how many columns follow from there. */
template <class T> struct Row {
    const T *at;
    int left;
};
/* RUN neighbours of a row from column k after its first on, or zeros beyond its end. ALIGNED, a run
 * is whole, or not there. */
template <int RUN, bool ALIGNED, class T>
__device__ __forceinline__ void load_run(uint32_t *to, const Row<T> &row, int k) {
    if constexpr (ALIGNED) {
        Vec<uint32_t, RUN / 2> v = {};
        if (k < row.left) v = load_vec<RUN / 2>(reinterpret_cast<const uint32_t *>(row.at + k));
#pragma unroll
        for (int i = 0; i < RUN / 2; i++) to[i] = v.v[i];
    } else {
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            const uint32_t bits = k + i < row.left ? bits_as<uint16_t>(row.at[k + i]) : 0;
            to[i / 2] = i % 2 ? to[i / 2] | bits << 16 : bits;
        }
    }
}

/* The B operands of a slab, straight from memory; rows beyond M are zeros. */
template <class F, int C> using SlabColumns = Columns<F>[PARTS<F>][C];
template <class F, bool ALIGNED, class T, int C>
__device__ __forceinline__ void load_columns(SlabColumns<F, C> &x, const Row<T> (&rows)[C],
                                             int slab) {
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int part = 0; part < PARTS<F>; part++)
#pragma unroll
            for (int i = 0; i < Columns<F>::RUNS; i++)
                load_run<F::RUN, ALIGNED>(&x[part][c].v[i * F::RUN / 2], rows[c],
                                          slab * SLAB + run_column<F>(part, i, 0));
}

/* The sums of a warp's range of a tile. Weights are under way for AHEAD slabs, x for one. The first
 * weights are asked for before the grid in front has ended, which makes x. */
template <class F, class T, int C, bool ALIGNED>
__device__ __forceinline__ void sum_range(float (&acc)[C][4], const Product<T> &p, int begin,
                                          int end, int tile_number, int lane) {
    static_assert(F::AHEAD % 2 == 0, "x has two places");
    const Place tile = place_of_tile<F>(p.w, tile_number);
    auto load = [&](Slab<F> &to, int slab) {
        load_slab<F, true>(to, place_of_slab<F>(p.w, tile, slab), lane);
    };
    Row<T> rows[C];
#pragma unroll
    for (int c = 0; c < C; c++) {
        const int m = c * GROUP + lane / 4, t = lane % 4;
        rows[c].at = p.x + (size_t)(m < p.M ? m : 0) * p.w.K + t * F::RUN;
        rows[c].left = (m < p.M ? p.w.K : 0) - t * F::RUN;
    }
    Slab<F> w[F::AHEAD];
    SlabColumns<F, C> x[2];
#pragma unroll
    for (int i = 0; i < F::AHEAD; i++)
        if (begin + i < end) load(w[i], begin + i);
    grid_wait();
    load_columns<F, ALIGNED>(x[0], rows, begin);
    for (int slab = begin; slab < end; slab += F::AHEAD) {
#pragma unroll
        for (int i = 0; i < F::AHEAD; i++) {
            const int here = slab + i;
            if (here >= end) break;
            if (here + 1 < end) load_columns<F, ALIGNED>(x[(i + 1) % 2], rows, here + 1);
#pragma unroll
            for (int part = 0; part < PARTS<F>; part++) {
                float sums[C][2];
#pragma unroll
                for (int c = 0; c < C; c++) sum_columns<F, T>(sums[c], x[i % 2][part][c]);
                multiply<F, T, C>(acc, w[i], part, x[i % 2][part], sums);
            }
            if (here + F::AHEAD < end) load(w[i], here + F::AHEAD);
        }
    }
}

template <class F, class T, int C, bool ALIGNED>
__global__ void __launch_bounds__(MOST_WARPS *WARP)
    skinny_kernel(const __grid_constant__ Products<T> all) {
    constexpr int ROWS = C * GROUP;
    grid_let_next();
    float *sums = dyn_smem<float>(); /* [ranges][ROWS][SUMS_WIDE] */
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int number = number_of(all, (int)blockIdx.x), tile = (int)blockIdx.x - all.first[number];
    const Product<T> &p = all.of[number];
    if (warp < p.w.ranges) { /* another product of the launch may have more */
        float acc[C][4] = {};
        sum_range<F, T, C, ALIGNED>(acc, p, range_start(p.w.slabs, p.w.ranges, warp),
                                    range_start(p.w.slabs, p.w.ranges, warp + 1), tile, lane);
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int m = c * GROUP + lane % 4 * 2 + i % 2, n = lane / 4 + i / 2 * 8;
                sums[(warp * ROWS + m) * SUMS_WIDE + n] = acc[c][i];
            }
    } else {
        grid_wait();
    }
    __syncthreads();
    const int columns = tile_columns(p.w.gated);
    for (int i = threadIdx.x; i < ROWS * columns; i += blockDim.x) {
        const int m = i / columns;
        store_output(p, m, tile, i % columns, [&](int n) {
            float total = 0.0f;
            for (int range = 0; range < p.w.ranges; range++)
                total = total + sums[(range * ROWS + m) * SUMS_WIDE + n];
            return total;
        });
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

template <class F, class T, int C> static void skinny(const Products<T> &all, cudaStream_t stream) {
    int ranges = 0;
    for (const Product<T> &p : all.of) ranges = p.w.ranges > ranges ? p.w.ranges : ranges;
    const size_t smem = sizeof(float) * ranges * C * GROUP * SUMS_WIDE;
    auto kernel = skinny_kernel<F, T, C, true>;
    if constexpr (F::ANY_K)
        if (all.of->w.K % F::RUN != 0) kernel = skinny_kernel<F, T, C, false>;
    launch(kernel, dim3(all.first[GEMM_MOST_JOBS]), dim3(ranges * WARP), smem, stream, all);
}

template <class T>
static void skinny_of(const struct gemm_job *jobs, int n, const void *x, int M,
                      cudaStream_t stream) {
    const Products<T> all = products_of<T>(jobs, n, x, M, 1);
    for_format(jobs->w->format, [&](auto format) {
        using F = decltype(format);
        if (M <= GROUP)
            skinny<F, T, 1>(all, stream);
        else
            skinny<F, T, 2>(all, stream);
    });
}

void gemm_skinny(const struct gemm_job *jobs, int n, const void *x, int M, cudaStream_t stream) {
    static_assert(MOST_WARPS * 2 * GROUP * SUMS_WIDE * sizeof(float) <= DEFAULT_SMEM, "sums fit");
    assert(M <= GEMM_SKINNY_ROWS);
    for (int i = 0; i < n; i++) assert(jobs[i].w->ranges <= MOST_WARPS);
    if (jobs->w->act == DTYPE_F16)
        skinny_of<__half>(jobs, n, x, M, stream);
    else
        skinny_of<__nv_bfloat16>(jobs, n, x, M, stream);
}
