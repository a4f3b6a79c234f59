/* tcgen05 in builds that cannot compile it: under emulation, which does not have tensor memory, in
 * builds for other GPUs only, and with toolkits before 12.9. */
#include "kernels/cuda/tcgen05/tcgen05.cuh"

const struct gemm_generation *tcgen05_products(void) {
    return nullptr;
}
