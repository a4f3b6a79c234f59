/* inflight: a step in flight, from its submit to its commit: which sequences have rows in it, and
 * what is sampled from it.
 *
 * DESIGN. On a device two steps are in flight, and what belongs to one must not be the other's:
 *
 *                      step n (runs)                    step n + 1 (planned after it)
 *     struct inflight  rows and samples of n            rows and samples of n + 1
 *     struct step      was read by the engine           one set of arrays: the batch's, of the step
 *                                                       that was submitted last
 *     sequence         n_tokens, n_committed:           n_computed, n_pending, n_scored, table,
 *                      before n                         batch_row: as n + 1 will leave them
 *     blocks           the cache's content is in the order of the steps, whichever sequence holds
 *                      what
 *
 * A block that is released while a step in flight still reads or writes it may be acquired at once:
 * its new holder writes in a later step, and steps run one after the other. A block is made known
 * only when the step that has filled it is committed, so what is shared holds committed tokens
 * alone.
 *
 * Planning ahead speculates that a sequence goes on. If the commit of n ends it (a stop id; it was
 * cancelled), its row in n + 1 computes something that is never read, in blocks that it no longer
 * holds, and its results are dropped: the commit passes over samples of ended sequences. Until then
 * the request's memory stays (n_in_flight). Its generation does not: it returns to the server with
 * its last event, and samples point into it. So the engine may read samples only while all their
 * sequences live. That holds for a step that is sampled when it is submitted. A step that waits
 * for masks first drops the samples of sequences that have ended since (inflight_drop_ended).
 */
#ifndef PENSTOCK_INFLIGHT_H
#define PENSTOCK_INFLIGHT_H

#include "scheduler/sequence.h"
#include "scheduler/step_cost.h"

/* A sequence's part of a step. */
struct inflight_rows {
    struct sequence *sequence;
    int from, n; /* positions from..from+n-1 */
    int drafts;  /* the last ones are guessed */
    bool samples;
    int again; /* behind them, which a later step computes again */
};

struct inflight {
    int n_rows, n_samples, max_samples;
    struct inflight_rows *rows; /* [max_seqs] */
    struct sample *samples;     /* [max_samples] as the engine reads them */
    struct sequence **owner;    /* [max_samples] the sequence that gets the result */
    int mask_words;             /* of a mask */
    uint32_t *masks;            /* [max_samples][mask_words] untouched until one is wanted */
    int *constrained;           /* [max_samples] while masks are made: their sequences' samples */
    int max_mask_work;          /* for one of these masks, 0: no limit */
    uint64_t began_ns;          /* when it was planned */
    uint64_t drafting_ns;       /* of the time since then, what a draft model took */
    struct step_shape shape;    /* of its rows */
    bool is_sampled;            /* or it waits for masks */
};

/* Words of a mask: a bit for each of V ids. */
static inline int mask_words(int V) {
    return (V + 31) / 32;
}

void inflight_init(struct inflight *inflight, int max_seqs, int max_samples, int V);
void inflight_free(struct inflight *inflight);

/* Adds what a logit row of a sequence gives: the score of the prompt token at `position`; or its
 * token at `position`, and that of each choice that waits for its prompt. */
void inflight_score(struct inflight *inflight, struct sequence *sequence, int position,
                    int logit_row);
void inflight_sample(struct inflight *inflight, struct sequence *sequence, int position,
                     int logit_row);

/* How the token at `position` is drawn, behind what the sequence knows and its drafts: all but the
 * logit row. */
struct sample inflight_sample_of(const struct sequence *sequence, int position);

/* Adds the sequence's rows, after their samples: from here on they count as computed. */
void inflight_begin(struct inflight *inflight, struct sequence *sequence);

/* Takes back the sample of a sequence, whose next token became known, from a step that was not
 * sampled yet. Its row stays. */
void inflight_withdraw(struct inflight *inflight, struct sequence *sequence);

/* Takes a sequence whose mask is late out of a step that was not sampled yet: its samples, and the
 * rows that they need, which a later step computes again. Its drafts are dropped. */
void inflight_postpone(struct inflight *inflight, struct sequence *sequence);

/* Leaves a sequence only the first `kept` of its drafts, in a step that was not sampled yet: takes
 * back the samples and rows of the others. */
void inflight_cut_drafts(struct inflight *inflight, struct sequence *sequence, int kept);

/* Drops the samples of sequences that have ended since a step was submitted, which was not sampled
 * yet. Their rows stay. Returns the number of samples. */
int inflight_drop_ended(struct inflight *inflight);

/* Exchanges the next tokens of two choices, of which one samples for both. */
void inflight_exchange(struct inflight *inflight, const struct sequence *a,
                       const struct sequence *b);

/* Empties the step, and frees the requests that have ended while it was in flight. */
void inflight_end(struct inflight *inflight);

#endif
