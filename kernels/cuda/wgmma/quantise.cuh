/* Quantises rows of x to e4m3 with one scale per row, as lines (lines.cuh).
 *
 * A scale is the row's largest magnitude / 448, and a code is the nearest to x * (448 / largest),
 * ties to even. The largest magnitude counts as at least 448 times the smallest normal float, so
 * both factors are finite. A NaN gets the code of NaN, and all products of its row are NaN, as with
 * an infinity; other rows are not affected. */
#ifndef PENSTOCK_CUDA_WGMMA_QUANTISE_CUH
#define PENSTOCK_CUDA_WGMMA_QUANTISE_CUH

#include <float.h>

#include "kernels/cuda/wgmma/lines.cuh"
#include "kernels/cuda/wgmma/normed.cuh"

constexpr float E4M3_MOST = 448.0f;

/* The rows to quantise. */
template <class T> struct Quantising {
    InputRows<T> in;
    struct arranged to;
    float *scales; /* [to.rows] */
    int slabs;
};

/* The largest magnitude of a row, in every thread. */
template <class T, bool NORMED>
__device__ __forceinline__ float largest_of(const Quantising<T> &q, const T *row, float factor) {
    __shared__ float part[NORM_WARPS];
    float most = E4M3_MOST * FLT_MIN;
    for (int k = (int)threadIdx.x * 8; k < q.in.K; k += NORM_THREADS * 8) {
        const Vec<float, 8> in = numbers_of<T, NORMED>(q.in, row, k, factor);
#pragma unroll
        for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(in.v[i]));
    }
    most = warp_max(most);
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = most;
    __syncthreads();
    for (float other : part) most = fmaxf(most, other);
    return most;
}

/* The codes of four adjacent numbers. */
__device__ __forceinline__ uint32_t codes_of(const float *x, float inverse) {
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) word |= (uint32_t)__nv_fp8_e4m3(x[i] * inverse).__x << 8 * i;
    return word;
}

/* One block per row. */
template <class T, bool NORMED>
__global__ void __launch_bounds__(NORM_THREADS)
    quantise_rows_kernel(const __grid_constant__ Quantising<T> q) {
    grid_begin();
    const int m = (int)blockIdx.x;
    const T *row = q.in.x + (size_t)m * q.in.K;
    float factor = 0.0f, inverse = 0.0f, scale = 0.0f;
    if (m < q.in.M) {
        if (NORMED) factor = factor_of(q.in, row);
        const float most = largest_of<T, NORMED>(q, row, factor);
        inverse = E4M3_MOST / most;
        scale = most / E4M3_MOST;
    }
    if (threadIdx.x == 0) q.scales[m] = scale;
    for (int k = (int)threadIdx.x * 8; k < q.slabs * GEMM_SLAB; k += NORM_THREADS * 8) {
        Vec<float, 8> in = {};
        if (m < q.in.M && k < q.in.K) in = numbers_of<T, NORMED>(q.in, row, k, factor);
        uint8_t *line = q.to.lines + q.to.offset(k / GEMM_SLAB, m, E4M3_LINE);
        const int piece = k % GEMM_SLAB / 32 * 2, t = k % 32 / 8;
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<uint32_t *>(line + ((piece + half) ^ m / 2 % 4) * 16 + t * 4) =
                codes_of(in.v + 4 * half, inverse);
    }
}

#endif
