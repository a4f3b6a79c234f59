/* prefix_cache: the full blocks that are known, so that equal prefixes share them.
 *
 * A full block is looked up by the hash of everything up to its end: XXH3_128 over the hash of the
 * block before it and its own tokens. The salt is the hash before the first block.
 *
 *     salt --> hash 0 = H(salt, tokens 0..B-1) --> hash 1 = H(hash 0, tokens B..2B-1) --> ...
 *
 * The hash only finds candidates. A block matches if its tokens are equal and its parent is the
 * block that matched before it (a first block needs an equal salt). By induction the whole history
 * is equal, so a collision can cost time but never wrong bytes. Each known block has an id. An id
 * is never reused, and it stays with content that moves to another cache. So if a block of a chain
 * is lost, the blocks after it are not found again.
 *
 * prefix_cache_init allocates all memory. Engine thread only, except prefix_hash, which is pure.
 */
#ifndef PENSTOCK_PREFIX_CACHE_H
#define PENSTOCK_PREFIX_CACHE_H

#include <assert.h>

#include "engine/engine.h"

struct block_hash {
    uint64_t low, high;
};

/* The entry of one block. */
struct known_block {
    struct block_hash hash, parent_hash; /* the block before the first one has the salt as hash */
    uint64_t salt[2];
    uint64_t id, parent; /* id of the block, and of the block before it, or 0 */
    int32_t next;        /* next block of its bucket, or -1 */
    bool known;
};

struct prefix_cache {
    int n_blocks, block_size;
    int n_known;
    uint64_t n_ids; /* number of ids that this cache has assigned */
    uint64_t bucket_mask;
    uint64_t hash_mask;        /* all ones; tests clear bits to make hashes collide */
    int32_t *bucket;           /* [bucket_mask + 1] first block, or -1 */
    struct known_block *block; /* [n_blocks] */
    int32_t *tokens;           /* [n_blocks][block_size] */
};

/* The identity of a full block for a look-up. */
struct block_key {
    struct block_hash hash;
    const uint64_t *salt;  /* [2] */
    const int32_t *tokens; /* [block_size] */
    uint64_t parent;       /* id of the block before it, or 0 */
    /* hash of the block before it; not compared, but kept for those who read the entries */
    struct block_hash parent_hash;
};

/* Allocates an empty cache with room for n_blocks known blocks; frees it. */
void prefix_cache_init(struct prefix_cache *cache, int n_blocks, int block_size);
void prefix_cache_free(struct prefix_cache *cache);

/* Returns the hash of a block of n tokens that follows `parent`. For a first block, parent is the
 * salt. Any thread. */
struct block_hash prefix_hash(struct block_hash parent, const int32_t *tokens, int n);

/* Returns the known block that is `key`, or -1. */
int32_t prefix_cache_find(const struct prefix_cache *cache, const struct block_key *key);

/* Returns how many of n consecutive blocks are known, up to the first that is not. `key` is that of
 * the first block, `hashes` are those of all n, and their tokens are contiguous. Writes the numbers
 * of the blocks to blocks[n], unless that is NULL. */
int prefix_cache_match(const struct prefix_cache *cache, struct block_key key,
                       const struct block_hash *hashes, int n, int32_t *blocks);

/* Registers `block` as `key`, which must not be known. `id` is the id of an earlier registration of
 * the same content, or 0 for a new id. */
void prefix_cache_add(struct prefix_cache *cache, int32_t block, const struct block_key *key,
                      uint64_t id);

/* Removes a block from the cache. */
void prefix_cache_remove(struct prefix_cache *cache, int32_t block);

/* Returns the tokens of a block's last registration. */
static inline const int32_t *prefix_cache_tokens(const struct prefix_cache *cache, int32_t block) {
    return cache->tokens + (size_t)block * (size_t)cache->block_size;
}

/* Returns the id of a known block; 0 for block -1. */
static inline uint64_t prefix_cache_id(const struct prefix_cache *cache, int32_t block) {
    assert(block < 0 || cache->block[block].known);
    return block < 0 ? 0 : cache->block[block].id;
}

/* Is the block registered? */
static inline bool prefix_cache_knows(const struct prefix_cache *cache, int32_t block) {
    return cache->block[block].known;
}

#endif
