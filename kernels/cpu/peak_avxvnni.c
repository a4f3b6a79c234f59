/* The most that AVX-VNNI can multiply and add; its floats are AVX2's. */
#include <immintrin.h>

#include "kernels/cpu/peak.h"

static void int8(void *arg, int part) {
    (void)arg;
    __m256i sum[PEAK_SUMS], a = _mm256_set1_epi32(part), b = _mm256_set1_epi32(0x01020304);
    for (int j = 0; j < PEAK_SUMS; j++) sum[j] = a;
    for (int i = 0; i < PEAK_ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < PEAK_SUMS; j++) sum[j] = _mm256_dpbusd_avx_epi32(sum[j], a, b);
    }
    for (int j = 1; j < PEAK_SUMS; j++) sum[0] = _mm256_add_epi32(sum[0], sum[j]);
    peak_sink = _mm256_extract_epi32(sum[0], 0);
}

const struct peak_loops avxvnni_peaks = {
    .int8 = {"vpdpbusd, 256 bits", PEAK_LOOPS * 32.0, int8},
    .float32 = {"vfmadd, 256 bits", PEAK_LOOPS * 8.0, peak_float_avx2},
};
