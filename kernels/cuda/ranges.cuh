/* Names for a profiler's time line. */
#ifndef PENSTOCK_CUDA_RANGES_CUH
#define PENSTOCK_CUDA_RANGES_CUH

#include "kernels/cuda/cuda.h"

/* NVTX's, or NULL where nobody looks: a profiler names its library in NVTX_INJECTION64_PATH. */
const struct range_ops *nvtx_ranges();

#endif
