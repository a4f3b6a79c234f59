/* Bias, QK norm, RoPE and the write to the cache in one launch; the angles in another. */
#include "kernels/cuda/attention/heads.cuh"
#include "kernels/cuda/runtime/orders.cuh"
#include "kernels/cuda/runtime/ptx.cuh"
#include "kernels/cuda/runtime/runtime.cuh"

enum { ROPE_WARPS = 4, ANGLE_THREADS = 256 };

/* ---- angles --------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(ANGLE_THREADS) angles_kernel(const angles_args a) {
    grid_begin();
    const int i = blockIdx.x * ANGLE_THREADS + threadIdx.x;
    if (i < a.M * a.pairs) make_angle(a, i);
}

size_t angles_bytes(int max_rows, int pairs) {
    return 2 * (size_t)max_rows * (size_t)pairs * sizeof(float);
}

enum status angles_alloc(struct angle_table *table, int max_rows, int pairs, cudaStream_t stream,
                         struct err *err) {
    static const struct alloc_hint hint = {"the table of RoPE angles", "max-num-batched-tokens",
                                           "lower {max-num-batched-tokens}"};
    if (pairs <= table->max_pairs) return STATUS_OK;
    cuda_check(cudaStreamSynchronize(stream), "waiting for the stream");
    angles_free(table);
    void *memory;
    const enum status status = device_alloc(&memory, angles_bytes(max_rows, pairs), &hint, err);
    if (status) return status;
    table->cosine = (float *)memory;
    table->sine = table->cosine + (size_t)max_rows * (size_t)pairs;
    table->max_pairs = pairs;
    return STATUS_OK;
}

void angles_free(struct angle_table *table) {
    cuda_check(cudaFree(table->cosine), "freeing angles");
    *table = angle_table{};
}

void angles_make(struct angle_table *table, const int32_t *position, const struct rope *rope, int M,
                 cudaStream_t stream) {
    const int pairs = rope->D_rope / 2;
    const float scale = rope->scale == 0 ? 1 : rope->scale;
    if (table->inv_freq == rope->inv_freq && table->pairs == pairs && table->scale == scale) return;
    assert(pairs <= table->max_pairs); /* of a head; op_kv_new has allocated them */
    table->inv_freq = rope->inv_freq;
    table->pairs = pairs;
    table->scale = scale;
    const int blocks = (M * pairs + ANGLE_THREADS - 1) / ANGLE_THREADS;
    const angles_args args = {table->cosine, table->sine, position, rope->inv_freq,
                              scale,         M,           pairs};
    launch_or_order({ORDER_ANGLES, M * pairs, 1, DTYPE_F32, DTYPE_F32, 0, 0}, angles_kernel,
                    dim3(blocks), dim3(ANGLE_THREADS), stream, args);
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* One warp per vector. */
template <class T, class KV>
__global__ void __launch_bounds__(ROPE_WARPS *WARP) prepare_kernel(const heads_args<T> a) {
    grid_begin();
    const int head = blockIdx.y * ROPE_WARPS + threadIdx.x / WARP;
    if (head >= heads_of(a)) return; /* true for a whole warp */
    prepare_head<T, KV>(a, (int)blockIdx.x, head, threadIdx.x % WARP);
}

/* ---- launching ------------------------------------------------------------------------------ */

template <class T>
static head_vectors<T> vectors_of(const struct head_group *g, uint8_t *cache, float *scale) {
    return {(T *)g->x, g->x ? g->n : 0, g->bias, g->gain, g->norms_own, cache, scale};
}

/* Calls fn with a value of the cache's element type; without a cache, of any type. */
template <class Fn> static void for_elements(const struct kv_cache *cache, Fn fn) {
    if (cache && cache->config.dtype == DTYPE_E4M3)
        fn(__nv_fp8_e4m3());
    else
        for_activation(cache ? cache->config.dtype : DTYPE_F32, fn);
}

/* Queues one launch, or an order for 16-bit activations and a 16-bit cache. */
template <class T, class KV>
static void prepare(const heads_args<T> &a, int M, enum dtype act, const struct kv_cache *cache,
                    cudaStream_t stream) {
    const dim3 grid(M, (heads_of(a) + ROPE_WARPS - 1) / ROPE_WARPS), block(ROPE_WARPS * WARP);
    if constexpr (sizeof(T) == 2 && sizeof(KV) == 2)
        launch_or_order({ORDER_HEADS, M, 1, cache->config.dtype, act, 0, 0}, prepare_kernel<T, KV>,
                        grid, block, stream, a);
    else
        launch(prepare_kernel<T, KV>, grid, block, 0, stream, a);
}

/* Keys or values and their destination in a layer's cache. */
template <class T>
static head_vectors<T> cached_vectors(const struct rope_args *args, const struct head_group *g,
                                      uint8_t *blocks, float *scales) {
    const struct kv_cache *cache = args->cache;
    if (!cache) return vectors_of<T>(g, nullptr, nullptr);
    const size_t before = cache->layer[args->layer].first;
    return vectors_of<T>(g, blocks + before * cache->block_bytes,
                         scales ? scales + before * (size_t)cache->config.G : nullptr);
}

void rope_prepare(enum dtype act, const struct rope_args *args, cudaStream_t stream) {
    static const struct kv_cache none = {};
    const struct kv_cache *cache = args->cache ? args->cache : &none;
    assert(args->D_rope % 2 == 0 && args->D_rope <= args->D);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        const heads_args<T> a = {
            vectors_of<T>(&args->q, nullptr, nullptr),
            cached_vectors<T>(args, &args->k, cache->keys, cache->key_scale),
            cached_vectors<T>(args, &args->v, cache->values, cache->value_scale),
            args->D,
            args->D_rope,
            cache->config.block_size,
            args->epsilon,
            args->layout,
            args->cosine,
            args->sine,
            args->q_scale,
            args->q_scale_every,
            args->position,
            args->slot};
        for_elements(args->cache, [&](auto kv_zero) {
            prepare<T, decltype(kv_zero)>(a, args->M, act, cache, stream);
        });
    });
}
