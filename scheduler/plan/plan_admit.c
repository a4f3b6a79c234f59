/* plan_admit: which waiting sequences a plan admits. A candidate is measured first, which changes
 * nothing, and then taken. */
#include <string.h>

#include "scheduler/plan/internal.h"

/* ---- known blocks --------------------------------------------------------------------------- */

/* Returns how many of n hits a sequence can start after: its next row finds its whole window, and
 * the state. It owns the content of the first `own` blocks. */
static int plan_usable(const struct plan *plan, int n, int own) {
    for (;;) {
        int usable = window_pool_usable(&plan->view.pool->windows, plan->hit, n, own);
        if (!plan->view.checkpoints) return usable;
        usable = checkpoints_usable(plan->view.checkpoints, plan->hit, usable);
        if (usable == n) return n;
        n = usable;
    }
}

/* Returns the number of usable blocks of a waiting sequence in the prefix cache, and writes them to
 * plan->hit; *known is the number of known ones. */
static int plan_find_hits(const struct plan *plan, const struct sequence *sequence, int *known) {
    const struct block_pool *pool = plan->view.pool;
    *known = 0;
    if (!pool->caching) return 0;
    int n = sequence_cacheable(sequence) / pool->block_size;
    if (n == 0) return 0; /* so short a sequence may lack hashes */
    n = prefix_cache_match(&pool->known, sequence_key(sequence, 0, 0), sequence->kv.hashes, n,
                           plan->hit);
    *known = n;
    int own = sequence->n_computed / pool->block_size; /* of a swapped sequence */
    return plan_usable(plan, n, own);
}

/* Returns how many blocks after its hits the host cache has for a waiting sequence without host
 * blocks. A few tokens are recomputed faster than they are loaded. */
static int plan_find_host_hits(const struct plan *plan, const struct sequence *sequence, int hits) {
    const struct plan_view *view = &plan->view;
    int size = view->pool->block_size, n = sequence_cacheable(sequence) / size - hits;
    if (!view->host_cache || sequence->kv.n_host_blocks > 0 || n <= 0) return 0;
    uint64_t parent = prefix_cache_id(&view->pool->known, hits > 0 ? plan->hit[hits - 1] : -1);
    struct block_key key = sequence_key(sequence, hits, parent);
    int found = host_cache_match(view->host_cache, &key, sequence->kv.hashes + hits, n, hits);
    return found * size < view->swap_from ? 0 : found;
}

static bool plan_same_until(const struct sequence *a, const struct sequence *b, int block) {
    struct block_hash x = a->kv.hashes[block], y = b->kv.hashes[block];
    return x.low == y.low && x.high == y.high;
}

/* Will a running sequence make a checkpoint after the hits, in the prefix of the waiting one? */
static bool plan_makes_checkpoint(const struct plan *plan, const struct sequence *sequence,
                                  int hits) {
    int size = plan->view.pool->block_size, cacheable = sequence_cacheable(sequence);
    for (int i = 0; i < plan->n_items; i++) {
        const struct sequence *other = plan->item[i].sequence;
        int from = max_int(hits * size, other->n_committed);
        int next = checkpoints_next(plan->view.checkpoints, from, other->request->n_prompt);
        if (next > cacheable || next > other->n_tokens) continue;
        if (plan_same_until(sequence, other, next / size - 1)) return true;
    }
    return false;
}

/* Is a running sequence computing the block after the hits, in a step in flight or later? After a
 * collision of hashes the sequence waits in vain until that block is computed. */
static bool plan_computes_next(const struct plan *plan, const struct sequence *sequence, int hits) {
    int size = plan->view.pool->block_size;
    if (!plan->view.pool->caching) return false;
    if (hits >= sequence_cacheable(sequence) / size) return false;
    if (plan->view.checkpoints) return plan_makes_checkpoint(plan, sequence, hits);
    for (int i = 0; i < plan->n_items; i++) {
        const struct sequence *other = plan->item[i].sequence;
        if (other->n_tokens / size <= hits || other->n_committed / size > hits) continue;
        if (plan_same_until(sequence, other, hits)) return true;
    }
    return false;
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* A waiting sequence, and the rows and blocks that its admission would take. */
struct demand {
    struct plan_item item;     /* without rows and blocks */
    int from, rows;            /* the rows that the step allows, from position `from` on */
    int batch_rows;            /* to claim */
    int first_seen;            /* first hit that it watches */
    int held[N_BLOCK_KINDS];   /* hits that it holds; of these it watches the last ones */
    int needed[N_BLOCK_KINDS]; /* blocks that must be available, including hits without holders */
};

static bool plan_has_beam_of(const struct plan *plan, const struct sequence *sequence) {
    for (int i = 0; sequence->request->beams && i < plan->n_items; i++)
        if (sequence_searches_with(plan->item[i].sequence, sequence)) return true;
    return false;
}

/* A search claims a row for each beam when its first beam is admitted. */
static int plan_batch_rows(const struct plan *plan, const struct sequence *sequence) {
    if (!sequence->request->beams) return 1;
    return plan_has_beam_of(plan, sequence) ? 0 : sequence->request->n;
}

/* Returns the blocks for all known tokens of a waiting sequence; for the first beam of a search
 * that is admitted, those of all its beams. */
static int plan_blocks_to_enter(const struct plan *plan, const struct sequence *sequence,
                                enum block_kind kind) {
    const struct request *request = sequence->request;
    int blocks = plan_blocks_ahead(plan, sequence, 1, kind);
    if (!request->beams || plan_has_beam_of(plan, sequence)) return blocks;
    for (int i = 0; i < request->n; i++)
        if (&request->sequence[i] != sequence && request->sequence[i].state != SEQUENCE_SPARE)
            blocks += plan_blocks_ahead(plan, &request->sequence[i], 1, kind);
    return blocks;
}

/* Measures the blocks of one kind. A hit without holders is available, and no longer is when it is
 * shared. One row needs a block that is not held. */
static void plan_measure_blocks(const struct plan *plan, struct demand *c, enum block_kind kind) {
    const struct window_pool *windows = &plan->view.pool->windows;
    int first = kind == KV_WINDOW_BLOCKS ? c->first_seen : 0, idle = 0;
    bool counted = kind == KV_BLOCKS || windows->n > 0;
    for (int i = first; i < c->item.hits && counted; i++)
        idle += plan_holders(plan, kind, plan->hit[i]) == 0;
    c->held[kind] = c->item.hits - first;
    int more = plan_blocks_to_enter(plan, c->item.sequence, kind) - c->held[kind];
    c->needed[kind] = max_int(more, 1) + idle;
}

/* Returns what the admission of a waiting sequence would take. Changes nothing but plan->hit. */
static struct demand plan_measure(const struct plan *plan, struct sequence *sequence) {
    const struct block_pool *pool = plan->view.pool;
    struct demand c = {.item = {.sequence = sequence}};
    int known, size = pool->block_size;
    c.batch_rows = plan_batch_rows(plan, sequence);
    c.item.hits = plan_find_hits(plan, sequence, &known);
    if (known == c.item.hits) c.item.host_hits = plan_find_host_hits(plan, sequence, c.item.hits);
    c.from = max_int((c.item.hits + c.item.host_hits) * size, sequence->n_computed);
    c.rows = plan_rows_allowed(plan, sequence, c.from);
    c.first_seen = min_int(window_pool_first_seen(&pool->windows, c.from), c.item.hits);
    c.item.loads = c.from > c.item.hits * size;
    for (int i = c.first_seen; i < c.item.hits; i++)
        c.item.loads |= !window_pool_has(&pool->windows, plan->hit[i]);
    for (enum block_kind kind = 0; kind < N_BLOCK_KINDS; kind++)
        plan_measure_blocks(plan, &c, kind);
    return c;
}

/* ---- taking --------------------------------------------------------------------------------- */

enum admission { ADMITTED, HELD_BACK, NO_ROOM };

/* Returns the number of rows for which window blocks are left. Blocks that are loaded after the
 * hits need some, too. */
static int plan_rows_with_windows(const struct plan *plan, int from, int hits) {
    const struct block_pool *pool = plan->view.pool;
    int held = max_int(hits, window_pool_first_seen(&pool->windows, from));
    int left = min_int(plan_blocks_left(plan, KV_WINDOW_BLOCKS), pool->n_blocks);
    return (held + left) * pool->block_size - from;
}

/* Adds a candidate to the plan. A sequence that loads blocks skips the step, unless there is
 * nothing else to compute. */
static void plan_take(struct plan *plan, const struct demand *c) {
    struct plan_item item = c->item;
    int rows = item.loads && plan->rows > 0 ? 0 : c->rows;
    assert(plan->n_items < plan->max_items && plan_blocks_left(plan, KV_BLOCKS) >= 0);
    plan_count_holders(plan, plan->hit, item.hits, c->first_seen, +1);
    rows = min_int(rows, plan_rows_with_windows(plan, c->from, item.hits));
    plan_count_rows(plan, &item, c->from, item.hits, rows);
    plan_promise_admitted(plan, &item, c->held, c->batch_rows > 1);
    plan->loads |= item.loads;
    plan->batch_rows += c->batch_rows;
    plan->item[plan->n_items++] = item;
    assert(plan->batch_rows <= plan->view.max_seqs);
}

static enum admission plan_admit(struct plan *plan, struct sequence *sequence) {
    assert(sequence->n_pending == 0 && sequence->n_committed == sequence->n_computed);
    if (plan_batch_rows(plan, sequence) > plan->view.max_seqs - plan->batch_rows) return NO_ROOM;
    const struct demand c = plan_measure(plan, sequence);
    if (!c.item.loads && plan_computes_next(plan, sequence, c.item.hits)) return HELD_BACK;
    if (c.rows <= 0 || (c.item.loads && plan->loads)) return NO_ROOM;
    for (enum block_kind kind = 0; kind < N_BLOCK_KINDS; kind++)
        if (c.needed[kind] > plan_blocks_left(plan, kind)) return NO_ROOM;
    plan_take(plan, &c);
    return ADMITTED;
}

/* Admits a beam whose blocks are promised to it: the promise ends if it gets them. */
static enum admission plan_admit_promised(struct plan *plan, struct sequence *beam) {
    int promised[N_BLOCK_KINDS];
    for (enum block_kind kind = 0; kind < N_BLOCK_KINDS; kind++) {
        promised[kind] = plan_blocks_ahead(plan, beam, plan->view.pool->block_size, kind);
        plan->ledger[kind].promised -= promised[kind];
    }
    enum admission admission = plan_admit(plan, beam);
    for (int kind = 0; kind < N_BLOCK_KINDS && admission != ADMITTED; kind++)
        plan->ledger[kind].promised += promised[kind];
    return admission;
}

bool plan_admit_rest(struct plan *plan) {
    bool has_room = true;
    list_each(node, plan->view.waiting) {
        struct sequence *sequence = sequence_of(node);
        if (!plan_has_beam_of(plan, sequence)) continue;
        if (plan_admit_promised(plan, sequence) == NO_ROOM) has_room = false;
    }
    return has_room;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static uint64_t plan_service(const struct plan *plan, const struct sequence *sequence) {
    int share = sequence->request->share;
    return plan->view.shares->share[share].service + plan->turn[share].admitted;
}

/* Would the sequence, or one of its share before it, take batch rows that the share must leave to
 * others? A share without running sequences may always start one. */
static bool plan_is_kept_out(struct plan *plan, const struct sequence *sequence) {
    struct turn *turn = &plan->turn[sequence->request->share];
    const int most = shares_most_rows(plan->view.shares, plan->view.max_seqs);
    if (plan->n_shares == 1) return false;
    turn->has_its_part |= turn->rows > 0 && turn->rows + plan_batch_rows(plan, sequence) > most;
    return turn->has_its_part;
}

void plan_begin_turns(struct plan *plan) {
    memset(plan->turn, 0, (size_t)plan->n_shares * sizeof *plan->turn);
    for (int i = 0; i < plan->n_items; i++) {
        const int share = plan->item[i].sequence->request->share;
        assert(share >= 0 && share < plan->n_shares);
        plan->item[i].rank = plan->turn[share].rows++;
    }
}

/* Is the turn of the sequence before the turn of the other one, which arrived earlier? A share that
 * waits beside another one has had the same service when it begins: then the one with fewer running
 * sequences is first. */
static bool plan_turn_before(const struct plan *plan, const struct sequence *sequence,
                             const struct sequence *other) {
    uint64_t service = plan_service(plan, sequence), others = plan_service(plan, other);
    if (service != others) return service < others;
    return plan->turn[sequence->request->share].rows < plan->turn[other->request->share].rows;
}

struct sequence *plan_find_turn(struct plan *plan) {
    struct sequence *next = NULL;
    list_each(node, plan->view.waiting) {
        struct sequence *sequence = sequence_of(node);
        const struct sequence *seen = plan->turn[sequence->request->share].seen;
        if (next && sequence->request->priority != next->request->priority) break;
        if (seen && !sequence_before(seen, sequence)) continue;
        if (plan_is_kept_out(plan, sequence)) continue;
        if (!next || plan_turn_before(plan, sequence, next)) next = sequence;
        if (plan->n_shares == 1) break;
    }
    return next;
}

static struct sequence *plan_next_turn(struct plan *plan) {
    struct sequence *next = plan_find_turn(plan);
    if (next) plan->turn[next->request->share].seen = next;
    return next;
}

/* Counts the batch rows of an admitted request, and its prompt if it runs for the first time. */
static void plan_count_turn(struct plan *plan, const struct plan_item *item) {
    const struct request *request = item->sequence->request;
    const struct share *share = &plan->view.shares->share[request->share];
    int hits = item->hits + item->host_hits, size = plan->view.pool->block_size;
    plan->turn[request->share].rows += request->beams ? request->n : 1;
    if (request->queued)
        plan->turn[request->share].admitted +=
            share_cost(share, plan_prompt_cost(item->sequence, hits, size));
}

void plan_admit_waiting(struct plan *plan) {
    if (plan->view.waiting->n == 0 || plan->n_kept < plan->n_running || plan->short_of_blocks)
        return;
    int n_held_back = 0;
    plan_promise_running(plan);
    if (!plan_admit_rest(plan)) return;
    plan_begin_turns(plan);
    while (plan->rows < plan->row_limit) {
        struct sequence *sequence = plan_next_turn(plan);
        if (!sequence) return;
        if (plan_has_beam_of(plan, sequence)) continue;
        enum admission admission = plan_admit(plan, sequence);
        if (admission == NO_ROOM) return;
        if (admission == ADMITTED) plan_count_turn(plan, &plan->item[plan->n_items - 1]);
        if (admission == HELD_BACK && ++n_held_back == MAX_HELD_BACK) return;
    }
}
