/* The parts of a plan: plan.c is the policy of running sequences, plan_admit.c that of waiting
 * ones, plan_count.c counts rows and blocks, and plan_drafts.c adds drafts. */
#ifndef PENSTOCK_PLAN_INTERNAL_H
#define PENSTOCK_PLAN_INTERNAL_H

#include "scheduler/plan/plan.h"

/* ---- plan_count.c: blocks ------------------------------------------------------------------- */

/* Starts the counts of a plan: nothing is changed, nothing is promised. */
void plan_count_begin(struct plan *plan);

/* Returns the holders of a block after the changes of this plan: its references, or for window
 * blocks its watchers (kv/window_pool.h). */
int plan_holders(const struct plan *plan, enum block_kind kind, int32_t block);

/* Adds `by` to the references of block[0..n), and to the watchers of those from first_seen on. The
 * first holder makes a block unavailable; without holders it is available again. */
void plan_count_holders(struct plan *plan, const int32_t *block, int n, int first_seen, int by);

/* Returns the blocks that can be acquired and are not promised. */
static inline int plan_blocks_left(const struct plan *plan, enum block_kind kind) {
    return plan->ledger[kind].available - plan->ledger[kind].promised;
}

/* Returns the blocks for the due tokens of a sequence and `ahead` more, within its maximum length;
 * of window blocks, those that one row sees. */
int plan_blocks_ahead(const struct plan *plan, const struct sequence *sequence, int ahead,
                      enum block_kind kind);

/* Returns the blocks that waiting beams of a search may need while others of it run. */
int plan_blocks_of_rest(const struct plan *plan, const struct request *request,
                        enum block_kind kind);

/* Promises the blocks that the running sequences still need, and claims their batch rows. */
void plan_promise_running(struct plan *plan);

/* Promises the blocks that an admitted sequence still needs after its item. It holds held[kind]
 * blocks already. The first beam of a search also gets promises for the beams that follow it. */
void plan_promise_admitted(struct plan *plan, const struct plan_item *item,
                           const int held[N_BLOCK_KINDS], bool with_beams);

/* ---- plan_count.c: rows --------------------------------------------------------------------- */

/* Returns the block of the next slot of a sequence, or NULL if it is not acquired yet. */
int32_t *plan_partial_block(const struct block_pool *pool, const struct sequence *sequence);

/* Does an ITL target limit this step? */
static inline bool plan_is_timed(const struct plan *plan) {
    return plan_itl_target(plan) > 0;
}

/* Returns the maximum number of rows from position `from` within the limits of the step. */
int plan_rows_allowed(const struct plan *plan, const struct sequence *sequence, int from);

/* Gives an item `rows` rows from position `from`, and counts them and their blocks. The sequence
 * holds `held` blocks. */
void plan_count_rows(struct plan *plan, struct plan_item *item, int from, int held, int rows);

/* Removes the rows of a running sequence: it skips the step. */
void plan_take_back_rows(struct plan *plan, struct plan_item *item);

/* ---- the parts of plan_make ----------------------------------------------------------------- */

/* plan_admit.c: begins the turns: the shares' batch rows and the items' ranks are those of the
 * items. */
void plan_begin_turns(struct plan *plan);

/* plan_admit.c: returns the next waiting sequence to consider, or NULL: in the best priority with
 * one, the first one of the share with the least service. */
struct sequence *plan_find_turn(struct plan *plan);

/* plan_admit.c: admits the other beams of running searches before all other waiting sequences: the
 * running beams keep their blocks while they wait for them. Returns false if one of them lacks
 * room. */
bool plan_admit_rest(struct plan *plan);

/* plan_admit.c: admits waiting sequences in their order, until one of them lacks room. */
void plan_admit_waiting(struct plan *plan);

/* plan_drafts.c: adds the drafts that are expected to save time. */
void plan_drafts(struct plan *plan);

#endif
