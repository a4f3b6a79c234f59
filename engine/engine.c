/* DESIGN: opening a model and running its passes.
 *
 * Order at start-up: the file is mapped and checked; the model's shape, tokenizer, template and end
 * ids are read; memory is planned; the backend starts its threads; weights go into the backend's
 * layout, tensor by tensor, each one's pages of the file being let go, so that no more than one
 * copy and one tensor are resident; cache and activations are made. After that the file is let go:
 * nothing points into it.
 *
 * Passes. On the CPU a pass runs when it is launched, on the caller's thread and the backend's. On
 * a device launching queues it and the copy of its logits to pinned memory, with a mark behind that
 * engine_wait waits for. Two may be in flight (d: late ids put on the device):
 *
 *     host     submit 1 | submit 2 | wait 1 .. sample d launch 2 | commit 1, plan 3, submit 3 | ..
 *     device   [ pass 1            ]                   [ pass 2                             ] ..
 *
 * A pass that needs no id of the one before, and whose logits would not overwrite any that are
 * still to be read, is launched in engine_submit and follows the one before without a gap. Late ids
 * lie in one array on the device; the embedding reads them there. Whoever samples writes them: the
 * host by engine_sampled, after which the device has nothing else to do, or a kernel that is queued
 * behind the pass.
 */
#include "engine/engine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memory_plan.h"
#include "engine/model.h"
#include "engine/model_file.h"

/* A step that was submitted and not yet waited for. */
struct pass {
    struct step step;
    bool launched;
};

struct engine {
    struct model model;
    struct engine_memory memory;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct backend *backend;
    struct kv_cache *cache;
    char backend_name[96];
    double weights_ms;
    int n_end_ids;
    int32_t end_ids[MAX_END_IDS];
    int in_flight;                     /* the most passes at once */
    struct pass passes[MAX_IN_FLIGHT]; /* a ring: those in flight from `first` on */
    int first, n_passes;
    int waited_rows;    /* logit rows of the pass that was waited for last */
    int32_t *sampled;   /* device memory [max_logit_rows]: late tokens are read here */
    float *host_logits; /* pinned [max_logit_rows][V]; NULL where buffers are host memory */
    struct backend_ops timed_ops; /* in use while ops are timed */
};

/* ---- text ----------------------------------------------------------------------------------- */

static enum status read_tokenizer(struct engine *engine, const struct gguf *gguf, struct err *err) {
    struct tokenizer_spec spec = {0};
    enum status status = tokenizer_spec_read(&spec, gguf, err);
    if (!status) status = tokenizer_new(&engine->tokenizer, &spec, err);
    if (!status) status = end_ids_collect(engine->end_ids, &engine->n_end_ids, gguf, &spec, err);
    tokenizer_spec_free(&spec);
    return status;
}

static enum status read_template(struct engine *engine, const struct gguf *gguf, struct err *err) {
    const char *text;
    size_t length;
    enum status status = chat_template_text(gguf, &text, &length, err);
    if (status || !text) return status;
    return chat_template_new(&engine->chat_template, text, length, err);
}

enum status engine_open_tokenizer(struct tokenizer **out, const char *path, struct err *err) {
    struct gguf *gguf;
    struct engine engine = {0};
    enum status status = gguf_open(&gguf, path, err);
    if (status) return status;
    status = read_tokenizer(&engine, gguf, err);
    gguf_close(gguf);
    *out = engine.tokenizer;
    return status;
}

/* ---- memory and backend --------------------------------------------------------------------- */

static enum status open_backend(struct engine *engine, const struct engine_config *config,
                                struct err *err) {
    const struct model_info *m = &engine->model.info;
    int widest = m->K > m->F ? m->K : m->F;
    if (m->H * m->D > widest) widest = m->H * m->D;
    struct backend_config wanted = {
        .threads = config->threads,
        .path = config->cpu_path,
        .max_rows = config->max_num_batched_tokens,
        .max_k = widest,
        .activations = config->float32   ? DTYPE_F32
                       : config->float16 ? DTYPE_F16
                                         : DTYPE_BF16,
        .max_seqs = config->max_num_seqs,
        .max_context = engine->memory.max_model_len,
        .heads = m->H,
    };
    bool on_cuda = config->device && strcmp(config->device, "cuda") == 0;
    enum status status = on_cuda ? backend_cuda_open(&engine->backend, &wanted, err)
                                 : backend_cpu_open(&engine->backend, &wanted, err);
    if (status) return status;
    engine->model.backend = engine->backend;
    snprintf(engine->backend_name, sizeof engine->backend_name, "%s %s, %d thread%s",
             engine->backend->name, engine->backend->path, engine->backend->n_threads,
             engine->backend->n_threads == 1 ? "" : "s");
    return STATUS_OK;
}

static enum status open_cache(struct engine *engine, const struct engine_config *config,
                              struct err *err) {
    const struct model_info *m = &engine->model.info;
    struct kv_config wanted = {.L = m->L,
                               .G = m->G,
                               .D = m->D,
                               .n_blocks = engine->memory.n_blocks,
                               .block_size = engine->memory.block_size};
    enum status status = memory_plan_kv_dtype(config, &wanted.dtype, err);
    if (status) return status;
    return engine->backend->ops->kv_new(engine->backend, &engine->cache, &wanted, err);
}

static size_t ids_bytes(const struct engine *engine) {
    return (size_t)engine->model.act.max_logit_rows * sizeof(int32_t);
}

static size_t logits_bytes(const struct engine *engine, int R) {
    return (size_t)R * (size_t)engine->model.info.V * sizeof(float);
}

/* What results come back through. */
static void open_results(struct engine *engine, const struct engine_config *config) {
    struct backend *b = engine->backend;
    assert(config->in_flight >= 0 && config->in_flight <= MAX_IN_FLIGHT);
    engine->in_flight = config->in_flight ? config->in_flight : b->in_flight;
    engine->sampled = b->ops->buffer_new(b, ids_bytes(engine));
    if (b->host_memory) return;
    engine->host_logits =
        b->ops->host_new(b, logits_bytes(engine, engine->model.act.max_logit_rows));
}

static void close_results(struct engine *engine) {
    struct backend *b = engine->backend;
    int rows = engine->model.act.max_logit_rows;
    if (engine->sampled) b->ops->buffer_free(b, engine->sampled, ids_bytes(engine));
    if (engine->host_logits) b->ops->host_free(b, engine->host_logits, logits_bytes(engine, rows));
}

/* Puts what was taken in the place of what the plan guessed. */
static void finish_memory(struct engine *engine) {
    const struct activations *a = &engine->model.act;
    engine->memory.weights = engine->model.weight_bytes;
    engine->memory.scratch = activations_bytes(&engine->model.info, a->max_rows, a->max_logit_rows);
}

static enum status load_weights(struct engine *engine, const struct gguf *gguf,
                                const struct engine_config *config, struct err *err) {
    uint64_t began = now_ns();
    enum status status = model_load(&engine->model, &gguf->weights, config, err);
    engine->weights_ms = (double)(now_ns() - began) * 1e-6;
    return status;
}

/* ---- opening -------------------------------------------------------------------------------- */

static enum status open_from(struct engine *engine, const struct gguf *gguf,
                             const struct engine_config *config, struct err *err) {
    struct machine_memory machine;
    struct model_info *info = &engine->model.info;
    enum status status = model_info_read(info, gguf, config->model, err);
    if (!status) status = read_tokenizer(engine, gguf, err);
    if (!status) status = read_template(engine, gguf, err);
    machine_memory_read(&machine);
    if (!status) status = memory_plan(&engine->memory, info, config, &machine, err);
    if (!status) status = open_backend(engine, config, err);
    if (!status) status = load_weights(engine, gguf, config, err);
    if (!status) status = open_cache(engine, config, err);
    if (status) return status;
    open_results(engine, config);
    finish_memory(engine);
    return STATUS_OK;
}

enum status engine_open(struct engine **out, const struct engine_config *asked, struct err *err) {
    struct engine_config config = *asked;
    if (config.max_logit_rows == 0) config.max_logit_rows = config.max_num_seqs;
    struct gguf *gguf;
    enum status status = gguf_open(&gguf, config.model, err);
    if (status) return status;
    struct engine *engine = mem_calloc(1, sizeof *engine);
    status = open_from(engine, gguf, &config, err);
    gguf_close(gguf);
    if (status) {
        engine_close(engine);
        engine = NULL;
    }
    *out = engine;
    return status;
}

void engine_close(struct engine *engine) {
    if (!engine) return;
    if (engine->backend) {
        close_results(engine);
        if (engine->cache) engine->backend->ops->kv_free(engine->backend, engine->cache);
        model_close(&engine->model);
        backend_close(engine->backend);
    }
    tokenizer_free(engine->tokenizer);
    chat_template_free(engine->chat_template);
    free(engine);
}

/* ---- what it is ----------------------------------------------------------------------------- */

const struct model_info *engine_model(const struct engine *engine) {
    return &engine->model.info;
}

const struct engine_memory *engine_memory(const struct engine *engine) {
    return &engine->memory;
}

const struct tokenizer *engine_tokenizer(const struct engine *engine) {
    return engine->tokenizer;
}

const struct chat_template *engine_chat_template(const struct engine *engine) {
    return engine->chat_template;
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
    return engine->backend->n_threads;
}

/* ---- running -------------------------------------------------------------------------------- */

static void check_step(const struct engine *engine, const struct step *step) {
    const struct activations *a = &engine->model.act;
    assert(step->M > 0 && step->M <= a->max_rows);
    assert(step->R >= 0 && step->R <= a->max_logit_rows && step->R <= step->M);
    assert(step->S > 0 && step->row_start[0] == 0 && step->row_start[step->S] == step->M);
    assert(step->n_late == 0 || engine->n_passes > 0); /* the ids come from the one before */
    (void)a;
    (void)step;
}

int engine_in_flight(const struct engine *engine) {
    return engine->in_flight;
}

static void launch(struct engine *engine, int i) {
    struct pass *pass = &engine->passes[i];
    struct backend *b = engine->backend;
    engine->model.family->forward(&engine->model, &pass->step, engine->cache);
    if (!b->host_memory)
        b->ops->fetch(b, i, engine->host_logits, engine->model.act.logits,
                      logits_bytes(engine, pass->step.R));
    pass->launched = true;
}

/* Can the newest pass be launched behind the one that stands before it? */
static bool may_follow(const struct engine *engine, const struct step *before,
                       const struct step *step) {
    return !engine->backend->host_memory && step->n_late == 0 && (step->R == 0 || before->R == 0);
}

void engine_submit(struct engine *engine, const struct step *step) {
    assert(engine->n_passes < engine->in_flight);
    check_step(engine, step);
    int before = engine->first, i = (engine->first + engine->n_passes++) % MAX_IN_FLIGHT;
    engine->passes[i] = (struct pass){.step = *step};
    engine->passes[i].step.sampled = engine->sampled;
    if (i == before || may_follow(engine, &engine->passes[before].step, step)) launch(engine, i);
}

float *engine_wait(struct engine *engine) {
    struct backend *b = engine->backend;
    const struct pass *pass = &engine->passes[engine->first];
    assert(engine->n_passes > 0 && pass->launched);
    if (!b->host_memory) b->ops->await(b, engine->first);
    engine->waited_rows = pass->step.R;
    engine->first = (engine->first + 1) % MAX_IN_FLIGHT;
    engine->n_passes--;
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
    if (engine->backend->times) backend_stop_timing(engine->backend);
    if (times) backend_time_ops(engine->backend, &engine->timed_ops, times);
}

void engine_parallel(struct engine *engine, void (*fn)(void *arg, int i), void *arg, int n) {
    engine->backend->ops->parallel(engine->backend, fn, arg, n);
}
