/* cuBLAS, which is loaded when it is first wanted and never linked: linking costs 81 ms at every
 * start of the program. */
#ifndef PENSTOCK_CUDA_CUBLAS_CUH
#define PENSTOCK_CUDA_CUBLAS_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Loads the library once and opens it for the calling thread's device; false if that fails. Call it
 * before a graph is captured: it allocates memory. */
bool cublas_open();

/* Looks functions up by `find` (which returns a name's address, or NULL) instead of in the library,
 * for tests. Open handles are dropped. */
void cublas_find_with(void *(*find)(const char *name));

/* y[M][N] = scale * x[M][K] times w[N][K]^T, all of `act` and row-major, y float32 with
 * `float_out`; with `add` y grows by it. Summed in float32 in an order that cuBLAS chooses by M, N
 * and K, so a row's bits depend on the batch. cublas_open() must have returned true for this
 * device. A failure is recorded as a kernel's would be (cuda_failed). */
void cublas_product(enum dtype act, void *y, const void *x, const void *w, int M, int N, int K,
                    bool float_out, bool add, float scale, cudaStream_t stream);

#endif
