#include "scheduler/kv/host_cache.h"

#include <stdlib.h>

#include "config/config.h"
#include "scheduler/kv/swap.h"

static void note_evicted(void *arg, int32_t block) {
    struct host_cache *cache = arg;
    assert(cache->n_evicted < cache->pool->n_blocks);
    cache->evicted[cache->n_evicted++] =
        (struct evicted_block){.block = block, .known = cache->pool->known.block[block]};
}

void host_cache_init(struct host_cache *cache, struct block_pool *pool, int n_host_blocks,
                     int max_blocks) {
    int n = n_host_blocks;
    *cache = (struct host_cache){.on = n > 0 && pool->caching, .pool = pool, .n_host_blocks = n};
    if (!cache->on) return;
    prefix_cache_init(&cache->known, n, pool->block_size);
    cache->link = mem_calloc((size_t)n + 1, sizeof *cache->link);
    cache->link[n] = (struct host_link){n, n};
    cache->evicted = mem_calloc((size_t)pool->n_blocks, sizeof *cache->evicted);
    cache->claimed = mem_calloc((size_t)max_blocks, sizeof *cache->claimed);
    cache->id = mem_calloc((size_t)max_blocks, sizeof *cache->id);
    pool->on_evict = note_evicted;
    pool->arg = cache;
}

void host_cache_free(struct host_cache *cache) {
    assert(cache->n_claimed == 0);
    if (cache->on) prefix_cache_free(&cache->known);
    free(cache->link);
    free(cache->evicted);
    free(cache->claimed);
    free(cache->id);
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

int32_t host_cache_remove_oldest(struct host_cache *cache) {
    int32_t oldest = cache->link[cache->n_host_blocks].next;
    assert(cache->on && oldest < cache->n_host_blocks);
    unlink_block(cache, oldest);
    prefix_cache_remove(&cache->known, oldest);
    return oldest;
}

/* ---- out ------------------------------------------------------------------------------------ */

/* Gives an evicted block a host block; -1 if its content is cached already. */
static int32_t add(struct swap_space *swap, const struct evicted_block *evicted) {
    struct host_cache *cache = &swap->cache;
    const struct known_block *known = &evicted->known;
    const int32_t *tokens = prefix_cache_tokens(&cache->pool->known, evicted->block);
    struct block_key key = {known->hash, known->salt, tokens, known->parent};
    int32_t found = prefix_cache_find(&cache->known, &key);
    if (found >= 0) {
        unlink_block(cache, found);
        link_newest(cache, found);
        return -1;
    }
    int32_t host_block = swap_acquire(swap);
    prefix_cache_add(&cache->known, host_block, &key, known->id);
    link_newest(cache, host_block);
    return host_block;
}

/* If too many were evicted, the most recent are kept: eviction order is leaf first, so these stand
 * before the others in their prompts. */
void host_cache_offload(struct swap_space *swap) {
    struct host_cache *cache = &swap->cache;
    int32_t host_block[MAX_OFFLOADED_PER_STEP], block[MAX_OFFLOADED_PER_STEP];
    int all = cache->n_evicted, room = swap->n_host_blocks - swap_used(swap), n = 0;
    int n_kept = all < MAX_OFFLOADED_PER_STEP ? all : MAX_OFFLOADED_PER_STEP;
    if (n_kept > room) n_kept = room;
    cache->n_evicted = 0;
    if (n_kept == 0 || !swap_make_room(swap, n_kept)) return;
    for (int i = all - n_kept; i < all; i++) {
        block[n] = cache->evicted[i].block;
        host_block[n] = add(swap, &cache->evicted[i]);
        n += host_block[n] >= 0;
    }
    if (n > 0) swap->port.out(swap->port.self, block, host_block, n);
    swap->n_out += (uint64_t)n;
}

/* ---- in ------------------------------------------------------------------------------------- */

int host_cache_match(const struct host_cache *cache, const struct block_key *key,
                     const struct block_hash *hashes, int n) {
    return cache->on ? prefix_cache_match(&cache->known, *key, hashes, n, NULL) : 0;
}

void host_cache_claim(struct host_cache *cache, const struct block_key *key,
                      const struct block_hash *hashes, int n) {
    assert(cache->on && cache->n_claimed == 0 && n > 0);
    cache->n_claimed = prefix_cache_match(&cache->known, *key, hashes, n, cache->claimed);
    assert(cache->n_claimed == n);
    for (int i = 0; i < n; i++) {
        cache->id[i] = prefix_cache_id(&cache->known, cache->claimed[i]);
        unlink_block(cache, cache->claimed[i]);
        prefix_cache_remove(&cache->known, cache->claimed[i]);
    }
}

void host_cache_load(struct swap_space *swap, const struct block_key *first,
                     const struct block_hash *hashes, int n, int32_t *block) {
    struct host_cache *cache = &swap->cache;
    struct block_key key = *first;
    assert(cache->n_claimed == n && n > 0);
    for (int i = 0; i < n; i++) block[i] = block_pool_acquire(swap->pool);
    host_cache_offload(swap); /* the blocks that were taken over are copied out first */
    swap->port.in(swap->port.self, cache->claimed, block, n);
    swap->loading = true;
    swap->n_in += (uint64_t)n;
    for (int i = 0; i < n; i++) {
        key.hash = hashes[i];
        block_pool_restore(swap->pool, block[i], &key, cache->id[i]);
        swap_release(swap, cache->claimed[i]);
        key.tokens += swap->pool->block_size;
        key.parent = cache->id[i];
    }
    cache->n_claimed = 0;
}
