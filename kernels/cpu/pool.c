/* The compute threads.
 *
 * DESIGN
 * Purpose   one caller hands out pieces 0..n-1 of a job; it and the workers claim them one by one
 *           until none is left. Who claims which is sharing.c's; a worker that was preempted holds
 *           up nobody but its own piece.
 * Order     the job's fields are written before its number is posted, and not again before all its
 *           pieces have ended. A claim that succeeds proves that they are this job's. What a piece
 *           wrote is seen by the caller through `ended`.
 * Tree      each group of threads looks at a word of its own for the next job, and counts its own
 *           pieces; so a job's beginning and end touch a few lines for each group, not for each
 *           thread.
 * Waiting   workers spin on `posted` for SPIN_NS after their last piece, then sleep on a futex; so
 *           a pool between two ops answers in well under a microsecond and an idle pool takes no
 *           processor time. The caller spins for pieces still running and then sleeps as well, so
 *           it cannot starve a worker of its core.
 * Crowds    where other processes want the cores too, a worker may be on the caller's core, which
 *           it takes from it each time it is woken, to spin there in vain. So sleepers are woken
 *           once in WAKE_GAP_NS, at a job's beginning or between two of the caller's pieces; until
 *           then the caller does the pieces of those that sleep. With more threads than cores, who
 *           spins yields, and no more are woken than there are cores.
 * Binding   workers bind themselves when they start, a caller when it first runs a job. The thread
 *           that opened the pool is not bound: threads that it starts later would inherit that.
 * Left out  nested jobs, several callers, priorities. */
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

/* What the threads of a group wait for. */
struct post {
    _Alignas(64) _Atomic uint32_t job; /* its number; the futex word of workers */
};

struct pool {
    _Alignas(64) _Atomic uint32_t sleepers; /* workers */
    _Atomic uint32_t caller_sleeps;
    _Atomic uint32_t open; /* the futex word of workers before there is anything to share */
    _Atomic bool stop;
    /* the job */
    _Alignas(64) void (*_Atomic fn)(void *arg, int i, int thread);
    void *_Atomic arg;
    uint64_t woken_ns; /* when sleepers were last woken; the caller's, as is all that follows */
    pthread_t opener, caller; /* who opened the pool; who ran the last job */
    int n_threads, n_cores;
    bool crowded; /* more threads than cores */
    struct sharing *sharing;
    struct placement *placement; /* NULL: threads are not bound */
    struct post *posts;          /* [groups] */
    struct worker *workers;      /* [n_threads], the caller first */
};

/* ---- working -------------------------------------------------------------------------------- */

enum { WAKE_GAP_NS = 1000000 };

/* Wakes workers that sleep, each group's as many as are left of `most`. */
static void wake(struct pool *pool, int most) {
    for (int g = 0; g < pool->sharing->n_groups && most > 0; g++) {
        const struct share_group *group = &pool->sharing->groups[g];
        futex_wake(&pool->posts[g].job, most);
        most -= group->end - group->first;
    }
}

/* Wakes the workers that sleep, unless that was done just now. */
static void wake_now_and_then(struct pool *pool) {
    if (atomic_load(&pool->sleepers) == 0) return;
    uint64_t now = now_ns();
    if (now - pool->woken_ns < WAKE_GAP_NS) return;
    pool->woken_ns = now;
    wake(pool, pool->crowded ? pool->n_cores : pool->n_threads);
}

/* Runs pieces of job `job`, the thread's own first, until none is left to claim; says whether
 * `ended` has changed. */
static bool work(struct pool *pool, uint32_t job, int thread) {
    struct search search;
    sharing_search(pool->sharing, &search, job, thread);
    for (int i; (i = sharing_claim(pool->sharing, &search)) >= 0;) {
        void (*fn)(void *, int, int) = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        fn(atomic_load_explicit(&pool->arg, memory_order_relaxed), i, thread);
        if (thread == 0) wake_now_and_then(pool);
    }
    return search.counted;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Returns when the word differs from `seen`. A poster that does not see the sleeper counted is seen
 * by it. */
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

/* Posts the number that workers look at. */
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
