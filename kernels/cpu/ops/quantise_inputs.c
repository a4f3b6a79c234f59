/* Inputs of products: applies the norm to rows, quantises them and lays them out in tiles
 * (activations.h). Also plans their memory and the threads' scratch memory. */
#include <stdlib.h>

#include "kernels/cpu/cpu.h"

enum {
    /* blocks after the last, for kernels that compute more rows than requested */
    SLACK = 3 * LANES,
    LINE = 64, /* bytes: data of two threads does not share a cache line */
};

/* ---- memory --------------------------------------------------------------------------------- */

size_t inputs_bytes(size_t rows, size_t K) {
    size_t n = rows * K + SLACK * BLOCK, blocks = n / BLOCK;
    return n * (sizeof(float) + sizeof(int16_t) + 1) + blocks * (6 * sizeof(float));
}

void inputs_lay_out(struct activations *a, void *memory, size_t rows, size_t K) {
    assert(rows % LANES == 0 && K % BLOCK == 0 && (uintptr_t)memory % LINE == 0);
    size_t n = rows * K + SLACK * BLOCK, blocks = n / BLOCK;
    a->x = memory;
    a->scale = a->x + n;
    a->sum = a->scale + blocks;
    a->minus_sum = (int32_t *)(a->sum + blocks);
    a->half_scale = (float *)(a->minus_sum + 3 * blocks);
    a->half_q = (int16_t *)(a->half_scale + blocks);
    a->q = (int8_t *)(a->half_q + n);
}

/* Lays everything out in one piece of memory. Unused pages are not allocated. */
void cpu_plan_inputs(struct cpu *cpu) {
    assert(cpu->max_rows > 0 && cpu->max_k > 0 && cpu->head.n_threads > 0);
    size_t rows = round_up((size_t)cpu->max_rows, LANES), K = round_up((size_t)cpu->max_k, BLOCK);
    size_t shared = round_up(inputs_bytes(rows, K), LINE);
    size_t own = round_up(inputs_bytes(LANES, K), LINE);
    size_t row = round_up(K * sizeof(float), LINE);
    size_t outputs = 2 * (size_t)TILE_GROUP * LANES * BLOCK * sizeof(float);
    size_t n_threads = (size_t)cpu->head.n_threads;
    cpu->memory_bytes = 2 * shared + n_threads * (own + row + outputs);
    uint8_t *memory = cpu->memory = mem_large(cpu->memory_bytes);
    inputs_lay_out(&cpu->act, memory, rows, K);
    inputs_lay_out(&cpu->hidden, memory + shared, rows, K);
    memory += 2 * shared;
    cpu->threads = mem_calloc(n_threads, sizeof *cpu->threads);
    for (size_t t = 0; t < n_threads; t++, memory += own + row + outputs) {
        inputs_lay_out(&cpu->threads[t].own, memory, LANES, K);
        cpu->threads[t].row = (float *)(memory + own);
        cpu->threads[t].outputs = (float *)(memory + own + row);
    }
}

void cpu_free_inputs(struct cpu *cpu) {
    mem_large_free(cpu->memory, cpu->memory_bytes);
    mem_free(cpu->threads);
}

/* ---- computing inputs ------------------------------------------------------------------------ */

void inputs_begin(struct activations *a, int M, int K, const struct linear *linear, int n) {
    assert(M > 0 && K > 0 && n > 0);
    a->M = M;
    a->K = K;
    a->width = M < LANES ? M : LANES;
    a->quantised = a->halves = a->floats = false;
    for (int i = 0; i < n; i++) {
        const struct matrix *w = linear[i].w;
        assert(w->K == K);
        a->floats |= matrix_is_float(w);
        a->halves |= matrix_is_half(w);
        a->quantised |= !matrix_is_float(w) && !matrix_is_half(w);
    }
}

void inputs_make_row(const struct cpu *cpu, struct activations *a, int number, const float *x) {
    assert(number >= 0 && number < a->M);
    if (a->quantised) cpu->path->quantise(a, number, x);
    if (a->halves) cpu->path->quantise_half(a, number, x);
    if (!a->floats) return;
    /* the rows of a tile are interleaved: [K][width] */
    size_t K = (size_t)a->K, width = (size_t)a->width;
    float *to = a->x + (size_t)(number / LANES) * K * width + number % LANES;
    for (size_t k = 0; k < K; k++) to[k * width] = x[k];
}

/* Does the path apply this norm while it quantises? */
static bool norm_is_fused(const struct path *path, const struct activations *a,
                          const struct norm *norm) {
    return norm && norm->kind == NORM_RMS && path->norm_quantise && a->quantised && !a->halves &&
           !a->floats;
}

static void norm_quantise_tile(const struct path *path, struct activations *a, int tile,
                               const float *x, const struct norm *norm) {
    const int first = tile * LANES, end = first + rows_of_tile(a->M, tile);
    for (int row = first, n; row < end; row += n) {
        n = end - row < NORM_ROWS ? 1 : NORM_ROWS;
        path->norm_quantise(a, row, n, x + (size_t)row * (size_t)a->K, norm);
    }
}

void inputs_make_tile(const struct cpu *cpu, struct activations *a, int tile, const float *x,
                      const struct norm *norm, float *row) {
    assert(tile >= 0 && tile < tiles_of(a->M));
    if (norm_is_fused(cpu->path, a, norm)) {
        norm_quantise_tile(cpu->path, a, tile, x, norm);
        return;
    }
    for (int r = 0; r < rows_of_tile(a->M, tile); r++) {
        int number = tile * LANES + r;
        const float *from = x + (size_t)number * (size_t)a->K;
        if (norm) path_norm(cpu->path, row, from, norm, a->K), from = row;
        inputs_make_row(cpu, a, number, from);
    }
}
