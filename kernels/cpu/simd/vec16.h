/* Sixteen float lanes, in one AVX-512 register or in two AVX2 registers. The .inc files use these
 * functions. Each function is one IEEE operation per lane, so both forms give the same bits. */
#ifndef PENSTOCK_KERNELS_CPU_VEC16_H
#define PENSTOCK_KERNELS_CPU_VEC16_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

#define INLINE static inline __attribute__((always_inline))

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("nounroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* A loop over a constant number of registers. It must be unrolled, or they would be in memory. */
#define UNROLL_FOR(i, n) UNROLL for (int i = 0; i < (n); i++)

/* Keeps a pointer in one register. Intel processors split an instruction with three other operands
 * in two if its memory operand has a base and an index. */
#define IN_REGISTER(pointer) __asm__("" : "+r"(pointer))

#ifdef __AVX512F__

typedef __m512 vec16;

INLINE __mmask16 vec16_mask(size_t n) {
    return (__mmask16)((1u << n) - 1);
}

INLINE vec16 vec16_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE vec16 vec16_load_first(const float *p, size_t n) {
    return _mm512_maskz_loadu_ps(vec16_mask(n), p);
}
INLINE void vec16_store(float *p, vec16 a) {
    _mm512_storeu_ps(p, a);
}
INLINE void vec16_store_first(float *p, vec16 a, size_t n) {
    _mm512_mask_storeu_ps(p, vec16_mask(n), a);
}
INLINE vec16 vec16_all(float x) {
    return _mm512_set1_ps(x);
}
INLINE float vec16_first(vec16 a) {
    return _mm512_cvtss_f32(a);
}
INLINE vec16 vec16_add(vec16 a, vec16 b) {
    return _mm512_add_ps(a, b);
}
INLINE vec16 vec16_sub(vec16 a, vec16 b) {
    return _mm512_sub_ps(a, b);
}
INLINE vec16 vec16_mul(vec16 a, vec16 b) {
    return _mm512_mul_ps(a, b);
}
INLINE vec16 vec16_div(vec16 a, vec16 b) {
    return _mm512_div_ps(a, b);
}
INLINE vec16 vec16_fma(vec16 a, vec16 b, vec16 c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vec16 vec16_max(vec16 a, vec16 b) {
    return _mm512_max_ps(a, b);
} /* a > b ? a : b */
INLINE vec16 vec16_min(vec16 a, vec16 b) {
    return _mm512_min_ps(a, b);
} /* a < b ? a : b */

/* |a|, and |a| with the sign of `sign`; a must not be negative. */
INLINE vec16 vec16_magnitude(vec16 a) {
    return _mm512_abs_ps(a);
}
INLINE vec16 vec16_with_sign(vec16 a, vec16 sign) {
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        _mm512_castps_si512(a), _mm512_castps_si512(sign), _mm512_set1_epi32(INT32_MIN), 0xd8));
}

/* 0 where x < low, else a. */
INLINE vec16 vec16_zero_below(vec16 a, vec16 x, vec16 low) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), a);
}

/* 2^n for the n in the low bits of x = 1.5 * 2^23 + n. */
INLINE vec16 vec16_power_of_two(vec16 x) {
    __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(x), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x3f800000)));
}

INLINE vec16 vec16_load_halves(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
/* Loads bfloat16 numbers. */
INLINE vec16 vec16_load_brains(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
INLINE void vec16_store_halves(uint16_t *p, vec16 a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* ---- sixteen sums of products of 16-bit codes, exact ---------------------------------------- */

typedef __m512i ints;

INLINE ints ints_zero(void) {
    return _mm512_setzero_si512();
}
/* Loads sixteen pairs of codes of one or two bytes. */
INLINE ints pairs_load(const uint8_t *p, const bool bytes) {
    if (bytes) return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_loadu_si512(p);
}
/* Loads one pair into every lane. */
INLINE ints pairs_all(const int16_t *pair) {
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return _mm512_set1_epi32(both);
}
/* sum + a[0] * b[0] + a[1] * b[1] in each lane */
INLINE ints ints_add_pairs(ints sum, ints a, ints b) {
    /* _mm512_dpwssd_epi32; for the intrinsic, gcc 12 copies the sums to other registers in every
     * iteration. */
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
INLINE vec16 vec16_of_ints(ints a) {
    return _mm512_cvtepi32_ps(a);
}
/* Magnitudes as integers. They compare as the floats do, and a NaN is the largest. */
INLINE ints vec16_magnitudes(vec16 a) {
    return _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff));
}
INLINE vec16 vec16_of_bits(ints a) {
    return _mm512_castsi512_ps(a);
}
INLINE ints ints_max(ints a, ints b) {
    return _mm512_max_epi32(a, b);
}
INLINE uint32_t ints_largest(ints a) {
    return (uint32_t)_mm512_reduce_max_epi32(a);
}
/* Writes the lanes rounded to the nearest integer, ties to even, as 16-bit codes. */
INLINE void vec16_store_rounded_16(int16_t *p, vec16 a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a)));
}

/* The fixed tree: lanes 8-15 are added to 0-7, then 4-7 to 0-3, and so on. */
INLINE __m256 vec16_fold(vec16 a) {
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
    return _mm256_add_ps(_mm512_castps512_ps256(a), high);
}
INLINE __m256 vec16_fold_max(vec16 a) {
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
    return _mm256_max_ps(_mm512_castps512_ps256(a), high);
}

/* Packs 32 numbers within -127..127 into bytes. */
INLINE __m256i ints_bytes(ints low, ints high) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512i words = _mm512_packs_epi32(low, high);
    __m512i bytes = _mm512_packs_epi16(words, words);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, bytes));
}
/* Rounds lanes to the nearest integer, ties to even; rounds lanes towards 0. */
INLINE ints vec16_nearest(vec16 a) {
    return _mm512_cvtps_epi32(a);
}
INLINE ints vec16_towards_zero(vec16 a) {
    return _mm512_cvttps_epi32(a);
}

/* Bit i is set if lane i of 32 is equal to x. */
INLINE uint32_t vec16_equal(vec16 low, vec16 high, float x) {
    __m512 all = _mm512_set1_ps(x);
    uint32_t first = _mm512_cmp_ps_mask(low, all, _CMP_EQ_OQ);
    return first | (uint32_t)_mm512_cmp_ps_mask(high, all, _CMP_EQ_OQ) << 16;
}

/* Makes powers of two from the bytes of their exponents. */
INLINE vec16 vec16_load_exponents(const uint8_t *p) {
    __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 23));
}

#else /* AVX2 */

typedef struct {
    __m256 low, high;
} vec16;

INLINE __m256i vec8_mask(size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE size_t past_eight(size_t n) {
    return n > 8 ? n - 8 : 0;
}

INLINE vec16 vec16_load(const float *p) {
    return (vec16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
INLINE vec16 vec16_load_first(const float *p, size_t n) {
    return (vec16){_mm256_maskload_ps(p, vec8_mask(n)),
                   _mm256_maskload_ps(p + 8, vec8_mask(past_eight(n)))};
}
INLINE void vec16_store(float *p, vec16 a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}
INLINE void vec16_store_first(float *p, vec16 a, size_t n) {
    _mm256_maskstore_ps(p, vec8_mask(n), a.low);
    _mm256_maskstore_ps(p + 8, vec8_mask(past_eight(n)), a.high);
}
INLINE vec16 vec16_all(float x) {
    return (vec16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
INLINE float vec16_first(vec16 a) {
    return _mm256_cvtss_f32(a.low);
}

#define LANEWISE_2(name, op)                                                                       \
    INLINE vec16 name(vec16 a, vec16 b) {                                                          \
        return (vec16){op(a.low, b.low), op(a.high, b.high)};                                      \
    }
LANEWISE_2(vec16_add, _mm256_add_ps)
LANEWISE_2(vec16_sub, _mm256_sub_ps)
LANEWISE_2(vec16_mul, _mm256_mul_ps)
LANEWISE_2(vec16_div, _mm256_div_ps)
LANEWISE_2(vec16_max, _mm256_max_ps)
LANEWISE_2(vec16_min, _mm256_min_ps)
#undef LANEWISE_2

INLINE vec16 vec16_fma(vec16 a, vec16 b, vec16 c) {
    return (vec16){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
INLINE vec16 vec16_magnitude(vec16 a) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (vec16){_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
INLINE vec16 vec16_with_sign(vec16 a, vec16 sign) {
    __m256 bit = _mm256_set1_ps(-0.0f);
    return (vec16){_mm256_or_ps(a.low, _mm256_and_ps(bit, sign.low)),
                   _mm256_or_ps(a.high, _mm256_and_ps(bit, sign.high))};
}
INLINE vec16 vec16_zero_below(vec16 a, vec16 x, vec16 low) {
    return (vec16){_mm256_andnot_ps(_mm256_cmp_ps(x.low, low.low, _CMP_LT_OQ), a.low),
                   _mm256_andnot_ps(_mm256_cmp_ps(x.high, low.high, _CMP_LT_OQ), a.high)};
}

INLINE __m256 vec8_powers_of_two(__m256 x) {
    __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(x), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(0x3f800000)));
}
INLINE vec16 vec16_power_of_two(vec16 x) {
    return (vec16){vec8_powers_of_two(x.low), vec8_powers_of_two(x.high)};
}

INLINE __m256 vec8_halves(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
INLINE vec16 vec16_load_halves(const uint16_t *p) {
    return (vec16){vec8_halves(p), vec8_halves(p + 8)};
}
INLINE __m256 vec8_brains(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
INLINE vec16 vec16_load_brains(const uint16_t *p) {
    return (vec16){vec8_brains(p), vec8_brains(p + 8)};
}
INLINE void vec16_store_halves(uint16_t *p, vec16 a) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}

typedef struct {
    __m256i low, high;
} ints;

INLINE ints ints_zero(void) {
    return (ints){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
INLINE __m256i vec8_pairs(const uint8_t *p, const bool bytes) {
    if (bytes) return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    return _mm256_loadu_si256((const __m256i *)p);
}
INLINE ints pairs_load(const uint8_t *p, const bool bytes) {
    return (ints){vec8_pairs(p, bytes), vec8_pairs(p + (bytes ? 16 : 32), bytes)};
}
INLINE ints pairs_all(const int16_t *pair) {
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return (ints){_mm256_set1_epi32(both), _mm256_set1_epi32(both)};
}
INLINE __m256i vec8_add_pairs(__m256i sum, __m256i a, __m256i b) {
#ifdef __AVXVNNI__
    return _mm256_dpwssd_avx_epi32(sum, a, b);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
}
INLINE ints ints_add_pairs(ints sum, ints a, ints b) {
    return (ints){vec8_add_pairs(sum.low, a.low, b.low), vec8_add_pairs(sum.high, a.high, b.high)};
}
INLINE vec16 vec16_of_ints(ints a) {
    return (vec16){_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
INLINE __m256i vec8_magnitudes(__m256 a) {
    return _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
}
INLINE ints vec16_magnitudes(vec16 a) {
    return (ints){vec8_magnitudes(a.low), vec8_magnitudes(a.high)};
}
INLINE vec16 vec16_of_bits(ints a) {
    return (vec16){_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
INLINE ints ints_max(ints a, ints b) {
    return (ints){_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}
INLINE uint32_t ints_largest(ints a) {
    __m256i max = _mm256_max_epi32(a.low, a.high);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
INLINE void vec16_store_rounded_16(int16_t *p, vec16 a) {
    __m256i both = _mm256_packs_epi32(_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(both, 0xd8));
}

INLINE __m256 vec16_fold(vec16 a) {
    return _mm256_add_ps(a.low, a.high);
}
INLINE __m256 vec16_fold_max(vec16 a) {
    return _mm256_max_ps(a.low, a.high);
}

INLINE __m256i ints_bytes(ints low, ints high) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i first = _mm256_packs_epi32(low.low, low.high);
    __m256i last = _mm256_packs_epi32(high.low, high.high);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, last), order);
}
INLINE ints vec16_nearest(vec16 a) {
    return (ints){_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
INLINE ints vec16_towards_zero(vec16 a) {
    return (ints){_mm256_cvttps_epi32(a.low), _mm256_cvttps_epi32(a.high)};
}

INLINE uint32_t vec8_equal(__m256 a, float x) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, _mm256_set1_ps(x), _CMP_EQ_OQ));
}
INLINE uint32_t vec16_equal(vec16 low, vec16 high, float x) {
    uint32_t first = vec8_equal(low.low, x) | vec8_equal(low.high, x) << 8;
    return first | vec8_equal(high.low, x) << 16 | vec8_equal(high.high, x) << 24;
}

INLINE __m256 vec8_exponents(const uint8_t *p) {
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 23));
}
INLINE vec16 vec16_load_exponents(const uint8_t *p) {
    return (vec16){vec8_exponents(p), vec8_exponents(p + 8)};
}

#endif

/* ---- prefetching weights --------------------------------------------------------------------- */

/* A kernel reads codes and scales as two streams. They are prefetched as the one contiguous range
 * that all panels form, a part with each block, into the L2 cache: prefetching to the L1 cache
 * halves the rate. Only the first tile of rows prefetches; later tiles find the panel in the
 * caches. */

enum { AHEAD = 16384 }; /* bytes, the best of several powers of two */

INLINE size_t fetch_share(const struct matrix *w) {
    return round_up(w->panel_bytes / (size_t)w->n_blocks, 64);
}

INLINE void fetch(const uint8_t *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) _mm_prefetch((const char *)p + at, _MM_HINT_T1);
}

/* ---- reductions and functions of lanes ------------------------------------------------------- */

/* Rounds 32 lanes within -127..127 to the nearest integer, ties to even, as bytes. */
INLINE __m256i vec16_rounded(vec16 low, vec16 high) {
    return ints_bytes(vec16_nearest(low), vec16_nearest(high));
}
/* The same with rounding towards 0. */
INLINE __m256i vec16_truncated(vec16 low, vec16 high) {
    return ints_bytes(vec16_towards_zero(low), vec16_towards_zero(high));
}

/* The largest magnitude of 32 floats, or a NaN. */
INLINE float vec16_largest_magnitude(vec16 a, vec16 b) {
    uint32_t bits = ints_largest(ints_max(vec16_magnitudes(a), vec16_magnitudes(b)));
    float max;
    memcpy(&max, &bits, sizeof max);
    return max;
}

/* Sums of the first 16 and the last 16 of 32 signed bytes. There is an instruction for unsigned
 * bytes. */
INLINE void sum_halves(int out[2], __m256i bytes) {
    __m256i above = _mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80));
    __m256i eights = _mm256_sad_epu8(above, _mm256_setzero_si256());
    __m256i halves = _mm256_add_epi64(eights, _mm256_shuffle_epi32(eights, 0x4e));
    out[0] = _mm256_cvtsi256_si32(halves) - LANES * 0x80;
    out[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(halves, 1)) - LANES * 0x80;
}

INLINE float vec16_sum(vec16 a) {
    __m256 eight = vec16_fold(a);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

INLINE float vec16_largest(vec16 a) {
    __m256 eight = vec16_fold_max(a);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* exp(x) = (m + 1) * 2^n for x <= EXP_HIGH. Returns m and writes 2^n to *power. */
INLINE vec16 vec16_exp_parts(vec16 x, vec16 *power) {
    vec16 shifted = vec16_fma(x, vec16_all(EXP_LOG2E), vec16_all(EXP_ROUND));
    vec16 n = vec16_sub(shifted, vec16_all(EXP_ROUND));
    vec16 r = vec16_fma(n, vec16_all(-EXP_LN2_HIGH), x);
    r = vec16_fma(n, vec16_all(-EXP_LN2_LOW), r);
    vec16 q = vec16_fma(r, vec16_all(EXP_Q4), vec16_all(EXP_Q3));
    q = vec16_fma(q, r, vec16_all(EXP_Q2));
    q = vec16_fma(q, r, vec16_all(EXP_Q1));
    q = vec16_fma(q, r, vec16_all(EXP_Q0));
    *power = vec16_power_of_two(shifted);
    return vec16_fma(q, vec16_mul(r, r), r);
}

/* plain_exp in every lane, for x <= EXP_HIGH and NaNs. */
INLINE vec16 vec16_exp_below(vec16 x) {
    vec16 power, m = vec16_exp_parts(x, &power);
    return vec16_zero_below(vec16_mul(vec16_add(m, vec16_all(1.0f)), power), x, vec16_all(EXP_LOW));
}

/* plain_exp in every lane. */
INLINE vec16 vec16_exp(vec16 x) {
    return vec16_exp_below(vec16_min(vec16_all(EXP_HIGH), x));
}

/* plain_tanh in every lane. */
INLINE vec16 vec16_tanh(vec16 x) {
    vec16 twice = vec16_mul(vec16_all(2.0f), vec16_magnitude(x));
    vec16 power, m = vec16_exp_parts(vec16_min(vec16_all(EXP_HIGH), twice), &power);
    vec16 e = vec16_fma(m, power, vec16_sub(power, vec16_all(1.0f)));
    return vec16_with_sign(vec16_div(e, vec16_add(e, vec16_all(2.0f))), x);
}

/* exp(x) - 1 in every lane, for x <= 0. */
INLINE vec16 vec16_exp_less_one(vec16 x) {
    vec16 power, m = vec16_exp_parts(vec16_max(vec16_all(EXP_LOW), x), &power);
    return vec16_fma(m, power, vec16_sub(power, vec16_all(1.0f)));
}

/* y becomes cap * tanh(y / cap). */
INLINE vec16 vec16_cap(vec16 y, float cap) {
    return vec16_mul(vec16_all(cap), vec16_tanh(vec16_div(y, vec16_all(cap))));
}

#endif
