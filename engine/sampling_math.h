/* exp, log and random numbers for sampling, with the same bits on every machine. Internal to
 * engine/.
 *
 * They are written in additions, products and bit operations only, each rounded as IEEE 754 says,
 * so the compiler may vectorise the loops over them without changing a result (the build forbids
 * contraction to fma).
 */
#ifndef PENSTOCK_ENGINE_SAMPLING_MATH_H
#define PENSTOCK_ENGINE_SAMPLING_MATH_H

#include <stdint.h>
#include <string.h>

/* exp(x) for x <= 0, relative error below 2e-7; 0 below -87 and for a NaN. x = n ln 2 + r, |r| <=
 * ln 2 / 2, and exp(r) is its Taylor polynomial of degree 7; ln 2 is split in two so that n ln 2 is
 * exact in its first part. */
static inline float exp_nonpositive(float x) {
    float clamped = x >= -87.0f ? x : -87.0f;
    float shifted = clamped * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the sum's low bits are n */
    float n = shifted - 12582912.0f;
    float r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    float y = p * scale;
    return x >= -87.0f ? y : 0.0f;
}

/* Natural logarithm of a positive, finite, normal number, error below 4e-16 + 4e-16 |log x|. x =
 * 2^e m with m in [sqrt 1/2, sqrt 2), log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716, as
 * its series up to s^19. */
static inline double log_positive(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e += 1;
    }
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
    return (double)e * 0.69314718055994531 + 2 * s * sum;
}

/* One round of Philox 4x32 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2,
 * 3; 2011). */
static inline void philox_round(uint32_t c[4], const uint32_t key[2]) {
    uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                        (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};
    memcpy(c, next, sizeof next);
}

/* Ten rounds in place: counter in, four random words out. */
static inline void philox4x32_10(uint32_t counter[4], uint32_t key0, uint32_t key1) {
    uint32_t key[2] = {key0, key1};
    for (int i = 0; i < 10; i++) {
        philox_round(counter, key);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

/* A number in [0, 1) with 53 random bits for one position of one choice under a seed. */
static inline double philox_uniform(uint64_t seed, uint32_t position, uint32_t choice) {
    uint32_t c[4] = {position, choice, 0, 0};
    philox4x32_10(c, (uint32_t)seed, (uint32_t)(seed >> 32));
    uint64_t bits = ((uint64_t)c[0] << 32 | c[1]) >> 11;
    return (double)bits * 0x1p-53;
}

#endif
