/* The kernels whose resources tests/cuda_budgets.py checks: the hottest ones of decode and prefill,
 * in bfloat16. The file holds no other kernels, so that it compiles fast. The names are in the
 * table of that script. */
#include "kernels/cuda/attention/kernel.cuh"
#include "kernels/cuda/gemm/skinny.cuh"
#include "kernels/cuda/gemm/tiled.cuh"
#include "kernels/cuda/persistent/kernel.cuh"
#include "kernels/cuda/wide_heads/kernel.cuh"

using bf16 = __nv_bfloat16;

/* A kernel is compiled only if its address is used. */
__device__ const void *const budgeted[] = {
    reinterpret_cast<const void *>(&skinny_kernel<Format16, bf16, 1, true, false>),
    reinterpret_cast<const void *>(&skinny_kernel<Format16, bf16, 2, true, false>),
    reinterpret_cast<const void *>(&step_kernel<bf16, 1>),
    reinterpret_cast<const void *>(&tiled_kernel<Format16, bf16, Small, false>),
    reinterpret_cast<const void *>(&tiled_kernel<Format16, bf16, Large, false>),
    reinterpret_cast<const void *>(&attention_kernel<attention_kind<bf16, bf16, 64, true, false>>),
    reinterpret_cast<const void *>(&attention_kernel<attention_kind<bf16, bf16, 64, true, true>>),
    reinterpret_cast<const void *>(&attention_kernel<attention_kind<bf16, bf16, 128, true, false>>),
    reinterpret_cast<const void *>(&attention_kernel<attention_kind<bf16, bf16, 128, true, true>>),
    reinterpret_cast<const void *>(&wide_heads_kernel<wide_kind<bf16, 512, 512, 1>>),
    reinterpret_cast<const void *>(&wide_heads_kernel<wide_kind<bf16, 512, 512, 4>>),
    reinterpret_cast<const void *>(&wide_heads_kernel<wide_kind<bf16, 576, 512, 1>>),
    reinterpret_cast<const void *>(&wide_heads_kernel<wide_kind<bf16, 576, 512, 4>>),
};
