/* Products for many rows, bound by the tensor cores.
 *
 * A block makes NB tiles of outputs for ROWS rows. Slabs of both pass through a ring of STAGES
 * buffers in shared memory, filled by cp.async. A warp makes NT tiles times C groups of rows. Sums
 * run over a range of slabs and are added to the total in the order of the ranges, as in the skinny
 * kernel. */
#ifndef PENSTOCK_CUDA_GEMM_TILED_CUH
#define PENSTOCK_CUDA_GEMM_TILED_CUH

#include "kernels/cuda/gemm/mainloop.cuh"

/* NB tiles by MB groups of 8 rows a block, NT by C a warp. */
template <int NB_, int MB_, int NT_, int C_, int STAGES_> struct Shape {
    static constexpr int NB = NB_, MB = MB_, NT = NT_, C = C_, STAGES = STAGES_;
    static constexpr int ROWS = MB * GEMM_GROUP, WARPS_N = NB / NT, WARPS_M = MB / C;
    static constexpr int THREADS = WARPS_N * WARPS_M * WARP;
    static constexpr int X_BYTES = ROWS * GEMM_SLAB * 2;
    static constexpr int SUMS_WIDE = NB * GEMM_TILE + 4; /* writing lanes in different banks */
    static constexpr int SUMS_BYTES = ROWS * SUMS_WIDE * (int)sizeof(float);
};
using Small = Shape<2, 4, 1, 2, 4>;  /* 32 outputs by 32 rows, 4 warps */
using Large = Shape<8, 16, 4, 8, 3>; /* 128 by 128, 4 warps */
constexpr int SMALL_ROWS = 64;       /* up to which Small is used */

/* A stage is x, then codes, scales and supers of each tile. */
template <class F, class S> struct Ring {
    static constexpr int CODES = S::X_BYTES, SCALES = CODES + S::NB * F::CODE_BYTES;
    static constexpr int SUPERS = SCALES + S::NB * F::SCALE_BYTES;
    static constexpr int STAGE = SUPERS + S::NB * F::SUPER_BYTES, ALL = S::STAGES * STAGE;
    static constexpr int BYTES = ALL > S::SUMS_BYTES ? ALL : S::SUMS_BYTES;
};

/* The offset of piece `chunk` (16 bytes, 8 elements) of a row of x in a stage, permuted so that
 * lanes that read together, 2 rows of 4 pieces or 4 rows of 2, use different banks. */
__device__ __forceinline__ int x_offset(int row, int chunk) {
    return row * (GEMM_SLAB * 2) + (chunk ^ ((row & 1) << 2 | (row & 2))) * 16;
}

/* ---- filling a stage ------------------------------------------------------------------------ */

template <class F, class T, class S>
__device__ __forceinline__ void fill_x(uint8_t *stage, const Product<T> &p, int slab) {
    constexpr int EACH = GEMM_SLAB / 8;
    const int first = (int)blockIdx.x * S::ROWS;
    for (int i = threadIdx.x; i < S::ROWS * EACH; i += S::THREADS) {
        const int m = first + i / EACH, k = slab * GEMM_SLAB + i % EACH * 8;
        const bool there = m < p.M && k < p.w.K;
        const T *from = p.x + (there ? (size_t)m * p.w.K + k : 0);
        uint8_t *to = stage + x_offset(i / EACH, i % EACH);
        if (!F::ANY_K || p.w.K % 8 == 0) {
            cp_async16(to, from, there ? 16 : 0);
        } else {
            Vec16<uint16_t> v;
            for (int j = 0; j < 8; j++)
                v.v[j] = there && k + j < p.w.K ? bits_as<uint16_t>(from[j]) : (uint16_t)0;
            store16(reinterpret_cast<uint16_t *>(to), v);
        }
    }
}

/* Copies BYTES of each of the block's tiles, one after another, and zeros for missing tiles. With
 * `pair` 1 the tiles of both matrices alternate: one's are at `first`, the other's at `second`. */
template <int BYTES, class S>
__device__ __forceinline__ void fill_part(uint8_t *to, const uint8_t *first, const uint8_t *second,
                                          size_t apart, int pair, int tiles) {
    constexpr int EACH = BYTES / 16;
    if constexpr (EACH != 0)
        for (int i = threadIdx.x; i < S::NB * EACH; i += S::THREADS) {
            const int place = i / EACH, tile = place >> pair;
            const uint8_t *from = place & pair ? second : first;
            const bool there = tile < tiles;
            cp_async16(to + i * 16, from + (there ? tile * apart + i % EACH * 16 : 0),
                       there ? 16 : 0);
        }
}

template <class F, class T, class S>
__device__ __forceinline__ void fill_stage(uint8_t *stage, const Product<T> &p, int tile,
                                           int slab) {
    using R = Ring<F, S>;
    const int tiles = p.w.tiles - tile, pair = p.pair;
    const Place from = place_of_slab<F>(p.w, place_of_tile<F>(p.w, tile), slab);
    const Place next = place_of_slab<F>(p.w, place_of_tile<F>(p.w, tile + 1), slab);
    const Place up = place_of_slab<F>(p.up, place_of_tile<F>(p.up, tile), slab);
    fill_x<F, T, S>(stage, p, slab);
    fill_part<F::CODE_BYTES, S>(stage + R::CODES, from.codes, up.codes, next.codes - from.codes,
                                pair, tiles);
    fill_part<F::SCALE_BYTES, S>(stage + R::SCALES, from.scales, up.scales,
                                 next.scales - from.scales, pair, tiles);
    fill_part<F::SUPER_BYTES, S>(stage + R::SUPERS, from.supers, up.supers,
                                 next.supers - from.supers, pair, tiles);
}

/* ---- using it ------------------------------------------------------------------------------- */

/* The B operands of a part of a slab for group `group` of 8 rows. */
template <class F>
__device__ __forceinline__ void read_columns(Columns<F> &x, const uint8_t *stage, int group,
                                             int part, int lane) {
    const int row = group * GEMM_GROUP + lane / 4;
#pragma unroll
    for (int i = 0; i < Columns<F>::RUNS; i++) {
        const int column = run_column<F>(part, i, lane % 4);
        load_words<false, F::RUN / 2>(&x.v[i * F::RUN / 2],
                                      stage + x_offset(row, column / 8) + column % 8 * 2);
    }
}

/* acc += a slab of the warp's tiles times its rows. */
template <class F, class T, class S>
__device__ __forceinline__ void use_stage(float (&acc)[S::NT][S::C][4], const uint8_t *stage,
                                          int warp, int lane) {
    using R = Ring<F, S>;
    const int tile = warp % S::WARPS_N * S::NT, group = warp / S::WARPS_N * S::C;
    Slab<F> w[S::NT];
#pragma unroll
    for (int n = 0; n < S::NT; n++)
        load_slab<F, false>(w[n],
                            {stage + R::CODES + (tile + n) * F::CODE_BYTES,
                             stage + R::SCALES + (tile + n) * F::SCALE_BYTES,
                             stage + R::SUPERS + (tile + n) * F::SUPER_BYTES},
                            lane);
#pragma unroll
    for (int part = 0; part < PARTS<F>; part++) {
        Columns<F> x[S::C];
        float sums[S::C][2];
#pragma unroll
        for (int c = 0; c < S::C; c++) {
            read_columns<F>(x[c], stage, group + c, part, lane);
            sum_columns<F, T>(sums[c], x[c]);
        }
#pragma unroll
        for (int n = 0; n < S::NT; n++) multiply<F, T, S::C>(acc[n], w[n], part, x, sums);
    }
}

/* A thread's totals over the ranges, needed once a range. `volatile` keeps them out of the
 * registers, which the running sums fill. */
template <class S> struct Totals { volatile float v[S::NT][S::C][4]; };
template <class S>
__device__ __forceinline__ void add_range(Totals<S> &total, float (&acc)[S::NT][S::C][4]) {
#pragma unroll
    for (int n = 0; n < S::NT; n++)
#pragma unroll
        for (int c = 0; c < S::C; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                total.v[n][c][i] = total.v[n][c][i] + acc[n][c][i];
                acc[n][c][i] = 0.0f;
            }
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The totals pass through shared memory, so that rows of y are written in order. */
template <class T, class S>
__device__ __forceinline__ void finish_block(const Product<T> &p, int first_tile, float *sums,
                                             const Totals<S> &total, int warp, int lane) {
    const int tile = warp % S::WARPS_N * S::NT, group = warp / S::WARPS_N * S::C;
#pragma unroll
    for (int n = 0; n < S::NT; n++)
#pragma unroll
        for (int c = 0; c < S::C; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int m = (group + c) * GEMM_GROUP + lane % 4 * 2 + i % 2;
                sums[m * S::SUMS_WIDE + (tile + n) * GEMM_TILE + lane / 4 + i / 2 * 8] =
                    total.v[n][c][i];
            }
    __syncthreads();
    const int wide = S::NB * GEMM_TILE >> p.pair;
    for (int i = threadIdx.x; i < S::ROWS * wide; i += S::THREADS) {
        const int m = i / wide, n = i % wide,
                  tile_sums = (n / GEMM_TILE << p.pair) * GEMM_TILE + n % GEMM_TILE;
        store_output(p, (int)blockIdx.x * S::ROWS + m, first_tile * GEMM_TILE + n,
                     [&](int up) { return sums[m * S::SUMS_WIDE + tile_sums + up * GEMM_TILE]; });
    }
}

template <class F, class T, class S>
__global__ void __launch_bounds__(S::THREADS)
    tiled_kernel(const __grid_constant__ Products<T> all) {
    using R = Ring<F, S>;
    grid_begin();
    uint8_t *ring = dyn_smem<uint8_t>();
    const int number = number_of(all, (int)blockIdx.y);
    const Product<T> &p = all.of[number];
    /* the block's first */
    const int tile = ((int)blockIdx.y - all.first[number]) * (S::NB >> p.pair);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, slabs = p.w.slabs;
    Totals<S> total = {};
    float acc[S::NT][S::C][4] = {};
#pragma unroll
    for (int i = 0; i < S::STAGES - 1; i++) {
        if (i < slabs) fill_stage<F, T, S>(ring + i * R::STAGE, p, tile, i);
        cp_async_commit();
    }
    int range = 0;
    for (int slab = 0; slab < slabs; slab++) {
        cp_async_wait<S::STAGES - 2>();
        __syncthreads(); /* the slab has arrived, and all threads are done with the one before it */
        const int ahead = slab + S::STAGES - 1;
        if (ahead < slabs) fill_stage<F, T, S>(ring + ahead % S::STAGES * R::STAGE, p, tile, ahead);
        cp_async_commit(); /* perhaps an empty group: the wait counts groups */
        use_stage<F, T, S>(acc, ring + slab % S::STAGES * R::STAGE, warp, lane);
        if (slab + 1 == range_start(slabs, p.w.ranges, range + 1)) {
            add_range<S>(total, acc);
            range++;
        }
    }
    cp_async_wait<0>();
    __syncthreads(); /* the ring becomes the sums' place */
    finish_block<T, S>(p, tile, reinterpret_cast<float *>(ring), total, warp, lane);
}

#endif
