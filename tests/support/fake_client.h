/* fake_client: a request to a scheduler on the fake engine, and its expected results. */
#ifndef PENSTOCK_TESTS_FAKE_CLIENT_H
#define PENSTOCK_TESTS_FAKE_CLIENT_H

#include "support/fake_engine.h"

/* The state of one choice after its events so far. */
struct fake_choice {
    uint64_t sum;            /* of the words of all its tokens */
    int32_t last;            /* last token */
    struct matcher *matcher; /* with a grammar, until the choice ends: has read all its tokens */
    bool begun;              /* the grammar has begun */
    struct thoughts thoughts;
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

/* A generation with room for the data that it points to, and its results. */
struct fake_client {
    struct generation generation;
    int32_t prompt[FAKE_MAX_TOKENS], predicted[FAKE_MAX_TOKENS];
    struct logit_bias bias[FAKE_BIASES];  /* has no effect: the engine checks that it is intact */
    uint64_t prompt_sum[FAKE_MAX_TOKENS]; /* sum of the words of prompt[0..i] */
    int max_model_len;
    struct fake_choice choice[MAX_CHOICES];
    int n_texts; /* texts that its search must find, best first */
    struct fake_text text[MAX_BEAMS];
    int n_scored, n_ended, n_cached;
    int32_t read_ids[MAX_READ_IDS]; /* its logprob_ids, if the test sets n_logprob_ids */
    int n_read;                     /* of these, in events so far */
    double hidden_sum[FAKE_MAX_TOKENS * FAKE_K]; /* the sum, or with keeps_hidden each vector */
    const bool *device_failed; /* true: it may end with an error; NULL: it must not */
    bool done;
    uint64_t submitted_at, work_before; /* for the test: step, work that had ended */
};

/* Prepares a client. The prompt, n and limits of its generation must be set. */
void fake_client_ready(struct fake_client *client, int max_model_len);

/* Asserts that an event is the expected one. At its last event the client poisons the generation
 * and all that it points to, as the server frees a job. */
void fake_client_take(struct fake_client *client, const struct event *event);

/* Does the same without poison, for a client whose own thread may still set a flag. */
void fake_client_check(struct fake_client *client, const struct event *event);

/* Overwrites the generation and all that it points to, so that code that still reads it fails. */
void fake_client_poison(struct fake_client *client);

/* Writes the tokens of a choice after its events so far to out, at most n. Returns their number.
 * Used as struct replay's foresee (replay_drafter.h). */
int fake_foresee(void *client, int choice, int n_known, int32_t *out, int n);

/* ---- a scheduler, step by step -------------------------------------------------------------- */

/* Prepares a client and submits its generation, which must be accepted. */
void fake_client_submit(struct fake_client *client, struct scheduler *scheduler, int max_model_len);

/* Runs one step and checks the invariants. Returns whether work is left. */
bool fake_step(struct scheduler *scheduler);

/* Runs steps until all work is done. */
void fake_run(struct scheduler *scheduler);

#endif
