/* Quantising: a block a row, which reads it twice, for its largest weight and for its codes. */
#include "kernels/cuda/gemm/matrix.cuh"

#include <float.h>

#include "kernels/cuda/gemm/source.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

constexpr int QUANTISE_THREADS = 256;
constexpr float MAX_E4M3 = 448.0f;

__global__ void __launch_bounds__(QUANTISE_THREADS)
    quantise_kernel(uint8_t *__restrict__ codes, float *__restrict__ scales, enum dtype type,
                    const uint8_t *__restrict__ rows, size_t row_bytes, int K) {
    __shared__ float part[QUANTISE_THREADS / WARP];
    grid_begin();
    const uint8_t *row = rows + blockIdx.x * row_bytes;
    float most = 0.0f;
    for (int k = threadIdx.x; k < K; k += QUANTISE_THREADS)
        most = fmaxf(most, fabsf(weight_at(type, row, k)));
    most = warp_max(most);
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = most;
    __syncthreads();
    for (float other : part) most = fmaxf(most, other);
    const float scale = fmaxf(most / MAX_E4M3, FLT_MIN); /* a row of zeros has one too */
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int k = threadIdx.x; k < K; k += QUANTISE_THREADS)
        codes[(size_t)blockIdx.x * K + k] = __nv_fp8_e4m3(weight_at(type, row, k) / scale).__x;
}

void quantise_e4m3(uint8_t *codes, float *scales, enum dtype type, const void *rows, int N, int K,
                   cudaStream_t stream) {
    launch(quantise_kernel, dim3((unsigned)N), dim3(QUANTISE_THREADS), 0, stream, codes, scales,
           type, static_cast<const uint8_t *>(rows), dtype_bytes(type, (size_t)K), K);
}
