/* Rows of x as the wide kernel wants them in shared memory, so that a block's slab is one run.
 *
 * A line is 64 columns of a row, in the order in which packed weights have them. Lines of one slab
 * follow one another; columns and rows that are missing are zeros.
 *
 *     16 bits   arrange.cuh: 16-byte piece 4 j + i has the pairs of columns
 *               32 j + 2 i + {0, 8, 16, 24}. Piece p of row r stands at p ^ r % 8 (shared_matrix,
 *               ptx90.cuh).
 *     e4m3      quantise.cuh: piece 2 j + i has columns 32 j + 4 i + 8 t + {0, 1, 2, 3} of
 *               t = 0 .. 3, so that a product of 32 columns takes two pieces. Piece p of row r
 *               stands at p ^ r / 2 % 4 (shared_matrix_64). */
#ifndef PENSTOCK_CUDA_WGMMA_LINES_CUH
#define PENSTOCK_CUDA_WGMMA_LINES_CUH

#include "kernels/cuda/gemm/format.cuh"

/* A line has 64 columns of a row, of 16 bits or of e4m3. */
constexpr int LINE_BYTES = 128, E4M3_LINE = GEMM_SLAB;
/* The bytes of a line per product, and the period of the 128-byte swizzle. */
constexpr int STEP_BYTES = 32, SWIZZLE_BYTES = 1024;

struct arranged {
    uint8_t *lines; /* [slabs][rows][bytes of a line] */
    int rows;       /* padded to whole blocks */
    __host__ __device__ size_t offset(int slab, int row, int line_bytes) const {
        return ((size_t)slab * (size_t)rows + (size_t)row) * (size_t)line_bytes;
    }
};

#endif
