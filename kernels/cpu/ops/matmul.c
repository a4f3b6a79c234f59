/* DESIGN: work lists of products.
 *
 * A job is one pass over matrices with the same inputs. Panels (or pairs of panels, see below) are
 * distributed among the threads. A piece is some panels times a group of tiles, so that a panel
 * stays in the L1 cache while it is multiplied with all rows of the group.
 *
 * The inputs are computed in one of two ways. With one tile, each thread computes the whole tile
 * for itself at its first piece of the job; this needs no hand-over, and no cache line moves
 * between cores. With more tiles, the threads compute them first and share them.
 *
 * Outputs pass through their epilogue (a bias, the scale and cap of logits) while they are in the
 * L1 cache. Then a job does one of three things with them. It stores them, or adds them to a sum,
 * or applies an activation (with gates if the MLP has them) and turns them into 32 inputs of the
 * next job on the same thread. In the third case the unit of work is two panels of each matrix. */
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    PIECES_A_THREAD = 12,      /* limits the wait for a late thread */
    TINY_PRODUCTS = 128 << 10, /* multiply-adds not worth a hand-over: a microsecond */
    PIECE_PRODUCTS = 4 << 20,  /* limit of a piece of several units: 20 to 40 microseconds */
    PAIR = BLOCK / LANES,      /* panels per block of the next product's inputs */
    OUTPUTS = TILE_GROUP * LANES * BLOCK, /* floats of one half of a thread's outputs */
};

struct job {
    struct cpu *cpu;
    /* source of the inputs: rows, or NULL if an earlier job filled `inputs` */
    const float *x;
    const struct norm *norm;
    struct activations *inputs;  /* shared by the threads */
    bool own;                    /* each thread computes its own inputs instead */
    const struct linear *linear; /* [n] */
    float *const *y;             /* outputs of each matrix */
    bool adapts;                 /* rows have adapters: low_rank_begin was called */
    float cap;                   /* for logits; else 0 */
    enum activation activation;  /* for an MLP's inner product */
    const struct xielu *xielu;   /* for ACTIVATION_XIELU */
    const float *times;          /* factors of its outputs, [M][times_stride]; or NULL */
    int times_stride;
    const struct linear *next; /* of an MLP, if rows have adapters: keep its inputs; or NULL */
    int n, M, K;
    void (*unit)(const struct job *job, const struct activations *a, int unit, int group,
                 struct thread_scratch *scratch);
    int units, unit_panels;    /* number of units, and panels per unit */
    int piece_units;           /* units per piece */
    int nodes;                 /* nodes of the pool */
    int border[MAX_NODES + 1]; /* range of pieces of each node */
};

/* ---- a panel times tiles -------------------------------------------------------------------- */

/* One past the last tile of a group, which starts at group * TILE_GROUP. */
static int group_end(int M, int group) {
    int end = (group + 1) * TILE_GROUP;
    return end < tiles_of(M) ? end : tiles_of(M);
}

static int group_rows(int M, int group) {
    int left = M - group * TILE_GROUP * LANES;
    return left < TILE_GROUP * LANES ? left : TILE_GROUP * LANES;
}

/* Outputs of a panel: LANES, or fewer in a matrix's last panel. */
static int panel_outputs(const struct matrix *w, int panel) {
    int left = w->N - panel * LANES;
    return left < LANES ? left : LANES;
}

void panel_times_tiles(const struct cpu *cpu, const struct linear *linear, int panel,
                       const struct activations *a, int from, int end, float *y, size_t stride) {
    const struct path *path = cpu->path;
    const struct matrix *w = linear->w;
    assert(panel >= 0 && panel < w->n_panels && a->K == w->K && from < end);
    if (!path->group || !path->group(w, panel, a, from, end, y, stride))
        for (int tile = from; tile < end; tile++)
            path->product(w, panel, a, tile, rows_of_tile(a->M, tile),
                          y + (size_t)(tile - from) * LANES * stride, stride);
    const struct epilogue epilogue = {linear->bias ? linear->bias + (size_t)panel * LANES : NULL,
                                      linear_scale(linear), 0};
    if (!epilogue.bias && epilogue.scale == 1) return;
    int rows = (end - from - 1) * LANES + rows_of_tile(a->M, end - 1);
    path->epilogue(y, stride, rows, panel_outputs(w, panel), &epilogue);
}

/* y[r * stride + lane] for the rows of a group, starting with its first row. */
static void panel_times_group(const struct job *job, const struct activations *a,
                              const struct linear *linear, int panel, int group, float *y,
                              size_t stride) {
    assert(a->M == job->M);
    if (job->adapts) low_rank_fetch(job->cpu, linear, panel, group);
    panel_times_tiles(job->cpu, linear, panel, a, group * TILE_GROUP, group_end(job->M, group), y,
                      stride);
    if (job->adapts)
        low_rank_add(job->cpu, linear, (int)(linear - job->linear), panel, group, y, stride);
    if (job->cap == 0) return;
    const struct epilogue epilogue = {NULL, 1, job->cap};
    job->cpu->path->epilogue(y, stride, group_rows(job->M, group), panel_outputs(linear->w, panel),
                             &epilogue);
}

static float *output_at(const struct job *job, int i, int panel, int group) {
    size_t row = (size_t)group * TILE_GROUP * LANES;
    return job->y[i] + row * (size_t)job->linear[i].w->N + (size_t)panel * LANES;
}

static void store_unit(const struct job *job, const struct activations *a, int unit, int group,
                       struct thread_scratch *scratch) {
    (void)scratch;
    int panel = unit, i = 0; /* index over all of the job's matrices, then within matrix i */
    while (panel >= job->linear[i].w->n_panels) panel -= job->linear[i++].w->n_panels;
    assert(i < job->n);
    panel_times_group(job, a, &job->linear[i], panel, group, output_at(job, i, panel, group),
                      (size_t)job->linear[i].w->N);
}

static void add_unit(const struct job *job, const struct activations *a, int unit, int group,
                     struct thread_scratch *scratch) {
    const struct matrix *w = job->linear[0].w;
    panel_times_group(job, a, &job->linear[0], unit, group, scratch->outputs, LANES);
    job->cpu->path->add_panel(output_at(job, 0, unit, group), (size_t)w->N, scratch->outputs,
                              group_rows(job->M, group), panel_outputs(w, unit));
}

/* x[row of a group][BLOCK]: the n factors of a unit's outputs, then zeros. */
static void copy_times(const struct job *job, float *x, int unit, int group, int n) {
    int rows = group_rows(job->M, group);
    memset(x, 0, (size_t)rows * BLOCK * sizeof *x);
    for (int r = 0; r < rows; r++) {
        size_t row = (size_t)group * TILE_GROUP * LANES + (size_t)r;
        const float *from = job->times + row * (size_t)job->times_stride + (size_t)unit * BLOCK;
        memcpy(x + (size_t)r * BLOCK, from, (size_t)n * sizeof *x);
    }
}

/* Keeps x[row of a group][BLOCK], n numbers a row, for the adapters of the second product. */
static void keep_hidden(const struct job *job, const float *x, int unit, int group, int n) {
    const size_t K = (size_t)job->next->w->K;
    for (int r = 0; r < group_rows(job->M, group); r++) {
        int row = group * TILE_GROUP * LANES + r;
        if (!low_rank_changes(job->next, row)) continue;
        float *to = job->cpu->low.hidden + (size_t)row * K + (size_t)unit * BLOCK;
        memcpy(to, x + (size_t)r * BLOCK, (size_t)n * sizeof *x);
    }
}

/* Applies the activation to the outputs of matrix 0, which gate the outputs of matrix 1 or given
 * rows if there are any. */
static void activate_unit(const struct job *job, const struct activations *a, int unit, int group,
                          struct thread_scratch *scratch) {
    const struct path *path = job->cpu->path;
    float *x = scratch->outputs, *gated = job->n == 2 || job->times ? x + OUTPUTS : NULL;
    int left = job->linear[0].w->N - unit * BLOCK, n = left < BLOCK ? left : BLOCK;
    assert(n > 0 && (job->n == 1 || job->n == 2));
    for (int i = 0; i < PAIR && i * LANES < n; i++) {
        int panel = unit * PAIR + i, at = i * LANES;
        panel_times_group(job, a, &job->linear[0], panel, group, x + at, BLOCK);
        if (job->n == 2)
            panel_times_group(job, a, &job->linear[1], panel, group, gated + at, BLOCK);
    }
    if (job->times) copy_times(job, gated, unit, group, n);
    size_t outputs = (size_t)group_rows(job->M, group) * BLOCK;
    if (job->activation == ACTIVATION_XIELU)
        path->xielu(x, outputs, job->xielu);
    else
        path->activate(x, gated, outputs, job->activation);
    if (job->next) keep_hidden(job, x, unit, group, n);
    int end = group_end(job->M, group);
    for (int tile = group * TILE_GROUP; tile < end; tile++, x += LANES * BLOCK)
        path->put_block(&job->cpu->hidden, tile, unit, rows_of_tile(job->M, tile), x, n);
}

/* ---- a job ---------------------------------------------------------------------------------- */

static void make_tile(void *arg, int tile, int thread) {
    const struct job *job = arg;
    inputs_make_tile(job->cpu, job->inputs, tile, job->x, job->norm, job->cpu->threads[thread].row);
}

/* The number of units in list i. The nodes divide each list separately: one list per matrix if
 * outputs are stored, else a single list. */
static int list_units(const struct job *job, int i) {
    return job->unit == store_unit ? job->linear[i].w->n_panels : job->units;
}

static int n_lists(const struct job *job) {
    return job->unit == store_unit ? job->n : 1;
}

/* A node has units [*from, *to) of list i: those with weights in its own memory
 * (weights/pack.c). */
static void node_part(const struct job *job, int node, int i, int *from, int *to) {
    int border[MAX_NODES + 1];
    pool_borders(job->cpu->pool, list_units(job, i), border);
    *from = border[node];
    *to = border[node + 1];
}

/* A node's units of all lists. */
static int node_units(const struct job *job, int node) {
    if (job->nodes == 1) return job->units;
    int units = 0;
    for (int i = 0, from, to; i < n_lists(job); i++) {
        node_part(job, node, i, &from, &to);
        units += to - from;
    }
    return units;
}

/* The job's number of a node's u-th unit. */
static int node_unit(const struct job *job, int node, int u) {
    if (job->nodes == 1) return u;
    int before = 0, from, to;
    for (int i = 0;; before += list_units(job, i++)) {
        assert(i < n_lists(job));
        node_part(job, node, i, &from, &to);
        if (u < to - from) return before + from + u;
        u -= to - from;
    }
}

static int pieces_of(const struct job *job, int units) {
    return (units + job->piece_units - 1) / job->piece_units;
}

static void job_piece(void *arg, int i, int thread) {
    const struct job *job = arg;
    struct thread_scratch *scratch = &job->cpu->threads[thread];
    const struct activations *a = job->own ? &scratch->own : job->inputs;
    /* the thread's first piece of the job */
    if (job->own && scratch->made_for != job->cpu->n_products) {
        inputs_begin(&scratch->own, job->M, job->K, job->linear, job->n);
        inputs_make_tile(job->cpu, &scratch->own, 0, job->x, job->norm, scratch->row);
        scratch->made_for = job->cpu->n_products;
    }
    int node = 0;
    while (i >= job->border[node + 1]) node++;
    i -= job->border[node];
    int units = node_units(job, node), pieces = pieces_of(job, units);
    int group = i / pieces, from = i % pieces * job->piece_units;
    int to = from + job->piece_units < units ? from + job->piece_units : units;
    for (int u = from; u < to; u++) job->unit(job, a, node_unit(job, node, u), group, scratch);
}

int piece_units(const struct cpu *cpu, int64_t products, int units) {
    assert(products > 0 && units > 0);
    if (products * units < TINY_PRODUCTS) return units;
    int64_t by_time = PIECE_PRODUCTS / products;
    int64_t by_threads = units / (PIECES_A_THREAD * cpu->head.n_threads);
    int64_t few = by_time < by_threads ? by_time : by_threads;
    return few < 1 ? 1 : (int)few;
}

static void make_inputs(struct job *job) {
    struct cpu *cpu = job->cpu;
    cpu->n_products++;
    job->own = tiles_of(job->M) == 1;
    if (job->own) return;
    inputs_begin(job->inputs, job->M, job->K, job->linear, job->n);
    pool_run(cpu->pool, make_tile, job, tiles_of(job->M));
}

static void run_job(struct job *job) {
    assert(job->units > 0 && job->unit_panels > 0);
    int64_t rows = job->M < TILE_GROUP * LANES ? job->M : TILE_GROUP * LANES;
    job->piece_units = piece_units(job->cpu, rows * LANES * job->unit_panels * job->K, job->units);
    assert(job->piece_units > 0 && job->piece_units <= job->units);
    int groups = (tiles_of(job->M) + TILE_GROUP - 1) / TILE_GROUP;
    job->nodes = pool_nodes(job->cpu->pool);
    for (int k = 0; k < job->nodes; k++)
        job->border[k + 1] = job->border[k] + pieces_of(job, node_units(job, k)) * groups;
    pool_run_nodes(job->cpu->pool, job_piece, job, job->border);
}

/* ---- the ops -------------------------------------------------------------------------------- */

/* Computes norm, products of n matrices and epilogue, and stores the outputs. */
static void store_products(struct cpu *cpu, float *const *y, const float *x,
                           const struct norm *norm, const struct linear *linear, int n, int M,
                           float cap) {
    struct job job = {.cpu = cpu,
                      .x = x,
                      .norm = norm,
                      .inputs = &cpu->act,
                      .linear = linear,
                      .y = y,
                      .cap = cap,
                      .n = n,
                      .M = M,
                      .K = linear[0].w->K,
                      .unit = store_unit,
                      .unit_panels = 1};
    assert(M <= cpu->max_rows && job.K <= cpu->max_k && cap >= 0);
    for (int i = 0; i < n; i++) job.units += linear[i].w->n_panels;
    job.adapts = low_rank_begin(cpu, x, norm, linear, n, M);
    make_inputs(&job);
    run_job(&job);
}

void op_matmul(struct backend *b, float *const *y, const float *x, const struct norm *norm,
               const struct linear *linear, int n, int M) {
    if (n > 0 && M > 0) store_products(cpu_of(b), y, x, norm, linear, n, M, 0);
}

void op_logits(struct backend *b, float *y, const float *x, const struct norm *norm,
               const struct lm_head *head, int R) {
    if (R > 0) store_products(cpu_of(b), &y, x, norm, &head->linear, 1, R, head->cap);
}

static struct job adding_job(struct cpu *cpu, float *const *sum, const struct linear *linear,
                             int M) {
    assert(M <= cpu->max_rows && linear->w->K <= cpu->max_k);
    return (struct job){.cpu = cpu,
                        .linear = linear,
                        .y = sum,
                        .n = 1,
                        .M = M,
                        .K = linear->w->K,
                        .unit = add_unit,
                        .units = linear->w->n_panels,
                        .unit_panels = 1};
}

void op_matmul_add(struct backend *b, float *sum, const float *x, const struct linear *linear,
                   int M) {
    struct cpu *cpu = cpu_of(b);
    if (M == 0) return;
    struct job job = adding_job(cpu, &sum, linear, M);
    job.x = x;
    job.inputs = &cpu->act;
    job.adapts = low_rank_begin(cpu, x, NULL, linear, 1, M);
    make_inputs(&job);
    run_job(&job);
}

/* All threads contribute to the second product's inputs, so these are shared for any M. */
void op_mlp(struct backend *b, float *sum, const float *x, const struct norm *norm,
            const struct mlp *mlp, int M) {
    struct cpu *cpu = cpu_of(b);
    if (M == 0) return;
    bool gated = mlp->gate.w && mlp->up.w;
    const struct linear both[] = {mlp->gate, mlp->up};
    const struct linear *linear = mlp->gate.w ? both : &mlp->up;
    const struct matrix *first = linear->w, *up = mlp->up.w, *down = mlp->down.w;
    assert(!gated || (first->N == up->N && first->K == up->K && !mlp->times));
    assert(gated || !mlp->gate.w || mlp->times);
    assert(mlp->activation != ACTIVATION_XIELU || !mlp->gate.w);
    assert(mlp->up.scale == 0);
    assert(first->N == down->K && down->N == first->K);
    assert(M <= cpu->max_rows && first->K <= cpu->max_k);
    struct job job = {.cpu = cpu,
                      .x = x,
                      .norm = norm,
                      .inputs = &cpu->act,
                      .linear = linear,
                      .activation = mlp->activation,
                      .xielu = &mlp->xielu,
                      .times = mlp->times ? mlp->times + mlp->times_first : NULL,
                      .times_stride = mlp->times_stride,
                      .n = gated ? 2 : 1,
                      .M = M,
                      .K = first->K,
                      .unit = activate_unit,
                      .units = blocks_of(first->N),
                      .unit_panels = gated ? 2 * PAIR : PAIR};
    inputs_begin(&cpu->hidden, M, down->K, &mlp->down, 1);
    job.adapts = low_rank_begin(cpu, x, norm, linear, job.n, M);
    if (mlp->down.low && mlp->down.low->rows->adapter) job.next = &mlp->down;
    make_inputs(&job);
    run_job(&job);
    job = adding_job(cpu, &sum, &mlp->down, M);
    job.inputs = &cpu->hidden;
    job.adapts = low_rank_begin(cpu, cpu->low.hidden, NULL, &mlp->down, 1, M);
    run_job(&job);
}
