/* prefix_cache: which full blocks are known, so that equal prefixes share them.
 *
 * A full block is looked up by the hash of everything up to its end: XXH3_128 over the hash of
 * the block before it and its own tokens, where the salt stands before the first block.
 *
 *     salt --> hash 0 = H(salt, tokens 0..B-1) --> hash 1 = H(hash 0, tokens B..2B-1) --> ...
 *
 * The hash only finds the candidates. A block matches when its own tokens are equal and its
 * parent is what matched before it (or it is a first block under an equal salt): so, by induction,
 * the whole history is equal and a collision can cost time but never bytes. What is known is named
 * by an id, which is given once and never again, and stays with it where it moves to another cache;
 * so of a chain that lost its middle, the rest is found no more.
 *
 * All memory is taken in prefix_cache_init. Engine thread only, but for prefix_hash, which is
 * pure.
 */
#ifndef PENSTOCK_PREFIX_CACHE_H
#define PENSTOCK_PREFIX_CACHE_H

#include <assert.h>

#include "engine/engine.h"

struct block_hash {
    uint64_t low, high;
};

/* What is known of one block. */
struct known_block {
    struct block_hash hash;
    uint64_t salt[2];
    uint64_t id, parent; /* its own, and that of the block before it, or 0 */
    int32_t next;        /* in its bucket, or -1 */
    bool known;
};

struct prefix_cache {
    int n_blocks, block_size;
    int n_known;
    uint64_t n_ids; /* given by this cache */
    uint64_t bucket_mask;
    uint64_t hash_mask;        /* all ones; tests clear bits to make hashes collide */
    int32_t *bucket;           /* [bucket_mask + 1] first block, or -1 */
    struct known_block *block; /* [n_blocks] */
    int32_t *tokens;           /* [n_blocks][block_size] */
};

/* A full block's identity, as it is looked up. */
struct block_key {
    struct block_hash hash;
    const uint64_t *salt;  /* [2] */
    const int32_t *tokens; /* [block_size] */
    uint64_t parent;       /* the id of the block before it, or 0 */
};

void prefix_cache_init(struct prefix_cache *cache, int n_blocks, int block_size);
void prefix_cache_free(struct prefix_cache *cache);

/* The hash of a block of n tokens that follows `parent`; for a first block, parent is the salt.
 * Any thread. */
struct block_hash prefix_hash(struct block_hash parent, const int32_t *tokens, int n);

/* The known block that is `key`, or -1. */
int32_t prefix_cache_find(const struct prefix_cache *cache, const struct block_key *key);

/* How many of n blocks, of which the first is `key`, are known one after the other; their numbers
 * go to blocks[n], where that is not NULL. `hashes` are those of all n, and their tokens stand one
 * after the other. */
int prefix_cache_match(const struct prefix_cache *cache, struct block_key key,
                       const struct block_hash *hashes, int n, int32_t *blocks);

/* Makes `block` known as `key`, which was not known before. `id`: what the same was known as
 * before, or 0 for a new id. */
void prefix_cache_add(struct prefix_cache *cache, int32_t block, const struct block_key *key,
                      uint64_t id);

/* Forgets a block. */
void prefix_cache_remove(struct prefix_cache *cache, int32_t block);

/* The tokens of what a block was last known as. */
static inline const int32_t *prefix_cache_tokens(const struct prefix_cache *cache, int32_t block) {
    return cache->tokens + (size_t)block * (size_t)cache->block_size;
}

/* A known block's id; 0 for no block (-1). */
static inline uint64_t prefix_cache_id(const struct prefix_cache *cache, int32_t block) {
    assert(block < 0 || cache->block[block].known);
    return block < 0 ? 0 : cache->block[block].id;
}

static inline bool prefix_cache_knows(const struct prefix_cache *cache, int32_t block) {
    return cache->block[block].known;
}

#endif
