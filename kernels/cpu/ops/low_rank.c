/* DESIGN: the products of adapters (struct low_rank).
 *
 * A row's adapter adds to a projection. First the row's inner products are computed, one row after
 * the other: they need the whole row, in float32, after the norm. Then each panel of the projection
 * adds its part while its outputs are in the L1 cache, after bias and scale and before they are
 * stored, added or activated:
 *
 *     low_rank_begin     inner[row][i][rank] = a of the row's adapter times norm(x[row])
 *     low_rank_add       y[row][lane] += scale * (inner[row][i] times b[..][lane])
 *
 * Rows without an adapter are skipped, so their bits are those of a server without adapters. An
 * MLP's second product reads inputs that no buffer holds in float32; matmul.c keeps them in
 * low.hidden for rows with adapters. */
#include "kernels/cpu/cpu.h"

static size_t inner_bytes(const struct cpu *cpu) {
    return (size_t)cpu->max_rows * MAX_FUSED * (size_t)cpu->low.max_rank * sizeof(float);
}

static size_t hidden_bytes(const struct cpu *cpu) {
    return (size_t)cpu->max_rows * (size_t)cpu->max_k * sizeof(float);
}

void cpu_plan_low_rank(struct cpu *cpu, int max_rank) {
    assert(max_rank >= 0 && !cpu->low.inner && cpu->max_rows > 0);
    if (max_rank == 0) return;
    cpu->low.max_rank = max_rank;
    cpu->low.inner = mem_large(inner_bytes(cpu));
    cpu->low.hidden = mem_large(hidden_bytes(cpu));
}

void cpu_free_low_rank(struct cpu *cpu) {
    if (!cpu->low.inner) return;
    mem_large_free(cpu->low.inner, inner_bytes(cpu));
    mem_large_free(cpu->low.hidden, hidden_bytes(cpu));
}

const struct low_rank *low_rank_of(const struct linear *linear, int row) {
    const struct low_ranks *low = linear->low;
    if (!low || !low->rows->adapter) return NULL;
    const struct low_rank *own = &low->of[low->rows->adapter[row]];
    return own->rank > 0 ? own : NULL;
}

static float *inner_of(const struct cpu *cpu, int row, int i) {
    assert(row < cpu->max_rows && i >= 0 && i < MAX_FUSED);
    return cpu->low.inner + ((size_t)row * MAX_FUSED + (size_t)i) * (size_t)cpu->low.max_rank;
}

struct inner_job {
    struct cpu *cpu;
    const float *x; /* [M][K] */
    const struct norm *norm;
    const struct linear *linear; /* [n] */
    int n;
};

/* All inner products of a row, whose norm is computed once. */
static void inner_row(void *arg, int row, int thread) {
    const struct inner_job *job = arg;
    const int K = job->linear[0].w->K;
    const float *x = job->x + (size_t)row * (size_t)K;
    float *normed = job->cpu->threads[thread].row;
    bool is_normed = !job->norm;
    for (int i = 0; i < job->n; i++) {
        const struct low_rank *own = low_rank_of(&job->linear[i], row);
        if (!own) continue;
        assert(own->rank <= job->cpu->low.max_rank && job->linear[i].w->K == K);
        if (!is_normed) path_norm(job->cpu->path, normed, x, job->norm, K);
        is_normed = true;
        job->cpu->path->low_rank_inner(inner_of(job->cpu, row, i), job->norm ? normed : x, own->a,
                                       own->rank, K);
    }
}

bool low_rank_begin(struct cpu *cpu, const float *x, const struct norm *norm,
                    const struct linear *linear, int n, int M) {
    struct inner_job job = {cpu, x, norm, linear, n};
    bool adapts = false;
    for (int i = 0; i < n; i++) adapts |= linear[i].low && linear[i].low->rows->adapter;
    if (!adapts) return false;
    assert(n <= MAX_FUSED && M <= cpu->max_rows && cpu->low.inner);
    pool_run(cpu->pool, inner_row, &job, M);
    return true;
}

void low_rank_add(const struct cpu *cpu, const struct linear *linear, int i, int panel, int first,
                  int rows, float *y, size_t stride) {
    const int N = linear->w->N, left = N - panel * LANES;
    const float scale = linear_scale(linear);
    assert(left > 0 && first >= 0 && rows > 0);
    for (int r = 0; r < rows; r++, y += stride) {
        const struct low_rank *own = low_rank_of(linear, first + r);
        if (!own) continue;
        cpu->path->low_rank_add(y, inner_of(cpu, first + r, i), own->b + (size_t)panel * LANES,
                                (size_t)N, own->rank, left < LANES ? left : LANES,
                                own->scale * scale);
    }
}
