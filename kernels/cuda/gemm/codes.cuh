/* The formats of packed weights, and the conversion of their codes to operands of an mma: 16-bit
 * floats, which represent codes exactly. gemm/format.cuh documents the layout of a matrix. */
#ifndef PENSTOCK_CUDA_GEMM_CODES_CUH
#define PENSTOCK_CUDA_GEMM_CODES_CUH

#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

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

/* Converts small integers to floats: they are placed in the mantissa of a power of two, which is
 * then subtracted. bfloat16 has 7 bits for this, float16 has 10. */
template <class T> struct Magic;
template <> struct Magic<__half> {
    static constexpr uint32_t BITS = 0x64006400;
    static constexpr float VALUE = 1024.0f;
};
template <> struct Magic<__nv_bfloat16> {
    static constexpr uint32_t BITS = 0x43004300;
    static constexpr float VALUE = 128.0f;
};
/* Each half of `magic` is VALUE plus an integer; subtracts VALUE and `zero`. */
template <class T> __device__ __forceinline__ uint32_t integers(uint32_t magic, int zero) {
    using P = typename Pair<T>::type;
    return bits_as<uint32_t>(
        __hadd2(bits_as<P>(magic), pair_of<T>(-Magic<T>::VALUE - (float)zero)));
}

/* Two signed bytes in the low bytes of a word's halves. For bfloat16 the sign bit, worth -128, is
 * handled as a separate power of two. */
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
 * their place in T; a product corrects the exponents, subnormals included. */
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

/* ---- a slab in a lane's registers ------------------------------------------------------------ */

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

/* ---- formats --------------------------------------------------------------------------------- */

/* For each format:
 *   CODE    bytes of a lane's share of a slab, 4 per bit of a code: pieces of 16 bytes, each
 *           [32 lanes][16], then possibly one of [32 lanes][8] or [32 lanes][4]
 *   SCALE   bytes of scales for rows g and g + 8 and one slab: [8 g][SCALE]
 *   SUPER   the same for 4 slabs
 *   FOLDS   scales per slab and row; with 0 a sum continues from slab to slab
 *   RUN     see gemm/format.cuh
 *   MIN     a minimum is added to code times scale
 *   AHEAD   slabs in flight per warp of the skinny kernel, an even number
 *   TYPE    the type whose blocks have these codes and scales
 * fragment() makes one step's operand; scale() and min() are for rows g + 8 * side. */

template <int CODE_, int SCALE_, int SUPER_, int FOLDS_, int RUN_, bool MIN_> struct Layout {
    static constexpr int CODE = CODE_, SCALE = SCALE_, SUPER = SUPER_, FOLDS = FOLDS_, RUN = RUN_;
    static constexpr int AHEAD = 4;
    static constexpr bool MIN = MIN_, ANY_K = false, ROWS = false;
    static constexpr int CODE_BYTES = CODE * WARP, SCALE_BYTES = SCALE * 8, SUPER_BYTES = SUPER * 8;
};

/* ---- floats --------------------------------------------------------------------------------- */

/* The activations' type. A step is 16 bytes per lane: the fragment. */
struct Format16 : Layout<64, 0, 0, 0, 8, false> {
    static constexpr bool ANY_K = true;
    template <class T>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const Slab<Format16> &w,
                                                    int step) {
#pragma unroll
        for (int r = 0; r < 4; r++) a[r] = w.code[4 * step + r];
    }
};

/* The same weights as plain rows. */
struct FormatRows : Layout<64, 0, 0, 0, 8, false> {
    static constexpr bool ROWS = true;
    template <class T>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const Slab<FormatRows> &w,
                                                    int step) {
#pragma unroll
        for (int r = 0; r < 4; r++) a[r] = w.code[4 * step + r];
    }
};

/* Bytes: element e of a step is byte e of its 8. */
struct FormatFp8 : Layout<32, 8, 0, 1, 8, false> {
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

/* ---- scales ---------------------------------------------------------------------------------- */

/* A half per 32 weights, possibly followed by minima. */
template <int CODE, bool MIN> struct HalfScales : Layout<CODE, MIN ? 16 : 8, 0, 2, 8, MIN> {
    template <class W>
    __device__ __forceinline__ static float scale(const W &w, int fold, int side) {
        return half_at(w.scale, 2 * fold + side);
    }
    template <class W> __device__ __forceinline__ static float min(const W &w, int fold, int side) {
        return half_at(w.scale, 4 + 2 * fold + side);
    }
};

/* The same in float32. */
template <int CODE, bool MIN> struct FloatScales : Layout<CODE, MIN ? 32 : 16, 0, 2, 8, MIN> {
    template <class W>
    __device__ __forceinline__ static float scale(const W &w, int fold, int side) {
        return __uint_as_float(w.scale[2 * fold + side]);
    }
    template <class W> __device__ __forceinline__ static float min(const W &w, int fold, int side) {
        return __uint_as_float(w.scale[4 + 2 * fold + side]);
    }
};

/* A byte per 32 weights, scales before minima; `super` has their units, d before dmin. */
template <int CODE> struct ByteScales : Layout<CODE, 8, 8, 2, 8, true> {
    template <class W>
    __device__ __forceinline__ static float scale(const W &w, int fold, int side) {
        return half_at(w.super, side) * (float)byte_at(w.scale, 2 * fold + side);
    }
    template <class W> __device__ __forceinline__ static float min(const W &w, int fold, int side) {
        return half_at(w.super, 2 + side) * -(float)byte_at(w.scale, 4 + 2 * fold + side);
    }
};

/* A signed byte per FOLDS-th of a slab; `super` has their unit. */
template <int CODE, int FOLDS, int RUN>
struct SignedScales : Layout<CODE, 2 * FOLDS, 4, FOLDS, RUN, false> {
    template <class W>
    __device__ __forceinline__ static float scale(const W &w, int fold, int side) {
        return half_at(w.super, side) * (float)(int8_t)byte_at(w.scale, 2 * fold + side);
    }
};

/* ---- codes ---------------------------------------------------------------------------------- */

struct FormatQ8_0 : HalfScales<32, false> {
    static constexpr enum dtype TYPE = DTYPE_Q8_0;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
#pragma unroll
        for (int r = 0; r < 4; r++)
            a[r] =
                signed_bytes<T>(__byte_perm(w.code[2 * step + r / 2], 0, r % 2 ? 0x4342 : 0x4140));
    }
};
struct FormatInt8 : FloatScales<32, false> {
    static constexpr enum dtype TYPE = DTYPE_INT8;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
        FormatQ8_0::fragment<T>(a, w, step);
    }
};

/* Nibbles: one word per step; register r of the fragment has nibbles r and r + 4, including the
 * magic bits. */
template <class T> __device__ __forceinline__ uint32_t nibbles(uint32_t word, int r) {
    return and_or(word >> 4 * r, 0x000f000fu, Magic<T>::BITS);
}
template <class T, int ZERO, class W>
__device__ __forceinline__ void nibble_fragment(uint32_t (&a)[4], const W &w, int step) {
#pragma unroll
    for (int r = 0; r < 4; r++) a[r] = integers<T>(nibbles<T>(w.code[step], r), ZERO);
}

struct FormatQ4_0 : HalfScales<16, false> {
    static constexpr enum dtype TYPE = DTYPE_Q4_0;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
        nibble_fragment<T, 8>(a, w, step);
    }
};
struct FormatQ4_1 : HalfScales<16, true> {
    static constexpr enum dtype TYPE = DTYPE_Q4_1;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
        nibble_fragment<T, 0>(a, w, step);
    }
};
struct FormatInt4 : FloatScales<16, true> {
    static constexpr enum dtype TYPE = DTYPE_INT4;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
        nibble_fragment<T, 0>(a, w, step);
    }
};
struct FormatQ4_K : ByteScales<16> {
    static constexpr enum dtype TYPE = DTYPE_Q4_K;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
        nibble_fragment<T, 0>(a, w, step);
    }
};

/* Words 0-3 have the low nibbles, word 4 the fifth bits: for register r of a step, bit 4 * step + r
 * of each half. */
template <class T, int ZERO, class W>
__device__ __forceinline__ void five_fragment(uint32_t (&a)[4], const W &w, int step) {
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int by = 4 * step + r - 4; /* moves them above the nibbles */
        const uint32_t high = by < 0 ? w.code[4] << -by : w.code[4] >> by;
        a[r] = integers<T>(and_or(high, 0x00100010u, nibbles<T>(w.code[step], r)), ZERO);
    }
}
struct FormatQ5_0 : HalfScales<20, false> {
    static constexpr enum dtype TYPE = DTYPE_Q5_0;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
        five_fragment<T, 16>(a, w, step);
    }
};
struct FormatQ5_1 : HalfScales<20, true> {
    static constexpr enum dtype TYPE = DTYPE_Q5_1;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
        five_fragment<T, 0>(a, w, step);
    }
};
struct FormatQ5_K : ByteScales<20> {
    static constexpr enum dtype TYPE = DTYPE_Q5_K;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
        five_fragment<T, 0>(a, w, step);
    }
};

/* Words 0-3 have the low nibbles, words 4 and 5 the high pairs of two steps each: one byte of each
 * half per step. There is one scale per step. */
struct FormatQ6_K : SignedScales<24, 4, 4> {
    static constexpr enum dtype TYPE = DTYPE_Q6_K;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int by = 8 * (step % 2) + 2 * r - 4; /* moves them above the nibbles */
            const uint32_t pairs = w.code[4 + step / 2], high = by < 0 ? pairs << -by : pairs >> by;
            a[r] = integers<T>(and_or(high, 0x00300030u, nibbles<T>(w.code[step], r)), 32);
        }
    }
};

/* A word has the pairs of two steps. Each step has a byte with its scale in the low bits and its
 * minimum above; `super` has their units. */
struct FormatQ2_K : Layout<8, 8, 8, 4, 4, true> {
    static constexpr enum dtype TYPE = DTYPE_Q2_K;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
#pragma unroll
        for (int r = 0; r < 4; r++)
            a[r] = integers<T>(
                and_or(w.code[step / 2] >> (8 * (step % 2) + 2 * r), 0x00030003u, Magic<T>::BITS),
                0);
    }
    template <class W>
    __device__ __forceinline__ static float scale(const W &w, int fold, int side) {
        return half_at(w.super, side) * (float)(byte_at(w.scale, 2 * fold + side) & 15);
    }
    template <class W> __device__ __forceinline__ static float min(const W &w, int fold, int side) {
        return half_at(w.super, 2 + side) * -(float)(byte_at(w.scale, 2 * fold + side) >> 4);
    }
};

/* The values of IQ4's codes, as bytes: those of the 4 nibbles in the low half of a word. */
__device__ __forceinline__ uint32_t values_of_nl4(uint32_t word) {
    const uint32_t place = word & 0x7777u;
    const uint32_t low = __byte_perm(0xbfad9881u, 0xf6eaddcfu, place);
    const uint32_t high = __byte_perm(0x26190d01u, 0x71594535u, place);
    return __byte_perm(low, high, 0x3210u | (word & 0x8888u) >> 1);
}
struct FormatIQ4_XS : SignedScales<16, 2, 8> {
    static constexpr enum dtype TYPE = DTYPE_IQ4_XS;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
        const uint32_t low = values_of_nl4(w.code[step]), high = values_of_nl4(w.code[step] >> 16);
#pragma unroll
        for (int r = 0; r < 4; r++)
            a[r] = signed_bytes<T>(__byte_perm(low, high, 0x4400 + 0x1111 * r) & 0x00ff00ffu);
    }
};

/* Twice a 4-bit float. Its exponent and mantissa are moved to their place in T, like those of e4m3.
 */
template <class T> struct E2m1;
template <> struct E2m1<__half> {
    static constexpr int SHIFT = 9;
    static constexpr float TWICE = 0x1p15f;
};
template <> struct E2m1<__nv_bfloat16> {
    static constexpr int SHIFT = 6;
    static constexpr float TWICE = 0x1p127f;
};
/* A power of two per 32 weights: its exponent, a byte. */
struct FormatMxfp4 : Layout<16, 4, 0, 2, 8, false> {
    static constexpr enum dtype TYPE = DTYPE_MXFP4;
    template <class T, class W>
    __device__ __forceinline__ static void fragment(uint32_t (&a)[4], const W &w, int step) {
        using P = typename Pair<T>::type;
        const uint32_t word = w.code[step];
        constexpr int SHIFT = E2m1<T>::SHIFT;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int by = SHIFT - 4 * r;
            const uint32_t size = (by < 0 ? word >> -by : word << by) & 0x00070007u << SHIFT;
            const uint32_t moved = and_or(word << (12 - 4 * r), 0x80008000u, size);
            a[r] = bits_as<uint32_t>(__hmul2(bits_as<P>(moved), pair_of<T>(E2m1<T>::TWICE)));
        }
    }
    template <class W>
    __device__ __forceinline__ static float scale(const W &w, int fold, int side) {
        const uint32_t e = (uint32_t)byte_at(w.scale, 2 * fold + side);
        return __uint_as_float(e < 2 ? 0x200000u << e : (e - 1) << 23);
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
    case GEMM_E4M3:
        fn(FormatFp8());
        break;
    case GEMM_Q8_0:
        fn(FormatQ8_0());
        break;
    case GEMM_INT8:
        fn(FormatInt8());
        break;
    case GEMM_Q4_0:
        fn(FormatQ4_0());
        break;
    case GEMM_Q4_1:
        fn(FormatQ4_1());
        break;
    case GEMM_INT4:
        fn(FormatInt4());
        break;
    case GEMM_Q4_K:
        fn(FormatQ4_K());
        break;
    case GEMM_Q5_0:
        fn(FormatQ5_0());
        break;
    case GEMM_Q5_1:
        fn(FormatQ5_1());
        break;
    case GEMM_Q5_K:
        fn(FormatQ5_K());
        break;
    case GEMM_Q6_K:
        fn(FormatQ6_K());
        break;
    case GEMM_Q2_K:
        fn(FormatQ2_K());
        break;
    case GEMM_IQ4_XS:
        fn(FormatIQ4_XS());
        break;
    case GEMM_MXFP4:
        fn(FormatMxfp4());
        break;
    }
}

#endif
