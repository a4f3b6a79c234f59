/* block_pool: who holds which KV block. A block is always in exactly one of three states:
 *
 *     free     no references, nothing known        --take-->     used
 *     used     1 or more references                --release-->  cached when it is known, else free
 *     cached   no references, but a known prefix   --share-->    used;  --take--> evicted, used
 *
 * The cached ones stand in a list by when they were released, the oldest first to be taken.
 * Sequences release their tables from the end, so of a chain of blocks the last is taken first: a
 * known block's parent is always known. (Whoever holds a block holds its parent; so a parent's
 * last reference never goes before its child's.) What is evicted may be kept elsewhere: whoever
 * wants that is told just before.
 *
 * All memory is taken in block_pool_init. Engine thread only.
 */
#ifndef PENSTOCK_BLOCK_POOL_H
#define PENSTOCK_BLOCK_POOL_H

#include "scheduler/kv/prefix_cache.h"
#include "scheduler/kv/window_pool.h"

struct block {
    int32_t references;
    int32_t prev, next; /* in the list of cached blocks; n_blocks is the list's head */
};

struct block_pool {
    int n_blocks, block_size;
    int n_free, n_cached;
    bool caching;              /* full blocks are made known */
    int32_t *free;             /* [n_blocks] stack of n_free */
    struct block *block;       /* [n_blocks + 1], the last is the head of the cached ones */
    struct prefix_cache known; /* its arrays exist even when caching is off */
    struct window_pool windows;
    void (*on_evict)(void *arg, int32_t block); /* a known block is about to be taken; or NULL */
    void *arg;
};

void block_pool_init(struct block_pool *pool, int n_blocks, int block_size, bool caching);
void block_pool_free(struct block_pool *pool);

/* Blocks that block_pool_acquire could give now. */
static inline int block_pool_available(const struct block_pool *pool) {
    return pool->n_free + pool->n_cached;
}

static inline int block_pool_references(const struct block_pool *pool, int32_t block) {
    return pool->block[block].references;
}

/* Blocks that hold `slots` slots. */
static inline int block_pool_blocks_for(const struct block_pool *pool, int slots) {
    return (slots + pool->block_size - 1) / pool->block_size;
}

/* A block with one reference, the caller's, who watches it; there must be one available, and a
 * window block. Its old content is evicted. */
int32_t block_pool_acquire(struct block_pool *pool);

/* The same of a block that the windows of its holder have passed: it gets no window block. */
int32_t block_pool_acquire_unseen(struct block_pool *pool);

/* One more reference to a used or cached block. Watching it is another matter (window_pool.h). */
void block_pool_share(struct block_pool *pool, int32_t block);

/* One reference less. */
void block_pool_release(struct block_pool *pool, int32_t block);

/* Makes a used block that its holder watches known as `key`, or, when another block is known as
 * it, gives that one in its place: the caller's reference then stands on the known one and its own
 * copy, which has the same bytes, is released. Returns the block that the caller now holds. */
int32_t block_pool_register(struct block_pool *pool, int32_t block, const struct block_key *key);

/* Makes a used block known as what was known by this id before, and is not now. */
void block_pool_restore(struct block_pool *pool, int32_t block, const struct block_key *key,
                        uint64_t id);

#endif
