/* Opens a draft engine: limits its memory, and compares the two vocabularies. */
#include <assert.h>
#include <string.h>

#include "engine/internal.h"
#include "engine/quantise/quantise.h"

/* The other engine's cache and scratch are allocated but mostly untouched, so the machine's free
 * memory still includes them, except for a cache after --warm-up. */
void draft_bound(struct opening *o) {
    const struct engine *target = o->config.drafts_for;
    const struct model_config *own = &o->engine->model.config;
    if (!target) return;
    const struct engine_memory *planned = engine_memory(target);
    o->config.max_model_len = min_int(planned->max_model_len, own->context_length);
    assert((o->config.device != DEVICE_CUDA) == engine_on_host(target));
    if (!engine_on_host(target)) return;
    o->machine.available -= planned->kv_cache + planned->scratch;
    if (target->has_touched) o->machine.available += planned->kv_cache;
    if (o->machine.available < 0) o->machine.available = 0;
}

/* Weights may take somewhat more on the device than in the file. The work memory of products and
 * the arrays of a step are small. */
enum { WEIGHTS_SLACK = 16, WORKSPACES = 32 << 20 };

static enum status plan_room(struct engine_memory *plan, struct opening *o,
                             const struct engine_config *config, struct model_file *file,
                             struct err *err) {
    struct engine_memory *memory = &o->engine->memory;
    struct engine_config wanted = *config;
    struct model_config model;
    enum status status = model_config_read(&model, file, err);
    if (status) return status;
    wanted.device = DEVICE_CUDA;
    wanted.max_model_len = min_int(memory->max_model_len, model.context_length);
    model.file_bytes =
        planned_bytes(model_file_weights(file), config->quantization, model.file_bytes);
    return memory_plan(plan, &model, &wanted, &o->machine, err);
}

enum status draft_plan_room(struct opening *o, struct err *err) {
    const struct engine_config *config = o->config.drafter;
    const struct engine *target = o->config.drafts_for;
    struct engine_memory *memory = &o->engine->memory, plan;
    struct model_file file;
    if (o->config.device == DEVICE_CUDA && target) {
        memory->given_blocks = target->memory.n_blocks;
        memory->given = target->memory.draft + target->memory.n_blocks * target->memory.draft_block;
        assert(memory->given > 0);
    }
    if (!config || o->config.device != DEVICE_CUDA) return STATUS_OK;
    enum status status = model_file_open(&file, config->model, MODEL_WHOLE, err);
    if (status) return status;
    status = plan_room(&plan, o, config, &file, err);
    model_file_close(&file);
    if (status) return status;
    memory->draft = plan.weights + plan.weights / WEIGHTS_SLACK + plan.scratch + plan.sampling;
    memory->draft += WORKSPACES;
    memory->draft_block = (plan.kv_cache + plan.steps) / plan.n_blocks + 1;
    return STATUS_OK;
}

static bool same_token(const struct tokenizer *a, const struct tokenizer *b, int32_t id) {
    size_t n, m;
    const char *one = tokenizer_token_bytes(a, id, &n), *other = tokenizer_token_bytes(b, id, &m);
    return n == m && memcmp(one, other, n) == 0 &&
           tokenizer_is_special(a, id) == tokenizer_is_special(b, id);
}

enum status draft_check_vocabulary(const struct opening *o, struct err *err) {
    const struct engine *engine = o->engine, *target = o->config.drafts_for;
    if (!target) return STATUS_OK;
    int V = target->model.config.V, n = tokenizer_size(target->tokenizer), id = 0;
    if (engine->model.config.V != V)
        return err_set(err, STATUS_BAD_FILE, "speculative-config",
                       "the vocabulary of %s differs from the model's: %d ids instead of %d; a "
                       "draft model must have the same tokens",
                       o->config.model, engine->model.config.V, V);
    bool same = tokenizer_size(engine->tokenizer) == n;
    while (same && id < n && same_token(engine->tokenizer, target->tokenizer, id)) id++;
    if (same && id == n) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "speculative-config",
                   "the vocabulary of %s differs from the model's: the id %d is another token; a "
                   "draft model must have the same tokens",
                   o->config.model, id);
}
