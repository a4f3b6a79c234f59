/* apply: does what a plan says. Preempted blocks come back first, then hits are shared and blocks
 * of a swapped sequence taken, then all others: in this order the pool has what the plan counted,
 * and no block that a sequence is to share is taken from under it. What the pool forgot over that
 * is copied to the host before the step writes to it. */
#include "scheduler/internal.h"

void sequence_stop_running(struct scheduler *s, struct sequence *sequence) {
    assert(sequence->state == SEQUENCE_RUNNING);
    while (sequence->n_blocks > 0)
        block_pool_release(&s->pool, sequence->table[--sequence->n_blocks]);
    batch_leave(&s->batch, sequence);
    queue_remove(&s->running, &sequence->node);
    sequence->n_computed = sequence->n_settled = sequence->rows = 0;
}

static void preempt(struct scheduler *s, struct sequence *sequence) {
    int n_computed = sequence->n_computed, n_settled = sequence->n_settled;
    bool swapped = swap_sequence_out(s, sequence);
    sequence_stop_running(s, sequence);
    sequence->state = swapped ? SEQUENCE_SWAPPED : SEQUENCE_WAITING;
    if (swapped) {
        sequence->n_computed = n_computed;
        sequence->n_settled = n_settled;
    }
    sequence_enqueue_early(&s->waiting, sequence);
    s->stats.preemptions++;
}

static void note_first_time(struct scheduler *s, struct sequence *sequence, int hits) {
    struct request *request = sequence->request;
    if (!request->queued) return;
    sequence->first_scheduled_ns = s->plan.now_ns;
    sequence->n_cached = hits * s->pool.block_size;
    if (s->pool.caching && !request->prompt_scored) {
        s->stats.prefix_queries += (uint64_t)request->n_prompt;
        s->stats.prefix_hits += (uint64_t)sequence->n_cached;
    }
    request_unqueue(s, request);
}

/* Shares the blocks that the plan found: the same look-up, for nothing was forgotten in between. */
static void share_hits(struct scheduler *s, struct sequence *sequence, int hits) {
    int found = prefix_cache_match(&s->pool.known, sequence_key(sequence, 0, 0), sequence->hashes,
                                   hits, sequence->table);
    assert(found == hits);
    for (int i = 0; i < found; i++) block_pool_share(&s->pool, sequence->table[i]);
    sequence->n_blocks = found;
    if (found * s->pool.block_size > sequence->n_computed) /* a swapped one has more */
        sequence->n_computed = sequence->n_settled = found * s->pool.block_size;
}

static void start_running(struct scheduler *s, const struct plan_item *item) {
    struct sequence *sequence = item->sequence;
    assert(sequence->state == SEQUENCE_WAITING || sequence->state == SEQUENCE_SWAPPED);
    assert(sequence->n_blocks == 0);
    queue_remove(&s->waiting, &sequence->node);
    sequence->state = SEQUENCE_RUNNING;
    sequence_enqueue(&s->running, sequence);
    batch_seat(&s->batch, sequence);
    if (item->hits > 0) share_hits(s, sequence, item->hits);
    if (item->cold > 0) cold_take(s, sequence, item->cold);
    note_first_time(s, sequence, item->hits + item->cold);
}

/* Blocks of a swapped sequence come back, or those that were kept, behind what the prefix cache has
 * had. */
static void bring_back(struct scheduler *s, const struct plan_item *item) {
    if (item->sequence->n_slots == 0 && item->cold == 0) return;
    if (item->cold > 0)
        cold_bring(s, item->sequence);
    else
        swap_sequence_in(s, item->sequence);
    assert(s->swap.arriving || !item->arrives);
    if (item->arrives && item->rows > 0) swap_arrive(s); /* it computes at once */
}

/* Replaces a shared partial block by a copy. When those who shared it were preempted by this very
 * plan, the block is the sequence's own by now; the plan counted their block as available, so the
 * count comes out the same. */
static void copy_partial(struct scheduler *s, struct sequence *sequence) {
    if (!plan_must_copy(&s->pool, sequence)) return;
    int32_t *place = &sequence->table[sequence->n_computed / s->pool.block_size];
    int32_t shared = *place;
    *place = block_pool_take(&s->pool);
    batch_copy(&s->batch, shared, *place);
    block_pool_release(&s->pool, shared);
}

static void take_blocks(struct scheduler *s, const struct plan_item *item) {
    struct sequence *sequence = item->sequence;
    sequence->rows = item->rows;
    if (item->rows == 0) return;
    if (item->copy) copy_partial(s, sequence);
    int blocks = block_pool_blocks_for(&s->pool, sequence->n_computed + item->rows);
    while (sequence->n_blocks < blocks)
        sequence->table[sequence->n_blocks++] = block_pool_take(&s->pool);
    assert(!plan_must_copy(&s->pool, sequence));
}

void plan_apply(struct scheduler *s) {
    const struct plan *plan = &s->plan;
    s->batch.step.n_copies = 0;
    swap_arrive(s);
    for (int i = plan->n_running - 1; i >= plan->n_kept; i--) preempt(s, plan->item[i].sequence);
    for (int i = plan->n_running; i < plan->n_items; i++) start_running(s, &plan->item[i]);
    for (int i = plan->n_running; i < plan->n_items; i++) bring_back(s, &plan->item[i]);
    for (int i = 0; i < plan->n_items; i++)
        if (i < plan->n_kept || i >= plan->n_running) take_blocks(s, &plan->item[i]);
    if (s->swap.cold.n_forgotten > 0) cold_keep(s);
    assert(block_pool_available(&s->pool) == plan->available);
}
