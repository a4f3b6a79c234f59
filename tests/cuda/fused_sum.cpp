#include "tests/cuda/fused_sum.h"

#include <algorithm>
#include <math.h>
#include <string.h>

struct fused_rule mma_rule(enum dtype type) {
    cudaDeviceProp device;
    CUDA_OK(cudaGetDeviceProperties(&device, 0));
    const int least = type == DTYPE_F16 ? LEAST_F16 : LEAST_BF16;
    return device.major < 9 ? fused_rule{8, 24, 23, least} : fused_rule{16, 25, 23, least};
}

struct fused_rule wgmma_rule(enum dtype type) {
    return {16, 25, 23, type == DTYPE_F16 ? LEAST_F16 : LEAST_BF16};
}

/* A number is mantissa * 2^(exponent - 23); that of 0 has the exponent -126. */
struct split {
    int64_t mantissa;
    int exponent;
};
static split split_of(float x, int least) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    const int field = (int)(bits >> 23 & 255), exponent = std::max(field, 1) - 127;
    const int64_t size = (bits & 0x7fffff) | (field ? 0x800000 : 0);
    if (size == 0) return {0, -126};
    const int shift =
        std::max(least - exponent, 0); /* below the smallest normal number of its type */
    return {(bits >> 31 ? -size : size) >> shift, exponent + shift};
}

/* Cuts the last `n` bits of a magnitude; adds zeros if n < 0. */
static int64_t cut_bits(int64_t x, int n) {
    if (n <= 0) return x * ((int64_t)1 << -n);
    if (n >= 63) return 0;
    return x < 0 ? -(-x >> n) : x >> n;
}

/* Returns total * 2^exponent with `bits` bits after the first, cut toward zero. */
static float rounded_down(int64_t total, int exponent, int bits) {
    if (total == 0) return 0;
    const int first = std::max(ilogb((double)total) + exponent, -126);
    const int n = std::max(first - bits - exponent, 0);
    return (float)ldexp((double)cut_bits(total, n), exponent + n);
}

static float one_sum(float start, const float *a, const float *b, const fused_rule &rule) {
    enum { MOST = 32 };
    const split c = split_of(start, -126);
    split terms[MOST];
    int most = c.exponent;
    for (int k = 0; k < rule.terms; k++) {
        const split x = split_of(a[k], rule.least), y = split_of(b[k], rule.least);
        terms[k] = {x.mantissa * y.mantissa, x.exponent + y.exponent};
        most = std::max(most, terms[k].exponent);
        if (isnan(start + a[k] * b[k])) return NAN;
    }
    int64_t total = cut_bits(c.mantissa, 23 - rule.bits + most - c.exponent);
    for (int k = 0; k < rule.terms; k++)
        total += cut_bits(terms[k].mantissa, 46 - rule.bits + most - terms[k].exponent);
    return rounded_down(total, most - rule.bits, rule.output);
}

float fused_sum(float start, const float *a, const float *b, int n, const struct fused_rule &rule) {
    ck_assert_int_eq(n % rule.terms, 0);
    for (int k = 0; k < n; k += rule.terms) start = one_sum(start, a + k, b + k, rule);
    return start;
}

floats scattered_numbers(uint64_t *state, size_t n, int apart) {
    floats values = random_vector(state, n);
    for (float &value : values) value = ldexpf(value, random_below(state, 2 * apart + 1) - apart);
    return values;
}
