/* The table of GPU generations that have their own instructions for products of many rows. It
 * corresponds to the CPU's paths (kernels/cpu/paths.c). Other devices use mma.sync everywhere. */
#ifndef PENSTOCK_CUDA_GENERATION_CUH
#define PENSTOCK_CUDA_GENERATION_CUH

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/gemm/gemm.cuh"

struct gpu_generation {
    const char *name; /* of the instructions: "wgmma" */
    int major, minor; /* compute capability */
    const struct gemm_generation *products;
    const struct attention_chunks *chunks; /* NULL: not supported */
    bool is_unproven;                      /* it has never run on a device */
};

/* Finds the generation of a device. Returns false if the device, or this program, lacks one. */
bool generation_find(struct gpu_generation *out, const cudaDeviceProp *prop);

#endif
