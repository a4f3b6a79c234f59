/* The most that AVX2 can multiply and add. */
#include <immintrin.h>

#include "kernels/cpu/peak.h"

/* Three instructions stand for the one that these processors lack. The barrier keeps the product,
 * which does not change, inside the loop. */
static void int8(void *arg, int part) {
    (void)arg;
    __m256i sum[PEAK_SUMS], a = _mm256_set1_epi32(part), b = _mm256_set1_epi32(0x01020304);
    __m256i ones = _mm256_set1_epi16(1);
    for (int j = 0; j < PEAK_SUMS; j++) sum[j] = a;
    for (int i = 0; i < PEAK_ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < PEAK_SUMS; j++) {
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
