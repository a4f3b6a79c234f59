/* What the 256-bit products of AVX2 and AVX-VNNI share: unpacking half of a panel's block, 8 of its
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

/* Codes of half a line's rows, group g in v[g]; `codes` points at that half. */
INLINE void unpack(__m256i *v, const uint8_t *codes, const int bits) {
    if (bits == 8) {
        UNROLL_FOR(g, 8) v[g] = bytes_32(codes + 64 * g);
        return;
    }
    const __m256i nibble = _mm256_set1_epi8(15);
    UNROLL_FOR(g, 4) {
        __m256i both = bytes_32(codes + 64 * g);
        v[g] = _mm256_and_si256(both, nibble);
        v[g + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
    }
    if (bits == 5) {
        UNROLL_FOR(g, 8) v[g] = with_high(v[g], bytes_32(codes + 256), 4 - g, 0x10);
    }
    if (bits == 6) {
        UNROLL_FOR(g, 8)
        v[g] = with_high(v[g], bytes_32(codes + 256 + g / 4 * 64), 4 - g % 4 * 2, 0x30);
    }
}

INLINE __m256 halves(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE __m128i load_8_bytes(const uint8_t *p) {
    return _mm_loadl_epi64((const __m128i *)p);
}

/* The scales of block i (two for 6 bits) and its minimum, in float, for rows half * 8 and on. */
INLINE void unpack_scales(__m256 *d, __m256 *m, const uint8_t *scales, int i, int half,
                          const struct format format) {
    d[0] = halves(scales + half * 16);
    if (format.has_min) *m = halves(scales + 32 + half * 16);
    if (!format.super) return;
    const uint8_t *small = scales + (format.has_min ? 64 : 32) + i % 8 * 32 + half * VEC8;
    if (format.bits == 6) {
        __m256 whole = d[0];
        d[0] = _mm256_mul_ps(whole, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(small))));
        d[1] = _mm256_mul_ps(whole,
                             _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(small + 16))));
    } else {
        __m256i min = _mm256_sub_epi32(_mm256_setzero_si256(),
                                       _mm256_cvtepu8_epi32(load_8_bytes(small + 16)));
        d[0] = _mm256_mul_ps(d[0], _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_8_bytes(small))));
        *m = _mm256_mul_ps(*m, _mm256_cvtepi32_ps(min));
    }
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

#endif
