/* Attention over a cache of bfloat16. */
#include "kernels/cuda/attention/kernel.cuh"

void attention_run_bf16(const attention_args &args, const attention_launch &how, int n_items,
                        cudaStream_t stream) {
    attention_launch_all<__nv_bfloat16, __nv_bfloat16>(args, how, n_items, stream);
}
