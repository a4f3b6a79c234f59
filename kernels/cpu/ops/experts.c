/* DESIGN: a mixture of experts.
 *
 *     h = norm(x)          router(h): each row's experts and weights        (route.c)
 *                          or the router of another norm of x
 *     rows by expert       gathered from h into separate tiles per expert
 *     hidden               act(gate(h)) * up(h), by expert: a piece is some panels times a span
 *     sum                  += weight * down(hidden)
 *
 * In the last step a piece is some panels of the outputs. One thread processes all experts of a
 * piece in the order of their numbers. So the order of additions to a row's sum does not depend on
 * the step's rows or on the number of threads. The shared expert is added last, as a single expert
 * that all rows use. */
#include "kernels/cpu/cpu.h"

enum {
    PAIR = BLOCK / LANES,                 /* panels per block of the second product */
    OUTPUTS = TILE_GROUP * LANES * BLOCK, /* floats of one half of a thread's outputs */
};

struct mixing {
    struct cpu *cpu;
    struct mixture *mixture;
    const struct experts *experts; /* experts of the rows being routed */
    const struct mlp *mlp;         /* E experts, concatenated */
    const struct norm *norm;
    const float *x;
    float *sum;
    int M, E, K, F;    /* F of one expert */
    int piece, pieces; /* units per piece; pieces per span */
};

/* ---- the rows ------------------------------------------------------------------------------- */

static void norm_piece(void *arg, int row, int thread) {
    const struct mixing *job = arg;
    size_t at = (size_t)row * (size_t)job->K;
    (void)thread;
    path_norm(job->cpu->path, job->mixture->h + at, job->x + at, job->norm, job->K);
}

static void route_piece(void *arg, int row, int thread) {
    const struct mixing *job = arg;
    struct mixture *m = job->mixture;
    const struct experts *experts = job->experts;
    size_t at = (size_t)row * (size_t)experts->n_used;
    (void)thread;
    route_row(m->logits + (size_t)row * (size_t)experts->E, experts, m->expert + at,
              m->weight + at);
}

/* Copies one tile of an expert's rows to its inputs; `piece` counts the tiles of all experts. */
static void gather_piece(void *arg, int piece, int thread) {
    const struct mixing *job = arg;
    struct mixture *m = job->mixture;
    const struct linear both[] = {job->mlp->up, job->mlp->gate};
    int e = 0;
    (void)thread;
    while (m->tile[e + 1] <= piece) e++;
    struct activations a = mixture_part(m, &m->inputs, e, job->K, both, both[1].w ? 2 : 1);
    int tile = piece - m->tile[e];
    assert(e < job->E && tile < tiles_of(a.M));
    for (int r = tile * LANES; r < tile * LANES + rows_of_tile(a.M, tile); r++)
        inputs_make_row(job->cpu, &a, r,
                        m->h + (size_t)m->row_of[m->first[e] + r] * (size_t)job->K);
}

/* ---- the products --------------------------------------------------------------------------- */

/* Computes a block of 32 hidden numbers for the rows of a span. */
static void hidden_unit(const struct mixing *job, const struct expert_span *span, int unit,
                        float *x) {
    const struct mixture *m = job->mixture;
    const struct mlp *mlp = job->mlp;
    const struct path *path = job->cpu->path;
    const struct linear both[] = {mlp->up, mlp->gate};
    bool gated = mlp->gate.w != NULL;
    struct activations a = mixture_part(m, &m->inputs, span->expert, job->K, both, gated ? 2 : 1);
    struct activations hidden = mixture_part(m, &m->hidden, span->expert, job->F, &mlp->down, 1);
    int left = job->F - unit * BLOCK, n = left < BLOCK ? left : BLOCK;
    int rows = (span->end - span->from - 1) * LANES + rows_of_tile(a.M, span->end - 1);
    for (int at = 0; at < n; at += LANES) {
        int panel = (span->expert * job->F + unit * BLOCK + at) / LANES;
        panel_times_tiles(job->cpu, gated ? &mlp->gate : &mlp->up, panel, &a, span->from, span->end,
                          x + at, BLOCK);
        if (gated)
            panel_times_tiles(job->cpu, &mlp->up, panel, &a, span->from, span->end,
                              x + OUTPUTS + at, BLOCK);
    }
    path->activate(x, gated ? x + OUTPUTS : NULL, (size_t)rows * BLOCK, mlp->activation);
    for (int tile = span->from; tile < span->end; tile++, x += LANES * BLOCK)
        path->put_block(&hidden, tile, unit, rows_of_tile(a.M, tile), x, n);
}

static void hidden_piece(void *arg, int piece, int thread) {
    const struct mixing *job = arg;
    const struct expert_span *span = &job->mixture->spans[piece / job->pieces];
    int from = piece % job->pieces * job->piece, units = blocks_of(job->F);
    for (int unit = from; unit < from + job->piece && unit < units; unit++)
        hidden_unit(job, span, unit, job->cpu->threads[thread].outputs);
}

/* Adds a panel of the outputs to the sums of a span's rows. */
static void add_span(const struct mixing *job, const struct expert_span *span, int panel,
                     float *y) {
    const struct mixture *m = job->mixture;
    struct activations a = mixture_part(m, &m->hidden, span->expert, job->F, &job->mlp->down, 1);
    panel_times_tiles(job->cpu, &job->mlp->down, span->expert * (job->K / LANES) + panel, &a,
                      span->from, span->end, y, LANES);
    int from = m->first[span->expert] + span->from * LANES, end = m->first[span->expert + 1];
    if (end > from + (span->end - span->from) * LANES)
        end = from + (span->end - span->from) * LANES;
    for (int i = from; i < end; i++, y += LANES) {
        float *to = job->sum + (size_t)m->row_of[i] * (size_t)job->K + (size_t)panel * LANES;
        for (int lane = 0; lane < LANES; lane++) to[lane] = to[lane] + m->weight_of[i] * y[lane];
    }
}

static void sum_piece(void *arg, int piece, int thread) {
    const struct mixing *job = arg;
    const struct mixture *m = job->mixture;
    int from = piece * job->piece, end = from + job->piece, panels = job->K / LANES;
    if (end > panels) end = panels;
    for (int i = 0; i < m->n_spans; i++)
        for (int panel = from; panel < end; panel++)
            add_span(job, &m->spans[i], panel, job->cpu->threads[thread].outputs);
}

/* Applies the experts to all rows, as grouped by mixture_group. */
static void mix(struct mixing *job) {
    struct cpu *cpu = job->cpu;
    struct mixture *m = job->mixture;
    const struct matrix *up = job->mlp->up.w, *down = job->mlp->down.w;
    int slots = m->first[job->E], units, panels = job->K / LANES;
    job->F = down->K;
    units = blocks_of(job->F);
    assert(up->N == job->E * job->F && down->N == job->E * job->K && up->K == job->K);
    assert(job->F % EXPERT_QUANTUM == 0 && job->K % EXPERT_QUANTUM == 0);
    assert(job->F <= m->shape.F && job->K <= m->shape.K);
    pool_run(cpu->pool, gather_piece, job, m->tile[job->E]);
    int64_t rows = (slots + m->n_spans - 1) / m->n_spans; /* average rows per span */
    job->piece = piece_units(cpu, rows * 2 * BLOCK * job->K, units * m->n_spans);
    if (job->piece > units) job->piece = units;
    job->pieces = (units + job->piece - 1) / job->piece;
    pool_run(cpu->pool, hidden_piece, job, job->pieces * m->n_spans);
    job->piece = piece_units(cpu, (int64_t)slots * LANES * job->F, panels);
    pool_run(cpu->pool, sum_piece, job, (panels + job->piece - 1) / job->piece);
}

/* ---- the op --------------------------------------------------------------------------------- */

/* The shared expert is an expert that all rows use. */
static void mix_shared(struct mixing *job) {
    struct mixture *m = job->mixture;
    for (int row = 0; row < job->M; row++) {
        float z = job->experts->shared_gate.w ? m->shared[row] : 0;
        m->expert[row] = 0;
        m->weight[row] = job->experts->shared_gate.w ? 1 / (1 + plain_exp(-z)) : 1;
    }
    mixture_group(m, job->M, 1, 1);
    job->mlp = &job->experts->shared;
    job->E = 1;
    mix(job);
}

void op_experts(struct backend *b, float *sum, const float *x, const struct norm *norm,
                const struct experts *experts, int M) {
    struct cpu *cpu = cpu_of(b);
    struct mixture *m = cpu->mixture;
    if (M == 0) return;
    assert(m && M <= m->max_rows && experts->router.w->N == experts->E);
    struct mixing job = {.cpu = cpu,
                         .mixture = m,
                         .experts = experts,
                         .mlp = &experts->mlp,
                         .norm = norm,
                         .x = x,
                         .sum = sum,
                         .M = M,
                         .E = experts->E,
                         .K = experts->router.w->K};
    const struct linear routers[] = {experts->router, experts->shared_gate};
    const struct norm *of_router = experts->router_norm.gain ? &experts->router_norm : NULL;
    assert(!of_router || !experts->shared_gate.w);
    pool_run(cpu->pool, norm_piece, &job, M);
    op_matmul(b, (float *const[]){m->logits, m->shared}, of_router ? x : m->h, of_router, routers,
              experts->shared_gate.w ? 2 : 1, M);
    pool_run(cpu->pool, route_piece, &job, M);
    mixture_group(m, M, experts->n_used, experts->E);
    mix(&job);
    if (experts->shared.up.w) mix_shared(&job);
}
