/* Stands in for the kernel of sm_100 where nothing is compiled for that: under emulation, which has
 * no tensor memory, in builds for other GPUs alone, and with toolkits before 12.9. */
#include "kernels/cuda/gemm/mainloop.cuh"

bool gemm_has_tcgen05(void) {
    return false;
}

void gemm_tcgen05(const struct gemm_job *, int, const void *, int, cudaStream_t,
                  const struct gemm_scratch *) {
    assert(!"chosen although gemm_has_tcgen05 denies it");
}
