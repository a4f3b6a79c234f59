/* ptx90: instructions of sm_90a only. Files that include it are compiled for sm_90a alone, and
 * their kernels must not be launched on other devices. The emulation's counterparts are in
 * tests/cuda_emu/include/emu_ptx90.h. */
#ifndef PENSTOCK_CUDA_PTX90_CUH
#define PENSTOCK_CUDA_PTX90_CUH

#include "kernels/cuda/runtime/ptx.cuh"

#ifdef CUDA_EMULATED

#include <emu_ptx90.h>

#else

/* ---- mbarriers ------------------------------------------------------------------------------ */

/* A barrier in shared memory. A phase ends after `count` arrivals and all bytes announced by
 * arrivals; the parity of the first phase is 0. */
__device__ __forceinline__ void mbarrier_init(uint64_t *barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(count)
                 : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}
/* Arrives and announces `bytes` bytes of copies in this phase. */
__device__ __forceinline__ void mbarrier_arrive_expect(uint64_t *barrier, unsigned bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}
/* Waits until the phase with this parity has ended; returns at once if the current phase has the
 * other parity. Writes before the arrivals and the copied data are then visible. */
__device__ __forceinline__ void mbarrier_wait(uint64_t *barrier, unsigned parity) {
    asm volatile("{\n.reg .pred ended;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
                 "@!ended bra again;\n}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* ---- bulk copies ---------------------------------------------------------------------------- */

/* Starts a copy of `bytes`, a multiple of 16, from global to shared memory. Its end counts in the
 * barrier's phase. Both pointers are 16-byte aligned. One thread calls it. */
__device__ __forceinline__ void bulk_copy(void *to, const void *from, unsigned bytes,
                                          uint64_t *barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
/* Makes this thread's writes, including new barriers, visible to bulk copies and wgmma. */
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* ---- products of a warpgroup ---------------------------------------------------------------- */

/* Required before each group: the operand registers are final. */
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
    for (int i = 0; i < R; i++) asm volatile("" : "+f"(d[i])::"memory"); /* prevents earlier uses */
}

/* d[64][2 R] += a[64][16] (rows) times b[16][2 R] (columns, in shared memory). Four warps whose
 * first is a multiple of 4 take part; each has 16 rows: its a, and d[4 j + i] for columns 8 j on,
 * as in mma_m16n8k16. `b` is a descriptor (shared_matrix). The result is in d after its group has
 * been waited for; until then neither a nor d may be touched. If it does not add, d begins with
 * zeros. */
template <class T, int R>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[R], const uint32_t (&a)[4], uint64_t b,
                                             bool adds = true);
/* The same for a matrix whose lines are rows: 64 adjacent columns of one k. */
template <class T, int R>
__device__ __forceinline__ void wgmma_m64k16_rows(float (&d)[R], const uint32_t (&a)[4], uint64_t b,
                                                  bool adds = true);

#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define P8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define P16 P8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define P32                                                                                        \
    P8 ",%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"           \
       "%28,%29,%30,%31"
#define D8 D4(0), D4(4)
#define D32 D16(0), D16(16)
#define D64 D16(0), D16(16), D16(32), D16(48)
#define D96 D64, D16(64), D16(80)
#define P64                                                                                        \
    P32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,"    \
        "%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define P96                                                                                        \
    P64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,"    \
        "%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
/* The last three numbers: scale of a, scale of b, and whether lines of b are rows. */
#define WGMMA(FUNCTION, ROWS, TYPE, N, NAME, R, D, P, A, ADDS)                                     \
    template <>                                                                                    \
    __device__ __forceinline__ void FUNCTION<TYPE, R>(float(&d)[R], const uint32_t(&a)[4],         \
                                                      uint64_t b, bool adds) {                     \
        asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " ADDS ", 0;\n"                       \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" P        \
                     "}, {" A ", adds, 1, 1, " ROWS ";\n}"                                         \
                     : D                                                                           \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)adds));        \
    }
#define A16 "%16,%17,%18,%19}, %20"
#define A32 "%32,%33,%34,%35}, %36"
#define A64 "%64,%65,%66,%67}, %68"
#define A96 "%96,%97,%98,%99}, %100"
WGMMA(wgmma_m64k16, "0", __half, 32, "f16", 16, D16(0), P16, A16, "%21")
WGMMA(wgmma_m64k16, "0", __half, 64, "f16", 32, D32, P32, A32, "%37")
WGMMA(wgmma_m64k16, "0", __half, 128, "f16", 64, D64, P64, A64, "%69")
WGMMA(wgmma_m64k16, "0", __half, 192, "f16", 96, D96, P96, A96, "%101")
WGMMA(wgmma_m64k16, "0", __nv_bfloat16, 32, "bf16", 16, D16(0), P16, A16, "%21")
WGMMA(wgmma_m64k16, "0", __nv_bfloat16, 64, "bf16", 32, D32, P32, A32, "%37")
WGMMA(wgmma_m64k16, "0", __nv_bfloat16, 128, "bf16", 64, D64, P64, A64, "%69")
WGMMA(wgmma_m64k16, "0", __nv_bfloat16, 192, "bf16", 96, D96, P96, A96, "%101")
WGMMA(wgmma_m64k16_rows, "1", __half, 64, "f16", 32, D32, P32, A32, "%37")
WGMMA(wgmma_m64k16_rows, "1", __half, 128, "f16", 64, D64, P64, A64, "%69")
WGMMA(wgmma_m64k16_rows, "1", __nv_bfloat16, 64, "bf16", 32, D32, P32, A32, "%37")
WGMMA(wgmma_m64k16_rows, "1", __nv_bfloat16, 128, "bf16", 64, D64, P64, A64, "%69")

/* The same for e4m3, 32 adjacent k at a time: d[64][2 R] += a[64][32] times b[32][2 R], or without
 * ADDS d = a times b. A word of a thread's `a` has the adjacent k 4 t .. 4 t + 3 of row g, then of
 * row g + 8, then both for k + 16 (t is its number in a group of four, g the group). `b` is
 * described by shared_matrix_64. Tensor cores of sm_90 reportedly keep about 14 bits of such a sum,
 * so chains should be short. */
#define WGMMA_E4M3(N, R, D, P, A, ADDED)                                                           \
    template <bool ADDS>                                                                           \
    __device__ __forceinline__ void wgmma_e4m3(float(&d)[R], const uint32_t(&a)[4], uint64_t b) {  \
        asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " ADDED ", 0;\n"                      \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" P "}, {" A       \
                     ", adds, 1, 1;\n}"                                                            \
                     : D                                                                           \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)ADDS));        \
    }
WGMMA_E4M3(16, 8, D8, P8, "%8,%9,%10,%11}, %12", "%13")
WGMMA_E4M3(64, 32, D32, P32, "%32,%33,%34,%35}, %36", "%37")
WGMMA_E4M3(128, 64, D64, P64, A64, "%69")

/* ---- registers ------------------------------------------------------------------------------ */

/* Sets the registers per thread of a warpgroup to COUNT: registers_give reduces them;
 * registers_take increases them and waits until other warpgroups have released enough. */
template <int COUNT> __device__ __forceinline__ void registers_give() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif

/* ---- matrices in shared memory -------------------------------------------------------------- */

/* A descriptor of the address `at`, the distance of 8 columns, and the swizzle. Swizzled matrices
 * ignore the leading distance. */
__device__ __forceinline__ uint64_t shared_matrix_of(const void *at, int stride, uint64_t swizzle) {
    constexpr uint64_t LEADING = 1;
    return (uint64_t)(shared_address(at) >> 4 & 0x3fff) | LEADING << 16 |
           (uint64_t)(stride / 16) << 32 | swizzle << 62;
}

/* A descriptor of 16 adjacent k of some columns. The 64 adjacent k of a column are a line of 128
 * bytes, 8 lines are contiguous, the next 8 begin `stride` bytes later, and the 16-byte piece i of
 * line c is at i ^ c % 8: the swizzle of 128 bytes. `at` is in the first of 8 lines, which begins
 * at a multiple of 1,024. */
__device__ __forceinline__ uint64_t shared_matrix(const void *at, int stride = 1024) {
    return shared_matrix_of(at, stride, 1);
}
/* The same for wgmma_m64k16_rows: a line has 64 adjacent columns of one k. The lines of the next 8
 * k begin `stride` bytes later, those of the next 64 columns `leading` bytes later. */
__device__ __forceinline__ uint64_t shared_matrix_rows(const void *at, int stride, int leading) {
    return (shared_matrix(at, stride) & ~(uint64_t)(0x3fff << 16)) | (uint64_t)(leading / 16) << 16;
}
/* The same for lines of 64 bytes, which are 64 adjacent e4m3 elements: the 16-byte piece i of line
 * c is at i ^ c / 2 % 4, the swizzle of 64 bytes. The first of 8 lines begins at a multiple of 512.
 */
__device__ __forceinline__ uint64_t shared_matrix_64(const void *at) {
    return shared_matrix_of(at, 512, 2);
}

#endif
