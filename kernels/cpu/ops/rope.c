/* Processes heads between their product and attention. Queries and keys are normalised if the model
 * has such norms, and rotated by their positions (RoPE). Queries are scaled. Keys and values are
 * written to the cache. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    LEAST_AT_ONCE = 2, /* rows of a piece: a row of a new block misses the caches in each line */
    PIECES_A_THREAD = 4,
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
    int at_once;       /* rows of a piece, before whole runs are taken */
};

/* One past the last row of piece i, which starts at i * at_once. */
static int piece_end(const struct cpu *cpu, int i, int at_once) {
    int end = (i + 1) * at_once;
    return end < cpu->step->M ? end : cpu->step->M;
}

static int pieces(const struct cpu *cpu, int at_once) {
    return (cpu->step->M + at_once - 1) / at_once;
}

/* Rows of a piece: some pieces for each thread, and at most a run. */
static int rows_at_once(const struct cpu *cpu) {
    int rows = cpu->step->M / (PIECES_A_THREAD * pool_threads(cpu->pool));
    if (rows > MAX_KV_ROWS) return MAX_KV_ROWS;
    return rows < LEAST_AT_ONCE ? LEAST_AT_ONCE : rows;
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

/* Rows at adjacent positions of a block, from one aligned group of MAX_KV_ROWS positions, are one
 * run. One piece writes a whole run: the cache lines of its keys and the pairs of its values belong
 * to one thread. */

/* Is row m at the position after row m - 1, in the same run? */
static bool continues_run(const struct kv_kind *kv, const int32_t *slots, int m) {
    return m > 0 && slots[m] == slots[m - 1] + 1 && slots[m] % kv->B % MAX_KV_ROWS != 0;
}

/* One past the last row of the run that begins at row m. */
static int run_end(const struct heads_job *job, int m) {
    const int32_t *slots = kv_slots(job->kv, job->cpu->step);
    int end = m + 1;
    while (end < job->cpu->step->M && continues_run(job->kv, slots, end)) end++;
    assert(end - m <= MAX_KV_ROWS);
    return end;
}

/* The first row of piece i: the first row of a run, or M. */
static int piece_begin(const struct heads_job *job, int i, int at_once) {
    int m = i * at_once, M = job->cpu->step->M;
    if (m >= M) return M;
    const int32_t *slots = kv_slots(job->kv, job->cpu->step);
    while (m < M && continues_run(job->kv, slots, m)) m++;
    return m;
}

/* One key-value head's part of a run. */
static struct kv_rows rows_of_head(const struct heads_job *job, int m, int n, int g) {
    const struct kv_kind *kv = job->kv;
    int slot = kv_slots(kv, job->cpu->step)[m], block = slot / kv->B;
    size_t at = ((size_t)m * (size_t)kv->G + (size_t)g) * (size_t)kv->D;
    assert(slot >= 0 && block < kv->n_blocks);
    return (struct kv_rows){.kv = kv,
                            .keys = kv_head_keys(kv, job->place, block, g),
                            .values = kv->shares ? NULL : kv_head_values(kv, job->place, block, g),
                            .offset = slot % kv->B,
                            .n = n,
                            .k = job->k + at,
                            .v = kv->shares ? NULL : job->v + at,
                            .stride = (size_t)kv->G * (size_t)kv->D};
}

/* Requests the cache lines of row m's keys and values before they are written: a key alone touches
 * one line for each pair of its numbers. */
static void fetch_row(const struct heads_job *job, int m) {
    const struct kv_kind *kv = job->kv;
    const size_t at = (size_t)(kv_slots(kv, job->cpu->step)[m] % kv->B);
    const size_t element = kv->coded ? 2 * kv->element_bytes : kv->element_bytes;
    const size_t line = (size_t)kv->B * element, value_row = (size_t)kv->D_value_padded * element;
    for (int g = 0; g < kv->G; g++) {
        const struct kv_rows rows = rows_of_head(job, m, 1, g);
        const uint8_t *key = rows.keys + at * element, *value = rows.values;
        for (size_t i = 0; i < kv->head_key_codes; i += line) __builtin_prefetch(key + i, 1);
        if (!value) continue;
        value += (kv->coded ? at / 2 : at) * value_row;
        for (size_t i = 0; i < value_row; i += 64) __builtin_prefetch(value + i, 1);
    }
}

/* Writes the keys and values of the rows from..end-1, a run. */
static void write_run(const struct heads_job *job, int from, int end) {
    for (int g = 0; g < job->kv->G; g++) {
        const struct kv_rows rows = rows_of_head(job, from, end - from, g);
        job->cpu->path->write_kv(&rows);
    }
}

/* Prepares the rows of a piece and writes them run by run. */
static void write_piece(const struct heads_job *job, int i, int at_once,
                        void (*prepare)(const struct heads_job *job, int m)) {
    const int end = piece_begin(job, i + 1, at_once);
    for (int from = piece_begin(job, i, at_once); from < end;) {
        const int to = run_end(job, from);
        if (job->k && to == from + 1) fetch_row(job, from);
        for (int m = from; m < to; m++) prepare(job, m);
        if (job->k) write_run(job, from, to);
        from = to;
    }
}

static void prepare_row(const struct heads_job *job, int m) {
    const struct heads *heads = job->heads;
    norm_and_rotate(job, job->q, heads->q_gain, heads->q_bias, heads->H, m);
    scale_queries(job, heads->H, heads->q_scale, heads->q_scale_every, m);
    if (!job->k) return;
    make_values(job, m);
    norm_and_rotate(job, job->k, heads->k_gain, heads->k_bias, job->kv->G, m);
}

static void rope_write_piece(void *arg, int i, int thread) {
    (void)thread;
    const struct heads_job *job = arg;
    write_piece(job, i, job->at_once, prepare_row);
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
                            .v = v,
                            .at_once = rows_at_once(cpu)};
    assert(!kv->shares);
    if (rope->D_rope > 0) job.angles = angles(cpu, rope);
    pool_run(cpu->pool, rope_write_piece, &job, pieces(cpu, job.at_once));
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

static void prepare_latent(const struct heads_job *job, int m) {
    const struct latent *l = job->latent;
    const size_t pairs = (size_t)l->rope.D_rope / 2;
    float *k = job->k + (size_t)m * (size_t)job->kv->D;
    rotate_latent_queries(job, m);
    scale_queries(job, l->H, l->q_scale, l->q_scale_every, m);
    path_norm(job->cpu->path, k, k, &l->norm, l->rank);
    job->cpu->path->rope(k + l->rank, 1, job->kv->D, l->rope.D_rope,
                         job->angles->cosine + (size_t)m * pairs,
                         job->angles->sine + (size_t)m * pairs, l->rope.layout);
}

static void latent_piece(void *arg, int i, int thread) {
    (void)thread;
    const struct heads_job *job = arg;
    write_piece(job, i, job->at_once, prepare_latent);
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
                            .from = from,
                            .at_once = rows_at_once(cpu)};
    pool_run(cpu->pool, latent_piece, &job, pieces(cpu, job.at_once));
}
