#include "tests/cuda/broken.cuh"

#include <string.h>

#include "kernels/cuda/runtime/ptx.cuh"

#define KERNEL(name) __global__ void name(broken_args a)

/* ---- right ---------------------------------------------------------------------------------- */

KERNEL(right_exchange) {
    __shared__ float s[BROKEN_N];
    int t = threadIdx.x;
    s[t] = a.in[t];
    __syncthreads();
    float next = s[(t + 1) % BROKEN_N];
    __syncthreads();
    s[(t + 1) % BROKEN_N] = next;
    __syncthreads();
    a.out[t] = s[t];
}

KERNEL(right_in_warp) {
    __shared__ float s[BROKEN_N];
    int t = threadIdx.x;
    s[t] = a.in[t];
    __syncwarp();
    float other = s[t ^ 1];
    a.out[t] = t & 1 ? other + 1 : other - 1;
}

/* The last block adds the numbers of all blocks. */
template <bool WRITER_FENCE, bool LEADER_FENCE, bool READER_FENCE>
__device__ __forceinline__ void last_block(broken_args a) {
    __shared__ int last;
    int t = threadIdx.x;
    a.part[blockIdx.x * BROKEN_N + t] = a.in[t];
    if (WRITER_FENCE) __threadfence();
    __syncthreads();
    if (t == 0) {
        if (LEADER_FENCE) __threadfence();
        last = atomicAdd(a.counter, 1) == (int)gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    if (READER_FENCE) __threadfence();
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; b++) sum += a.part[b * BROKEN_N + t];
    a.out[t] = sum / (float)gridDim.x;
}
KERNEL(right_last_block) {
    last_block<true, false, true>(a);
}
KERNEL(right_last_block_leader) {
    last_block<false, true, true>(a);
}

KERNEL(right_spin) {
    if (threadIdx.x == BROKEN_N - 1) atomicExch(a.counter, 1);
    while (atomicAdd(a.counter, 0) == 0) __nanosleep(20);
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

KERNEL(right_cp_async) {
    float *s = dyn_smem<float>();
    if (threadIdx.x < BROKEN_N / 4) cp_async16(s + threadIdx.x * 4, a.in + threadIdx.x * 4);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    a.out[threadIdx.x] = s[threadIdx.x];
}

/* ---- grids that begin early ----------------------------------------------------------------- */

/* Launched before the kernels that read its output. */
KERNEL(front) {
    grid_begin();
    a.part[threadIdx.x] = a.in[threadIdx.x];
}
KERNEL(right_early) {
    float in = a.in[threadIdx.x]; /* from a copy */
    grid_begin();
    a.out[threadIdx.x] = a.part[threadIdx.x] == in ? in : -1.0f;
}
KERNEL(early_read) {
    float part = a.part[threadIdx.x];
    grid_begin();
    a.out[threadIdx.x] = part;
}
KERNEL(early_write) {
    a.out[threadIdx.x] = a.in[threadIdx.x];
    grid_begin();
}
KERNEL(early_no_wait) {
    grid_let_next();
    if (threadIdx.x % 2) return;
    grid_wait();
    a.out[threadIdx.x] = a.part[threadIdx.x];
}

/* ---- races ---------------------------------------------------------------------------------- */

KERNEL(race_read_after_write) {
    __shared__ float s[BROKEN_N];
    int t = threadIdx.x;
    s[(t + 1) % BROKEN_N] = a.in[(t + 1) % BROKEN_N];
    a.out[t] = s[t];
}

KERNEL(race_write_after_read) {
    __shared__ float s[BROKEN_N];
    int t = threadIdx.x;
    s[t] = a.in[t];
    __syncthreads();
    float next = s[(t + 1) % BROKEN_N];
    s[t] = 0;
    a.out[(t + 1) % BROKEN_N] = next;
}

KERNEL(race_in_warp) {
    __shared__ float s[BROKEN_N];
    int t = threadIdx.x;
    s[t] = a.in[t];
    float other = s[t ^ 1];
    a.out[t] = t & 1 ? other + 1 : other - 1;
}

KERNEL(race_same_value) {
    __shared__ int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x < 64) flag = 1;
    __syncthreads();
    a.out[threadIdx.x] = flag ? a.in[threadIdx.x] : -1.0f;
}

KERNEL(race_global) {
    int t = threadIdx.x;
    a.part[t] = a.in[t];
    a.out[t] = a.part[(t + 32) % BROKEN_N] < 0 ? -1.0f : a.in[t];
}

KERNEL(race_plain_beside_atomic) {
    if (threadIdx.x < 64)
        atomicAdd(a.counter, 1);
    else if (*(volatile int *)a.counter < 0)
        return;
    a.out[threadIdx.x] = a.in[threadIdx.x];
}

KERNEL(race_blocks_write) {
    a.out[threadIdx.x] = a.in[threadIdx.x];
}
KERNEL(race_blocks_no_writer_fence) {
    last_block<false, false, true>(a);
}
KERNEL(race_blocks_no_reader_fence) {
    last_block<true, false, false>(a);
}

/* ---- bounds, initialisation ----------------------------------------------------------------- */

KERNEL(bounds_global) {
    a.out[threadIdx.x] = a.in[threadIdx.x + 1] < 0 ? -1.0f : a.in[threadIdx.x];
}

KERNEL(bounds_global_before) {
    a.out[threadIdx.x] = a.in[(int)threadIdx.x - 1] < 0 ? -1.0f : a.in[threadIdx.x];
}

KERNEL(bounds_far) {
    int block = a.counter[0] - 1; /* like an entry of a block table that was never set */
    float far = a.in[(long)block * 4096 + threadIdx.x];
    a.out[threadIdx.x] = far < 0 ? -1.0f : a.in[threadIdx.x];
}

KERNEL(bounds_dynamic) {
    float *s = dyn_smem<float>();
    s[threadIdx.x + 1] = a.in[threadIdx.x];
    __syncthreads();
    a.out[threadIdx.x] = s[threadIdx.x + 1];
}

/* Through a pointer, so that the compiler does not know the bounds. */
__device__ __attribute__((noinline)) void fill(float *p, const float *from, int n) {
    for (int i = threadIdx.x; i < n; i += BROKEN_N) p[i] = from[i % BROKEN_N];
}
KERNEL(bounds_static) {
    __shared__ float s[BROKEN_N];
    fill(s, a.in, BROKEN_N + 2);
    __syncthreads();
    a.out[threadIdx.x] = s[threadIdx.x];
}

KERNEL(misaligned) {
    Vec16<float> v = load16(a.in + 1);
    a.out[threadIdx.x] = v.v[0] < 0 ? -1.0f : a.in[threadIdx.x];
}

KERNEL(uninitialised_dynamic) {
    float *s = dyn_smem<float>();
    if (threadIdx.x < 100) s[threadIdx.x] = a.in[threadIdx.x];
    __syncthreads();
    a.out[threadIdx.x] = s[threadIdx.x];
}

KERNEL(uninitialised_static) {
    __shared__ float sum[BROKEN_N];
    sum[threadIdx.x] += a.in[threadIdx.x];
    a.out[threadIdx.x] = sum[threadIdx.x];
}

KERNEL(uninitialised_global) {
    a.out[threadIdx.x] = a.part[threadIdx.x] < 0 ? -1.0f : a.in[threadIdx.x];
}

KERNEL(right_pinned) {
    a.host[threadIdx.x] = a.in[threadIdx.x];
    a.out[threadIdx.x] = a.in[threadIdx.x];
}
KERNEL(pinned_read) {
    a.out[threadIdx.x] = a.host[threadIdx.x];
}
KERNEL(pinned_bounds) {
    a.host[threadIdx.x + 1] = a.in[threadIdx.x];
}
KERNEL(host_pointer) {
    a.out[threadIdx.x] = a.host[threadIdx.x];
}

/* ---- divergence ----------------------------------------------------------------------------- */

KERNEL(barrier_divergence) {
    a.out[threadIdx.x] = a.in[threadIdx.x];
    if (threadIdx.x < 64)
        __syncthreads();
    else
        __syncthreads();
}

KERNEL(deadlock) {
    a.out[threadIdx.x] = a.in[threadIdx.x];
    if (threadIdx.x % 2)
        __syncthreads();
    else
        a.out[threadIdx.x] += __shfl_sync(FULL_MASK, 0.0f, 0);
}

KERNEL(warp_divergence) {
    float zero = 0;
    if (threadIdx.x % 32 < 16)
        zero = __shfl_sync(FULL_MASK, zero, 0);
    else
        zero = __shfl_xor_sync(FULL_MASK, zero, 1);
    a.out[threadIdx.x] = a.in[threadIdx.x] + zero;
}

KERNEL(warp_mask) {
    a.out[threadIdx.x] = a.in[threadIdx.x] + __shfl_sync(0x0000ffffu, 0.0f, 0);
}

/* ---- asynchronous copies -------------------------------------------------------------------- */

KERNEL(cp_async_no_wait) {
    float *s = dyn_smem<float>();
    if (threadIdx.x < BROKEN_N / 4) cp_async16(s + threadIdx.x * 4, a.in + threadIdx.x * 4);
    cp_async_commit();
    __syncthreads();
    a.out[threadIdx.x] = s[threadIdx.x];
    cp_async_wait<0>();
}

KERNEL(cp_async_no_barrier) {
    float *s = dyn_smem<float>();
    if (threadIdx.x < BROKEN_N / 4) cp_async16(s + threadIdx.x * 4, a.in + threadIdx.x * 4);
    cp_async_commit();
    cp_async_wait<0>();
    a.out[threadIdx.x] = s[threadIdx.x];
}

/* ---- launching ------------------------------------------------------------------------------ */

struct broken {
    const char *name;
    void (*kernel)(broken_args);
    int blocks, threads;
    size_t smem;
    bool early; /* after `front`; both may begin early */
};

#define ONE(name)                                                                                  \
    { #name, name, 1, BROKEN_N, 0 }
#define EARLY(name)                                                                                \
    { #name, name, 1, BROKEN_N, 0, true }
#define SMEM(name)                                                                                 \
    { #name, name, 1, BROKEN_N, BROKEN_N * sizeof(float) }
#define MANY(name)                                                                                 \
    { #name, name, BROKEN_BLOCKS, BROKEN_N, 0 }
static const broken all[] = {
    ONE(right_exchange),
    ONE(right_in_warp),
    MANY(right_last_block),
    MANY(right_last_block_leader),
    ONE(right_spin),
    SMEM(right_cp_async),
    EARLY(right_early),
    EARLY(early_read),
    EARLY(early_write),
    EARLY(early_no_wait),
    ONE(race_read_after_write),
    ONE(race_write_after_read),
    ONE(race_in_warp),
    ONE(race_same_value),
    ONE(race_global),
    ONE(race_plain_beside_atomic),
    MANY(race_blocks_write),
    MANY(race_blocks_no_writer_fence),
    MANY(race_blocks_no_reader_fence),
    ONE(bounds_global),
    ONE(bounds_global_before),
    ONE(bounds_far),
    SMEM(bounds_dynamic),
    ONE(bounds_static),
    ONE(misaligned),
    SMEM(uninitialised_dynamic),
    ONE(uninitialised_static),
    ONE(uninitialised_global),
    ONE(right_pinned),
    ONE(pinned_read),
    ONE(pinned_bounds),
    ONE(host_pointer),
    ONE(barrier_divergence),
    ONE(deadlock),
    ONE(warp_divergence),
    ONE(warp_mask),
    SMEM(cp_async_no_wait),
    SMEM(cp_async_no_barrier),
    {"launch_smem", right_exchange, 1, BROKEN_N, 64 << 10},
    {"launch_threads", right_exchange, 1, 2048, 0},
};

void broken_launch(const char *name, const broken_args &args, cudaStream_t stream) {
    for (const broken &b : all) {
        if (strcmp(b.name, name) != 0) continue;
        early_grids = b.early;
        if (b.early) launch(front, dim3(1), dim3(BROKEN_N), 0, stream, args);
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(b.blocks);
        config.blockDim = dim3(b.threads);
        config.dynamicSmemBytes = b.smem;
        config.stream = stream;
        cudaLaunchAttribute early = early_attribute();
        config.attrs = &early;
        config.numAttrs = b.early;
        cudaLaunchKernelEx(&config, b.kernel, args);
        return;
    }
    cuda_check(cudaErrorInvalidValue, name);
}
