/* Products for up to 16 rows, limited by reading the weights.
 *
 * A block computes one tile of 16 outputs, or that tile of both matrices of a pair. A warp
 * processes one range of a tile's slabs. Each warp reads its weights once, in pieces of 512 bytes
 * with several slabs in flight. It also reads the rows of x, which all blocks share through the
 * caches. At the end the sums of the ranges are added in shared memory in the order of the ranges.
 *
 * If x needs a norm, each block normalises it into its shared memory while its first weights
 * arrive. The sums are those of norm_kernel, so the bits are the same. */
#ifndef PENSTOCK_CUDA_GEMM_SKINNY_CUH
#define PENSTOCK_CUDA_GEMM_SKINNY_CUH

#include "kernels/cuda/gemm/mainloop.cuh"

/* ---- a warp's share of a product ------------------------------------------------------------ */

constexpr int SUMS_WIDE = GEMM_TILE + 4; /* puts writing lanes into different banks */

/* A lane's runs of a row of x: the start of the first run, and the number of columns from there on.
 */
template <class T> struct Row {
    const T *at;
    int left;
};
/* RUN adjacent elements of a row, starting at column k after its first, or zeros after its end.
 * ALIGNED: a run is whole or empty. */
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
                                          slab * GEMM_SLAB + run_column<F>(part, i, 0));
}

/* A warp's work: slabs begin .. end of a tile, with AHEAD slabs in flight. */
template <class F> struct Range {
    const struct gemm_weights *w;
    Place tile;
    int begin, end;
    Slab<F> slab[F::AHEAD];
    __device__ __forceinline__ void load(int i, int number, int lane) {
        if constexpr (F::ROWS)
            load_rows(slab[i], tile.codes, w->K, number, lane);
        else
            load_slab<F, true>(slab[i], place_of_slab<F>(*w, tile, number), lane);
    }
    __device__ __forceinline__ void load_first(int lane) {
#pragma unroll
        for (int i = 0; i < F::AHEAD; i++)
            if (begin + i < end) load(i, begin + i, lane);
    }
};

/* The sums of a range whose first weights are in flight. x is loaded one slab ahead; its rows are
 * `apart` elements apart. */
template <class F, class T, int C, bool ALIGNED>
__device__ __forceinline__ void sum_range(float (&acc)[C][4], Range<F> &range, const T *from,
                                          int apart, int M, int lane) {
    static_assert(F::AHEAD % 2 == 0, "x has two places");
    Row<T> rows[C];
#pragma unroll
    for (int c = 0; c < C; c++) {
        const int m = c * GEMM_GROUP + lane / 4, t = lane % 4;
        rows[c].at = from + (size_t)(m < M ? m : 0) * apart + t * F::RUN;
        rows[c].left = (m < M ? range.w->K : 0) - t * F::RUN;
    }
    SlabColumns<F, C> x[2];
    load_columns<F, ALIGNED>(x[0], rows, range.begin);
    for (int slab = range.begin; slab < range.end; slab += F::AHEAD) {
#pragma unroll
        for (int i = 0; i < F::AHEAD; i++) {
            const int here = slab + i;
            if (here >= range.end) break;
            if (here + 1 < range.end) load_columns<F, ALIGNED>(x[(i + 1) % 2], rows, here + 1);
#pragma unroll
            for (int part = 0; part < PARTS<F>; part++) {
                float sums[C][2];
#pragma unroll
                for (int c = 0; c < C; c++) sum_columns<F, T>(sums[c], x[i % 2][part][c]);
                multiply<F, T, C>(acc, range.slab[i], part, x[i % 2][part], sums);
            }
            if (here + F::AHEAD < range.end) range.load(i, here + F::AHEAD, lane);
        }
    }
}

/* ---- the norm ------------------------------------------------------------------------------- */

/* The distance of normalised rows: whole slabs plus half a slab, to avoid bank conflicts. */
__host__ __device__ __forceinline__ int normed_wide(int slabs) {
    return slabs * GEMM_SLAB + GEMM_SLAB / 2;
}

/* Writes the normalised rows of x to the block's shared memory. Each warp repeatedly does the work
 * of one warp of norm_kernel for one row. `parts` is [M][NORM_WARPS]. */
template <class T>
__device__ __forceinline__ void norm_rows(T *to, float *parts, const Product<T> &p,
                                          const struct norm &norm) {
    constexpr int N = Vec16<T>::N;
    const int warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    const int K = p.w.K, wide = normed_wide(p.w.slabs);
    for (int i = threadIdx.x / WARP; i < p.M * NORM_WARPS; i += warps) {
        const int m = i / NORM_WARPS, first = (i % NORM_WARPS * WARP + lane) * N;
        float squares = 0.0f;
        for (int k = first; k < K; k += NORM_THREADS * N) {
            const Vec16<T> in = load16(p.x + (size_t)m * K + k);
            store16(to + m * wide + k, in);
#pragma unroll
            for (int e = 0; e < N; e++) squares = norm_add_square(squares, to_float(in.v[e]));
        }
        squares = warp_sum(squares);
        if (lane == 0) parts[i] = squares;
    }
    __syncthreads();
    for (int i = threadIdx.x / WARP; i < p.M * NORM_WARPS; i += warps) {
        const int m = i / NORM_WARPS, first = (i % NORM_WARPS * WARP + lane) * N;
        const float part = lane < NORM_WARPS ? parts[m * NORM_WARPS + lane] : 0.0f;
        const float r = norm_factor(warp_sum(part), K, norm.epsilon);
        for (int k = first; k < K; k += NORM_THREADS * N) { /* values stored by this lane */
            Vec16<T> v = load16(to + m * wide + k);
#pragma unroll
            for (int e = 0; e < N; e += 4) {
                const Vec<float, 4> gain = load_vec<4>(norm.gain + k + e);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    v.v[e + j] = from_float<T>(norm_value(to_float(v.v[e + j]), r, gain.v[j]));
            }
            store16(to + m * wide + k, v);
        }
    }
    __syncthreads();
}

/* The input rows of a block, `apart` from each other, and the place of its sums. */
template <class T> struct BlockRows {
    const T *x;
    int apart;
    float *sums;
};
/* The product's own rows or, with NORMED, rows in shared memory that the block normalises. */
template <bool NORMED, class T>
__device__ __forceinline__ BlockRows<T> rows_of_block(const Product<T> &p,
                                                      const struct norm &norm) {
    if constexpr (!NORMED) return {p.x, p.w.K, dyn_smem<float>()};
    T *normed = dyn_smem<T>();
    const int apart = normed_wide(p.w.slabs);
    float *sums = reinterpret_cast<float *>(normed + p.M * apart);
    norm_rows(normed, sums, p, norm);
    return {normed, apart, sums};
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* The number of warps that a block needs for a product. */
template <class T> __host__ __device__ __forceinline__ int warps_of(const Product<T> &p) {
    return p.w.ranges << p.pair;
}

/* A warp's part of a tile, of one matrix of its product. */
template <class F, class T> struct TileWork {
    const Product<T> *p;
    int tile, mine; /* if `mine` is ranges or more, the warp has no work */
    Range<F> range;
};
/* A warp's part of the launch's block `block`; starts loading its first weights. */
template <class F, class T>
__device__ __forceinline__ TileWork<F, T> begin_tile(const Products<T> &all, int block, int warp,
                                                     int lane) {
    const int number = number_of(all, block), tile = block - all.first[number];
    const Product<T> &p = all.of[number];
    const int ranges = p.w.ranges, slabs = p.w.slabs, up = warp >= ranges && p.pair;
    /* another product of the launch may have more ranges */
    const int mine = warp - (up ? ranges : 0);
    const struct gemm_weights &w = up ? p.up : p.w;
    TileWork<F, T> work = {&p,
                           tile,
                           mine,
                           {&w, place_of_tile<F>(w, tile),
                            range_start(slabs, ranges, min(mine, ranges)),
                            range_start(slabs, ranges, min(mine + 1, ranges))}};
    work.range.load_first(lane);
    return work;
}

/* Stores the sums of a warp's part in shared memory: [warps][ROWS][SUMS_WIDE]. */
template <class F, class T, int C, bool ALIGNED>
__device__ __forceinline__ void sum_tile(const BlockRows<T> &rows, TileWork<F, T> &work, int warp,
                                         int lane) {
    constexpr int ROWS = C * GEMM_GROUP;
    if (work.mine >= work.p->w.ranges) return;
    float acc[C][4] = {};
    sum_range<F, T, C, ALIGNED>(acc, work.range, rows.x, rows.apart, work.p->M, lane);
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int m = c * GEMM_GROUP + lane % 4 * 2 + i % 2, n = lane / 4 + i / 2 * 8;
            rows.sums[(warp * ROWS + m) * SUMS_WIDE + n] = acc[c][i];
        }
}

/* Adds the ranges' sums of all warps, and stores the tile's outputs. */
template <class T, int C>
__device__ __forceinline__ void finish_tile(const float *sums, const Product<T> &p, int tile) {
    constexpr int ROWS = C * GEMM_GROUP;
    const int ranges = p.w.ranges;
    for (int i = threadIdx.x; i < ROWS * GEMM_TILE; i += blockDim.x) {
        const int m = i / GEMM_TILE, n = i % GEMM_TILE;
        store_output(p, m, tile * GEMM_TILE + n, [&](int part) {
            float total = 0.0f;
            for (int r = part * ranges; r < (part + 1) * ranges; r++)
                total = total + sums[(r * ROWS + m) * SUMS_WIDE + n];
            return total;
        });
    }
}

template <class F, class T, int C, bool ALIGNED, bool NORMED>
__global__ void __launch_bounds__(MAX_WARPS *WARP)
    skinny_kernel(const __grid_constant__ Products<T> all) {
    grid_let_next();
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    TileWork<F, T> work = begin_tile<F>(all, (int)blockIdx.x, warp, lane);
    grid_wait(); /* for the previous grid, which writes x */
    const BlockRows<T> rows = rows_of_block<NORMED>(*work.p, all.norm);
    sum_tile<F, T, C, ALIGNED>(rows, work, warp, lane);
    __syncthreads();
    finish_tile<T, C>(rows.sums, *work.p, work.tile);
}

#endif
