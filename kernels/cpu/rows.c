/* Ops on rows: each row is computed by the path's function, on whichever thread. Few rows are not
 * worth a hand-over and stay on the caller's thread. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    PIECE = 4096
}; /* numbers that are worth a hand-over to another thread: about a microsecond */

struct rows_job {
    struct cpu *cpu;
    float *y;
    const float *x, *more; /* more: gain, up, or cosines */
    const struct matrix *w;
    size_t length; /* of a row */
    int M, rows;   /* rows in all, and in one piece */
    float epsilon;
    int heads, D;
    struct rope_table *table;
    const float *inv_freq;
    enum rope_layout layout;
};

/* Runs fn on pieces of rows that hold about PIECE numbers or more. */
static void run_rows(struct rows_job *job, void (*fn)(void *arg, int i, int thread)) {
    if (job->M == 0) return;
    size_t rows = (PIECE + job->length - 1) / job->length;
    job->rows = rows < (size_t)job->M ? (int)rows : job->M;
    pool_run(job->cpu->pool, fn, job, (job->M + job->rows - 1) / job->rows);
}

static int piece_end(const struct rows_job *job, int i) {
    int end = (i + 1) * job->rows;
    return end < job->M ? end : job->M;
}

static void embed_piece(void *arg, int i, int thread) {
    (void)thread;
    struct rows_job *job = arg;
    const struct step *step = job->cpu->step;
    for (int m = i * job->rows; m < piece_end(job, i); m++) {
        int32_t id = step->token[m];
        if (id < 0) id = step->sampled[late_token(id)];
        matrix_row(job->w, id, job->y + (size_t)m * job->length);
    }
}

void op_embed(struct backend *b, float *y, const struct matrix *embedding) {
    struct cpu *cpu = cpu_of(b);
    struct rows_job job = {
        .cpu = cpu, .y = y, .w = embedding, .M = cpu->step->M, .length = (size_t)embedding->K};
    run_rows(&job, embed_piece);
}

static void rmsnorm_piece(void *arg, int i, int thread) {
    (void)thread;
    struct rows_job *job = arg;
    for (int m = i * job->rows; m < piece_end(job, i); m++) {
        size_t at = (size_t)m * job->length;
        job->cpu->path->rmsnorm(job->y + at, job->x + at, job->more, (int)job->length,
                                job->epsilon);
    }
}

void op_rmsnorm(struct backend *b, float *y, const float *x, const float *gain, int M, int K,
                float epsilon) {
    struct rows_job job = {.cpu = cpu_of(b),
                           .y = y,
                           .x = x,
                           .more = gain,
                           .M = M,
                           .length = (size_t)K,
                           .epsilon = epsilon};
    run_rows(&job, rmsnorm_piece);
}

static void silu_gate_piece(void *arg, int i, int thread) {
    (void)thread;
    struct rows_job *job = arg;
    size_t from = (size_t)i * (size_t)job->rows * job->length;
    size_t to = (size_t)piece_end(job, i) * job->length;
    job->cpu->path->silu_gate(job->y + from, job->x + from, job->more + from, to - from);
}

void op_silu_gate(struct backend *b, float *y, const float *gate, const float *up, int M, int F) {
    struct rows_job job = {
        .cpu = cpu_of(b), .y = y, .x = gate, .more = up, .M = M, .length = (size_t)F};
    run_rows(&job, silu_gate_piece);
}

static void add_piece(void *arg, int i, int thread) {
    (void)thread;
    struct rows_job *job = arg;
    size_t from = (size_t)i * (size_t)job->rows * job->length;
    size_t to = (size_t)piece_end(job, i) * job->length;
    job->cpu->path->add(job->y + from, job->x + from, to - from);
}

void op_add(struct backend *b, float *x, const float *y, int M, int K) {
    struct rows_job job = {.cpu = cpu_of(b), .y = x, .x = y, .M = M, .length = (size_t)K};
    run_rows(&job, add_piece);
}

void op_gather(struct backend *b, float *y, const float *x, int K) {
    const struct step *step = cpu_of(b)->step;
    for (int i = 0; i < step->R; i++)
        memcpy(y + (size_t)i * (size_t)K, x + (size_t)step->logit_row[i] * (size_t)K,
               (size_t)K * sizeof *y);
}

/* ---- RoPE ----------------------------------------------------------------------------------- */

/* The angle is the float product of position and frequency; its cosine and sine are taken in
 * double and rounded once, so that they do not depend on a single-precision library. A step's
 * angles are made at their first use and serve all its layers. */

static void angles_piece(void *arg, int i, int thread) {
    (void)thread;
    struct rows_job *job = arg;
    for (int m = i * job->rows; m < piece_end(job, i); m++) {
        float *cosine = job->table->cosine + (size_t)m * job->length;
        float *sine = job->table->sine + (size_t)m * job->length;
        for (size_t p = 0; p < job->length; p++) {
            float angle = (float)job->cpu->step->position[m] * job->inv_freq[p];
            cosine[p] = (float)cos((double)angle);
            sine[p] = (float)sin((double)angle);
        }
    }
}

/* The step's angles for these frequencies. Tables are replaced in turn when a model has more lists
 * than that. */
static struct rope_table *angles(struct cpu *cpu, const float *inv_freq, int pairs) {
    for (int i = 0; i < ROPE_TABLES; i++)
        if (cpu->rope[i].inv_freq == inv_freq && cpu->rope[i].pairs == pairs) return &cpu->rope[i];
    struct rope_table *table = &cpu->rope[cpu->n_rope++ % ROPE_TABLES];
    table->inv_freq = inv_freq;
    table->pairs = pairs;
    struct rows_job job = {.cpu = cpu,
                           .table = table,
                           .inv_freq = inv_freq,
                           .M = cpu->step->M,
                           .length = (size_t)pairs};
    run_rows(&job, angles_piece);
    return table;
}

static void rope_piece(void *arg, int i, int thread) {
    (void)thread;
    struct rows_job *job = arg;
    size_t pairs = (size_t)job->table->pairs;
    for (int m = i * job->rows; m < piece_end(job, i); m++)
        job->cpu->path->rope(job->y + (size_t)m * job->length, job->heads, job->D, 2 * (int)pairs,
                             job->table->cosine + (size_t)m * pairs,
                             job->table->sine + (size_t)m * pairs, job->layout);
}

void op_rope(struct backend *b, float *x, int heads, int D, int D_rope, const float *inv_freq,
             enum rope_layout layout) {
    struct cpu *cpu = cpu_of(b);
    assert(D <= cpu->max_d && D_rope <= D && D_rope % 2 == 0);
    if (D_rope == 0 || heads == 0) return;
    struct rows_job job = {.cpu = cpu,
                           .y = x,
                           .M = cpu->step->M,
                           .heads = heads,
                           .D = D,
                           .length = (size_t)heads * (size_t)D,
                           .layout = layout};
    job.table = angles(cpu, inv_freq, D_rope / 2);
    run_rows(&job, rope_piece);
}
