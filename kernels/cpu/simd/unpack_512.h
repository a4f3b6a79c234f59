/* Shared by the 512-bit products of AVX-512 VNNI and AMX: arguments, addresses of a tile's inputs,
 * unpacking of a panel's block. */
#ifndef PENSTOCK_KERNELS_CPU_UNPACK_512_H
#define PENSTOCK_KERNELS_CPU_UNPACK_512_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/simd/vec16.h"

/* Arguments of the kernels: a panel, a tile and its rows, and the place of the results. */
struct call {
    const struct matrix *w;
    const struct activations *a;
    int panel, tile, rows;
    float *y; /* results of the tile */
    size_t stride;
};

/* The inputs of one block of a tile. */
struct inputs {
    const int8_t *q;
    const float *scale, *sum;
    const int32_t *minus_sum;
    int width;
};

INLINE struct inputs inputs_at(const struct call *c, int i) {
    size_t at = activation_at(c->a, c->tile, i, 0);
    return (struct inputs){c->a->q + at * BLOCK, c->a->scale + at, c->a->sum + at,
                           activation_minus_sum(c->a, c->tile, i, 0), c->a->width};
}

/* Advances to the next block. */
INLINE void inputs_next(struct inputs *in) {
    in->q += (size_t)in->width * BLOCK;
    in->scale += in->width;
    in->sum += in->width;
    in->minus_sum += 3 * in->width;
    IN_REGISTER(in->q);
    IN_REGISTER(in->scale);
    IN_REGISTER(in->sum);
}

INLINE __m512i line(const uint8_t *p) {
    return _mm512_loadu_si512(p);
}

/* Inserts bits `mask` of (high << left) into the codes with one ternary operation: codes | (shifted
 * & mask). */
INLINE __m512i with_high(__m512i codes, __m512i high, const int left, const int mask) {
    __m512i shifted = left >= 0 ? _mm512_slli_epi32(high, (unsigned)left)
                                : _mm512_srli_epi32(high, (unsigned)-left);
    return _mm512_ternarylogic_epi32(codes, shifted, _mm512_set1_epi8((char)mask), 0xf8);
}

/* A table's values plus 128, four times. */
INLINE __m512i values_of(const enum codes table) {
    __m128i values = _mm_loadu_si128((const __m128i *)codes_table(table));
    return _mm512_broadcast_i32x4(_mm_xor_si128(values, _mm_set1_epi8((char)0x80)));
}

INLINE void unpack_pairs(__m512i *v, const uint8_t *codes, const int bits) {
    UNROLL_FOR(g, 8) {
        __m512i shifted = _mm512_srli_epi16(line(codes + g / 4 * 64), (unsigned)(g % 4 * 2));
        v[g] = _mm512_and_si512(shifted, _mm512_set1_epi8(3));
        if (bits == 3) v[g] = with_high(v[g], line(codes + 128), 2 - g, 4);
    }
}

/* Writes group g of a block's codes to v[g], as unsigned bytes. */
INLINE void unpack(__m512i *v, const uint8_t *codes, const struct format format) {
    const int bits = format.bits;
    if (bits == 8) {
        UNROLL_FOR(g, 8) v[g] = line(codes + 64 * g);
        return;
    }
    if (bits < 4) {
        unpack_pairs(v, codes, bits);
        return;
    }
    const __m512i nibble = _mm512_set1_epi8(15);
    UNROLL_FOR(g, 4) {
        __m512i both = line(codes + 64 * g);
        v[g] = _mm512_and_si512(both, nibble);
        v[g + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
    }
    if (format.table != CODES_LINEAR) {
        const __m512i values = values_of(format.table);
        UNROLL_FOR(g, 8) v[g] = _mm512_shuffle_epi8(values, v[g]);
    }
    if (bits == 5) {
        __m512i high = line(codes + 256);
        UNROLL_FOR(g, 8) v[g] = with_high(v[g], high, 4 - g, 0x10);
    }
    if (bits == 6) {
        UNROLL_FOR(g, 8)
        v[g] = with_high(v[g], line(codes + 256 + g / 4 * 64), 4 - g % 4 * 2, 0x30);
    }
}

INLINE __m512 halves(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE __m128i load_16_bytes(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE __m512 brains(const uint8_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* Multiplies *d by a small scale, and *m by a small minimum. */
INLINE void unpack_small(__m512 *d, __m512 *m, const uint8_t *small, const struct format format) {
    if (!format.has_min) {
        *d = _mm512_mul_ps(*d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(small))));
        return;
    }
    __m512i scale = _mm512_cvtepu8_epi32(load_16_bytes(small)), minus;
    if (format.halved) {
        minus = _mm512_srli_epi32(scale, 4);
        scale = _mm512_and_si512(scale, _mm512_set1_epi32(15));
    } else {
        minus = _mm512_cvtepu8_epi32(load_16_bytes(small + 16));
    }
    minus = _mm512_sub_epi32(_mm512_setzero_si512(), minus);
    *d = _mm512_mul_ps(*d, _mm512_cvtepi32_ps(scale));
    *m = _mm512_mul_ps(*m, _mm512_cvtepi32_ps(minus));
}

/* The term that a zero point adds to each weight. */
INLINE __m512 minus_zero_points(__m512 d, const uint8_t *zero) {
    __m512i points = _mm512_cvtepu8_epi32(load_16_bytes(zero));
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), points)));
}

/* Writes the scales and minima of block i as floats: two of each for halved types. */
INLINE void unpack_scales(__m512 *d, __m512 *m, const uint8_t *scales, int i,
                          const struct format format) {
    if (format.scales == SCALES_FLOAT) {
        d[0] = _mm512_loadu_ps(scales);
        m[0] = format.has_min ? minus_zero_points(d[0], scales + 64) : _mm512_setzero_ps();
        return;
    }
    d[0] = format.scales == SCALES_BRAIN ? brains(scales) : halves(scales);
    if (format.scales == SCALES_POINT) {
        m[0] = minus_zero_points(d[0], scales + 32);
        return;
    }
    m[0] = format.has_min ? halves(scales + 32) : _mm512_setzero_ps();
    if (!format.super) return;
    const size_t each = format.has_min || format.halved ? 32 : 16;
    const uint8_t *small = scales + (format.has_min ? 64 : 32) + (size_t)(i % 8) * each;
    d[1] = d[0], m[1] = m[0];
    unpack_small(&d[0], &m[0], small, format);
    if (format.halved) unpack_small(&d[1], &m[1], small + 16, format);
}

#endif
