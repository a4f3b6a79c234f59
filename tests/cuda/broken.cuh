/* Kernels that are wrong in one way each, and some that look wrong and are not: what the emulation
 * must find, and must not. */
#ifndef PENSTOCK_TESTS_CUDA_BROKEN_CUH
#define PENSTOCK_TESTS_CUDA_BROKEN_CUH

#include "kernels/cuda/runtime/device.cuh"

enum { BROKEN_N = 128, BROKEN_BLOCKS = 5 };

/* What every kernel may use. A right one leaves out[i] == i + 1. */
struct broken_args {
    float *out, *in; /* [BROKEN_N]; in[i] is i + 1 */
    float *part;     /* [BROKEN_BLOCKS][BROKEN_N] */
    int *counter;    /* one, zero */
    float *host;     /* [BROKEN_N], the host's memory */
};

/* Launches the kernel of a name on the stream. */
void broken_launch(const char *name, const broken_args &args, cudaStream_t stream);

#endif
