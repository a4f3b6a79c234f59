/* The most that AVX-512 can multiply and add. */
#include <immintrin.h>

#include "kernels/cpu/peak.h"

static void int8(void *arg, int part) {
    (void)arg;
    __m512i sum[PEAK_SUMS], a = _mm512_set1_epi32(part), b = _mm512_set1_epi32(0x01020304);
    for (int j = 0; j < PEAK_SUMS; j++) sum[j] = a;
    for (int i = 0; i < PEAK_ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < PEAK_SUMS; j++) sum[j] = _mm512_dpbusd_epi32(sum[j], a, b);
    }
    for (int j = 1; j < PEAK_SUMS; j++) sum[0] = _mm512_add_epi32(sum[0], sum[j]);
    peak_sink = _mm512_cvtsi512_si32(sum[0]);
}

void peak_float_avx512vnni(void *arg, int part) {
    (void)arg;
    __m512 sum[PEAK_SUMS], a = _mm512_set1_ps((float)part), b = _mm512_set1_ps(0.5f);
    for (int j = 0; j < PEAK_SUMS; j++) sum[j] = a;
    for (int i = 0; i < PEAK_ROUNDS; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < PEAK_SUMS; j++) sum[j] = _mm512_fmadd_ps(sum[j], b, a);
    }
    for (int j = 1; j < PEAK_SUMS; j++) sum[0] = _mm512_add_ps(sum[0], sum[j]);
    peak_sink = (int)_mm512_cvtss_f32(sum[0]);
}

const struct peak_loops avx512vnni_peaks = {
    .int8 = {"vpdpbusd, 512 bits", PEAK_LOOPS * 64.0, int8},
    .float32 = {"vfmadd, 512 bits", PEAK_LOOPS * 16.0, peak_float_avx512vnni},
};
