/* Which device there is. */
#ifndef PENSTOCK_CUDA_FIND_CUH
#define PENSTOCK_CUDA_FIND_CUH

#include "kernels/cuda/device.cuh"

/* The properties of that device, which the calling thread's calls go to from now on. Fails with
 * STATUS_USAGE, and says why, where it is not there or kernels cannot run on it. */
enum status device_find(cudaDeviceProp *prop, int device, struct err *err);

#endif
