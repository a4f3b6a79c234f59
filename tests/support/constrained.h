/* constrained: a scheduler on the fake engine, for tests of requests that keep to one regular
 * expression. */
#ifndef PENSTOCK_TESTS_CONSTRAINED_H
#define PENSTOCK_TESTS_CONSTRAINED_H

#include "support/fake_client.h"

enum { CONSTRAINED_LEN = 200, CONSTRAINED_MOST = 4 }; /* tokens of a sequence; requests */

struct constrained {
    struct fake_engine *engine;
    struct scheduler *scheduler;
    struct grammar *grammar;
    struct vocabulary *vocabulary;
};

/* Opens engine and scheduler of a config, of which all sizes are set here. It takes over the
 * vocabulary. */
void constrained_open(struct constrained *w, struct scheduler_config *config, const char *regex,
                      struct vocabulary *vocabulary, int in_flight);
void constrained_close(struct constrained *w);

/* Makes a client's generation one that is greedy, with a prompt that counts from `first` on, and
 * that keeps to the expression. */
void constrained_ask(const struct constrained *w, struct fake_client *client, int n_prompt,
                     int first, int max_tokens);

#endif
