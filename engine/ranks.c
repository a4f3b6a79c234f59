/* DESIGN: the ranks beyond the first.
 *
 * Purpose   One model on several backends: each rank computes its heads and its part of the MLP,
 *           and after attention and MLP they add their sums (shard.h, all_reduce).
 * Threads   A rank's thread opens, uses and closes its backend, because a backend requires one
 *           caller, and a device is selected per thread. It sleeps between jobs. The engine's
 *           thread posts a job for all ranks, does rank 0's part, and waits for them. So they touch
 *           nothing while it plans, and a job's input is unchanged until all have finished.
 * Order     Jobs are posted by number under the mutex; `left` counts the ranks that have not
 *           finished. Within a pass the ranks meet at every all_reduce, inside the backends.
 * Failure   Only opening can fail. It does not involve other ranks, so a failed rank delays none of
 *           them. Its error goes to the waiting thread.
 * Left out  Ranks in other processes or on other machines. */
#include "engine/ranks.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/models/load/load.h"

struct rank {
    struct ranks *all;
    pthread_t thread;
    struct model model; /* its shard has the rank's number */
    struct kv_cache *cache;
    enum status status; /* of the last job */
    struct err err;
};

struct ranks {
    int n; /* including rank 0 */
    bool on_cuda;
    struct rank_group *group;
    pthread_mutex_t mutex; /* guards the fields below, up to those of the job */
    pthread_cond_t posted, ended;
    unsigned number; /* number of posted jobs */
    int left;        /* ranks that have not finished the job */
    int started;     /* threads */
    void (*job)(struct rank *rank);
    struct ranks_plan plan; /* fields of the job, written while no thread runs one */
    struct kv_config cache;
    const struct step *step;
    struct rank others[]; /* [n - 1] */
};

/* ---- jobs ----------------------------------------------------------------------------------- */

int ranks_threads(int threads, int rank, int ranks) {
    int share = threads / ranks + (rank < threads % ranks);
    return share > 1 ? share : 1;
}

static void load(struct rank *rank) {
    struct ranks *all = rank->all;
    struct model *model = &rank->model;
    struct backend_config wanted = all->plan.backend;
    wanted.group = all->group;
    wanted.rank = model->shard.rank;
    wanted.threads = ranks_threads(wanted.threads, wanted.rank, all->n);
    rank->status =
        (all->on_cuda ? backend_cuda_open : backend_cpu_open)(&model->backend, &wanted, &rank->err);
    if (rank->status) return;
    model->config = *all->plan.model;
    rank->status = model_load(model, all->plan.weights, all->plan.config, &rank->err);
}

static void make_cache(struct rank *rank) {
    struct backend *b = rank->model.backend;
    rank->status = b->cache->kv_new(b, &rank->cache, &rank->all->cache, &rank->err);
}

static void touch_cache(struct rank *rank) {
    rank->model.backend->cache->kv_touch(rank->model.backend, rank->cache);
}

static void run_pass(struct rank *rank) {
    model_forward(&rank->model, rank->all->step, rank->cache);
}

static void close_rank(struct rank *rank) {
    struct backend *b = rank->model.backend;
    if (!b) return;
    if (rank->cache) b->cache->kv_free(b, rank->cache);
    model_close(&rank->model);
    backend_close(b);
}

/* ---- threads -------------------------------------------------------------------------------- */

static void *rank_main(void *arg) {
    struct rank *rank = arg;
    struct ranks *all = rank->all;
    unsigned seen = 0;
    for (void (*job)(struct rank *) = NULL; job != close_rank;) {
        pthread_mutex_lock(&all->mutex);
        while (all->number == seen) pthread_cond_wait(&all->posted, &all->mutex);
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

static void post(struct ranks *ranks, void (*job)(struct rank *rank)) {
    pthread_mutex_lock(&ranks->mutex);
    assert(ranks->left == 0);
    ranks->job = job;
    ranks->number++;
    ranks->left = ranks->started;
    pthread_cond_broadcast(&ranks->posted);
    pthread_mutex_unlock(&ranks->mutex);
}

static enum status start(struct ranks *ranks, struct err *err) {
    for (int i = 0; i < ranks->n - 1; i++) {
        struct rank *rank = &ranks->others[i];
        rank->all = ranks;
        rank->model.shard = (struct shard){i + 1, ranks->n};
        if (pthread_create(&rank->thread, NULL, rank_main, rank) != 0)
            return err_set(
                err, STATUS_USAGE, "tensor-parallel-size",
                "the system cannot start a thread for rank %d of {tensor-parallel-size} %d", i + 1,
                ranks->n);
        ranks->started++;
    }
    return STATUS_OK;
}

enum status ranks_open(struct ranks **out, int n, bool on_cuda, struct err *err) {
    assert(n > 1 && n <= MAX_RANKS);
    struct rank_group *group = NULL;
    *out = NULL;
    if (!on_cuda) group = rank_group_cpu_new(n);
    enum status status = on_cuda ? rank_group_cuda_new(&group, n, err) : STATUS_OK;
    if (status) return status;
    struct ranks *ranks = mem_calloc(1, sizeof *ranks + (size_t)(n - 1) * sizeof *ranks->others);
    ranks->n = n;
    ranks->on_cuda = on_cuda;
    ranks->group = group;
    pthread_mutex_init(&ranks->mutex, NULL);
    pthread_cond_init(&ranks->posted, NULL);
    pthread_cond_init(&ranks->ended, NULL);
    *out = ranks;
    return start(ranks, err);
}

void ranks_close(struct ranks *ranks) {
    if (!ranks) return;
    post(ranks, close_rank);
    for (int i = 0; i < ranks->started; i++) pthread_join(ranks->others[i].thread, NULL);
    pthread_cond_destroy(&ranks->posted);
    pthread_cond_destroy(&ranks->ended);
    pthread_mutex_destroy(&ranks->mutex);
    rank_group_close(ranks->group);
    mem_free(ranks);
}

struct rank_group *ranks_group(const struct ranks *ranks) {
    return ranks ? ranks->group : NULL;
}

/* ---- actions -------------------------------------------------------------------------------- */

void ranks_begin_load(struct ranks *ranks, const struct ranks_plan *plan) {
    if (!ranks) return;
    ranks->plan = *plan;
    post(ranks, load);
}

void ranks_begin_cache(struct ranks *ranks, const struct kv_config *config) {
    if (!ranks) return;
    ranks->cache = *config;
    post(ranks, make_cache);
}

void ranks_begin_touch(struct ranks *ranks) {
    if (ranks) post(ranks, touch_cache);
}

void ranks_begin_pass(struct ranks *ranks, const struct step *step) {
    if (!ranks) return;
    ranks->step = step;
    post(ranks, run_pass);
}

enum status ranks_end(struct ranks *ranks, struct err *err) {
    if (!ranks) return STATUS_OK;
    pthread_mutex_lock(&ranks->mutex);
    while (ranks->left > 0) pthread_cond_wait(&ranks->ended, &ranks->mutex);
    pthread_mutex_unlock(&ranks->mutex);
    for (int i = 0; i < ranks->n - 1; i++) {
        const struct rank *rank = &ranks->others[i];
        if (!rank->status) continue;
        if (err) *err = rank->err;
        return rank->status;
    }
    return STATUS_OK;
}

void ranks_memory(const struct ranks *ranks, int64_t *weights, int64_t *scratch) {
    *weights = *scratch = 0;
    for (int i = 0; ranks && i < ranks->n - 1; i++) {
        const struct model *model = &ranks->others[i].model;
        *weights += model->weight_bytes;
        *scratch += activations_bytes(model, model->act.max_rows, model->act.max_logit_rows);
    }
}
