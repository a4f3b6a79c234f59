/* Settings that follow from options: those that differ from the stated values, and those that the
 * opened engine completes. */
#include <assert.h>
#include <string.h>

#include "server/options/table.h"

enum { MORE_ADAPTERS = 4 };

/* The number of pairs in the text of an OPTION_PAIRS. */
static int count_pairs(const char *text) {
    int n = 0;
    while (text && *text) {
        size_t length = strcspn(text, ",");
        n += length > 0;
        text += length + (text[length] == ',');
    }
    return n;
}

void options_settle(struct options *options) {
    struct engine_config *engine = &options->engine;
    const struct speculation *speculation = &options->scheduler.speculation;
    bool speculates = speculation->method != SPECULATION_NONE;
    engine->allow_batch_variant_gemm = !options->stated.deterministic;
    engine->dummy = options->stated.load_format == LOAD_DUMMY;
    engine->window_blocks = -1;
    engine->eagle = speculation->method == SPECULATION_EAGLE3 ? speculation->model : NULL;
    engine->guesses_ahead = speculation->method == SPECULATION_AHEAD || engine->eagle;
    engine->max_drafts = speculates ? speculation->max_tokens : 0;
    if (!options->scheduler.prefix_caching) engine->state_checkpoints = 0;
    if (engine->gpu_memory_utilization <= 0) engine->gpu_memory_utilization = -1; /* 0: a default */
    /* Drafts can be guessed only after the host has seen the last token. With two steps in flight
     * it has not yet seen it when it plans a step. */
    if (engine->in_flight == 0 && speculates) engine->in_flight = 1;
    /* One logit row per sequence, and rows for the drafts of one sequence. Otherwise a small number
     * of sequences would leave no rows for drafts. */
    /* without adapters at the start and a way to load others, there is nothing to make room for */
    int stated = count_pairs(options->lora.adapters);
    bool adapts = stated > 0 || options->lora.may_load;
    if (!adapts)
        engine->max_adapters = 0;
    else if (engine->max_adapters == 0)
        engine->max_adapters = stated + (options->lora.may_load ? MORE_ADAPTERS : 0);
    engine->max_logit_rows = engine->max_num_seqs + (speculates ? speculation->max_tokens : 0);
    int itl_ms = options->stated.itl_target_ms;
    options->scheduler.itl_auto = itl_ms < 0;
    options->scheduler.itl_target_ns = itl_ms > 0 ? (uint64_t)itl_ms * 1000000 : 0;
    options->scheduler.unload_after_ns = (uint64_t)options->drain.unload_s * 1000000000;
    options->http.request_timeout_ms = options->stated.request_timeout_s * 1000;
}

struct scheduler_config scheduler_config_from(const struct options *options,
                                              const struct engine *engine) {
    const struct engine_memory *memory = engine_memory(engine);
    assert(memory->max_model_len > 0 && memory->n_blocks > 0);
    struct scheduler_config config = options->scheduler;
    config.max_num_seqs = options->engine.max_num_seqs;
    config.max_num_batched_tokens = engine_max_rows(engine);
    config.max_logit_rows = engine_max_logit_rows(engine);
    config.whole_prompts = engine_model(engine)->is_encoder;
    if (config.whole_prompts) config.prefix_caching = false;
    config.max_model_len = memory->max_model_len;
    config.n_blocks = memory->n_blocks;
    config.block_size = memory->block_size;
    config.n_window_blocks = memory->n_window_blocks;
    config.window = memory->window;
    config.n_states = memory->n_states;
    config.n_checkpoints = memory->n_checkpoints;
    config.n_draft_states = memory->n_draft_states;
    config.checkpoint_every = memory->checkpoint_every;
    return config;
}
