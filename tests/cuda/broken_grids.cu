/* DESIGN: a barrier of all blocks of a grid, and its possible faults.
 *
 * Two words of global memory: the number of blocks that have arrived, and the generation, which the
 * last block to arrive increments. Before that it resets the count, so the barrier is ready for its
 * next use. The other blocks cannot interfere: none of them arrives again before the generation
 * changes.
 *
 *     all threads: write ... __syncthreads
 *     thread 0:    read the generation, fence, arrive, poll the generation, fence
 *     all threads: __syncthreads ... read
 *
 * Order of memory. The first __syncthreads puts the block's writes before thread 0's fence, and the
 * fence precedes its arrival. Thread 0 of the last block sees all arrivals and fences: all blocks'
 * writes now precede its next accesses. Then it increments the generation. A thread that sees the
 * new generation fences and lets its block pass the second __syncthreads.
 *
 * Thread 0 reads the generation before it arrives. After its arrival the last block may increment
 * it at any time, and a later read would make the block wait for one more barrier. The last block's
 * fence serves blocks that poll with loads (LOADS). A poll that writes passes on the writes that
 * its own block has released.
 */
#include "tests/cuda/broken_grids.cuh"

#include <string.h>

#include "kernels/cuda/runtime/ptx90.cuh"

enum fault {
    NONE,
    BLOCK_STAYS_AWAY,
    ONE_TOO_MANY,
    ONE_TOO_FEW,
    NOT_RESET,
    GENERATION_READ_LATE,
    GENERATION_NOT_RAISED,
    NO_FENCE_BEFORE,
    NO_FENCE_AFTER,
    NO_SYNC_BEFORE,
    NO_SYNC_AFTER,
    NO_SECOND_BARRIER,
    THREADS_MEET_APART,
    MBARRIER,
    LOADS,
    LOADS_UNFENCED,
};

constexpr int ROUNDS = 6;

template <fault F> __device__ void arrive(int *arrived, int *generation) {
    const int all = (int)gridDim.x + (F == ONE_TOO_MANY) - (F == ONE_TOO_FEW);
    int before = atomicAdd(generation, 0);
    if (F != NO_FENCE_BEFORE) __threadfence();
    const bool last = atomicAdd(arrived, 1) + 1 == all;
    if (F == GENERATION_READ_LATE) {
        __nanosleep(20); /* meanwhile the last block increments it */
        before = atomicAdd(generation, 0);
    }
    if (last) {
        if (F != NOT_RESET) atomicExch(arrived, 0);
        if (F != LOADS_UNFENCED) __threadfence();
        if (F != GENERATION_NOT_RAISED) atomicAdd(generation, 1);
        /* the others poll before this block arrives again */
        if (F == LOADS_UNFENCED) __nanosleep(20);
    } else if (F == LOADS || F == LOADS_UNFENCED) {
        while (load_acquire((unsigned *)generation) == (unsigned)before) __nanosleep(20);
    } else {
        while (atomicAdd(generation, 0) == before) __nanosleep(20);
    }
    if (F != NO_FENCE_AFTER) __threadfence();
}

template <fault F> __device__ void meet(int *words) {
    if (F != NO_SYNC_BEFORE) __syncthreads();
    if (threadIdx.x == 0) arrive<F>(words, words + 1);
    if (F != NO_SYNC_AFTER) __syncthreads();
}

/* Each block passes its numbers to the block before it, ROUNDS times, through global memory.
 * Between rounds the numbers are in dynamic shared memory, and the original ones in static shared
 * memory. */
template <fault F> __global__ void pass_on_kernel(const broken_args a) {
    __shared__ float kept[BROKEN_N];
    float *now = dyn_smem<float>();
    const int t = threadIdx.x, next = (int)((blockIdx.x + 1) % gridDim.x);
    const int other = (t + 40) % BROKEN_N; /* a number that a thread of another warp wrote */
    if (F == BLOCK_STAYS_AWAY && blockIdx.x == 1) return;
    now[t] = a.in[t] + (float)blockIdx.x;
    kept[t] = now[t];
    for (int round = 0; round < ROUNDS; round++) {
        a.part[blockIdx.x * BROKEN_N + t] = now[t];
        meet<F>(a.counter);
        if (F == THREADS_MEET_APART && t == 1) __syncthreads();
        now[other] = a.part[next * BROKEN_N + other];
        if (F != NO_SECOND_BARRIER)
            meet<NONE>(a.counter);
        else
            __syncthreads();
    }
    const float passed = (float)((blockIdx.x + ROUNDS) % gridDim.x), own = (float)blockIdx.x;
    const bool right = now[t] - passed == kept[t] - own && kept[t] - own == a.in[t];
    if (blockIdx.x == 0 || !right) a.out[t] = right ? a.in[t] : -1.0f;
}

/* An mbarrier belongs to one block, and the emulation does not save it when it switches blocks. */
__global__ void mbarrier_kernel(const broken_args a) {
    if (threadIdx.x == 0) mbarrier_init(dyn_smem<uint64_t>(), 1);
    if (blockIdx.x == 0) a.out[threadIdx.x] = a.in[threadIdx.x];
}

struct broken_grid {
    const char *name;
    void (*kernel)(broken_args);
    int blocks, smem;
    bool early;
};

constexpr int SMEM = BROKEN_N * sizeof(float);
#define PASS(name, fault)                                                                          \
    { name, pass_on_kernel<fault>, BROKEN_BLOCKS, SMEM, false }
static const broken_grid all[] = {
    PASS("right", NONE),
    PASS("right_loads", LOADS),
    PASS("loads_unfenced", LOADS_UNFENCED),
    {"right_alone", pass_on_kernel<NONE>, 1, SMEM, false},
    {"right_full", pass_on_kernel<NONE>, 8, SMEM, false},
    {"too_many_blocks", pass_on_kernel<NONE>, 9, SMEM, false},
    {"too_much_memory", pass_on_kernel<NONE>, 5, 120 << 10, false},
    {"early", pass_on_kernel<NONE>, BROKEN_BLOCKS, SMEM, true},
    PASS("block_stays_away", BLOCK_STAYS_AWAY),
    PASS("one_too_many", ONE_TOO_MANY),
    PASS("one_too_few", ONE_TOO_FEW),
    PASS("not_reset", NOT_RESET),
    PASS("generation_read_late", GENERATION_READ_LATE),
    PASS("generation_not_raised", GENERATION_NOT_RAISED),
    PASS("no_fence_before", NO_FENCE_BEFORE),
    PASS("no_fence_after", NO_FENCE_AFTER),
    PASS("no_sync_before", NO_SYNC_BEFORE),
    PASS("no_sync_after", NO_SYNC_AFTER),
    PASS("no_second_barrier", NO_SECOND_BARRIER),
    PASS("threads_meet_apart", THREADS_MEET_APART),
    {"mbarrier", mbarrier_kernel, BROKEN_BLOCKS, SMEM, false},
};

static void launch_together(const broken_grid &b, const broken_args &args, cudaStream_t stream) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeCooperative;
    attributes[0].val.cooperative = 1;
    attributes[1] = early_attribute();
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)b.blocks);
    config.blockDim = dim3(BROKEN_N);
    config.dynamicSmemBytes = (size_t)b.smem;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = b.early ? 2 : 1;
    if (b.smem > DEFAULT_SMEM) allow_smem(b.kernel, (size_t)b.smem);
    cudaLaunchKernelEx(&config, b.kernel, args);
}

void broken_grids_launch(const char *name, const broken_args &args, cudaStream_t stream) {
    for (const broken_grid &b : all)
        if (strcmp(b.name, name) == 0) return launch_together(b, args, stream);
    cuda_check(cudaErrorInvalidValue, name);
}
