/* The states of recurrent layers: one per running sequence, some for drafts, and those of cached
 * prefixes. */
#include <inttypes.h>

#include "engine/memory/memory.h"

enum {
    /* Only a few sequences draft together: with more, rows determine the cost of a step. */
    DRAFTING_SEQUENCES = 4,
    LEAST_EVERY = 512,            /* tokens between checkpoints: those of a step by default */
    CHECKPOINTS_SHARE = 4,        /* of the KV cache's memory, if none is stated */
    CHECKPOINTS_BYTES = 128 << 20 /* of a model without keys and values */
};

/* Returns the tokens between two checkpoints: their keys and values take at least as much memory as
 * a state. */
static int64_t tokens_between(const struct engine_memory *plan) {
    int64_t token = plan->kv_bytes_per_token + plan->window_bytes_per_token, B = plan->block_size;
    int64_t tokens = token > 0 ? (plan->state_bytes + token - 1) / token : 0;
    tokens = min_int64(max_int64(tokens, LEAST_EVERY), MAX_CHECKPOINT_EVERY);
    return (tokens + B - 1) / B * B;
}

enum status memory_plan_states(struct engine_memory *plan, const struct model_config *info,
                               const struct engine_config *config, struct err *err) {
    int64_t floats = (int64_t)config_recurrent_layers(info) * config_state_floats(info);
    int64_t given = config->state_checkpoints;
    if (floats == 0 && given > 0)
        return err_set(err, STATUS_USAGE, "state-checkpoints",
                       "{state-checkpoints} is for states of recurrent layers, and this model has "
                       "none; leave it out");
    if (floats == 0) return STATUS_OK;
    /* each rank rounds the numbers of its convolutions up to a cache line */
    if (config->ranks > 1) floats += (int64_t)config_recurrent_layers(info) * 16 * config->ranks;
    plan->state_bytes = floats * (int64_t)sizeof(float);
    plan->n_draft_states = config->max_drafts * min_int(config->max_num_seqs, DRAFTING_SEQUENCES);
    plan->checkpoint_every = (int)tokens_between(plan);
    if (given > 0 && given < plan->state_bytes)
        return err_set(err, STATUS_USAGE, "state-checkpoints",
                       "{state-checkpoints} of %" PRId64 " bytes is too small for a state of this "
                       "model: give at least %" PRId64 ", or 0",
                       given, plan->state_bytes);
    if (given > 0) plan->n_checkpoints = (int)min_int64(given / plan->state_bytes, MAX_CHECKPOINTS);
    plan->n_states = config->max_num_seqs + plan->n_draft_states + plan->n_checkpoints;
    return STATUS_OK;
}

void memory_plan_checkpoints(struct engine_memory *plan, const struct engine_config *config,
                             int64_t left) {
    if (plan->n_states == 0 || config->state_checkpoints >= 0) return;
    int64_t slots = (int64_t)plan->n_blocks * plan->block_size;
    int64_t useful = slots / plan->checkpoint_every + config->max_num_seqs;
    int64_t share = plan->kv_cache > 0 ? plan->kv_cache / CHECKPOINTS_SHARE : CHECKPOINTS_BYTES;
    int64_t bytes = min_int64(share, max_int64(left, 0) / 2);
    useful = min_int64(useful, MAX_CHECKPOINTS);
    assert(plan->n_checkpoints == 0 && plan->state_bytes > 0);
    plan->n_checkpoints = (int)min_int64(useful, bytes / plan->state_bytes);
    plan->n_states += plan->n_checkpoints;
}
