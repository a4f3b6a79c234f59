/* Kernels with mbarriers, bulk copies and products of warpgroups: some with one fault each, and
 * right ones. */
#ifndef PENSTOCK_TESTS_CUDA_BROKEN_ASYNC_CUH
#define PENSTOCK_TESTS_CUDA_BROKEN_ASYNC_CUH

#include "tests/cuda/broken.cuh"

/* Launches the kernel with this name on the stream. */
void broken_async_launch(const char *name, const broken_args &args, cudaStream_t stream);

#endif
