/* The kernels that tests/cuda_budgets.py holds to figures, and no others, so that compiling them is
 * quick: the hottest of decode and prefill, of bfloat16. The table there has their names. */
#include "kernels/cuda/attention/kernel.cuh"
#include "kernels/cuda/gemm/skinny.cuh"
#include "kernels/cuda/gemm/tiled.cuh"
#include "kernels/cuda/persistent/kernel.cuh"

using bf16 = __nv_bfloat16;

/* A kernel is compiled if its address is needed. */
__device__ const void *const budgeted[] = {
    reinterpret_cast<const void *>(&skinny_kernel<Format16, bf16, 1, true, false>),
    reinterpret_cast<const void *>(&skinny_kernel<Format16, bf16, 2, true, false>),
    reinterpret_cast<const void *>(&step_kernel<bf16, 1>),
    reinterpret_cast<const void *>(&tiled_kernel<Format16, bf16, Small, false>),
    reinterpret_cast<const void *>(&tiled_kernel<Format16, bf16, Large, false>),
    reinterpret_cast<const void *>(&attention_kernel<attention_kind<bf16, bf16, 64, true, false>>),
    reinterpret_cast<const void *>(&attention_kernel<attention_kind<bf16, bf16, 128, true, false>>),
};
