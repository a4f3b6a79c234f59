/* ptx: instructions without a CUDA C++ name, each in a function that takes generic pointers. The
 * emulation has a counterpart of each (tests/cuda_emu/include/emu_ptx.h). All of them exist from
 * sm_80 on. Only this file distinguishes architectures. */
#ifndef PENSTOCK_CUDA_PTX_CUH
#define PENSTOCK_CUDA_PTX_CUH

#include "kernels/cuda/runtime/device.cuh"

#ifdef CUDA_EMULATED

#include <emu_ptx.h>

#else

__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* 2^x to about two units in the last place; results below the smallest normal number are 0. */
__device__ __forceinline__ float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Does an instruction convert e4m3? From compute capability 8.9 on it does. */
#if __CUDA_ARCH__ >= 890
constexpr bool CONVERTS_E4M3 = true;
#else
constexpr bool CONVERTS_E4M3 = false;
#endif

/* ---- consecutive grids ---------------------------------------------------------------------- */

/* From sm_90 on, a grid may begin before the previous grid in its stream has ended (launch in
 * device.cuh): its blocks occupy free space and wait here. On older devices a grid begins after all
 * earlier ones have ended, and these functions do nothing. */

/* Allows the next grid to begin once all blocks of this one have called this or ended. The next
 * grid still waits for the end of this one, so a kernel calls it at once. */
__device__ __forceinline__ void grid_let_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/* Waits until all earlier grids have ended; their writes are then visible. Every thread of every
 * kernel calls it before it reads data written by a kernel of the same step, before it writes
 * anything, and before it ends, because the next grid takes the end of this one for the end of all
 * earlier ones. Such data must not be read through const __restrict__, since the compiler may move
 * those loads before the wait. Weights and data copied for the step may be read earlier. */
__device__ __forceinline__ void grid_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- words shared between blocks ------------------------------------------------------------ */

/* Adds to a word of global memory and returns the old value. A thread that reads the sum by
 * load_acquire sees the earlier writes of this thread, and the writes that it saw through a barrier
 * of its block. */
__device__ __forceinline__ unsigned add_release(unsigned *word, unsigned value) {
    unsigned before;
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(word)), "r"(value)
                 : "memory");
    return before;
}
__device__ __forceinline__ unsigned load_acquire(const unsigned *word) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(word))
                 : "memory");
    return value;
}

/* ---- asynchronous copies -------------------------------------------------------------------- */

/* Starts a copy of 16 bytes from global to shared memory, bypassing registers and L1. With fewer
 * `bytes` the rest is zeros; with 0 nothing is read. Both pointers are 16-byte aligned. */
__device__ __forceinline__ void cp_async16(void *to, const void *from, int bytes = 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
}
/* Ends a group of copies. */
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most N of this thread's groups are in flight. Data copied by other threads is
 * visible after a following barrier. */
template <int N> __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ---- ldmatrix ------------------------------------------------------------------------------- */

/* Loads 8x8 matrices of 16-bit elements from shared memory: lanes 8m .. 8m+7 point to the rows of
 * matrix m, 16 bytes each, aligned. Lane l gets elements 2(l%4), 2(l%4)+1 of row l/4; with _trans
 * of column l/4. The whole warp takes part. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&out)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&out)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* ---- bits ----------------------------------------------------------------------------------- */

/* (a & mask) | bits in one instruction; for constants the compiler would use two. */
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) {
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(mask), "r"(bits));
    return d;
}

/* ---- mma ------------------------------------------------------------------------------------ */

/* d[16][8] += a[16][16] (rows) times b[16][8] (columns), T is __half or __nv_bfloat16, d float.
 * Lane l, with g = l/4 and t = 2(l%4), holds
 *   a: (g,t..t+1) (g+8,t..t+1) (g,t+8..t+9) (g+8,t+8..t+9)    b: (t..t+1,g) (t+8..t+9,g)
 *   d: (g,t) (g,t+1) (g+8,t) (g+8,t+1) */
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]);
template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4], const uint32_t (&a)[4],
                                                     const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
                                                            const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

/* Both, for a kernel that does nothing before the wait. */
__device__ __forceinline__ void grid_begin() {
    grid_let_next();
    grid_wait();
}

#endif
