#include "scheduler/kv/prefix_cache.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "config/config.h"

static size_t bucket_bytes(const struct prefix_cache *cache) {
    return (cache->bucket_mask + 1) * sizeof *cache->bucket;
}

static size_t prefix_block_bytes(const struct prefix_cache *cache) {
    return (size_t)cache->n_blocks * sizeof *cache->block;
}

static size_t prefix_token_bytes(const struct prefix_cache *cache) {
    return (size_t)cache->n_blocks * (size_t)cache->block_size * sizeof *cache->tokens;
}

void prefix_cache_init(struct prefix_cache *cache, int n_blocks, int block_size) {
    assert(n_blocks > 0 && block_size > 0 && block_size <= MAX_BLOCK_SIZE);
    /* at least twice the number of blocks: a look-up usually meets one candidate */
    uint64_t n_buckets = 16;
    while (n_buckets < 2 * (uint64_t)n_blocks) n_buckets *= 2;
    *cache = (struct prefix_cache){.n_blocks = n_blocks,
                                   .block_size = block_size,
                                   .bucket_mask = n_buckets - 1,
                                   .hash_mask = UINT64_MAX};
    assert((cache->bucket_mask & (cache->bucket_mask + 1)) == 0);
    cache->bucket = mem_large(bucket_bytes(cache));
    cache->block = mem_large(prefix_block_bytes(cache));
    cache->tokens = mem_large(prefix_token_bytes(cache));
    memset(cache->bucket, 0xff, bucket_bytes(cache));
}

void prefix_cache_free(struct prefix_cache *cache) {
    mem_large_free(cache->bucket, bucket_bytes(cache));
    mem_large_free(cache->block, prefix_block_bytes(cache));
    mem_large_free(cache->tokens, prefix_token_bytes(cache));
}

struct block_hash prefix_hash(struct block_hash parent, const int32_t *tokens, int n) {
    unsigned char text[sizeof parent + MAX_BLOCK_SIZE * sizeof *tokens];
    assert(n > 0 && n <= MAX_BLOCK_SIZE);
    memcpy(text, &parent, sizeof parent);
    memcpy(text + sizeof parent, tokens, (size_t)n * sizeof *tokens);
    XXH128_hash_t hash = XXH3_128bits(text, sizeof parent + (size_t)n * sizeof *tokens);
    return (struct block_hash){hash.low64, hash.high64};
}

static int32_t *prefix_bucket(const struct prefix_cache *cache, struct block_hash hash) {
    return &cache->bucket[hash.low & cache->hash_mask & cache->bucket_mask];
}

/* Equal hashes prove nothing: parent, salt and tokens are compared too. */
static bool same_block(const struct prefix_cache *cache, int32_t block,
                       const struct block_key *key) {
    const struct known_block *known = &cache->block[block];
    uint64_t low = known->hash.low ^ key->hash.low, high = known->hash.high ^ key->hash.high;
    if (((low | high) & cache->hash_mask) != 0) return false;
    if (known->parent != key->parent) return false;
    if (known->salt[0] != key->salt[0] || known->salt[1] != key->salt[1]) return false;
    return memcmp(prefix_cache_tokens(cache, block), key->tokens,
                  (size_t)cache->block_size * sizeof *cache->tokens) == 0;
}

int32_t prefix_cache_find(const struct prefix_cache *cache, const struct block_key *key) {
    for (int32_t b = *prefix_bucket(cache, key->hash); b >= 0; b = cache->block[b].next) {
        assert(cache->block[b].known);
        if (same_block(cache, b, key)) return b;
    }
    return -1;
}

int prefix_cache_match(const struct prefix_cache *cache, struct block_key key,
                       const struct block_hash *hashes, int n, int32_t *blocks) {
    for (int i = 0; i < n; i++, key.tokens += cache->block_size) {
        key.hash = hashes[i];
        int32_t block = prefix_cache_find(cache, &key);
        if (block < 0) return i;
        if (blocks) blocks[i] = block;
        key.parent = cache->block[block].id;
    }
    return n;
}

void prefix_cache_add(struct prefix_cache *cache, int32_t block, const struct block_key *key,
                      uint64_t id) {
    struct known_block *known = &cache->block[block];
    assert(!known->known);
    int32_t *bucket = prefix_bucket(cache, key->hash);
    *known = (struct known_block){.hash = key->hash,
                                  .parent_hash = key->parent_hash,
                                  .salt = {key->salt[0], key->salt[1]},
                                  .id = id ? id : ++cache->n_ids,
                                  .parent = key->parent,
                                  .next = *bucket,
                                  .known = true};
    *bucket = block;
    memcpy(cache->tokens + (size_t)block * (size_t)cache->block_size, key->tokens,
           (size_t)cache->block_size * sizeof *cache->tokens);
    cache->n_known++;
}

void prefix_cache_remove(struct prefix_cache *cache, int32_t block) {
    struct known_block *known = &cache->block[block];
    assert(known->known);
    int32_t *place = prefix_bucket(cache, known->hash);
    while (*place != block) {
        assert(*place >= 0);
        place = &cache->block[*place].next;
    }
    *place = known->next;
    known->known = false;
    cache->n_known--;
}
