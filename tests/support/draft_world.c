#include "support/draft_world.h"

#include <stdlib.h>

const struct draft_room ample = {
    .n_blocks = 500, .block_size = B, .max_tokens = MODEL_LEN, .max_seqs = 8, .max_rows = 64};

static void on_events(void *arg, const struct event *events, int n) {
    struct world *w = arg;
    for (int i = 0; i < n; i++) {
        fake_client_take(events[i].generation->owner, &events[i]);
        w->n_ended += events[i].last;
    }
}

struct world *world_new(const struct draft_room *room, int max_drafts, int n_blocks) {
    struct world *w = mem_calloc(1, sizeof *w);
    struct scheduler_config config = {.max_num_seqs = 8,
                                      .max_num_batched_tokens = 64,
                                      .max_model_len = MODEL_LEN,
                                      .max_queued_requests = MOST,
                                      .max_queued_tokens = MOST * MODEL_LEN,
                                      .n_blocks = n_blocks,
                                      .block_size = B,
                                      .max_logit_rows = 64,
                                      .prefix_caching = true,
                                      .speculation.max_tokens = max_drafts,
                                      .fixed_drafts = true,
                                      .on_events = on_events,
                                      .arg = w};
    w->engine = fake_engine_new(&config);
    struct engine_port port = fake_engine_port(w->engine);
    w->scheduler = scheduler_new_on(&config, &port);
    fake_draft_open(&w->draft, w->scheduler, room);
    return w;
}

void world_free(struct world *w) {
    scheduler_free(w->scheduler); /* asserts that all blocks were released */
    fake_engine_free(w->engine);
    fake_draft_close(&w->draft);
    free(w);
}

struct generation *world_ask(struct world *w, int k, int n_prompt, int max_tokens) {
    struct generation *g = &w->client[k].generation;
    *g = (struct generation){.n_prompt = n_prompt,
                             .max_tokens = max_tokens,
                             .n = 1,
                             .max_drafts = MAX_DRAFTS,
                             .sampling.repetition_penalty = 1,
                             .prompt_logprobs = -1};
    for (int i = 0; i < n_prompt; i++) w->client[k].prompt[i] = (i + 3 * k) % FAKE_V;
    return g;
}

void world_submit(struct world *w, int k) {
    fake_client_submit(&w->client[k], w->scheduler, MODEL_LEN);
}

const struct scheduler_stats *world_stats(const struct world *w) {
    return &w->scheduler->stats;
}
