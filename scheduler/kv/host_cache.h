/* host_cache: a second prefix cache. It keeps blocks that the pool evicts in unused host blocks.
 *
 * Host blocks that no swapped sequence needs hold the content of blocks that the pool has reused.
 * They are found like known blocks, by the same keys and ids. A prompt's blocks are looked up first
 * in the pool, then here. A block that is found is loaded into a new block and is known to the pool
 * again. Its host block is then free.
 *
 *     known to the pool --evicted--> in the host cache --claimed by a sequence--> known to the pool
 *                                          |
 *                                          +--oldest, and a host block is needed--> dropped
 *
 * Engine thread only. host_cache_init allocates all memory except the host blocks.
 */
#ifndef PENSTOCK_HOST_CACHE_H
#define PENSTOCK_HOST_CACHE_H

#include "scheduler/kv/block_pool.h"

struct swap_space;

/* Maximum number of evicted blocks that one call of host_cache_offload copies: more would delay the
 * next step. */
#define MAX_OFFLOADED_PER_STEP 64

/* A block that the pool has just evicted. Its tokens and content are still intact. `window` is its
 * window block, also intact, or -1. */
struct evicted_block {
    int32_t block, window;
    struct known_block known;
};

struct host_link {
    int32_t prev, next; /* in the list by age in the cache; the head is link[n_host_blocks] */
};

struct host_cache {
    bool on;
    struct block_pool *pool;
    struct prefix_cache known; /* index: host block */
    int n_host_blocks;
    const int32_t *window_of; /* swap_space's: [n_host_blocks] host window block, or -1; or NULL */
    int n_windows;            /* host window blocks of cached host blocks */
    struct host_link *link;   /* [n_host_blocks + 1] */
    struct evicted_block *evicted; /* [pool's n_blocks] since the last host_cache_offload */
    int n_evicted;
    int32_t *claimed; /* [max_blocks] host blocks that a sequence has claimed, in order */
    uint64_t *id;     /* [max_blocks] the ids of their content */
    int n_claimed;
};

/* Returns the number of cached host blocks. */
static inline int host_cache_blocks(const struct host_cache *cache) {
    return cache->on ? cache->known.n_known : 0;
}

/* `max_blocks` is the maximum number of blocks of one sequence. The cache stays off without host
 * blocks, or if the pool does no prefix caching. It observes evictions of the pool.
 * `window_of` is NULL if layers with windows have no separate blocks. */
void host_cache_init(struct host_cache *cache, struct block_pool *pool, int n_host_blocks,
                     const int32_t *window_of, int max_blocks);
void host_cache_free(struct host_cache *cache);

/* Returns how many of n consecutive blocks are cached. `key` is that of the first, `hashes` are
 * those of all n, and their tokens are contiguous. If layers with windows have separate blocks,
 * returns the largest number after which a row finds all window blocks that it sees: in the
 * n_before blocks before these, whose visible part is complete, and in these. */
int host_cache_match(const struct host_cache *cache, const struct block_key *key,
                     const struct block_hash *hashes, int n, int n_before);

/* Removes those n host blocks from the cache and keeps them for one sequence. Only one claim exists
 * at a time. */
void host_cache_claim(struct host_cache *cache, const struct block_key *key,
                      const struct block_hash *hashes, int n);

/* Removes the oldest block and returns its host block. The cache must not be empty. */
int32_t host_cache_remove_oldest(struct host_cache *cache);

/* Queues the copies of the blocks that the pool has evicted since the last call. Must be called
 * before anything is written to those blocks. */
void host_cache_offload(struct swap_space *swap);

/* Loads the n claimed host blocks into new blocks and writes these to block[n]. Blocks from index
 * first_seen on also get their window blocks. */
void host_cache_load(struct swap_space *swap, const struct block_key *key,
                     const struct block_hash *hashes, int n, int first_seen, int32_t *block);

#endif
