#include "support/constrained.h"

#include <check.h>
#include <string.h>

#include "engine/grammar/grammar.h"

void constrained_open(struct constrained *w, struct scheduler_config *config, const char *regex,
                      struct vocabulary *vocabulary, int in_flight) {
    struct err err;
    config->max_num_seqs = 8;
    config->max_num_batched_tokens = config->max_logit_rows = 16;
    config->max_model_len = CONSTRAINED_LEN;
    config->max_queued_requests = CONSTRAINED_MOST;
    config->max_queued_tokens = CONSTRAINED_MOST * CONSTRAINED_LEN;
    config->n_blocks = 150;
    config->block_size = 4;
    config->prefix_caching = true;
    w->vocabulary = vocabulary;
    ck_assert_int_eq(grammar_compile(GRAMMAR_REGEX, regex, strlen(regex), NULL, &w->grammar, &err),
                     STATUS_OK);
    w->engine = fake_engine_new(config);
    w->engine->in_flight = in_flight;
    struct engine_port port = fake_engine_port(w->engine);
    w->scheduler = scheduler_new_on(config, &port);
}

void constrained_close(struct constrained *w) {
    scheduler_free(w->scheduler);
    fake_engine_free(w->engine);
    grammar_release(w->grammar);
    vocabulary_free(w->vocabulary);
}

void constrained_ask(const struct constrained *w, struct fake_client *client, int n_prompt,
                     int first, int max_tokens) {
    client->generation = (struct generation){.n_prompt = n_prompt,
                                             .max_tokens = max_tokens,
                                             .n = 1,
                                             .grammar = w->grammar,
                                             .vocabulary = w->vocabulary,
                                             .sampling.repetition_penalty = 1,
                                             .sampling.n_logprobs = -1,
                                             .prompt_logprobs = -1};
    for (int i = 0; i < n_prompt; i++) client->prompt[i] = (first + i) % FAKE_V;
}
