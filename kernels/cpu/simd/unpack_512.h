/* What the 512-bit products of AVX-512 VNNI and AMX share: unpacking a panel's block. */
#ifndef PENSTOCK_KERNELS_CPU_UNPACK_512_H
#define PENSTOCK_KERNELS_CPU_UNPACK_512_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/simd/vec16.h"

INLINE __m512i line(const uint8_t *p) {
    return _mm512_loadu_si512(p);
}

/* Bits `mask` of (high << left) into the codes: one ternary operation, codes | (shifted & mask). */
INLINE __m512i with_high(__m512i codes, __m512i high, const int left, const int mask) {
    __m512i shifted = left >= 0 ? _mm512_slli_epi32(high, (unsigned)left)
                                : _mm512_srli_epi32(high, (unsigned)-left);
    return _mm512_ternarylogic_epi32(codes, shifted, _mm512_set1_epi8((char)mask), 0xf8);
}

INLINE void unpack(__m512i *v, const uint8_t *codes, const int bits) {
    if (bits == 8) {
        UNROLL_FOR(g, 8) v[g] = line(codes + 64 * g);
        return;
    }
    const __m512i nibble = _mm512_set1_epi8(15);
    UNROLL_FOR(g, 4) {
        __m512i both = line(codes + 64 * g);
        v[g] = _mm512_and_si512(both, nibble);
        v[g + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
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

/* The scales of block i (two for 6 bits) and its minimum, in float. */
INLINE void unpack_scales(__m512 *d, __m512 *m, const uint8_t *scales, int i,
                          const struct format format) {
    d[0] = halves(scales);
    if (format.has_min) *m = halves(scales + 32);
    if (!format.super) return;
    const uint8_t *small = scales + (format.has_min ? 64 : 32) + i % 8 * 32;
    if (format.bits == 6) {
        __m512 whole = d[0];
        d[0] = _mm512_mul_ps(whole, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(small))));
        d[1] = _mm512_mul_ps(whole,
                             _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(small + 16))));
    } else {
        __m512i min = _mm512_sub_epi32(_mm512_setzero_si512(),
                                       _mm512_cvtepu8_epi32(load_16_bytes(small + 16)));
        d[0] = _mm512_mul_ps(d[0], _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16_bytes(small))));
        *m = _mm512_mul_ps(*m, _mm512_cvtepi32_ps(min));
    }
}

#endif
