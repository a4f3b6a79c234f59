/* restore: parts of the prefix cache that come from a store, and parts that go to it.
 *
 * A block that becomes known is copied into the store's queue with its window block, and so is the
 * state of a checkpoint. Parts that were read for a prompt become known to the pool before the
 * request is planned: they are used like all known blocks and checkpoints, and the plan does not
 * know of the store. They are cached, so they are evicted if others need the room.
 */
#include <assert.h>

#include "scheduler/internal.h"
#include "scheduler/store/prefix_store.h"

/* ---- parts for the store --------------------------------------------------------------------- */

/* Returns the entry of a block if its parts are stored, or NULL: the block is not known, or a salt
 * makes its prefix private. */
static const struct known_block *stored_block(const struct scheduler *s, int32_t block) {
    const struct known_block *known = &s->pool.known.block[block];
    bool is_public = known->salt[0] == 0 && known->salt[1] == 0;
    return known->known && is_public ? known : NULL;
}

/* Offers part number `i` of the cache, which belongs to a block, to the store. */
static void store_part(struct scheduler *s, enum cache_part part, int32_t block, int32_t i) {
    const struct known_block *known = stored_block(s, block);
    struct prefix_store *store = s->config.prefix_store;
    if (!known) return;
    void *content = prefix_store_reserve(store, part, known->hash, known->parent_hash,
                                         prefix_cache_tokens(&s->pool.known, block));
    if (content) {
        s->port.part_get(s->port.self, part, i, content);
        prefix_store_put(store, part);
    }
    prefix_store_note(store, part, known->hash, true);
}

static void note_lost(struct scheduler *s, enum cache_part part, int32_t block) {
    const struct known_block *known = stored_block(s, block);
    if (known) prefix_store_note(s->config.prefix_store, part, known->hash, false);
}

static void store_known(void *arg, const struct block_parts *parts) {
    store_part(arg, PART_BLOCK, parts->block, parts->block);
    if (parts->window >= 0) store_part(arg, PART_WINDOW, parts->block, parts->window);
}

static void store_evict(void *arg, const struct block_parts *parts) {
    note_lost(arg, PART_BLOCK, parts->block);
    if (parts->window >= 0) note_lost(arg, PART_WINDOW, parts->block);
}

static void store_window(void *arg, int32_t block) {
    struct scheduler *s = arg;
    assert(s->pool.windows.of[block] >= 0);
    store_part(s, PART_WINDOW, block, s->pool.windows.of[block]);
}

static void lose_window(void *arg, int32_t block) {
    note_lost(arg, PART_WINDOW, block);
}

static void store_state(void *arg, int32_t block, int32_t state) {
    store_part(arg, PART_STATE, block, state);
}

static void lose_state(void *arg, int32_t block) {
    note_lost(arg, PART_STATE, block);
}

void restore_init(struct scheduler *s) {
    const struct block_observer blocks = {store_known, store_evict, s};
    const struct window_observer windows = {store_window, lose_window, s};
    const struct checkpoint_observer states = {store_state, lose_state, s};
    if (!s->config.prefix_store) return;
    assert(s->config.prefix_caching && s->port.part_get && s->port.part_put);
    assert(s->port.in_flight == 1 && s->port.swap.n_host_blocks == 0);
    block_pool_observe(&s->pool, &blocks);
    if (s->pool.windows.n > 0) window_pool_observe(&s->pool.windows, &windows);
    if (s->checkpoints.n > 0) checkpoints_observe(&s->checkpoints, &states);
    s->restored = mem_calloc((size_t)s->pool.n_blocks, sizeof *s->restored);
}

/* ---- parts from the store -------------------------------------------------------------------- */

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
    s->port.part_put(s->port.self, PART_BLOCK, block, content);
    return block_pool_register(&s->pool, block, key);
}

/* Writes the blocks of the prefix to s->restored, with a reference each, up to the first that is
 * neither known nor restored. Returns their number. The chain is held from its start, so that no
 * block of it is evicted for another one. */
static int restore_chain(struct scheduler *s, const struct sequence *sequence,
                         const struct restored_prefix *prefix) {
    const struct restored_part *next = prefix->part, *end = next + prefix->n_parts;
    int32_t parent = -1;
    for (int i = 0; i < prefix->n_blocks; i++) {
        struct block_key key = sequence_key(sequence, i, prefix_cache_id(&s->pool.known, parent));
        bool is_own = next < end && next->part == PART_BLOCK && next->block == i;
        parent = restore_block(s, &key, is_own ? next->content : NULL);
        if (parent < 0) return i;
        s->restored[i] = parent;
        next += is_own;
    }
    return prefix->n_blocks;
}

/* Gives the held blocks the window blocks that the next row sees, as many as there is room for.
 * They are watched meanwhile, so that none is reused for another one. */
static void restore_windows(struct scheduler *s, const struct restored_prefix *prefix) {
    struct window_pool *windows = &s->pool.windows;
    int first = window_pool_first_seen(windows, prefix->n_blocks * s->pool.block_size);
    if (windows->n == 0) return;
    for (int i = first; i < prefix->n_blocks; i++)
        if (window_pool_has(windows, s->restored[i])) window_pool_watch(windows, s->restored[i]);
    for (int i = 0; i < prefix->n_parts; i++) {
        const struct restored_part *part = &prefix->part[i];
        if (part->part != PART_WINDOW || part->block < first) continue;
        int32_t block = s->restored[part->block];
        if (window_pool_has(windows, block)) continue;
        if (window_pool_available(windows) == 0) break;
        window_pool_attach(windows, block);
        s->port.part_put(s->port.self, PART_WINDOW, windows->of[block], part->content);
        prefix_store_note(prefix->store, PART_WINDOW, s->pool.known.block[block].hash, true);
    }
    for (int i = prefix->n_blocks - 1; i >= first; i--)
        if (window_pool_has(windows, s->restored[i]))
            window_pool_unwatch(windows, s->restored[i], true);
}

static void restore_state(struct scheduler *s, const struct restored_prefix *prefix) {
    const struct restored_part *last = &prefix->part[prefix->n_parts - 1];
    if (last->part != PART_STATE) return;
    int32_t block = s->restored[prefix->n_blocks - 1];
    assert(last->block == prefix->n_blocks - 1);
    if (s->checkpoints.of[block] >= 0) return;
    int32_t state = checkpoints_restore(&s->checkpoints, block);
    s->port.part_put(s->port.self, PART_STATE, state, last->content);
    prefix_store_note(prefix->store, PART_STATE, s->pool.known.block[block].hash, true);
}

/* The blocks are released from the end, as sequences do. */
void restore_prefix(struct scheduler *s, struct request *request) {
    struct restored_prefix *prefix = request->generation->restored;
    if (!prefix) return;
    assert(s->config.prefix_store == prefix->store && s->n_in_flight == 0);
    assert(prefix->n_parts > 0 && prefix->n_blocks <= s->pool.n_blocks);
    assert(prefix->n_blocks * s->pool.block_size <= request->n_prompt);
    int n = restore_chain(s, &request->sequence[0], prefix);
    if (n == prefix->n_blocks) {
        restore_windows(s, prefix);
        restore_state(s, prefix);
    }
    while (n > 0) block_pool_release(&s->pool, s->restored[--n]);
    request->generation->restored = NULL;
    restored_prefix_free(prefix);
}
