/* Products for many rows, limited by the tensor cores.
 *
 * A block computes NB tiles of outputs for ROWS rows. Slabs of both operands pass through a ring of
 * STAGES buffers in shared memory, filled by cp.async. A warp computes NT tiles times C groups of
 * rows. Sums run over a range of slabs and are added to the total in the order of the ranges, as in
 * the skinny kernel.
 *
 * If there are few outputs and rows, several blocks share the ranges of the same outputs. Each
 * stores the sums of its ranges in memory, and the last block to finish adds all of them in the
 * same order. */
#ifndef PENSTOCK_CUDA_GEMM_TILED_CUH
#define PENSTOCK_CUDA_GEMM_TILED_CUH

#include "kernels/cuda/gemm/mainloop.cuh"

/* NB tiles by MB groups of 8 rows per block, NT by C per warp. */
template <int NB_, int MB_, int NT_, int C_, int STAGES_> struct Shape {
    static constexpr int NB = NB_, MB = MB_, NT = NT_, C = C_, STAGES = STAGES_;
    static constexpr int ROWS = MB * GEMM_GROUP, WARPS_N = NB / NT, WARPS_M = MB / C;
    static constexpr int THREADS = WARPS_N * WARPS_M * WARP;
    static constexpr int X_BYTES = ROWS * GEMM_SLAB * 2;
    static constexpr int SUMS_WIDE = NB * GEMM_TILE + 4; /* writing lanes are in different banks */
    static constexpr int SUMS_BYTES = ROWS * SUMS_WIDE * (int)sizeof(float);
    static constexpr int PART = ROWS * NB * GEMM_TILE; /* numbers per range's sums */
};
using Small = Shape<2, 4, 1, 2, 7>;  /* 32 outputs by 32 rows, 4 warps */
using Large = Shape<8, 16, 4, 8, 3>; /* 128 by 128, 4 warps */
constexpr int SMALL_ROWS = 64;       /* Small is used up to this number of rows */

/* A stage holds x, then codes, scales and supers of each tile. */
template <class F, class S> struct Ring {
    static constexpr int CODES = S::X_BYTES, SCALES = CODES + S::NB * F::CODE_BYTES;
    static constexpr int SUPERS = SCALES + S::NB * F::SCALE_BYTES;
    static constexpr int STAGE = SUPERS + S::NB * F::SUPER_BYTES, ALL = S::STAGES * STAGE;
    static constexpr int BYTES = ALL > S::SUMS_BYTES ? ALL : S::SUMS_BYTES;
};

/* The offset of piece `chunk` (16 bytes, 8 elements) of a row of x in a stage. It is permuted so
 * that lanes that read together, 2 rows of 4 pieces or 4 rows of 2, use different banks. */
__device__ __forceinline__ int x_offset(int row, int chunk) {
    return row * (GEMM_SLAB * 2) + (chunk ^ ((row & 1) << 2 | (row & 2))) * 16;
}

/* ---- filling a stage ------------------------------------------------------------------------ */

/* A thread copies the same part of every slab, so addresses and bounds are computed once and
 * advanced by a slab. */

/* A thread copies the same piece of every APART-th row. With ODD, rows may have any alignment and
 * are copied element by element. */
template <class T, class S, bool ODD> struct RowFiller {
    static constexpr int EACH = GEMM_SLAB / 8, APART = S::THREADS / EACH, TIMES = S::ROWS / APART;
    static_assert(S::ROWS % APART == 0 && APART % 4 == 0, "the rows' pieces are permuted alike");
    const T *from; /* the thread's piece of its first row */
    int step;      /* elements from one of its rows to the next */
    int rows;      /* rows of x from its first row on */
    int left;      /* columns of x from its piece on */
    int to;

    __device__ __forceinline__ RowFiller(const Product<T> &p, int first, int slab) {
        const int row = (int)threadIdx.x / EACH, chunk = (int)threadIdx.x % EACH;
        const int m = first + row, k = slab * GEMM_SLAB + chunk * 8;
        from = p.x + (size_t)m * p.w.K + k;
        step = APART * p.w.K;
        rows = p.M - m;
        left = p.w.K - k;
        to = x_offset(row, chunk);
    }
    __device__ __forceinline__ void fill(uint8_t *stage) {
        const int first = left > 0 ? rows : 0;
        const T *row = from;
#pragma unroll
        for (int j = 0; j < TIMES; j++, row += step) {
            uint8_t *piece = stage + to + j * APART * GEMM_SLAB * 2;
            const bool there = j * APART < first;
            if constexpr (ODD)
                copy_elements(piece, row, there ? left : 0);
            else
                cp_async16(piece, row, there ? 16 : 0);
        }
        from += GEMM_SLAB;
        left -= GEMM_SLAB;
    }
    __device__ __forceinline__ static void copy_elements(uint8_t *to, const T *from, int n) {
        Vec16<uint16_t> v;
#pragma unroll
        for (int i = 0; i < 8; i++) v.v[i] = i < n ? bits_as<uint16_t>(from[i]) : (uint16_t)0;
        store16(reinterpret_cast<uint16_t *>(to), v);
    }
};

/* The largest power of two that is at most n. */
constexpr int power_below(int n) {
    return n < 2 ? 1 : 2 * power_below(n / 2);
}

/* A part of the stages: BYTES bytes of each of the block's tiles, contiguous, and zeros for missing
 * tiles. The tiles of a pair's matrices alternate. A thread copies the same piece of every
 * AT_ONCE-th tile. */
template <int BYTES, class S> struct PartFiller {
    static constexpr int EACH = BYTES / 16;
    static constexpr int MOST = power_below(S::THREADS / EACH);
    static constexpr int AT_ONCE = MOST < S::NB ? MOST : S::NB;
    static_assert(S::NB % AT_ONCE == 0 && (AT_ONCE == 1 || AT_ONCE % 2 == 0), "all copy as many");
    const uint8_t *from; /* the thread's piece of its first tile */
    /* bytes from a tile to the next, for even numbers, and to the second */
    ptrdiff_t one, two;
    int tiles; /* tiles from its first on */
    int to;

    /* The tiles of one matrix start at `first`, `apart` bytes from each other, those of a pair's
     * other matrix at `second`; each has `count` tiles. */
    __device__ __forceinline__ PartFiller(const uint8_t *first, const uint8_t *second, size_t apart,
                                          int pair, int count) {
        const int tile = (int)threadIdx.x / EACH, piece = (int)threadIdx.x % EACH;
        one = pair ? second - first : (ptrdiff_t)apart;
        two = (ptrdiff_t)apart << !pair;
        from = first + (tile / 2 * two + tile % 2 * one) + piece * 16;
        tiles = (count << pair) - tile;
        to = (int)threadIdx.x * 16;
    }
    __device__ __forceinline__ void fill(uint8_t *part, int forward) {
        if (EACH * AT_ONCE == S::THREADS || threadIdx.x < EACH * AT_ONCE) {
#pragma unroll
            for (int i = 0; i < S::NB / AT_ONCE; i++) {
                const ptrdiff_t ahead = i * AT_ONCE / 2 * two + i * AT_ONCE % 2 * one;
                cp_async16(part + to + i * AT_ONCE * BYTES, from + ahead,
                           i * AT_ONCE < tiles ? 16 : 0);
            }
        }
        from += forward;
    }
};
template <class S> struct PartFiller<0, S> { /* the format lacks this part */
    __device__ __forceinline__ PartFiller(const uint8_t *, const uint8_t *, size_t, int, int) {}
    __device__ __forceinline__ void fill(uint8_t *, int) {}
};

/* A thread's copies of the block's slabs, from a given one on. */
template <class F, class T, class S, bool ODD> struct Filler {
    RowFiller<T, S, ODD> rows;
    PartFiller<F::CODE_BYTES, S> codes;
    PartFiller<F::SCALE_BYTES, S> scales;
    PartFiller<F::SUPER_BYTES, S> supers;
    int next, scale_slabs; /* the number of the next slab; slabs per scale */

    __device__ __forceinline__ Filler(const Product<T> &p, int first_row, int tile, int slab)
        : Filler(p, first_row, slab, p.w.tiles - tile,
                 place_of_slab<F>(p.w, place_of_tile<F>(p.w, tile), slab),
                 place_of_slab<F>(p.up, place_of_tile<F>(p.up, tile), slab),
                 place_of_slab<F>(p.w, place_of_tile<F>(p.w, tile + 1), slab)) {}
    __device__ __forceinline__ Filler(const Product<T> &p, int first_row, int slab, int tiles,
                                      const Place &at, const Place &up, const Place &after)
        : rows(p, first_row, slab),
          codes(at.codes, up.codes, (size_t)(after.codes - at.codes), p.pair, tiles),
          scales(at.scales, up.scales, (size_t)(after.scales - at.scales), p.pair, tiles),
          supers(at.supers, up.supers, (size_t)(after.supers - at.supers), p.pair, tiles),
          next(slab), scale_slabs(F::FOLDS == 1 ? p.w.scale_slabs : 1) {}
    /* Starts copying the next slab. */
    __device__ __forceinline__ void fill(uint8_t *stage) {
        using R = Ring<F, S>;
        next++;
        rows.fill(stage);
        codes.fill(stage + R::CODES, F::CODE_BYTES);
        const bool is_last = F::FOLDS != 1 || next % scale_slabs == 0;
        scales.fill(stage + R::SCALES, is_last ? F::SCALE_BYTES : 0);
        supers.fill(stage + R::SUPERS, next % SUPER_SLABS == 0 ? F::SUPER_BYTES : 0);
    }
};

/* ---- using it ------------------------------------------------------------------------------- */

/* The B operands of a part of a slab for a group of 8 rows, which begins at `rows`. The lane's
 * offset in the permuted rows is the same in all groups; another run flips bits of it. */
template <class F>
__device__ __forceinline__ void read_columns(Columns<F> &x, const uint8_t *rows, int part,
                                             int lane) {
    const int column = run_column<F>(0, 0, lane % 4);
    const int at = x_offset(lane / 4, column / 8) + column % 8 * 2;
#pragma unroll
    for (int i = 0; i < Columns<F>::RUNS; i++)
        load_words<false, F::RUN / 2>(&x.v[i * F::RUN / 2],
                                      rows + (at ^ run_column<F>(part, i, 0) * 2));
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
            read_columns<F>(x[c], stage + (group + c) * (GEMM_GROUP * GEMM_SLAB * 2), part, lane);
            sum_columns<F, T>(sums[c], x[c]);
        }
#pragma unroll
        for (int n = 0; n < S::NT; n++) multiply<F, T, S::C>(acc[n], w[n], part, x, sums);
    }
}

/* A thread's totals over the ranges, used once per range. If the running sums fill the registers,
 * `volatile` keeps the totals out of them. */
template <class S, bool IN_MEMORY = (S::NT * S::C > 8)> struct Totals {
    volatile float v[S::NT][S::C][4];
};
template <class S> struct Totals<S, false> { float v[S::NT][S::C][4]; };
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

/* ---- ranges of other blocks ----------------------------------------------------------------- */

/* The place of a thread's sums in a range's part, four at a time. */
template <class T, class S>
__device__ __forceinline__ float *part_of(const Products<T> &all, int number, int range) {
    const int tiles = (int)blockIdx.y - all.first[number];
    const int block = tiles * (int)gridDim.x + (int)blockIdx.x;
    const int part = all.share.first[number] + block * all.of[number].w.ranges + range;
    return all.share.in.parts + (size_t)part * S::PART + threadIdx.x * 4;
}
template <class S>
__device__ __forceinline__ void leave_range(float *part, float (&acc)[S::NT][S::C][4]) {
#pragma unroll
    for (int n = 0; n < S::NT; n++)
#pragma unroll
        for (int c = 0; c < S::C; c++) {
            Vec<float, 4> v;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v.v[i] = acc[n][c][i];
                acc[n][c][i] = 0.0f;
            }
            store_vec<4>(part + (n * S::C + c) * S::THREADS * 4, v);
        }
}
/* Is this block the last of those that share its ranges? If so, it sees the sums of the others and
 * has reset their counter. `arrived` is shared memory that the block does not use otherwise; a
 * static variable would move the ring, and with it each address in the loop. */
__device__ __forceinline__ bool is_last_block(const struct Sharing &share, volatile int *arrived) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t *counter = share.in.counters + blockIdx.y * gridDim.x + blockIdx.x;
        *arrived = atomicAdd(counter, 1) + 1;
        if (*arrived == share.blocks) *counter = 0;
    }
    __syncthreads();
    if (*arrived < share.blocks) return false;
    __threadfence();
    return true;
}
/* acc must be zero and becomes the sum of all ranges. */
template <class T, class S>
__device__ __forceinline__ void join_ranges(float (&acc)[S::NT][S::C][4], const Products<T> &all,
                                            int number) {
    for (int range = 0; range < all.of[number].w.ranges; range++) {
        const float *part = part_of<T, S>(all, number, range);
#pragma unroll
        for (int n = 0; n < S::NT; n++)
#pragma unroll
            for (int c = 0; c < S::C; c++) {
                const float4 v = __ldcg(
                    reinterpret_cast<const float4 *>(part + (n * S::C + c) * S::THREADS * 4));
                acc[n][c][0] = acc[n][c][0] + v.x;
                acc[n][c][1] = acc[n][c][1] + v.y;
                acc[n][c][2] = acc[n][c][2] + v.z;
                acc[n][c][3] = acc[n][c][3] + v.w;
            }
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

/* With ODD, the rows of x may have any alignment. */
template <class F, class T, class S, bool ODD>
__global__ void __launch_bounds__(S::THREADS, 2)
    tiled_kernel(const __grid_constant__ Products<T> all) {
    using R = Ring<F, S>;
    grid_begin();
    uint8_t *ring = dyn_smem<uint8_t>();
    const int number = number_of(all, (int)blockIdx.y);
    const Product<T> &p = all.of[number];
    /* the block's first */
    const int tile = ((int)blockIdx.y - all.first[number]) * (S::NB >> p.pair);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int ranges = p.w.ranges, slabs = p.w.slabs, blocks = all.share.blocks;
    int range = range_start(ranges, blocks, (int)blockIdx.z);
    const int end_range = range_start(ranges, blocks, (int)blockIdx.z + 1);
    int slab = range_start(slabs, ranges, range);
    const int end_slab = range_start(slabs, ranges, end_range);
    Totals<S> total = {};
    float acc[S::NT][S::C][4] = {};
    Filler<F, T, S, ODD> filler(p, (int)blockIdx.x * S::ROWS, tile, slab);
#pragma unroll
    for (int i = 0; i < S::STAGES - 1; i++) {
        if (filler.next < end_slab) filler.fill(ring + i * R::STAGE);
        cp_async_commit();
    }
    uint8_t *const last = ring + R::ALL - R::STAGE, *stage = ring, *before = last;
    for (; range < end_range; range++) {
        const int end = range_start(slabs, ranges, range + 1);
        for (; slab < end; slab++) {
            cp_async_wait<S::STAGES - 2>();
            /* the slab has arrived, and all threads are done with the previous one */
            __syncthreads();
            if (filler.next < end_slab) filler.fill(before);
            cp_async_commit(); /* the group may be empty: the wait counts groups */
            use_stage<F, T, S>(acc, stage, warp, lane);
            before = stage;
            stage = stage < last ? stage + R::STAGE : ring;
        }
        if (blocks == 1)
            add_range<S>(total, acc);
        else
            leave_range<S>(part_of<T, S>(all, number, range), acc);
    }
    cp_async_wait<0>();
    if (blocks > 1) {
        if (!is_last_block(all.share, reinterpret_cast<int *>(ring))) return;
        join_ranges<T, S>(acc, all, number);
        add_range<S>(total, acc);
    }
    __syncthreads(); /* the ring's memory is reused for the sums */
    finish_block<T, S>(p, tile, reinterpret_cast<float *>(ring), total, warp, lane);
}

#endif
