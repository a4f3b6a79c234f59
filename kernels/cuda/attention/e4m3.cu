/* Attention over a cache of e4m3. The operands are bfloat16: an e4m3 times a power of two is exact.
 */
#include "kernels/cuda/attention/kernel.cuh"

void attention_run_e4m3(const attention_args &args, const attention_launch &how, int n_items,
                        cudaStream_t stream) {
    attention_launch_all<__nv_bfloat16, __nv_fp8_e4m3>(args, how, n_items, stream);
}
