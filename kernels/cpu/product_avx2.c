/* Quantised products with AVX2: half a panel (8 outputs) at a time, its block's codes in 8
 * registers, one row after the other; the sums of all rows stay in the nearest cache.
 *
 * Exactness. vpmaddubsw multiplies unsigned by signed bytes and adds pairs into 16 bits with
 * saturation. Activations are -127..127, so a pair of codes of 4, 5 or 6 bits is at most 2 * 15 *
 * 127 = 3,810, 2 * 31 * 127 = 7,874 or 2 * 63 * 127 = 16,002 in magnitude; 8, 4 and 2 of these add
 * up to 30,480, 31,496 and 32,004, below 32,768. They are widened to 32 bits after so many groups.
 * An 8-bit weight is -128..127: its magnitude is the unsigned side and its sign goes to the
 * activation, so a pair is at most 2 * 128 * 127 = 32,512; it is widened at once. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/lanes.h"

enum { EIGHT = 8 };

/* One type's kernel is made for these constants. */
struct kind {
    int bits, zero; /* zero: the code that means 0; 8-bit weights are made signed instead */
    bool has_min, super;
};

INLINE __m256i bytes_32(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256i with_high(__m256i codes, __m256i high, const int left, const int mask) {
    __m256i shifted = left >= 0 ? _mm256_slli_epi32(high, left) : _mm256_srli_epi32(high, -left);
    return _mm256_or_si256(codes, _mm256_and_si256(shifted, _mm256_set1_epi8((char)mask)));
}

/* Codes of half a line's rows, group g in v[g]; `codes` points at that half. */
INLINE void unpack(__m256i *v, const uint8_t *codes, const int bits) {
    if (bits == 8) {
        const __m256i flip = _mm256_set1_epi8((char)0x80);
        REPEAT(g, 8) v[g] = _mm256_xor_si256(bytes_32(codes + 64 * g), flip);
        return;
    }
    const __m256i nibble = _mm256_set1_epi8(15);
    REPEAT(g, 4) {
        __m256i both = bytes_32(codes + 64 * g);
        v[g] = _mm256_and_si256(both, nibble);
        v[g + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
    }
    if (bits == 5) {
        REPEAT(g, 8) v[g] = with_high(v[g], bytes_32(codes + 256), 4 - g, 0x10);
    }
    if (bits == 6) {
        REPEAT(g, 8)
        v[g] = with_high(v[g], bytes_32(codes + 256 + g / 4 * 64), 4 - g % 4 * 2, 0x30);
    }
}

INLINE __m256 halves(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE __m128i eight_bytes(const uint8_t *p) {
    return _mm_loadl_epi64((const __m128i *)p);
}

/* The scales of block i (two for 6 bits) and its minimum, in float, for rows half * 8 and on. */
INLINE void unpack_scales(__m256 *d, __m256 *m, const uint8_t *scales, int i, int half,
                          const struct kind kind) {
    d[0] = halves(scales + half * 16);
    if (kind.has_min) *m = halves(scales + 32 + half * 16);
    if (!kind.super) return;
    const uint8_t *small = scales + (kind.has_min ? 64 : 32) + i % 8 * 32 + half * EIGHT;
    if (kind.bits == 6) {
        __m256 whole = d[0];
        d[0] = _mm256_mul_ps(whole, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes(small))));
        d[1] =
            _mm256_mul_ps(whole, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes(small + 16))));
    } else {
        __m256i min =
            _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_cvtepu8_epi32(eight_bytes(small + 16)));
        d[0] = _mm256_mul_ps(d[0], _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight_bytes(small))));
        *m = _mm256_mul_ps(*m, _mm256_cvtepi32_ps(min));
    }
}

INLINE __m256i four_inputs(const int8_t *q, int g) {
    int32_t four;
    memcpy(&four, q + 4 * g, sizeof four);
    return _mm256_set1_epi32(four);
}

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

INLINE __m256 add_scaled(__m256 acc, __m256i sum, __m256 d, float scale) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, _mm256_set1_ps(scale)), acc);
}

/* What the kernels are given: a panel, a tile and its rows. */
struct call {
    const struct matrix *w;
    const struct activations *a;
    int panel, tile, rows;
};

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

/* ---- one function for each type ------------------------------------------------------------- */

#define TYPE(type, ...)                                                                            \
    static void type##_rows(const struct call *c, float(*acc)[LANES]) {                            \
        product_rows(c, acc, (struct kind){__VA_ARGS__});                                          \
    }
TYPE(q4_0, 4, 8, false, false)
TYPE(q4_1, 4, 0, true, false)
TYPE(q5_0, 5, 16, false, false)
TYPE(q5_1, 5, 0, true, false)
TYPE(q8_0, 8, 0, false, false)
TYPE(q4_k, 4, 0, true, true)
TYPE(q5_k, 5, 0, true, true)
TYPE(q6_k, 6, 32, false, true)

static void product_of(enum dtype type, const struct call *c, float (*acc)[LANES]) {
    switch (type) {
    case DTYPE_Q4_0:
        q4_0_rows(c, acc);
        break;
    case DTYPE_Q4_1:
        q4_1_rows(c, acc);
        break;
    case DTYPE_Q5_0:
        q5_0_rows(c, acc);
        break;
    case DTYPE_Q5_1:
        q5_1_rows(c, acc);
        break;
    case DTYPE_Q8_0:
        q8_0_rows(c, acc);
        break;
    case DTYPE_Q4_K:
        q4_k_rows(c, acc);
        break;
    case DTYPE_Q5_K:
        q5_k_rows(c, acc);
        break;
    default:
        assert(type == DTYPE_Q6_K);
        q6_k_rows(c, acc);
    }
}

void avx2_product(const struct matrix *w, int panel, const struct activations *a, int tile,
                  int rows, float *y, size_t stride) {
    float acc[LANES][LANES] = {0};
    struct call call = {w, a, panel, tile, rows};
    product_of(w->type, &call, acc);
    size_t outputs = (size_t)(w->N - panel * LANES);
    for (int r = 0; r < rows; r++)
        memcpy(y + (size_t)r * stride, acc[r], (outputs < LANES ? outputs : LANES) * sizeof(float));
}
