/* Persistent steps with bfloat16 activations. */
#include "kernels/cuda/persistent/kernel.cuh"

step_kernel_type *step_kernel_bf16(int groups) {
    return groups == 1 ? step_kernel<__nv_bfloat16, 1> : step_kernel<__nv_bfloat16, 2>;
}
