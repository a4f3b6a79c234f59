/* DESIGN: the op of the gated delta rule, in two passes over the threads.
 *
 *   prepare   a piece is some rows: q and k of all key heads are divided by their lengths, b
 *             becomes beta, and dt becomes g, of each head or of each of its channels, all in place
 *   rule      a piece is a value head of one sequence, with all its rows in the order of the
 *             positions, then the norm and the gate of each row. One thread reads and replaces the
 *             head's matrix, one block of columns after the other:
 *
 *                 columns  0 .. 127 | 128 .. 255
 *                 row 0    1        | 4         a block goes through all rows of the step before
 *                 row 1    2        | 5         the next block does: it stays in the second cache
 *                 row 2    3        | 6
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { COLUMNS = 128 }; /* of a block: 64 KiB with 128 rows of S */

struct delta_job {
    struct cpu *cpu;
    const struct delta_rule *rule;
    struct delta_rows rows;
    struct kv_cache *cache;
    int layer;
    int units;                    /* rows or heads per piece */
    float q_gain[MAX_DELTA_HEAD]; /* gains of the norms that divide by the length */
    float k_gain[MAX_DELTA_HEAD];
    float *y;
};

/* The places of a row's q, k and v. */
struct delta_row {
    float *q, *k, *v;
};

static struct delta_row row_of(const struct delta_job *job, int m) {
    const struct delta_rows *rows = &job->rows;
    const size_t keys = (size_t)(job->rule->Hk * job->rule->dk), row = (size_t)m;
    const size_t values = (size_t)(job->rule->Hv * job->rule->dv);
    assert(!rows->k == !rows->v);
    if (rows->k)
        return (struct delta_row){rows->qkv + row * keys, rows->k + row * keys,
                                  rows->v + row * values};
    float *q = rows->qkv + row * (2 * keys + values);
    return (struct delta_row){q, q + keys, q + 2 * keys};
}

/* The decays of a head and row: 1, or with by_channel dk. */
static int decays_of(const struct delta_rule *rule) {
    return rule->by_channel ? rule->dk : 1;
}

/* ---- prepare -------------------------------------------------------------------------------- */

/* log(1 + exp(x)), computed in double. */
static float softplus(float x) {
    return x > 20.0f ? x : (float)log1p(exp((double)x));
}

/* The norm of q includes the factor 1 / sqrt(dk) of o. */
static void set_gains(struct delta_job *job) {
    const int dk = job->rule->dk;
    for (int i = 0; i < dk; i++) {
        job->k_gain[i] = 1.0f / sqrtf((float)dk);
        job->q_gain[i] = 1.0f / (float)dk;
    }
}

static void prepare_row(const struct delta_job *job, int m) {
    const struct delta_rule *rule = job->rule;
    const int dk = rule->dk;
    const float epsilon = 1e-6f / (float)dk;
    const int of_head = decays_of(rule), all = rule->Hv * of_head;
    const struct delta_row row = row_of(job, m);
    float *b = job->rows.b + (size_t)m * (size_t)rule->Hv;
    float *dt = job->rows.dt + (size_t)m * (size_t)all;
    for (int h = 0; h < rule->Hk; h++) {
        float *q = row.q + h * dk, *k = row.k + h * dk;
        job->cpu->path->rmsnorm(q, q, job->q_gain, dk, epsilon);
        job->cpu->path->rmsnorm(k, k, job->k_gain, dk, epsilon);
    }
    for (int h = 0; h < rule->Hv; h++) b[h] = 1.0f / (1.0f + plain_exp(-b[h]));
    for (int i = 0; i < all; i++)
        dt[i] = plain_exp(rule->decay[i / of_head] * softplus(dt[i] + rule->dt_bias[i]));
}

static void prepare_piece(void *arg, int i, int thread) {
    const struct delta_job *job = arg;
    const int end = (i + 1) * job->units, M = job->cpu->step->M;
    (void)thread;
    for (int m = i * job->units; m < end && m < M; m++) prepare_row(job, m);
}

/* ---- rule ----------------------------------------------------------------------------------- */

/* Runs the rows [from, to) of a sequence through a block of columns of a head. */
static void run_columns(const struct delta_job *job, float *S, int head, int from, int to,
                        int first) {
    const struct delta_rule *rule = job->rule;
    const int key = rule->tiles ? head % rule->Hk : head / (rule->Hv / rule->Hk);
    const int left = rule->dv - first;
    struct state_row row = {.dk = rule->dk,
                            .dv = rule->dv,
                            .S = S,
                            .corrects = true,
                            .first = first,
                            .n = left < COLUMNS ? left : COLUMNS};
    for (int m = from; m < to; m++) {
        const struct delta_row of = row_of(job, m);
        const size_t of_head = (size_t)m * (size_t)rule->Hv + (size_t)head;
        const float *decays = job->rows.dt + of_head * (size_t)decays_of(rule);
        row.q = of.q + key * rule->dk;
        row.k = of.k + key * rule->dk;
        row.v = of.v + head * rule->dv;
        row.beta = job->rows.b[of_head];
        row.decay = *decays;
        row.decays = rule->by_channel ? decays : NULL;
        row.y = job->y + of_head * (size_t)rule->dv;
        job->cpu->path->state_row(&row);
    }
}

/* y = norm(y) * SiLU(z) or * sigmoid(z) in a head of the rows [from, to). */
static void norm_rows(const struct delta_job *job, int head, int from, int to) {
    const struct delta_rule *rule = job->rule;
    const struct path *path = job->cpu->path;
    for (int m = from; m < to; m++) {
        const size_t at = ((size_t)m * (size_t)rule->Hv + (size_t)head) * (size_t)rule->dv;
        float *y = job->y + at, *z = job->rows.z + at;
        path->rmsnorm(y, y, rule->gain, rule->dv, rule->epsilon);
        if (rule->by_sigmoid) {
            path->gate(y, z, (size_t)rule->dv);
            continue;
        }
        path->activate(z, y, (size_t)rule->dv, ACTIVATION_SILU);
        memcpy(y, z, (size_t)rule->dv * sizeof *y);
    }
}

/* A head's matrix in a state. */
static float *matrix_of(const struct delta_job *job, int32_t state, int head) {
    const struct delta_rule *rule = job->rule;
    return kv_state(job->cache, state, job->layer) + rule->state_first +
           (size_t)head * (size_t)rule->dk * (size_t)rule->dv;
}

static void run_head(const struct delta_job *job, int s, int head) {
    const struct delta_rule *rule = job->rule;
    const struct step *step = job->cpu->step;
    const int from = step->row_start[s], to = step->row_start[s + 1];
    const size_t bytes = (size_t)rule->dk * (size_t)rule->dv * sizeof(float);
    float *S = matrix_of(job, step->state[s], head);
    if (step->position[from] == 0) memset(S, 0, bytes);
    for (int row = from, end; row < to; row = end) {
        end = state_rows_end(step, row, to);
        for (int first = 0; first < rule->dv; first += COLUMNS)
            run_columns(job, S, head, row, end, first);
        if (step->state_after && step->state_after[end - 1] >= 0)
            memcpy(matrix_of(job, step->state_after[end - 1], head), S, bytes);
    }
    norm_rows(job, head, from, to);
}

static void rule_piece(void *arg, int i, int thread) {
    const struct delta_job *job = arg;
    const int Hv = job->rule->Hv, all = job->cpu->step->S * Hv, end = (i + 1) * job->units;
    (void)thread;
    for (int unit = i * job->units; unit < end && unit < all; unit++)
        run_head(job, unit / Hv, unit % Hv);
}

static void run_pieces(struct delta_job *job, void (*piece)(void *, int, int), int64_t products,
                       int units) {
    job->units = piece_units(job->cpu, products, units);
    pool_run(job->cpu->pool, piece, job, (units + job->units - 1) / job->units);
}

void op_delta_rule(struct backend *b, float *y, const struct delta_rows *rows,
                   struct kv_cache *cache, int layer, const struct delta_rule *rule) {
    struct cpu *cpu = cpu_of(b);
    const struct step *step = cpu->step;
    const int64_t of_head = (int64_t)rule->dk * rule->dv;
    assert(step->state && layer >= 0 && layer < cache->config.state_layers);
    assert(rule->Hk > 0 && rule->Hv % rule->Hk == 0 && rule->dv % DELTA_QUANTUM == 0);
    assert(rule->dk <= MAX_DELTA_HEAD && rule->dv <= MAX_DELTA_HEAD);
    assert(rule->state_first + rule->Hv * of_head <= cache->config.state_floats);
    if (step->M == 0) return;
    struct delta_job job = {
        .cpu = cpu, .rule = rule, .rows = *rows, .cache = cache, .layer = layer, .y = y};
    set_gains(&job);
    const int gates = rule->Hv * (3 + decays_of(rule));
    run_pieces(&job, prepare_piece, 16LL * (rule->Hk * rule->dk + gates), step->M);
    run_pieces(&job, rule_piece, 3 * of_head * (step->M / step->S), step->S * rule->Hv);
}
