/* DESIGN: runs an engine's passes.
 *
 * On the CPU a pass runs within engine_submit and its samples within engine_sample, on the threads
 * of the caller and of the backend. So there is one pass in flight, and engine_wait only returns
 * the results. On a device both calls queue work. The device writes the results to host memory, and
 * engine_wait waits for a mark that engine_sample queues after that. Two passes may be in flight:
 *
 *     host     submit 1, sample 1 | submit 2, sample 2 | wait 1 | commit 1, plan 3, submit 3 ..
 *     device   [ pass 1 ][ sample 1 ][ pass 2            ][ sample 2 ][ pass 3
 *
 * Pass 2 may need ids from sample 1: pending tokens. They stay on the device, in one array by logit
 * row. Sampling writes them, and the next pass's embedding reads them.
 *
 * With a backend that cannot sample, engine_sample waits for the logits and the host samples them.
 * Then one pass is in flight, and tokens are never pending.
 *
 * The host lists a row's changes by its history while the pass runs, unless the device can count
 * for itself (sampling_lists_changes). The last token of such a history is known.
 *
 * If several ranks share the model, the engine runs rank 0, which alone has the embedding, the head
 * and sampling. The others run the same passes on their own threads or in their own processes
 * (ranks/); engine_submit returns after all have launched.
 *
 * If a device fails while passes are in flight, engine_wait detects it. Results copied before are
 * lost too, because the device does not tell which of them are complete. Passes are still counted,
 * so that each submitted one can be waited for.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

bool engine_failed(const struct engine *engine, struct err *err) {
    struct backend *b = engine->backend;
    if (ranks_failed(engine->ranks, err)) return true;
    struct err why;
    bool failed = b->device->failed && b->device->failed(b, &why);
    if (!failed && !engine->lacks_memory) return false;
    if (!failed)
        err_set(&why, STATUS_SERVER_ERROR, NULL,
                "The host cannot pin memory for the logits of a step.");
    snprintf(why.code, sizeof why.code, "device_failed");
    ranks_fail(engine->ranks, &why);
    if (err) *err = why;
    return true;
}

bool engine_lost(const struct engine *engine) {
    return ranks_failed(engine->ranks, NULL);
}

bool engine_on_host(const struct engine *engine) {
    return engine->on_host;
}

int engine_in_flight(const struct engine *engine) {
    return engine->max_in_flight;
}

int engine_row_quantum(const struct engine *engine) {
    return engine->backend->row_quantum;
}

int engine_max_rows(const struct engine *engine) {
    return engine->model.act.max_rows;
}

int engine_max_logit_rows(const struct engine *engine) {
    return engine->model.act.max_logit_rows;
}

/* ---- a pass --------------------------------------------------------------------------------- */

/* The hidden vectors were left by the pass before, whose end the caller has awaited. */
static void check_guesses(const struct engine *engine, const struct step *step) {
    assert(engine->model.ahead.n > 0 && engine->n_in_flight == 0);
    assert(step->hidden_row && step->n_hidden == 0 && step->n_copies == 0);
    for (int m = 0; m < step->M; m++)
        assert(step->hidden_row[m] >= 0 && step->hidden_row[m] < engine->model.act.max_logit_rows);
    (void)engine;
}

static void check_step(const struct engine *engine, const struct step *step) {
    const struct model_activations *a = &engine->model.act;
    assert(step->M > 0 && step->M <= a->max_rows);
    assert(step->R >= 0 && step->R <= a->max_logit_rows && step->R <= step->M);
    assert(step->n_hidden >= 0 && step->n_hidden <= step->R);
    assert(step->next || engine->model.config.n_ahead == 0);
    assert(step->S > 0 && step->row_start[0] == 0 && step->row_start[step->S] == step->M);
    /* the ids come from the previous pass */
    assert(step->n_pending == 0 || engine->n_in_flight > 0);
    if (step->is_ahead) check_guesses(engine, step);
    (void)a;
    (void)step;
}

static int newest(const struct engine *engine) {
    assert(engine->n_in_flight > 0);
    return (engine->first + engine->n_in_flight - 1) % MAX_IN_FLIGHT;
}

/* Are the settings of the step's samples uploaded with it? Not if changes by histories must be
 * listed, which happens while the pass runs. */
static bool settings_travel(const struct engine *engine, const struct step *step) {
    if (!engine->device_sampler) return false;
    for (int i = 0; i < step->n_samples; i++) {
        const struct sampling *how = step->samples[i].sampling;
        if (how && sampling_lists_changes(how)) return false;
    }
    return true;
}

enum status plan_passes(struct opening *o, struct err *err) {
    struct engine *engine = o->engine;
    const struct backend *b = engine->backend;
    if (!b->compute->plan_run) return STATUS_OK;
    return b->compute->plan_run(engine->backend, &engine->model.program, engine->cache, err);
}

static float *hidden_of(const struct engine *engine, int pass) {
    return engine->hidden + (size_t)pass * (hidden_bytes(engine) / sizeof(float));
}

/* Queues the copy of the newest pass's hidden vectors to the host. engine_sample sets the mark for
 * which engine_wait waits, after this copy. */
static void fetch_hidden(struct engine *engine) {
    struct backend *b = engine->backend;
    const int i = newest(engine), n = engine->passes[i].n_hidden;
    const size_t bytes = (size_t)n * (size_t)engine->model.config.K_embedding * sizeof(float);
    if (n == 0) return;
    if (b->host_memory)
        memcpy(hidden_of(engine, i), engine->model.act.hidden, bytes);
    else
        b->memory->fetch(b, i, hidden_of(engine, i), engine->model.act.hidden, bytes);
}

void engine_submit(struct engine *engine, const struct step *step) {
    const struct model *model = &engine->model;
    assert(engine->n_in_flight < engine->max_in_flight);
    assert(engine->n_in_flight == 0 || engine->passes[newest(engine)].sampled);
    check_step(engine, step);
    struct step ours = *step, others;
    ours.sampled = engine->pending;
    ours.sampler = NULL;
    others = ours;
    if (settings_travel(engine, step)) ours.sampler = engine->device_sampler;
    engine->n_in_flight++;
    engine->passes[newest(engine)] =
        (struct inflight_pass){.n_logits = step_logits(step), .n_hidden = step->n_hidden};
    ranks_begin_pass(engine->ranks, &others);
    model_adapters_begin(&engine->model, &ours);
    step_run(engine->backend, model_program(model, step), &ours, engine->cache);
    ranks_end(engine->ranks, NULL);
    fetch_hidden(engine);
}

/* Waits for the newest pass and returns its logits in host memory, or NULL if the device has
 * failed. Few callers read logits from a device, so their memory is allocated on first use; if that
 * fails, engine_failed reports it. */
static float *fetch_logits(struct engine *engine) {
    struct backend *b = engine->backend;
    const struct model_activations *a = &engine->model.act;
    int i = newest(engine);
    if (b->host_memory) return a->logits;
    if (!engine->host_logits && !engine_failed(engine, NULL)) {
        size_t room = logits_bytes(engine, max_sampled_rows(engine));
        engine->host_logits = b->memory->host_new(b, room);
        engine->lacks_memory = !engine->host_logits;
    }
    if (engine->host_logits) {
        size_t bytes = logits_bytes(engine, engine->passes[i].n_logits);
        step_fetch(b, i, engine->host_logits, a->logits, bytes);
        step_await(b, i);
    }
    return engine_failed(engine, NULL) ? NULL : engine->host_logits;
}

void engine_sample(struct engine *engine, const struct sample *samples, int n) {
    struct backend *b = engine->backend;
    int i = newest(engine);
    struct sampled *results = engine->results + i * max_samples(engine);
    assert(n >= 0 && n <= max_samples(engine) && !engine->passes[i].sampled);
    engine->passes[i].sampled = true;
    if (engine->device_sampler) {
        const struct logit_changes *changes = change_lists_fill(engine->changes, samples, n);
        TIME_OP(b, OP_SAMPLE,
                sampler->sample(b, engine->device_sampler, engine->model.act.logits, samples, n,
                                changes, engine->pending, results));
        step_fetch(b, i, NULL, NULL, 0);
        return;
    }
    float *logits = fetch_logits(engine);
    if (!logits) return;
    uint64_t began = op_begin(b, OP_SAMPLE);
    host_sampler_run(engine->host_sampler, b, logits, samples, n, results);
    op_end(b, OP_SAMPLE, began);
}

static void remove_oldest(struct engine *engine) {
    assert(engine->n_in_flight > 0);
    engine->waited = engine->first;
    engine->first = (engine->first + 1) % MAX_IN_FLIGHT;
    engine->n_in_flight--;
}

const struct sampled *engine_wait(struct engine *engine) {
    int i = engine->first;
    assert(engine->n_in_flight > 0 && engine->passes[i].sampled);
    if (engine->device_sampler) step_await(engine->backend, i);
    remove_oldest(engine);
    return engine_failed(engine, NULL) ? NULL : engine->results + i * max_samples(engine);
}

const float *engine_hidden(const struct engine *engine, int i) {
    const struct inflight_pass *pass = &engine->passes[engine->waited];
    assert(i >= 0 && i < pass->n_hidden);
    (void)pass;
    return hidden_of(engine, engine->waited) + (size_t)i * (size_t)engine_hidden_size(engine);
}

int engine_hidden_size(const struct engine *engine) {
    return engine->model.config.K_embedding;
}

float *engine_read_logits(struct engine *engine) {
    assert(engine->n_in_flight == 1 && !engine->passes[engine->first].sampled);
    float *logits = fetch_logits(engine);
    remove_oldest(engine);
    return logits;
}

/* ---- swapping ------------------------------------------------------------------------------- */

int engine_host_blocks(const struct engine *engine, enum block_kind kind) {
    return engine->n_host_blocks[kind];
}

bool engine_has_parts(const struct engine *engine) {
    return !engine->ranks && engine->backend->cache->kv_part_bytes;
}

size_t engine_part_bytes(const struct engine *engine, enum cache_part part) {
    assert(engine_has_parts(engine));
    return engine->backend->cache->kv_part_bytes(engine->cache, part);
}

void engine_part_get(const struct engine *engine, enum cache_part part, int i, void *out) {
    engine->backend->cache->kv_part_get(engine->cache, part, i, out);
}

void engine_part_put(struct engine *engine, enum cache_part part, int i, const void *in) {
    engine->backend->cache->kv_part_put(engine->cache, part, i, in);
}

bool engine_swap_reserve(struct engine *engine, enum block_kind kind, int n) {
    assert(n > 0 && n <= engine->n_host_blocks[kind]);
    return engine->backend->swap->swap_reserve(engine->backend, engine->swap, kind, n);
}

void engine_swap_out(struct engine *engine, enum block_kind kind, const int32_t *block,
                     const int32_t *host_block, int n) {
    engine->backend->swap->swap_out(engine->backend, engine->swap, kind, block, host_block, n);
}

void engine_swap_in(struct engine *engine, enum block_kind kind, const int32_t *host_block,
                    const int32_t *block, int n) {
    engine->backend->swap->swap_in(engine->backend, engine->swap, kind, host_block, block, n);
}

void engine_swap_arrive(struct engine *engine) {
    engine->backend->swap->swap_arrive(engine->backend, engine->swap);
}

/* ---- measuring ------------------------------------------------------------------------------ */

void engine_time_ops(struct engine *engine, struct op_times *times) {
    backend_time_ops(engine->backend, times);
}

uint64_t engine_one_grid_steps(const struct engine *engine) {
    return engine->backend->one_grid_steps;
}

void engine_limits(struct engine *engine, struct device_limits *out) {
    struct backend *b = engine->backend;
    *out = (struct device_limits){0};
    if (b->timers) b->timers->limits(b, out);
}

/* The bytes of all experts' matrices, which the ops of the program multiply. */
static double expert_bytes(const struct model *model) {
    const struct program *program = &model->program;
    double bytes = 0;
    for (int i = 0; i < program->n; i++) {
        const struct op_row *row = &program->rows[i];
        if (row->op != OP_EXPERTS) continue;
        const struct mlp *mlp = &row->experts.mlp;
        const struct matrix *const parts[] = {mlp->gate.w, mlp->up.w, mlp->down.w};
        assert(mlp->up.w && mlp->down.w);
        for (size_t j = 0; j < sizeof parts / sizeof *parts; j++)
            if (parts[j]) bytes += (double)model->backend->memory->matrix_bytes(parts[j]);
    }
    return bytes;
}

/* The bytes of experts that `rows` rows are not expected to use. */
static double unread_bytes(const struct model *model, int rows) {
    const struct expert_config *experts = &model->config.experts;
    double unread = 1;
    if (!experts->is_used) return 0;
    for (int row = 0; row < rows; row++) unread *= 1 - (double)experts->n_used / experts->E;
    return expert_bytes(model) * unread;
}

void engine_weights_read(const struct engine *engine, int rows, int64_t *layers, int64_t *head) {
    const struct model *model = &engine->model;
    size_t (*bytes)(const struct matrix *) = engine->backend->memory->matrix_bytes;
    int64_t ends = 0;
    for (int role = 0; role < N_ROLES; role++)
        if (model->ends.w[role]) ends += (int64_t)bytes(model->ends.w[role]);
    *head = (int64_t)bytes(model_head(model));
    *layers = model->weight_bytes - ends - (int64_t)unread_bytes(model, rows);
}

void engine_parallel(struct engine *engine, void (*fn)(void *arg, int i), void *arg, int n) {
    engine->backend->device->parallel(engine->backend, fn, arg, n);
}
