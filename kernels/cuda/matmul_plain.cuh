/* The product, the simple way. */
#ifndef PENSTOCK_CUDA_MATMUL_PLAIN_CUH
#define PENSTOCK_CUDA_MATMUL_PLAIN_CUH

#include "kernels/cuda/device.cuh"

/* y[M][N] = x[M][K] times w[N][K]^T, for every type of weights. x is of type `act`, y of type
 * `out`: `act` or DTYPE_F32. */
void matmul_plain(enum dtype act, enum dtype out, void *y, const void *x, const struct matrix *w,
                  int M, cudaStream_t stream);

#endif
