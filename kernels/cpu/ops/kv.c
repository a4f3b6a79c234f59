/* The paged key-value cache: making it, copying blocks, writing a step's keys and values. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { PAST_THE_END = 64 }; /* bytes that a vector may read past the last key */

static size_t bytes_of(enum dtype type) {
    switch (type) {
    case DTYPE_F32:
        return 4;
    case DTYPE_F16:
    case DTYPE_I16:
        return 2;
    case DTYPE_Q8_0:
        return 1;
    default:
        return 0;
    }
}

/* One head's part of a block. */
static bool plan_head(struct kv_cache *cache) {
    const struct kv_config *c = &cache->config;
    cache->element_bytes = bytes_of(c->dtype);
    cache->coded = c->dtype == DTYPE_I16 || c->dtype == DTYPE_Q8_0;
    cache->D_padded = (int)round_up((size_t)c->D, LANES);
    cache->n_scales = cache->coded ? (c->D + SCALED - 1) / SCALED : 0;
    cache->head_key_codes = (size_t)(cache->coded ? cache->D_padded : c->D);
    cache->head_value_codes = (size_t)cache->D_padded;
    size_t B = (size_t)c->block_size, scales = (size_t)cache->n_scales * sizeof(float);
    if (!size_multiply(&cache->head_key_codes, B * cache->element_bytes) ||
        !size_multiply(&cache->head_value_codes, B * cache->element_bytes) ||
        !size_multiply(&scales, B))
        return false;
    return !__builtin_add_overflow(cache->head_key_codes, scales, &cache->head_key_bytes) &&
           !__builtin_add_overflow(cache->head_value_codes, scales, &cache->head_value_bytes);
}

/* Layers with window blocks. */
static int window_layers(const struct kv_config *c) {
    int n = 0;
    for (int i = 0; c->n_window_blocks > 0 && i < c->L; i++) n += c->has_window[i];
    return n;
}

static bool plan(struct kv_cache *cache) {
    const struct kv_config *c = &cache->config;
    if (!plan_head(cache)) return false;
    cache->key_bytes = cache->head_key_bytes;
    cache->value_bytes = cache->head_value_bytes;
    if (!size_multiply(&cache->key_bytes, (size_t)c->G) ||
        !size_multiply(&cache->value_bytes, (size_t)c->G))
        return false;
    size_t blocks = round_up((size_t)c->n_blocks, KV_SLAB), windows = (size_t)window_layers(c);
    size_t window_blocks = round_up((size_t)c->n_window_blocks, KV_SLAB);
    if (!size_multiply(&blocks, (size_t)c->L - windows) ||
        !size_multiply(&window_blocks, windows) ||
        __builtin_add_overflow(blocks, window_blocks, &blocks))
        return false;
    cache->keys_bytes = cache->key_bytes;
    cache->values_bytes = cache->value_bytes;
    return size_multiply(&cache->keys_bytes, blocks) &&
           size_multiply(&cache->values_bytes, blocks) && cache->keys_bytes < SIZE_MAX / 4 &&
           cache->values_bytes < SIZE_MAX / 4;
}

/* Numbers the layers of each kind. */
static void place_layers(struct kv_cache *cache) {
    const struct kv_config *c = &cache->config;
    size_t n = 0, n_windows = 0, windows = (size_t)window_layers(c);
    size_t others = (size_t)c->L - windows;
    cache->layer = mem_calloc((size_t)c->L, sizeof *cache->layer);
    for (int i = 0; i < c->L; i++) {
        struct kv_layer *layer = &cache->layer[i];
        if (windows > 0 && c->has_window[i])
            *layer = (struct kv_layer){true, c->n_window_blocks,
                                       round_up((size_t)c->n_blocks, KV_SLAB) * others, windows,
                                       n_windows++};
        else
            *layer = (struct kv_layer){false, c->n_blocks, 0, others, n++};
    }
}

/* The keys of a block of one layer in a type that only a GPU has: bytes without padding, and for
 * E4M3 each head's scale. */
static bool plan_foreign(size_t *bytes, const struct kv_config *c) {
    *bytes = c->dtype == DTYPE_BF16 ? 2 : 1;
    if (!size_multiply(bytes, (size_t)c->D) || !size_multiply(bytes, (size_t)c->block_size))
        return false;
    if (c->dtype == DTYPE_E4M3 && __builtin_add_overflow(*bytes, sizeof(float), bytes))
        return false;
    return size_multiply(bytes, (size_t)c->G);
}

size_t kv_token_bytes(const struct kv_config *config) {
    struct kv_cache cache = {.config = *config};
    size_t bytes, B = (size_t)config->block_size;
    cache.config.n_blocks = 1;
    if (config->dtype == DTYPE_BF16 || config->dtype == DTYPE_E4M3) {
        if (!plan_foreign(&bytes, config) || !size_multiply(&bytes, 2)) return 0;
    } else {
        if (!bytes_of(config->dtype) || !plan(&cache)) return 0;
        bytes = cache.key_bytes + cache.value_bytes;
    }
    if (!size_multiply(&bytes, (size_t)config->L)) return 0;
    return bytes / B + (bytes % B != 0);
}

enum status op_kv_new(struct backend *b, struct kv_cache **out, const struct kv_config *config,
                      struct err *err) {
    if (!bytes_of(config->dtype))
        return err_set(err, STATUS_USAGE, "kv-cache-dtype",
                       "the cache holds int16, q8_0, float16 or float32");
    if (config->L <= 0 || config->G <= 0 || config->D <= 0 || config->n_blocks <= 0 ||
        config->block_size <= 0 || config->n_window_blocks < 0 || config->D > INT32_MAX - LANES)
        return err_set(err, STATUS_USAGE, NULL,
                       "every size of the key-value cache must be positive");
    if ((config->dtype == DTYPE_I16 || config->dtype == DTYPE_Q8_0) && config->block_size % 2)
        return err_set(
            err, STATUS_USAGE, "block-size",
            "a cache of int16 or q8_0 takes positions in pairs: an odd --block-size needs "
            "--kv-cache-dtype float16 or float32");
    struct kv_cache plain = {.config = *config};
    if (!plan(&plain))
        return err_set(err, STATUS_USAGE, NULL, "a key-value cache of %d blocks is too large",
                       config->n_blocks);
    struct kv_cache *cache = mem_alloc(sizeof *cache);
    *cache = plain;
    place_layers(cache);
    cache->config.has_window = NULL; /* the caller's */
    cache->keys = mem_large(cache->keys_bytes + PAST_THE_END);
    cache->values = mem_large(cache->values_bytes);
    cpu_plan_heads(cpu_of(b), config->D);
    *out = cache;
    return STATUS_OK;
}

void op_kv_free(struct backend *b, struct kv_cache *cache) {
    (void)b;
    if (!cache) return;
    mem_large_free(cache->keys, cache->keys_bytes + PAST_THE_END);
    mem_large_free(cache->values, cache->values_bytes);
    free(cache->layer);
    free(cache);
}

void op_step_begin(struct backend *b, const struct step *step, struct kv_cache *cache) {
    struct cpu *cpu = cpu_of(b);
    assert(step->M >= 0 && step->M <= cpu->max_rows && step->R <= step->M);
    cpu->step = step;
    for (int i = 0; i < ROPE_TABLES; i++) cpu->rope[i].inv_freq = NULL;
    for (int i = 0; i < step->n_copies; i++) {
        for (int layer = 0; layer < cache->config.L; layer++) {
            bool has_window = cache->layer[layer].has_window;
            int from = (has_window ? step->window_copy_from : step->copy_from)[i];
            int to = (has_window ? step->window_copy_to : step->copy_to)[i];
            int n_blocks = cache->layer[layer].n_blocks;
            assert(from >= 0 && from < n_blocks && to >= 0 && to < n_blocks);
            if (from == to) continue;
            memcpy(kv_keys(cache, layer, to), kv_keys(cache, layer, from), cache->key_bytes);
            memcpy(kv_values(cache, layer, to), kv_values(cache, layer, from), cache->value_bytes);
        }
    }
}
