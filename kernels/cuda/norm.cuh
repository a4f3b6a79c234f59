/* The arithmetic of a norm, for norm_kernel and for products that norm their rows themselves. A row
 * is summed by NORM_THREADS threads, each of which takes the vectors of 16 bytes (single numbers
 * where K is no multiple) that are NORM_THREADS apart; then by warps; then over the warps. */
#ifndef PENSTOCK_CUDA_NORM_CUH
#define PENSTOCK_CUDA_NORM_CUH

#include "kernels/cuda/device.cuh"

enum { NORM_THREADS = 256, NORM_WARPS = NORM_THREADS / WARP };

/* One more number of a thread's sum of squares. */
__device__ __forceinline__ float norm_add_square(float squares, float value) {
    return fmaf(value, value, squares);
}
/* What a row's numbers are multiplied by, from the sum of their squares. */
__device__ __forceinline__ float norm_factor(float squares, int K, float epsilon) {
    return 1.0f / sqrtf(squares / (float)K + epsilon);
}
__device__ __forceinline__ float norm_value(float value, float factor, float gain) {
    return value * factor * gain;
}

#endif
