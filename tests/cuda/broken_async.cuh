/* Kernels with mbarriers, bulk copies and products of warpgroups that are wrong in one way each,
 * and right ones. */
#ifndef PENSTOCK_TESTS_CUDA_BROKEN_ASYNC_CUH
#define PENSTOCK_TESTS_CUDA_BROKEN_ASYNC_CUH

#include "tests/cuda/broken.cuh"

/* Launches the kernel of a name on the stream. */
void broken_async_launch(const char *name, const broken_args &args, cudaStream_t stream);

#endif
