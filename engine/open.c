/* DESIGN: opening a model, and its properties.
 *
 * The stages of a start are a list, and their order is the design. Memory is planned before
 * anything is allocated. Weights are converted to the backend's layout tensor by tensor, and the
 * file's pages are released regularly, so little more than one copy is resident. The cache is last,
 * because it takes the remaining memory. Another thread reads tokenizer and template meanwhile
 * (open_text.c). After both have ended the file is closed: nothing points into it. If a file was
 * written to meanwhile, the start fails (engine/files/tensors/mapping.h). run.c runs the engine.
 */
#include <assert.h>
#include <stdlib.h>

#include "engine/adapters/adapters.h"
#include "engine/internal.h"
#include "engine/memory/device.h"
#include "engine/models/load/load.h"
#include "engine/quantise/quantise.h"
#include "kernels/gpu_group.h"

/* ---- stages --------------------------------------------------------------------------------- */

enum status open_config(struct opening *o, struct err *err) {
    struct model_config *config = &o->engine->model.config;
    enum status status = model_config_read(config, &o->file, err);
    if (status) return status;
    status = model_file_sampling(&o->engine->sampling_defaults, &o->file, config->V, err);
    if (status) return status;
    struct pooling *pooling = &o->engine->pooling;
    status = model_file_pooling(pooling, &o->file, config, err);
    memory_fit_encoder(&o->config, config);
    if (!status) status = classifier_read(&o->engine->classifier, &o->file, config, err);
    if (o->config.pooling == HIDDEN_NONE) return status;
    pooling->rows = o->config.pooling;
    pooling->is_stated = true;
    return status;
}

enum status open_device(struct opening *o, struct err *err) {
    if (o->config.peers && o->config.device != DEVICE_CPU)
        o->gpu = gpu_select(peers_place(o->config.peers));
    return device_choose(&o->config, &o->machine.device, o->why, sizeof o->why, err);
}

/* If the ranks are processes, waits for all and compares them. The plan is of all ranks
 * together. */
static enum status meet_ranks(struct opening *o, struct err *err) {
    struct peers *peers = o->config.peers;
    const struct ranks_self self = {&o->engine->model.config,   model_file_weights(&o->file),
                                    model_file_eagle(&o->file), &o->config,
                                    o->machine.available,       o->gpu,
                                    o->machine.device};
    if (!peers) return STATUS_OK;
    if (peers_count(peers) != o->config.ranks)
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "mpirun started %d processes, and {tensor-parallel-size} is %d; give the "
                       "same number to both",
                       peers_count(peers), o->config.ranks);
    return ranks_meet(peers, &self, &o->machine.available, &o->machine.device, err);
}

void open_adapter_memory(struct opening *o) {
    struct engine_config *config = &o->config;
    if (config->max_adapters == 0 || config->adapter_memory > 0) return;
    const int64_t most =
        adapter_most_bytes(&o->engine->model.config, config->max_adapter_rank, config->ranks);
    config->adapter_memory = config->max_adapters * most;
    assert(config->adapter_memory > 0);
}

static enum status plan_memory(struct opening *o, struct err *err) {
    struct engine *engine = o->engine;
    struct model_config model = engine->model.config;
    machine_memory_read(&o->machine);
    open_adapter_memory(o);
    enum status status = meet_ranks(o, err);
    if (status) return status;
    draft_bound(o);
    model.file_bytes =
        planned_bytes(model_file_weights(&o->file), o->config.quantization, model.file_bytes);
    status = memory_plan(&engine->memory, &model, &o->config, &o->machine, err);
    return status ? status : draft_plan_room(o, err);
}

/* Replaces the plan's estimates by the actual sizes. */
static enum status load_weights(struct opening *o, struct err *err) {
    struct engine *engine = o->engine;
    struct model *model = &engine->model;
    uint64_t began = now_ns();
    int64_t weights, scratch; /* of the other ranks */
    model->eagle.weights = model_file_eagle(&o->file);
    enum status status = model_load(model, model_file_weights(&o->file), &o->config, err);
    enum status others = ranks_end(engine->ranks, status ? NULL : err);
    engine->weights_ms = (double)(now_ns() - began) * 1e-6;
    if (status || others) return model_file_blame(&o->file, status ? status : others, err);
    if (o->again) return STATUS_OK; /* the sizes are known, and other threads read them */
    ranks_memory(engine->ranks, &weights, &scratch);
    engine->memory.weights = weights + model->weight_bytes;
    engine->memory.scratch =
        scratch + activations_bytes(model, model->act.max_rows, model->act.max_logit_rows);
    return STATUS_OK;
}

/* Makes room for adapters, which are loaded later. The other ranks have made theirs. */
static enum status open_adapters(struct opening *o, struct err *err) {
    const struct engine_config *config = &o->config;
    if (config->max_adapters == 0) return STATUS_OK;
    if (!o->again) {
        o->engine->max_adapter_rank = config->max_adapter_rank;
        model_adapters_open(&o->engine->model, config->max_adapters, config->adapter_memory);
        engine_adapters_open(o->engine);
    }
    enum status status = model_adapters_attach(&o->engine->model, err);
    return status ? status : engine_adapters_give(o->engine, err);
}

static enum status open_cache(struct opening *o, struct err *err) {
    struct engine *engine = o->engine;
    const struct engine_config *config = &o->config;
    const struct model_config *m = &engine->model.part;
    struct kv_heads heads[MAX_LAYERS];
    struct kv_config wanted = {
        .G = m->G, .D = m->D, .block_size = engine->memory.block_size, .heads = heads};
    wanted.L = config_kv_heads(m, heads);
    wanted.state_layers = config_recurrent_layers(m);
    wanted.state_floats = config_state_floats(m);
    bool has_window[MAX_LAYERS];
    for (int i = 0; i < m->L - m->n_readers; i++) /* no model has windows and recurrent layers */
        has_window[config_kv_layer(m, i)] = m->layer[i].window > 0;
    wanted.has_window = has_window;
    enum status status = memory_plan_kv_dtype(config, m, &wanted.dtype, err);
    if (!status && !o->again)
        status = device_plan_pool(engine->backend, &engine->memory, config, &wanted, err);
    if (status) return status;
    if (!o->again) engine->kv_dtype = wanted.dtype;
    wanted.n_blocks = engine->memory.n_blocks;
    wanted.n_window_blocks = engine->memory.n_window_blocks;
    wanted.n_states = engine->memory.n_states;
    ranks_begin_cache(engine->ranks, &wanted, config->max_logit_rows,
                      config->max_num_batched_tokens, engine->memory.max_model_len);
    status = engine->backend->cache->kv_new(engine->backend, &engine->cache, &wanted, err);
    enum status others = ranks_end(engine->ranks, status ? NULL : err);
    return status ? status : others;
}

static enum status open_swap(struct opening *o, struct err *err) {
    struct engine *engine = o->engine;
    struct backend *b = engine->backend;
    int64_t bytes = engine->memory.swap;
    assert(bytes == 0 || b->swap); /* on the CPU the plan is 0 */
    if (bytes == 0) return STATUS_OK;
    return b->swap->swap_new(b, &engine->swap, engine->cache, bytes, engine->n_host_blocks, err);
}

static enum status (*const stages[])(struct opening *o, struct err *err) = {
    open_config,  open_device,  text_begin,   plan_memory,   settings_check,
    backend_open, load_weights, sampler_open, open_adapters, open_cache,
    open_swap,    plan_passes,  warm_up,
};

/* The stages that allocate nothing of the model's size. */
enum { N_CHECKED_STAGES = 5, N_STAGES = sizeof stages / sizeof *stages };

/* ---- opening and closing -------------------------------------------------------------------- */

enum status engine_open_memory(struct opening *o, struct err *err) {
    enum status status = STATUS_OK;
    for (int i = N_CHECKED_STAGES; i < N_STAGES && !status; i++) status = stages[i](o, err);
    if (o->engine->backend && engine_failed(o->engine, err)) status = STATUS_SERVER_ERROR;
    return status;
}

/* Opens an engine; without `loads`, by the stages that allocate nothing of the model's size. */
static enum status open_by(bool loads, struct engine **out, const struct engine_config *config,
                           struct err *err) {
    struct opening o = {.config = *config};
    *out = NULL;
    if (o.config.max_logit_rows == 0) o.config.max_logit_rows = o.config.max_num_seqs;
    if (o.config.ranks == 0) o.config.ranks = 1;
    enum model_use use = config->dummy ? MODEL_SHAPE : MODEL_WHOLE;
    enum status status = model_file_open(&o.file, config->model, use, err);
    if (status) return status;
    o.file.has_stand_in |= config->stand_in_vocabulary;
    status = model_file_guess(&o.file, config, err);
    if (status) return model_file_close(&o.file), status;
    o.engine = mem_calloc(1, sizeof *o.engine);
    o.engine->model.shard = (struct shard){0, o.config.ranks};
    for (int i = 0; i < N_CHECKED_STAGES && !status; i++) status = stages[i](&o, err);
    if (!status && loads) status = engine_open_memory(&o, err);
    enum status text_status = text_end(&o, err); /* an error of the text is reported first */
    if (text_status) status = text_status;
    if (!status) status = draft_check_vocabulary(&o, err);
    if (!status) status = model_file_check(&o.file, err);
    if (!status) engine_keep_opening(o.engine, &o);
    model_file_close(&o.file);
    if (status)
        engine_close(o.engine);
    else
        *out = o.engine;
    return status;
}

enum status engine_open(struct engine **out, const struct engine_config *config, struct err *err) {
    return open_by(true, out, config, err);
}

enum status engine_check(struct engine_memory *memory, const struct engine_config *config,
                         struct err *err) {
    struct engine *engine;
    assert(stages[N_CHECKED_STAGES] == backend_open);
    enum status status = open_by(false, &engine, config, err);
    if (status) return status;
    *memory = engine->memory;
    engine_close(engine);
    return STATUS_OK;
}

void engine_free_loaded(struct engine *engine) {
    assert(engine->n_in_flight == 0);
    if (engine->backend) {
        sampler_close(engine);
        if (engine->swap) engine->backend->swap->swap_free(engine->backend, engine->swap);
        if (engine->cache) engine->backend->cache->kv_free(engine->backend, engine->cache);
        model_unload(&engine->model);
        backend_close(engine->backend);
    }
    engine_close_ranks(engine);
    engine->swap = NULL;
    engine->cache = NULL;
    engine->backend = NULL;
}

void engine_close(struct engine *engine) {
    if (!engine) return;
    engine_free_loaded(engine);
    engine_adapters_close(engine);
    model_adapters_close(&engine->model);
    engine_free_kept(engine);
    tokenizer_free(engine->tokenizer);
    chat_template_free(engine->chat_template);
    chat_template_free(engine->tools_template);
    pooling_free(&engine->pooling);
    classifier_free(&engine->classifier);
    mem_free(engine);
}

/* ---- properties ----------------------------------------------------------------------------- */

const struct model_config *engine_model(const struct engine *engine) {
    return &engine->model.config;
}

const struct engine_memory *engine_memory(const struct engine *engine) {
    return &engine->memory;
}

const struct tokenizer *engine_tokenizer(const struct engine *engine) {
    return engine->tokenizer;
}

const struct chat_template *engine_chat_template(const struct engine *engine, bool with_tools) {
    return with_tools && engine->tools_template ? engine->tools_template : engine->chat_template;
}

const struct sampling_defaults *engine_sampling_defaults(const struct engine *engine) {
    return &engine->sampling_defaults;
}

const struct pooling *engine_pooling(const struct engine *engine) {
    return &engine->pooling;
}

const struct classifier *engine_classifier(const struct engine *engine) {
    return engine->classifier.head.n > 0 ? &engine->classifier : NULL;
}

const char *engine_kv_dtype(const struct engine *engine) {
    return memory_kv_name(engine->kv_dtype);
}

const char *engine_backend_name(const struct engine *engine) {
    return engine->backend_name;
}

double engine_weights_ms(const struct engine *engine) {
    return engine->weights_ms;
}

const int32_t *engine_end_ids(const struct engine *engine, int *n) {
    *n = engine->n_end_ids;
    return engine->end_ids;
}

int engine_threads(const struct engine *engine) {
    return engine->n_threads;
}
