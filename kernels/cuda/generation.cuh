/* GPU generations with instructions of their own for many rows: a row per generation, as the CPU has
 * paths (kernels/cpu/paths.c). Devices without a row use the kernels of mma.sync for everything. */
#ifndef PENSTOCK_CUDA_GENERATION_CUH
#define PENSTOCK_CUDA_GENERATION_CUH

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/gemm/gemm.cuh"

struct generation {
    const char *name; /* of the instructions: "wgmma" */
    int major, minor; /* compute capability */
    const struct gemm_generation *products;
    const struct attention_chunks *chunks; /* NULL: not supported */
    bool is_unproven;                      /* it has never run on a device */
};

/* Finds the generation of a device. Returns false if the device, or this program, lacks one. */
bool generation_find(struct generation *out, const cudaDeviceProp *prop);

#endif
