/* Shared by the 256-bit products of AVX2 and AVX-VNNI: unpacks half a panel's block, 8 of its
 * outputs. */
#ifndef PENSTOCK_KERNELS_CPU_UNPACK_256_H
#define PENSTOCK_KERNELS_CPU_UNPACK_256_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/simd/vec16.h"

enum { VEC8 = 8 };

INLINE __m256i bytes_32(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256i with_high(__m256i codes, __m256i high, const int left, const int mask) {
    __m256i shifted = left >= 0 ? _mm256_slli_epi32(high, left) : _mm256_srli_epi32(high, -left);
    return _mm256_or_si256(codes, _mm256_and_si256(shifted, _mm256_set1_epi8((char)mask)));
}

INLINE __m256i four_inputs(const int8_t *q, int g) {
    int32_t four;
    memcpy(&four, q + 4 * g, sizeof four);
    return _mm256_set1_epi32(four);
}

/* A table's values plus 128, twice; zeros for linear codes. */
INLINE __m256i values_of(const enum codes table) {
    if (table == CODES_LINEAR) return _mm256_setzero_si256();
    __m128i values = _mm_loadu_si128((const __m128i *)codes_table(table));
    return _mm256_broadcastsi128_si256(_mm_xor_si128(values, _mm_set1_epi8((char)0x80)));
}

/* Returns the codes of group g of half a line's rows, as unsigned bytes. `codes` points at that
 * half. */
INLINE __m256i group_codes(const uint8_t *codes, __m256i values, const int g,
                           const struct format format) {
    const int bits = format.bits;
    if (bits == 8) return bytes_32(codes + 64 * g);
    if (bits < 4) {
        __m256i shifted = _mm256_srli_epi16(bytes_32(codes + g / 4 * 64), g % 4 * 2);
        __m256i low = _mm256_and_si256(shifted, _mm256_set1_epi8(3));
        return bits == 3 ? with_high(low, bytes_32(codes + 128), 2 - g, 4) : low;
    }
    __m256i both = bytes_32(codes + g % 4 * 64);
    if (g >= 4) both = _mm256_srli_epi16(both, 4);
    __m256i v = _mm256_and_si256(both, _mm256_set1_epi8(15));
    if (format.table != CODES_LINEAR) v = _mm256_shuffle_epi8(values, v);
    if (bits == 5) v = with_high(v, bytes_32(codes + 256), 4 - g, 0x10);
    if (bits == 6) v = with_high(v, bytes_32(codes + 256 + g / 4 * 64), 4 - g % 4 * 2, 0x30);
    return v;
}

/* Writes the codes of all groups, group g to v[g]. */
INLINE void unpack(__m256i *v, const uint8_t *codes, const struct format format) {
    const __m256i values = values_of(format.table);
    UNROLL_FOR(g, 8) v[g] = group_codes(codes, values, g, format);
}

INLINE __m256 halves(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE __m256 brains(const uint8_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

INLINE __m128i load_8_bytes(const uint8_t *p) {
    return _mm_loadl_epi64((const __m128i *)p);
}

/* Multiplies *d by a small scale, and *m by a small minimum. */
INLINE void unpack_small(__m256 *d, __m256 *m, const uint8_t *small, const struct format format) {
    if (!format.has_min) {
        *d = _mm256_mul_ps(*d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(small))));
        return;
    }
    __m256i scale = _mm256_cvtepu8_epi32(load_8_bytes(small)), minus;
    if (format.halved) {
        minus = _mm256_srli_epi32(scale, 4);
        scale = _mm256_and_si256(scale, _mm256_set1_epi32(15));
    } else {
        minus = _mm256_cvtepu8_epi32(load_8_bytes(small + 16));
    }
    minus = _mm256_sub_epi32(_mm256_setzero_si256(), minus);
    *d = _mm256_mul_ps(*d, _mm256_cvtepi32_ps(scale));
    *m = _mm256_mul_ps(*m, _mm256_cvtepi32_ps(minus));
}

/* The term that a zero point adds to each weight. */
INLINE __m256 minus_zero_points(__m256 d, const uint8_t *zero) {
    __m256i points = _mm256_cvtepu8_epi32(load_8_bytes(zero));
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_setzero_si256(), points)));
}

/* Writes the scales and minima of block i as floats, for 8 rows from part * 8 on: two of each for
 * halved types. */
INLINE void unpack_scales(__m256 *d, __m256 *m, const uint8_t *scales, int i, int part,
                          const struct format format) {
    const uint8_t *own = scales + part * 16;
    if (format.scales == SCALES_FLOAT) {
        d[0] = _mm256_loadu_ps((const float *)(scales + part * 32));
        m[0] = format.has_min ? minus_zero_points(d[0], scales + 64 + part * VEC8)
                              : _mm256_setzero_ps();
        return;
    }
    d[0] = format.scales == SCALES_BRAIN ? brains(own) : halves(own);
    if (format.scales == SCALES_POINT) {
        m[0] = minus_zero_points(d[0], scales + 32 + part * VEC8);
        return;
    }
    m[0] = format.has_min ? halves(own + 32) : _mm256_setzero_ps();
    if (!format.super) return;
    const size_t each = format.has_min || format.halved ? 32 : 16;
    const size_t at = (format.has_min ? 64 : 32) + (size_t)(i % 8) * each;
    const uint8_t *small = scales + at + part * VEC8;
    d[1] = d[0], m[1] = m[0];
    unpack_small(&d[0], &m[0], small, format);
    if (format.halved) unpack_small(&d[1], &m[1], small + 16, format);
}

INLINE __m256 add_scaled(__m256 acc, __m256i sum, __m256 d, float scale) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, _mm256_set1_ps(scale)), acc);
}

/* Arguments of the kernels: a panel, a tile and its rows, and the place of the results. */
struct call {
    const struct matrix *w;
    const struct activations *a;
    int panel, tile, rows;
    float *y; /* results of the tile */
    size_t stride;
};

enum { FEW_ROWS = 4 }; /* the most rows that have kernels of their own */

/* A block of a panel with the inputs of a tile. */
struct block {
    const uint8_t *codes, *scales;
    __m256i values; /* of the codes' table */
    int number;     /* in the panel */
    const int8_t *q;
    const float *scale, *sum;
    const int32_t *minus_sum; /* of halved types also of the two halves, `width` apart */
    size_t width;
};

INLINE struct block first_block(const struct call *c, const struct format format) {
    const struct activations *a = c->a;
    const size_t at = activation_at(a, c->tile, 0, 0);
    return (struct block){.codes = matrix_codes(c->w, c->panel, 0),
                          .scales = matrix_scales(c->w, c->panel, 0),
                          .values = values_of(format.table),
                          .q = a->q + at * BLOCK,
                          .scale = a->scale + at,
                          .sum = a->sum + at,
                          .minus_sum = activation_minus_sum(a, c->tile, 0, 0),
                          .width = (size_t)a->width};
}

INLINE void next_block(struct block *block, const struct matrix *w, const struct format format) {
    block->number++;
    block->codes += w->code_bytes;
    if (!format.super || block->number % 8 == 0) block->scales += w->scale_bytes;
    block->q += block->width * BLOCK;
    block->scale += block->width;
    block->sum += block->width;
    block->minus_sum += 3 * block->width;
}

/* Returns minus the sums of the inputs of a block, or of half `part` for halved types. */
INLINE const int32_t *minus_sums(const struct block *block, const int part,
                                 const struct format format) {
    return block->minus_sum + (format.halved ? (size_t)(1 + part) * block->width : 0);
}

/* Returns what the zero point, a power of two or 0, adds to each sum. */
INLINE __m256i minus_zero(int32_t minus_sum, const int zero) {
    if (zero == 0) return _mm256_setzero_si256();
    return _mm256_slli_epi32(_mm256_set1_epi32(minus_sum), __builtin_ctz((unsigned)zero));
}

/* Returns the k-th group that the kernels for few rows multiply. The low and the high nibbles of a
 * line follow each other. */
INLINE int kth_group(const int part, const int k, const struct format format) {
    return format.halved ? 4 * part + k : k / 2 + k % 2 * 4;
}

#endif
