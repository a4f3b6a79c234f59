/* The compute threads.
 *
 * DESIGN
 * Purpose   one caller hands out pieces 0..n-1 of a job; it and the workers claim them one by one
 *           until none is left.
 * Claims    each thread has a share of neighbouring pieces and takes them in rising order, so that
 *           it reads on in memory where its last piece ended; when its share is used up it takes
 *           the next pieces of others. A share is one 64-bit word: the job's number, its first
 *           piece, and the one after its last. A claim is a compare-and-swap. So a worker that
 *           comes late, with an old job's number, claims nothing; and one that was preempted holds
 *           up nobody but its own piece.
 * Order     the job's fields are written before the shares are released with the new number, and
 *           not again before all its pieces have ended. A worker reads them before its claim; a
 *           claim that succeeds proves that they were this job's. What a piece wrote is seen by the
 *           caller through `ended`.
 * Waiting   workers spin on `posted` for SPIN_NS after their last piece, then sleep on a futex; so
 *           a pool between two ops answers in well under a microsecond and an idle pool takes no
 *           processor time. The caller spins for pieces still running and then sleeps as well, so
 *           it cannot starve a worker of its core.
 * Crowds    where other processes want the cores too, a worker may be on the caller's core, which
 *           it takes from it each time it is woken, to spin there in vain. So sleepers are woken
 *           once in WAKE_GAP_NS, at a job's beginning or between two of the caller's pieces; until
 *           then the caller does the pieces of those that sleep.
 * Left out  nested jobs, several callers, priorities. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/wait.h"

/* A thread and the pieces that are its own. */
struct worker {
    _Alignas(64) _Atomic uint64_t share;
    _Alignas(64) struct pool *pool;
    pthread_t thread;
    int number; /* the caller is 0 */
};

struct pool {
    _Alignas(64) _Atomic uint32_t ended; /* pieces of this job that have ended */
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t posted; /* the futex word of workers: the job's number */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    uint64_t woken_ns; /* when sleepers were last woken; the caller's */
    /* the job */
    void (*_Atomic fn)(void *arg, int i, int thread);
    void *_Atomic arg;
    size_t bytes; /* of this struct */
    int n_threads;
    struct worker workers[]; /* [n_threads], the caller first */
};

/* ---- claims --------------------------------------------------------------------------------- */

enum { PIECE_BITS = 18, MAX_PIECES = 1 << PIECE_BITS, WAKE_GAP_NS = 1000000 };

/* As many bits of a job's number as a share holds; they come again after an hour of jobs. */
static uint32_t job_bits(uint32_t job) {
    return job & ((1u << (64 - 2 * PIECE_BITS)) - 1);
}

static uint32_t from_of(uint64_t share) {
    return (uint32_t)(share >> PIECE_BITS) & (MAX_PIECES - 1);
}

static uint32_t to_of(uint64_t share) {
    return (uint32_t)share & (MAX_PIECES - 1);
}

static void wake(struct pool *pool) {
    futex_wake(&pool->posted, pool->n_threads - 1);
}

/* Wakes the workers that sleep, unless that was done just now. */
static void wake_now_and_then(struct pool *pool) {
    if (atomic_load(&pool->sleepers) == 0) return;
    uint64_t now = now_ns();
    if (now - pool->woken_ns < WAKE_GAP_NS) return;
    pool->woken_ns = now;
    wake(pool);
}

/* Runs pieces of one share, the thread's own or another's, until none is left to claim; returns how
 * many it ran. */
static uint32_t work_on(struct pool *pool, struct worker *owner, uint32_t job, int thread) {
    uint32_t ran = 0;
    uint64_t share = atomic_load_explicit(&owner->share, memory_order_acquire);
    while (share >> (2 * PIECE_BITS) == job && from_of(share) < to_of(share)) {
        void (*fn)(void *, int, int) = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&pool->arg, memory_order_relaxed);
        uint64_t rest = share + (1u << PIECE_BITS);
        if (!atomic_compare_exchange_weak_explicit(&owner->share, &share, rest,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        fn(arg, (int)from_of(share), thread);
        ran++;
        if (thread == 0) wake_now_and_then(pool);
        share = atomic_load_explicit(&owner->share, memory_order_acquire);
    }
    return ran;
}

/* Runs pieces of job `job`, the thread's own first, until none is left to claim; returns how many
 * it ran. */
static uint32_t work(struct pool *pool, uint32_t job, int thread) {
    uint32_t ran = 0;
    for (int i = 0; i < pool->n_threads; i++) {
        int owner = thread + i < pool->n_threads ? thread + i : thread + i - pool->n_threads;
        ran += work_on(pool, &pool->workers[owner], job_bits(job), thread);
    }
    return ran;
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void *worker_main(void *arg) {
    struct worker *worker = arg;
    struct pool *pool = worker->pool;
    uint32_t seen = 0;
    for (;;) {
        if (!spin_while(&pool->posted, seen)) {
            /* a poster that does not see the sleeper counted is seen by it */
            atomic_fetch_add(&pool->sleepers, 1);
            while (atomic_load(&pool->posted) == seen) futex_wait(&pool->posted, seen);
            atomic_fetch_sub(&pool->sleepers, 1);
        }
        seen = atomic_load(&pool->posted);
        if (atomic_load(&pool->stop)) return NULL;
        uint32_t ran = work(pool, seen, worker->number);
        if (ran == 0) continue;
        atomic_fetch_add(&pool->ended, ran);
        if (atomic_load(&pool->caller_sleeps)) futex_wake(&pool->ended, 1);
    }
}

static bool all_ended(struct pool *pool, uint32_t n) {
    return atomic_load_explicit(&pool->ended, memory_order_acquire) == n;
}

/* Waits for the pieces that workers still run. */
static void wait_for_ended(struct pool *pool, uint32_t n) {
    if (all_ended(pool, n)) return;
    uint64_t until = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < PAUSES_A_LOOK_AT_THE_CLOCK; i++) {
            if (all_ended(pool, n)) return;
            cpu_pause();
        }
    } while (now_ns() < until);
    atomic_store(&pool->caller_sleeps, 1);
    for (uint32_t ended; (ended = atomic_load(&pool->ended)) != n;) futex_wait(&pool->ended, ended);
    atomic_store(&pool->caller_sleeps, 0);
}

/* Posts the number that workers look at. */
static void post(struct pool *pool, uint32_t job) {
    atomic_store(&pool->posted, job);
}

/* Gives each thread its share of the job's n pieces. */
static void share_out(struct pool *pool, uint32_t job, int n) {
    for (int t = 0; t < pool->n_threads; t++) {
        uint32_t from = (uint32_t)((int64_t)n * t / pool->n_threads);
        uint32_t to = (uint32_t)((int64_t)n * (t + 1) / pool->n_threads);
        uint64_t share = (uint64_t)job_bits(job) << (2 * PIECE_BITS);
        share |= (uint64_t)from << PIECE_BITS | to;
        assert(from <= to && to < MAX_PIECES);
        atomic_store_explicit(&pool->workers[t].share, share, memory_order_release);
    }
}

void pool_run(struct pool *pool, void (*fn)(void *arg, int i, int thread), void *arg, int n) {
    assert(n < MAX_PIECES);
    if (n <= 1 || pool->n_threads == 1) {
        for (int i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    uint32_t job = atomic_load_explicit(&pool->posted, memory_order_relaxed) + 1;
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&pool->ended, 0, memory_order_relaxed);
    share_out(pool, job, n);
    post(pool, job);
    wake_now_and_then(pool);
    atomic_fetch_add(&pool->ended, work(pool, job, 0));
    wait_for_ended(pool, (uint32_t)n);
}

struct pool *pool_new(int n_threads) {
    assert(n_threads >= 1);
    size_t bytes = sizeof(struct pool) + (size_t)n_threads * sizeof(struct worker);
    struct pool *pool = mem_large(bytes);
    pool->bytes = bytes;
    pool->n_threads = 1;
    for (int i = 1; i < n_threads; i++) {
        struct worker *worker = &pool->workers[i];
        worker->pool = pool;
        worker->number = i;
        if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) break;
        pool->n_threads++;
    }
    return pool;
}

int pool_threads(const struct pool *pool) {
    return pool->n_threads;
}

void pool_free(struct pool *pool) {
    atomic_store(&pool->stop, true);
    post(pool, atomic_load(&pool->posted) + 1);
    wake(pool);
    for (int i = 1; i < pool->n_threads; i++) pthread_join(pool->workers[i].thread, NULL);
    mem_large_free(pool, pool->bytes);
}
