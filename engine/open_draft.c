/* Opening a second engine whose model drafts for the first one's: what it may take, and whether
 * both mean the same by each id. */
#include <assert.h>
#include <string.h>

#include "engine/internal.h"

/* The cache and the scratch of the other are planned, but hardly a page of them has been touched
 * yet: what the machine has left still counts them. */
void draft_bound(struct opening *o) {
    const struct engine *target = o->config.drafts_for;
    const struct model_config *own = &o->engine->model.config;
    if (!target) return;
    assert(o->config.device == DEVICE_CPU && engine_on_host(target));
    const struct engine_memory *planned = engine_memory(target);
    o->machine.available -= planned->kv_cache + planned->scratch;
    if (o->machine.available < 0) o->machine.available = 0;
    o->config.max_model_len = min_int(planned->max_model_len, own->context_length);
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
                       "%s has another vocabulary than the model: %d ids instead of %d; a draft "
                       "model has the same tokens",
                       o->config.model, engine->model.config.V, V);
    bool same = tokenizer_size(engine->tokenizer) == n;
    while (same && id < n && same_token(engine->tokenizer, target->tokenizer, id)) id++;
    if (same && id == n) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "speculative-config",
                   "%s has another vocabulary than the model: the id %d is another token; a draft "
                   "model has the same tokens",
                   o->config.model, id);
}
