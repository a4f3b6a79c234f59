/* Kernels with one fault each, and right kernels that look wrong. The emulation must report the
 * former and must not report the latter. */
#ifndef PENSTOCK_TESTS_CUDA_BROKEN_CUH
#define PENSTOCK_TESTS_CUDA_BROKEN_CUH

#include "kernels/cuda/runtime/device.cuh"

enum { BROKEN_N = 128, BROKEN_BLOCKS = 5 };

/* The memory that kernels may use. A right kernel leaves out[i] == i + 1. */
struct broken_args {
    float *out, *in; /* [BROKEN_N]; in[i] is i + 1 */
    float *part;     /* [BROKEN_BLOCKS][BROKEN_N] */
    int *counter;    /* [1], zero */
    float *host;     /* [BROKEN_N], in host memory */
};

/* Launches the kernel with this name on the stream. */
void broken_launch(const char *name, const broken_args &args, cudaStream_t stream);

#endif
