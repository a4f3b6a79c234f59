/* Processes heads between their product and attention. Queries and keys are normalised if the model
 * has such norms, and rotated by their positions (RoPE). Queries are scaled. Keys and values are
 * written to the cache. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    AT_ONCE = 4 * SCALED,
    ROWS_AT_ONCE = 2, /* a row of a new block misses the caches in each line: a microsecond */
    ANGLES_AT_ONCE = 4,
};

struct heads_job {
    struct cpu *cpu;
    const struct kv_kind *kv;
    int place;                 /* index of the layer within its kind */
    const struct heads *heads; /* or NULL with a latent */
    const struct rope_table *angles;
    float *q, *k, *v;
    const struct latent *latent;
    const float *from; /* queries before their rotation, for a latent */
};

/* One past the last row of piece i, which starts at i * at_once. */
static int piece_end(const struct cpu *cpu, int i, int at_once) {
    int end = (i + 1) * at_once;
    return end < cpu->step->M ? end : cpu->step->M;
}

static int pieces(const struct cpu *cpu, int at_once) {
    return (cpu->step->M + at_once - 1) / at_once;
}

/* ---- RoPE ----------------------------------------------------------------------------------- */

/* The angle is the float product of position and frequency. Its cosine and sine are computed in
 * double and rounded once, so that they do not depend on a single-precision library. A step's
 * angles are computed at their first use and serve all layers. */

struct angles_job {
    struct cpu *cpu;
    struct rope_table *table;
};

static void angles_piece(void *arg, int i, int thread) {
    (void)thread;
    const struct angles_job *job = arg;
    const struct rope_table *table = job->table;
    size_t pairs = (size_t)table->pairs;
    for (int m = i * ANGLES_AT_ONCE; m < piece_end(job->cpu, i, ANGLES_AT_ONCE); m++) {
        for (size_t p = 0; p < pairs; p++) {
            float angle = (float)job->cpu->step->position[m] * table->inv_freq[p];
            table->cosine[(size_t)m * pairs + p] = (float)cos((double)angle) * table->scale;
            table->sine[(size_t)m * pairs + p] = (float)sin((double)angle) * table->scale;
        }
    }
}

/* Returns the step's angles for a rotation. If a model has more lists of frequencies than tables,
 * the tables are replaced in turn. */
static const struct rope_table *angles(struct cpu *cpu, const struct rope *rope) {
    int pairs = rope->D_rope / 2;
    float scale = rope->scale == 0 ? 1 : rope->scale;
    for (int i = 0; i < ROPE_TABLES; i++) {
        const struct rope_table *made = &cpu->rope[i];
        if (made->inv_freq == rope->inv_freq && made->pairs == pairs && made->scale == scale)
            return made;
    }
    struct rope_table *table = &cpu->rope[cpu->n_rope++ % ROPE_TABLES];
    assert(rope->inv_freq && pairs > 0 && pairs <= cpu->max_d / 2);
    assert(cpu->step->M <= cpu->max_rows);
    table->inv_freq = rope->inv_freq;
    table->pairs = pairs;
    table->scale = scale;
    struct angles_job job = {cpu, table};
    pool_run(cpu->pool, angles_piece, &job, pieces(cpu, ANGLES_AT_ONCE));
    return table;
}

/* Normalises the heads of a row x. */
static void norm_heads(const struct heads_job *job, float *x, const float *gain, const float *bias,
                       int heads, enum head_norms norms) {
    const struct path *path = job->cpu->path;
    size_t D = (size_t)job->kv->D;
    size_t length = head_norms_are_of_rows(norms) ? (size_t)heads * D : D; /* of one norm */
    float epsilon = job->heads->epsilon;
    for (size_t at = 0; gain && at < (size_t)heads * D; at += length)
        if (norms == HEAD_NORMS_OWN || norms == HEAD_NORMS_LAYER)
            path->layernorm(x + at, x + at, gain + at, bias, (int)length, epsilon);
        else
            path->rmsnorm(x + at, x + at, gain, (int)length, epsilon);
}

/* Rotates the heads of row m, which are x. */
static void rotate_heads(const struct heads_job *job, float *x, int heads, int m) {
    size_t pairs = (size_t)job->heads->rope.D_rope / 2;
    if (!job->angles) return;
    job->cpu->path->rope(x, heads, job->kv->D, job->heads->rope.D_rope,
                         job->angles->cosine + (size_t)m * pairs,
                         job->angles->sine + (size_t)m * pairs, job->heads->rope.layout);
}

/* Normalises and rotates the heads of row m of x. */
static void norm_and_rotate(const struct heads_job *job, float *x, const float *gain,
                            const float *bias, int heads, int m) {
    bool last = job->heads->norms_last;
    x += (size_t)m * (size_t)heads * (size_t)job->kv->D;
    if (!last) norm_heads(job, x, gain, bias, heads, job->heads->norms);
    rotate_heads(job, x, heads, m);
    if (last) norm_heads(job, x, gain, bias, heads, job->heads->norms);
}

/* Computes the values of row m, before its keys change. */
static void make_values(const struct heads_job *job, int m) {
    size_t width = (size_t)job->kv->G * (size_t)job->kv->D, at = (size_t)m * width;
    if (job->heads->values_are_keys) memcpy(job->v + at, job->k + at, width * sizeof *job->v);
    norm_heads(job, job->v + at, job->heads->v_gain, NULL, job->kv->G, HEAD_NORMS_ALIKE);
}

/* Multiplies the H queries of row m by scales[position / every]; NULL: by 1. */
static void scale_queries(const struct heads_job *job, int H, const float *scales, int every,
                          int m) {
    size_t width = (size_t)H * (size_t)job->kv->D;
    float *q = job->q + (size_t)m * width;
    if (!scales) return;
    float scale = scales[job->cpu->step->position[m] / every];
    for (size_t i = 0; i < width; i++) q[i] = q[i] * scale;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* A key is spread over its block, one element per line of B positions. A value is contiguous.
 * `values` is NULL if values are a part of the keys. */
static void write_floats(const struct heads_job *job, uint8_t *keys, uint8_t *values, int offset,
                         const float *k, const float *v) {
    size_t B = (size_t)job->kv->B, D = (size_t)job->kv->D, element = job->kv->element_bytes;
    keys += (size_t)offset * element;
    if (values) values += (size_t)offset * (size_t)job->kv->D_value_padded * element;
    if (element == 4) {
        for (size_t d = 0; d < D; d++) memcpy(keys + 4 * d * B, k + d, 4);
        if (values) memcpy(values, v, D * 4);
        return;
    }
    uint16_t halves[AT_ONCE];
    for (size_t d = 0; d < D; d += AT_ONCE) {
        size_t n = D - d < AT_ONCE ? D - d : AT_ONCE;
        job->cpu->path->to_halves(halves, k + d, n);
        for (size_t i = 0; i < n; i++) memcpy(keys + 2 * (d + i) * B, halves + i, 2);
        if (!values) continue;
        job->cpu->path->to_halves(halves, v + d, n);
        memcpy(values + 2 * d, halves, 2 * n);
    }
}

/* Writes one code of one or two bytes. */
static inline void put_code(uint8_t *codes, size_t i, int16_t code, bool bytes) {
    if (bytes)
        codes[i] = (uint8_t)(int8_t)code;
    else
        memcpy(codes + 2 * i, &code, 2);
}

/* Number d of a key is half d % 2 of line d / 2. Position `offset` of a value is half offset % 2 of
 * row offset / 2. The padding after D is never written: the memory is zeroed at allocation. */
static void write_codes(const struct heads_job *job, uint8_t *keys, uint8_t *values, int offset,
                        const float *k, const float *v) {
    const struct kv_kind *kv = job->kv;
    size_t B = (size_t)kv->B, at = (size_t)offset;
    size_t row = at / 2 * 2 * (size_t)kv->D_value_padded + at % 2, length = (size_t)kv->D;
    bool bytes = kv->element_bytes == 1;
    int max_code = bytes ? INT8_MAX : KEPT_CODES;
    int16_t codes[AT_ONCE];
    float scales[AT_ONCE / SCALED];
    for (size_t d = 0; d < length; d += AT_ONCE) {
        size_t n = length - d < AT_ONCE ? length - d : AT_ONCE;
        size_t n_scales = (n + SCALED - 1) / SCALED;
        float *key_scales = (float *)(keys + kv->head_key_codes) + d / SCALED * B + at;
        job->cpu->path->to_codes(codes, scales, k + d, (int)n, max_code);
        for (size_t i = 0; i < n; i++)
            put_code(keys, ((d + i) / 2 * B + at) * 2 + i % 2, codes[i], bytes);
        for (size_t i = 0; i < n_scales; i++) key_scales[i * B] = scales[i];
        if (!values) continue;
        float *value_scales = (float *)(values + kv->head_value_codes) + d / SCALED * B + at;
        job->cpu->path->to_codes(codes, scales, v + d, (int)n, max_code);
        for (size_t i = 0; i < n; i++) put_code(values, row + 2 * (d + i), codes[i], bytes);
        for (size_t i = 0; i < n_scales; i++) value_scales[i * B] = scales[i];
    }
}

/* Writes the keys and values of row m. */
static void write_row(const struct heads_job *job, int m) {
    const struct kv_kind *kv = job->kv;
    int slot = kv_slots(kv, job->cpu->step)[m];
    int block = slot / kv->B, offset = slot % kv->B;
    assert(slot >= 0 && block < kv->n_blocks);
    for (int g = 0; g < kv->G; g++) {
        size_t at = ((size_t)m * (size_t)kv->G + (size_t)g) * (size_t)kv->D;
        uint8_t *keys = kv_head_keys(kv, job->place, block, g);
        uint8_t *values = kv->shares ? NULL : kv_head_values(kv, job->place, block, g);
        (kv->coded ? write_codes : write_floats)(job, keys, values, offset, job->k + at,
                                                 values ? job->v + at : NULL);
    }
}

static void rope_write_piece(void *arg, int i, int thread) {
    (void)thread;
    const struct heads_job *job = arg;
    const struct heads *heads = job->heads;
    for (int m = i * ROWS_AT_ONCE; m < piece_end(job->cpu, i, ROWS_AT_ONCE); m++) {
        norm_and_rotate(job, job->q, heads->q_gain, heads->q_bias, heads->H, m);
        scale_queries(job, heads->H, heads->q_scale, heads->q_scale_every, m);
        if (!job->k) continue;
        make_values(job, m);
        norm_and_rotate(job, job->k, heads->k_gain, heads->k_bias, job->kv->G, m);
        write_row(job, m);
    }
}

void op_rope_write(struct backend *b, struct kv_cache *cache, int layer, const struct heads *heads,
                   float *q, float *k, float *v) {
    struct cpu *cpu = cpu_of(b);
    const struct rope *rope = &heads->rope;
    assert(layer >= 0 && layer < cache->config.L);
    const struct kv_kind *kv = kv_kind(cache, layer);
    assert(kv->D <= cpu->max_d && rope->D_rope <= kv->D && rope->D_rope % 2 == 0);
    assert(!k || !heads->q_gain == !heads->k_gain);
    assert(!heads->q_bias == (heads->norms != HEAD_NORMS_LAYER));
    assert(!k == !v && (!heads->q_scale || heads->q_scale_every > 1));
    struct heads_job job = {.cpu = cpu,
                            .kv = kv,
                            .place = cache->layer[layer].place,
                            .heads = heads,
                            .q = q,
                            .k = k,
                            .v = v};
    assert(!kv->shares);
    if (rope->D_rope > 0) job.angles = angles(cpu, rope);
    pool_run(cpu->pool, rope_write_piece, &job, pieces(cpu, ROWS_AT_ONCE));
}

/* ---- latent attention ----------------------------------------------------------------------- */

/* Copies the rotated numbers of a row's queries to the end of its heads in q, and rotates them. */
static void rotate_latent_queries(const struct heads_job *job, int m) {
    const struct latent *l = job->latent;
    const size_t D_rope = (size_t)l->rope.D_rope, H = (size_t)l->H, D = (size_t)job->kv->D;
    const size_t from = (size_t)l->D_unrotated + D_rope;
    const float *x = job->from + (size_t)m * H * from + l->D_unrotated;
    float *q = job->q + (size_t)m * H * D + l->rank;
    for (size_t h = 0; h < H; h++) memcpy(q + h * D, x + h * from, D_rope * sizeof *q);
    job->cpu->path->rope(q, l->H, job->kv->D, l->rope.D_rope,
                         job->angles->cosine + (size_t)m * D_rope / 2,
                         job->angles->sine + (size_t)m * D_rope / 2, l->rope.layout);
}

static void latent_piece(void *arg, int i, int thread) {
    (void)thread;
    const struct heads_job *job = arg;
    const struct latent *l = job->latent;
    const size_t pairs = (size_t)l->rope.D_rope / 2;
    for (int m = i * ROWS_AT_ONCE; m < piece_end(job->cpu, i, ROWS_AT_ONCE); m++) {
        float *k = job->k + (size_t)m * (size_t)job->kv->D;
        rotate_latent_queries(job, m);
        scale_queries(job, l->H, l->q_scale, l->q_scale_every, m);
        path_norm(job->cpu->path, k, k, &l->norm, l->rank);
        job->cpu->path->rope(k + l->rank, 1, job->kv->D, l->rope.D_rope,
                             job->angles->cosine + (size_t)m * pairs,
                             job->angles->sine + (size_t)m * pairs, l->rope.layout);
        write_row(job, m);
    }
}

void op_latent_write(struct backend *b, struct kv_cache *cache, int layer,
                     const struct latent *latent, float *q, const float *from, float *k) {
    struct cpu *cpu = cpu_of(b);
    assert(layer >= 0 && layer < cache->config.L);
    const struct kv_kind *kv = kv_kind(cache, layer);
    assert(kv->shares && kv->G == 1 && kv->D_value == latent->rank && kv->D <= cpu->max_d);
    assert(latent->rope.D_rope > 0 && latent->rank + latent->rope.D_rope == kv->D);
    assert(!latent->q_scale || latent->q_scale_every > 1);
    struct heads_job job = {.cpu = cpu,
                            .kv = kv,
                            .place = cache->layer[layer].place,
                            .angles = angles(cpu, &latent->rope),
                            .q = q,
                            .k = k,
                            .latent = latent,
                            .from = from};
    pool_run(cpu->pool, latent_piece, &job, pieces(cpu, ROWS_AT_ONCE));
}
