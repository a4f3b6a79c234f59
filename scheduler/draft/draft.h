/* draft: guesses of the tokens that a sequence comes to next.
 *
 * A guess costs a row of a step, and saves a step when it holds. Nothing depends on how good it is
 * but time: a step verifies what is drafted (scheduler/speculate.h), so a drafter may guess
 * anything. Whoever drafts is a `struct drafter`; lookup.c has one that looks in the sequence's own
 * text, suffix.c one that looks in those of others, too, and model.c one that asks a smaller model.
 *
 * A drafter is called on the engine thread alone. It allocates nothing there: what it remembers of
 * a sequence is `state`, whose size it tells when the request is made.
 */
#ifndef PENSTOCK_DRAFT_H
#define PENSTOCK_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h" /* MAX_DRAFTS, MAX_DRAFT_MATCH */
#include "kernels/kernels.h"

struct draft {
    int n;     /* tokens that were guessed */
    int match; /* of the first one, 1..MAX_DRAFT_MATCH; each later one's is one higher */
};

/* A sequence, as a drafter sees it. */
struct draft_context {
    void *state;     /* what the drafter remembers of it */
    void *owner;     /* the generation's */
    int choice;      /* of the generation */
    int32_t *tokens; /* [max_tokens] the first n are known; the others are the drafter's to fill */
    int n, max_tokens;
    const uint64_t *salt; /* [2] the generation's cache_salt */
};

/* What is wanted of a drafter that guesses for several sequences at once. */
struct draft_job {
    struct draft_context context;
    int most; /* drafts, at most MAX_DRAFTS; 0: the sequence is passed over */
    /* [most] how the sampler will draw the token that each draft guesses; all but the row */
    struct sample sample[MAX_DRAFTS];
    struct draft draft; /* the answer; its tokens are in context.tokens[n..] */
};

struct drafter {
    void *self;
    /* Bytes of the state of a sequence of up to max_tokens. It begins all zero. */
    size_t (*state_bytes)(const void *self, int max_tokens);
    /* Guesses at most max_drafts tokens, into tokens[n..]. The known tokens of a sequence begin
     * with those that were known at the call before. NULL: propose_all does it. */
    struct draft (*propose)(void *self, const struct draft_context *context, int max_drafts);
    /* A sequence has ended, whose first n_prompt tokens are the prompt. NULL: it need not know. */
    void (*finished)(void *self, const struct draft_context *context, int n_prompt);
    /* The same as propose for n sequences at once, where guessing takes time that they share. Of
     * equal worth, the first jobs come first. */
    void (*propose_all)(void *self, struct draft_job *jobs, int n);
    /* The state of a sequence goes. NULL: nothing else belongs to it. */
    void (*left)(void *self, void *state);
};

/* Is there anybody who guesses? */
static inline bool drafter_guesses(const struct drafter *drafter) {
    return drafter->propose || drafter->propose_all;
}

/* Prompt lookup (Saxena 2023): what followed the last place at which the same tokens stood, in the
 * prompt or the output. Of all such places the one with the longest match, then the latest, as far
 * as a bounded search sees. */
struct lookup_config {
    int min_match; /* tokens that must be the same, at least 1 */
    int max_match; /* tokens that are compared, at most MAX_DRAFT_MATCH */
};
struct drafter drafter_lookup(const struct lookup_config *config); /* which must outlive it */

/* Lookup, and what followed the same tokens most often in the latest texts that have ended, of
 * sequences with the same salt. Takes 5 MiB. */
struct suffix;
struct suffix *suffix_new(const struct lookup_config *config); /* which must outlive it */
void suffix_free(struct suffix *suffix);                       /* NULL does nothing */
struct drafter drafter_suffix(struct suffix *suffix);

/* What runs a draft model: a smaller model of the same vocabulary, with a KV pool of its own. */
struct draft_runner {
    void *self;
    /* Runs a pass and samples from it: the results, valid until the next call; NULL: it failed. */
    const struct sampled *(*run)(void *self, const struct step *step, const struct sample *samples,
                                 int n);
    int max_seqs, max_rows; /* of a pass; max_rows is at least max_seqs */
    int n_blocks, block_size;
    int max_tokens; /* of a sequence, that the model can look at */
};

/* Guesses by a draft model. All memory is taken here. */
struct draft_model;
struct draft_model *draft_model_new(const struct draft_runner *runner);
void draft_model_free(struct draft_model *model); /* NULL does nothing; no state has blocks */
struct drafter drafter_model(struct draft_model *model);

/* Asserts that each block is free or one state's. For tests. */
void draft_model_check(const struct draft_model *model);

/* A text that the client expects as the output (OpenAI's predicted output), and where in it a
 * sequence is. It begins with all but the text zero. */
struct prediction {
    const int32_t *tokens; /* [n] the generation's */
    int n;
    int at;     /* the next token, if the output follows the text */
    int match;  /* how many tokens it has followed it for; 0: it does not */
    int n_seen; /* tokens of the sequence that were looked at */
};

/* Guesses what the text says next, into context->tokens: one more place to look in, before the
 * drafter is asked. Of the known tokens the first n_prompt are the prompt. */
struct draft draft_predicted(struct prediction *prediction, const struct draft_context *context,
                             int n_prompt, int max_drafts);

#endif
