/* Quantised products with AVX2. More than four rows: half a panel (8 outputs) at a time, with a
 * block's codes in 8 registers, one row after the other; the sums of all rows stay in the L1 cache.
 * Up to four rows: matmul_quant_256.inc.
 *
 * Exactness. vpmaddubsw multiplies unsigned by signed bytes and adds pairs into 16 bits with
 * saturation. Activations are -127..127, so a pair of codes of 4, 5 or 6 bits is at most 2 * 15 *
 * 127 = 3,810, 2 * 31 * 127 = 7,874 or 2 * 63 * 127 = 16,002 in magnitude. The sums of 8, 4 and 2
 * pairs are at most 30,480, 31,496 and 32,004, below 32,768. After that number of groups, and at
 * the end of a scale, they are widened to 32 bits. An 8-bit weight or a table's value is -128..127:
 * its magnitude is the unsigned operand, and its sign is applied to the activation. So a pair is at
 * most 2 * 128 * 127 = 32,512 and is widened at once. */
#include "kernels/cpu/simd/peak.h"
#include "kernels/cpu/simd/unpack_256.h"

/* The number of groups whose pairs 16 bits can hold, as derived at the head of this file. */
INLINE int groups_of_words(const struct format format) {
    return format.bits == 6 ? 2 : format.bits == 5 || format.halved ? 4 : 8;
}

INLINE __m256i widened(__m256i words) {
    return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
}

/* Sum of code * activation over groups from..to-1. The barrier keeps a single chain of additions:
 * gcc 12 would make a tree, whose registers spill the block's scales to memory. */
INLINE __m256i dot_codes(const __m256i *v, const int8_t *q, const int from, const int to,
                         const struct format format) {
    const int groups = groups_of_words(format);
    __m256i sum = _mm256_setzero_si256(), words = sum;
    UNROLL for (int g = from; g < to; g++) {
        __m256i pairs = _mm256_maddubs_epi16(v[g], four_inputs(q, g));
        words = g % groups == 0 ? pairs : _mm256_add_epi16(words, pairs);
        __asm__("" : "+x"(words));
        if ((g + 1) % groups == 0) sum = _mm256_add_epi32(sum, widened(words));
    }
    return sum;
}

/* Are the codes converted to signed bytes? This holds for 8-bit codes and tables. */
INLINE bool is_signed(const struct format format) {
    return format.bits == 8 || format.table != CODES_LINEAR;
}

/* The same for signed codes. */
INLINE __m256i dot_signed(const __m256i *v, const int8_t *q) {
    __m256i sum = _mm256_setzero_si256();
    UNROLL_FOR(g, 8) {
        __m256i inputs = _mm256_sign_epi8(four_inputs(q, g), v[g]);
        sum = _mm256_add_epi32(sum, widened(_mm256_maddubs_epi16(_mm256_abs_epi8(v[g]), inputs)));
    }
    return sum;
}

/* The exact product sum of groups from..to-1 of a block, minus the zero-point correction. */
INLINE __m256i dot(const __m256i *v, const int8_t *q, int32_t minus_sum, const int from,
                   const int to, const struct format format) {
    if (is_signed(format)) return dot_signed(v, q);
    __m256i sum = dot_codes(v, q, from, to, format);
    return format.zero ? _mm256_add_epi32(sum, _mm256_set1_epi32(minus_sum * format.zero)) : sum;
}

/* Adds block i's contribution to acc[row][16], for the outputs from half * 8 on. */
INLINE void add_block(const struct call *c, float (*acc)[LANES], int i, int half,
                      const struct format format) {
    size_t at = activation_at(c->a, c->tile, i, 0), width = (size_t)c->a->width;
    const int8_t *q = c->a->q + at * BLOCK;
    const float *scale = c->a->scale + at, *sum = c->a->sum + at;
    const int32_t *minus_sum = activation_minus_sum(c->a, c->tile, i, 0);
    __m256i v[8];
    __m256 d[2], m[2];
    unpack(v, matrix_codes(c->w, c->panel, i) + half * 32, format);
    if (is_signed(format)) {
        UNROLL_FOR(g, 8) v[g] = _mm256_xor_si256(v[g], _mm256_set1_epi8((char)0x80));
    }
    unpack_scales(d, m, matrix_scales(c->w, c->panel, i), i, half, format);
    for (int r = 0; r < c->rows; r++, q += BLOCK) {
        __m256 s = _mm256_loadu_ps(acc[r] + half * VEC8);
        if (format.halved) {
            UNROLL_FOR(j, 2) {
                int32_t minus = minus_sum[(size_t)(1 + j) * width + (size_t)r];
                s = add_scaled(s, dot(v, q, minus, 4 * j, 4 * j + 4, format), d[j], scale[r]);
                __m256 of_half = _mm256_set1_ps(scale[r] * (float)-minus);
                if (format.has_min) s = _mm256_fmadd_ps(m[j], of_half, s);
            }
        } else {
            s = add_scaled(s, dot(v, q, minus_sum[r], 0, 8, format), d[0], scale[r]);
            if (format.has_min) s = _mm256_fmadd_ps(m[0], _mm256_set1_ps(sum[r]), s);
        }
        _mm256_storeu_ps(acc[r] + half * VEC8, s);
    }
}

INLINE void product_rows(const struct call *c, float (*acc)[LANES], const struct format format) {
    size_t share = fetch_share(c->w);
    const uint8_t *ahead = matrix_codes(c->w, c->panel, 0) + AHEAD;
    for (int i = 0; i < c->w->n_blocks; i++, ahead += share) {
        if (c->tile == 0) fetch(ahead, share);
        add_block(c, acc, i, 0, format);
        add_block(c, acc, i, 1, format);
    }
}

/* ---- few rows ------------------------------------------------------------------------------- */

/* Adds n rows' products of a group of unsigned codes, the k-th of a block or half, to 16-bit sums,
 * and widens these if the next group could exceed their range. */
INLINE void multiply_codes(__m256i (*sum)[2], __m256i (*words)[2], __m256i v, const int8_t *q,
                           const int k, const int half, const int n, const struct format format) {
    const int groups = groups_of_words(format);
    UNROLL_FOR(r, n) {
        __m256i pairs = _mm256_maddubs_epi16(v, four_inputs(q + r * BLOCK, 0));
        __m256i all = k % groups == 0 ? pairs : _mm256_add_epi16(words[r][half], pairs);
        __asm__("" : "+x"(all));
        words[r][half] = all;
        if ((k + 1) % groups == 0) sum[r][half] = _mm256_add_epi32(sum[r][half], widened(all));
    }
}

/* The same for signed codes. */
INLINE void multiply_signed(__m256i (*sum)[2], __m256i v, const int8_t *q, const int half,
                            const int n) {
    const __m256i magnitudes = _mm256_abs_epi8(v);
    UNROLL_FOR(r, n) {
        __m256i inputs = _mm256_sign_epi8(four_inputs(q + r * BLOCK, 0), v);
        __m256i pairs = _mm256_maddubs_epi16(magnitudes, inputs);
        sum[r][half] = _mm256_add_epi32(sum[r][half], widened(pairs));
    }
}

INLINE void multiply_few(__m256i (*sum)[2], const struct block *block, const int part, const int n,
                         const struct format format) {
    /* 8-bit codes and the values of tables are stored plus 128; this makes them signed. */
    const __m256i turn = _mm256_set1_epi8((char)0x80);
    const __m256i values = _mm256_xor_si256(block->values, turn);
    const int groups = format.halved ? 4 : 8, zero = is_signed(format) ? 0 : format.zero;
    __m256i words[FEW_ROWS][2];
    UNROLL_FOR(r, n) {
        sum[r][0] = sum[r][1] = minus_zero(minus_sums(block, part, format)[r], zero);
        words[r][0] = words[r][1] = _mm256_setzero_si256();
    }
    UNROLL_FOR(k, groups) {
        const int g = kth_group(part, k, format);
        const int8_t *q = block->q + 4 * g;
        UNROLL_FOR(half, 2) {
            __m256i v = group_codes(block->codes + 32 * half, values, g, format);
            if (format.bits == 8) v = _mm256_xor_si256(v, turn);
            if (is_signed(format))
                multiply_signed(sum, v, q, half, n);
            else
                multiply_codes(sum, words, v, q, k, half, n, format);
        }
    }
}

#define PRODUCT avx2_product
#include "kernels/cpu/simd/matmul_quant_256.inc"

/* ---- the peak ------------------------------------------------------------------------------- */

/* The peak rate of multiply-adds with AVX2. */

/* Three instructions replace the one that these processors lack. The barrier keeps the
 * loop-invariant product inside the loop. */
static void int8(void *arg, int part) {
    (void)arg;
    __m256i sum[PEAK_SUMS], a = _mm256_set1_epi32(part), b = _mm256_set1_epi32(0x01020304);
    __m256i ones = _mm256_set1_epi16(1);
    UNROLL_FOR(j, PEAK_SUMS) sum[j] = a;
    for (int i = 0; i < PEAK_ROUNDS; i++) {
        UNROLL_FOR(j, PEAK_SUMS) {
            __asm__ volatile("" : "+x"(a));
            __m256i pairs = _mm256_maddubs_epi16(a, b);
            sum[j] = _mm256_add_epi32(sum[j], _mm256_madd_epi16(pairs, ones));
        }
    }
    for (int j = 1; j < PEAK_SUMS; j++) sum[0] = _mm256_add_epi32(sum[0], sum[j]);
    peak_sink = _mm256_extract_epi32(sum[0], 0);
}

void peak_float_avx2(void *arg, int part) {
    (void)arg;
    __m256 sum[PEAK_SUMS], a = _mm256_set1_ps((float)part), b = _mm256_set1_ps(0.5f);
    for (int j = 0; j < PEAK_SUMS; j++) sum[j] = a;
    for (int i = 0; i < PEAK_ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < PEAK_SUMS; j++) sum[j] = _mm256_fmadd_ps(sum[j], b, a);
    }
    for (int j = 1; j < PEAK_SUMS; j++) sum[0] = _mm256_add_ps(sum[0], sum[j]);
    peak_sink = (int)_mm256_cvtss_f32(sum[0]);
}

const struct peak_loops avx2_peaks = {
    .int8 = {"vpmaddubsw, 256 bits", PEAK_LOOPS * 32.0, int8},
    .float32 = {"vfmadd, 256 bits", PEAK_LOOPS * 8.0, peak_float_avx2},
};
