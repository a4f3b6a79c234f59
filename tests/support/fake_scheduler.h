/* fake_scheduler: a scheduler on the fake engine whose steps a test runs itself, its clients, and
 * their events so far. */
#ifndef PENSTOCK_TESTS_FAKE_SCHEDULER_H
#define PENSTOCK_TESTS_FAKE_SCHEDULER_H

#include "support/fake_client.h"

enum { FAKE_CLIENTS = 8, FAKE_EVENTS = 256 };

struct fake_scheduler {
    struct fake_engine *engine;
    struct scheduler *scheduler;
    int max_model_len;
    struct fake_client client[FAKE_CLIENTS];
    struct event seen[FAKE_EVENTS]; /* [n_seen] */
    int n_seen;
};

/* Opens both with this config; on_events and arg are set. Call fake_scheduler_close afterwards. */
void fake_scheduler_open(struct fake_scheduler *f, struct scheduler_config config);
void fake_scheduler_close(struct fake_scheduler *f);

/* Prepares client k's generation with n choices, whose prompt differs from those of other clients.
 * It is not submitted. */
struct generation *fake_scheduler_ask(struct fake_scheduler *f, int k, int n_prompt, int max_tokens,
                                      int n);

/* Submits a generation of a client. Fails as scheduler_submit does. */
enum status fake_scheduler_put(struct fake_scheduler *f, struct generation *g, struct err *err);

#endif
