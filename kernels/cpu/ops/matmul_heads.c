/* Products per head: each head multiplies its own numbers of a row by its own matrix, a part of one
 * packed matrix. A piece is a tile of rows and one head: its thread computes the inputs and
 * multiplies all panels of the head. An output depends on its row alone, as in other products. */
#include "kernels/cpu/cpu.h"

struct head_job {
    struct cpu *cpu;
    const struct head_linear *linear;
    const struct linear *of_path; /* the same matrix, without bias and scale */
    const float *x;
    float *y;
    int M, tiles;
};

/* Computes the inputs of one head in the rows of a tile. The copy makes row numbers start at 0. */
static void make_head_inputs(const struct head_job *job, struct activations *a, int tile,
                             int head) {
    const struct head_linear *l = job->linear;
    const int rows = rows_of_tile(job->M, tile);
    inputs_begin(a, rows, l->w->K, job->of_path, 1);
    for (int r = 0; r < rows; r++) {
        const size_t row = (size_t)tile * LANES + (size_t)r;
        const float *x = job->x + (row * (size_t)l->H + (size_t)head) * (size_t)l->x_stride;
        inputs_make_row(job->cpu, a, r, x);
    }
}

static void head_piece(void *arg, int i, int thread) {
    const struct head_job *job = arg;
    const struct head_linear *l = job->linear;
    const int tile = i % job->tiles, head = i / job->tiles, panels = l->N / LANES;
    struct activations *a = &job->cpu->threads[thread].own;
    const size_t stride = (size_t)l->H * (size_t)l->y_stride;
    float *y = job->y + (size_t)tile * LANES * stride + (size_t)head * (size_t)l->y_stride;
    make_head_inputs(job, a, tile, head);
    for (int p = 0; p < panels; p++)
        panel_times_tiles(job->cpu, job->of_path, head * panels + p, a, 0, 1, y + p * LANES,
                          stride);
}

void op_matmul_heads(struct backend *b, float *y, const float *x, const struct head_linear *linear,
                     int M) {
    struct cpu *cpu = cpu_of(b);
    _Static_assert((int)HEAD_QUANTUM == (int)LANES, "a head's outputs are whole panels");
    assert(M >= 0 && M <= cpu->max_rows && linear->w->K <= cpu->max_k);
    assert(linear->N % LANES == 0 && linear->w->N == linear->H * linear->N);
    assert(linear->w->K <= linear->x_stride && linear->N <= linear->y_stride);
    if (M == 0) return;
    const struct linear of_path = {linear->w, NULL};
    struct head_job job = {cpu, linear, &of_path, x, y, M, tiles_of(M)};
    cpu->n_products++; /* the threads' own inputs are no longer those of an earlier product */
    pool_run(cpu->pool, head_piece, &job, job.tiles * linear->H);
}
