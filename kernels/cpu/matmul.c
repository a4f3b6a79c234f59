/* DESIGN: the products' work lists.
 *
 * A job is one pass over matrices of the same inputs. Panels (or pairs of them, below) are handed
 * out; a piece is some of them times a group of tiles, so that a panel stays in the nearest cache
 * while all rows of the group pass by.
 *
 * Inputs are made from the rows they come from in one of two ways. One tile: each thread makes all
 * of it for itself at its first piece of the job, which takes no hand-over, and no line of it moves
 * from one core's cache to another's. More tiles: they are handed out first, and shared.
 *
 * What is done with a panel's outputs decides what a job is: they are stored; or added to a sum; or
 * they are gates with the inputs that they let through, whose product becomes 32 inputs of the next
 * job in the thread that computed them. There the unit of work is two panels of each. */
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    PIECES_A_THREAD = 12,      /* so that a late thread is not waited for long */
    TINY_PRODUCTS = 128 << 10, /* multiply-adds not worth a hand-over: a microsecond */
    PIECE_PRODUCTS = 4 << 20,  /* of the largest piece of several units: 20 to 40 microseconds */
    PAIR = BLOCK / LANES,      /* panels that make a block of the next product's inputs */
    OUTPUTS = GROUP * LANES * BLOCK, /* floats of one half of a thread's outputs */
};

struct job {
    struct cpu *cpu;
    /* where the inputs come from: rows, or what an earlier job left in `inputs` */
    const float *x;
    const struct norm *norm;
    struct activations *inputs; /* shared by the threads */
    bool own;                   /* each thread makes its own instead */
    struct matrix *const *w;
    float *const *y; /* of each matrix: where outputs go */
    int n, M, K;
    void (*unit)(const struct job *job, const struct activations *a, int unit, int group,
                 struct thread_scratch *scratch);
    int units, unit_panels;  /* what is handed out, of how many panels each */
    int piece_units, pieces; /* units of a piece, and pieces of one group of tiles */
};

/* ---- a panel times tiles -------------------------------------------------------------------- */

/* The tiles of a group are from group * GROUP to before this. */
static int group_end(int M, int group) {
    int end = (group + 1) * GROUP;
    return end < tiles_of(M) ? end : tiles_of(M);
}

static int group_rows(int M, int group) {
    int left = M - group * GROUP * LANES;
    return left < GROUP * LANES ? left : GROUP * LANES;
}

/* y[r * stride + lane] for the rows of a group; y begins at its first row. */
static void panel_times_group(const struct job *job, const struct activations *a,
                              const struct matrix *w, int panel, int group, float *y,
                              size_t stride) {
    const struct path *path = job->cpu->path;
    int from = group * GROUP, end = group_end(job->M, group);
    if (path->group && path->group(w, panel, a, from, end, y, stride)) return;
    for (int tile = from; tile < end; tile++, y += LANES * stride)
        path->product(w, panel, a, tile, rows_of_tile(job->M, tile), y, stride);
}

/* Which matrix a panel belongs to, of all the job's counted through; its number there. */
static int find_panel(const struct job *job, int *panel) {
    int i = 0;
    while (*panel >= job->w[i]->n_panels) *panel -= job->w[i++]->n_panels;
    return i;
}

static float *output_at(const struct job *job, int i, int panel, int group) {
    size_t row = (size_t)group * GROUP * LANES;
    return job->y[i] + row * (size_t)job->w[i]->N + (size_t)panel * LANES;
}

static void store_unit(const struct job *job, const struct activations *a, int unit, int group,
                       struct thread_scratch *scratch) {
    (void)scratch;
    int panel = unit, i = find_panel(job, &panel);
    panel_times_group(job, a, job->w[i], panel, group, output_at(job, i, panel, group),
                      (size_t)job->w[i]->N);
}

static void add_unit(const struct job *job, const struct activations *a, int unit, int group,
                     struct thread_scratch *scratch) {
    const struct matrix *w = job->w[0];
    int left = w->N - unit * LANES;
    panel_times_group(job, a, w, unit, group, scratch->outputs, LANES);
    job->cpu->path->add_panel(output_at(job, 0, unit, group), (size_t)w->N, scratch->outputs,
                              group_rows(job->M, group), left < LANES ? left : LANES);
}

/* Matrix 0 makes the gates, matrix 1 what they let through. */
static void gate_unit(const struct job *job, const struct activations *a, int unit, int group,
                      struct thread_scratch *scratch) {
    float *gate = scratch->outputs, *up = gate + OUTPUTS;
    int left = job->w[0]->N - unit * BLOCK, n = left < BLOCK ? left : BLOCK;
    for (int i = 0; i < PAIR && i * LANES < n; i++) {
        panel_times_group(job, a, job->w[0], unit * PAIR + i, group, gate + i * LANES, BLOCK);
        panel_times_group(job, a, job->w[1], unit * PAIR + i, group, up + i * LANES, BLOCK);
    }
    int end = group_end(job->M, group);
    for (int tile = group * GROUP; tile < end; tile++, gate += LANES * BLOCK, up += LANES * BLOCK)
        job->cpu->path->gate_block(&job->cpu->hidden, tile, unit, rows_of_tile(job->M, tile), gate,
                                   up, n);
}

/* ---- a job ---------------------------------------------------------------------------------- */

static void make_tile(void *arg, int tile, int thread) {
    const struct job *job = arg;
    inputs_make_tile(job->cpu, job->inputs, tile, job->x, job->norm, job->cpu->threads[thread].row);
}

/* The thread's own inputs, made at its first piece of the job. */
static const struct activations *own_inputs(const struct job *job, struct thread_scratch *scratch) {
    if (scratch->made_for != job->cpu->n_products) {
        inputs_begin(&scratch->own, job->M, job->K, job->w, job->n);
        inputs_make_tile(job->cpu, &scratch->own, 0, job->x, job->norm, scratch->row);
        scratch->made_for = job->cpu->n_products;
    }
    return &scratch->own;
}

static void job_piece(void *arg, int i, int thread) {
    const struct job *job = arg;
    struct thread_scratch *scratch = &job->cpu->threads[thread];
    const struct activations *a = job->own ? own_inputs(job, scratch) : job->inputs;
    int group = i / job->pieces, from = i % job->pieces * job->piece_units;
    int to = from + job->piece_units < job->units ? from + job->piece_units : job->units;
    for (int unit = from; unit < to; unit++) job->unit(job, a, unit, group, scratch);
}

/* Units of one piece: enough pieces for every thread, and none that takes long; all when that is
 * little. */
static int choose_piece(const struct job *job) {
    int64_t rows = job->M < GROUP * LANES ? job->M : GROUP * LANES;
    int64_t products = rows * LANES * job->unit_panels * job->K; /* of a unit */
    if (products * job->units < TINY_PRODUCTS) return job->units;
    int64_t by_time = PIECE_PRODUCTS / products;
    int64_t by_threads = job->units / (PIECES_A_THREAD * job->cpu->head.n_threads);
    int64_t units = by_time < by_threads ? by_time : by_threads;
    return units < 1 ? 1 : (int)units;
}

static void make_inputs(struct job *job) {
    struct cpu *cpu = job->cpu;
    cpu->n_products++;
    job->own = tiles_of(job->M) == 1;
    if (job->own) return;
    inputs_begin(job->inputs, job->M, job->K, job->w, job->n);
    pool_run(cpu->pool, make_tile, job, tiles_of(job->M));
}

static void run_units(struct job *job) {
    job->piece_units = choose_piece(job);
    job->pieces = (job->units + job->piece_units - 1) / job->piece_units;
    int groups = (tiles_of(job->M) + GROUP - 1) / GROUP;
    pool_run(job->cpu->pool, job_piece, job, job->pieces * groups);
}

/* ---- the ops -------------------------------------------------------------------------------- */

void op_matmul(struct backend *b, float *const *y, const float *x, const struct norm *norm,
               struct matrix *const *w, int n, int M) {
    struct cpu *cpu = cpu_of(b);
    if (n == 0 || M == 0) return;
    struct job job = {.cpu = cpu,
                      .x = x,
                      .norm = norm,
                      .inputs = &cpu->act,
                      .w = w,
                      .y = y,
                      .n = n,
                      .M = M,
                      .K = w[0]->K,
                      .unit = store_unit,
                      .unit_panels = 1};
    assert(M <= cpu->max_rows && job.K <= cpu->max_k);
    for (int i = 0; i < n; i++) job.units += w[i]->n_panels;
    make_inputs(&job);
    run_units(&job);
}

static struct job adding_job(struct cpu *cpu, float *const *sum, struct matrix *const *w, int M) {
    assert(M <= cpu->max_rows && (*w)->K <= cpu->max_k);
    return (struct job){.cpu = cpu,
                        .w = w,
                        .y = sum,
                        .n = 1,
                        .M = M,
                        .K = (*w)->K,
                        .unit = add_unit,
                        .units = (*w)->n_panels,
                        .unit_panels = 1};
}

void op_matmul_add(struct backend *b, float *sum, const float *x, struct matrix *w, int M) {
    struct cpu *cpu = cpu_of(b);
    if (M == 0) return;
    struct job job = adding_job(cpu, &sum, &w, M);
    job.x = x;
    job.inputs = &cpu->act;
    make_inputs(&job);
    run_units(&job);
}

/* The second product's inputs are of all threads, so they are shared whatever M. */
void op_gated_mlp(struct backend *b, float *sum, const float *x, const struct norm *norm,
                  struct matrix *gate, struct matrix *up, struct matrix *down, int M) {
    struct cpu *cpu = cpu_of(b);
    if (M == 0) return;
    assert(gate->N == up->N && gate->N == down->K && down->N == gate->K);
    struct matrix *const both[] = {gate, up};
    struct job job = {.cpu = cpu,
                      .x = x,
                      .norm = norm,
                      .inputs = &cpu->act,
                      .w = both,
                      .n = 2,
                      .M = M,
                      .K = gate->K,
                      .unit = gate_unit,
                      .units = blocks_of(gate->N),
                      .unit_panels = 2 * PAIR};
    inputs_begin(&cpu->hidden, M, down->K, &down, 1);
    make_inputs(&job);
    run_units(&job);
    job = adding_job(cpu, &sum, &down, M);
    job.inputs = &cpu->hidden;
    run_units(&job);
}
