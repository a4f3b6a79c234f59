#include "scheduler/kv/host_cache.h"

#include <stdlib.h>

#include "config/config.h"
#include "scheduler/kv/swap.h"

static void note_evicted(void *arg, const struct block_parts *parts) {
    struct host_cache *cache = arg;
    assert(cache->n_evicted < cache->pool->n_blocks);
    cache->evicted[cache->n_evicted++] =
        (struct evicted_block){.block = parts->block,
                               .window = cache->window_of ? parts->window : -1,
                               .known = cache->pool->known.block[parts->block]};
}

void host_cache_init(struct host_cache *cache, struct block_pool *pool, int n_host_blocks,
                     const int32_t *window_of, int max_blocks) {
    int n = n_host_blocks;
    *cache = (struct host_cache){
        .on = n > 0 && pool->caching, .pool = pool, .n_host_blocks = n, .window_of = window_of};
    if (!cache->on) return;
    prefix_cache_init(&cache->known, n, pool->block_size);
    cache->link = mem_calloc((size_t)n + 1, sizeof *cache->link);
    cache->link[n] = (struct host_link){n, n};
    cache->evicted = mem_calloc((size_t)pool->n_blocks, sizeof *cache->evicted);
    cache->claimed = mem_calloc((size_t)max_blocks, sizeof *cache->claimed);
    cache->id = mem_calloc((size_t)max_blocks, sizeof *cache->id);
    const struct block_observer observer = {.on_evict = note_evicted, .arg = cache};
    block_pool_observe(pool, &observer);
}

void host_cache_free(struct host_cache *cache) {
    assert(cache->n_claimed == 0);
    if (cache->on) prefix_cache_free(&cache->known);
    mem_free(cache->link);
    mem_free(cache->evicted);
    mem_free(cache->claimed);
    mem_free(cache->id);
}

/* ---- the list by age ------------------------------------------------------------------------ */

static void link_newest(struct host_cache *cache, int32_t host_block) {
    int32_t head = cache->n_host_blocks, last = cache->link[head].prev;
    cache->link[host_block] = (struct host_link){last, head};
    cache->link[last].next = cache->link[head].prev = host_block;
}

static void unlink_block(struct host_cache *cache, int32_t host_block) {
    struct host_link gone = cache->link[host_block];
    assert(cache->link[gone.prev].next == host_block && cache->link[gone.next].prev == host_block);
    cache->link[gone.prev].next = gone.next;
    cache->link[gone.next].prev = gone.prev;
}

static bool has_window(const struct host_cache *cache, int32_t host_block) {
    return cache->window_of && cache->window_of[host_block] >= 0;
}

/* Removes a block from the cache. Its host block is not released. */
static void host_cache_forget(struct host_cache *cache, int32_t host_block) {
    unlink_block(cache, host_block);
    prefix_cache_remove(&cache->known, host_block);
    cache->n_windows -= has_window(cache, host_block);
    assert(cache->n_windows >= 0);
}

int32_t host_cache_remove_oldest(struct host_cache *cache) {
    int32_t oldest = cache->link[cache->n_host_blocks].next;
    assert(cache->on && oldest < cache->n_host_blocks);
    host_cache_forget(cache, oldest);
    return oldest;
}

/* ---- out ------------------------------------------------------------------------------------ */

/* Assigns a host block to an evicted block, unless its content is cached already. Also assigns a
 * host window block if the content lacks one and one is available. */
static void host_cache_add(struct swap_space *swap, const struct evicted_block *evicted) {
    struct host_cache *cache = &swap->cache;
    const struct known_block *known = &evicted->known;
    const int32_t *tokens = prefix_cache_tokens(&cache->pool->known, evicted->block);
    struct block_key key = {known->hash, known->salt, tokens, known->parent, known->parent_hash};
    int32_t host_block = prefix_cache_find(&cache->known, &key);
    if (host_block >= 0) {
        unlink_block(cache, host_block);
    } else {
        host_block = swap_acquire(swap);
        prefix_cache_add(&cache->known, host_block, &key, known->id);
        swap_list_add(&swap->out, evicted->block, host_block);
    }
    link_newest(cache, host_block);
    if (evicted->window < 0 || has_window(cache, host_block) || swap_windows_unused(swap) == 0)
        return;
    swap_add_window(swap, host_block);
    cache->n_windows++;
    swap_list_add_window(swap, &swap->out, evicted->window, host_block);
}

/* If too many blocks were evicted, the most recent ones are kept: eviction starts at the leaves, so
 * the most recent ones are the nearest to the start of their prompts. */
void host_cache_offload(struct swap_space *swap) {
    struct host_cache *cache = &swap->cache;
    int all = cache->n_evicted, room = swap->n_host_blocks - swap_used(swap), n_windows = 0;
    int n_kept = min_int(min_int(all, MAX_OFFLOADED_PER_STEP), room);
    cache->n_evicted = 0;
    for (int i = all - n_kept; i < all; i++) n_windows += cache->evicted[i].window >= 0;
    n_windows = min_int(n_windows, swap->windows.n - swap_windows_used(swap));
    if (n_kept == 0 || !swap_make_room(swap, n_kept, n_windows)) return;
    for (int i = all - n_kept; i < all; i++) host_cache_add(swap, &cache->evicted[i]);
    swap_send(swap);
}

/* ---- in ------------------------------------------------------------------------------------- */

int host_cache_match(const struct host_cache *cache, const struct block_key *key,
                     const struct block_hash *hashes, int n, int n_before) {
    int usable = 0;
    if (!cache->on) return 0;
    if (!cache->window_of) return prefix_cache_match(&cache->known, *key, hashes, n, NULL);
    assert(cache->n_claimed == 0); /* so the array can hold the found blocks */
    int found = prefix_cache_match(&cache->known, *key, hashes, n, cache->claimed);
    for (int i = 0, lacking = -1; i < found; i++) {
        int behind = n_before + i + 1;
        if (!has_window(cache, cache->claimed[i])) lacking = n_before + i;
        if (lacking <
            window_pool_first_seen(&cache->pool->windows, behind * cache->pool->block_size))
            usable = i + 1;
    }
    return usable;
}

void host_cache_claim(struct host_cache *cache, const struct block_key *key,
                      const struct block_hash *hashes, int n) {
    assert(cache->on && cache->n_claimed == 0 && n > 0);
    cache->n_claimed = prefix_cache_match(&cache->known, *key, hashes, n, cache->claimed);
    assert(cache->n_claimed == n);
    for (int i = 0; i < n; i++) {
        cache->id[i] = prefix_cache_id(&cache->known, cache->claimed[i]);
        host_cache_forget(cache, cache->claimed[i]);
    }
}

void host_cache_load(struct swap_space *swap, const struct block_key *first,
                     const struct block_hash *hashes, int n, int first_seen, int32_t *block) {
    struct host_cache *cache = &swap->cache;
    struct block_key key = *first;
    assert(cache->n_claimed == n && n > 0);
    for (int i = 0; i < n; i++) {
        block[i] = block_pool_acquire_unseen(swap->pool);
        swap_list_add(&swap->in, block[i], cache->claimed[i]);
        if (cache->window_of && i >= first_seen)
            swap_load_window(swap, block[i], cache->claimed[i]);
    }
    host_cache_offload(swap); /* first queues the copies of the blocks that were evicted for this */
    swap_load(swap);
    for (int i = 0; i < n; i++) {
        key.hash = hashes[i];
        block_pool_restore(swap->pool, block[i], &key, cache->id[i]);
        swap_release(swap, cache->claimed[i]);
        key.tokens += swap->pool->block_size;
        key.parent = cache->id[i];
        key.parent_hash = hashes[i];
    }
    cache->n_claimed = 0;
}
