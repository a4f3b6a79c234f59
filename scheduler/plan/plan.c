#include "scheduler/plan/plan.h"

#include <stdlib.h>

void plan_init(struct plan *plan, int max_seqs, int n_blocks) {
    *plan = (struct plan){.max_items = max_seqs, .n_blocks = n_blocks};
    plan->item = mem_calloc((size_t)max_seqs, sizeof *plan->item);
    plan->change = mem_calloc((size_t)n_blocks, sizeof *plan->change);
    plan->watch_change = mem_calloc((size_t)n_blocks, sizeof *plan->watch_change);
    plan->stamp = mem_calloc((size_t)n_blocks, sizeof *plan->stamp);
    plan->hit = mem_calloc((size_t)n_blocks, sizeof *plan->hit);
}

void plan_free(struct plan *plan) {
    mem_free(plan->item);
    mem_free(plan->change);
    mem_free(plan->watch_change);
    mem_free(plan->stamp);
    mem_free(plan->hit);
}

/* ---- counting references without touching them ---------------------------------------------- */

static int references(const struct plan *plan, const struct plan_view *view, int32_t block) {
    int change = plan->stamp[block] == plan->epoch ? plan->change[block] : 0;
    return block_pool_references(view->pool, block) + change;
}

static int watchers(const struct plan *plan, const struct plan_view *view, int32_t block) {
    int change = plan->stamp[block] == plan->epoch ? plan->watch_change[block] : 0;
    return view->pool->windows.watchers[block] + change;
}

/* The changes of a block start at zero in each plan. */
static void begin_changes(struct plan *plan, int32_t block) {
    if (plan->stamp[block] != plan->epoch) plan->change[block] = plan->watch_change[block] = 0;
    plan->stamp[block] = plan->epoch;
}

/* Adds `by` to the references of a block. The first reference makes the block unavailable; without
 * references it is available again. */
static void count_reference(struct plan *plan, const struct plan_view *view, int32_t block,
                            int by) {
    int before = references(plan, view, block);
    begin_changes(plan, block);
    plan->change[block] += by;
    assert(before + by >= 0);
    plan->available += (before + by == 0) - (before == 0);
}

/* Does the same for the watchers of a block, and its window block. */
static void count_watcher(struct plan *plan, const struct plan_view *view, int32_t block, int by) {
    if (view->pool->windows.n == 0) return;
    int before = watchers(plan, view, block);
    begin_changes(plan, block);
    plan->watch_change[block] += by;
    assert(before + by >= 0);
    plan->windows += (before + by == 0) - (before == 0);
}

/* Does both, for a block that its holder sees. */
static void count_seen(struct plan *plan, const struct plan_view *view, int32_t block, int by) {
    count_reference(plan, view, block, by);
    count_watcher(plan, view, block, by);
}

/* ---- one sequence's rows -------------------------------------------------------------------- */

static bool decodes(const struct sequence *sequence) {
    return sequence_n_schedulable(sequence) - sequence->n_computed == 1;
}

static int32_t *partial_block(const struct block_pool *pool, const struct sequence *sequence) {
    int i = sequence->n_computed / pool->block_size;
    return i < sequence->kv.n_blocks ? &sequence->kv.table[i] : NULL;
}

bool plan_must_copy(const struct block_pool *pool, const struct sequence *sequence) {
    const int32_t *partial = partial_block(pool, sequence);
    return partial && block_pool_references(pool, *partial) > 1;
}

/* Does the ITL target limit this step? */
static bool is_timed(const struct plan *plan, const struct plan_view *view) {
    return view->itl_target_ns > 0 && plan->shape.decode_rows > 0 && view->cost->prefill.known;
}

/* Returns the rows of a prompt from position `from` for which a timed step has time, up to the end
 * of a tile. Rows that fill up a tile are nearly free. A step without prompt rows gets these even
 * if it exceeds the target. */
static int rows_in_time(const struct plan *plan, const struct plan_view *view, int from) {
    int tile = view->row_quantum, last_tile = tile - plan->rows % tile;
    int rows = step_cost_rows_in(view->cost, &plan->shape, from, view->itl_target_ns);
    rows = min_int(rows, view->max_rows);
    if (rows > last_tile) return (plan->rows + rows) / tile * tile - plan->rows;
    return last_tile < tile || plan->shape.prefill_rows == 0 ? last_tile : 0;
}

/* Returns the maximum number of rows from position `from` within the limits of the step. */
static int rows_allowed(const struct plan *plan, const struct plan_view *view,
                        const struct sequence *sequence, int from) {
    int wanted = sequence_n_schedulable(sequence) - from;
    int logit_rows = view->max_logit_rows - plan->logit_rows;
    int rows = min_int(wanted, plan->row_limit - plan->rows);
    if (is_timed(plan, view) && !decodes(sequence))
        rows = min_int(rows, rows_in_time(plan, view, from));
    if (sequence_scoring(sequence))
        rows = min_int(rows, max_int(sequence->n_scored - from, 0) + logit_rows);
    if (rows < wanted) return rows;
    bool fits = sequence_logit_rows(sequence, from, rows) <= logit_rows &&
                plan->samples + sequence_extra_samples(sequence) <= MAX_EXTRA_SAMPLES;
    return fits ? rows : rows - 1;
}

/* Returns the maximum number of rows for which a running sequence has or can acquire blocks. */
static int rows_with_blocks(const struct plan *plan, const struct plan_view *view,
                            const struct sequence *sequence, bool copy) {
    int available = min_int(plan->available, plan->windows);
    if (available < copy) return 0;
    int blocks = sequence->kv.n_blocks + available - copy;
    return min_int(blocks, view->pool->n_blocks) * view->pool->block_size - sequence->n_computed;
}

/* Adds rows of a sequence from position `from` on to the shape of the step. If rows is negative,
 * removes them. */
static void count_in_shape(struct plan *plan, const struct sequence *sequence, int from, int rows) {
    struct step_shape *shape = &plan->shape;
    if (decodes(sequence)) {
        shape->decode_rows += rows;
    } else {
        shape->prefill_rows += rows;
        shape->pairs += rows * (from + abs(rows) / 2.0);
    }
    assert(shape->decode_rows >= 0 && shape->prefill_rows >= 0);
}

/* Sets the rows of an item, and counts its rows and blocks. */
static void count_rows(struct plan *plan, const struct plan_view *view, struct plan_item *item,
                       int from, int held, int rows) {
    item->rows = rows;
    item->logit_rows = sequence_logit_rows(item->sequence, from, rows);
    if (from + rows == sequence_n_schedulable(item->sequence))
        item->samples = sequence_extra_samples(item->sequence);
    int blocks = block_pool_blocks_for(view->pool, from + rows);
    item->blocks = blocks - held + item->copy;
    held = max_int(held, window_pool_first_seen(&view->pool->windows, from));
    item->windows = max_int(blocks - held, 0) + item->copy;
    assert(item->blocks >= 0 && item->blocks <= plan->available && item->windows <= plan->windows);
    plan->rows += rows;
    plan->logit_rows += item->logit_rows;
    plan->samples += item->samples;
    plan->available -= item->blocks;
    plan->windows -= item->windows;
    count_in_shape(plan, item->sequence, from, rows);
    if (item->copy) count_seen(plan, view, *partial_block(view->pool, item->sequence), -1);
}

/* Removes the rows of a running sequence: it skips the step. */
static void take_back_rows(struct plan *plan, const struct plan_view *view,
                           struct plan_item *item) {
    if (item->copy) count_seen(plan, view, *partial_block(view->pool, item->sequence), +1);
    plan->rows -= item->rows;
    plan->logit_rows -= item->logit_rows;
    plan->samples -= item->samples;
    plan->available += item->blocks;
    plan->windows += item->windows;
    count_in_shape(plan, item->sequence, item->sequence->n_computed, -item->rows);
    *item = (struct plan_item){.sequence = item->sequence};
}

/* Are two sequences beams of one search? */
static bool search_together(const struct sequence *a, const struct sequence *b) {
    return a->request == b->request && a->request->beams;
}

/* Removes the rows of the last running sequence, and counts its blocks as released. If it is a
 * beam, does so for all beams of its search. */
static void preempt_last(struct plan *plan, const struct plan_view *view) {
    const struct sequence *last = plan->item[plan->n_kept - 1].sequence, *next;
    do {
        struct plan_item *item = &plan->item[--plan->n_kept];
        take_back_rows(plan, view, item);
        for (int i = 0; i < item->sequence->kv.n_blocks; i++)
            count_reference(plan, view, item->sequence->kv.table[i], -1);
        for (int i = item->sequence->kv.first_seen; i < item->sequence->kv.n_blocks; i++)
            count_watcher(plan, view, item->sequence->kv.table[i], -1);
        next = plan->n_kept > 0 ? plan->item[plan->n_kept - 1].sequence : NULL;
    } while (next && search_together(last, next));
}

/* Assigns rows to a running sequence. Preempts the last in the order while it has room for none. */
static void serve_running(struct plan *plan, const struct plan_view *view, int i) {
    struct plan_item *item = &plan->item[i];
    const struct sequence *sequence = item->sequence;
    int allowed = rows_allowed(plan, view, sequence, sequence->n_computed);
    if (allowed <= 0) return;
    for (;;) {
        const int32_t *partial = partial_block(view->pool, sequence);
        item->copy = partial && references(plan, view, *partial) > 1;
        int rows = min_int(allowed, rows_with_blocks(plan, view, sequence, item->copy));
        if (rows > 0) {
            count_rows(plan, view, item, sequence->n_computed, sequence->kv.n_blocks, rows);
            return;
        }
        const struct sequence *last = plan->item[plan->n_kept - 1].sequence;
        if (plan->n_kept - 1 <= i || search_together(sequence, last)) break;
        preempt_last(plan, view);
    }
    item->copy = false;
    plan->short_of_blocks = true;
}

/* If a beam that decodes has no row, the other beams of its search skip the step, too. */
static void serve_searches_as_one(struct plan *plan, const struct plan_view *view) {
    for (int first = 0, end; first < plan->n_kept; first = end) {
        const struct sequence *sequence = plan->item[first].sequence;
        bool all = true;
        for (end = first; end < plan->n_kept; end++) {
            const struct plan_item *item = &plan->item[end];
            if (end > first && !search_together(sequence, item->sequence)) break;
            all = all && (item->rows > 0 || !decodes(item->sequence));
        }
        for (int i = first; i < end && !all; i++) take_back_rows(plan, view, &plan->item[i]);
    }
}

/* ---- the step ------------------------------------------------------------------------------- */

/* Sequences that decode are first. If there are any, the step adds only about mixed_rows rows of
 * prefills, or as many as it has time for. Products compute rows in tiles, so rows that fill the
 * last tile are nearly free. */
static void serve_all_running(struct plan *plan, const struct plan_view *view) {
    plan->row_limit = view->max_rows;
    for (int i = 0; i < plan->n_kept; i++)
        if (decodes(plan->item[i].sequence)) serve_running(plan, view, i);
    serve_searches_as_one(plan, view);
    int decoding = plan->rows, tile = view->row_quantum;
    if (decoding > 0 && !is_timed(plan, view) && view->mixed_rows < view->max_rows - decoding) {
        int rows = (decoding + view->mixed_rows + tile - 1) / tile * tile;
        plan->row_limit = min_int(rows, view->max_rows);
    }
    for (int i = 0; i < plan->n_kept; i++)
        if (!decodes(plan->item[i].sequence)) serve_running(plan, view, i);
}

/* The blocks that are counted for the admission of a sequence: all its blocks, or those that one
 * row sees, which need window blocks. */
enum counted { BLOCKS, WINDOWS };

/* Returns the blocks for the due tokens and `ahead` more, within the maximum length. */
static int blocks_ahead(const struct plan_view *view, const struct sequence *sequence, int ahead,
                        enum counted counted) {
    int slots = min_int(sequence_n_schedulable(sequence) + ahead, sequence->request->max_slots);
    int blocks = block_pool_blocks_for(view->pool, slots);
    return counted == WINDOWS ? min_int(blocks, view->pool->windows.most) : blocks;
}

/* Returns the blocks that waiting beams of a search may need while others of it run. */
static int blocks_of_rest(const struct plan_view *view, const struct request *request,
                          enum counted counted) {
    int blocks = 0;
    for (int i = 0; request->beams && i < request->n; i++) {
        const struct sequence *beam = &request->sequence[i];
        if (beam->state == SEQUENCE_WAITING || beam->state == SEQUENCE_SWAPPED)
            blocks += blocks_ahead(view, beam, view->pool->block_size, counted);
    }
    return blocks;
}

static int promised_blocks(const struct plan *plan, const struct plan_view *view,
                           enum counted counted) {
    int promised = 0;
    const struct request *before = NULL;
    for (int i = 0; i < plan->n_kept; i++) {
        const struct request *request = plan->item[i].sequence->request;
        if (request != before) promised += blocks_of_rest(view, request, counted);
        before = request;
        const struct plan_item *item = &plan->item[i];
        int held = item->sequence->kv.n_blocks + item->blocks - item->copy;
        if (counted == WINDOWS) held -= item->sequence->kv.first_seen;
        int ahead = blocks_ahead(view, item->sequence, view->pool->block_size, counted);
        promised += max_int(ahead - held, 0);
    }
    return promised;
}

/* Returns the number of usable blocks of a waiting sequence in the prefix cache; *known is the
 * number of known ones. The last token must be computed, for its logits. While prompt logprobs are
 * needed, so must all that is not computed yet. */
static int find_hits(const struct plan *plan, const struct plan_view *view,
                     const struct sequence *sequence, int *known) {
    *known = 0;
    if (!view->pool->caching) return 0;
    int most = sequence_scoring(sequence) ? sequence->n_computed : sequence->n_tokens - 1;
    int n = most / view->pool->block_size;
    if (n == 0) return 0; /* so short a sequence may lack hashes */
    n = prefix_cache_match(&view->pool->known, sequence_key(sequence, 0, 0), sequence->kv.hashes, n,
                           plan->hit);
    *known = n;
    int own = sequence->n_computed / view->pool->block_size; /* of a swapped sequence */
    return window_pool_usable(&view->pool->windows, plan->hit, n, own);
}

/* Returns how many blocks after its hits the host cache has for a waiting sequence without host
 * blocks. A few tokens are recomputed faster than they are loaded. */
static int find_host_hits(const struct plan *plan, const struct plan_view *view,
                          const struct sequence *sequence, int hits) {
    int size = view->pool->block_size, n = (sequence->n_tokens - 1) / size - hits;
    if (!view->host_cache || sequence->kv.n_host_blocks > 0 || n <= 0) return 0;
    if (sequence_scoring(sequence)) return 0;
    uint64_t parent = prefix_cache_id(&view->pool->known, hits > 0 ? plan->hit[hits - 1] : -1);
    struct block_key key = sequence_key(sequence, hits, parent);
    int found = host_cache_match(view->host_cache, &key, sequence->kv.hashes + hits, n, hits);
    return found * size < view->swap_from ? 0 : found;
}

/* Is a running sequence computing the block after the hits, in a step in flight or later? After a
 * collision of hashes the sequence waits in vain until that block is computed. */
static bool being_computed(const struct plan *plan, const struct plan_view *view,
                           const struct sequence *sequence, int hits) {
    int size = view->pool->block_size;
    if (!view->pool->caching || sequence_scoring(sequence)) return false;
    if (hits >= (sequence->n_tokens - 1) / size) return false;
    struct block_hash hash = sequence->kv.hashes[hits];
    for (int i = 0; i < plan->n_items; i++) {
        const struct sequence *other = plan->item[i].sequence;
        if (other->n_tokens / size <= hits || other->n_committed / size > hits) continue;
        if (other->kv.hashes[hits].low == hash.low && other->kv.hashes[hits].high == hash.high)
            return true;
    }
    return false;
}

enum admission { ADMITTED, HELD_BACK, NO_ROOM };

static bool has_beam_in(const struct plan *plan, const struct sequence *sequence) {
    for (int i = 0; sequence->request->beams && i < plan->n_items; i++)
        if (search_together(plan->item[i].sequence, sequence)) return true;
    return false;
}

/* Returns the blocks for all known tokens of a waiting sequence; for the first beam of a search
 * that is admitted, those of all its beams. */
static int blocks_to_enter(const struct plan *plan, const struct plan_view *view,
                           const struct sequence *sequence, enum counted counted) {
    const struct request *request = sequence->request;
    int blocks = blocks_ahead(view, sequence, 1, counted);
    if (!request->beams || has_beam_in(plan, sequence)) return blocks;
    for (int i = 0; i < request->n; i++)
        if (&request->sequence[i] != sequence && request->sequence[i].state != SEQUENCE_SPARE)
            blocks += blocks_ahead(view, &request->sequence[i], 1, counted);
    return blocks;
}

/* Returns the window blocks, idle or new, that a waiting sequence acquires with its hits. */
static int windows_of_hits(const struct plan *plan, const struct plan_view *view, int first_seen,
                           int hits, bool *loads) {
    int taken = 0;
    for (int i = first_seen; i < hits && view->pool->windows.n > 0; i++) {
        taken += watchers(plan, view, plan->hit[i]) == 0;
        *loads |= !window_pool_has(&view->pool->windows, plan->hit[i]);
    }
    return taken;
}

/* Counts the blocks that are promised to an admitted sequence, and to the beams that follow it. */
static void promise(struct plan *plan, const struct plan_view *view, const struct plan_item *item,
                    int seen, bool with_beams) {
    const struct sequence *sequence = item->sequence;
    int size = view->pool->block_size, blocks = blocks_ahead(view, sequence, size, BLOCKS);
    int windows = blocks_ahead(view, sequence, size, WINDOWS);
    plan->promised += blocks - item->hits - item->blocks;
    plan->promised_windows += max_int(windows - seen - item->windows, 0);
    if (!with_beams) return;
    plan->promised += blocks_of_rest(view, sequence->request, BLOCKS) - blocks;
    plan->promised_windows += blocks_of_rest(view, sequence->request, WINDOWS) - windows;
}

/* Returns the number of rows for which window blocks are left. Blocks that are loaded after the
 * hits need some, too. */
static int rows_with_windows(const struct plan *plan, const struct plan_view *view, int from,
                             int hits) {
    int held = max_int(hits, window_pool_first_seen(&view->pool->windows, from));
    int left = min_int(plan->windows - plan->promised_windows, view->pool->n_blocks);
    return (held + left) * view->pool->block_size - from;
}

static enum admission admit(struct plan *plan, const struct plan_view *view,
                            struct sequence *sequence) {
    assert(sequence->n_pending == 0 && sequence->n_committed == sequence->n_computed);
    const struct request *request = sequence->request;
    int batch_rows = !request->beams ? 1 : has_beam_in(plan, sequence) ? 0 : request->n;
    if (batch_rows > view->max_seqs - plan->batch_rows) return NO_ROOM;
    int size = view->pool->block_size, known;
    struct plan_item item = {.sequence = sequence, .hits = find_hits(plan, view, sequence, &known)};
    if (known == item.hits) item.host_hits = find_host_hits(plan, view, sequence, item.hits);
    int from = max_int((item.hits + item.host_hits) * size, sequence->n_computed);
    int rows = rows_allowed(plan, view, sequence, from);
    int blocks = blocks_to_enter(plan, view, sequence, BLOCKS) - item.hits;
    int first_seen = min_int(window_pool_first_seen(&view->pool->windows, from), item.hits);
    item.loads = from > item.hits * size;
    int seen = item.hits - first_seen;
    int taken = windows_of_hits(plan, view, first_seen, item.hits, &item.loads);
    int windows = max_int(blocks_to_enter(plan, view, sequence, WINDOWS) - seen, 1) + taken;
    if (!item.loads && being_computed(plan, view, sequence, item.hits)) return HELD_BACK;
    if (rows <= 0 || (item.loads && plan->loads)) return NO_ROOM;
    if (item.loads && plan->rows > 0) rows = 0;
    /* a hit without references becomes unavailable when it is shared */
    for (int i = 0; i < item.hits; i++) blocks += references(plan, view, plan->hit[i]) == 0;
    if (blocks > plan->available - plan->promised) return NO_ROOM;
    if (windows > plan->windows - plan->promised_windows) return NO_ROOM;
    for (int i = 0; i < item.hits; i++) count_reference(plan, view, plan->hit[i], +1);
    for (int i = first_seen; i < item.hits; i++) count_watcher(plan, view, plan->hit[i], +1);
    rows = min_int(rows, rows_with_windows(plan, view, from, item.hits));
    count_rows(plan, view, &item, from, item.hits, rows);
    promise(plan, view, &item, seen, batch_rows > 1);
    plan->loads |= item.loads;
    plan->batch_rows += batch_rows;
    plan->item[plan->n_items++] = item;
    return ADMITTED;
}

/* Admits the other beams of running searches before all other waiting sequences: the running beams
 * keep their blocks while they wait for them. Returns false if one of them lacks room. */
static bool admit_rest(struct plan *plan, const struct plan_view *view) {
    int n_out = 0;
    list_each(node, view->waiting) {
        struct sequence *sequence = sequence_of(node);
        if (!has_beam_in(plan, sequence)) continue;
        int own = blocks_ahead(view, sequence, view->pool->block_size, BLOCKS);
        int windows = blocks_ahead(view, sequence, view->pool->block_size, WINDOWS);
        plan->promised -= own;
        plan->promised_windows -= windows;
        enum admission admission = admit(plan, view, sequence);
        if (admission != ADMITTED) plan->promised += own, plan->promised_windows += windows;
        n_out += admission == NO_ROOM;
    }
    return n_out == 0;
}

static void begin_admission(struct plan *plan, const struct plan_view *view) {
    plan->promised = promised_blocks(plan, view, BLOCKS);
    plan->promised_windows = promised_blocks(plan, view, WINDOWS);
    plan->batch_rows = batch_rows_claimed(view->running);
}

/* If nothing can be computed because the first search waits for beams that are not running, while
 * later sequences hold the blocks, preempts these until a beam is admitted. */
static void make_room_for_rest(struct plan *plan, const struct plan_view *view) {
    while (plan->rows == 0 && plan->n_kept > 0) {
        const struct sequence *first = plan->item[0].sequence;
        const struct sequence *last = plan->item[plan->n_kept - 1].sequence;
        if (first == last || search_together(first, last)) return;
        if (blocks_of_rest(view, first->request, BLOCKS) == 0) return;
        preempt_last(plan, view);
        begin_admission(plan, view);
        admit_rest(plan, view);
    }
}

static void admit_waiting(struct plan *plan, const struct plan_view *view) {
    if (view->waiting->n == 0 || plan->n_kept < plan->n_running || plan->short_of_blocks) return;
    begin_admission(plan, view);
    int n_held_back = 0;
    if (!admit_rest(plan, view)) return;
    list_each(node, view->waiting) {
        if (plan->rows == plan->row_limit) return;
        if (has_beam_in(plan, sequence_of(node))) continue;
        enum admission admission = admit(plan, view, sequence_of(node));
        if (admission == NO_ROOM) return;
        if (admission == HELD_BACK && ++n_held_back == MAX_HELD_BACK) return;
    }
}

void plan_make(struct plan *plan, const struct plan_view *view) {
    assert(view->mixed_rows >= 1);
    plan->now_ns = view->now_ns;
    plan->rows = plan->logit_rows = plan->samples = 0;
    plan->shape = (struct step_shape){0};
    plan->short_of_blocks = plan->loads = false;
    plan->available = block_pool_available(view->pool);
    plan->windows = window_pool_available(&view->pool->windows);
    plan->epoch++;
    plan->n_items = 0;
    list_each(node, view->running) {
        assert(plan->n_items < plan->max_items);
        plan->item[plan->n_items++] = (struct plan_item){.sequence = sequence_of(node)};
    }
    plan->n_running = plan->n_kept = plan->n_items;
    serve_all_running(plan, view);
    admit_waiting(plan, view);
    make_room_for_rest(plan, view);
    plan_drafts(plan, view);
    assert(plan->row_limit <= view->max_rows);
    assert(plan->rows <= view->max_rows && plan->logit_rows <= view->max_logit_rows);
    assert(plan->available >= 0 && plan->windows >= 0 && plan->n_items <= view->max_seqs);
}
