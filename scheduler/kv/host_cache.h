/* host_cache: blocks that the pool's prefix cache evicts, kept in host blocks while there is room.
 *
 * Host blocks that no swapped sequence needs hold blocks that the pool has given to another holder.
 * They are found like known blocks, by the same keys and ids, after those that the pool still has;
 * so a prompt's blocks are looked up first there and then here. A block that is found is loaded
 * into a block of its own and known to the pool again; its host block is free then.
 *
 *     known to the pool --evicted--> in the host cache --claimed by a sequence--> known to the pool
 *                                          |
 *                                          +--oldest, and a host block is needed--> gone
 *
 * Engine thread only. All memory but the host blocks' own is taken in host_cache_init.
 */
#ifndef PENSTOCK_HOST_CACHE_H
#define PENSTOCK_HOST_CACHE_H

#include "scheduler/kv/block_pool.h"

struct swap_space;

/* Blocks that are copied to the host at once, at most: more would delay the next step. */
#define MAX_OFFLOADED_PER_STEP 64

/* A block that the pool has just evicted; its tokens and its content are still there, and that of
 * the window block that it had, or -1. */
struct evicted_block {
    int32_t block, window;
    struct known_block known;
};

struct host_link {
    int32_t prev, next; /* in the list by when they were cached; its head is link[n_host_blocks] */
};

struct host_cache {
    bool on;
    struct block_pool *pool;
    struct prefix_cache known; /* of host blocks */
    int n_host_blocks;
    const int32_t *window_of;      /* swap's: [n_host_blocks] host window block, or -1; or NULL */
    int n_windows;                 /* of cached ones */
    struct host_link *link;        /* [n_host_blocks + 1] */
    struct evicted_block *evicted; /* [pool's n_blocks] since the last host_cache_offload */
    int n_evicted;
    int32_t *claimed; /* [max_blocks] host blocks that a sequence has claimed, in order */
    uint64_t *id;     /* [max_blocks] the ids of their content */
    int n_claimed;
};

/* Host blocks that hold something. */
static inline int host_cache_blocks(const struct host_cache *cache) {
    return cache->on ? cache->known.n_known : 0;
}

/* `max_blocks` is how many blocks one sequence can hold. Without host blocks, or if the pool does
 * no prefix caching, the cache stays off. The pool's on_evict is the cache's. `window_of` is NULL
 * where layers with windows have no blocks of their own. */
void host_cache_init(struct host_cache *cache, struct block_pool *pool, int n_host_blocks,
                     const int32_t *window_of, int max_blocks);
void host_cache_free(struct host_cache *cache);

/* How many of n consecutive blocks are cached, of which `key` is the first; `hashes` are those of
 * all n, and their tokens are contiguous. Where layers with windows have blocks of their own, the
 * most behind which a row finds all that it sees: in the n_before blocks before them, which have
 * what a row behind them sees, and in these. */
int host_cache_match(const struct host_cache *cache, const struct block_key *key,
                     const struct block_hash *hashes, int n, int n_before);

/* Takes those n host blocks out of the cache, for one sequence at a time. */
void host_cache_claim(struct host_cache *cache, const struct block_key *key,
                      const struct block_hash *hashes, int n);

/* Takes the oldest out, and returns its host block. There is one. */
int32_t host_cache_remove_oldest(struct host_cache *cache);

/* Queues the copies of what the pool has evicted since the last call. Called before anything else
 * is written to those blocks. */
void host_cache_offload(struct swap_space *swap);

/* Loads the n claimed host blocks into new blocks, which go to block[n]; those from first_seen on
 * are seen through windows. */
void host_cache_load(struct swap_space *swap, const struct block_key *key,
                     const struct block_hash *hashes, int n, int first_seen, int32_t *block);

#endif
