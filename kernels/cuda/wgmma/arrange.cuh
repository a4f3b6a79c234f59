/* Rows of x as the wide kernel wants them in shared memory, so that a block's slab is one run.
 *
 * A line is 64 columns of a row, in the order in which weights of GEMM_16 have them: 16-byte piece
 * 4 j + i has the pairs of columns 32 j + 2 i + {0, 8, 16, 24}. Piece p of row r stands at
 * p ^ r % 8 (shared_matrix, ptx90.cuh). Lines of one slab follow one another, and missing ones are
 * zeros. */
#ifndef PENSTOCK_CUDA_WGMMA_ARRANGE_CUH
#define PENSTOCK_CUDA_WGMMA_ARRANGE_CUH

#include "kernels/cuda/gemm/format.cuh"

constexpr int LINE_BYTES = 128, STEP_BYTES = 32, SWIZZLE_BYTES = 1024;

struct arranged {
    uint8_t *lines; /* [slabs][rows][LINE_BYTES] */
    int rows;       /* whole blocks of them */
    __host__ __device__ size_t offset(int slab, int row) const {
        return ((size_t)slab * (size_t)rows + (size_t)row) * LINE_BYTES;
    }
};

/* Rows are whole blocks of 64, and halves come in twos: there are as many threads as half lines. */
enum { ARRANGE_THREADS = 128, HALF_COLUMNS = GEMM_SLAB / 2 };

/* Arranges x[M][K] of 16-bit numbers, K a multiple of 8. A thread takes half a line: 16 pairs in 4
 * pieces of x, and 4 pieces of the line. */
__global__ void __launch_bounds__(ARRANGE_THREADS)
    arrange_kernel(const struct arranged to, const uint32_t *x, int M, int K, int halves) {
    grid_begin();
    const int i = (int)blockIdx.x * ARRANGE_THREADS + (int)threadIdx.x;
    const int row = i / halves, half = i % halves, left = K - half * HALF_COLUMNS;
    const uint32_t *from = x + ((size_t)row * (size_t)K + (size_t)half * HALF_COLUMNS) / 2;
    uint32_t pairs[4][4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (row < M && j * 8 < left)
            load_words<false, 4>(pairs[j], reinterpret_cast<const uint8_t *>(from + j * 4));
    uint8_t *line = to.lines + to.offset(half / 2, row);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const Vec<uint32_t, 4> piece = {{pairs[0][j], pairs[1][j], pairs[2][j], pairs[3][j]}};
        store16(reinterpret_cast<uint32_t *>(line + ((half % 2 * 4 + j) ^ row % 8) * 16), piece);
    }
}

#endif
