#include <assert.h>
#include <string.h>

#include "config/config.h"
#include "scheduler/store/internal.h"

void index_init(struct prefix_store *store, size_t n) {
    store->capacity = 64;
    while (store->capacity < 2 * n) store->capacity *= 2;
    store->index = mem_calloc(store->capacity, sizeof *store->index);
    store->spare = mem_calloc(store->capacity, sizeof *store->spare);
    for (size_t i = 0; i < store->capacity; i++) store->index[i].segment = -1;
}

/* Returns the block's entry, or the free entry for it. */
static struct stored_block *index_place(struct prefix_store *store, struct block_hash hash) {
    size_t i = hash.low & (store->capacity - 1);
    while (store->index[i].segment >= 0 &&
           (store->index[i].hash.low != hash.low || store->index[i].hash.high != hash.high))
        i = (i + 1) & (store->capacity - 1);
    return &store->index[i];
}

struct stored_block *store_index_find(struct prefix_store *store, struct block_hash hash) {
    struct stored_block *found = index_place(store, hash);
    return found->segment >= 0 && found->record >= 0 ? found : NULL;
}

void index_add(struct prefix_store *store, struct block_hash hash, int segment, int record,
               bool is_known) {
    struct stored_block *entry = index_place(store, hash);
    assert(segment >= 0 && record >= 0);
    if (entry->segment < 0) {
        if ((size_t)store->n_indexed + 1 > store->capacity / 4 * 3) return;
        store->n_indexed++;
    }
    *entry = (struct stored_block){hash, segment, record, is_known};
}

/* Open addressing without deleted entries: those that stay are added again. */
static void index_keep(struct prefix_store *store,
                       bool (*stays)(const struct stored_block *entry, int segment), int segment) {
    struct stored_block *old = store->index;
    store->index = store->spare;
    store->spare = old;
    store->n_indexed = 0;
    for (size_t i = 0; i < store->capacity; i++) store->index[i].segment = -1;
    for (size_t i = 0; i < store->capacity; i++) {
        if (old[i].segment < 0 || !stays(&old[i], segment)) continue;
        *index_place(store, old[i].hash) = old[i];
        store->n_indexed++;
    }
}

static bool is_of_other_segment(const struct stored_block *entry, int segment) {
    return entry->segment != segment && entry->record >= 0;
}

void index_drop_segment(struct prefix_store *store, int segment) {
    index_keep(store, is_of_other_segment, segment);
}

/* ---- blocks that the pool knows -------------------------------------------------------------- */

static bool is_known_block(const struct stored_block *entry, int segment) {
    (void)segment;
    return entry->is_known;
}

/* Returns the block's entry, or adds one. The others are forgotten if the index
 * is full: the pool's blocks fit into a quarter of it. */
static struct stored_block *index_make(struct prefix_store *store, struct block_hash hash) {
    struct stored_block *entry = index_place(store, hash);
    if (entry->segment >= 0) return entry;
    if ((size_t)store->n_indexed + 1 > store->capacity / 4 * 3) {
        index_keep(store, is_known_block, 0);
        entry = index_place(store, hash);
    }
    assert((size_t)store->n_indexed < store->capacity / 4 * 3);
    store->n_indexed++;
    *entry = (struct stored_block){hash, 0, -1, false};
    return entry;
}

void index_note(struct prefix_store *store, struct block_hash hash, bool is_known) {
    if (is_known || index_place(store, hash)->segment >= 0)
        index_make(store, hash)->is_known = is_known;
}

bool index_is_known(struct prefix_store *store, struct block_hash hash) {
    const struct stored_block *entry = index_place(store, hash);
    return entry->segment >= 0 && entry->is_known;
}

void index_set_stored(struct prefix_store *store, struct block_hash hash, bool is_stored) {
    if (is_stored || index_place(store, hash)->segment >= 0)
        index_make(store, hash)->record = is_stored ? 0 : -1;
}
