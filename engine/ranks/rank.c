/* The work of a rank above 0: the same for a thread and for a process. */
#include <assert.h>

#include "engine/models/load/load.h"
#include "engine/ranks/internal.h"

enum status rank_load(struct rank *rank, const struct ranks_plan *plan, struct rank_group *group,
                      int threads, bool on_cuda, struct err *err) {
    struct model *model = &rank->model;
    struct backend_config wanted = plan->backend;
    assert(model->shard.rank > 0 && model->shard.rank < model->shard.ranks && !model->backend);
    wanted.group = group;
    wanted.rank = model->shard.rank;
    wanted.threads = threads;
    enum status status =
        (on_cuda ? backend_cuda_open : backend_cpu_open)(&model->backend, &wanted, err);
    if (status) return status;
    model->config = *plan->model;
    model->eagle.weights = plan->eagle;
    status = model_load(model, plan->weights, plan->config, err);
    if (status || plan->config->max_adapters == 0) return status;
    /* rank 0 counts the bytes that are used */
    model_adapters_open(model, plan->config->max_adapters, plan->config->adapter_memory);
    return model_adapters_attach(model, err);
}

enum status rank_make_cache(struct rank *rank, const struct kv_config *config, struct err *err) {
    struct backend *b = rank->model.backend;
    assert(b && !rank->cache);
    return b->cache->kv_new(b, &rank->cache, config, err);
}

void rank_touch_cache(struct rank *rank) {
    assert(rank->cache);
    rank->model.backend->cache->kv_touch(rank->model.backend, rank->cache);
}

void rank_run(struct rank *rank, const struct step *step) {
    assert(rank->cache && step->M > 0);
    model_adapters_begin(&rank->model, step);
    step_run(rank->model.backend, model_program(&rank->model, step), step, rank->cache);
}

bool rank_is_idle(const struct rank *rank) {
    struct backend *b = rank->model.backend;
    return !b || b->host_memory || gpu_is_idle(b);
}

bool rank_failed(const struct rank *rank, struct err *err) {
    struct backend *b = rank->model.backend;
    return b && b->device->failed && b->device->failed(b, err);
}

void rank_close(struct rank *rank) {
    struct backend *b = rank->model.backend;
    if (!b) return;
    if (rank->cache) b->cache->kv_free(b, rank->cache);
    model_unload(&rank->model);
    model_adapters_close(&rank->model);
    backend_close(b);
    rank->cache = NULL;
    rank->model.backend = NULL;
}

int64_t rank_scratch(const struct rank *rank) {
    const struct model *model = &rank->model;
    return activations_bytes(model, model->act.max_rows, model->act.max_logit_rows);
}
