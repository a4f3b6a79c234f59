/* cuBLAS, which is loaded when it is first wanted and never linked: linking costs 81 ms at every
 * start of the program. */
#ifndef PENSTOCK_CUDA_CUBLAS_CUH
#define PENSTOCK_CUDA_CUBLAS_CUH

#include "kernels/cuda/device.cuh"

/* Loads the library once, and opens it for the device of the calling thread; false where that
 * cannot be. Call it before a graph is captured: it takes memory. */
bool cublas_open();

/* Has functions come from `find` (a name's address, or NULL) in place of the library: for tests.
 * What was open is forgotten. */
void cublas_find_with(void *(*find)(const char *name));

/* y[M][N] = x[M][K] times w[N][K]^T, all of `act` and row-major, y float32 with `float_out`; with
 * `add` y grows by it. Summed in float32 in an order that cuBLAS chooses by M, N and K, so a row's
 * bits do depend on the batch. After cublas_open() was true for this device. A failure is noted
 * (cuda_failed), as one of a kernel would be. */
void cublas_product(enum dtype act, void *y, const void *x, const void *w, int M, int N, int K,
                    bool float_out, bool add, cudaStream_t stream);

#endif
