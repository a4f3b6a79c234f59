/* The product's work list: inputs are made ready once for all matrices of a call (quantised, or
 * packed for float32 weights), then panels are handed out. A piece is some panels times a group of
 * tiles, so that a panel stays in the nearest cache while all rows of the group pass by. */
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    GROUP = 16,          /* tiles that pass by a panel together: 256 rows */
    PIECES_A_THREAD = 6, /* so that a late thread is not waited for long */
    SLACK =
        3 *
        LANES, /* blocks after the last, for kernels that compute more rows than they are asked */
    TINY_PRODUCTS = 128 << 10, /* multiply-adds that are not worth a hand-over: a microsecond */
    PIECE_PRODUCTS =
        4 << 20, /* multiply-adds of the largest piece of several panels: 20 to 40 microseconds */
};

struct matmul_job {
    struct cpu *cpu;
    float *const *y;
    const float *x;
    struct matrix *const *w;
    int n, M, K;
    bool quantised, halves, floats; /* what the matrices ask for */
    int panels, piece_panels;       /* of all matrices, and of one piece */
    int pieces;                     /* of one group of tiles */
};

static int tiles(int M) {
    return (M + LANES - 1) / LANES;
}

static int rows_of(const struct matmul_job *job, int tile) {
    int left = job->M - tile * LANES;
    return left < LANES ? left : LANES;
}

/* Puts one row's inputs side by side with those of its tile: [K][width]. */
static void pack_row(struct activations *a, int row, const float *x) {
    size_t width = (size_t)a->width;
    float *to = a->x + (size_t)(row / LANES) * (size_t)a->K * width + row % LANES;
    for (size_t k = 0; k < (size_t)a->K; k++) to[k * width] = x[k];
}

static void ready_tile(void *arg, int tile, int thread) {
    (void)thread;
    struct matmul_job *job = arg;
    struct activations *a = &job->cpu->act;
    for (int r = 0; r < rows_of(job, tile); r++) {
        int row = tile * LANES + r;
        const float *x = job->x + (size_t)row * (size_t)job->K;
        if (job->quantised) job->cpu->path->quantise(a, row, x);
        if (job->halves) job->cpu->path->quantise_half(a, row, x);
        if (job->floats) pack_row(a, row, x);
    }
}

/* Tiles from..to-1 at once, where the path has a way to do that and the product suits it. */
static bool times_tiles(const struct matmul_job *job, int i, int panel, int from, int to) {
    const struct path *path = job->cpu->path;
    size_t N = (size_t)job->w[i]->N;
    float *y = job->y[i] + (size_t)from * LANES * N + (size_t)panel * LANES;
    return path->group && path->group(job->w[i], panel, &job->cpu->act, from, to, y, N);
}

/* One panel of the matrices counted through, times the tiles of a group. */
static void panel_times_group(const struct matmul_job *job, int panel, int group) {
    int i = 0;
    while (panel >= job->w[i]->n_panels) panel -= job->w[i++]->n_panels;
    const struct matrix *w = job->w[i];
    int end = (group + 1) * GROUP < tiles(job->M) ? (group + 1) * GROUP : tiles(job->M);
    if (times_tiles(job, i, panel, group * GROUP, end)) return;
    for (int tile = group * GROUP; tile < end; tile++) {
        float *y = job->y[i] + (size_t)tile * LANES * (size_t)w->N + (size_t)panel * LANES;
        job->cpu->path->product(w, panel, &job->cpu->act, tile, rows_of(job, tile), y,
                                (size_t)w->N);
    }
}

static void product_piece(void *arg, int i, int thread) {
    (void)thread;
    struct matmul_job *job = arg;
    int group = i / job->pieces, from = i % job->pieces * job->piece_panels;
    int to = from + job->piece_panels < job->panels ? from + job->piece_panels : job->panels;
    for (int panel = from; panel < to; panel++) panel_times_group(job, panel, group);
}

/* Panels of one piece: enough pieces for every thread, and none that takes long; all when that is
 * little. */
static int choose_piece(const struct matmul_job *job) {
    int64_t rows = job->M < GROUP * LANES ? job->M : GROUP * LANES;
    if (rows * LANES * job->K * job->panels < TINY_PRODUCTS) return job->panels;
    int64_t by_time = PIECE_PRODUCTS / ((int64_t)LANES * job->K * rows);
    int64_t by_threads = job->panels / (PIECES_A_THREAD * job->cpu->head.n_threads);
    int64_t panels = by_time < by_threads ? by_time : by_threads;
    return panels < 1 ? 1 : (int)panels;
}

void op_matmul(struct backend *b, float *const *y, const float *x, struct matrix *const *w, int n,
               int M) {
    struct cpu *cpu = cpu_of(b);
    if (n == 0 || M == 0) return;
    struct matmul_job job = {.cpu = cpu, .y = y, .x = x, .w = w, .n = n, .M = M, .K = w[0]->K};
    assert(M <= cpu->max_rows && job.K <= cpu->max_k);
    for (int i = 0; i < n; i++) {
        assert(w[i]->K == job.K);
        job.panels += w[i]->n_panels;
        job.floats |= matrix_is_float(w[i]);
        job.halves |= matrix_is_half(w[i]);
        job.quantised |= !matrix_is_float(w[i]) && !matrix_is_half(w[i]);
    }
    cpu->act.M = M;
    cpu->act.K = job.K;
    cpu->act.width = M < LANES ? M : LANES;
    pool_run(cpu->pool, ready_tile, &job, tiles(M));
    job.piece_panels = choose_piece(&job);
    job.pieces = (job.panels + job.piece_panels - 1) / job.piece_panels;
    int groups = (tiles(M) + GROUP - 1) / GROUP;
    pool_run(cpu->pool, product_piece, &job, job.pieces * groups);
}

/* Lays the scratch of the largest call out in one piece of memory. Pages that are not used are not
 * taken. */
void cpu_plan_activations(struct cpu *cpu) {
    size_t rows = round_up((size_t)cpu->max_rows, LANES), K = round_up((size_t)cpu->max_k, BLOCK);
    size_t n = rows * K + SLACK * BLOCK, blocks = n / BLOCK;
    cpu->memory_bytes = n * (sizeof(float) + sizeof(int16_t) + 1) + blocks * (6 * sizeof(float));
    float *memory = cpu->memory = mem_large(cpu->memory_bytes);
    struct activations *a = &cpu->act;
    a->x = memory;
    a->scale = a->x + n;
    a->sum = a->scale + blocks;
    a->minus_sum = (int32_t *)(a->sum + blocks);
    a->half_scale = (float *)(a->minus_sum + 3 * blocks);
    a->half_q = (int16_t *)(a->half_scale + blocks);
    a->q = (int8_t *)(a->half_q + n);
}
