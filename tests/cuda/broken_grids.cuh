/* Kernels of cooperative grids: some with one fault each, and right ones. */
#ifndef PENSTOCK_TESTS_CUDA_BROKEN_GRIDS_CUH
#define PENSTOCK_TESTS_CUDA_BROKEN_GRIDS_CUH

#include "tests/cuda/broken.cuh"

/* Launches the kernel with this name on the stream. The counter is [2]: the number of blocks that
 * have arrived, and the generation. */
void broken_grids_launch(const char *name, const broken_args &args, cudaStream_t stream);

#endif
