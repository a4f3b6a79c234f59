/* The compute threads.
 *
 * DESIGN
 * Purpose   one caller hands out pieces 0..n-1 of a job; it and the workers claim them one by one
 *           until none is left.
 * Claims    `state` is one 64-bit word: the job's number in the high half, pieces left in the low
 *           half. A claim is a compare-and-swap that takes one off. So a worker that comes late,
 *           with an old job's number, claims nothing; and one that was preempted holds up nobody
 *           but its own piece.
 * Order     the job's fields are written before `state` is released with the new number, and not
 *           again before all its pieces have ended. A worker reads them before its claim; a claim
 *           that succeeds proves that they were this job's. What a piece wrote is seen by the
 *           caller through `ended`.
 * Waiting   workers spin on `posted` for SPIN_NS after their last piece, then sleep on a futex; so
 *           a pool between two ops answers in well under a microsecond and an idle pool takes no
 *           processor time. The caller spins for pieces still running and then sleeps as well, so
 *           it cannot starve a worker of its core.
 * Left out  nested jobs, several callers, priorities. */
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"

enum { SPIN_NS = 100000, PAUSES_A_LOOK_AT_THE_CLOCK = 64 };

struct worker {
    struct pool *pool;
    pthread_t thread;
    int number; /* from 1; the caller is 0 */
};

struct pool {
    _Alignas(64) _Atomic uint64_t state;
    _Alignas(64) _Atomic uint32_t ended; /* pieces of this job that have ended */
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t posted; /* the futex word of workers: the job's number */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    /* the job */
    void (*_Atomic fn)(void *arg, int i, int thread);
    void *_Atomic arg;
    _Atomic uint32_t n;
    size_t bytes; /* of this struct */
    int n_workers;
    struct worker workers[];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static uint32_t job_of(uint64_t state) {
    return (uint32_t)(state >> 32);
}

static uint32_t left_of(uint64_t state) {
    return (uint32_t)state;
}

/* Runs pieces of job `job` until none is left to claim; returns how many it ran. */
static uint32_t work(struct pool *pool, uint32_t job, int thread) {
    uint32_t ran = 0;
    uint64_t state = atomic_load_explicit(&pool->state, memory_order_acquire);
    while (job_of(state) == job && left_of(state) > 0) {
        void (*fn)(void *, int, int) = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&pool->arg, memory_order_relaxed);
        uint32_t n = atomic_load_explicit(&pool->n, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&pool->state, &state, state - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        fn(arg, (int)(n - left_of(state)), thread);
        ran++;
        state = atomic_load_explicit(&pool->state, memory_order_acquire);
    }
    return ran;
}

/* True once a job other than `seen` is posted within the spinning time. */
static bool spin_for_job(struct pool *pool, uint32_t seen) {
    uint64_t until = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < PAUSES_A_LOOK_AT_THE_CLOCK; i++) {
            if (atomic_load_explicit(&pool->posted, memory_order_acquire) != seen) return true;
            cpu_pause();
        }
    } while (now_ns() < until);
    return false;
}

/* Sleeps until a job other than `seen` is posted. A poster that does not see the sleeper counted
 * is seen by it. */
static void sleep_for_job(struct pool *pool, uint32_t seen) {
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(&pool->posted) == seen) futex_wait(&pool->posted, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void tell_ended(struct pool *pool, uint32_t ran) {
    if (ran == 0) return;
    atomic_fetch_add(&pool->ended, ran);
    if (atomic_load(&pool->caller_sleeps)) futex_wake(&pool->ended, 1);
}

static void *worker_main(void *arg) {
    struct worker *worker = arg;
    struct pool *pool = worker->pool;
    uint32_t seen = 0;
    for (;;) {
        if (!spin_for_job(pool, seen)) sleep_for_job(pool, seen);
        seen = atomic_load(&pool->posted);
        if (atomic_load(&pool->stop)) return NULL;
        tell_ended(pool, work(pool, seen, worker->number));
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

/* Posts the number that workers look at, and wakes those that sleep. */
static void post(struct pool *pool, uint32_t job) {
    atomic_store(&pool->posted, job);
    if (atomic_load(&pool->sleepers) > 0) futex_wake(&pool->posted, pool->n_workers);
}

void pool_run(struct pool *pool, void (*fn)(void *arg, int i, int thread), void *arg, int n) {
    if (n <= 1 || pool->n_workers == 0) {
        for (int i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    uint64_t state = atomic_load_explicit(&pool->state, memory_order_relaxed);
    assert(left_of(state) == 0);
    uint32_t job = job_of(state) + 1;
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&pool->n, (uint32_t)n, memory_order_relaxed);
    atomic_store_explicit(&pool->ended, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->state, (uint64_t)job << 32 | (uint32_t)n, memory_order_release);
    post(pool, job);
    atomic_fetch_add(&pool->ended, work(pool, job, 0));
    wait_for_ended(pool, (uint32_t)n);
}

struct pool *pool_new(int n_threads) {
    assert(n_threads >= 1);
    size_t bytes = sizeof(struct pool) + (size_t)(n_threads - 1) * sizeof(struct worker);
    struct pool *pool = mem_large(bytes);
    pool->bytes = bytes;
    for (int i = 0; i < n_threads - 1; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){.pool = pool, .number = i + 1};
        if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) break;
        pool->n_workers++;
    }
    return pool;
}

int pool_threads(const struct pool *pool) {
    return pool->n_workers + 1;
}

void pool_free(struct pool *pool) {
    atomic_store(&pool->stop, true);
    post(pool, atomic_load(&pool->posted) + 1);
    for (int i = 0; i < pool->n_workers; i++) pthread_join(pool->workers[i].thread, NULL);
    mem_large_free(pool, pool->bytes);
}
