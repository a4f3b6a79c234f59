/* DESIGN: running an engine's passes.
 *
 * On the CPU a pass runs when it is launched, on the caller's thread and the backend's. On
 * a device launching queues it and the copy of its logits to pinned memory, with a mark behind that
 * engine_wait waits for. Two may be in flight (d: late ids put on the device):
 *
 *     host     submit 1 | submit 2 | wait 1 .. sample d launch 2 | commit 1, plan 3, submit 3 | ..
 *     device   [ pass 1            ]                   [ pass 2                             ] ..
 *
 * Where several ranks share the model, the engine has rank 0 and everything that only one of them
 * has: embedding, head, sampling. The others run the same passes beside it (ranks.c); a launch ends
 * when all have launched.
 *
 * A pass that needs no id of the one before, and whose logits would not overwrite any that are
 * still to be read, is launched in engine_submit and follows the one before without a gap. Late ids
 * lie in one array on the device; the embedding reads them there. Whoever samples writes them: the
 * host by engine_sampled, after which the device has nothing else to do, or the device itself,
 * behind the pass of an engine_submit_samples. That is launched at once, whatever it needs, and
 * brings back what came of its samples instead of logits.
 *
 * A device may fail while passes are in flight. It is asked after each wait: what it has brought
 * before is lost too, since nobody could tell which of it is whole. Passes are counted on as if
 * they ran, so that whoever has submitted them can wait for all of them.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"

bool engine_failed(const struct engine *engine, struct err *err) {
    struct backend *b = engine->backend;
    bool failed = b->ops->failed && b->ops->failed(b, err);
    if (!failed && !engine->lacks_memory) return false;
    if (!failed)
        err_set(err, STATUS_SERVER_ERROR, NULL,
                "The host has no memory to pin for the logits of a step.");
    if (err) snprintf(err->code, sizeof err->code, "device_failed");
    return true;
}

static void check_step(const struct engine *engine, const struct step *step) {
    const struct activations *a = &engine->model.act;
    assert(step->M > 0 && step->M <= a->max_rows);
    assert(step->R >= 0 && step->R <= a->max_logit_rows && step->R <= step->M);
    assert(step->S > 0 && step->row_start[0] == 0 && step->row_start[step->S] == step->M);
    assert(step->n_late == 0 || engine->n_passes > 0); /* the ids come from the one before */
    (void)a;
    (void)step;
}

bool engine_on_host(const struct engine *engine) {
    return engine->backend->host_memory;
}

int engine_in_flight(const struct engine *engine) {
    return engine->in_flight;
}

static void forward(void *arg, const struct step *step) {
    struct engine *engine = arg;
    engine->model.family->forward(&engine->model, step, engine->cache);
}

static void launch(struct engine *engine, int i) {
    struct pass *pass = &engine->passes[i];
    struct backend *b = engine->backend;
    ranks_begin_pass(engine->ranks, &pass->step);
    if (b->ops->run)
        b->ops->run(b, &pass->step, engine->cache, forward, engine);
    else
        forward(engine, &pass->step);
    ranks_end(engine->ranks, NULL);
    if (!b->host_memory && !pass->sampled && engine->host_logits)
        b->ops->fetch(b, i, engine->host_logits, engine->model.act.logits,
                      logits_bytes(engine, pass->step.R));
    pass->launched = true;
}

/* Can the newest pass be launched behind the one that stands before it? */
static bool may_follow(const struct engine *engine, const struct step *before,
                       const struct step *step) {
    return !engine->backend->host_memory && step->n_late == 0 && (step->R == 0 || before->R == 0);
}

/* Puts a pass behind those in flight; returns its number. */
static int add_pass(struct engine *engine, const struct step *step, bool sampled) {
    assert(engine->n_passes < engine->in_flight);
    assert(engine->n_passes == 0 || engine->passes[engine->first].sampled == sampled);
    check_step(engine, step);
    int i = (engine->first + engine->n_passes++) % MAX_IN_FLIGHT;
    engine->passes[i] = (struct pass){.step = *step, .sampled = sampled};
    engine->passes[i].step.sampled = engine->sampled;
    return i;
}

/* Few ask for logits, so their memory is taken when somebody does; by then the engine is in use,
 * and there is nothing to fall back to: engine_failed tells. */
static void take_host_logits(struct engine *engine) {
    struct backend *b = engine->backend;
    size_t bytes = logits_bytes(engine, engine->model.act.max_logit_rows);
    engine->host_logits = b->ops->host_new(b, bytes);
    engine->lacks_memory = !engine->host_logits;
}

void engine_submit(struct engine *engine, const struct step *step) {
    struct backend *b = engine->backend;
    bool wanted = !b->host_memory && !engine->host_logits;
    if (wanted && !engine_failed(engine, NULL)) take_host_logits(engine);
    int before = engine->first, i = add_pass(engine, step, false);
    if (i == before || may_follow(engine, &engine->passes[before].step, step)) launch(engine, i);
}

bool engine_samples(const struct engine *engine) {
    return engine->sampler != NULL;
}

void engine_submit_samples(struct engine *engine, const struct step *step,
                           const struct sample *samples, int n) {
    struct backend *b = engine->backend;
    assert(n >= 0 && n <= max_samples(engine));
    int i = add_pass(engine, step, true);
    launch(engine, i);
    b->ops->sample(b, engine->sampler, engine->model.act.logits, samples, n, engine->sampled,
                   engine->results);
    b->ops->fetch(b, i, engine->host_results + i * max_samples(engine), engine->results,
                  (size_t)n * sizeof *engine->results);
}

const struct sampled *engine_wait_samples(struct engine *engine) {
    int i = engine->first;
    assert(engine->n_passes > 0 && engine->passes[i].sampled);
    engine->backend->ops->await(engine->backend, i);
    engine->first = (engine->first + 1) % MAX_IN_FLIGHT;
    engine->n_passes--;
    if (engine_failed(engine, NULL)) return NULL;
    return engine->host_results + i * max_samples(engine);
}

float *engine_wait(struct engine *engine) {
    struct backend *b = engine->backend;
    const struct pass *pass = &engine->passes[engine->first];
    assert(engine->n_passes > 0 && !pass->sampled);
    assert(pass->launched || engine_failed(engine, NULL)); /* then engine_sampled never came */
    if (!b->host_memory) b->ops->await(b, engine->first);
    engine->waited_rows = pass->step.R;
    engine->first = (engine->first + 1) % MAX_IN_FLIGHT;
    engine->n_passes--;
    if (engine_failed(engine, NULL)) return NULL;
    return b->host_memory ? engine->model.act.logits : engine->host_logits;
}

void engine_sampled(struct engine *engine, const int32_t *id) {
    struct backend *b = engine->backend;
    const struct pass *pass = &engine->passes[engine->first];
    if (engine->n_passes == 0 || pass->launched) return;
    size_t bytes = (size_t)engine->waited_rows * sizeof *id;
    if (pass->step.n_late > 0) b->ops->upload(b, engine->sampled, id, bytes);
    launch(engine, engine->first);
}

void engine_time_ops(struct engine *engine, struct op_times *times) {
    struct backend *b = engine->backend;
    if (b->timed) backend_stop_watching(b);
    if (times || b->ranges) backend_watch_ops(b, &engine->timed_ops, times);
}

void engine_limits(struct engine *engine, struct device_limits *out) {
    struct backend *b = engine->backend;
    *out = (struct device_limits){0};
    if (b->ops->limits) b->ops->limits(b, out);
}

void engine_weights_read(const struct engine *engine, int64_t *layers, int64_t *head) {
    const struct model *model = &engine->model;
    size_t (*bytes)(const struct matrix *) = engine->backend->ops->matrix_bytes;
    bool tied = model->head == model->embedding;
    *head = (int64_t)bytes(model->head);
    *layers = model->weight_bytes - *head - (tied ? 0 : (int64_t)bytes(model->embedding));
}

void engine_parallel(struct engine *engine, void (*fn)(void *arg, int i), void *arg, int n) {
    engine->backend->ops->parallel(engine->backend, fn, arg, n);
}
