/* Wide heads over a cache of float16. */
#include "kernels/cuda/wide_heads/launch.cuh"

void wide_heads_run_f16(const attention_args &args, const attention_launch &how,
                        const wide_launch &work, cudaStream_t stream) {
    wide_launch_all<__half>(args, how, work, stream);
}
