/* ptx100: instructions of sm_100 and its family: tensor memory, and products that store their sums
 * there. They are not emulated, so only nvcc compiles files that include this.
 *
 * Tensor memory has 128 lanes of 512 columns of 32 bits. An address is lane << 16 | column. A warp
 * can access the 32 lanes from 32 * (its number % 4) on. */
#ifndef PENSTOCK_CUDA_TCGEN05_PTX100_CUH
#define PENSTOCK_CUDA_TCGEN05_PTX100_CUH

#include "kernels/cuda/runtime/ptx90.cuh"

constexpr int TENSOR_LANES = 128, TENSOR_COLUMNS = 512;

/* ---- memory --------------------------------------------------------------------------------- */

/* Allocates all columns of the multiprocessor; *at becomes the address of the first. One warp calls
 * it, and the same warp frees them. */
__device__ __forceinline__ void tensor_take(uint32_t *at) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     shared_address(at)),
                 "n"(TENSOR_COLUMNS)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void tensor_give(uint32_t at) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(at),
                 "n"(TENSOR_COLUMNS)
                 : "memory");
}

/* Orders these instructions before the actions of other threads of the block after a barrier: one
 * fence precedes the arrival, the other follows the wait. */
__device__ __forceinline__ void tensor_fence_before() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void tensor_fence_after() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

/* Stores a tile's slab from a warp's registers: w[s] is the operand of step s, as in mma_m16n8k16.
 * Lane r of the 16 from `at` on becomes row r; a step takes 8 columns. Waits for completion. */
__device__ __forceinline__ void tensor_store_slab(uint32_t at, const uint32_t (&w)[4][4]) {
    asm volatile("tcgen05.st.sync.aligned.16x128b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, "
                 "%9, %10, %11, %12, %13, %14, %15, %16};" ::"r"(at),
                 "r"(w[0][0]), "r"(w[0][1]), "r"(w[0][2]), "r"(w[0][3]), "r"(w[1][0]), "r"(w[1][1]),
                 "r"(w[1][2]), "r"(w[1][3]), "r"(w[2][0]), "r"(w[2][1]), "r"(w[2][2]), "r"(w[2][3]),
                 "r"(w[3][0]), "r"(w[3][1]), "r"(w[3][2]), "r"(w[3][3])
                 : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

/* Loads 16 columns, starting at `at`: each thread gets those of its lane. Waits for completion. */
__device__ __forceinline__ void tensor_load(float (&v)[16], uint32_t at) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
        "%11, %12, %13, %14, %15}, [%16];\n"
        "tcgen05.wait::ld.sync.aligned;"
        : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]),
          "=f"(v[7]), "=f"(v[8]), "=f"(v[9]), "=f"(v[10]), "=f"(v[11]), "=f"(v[12]), "=f"(v[13]),
          "=f"(v[14]), "=f"(v[15])
        : "r"(at)
        : "memory");
}

/* ---- products ------------------------------------------------------------------------------- */

template <class T> constexpr uint32_t TYPE_NUMBER = 0; /* of float16 */
template <> constexpr uint32_t TYPE_NUMBER<__nv_bfloat16> = 1;

/* The instruction descriptor of a product of 128 lanes by COLUMNS columns: float32 sums, both
 * operands of type T, k contiguous. */
template <class T, int COLUMNS> __host__ __device__ constexpr uint32_t product_kind() {
    constexpr uint32_t SUM_F32 = 1, TYPE = TYPE_NUMBER<T>;
    return SUM_F32 << 4 | TYPE << 7 | TYPE << 10 | (uint32_t)(COLUMNS / 8) << 17 |
           (uint32_t)(TENSOR_LANES / 16) << 24;
}

/* A descriptor of 16 adjacent k of some columns, as shared_matrix makes them for wgmma: the
 * swizzle's number and layout are the same, and bit 46 selects sm_100. */
__device__ __forceinline__ uint64_t tensor_matrix(const void *at) {
    return shared_matrix(at) | (uint64_t)1 << 46;
}

/* Starts d[128][columns] += a[128][16] times b[16][columns]; unless it adds, d begins with zeros. d
 * and a are in tensor memory, b in shared memory. One thread of the block starts all products, and
 * they execute in that order. */
__device__ __forceinline__ void tensor_product(uint32_t d, uint32_t a, uint64_t b, uint32_t kind,
                                               bool adds) {
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %4, 0;\n"
                 "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, adds;\n}" ::"r"(d),
                 "r"(a), "l"(b), "r"(kind), "r"((int)adds)
                 : "memory");
}
/* All products that this thread has started arrive at the barrier once, when they are complete. */
__device__ __forceinline__ void tensor_commit(uint64_t *barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
            shared_address(barrier))
        : "memory");
}

#endif
