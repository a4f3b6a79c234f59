#include "tests/cuda/broken_async.cuh"

#include <string.h>

#include "kernels/cuda/runtime/ptx90.cuh"

enum fault {
    NONE,
    /* barriers and copies */
    NO_EXPECT,
    FEW_BYTES,
    HALF_EXPECTED,
    MANY_BYTES,
    WRONG_PARITY,
    SAME_PARITY,
    MADE_AGAIN,
    NOT_MADE,
    NOT_FENCED,
    NO_BARRIER,
    WRITTEN_OVER,
    TO_ODD,
    FROM_ODD,
    ODD_SIZE,
    WRONG_WAY,
    NO_WAIT,
    READS_UNFENCED,
    SHORT_RING,
    PHASE_BEHIND,
    ONE_ARRIVAL_MISSING,
    /* products */
    NO_FENCE,
    NO_COMMIT,
    READS_EARLY,
    SUM_CHANGED,
    OPERAND_CHANGED,
    MATRIX_CHANGED,
    NO_PROXY_FENCE,
    MATRICES_DIFFER,
    OTHER_SWIZZLE,
    OUT_OF_MEMORY,
    WAITS_APART,
    NEVER_WAITS,
    /* registers */
    TAKES_TOO_MANY,
    GIVES_MORE,
    ODD_REGISTERS,
};

constexpr int BYTES = BROKEN_N * 4, STAGE = 256, STAGES = 2, TURNS = 8;

/* ---- copies --------------------------------------------------------------------------------- */

template <fault F> __device__ __forceinline__ void make_barrier(uint64_t *barrier) {
    if (threadIdx.x == 0 && F != NOT_MADE) {
        mbarrier_init(barrier, 1);
        if (F != NOT_FENCED) fence_proxy_async();
    }
    if (F != NO_BARRIER) __syncthreads();
}

template <fault F>
__device__ __forceinline__ void start_copy(const broken_args &a, float *s, uint64_t *barrier) {
    constexpr unsigned EXPECTED = F == FEW_BYTES || F == HALF_EXPECTED ? BYTES / 2
                                  : F == MANY_BYTES                    ? BYTES * 2
                                  : F == ODD_SIZE                      ? BYTES - 4
                                                                       : BYTES;
    if (F == READS_UNFENCED)
        for (int i = 0; i < BROKEN_N; i++) a.part[i] = a.in[i];
    const float *from = F == READS_UNFENCED ? a.part : a.in + (F == FROM_ODD);
    if (F == NO_EXPECT)
        mbarrier_arrive(barrier);
    else
        mbarrier_arrive_expect(barrier, EXPECTED);
    if (F == HALF_EXPECTED) bulk_copy(s, from, BYTES / 2, barrier);
    bulk_copy(F == WRONG_WAY ? a.out : s + (F == TO_ODD), from,
              F == ODD_SIZE || F == HALF_EXPECTED ? EXPECTED : BYTES, barrier);
    if (F == MADE_AGAIN) mbarrier_init(barrier, 1);
    if (F == WRITTEN_OVER) *(volatile uint64_t *)barrier = 0;
}

/* One thread copies, all threads wait. */
template <fault F> __global__ void copy_kernel(broken_args a) {
    float *s = dyn_smem<float>();
    uint64_t *barrier = reinterpret_cast<uint64_t *>(s + BROKEN_N + 4);
    make_barrier<F>(barrier);
    if (threadIdx.x == 0) start_copy<F>(a, s, barrier);
    if (F != NO_WAIT) mbarrier_wait(barrier, F == WRONG_PARITY);
    if (F == SAME_PARITY) mbarrier_wait(barrier, 0);
    if (F == HALF_EXPECTED) mbarrier_wait(barrier, 1); /* meanwhile the other half arrives */
    a.out[threadIdx.x] = s[threadIdx.x];
}

/* ---- a ring --------------------------------------------------------------------------------- */

struct ring {
    float *stages;
    uint64_t *full, *empty;
};

/* The last warp fills the ring with the same numbers on each turn. */
template <fault F> __device__ __forceinline__ void fill_ring(const broken_args &a, const ring &r) {
    for (int turn = 0; turn < TURNS; turn++) {
        const int stage = turn % STAGES, parity = turn / STAGES % 2;
        if (F != SHORT_RING) mbarrier_wait(r.empty + stage, (unsigned)parity ^ 1);
        mbarrier_arrive_expect(r.full + stage, STAGE);
        bulk_copy(r.stages + stage * (STAGE / 4), a.in, STAGE, r.full + stage);
    }
}
/* Each thread of the first two warps reads one number per turn. */
template <fault F> __device__ __forceinline__ float use_ring(const ring &r) {
    float sum = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        const int stage = turn % STAGES, parity = turn / STAGES % 2;
        mbarrier_wait(r.full + stage, (unsigned)parity ^ (F == PHASE_BEHIND && turn >= STAGES));
        sum += r.stages[stage * (STAGE / 4) + (int)threadIdx.x];
        __syncwarp();
        if (threadIdx.x % WARP == 0 && (F != ONE_ARRIVAL_MISSING || threadIdx.x == 0))
            mbarrier_arrive(r.empty + stage);
    }
    return sum / TURNS;
}

template <fault F> __global__ void ring_kernel(broken_args a) {
    const ring r = {dyn_smem<float>(),
                    reinterpret_cast<uint64_t *>(dyn_smem<float>() + STAGES * STAGE / 4),
                    reinterpret_cast<uint64_t *>(dyn_smem<float>() + STAGES * STAGE / 4) + STAGES};
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(r.full + i, 1);
            mbarrier_init(r.empty + i, F == ONE_ARRIVAL_MISSING ? 1 : 2);
        }
        fence_proxy_async();
    }
    __syncthreads();
    if (threadIdx.x == BROKEN_N - 1) fill_ring<F>(a, r);
    if (threadIdx.x < BROKEN_N / 2) {
        a.out[threadIdx.x] = use_ring<F>(r);
        a.out[threadIdx.x + BROKEN_N / 2] = a.in[threadIdx.x + BROKEN_N / 2];
    }
}

/* ---- products ------------------------------------------------------------------------------- */

/* Writes 128 columns: row 0 of k is 1, 2, ..., the other rows are 0. */
__device__ __forceinline__ void write_matrix(uint8_t *lines) {
    auto *line = reinterpret_cast<__nv_bfloat16 *>(lines + threadIdx.x * 128);
    for (int i = 0; i < 64; i++) line[i] = from_float<__nv_bfloat16>(0);
    line[threadIdx.x % 8 * 8] = from_float<__nv_bfloat16>((float)(threadIdx.x + 1));
}

template <fault F> __device__ __forceinline__ uint64_t matrix_of(const uint8_t *lines) {
    uint64_t matrix = shared_matrix(lines);
    if (F == MATRICES_DIFFER) matrix += threadIdx.x / WARP * 2;
    if (F == OTHER_SWIZZLE) matrix ^= 3ull << 62;
    if (F == OUT_OF_MEMORY) matrix += 1024ull << 32;
    return matrix;
}

/* Column 0 of a is 1, so each row of the product is 1, 2, ... */
template <fault F> __global__ void product_kernel(broken_args a) {
    uint8_t *all = dyn_smem<uint8_t>();
    uint8_t *lines = all + (1024 - shared_address(all) % 1024) % 1024;
    uint32_t row[4] = {threadIdx.x % 4 == 0 ? 0x3f80u : 0, threadIdx.x % 4 == 0 ? 0x3f80u : 0};
    float sum[BROKEN_N / 2] = {};
    write_matrix(lines);
    if (F != NO_PROXY_FENCE) fence_proxy_async();
    __syncthreads();
    if (F != NO_FENCE) wgmma_fence();
    wgmma_m64k16<__nv_bfloat16>(sum, row, matrix_of<F>(lines));
    if (F != NO_COMMIT) wgmma_commit();
    if (F == SUM_CHANGED) sum[5] = 7;
    if (F == OPERAND_CHANGED) *(volatile uint32_t *)&row[0] = 0x4000;
    if (F == MATRIX_CHANGED) lines[threadIdx.x * 128 + 1] = 0;
    if (F == WAITS_APART && threadIdx.x >= 64)
        wgmma_wait<0>(sum);
    else if (F == READS_EARLY)
        wgmma_wait<1>(sum);
    else if (F != NEVER_WAITS)
        wgmma_wait<0>(sum);
    if (threadIdx.x < 4)
        for (int i = 0; i < BROKEN_N / 2; i += i % 2 ? 3 : 1) /* the numbers of row 0 */
            a.out[i / 4 * 8 + (int)threadIdx.x * 2 + i % 2] = sum[i];
    if (F == READS_EARLY) wgmma_wait<0>(sum);
}

/* ---- registers ------------------------------------------------------------------------------ */

/* The first of two warpgroups takes the registers that the other one releases. */
template <fault F> __global__ void registers_kernel(broken_args a) {
    if (threadIdx.x < BROKEN_N)
        registers_take<F == ODD_REGISTERS ? 252 : 256>();
    else if (F == GIVES_MORE)
        registers_give<256>();
    else if (F != TAKES_TOO_MANY)
        registers_give<32>();
    if (threadIdx.x < BROKEN_N) a.out[threadIdx.x] = a.in[threadIdx.x];
}

/* ---- launching ------------------------------------------------------------------------------ */

struct broken_async {
    const char *name;
    void (*kernel)(broken_args);
    int threads, smem;
};

#define COPY(name, fault)                                                                          \
    { name, copy_kernel<fault>, BROKEN_N, BYTES + 32 }
#define RING(name, fault)                                                                          \
    { name, ring_kernel<fault>, BROKEN_N, STAGES *(STAGE + 16) }
#define PRODUCT(name, fault)                                                                       \
    { name, product_kernel<fault>, BROKEN_N, 17 << 10 }
#define REGISTERS(name, fault)                                                                     \
    { name, registers_kernel<fault>, 3 * BROKEN_N, 0 }
static const broken_async all[] = {
    COPY("right_copy", NONE),
    COPY("copy_no_expect", NO_EXPECT),
    COPY("copy_few_bytes", FEW_BYTES),
    COPY("copy_half_expected", HALF_EXPECTED),
    COPY("copy_many_bytes", MANY_BYTES),
    COPY("copy_wrong_parity", WRONG_PARITY),
    COPY("copy_same_parity", SAME_PARITY),
    COPY("barrier_made_again", MADE_AGAIN),
    COPY("barrier_not_made", NOT_MADE),
    COPY("barrier_not_fenced", NOT_FENCED),
    COPY("barrier_without_barrier", NO_BARRIER),
    COPY("barrier_written_over", WRITTEN_OVER),
    COPY("copy_to_odd", TO_ODD),
    COPY("copy_from_odd", FROM_ODD),
    COPY("copy_odd_size", ODD_SIZE),
    COPY("copy_wrong_way", WRONG_WAY),
    COPY("copy_no_wait", NO_WAIT),
    COPY("copy_reads_unfenced", READS_UNFENCED),
    RING("right_ring", NONE),
    RING("ring_short", SHORT_RING),
    RING("ring_phase_behind", PHASE_BEHIND),
    RING("ring_one_arrival", ONE_ARRIVAL_MISSING),
    PRODUCT("right_product", NONE),
    PRODUCT("product_no_fence", NO_FENCE),
    PRODUCT("product_no_commit", NO_COMMIT),
    PRODUCT("product_reads_early", READS_EARLY),
    PRODUCT("product_sum_changed", SUM_CHANGED),
    PRODUCT("product_operand_changed", OPERAND_CHANGED),
    PRODUCT("product_matrix_changed", MATRIX_CHANGED),
    PRODUCT("product_no_proxy_fence", NO_PROXY_FENCE),
    PRODUCT("product_matrices_differ", MATRICES_DIFFER),
    PRODUCT("product_other_swizzle", OTHER_SWIZZLE),
    PRODUCT("product_out_of_memory", OUT_OF_MEMORY),
    PRODUCT("product_waits_apart", WAITS_APART),
    PRODUCT("product_never_waits", NEVER_WAITS),
    REGISTERS("right_registers", NONE),
    REGISTERS("registers_too_many", TAKES_TOO_MANY),
    REGISTERS("registers_give_more", GIVES_MORE),
    REGISTERS("registers_odd", ODD_REGISTERS),
};

void broken_async_launch(const char *name, const broken_args &args, cudaStream_t stream) {
    for (const broken_async &b : all) {
        if (strcmp(b.name, name) != 0) continue;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(1);
        config.blockDim = dim3((unsigned)b.threads);
        config.dynamicSmemBytes = (size_t)b.smem;
        config.stream = stream;
        cudaLaunchKernelEx(&config, b.kernel, args);
        return;
    }
    cuda_check(cudaErrorInvalidValue, name);
}
