/* DESIGN: the products of adapters (struct low_rank).
 *
 * A row's adapter adds to a projection. First the inner products of all rows are computed: they
 * need whole rows, in float32, after the norm. Then each panel of the projection adds its part
 * while its outputs are in the L1 cache, after bias and scale and before they are stored, added or
 * activated:
 *
 *     low_rank_begin     inner[row][i][rank] = a of the row's adapter times norm(x[row])
 *     low_rank_fetch     requests the panel's b, before the product of the panel
 *     low_rank_add       y[row][lane] += scale * (inner[row][i] times b[..][lane])
 *
 * Rows of the same adapter share each number of a and b that is loaded. So an op first sorts its
 * rows by adapter into parts of up to LOW_RANK_ROWS rows, within groups of TILE_GROUP tiles,
 * because a panel is multiplied with one group after the other:
 *
 *     adapter of row 0..7   2 0 1 2 1 1 0 2
 *     parts                 adapter 2: rows 0 3 7      adapter 1: rows 2 4 5
 *
 * The projections of an op have the same input, so all their inner products are one job of the
 * threads. A unit of it is a part times up to UNIT_RANKS rows of one projection's a.
 *
 * Rows without an adapter are in no part, so their bits are those of a server without adapters. An
 * MLP's second product reads inputs that no buffer holds in float32; matmul.c keeps them in
 * low.hidden for rows with adapters. */
#include "kernels/cpu/cpu.h"

enum {
    GROUP_ROWS = TILE_GROUP * LANES,
    UNIT_RANKS = 4,
    LINE = 64,           /* bytes of a line of the caches */
    MOST_FETCHED = 4096, /* bytes of a panel: more would leave no room in the L1 cache */
    FLOAT_COST = 4,      /* a multiply-add of floats takes the time of four of codes */
};

static size_t inner_bytes(const struct cpu *cpu) {
    return (size_t)cpu->max_rows * MAX_FUSED * (size_t)cpu->low.max_rank * sizeof(float);
}

static size_t hidden_bytes(const struct cpu *cpu) {
    return (size_t)cpu->max_rows * (size_t)cpu->max_k * sizeof(float);
}

void cpu_plan_low_rank(struct cpu *cpu, int max_rank) {
    assert(max_rank >= 0 && !cpu->low.inner && cpu->max_rows > 0);
    if (max_rank == 0) return;
    const size_t rows = (size_t)cpu->max_rows;
    cpu->low.max_rank = max_rank;
    cpu->low.inner = mem_large(inner_bytes(cpu));
    cpu->low.hidden = mem_large(hidden_bytes(cpu));
    cpu->low.part = mem_calloc(rows, sizeof *cpu->low.part);
    cpu->low.group_parts = mem_calloc(rows / GROUP_ROWS + 2, sizeof *cpu->low.group_parts);
}

void cpu_free_low_rank(struct cpu *cpu) {
    if (!cpu->low.inner) return;
    mem_large_free(cpu->low.inner, inner_bytes(cpu));
    mem_large_free(cpu->low.hidden, hidden_bytes(cpu));
    mem_free(cpu->low.part);
    mem_free(cpu->low.group_parts);
}

/* ---- rows by adapter ------------------------------------------------------------------------ */

/* Returns the newest part of an adapter among from..end - 1 if it has room, else `end`. */
static struct low_rank_part *part_with_room(struct low_rank_part *from, struct low_rank_part *end,
                                            int32_t adapter) {
    struct low_rank_part *part = end;
    while (part > from && part[-1].adapter != adapter) part--;
    return part > from && part[-1].n < LOW_RANK_ROWS ? part - 1 : end;
}

/* Sorts the rows of an op into parts. Returns the number of parts. */
static int sort_rows(struct low_rank_rows *low, const int32_t *adapter, int M) {
    struct low_rank_part *end = low->part, *from = end;
    for (int row = 0; row < M; row++) {
        if (row % GROUP_ROWS == 0) {
            from = end;
            low->group_parts[row / GROUP_ROWS] = (int)(end - low->part);
        }
        if (adapter[row] == 0) continue;
        struct low_rank_part *part = part_with_room(from, end, adapter[row]);
        if (part == end) *end++ = (struct low_rank_part){.adapter = adapter[row]};
        part->row[part->n++] = row;
    }
    low->group_parts[(M + GROUP_ROWS - 1) / GROUP_ROWS] = (int)(end - low->part);
    return (int)(end - low->part);
}

static const struct low_rank *change_of(const struct linear *linear, int32_t adapter) {
    return linear->low ? &linear->low->of[adapter] : NULL;
}

bool low_rank_changes(const struct linear *linear, int row) {
    const struct low_ranks *low = linear->low;
    return low && low->rows->adapter && low->of[low->rows->adapter[row]].rank > 0;
}

static float *inner_of(const struct cpu *cpu, int row, int i) {
    assert(row < cpu->max_rows && i >= 0 && i < MAX_FUSED);
    return cpu->low.inner + ((size_t)row * MAX_FUSED + (size_t)i) * (size_t)cpu->low.max_rank;
}

/* ---- inner products ------------------------------------------------------------------------- */

struct inner_job {
    struct cpu *cpu;
    const float *x; /* [M][K] */
    const struct norm *norm;
    const struct linear *linear; /* [n] */
    const int32_t *adapter;      /* [M] */
    int n, K;
    int n_parts, units; /* of each projection of a part */
    int piece_units;
};

static void norm_row(void *arg, int row, int thread) {
    const struct inner_job *job = arg;
    const size_t at = (size_t)row * (size_t)job->K;
    (void)thread;
    if (job->adapter[row] > 0)
        path_norm(job->cpu->path, job->cpu->low.hidden + at, job->x + at, job->norm, job->K);
}

/* Replaces x by its rows after the norm. A few rows are not worth a hand-over. */
static void norm_rows(struct inner_job *job, int M) {
    if (M > LANES)
        pool_run(job->cpu->pool, norm_row, job, M);
    else
        for (int row = 0; row < M; row++) norm_row(job, row, 0);
    job->x = job->cpu->low.hidden;
}

/* The inner products of a part with UNIT_RANKS rows of one projection's a. */
static void inner_unit(const struct inner_job *job, int unit) {
    const struct low_rank_part *part = &job->cpu->low.part[unit / (job->n * job->units)];
    const int i = unit / job->units % job->n, first = unit % job->units * UNIT_RANKS;
    const struct low_rank *change = change_of(&job->linear[i], part->adapter);
    if (!change || first >= change->rank) return;
    float *inner[LOW_RANK_ROWS];
    const float *x[LOW_RANK_ROWS];
    assert(change->rank <= job->cpu->low.max_rank && job->linear[i].w->K == job->K);
    assert(change->type <= DTYPE_BF16);
    for (int r = 0; r < part->n; r++) {
        inner[r] = inner_of(job->cpu, part->row[r], i) + first;
        x[r] = job->x + (size_t)part->row[r] * (size_t)job->K;
    }
    const int left = change->rank - first;
    job->cpu->path->low_rank_inner(inner, x, part->n, change, first,
                                   left < UNIT_RANKS ? left : UNIT_RANKS, job->K);
}

static void inner_piece(void *arg, int piece, int thread) {
    const struct inner_job *job = arg;
    const int units = job->n_parts * job->n * job->units, from = piece * job->piece_units;
    (void)thread;
    for (int u = from; u < units && u < from + job->piece_units; u++) inner_unit(job, u);
}

static int largest_rank(const struct low_rank_rows *low, const struct linear *linear, int n,
                        int n_parts) {
    int largest = 0;
    for (int p = 0; p < n_parts; p++)
        for (int i = 0; i < n; i++) {
            const struct low_rank *change = change_of(&linear[i], low->part[p].adapter);
            if (change && change->rank > largest) largest = change->rank;
        }
    return largest;
}

bool low_rank_begin(struct cpu *cpu, const float *x, const struct norm *norm,
                    const struct linear *linear, int n, int M) {
    const struct row_adapters *rows = NULL;
    for (int i = 0; i < n; i++)
        if (linear[i].low) rows = linear[i].low->rows;
    if (!rows || !rows->adapter) return false;
    assert(n <= MAX_FUSED && M <= cpu->max_rows && cpu->low.inner);
    struct inner_job job = {.cpu = cpu, .x = x, .norm = norm, .linear = linear, .n = n};
    job.adapter = rows->adapter;
    job.K = linear->w->K;
    job.n_parts = sort_rows(&cpu->low, rows->adapter, M);
    const int largest = largest_rank(&cpu->low, linear, n, job.n_parts);
    if (largest == 0) return false;
    if (norm) norm_rows(&job, M);
    job.units = (largest + UNIT_RANKS - 1) / UNIT_RANKS;
    const int units = job.n_parts * n * job.units, part_rows = (M + job.n_parts - 1) / job.n_parts;
    const int64_t products = (int64_t)part_rows * UNIT_RANKS * job.K * FLOAT_COST;
    job.piece_units = piece_units(cpu, products, units);
    pool_run(cpu->pool, inner_piece, &job, (units + job.piece_units - 1) / job.piece_units);
    return true;
}

/* ---- outputs -------------------------------------------------------------------------------- */

/* All adapters of a step are read in each step, so their panels are in no cache. Lines that are
 * requested before the product of a panel arrive during it. */
void low_rank_fetch(const struct cpu *cpu, const struct linear *linear, int panel, int group) {
    assert(panel >= 0 && panel < linear->w->n_panels && group >= 0);
    const int end = cpu->low.group_parts[group + 1];
    for (int p = cpu->low.group_parts[group]; p < end; p++) {
        const struct low_rank *change = change_of(linear, cpu->low.part[p].adapter);
        if (!change || change->rank == 0) continue;
        const size_t first = low_rank_at(change->rank, panel * LANES, 0);
        const uint8_t *b = (const uint8_t *)change->b_panels + dtype_bytes(change->type, first);
        const size_t panel_bytes = dtype_bytes(change->type, (size_t)change->rank * LANES);
        const size_t bytes = panel_bytes < MOST_FETCHED ? panel_bytes : MOST_FETCHED;
        for (size_t at = 0; at < bytes; at += LINE) __builtin_prefetch(b + at);
    }
}

void low_rank_add(const struct cpu *cpu, const struct linear *linear, int i, int panel, int group,
                  float *y, size_t stride) {
    const int left = linear->w->N - panel * LANES, n = left < LANES ? left : LANES;
    const float scale = linear_scale(linear);
    const int end = cpu->low.group_parts[group + 1];
    assert(left > 0 && group >= 0 && (int)LANES == (int)LOW_RANK_PANEL);
    for (int p = cpu->low.group_parts[group]; p < end; p++) {
        const struct low_rank_part *part = &cpu->low.part[p];
        const struct low_rank *change = change_of(linear, part->adapter);
        float *to[LOW_RANK_ROWS];
        const float *inner[LOW_RANK_ROWS];
        if (!change || change->rank == 0) continue;
        for (int r = 0; r < part->n; r++) {
            to[r] = y + (size_t)(part->row[r] - group * GROUP_ROWS) * stride;
            inner[r] = inner_of(cpu, part->row[r], i);
        }
        cpu->path->low_rank_add(to, inner, part->n, change, panel, n, change->scale * scale);
    }
}
