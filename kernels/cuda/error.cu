/* What every launch asks: whether grids may begin early; and the end of the process after a CUDA
 * call that must not fail. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/device.cuh"

void cuda_must(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "penstock: CUDA: %s failed: %s (%s)\n", what, cudaGetErrorString(error),
            cudaGetErrorName(error));
    abort();
}

bool early_grids;

__global__ void compiled_for_kernel() {}

void early_grids_find() {
    cudaFuncAttributes attributes = {};
    cuda_must(cudaFuncGetAttributes(&attributes, compiled_for_kernel), "looking at a kernel");
    early_grids = attributes.ptxVersion >= 90;
}
