/* DESIGN: ranks that are threads of this process.
 *
 * Purpose   One model on several backends: each rank computes its heads and its part of the MLP,
 *           and after attention and MLP they add their sums (shard.h, all_reduce).
 * Threads   A rank's thread opens, uses and closes its backend, because a backend requires one
 *           caller, and a device is selected per thread. It sleeps between jobs. The engine's
 *           thread posts a job for all ranks, does rank 0's part, and waits for them. So they touch
 *           nothing while it plans, and a job's input is unchanged until all have finished.
 * Order     Jobs are posted by number under the mutex; `left` counts the ranks that have not
 *           finished. Within a pass the ranks meet at every all_reduce, inside the backends.
 * Failure   Opening may fail. It does not involve other ranks, so a failed rank does not delay
 *           them. Its error goes to the waiting thread. A GPU may fail later, and the other GPUs
 *           then wait for it. So the group is aborted by the rank whose call fails, or by a rank's
 *           thread, which looks at its GPU until a pass is done. The failure is recorded for the
 *           process, and rank 0's backend reports it. */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/ranks/internal.h"

enum { LOOK_MS = 10 }; /* from one look at a busy GPU to the next */

struct thread_rank {
    struct thread_ranks *all;
    pthread_t thread;
    struct rank rank;
    enum status status; /* of the last job */
    struct err err;
};

struct thread_ranks {
    struct ranks head;
    bool on_cuda;
    pthread_mutex_t mutex; /* guards the fields below, up to those of the job */
    pthread_cond_t posted, ended;
    unsigned number; /* number of posted jobs */
    int left;        /* ranks that have not finished the job */
    int started;     /* threads */
    void (*job)(struct thread_rank *rank);
    struct ranks_plan plan; /* fields of the job, written while no thread runs one */
    struct kv_config cache;
    const struct step *step;
    struct thread_rank others[]; /* [n - 1] */
};

static struct thread_ranks *threads_of(struct ranks *ranks) {
    return (struct thread_ranks *)ranks;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static void load(struct thread_rank *own) {
    const struct thread_ranks *all = own->all;
    int threads = ranks_threads(all->plan.backend.threads, own->rank.model.shard.rank, all->head.n);
    own->status =
        rank_load(&own->rank, &all->plan, all->head.group, threads, all->on_cuda, &own->err);
}

static void make_cache(struct thread_rank *own) {
    own->status = rank_make_cache(&own->rank, &own->all->cache, &own->err);
}

static void touch_cache(struct thread_rank *own) {
    rank_touch_cache(&own->rank);
}

static void run_pass(struct thread_rank *own) {
    rank_run(&own->rank, own->all->step);
}

static void close_rank(struct thread_rank *own) {
    rank_close(&own->rank);
}

/* ---- threads -------------------------------------------------------------------------------- */

static void pause_for_job(struct thread_ranks *all) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&all->posted, &all->mutex, &until);
}

/* Waits for the job after number `seen`, and looks at the GPU while it computes. The caller holds
 * the mutex, which is free during the looks. */
static void await_job(struct thread_rank *own, unsigned seen) {
    struct thread_ranks *all = own->all;
    bool is_busy = all->on_cuda && all->job == run_pass;
    while (all->number == seen && is_busy) {
        pause_for_job(all);
        pthread_mutex_unlock(&all->mutex);
        is_busy = !rank_is_idle(&own->rank);
        if (rank_failed(&own->rank, NULL)) gpu_group_abort(all->head.group);
        pthread_mutex_lock(&all->mutex);
    }
    while (all->number == seen) pthread_cond_wait(&all->posted, &all->mutex);
    assert(all->number == seen + 1);
}

static void *rank_main(void *arg) {
    struct thread_rank *rank = arg;
    struct thread_ranks *all = rank->all;
    unsigned seen = 0;
    for (void (*job)(struct thread_rank *) = NULL; job != close_rank;) {
        pthread_mutex_lock(&all->mutex);
        await_job(rank, seen);
        seen = all->number;
        job = all->job;
        pthread_mutex_unlock(&all->mutex);
        job(rank);
        pthread_mutex_lock(&all->mutex);
        if (--all->left == 0) pthread_cond_signal(&all->ended);
        pthread_mutex_unlock(&all->mutex);
    }
    return NULL;
}

static void post(struct thread_ranks *all, void (*job)(struct thread_rank *rank)) {
    pthread_mutex_lock(&all->mutex);
    assert(all->left == 0);
    all->job = job;
    all->number++;
    all->left = all->started;
    pthread_cond_broadcast(&all->posted);
    pthread_mutex_unlock(&all->mutex);
}

static void post_load(struct ranks *ranks, const struct ranks_plan *plan) {
    threads_of(ranks)->plan = *plan;
    post(threads_of(ranks), load);
}

static void post_cache(struct ranks *ranks, const struct kv_config *config, size_t step_bytes) {
    (void)step_bytes;
    threads_of(ranks)->cache = *config;
    post(threads_of(ranks), make_cache);
}

static void post_touch(struct ranks *ranks) {
    post(threads_of(ranks), touch_cache);
}

static void post_pass(struct ranks *ranks, const struct step *step) {
    threads_of(ranks)->step = step;
    post(threads_of(ranks), run_pass);
}

/* A rank's thread reads only the entries of its rows, which have other numbers. */
static enum status give_adapter(struct ranks *ranks, int number, struct adapter *const *of_rank,
                                struct err *err) {
    (void)err;
    for (int r = 1; r < ranks->n; r++)
        model_adapter_set(&threads_of(ranks)->others[r - 1].rank.model, number, of_rank[r]);
    return STATUS_OK;
}

static void drop_adapter(struct ranks *ranks, int number) {
    for (int r = 1; r < ranks->n; r++)
        model_adapter_clear(&threads_of(ranks)->others[r - 1].rank.model, number);
}

static enum status end_job(struct ranks *ranks, struct err *err) {
    struct thread_ranks *all = threads_of(ranks);
    pthread_mutex_lock(&all->mutex);
    while (all->left > 0) pthread_cond_wait(&all->ended, &all->mutex);
    pthread_mutex_unlock(&all->mutex);
    for (int i = 0; i < ranks->n - 1; i++) {
        const struct thread_rank *rank = &all->others[i];
        if (!rank->status) continue;
        if (err) *err = rank->err;
        return rank->status;
    }
    return STATUS_OK;
}

/* The other GPUs do not wait for rank 0's any more. */
static void abort_group(const struct ranks *ranks, const struct err *why) {
    (void)why;
    if (((const struct thread_ranks *)ranks)->on_cuda) gpu_group_abort(ranks->group);
}

static void add_memory(const struct ranks *ranks, int64_t *weights, int64_t *scratch) {
    const struct thread_ranks *all = (const struct thread_ranks *)ranks;
    for (int i = 0; i < ranks->n - 1; i++) {
        *weights += all->others[i].rank.model.weight_bytes;
        *scratch += rank_scratch(&all->others[i].rank);
    }
}

static void close_threads(struct ranks *ranks) {
    struct thread_ranks *all = threads_of(ranks);
    post(all, close_rank);
    for (int i = 0; i < all->started; i++) pthread_join(all->others[i].thread, NULL);
    pthread_cond_destroy(&all->posted);
    pthread_cond_destroy(&all->ended);
    pthread_mutex_destroy(&all->mutex);
    rank_group_close(ranks->group);
    mem_free(all);
}

static const struct ranks_ops thread_ops = {
    .close = close_threads,
    .load = post_load,
    .cache = post_cache,
    .touch = post_touch,
    .pass = post_pass,
    .give = give_adapter,
    .drop = drop_adapter,
    .end = end_job,
    .fail = abort_group,
    .memory = add_memory,
};

/* ---- opening -------------------------------------------------------------------------------- */

static enum status start(struct thread_ranks *all, struct err *err) {
    for (int i = 0; i < all->head.n - 1; i++) {
        struct thread_rank *own = &all->others[i];
        own->all = all;
        own->rank.model.shard = (struct shard){i + 1, all->head.n};
        if (pthread_create(&own->thread, NULL, rank_main, own) != 0)
            return err_set(
                err, STATUS_USAGE, "tensor-parallel-size",
                "the system cannot start a thread for rank %d of {tensor-parallel-size} %d", i + 1,
                all->head.n);
        all->started++;
    }
    return STATUS_OK;
}

enum status thread_ranks_open(struct ranks **out, int n, bool on_cuda, struct err *err) {
    struct rank_group *group = NULL;
    if (!on_cuda) group = rank_group_cpu_new(n);
    enum status status = on_cuda ? rank_group_cuda_new(&group, n, err) : STATUS_OK;
    if (status) return status;
    struct thread_ranks *all = mem_calloc(1, sizeof *all + (size_t)(n - 1) * sizeof *all->others);
    all->head = (struct ranks){&thread_ops, n, group};
    all->on_cuda = on_cuda;
    pthread_mutex_init(&all->mutex, NULL);
    pthread_cond_init(&all->posted, NULL);
    pthread_cond_init(&all->ended, NULL);
    *out = &all->head;
    return start(all, err);
}
