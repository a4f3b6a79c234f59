/* block_pool: the states and references of the KV blocks. A block is always in exactly one of three
 * states:
 *
 *     free     no references, not known            --acquire-->  used
 *     used     1 or more references                --release-->  cached if it is known, else free
 *     cached   no references, but a known prefix   --share-->    used;  --acquire--> evicted, used
 *
 * The cached blocks form a list in the order of their release. The oldest is evicted first.
 * Sequences release their tables from the end, so the last block of a chain is evicted first, and
 * the parent of a known block is always known. (A sequence that holds a block also holds its
 * parent, so the last reference to a parent is never dropped before that to its child.)
 *
 * Observers are told when a block becomes known and just before it is evicted: the host cache saves
 * the content of evicted blocks, KV events report both. A restored block becomes known, too.
 *
 * block_pool_init allocates all memory. Engine thread only.
 */
#ifndef PENSTOCK_BLOCK_POOL_H
#define PENSTOCK_BLOCK_POOL_H

#include "scheduler/kv/prefix_cache.h"
#include "scheduler/kv/window_pool.h"

struct block {
    int32_t references;
    int32_t prev, next; /* in the list of cached blocks; index n_blocks is the head of the list */
};

/* A block and all memory with content that belongs to it. */
struct block_parts {
    int32_t block;
    int32_t window; /* its window block; -1: it was reused, or the model has no window blocks */
};

/* Callbacks about known blocks, on the engine thread. Either may be NULL. They must not change the
 * pool. */
struct block_observer {
    /* The block is known from now on, and pool->known has its entry and its tokens. Its content is
     * computed, or (block_pool_restore) its copy is queued. */
    void (*on_known)(void *arg, const struct block_parts *parts);
    /* The block is about to be evicted. Entry, tokens and content are still intact. */
    void (*on_evict)(void *arg, const struct block_parts *parts);
    void *arg;
};

#define MAX_BLOCK_OBSERVERS 4

struct block_pool {
    int n_blocks, block_size;
    int n_free, n_cached;
    bool caching;        /* full blocks are registered in `known` */
    int32_t *free;       /* [n_blocks] stack of n_free */
    struct block *block; /* [n_blocks + 1], the last is the head of the list of cached blocks */
    struct prefix_cache known; /* its arrays exist even if caching is off */
    struct window_pool windows;
    struct block_observer observer[MAX_BLOCK_OBSERVERS]; /* [n_observers] in call order */
    int n_observers;
};

/* Allocates a pool of free blocks; frees it, and its window blocks, which window_pool_init
 * allocates. */
void block_pool_init(struct block_pool *pool, int n_blocks, int block_size, bool caching);
void block_pool_free(struct block_pool *pool);

/* Adds an observer, which lasts as long as the pool. At most MAX_BLOCK_OBSERVERS can be added. */
void block_pool_observe(struct block_pool *pool, const struct block_observer *observer);

/* Returns the number of blocks that block_pool_acquire could return now. */
static inline int block_pool_available(const struct block_pool *pool) {
    return pool->n_free + pool->n_cached;
}

/* Returns the number of holders of a block. */
static inline int block_pool_references(const struct block_pool *pool, int32_t block) {
    return pool->block[block].references;
}

/* Returns the number of blocks that hold `slots` slots. */
static inline int block_pool_blocks_for(const struct block_pool *pool, int slots) {
    return (slots + pool->block_size - 1) / pool->block_size;
}

/* Returns a block with one reference, which the caller holds and watches (window_pool.h). The old
 * content of the block is evicted. A block and a window block must be available. */
int32_t block_pool_acquire(struct block_pool *pool);

/* Does the same for a block that the windows of its holder have passed: it gets no window block. */
int32_t block_pool_acquire_unseen(struct block_pool *pool);

/* Adds a reference to a used or cached block. It does not add a watcher (window_pool.h). */
void block_pool_share(struct block_pool *pool, int32_t block);

/* Drops a reference. */
void block_pool_release(struct block_pool *pool, int32_t block);

/* Registers a used block, which its holder watches, as `key`. If another block is known as `key`,
 * the caller's reference moves to that block, and the caller's copy, which has the same bytes, is
 * released. Returns the block that the caller now holds. */
int32_t block_pool_register(struct block_pool *pool, int32_t block, const struct block_key *key);

/* Registers a used block as `key`, under the id of its earlier registration. `key` must not be
 * known. */
void block_pool_restore(struct block_pool *pool, int32_t block, const struct block_key *key,
                        uint64_t id);

/* Evicts all known blocks: their content is about to be lost. All blocks must be unused. */
void block_pool_forget(struct block_pool *pool);

#endif
