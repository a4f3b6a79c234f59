/* fake_client: a request to a scheduler on the fake engine, and what must come out of it. */
#ifndef PENSTOCK_TESTS_FAKE_CLIENT_H
#define PENSTOCK_TESTS_FAKE_CLIENT_H

#include "support/fake_engine.h"

/* One choice as its events have shown it so far. */
struct fake_choice {
    uint64_t sum;            /* of the words of all its tokens */
    int32_t last;            /* token */
    struct matcher *matcher; /* with a grammar, until it ends: all its tokens were taken */
    bool begun;              /* the grammar has */
    int n_output;
    bool ended;
    enum finish finish;
};

/* A text that a search must find. */
struct fake_text {
    int n;
    int32_t token[FAKE_MAX_TOKENS];
    float score;
    bool by_stop_id;
};

/* A generation with room for what it points to, and what has come of it. */
struct fake_client {
    struct generation generation;
    int32_t prompt[FAKE_MAX_TOKENS], predicted[FAKE_MAX_TOKENS];
    struct logit_bias bias[FAKE_BIASES];  /* changes nothing: the engine checks that it is whole */
    uint64_t prompt_sum[FAKE_MAX_TOKENS]; /* words of prompt[0..i] */
    int max_model_len;
    struct fake_choice choice[MAX_CHOICES];
    int n_texts; /* that its search must find, best first */
    struct fake_text text[MAX_BEAMS];
    int n_scored, n_ended, n_cached;
    const bool *device_failed; /* true: it may end with an error; NULL: it may not */
    bool done;
    uint64_t submitted_at, work_before; /* for the test: step, work that had ended */
};

/* Prepares a client whose generation has a prompt, n and limits set. */
void fake_client_ready(struct fake_client *client, int max_model_len);

/* Asserts that an event is the expected one. The client takes it: at its last event it
 * poisons the generation and all that it points to, as the server frees a job. */
void fake_client_take(struct fake_client *client, const struct event *event);

/* The same without poison, for a client whose own thread may still set a flag. */
void fake_client_check(struct fake_client *client, const struct event *event);

/* Overwrites the generation and all that it points to, so that code that still reads it fails. */
void fake_client_poison(struct fake_client *client);

/* The tokens that a choice gives after those that its events have shown: at most n into out, which
 * struct replay's foresee wants (replay_drafter.h). Returns n. */
int fake_foresee(void *client, int choice, int n_known, int32_t *out, int n);

/* ---- a scheduler, step by step -------------------------------------------------------------- */

/* Prepares a client and submits its generation, which must be taken. */
void fake_client_submit(struct fake_client *client, struct scheduler *scheduler, int max_model_len);

/* Takes one step and checks the invariants; returns whether there is more to do. */
bool fake_step(struct scheduler *scheduler);

/* Steps until nothing is left to do. */
void fake_run(struct scheduler *scheduler);

#endif
