/* DESIGN: opening a model and running its passes.
 *
 * Order at start-up: the file is mapped and checked; the model's shape, tokenizer, template and end
 * ids are read; memory is planned; the backend starts its threads; weights go into the backend's
 * layout, tensor by tensor, each one's pages of the file being let go, so that no more than one
 * copy and one tensor are resident; cache and activations are made. After that the file is let go:
 * nothing points into it. On
 * the CPU a pass runs in engine_submit, on the caller's thread and the backend's; engine_wait only
 * hands over the logits. Backends that run beside the host make use of the split.
 */
#include "engine/engine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memory_plan.h"
#include "engine/model.h"
#include "engine/model_file.h"

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
    int n_rows;         /* logit rows of the step under way */
    float *host_logits; /* [max_logit_rows][V]; NULL where the backend's memory is the host's */
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

/* Puts what was taken in the place of what the plan guessed. */
static void finish_memory(struct engine *engine) {
    const struct activations *a = &engine->model.act;
    if (!engine->backend->host_memory) {
        size_t rows = (size_t)a->max_logit_rows * (size_t)engine->model.info.V;
        engine->host_logits = mem_alloc(rows * sizeof(float));
    }
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
    if (!status) finish_memory(engine);
    return status;
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
        if (engine->cache) engine->backend->ops->kv_free(engine->backend, engine->cache);
        model_close(&engine->model);
        backend_close(engine->backend);
    }
    tokenizer_free(engine->tokenizer);
    chat_template_free(engine->chat_template);
    free(engine->host_logits);
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
    (void)a;
    (void)step;
}

void engine_submit(struct engine *engine, const struct step *step) {
    check_step(engine, step);
    engine->n_rows = step->R;
    engine->model.family->forward(&engine->model, step, engine->cache);
}

float *engine_wait(struct engine *engine) {
    struct activations *a = &engine->model.act;
    struct backend *b = engine->backend;
    if (b->host_memory) return a->logits;
    size_t bytes = (size_t)engine->n_rows * (size_t)engine->model.info.V * sizeof(float);
    b->ops->download(b, engine->host_logits, a->logits, bytes);
    return engine->host_logits;
}

void engine_time_ops(struct engine *engine, struct op_times *times) {
    if (engine->backend->times) backend_stop_timing(engine->backend);
    if (times) backend_time_ops(engine->backend, &engine->timed_ops, times);
}

void engine_parallel(struct engine *engine, void (*fn)(void *arg, int i), void *arg, int n) {
    engine->backend->ops->parallel(engine->backend, fn, arg, n);
}
