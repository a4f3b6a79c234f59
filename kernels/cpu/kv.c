/* The paged key-value cache: making it, copying blocks, writing a step's keys and values. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { PAST_THE_END = 64 }; /* bytes that a vector may read past the last key */

/* n = a * b, false when it does not fit. */
static bool times(size_t *n, size_t b) {
    return !__builtin_mul_overflow(*n, b, n);
}

static bool plan(struct kv_cache *cache) {
    const struct kv_config *c = &cache->config;
    cache->element_bytes = c->dtype == DTYPE_F16 ? 2 : 4;
    cache->D_padded = (int)round_up((size_t)c->D, LANES);
    cache->key_bytes = cache->value_bytes = cache->element_bytes;
    if (!times(&cache->key_bytes, (size_t)c->G) || !times(&cache->key_bytes, (size_t)c->D) ||
        !times(&cache->key_bytes, (size_t)c->block_size) ||
        !times(&cache->value_bytes, (size_t)c->G) ||
        !times(&cache->value_bytes, (size_t)cache->D_padded) ||
        !times(&cache->value_bytes, (size_t)c->block_size))
        return false;
    cache->keys_bytes = cache->key_bytes;
    cache->values_bytes = cache->value_bytes;
    return times(&cache->keys_bytes, (size_t)c->L) &&
           times(&cache->keys_bytes, (size_t)c->n_blocks) &&
           times(&cache->values_bytes, (size_t)c->L) &&
           times(&cache->values_bytes, (size_t)c->n_blocks) && cache->keys_bytes < SIZE_MAX / 4 &&
           cache->values_bytes < SIZE_MAX / 4;
}

/* Has the system give the planned memory now, beside the start, instead of at each block's first
 * use: what the process takes is then the same after an hour as after a second. The contents are
 * not changed, so steps may run meanwhile. */
static void *touch(void *arg) {
    const struct kv_cache *cache = arg;
    mem_large_populate(cache->keys, cache->keys_bytes + PAST_THE_END);
    mem_large_populate(cache->values, cache->values_bytes);
    return NULL;
}

enum status op_kv_new(struct backend *b, struct kv_cache **out, const struct kv_config *config,
                      struct err *err) {
    if (config->dtype != DTYPE_F16 && config->dtype != DTYPE_F32)
        return err_set(err, STATUS_USAGE, "kv_cache_dtype", "the cache holds float16 or float32");
    if (config->L <= 0 || config->G <= 0 || config->D <= 0 || config->n_blocks <= 0 ||
        config->block_size <= 0 || config->D > INT32_MAX - LANES)
        return err_set(err, STATUS_USAGE, NULL,
                       "every size of the key-value cache must be positive");
    struct kv_cache plain = {.config = *config};
    if (!plan(&plain))
        return err_set(err, STATUS_USAGE, NULL, "a key-value cache of %d blocks is too large",
                       config->n_blocks);
    struct kv_cache *cache = mem_alloc(sizeof *cache);
    *cache = plain;
    cache->keys = mem_large(cache->keys_bytes + PAST_THE_END);
    cache->values = mem_large(cache->values_bytes);
    cache->touching = pthread_create(&cache->toucher, NULL, touch, cache) == 0;
    cpu_plan_heads(cpu_of(b), config->D);
    *out = cache;
    return STATUS_OK;
}

void op_kv_free(struct backend *b, struct kv_cache *cache) {
    (void)b;
    if (!cache) return;
    if (cache->touching) pthread_join(cache->toucher, NULL);
    mem_large_free(cache->keys, cache->keys_bytes + PAST_THE_END);
    mem_large_free(cache->values, cache->values_bytes);
    free(cache);
}

void op_step_begin(struct backend *b, const struct step *step, struct kv_cache *cache) {
    struct cpu *cpu = cpu_of(b);
    assert(step->M <= cpu->max_rows);
    cpu->step = step;
    for (int i = 0; i < ROPE_TABLES; i++) cpu->rope[i].inv_freq = NULL;
    for (int i = 0; i < step->n_copies; i++) {
        int from = step->copy_from[i], to = step->copy_to[i];
        assert(from >= 0 && from < cache->config.n_blocks && to >= 0 &&
               to < cache->config.n_blocks);
        if (from == to) continue;
        for (int layer = 0; layer < cache->config.L; layer++) {
            memcpy(kv_keys(cache, layer, to), kv_keys(cache, layer, from), cache->key_bytes);
            memcpy(kv_values(cache, layer, to), kv_values(cache, layer, from), cache->value_bytes);
        }
    }
}

/* ---- writing -------------------------------------------------------------------------------- */

struct write_job {
    struct cpu *cpu;
    struct kv_cache *cache;
    int layer, rows;
    const float *k, *v;
};

enum { HALVES_AT_ONCE = 256 };

/* A key is spread over its block, one element in each line of B positions; a value stands in one
 * piece. */
static void write_head(const struct write_job *job, int g, int block, int offset, const float *k,
                       const float *v) {
    const struct kv_cache *cache = job->cache;
    const struct kv_config *c = &cache->config;
    size_t element = cache->element_bytes, B = (size_t)c->block_size;
    uint8_t *keys = kv_keys(cache, job->layer, block) +
                    ((size_t)g * (size_t)c->D * B + (size_t)offset) * element;
    uint8_t *values = kv_values(cache, job->layer, block) +
                      ((size_t)g * B + (size_t)offset) * (size_t)cache->D_padded * element;
    if (element == 4) {
        for (size_t d = 0; d < (size_t)c->D; d++) memcpy(keys + 4 * d * B, k + d, 4);
        memcpy(values, v, (size_t)c->D * 4);
        return;
    }
    uint16_t halves[HALVES_AT_ONCE];
    for (size_t d = 0; d < (size_t)c->D; d += HALVES_AT_ONCE) {
        size_t n = (size_t)c->D - d < HALVES_AT_ONCE ? (size_t)c->D - d : HALVES_AT_ONCE;
        job->cpu->path->to_halves(halves, k + d, n);
        for (size_t i = 0; i < n; i++) memcpy(keys + 2 * (d + i) * B, halves + i, 2);
        job->cpu->path->to_halves(halves, v + d, n);
        memcpy(values + 2 * d, halves, 2 * n);
    }
}

static void write_piece(void *arg, int i, int thread) {
    (void)thread;
    const struct write_job *job = arg;
    const struct kv_config *c = &job->cache->config;
    const struct step *step = job->cpu->step;
    int end = (i + 1) * job->rows < step->M ? (i + 1) * job->rows : step->M;
    for (int m = i * job->rows; m < end; m++) {
        int block = step->slot[m] / c->block_size, offset = step->slot[m] % c->block_size;
        assert(step->slot[m] >= 0 && block < c->n_blocks);
        for (int g = 0; g < c->G; g++) {
            size_t at = ((size_t)m * (size_t)c->G + (size_t)g) * (size_t)c->D;
            write_head(job, g, block, offset, job->k + at, job->v + at);
        }
    }
}

void op_kv_write(struct backend *b, struct kv_cache *cache, int layer, const float *k,
                 const float *v) {
    struct write_job job = {cpu_of(b), cache, layer, 16, k, v};
    assert(layer >= 0 && layer < cache->config.L);
    pool_run(job.cpu->pool, write_piece, &job, (job.cpu->step->M + job.rows - 1) / job.rows);
}
