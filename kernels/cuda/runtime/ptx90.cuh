/* ptx90: instructions that only sm_90a has, as ptx.cuh has those of all devices. Files that include
 * it are compiled for sm_90a alone; on other devices their kernels must not be launched. The
 * emulation's twins are in tests/cuda_emu/include/emu_ptx90.h. */
#ifndef PENSTOCK_CUDA_PTX90_CUH
#define PENSTOCK_CUDA_PTX90_CUH

#include "kernels/cuda/runtime/ptx.cuh"

#ifdef CUDA_EMULATED

#include <emu_ptx90.h>

#else

/* ---- mbarriers ------------------------------------------------------------------------------ */

/* A barrier in shared memory. A phase of it ends after `count` arrivals and all bytes that arrivals
 * have said to expect; the parity of the first phase is 0. */
__device__ __forceinline__ void mbarrier_init(uint64_t *barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(count)
                 : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}
/* Arrives, and says that copies will bring so many bytes in this phase. */
__device__ __forceinline__ void mbarrier_arrive_expect(uint64_t *barrier, unsigned bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}
/* Waits until the phase of this parity has ended; at once if the one that runs has the other. What
 * was done before the arrivals is visible then, and what was copied. */
__device__ __forceinline__ void mbarrier_wait(uint64_t *barrier, unsigned parity) {
    asm volatile("{\n.reg .pred ended;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
                 "@!ended bra again;\n}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* ---- bulk copies ---------------------------------------------------------------------------- */

/* Starts a copy of `bytes`, a multiple of 16, from global to shared memory, whose end counts in the
 * barrier's phase. Both pointers are 16-byte aligned. One thread calls it. */
__device__ __forceinline__ void bulk_copy(void *to, const void *from, unsigned bytes,
                                          uint64_t *barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
/* Shows this thread's writes, barriers that it made among them, to bulk copies and wgmma. */
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* ---- products of a warpgroup ---------------------------------------------------------------- */

/* Before each group: the registers of its operands are final. */
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Ends a group of products. */
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most PENDING groups run. All others are done with d and their operands. */
template <int PENDING, int R> __device__ __forceinline__ void wgmma_wait(float (&d)[R]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#pragma unroll
    for (int i = 0; i < R; i++) asm volatile("" : "+f"(d[i])::"memory"); /* no use before it */
}

/* d[64][2 R] += a[64][16] (rows) times b[16][2 R] (columns, in shared memory). Four warps that
 * begin at a multiple of 4 take part; each has 16 rows: its a, and d[4 j + i] for columns 8 j on,
 * as in mma_m16n8k16. `b` is a descriptor (shared_matrix). The sum is d's when its group has been
 * waited for; until then neither a nor d is touched. */
template <class T, int R>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[R], const uint32_t (&a)[4], uint64_t b);

#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define D64 D16(0), D16(16), D16(32), D16(48)
#define D96 D64, D16(64), D16(80)
#define P64                                                                                        \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"   \
    "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define P96                                                                                        \
    P64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,"    \
        "%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
/* The last three numbers: scale of d, of a and of b. */
#define WGMMA(TYPE, N, NAME, R, D, P, A)                                                           \
    template <>                                                                                    \
    __device__ __forceinline__ void wgmma_m64k16<TYPE, R>(float(&d)[R], const uint32_t(&a)[4],     \
                                                          uint64_t b) {                            \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" P        \
                     "}, {" A ", 1, 1, 1, 0;"                                                      \
                     : D                                                                           \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                        \
    }
#define A64 "%64,%65,%66,%67}, %68"
#define A96 "%96,%97,%98,%99}, %100"
WGMMA(__half, 128, "f16", 64, D64, P64, A64)
WGMMA(__half, 192, "f16", 96, D96, P96, A96)
WGMMA(__nv_bfloat16, 128, "bf16", 64, D64, P64, A64)
WGMMA(__nv_bfloat16, 192, "bf16", 96, D96, P96, A96)

/* ---- registers ------------------------------------------------------------------------------ */

/* All of a warpgroup's threads have COUNT registers from now on: fewer than before, or more, for
 * which it waits until others have given enough. */
template <int COUNT> __device__ __forceinline__ void registers_give() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif

/* ---- matrices in shared memory -------------------------------------------------------------- */

/* A descriptor of 16 neighbours of k of some columns. A column's 64 neighbours are a line of 128
 * bytes, lines follow one another, and 16-byte piece i of line c stands at i ^ c % 8: the swizzle
 * of 128 bytes. `at` is in a line 0 of 8, of which the first begins at a multiple of 1,024. */
__device__ __forceinline__ uint64_t shared_matrix(const void *at) {
    constexpr uint64_t LEADING = 1, STRIDE = 1024 / 16, SWIZZLE_128 = 1;
    return (uint64_t)(shared_address(at) >> 4 & 0x3fff) | LEADING << 16 | STRIDE << 32 |
           SWIZZLE_128 << 62;
}

#endif
