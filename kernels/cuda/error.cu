/* The end of the process after a CUDA call that must not fail. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/device.cuh"

void cuda_must(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "penstock: CUDA: %s failed: %s (%s)\n", what, cudaGetErrorString(error),
            cudaGetErrorName(error));
    abort();
}
