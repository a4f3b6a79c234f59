/* apply: carries out a plan. First the blocks of preempted sequences are released, then hits are
 * shared and the blocks of a swapped sequence acquired, then all other blocks. In this order the
 * pool has the blocks that the plan counted, and evicts no block that a sequence will share.
 * Evicted blocks are copied to the host before the step writes to them. */
#include "scheduler/internal.h"
#include "scheduler/speculate.h"

void watch_blocks(struct scheduler *s, const struct sequence *sequence) {
    for (int i = sequence->kv.first_seen; i < sequence->kv.n_blocks; i++)
        window_pool_watch(&s->pool.windows, sequence->kv.table[i]);
}

void release_last_block(struct scheduler *s, struct sequence *sequence) {
    int32_t block = sequence->kv.table[--sequence->kv.n_blocks];
    bool known = prefix_cache_knows(&s->pool.known, block);
    if (sequence->kv.n_blocks >= sequence->kv.first_seen)
        window_pool_unwatch(&s->pool.windows, block, known);
    block_pool_release(&s->pool, block);
}

void release_row_states(struct scheduler *s, struct sequence *sequence) {
    struct sequence_kv *kv = &sequence->kv;
    while (kv->n_row_states > 0) state_pool_release(&s->states, kv->row_state[--kv->n_row_states]);
}

void sequence_stop_running(struct scheduler *s, struct sequence *sequence) {
    assert(sequence->state == SEQUENCE_RUNNING);
    while (sequence->kv.n_blocks > 0) release_last_block(s, sequence);
    sequence->kv.first_seen = 0;
    release_row_states(s, sequence);
    if (sequence->kv.state >= 0) state_pool_release(&s->states, sequence->kv.state);
    sequence->kv.state = -1;
    batch_remove(&s->batch, sequence);
    list_remove(&s->running, &sequence->node);
    sequence->n_computed = sequence->n_committed = sequence->rows = 0;
}

static void apply_preempt(struct scheduler *s, struct sequence *sequence) {
    int n_computed = sequence->n_computed, n_committed = sequence->n_committed;
    int n = sequence->kv.n_blocks, first = -1;
    assert(sequence->state == SEQUENCE_RUNNING && sequence->kv.n_host_blocks == 0);
    /* Drafts in flight may still be refused. A beam whose candidates are known or in flight has
     * nothing to compute until the other beams have theirs, and then it might not continue. */
    bool complete = sequence->request->beams && n_computed == sequence->n_tokens;
    bool swaps = n_computed >= s->config.swap_from && s->states.n == 0;
    if (swaps && sequence->drafts.n == 0 && !complete)
        first = swap_out(&s->swap, sequence->kv.table, n, sequence->kv.first_seen);
    sequence_stop_running(s, sequence);
    sequence->state = SEQUENCE_WAITING;
    if (first >= 0) {
        sequence->state = SEQUENCE_SWAPPED;
        sequence->kv.first_host_block = first;
        sequence->kv.n_host_blocks = n;
        sequence->n_computed = n_computed;
        sequence->n_committed = n_committed;
    }
    sequence_enqueue_early(&s->waiting, sequence);
    s->stats.preemptions++;
}

static void note_first_time(struct scheduler *s, struct sequence *sequence, int hits) {
    struct request *request = sequence->request;
    int size = s->pool.block_size;
    if (!request->queued) return;
    sequence->first_scheduled_ns = s->plan.view.now_ns;
    sequence->kv.n_cached = hits * size;
    if (s->pool.caching && !request->prompt_scored) {
        s->stats.prefix_queries += (uint64_t)request->n_prompt;
        s->stats.prefix_hits += (uint64_t)sequence->kv.n_cached;
    }
    share_charge(&s->shares.share[request->share], plan_prompt_cost(sequence, hits, size));
    request_unqueue(s, request);
}

/* Shares the blocks that the plan found. The look-up has the same result, since nothing was evicted
 * in between. */
static void share_hits(struct scheduler *s, struct sequence *sequence, int hits) {
    int found = prefix_cache_match(&s->pool.known, sequence_key(sequence, 0, 0),
                                   sequence->kv.hashes, hits, sequence->kv.table);
    assert(found == hits);
    for (int i = 0; i < found; i++) block_pool_share(&s->pool, sequence->kv.table[i]);
    sequence->kv.n_blocks = found;
    if (s->checkpoints.n > 0)
        sequence->kv.state = checkpoints_use(&s->checkpoints, sequence->kv.table[found - 1]);
    if (found * s->pool.block_size > sequence->n_computed) /* a swapped sequence may have more */
        sequence->n_computed = sequence->n_committed = found * s->pool.block_size;
}

/* Watches the shared blocks that the next row sees. Some blocks of a swapped sequence may get their
 * window blocks later. */
static void watch_hits(struct scheduler *s, struct sequence *sequence) {
    sequence->kv.first_seen = window_pool_first_seen(&s->pool.windows, sequence->n_committed);
    for (int i = sequence->kv.first_seen; i < sequence->kv.n_blocks; i++)
        if (window_pool_has(&s->pool.windows, sequence->kv.table[i]))
            window_pool_watch(&s->pool.windows, sequence->kv.table[i]);
}

/* Returns the key of the block after those that the sequence holds. */
static struct block_key next_key(const struct scheduler *s, const struct sequence *sequence) {
    int n = sequence->kv.n_blocks;
    int32_t parent = n > 0 ? sequence->kv.table[n - 1] : -1;
    return sequence_key(sequence, n, prefix_cache_id(&s->pool.known, parent));
}

static void start_running(struct scheduler *s, const struct plan_item *item) {
    struct sequence *sequence = item->sequence;
    assert(sequence->state == SEQUENCE_WAITING || sequence->state == SEQUENCE_SWAPPED);
    assert(sequence->kv.n_blocks == 0);
    struct beams *beams = sequence->request->beams;
    if (beams) beams->known[sequence_beam(sequence)] = false; /* they are computed again */
    list_remove(&s->waiting, &sequence->node);
    sequence->state = SEQUENCE_RUNNING;
    sequence_enqueue(&s->running, sequence);
    batch_add(&s->batch, sequence);
    if (item->hits > 0) share_hits(s, sequence, item->hits);
    if (item->host_hits > 0) {
        int n = sequence->kv.n_blocks;
        struct block_key key = next_key(s, sequence);
        host_cache_claim(&s->swap.cache, &key, sequence->kv.hashes + n, item->host_hits);
        sequence->n_computed = (n + item->host_hits) * s->pool.block_size;
        sequence->n_committed = sequence->n_computed;
    }
    watch_hits(s, sequence);
    note_first_time(s, sequence, item->hits + item->host_hits);
}

/* Loads the blocks of a swapped sequence, after the n_held from the prefix cache. They are
 * registered immediately: a sequence that shares one reads it in a later step. */
static void load_swapped(struct scheduler *s, struct sequence *sequence, int n_held) {
    int n = sequence->kv.n_host_blocks;
    swap_in(&s->swap, sequence->kv.first_host_block, n, n_held, sequence->kv.first_seen,
            sequence->kv.table);
    sequence->kv.n_host_blocks = 0;
    if (n <= n_held) return;
    assert(n == block_pool_blocks_for(&s->pool, sequence->n_computed));
    sequence->kv.n_blocks = n;
    if (!s->pool.caching) return;
    register_blocks(s, sequence, n_held * s->pool.block_size);
    for (int i = n_held; i < n; i++) /* no other was known */
        assert(sequence->kv.table[i] == s->swap.in.blocks.block[i - n_held]);
}

static void load_blocks(struct scheduler *s, const struct plan_item *item) {
    struct sequence *sequence = item->sequence;
    int n_held = sequence->kv.n_blocks;
    if (item->host_hits > 0) {
        struct block_key key = next_key(s, sequence);
        host_cache_load(&s->swap, &key, sequence->kv.hashes + n_held, item->host_hits,
                        max_int(sequence->kv.first_seen - n_held, 0), sequence->kv.table + n_held);
        sequence->kv.n_blocks += item->host_hits;
    } else if (sequence->kv.n_host_blocks > 0) {
        load_swapped(s, sequence, n_held);
    }
    assert(s->swap.loading || !item->loads);
    if (item->loads && item->rows > 0) swap_arrive(&s->swap); /* it computes in this step */
}

/* Makes a sequence that computes the only holder of its state. Its first row reads none. All
 * blocks are acquired before: their eviction frees states of checkpoints, and a state that is
 * copied in this step must not be acquired for another sequence. */
static void acquire_state(struct scheduler *s, struct sequence *sequence) {
    int32_t shared = sequence->kv.state;
    if (shared >= 0 && s->states.references[shared] == 1) return;
    assert(shared >= 0 || sequence->n_computed == 0);
    sequence->kv.state = state_pool_acquire(&s->states);
    if (shared < 0) return;
    batch_copy_state(&s->batch, shared, sequence->kv.state);
    state_pool_release(&s->states, shared);
}

/* Acquires the states that a sequence needs for its rows, also those after the rows before its
 * drafts. */
static void acquire_states(struct scheduler *s, struct sequence *sequence) {
    struct sequence_kv *kv = &sequence->kv;
    if (s->states.n == 0 || sequence->rows == 0) return;
    acquire_state(s, sequence);
    assert(kv->n_row_states == 0 && sequence->drafts.n <= MAX_DRAFTS);
    kv->first_row_state = sequence->n_computed + sequence->rows - sequence->drafts.n;
    while (kv->n_row_states < sequence->drafts.n)
        kv->row_state[kv->n_row_states++] = state_pool_acquire(&s->states);
}

static void acquire_blocks(struct scheduler *s, const struct plan_item *item) {
    struct sequence *sequence = item->sequence;
    sequence->rows = item->rows;
    if (item->drafts > 0)
        sequence->drafts.n = item->drafts;
    else if (sequence->drafts.n_proposed > 0)
        drafts_forget(&sequence->drafts);
    if (item->rows == 0) return;
    /* A shared partial block is replaced by a copy. Of the sequences that share it and compute, all
     * but the last one copy. Which one is last depends on the order, which differs from that of the
     * plan, but the number of copies is the same. If this plan preempted all others that shared the
     * block, the sequence now owns it. The plan counted that block as available, so the count is
     * the same. */
    if (plan_must_copy(&s->pool, sequence)) {
        int32_t *place = &sequence->kv.table[sequence->n_computed / s->pool.block_size];
        int32_t shared = *place;
        *place = block_pool_acquire(&s->pool);
        batch_copy(&s->batch, shared, *place);
        window_pool_unwatch(&s->pool.windows, shared, false);
        block_pool_release(&s->pool, shared);
    }
    int blocks = block_pool_blocks_for(&s->pool, sequence->n_computed + item->rows);
    while (sequence->kv.n_blocks < blocks)
        sequence->kv.table[sequence->kv.n_blocks++] = block_pool_acquire(&s->pool);
    assert(!plan_must_copy(&s->pool, sequence));
}

void plan_apply(struct scheduler *s) {
    const struct plan *plan = &s->plan;
    s->batch.step.n_copies = s->batch.step.n_state_copies = 0;
    swap_arrive(&s->swap);
    for (int i = plan->n_running - 1; i >= plan->n_kept; i--)
        apply_preempt(s, plan->item[i].sequence);
    for (int i = plan->n_running; i < plan->n_items; i++) start_running(s, &plan->item[i]);
    for (int i = plan->n_running; i < plan->n_items; i++) load_blocks(s, &plan->item[i]);
    for (int i = 0; i < plan->n_items; i++)
        if (i < plan->n_kept || i >= plan->n_running) acquire_blocks(s, &plan->item[i]);
    for (int i = 0; i < plan->n_items; i++)
        if (i < plan->n_kept || i >= plan->n_running) acquire_states(s, plan->item[i].sequence);
    if (s->swap.cache.n_evicted > 0) host_cache_offload(&s->swap);
    assert(block_pool_available(&s->pool) == plan->ledger[KV_BLOCKS].available);
    assert(window_pool_available(&s->pool.windows) == plan->ledger[KV_WINDOW_BLOCKS].available ||
           s->pool.windows.n == 0);
}
