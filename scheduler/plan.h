/* plan: what the next step will do, before anything is done.
 *
 * plan_make is a pure function of what it is shown: it moves nothing, and fills a `struct plan`.
 * plan_apply (apply.c) then does what the plan says, and it cannot fail, because the plan has
 * counted every block. The policy:
 *
 *   - Sequences come in order: lower priority number first, then earlier arrival.
 *   - First all running sequences that want one row (decodes), then running ones that want more,
 *     then waiting ones, as long as rows, logit rows and blocks last. A long prompt takes what is
 *     left, so several may share a step. Where somebody decodes, prompts get no more than
 *     mixed_rows, and what fills up the last tile of rows: a step that takes a whole prompt would
 *     keep the others' next tokens waiting for many times as long, and small steps compute nearly
 *     as many rows a second as large ones. With an ITL target they get as many tiles instead as
 *     there is time for (step_cost.h), and one at least.
 *   - Where layers with windows have blocks of their own (kv/window_pool.h), each block that is
 *     taken takes a window block too, unless it is loaded and the window of the next row has
 *     passed it. A prefix is taken from the cache as far as it is known and the last window of it
 *     still has its window blocks; a swapped sequence has these of its own.
 *   - A running sequence without room for one row preempts the last in order, never one before
 *     it; the last in order itself keeps its blocks and sits the step out. A prompt shrinks its
 *     chunk before it preempts.
 *   - A waiting sequence is let in when blocks for all it knows are there, beside what the
 *     running ones still need for what they know and one block more; so what is let in is rarely
 *     thrown out. None is let in while a running one lacks blocks.
 *   - A swapped sequence waits like the others, and its blocks are loaded when it is admitted: one
 *     such sequence a step, which sits that step out, so that no other waits for the copies; if
 *     there is nothing else to compute it computes at once. Blocks that the prefix cache has are
 *     not loaded. The same goes for one whose prefix is in the host cache (kv/host_cache.h).
 *   - A waiting sequence whose next block a running one is computing right now is held back, and
 *     takes it from the prefix cache when it is done; so a burst of equal prompts computes their
 *     prefix once. Those behind it go on.
 *
 *   - The beams of a search run, sit out and are preempted together. From when its first one is let
 *     in it claims batch rows for all that it may come to have. A preempted search is let in when
 *     there are blocks for all its beams; then its others come before all that waits, because those
 *     that are in keep their blocks until these are too. Each computes what it lacks as others do,
 *     and when it has got its candidates it waits, with nothing to compute, for the others'. If
 *     those behind it hold the blocks that the others need, so that nothing could be computed, they
 *     are preempted, and the others let in by the same plan.
 *
 *   - Drafts come last, where they take nothing from anybody (speculate.h).
 *
 * A plan may be made while the step before it is in flight: then sequences want rows up to what is
 * schedulable (sequence.h), and one whose next token the host has to see first sits the step out.
 * It may still be preempted; the pending result is kept with the sequence.
 *
 * The first running sequence in order always gets a row, or sits out one plan for the result of the
 * row that it has just got: rows, because at most max_seqs - 1 others decode and max_seqs <=
 * max_rows (the same for logit rows); blocks, because it may preempt all others, and then it or its
 * search alone holds blocks and the pool holds what that can ever need (scheduler_submit). And when
 * none runs, the first waiting one is let in, by the same count. So each step, or every second one,
 * brings the first running sequence in order forward, and finite work ends. Being held back does
 * not change that: it needs a running sequence that computes what is waited for. Nor does waiting
 * for other beams: these are the next in order, and room is made for them.
 */
#ifndef PENSTOCK_PLAN_H
#define PENSTOCK_PLAN_H

#include "scheduler/kv/host_cache.h"
#include "scheduler/sequence.h"
#include "scheduler/step_cost.h"

/* Extra samples in a step, beyond one for each logit row: the choices of prompts that end in it. */
#define MAX_EXTRA_SAMPLES (MAX_CHOICES - 1)

/* Waiting sequences that a plan looks past because what they need is being computed. */
#define MAX_HELD_BACK 8

/* All that a plan depends on. */
struct plan_view {
    const struct list *running, *waiting; /* of sequences, in order */
    const struct block_pool *pool;
    int max_seqs, max_rows, max_logit_rows;
    int row_quantum;                     /* rows that products compute at once */
    int mixed_rows;                      /* for prompts, in a step that decodes: at least 1 */
    const struct host_cache *host_cache; /* NULL: it is off */
    int swap_from;                       /* tokens from which it is worth a step's wait */
    const struct step_cost *cost;
    float itl_target_ns; /* of a step that decodes, instead of mixed_rows; 0: none is set */
    bool drafts;         /* may be planned */
    bool fixed_drafts;   /* all that were proposed, whatever they cost */
    uint64_t now_ns;
};

struct plan_item {
    struct sequence *sequence;
    int rows;       /* to compute; 0: it sits this step out */
    int drafts;     /* of the rows: guesses behind the known tokens */
    int logit_rows; /* of them */
    int samples;    /* extra samples of unforked choices */
    int hits;       /* blocks that an admitted one has from the prefix cache */
    int host_hits;  /* and the next ones from the host cache */
    int blocks;     /* to take, the copy's included */
    int windows;    /* window blocks for them: none for what the windows have passed */
    bool copy;      /* its partial block is shared: it writes to a copy */
    bool loads;     /* blocks of it are loaded from the host's memory */
};

struct plan {
    uint64_t now_ns;
    struct plan_item *item; /* [max_seqs] the running ones in order, then the admitted ones */
    int n_running, n_kept;  /* item[n_kept .. n_running) are preempted */
    int n_items;            /* n_running, or more when none is preempted */
    int rows, logit_rows, samples;
    int batch_rows;          /* that the running and the admitted ones claim */
    struct step_shape shape; /* of the rows: those of decodes, with their drafts, and of prompts */
    int row_limit;           /* of the step */
    bool short_of_blocks;    /* a running sequence could not have a row */
    bool loads;              /* one of the admitted ones does */

    /* how the counting is done */
    int available;         /* blocks that could still be taken */
    int promised;          /* of them, what the running ones still need */
    int windows;           /* window blocks that could still be taken */
    int promised_windows;  /* of them, what the running ones still need */
    int32_t *change;       /* [n_blocks] of a block's references by this plan... */
    int32_t *watch_change; /* [n_blocks] ...and of those who watch it... */
    uint64_t *stamp;       /* [n_blocks] ...where this is the plan's epoch */
    uint64_t epoch;
    int32_t *hit; /* [n_blocks] of the waiting sequence that is looked at */
    int max_items, n_blocks;
};

void plan_init(struct plan *plan, int max_seqs, int n_blocks);
void plan_free(struct plan *plan);
void plan_make(struct plan *plan, const struct plan_view *view);

/* Must the block that holds the next slot be copied before it is written, as things stand? */
bool plan_must_copy(const struct block_pool *pool, const struct sequence *sequence);

#endif
