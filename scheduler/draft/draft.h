/* draft: guesses of the next tokens of a sequence. A draft is a guessed token.
 *
 * A draft costs one row of a step, and saves a step if it is accepted. Its quality affects only
 * speed: a step verifies all drafts (scheduler/speculate.h), so a drafter may guess any token.
 * There are four drafters: lookup.c searches the sequence's own text, suffix.c also searches the
 * texts of other sequences, model.c runs a smaller model, and ahead.c runs a layer of the model
 * itself.
 *
 * Drafters are called only on the engine thread and allocate nothing there. Their memory of a
 * sequence is `state`, and its size is known when the request is made.
 */
#ifndef PENSTOCK_DRAFT_H
#define PENSTOCK_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h" /* MAX_DRAFTS, MAX_DRAFT_MATCH */
#include "kernels/sampling.h"
#include "kernels/step.h"

struct draft {
    int n; /* number of drafts */
    /* tokens that match before the first draft, 1..MAX_DRAFT_MATCH; each later draft has 1 more */
    int match;
};

/* A sequence, as passed to a drafter. */
struct draft_context {
    void *state;     /* the drafter's memory of the sequence */
    void *owner;     /* the owner of the generation */
    int choice;      /* index of the choice in the generation */
    int32_t *tokens; /* [max_tokens] the first n are known; the drafter fills the others */
    int n, max_tokens;
    const uint64_t *salt; /* [2] cache_salt of the generation */
};

/* The place of a sequence, for a drafter that continues the model's own pass (ahead.c). */
struct draft_place {
    int n_computed;
    /* the row of the last one among the rows that were read in the step before */
    int hidden_row;
    const int32_t *table; /* [n_blocks] */
    int n_blocks;
    int n_slots; /* positions with slots in these blocks */
    bool shares; /* another sequence shares the last block */
};

/* A request to a drafter that guesses for several sequences in one call. */
struct draft_job {
    struct draft_context context;
    int most; /* maximum number of drafts, at most MAX_DRAFTS; 0: the sequence is skipped */
    /* [most] how the sampler will draw the token of each draft; `row` is not set */
    struct sample sample[MAX_DRAFTS];
    struct draft_place place; /* only for ahead.c */
    struct draft draft;       /* the result; its tokens are in context.tokens[n..] */
};

struct drafter {
    void *self;
    /* Returns the bytes of the state of a sequence of up to max_tokens. It starts as zeros. */
    size_t (*state_bytes)(const void *self, int max_tokens);
    /* Writes at most max_drafts drafts to tokens[n..]. Between two calls for a sequence, its known
     * tokens only grow. NULL: propose_all replaces it. */
    struct draft (*propose)(void *self, const struct draft_context *context, int max_drafts);
    /* Called when a sequence has ended. The prompt is its first n_prompt tokens. May be NULL. */
    void (*finished)(void *self, const struct draft_context *context, int n_prompt);
    /* Does the work of propose for n sequences at once. Earlier jobs win ties. */
    void (*propose_all)(void *self, struct draft_job *jobs, int n);
    /* Called before the state of a sequence is freed. NULL: the state owns nothing else. */
    void (*left)(void *self, void *state);
};

/* Does the drafter guess at all? */
static inline bool drafter_guesses(const struct drafter *drafter) {
    return drafter->propose || drafter->propose_all;
}

/* Prompt lookup (Saxena 2023): drafts the tokens that follow an earlier occurrence of the last
 * tokens, in the prompt or the output. The longest match is chosen, then the latest, within a
 * bounded search. */
struct lookup_config {
    int min_match; /* minimum number of equal tokens, at least 1 */
    int max_match; /* maximum number of tokens that are compared, at most MAX_DRAFT_MATCH */
};
struct drafter drafter_lookup(const struct lookup_config *config); /* config must outlive it */

/* Does a prompt lookup, and also searches the texts of sequences that ended recently and have the
 * same cache_salt. It drafts the most frequent continuation of the last tokens in these texts. The
 * longer match of the two wins. Allocates 5 MiB. */
struct suffix;
struct suffix *suffix_new(const struct lookup_config *config); /* config must outlive it */
void suffix_free(struct suffix *suffix);                       /* accepts NULL */
struct drafter drafter_suffix(struct suffix *suffix);

/* The callbacks that run a draft model: a smaller model with the same vocabulary and a separate KV
 * pool. */
struct draft_runner {
    void *self;
    /* Runs a pass and samples from it. Returns the results, valid until the next call, or NULL if
     * the pass failed. */
    const struct sampled *(*run)(void *self, const struct step *step, const struct sample *samples,
                                 int n);
    int max_seqs, max_rows; /* of one pass; max_rows is at least max_seqs */
    int n_blocks, block_size;
    int max_tokens; /* maximum length of a sequence for the draft model */
};

/* A drafter that runs a draft model. draft_model_new allocates all memory. */
struct draft_model;
struct draft_model *draft_model_new(const struct draft_runner *runner);
void draft_model_free(struct draft_model *model); /* accepts NULL; no state may hold blocks */
struct drafter drafter_model(struct draft_model *model);

/* Asserts that each block is free or belongs to exactly one state. For tests. */
void draft_model_check(const struct draft_model *model);

/* A drafter that runs the model's own layer that guesses ahead. Its jobs are all sequences that the
 * last step computed, even if they do not draft (`most` is 0). The runner's passes are of the
 * model's own engine, between its steps; its n_blocks is not used. draft_ahead_new allocates all
 * memory. */
struct draft_ahead;
struct draft_ahead *draft_ahead_new(const struct draft_runner *runner);
void draft_ahead_free(struct draft_ahead *ahead); /* accepts NULL */
struct drafter drafter_ahead(struct draft_ahead *ahead);

/* A text that the client expects as the output (OpenAI's predicted output), and the place of a
 * sequence in it. All fields except the text start as zeros. */
struct prediction {
    const int32_t *tokens; /* [n] owned by the generation */
    int n;
    int at;     /* index of the next token, if the output follows the text */
    int match;  /* number of tokens that followed the text; 0: the output does not follow it */
    int n_seen; /* number of the sequence's tokens that were compared */
};

/* Writes the next tokens of the text to context->tokens. It is called before the drafter. The first
 * n_prompt of the known tokens are the prompt. */
struct draft draft_predicted(struct prediction *prediction, const struct draft_context *context,
                             int n_prompt, int max_drafts);

#endif
