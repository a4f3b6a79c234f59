/* The table of GPU generations. */
#include "kernels/cuda/generation.cuh"

#include "kernels/cuda/tcgen05/tcgen05.cuh"
#include "kernels/cuda/wgmma/wgmma.cuh"

bool generation_find(struct gpu_generation *out, const cudaDeviceProp *prop) {
    const struct gpu_generation all[] = {
        {"wgmma", 9, 0, &wgmma_products, &wgmma_chunks, false},
        {"tcgen05", 10, 0, tcgen05_products(), nullptr, true},
        {"tcgen05", 10, 3, tcgen05_products(), nullptr, true},
    };
    for (const struct gpu_generation &one : all) {
        const bool is_its = one.major == prop->major && one.minor == prop->minor;
        if (!is_its || !one.products) continue;
        *out = one;
        return true;
    }
    return false;
}
