/* Ops on rows. The path's function computes each row, on any thread. If there are only a few rows,
 * the caller's thread computes them, because a hand-over would cost more. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { PIECE = 4096 }; /* numbers worth a hand-over to another thread: about a microsecond */

struct rows_job {
    struct cpu *cpu;
    float *x, *y;
    const float *other; /* the second input of a join */
    const struct join *join;
    const struct spread *spread;
    const struct embedding *embedding;
    const struct norm *norm;
    size_t length; /* length of a row */
    int M, rows;   /* all rows; rows per piece */
};

/* Runs fn on pieces of rows with at least about PIECE numbers. */
static void run_rows(struct rows_job *job, void (*fn)(void *arg, int i, int thread)) {
    assert(job->M >= 0 && job->length > 0);
    if (job->M == 0) return;
    size_t rows = (PIECE + job->length - 1) / job->length;
    job->rows = rows < (size_t)job->M ? (int)rows : job->M;
    pool_run(job->cpu->pool, fn, job, (job->M + job->rows - 1) / job->rows);
}

static int piece_end(const struct rows_job *job, int i) {
    int end = (i + 1) * job->rows;
    return end < job->M ? end : job->M;
}

static void embed_token(const struct rows_job *job, int m, float *y) {
    const struct step *step = job->cpu->step;
    const struct embedding *e = job->embedding;
    int32_t id = e->of_next ? step->next[m] : step->token[m];
    if (id < 0) id = step->sampled[pending_token(id)];
    matrix_row(e->tokens, id, y);
    if (e->scale != 1)
        for (size_t k = 0; k < job->length; k++) y[k] = y[k] * e->scale;
}

static int type_of(const struct rows_job *job, int m) {
    const int32_t *types = job->cpu->step->type;
    int type = types ? types[m] : 0;
    assert(type >= 0 && type < job->embedding->types->N);
    return type;
}

/* y += row `i` of a matrix. `row` is scratch memory. */
static void add_row(const struct rows_job *job, const struct matrix *matrix, int i, float *row,
                    float *y) {
    matrix_row(matrix, i, row);
    for (size_t k = 0; k < job->length; k++) y[k] = y[k] + row[k];
}

static void embed_piece(void *arg, int i, int thread) {
    struct rows_job *job = arg;
    const struct embedding *e = job->embedding;
    float *row = job->cpu->threads[thread].row;
    for (int m = i * job->rows; m < piece_end(job, i); m++) {
        float *y = job->y + (size_t)m * job->length;
        if (e->tokens) embed_token(job, m, y);
        if (e->types) add_row(job, e->types, type_of(job, m), row, y);
        if (e->positions) add_row(job, e->positions, job->cpu->step->position[m], row, y);
        if (e->norm.gain) path_norm(job->cpu->path, y, y, &e->norm, (int)job->length);
    }
}

void op_embed(struct backend *b, float *y, const struct embedding *embedding) {
    struct cpu *cpu = cpu_of(b);
    const struct matrix *tokens = embedding->tokens, *positions = embedding->positions;
    int K = tokens ? tokens->K : positions->K;
    assert(!positions || (positions->K == K && K <= cpu->max_k));
    assert(!embedding->types || (embedding->types->K == K && K <= cpu->max_k));
    struct rows_job job = {
        .cpu = cpu, .y = y, .embedding = embedding, .M = cpu->step->M, .length = (size_t)K};
    run_rows(&job, embed_piece);
}

static void norm_add_piece(void *arg, int i, int thread) {
    struct rows_job *job = arg;
    float *row = job->cpu->threads[thread].row, scale = norm_sum_scale(job->norm);
    for (int m = i * job->rows; m < piece_end(job, i); m++) {
        float *x = job->x + (size_t)m * job->length, *y = job->y + (size_t)m * job->length;
        for (size_t k = 0; k < job->length && job->norm->of_sum; k++) y[k] = x[k] + y[k];
        path_norm(job->cpu->path, row, y, job->norm, (int)job->length);
        for (size_t k = 0; k < job->length; k++) x[k] = (x[k] + row[k]) * scale;
        memset(y, 0, job->length * sizeof *y);
    }
}

void op_norm_add(struct backend *b, float *x, float *y, const struct norm *norm, int M, int K) {
    struct cpu *cpu = cpu_of(b);
    assert(K > 0 && K <= cpu->max_k);
    struct rows_job job = {.cpu = cpu, .x = x, .y = y, .norm = norm, .M = M, .length = (size_t)K};
    run_rows(&job, norm_add_piece);
}

static void hidden_piece(void *arg, int i, int thread) {
    struct rows_job *job = arg;
    (void)thread;
    for (int m = i * job->rows; m < piece_end(job, i); m++) {
        size_t at = (size_t)m * job->length;
        if (job->norm)
            path_norm(job->cpu->path, job->y + at, job->x + at, job->norm, (int)job->length);
        else
            memcpy(job->y + at, job->x + at, job->length * sizeof *job->y);
    }
}

void op_hidden(struct backend *b, float *y, const float *x, const struct norm *norm, int from,
               int R, int K) {
    struct cpu *cpu = cpu_of(b);
    float *first = (float *)x + (size_t)from * (size_t)K; /* it is only read */
    assert(K > 0 && from >= 0 && R >= 0);
    struct rows_job job = {
        .cpu = cpu, .x = first, .y = y, .norm = norm, .M = R, .length = (size_t)K};
    run_rows(&job, hidden_piece);
}

void op_norm(struct backend *b, float *y, const float *x, const struct norm *norm, int M, int K) {
    assert(norm);
    op_hidden(b, y, x, norm, 0, M, K);
}

void op_gather(struct backend *b, float *y, const float *x, int K) {
    const struct step *step = cpu_of(b)->step;
    assert(K > 0 && step->R >= 0 && step->R <= step->M);
    for (int i = 0; i < step->R; i++)
        memcpy(y + (size_t)i * (size_t)K, x + (size_t)step->logit_row[i] * (size_t)K,
               (size_t)K * sizeof *y);
}

void op_recall(struct backend *b, float *y, const float *x, int M, int K) {
    const struct step *step = cpu_of(b)->step;
    assert(K > 0 && M == step->M && step->hidden_row);
    for (int m = 0; m < M; m++)
        memcpy(y + (size_t)m * (size_t)K, x + (size_t)step->hidden_row[m] * (size_t)K,
               (size_t)K * sizeof *y);
}

static void spread_piece(void *arg, int i, int thread) {
    struct rows_job *job = arg;
    const struct spread *spread = job->spread;
    const size_t V = (size_t)spread->V;
    (void)thread;
    for (int m = i * job->rows; m < piece_end(job, i); m++) {
        const float *x = job->x + (size_t)m * job->length;
        float *y = job->y + (size_t)m * V;
        for (size_t id = 0; id < V; id++) y[id] = -INFINITY;
        for (size_t k = 0; k < job->length; k++) y[spread->to[k]] = x[k];
    }
}

void op_spread(struct backend *b, float *y, const float *x, const struct spread *spread, int R,
               int K) {
    assert(K > 0 && R >= 0 && spread->to && spread->V >= K);
    struct rows_job job = {.cpu = cpu_of(b),
                           .x = (float *)x,
                           .y = y,
                           .spread = spread,
                           .M = R,
                           .length = (size_t)K}; /* x is only read */
    run_rows(&job, spread_piece);
}

static void join_piece(void *arg, int i, int thread) {
    struct rows_job *job = arg;
    const int K = (int)job->length;
    const struct join *join = job->join;
    const int32_t *row = join->recalls ? job->cpu->step->hidden_row : NULL;
    (void)thread;
    for (int m = i * job->rows; m < piece_end(job, i); m++) {
        const size_t from = (size_t)m * job->length;
        const float *other = job->other + (size_t)(row ? row[m] : m) * job->length;
        path_norm(job->cpu->path, job->y + 2 * from, job->x + from, &join->norms[0], K);
        path_norm(job->cpu->path, job->y + 2 * from + K, other, &join->norms[1], K);
    }
}

void op_join(struct backend *b, float *y, const float *a, const float *other,
             const struct join *join, int M, int K) {
    struct cpu *cpu = cpu_of(b);
    assert(K > 0 && M >= 0 && join->norms[0].gain && join->norms[1].gain);
    assert(!join->recalls || (M == cpu->step->M && cpu->step->hidden_row));
    struct rows_job job = {.cpu = cpu,
                           .x = (float *)a,
                           .other = other,
                           .y = y,
                           .join = join,
                           .M = M,
                           .length = (size_t)K}; /* a is only read */
    run_rows(&job, join_piece);
}
