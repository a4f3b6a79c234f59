/* ordered: functions with the bits of the CPU's (kernels/cpu/order.md). The float32 mode and the
 * layers that keep states use them: a state's numbers depend on all earlier rows, so an error would
 * stay. */
#ifndef PENSTOCK_CUDA_ORDERED_CUH
#define PENSTOCK_CUDA_ORDERED_CUH

#include "kernels/cuda/runtime/device.cuh"

constexpr int PARTIAL_SUMS = 16; /* of order.md's lanes(16) */

/* exp(x) = (m + 1) * 2^n for x <= EXP_HIGH, computed as in kernels/cpu. Returns m and writes 2^n to
 * *power. */
constexpr float EXP_LOW = -0x1.5d589ep+6f, EXP_HIGH = 0x1.618p+6f;
__device__ __forceinline__ float exp_parts(float x, float *power) {
    const float shifted = fmaf(x, 0x1.715476p+0f, 0x1.8p+23f), n = shifted - 0x1.8p+23f;
    const float r = fmaf(n, 0x1.05c61p-29f, fmaf(n, -0x1.62e43p-1f, x));
    float q = fmaf(r, 0x1.6a2352p-10f, 0x1.123a6cp-7f);
    q = fmaf(q, r, 0x1.5558f4p-5f);
    q = fmaf(q, r, 0x1.55549p-3f);
    q = fmaf(q, r, 0x1.fffffcp-2f);
    *power = __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u);
    return fmaf(q, r * r, r);
}
__device__ __forceinline__ float ordered_exp(float x) {
    if (x < EXP_LOW) return 0.0f;
    float power;
    const float m = exp_parts(x > EXP_HIGH ? EXP_HIGH : x, &power);
    return (m + 1.0f) * power;
}
__device__ __forceinline__ float ordered_tanh(float x) {
    const float twice = 2.0f * fabsf(x);
    float power;
    const float m = exp_parts(twice > EXP_HIGH ? EXP_HIGH : twice, &power);
    const float e = fmaf(m, power, power - 1.0f);
    return copysignf(e / (e + 2.0f), x);
}
__device__ __forceinline__ float ordered_sigmoid(float x) {
    return 1.0f / (1.0f + ordered_exp(-x));
}
__device__ __forceinline__ float ordered_silu(float x) {
    return x / (1.0f + ordered_exp(-x));
}

/* log(1 + exp(x)). The double's error changes a float's bits about once in 10^8 numbers. */
__device__ __forceinline__ float ordered_softplus(float x) {
    return x > 20.0f ? x : (float)log1p(exp((double)x));
}

/* The tree over the partial sums of PARTIAL_SUMS adjacent lanes, in the first of them. Whole warps
 * call it. */
__device__ __forceinline__ float ordered_tree(float sum) {
#pragma unroll
    for (int width = PARTIAL_SUMS / 2; width > 0; width /= 2)
        sum = sum + __shfl_down_sync(FULL_MASK, sum, width);
    return sum;
}

#endif
