/* Rows of the embedding matrix. */
#ifndef PENSTOCK_CUDA_EMBED_CUH
#define PENSTOCK_CUDA_EMBED_CUH

#include "kernels/cuda/gemm.cuh"

/* y[M][K] = rows token[0..M) of the matrix [V][K], which is packed for products: the
 * file's weights, dequantised and rounded to the activations' type. Late tokens
 * (kernels.h) are read from `sampled`. */
void embed_rows(void *y, const struct gemm_weights *embedding, const int32_t *token,
                const int32_t *sampled, int M, cudaStream_t stream);

#endif
