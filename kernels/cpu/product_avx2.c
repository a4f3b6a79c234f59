/* Quantised products with AVX2: half a panel (8 outputs) at a time, its block's codes in 8
 * registers, one row after the other; the sums of all rows stay in the nearest cache.
 *
 * Exactness. vpmaddubsw multiplies unsigned by signed bytes and adds pairs into 16 bits with
 * saturation. Activations are -127..127, so a pair of codes of 4, 5 or 6 bits is at most 2 * 15 *
 * 127 = 3,810, 2 * 31 * 127 = 7,874 or 2 * 63 * 127 = 16,002 in magnitude; 8, 4 and 2 of these add
 * up to 30,480, 31,496 and 32,004, below 32,768. They are widened to 32 bits after so many groups.
 * An 8-bit weight is -128..127: its magnitude is the unsigned side and its sign goes to the
 * activation, so a pair is at most 2 * 128 * 127 = 32,512; it is widened at once. */
#include "kernels/cpu/eight.h"

INLINE __m256i widened(__m256i words) {
    return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
}

/* Sum of code * activation over groups from..to-1; 16-bit sums are widened after as many groups as
 * the head of this file allows. */
INLINE __m256i dot_codes(const __m256i *v, const int8_t *q, const int from, const int to,
                         const int bits) {
    const int groups = bits == 4 ? 8 : bits == 5 ? 4 : 2;
    __m256i sum = _mm256_setzero_si256(), words = sum;
    UNROLL for (int g = from; g < to; g++) {
        __m256i pairs = _mm256_maddubs_epi16(v[g], four_inputs(q, g));
        words = g % groups == 0 ? pairs : _mm256_add_epi16(words, pairs);
        if ((g + 1) % groups == 0) sum = _mm256_add_epi32(sum, widened(words));
    }
    return sum;
}

/* The same for signed codes, which those of 8 bits were made. */
INLINE __m256i dot_signed(const __m256i *v, const int8_t *q) {
    __m256i sum = _mm256_setzero_si256();
    REPEAT(g, 8) {
        __m256i inputs = _mm256_sign_epi8(four_inputs(q, g), v[g]);
        sum = _mm256_add_epi32(sum, widened(_mm256_maddubs_epi16(_mm256_abs_epi8(v[g]), inputs)));
    }
    return sum;
}

/* The exact product sum of groups from..to-1 of a block, less what the codes are too large by. */
INLINE __m256i dot(const __m256i *v, const int8_t *q, int32_t minus_sum, const int from,
                   const int to, const struct kind kind) {
    if (kind.bits == 8) return dot_signed(v, q);
    __m256i sum = dot_codes(v, q, from, to, kind.bits);
    return kind.zero ? _mm256_add_epi32(sum, _mm256_set1_epi32(minus_sum * kind.zero)) : sum;
}

/* Adds block i's share to acc[row][16], of the outputs half * 8 and on. */
INLINE void add_block(const struct call *c, float (*acc)[LANES], int i, int half,
                      const struct kind kind) {
    size_t at = activation_at(c->a, c->tile, i, 0), width = (size_t)c->a->width;
    const int8_t *q = c->a->q + at * BLOCK;
    const float *scale = c->a->scale + at, *sum = c->a->sum + at;
    const int32_t *minus_sum = activation_minus_sum(c->a, c->tile, i, 0);
    __m256i v[8];
    __m256 d[2], m = _mm256_setzero_ps();
    unpack(v, matrix_codes(c->w, c->panel, i) + half * 32, kind.bits);
    if (kind.bits == 8) {
        REPEAT(g, 8) v[g] = _mm256_xor_si256(v[g], _mm256_set1_epi8((char)0x80));
    }
    unpack_scales(d, &m, matrix_scales(c->w, c->panel, i), i, half, kind);
    for (int r = 0; r < c->rows; r++, q += BLOCK) {
        __m256 s = _mm256_loadu_ps(acc[r] + half * EIGHT);
        if (kind.bits == 6) {
            s = add_scaled(s, dot(v, q, minus_sum[width + (size_t)r], 0, 4, kind), d[0], scale[r]);
            s = add_scaled(s, dot(v, q, minus_sum[2 * width + (size_t)r], 4, 8, kind), d[1],
                           scale[r]);
        } else {
            s = add_scaled(s, dot(v, q, minus_sum[r], 0, 8, kind), d[0], scale[r]);
            if (kind.has_min) s = _mm256_fmadd_ps(m, _mm256_set1_ps(sum[r]), s);
        }
        _mm256_storeu_ps(acc[r] + half * EIGHT, s);
    }
}

INLINE void product_rows(const struct call *c, float (*acc)[LANES], const struct kind kind) {
    size_t share = fetch_share(c->w);
    const uint8_t *ahead = matrix_codes(c->w, c->panel, 0) + AHEAD;
    for (int i = 0; i < c->w->n_blocks; i++, ahead += share) {
        if (c->tile == 0) fetch(ahead, share);
        add_block(c, acc, i, 0, kind);
        add_block(c, acc, i, 1, kind);
    }
}

#define PRODUCT avx2_product
#include "kernels/cpu/product_eight.inc"
