/* cuBLAS, loaded on first use and never linked: linking costs 81 ms at every start of the program.
 */
#ifndef PENSTOCK_CUDA_CUBLAS_CUH
#define PENSTOCK_CUDA_CUBLAS_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Loads the library once and opens it for the calling thread's device. Returns false on failure.
 * Call it before a graph is captured: it allocates memory. */
bool cublas_open();

/* For tests: looks functions up by `find` (which returns an address or NULL) instead of in the
 * library. Closes open handles. */
void cublas_find_with(void *(*find)(const char *name));

/* y[M][N] = scale * x[M][K] times w[N][K]^T, all of type `act` and row-major; y is float32 with
 * `float_out`. With `add` the product is added to y. Sums are float32, in an order that cuBLAS
 * chooses by M, N and K, so a row's bits depend on the batch. cublas_open() must have returned true
 * for this device. A failure is recorded like a kernel's (cuda_failed). */
void cublas_product(enum dtype act, void *y, const void *x, const void *w, int M, int N, int K,
                    bool float_out, bool add, float scale, cudaStream_t stream);

#endif
