/* Random weights, made on the device. */
#ifndef PENSTOCK_CUDA_RANDOM_CUH
#define PENSTOCK_CUDA_RANDOM_CUH

#include "kernels/cuda/device.cuh"

/* data = bytes from .. to of the matrix that `w` describes (kernels.h), the same bytes as the
 * host's random_weights_fill makes. `from` is a multiple of piece_bytes. */
void random_rows(void *data, const struct random_weights *w, size_t from, size_t to,
                 cudaStream_t stream);

#endif
