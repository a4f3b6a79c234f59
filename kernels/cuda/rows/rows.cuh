/* Ops on rows between the products. Rows have type `act` unless stated; gains and biases are
 * float32. */
#ifndef PENSTOCK_CUDA_ROWS_CUH
#define PENSTOCK_CUDA_ROWS_CUH

#include "kernels/cuda/runtime/device.cuh"

/* The largest K of a norm; it limits the inputs of every matrix. */
enum { NORM_MAX_K = 57344 };

/* y[M][K] = norm(x[M][K]); y may be x. */
void rows_norm(enum dtype act, void *y, const void *x, const struct norm *norm, int M, int K,
               cudaStream_t stream);
/* y[M][2K] = the join of a[M][K] and `other`: of its rows, or if it recalls, of its rows row[0..M).
 */
void rows_join(enum dtype act, void *y, const void *a, const void *other, const struct join *join,
               const int32_t *row, int M, int K, cudaStream_t stream);
/* y[R][K] = norm(x), in float32, of the R rows from row `from` on; without a norm y = x. */
void rows_hidden(enum dtype act, float *y, const void *x, const struct norm *norm, int from, int R,
                 int K, cudaStream_t stream);
/* x[M][K] = (x + norm(y[M][K])) * the norm's sum_scale, rounded once; y is zero afterwards. */
void rows_norm_add(enum dtype act, void *x, void *y, const struct norm *norm, int M, int K,
                   cudaStream_t stream);

/* y[n] = activation(gate[n]) * up[n], or without `up` if that is NULL; y may be gate or up. */
void rows_gate(enum dtype act, enum activation activation, void *y, const void *gate,
               const void *up, size_t n, cudaStream_t stream);

/* y[M][N] = activation(gate[M][N]) * times. Rows of `times` begin `stride` apart, aligned to 16
 * bytes if N and stride are multiples of 8. y may be gate. */
void rows_gate_apart(enum dtype act, enum activation activation, void *y, const void *gate,
                     const void *times, int M, int N, int stride, cudaStream_t stream);

/* x[n] = xielu(x[n]). */
void rows_xielu(enum dtype act, void *x, const struct xielu *numbers, size_t n,
                cudaStream_t stream);

/* x[M][N] += scale * bias[N]. */
void rows_bias(enum dtype act, void *x, const float *bias, float scale, int M, int N,
               cudaStream_t stream);

/* x[n] = cap * tanh(scale * x[n] / cap), or scale * x[n] if cap is 0. */
void rows_cap(enum dtype act, void *x, float scale, float cap, size_t n, cudaStream_t stream);

/* y[R][K] = rows row[0..R) of x. */
void rows_gather(enum dtype act, void *y, const void *x, const int32_t *row, int R, int K,
                 cudaStream_t stream);

/* y[R][V] = x[R][K] at the places of its ids, and -infinity elsewhere. */
void rows_spread(float *y, const float *x, const struct spread *spread, int R, int K,
                 cudaStream_t stream);

#endif
