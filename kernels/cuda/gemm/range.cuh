/* A warp's share of a product of few rows: some slabs of a tile's weights, times rows of x that it
 * reads straight from memory. */
#ifndef PENSTOCK_CUDA_GEMM_RANGE_CUH
#define PENSTOCK_CUDA_GEMM_RANGE_CUH

#include "kernels/cuda/gemm/mainloop.cuh"

constexpr int SUMS_WIDE = GEMM_TILE + 4; /* puts the lanes that write into different banks */

/* A lane's runs of a row of x: the start of the first, and the columns that follow. */
template <class T> struct Row {
    const T *at;
    int left;
};
/* RUN neighbours of a row from column k after its first on, or zeros beyond its end. ALIGNED: a run
 * is whole or empty. */
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

/* A warp's work: slabs begin .. end of a tile, AHEAD of which are in flight. */
template <class F> struct Range {
    const struct gemm_weights &w;
    const Place tile;
    const int begin, end;
    Slab<F> slab[F::AHEAD];
    __device__ __forceinline__ void load(int i, int number, int lane) {
        if constexpr (F::ROWS)
            load_rows(slab[i], tile.codes, w.K, number, lane);
        else
            load_slab<F, true>(slab[i], place_of_slab<F>(w, tile, number), lane);
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
        rows[c].left = (m < M ? range.w.K : 0) - t * F::RUN;
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

#endif
