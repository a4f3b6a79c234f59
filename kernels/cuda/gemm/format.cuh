/* Formats of packed weights, and the arithmetic that all mma kernels share.
 *
 * A tile is 16 rows of the matrix, a slab 64 columns of a tile, a step 16 of those: the A operand
 * of one mma. Its 8 elements a lane are numbered as the fragment has them: element e is half e % 2
 * of register e / 2. Lane l (g = l / 4, t = l % 4) holds for element e
 *
 *     row     g + 8 * (e / 2 % 2)
 *     column  16 * step + 4 * t + 2 * (e / 4) + e % 2                                (RUN 4)
 *             32 * (step / 2) + 8 * t + 4 * (step % 2) + 2 * (e / 4) + e % 2         (RUN 8)
 *
 * Any order of columns is correct as long as x has the same. With RUN 8 a lane needs 8 neighbours
 * of a row of x for two steps, which is one load of 16 bytes; with RUN 4 a step is 16 neighbouring
 * columns, as a format with a scale for each 16 needs.
 */
#ifndef PENSTOCK_CUDA_GEMM_FORMAT_CUH
#define PENSTOCK_CUDA_GEMM_FORMAT_CUH

#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

constexpr int GEMM_TILE = 16, GEMM_SLAB = 64, STEPS = GEMM_SLAB / 16, GEMM_GROUP = 8,
              SUPER_SLABS = 4;

/* ---- pairs of 16-bit floats ----------------------------------------------------------------- */

template <class T> struct Pair;
template <> struct Pair<__half> {
    using type = __half2;
    static constexpr uint32_t ONES = 0x3c003c00;
};
template <> struct Pair<__nv_bfloat16> {
    using type = __nv_bfloat162;
    static constexpr uint32_t ONES = 0x3f803f80;
};

template <class To, class From> __device__ __forceinline__ To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    return *reinterpret_cast<To *>(&from);
}
template <class T> __device__ __forceinline__ typename Pair<T>::type pair_of(float value) {
    typename Pair<T>::type pair;
    pair.x = pair.y = from_float<T>(value);
    return pair;
}

/* Small integers become floats in the mantissa of a power of two, which is then subtracted.
 * bfloat16 has room for 7 bits, float16 for 10. */
template <class T> struct Magic;
template <> struct Magic<__half> {
    static constexpr uint32_t BITS = 0x64006400;
    static constexpr float VALUE = 1024.0f;
};
template <> struct Magic<__nv_bfloat16> {
    static constexpr uint32_t BITS = 0x43004300;
    static constexpr float VALUE = 128.0f;
};
/* The halves of `magic`, each VALUE plus an integer, minus VALUE and `zero`. */
template <class T> __device__ __forceinline__ uint32_t integers(uint32_t magic, int zero) {
    using P = typename Pair<T>::type;
    return bits_as<uint32_t>(
        __hadd2(bits_as<P>(magic), pair_of<T>(-Magic<T>::VALUE - (float)zero)));
}

/* Two signed bytes in the low bytes of a word's halves. In bfloat16 the sign bit, worth -128, has a
 * power of two of its own. */
template <class T> __device__ __forceinline__ uint32_t signed_bytes(uint32_t halves);
template <> __device__ __forceinline__ uint32_t signed_bytes<__half>(uint32_t halves) {
    return integers<__half>((halves ^ 0x00800080u) | Magic<__half>::BITS, 128);
}
template <> __device__ __forceinline__ uint32_t signed_bytes<__nv_bfloat16>(uint32_t halves) {
    const uint32_t low = and_or(halves, 0x007f007fu, 0x43004300u);
    const uint32_t high = and_or(halves, 0x00800080u, 0xc300c300u);
    return bits_as<uint32_t>(__hadd2(bits_as<__nv_bfloat162>(low), bits_as<__nv_bfloat162>(high)));
}

/* Two e4m3 numbers in the high bytes of a word's halves. Their exponents and mantissas are moved to
 * where T has them; a product sets the exponents right, subnormals included. */
template <class T> __device__ __forceinline__ uint32_t e4m3_pair(uint32_t halves);
template <> __device__ __forceinline__ uint32_t e4m3_pair<__half>(uint32_t halves) {
    const uint32_t moved = and_or(halves, 0x80008000u, (halves & 0x7f007f00u) >> 1);
    return bits_as<uint32_t>(__hmul2(bits_as<__half2>(moved), pair_of<__half>(0x1p8f)));
}
template <> __device__ __forceinline__ uint32_t e4m3_pair<__nv_bfloat16>(uint32_t halves) {
    const uint32_t moved = and_or(halves, 0x80008000u, (halves & 0x7f007f00u) >> 4);
    return bits_as<uint32_t>(
        __hmul2(bits_as<__nv_bfloat162>(moved), pair_of<__nv_bfloat16>(0x1p120f)));
}

/* ---- a slab as a lane holds it -------------------------------------------------------------- */

template <class F> struct Slab {
    uint32_t code[F::CODE / 4];
    uint32_t scale[F::SCALE ? F::SCALE / 4 : 1];
    uint32_t super[F::SUPER ? F::SUPER / 4 : 1];
};

/* Bits 16i .. 16i+15 of some words as a half. */
__device__ __forceinline__ float half_at(const uint32_t *words, int i) {
    return __half2float(__ushort_as_half((unsigned short)(words[i / 2] >> 16 * (i % 2))));
}
__device__ __forceinline__ int byte_at(const uint32_t *words, int i) {
    return (int)(words[i / 4] >> 8 * (i % 4) & 255);
}

/* ---- the formats ---------------------------------------------------------------------------- */

/* Of each format:
 *   CODE    bytes of a lane's share of a slab: pieces of 16 bytes, each
 *           [32 lanes][16], then perhaps one of [32 lanes][8]
 *   SCALE   bytes of scales for rows g and g + 8 and one slab: [8 g][SCALE]
 *   SUPER   the same for 4 slabs
 *   FOLDS   scales in a slab of a row; with 0 a sum continues from slab to slab
 *   RUN     see the top of the file
 *   MIN     whether something is added to a code times its scale
 *   AHEAD   slabs that a warp of the skinny kernel has in flight, an even number
 * fragment() makes one step's operand; scale() and min() are of the rows g + 8 * side. */

template <int CODE_, int SCALE_, int SUPER_, int FOLDS_, int RUN_, bool MIN_, int AHEAD_>
struct Layout {
    static constexpr int CODE = CODE_, SCALE = SCALE_, SUPER = SUPER_, FOLDS = FOLDS_, RUN = RUN_;
    static constexpr int AHEAD = AHEAD_;
    static constexpr bool MIN = MIN_, ANY_K = false, ROWS = false;
    static constexpr int CODE_BYTES = CODE * WARP, SCALE_BYTES = SCALE * 8, SUPER_BYTES = SUPER * 8;
};

/* The activations' type. A step is 16 bytes a lane: the fragment. */
struct Format16 : Layout<64, 0, 0, 0, 8, false, 4> {
    static constexpr bool ANY_K = true;
    template <class T>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const Slab<Format16> &w,
                                                    int step) {
#pragma unroll
        for (int r = 0; r < 4; r++) a[r] = w.code[4 * step + r];
    }
};

/* The same weights, in rows as they are. */
struct FormatRows : Layout<64, 0, 0, 0, 8, false, 4> {
    static constexpr bool ROWS = true;
    template <class T>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const Slab<FormatRows> &w,
                                                    int step) {
#pragma unroll
        for (int r = 0; r < 4; r++) a[r] = w.code[4 * step + r];
    }
};

/* Bytes: element e of a step is byte e of its 8. */
struct FormatFp8 : Layout<32, 8, 0, 1, 8, false, 4> {
    static constexpr bool ANY_K = true;
    template <class T>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const Slab<FormatFp8> &w,
                                                    int step) {
#pragma unroll
        for (int r = 0; r < 4; r++)
            a[r] = e4m3_pair<T>(__byte_perm(w.code[2 * step + r / 2], 0, r % 2 ? 0x3424 : 0x1404));
    }
    __device__ __forceinline__ static float scale(const Slab<FormatFp8> &w, int, int side) {
        return __uint_as_float(w.scale[side]);
    }
};

struct FormatQ8_0 : Layout<32, 8, 0, 2, 8, false, 4> {
    template <class T>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const Slab<FormatQ8_0> &w,
                                                    int step) {
#pragma unroll
        for (int r = 0; r < 4; r++)
            a[r] =
                signed_bytes<T>(__byte_perm(w.code[2 * step + r / 2], 0, r % 2 ? 0x4342 : 0x4140));
    }
    __device__ __forceinline__ static float scale(const Slab<FormatQ8_0> &w, int fold, int side) {
        return half_at(w.scale, 2 * fold + side);
    }
};

/* Nibbles: a word a step; register r of the fragment has nibbles r and r + 4. With the magic
 * bits. */
template <class T> __device__ __forceinline__ uint32_t nibbles(uint32_t word, int r) {
    return and_or(word >> 4 * r, 0x000f000fu, Magic<T>::BITS);
}

struct FormatQ4_0 : Layout<16, 8, 0, 2, 8, false, 4> {
    template <class T>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const Slab<FormatQ4_0> &w,
                                                    int step) {
#pragma unroll
        for (int r = 0; r < 4; r++) a[r] = integers<T>(nibbles<T>(w.code[step], r), 8);
    }
    __device__ __forceinline__ static float scale(const Slab<FormatQ4_0> &w, int fold, int side) {
        return half_at(w.scale, 2 * fold + side);
    }
};

struct FormatQ4_1 : Layout<16, 16, 0, 2, 8, true, 4> {
    template <class T>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const Slab<FormatQ4_1> &w,
                                                    int step) {
#pragma unroll
        for (int r = 0; r < 4; r++) a[r] = integers<T>(nibbles<T>(w.code[step], r), 0);
    }
    __device__ __forceinline__ static float scale(const Slab<FormatQ4_1> &w, int fold, int side) {
        return half_at(w.scale, 2 * fold + side);
    }
    __device__ __forceinline__ static float min(const Slab<FormatQ4_1> &w, int fold, int side) {
        return half_at(w.scale, 4 + 2 * fold + side);
    }
};

/* Scales and minima are bytes; `super` has their units, d before dmin. */
struct FormatQ4_K : Layout<16, 8, 8, 2, 8, true, 4> {
    template <class T>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const Slab<FormatQ4_K> &w,
                                                    int step) {
#pragma unroll
        for (int r = 0; r < 4; r++) a[r] = integers<T>(nibbles<T>(w.code[step], r), 0);
    }
    __device__ __forceinline__ static float scale(const Slab<FormatQ4_K> &w, int fold, int side) {
        return half_at(w.super, side) * (float)byte_at(w.scale, 2 * fold + side);
    }
    __device__ __forceinline__ static float min(const Slab<FormatQ4_K> &w, int fold, int side) {
        return half_at(w.super, 2 + side) * -(float)byte_at(w.scale, 4 + 2 * fold + side);
    }
};

/* Words 0-3 have the low nibbles, 4 and 5 the high pairs of two steps each: a byte of each half a
 * step. A scale, a signed byte, for each step. */
struct FormatQ6_K : Layout<24, 8, 4, 4, 4, false, 4> {
    template <class T>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const Slab<FormatQ6_K> &w,
                                                    int step) {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int by = 8 * (step % 2) + 2 * r - 4; /* to the place above the nibbles */
            const uint32_t pairs = w.code[4 + step / 2], high = by < 0 ? pairs << -by : pairs >> by;
            a[r] = integers<T>(and_or(high, 0x00300030u, nibbles<T>(w.code[step], r)), 32);
        }
    }
    __device__ __forceinline__ static float scale(const Slab<FormatQ6_K> &w, int fold, int side) {
        return half_at(w.super, side) * (float)(int8_t)byte_at(w.scale, 2 * fold + side);
    }
};

/* Calls fn with a value of the format's type. */
template <class Fn> void for_format(enum gemm_format format, Fn fn) {
    switch (format) {
    case GEMM_FLOAT:
    case GEMM_ROWS:
        assert(!"a format of the mma kernels");
        break;
    case GEMM_16:
        fn(Format16());
        break;
    case GEMM_FP8:
        fn(FormatFp8());
        break;
    case GEMM_Q8_0:
        fn(FormatQ8_0());
        break;
    case GEMM_Q4_0:
        fn(FormatQ4_0());
        break;
    case GEMM_Q4_1:
        fn(FormatQ4_1());
        break;
    case GEMM_Q4_K:
        fn(FormatQ4_K());
        break;
    case GEMM_Q6_K:
        fn(FormatQ6_K());
        break;
    }
}

/* Column of element e of a step, in its slab. */
template <class F> __host__ __device__ constexpr int column_of(int step, int t, int e) {
    return (F::RUN == 8 ? 32 * (step / 2) + 8 * t + 4 * (step % 2) : 16 * step + 4 * t) +
           2 * (e / 4) + e % 2;
}

/* ---- loading -------------------------------------------------------------------------------- */

/* N words of weights from shared memory, or with ONCE from global memory: no other warp reads them,
 * and they should not evict what warps share. */
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

/* A lane's share of a slab of rows of K, a multiple of GEMM_SLAB: 8 columns of each 32 are the
 * words of two steps, for row g and for row g + 8. */
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

/* The start of one slab of a tile. */
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
    const int each = F::FOLDS == 1 ? w.scale_slabs : 1; /* known but for fp8 */
    return {tile.codes + slab * F::CODE_BYTES, tile.scales + slab / each * F::SCALE_BYTES,
            tile.supers + slab / SUPER_SLABS * F::SUPER_BYTES};
}

/* A lane's share of a slab. */
template <class F, bool ONCE>
__device__ __forceinline__ void load_slab(Slab<F> &w, const Place &from, int lane) {
    const uint8_t *codes = from.codes, *scales = from.scales, *supers = from.supers;
    constexpr int PIECES = F::CODE / 16;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        load_words<ONCE, 4>(&w.code[4 * i], codes + (i * WARP + lane) * 16);
    if constexpr (F::CODE % 16 != 0)
        load_words<ONCE, 2>(&w.code[4 * PIECES], codes + PIECES * 16 * WARP + lane * 8);
    if constexpr (F::SCALE != 0)
        load_words<false, F::SCALE / 4>(w.scale, scales + lane / 4 * F::SCALE);
    if constexpr (F::SUPER != 0)
        load_words<false, F::SUPER / 4>(w.super, supers + lane / 4 * F::SUPER);
}

/* ---- the product ---------------------------------------------------------------------------- */

/* A slab is multiplied in parts: the columns of one scale, or half of them. */
template <class F> constexpr int PARTS = F::FOLDS ? F::FOLDS : 2;
template <class F> constexpr int PART_STEPS = STEPS / PARTS<F>;

/* x of a part for 8 rows: the B operands, two words a step. They come in runs of neighbours. */
template <class F> struct Columns {
    static constexpr int RUNS = 4 * PART_STEPS<F> / F::RUN;
    uint32_t v[2 * PART_STEPS<F>];
};
/* The first column of a lane's run i of a part, in the slab. */
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

/* acc += one part of a tile's slab times C groups of 8 rows of x, whose sums are given too. The
 * order of every sum's operations is defined here and by `total + ...` in the kernels. */
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

#endif
