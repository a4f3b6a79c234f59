/* The paged KV cache: allocation, block copies, writing a step's keys and values. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    PAST_THE_END = 64, /* bytes that a vector may read past the last key */
    /* no model has more; each layer allocates memory before sizes are known */
    MOST_LAYERS = 1 << 16,
    SMALLEST_PAGE = 4096,
    TOUCH_SLICE = 8 << 20 /* bytes: some huge pages */
};

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
static bool plan_head(struct kv_kind *kv, enum dtype dtype) {
    kv->element_bytes = bytes_of(dtype);
    kv->coded = dtype == DTYPE_I16 || dtype == DTYPE_Q8_0;
    kv->D_padded = (int)round_up((size_t)kv->D, LANES);
    kv->D_value_padded = (int)round_up((size_t)kv->D_value, LANES);
    kv->n_scales = kv->coded ? (kv->D + SCALED - 1) / SCALED : 0;
    kv->n_value_scales = kv->coded ? (kv->D_value + SCALED - 1) / SCALED : 0;
    kv->head_key_codes = (size_t)(kv->coded ? kv->D_padded : kv->D);
    kv->head_value_codes = kv->shares ? 0 : (size_t)kv->D_value_padded;
    size_t B = (size_t)kv->B, scales = (size_t)kv->n_scales * sizeof(float);
    if (!size_multiply(&kv->head_key_codes, B * kv->element_bytes) ||
        !size_multiply(&kv->head_value_codes, B * kv->element_bytes) || !size_multiply(&scales, B))
        return false;
    const size_t of_values = kv->shares ? 0 : scales;
    return !__builtin_add_overflow(kv->head_key_codes, scales, &kv->head_key_bytes) &&
           !__builtin_add_overflow(kv->head_value_codes, of_values, &kv->head_value_bytes);
}

/* A block of one layer. */
static bool plan_block(struct kv_kind *kv, enum dtype dtype) {
    if (!plan_head(kv, dtype)) return false;
    kv->key_bytes = kv->head_key_bytes;
    kv->value_bytes = kv->head_value_bytes;
    return size_multiply(&kv->key_bytes, (size_t)kv->G) &&
           size_multiply(&kv->value_bytes, (size_t)kv->G);
}

/* All blocks of all layers of the kind. */
static bool plan_kind(struct kv_kind *kv, enum dtype dtype) {
    size_t blocks = round_up((size_t)kv->n_blocks, KV_SLAB);
    if (!plan_block(kv, dtype) || !size_multiply(&blocks, kv->L)) return false;
    kv->keys_bytes = kv->key_bytes;
    kv->values_bytes = kv->value_bytes;
    return size_multiply(&kv->keys_bytes, blocks) && size_multiply(&kv->values_bytes, blocks) &&
           kv->keys_bytes < SIZE_MAX / 4 && kv->values_bytes < SIZE_MAX / 4;
}

/* The kind of a layer's blocks. */
static struct kv_kind kind_of(const struct kv_config *c, int layer) {
    const struct kv_heads heads = kv_heads_of(c, layer);
    bool has_window = c->n_window_blocks > 0 && c->has_window[layer];
    return (struct kv_kind){.G = heads.G,
                            .D = heads.D,
                            .D_value = kv_value_size(heads),
                            .shares = heads.D_shared > 0,
                            .B = c->block_size,
                            .has_window = has_window,
                            .n_blocks = has_window ? c->n_window_blocks : c->n_blocks};
}

static bool is_same_kind(const struct kv_kind *a, const struct kv_kind *b) {
    return a->G == b->G && a->D == b->D && a->shares == b->shares && a->D_value == b->D_value &&
           a->has_window == b->has_window;
}

/* Finds the kinds of layers and numbers the layers of each kind: layer[L]. Returns false for more
 * than MAX_KV_KINDS kinds. */
static bool sort_layers(struct kv_cache *cache, struct kv_layer *layer) {
    const struct kv_config *c = &cache->config;
    for (int i = 0; i < c->L; i++) {
        const struct kv_kind kind = kind_of(c, i);
        int k = 0;
        while (k < cache->n_kinds && !is_same_kind(&cache->kind[k], &kind)) k++;
        if (k == MAX_KV_KINDS) return false;
        if (k == cache->n_kinds) cache->kind[cache->n_kinds++] = kind;
        layer[i] = (struct kv_layer){k, (int)cache->kind[k].L++};
    }
    return true;
}

static bool plan(struct kv_cache *cache) {
    for (int k = 0; k < cache->n_kinds; k++)
        if (!plan_kind(&cache->kind[k], cache->config.dtype)) return false;
    return true;
}

/* Plans the keys of a block of one layer in a type that only GPUs support: bytes without padding
 * and, for E4M3, a scale per head. */
static bool plan_foreign(size_t *bytes, enum dtype dtype, const struct kv_kind *kv) {
    *bytes = dtype == DTYPE_BF16 ? 2 : 1;
    if (!size_multiply(bytes, (size_t)kv->D) || !size_multiply(bytes, (size_t)kv->B)) return false;
    if (dtype == DTYPE_E4M3 && __builtin_add_overflow(*bytes, sizeof(float), bytes)) return false;
    return size_multiply(bytes, (size_t)kv->G);
}

/* Bytes of keys and values of a block of one layer; 0 on overflow. */
static size_t block_bytes(enum dtype dtype, struct kv_kind *kv) {
    size_t bytes;
    if (dtype == DTYPE_BF16 || dtype == DTYPE_E4M3)
        return plan_foreign(&bytes, dtype, kv) && size_multiply(&bytes, kv->shares ? 1 : 2) ? bytes
                                                                                            : 0;
    if (!bytes_of(dtype) || !plan_block(kv, dtype)) return 0;
    return __builtin_add_overflow(kv->key_bytes, kv->value_bytes, &bytes) ? 0 : bytes;
}

size_t kv_token_bytes(const struct kv_config *config) {
    size_t all = 0, B = (size_t)config->block_size;
    for (int i = 0; i < config->L; i++) {
        struct kv_kind kind = kind_of(config, i);
        size_t bytes = block_bytes(config->dtype, &kind);
        if (bytes == 0 || __builtin_add_overflow(all, bytes, &all)) return 0;
    }
    return all / B + (all % B != 0);
}

/* Checks that all sizes are valid. */
static enum status check(const struct kv_config *config, struct err *err) {
    bool positive = config->L + config->n_states > 0 && config->L >= 0 && config->n_blocks > 0 &&
                    config->block_size > 0;
    if (!bytes_of(config->dtype))
        return err_set(err, STATUS_USAGE, "kv-cache-dtype",
                       "the cache holds int16, q8_0, float16 or float32");
    for (int i = 0; i < config->L && i < MOST_LAYERS && positive; i++) {
        const struct kv_heads heads = kv_heads_of(config, i);
        positive = heads.G > 0 && heads.D > 0 && heads.D <= INT32_MAX - LANES &&
                   heads.D_shared >= 0 && heads.D_shared <= heads.D;
    }
    positive = positive && config->n_states >= 0;
    if (config->n_states > 0) positive = positive && kv_state_bytes(config) > 0;
    if (!positive || config->n_window_blocks < 0)
        return err_set(err, STATUS_USAGE, NULL,
                       "every size of the key-value cache must be positive");
    if (config->L > MOST_LAYERS)
        return err_set(err, STATUS_USAGE, NULL, "a key-value cache has at most %d layers",
                       MOST_LAYERS);
    if ((config->dtype == DTYPE_I16 || config->dtype == DTYPE_Q8_0) && config->block_size % 2)
        return err_set(
            err, STATUS_USAGE, "block-size",
            "a cache of int16 or q8_0 takes positions in pairs: an odd {block-size} needs "
            "{kv-cache-dtype} float16 or float32");
    return STATUS_OK;
}

static void take_memory(struct kv_cache *cache) {
    for (int k = 0; k < cache->n_kinds; k++) {
        struct kv_kind *kv = &cache->kind[k];
        kv->keys = mem_large(kv->keys_bytes + PAST_THE_END);
        if (!kv->shares) kv->values = mem_large(kv->values_bytes);
    }
    cache->state_bytes = (size_t)cache->config.n_states * kv_state_bytes(&cache->config);
    if (cache->state_bytes > 0) cache->states = mem_large(cache->state_bytes);
}

enum status op_kv_new(struct backend *b, struct kv_cache **out, const struct kv_config *config,
                      struct err *err) {
    enum status status = check(config, err);
    if (status) return status;
    struct kv_cache *cache = mem_calloc(1, sizeof *cache);
    cache->config = *config;
    cache->layer = mem_calloc((size_t)config->L + 1, sizeof *cache->layer); /* L may be 0 */
    if (!sort_layers(cache, cache->layer))
        status = err_set(err, STATUS_USAGE, NULL,
                         "a key-value cache has layers of at most %d kinds", MAX_KV_KINDS);
    else if (!plan(cache))
        status = err_set(err, STATUS_USAGE, NULL, "a key-value cache of %d blocks is too large",
                         config->n_blocks);
    if (status) {
        mem_free(cache->layer);
        mem_free(cache);
        return status;
    }
    take_memory(cache);
    cpu_free_packing(cpu_of(b)); /* all weights are loaded by now */
    for (int k = 0; k < cache->n_kinds; k++) cpu_plan_heads(cpu_of(b), &cache->kind[k]);
    cache->config.has_window = NULL; /* the caller owns it */
    cache->config.heads = NULL;
    *out = cache;
    return STATUS_OK;
}

void op_kv_free(struct backend *b, struct kv_cache *cache) {
    (void)b;
    if (!cache) return;
    for (int k = 0; k < cache->n_kinds; k++) {
        mem_large_free(cache->kind[k].keys, cache->kind[k].keys_bytes + PAST_THE_END);
        if (cache->kind[k].values)
            mem_large_free(cache->kind[k].values, cache->kind[k].values_bytes);
    }
    if (cache->states) mem_large_free(cache->states, cache->state_bytes);
    mem_free(cache->layer);
    mem_free(cache);
}

/* Memory that threads touch in slices. */
struct touch_job {
    uint8_t *memory;
    size_t bytes;
};

static void touch_slice(void *arg, int i, int thread) {
    (void)thread;
    const struct touch_job *job = arg;
    size_t from = (size_t)i * TOUCH_SLICE, end = from + TOUCH_SLICE;
    if (end > job->bytes) end = job->bytes;
    for (; from < end; from += SMALLEST_PAGE) *(volatile uint8_t *)(job->memory + from) = 0;
}

static void touch(struct pool *pool, void *memory, size_t bytes) {
    struct touch_job job = {memory, bytes};
    size_t slices = (bytes + TOUCH_SLICE - 1) / TOUCH_SLICE;
    assert(slices < MAX_JOB_PIECES); /* 2 TiB */
    pool_run(pool, touch_slice, &job, (int)slices);
}

void op_kv_touch(struct backend *b, struct kv_cache *cache) {
    for (int k = 0; k < cache->n_kinds; k++) {
        touch(cpu_of(b)->pool, cache->kind[k].keys, cache->kind[k].keys_bytes);
        if (cache->kind[k].values)
            touch(cpu_of(b)->pool, cache->kind[k].values, cache->kind[k].values_bytes);
    }
    if (cache->states) touch(cpu_of(b)->pool, cache->states, cache->state_bytes);
}

/* Do the blocks of a kind belong to a part? */
static bool is_of_part(const struct kv_kind *kv, enum cache_part part) {
    return part == (kv->has_window ? PART_WINDOW : PART_BLOCK);
}

size_t op_kv_part_bytes(const struct kv_cache *cache, enum cache_part part) {
    size_t bytes = 0;
    if (part == PART_STATE) return cache->states ? kv_state_bytes(&cache->config) : 0;
    for (int k = 0; k < cache->n_kinds; k++) {
        const struct kv_kind *kv = &cache->kind[k];
        if (is_of_part(kv, part)) bytes += kv->L * (kv->key_bytes + kv->value_bytes);
    }
    return bytes;
}

void op_kv_part_get(const struct kv_cache *cache, enum cache_part part, int i, void *out) {
    uint8_t *to = out;
    if (part == PART_STATE) {
        memcpy(out, kv_state(cache, i, 0), kv_state_bytes(&cache->config));
        return;
    }
    for (int k = 0; k < cache->n_kinds; k++) {
        const struct kv_kind *kv = &cache->kind[k];
        if (!is_of_part(kv, part)) continue;
        assert(i >= 0 && i < kv->n_blocks);
        for (int place = 0; place < (int)kv->L; place++) {
            memcpy(to, kv_keys(kv, place, i), kv->key_bytes);
            if (!kv->shares) memcpy(to + kv->key_bytes, kv_values(kv, place, i), kv->value_bytes);
            to += kv->key_bytes + kv->value_bytes;
        }
    }
    assert((size_t)(to - (uint8_t *)out) == op_kv_part_bytes(cache, part));
}

void op_kv_part_put(struct kv_cache *cache, enum cache_part part, int i, const void *in) {
    const uint8_t *from = in;
    if (part == PART_STATE) {
        memcpy(kv_state(cache, i, 0), in, kv_state_bytes(&cache->config));
        return;
    }
    for (int k = 0; k < cache->n_kinds; k++) {
        const struct kv_kind *kv = &cache->kind[k];
        if (!is_of_part(kv, part)) continue;
        assert(i >= 0 && i < kv->n_blocks);
        for (int place = 0; place < (int)kv->L; place++) {
            memcpy(kv_keys(kv, place, i), from, kv->key_bytes);
            if (!kv->shares) memcpy(kv_values(kv, place, i), from + kv->key_bytes, kv->value_bytes);
            from += kv->key_bytes + kv->value_bytes;
        }
    }
    assert((size_t)(from - (const uint8_t *)in) == op_kv_part_bytes(cache, part));
}

static void copy_block(const struct kv_kind *kv, int from, int to) {
    assert(from >= 0 && from < kv->n_blocks && to >= 0 && to < kv->n_blocks);
    for (int place = 0; place < (int)kv->L && from != to; place++) {
        memcpy(kv_keys(kv, place, to), kv_keys(kv, place, from), kv->key_bytes);
        if (!kv->shares)
            memcpy(kv_values(kv, place, to), kv_values(kv, place, from), kv->value_bytes);
    }
}

static void copy_states(const struct step *step, struct kv_cache *cache) {
    for (int i = 0; i < step->n_state_copies; i++)
        memcpy(kv_state(cache, step->state_to[i], 0), kv_state(cache, step->state_from[i], 0),
               kv_state_bytes(&cache->config));
}

void op_step_begin(struct backend *b, const struct step *step, struct kv_cache *cache) {
    struct cpu *cpu = cpu_of(b);
    assert(step->M >= 0 && step->M <= cpu->max_rows && step->R <= step->M);
    cpu->step = step;
    for (int i = 0; i < ROPE_TABLES; i++) cpu->rope[i].inv_freq = NULL;
    for (int i = 0; i < step->n_copies; i++)
        for (int k = 0; k < cache->n_kinds; k++) {
            bool has_window = cache->kind[k].has_window;
            copy_block(&cache->kind[k], (has_window ? step->window_copy_from : step->copy_from)[i],
                       (has_window ? step->window_copy_to : step->copy_to)[i]);
        }
    copy_states(step, cache);
}
