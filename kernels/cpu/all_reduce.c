/* All-reduce among CPU ranks.
 *
 * DESIGN
 * Purpose   The threads of all ranks call all_reduce, each with its shard's partial rows. When they
 *           return, each rank has the sum of all.
 * Order     An element is x of rank 0 + part of rank 1 + part of rank 2 and so on, whichever rank
 *           computes it. So the bits are the same in every run and on every rank.
 * Threads   If the ranks are threads of one process, each rank computes a range of the elements on
 *           its own threads and stores the result for all ranks.
 * Barriers  There are two. Before the first element is read, all ranks have published the address
 *           of their rows. Before a rank returns, all elements are stored. The last rank to arrive
 *           increments `generation`, which the others wait for; this also publishes their writes.
 *           No rank is missing: all run the same passes, and no op fails.
 * Processes If the ranks are processes, the group gathers the numbers of all ranks, and each rank
 *           adds all of them. After the loss of a rank the sums are undefined; the engine then
 *           reports the failure instead of results. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/wait.h"

/* The rows of one rank. */
struct rows {
    _Alignas(64) float *x;
    float *part;
};

struct cpu_group {
    struct rank_group head;
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t generation; /* the futex word */
    _Atomic uint32_t sleepers;
    bool crowded; /* there are more ranks than cores */
    struct rows rows[MAX_RANKS];
};

static void close_group(struct rank_group *group) {
    mem_large_free(group, sizeof(struct cpu_group));
}

struct rank_group *rank_group_cpu_new(int ranks) {
    assert(ranks >= 1 && ranks <= MAX_RANKS);
    struct cpu_group *group = mem_large(sizeof *group);
    group->head = (struct rank_group){.ranks = ranks, .close = close_group};
    group->crowded = ranks > cores_allowed();
    return &group->head;
}

void rank_group_close(struct rank_group *group) {
    if (group) group->close(group);
}

/* A barrier: returns when all ranks have called it. */
static void meet(struct cpu_group *group) {
    uint32_t ranks = (uint32_t)group->head.ranks, seen = atomic_load(&group->generation);
    if (atomic_fetch_add(&group->arrived, 1) + 1 < ranks) {
        if (spin_while(&group->generation, seen, group->crowded)) return;
        atomic_fetch_add(&group->sleepers, 1);
        while (atomic_load(&group->generation) == seen) futex_wait(&group->generation, seen);
        atomic_fetch_sub(&group->sleepers, 1);
        return;
    }
    atomic_store(&group->arrived, 0);
    atomic_fetch_add(&group->generation, 1);
    if (atomic_load(&group->sleepers) > 0) futex_wake(&group->generation, MAX_RANKS);
}

enum { PIECE = 4096 }; /* elements; small enough to stay in the L1 cache */

struct reduce_job {
    const struct cpu_group *group;
    size_t from, to; /* range of elements of this rank */
};

/* Adds elements from..from + n of all ranks in their order and stores the sums for all. */
static void add_up(const struct cpu_group *group, size_t from, size_t n) {
    assert(n <= PIECE);
    float sum[PIECE];
    memcpy(sum, group->rows[0].x + from, n * sizeof *sum);
    for (int r = 1; r < group->head.ranks; r++) {
        float *part = group->rows[r].part + from;
        for (size_t i = 0; i < n; i++) sum[i] += part[i];
        memset(part, 0, n * sizeof *part);
    }
    for (int r = 0; r < group->head.ranks; r++)
        memcpy(group->rows[r].x + from, sum, n * sizeof *sum);
}

static void reduce_piece(void *arg, int i, int thread) {
    assert(i >= 0 && thread >= 0);
    (void)thread;
    const struct reduce_job *job = arg;
    size_t from = job->from + (size_t)i * PIECE, left = job->to - from;
    add_up(job->group, from, left < PIECE ? left : PIECE);
}

/* Returns the first of n elements that rank r computes. It is the first of a cache line. */
static size_t part_begins(size_t n, int r, int ranks) {
    size_t begin = (n + LANES - 1) / LANES * (size_t)r / (size_t)ranks * LANES;
    return begin < n ? begin : n;
}

static void reduce_shared(struct cpu *cpu, float *x, float *part, size_t n) {
    struct cpu_group *group = (struct cpu_group *)cpu->group;
    group->rows[cpu->rank] = (struct rows){x, part};
    meet(group);
    struct reduce_job job = {group, part_begins(n, cpu->rank, group->head.ranks),
                             part_begins(n, cpu->rank + 1, group->head.ranks)};
    pool_run(cpu->pool, reduce_piece, &job, (int)((job.to - job.from + PIECE - 1) / PIECE));
    meet(group);
}

/* ---- ranks in several processes ------------------------------------------------------------- */

/* The numbers of all ranks, to be added. */
struct gathered_job {
    int ranks, n;
    const float *rows[MAX_RANKS]; /* [n] each; one of them is `part`, or x on rank 0 */
    float *x, *part;              /* [n]; part is NULL on rank 0 */
};

static void add_gathered(void *arg, int i, int thread) {
    const struct gathered_job *job = arg;
    const int from = i * PIECE, n = min_int(job->n - from, PIECE);
    assert(n > 0 && n <= PIECE && thread >= 0);
    (void)thread;
    float sum[PIECE];
    memcpy(sum, job->rows[0] + from, (size_t)n * sizeof *sum);
    for (int r = 1; r < job->ranks; r++) {
        const float *row = job->rows[r] + from;
        for (int k = 0; k < n; k++) sum[k] += row[k];
    }
    memcpy(job->x + from, sum, (size_t)n * sizeof *sum);
    if (job->part) memset(job->part + from, 0, (size_t)n * sizeof *sum);
}

static void reduce_gathered(struct cpu *cpu, float *x, float *part, size_t n) {
    struct rank_group *group = cpu->group;
    struct gathered_job job = {.ranks = group->ranks};
    for (size_t from = 0; from < n; from += (size_t)job.n) {
        job.n = (int)(n - from < MOST_GATHERED ? n - from : MOST_GATHERED);
        job.x = x + from;
        job.part = cpu->rank > 0 ? part + from : NULL;
        if (!group->gather(group, job.part ? job.part : job.x, job.n, job.rows)) return;
        pool_run(cpu->pool, add_gathered, &job, (job.n + PIECE - 1) / PIECE);
    }
}

void op_all_reduce(struct backend *b, float *x, float *part, int M, int K) {
    struct cpu *cpu = cpu_of(b);
    assert(cpu->group && M >= 0 && K > 0);
    assert(cpu->rank >= 0 && cpu->rank < cpu->group->ranks);
    (cpu->group->gather ? reduce_gathered : reduce_shared)(cpu, x, part, (size_t)M * (size_t)K);
}
