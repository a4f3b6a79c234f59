/* Quantised products with AVX-VNNI: the AVX2 product with another dot. vpdpbusd multiplies unsigned
 * codes by signed activations and adds four products at once into 32 bits. It does not saturate, so
 * the sum is exact; what a code is too large by is taken off at the start. */
#include "kernels/cpu/eight.h"

INLINE __m256i eight_bit_codes(const uint8_t *p) {
    return bytes_32(p);
}

INLINE __m256i dot(const __m256i *v, const int8_t *q, int32_t minus_sum, const int from,
                   const int to, const struct kind kind) {
    __m256i sum = kind.zero ? _mm256_set1_epi32(minus_sum * kind.zero) : _mm256_setzero_si256();
    UNROLL for (int g = from; g < to; g++) {
        sum = _mm256_dpbusd_avx_epi32(sum, v[g], four_inputs(q, g));
    }
    return sum;
}

#define PRODUCT avxvnni_product
#include "kernels/cpu/product_eight.inc"
