/* constrained: a scheduler on the fake engine, for tests of requests with a regular expression. */
#ifndef PENSTOCK_TESTS_CONSTRAINED_H
#define PENSTOCK_TESTS_CONSTRAINED_H

#include "support/fake_client.h"

/* maximum tokens of a sequence; maximum requests */
enum { CONSTRAINED_LEN = 200, CONSTRAINED_MOST = 4 };

struct constrained {
    struct fake_engine *engine;
    struct scheduler *scheduler;
    struct grammar *grammar;
    struct vocabulary *vocabulary;
};

/* Opens an engine and a scheduler with a config, and sets all its sizes. Takes ownership of the
 * vocabulary. */
void constrained_open(struct constrained *w, struct scheduler_config *config, const char *regex,
                      struct vocabulary *vocabulary, int in_flight);
void constrained_close(struct constrained *w);

/* Makes the generation of a client: greedy, constrained by the expression, with a prompt that
 * counts from `first`. */
void constrained_ask(const struct constrained *w, struct fake_client *client, int n_prompt,
                     int first, int max_tokens);

#endif
