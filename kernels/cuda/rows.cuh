/* Ops on rows: what stands between the products. */
#ifndef PENSTOCK_CUDA_ROWS_CUH
#define PENSTOCK_CUDA_ROWS_CUH

#include "kernels/cuda/device.cuh"

/* A norm over rows of K, which a residual may come before:
 *   x[M][K] += add[M][K]   unless add is NULL; x is stored rounded to `act`, and the norm is of that
 *   y[M][K]  = x / sqrt(mean(x^2) + epsilon) * gain                           (without bias)
 *   y[M][K]  = (x - mean(x)) / sqrt(variance(x) + epsilon) * gain + bias      (LayerNorm, Ba 2016)
 * gain and bias are float32 [K]; bias NULL means RMSNorm (Zhang and Sennrich 2019). y may be x where
 * add is NULL. K is at most NORM_MOST_K. */
enum { NORM_MOST_K = 57344 };
void rows_norm(enum dtype act, void *y, void *x, const void *add, const float *gain,
               const float *bias, int M, int K, float epsilon, cudaStream_t stream);

#endif
