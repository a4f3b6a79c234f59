/* What the 256-bit products of AVX2 and AVX-VNNI build their dots from; product_eight.inc is the
 * rest of such a product. */
#ifndef PENSTOCK_KERNELS_EIGHT_H
#define PENSTOCK_KERNELS_EIGHT_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/lanes.h"

enum { EIGHT = 8 };

/* One type's kernel is made for these constants. */
struct kind {
    int bits, zero; /* zero: the code that means 0 */
    bool has_min, super;
};

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

#endif
