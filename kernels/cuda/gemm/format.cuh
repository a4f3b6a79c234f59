/* The layout of packed weights, and the arithmetic of all mma kernels.
 *
 * A tile is 16 rows of the matrix, a slab 64 columns of a tile, a step 16 columns of a slab: the A
 * operand of one mma. Its 8 elements per lane are numbered by their place in the fragment: element
 * e is half e % 2 of register e / 2. Lane l (g = l / 4, t = l % 4) holds for element e
 *
 *     row     g + 8 * (e / 2 % 2)
 *     column  16 * step + 4 * t + 2 * (e / 4) + e % 2                                (RUN 4)
 *             32 * (step / 2) + 8 * t + 4 * (step % 2) + 2 * (e / 4) + e % 2         (RUN 8)
 *
 * Any order of columns is correct if x has the same order. With RUN 8 a lane needs 8 adjacent
 * elements of a row of x for two steps, which is one load of 16 bytes. With RUN 4 a step is 16
 * adjacent columns, as formats with a scale per 16 columns need.
 */
#ifndef PENSTOCK_CUDA_GEMM_FORMAT_CUH
#define PENSTOCK_CUDA_GEMM_FORMAT_CUH

#include "kernels/cuda/gemm/codes.cuh"

constexpr int GEMM_TILE = 16, GEMM_SLAB = 64, STEPS = GEMM_SLAB / 16, GEMM_GROUP = 8,
              SUPER_SLABS = 4;

/* The column of element e of a step, in its slab. */
template <class F> __host__ __device__ constexpr int column_of(int step, int t, int e) {
    return (F::RUN == 8 ? 32 * (step / 2) + 8 * t + 4 * (step % 2) : 16 * step + 4 * t) +
           2 * (e / 4) + e % 2;
}

/* ---- loading -------------------------------------------------------------------------------- */

/* Loads N words of weights from shared memory, or with ONCE from global memory: no other warp reads
 * them, and they should not evict data that warps share. */
template <bool ONCE, int N>
__device__ __forceinline__ void load_words(uint32_t *to, const uint8_t *from) {
    if (ONCE && N == 4) {
        const uint4 v = __ldcs(reinterpret_cast<const uint4 *>(from));
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        const Vec<uint32_t, N> v = load_vec<N>(reinterpret_cast<const uint32_t *>(from));
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = v.v[i];
    }
}

/* Loads a lane's share of a slab of plain rows of K, a multiple of GEMM_SLAB: 8 columns of each 32
 * are the words of two steps, for row g and for row g + 8. */
__device__ __forceinline__ void load_rows(Slab<FormatRows> &w, const uint8_t *tile, int K, int slab,
                                          int lane) {
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int side = 0; side < 2; side++) {
            uint32_t words[4];
            const int row = lane / 4 + 8 * side, column = slab * GEMM_SLAB + j * 32 + lane % 4 * 8;
            load_words<true, 4>(words, tile + ((size_t)row * K + column) * 2);
#pragma unroll
            for (int i = 0; i < 4; i++) w.code[8 * j + 2 * i + side] = words[i];
        }
}

/* The addresses of one slab of a tile. */
struct Place {
    const uint8_t *codes, *scales, *supers;
};
template <class F>
__device__ __forceinline__ Place place_of_tile(const struct gemm_weights &w, int tile) {
    const size_t n_scales = (size_t)((w.slabs + w.scale_slabs - 1) / w.scale_slabs);
    const size_t n_supers = (size_t)((w.slabs + SUPER_SLABS - 1) / SUPER_SLABS);
    return {w.codes + (size_t)tile * w.slabs * F::CODE_BYTES,
            w.scales + tile * n_scales * F::SCALE_BYTES,
            w.supers + tile * n_supers * F::SUPER_BYTES};
}
template <class F>
__device__ __forceinline__ Place place_of_slab(const struct gemm_weights &w, const Place &tile,
                                               int slab) {
    const int each = F::FOLDS == 1 ? w.scale_slabs : 1; /* a constant except for fp8 */
    return {tile.codes + slab * F::CODE_BYTES, tile.scales + slab / each * F::SCALE_BYTES,
            tile.supers + slab / SUPER_SLABS * F::SUPER_BYTES};
}

/* Loads a lane's share of a slab. */
template <class F, bool ONCE>
__device__ __forceinline__ void load_slab(Slab<F> &w, const Place &from, int lane) {
    const uint8_t *codes = from.codes, *scales = from.scales, *supers = from.supers;
    constexpr int PIECES = F::CODE / 16;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        load_words<ONCE, 4>(&w.code[4 * i], codes + (i * WARP + lane) * 16);
    if constexpr (F::CODE % 16 != 0) {
        constexpr int REST = F::CODE % 16;
        load_words<ONCE, REST / 4>(&w.code[4 * PIECES], codes + PIECES * 16 * WARP + lane * REST);
    }
    if constexpr (F::SCALE != 0)
        load_words<false, F::SCALE / 4>(w.scale, scales + lane / 4 * F::SCALE);
    if constexpr (F::SUPER != 0)
        load_words<false, F::SUPER / 4>(w.super, supers + lane / 4 * F::SUPER);
}

/* ---- the product ---------------------------------------------------------------------------- */

/* A slab is multiplied in parts: the columns of one scale, or half a slab. */
template <class F> constexpr int PARTS = F::FOLDS ? F::FOLDS : 2;
template <class F> constexpr int PART_STEPS = STEPS / PARTS<F>;

/* x of a part for 8 rows: the B operands, two words per step, in runs of adjacent columns. */
template <class F> struct Columns {
    static constexpr int RUNS = 4 * PART_STEPS<F> / F::RUN;
    uint32_t v[2 * PART_STEPS<F>];
};
/* The first column, in the slab, of a lane's run i of a part. */
template <class F> __device__ __forceinline__ int run_column(int part, int i, int t) {
    return (4 * (part * Columns<F>::RUNS + i) + t) * F::RUN;
}

/* Sums of x over a part, for the lane's two rows of x: an mma with a matrix of ones. */
template <class F, class T>
__device__ __forceinline__ void sum_columns(float (&sum)[2], const Columns<F> &x) {
    if constexpr (F::MIN) {
        const uint32_t ones[4] = {Pair<T>::ONES, Pair<T>::ONES, Pair<T>::ONES, Pair<T>::ONES};
        float d[4] = {};
#pragma unroll
        for (int i = 0; i < PART_STEPS<F>; i++) {
            const uint32_t b[2] = {x.v[2 * i], x.v[2 * i + 1]};
            mma_m16n8k16<T>(d, ones, b);
        }
        sum[0] = d[0];
        sum[1] = d[1];
    }
}

/* acc += one part of a tile's slab times C groups of 8 rows of x, with the given sums of x. This
 * function and `total + ...` in the kernels define the order of all sums. */
template <class F, class T, int C>
__device__ __forceinline__ void multiply(float (&acc)[C][4], const Slab<F> &w, int part,
                                         const Columns<F> (&x)[C], const float (&sums)[C][2]) {
    constexpr int EACH = PART_STEPS<F>;
    uint32_t a[EACH][4];
#pragma unroll
    for (int i = 0; i < EACH; i++) F::template fragment<T>(a[i], w, part * EACH + i);
#pragma unroll
    for (int c = 0; c < C; c++) {
        float folded[4] = {};
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const uint32_t b[2] = {x[c].v[2 * i], x[c].v[2 * i + 1]};
            mma_m16n8k16<T>(F::FOLDS ? folded : acc[c], a[i], b);
        }
        if constexpr (F::FOLDS != 0)
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[c][i] = fmaf(folded[i], F::scale(w, part, i / 2), acc[c][i]);
        if constexpr (F::MIN)
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[c][i] = fmaf(sums[c][i % 2], F::min(w, part, i / 2), acc[c][i]);
    }
}

/* The first slab of range i. */
__host__ __device__ __forceinline__ int range_start(int slabs, int ranges, int i) {
    return i * slabs / ranges;
}

/* ---- a row of an embedding, by one block ----------------------------------------------------- */

/* The arguments of embed_rows (ops.cuh). */
template <class T> struct EmbedArgs {
    T *y;
    struct gemm_weights w;
    const int32_t *rows, *sampled;
    float scale;
    bool add;
};

/* The matrix's row for row m; -1: none. */
__device__ __forceinline__ int row_of(const int32_t *row, const int32_t *sampled, int m) {
    const int32_t id = row[m];
    return id < 0 && sampled ? sampled[-1 - id] : id; /* the inverse of pending_token */
}

/* Sets y to the scaled weight, or adds it to y. */
template <class T> __device__ __forceinline__ void put(T *y, float weight, float scale, bool add) {
    const float value = weight * scale;
    *y = from_float<T>(add ? to_float(*y) + value : value);
}

/* The weights 2 * i and 2 * i + 1 of a fragment's register, as floats. */
template <class F, class T>
__device__ __forceinline__ float2 weights_of(const Slab<F> &w, uint32_t codes, int step, int side) {
    const auto pair = bits_as<typename Pair<T>::type>(codes);
    float2 v = {to_float(pair.x), to_float(pair.y)};
    if constexpr (F::FOLDS != 0) {
        const int fold = step / PART_STEPS<F>;
        const float scale = F::scale(w, fold, side);
        v = {v.x * scale, v.y * scale};
        if constexpr (F::MIN) {
            const float min = F::min(w, fold, side);
            v = {v.x + min, v.y + min};
        }
    }
    return v;
}

/* Computes row m. A thread processes a quarter of a slab's row at a time: one lane's share in a
 * product. */
template <class F, class T>
__device__ __forceinline__ void embed_row(const EmbedArgs<T> &a, int m) {
    const struct gemm_weights &w = a.w;
    const int id = row_of(a.rows, a.sampled, m), g = id % GEMM_GROUP,
              side = id % GEMM_TILE / GEMM_GROUP;
    if (id < 0) return;
    const Place tile = place_of_tile<F>(w, id / GEMM_TILE);
    T *row = a.y + (size_t)m * w.K;
    for (int i = threadIdx.x; i < w.slabs * 4; i += blockDim.x) {
        const int slab = i / 4, t = i % 4;
        Slab<F> share;
        load_slab<F, false>(share, place_of_slab<F>(w, tile, slab), 4 * g + t);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            uint32_t words[4];
            F::template fragment<T>(words, share, step);
#pragma unroll
            for (int half = 0; half < 2; half++) { /* halves of the step's columns */
                const float2 v = weights_of<F, T>(share, words[2 * half + side], step, side);
                const int k = slab * GEMM_SLAB + column_of<F>(step, t, 4 * half);
                if (k < w.K) put(row + k, v.x, a.scale, a.add);
                if (k + 1 < w.K) put(row + k + 1, v.y, a.scale, a.add);
            }
        }
    }
}

#endif
