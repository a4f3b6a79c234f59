#include "scheduler/plan.h"

#include <stdlib.h>

void plan_init(struct plan *plan, int max_seqs, int n_blocks) {
    *plan = (struct plan){.max_items = max_seqs, .n_blocks = n_blocks};
    plan->item = mem_calloc((size_t)max_seqs, sizeof *plan->item);
    plan->change = mem_calloc((size_t)n_blocks, sizeof *plan->change);
    plan->stamp = mem_calloc((size_t)n_blocks, sizeof *plan->stamp);
    plan->hit = mem_calloc((size_t)n_blocks, sizeof *plan->hit);
}

void plan_free(struct plan *plan) {
    free(plan->item);
    free(plan->change);
    free(plan->stamp);
    free(plan->hit);
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

static int larger(int a, int b) {
    return a > b ? a : b;
}

/* ---- counting references without touching them ---------------------------------------------- */

static int references(const struct plan *plan, const struct plan_view *view, int32_t block) {
    int change = plan->stamp[block] == plan->epoch ? plan->change[block] : 0;
    return block_pool_references(view->pool, block) + change;
}

/* Counts a reference more or less, and with the first or last one, the block as taken or
 * available. */
static void count_reference(struct plan *plan, const struct plan_view *view, int32_t block,
                            int by) {
    int before = references(plan, view, block);
    if (plan->stamp[block] != plan->epoch) plan->change[block] = 0;
    plan->stamp[block] = plan->epoch;
    plan->change[block] += by;
    assert(before + by >= 0);
    plan->available += (before + by == 0) - (before == 0);
}

/* ---- one sequence's rows -------------------------------------------------------------------- */

static int32_t *partial_block(const struct block_pool *pool, const struct sequence *sequence) {
    int i = sequence->n_computed / pool->block_size;
    return i < sequence->n_blocks ? &sequence->table[i] : NULL;
}

bool plan_must_copy(const struct block_pool *pool, const struct sequence *sequence) {
    const int32_t *partial = partial_block(pool, sequence);
    return partial && block_pool_references(pool, *partial) > 1;
}

/* The most rows from position `from` that the step's limits allow. */
static int rows_allowed(const struct plan *plan, const struct plan_view *view,
                        const struct sequence *sequence, int from) {
    int wanted = sequence_n_due(sequence) - from;
    int logit_rows = view->max_logit_rows - plan->logit_rows;
    int rows = smaller(wanted, plan->row_limit - plan->rows);
    if (sequence_scoring(sequence))
        rows = smaller(rows, larger(sequence->n_scored - from, 0) + logit_rows);
    if (rows < wanted) return rows;
    bool fits = sequence_logit_rows(sequence, from, rows) <= logit_rows &&
                plan->samples + sequence->request->n_unforked <= MAX_EXTRA_SAMPLES;
    return fits ? rows : rows - 1;
}

/* The most rows for which a running sequence has blocks or could take them. */
static int rows_with_blocks(const struct plan *plan, const struct plan_view *view,
                            const struct sequence *sequence, bool copy) {
    if (plan->available < copy) return 0;
    int blocks = sequence->n_blocks + plan->available - copy;
    int most = view->pool->n_blocks; /* more would be another's */
    return smaller(blocks, most) * view->pool->block_size - sequence->n_computed;
}

/* Writes an item down and counts what it takes. */
static void count_rows(struct plan *plan, const struct plan_view *view, struct plan_item *item,
                       int from, int held, int rows) {
    item->rows = rows;
    item->logit_rows = sequence_logit_rows(item->sequence, from, rows);
    if (from + rows == sequence_n_due(item->sequence))
        item->samples = item->sequence->request->n_unforked;
    item->blocks = block_pool_blocks_for(view->pool, from + rows) - held + item->copy;
    assert(item->blocks >= 0 && item->blocks <= plan->available);
    plan->rows += rows;
    plan->logit_rows += item->logit_rows;
    plan->samples += item->samples;
    plan->available -= item->blocks;
    if (item->copy) count_reference(plan, view, *partial_block(view->pool, item->sequence), -1);
}

static void uncount_rows(struct plan *plan, const struct plan_view *view, struct plan_item *item) {
    if (item->copy) count_reference(plan, view, *partial_block(view->pool, item->sequence), +1);
    plan->rows -= item->rows;
    plan->logit_rows -= item->logit_rows;
    plan->samples -= item->samples;
    plan->available += item->blocks;
    *item = (struct plan_item){.sequence = item->sequence};
}

static void preempt_last(struct plan *plan, const struct plan_view *view) {
    struct plan_item *item = &plan->item[--plan->n_kept];
    uncount_rows(plan, view, item);
    for (int i = 0; i < item->sequence->n_blocks; i++)
        count_reference(plan, view, item->sequence->table[i], -1);
}

/* Gives a running sequence its rows, and preempts from the end of the order while it has room for
 * none. */
static void serve_running(struct plan *plan, const struct plan_view *view, int i) {
    struct plan_item *item = &plan->item[i];
    const struct sequence *sequence = item->sequence;
    int allowed = rows_allowed(plan, view, sequence, sequence->n_computed);
    if (allowed <= 0) return;
    for (;;) {
        const int32_t *partial = partial_block(view->pool, sequence);
        item->copy = partial && references(plan, view, *partial) > 1;
        int rows = smaller(allowed, rows_with_blocks(plan, view, sequence, item->copy));
        if (rows > 0) {
            count_rows(plan, view, item, sequence->n_computed, sequence->n_blocks, rows);
            return;
        }
        if (plan->n_kept - 1 <= i) break;
        preempt_last(plan, view);
    }
    item->copy = false;
    plan->short_of_blocks = true;
}

/* ---- the step ------------------------------------------------------------------------------- */

static void collect_running(struct plan *plan, const struct plan_view *view) {
    plan->n_items = 0;
    queue_each(node, view->running) {
        assert(plan->n_items < plan->max_items);
        plan->item[plan->n_items++] = (struct plan_item){.sequence = sequence_of(node)};
    }
    plan->n_running = plan->n_kept = plan->n_items;
}

static bool decodes(const struct sequence *sequence) {
    return sequence_n_due(sequence) - sequence->n_computed == 1;
}

/* Products go through a step's rows in tiles of so many; those of an unfinished one are nearly
 * free. */
enum { TILE = 16 };

/* Rows of the step when so many of them decode. */
static int mixed_limit(const struct plan_view *view, int decoding) {
    if (decoding == 0 || view->mixed_rows >= view->max_rows - decoding) return view->max_rows;
    int rows = (decoding + view->mixed_rows + TILE - 1) / TILE * TILE;
    return smaller(rows, view->max_rows);
}

static void serve_all_running(struct plan *plan, const struct plan_view *view) {
    plan->row_limit = view->max_rows;
    for (int i = 0; i < plan->n_kept; i++)
        if (decodes(plan->item[i].sequence)) serve_running(plan, view, i);
    plan->row_limit = mixed_limit(view, plan->rows);
    for (int i = 0; i < plan->n_kept; i++)
        if (!decodes(plan->item[i].sequence)) serve_running(plan, view, i);
}

/* Blocks for what a sequence is due and `ahead` tokens more, as far as it can ever go. */
static int blocks_ahead(const struct plan_view *view, const struct sequence *sequence, int ahead) {
    int slots = smaller(sequence_n_due(sequence) + ahead, sequence->request->max_slots);
    return block_pool_blocks_for(view->pool, slots);
}

static int promised_blocks(const struct plan *plan, const struct plan_view *view) {
    int promised = 0;
    for (int i = 0; i < plan->n_kept; i++) {
        const struct plan_item *item = &plan->item[i];
        int held = item->sequence->n_blocks + item->blocks - item->copy;
        promised += larger(blocks_ahead(view, item->sequence, view->pool->block_size) - held, 0);
    }
    return promised;
}

/* The blocks that the prefix cache has of a waiting sequence. At least its last token is left to
 * compute, because its logits are wanted; and while prompt logprobs are, so are all rows that have
 * not been computed. */
static int find_hits(const struct plan *plan, const struct plan_view *view,
                     const struct sequence *sequence) {
    if (!view->pool->caching) return 0;
    int most = sequence_scoring(sequence) ? sequence->n_computed : sequence->n_tokens - 1;
    int n = most / view->pool->block_size;
    if (n == 0) return 0; /* a sequence so short may have no hash */
    return prefix_cache_match(&view->pool->known, sequence_key(sequence, 0, 0), sequence->hashes, n,
                              plan->hit);
}

/* The blocks behind its hits that were kept of a waiting sequence that has none of its own. A few
 * tokens are computed sooner than they come. */
static int find_cold(const struct plan *plan, const struct plan_view *view,
                     const struct sequence *sequence, int hits) {
    if (!view->cold || sequence->n_slots > 0 || sequence_scoring(sequence)) return 0;
    int32_t before = hits > 0 ? plan->hit[hits - 1] : -1;
    int size = view->pool->block_size, n = (sequence->n_tokens - 1) / size - hits;
    uint64_t parent = prefix_cache_id(&view->pool->known, before);
    int cold = cold_match(view->cold, sequence, hits, n, parent);
    return cold * size < view->swap_from ? 0 : cold;
}

/* Hits that no one holds: sharing them takes them from what is available. */
static int count_unheld(const struct plan *plan, const struct plan_view *view, int hits) {
    int n = 0;
    for (int i = 0; i < hits; i++) n += references(plan, view, plan->hit[i]) == 0;
    return n;
}

/* Is the block after the hits being computed by one that runs, in a step in flight or one to come?
 * Hashes are enough to ask: if they deceive, the sequence has waited for nothing, until that block
 * is done. */
static bool comes_soon(const struct plan *plan, const struct plan_view *view,
                       const struct sequence *sequence, int hits) {
    int size = view->pool->block_size;
    if (!view->pool->caching || sequence_scoring(sequence)) return false;
    if (hits >= (sequence->n_tokens - 1) / size) return false;
    struct block_hash hash = sequence->hashes[hits];
    for (int i = 0; i < plan->n_items; i++) {
        const struct sequence *other = plan->item[i].sequence;
        if (other->n_tokens / size <= hits || other->n_settled / size > hits) continue;
        if (other->hashes[hits].low == hash.low && other->hashes[hits].high == hash.high)
            return true;
    }
    return false;
}

enum admission { ADMITTED, HELD_BACK, NO_ROOM };

static enum admission admit(struct plan *plan, const struct plan_view *view,
                            struct sequence *sequence) {
    assert(sequence->n_coming == 0 && sequence->n_settled == sequence->n_computed);
    struct plan_item item = {.sequence = sequence, .hits = find_hits(plan, view, sequence)};
    item.cold = find_cold(plan, view, sequence, item.hits);
    int size = view->pool->block_size, cached = item.hits * size;
    int from = larger(cached + item.cold * size, sequence->n_computed);
    int rows = rows_allowed(plan, view, sequence, from);
    int blocks = blocks_ahead(view, sequence, 1) - item.hits;
    item.arrives = from > cached;
    if (!item.arrives && comes_soon(plan, view, sequence, item.hits)) return HELD_BACK;
    if (rows <= 0 || (item.arrives && plan->arrives)) return NO_ROOM;
    if (item.arrives && plan->rows > 0) rows = 0;
    if (count_unheld(plan, view, item.hits) + blocks > plan->available - plan->promised)
        return NO_ROOM;
    for (int i = 0; i < item.hits; i++) count_reference(plan, view, plan->hit[i], +1);
    count_rows(plan, view, &item, from, item.hits, rows);
    plan->promised += blocks_ahead(view, sequence, size) - item.hits - item.blocks;
    plan->arrives |= item.arrives;
    plan->item[plan->n_items++] = item;
    return ADMITTED;
}

static void admit_waiting(struct plan *plan, const struct plan_view *view) {
    if (view->waiting->n == 0 || plan->n_kept < plan->n_running || plan->short_of_blocks) return;
    plan->promised = promised_blocks(plan, view);
    int n_held_back = 0;
    queue_each(node, view->waiting) {
        if (plan->n_items == view->max_seqs || plan->rows == plan->row_limit) return;
        enum admission admission = admit(plan, view, sequence_of(node));
        if (admission == NO_ROOM) return;
        if (admission == HELD_BACK && ++n_held_back == MAX_HELD_BACK) return;
    }
}

void plan_make(struct plan *plan, const struct plan_view *view) {
    assert(view->mixed_rows >= 1);
    plan->now_ns = view->now_ns;
    plan->rows = plan->logit_rows = plan->samples = 0;
    plan->short_of_blocks = plan->arrives = false;
    plan->available = block_pool_available(view->pool);
    plan->epoch++;
    collect_running(plan, view);
    serve_all_running(plan, view);
    admit_waiting(plan, view);
    assert(plan->row_limit <= view->max_rows);
    assert(plan->rows <= plan->row_limit && plan->logit_rows <= view->max_logit_rows);
    assert(plan->available >= 0 && plan->n_items <= view->max_seqs);
}
