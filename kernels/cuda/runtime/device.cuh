/* device: included by every kernel file. Types and their conversions, 16-byte access, reductions,
 * and the launch. Only this file and ptx.cuh know the emulation (tests/cuda_emu), whose include
 * folder has its own <cuda_runtime.h>.
 *
 * Kernels are compiled with -fmad=false: fused multiply-adds appear only as explicit fmaf, so that
 * a row's bits do not depend on the compiler's treatment of a loop.
 */
#ifndef PENSTOCK_CUDA_DEVICE_CUH
#define PENSTOCK_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <assert.h>
#include <stdint.h>

#include "kernels/cuda/runtime/cuda.h"

constexpr int WARP = 32;
constexpr unsigned FULL_MASK = 0xffffffffu;
/* The maximum dynamic shared memory of a launch without allow_smem. A device gives a block 48 KiB,
 * including a kernel's own __shared__ variables; 1 KiB is reserved for them, which
 * tests/cuda_budgets.py checks. */
constexpr int DEFAULT_SMEM = 47 << 10;

/* ---- failures: error.cu --------------------------------------------------------------------- */

/* Records a failed call; from then on all ops do nothing (see cuda_failed). `what` names the call,
 * for example "copying a step"; the string must never be freed. */
void cuda_check(cudaError_t error, const char *what);
/* The same, and returns whether the call succeeded. */
bool cuda_ok(cudaError_t error, const char *what);

/* Returns whether an allocation succeeded. The caller handles a lack of memory; other failures are
 * recorded. */
bool cuda_alloc_ok(cudaError_t error);

/* Returns whether a call has failed. Nothing is launched any more, and results are missing. */
bool cuda_failed();
/* The same, and describes the call in err. */
bool cuda_failure(struct err *err);

/* Count the open backends. The record of a failure is cleared when the last one closes. */
void cuda_failure_open();
void cuda_failure_close();

/* ---- launching ------------------------------------------------------------------------------ */

/* Whether a grid may begin while the previous grid in its stream still runs; it then waits in
 * grid_wait (ptx.cuh). Off until early_grids_find detects that the device and the compiled kernels
 * support it: the PTX of sm_80, which newer devices may run, does not wait. */
extern bool early_grids;
void early_grids_find();

inline cudaLaunchAttribute early_attribute() {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    return early;
}

/* Does the calling thread build a list of orders (orders.cuh)? Then a launch is not allowed, and
 * the list becomes invalid. */
bool orders_refuse_launch();

/* Starts kernel<<<grid, block, smem, stream>>>(args...). Empty grids are not started. */
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, cudaStream_t stream,
            A &&...args) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || cuda_failed()) return;
    if (orders_refuse_launch()) return;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = smem;
    config.stream = stream;
    cudaLaunchAttribute early = early_attribute();
    config.attrs = &early;
    config.numAttrs = early_grids;
    cuda_check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...), "a kernel's launch");
}

/* Allows a kernel more than DEFAULT_SMEM of dynamic shared memory on the calling thread's device.
 * Every call for a kernel must pass the same size, so that launches recorded in a graph keep their
 * allowance. */
template <class... P> void allow_smem(void (*kernel)(P...), size_t bytes) {
    cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "asking for shared memory");
}

/* Calls fn with a value of the element type for activations of `type`: for_activation(type,
 * [&](auto zero) { using T = decltype(zero); ... }). */
template <class F> void for_activation(enum dtype type, F fn) {
    if (type == DTYPE_F32)
        fn(float());
    else if (type == DTYPE_F16)
        fn(__half());
    else
        fn(__nv_bfloat16());
}

/* ---- shared memory -------------------------------------------------------------------------- */

/* The block's dynamic shared memory. */
template <class T> __device__ __forceinline__ T *dyn_smem() {
#ifdef CUDA_EMULATED
    return static_cast<T *>(emu::dynamic_shared());
#else
    extern __shared__ __align__(128) unsigned char dyn_smem_bytes[];
    return reinterpret_cast<T *>(dyn_smem_bytes);
#endif
}

/* ---- vectors --------------------------------------------------------------------------------- */

/* `COUNT` adjacent elements, moved by one load or store of up to 16 bytes. Vec16<T> is the usual
 * one. */
template <class T, int COUNT> struct alignas(COUNT * sizeof(T)) Vec {
    static constexpr int N = COUNT;
    T v[N];
};
template <class T> using Vec16 = Vec<T, 16 / sizeof(T)>;

/* p is aligned to the size of the vector. */
template <int COUNT, class T> __device__ __forceinline__ Vec<T, COUNT> load_vec(const T *p) {
#ifdef CUDA_EMULATED
    emu::must_be_aligned(p, COUNT * sizeof(T));
#endif
    return *reinterpret_cast<const Vec<T, COUNT> *>(p);
}
template <int COUNT, class T>
__device__ __forceinline__ void store_vec(T *p, const Vec<T, COUNT> &v) {
#ifdef CUDA_EMULATED
    emu::must_be_aligned(p, COUNT * sizeof(T));
#endif
    *reinterpret_cast<Vec<T, COUNT> *>(p) = v;
}
template <class T> __device__ __forceinline__ Vec16<T> load16(const T *p) {
    return load_vec<Vec16<T>::N>(p);
}
template <class T> __device__ __forceinline__ void store16(T *p, const Vec16<T> &v) {
    store_vec<Vec16<T>::N>(p, v);
}

/* ---- conversions ---------------------------------------------------------------------------- */

__device__ __forceinline__ float to_float(float x) {
    return x;
}
__device__ __forceinline__ float to_float(__half x) {
    return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

/* Rounds to nearest, ties to even. */
template <class T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <> __device__ __forceinline__ __half from_float<__half>(float x) {
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

/* ---- reductions ----------------------------------------------------------------------------- */

/* Sum and maximum over a full warp, with the same bits in every lane: the tree is fixed. */
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) x = x + __shfl_xor_sync(FULL_MASK, x, apart);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        x = fmaxf(x, __shfl_xor_sync(FULL_MASK, x, apart));
    return x;
}

/* Sum over the THREADS of a block, in every thread. May be called again at once. */
template <int THREADS> __device__ __forceinline__ float block_sum(float x) {
    static_assert(THREADS % WARP == 0 && THREADS <= WARP * WARP, "whole warps");
    __shared__ float part[THREADS / WARP];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    x = warp_sum(x);
    if (lane == 0) part[warp] = x;
    __syncthreads();
    x = lane < THREADS / WARP ? part[lane] : 0.0f;
    __syncthreads(); /* the next call writes `part` again */
    return warp_sum(x);
}

#endif
