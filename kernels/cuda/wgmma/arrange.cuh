/* Arranges rows of 16-bit numbers for the wide kernels, as lines (lines.cuh). */
#ifndef PENSTOCK_CUDA_WGMMA_ARRANGE_CUH
#define PENSTOCK_CUDA_WGMMA_ARRANGE_CUH

#include "kernels/cuda/wgmma/lines.cuh"
#include "kernels/cuda/wgmma/normed.cuh"

/* A line has two halves. A thread takes one: 16 pairs in 4 pieces of x, 4 pieces of the line. */
enum { ARRANGE_THREADS = 128, HALF_COLUMNS = GEMM_SLAB / 2 };

/* Stores a half of a row's line; pairs[j] are columns 8 j on. */
__device__ __forceinline__ void store_half(const struct arranged &to, int row, int half,
                                           const uint32_t (&pairs)[4][4]) {
    uint8_t *line = to.lines + to.offset(half / 2, row, LINE_BYTES);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const Vec<uint32_t, 4> piece = {{pairs[0][j], pairs[1][j], pairs[2][j], pairs[3][j]}};
        store16(reinterpret_cast<uint32_t *>(line + ((half % 2 * 4 + j) ^ row % 8) * 16), piece);
    }
}

static __global__ void __launch_bounds__(ARRANGE_THREADS)
    arrange_kernel(const struct arranged to, const uint32_t *x, int M, int K, int halves) {
    grid_begin();
    const int i = (int)blockIdx.x * ARRANGE_THREADS + (int)threadIdx.x;
    const int row = i / halves, half = i % halves, left = K - half * HALF_COLUMNS;
    if (row >= to.rows) return;
    const uint32_t *from = x + ((size_t)row * (size_t)K + (size_t)half * HALF_COLUMNS) / 2;
    uint32_t pairs[4][4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (row < M && j * 8 < left)
            load_words<false, 4>(pairs[j], reinterpret_cast<const uint8_t *>(from + j * 4));
    store_half(to, row, half, pairs);
}

/* The same with a norm; one block per row. */
template <class T>
__global__ void __launch_bounds__(NORM_THREADS)
    arrange_normed_kernel(const struct arranged to, const __grid_constant__ InputRows<T> in,
                          int halves) {
    grid_begin();
    const int m = (int)blockIdx.x;
    const T *row = in.x + (size_t)m * in.K;
    const float factor = m < in.M ? factor_of(in, row) : 0.0f;
    for (int half = (int)threadIdx.x; half < halves; half += NORM_THREADS) {
        uint32_t pairs[4][4] = {};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int k = half * HALF_COLUMNS + j * 8;
            if (m >= in.M || k >= in.K) continue;
            const Vec<float, 8> numbers = numbers_of<T, true>(in, row, k, factor);
#pragma unroll
            for (int i = 0; i < 8; i++)
                pairs[j][i / 2] |= (uint32_t)bits_as<uint16_t>(from_float<T>(numbers.v[i]))
                                   << i % 2 * 16;
        }
        store_half(to, m, half, pairs);
    }
}

/* Arranges x[M][K], K a multiple of 8, padded to whole blocks of rows, after an optional norm. */
template <class T>
void arrange(const struct arranged *to, const void *x, const struct norm *norm, int M, int K,
             cudaStream_t stream) {
    const int halves = (K + GEMM_SLAB - 1) / GEMM_SLAB * 2;
    const int blocks = (to->rows * halves + ARRANGE_THREADS - 1) / ARRANGE_THREADS;
    assert(K % 8 == 0 && M <= to->rows);
    if (norm)
        launch(arrange_normed_kernel<T>, dim3((unsigned)to->rows), dim3(NORM_THREADS), 0, stream,
               *to, input_rows<T>(x, norm, M, K), halves);
    else
        launch(arrange_kernel, dim3((unsigned)blocks), dim3(ARRANGE_THREADS), 0, stream, *to,
               static_cast<const uint32_t *>(x), M, K, halves);
}

#endif
