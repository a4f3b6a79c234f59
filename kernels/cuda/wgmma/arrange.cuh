/* Arranges rows of 16-bit numbers for the wide kernels, as lines (lines.cuh). */
#ifndef PENSTOCK_CUDA_WGMMA_ARRANGE_CUH
#define PENSTOCK_CUDA_WGMMA_ARRANGE_CUH

#include "kernels/cuda/wgmma/lines.cuh"

/* A line has two halves; each thread has one. */
enum { ARRANGE_THREADS = 128, HALF_COLUMNS = GEMM_SLAB / 2 };

/* Arranges x[M][K] of 16-bit numbers, K a multiple of 8. A thread handles half a line: it reads 16
 * pairs in 4 pieces of x and writes 4 pieces of the line. */
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
    uint8_t *line = to.lines + to.offset(half / 2, row, LINE_BYTES);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const Vec<uint32_t, 4> piece = {{pairs[0][j], pairs[1][j], pairs[2][j], pairs[3][j]}};
        store16(reinterpret_cast<uint32_t *>(line + ((half % 2 * 4 + j) ^ row % 8) * 16), piece);
    }
}

/* Arranges x[M][K], K a multiple of 8, padded to whole blocks of rows. */
static inline void arrange(const struct arranged *to, const void *x, int M, int K,
                           cudaStream_t stream) {
    const int halves = (K + GEMM_SLAB - 1) / GEMM_SLAB * 2;
    const int blocks = (to->rows * halves + ARRANGE_THREADS - 1) / ARRANGE_THREADS;
    assert(K % 8 == 0);
    launch(arrange_kernel, dim3((unsigned)blocks), dim3(ARRANGE_THREADS), 0, stream, *to,
           static_cast<const uint32_t *>(x), M, K, halves);
}

#endif
