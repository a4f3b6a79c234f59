/* invariants: everything that the parts of the scheduler guarantee to each other, asserted from
 * scratch between two steps. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/internal.h"

struct tally {
    int32_t *references; /* [n_blocks] counted from the tables */
    int32_t *watchers;   /* [n_blocks] the same, for the parts of the tables from first_seen on */
    struct sequence **holder; /* [n_blocks] the first sequence that holds it */
    int *index;               /* [n_blocks] its index in the holder's table */
    bool *owned;              /* [host blocks] by a swapped sequence */
    bool *windows;            /* [host window blocks] owned by a host block */
    int32_t *states;          /* [n_states] references to each state, counted from the holders */
    int n_swapped;            /* number of swapped sequences */
};

/* A block in two tables has the same index in both. The two sequences have equal tokens up to its
 * end (or up to the computed ones) and the same salt. The block is full and known, or it is the
 * last block of a fork and neither sequence has written to it since. */
static void check_shared(const struct scheduler *s, const struct tally *tally,
                         const struct sequence *sequence, int i) {
    int size = s->pool.block_size, block = sequence->kv.table[i];
    const struct sequence *other = tally->holder[block];
    int end = (i + 1) * size;
    bool full = end <= sequence->n_committed && end <= other->n_committed;
    assert(tally->index[block] == i && other != sequence);
    if (!full) {
        assert(sequence->request == other->request);
        end = sequence->n_computed < other->n_computed ? sequence->n_computed : other->n_computed;
        assert(end > i * size);
        assert(end <= sequence->request->n_prompt || sequence->request->beams);
    }
    if (sequence->request != other->request) {
        assert(prefix_cache_knows(&s->pool.known, block));
        assert(memcmp(sequence->request->generation->cache_salt,
                      other->request->generation->cache_salt, sizeof(uint64_t[2])) == 0);
    }
    assert(memcmp(sequence->tokens, other->tokens, (size_t)end * sizeof(int32_t)) == 0);
}

static void check_known(const struct scheduler *s, const struct sequence *sequence, int i) {
    const struct prefix_cache *cache = &s->pool.known;
    int size = s->pool.block_size;
    if (!s->pool.caching || (i + 1) * size > sequence->n_committed) {
        assert(!prefix_cache_knows(cache, sequence->kv.table[i]));
        return;
    }
    int32_t parent = i > 0 ? sequence->kv.table[i - 1] : -1;
    struct block_key key = sequence_key(sequence, i, prefix_cache_id(cache, parent));
    assert(prefix_cache_find(cache, &key) == sequence->kv.table[i]);
}

/* A sequence has a state if it has computed rows. It shares the state with forks or a checkpoint
 * only until it computes. */
static void check_state(const struct scheduler *s, struct tally *tally,
                        const struct sequence *sequence) {
    int32_t state = sequence->kv.state;
    assert((state >= 0) == (s->states.n > 0 && sequence->n_computed > 0));
    if (state < 0) return;
    assert(state < s->states.n);
    tally->states[state]++;
    assert(sequence->kv.n_row_states == 0 || sequence->kv.n_row_states == sequence->drafts.n);
    for (int i = 0; i < sequence->kv.n_row_states; i++) tally->states[sequence->kv.row_state[i]]++;
    assert(s->states.references[state] == 1 || sequence->n_committed == sequence->n_computed);
}

static void check_running(const struct scheduler *s, struct tally *tally,
                          struct sequence *sequence) {
    assert(sequence->state == SEQUENCE_RUNNING && sequence->rows == 0 &&
           sequence->kv.n_host_blocks == 0);
    assert(sequence->n_committed <= sequence->n_computed);
    assert(sequence->n_computed < sequence->n_tokens || sequence->request->n_in_flight > 0 ||
           sequence_waits_for_beams(sequence));
    assert(sequence->n_computed <= sequence->n_tokens + sequence->drafts.n);
    assert(sequence->drafts.n == 0 || sequence->request->n_in_flight > 0);
    assert(sequence->n_tokens < sequence->request->max_tokens || !sequence_samples(sequence));
    assert(sequence->n_tokens + sequence->n_pending <= sequence->request->max_tokens);
    const struct constraint *c = &sequence->constraint;
    bool has_grammar = sequence->request->generation->grammar != NULL;
    const struct thought_limit *limit = &sequence->request->generation->thoughts;
    assert(limit->is_set || sequence->thoughts.state == THOUGHTS_OVER);
    assert(!limit->is_set || sequence->thoughts.n_tokens <= limit->max_tokens);
    assert(!c->matcher || (has_grammar && c->n_tokens == sequence->n_tokens));
    assert(sequence->kv.n_blocks == block_pool_blocks_for(&s->pool, sequence->n_computed));
    assert(s->batch.sequence[sequence->batch_row] == sequence &&
           sequence->batch_row < s->batch.n_sequences);
    assert(sequence->kv.table ==
           s->batch.table + (size_t)sequence->batch_row * (size_t)s->batch.stride);
    assert(sequence->kv.first_seen ==
           window_pool_first_seen(&s->pool.windows, sequence->n_committed));
    check_state(s, tally, sequence);
    for (int i = 0; i < sequence->kv.n_blocks; i++) {
        int32_t block = sequence->kv.table[i];
        tally->watchers[block] += i >= sequence->kv.first_seen;
        assert(block >= 0 && block < s->pool.n_blocks);
        if (tally->references[block]++ == 0) {
            tally->holder[block] = sequence;
            tally->index[block] = i;
        } else {
            check_shared(s, tally, sequence, i);
        }
        check_known(s, sequence, i);
    }
}

/* Returns whether a host block that is in use has a host window block. A host window block has only
 * one owner. */
static bool check_host_window(const struct scheduler *s, struct tally *tally, int32_t host_block) {
    int32_t window = s->swap.window_of ? s->swap.window_of[host_block] : -1;
    if (window < 0) return false;
    assert(window < s->swap.windows.n_ever_used && !tally->windows[window]);
    tally->windows[window] = true;
    return true;
}

/* A swapped sequence owns host blocks for its computed tokens, and has the window blocks that its
 * next row sees. Marks them as owned. */
static void check_swapped(const struct scheduler *s, struct tally *tally,
                          const struct sequence *sequence) {
    int32_t block = sequence->kv.first_host_block;
    assert(sequence->kv.n_host_blocks == block_pool_blocks_for(&s->pool, sequence->n_computed));
    assert(sequence->n_committed <= sequence->n_computed && sequence->n_computed > 0);
    assert(sequence->n_committed == sequence->n_computed || sequence->request->n_in_flight > 0);
    for (int i = 0; i < sequence->kv.n_host_blocks; i++, block = s->swap.next[block]) {
        assert(block >= 0 && block < s->swap.n_ever_used && !tally->owned[block]);
        tally->owned[block] = true;
        bool has_window = check_host_window(s, tally, block);
        assert(has_window || !s->swap.window_of ||
               i < window_pool_first_seen(&s->pool.windows, sequence->n_committed));
    }
    assert(block < 0);
    tally->n_swapped++;
}

static void check_waiting(const struct scheduler *s, struct tally *tally,
                          const struct sequence *sequence) {
    assert(sequence->kv.n_blocks == 0 && sequence->rows == 0 && sequence->n_tokens > 0);
    assert(sequence->kv.first_seen == 0 && sequence->kv.state < 0);
    if (sequence->state == SEQUENCE_SWAPPED) {
        check_swapped(s, tally, sequence);
        return;
    }
    assert(sequence->state == SEQUENCE_WAITING && sequence->kv.n_host_blocks == 0);
    assert(sequence->n_computed == 0);
}

/* Cached host blocks are not owned by sequences, and appear once in the list by age. Returns their
 * number. */
static int check_host_cache(const struct scheduler *s, struct tally *tally) {
    const struct host_cache *cache = &s->swap.cache;
    int n = 0, n_windows = 0;
    if (!cache->on) return 0;
    assert(cache->n_claimed == 0 && cache->n_evicted == 0);
    int32_t before = cache->n_host_blocks;
    for (int32_t block = cache->link[before].next; block != cache->n_host_blocks; n++) {
        assert(cache->link[block].prev == before && cache->known.block[block].known);
        assert(!tally->owned[block]);
        n_windows += check_host_window(s, tally, block);
        before = block;
        block = cache->link[block].next;
    }
    assert(n == host_cache_blocks(cache) && n_windows == cache->n_windows);
    return n;
}

/* Each host window block that was ever used belongs to a host block, or is free once. */
static void check_host_windows(const struct host_windows *windows, struct tally *tally) {
    assert(windows->n_ever_used <= windows->n);
    for (int i = 0; i < windows->n_free; i++) {
        assert(!tally->windows[windows->free[i]]);
        tally->windows[windows->free[i]] = true;
    }
    for (int i = 0; i < windows->n_ever_used; i++) assert(tally->windows[i]);
}

/* Each host block that was ever used is free, owned or cached. The free list holds each once. */
static void check_host_blocks(const struct scheduler *s, struct tally *tally) {
    const struct swap_space *swap = &s->swap;
    int n_free = 0, n_owned = 0, n_cached = check_host_cache(s, tally);
    assert(swap->n_ever_used <= swap->n_host_blocks);
    assert(swap->n_host_blocks <= swap->port.n_host_blocks);
    for (int32_t block = swap->first_free; n_free < swap->n_free; block = swap->next[block]) {
        assert(block >= 0 && block < swap->n_ever_used && !tally->owned[block]);
        assert(!swap->cache.on || !swap->cache.known.block[block].known);
        assert(!swap->window_of || swap->window_of[block] < 0);
        n_free++;
    }
    for (int i = 0; i < swap->n_ever_used; i++) n_owned += tally->owned[i];
    assert(n_owned + n_cached + n_free == swap->n_ever_used && n_owned == swap_used(swap));
    assert(tally->n_swapped == swap->n_swapped);
    check_host_windows(&swap->windows, tally);
}

static void check_order(const struct list *queue) {
    const struct sequence *before = NULL;
    int n = 0;
    list_each(node, queue) {
        assert(!before || sequence_before(before, sequence_of(node)));
        before = sequence_of(node);
        n++;
    }
    assert(n == queue->n);
}

/* Each block is used, cached or free, in agreement with its references and the index. A list holds
 * it once. */
static void check_pool(const struct scheduler *s, const struct tally *tally) {
    const struct block_pool *pool = &s->pool;
    char *seen = mem_calloc((size_t)pool->n_blocks, 1);
    int n_used = 0, n_cached = 0;
    for (int i = 0; i < pool->n_free; i++) {
        assert(!seen[pool->free[i]]++ && !prefix_cache_knows(&pool->known, pool->free[i]));
    }
    int32_t before = pool->n_blocks;
    for (int32_t b = pool->block[before].next; b != pool->n_blocks; b = pool->block[b].next) {
        assert(pool->block[b].prev == before && !seen[b]++);
        assert(prefix_cache_knows(&pool->known, b));
        before = b;
        n_cached++;
    }
    for (int b = 0; b < pool->n_blocks; b++) {
        assert(pool->block[b].references == tally->references[b]);
        assert((pool->block[b].references > 0) == !seen[b]);
        n_used += pool->block[b].references > 0;
    }
    assert(n_cached == pool->n_cached && pool->n_free + n_cached + n_used == pool->n_blocks);
    mem_free(seen);
}

/* Each checkpoint belongs to a known block, and appears once in the list. */
static void check_checkpoints(const struct scheduler *s, struct tally *tally) {
    const struct checkpoints *c = &s->checkpoints;
    int n = 0;
    if (c->n == 0) return;
    for (int32_t i = c->checkpoint[c->n].next; i != c->n; i = c->checkpoint[i].next, n++) {
        const struct checkpoint *kept = &c->checkpoint[i];
        assert(c->of[kept->block] == i && prefix_cache_knows(&s->pool.known, kept->block));
        tally->states[kept->state]++;
    }
    for (int b = 0; b < s->pool.n_blocks; b++) n -= c->of[b] >= 0;
    assert(n == 0 && c->n_used <= c->n);
}

/* Each state is free, or has the counted references. */
static void check_states(const struct scheduler *s, struct tally *tally) {
    int n_used = 0;
    check_checkpoints(s, tally);
    for (int i = 0; i < s->states.n; i++) {
        assert(s->states.references[i] == tally->states[i]);
        n_used += tally->states[i] > 0;
    }
    for (int i = 0; i < s->states.n_free; i++) assert(tally->states[s->states.free[i]] == 0);
    assert(n_used + s->states.n_free == s->states.n);
}

/* A window block has one block, or is free. A watched block has a window block, and its watchers
 * are the sequences whose window includes it. The idle window blocks are those of known blocks
 * without watchers. */
static void check_windows(const struct scheduler *s, const struct tally *tally) {
    const struct window_pool *pool = &s->pool.windows;
    int n_held = 0, n_idle = 0;
    for (int b = 0; pool->n > 0 && b < s->pool.n_blocks; b++) {
        assert(pool->watchers[b] == tally->watchers[b]);
        assert(pool->watchers[b] == 0 || pool->of[b] >= 0);
        if (pool->of[b] < 0) continue;
        assert(pool->owner[pool->of[b]] == b);
        assert(pool->watchers[b] > 0 || prefix_cache_knows(&s->pool.known, b));
        n_held++;
    }
    for (int i = 0; i < pool->n_free; i++) assert(pool->owner[pool->free[i]] < 0);
    for (int32_t w = pool->n > 0 ? pool->link[pool->n].next : 0; w != pool->n; n_idle++) {
        assert(pool->link[pool->link[w].next].prev == w);
        assert(pool->owner[w] >= 0 && pool->watchers[pool->owner[w]] == 0);
        w = pool->link[w].next;
    }
    assert(n_idle == pool->n_idle && n_held + pool->n_free == pool->n);
}

/* Returns the index of the block with this id in places[n], or the index at which to insert it. */
static size_t place_by_id(const struct prefix_cache *cache, const int32_t *places, size_t n,
                          uint64_t id) {
    size_t i = id % n;
    while (places[i] >= 0 && cache->block[places[i]].id != id) i = (i + 1) % n;
    return i;
}

/* Each known block is in its bucket and has a unique id. Inserts them into places[n] by id. */
static void check_buckets(const struct prefix_cache *cache, int32_t *places, size_t n) {
    int n_known = 0;
    memset(places, 0xff, n * sizeof *places);
    for (uint64_t i = 0; i <= cache->bucket_mask; i++) {
        for (int32_t b = cache->bucket[i]; b >= 0; b = cache->block[b].next) {
            const struct known_block *known = &cache->block[b];
            assert(known->known && (known->hash.low & cache->hash_mask & cache->bucket_mask) == i);
            assert(++n_known <= cache->n_known);
            size_t place = place_by_id(cache, places, n, known->id);
            assert(places[place] < 0 && known->id > 0);
            places[place] = b;
        }
    }
    assert(n_known == cache->n_known);
}

/* The parent of a known block is known, too, and has at least as many references. */
static void check_known_index(const struct scheduler *s) {
    const struct prefix_cache *cache = &s->pool.known;
    size_t n = 2 * (size_t)cache->n_blocks;
    int32_t *places = mem_alloc(n * sizeof *places);
    check_buckets(cache, places, n);
    for (int32_t b = 0; b < cache->n_blocks; b++) {
        uint64_t parent = cache->block[b].parent;
        if (!cache->block[b].known || parent == 0) continue;
        int32_t block = places[place_by_id(cache, places, n, parent)];
        assert(block >= 0);
        assert(block_pool_references(&s->pool, block) >= block_pool_references(&s->pool, b));
    }
    mem_free(places);
}

/* Each beam has a separate sequence, and the other sequences are spare. All beams have the same
 * number of known tokens. A preempted beam with known candidates is not swapped. */
static void check_request_beams(const struct request *request) {
    const struct beams *beams = request->beams;
    bool has_beam[MAX_BEAMS] = {0};
    assert(request->n == beams->search.width && request->n_unforked == 0);
    assert(beams->n_live > 0 && !beams_complete(beams));
    for (int i = 0; i < beams->n_live; i++) {
        const struct sequence *sequence = &request->sequence[beams->at[i]];
        assert(!has_beam[beams->at[i]] && sequence->state != SEQUENCE_SPARE);
        assert(sequence->n_tokens == request->sequence[beams->at[0]].n_tokens);
        assert(i == 0 || beams->score[i] <= beams->score[i - 1]);
        assert(!beams->known[i] || (sequence->n_pending == 0 && sequence->kv.n_host_blocks == 0));
        has_beam[beams->at[i]] = true;
    }
    for (int i = 0; i < request->n; i++)
        assert(has_beam[i] || request->sequence[i].state == SEQUENCE_SPARE);
}

/* Each share counts its requests that have never run. */
static void check_shares(const struct scheduler *s) {
    for (int i = 0; i < s->shares.n; i++) {
        int queued = 0;
        list_each(node, &s->requests) {
            const struct request *request = list_entry(node, struct request, node);
            queued += request->share == i && request->queued;
        }
        assert(queued == s->shares.share[i].queued);
    }
}

static void check_requests(const struct scheduler *s) {
    int running = 0, waiting = 0, live = 0, queued = 0, tokens = 0;
    list_each(node, &s->requests) {
        const struct request *request = list_entry(node, struct request, node);
        int unforked = 0, alive = 0;
        for (int i = 0; i < request->n; i++) {
            enum sequence_state state = request->sequence[i].state;
            running += state == SEQUENCE_RUNNING;
            waiting += state == SEQUENCE_WAITING || state == SEQUENCE_SWAPPED;
            unforked += state == SEQUENCE_UNFORKED;
            alive += state != SEQUENCE_ENDED;
        }
        assert(unforked == request->n_unforked && alive == request->n_live && alive > 0);
        assert(unforked < alive);
        if (request->beams) check_request_beams(request);
        live += alive;
        bool counts = request->queued && request->is_counted;
        queued += counts;
        tokens += counts ? request->n_prompt : 0;
    }
    assert(running == s->running.n && waiting == s->waiting.n);
    check_shares(s);
    assert(live <= atomic_load(&s->inbox.live_sequences));
    assert(queued <= atomic_load(&s->inbox.queued_requests));
    assert(tokens <= atomic_load(&s->inbox.queued_tokens));
}

void scheduler_check(const struct scheduler *s) {
    size_t n = (size_t)s->pool.n_blocks;
    struct tally tally = {.references = mem_calloc(n, sizeof(int32_t)),
                          .watchers = mem_calloc(n, sizeof(int32_t)),
                          .holder = mem_calloc(n, sizeof(struct sequence *)),
                          .index = mem_calloc(n, sizeof(int)),
                          .states = mem_calloc((size_t)s->states.n, sizeof(int32_t)),
                          .owned = mem_calloc((size_t)s->swap.port.n_host_blocks, sizeof(bool)),
                          .windows = mem_calloc((size_t)s->swap.port.n_host_windows, sizeof(bool))};
    for (int i = 0; i < s->n_in_flight; i++)
        assert(s->inflight[(s->first_in_flight + i) % s->port.in_flight].is_sampled);
    check_order(&s->running);
    check_order(&s->waiting);
    assert(s->running.n <= s->max_seqs && s->running.n == s->batch.n_sequences);
    assert(batch_rows_claimed(&s->running) <= s->max_seqs);
    list_each(node, &s->running) check_running(s, &tally, sequence_of(node));
    list_each(node, &s->waiting) check_waiting(s, &tally, sequence_of(node));
    check_pool(s, &tally);
    check_windows(s, &tally);
    check_states(s, &tally);
    check_host_blocks(s, &tally);
    check_known_index(s);
    check_requests(s);
    assert(s->plan.rows <= s->config.max_num_batched_tokens);
    assert(s->plan.n_items <= s->max_seqs);
    if (s->draft_engine.model) draft_model_check(s->draft_engine.model);
    mem_free(tally.references);
    mem_free(tally.watchers);
    mem_free(tally.holder);
    mem_free(tally.index);
    mem_free(tally.states);
    mem_free(tally.owned);
    mem_free(tally.windows);
}
