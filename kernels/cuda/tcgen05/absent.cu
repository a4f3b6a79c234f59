/* The functions of sm_100's kernel for builds that cannot compile it: under emulation, which does
 * not have tensor memory, in builds for other GPUs only, and with toolkits before 12.9. */
#include "kernels/cuda/gemm/mainloop.cuh"

bool gemm_has_tcgen05(void) {
    return false;
}

void gemm_tcgen05(const struct gemm_job *, int, const void *, int, cudaStream_t,
                  const struct gemm_scratch *) {
    assert(!"chosen although gemm_has_tcgen05 denies it");
}
