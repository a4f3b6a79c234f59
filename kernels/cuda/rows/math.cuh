/* Arithmetic that row kernels share with products that apply norms and epilogues themselves. Both
 * use the same operations, so their results have the same bits.
 *
 * NORM_THREADS threads sum a norm's row. Thread t reads the 16-byte vectors t, t + NORM_THREADS and
 * so on (single numbers if vectors do not divide K). The sums of the threads are added within each
 * warp, then over the warps. */
#ifndef PENSTOCK_CUDA_ROWS_MATH_CUH
#define PENSTOCK_CUDA_ROWS_MATH_CUH

#include "kernels/cuda/runtime/device.cuh"

enum { NORM_THREADS = 256, NORM_WARPS = NORM_THREADS / WARP };

/* Adds the square of a number to a thread's sum. */
__device__ __forceinline__ float norm_add_square(float squares, float value) {
    return fmaf(value, value, squares);
}
/* The factor of a row, from the sum of its squares. */
__device__ __forceinline__ float norm_factor(float squares, int K, float epsilon) {
    return 1.0f / sqrtf(squares / (float)K + epsilon);
}
__device__ __forceinline__ float norm_value(float value, float factor, float gain) {
    return value * factor * gain;
}

__device__ __forceinline__ float activated(enum activation kind, float x) {
    if (kind == ACTIVATION_SILU) return x / (1.0f + expf(-x));
    if (kind == ACTIVATION_RELU) return x < 0.0f ? 0.0f : x;
    if (kind == ACTIVATION_RELU_SQUARED) return x < 0.0f ? 0.0f : x * x;
    if (kind == ACTIVATION_GELU) return 0.5f * x * (1.0f + erff(x * 0.707106781f));
    const float cubed = 0.044715f * x * x * x;
    return 0.5f * x * (1.0f + tanhf(0.797884561f * (x + cubed)));
}

/* The result of a gate and its up projection. */
__device__ __forceinline__ float gated(enum activation kind, float gate, float up) {
    if (kind != ACTIVATION_CLAMPED) return activated(kind, gate) * up;
    const float g = gate > CLAMP_LIMIT ? CLAMP_LIMIT : gate;
    float u = up > CLAMP_LIMIT ? CLAMP_LIMIT : up;
    u = u < -CLAMP_LIMIT ? -CLAMP_LIMIT : u;
    return g / (1.0f + expf(-(g * CLAMP_ALPHA))) * (u + 1.0f);
}

/* cap * tanh(x / cap); x if cap is 0. */
__device__ __forceinline__ float capped(float x, float cap) {
    return cap == 0.0f ? x : cap * tanhf(x / cap);
}

/* Copies rows: y[m] = x[row[m]], of K numbers. */
template <class T> struct gather_args {
    T *y;
    const T *x;
    const int32_t *row;
    int K;
};
/* Copies row m with one block, N numbers per thread at a time. */
template <class T, int N>
__device__ __forceinline__ void gather_row(const gather_args<T> &a, int m) {
    const T *from = a.x + (size_t)a.row[m] * a.K;
    T *to = a.y + (size_t)m * a.K;
    for (int k = threadIdx.x * N; k < a.K; k += blockDim.x * N)
        store_vec<N>(to + k, load_vec<N>(from + k));
}

#endif
