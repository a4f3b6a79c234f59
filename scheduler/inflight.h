/* inflight: a step in flight, from its submission to its commit: the sequences with rows in it, and
 * its samples.
 *
 * DESIGN. On a device two steps are in flight, and their data must be kept apart:
 *
 *                      step n (runs)                    step n + 1 (planned after it)
 *     struct inflight  rows and samples of n            rows and samples of n + 1
 *     struct step      was read by the engine           one set of arrays: the batch's, of the step
 *                                                       that was submitted last
 *     sequence         n_tokens, n_committed:           n_computed, n_pending, n_scored, table,
 *                      before n                         batch_row: as n + 1 will leave them
 *     blocks           the content of the cache follows the order of the steps, whichever sequence
 *                      holds a block
 *
 * A block that is released while a step in flight still reads or writes it may be acquired
 * immediately: its new holder writes in a later step, and steps run one after the other. A block is
 * registered only when the step that filled it is committed, so shared blocks hold only committed
 * tokens.
 *
 * A step that is planned ahead assumes that its sequences continue. If the commit of n ends a
 * sequence (a stop id, or it was cancelled), its row in n + 1 computes an unused result, in blocks
 * that the sequence no longer holds. The commit skips samples of ended sequences. Until then the
 * memory of the request stays (n_in_flight). Its generation does not stay: it returns to the server
 * with its last event, and samples point into it. So the engine may read samples only while all
 * their sequences live. This holds for a step that is sampled when it is submitted. A step that
 * waits for masks first drops the samples of ended sequences (inflight_drop_ended).
 */
#ifndef PENSTOCK_INFLIGHT_H
#define PENSTOCK_INFLIGHT_H

#include "scheduler/plan/step_cost.h"
#include "scheduler/sequence/sequence.h"

/* The part of a step that belongs to one sequence. */
struct inflight_rows {
    struct sequence *sequence;
    int from, n; /* positions from..from+n-1 */
    int drafts;  /* number of drafts, which are the last rows */
    bool samples;
    int again; /* rows after these, which a later step recomputes */
};

/* A prompt row whose hidden vector is read. */
struct inflight_hidden {
    struct sequence *sequence;
    int row; /* in the step */
};

struct inflight {
    int n_rows, n_samples, n_hidden, max_samples;
    struct inflight_rows *rows;     /* [max_seqs] */
    struct sample *samples;         /* [max_samples] as the engine reads them */
    struct sequence **owner;        /* [max_samples] the sequence that gets each result */
    struct inflight_hidden *hidden; /* [max_samples] in the order of the step's hidden rows */
    int mask_words;                 /* words of one mask */
    uint32_t *masks;  /* [max_samples][mask_words] not written until a mask is needed */
    int *constrained; /* [max_samples] the samples of constrained sequences, while masks are made */
    int max_mask_work;       /* limit for each of these masks, 0: none */
    uint64_t began_ns;       /* when the planning began */
    uint64_t drafting_ns;    /* part of the time since began_ns that the draft model used */
    struct step_shape shape; /* of its rows */
    bool is_sampled;         /* false: it waits for masks */
};

/* Returns the words of a mask: one bit for each of V ids. */
static inline int mask_words(int V) {
    return (V + 31) / 32;
}

/* Allocates the arrays of a step in flight for max_seqs sequences, max_samples samples and masks of
 * V ids; frees them. The step must be empty when it is freed. */
void inflight_init(struct inflight *inflight, int max_seqs, int max_samples, int V);
void inflight_free(struct inflight *inflight);

/* Adds the sample of a logit row that scores the prompt token at `position`. */
void inflight_score(struct inflight *inflight, struct sequence *sequence, int position,
                    int logit_row);
/* Adds the samples of a logit row that choose the sequence's token at `position`, and the first
 * token of each choice that waits for its prompt. */
void inflight_sample(struct inflight *inflight, struct sequence *sequence, int position,
                     int logit_row);

/* Adds the samples that read the request's ids from the last logit row of the prompt. */
void inflight_read(struct inflight *inflight, struct sequence *sequence, int position,
                   int logit_row);
/* Adds a row of the step whose hidden vector is read. */
void inflight_hide(struct inflight *inflight, struct sequence *sequence, int row);

/* Returns the sample of the token at `position`, after the known tokens and drafts. The logit row
 * is not set. */
struct sample inflight_sample_of(const struct sequence *sequence, int position);

/* Adds the rows of the sequence, after their samples. They count as computed from now on. */
void inflight_begin(struct inflight *inflight, struct sequence *sequence);

/* Removes the sample of a sequence, whose next token is now known, from a step that is not sampled
 * yet. Its row stays. */
void inflight_withdraw(struct inflight *inflight, struct sequence *sequence);

/* Removes a sequence whose mask is not ready from a step that is not sampled yet: its samples and
 * their rows, which a later step recomputes. Its drafts are dropped. */
void inflight_postpone(struct inflight *inflight, struct sequence *sequence);

/* Keeps only the first `kept` drafts of a sequence in a step that is not sampled yet. Removes the
 * samples and rows of the others. */
void inflight_cut_drafts(struct inflight *inflight, struct sequence *sequence, int kept);

/* Drops the samples of sequences that have ended since the step was submitted. The step must not be
 * sampled yet. Their rows stay. Returns the number of dropped samples. */
int inflight_drop_ended(struct inflight *inflight);

/* Exchanges the next tokens of two choices. One of the two samples for both. */
void inflight_exchange(struct inflight *inflight, const struct sequence *a,
                       const struct sequence *b);

/* Empties the step, and frees the requests that ended while it was in flight. */
void inflight_end(struct inflight *inflight);

#endif
