/* log and random numbers for sampling, with the same bits on every machine. Internal to engine/.
 *
 * They use only additions, products and bit operations, each rounded by IEEE 754 (the build forbids
 * contraction to fma).
 */
#ifndef PENSTOCK_ENGINE_SAMPLING_MATH_H
#define PENSTOCK_ENGINE_SAMPLING_MATH_H

#include <stdint.h>
#include <string.h>

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

/* Ten rounds of Philox 4x32 in place: counter in, four random words out (Salmon, Moraes, Dror,
 * Shaw: Parallel random numbers, as easy as 1, 2, 3; 2011). */
static inline void philox4x32_10(uint32_t c[4], uint32_t key0, uint32_t key1) {
    uint32_t key[2] = {key0, key1};
    for (int i = 0; i < 10; i++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};
        memcpy(c, next, sizeof next);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

/* The purpose of a random number; each purpose has its own sequence. */
enum { FOR_DRAW, FOR_XTC };

/* A number in [0, 1) with 53 random bits for one position of one choice under a seed. */
static inline double philox_uniform(uint64_t seed, uint32_t position, uint32_t choice,
                                    uint32_t purpose) {
    uint32_t c[4] = {position, choice, purpose, 0};
    philox4x32_10(c, (uint32_t)seed, (uint32_t)(seed >> 32));
    uint64_t bits = ((uint64_t)c[0] << 32 | c[1]) >> 11;
    return (double)bits * 0x1p-53;
}

#endif
