/* kernels/cuda/wide_heads: attention on the tensor cores for heads of more than 256 numbers, and
 * for latent attention, whose values are the first numbers of its keys. mma.sync, so it runs from
 * sm_80 on. The plan is that of kernels/cuda/attention. */
#ifndef PENSTOCK_CUDA_WIDE_HEADS_CUH
#define PENSTOCK_CUDA_WIDE_HEADS_CUH

#include "kernels/cuda/attention/attention.cuh"

extern const struct attention_wide wide_heads;

#endif
