/* Rows of the embedding matrix. */
#ifndef PENSTOCK_CUDA_EMBED_CUH
#define PENSTOCK_CUDA_EMBED_CUH

#include "kernels/cuda/device.cuh"

/* y[M][K] = rows token[0..M) of the matrix [V][K], dequantised and rounded to `act`. Late tokens
 * (kernels.h) are read from `sampled`. */
void embed_rows(enum dtype act, void *y, const struct matrix *embedding, const int32_t *token,
                const int32_t *sampled, int M, cudaStream_t stream);

#endif
