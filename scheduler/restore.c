/* restore: blocks of the prefix cache that come from a store, and blocks that go to it.
 *
 * A block that becomes known is copied into the store's queue. Blocks that were read for a prompt
 * become known to the pool before the request is planned: they are used like all known blocks,
 * and the plan does not know of the store. They are cached, so they are evicted if others
 * need the room.
 */
#include <assert.h>

#include "scheduler/internal.h"
#include "scheduler/store/prefix_store.h"

static bool is_public(const struct known_block *known) {
    return known->salt[0] == 0 && known->salt[1] == 0;
}

static void store_known(void *arg, const struct block_parts *parts) {
    struct scheduler *s = arg;
    const struct known_block *known = &s->pool.known.block[parts->block];
    if (!is_public(known)) return;
    void *content = prefix_store_reserve(s->config.prefix_store, known->hash, known->parent_hash,
                                         prefix_cache_tokens(&s->pool.known, parts->block));
    if (content) {
        s->port.block_get(s->port.self, parts->block, content);
        prefix_store_put(s->config.prefix_store);
    }
    prefix_store_note(s->config.prefix_store, known->hash, true);
}

static void store_evict(void *arg, const struct block_parts *parts) {
    struct scheduler *s = arg;
    const struct known_block *known = &s->pool.known.block[parts->block];
    if (is_public(known)) prefix_store_note(s->config.prefix_store, known->hash, false);
}

void restore_init(struct scheduler *s) {
    const struct block_observer observer = {store_known, store_evict, s};
    if (!s->config.prefix_store) return;
    assert(s->config.prefix_caching && s->port.block_get && s->port.block_put);
    assert(s->port.in_flight == 1 && s->config.n_window_blocks == 0);
    block_pool_observe(&s->pool, &observer);
    s->restored = mem_calloc((size_t)s->pool.n_blocks, sizeof *s->restored);
}

/* Returns the known block of a prompt's block, with a reference. If it is not known, its content is
 * `content`: it gets a block. Returns -1 if there is no content, or no room. */
static int32_t restore_block(struct scheduler *s, const struct block_key *key,
                             const uint8_t *content) {
    int32_t block = prefix_cache_find(&s->pool.known, key);
    if (block >= 0) {
        block_pool_share(&s->pool, block);
        return block;
    }
    if (!content || block_pool_available(&s->pool) == 0) return -1;
    block = block_pool_acquire_unseen(&s->pool);
    s->port.block_put(s->port.self, block, content);
    return block_pool_register(&s->pool, block, key);
}

/* The chain is held from its start, so that no block of it is evicted for another one, and released
 * from its end, as sequences do. */
void restore_blocks(struct scheduler *s, struct request *request) {
    struct restored_blocks *blocks = request->generation->restored;
    struct sequence *sequence = &request->sequence[0];
    if (!blocks) return;
    int32_t parent = -1, *table = s->restored;
    int n = 0, end = blocks->first + blocks->n;
    assert(s->config.prefix_store && s->n_in_flight == 0);
    assert(end * s->pool.block_size <= request->n_prompt && end <= s->pool.n_blocks);
    for (; n < end; n++) {
        struct block_key key = sequence_key(sequence, n, prefix_cache_id(&s->pool.known, parent));
        int own = n - blocks->first;
        parent = restore_block(s, &key,
                               own < 0 ? NULL : blocks->data + (size_t)own * blocks->block_bytes);
        if (parent < 0) break;
        table[n] = parent;
    }
    while (n > 0) block_pool_release(&s->pool, table[--n]);
    request->generation->restored = NULL;
    restored_blocks_free(blocks);
}
