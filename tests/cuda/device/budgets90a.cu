/* Like budgets.cu, for the kernels that are compiled for sm_90a. */
#include "kernels/cuda/wgmma/chunks.cuh"
#include "kernels/cuda/wgmma/e4m3.cuh"
#include "kernels/cuda/wgmma/wide.cuh"

using bf16 = __nv_bfloat16;

__device__ const void *const budgeted[] = {
    reinterpret_cast<const void *>(&wide_kernel<bf16, Wide<32, 8>>),
    reinterpret_cast<const void *>(&wide_kernel<bf16, Wide<64, 7>>),
    reinterpret_cast<const void *>(&wide_kernel<bf16, Wide<128>>),
    reinterpret_cast<const void *>(&wide_kernel<bf16, Wide<192>>),
    reinterpret_cast<const void *>(&wide_kernel<bf16, WideE4m3<16, 16>>),
    reinterpret_cast<const void *>(&wide_kernel<bf16, WideE4m3<64, 12>>),
    reinterpret_cast<const void *>(&wide_kernel<bf16, WideE4m3<128, 8>>),
    reinterpret_cast<const void *>(&chunk_kernel<attention_kind<bf16, bf16, 64, true, false>>),
    reinterpret_cast<const void *>(&chunk_kernel<attention_kind<bf16, bf16, 64, true, true>>),
    reinterpret_cast<const void *>(&chunk_kernel<attention_kind<bf16, bf16, 128, true, false>>),
    reinterpret_cast<const void *>(&chunk_kernel<attention_kind<bf16, bf16, 128, true, true>>),
};
