/* exp, log, random numbers and the keys that order ids. The bits equal those of the CPU's sampler:
 * additions, products and divisions in its order, each rounded once (-fmad=false). */
#ifndef PENSTOCK_CUDA_SAMPLE_MATH_CUH
#define PENSTOCK_CUDA_SAMPLE_MATH_CUH

#include "kernels/cuda/runtime/device.cuh"

using uint64 = unsigned long long; /* the type of atomics and shuffles */

/* exp(x) for x <= 0; 0 below -87 and for a NaN. x = n ln 2 + r with ln 2 in two parts, and exp(r)
 * by Taylor's polynomial of degree 7. */
__device__ __forceinline__ float weight_of(float x) {
    const float clamped = x >= -87.0f ? x : -87.0f;
    const float shifted = clamped * 1.44269504f + 12582912.0f; /* the sum's low bits are n */
    const float n = shifted - 12582912.0f;
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
    const float y = p * __int_as_float(((int)n + 127) << 23);
    return x >= -87.0f ? y : 0.0f;
}

/* weight_share of kernels/sampling.h: a weight in units of 2^-44, rounded to nearest, ties to even.
 * Sums of at most 2^19 of them, each at most 2^44, fit in 64 bits. */
__device__ __forceinline__ uint64 share_of(float weight) {
    return __float2ull_rn(weight * 0x1p44f);
}

/* Natural logarithm of a positive, finite, normal number: x = 2^e m, log m = 2 atanh((m - 1) / (m +
 * 1)), m in [sqrt 1/2, sqrt 2). */
__device__ __forceinline__ double log_positive(double x) {
    const uint64 bits = (uint64)__double_as_longlong(x);
    int e = (int)(bits >> 52) - 1023;
    double m = __longlong_as_double((long long)((bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u));
    if (m > 1.4142135623730951) {
        m = m * 0.5;
        e = e + 1;
    }
    const double s = (m - 1) / (m + 1), square = s * s;
    double sum = 0;
    for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
    return (double)e * 0.69314718055994531 + 2 * s * sum;
}

/* The purpose of a random number, numbered as in engine/sampling/math.h. */
enum { FOR_DRAW, FOR_XTC };

/* A number in [0, 1) with 53 random bits: Philox 4x32-10 (Salmon et al. 2011). */
__device__ __forceinline__ double philox_uniform(uint64_t seed, uint32_t position, uint32_t choice,
                                                 uint32_t purpose) {
    uint32_t c[4] = {position, choice, purpose, 0};
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ key0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key1;
        c[3] = (uint32_t)a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return (double)(((uint64_t)c[0] << 32 | c[1]) >> 11) * 0x1p-53;
}

/* ---- order ---------------------------------------------------------------------------------- */

/* A rank is smaller for a better id. A key is a rank and an id, so that of equal ranks the lower id
 * precedes, and all keys are distinct. */
enum { ID_BITS = 20, KEY_BITS = 32 + ID_BITS };
constexpr unsigned NO_RANK = 0xffffffffu; /* ids that do not count */

__device__ __forceinline__ uint64 key_of(unsigned rank, int id) {
    return (uint64)rank << ID_BITS | (unsigned)id;
}
__device__ __forceinline__ unsigned rank_of_key(uint64 key) {
    return (unsigned)(key >> ID_BITS);
}
__device__ __forceinline__ int id_of_key(uint64 key) {
    return (int)(key & ((1u << ID_BITS) - 1));
}

/* The rank of a logit that is a number; both zeros have the same rank. */
__device__ __forceinline__ unsigned rank_of_logit(float logit) {
    const unsigned bits = __float_as_uint(logit + 0.0f);
    return bits >> 31 ? bits : 0x7fffffffu - bits;
}
__device__ __forceinline__ float logit_of_rank(unsigned rank) {
    return __uint_as_float(rank >> 31 ? rank : 0x7fffffffu - rank);
}

/* The ranks of weights, which are at most 1. */
__device__ __forceinline__ unsigned rank_of_weight(float weight) {
    return 0x3f800000u - __float_as_uint(weight);
}
__device__ __forceinline__ float weight_of_rank(unsigned rank) {
    return __uint_as_float(0x3f800000u - rank);
}

#endif
