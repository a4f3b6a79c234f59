/* A scheduler with an engine whose model has a layer that guesses ahead. Each guess is compared
 * with the reference's (tests/vectors/make_ahead.py), and the text with the model's own. All
 * functions fail the test themselves. */
#ifndef PENSTOCK_TESTS_WATCHED_H
#define PENSTOCK_TESTS_WATCHED_H

#include "support/same_bytes.h"

enum { WATCHED_PROMPTS = 2, WATCHED_TOKENS = 20, WATCHED_GUESSES = 3, WATCHED_LENGTH = 96 };

/* The reference of a prompt. */
struct golden {
    int n_prompt, n_tokens, n_guessed;
    int32_t id[WATCHED_LENGTH]; /* the prompt, then its tokens */
    int32_t guess[WATCHED_TOKENS][WATCHED_GUESSES];
};

struct watched {
    struct engine *engine;
    struct scheduler *scheduler;
    struct drafter drafter; /* the scheduler's own */
    struct golden golden[WATCHED_PROMPTS];
    struct generation generation[4];
    int predicts; /* tokens that the next request foresees */
    int n_live, n_asked, n_compared, n_wrong;
    int at[WATCHED_TOKENS]; /* guesses compared by place */
    char first[160];
};

/* Opens tests/vectors/ahead/NAME in float32, with the head in NAME_head if that exists.
 * watched_free frees it. */
struct watched *watched_new(const char *name, const struct setting *s, enum device device,
                            int ranks);
void watched_free(struct watched *w);

/* Submits a request for n answers to prompt 0 or 1; at most 4 before watched_finish. */
void watched_ask(struct watched *w, int prompt, int n);
void watched_step(struct watched *w);   /* runs a step, and checks the scheduler's invariants */
void watched_finish(struct watched *w); /* runs until all requests have ended; no guess is wrong */

#endif
