/* Attention over a cache of float16. */
#include "kernels/cuda/attention/kernel.cuh"

void attention_run_f16(const attention_args &args, const attention_launch &how, int n_items,
                       cudaStream_t stream) {
    attention_launch_all<__half, __half>(args, how, n_items, stream);
}
