/* plan: the contents of the next step, before it changes anything.
 *
 * plan_make is a pure function of its view: it changes only the `struct plan` that it fills.
 * plan_apply (apply.c) carries out the plan. It cannot fail, because the plan has counted every
 * block. The policy:
 *
 *   - Sequences are ordered by priority number (lower first), then by arrival. If there are several
 *     shares (shares.h), waiting sequences of a priority are considered by their share's counter
 *     instead, and by arrival within a share. Prompts that this plan admits count for the next one.
 *     One share cannot fill the batch: it leaves some batch rows to the others (shares.h), so
 *     their next request does not wait until a sequence ends.
 *   - Running prompts get rows by priority, then by rank: first the first running sequence of each
 *     share, then the second ones. A waiting sequence is ranked behind those of its share that run;
 *     prompts behind it leave it rows, but get at least one tile; if it lacks room, they get the
 *     rows themselves. So a short prompt does not wait for the long ones of another share. With one
 *     share this is the order of arrival.
 *   - First all running sequences that need one row (decodes) get it, then running ones that need
 *     more, then waiting ones, while rows, logit rows and blocks last. A long prompt gets the rows
 *     that are left, so several prompts may share a step. If any sequence decodes, prompts get at
 *     most mixed_rows, and the rows that fill up the last tile: a step with a whole prompt would
 *     delay the next tokens of the other sequences several times as long, and small steps compute
 *     nearly as many rows a second as large ones. With an ITL target, or itl_auto, prompts instead
 *     get the tiles for which there is time (step_cost.h), at least one.
 *   - If layers with windows have separate blocks (kv/window_pool.h), each acquired block needs a
 *     window block too, unless it is loaded and the window of the next row has passed it. A prefix
 *     is reused from the cache as far as it is known and its last window still has window blocks. A
 *     swapped sequence has these in its host blocks.
 *   - If a running sequence lacks blocks for one row, it preempts the last in the order, never one
 *     before itself. If it is the last itself, it keeps its blocks and skips the step. A prompt
 *     shrinks its chunk before it preempts.
 *   - A waiting sequence is admitted if there are blocks for all its known tokens, in addition to
 *     the blocks that running sequences still need for their known tokens and one block each. So an
 *     admitted sequence is rarely preempted. No sequence is admitted while a running one lacks
 *     blocks.
 *   - A swapped sequence waits like the others. Its blocks are loaded when it is admitted: one such
 *     sequence per step. It skips that step, so no other sequence waits for the copies; if there is
 *     nothing else to compute, it computes in the same step. Blocks in the prefix cache are not
 *     loaded. The same rule holds for a sequence whose prefix is in the host cache
 *     (kv/host_cache.h).
 *   - If a running sequence is computing the next block of a waiting one, the waiting one is held
 *     back, and later finds the block in the prefix cache. So a burst of equal prompts computes
 *     their prefix once. The sequences after it are still considered.
 *
 *   - With checkpoints (kv/checkpoints.h), the rows of a sequence end at the next one, and go on
 *     after the commit that makes it. A prefix is reused up to its last checkpoint. A waiting
 *     sequence is held back if a running one will make a later checkpoint in its prefix.
 *
 *   - The beams of a search run, skip steps and are preempted together. When its first beam is
 *     admitted, the search claims batch rows for its maximum number of beams. A preempted search is
 *     admitted when there are blocks for all its beams. Its other beams then precede all waiting
 *     sequences, because the running beams keep their blocks until these run, too. Each beam
 *     computes its missing tokens like other sequences. When its candidates are known, it waits for
 *     those of the other beams. If later sequences hold the blocks that the other beams need, so
 *     that nothing could be computed, the same plan preempts these sequences and admits the beams.
 *
 *   - A prompt of an encoder gets all its rows in one step, or waits: its rows see each other.
 *
 *   - Drafts are last, and use only resources that are left (speculate.h).
 *
 * A plan may be made while the previous step is in flight. Then sequences need rows up to the
 * schedulable token (sequence.h), and a sequence whose next token must be committed first skips the
 * step. It may still be preempted: its pending result is kept with the sequence.
 *
 * Progress: the first running sequence in the order always gets a row, or skips one plan while the
 * result of its last row is pending. It gets a row, because at most max_seqs - 1 others decode and
 * max_seqs <= max_rows (the same holds for logit rows). It gets blocks, because it may preempt all
 * others. Then only it or its search holds blocks, and the pool has enough for its maximum need
 * (scheduler_submit). If no sequence runs, the first waiting one is admitted, by the same count. So
 * at least every second step advances the first running sequence, and finite work ends. A sequence
 * that is held back does not change this: it waits for a running sequence that computes. Neither
 * does a beam that waits for other beams: these are the next in the order, and room is made for
 * them.
 */
#ifndef PENSTOCK_PLAN_H
#define PENSTOCK_PLAN_H

#include "scheduler/kv/checkpoints.h"
#include "scheduler/kv/host_cache.h"
#include "scheduler/plan/shares.h"
#include "scheduler/plan/step_cost.h"
#include "scheduler/sequence/sequence.h"

/* Maximum number of extra samples in a step, beyond one for each logit row: the choices of prompts
 * that end in it. */
#define MAX_EXTRA_SAMPLES (MAX_CHOICES - 1)

/* Drafts must promise this gain of tokens per time, since costs are estimates. */
#define MIN_DRAFT_GAIN 1.03f

/* Maximum number of held-back sequences that a plan skips. */
#define MAX_HELD_BACK 8

/* All inputs of a plan. */
struct plan_view {
    const struct list *running, *waiting; /* of sequences, in order */
    const struct shares *shares;
    const struct block_pool *pool;
    int max_seqs, max_rows, max_logit_rows;
    int row_quantum;                     /* rows that products compute together */
    int mixed_rows;                      /* prompt rows in a step that decodes: at least 1 */
    const struct host_cache *host_cache; /* NULL: it is off */
    int swap_from; /* minimum number of tokens for which a load is worth a skipped step */
    const struct checkpoints *checkpoints; /* NULL: hits do not depend on them */
    const struct step_cost *cost;
    float itl_target_ns; /* for a step that decodes; replaces mixed_rows; 0: no target */
    bool itl_auto;       /* without a target: prompts may lengthen a step as ITL_AUTO says */
    bool whole_prompts;  /* a prompt gets all its rows in one step, or none */
    bool drafts;         /* drafts may be planned */
    bool fixed_drafts;   /* plan all proposed drafts, whatever their cost */
    int most_drafts;     /* in the step */
    uint64_t now_ns;
};

struct plan_item {
    struct sequence *sequence;
    int rank;       /* running sequences of its share before it */
    int rows;       /* to compute; 0: it skips this step */
    int drafts;     /* number of drafts among the rows */
    int logit_rows; /* number of logit rows among the rows */
    int samples;    /* extra samples of unforked choices */
    int hits;       /* blocks of an admitted sequence in the prefix cache */
    int host_hits;  /* blocks after these in the host cache */
    /* blocks to acquire, including the copy, and window blocks for them, except for blocks that
     * the windows have passed */
    int blocks[N_BLOCK_KINDS];
    bool copy;  /* its partial block is shared: it writes to a copy */
    bool loads; /* some of its blocks are loaded from host memory */
};

/* The blocks of one kind while a plan is made. */
struct ledger {
    int available; /* can still be acquired */
    int promised;  /* part of these that running sequences still need */
};

/* A share while a plan is made. */
struct turn {
    uint64_t admitted;           /* service of the prompts that this plan admits */
    const struct sequence *seen; /* its last waiting sequence that was considered, or NULL */
    int rows;                    /* its batch rows: running and admitted sequences */
    bool has_its_part;           /* its next sequence must leave batch rows to other shares */
};

struct plan {
    struct plan_view view;
    struct plan_item *item; /* [max_seqs] the running sequences in order, then the admitted ones */
    int n_running, n_kept;  /* item[n_kept .. n_running) are preempted */
    int n_items;            /* n_running and the admitted ones */
    int rows, logit_rows, samples;
    int batch_rows; /* claimed by running and admitted sequences */
    int prompts;    /* sequences that will decode, do not yet, and have a place in the batch */
    struct step_shape shape; /* of the rows: decodes with their drafts, and prompts */
    int row_limit;           /* of the step */
    bool short_of_blocks;    /* a running sequence could not get a row */
    bool loads;              /* one of the admitted sequences loads blocks */

    /* state of the counting */
    struct ledger ledger[N_BLOCK_KINDS];
    /* [n_blocks] changes by this plan to the holders of each block: references, or watchers of its
     * window block... */
    int32_t *change[N_BLOCK_KINDS];
    uint64_t *stamp; /* [n_blocks] ...valid if this equals the plan's epoch */
    uint64_t epoch;
    struct turn *turn; /* [n_shares] */
    int *prompt;       /* [max_seqs] indexes of running items that do not decode, in their order */
    int n_prompts;
    bool leaves_rows; /* one of them leaves rows to a waiting sequence */
    int32_t *hit;     /* [n_blocks] hits of the waiting sequence that is checked */
    int max_items, n_blocks, n_shares;
};

/* Allocates the arrays of a plan, for a pool of n_blocks; frees them. */
void plan_init(struct plan *plan, int max_seqs, int n_blocks, int n_shares);
void plan_free(struct plan *plan);

/* Plans a step. `plan` gets a copy of the view, which is valid during the call. */
void plan_make(struct plan *plan, const struct plan_view *view);

/* With itl_auto, prompts may make a step with decodes ITL_AUTO times as long, or 1 + n times if
 * there are n prompts for each decode: then few tokens wait for many prompts. Prompts that are only
 * read, such as the texts of a job of embeddings, do not count. If there are no others, a step may
 * be ITL_AUTO_READ times as long as its decodes, since no stream waits for them. */
#define ITL_AUTO 2.0
#define ITL_AUTO_READ 1.5

/* Returns the ITL target of a planned step, or of the decodes that are planned so far, in ns; 0: it
 * has none. */
float plan_itl_target(const struct plan *plan);

/* Returns the prompt tokens that a request is charged for when its first sequence is admitted with
 * `hits` blocks of `size` tokens from a cache. */
static inline uint64_t plan_prompt_cost(const struct sequence *sequence, int hits, int size) {
    assert(hits * size < sequence->request->n_prompt);
    return PROMPT_TOKEN_COST * (uint64_t)(sequence->request->n_prompt - hits * size);
}

/* Must the block of the next slot be copied before it is written, in the current state? */
bool plan_must_copy(const struct block_pool *pool, const struct sequence *sequence);

#endif
