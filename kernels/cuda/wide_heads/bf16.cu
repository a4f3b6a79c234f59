/* Wide heads over a cache of bfloat16. */
#include "kernels/cuda/wide_heads/launch.cuh"

void wide_heads_run_bf16(const attention_args &args, const attention_launch &how,
                         const wide_launch &work, cudaStream_t stream) {
    wide_launch_all<__nv_bfloat16>(args, how, work, stream);
}
