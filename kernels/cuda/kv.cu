/* Moving blocks of the cache. A block of one layer is one run of bytes; each is moved by one thread
 * block, 16 bytes a thread at a time where its size allows, so that a copy costs its traffic. */
#include "kernels/cuda/kv.cuh"

#include <stdlib.h>

enum { MOVE_THREADS = 128 };

/* ---- moving --------------------------------------------------------------------------------- */

/* Where piece (i, key or value, layer) of a list of blocks stands: in the cache when there is a
 * list, else in a stage. */
struct pieces {
    uint8_t *keys, *values; /* of the cache; `keys` is the stage where `block` is NULL */
    const int32_t *block;
    size_t layer_bytes;
};

__device__ __forceinline__ uint8_t *piece_at(const pieces &p, size_t block_bytes, int i,
                                             bool is_value, int layer, int L) {
    if (!p.block) return p.keys + (((size_t)i * 2 + is_value) * L + layer) * block_bytes;
    uint8_t *base = is_value ? p.values : p.keys;
    return base + (size_t)layer * p.layer_bytes + (size_t)p.block[i] * block_bytes;
}

template <int N>
__global__ void __launch_bounds__(MOVE_THREADS)
    move_kernel(const pieces to, const pieces from, size_t block_bytes, int L) {
    const int y = blockIdx.y;
    const bool is_value = y >= L;
    const int layer = y % L;
    uint8_t *into = piece_at(to, block_bytes, blockIdx.x, is_value, layer, L);
    const uint8_t *source = piece_at(from, block_bytes, blockIdx.x, is_value, layer, L);
    for (size_t i = threadIdx.x * N; i < block_bytes; i += MOVE_THREADS * N)
        store_vec<N>(into + i, load_vec<N>(source + i));
}

static pieces in_cache(const struct kv_cache *cache, const int32_t *block) {
    return {cache->keys, cache->values, block, cache->layer_bytes};
}

static pieces in_stage(void *stage) {
    return {(uint8_t *)stage, nullptr, nullptr, 0};
}

static void move(const struct kv_cache *cache, const pieces &to, const pieces &from, int n,
                 cudaStream_t stream) {
    const int L = cache->config.L;
    auto kernel = cache->block_bytes % 16 == 0  ? move_kernel<16>
                  : cache->block_bytes % 4 == 0 ? move_kernel<4>
                                                : move_kernel<2>;
    launch(kernel, dim3(n, 2 * L), dim3(MOVE_THREADS), 0, stream, to, from, cache->block_bytes, L);
}

void kv_copy(struct kv_cache *cache, const int32_t *from, const int32_t *to, int n,
             cudaStream_t stream) {
    move(cache, in_cache(cache, to), in_cache(cache, from), n, stream);
}

void kv_gather(void *stage, const struct kv_cache *cache, const int32_t *block, int n,
               cudaStream_t stream) {
    move(cache, in_stage(stage), in_cache(cache, block), n, stream);
}

void kv_scatter(struct kv_cache *cache, const void *stage, const int32_t *block, int n,
                cudaStream_t stream) {
    move(cache, in_cache(cache, block), in_stage((void *)stage), n, stream);
}

size_t kv_stage_bytes(const struct kv_cache *cache, int n) {
    return (size_t)n * 2 * (size_t)cache->config.L * cache->block_bytes;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* n = a * b, false when it does not fit. */
static bool times(size_t *n, size_t b) {
    return !__builtin_mul_overflow(*n, b, n);
}

static bool plan(struct kv_cache *cache) {
    const struct kv_config *c = &cache->config;
    cache->block_bytes = c->dtype == DTYPE_F32 ? 4 : 2;
    if (!times(&cache->block_bytes, (size_t)c->G) || !times(&cache->block_bytes, (size_t)c->D) ||
        !times(&cache->block_bytes, (size_t)c->block_size))
        return false;
    cache->layer_bytes = cache->block_bytes;
    if (!times(&cache->layer_bytes, (size_t)c->n_blocks)) return false;
    size_t all = cache->layer_bytes;
    return times(&all, (size_t)c->L) && all < SIZE_MAX / 4;
}

/* The memory is zeroed: a part of a block that was never written holds numbers. */
static enum status take_memory(uint8_t **out, size_t bytes, struct err *err) {
    void *memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaSuccess) error = cudaMemset(memory, 0, bytes);
    *out = (uint8_t *)memory;
    if (error == cudaSuccess) return STATUS_OK;
    cudaGetLastError(); /* it has been dealt with */
    return err_set(err, STATUS_USAGE, "kv-cache-memory",
                   "the GPU has no room for %zu MiB of keys or values: %s", bytes >> 20,
                   cudaGetErrorString(error));
}

enum status kv_cache_new(struct kv_cache **out, const struct kv_config *config, struct err *err) {
    if (config->dtype != DTYPE_F16 && config->dtype != DTYPE_F32 && config->dtype != DTYPE_BF16)
        return err_set(err, STATUS_USAGE, "kv_cache_dtype",
                       "the cache holds float16, bfloat16 or float32");
    if (config->L <= 0 || config->G <= 0 || config->D <= 0 || config->n_blocks <= 0 ||
        config->block_size <= 0)
        return err_set(err, STATUS_USAGE, NULL,
                       "every size of the key-value cache must be positive");
    struct kv_cache plain = {};
    plain.config = *config;
    if (!plan(&plain))
        return err_set(err, STATUS_USAGE, NULL, "a key-value cache of %d blocks is too large",
                       config->n_blocks);
    const size_t bytes = plain.layer_bytes * (size_t)config->L;
    enum status status = take_memory(&plain.keys, bytes, err);
    if (!status) status = take_memory(&plain.values, bytes, err);
    if (status) {
        cudaFree(plain.keys);
        return status;
    }
    *out = (struct kv_cache *)mem_alloc(sizeof plain);
    **out = plain;
    return STATUS_OK;
}

void kv_cache_free(struct kv_cache *cache) {
    if (!cache) return;
    cuda_must(cudaFree(cache->keys), "freeing the cache's keys");
    cuda_must(cudaFree(cache->values), "freeing the cache's values");
    free(cache);
}
