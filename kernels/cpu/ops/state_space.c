/* DESIGN: the op of the state space, in two passes over the threads.
 *
 *   scan     a piece is a head of one sequence, with all its rows in the order of the positions.
 *            One thread reads and replaces the head's matrix, one block of columns after the other,
 *            as in ops/delta_rule.c
 *   finish   a piece is some rows: their gates, and the norm over the heads of each group
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { COLUMNS = 128 }; /* of a block: 64 KiB with 128 rows of S */

struct space_job {
    struct cpu *cpu;
    const struct state_space *space;
    struct space_rows rows;
    struct kv_cache *cache;
    int layer;
    int units; /* heads or rows per piece */
    float *y;
};

static size_t width_of(const struct state_space *space) {
    return (size_t)space->Hv * (size_t)space->dv;
}

/* ---- scan ----------------------------------------------------------------------------------- */

/* log(1 + exp(x)), computed in double, within the limits. */
static float step_size(const struct state_space *space, float x) {
    float dt = x > 20.0f ? x : (float)log1p(exp((double)x));
    dt = space->dt_min > dt ? space->dt_min : dt;
    return space->dt_max < dt ? space->dt_max : dt;
}

/* Runs the rows [from, to) of a sequence through a block of columns of a head. */
static void run_columns(const struct space_job *job, float *S, int head, int from, int to,
                        int first) {
    const struct state_space *space = job->space;
    const int group = head / (space->Hv / space->Hk), left = space->dv - first;
    const size_t width = width_of(space), of_groups = (size_t)(space->Hk * space->dk);
    struct state_row row = {.dk = space->dk,
                            .dv = space->dv,
                            .S = S,
                            .skip = space->skip[head],
                            .first = first,
                            .n = left < COLUMNS ? left : COLUMNS};
    for (int m = from; m < to; m++) {
        const float *xbc = job->rows.xbc + (size_t)m * (width + 2 * of_groups);
        const size_t of_head = (size_t)m * (size_t)space->Hv + (size_t)head;
        row.v = xbc + head * space->dv;
        row.k = xbc + width + group * space->dk;
        row.q = row.k + of_groups;
        row.beta = step_size(space, job->rows.dt[of_head] + space->dt_bias[head]);
        row.decay = plain_exp(space->decay[head] * row.beta);
        row.y = job->y + of_head * (size_t)space->dv;
        job->cpu->path->state_row(&row);
    }
}

/* A head's matrix in a state. */
static float *matrix_of(const struct space_job *job, int32_t state, int head) {
    const struct state_space *space = job->space;
    return kv_state(job->cache, state, job->layer) + space->state_first +
           (size_t)head * (size_t)space->dk * (size_t)space->dv;
}

static void run_head(const struct space_job *job, int s, int head) {
    const struct state_space *space = job->space;
    const struct step *step = job->cpu->step;
    const int from = step->row_start[s], to = step->row_start[s + 1];
    const size_t bytes = (size_t)space->dk * (size_t)space->dv * sizeof(float);
    float *S = matrix_of(job, step->state[s], head);
    if (step->position[from] == 0) memset(S, 0, bytes);
    for (int row = from, end; row < to; row = end) {
        end = state_rows_end(step, row, to);
        for (int first = 0; first < space->dv; first += COLUMNS)
            run_columns(job, S, head, row, end, first);
        if (step->state_after && step->state_after[end - 1] >= 0)
            memcpy(matrix_of(job, step->state_after[end - 1], head), S, bytes);
    }
}

static void scan_piece(void *arg, int i, int thread) {
    const struct space_job *job = arg;
    const int Hv = job->space->Hv, all = job->cpu->step->S * Hv, end = (i + 1) * job->units;
    (void)thread;
    for (int unit = i * job->units; unit < end && unit < all; unit++)
        run_head(job, unit / Hv, unit % Hv);
}

/* ---- finish --------------------------------------------------------------------------------- */

/* y = the norm of from, over the numbers of each group. */
static void norm_groups(const struct space_job *job, float *y, const float *from) {
    const struct state_space *space = job->space;
    const int each = space->Hv / space->Hk * space->dv;
    for (int g = 0; g < space->Hk; g++)
        job->cpu->path->rmsnorm(y + g * each, from + g * each, space->gain + g * each, each,
                                space->epsilon);
}

static void finish_row(const struct space_job *job, int m) {
    const struct state_space *space = job->space;
    const size_t width = width_of(space);
    float *y = job->y + (size_t)m * width, *z = job->rows.z + (size_t)m * width;
    if (space->gain && space->norms_first) norm_groups(job, y, y);
    job->cpu->path->activate(z, y, width, ACTIVATION_SILU);
    if (space->gain && !space->norms_first)
        norm_groups(job, y, z);
    else
        memcpy(y, z, width * sizeof *y);
}

static void finish_piece(void *arg, int i, int thread) {
    const struct space_job *job = arg;
    const int end = (i + 1) * job->units, M = job->cpu->step->M;
    (void)thread;
    for (int m = i * job->units; m < end && m < M; m++) finish_row(job, m);
}

static void run_pieces(struct space_job *job, void (*piece)(void *, int, int), int64_t products,
                       int units) {
    job->units = piece_units(job->cpu, products, units);
    pool_run(job->cpu->pool, piece, job, (units + job->units - 1) / job->units);
}

void op_state_space(struct backend *b, float *y, const struct space_rows *rows,
                    struct kv_cache *cache, int layer, const struct state_space *space) {
    struct cpu *cpu = cpu_of(b);
    const struct step *step = cpu->step;
    const int64_t of_head = (int64_t)space->dk * space->dv;
    assert(step->state && layer >= 0 && layer < cache->config.state_layers);
    assert(space->Hk > 0 && space->Hv % space->Hk == 0 && space->dv % DELTA_QUANTUM == 0);
    assert(space->dk <= MAX_DELTA_HEAD && space->dv <= MAX_DELTA_HEAD);
    assert(space->state_first + space->Hv * of_head <= cache->config.state_floats);
    if (step->M == 0) return;
    struct space_job job = {
        .cpu = cpu, .space = space, .rows = *rows, .cache = cache, .layer = layer, .y = y};
    run_pieces(&job, scan_piece, 2 * of_head * (step->M / step->S), step->S * space->Hv);
    run_pieces(&job, finish_piece, 16 * (int64_t)width_of(space), step->M);
}
