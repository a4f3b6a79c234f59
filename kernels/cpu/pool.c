/* The compute threads.
 *
 * DESIGN
 * Purpose   The caller publishes a job with pieces 0..n-1. The caller and the workers claim pieces
 *           one by one until all are claimed. sharing.c decides the order of claims. A preempted
 *           worker delays only its own piece.
 * Order     The job's fields are written before its number is posted, and not again before all its
 *           pieces have ended. A successful claim proves that the fields belong to this job.
 *           `ended` publishes the results of the pieces to the caller.
 * Tree      Each group of threads polls its own word for the next job and counts its own pieces. So
 *           the start and the end of a job touch a few cache lines per group, not per thread.
 * Waiting   Workers spin on `posted` for SPIN_NS after their last piece, then sleep on a futex. So
 *           a pool between two ops responds in less than a microsecond, and an idle pool uses 0 %
 *           of the processor. The caller spins for pieces that still run and then sleeps as well,
 *           so it cannot starve a worker of its core.
 * Crowds    If other processes compete for the cores, a worker may share the caller's core. Each
 *           wake-up then preempts the caller, and the worker spins in vain. So sleepers are woken
 *           at most once per WAKE_GAP_NS, at the start of a job or between two of the caller's
 *           pieces; until then the caller runs the pieces of sleeping workers. With more threads
 *           than cores, spinning threads yield, and at most one worker per core is woken.
 * Binding   Workers bind themselves when they start, a caller when it first runs a job. The thread
 *           that opened the pool is not bound, because threads that it starts later would inherit
 *           the binding.
 * Left out  Nested jobs, several callers at once, priorities. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/wait.h"

struct worker {
    struct pool *pool;
    pthread_t thread;
    int number; /* the caller is 0 */
};

/* The word that the threads of a group wait for. */
struct post {
    _Alignas(64) _Atomic uint32_t job; /* the job's number; futex word of the workers */
};

struct pool {
    _Alignas(64) _Atomic uint32_t sleepers; /* number of sleeping workers */
    _Atomic uint32_t caller_sleeps;
    _Atomic uint32_t open; /* futex word of the workers before the pool is open */
    _Atomic bool stop;
    /* the job */
    _Alignas(64) void (*_Atomic fn)(void *arg, int i, int thread);
    void *_Atomic arg;
    /* time of the last wake-up; this and all fields below belong to the caller */
    uint64_t woken_ns;
    /* the thread that opened the pool; the thread that ran the last job */
    pthread_t opener, caller;
    int n_threads, n_cores;
    bool crowded; /* there are more threads than cores */
    struct sharing *sharing;
    struct placement *placement; /* NULL: threads are not bound */
    struct post *posts;          /* [groups] */
    struct worker *workers;      /* [n_threads], the caller first */
};

/* ---- working -------------------------------------------------------------------------------- */

enum { WAKE_GAP_NS = 1000000 };

/* Wakes sleeping workers, group by group, at most `most` of them. */
static void wake(struct pool *pool, int most) {
    for (int g = 0; g < pool->sharing->n_groups && most > 0; g++) {
        const struct share_group *group = &pool->sharing->groups[g];
        futex_wake(&pool->posts[g].job, most);
        most -= group->end - group->first;
    }
}

/* Wakes sleeping workers unless the last wake-up was less than WAKE_GAP_NS ago. */
static void wake_now_and_then(struct pool *pool) {
    if (atomic_load(&pool->sleepers) == 0) return;
    uint64_t now = now_ns();
    if (now - pool->woken_ns < WAKE_GAP_NS) return;
    pool->woken_ns = now;
    wake(pool, pool->crowded ? pool->n_cores : pool->n_threads);
}

/* Runs pieces of `job`, the thread's own first, until all are claimed. Returns whether `ended` has
 * changed. */
static bool work(struct pool *pool, uint32_t job, int thread) {
    struct range_search search;
    sharing_search(pool->sharing, &search, job, thread);
    for (int i; (i = sharing_claim(pool->sharing, &search)) >= 0;) {
        void (*fn)(void *, int, int) = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        fn(atomic_load_explicit(&pool->arg, memory_order_relaxed), i, thread);
        if (thread == 0) wake_now_and_then(pool);
    }
    return search.counted;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Returns when the word differs from `seen`. Either the poster sees the sleeper's count, or the
 * sleeper sees the posted word. */
static void wait_for_change(struct pool *pool, _Atomic uint32_t *word, uint32_t seen) {
    if (spin_while(word, seen, pool->crowded)) return;
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(word) == seen) futex_wait(word, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *worker_main(void *arg) {
    struct worker *worker = arg;
    struct pool *pool = worker->pool;
    while (atomic_load(&pool->open) == 0) futex_wait(&pool->open, 0);
    if (pool->placement) placement_bind(pool->placement, worker->number);
    _Atomic uint32_t *posted = &pool->posts[sharing_group(pool->sharing, worker->number)].job;
    for (uint32_t seen = 0;;) {
        wait_for_change(pool, posted, seen);
        seen = atomic_load(posted);
        if (atomic_load(&pool->stop)) return NULL;
        if (work(pool, seen, worker->number) && atomic_load(&pool->caller_sleeps))
            futex_wake(&pool->sharing->ended, 1);
    }
}

static bool all_ended(struct pool *pool) {
    return atomic_load_explicit(&pool->sharing->ended, memory_order_acquire) ==
           pool->sharing->wanted;
}

/* Waits for the pieces that workers still run. */
static void wait_for_ended(struct pool *pool) {
    if (all_ended(pool)) return;
    uint64_t until = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < PAUSES_A_LOOK_AT_THE_CLOCK; i++) {
            if (all_ended(pool)) return;
            cpu_pause();
        }
        if (pool->crowded) sched_yield();
    } while (now_ns() < until);
    _Atomic uint32_t *word = &pool->sharing->ended;
    atomic_store(&pool->caller_sleeps, 1);
    for (uint32_t ended; (ended = atomic_load(word)) != pool->sharing->wanted;)
        futex_wait(word, ended);
    atomic_store(&pool->caller_sleeps, 0);
}

/* Posts the job's number to all groups. */
static void post(struct pool *pool, uint32_t job) {
    for (int g = 0; g < pool->sharing->n_groups; g++) atomic_store(&pool->posts[g].job, job);
}

static void bind_caller(struct pool *pool) {
    pthread_t self = pthread_self();
    if (pthread_equal(self, pool->caller)) return;
    pool->caller = self;
    if (!pthread_equal(self, pool->opener)) placement_bind(pool->placement, 0);
}

void pool_run_nodes(struct pool *pool, void (*fn)(void *arg, int i, int thread), void *arg,
                    const int *border) {
    assert(border[0] == 0);
    int n = border[pool->sharing->n_nodes];
    if (pool->placement) bind_caller(pool);
    if (n <= 1 || pool->n_threads == 1) {
        for (int i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->arg, arg, memory_order_relaxed);
    uint32_t job = sharing_begin(pool->sharing, border);
    post(pool, job);
    wake_now_and_then(pool);
    work(pool, job, 0);
    wait_for_ended(pool);
}

void pool_run(struct pool *pool, void (*fn)(void *arg, int i, int thread), void *arg, int n) {
    int border[MAX_NODES + 1];
    sharing_borders(pool->sharing, n, border);
    pool_run_nodes(pool, fn, arg, border);
}

/* ---- opening -------------------------------------------------------------------------------- */

static int start_workers(struct pool *pool, int n_threads) {
    assert(n_threads >= 1);
    int n = 1;
    for (; n < n_threads; n++) {
        struct worker *worker = &pool->workers[n];
        worker->pool = pool;
        worker->number = n;
        if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) break;
    }
    return n;
}

struct pool *pool_new(int n_threads, struct placement *placement) {
    assert(n_threads >= 1 && (!placement || n_threads == placement->n_threads));
    struct pool *pool = mem_large(sizeof *pool);
    pool->placement = placement;
    pool->opener = pool->caller = pthread_self();
    pool->workers = mem_calloc((size_t)n_threads, sizeof *pool->workers);
    pool->n_threads = start_workers(pool, n_threads);
    pool->n_cores = placement ? placement->topology.n : cores_allowed();
    pool->crowded = pool->n_threads > pool->n_cores;
    pool->sharing = sharing_new(placement ? placement->node_of : NULL, pool->n_threads);
    pool->posts = mem_large((size_t)pool->sharing->n_groups * sizeof *pool->posts);
    atomic_store(&pool->open, 1);
    futex_wake(&pool->open, n_threads);
    return pool;
}

int pool_threads(const struct pool *pool) {
    return pool->n_threads;
}

int pool_nodes(const struct pool *pool) {
    return pool->sharing->n_nodes;
}

void pool_borders(const struct pool *pool, int n, int *border) {
    sharing_borders(pool->sharing, n, border);
}

void pool_place(const struct pool *pool, const void *memory, size_t bytes, int node) {
    if (pool->placement) placement_move(pool->placement, memory, bytes, node);
}

void pool_free(struct pool *pool) {
    atomic_store(&pool->stop, true);
    post(pool, atomic_load(&pool->posts[0].job) + 1);
    wake(pool, pool->n_threads);
    for (int i = 1; i < pool->n_threads; i++) pthread_join(pool->workers[i].thread, NULL);
    mem_large_free(pool->posts, (size_t)pool->sharing->n_groups * sizeof *pool->posts);
    sharing_free(pool->sharing);
    mem_free(pool->workers);
    mem_free(pool->placement);
    mem_large_free(pool, sizeof *pool);
}
