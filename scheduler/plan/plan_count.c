/* plan_count: the rows and blocks that a plan has assigned and promised, counted without touching
 * the pool. */
#include <limits.h>
#include <stdlib.h>

#include "scheduler/plan/internal.h"

/* ---- holders of blocks ---------------------------------------------------------------------- */

void plan_count_begin(struct plan *plan) {
    const struct block_pool *pool = plan->view.pool;
    plan->rows = plan->logit_rows = plan->samples = 0;
    plan->shape = (struct step_shape){0};
    plan->ledger[KV_BLOCKS] = (struct ledger){.available = block_pool_available(pool)};
    plan->ledger[KV_WINDOW_BLOCKS] =
        (struct ledger){.available = window_pool_available(&pool->windows)};
    plan->epoch++;
}

int plan_holders(const struct plan *plan, enum block_kind kind, int32_t block) {
    const struct block_pool *pool = plan->view.pool;
    int change = plan->stamp[block] == plan->epoch ? plan->change[kind][block] : 0;
    if (kind == KV_WINDOW_BLOCKS) return pool->windows.watchers[block] + change;
    return block_pool_references(pool, block) + change;
}

static void plan_count_holder(struct plan *plan, enum block_kind kind, int32_t block, int by) {
    int before = plan_holders(plan, kind, block);
    /* the changes of a block start at zero in each plan */
    if (plan->stamp[block] != plan->epoch)
        plan->change[KV_BLOCKS][block] = plan->change[KV_WINDOW_BLOCKS][block] = 0;
    plan->stamp[block] = plan->epoch;
    plan->change[kind][block] += by;
    assert(before + by >= 0);
    plan->ledger[kind].available += (before + by == 0) - (before == 0);
}

void plan_count_holders(struct plan *plan, const int32_t *block, int n, int first_seen, int by) {
    for (int i = 0; i < n; i++) plan_count_holder(plan, KV_BLOCKS, block[i], by);
    if (plan->view.pool->windows.n == 0) return;
    for (int i = first_seen; i < n; i++) plan_count_holder(plan, KV_WINDOW_BLOCKS, block[i], by);
}

/* ---- promised blocks ------------------------------------------------------------------------ */

int plan_blocks_ahead(const struct plan *plan, const struct sequence *sequence, int ahead,
                      enum block_kind kind) {
    const struct block_pool *pool = plan->view.pool;
    int slots = min_int(sequence_n_schedulable(sequence) + ahead, sequence->request->max_slots);
    int blocks = block_pool_blocks_for(pool, slots);
    return kind == KV_WINDOW_BLOCKS ? min_int(blocks, pool->windows.most) : blocks;
}

int plan_blocks_of_rest(const struct plan *plan, const struct request *request,
                        enum block_kind kind) {
    int blocks = 0;
    for (int i = 0; request->beams && i < request->n; i++) {
        const struct sequence *beam = &request->sequence[i];
        if (beam->state == SEQUENCE_WAITING || beam->state == SEQUENCE_SWAPPED)
            blocks += plan_blocks_ahead(plan, beam, plan->view.pool->block_size, kind);
    }
    return blocks;
}

/* Returns the blocks of one kind that the running sequences still need. */
static int plan_needed_by_running(const struct plan *plan, enum block_kind kind) {
    int needed = 0;
    const struct request *before = NULL;
    for (int i = 0; i < plan->n_kept; i++) {
        const struct plan_item *item = &plan->item[i];
        const struct sequence *sequence = item->sequence;
        if (sequence->request != before)
            needed += plan_blocks_of_rest(plan, sequence->request, kind);
        before = sequence->request;
        int held = sequence->kv.n_blocks + item->blocks[KV_BLOCKS] - item->copy;
        if (kind == KV_WINDOW_BLOCKS) held -= sequence->kv.first_seen;
        int ahead = plan_blocks_ahead(plan, sequence, plan->view.pool->block_size, kind);
        needed += max_int(ahead - held, 0);
    }
    return needed;
}

void plan_promise_running(struct plan *plan) {
    for (enum block_kind kind = 0; kind < N_BLOCK_KINDS; kind++)
        plan->ledger[kind].promised = plan_needed_by_running(plan, kind);
    plan->batch_rows = batch_rows_claimed(plan->view.running);
}

void plan_promise_admitted(struct plan *plan, const struct plan_item *item,
                           const int held[N_BLOCK_KINDS], bool with_beams) {
    const struct sequence *sequence = item->sequence;
    for (enum block_kind kind = 0; kind < N_BLOCK_KINDS; kind++) {
        int ahead = plan_blocks_ahead(plan, sequence, plan->view.pool->block_size, kind);
        int rest = with_beams ? plan_blocks_of_rest(plan, sequence->request, kind) - ahead : 0;
        plan->ledger[kind].promised += max_int(ahead - held[kind] - item->blocks[kind], 0) + rest;
    }
}

/* ---- rows ----------------------------------------------------------------------------------- */

int32_t *plan_partial_block(const struct block_pool *pool, const struct sequence *sequence) {
    int i = sequence->n_computed / pool->block_size;
    return i < sequence->kv.n_blocks ? &sequence->kv.table[i] : NULL;
}

/* Returns how many times as long as its decodes a step may be, with itl_auto. */
static double plan_auto_times(const struct plan *plan, int decodes) {
    const double share = (double)plan->prompts / decodes;
    if (plan->prompts == 0) return ITL_AUTO_READ;
    return share > ITL_AUTO - 1 ? 1 + share : ITL_AUTO;
}

float plan_itl_target(const struct plan *plan) {
    const struct plan_view *view = &plan->view;
    const int decodes = plan->shape.decode_rows;
    const bool has_target = view->itl_target_ns > 0 || view->itl_auto;
    if (!has_target || decodes == 0 || !view->cost->prefill.known) return 0;
    if (view->itl_target_ns > 0) return view->itl_target_ns;
    const double times = plan_auto_times(plan, decodes);
    const double quantile = view->cost->prefill.quantile_99;
    return (float)(times * quantile * step_cost_decodes_ns(view->cost, decodes));
}

/* Returns the rows of a prompt from position `from` for which a timed step has time, up to the end
 * of a tile. Rows that fill up a tile are nearly free. A step without prompt rows gets these even
 * if it exceeds the target. */
static int plan_rows_in_time(const struct plan *plan, int from) {
    const struct plan_view *view = &plan->view;
    int tile = view->row_quantum, last_tile = tile - plan->rows % tile;
    int rows = step_cost_rows_in(view->cost, &plan->shape, from, plan_itl_target(plan));
    rows = min_int(rows, view->max_rows);
    if (rows > last_tile) return (plan->rows + rows) / tile * tile - plan->rows;
    return last_tile < tile || plan->shape.prefill_rows == 0 ? last_tile : 0;
}

/* Returns the rows up to the next checkpoint of a sequence; 0 at a checkpoint whose rows are
 * in flight, since the commit must keep the state first. */
static int plan_rows_to_checkpoint(const struct plan *plan, const struct sequence *sequence,
                                   int from) {
    const struct checkpoints *checkpoints = plan->view.checkpoints;
    int n_prompt = sequence->request->n_prompt;
    if (!checkpoints) return INT_MAX;
    bool committed = sequence->n_committed >= from || sequence->n_computed < from;
    if (!committed && checkpoints_due(checkpoints, from, n_prompt)) return 0;
    return checkpoints_next(checkpoints, from, n_prompt) - from;
}

/* Returns the rows within the limits of the step, which may be only some of a prompt's. */
static int plan_rows_of_part(const struct plan *plan, const struct sequence *sequence, int from) {
    int wanted = sequence_n_schedulable(sequence) - from;
    int logit_rows = plan->view.max_logit_rows - plan->logit_rows;
    int rows = min_int(wanted, plan->row_limit - plan->rows);
    rows = min_int(rows, plan_rows_to_checkpoint(plan, sequence, from));
    if (plan_is_timed(plan) && !sequence_decodes(sequence))
        rows = min_int(rows, plan_rows_in_time(plan, from));
    if (sequence_scoring(sequence))
        rows = min_int(rows, max_int(sequence->n_scored - from, 0) + logit_rows);
    if (rows < wanted) return rows;
    bool fits = sequence_logit_rows(sequence, from, rows) <= logit_rows &&
                plan->samples + sequence_extra_samples(sequence) <= MAX_EXTRA_SAMPLES;
    return fits ? rows : rows - 1;
}

int plan_rows_allowed(const struct plan *plan, const struct sequence *sequence, int from) {
    int rows = plan_rows_of_part(plan, sequence, from);
    bool all = rows == sequence_n_schedulable(sequence) - from;
    return all || !plan->view.whole_prompts ? rows : 0;
}

/* Adds rows of a sequence from position `from` on to the shape of the step. If rows is negative,
 * removes them. */
static void plan_count_shape(struct plan *plan, const struct sequence *sequence, int from,
                             int rows) {
    struct step_shape *shape = &plan->shape;
    if (sequence_decodes(sequence)) {
        shape->decode_rows += rows;
    } else {
        shape->prefill_rows += rows;
        shape->pairs += rows * (from + abs(rows) / 2.0);
    }
    assert(shape->decode_rows >= 0 && shape->prefill_rows >= 0);
}

/* Adds the rows of an item, and takes its blocks; with sign -1, gives them back. */
static void plan_count_item(struct plan *plan, const struct plan_item *item, int from, int sign) {
    plan->rows += sign * item->rows;
    plan->logit_rows += sign * item->logit_rows;
    plan->samples += sign * item->samples;
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++)
        plan->ledger[kind].available -= sign * item->blocks[kind];
    plan_count_shape(plan, item->sequence, from, sign * item->rows);
    if (item->copy)
        plan_count_holders(plan, plan_partial_block(plan->view.pool, item->sequence), 1, 0, -sign);
}

void plan_count_rows(struct plan *plan, struct plan_item *item, int from, int held, int rows) {
    const struct block_pool *pool = plan->view.pool;
    item->rows = rows;
    item->logit_rows = sequence_logit_rows(item->sequence, from, rows);
    if (from + rows == sequence_n_schedulable(item->sequence))
        item->samples = sequence_extra_samples(item->sequence);
    int blocks = block_pool_blocks_for(pool, from + rows);
    item->blocks[KV_BLOCKS] = blocks - held + item->copy;
    held = max_int(held, window_pool_first_seen(&pool->windows, from));
    item->blocks[KV_WINDOW_BLOCKS] = max_int(blocks - held, 0) + item->copy;
    assert(item->blocks[KV_BLOCKS] >= 0);
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++)
        assert(item->blocks[kind] <= plan->ledger[kind].available);
    plan_count_item(plan, item, from, +1);
}

void plan_take_back_rows(struct plan *plan, struct plan_item *item) {
    plan_count_item(plan, item, item->sequence->n_computed, -1);
    *item = (struct plan_item){.sequence = item->sequence, .rank = item->rank};
}
