/* kernels/cuda/tcgen05: products by instructions of sm_100 and its family. */
#ifndef PENSTOCK_CUDA_TCGEN05_CUH
#define PENSTOCK_CUDA_TCGEN05_CUH

#include "kernels/cuda/gemm/gemm.cuh"

/* The products, or NULL in a program that was built without them. */
const struct gemm_generation *tcgen05_products(void);

#endif
