/* Moves blocks of the cache. A block of one layer is contiguous. One thread block moves it, 16
 * bytes per thread at a time if its size allows, so a copy is limited only by its memory
 * traffic. */
#include "kernels/cuda/attention/kv.cuh"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention/kv_layout.cuh"
#include "kernels/cuda/runtime/ptx.cuh"
#include "kernels/cuda/runtime/runtime.cuh"

enum { MOVE_THREADS = 128 };

/* ---- moving --------------------------------------------------------------------------------- */

/* The place of piece (i, key or value, layer) of a list of blocks: in the cache if there is a list,
 * else in a stage. */
struct pieces {
    uint8_t *keys, *values; /* of the cache; without a list `keys` is the stage */
    const int32_t *block;   /* device memory; NULL: the list is an argument of the launch */
    bool listed;
    size_t layer_bytes;
    float *key_scale, *value_scale; /* of the cache */
    int n_blocks;
    size_t stride; /* of a stage: bytes of a block */
};

/* A list passed as a launch argument, so it needs no separate memory. */
struct launch_list {
    int32_t block[KV_LIST];
};

/* The sizes of the pieces. */
struct piece_sizes {
    size_t block_bytes, piece_bytes;
    int L, n_scales; /* scales of a piece: G or 0 */
    int kinds;       /* 2: keys and values; 1: keys that contain the values */
};

/* One piece: its elements and its scales. */
struct block_piece {
    uint8_t *elements;
    float *scales;
};

__device__ __forceinline__ block_piece piece_at(const pieces &p, const launch_list &list,
                                                const piece_sizes &sizes, int i, bool is_value,
                                                int layer) {
    if (!p.block && !p.listed) {
        const size_t number = (size_t)is_value * sizes.L + layer;
        uint8_t *at = p.keys + i * p.stride + number * sizes.piece_bytes;
        return {at, reinterpret_cast<float *>(at + sizes.block_bytes)};
    }
    const size_t block = p.listed ? list.block[i] : p.block[i];
    uint8_t *elements = (is_value ? p.values : p.keys) + (size_t)layer * p.layer_bytes;
    float *scales = is_value ? p.value_scale : p.key_scale;
    return {elements + block * sizes.block_bytes,
            scales + ((size_t)layer * p.n_blocks + block) * sizes.n_scales};
}

template <int N>
__global__ void __launch_bounds__(MOVE_THREADS)
    move_kernel(const pieces to, const pieces from, const piece_sizes sizes,
                const launch_list list) {
    grid_begin();
    const int y = blockIdx.y;
    const bool is_value = y >= sizes.L;
    const int layer = y % sizes.L;
    const block_piece into = piece_at(to, list, sizes, blockIdx.x, is_value, layer);
    const block_piece source = piece_at(from, list, sizes, blockIdx.x, is_value, layer);
    for (size_t i = threadIdx.x * N; i < sizes.block_bytes; i += MOVE_THREADS * N)
        store_vec<N>(into.elements + i, load_vec<N>(source.elements + i));
    for (int g = threadIdx.x; g < sizes.n_scales; g += MOVE_THREADS)
        into.scales[g] = source.scales[g];
}

/* The blocks of one kind. */
static pieces in_cache(const struct kv_cache *cache, enum block_kind kind, const int32_t *block) {
    const struct kv_part &part = cache->part[kind];
    const size_t at = part.first * cache->block_bytes;
    const size_t scale = cache->key_scale ? part.first * (size_t)cache->config.G : 0;
    return {cache->keys + at,
            cache->values ? cache->values + at : nullptr,
            block,
            block == nullptr,
            (size_t)part.n_blocks * cache->block_bytes,
            cache->key_scale + scale,
            cache->value_scale + scale,
            part.n_blocks,
            0};
}

static pieces in_stage(uint8_t *stage, size_t stride) {
    return {stage, nullptr, nullptr, false, 0, nullptr, nullptr, 0, stride};
}

/* Kinds of pieces: see piece_sizes. */
static int kinds_of(const struct kv_cache *cache) {
    return cache->D_shared ? 1 : 2;
}

static int scales_of(const struct kv_cache *cache) {
    return cache->key_scale ? cache->config.G : 0;
}

/* `offset` and the strides of stages are those of the pieces: they limit the bytes per thread. */
static void move(const struct kv_cache *cache, enum block_kind kind, const pieces &to,
                 const pieces &from, size_t offset, int n, const launch_list &list,
                 cudaStream_t stream) {
    const int L = cache->part[kind].L;
    const piece_sizes sizes = {cache->block_bytes, kv_piece_bytes(cache), L, scales_of(cache),
                               kinds_of(cache)};
    const size_t aligned = cache->block_bytes | offset | to.stride | from.stride;
    auto kernel = aligned % 16 == 0  ? move_kernel<16>
                  : aligned % 4 == 0 ? move_kernel<4>
                                     : move_kernel<2>;
    assert(aligned % 2 == 0);
    assert(L > 0);
    launch(kernel, dim3(n, sizes.kinds * L), dim3(MOVE_THREADS), 0, stream, to, from, sizes, list);
}

/* Calls fn with each cache of equal layers that has layers of this kind, and with the offset of its
 * pieces in a block of a stage. */
template <class Fn>
static void for_alike(const struct kv_cache *cache, enum block_kind kind, Fn fn) {
    size_t offset = 0;
    if (cache->n_alike == 0) fn(cache, offset);
    for (int i = 0; i < cache->n_alike; i++) {
        if (cache->alike[i]->part[kind].L > 0) fn(cache->alike[i], offset);
        offset += kv_stage_bytes(cache->alike[i], kind, 1);
    }
}

void kv_copy(struct kv_cache *cache, enum block_kind kind, const int32_t *from, const int32_t *to,
             int n, cudaStream_t stream) {
    for_alike(cache, kind, [&](const struct kv_cache *alike, size_t) {
        move(alike, kind, in_cache(alike, kind, to), in_cache(alike, kind, from), 0, n, {}, stream);
    });
}

/* Gathers or scatters the n blocks of a list. */
static void stage_blocks(void *stage, const struct kv_cache *cache, enum block_kind kind, int n,
                         const launch_list &list, bool gathers, cudaStream_t stream) {
    const size_t stride = kv_stage_bytes(cache, kind, 1);
    for_alike(cache, kind, [&](const struct kv_cache *alike, size_t offset) {
        const pieces staged = in_stage((uint8_t *)stage + offset, stride);
        const pieces cached = in_cache(alike, kind, nullptr);
        move(alike, kind, gathers ? staged : cached, gathers ? cached : staged, offset, n, list,
             stream);
    });
}

static launch_list list_of(const int32_t *block, int n) {
    launch_list list = {};
    assert(n >= 0 && n <= KV_LIST);
    memcpy(list.block, block, (size_t)n * sizeof *block);
    return list;
}

void kv_gather(void *stage, const struct kv_cache *cache, enum block_kind kind,
               const int32_t *block, int n, cudaStream_t stream) {
    stage_blocks(stage, cache, kind, n, list_of(block, n), true, stream);
}

void kv_scatter(struct kv_cache *cache, enum block_kind kind, const void *stage,
                const int32_t *block, int n, cudaStream_t stream) {
    stage_blocks((void *)stage, cache, kind, n, list_of(block, n), false, stream);
}

/* If there are scales, blocks and thus pieces are multiples of 16 bytes. */
size_t kv_piece_bytes(const struct kv_cache *cache) {
    const size_t scales = (size_t)scales_of(cache) * sizeof(float);
    return cache->block_bytes + (scales + 15) / 16 * 16;
}

size_t kv_stage_bytes(const struct kv_cache *cache, enum block_kind kind, int n) {
    size_t bytes = 0;
    if (cache->n_alike == 0)
        return (size_t)(n * kinds_of(cache)) * (size_t)cache->part[kind].L * kv_piece_bytes(cache);
    for (int i = 0; i < cache->n_alike; i++) bytes += kv_stage_bytes(cache->alike[i], kind, n);
    return bytes;
}

/* ---- memory --------------------------------------------------------------------------------- */

static size_t element_bytes(enum dtype dtype) {
    switch (kv_type_of(dtype)) {
    case KV_F32:
        return 4;
    case KV_E4M3:
        return 1;
    default:
        return 2;
    }
}

enum { MOST_LAYERS = 1 << 16 }; /* each layer allocates memory before sizes are known */

/* Does a layer use window blocks? */
static bool has_window_blocks(const struct kv_config *c, int layer) {
    return c->n_window_blocks > 0 && c->has_window[layer];
}

/* Divides the cache among the kinds of layers, and counts the blocks of all layers. */
static bool plan_parts(struct kv_cache *cache, size_t *blocks) {
    const struct kv_config *c = &cache->config;
    cache->part[KV_BLOCKS] = {0, c->n_blocks, 0};
    cache->part[KV_WINDOW_BLOCKS] = {0, c->n_window_blocks, 0};
    for (int i = 0; i < c->L; i++) cache->part[has_window_blocks(c, i)].L++;
    *blocks = 0;
    for (struct kv_part &part : cache->part) {
        size_t all = (size_t)part.n_blocks;
        part.first = *blocks;
        if (!size_multiply(&all, (size_t)part.L) || __builtin_add_overflow(*blocks, all, blocks))
            return false;
    }
    return true;
}

static bool plan(struct kv_cache *cache, size_t *blocks) {
    const struct kv_config *c = &cache->config;
    cache->block_bytes = element_bytes(c->dtype);
    if (!size_multiply(&cache->block_bytes, (size_t)c->G) ||
        !size_multiply(&cache->block_bytes, (size_t)c->D) ||
        !size_multiply(&cache->block_bytes, (size_t)c->block_size))
        return false;
    if (!plan_parts(cache, blocks)) return false;
    size_t all = *blocks; /* scales are never larger: a head has at least 16 elements */
    return size_multiply(&all, cache->block_bytes) && all < SIZE_MAX / 4;
}

/* Sets the blocks of each layer: within a kind, in the order of the layers. */
static void place_layers(struct kv_cache *cache) {
    const struct kv_config *c = &cache->config;
    int n[N_BLOCK_KINDS] = {};
    cache->layer = (struct kv_layer *)mem_calloc((size_t)c->L + 1, sizeof *cache->layer);
    for (int i = 0; i < c->L; i++) {
        const enum block_kind kind = has_window_blocks(c, i) ? KV_WINDOW_BLOCKS : KV_BLOCKS;
        const struct kv_part &part = cache->part[kind];
        cache->layer[i] = {kind, part.first + (size_t)n[kind]++ * (size_t)part.n_blocks};
    }
}

/* The memory is zeroed, so that unwritten parts of a block contain numbers. */
static enum status take_memory(uint8_t **out, size_t bytes, struct err *err) {
    static const struct alloc_hint keys_or_values = {
        "the KV cache", "kv-cache-memory", "lower {kv-cache-memory} or {gpu-memory-utilization}"};
    void *memory;
    const enum status status = device_calloc(&memory, bytes, &keys_or_values, err);
    *out = (uint8_t *)memory;
    return status;
}

static enum status check(const struct kv_config *c, int D_shared, struct err *err) {
    if (c->dtype != DTYPE_F16 && c->dtype != DTYPE_F32 && c->dtype != DTYPE_BF16 &&
        c->dtype != DTYPE_E4M3)
        return err_set(err, STATUS_USAGE, "kv-cache-dtype",
                       "on a GPU the cache holds float16, bfloat16, fp8 or float32");
    const bool has_heads = c->G > 0 && c->D > 0, has_layers = c->L > 0 || c->state_layers > 0;
    if (!has_layers || (c->L > 0 && !has_heads) || c->n_blocks <= 0 || c->block_size <= 0 ||
        c->n_window_blocks < 0)
        return err_set(err, STATUS_USAGE, NULL,
                       "every size of the key-value cache must be positive");
    if (c->L > MOST_LAYERS)
        return err_set(err, STATUS_USAGE, NULL, "a key-value cache has at most %d layers",
                       MOST_LAYERS);
    if (c->dtype == DTYPE_E4M3 && D_shared > 0)
        return err_set(err, STATUS_USAGE, "kv-cache-dtype",
                       "{kv-cache-dtype} fp8 is not for latent attention: give float16 or "
                       "bfloat16");
    if (c->dtype == DTYPE_E4M3 && c->D % 16 != 0)
        return err_set(err, STATUS_USAGE, "kv-cache-dtype",
                       "{kv-cache-dtype} fp8 takes heads of a multiple of 16 numbers, and the "
                       "model's have %d",
                       c->D);
    return STATUS_OK;
}

/* Allocates memory for `blocks` blocks of a layer. */
static enum status take_all(struct kv_cache *cache, size_t blocks, struct err *err) {
    const struct kv_config *c = &cache->config;
    const size_t bytes = cache->block_bytes * blocks, n = blocks * (size_t)c->G;
    enum status status = take_memory(&cache->keys, bytes, err);
    if (!status && !cache->D_shared) status = take_memory(&cache->values, bytes, err);
    if (status || c->dtype != DTYPE_E4M3) return status;
    uint8_t *scales;
    status = take_memory(&scales, 2 * n * sizeof(float), err);
    if (status) return status;
    cache->key_scale = (float *)scales;
    cache->value_scale = cache->key_scale + n;
    return STATUS_OK;
}

/* ---- groups of equal layers ----------------------------------------------------------------- */

/* The layers of a cache, grouped by their heads. */
struct sorted_layers {
    int n;
    struct kv_config config[MAX_KV_KINDS]; /* one per group of equal layers */
    int D_shared[MAX_KV_KINDS];            /* of its heads */
    bool *has_window;                      /* [MAX_KV_KINDS][L + 1]; the configs point into it */
    struct kv_place *place;                /* [L] */
};

static void sorted_free(struct sorted_layers *sorted) {
    free(sorted->has_window);
    free(sorted->place);
}

/* The windows of group i; a model may have recurrent layers only. */
static bool *windows_of(const struct sorted_layers *sorted, const struct kv_config *c, int i) {
    return sorted->has_window + (size_t)i * ((size_t)c->L + 1);
}

/* The number of the group with these heads, which may be new; MAX_KV_KINDS if there are too
 * many. */
static int alike_with(struct sorted_layers *sorted, const struct kv_config *c, int layer) {
    const struct kv_heads heads = kv_heads_of(c, layer);
    int i = 0;
    while (i < sorted->n && (sorted->config[i].G != heads.G || sorted->config[i].D != heads.D ||
                             sorted->D_shared[i] != heads.D_shared))
        i++;
    if (i < sorted->n || i == MAX_KV_KINDS) return i;
    struct kv_config *made = &sorted->config[sorted->n++];
    *made = *c;
    sorted->D_shared[i] = heads.D_shared;
    made->L = 0, made->G = heads.G, made->D = heads.D;
    made->heads = nullptr, made->has_window = windows_of(sorted, c, i);
    return i;
}

/* Returns false if there are more groups than a cache may have. Call sorted_free in either case. */
static bool sort_layers(struct sorted_layers *sorted, const struct kv_config *c) {
    const size_t L = (size_t)c->L + 1;
    *sorted = {};
    sorted->config[0] = *c;
    sorted->has_window = (bool *)mem_calloc(MAX_KV_KINDS * L, sizeof *sorted->has_window);
    sorted->place = (struct kv_place *)mem_calloc(L, sizeof *sorted->place);
    for (int layer = 0; layer < c->L; layer++) {
        const int i = alike_with(sorted, c, layer);
        if (i == MAX_KV_KINDS) return false;
        const int number = sorted->config[i].L++;
        windows_of(sorted, c, i)[number] = has_window_blocks(c, layer);
        sorted->place[layer] = {i, number};
    }
    return true;
}

static size_t alike_bytes(const struct kv_config *config, int D_shared) {
    struct kv_cache sizes = {};
    size_t blocks;
    sizes.config = *config;
    if (!plan(&sizes, &blocks)) return SIZE_MAX;
    const size_t scales = config->dtype == DTYPE_E4M3 ? (size_t)config->G : 0;
    return (D_shared ? 1 : 2) * blocks * (sizes.block_bytes + scales * sizeof(float));
}

size_t kv_cache_bytes(const struct kv_config *config) {
    struct sorted_layers sorted;
    size_t bytes = 0;
    if (config->L > MOST_LAYERS) return SIZE_MAX;
    if (!sort_layers(&sorted, config)) bytes = SIZE_MAX;
    for (int i = 0; i < sorted.n && bytes < SIZE_MAX; i++)
        if (__builtin_add_overflow(bytes, alike_bytes(&sorted.config[i], sorted.D_shared[i]),
                                   &bytes))
            bytes = SIZE_MAX;
    sorted_free(&sorted);
    return bytes;
}

static enum status alike_new(struct kv_cache **out, const struct kv_config *config, int D_shared,
                             struct err *err) {
    enum status status = check(config, D_shared, err);
    if (status) return status;
    struct kv_cache plain = {};
    size_t blocks;
    plain.config = *config;
    plain.D_shared = D_shared;
    if (!plan(&plain, &blocks))
        return err_set(err, STATUS_USAGE, NULL, "a key-value cache of %d blocks is too large",
                       config->n_blocks);
    status = take_all(&plain, blocks, err);
    if (status) {
        cudaFree(plain.keys);
        cudaFree(plain.values);
        return status;
    }
    place_layers(&plain);
    plain.config.has_window = nullptr; /* the caller owns it */
    *out = (struct kv_cache *)mem_alloc(sizeof plain);
    **out = plain;
    return STATUS_OK;
}

/* Do the groups have the same kinds of blocks as the whole cache, for each layer? */
static bool kinds_agree(const struct kv_cache *cache) {
    for (int i = 0; i < cache->config.L; i++) {
        int layer = i;
        const struct kv_cache *alike = kv_alike(cache, &layer);
        if (alike->layer[layer].kind != cache->layer[i].kind) return false;
    }
    return true;
}

/* Makes a cache of several groups; it takes over the places of the sorted layers. */
static enum status mixed_new(struct kv_cache **out, struct sorted_layers *sorted,
                             const struct kv_config *config, struct err *err) {
    struct kv_cache *cache = (struct kv_cache *)mem_calloc(1, sizeof *cache);
    enum status status = STATUS_OK;
    size_t blocks;
    cache->config = *config;
    if (!plan_parts(cache, &blocks))
        status = err_set(err, STATUS_USAGE, NULL, "a key-value cache of %d blocks is too large",
                         config->n_blocks);
    if (!status) place_layers(cache);
    cache->config.heads = nullptr, cache->config.has_window = nullptr;
    cache->place = sorted->place;
    sorted->place = nullptr;
    for (int i = 0; i < sorted->n && !status; i++) {
        status = alike_new(&cache->alike[i], &sorted->config[i], sorted->D_shared[i], err);
        if (!status) cache->n_alike++;
    }
    assert(status || kinds_agree(cache));
    if (status)
        kv_cache_free(cache);
    else
        *out = cache;
    return status;
}

enum status kv_cache_new(struct kv_cache **out, const struct kv_config *config, struct err *err) {
    struct sorted_layers sorted;
    enum status status;
    if (config->L < 0 || config->L > MOST_LAYERS) return check(config, 0, err);
    if (!sort_layers(&sorted, config))
        status = err_set(err, STATUS_USAGE, NULL,
                         "a key-value cache has layers of at most %d kinds", MAX_KV_KINDS);
    else if (sorted.n > 1)
        status = mixed_new(out, &sorted, config, err);
    else
        status = alike_new(out, &sorted.config[0], sorted.D_shared[0], err);
    sorted_free(&sorted);
    return status;
}

void kv_cache_free(struct kv_cache *cache) {
    if (!cache) return;
    for (int i = 0; i < cache->n_alike; i++) kv_cache_free(cache->alike[i]);
    cuda_check(cudaFree(cache->keys), "freeing the cache's keys");
    cuda_check(cudaFree(cache->values), "freeing the cache's values");
    cuda_check(cudaFree(cache->key_scale), "freeing the cache's scales");
    free(cache->layer);
    free(cache->place);
    free(cache);
}
