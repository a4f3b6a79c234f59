/* Persistent steps with float16 activations. */
#include "kernels/cuda/persistent/kernel.cuh"

step_kernel_type *step_kernel_f16(int groups) {
    return groups == 1 ? step_kernel<__half, 1> : step_kernel<__half, 2>;
}
