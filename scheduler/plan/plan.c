#include "scheduler/plan/plan.h"

#include "scheduler/plan/internal.h"

void plan_init(struct plan *plan, int max_seqs, int n_blocks, int n_shares) {
    *plan = (struct plan){.max_items = max_seqs, .n_blocks = n_blocks, .n_shares = n_shares};
    plan->item = mem_calloc((size_t)max_seqs, sizeof *plan->item);
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++)
        plan->change[kind] = mem_calloc((size_t)n_blocks, sizeof *plan->change[kind]);
    plan->stamp = mem_calloc((size_t)n_blocks, sizeof *plan->stamp);
    plan->turn = mem_calloc((size_t)n_shares, sizeof *plan->turn);
    plan->prompt = mem_calloc((size_t)max_seqs, sizeof *plan->prompt);
    plan->hit = mem_calloc((size_t)n_blocks, sizeof *plan->hit);
}

void plan_free(struct plan *plan) {
    mem_free(plan->item);
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++) mem_free(plan->change[kind]);
    mem_free(plan->stamp);
    mem_free(plan->turn);
    mem_free(plan->prompt);
    mem_free(plan->hit);
}

bool plan_must_copy(const struct block_pool *pool, const struct sequence *sequence) {
    const int32_t *partial = plan_partial_block(pool, sequence);
    return partial && block_pool_references(pool, *partial) > 1;
}

/* ---- running sequences ---------------------------------------------------------------------- */

/* Returns the maximum number of rows for which a running sequence has or can acquire blocks. */
static int plan_rows_with_blocks(const struct plan *plan, const struct sequence *sequence,
                                 bool copy) {
    const struct block_pool *pool = plan->view.pool;
    int available =
        min_int(plan->ledger[KV_BLOCKS].available, plan->ledger[KV_WINDOW_BLOCKS].available);
    if (available < copy) return 0;
    int blocks = sequence->kv.n_blocks + available - copy;
    return min_int(blocks, pool->n_blocks) * pool->block_size - sequence->n_computed;
}

/* Removes the rows of the last running sequence, and counts its blocks as released. If it is a
 * beam, does so for all beams of its search. */
static void plan_preempt_last(struct plan *plan) {
    const struct sequence *last = plan->item[plan->n_kept - 1].sequence, *next;
    do {
        struct plan_item *item = &plan->item[--plan->n_kept];
        const struct sequence_kv *kv = &item->sequence->kv;
        plan_take_back_rows(plan, item);
        plan_count_holders(plan, kv->table, kv->n_blocks, kv->first_seen, -1);
        next = plan->n_kept > 0 ? plan->item[plan->n_kept - 1].sequence : NULL;
    } while (next && sequence_searches_with(last, next));
}

/* Assigns rows to a running sequence. If it gets more than a tile, it leaves `kept` rows to others.
 * Preempts the last in the order while it has room for none. */
static void plan_serve_running(struct plan *plan, int i, int kept) {
    struct plan_item *item = &plan->item[i];
    const struct sequence *sequence = item->sequence;
    int allowed = plan_rows_allowed(plan, sequence, sequence->n_computed);
    if (allowed <= 0) return;
    allowed = max_int(allowed - kept, min_int(allowed, plan->view.row_quantum));
    for (;;) {
        const int32_t *partial = plan_partial_block(plan->view.pool, sequence);
        item->copy = partial && plan_holders(plan, KV_BLOCKS, *partial) > 1;
        int rows = min_int(allowed, plan_rows_with_blocks(plan, sequence, item->copy));
        if (rows > 0) {
            plan_count_rows(plan, item, sequence->n_computed, sequence->kv.n_blocks, rows);
            return;
        }
        const struct sequence *last = plan->item[plan->n_kept - 1].sequence;
        if (plan->n_kept - 1 <= i || sequence_searches_with(sequence, last)) break;
        plan_preempt_last(plan);
    }
    item->copy = false;
    plan->short_of_blocks = true;
}

/* If a decoding beam has no row, takes the rows of the other beams of its search. */
static void plan_serve_searches_as_one(struct plan *plan) {
    for (int first = 0, end; first < plan->n_kept; first = end) {
        const struct sequence *sequence = plan->item[first].sequence;
        bool all = true;
        for (end = first; end < plan->n_kept; end++) {
            const struct plan_item *item = &plan->item[end];
            if (end > first && !sequence_searches_with(sequence, item->sequence)) break;
            all = all && (item->rows > 0 || !sequence_decodes(item->sequence));
        }
        for (int i = first; i < end && !all; i++) plan_take_back_rows(plan, &plan->item[i]);
    }
}

/* Limits the rows of a step that decodes: it adds only about mixed_rows rows of prefills. Products
 * compute rows in tiles, so rows that fill the last tile are nearly free. If the step is timed, its
 * prefills get as many rows as there is time for (plan_rows_allowed). */
static void plan_limit_prefills(struct plan *plan) {
    const struct plan_view *view = &plan->view;
    int decoding = plan->rows, tile = view->row_quantum;
    if (decoding == 0 || plan_is_timed(plan)) return;
    if (view->mixed_rows >= view->max_rows - decoding) return;
    int rows = (decoding + view->mixed_rows + tile - 1) / tile * tile;
    plan->row_limit = min_int(rows, view->max_rows);
}

/* Does a sequence of this rank precede the item? */
static bool plan_precedes(const struct sequence *sequence, int rank, const struct plan_item *item) {
    int priority = sequence->request->priority, others = item->sequence->request->priority;
    return priority != others ? priority < others : rank < item->rank;
}

/* Lists the running prompts by priority, rank and arrival. */
static void plan_order_prompts(struct plan *plan) {
    plan->n_prompts = 0;
    for (int i = 0; i < plan->n_kept; i++) {
        const struct plan_item *item = &plan->item[i];
        if (sequence_decodes(item->sequence)) continue;
        int at = plan->n_prompts++;
        for (; at > 0; at--) {
            int before = plan->prompt[at - 1];
            if (!plan_precedes(item->sequence, item->rank, &plan->item[before])) break;
            plan->prompt[at] = before;
        }
        plan->prompt[at] = i;
    }
}

/* Returns the first waiting sequence if the batch has a place and rows may be left to it, or NULL.
 */
static const struct sequence *plan_first_waiting(struct plan *plan) {
    bool full = plan->n_kept == plan->view.max_seqs;
    return full || plan->view.whole_prompts ? NULL : plan_find_turn(plan);
}

static void plan_serve_prompts(struct plan *plan) {
    plan_order_prompts(plan);
    const struct sequence *first = plan->n_prompts > 0 ? plan_first_waiting(plan) : NULL;
    int rank = first ? plan->turn[first->request->share].rows : 0;
    plan->leaves_rows = false;
    for (int k = 0; k < plan->n_prompts; k++) {
        int i = plan->prompt[k];
        if (i >= plan->n_kept) continue; /* it is preempted */
        bool leaves = first && plan_precedes(first, rank, &plan->item[i]);
        plan->leaves_rows |= leaves;
        plan_serve_running(plan, i, leaves ? sequence_n_schedulable(first) : 0);
    }
}

/* If no waiting sequence was admitted to the rows that prompts leave, the prompts get them. */
static void plan_return_rows(struct plan *plan) {
    if (!plan->leaves_rows || plan->n_items > plan->n_running) return;
    for (int k = 0; k < plan->n_prompts; k++)
        if (plan->prompt[k] < plan->n_kept) plan_take_back_rows(plan, &plan->item[plan->prompt[k]]);
    for (int k = 0; k < plan->n_prompts; k++)
        if (plan->prompt[k] < plan->n_kept) plan_serve_running(plan, plan->prompt[k], 0);
}

/* Sequences that decode are first. */
static void plan_serve_all_running(struct plan *plan) {
    plan->row_limit = plan->view.max_rows;
    plan_begin_turns(plan);
    for (int i = 0; i < plan->n_kept; i++)
        if (sequence_decodes(plan->item[i].sequence)) plan_serve_running(plan, i, 0);
    plan_serve_searches_as_one(plan);
    plan_limit_prefills(plan);
    plan_serve_prompts(plan);
}

/* ---- the step ------------------------------------------------------------------------------- */

/* If nothing can be computed because the first search waits for beams that are not running, while
 * later sequences hold the blocks, preempts these until a beam is admitted. */
static void plan_make_room_for_rest(struct plan *plan) {
    while (plan->rows == 0 && plan->n_kept > 0) {
        const struct sequence *first = plan->item[0].sequence;
        const struct sequence *last = plan->item[plan->n_kept - 1].sequence;
        if (first == last || sequence_searches_with(first, last)) return;
        if (plan_blocks_of_rest(plan, first->request, KV_BLOCKS) == 0) return;
        plan_preempt_last(plan);
        plan_promise_running(plan);
        plan_admit_rest(plan);
    }
}

static void plan_list_running(struct plan *plan) {
    plan->n_items = 0;
    list_each(node, plan->view.running) {
        assert(plan->n_items < plan->max_items);
        plan->item[plan->n_items++] = (struct plan_item){.sequence = sequence_of(node)};
    }
    plan->n_running = plan->n_kept = plan->n_items;
}

static bool plan_will_decode(const struct sequence *sequence) {
    return !sequence_decodes(sequence) && !generation_reads(sequence->request->generation);
}

/* Returns the number of sequences that will decode and do not yet: the running ones, and the
 * waiting ones for which the batch has places. */
static int plan_count_prompts(const struct plan *plan) {
    int n = 0, places = plan->view.max_seqs - plan->n_running;
    for (int i = 0; i < plan->n_running; i++) n += plan_will_decode(plan->item[i].sequence);
    list_each(node, plan->view.waiting) {
        if (places-- <= 0) break;
        n += plan_will_decode(sequence_of(node));
    }
    return n;
}

static void plan_check(const struct plan *plan) {
    const struct plan_view *view = &plan->view;
    assert(plan->row_limit <= view->max_rows);
    assert(plan->rows <= view->max_rows && plan->logit_rows <= view->max_logit_rows);
    assert(plan->n_items <= view->max_seqs);
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++) assert(plan->ledger[kind].available >= 0);
}

void plan_make(struct plan *plan, const struct plan_view *view) {
    assert(view->mixed_rows >= 1 && view->shares->n == plan->n_shares);
    plan->view = *view;
    plan->short_of_blocks = plan->loads = false;
    plan_count_begin(plan);
    plan_list_running(plan);
    plan->prompts = plan_count_prompts(plan);
    plan_serve_all_running(plan);
    plan_admit_waiting(plan);
    plan_return_rows(plan);
    plan_make_room_for_rest(plan);
    plan_drafts(plan);
    plan_check(plan);
}
