/* Which device there is. */
#ifndef PENSTOCK_CUDA_FIND_CUH
#define PENSTOCK_CUDA_FIND_CUH

#include "kernels/cuda/device.cuh"

/* The properties of the first device. Fails with STATUS_USAGE, and says why, where there is none
 * that kernels can run on. */
enum status device_find(cudaDeviceProp *prop, struct err *err);

#endif
