/* draft: guesses of the tokens that a sequence comes to next.
 *
 * A guess costs a row of a step, and saves a step when it holds. Nothing depends on how good it is
 * but time: a step verifies what is drafted (scheduler/speculate.h), so a drafter may guess
 * anything. Whoever drafts is a `struct drafter`; lookup.c has one that looks in the sequence's own
 * text, suffix.c one that looks in those of others, too.
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

struct drafter {
    void *self;
    /* Bytes of the state of a sequence of up to max_tokens. It begins all zero. */
    size_t (*state_bytes)(const void *self, int max_tokens);
    /* Guesses at most max_drafts tokens, into tokens[n..]. The known tokens of a sequence begin
     * with those that were known at the call before. */
    struct draft (*propose)(void *self, const struct draft_context *context, int max_drafts);
    /* A sequence has ended, whose first n_prompt tokens are the prompt. NULL: it need not know. */
    void (*finished)(void *self, const struct draft_context *context, int n_prompt);
};

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
