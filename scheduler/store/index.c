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

/* Open addressing without deleted entries: the others are added again. */
void index_drop_segment(struct prefix_store *store, int segment) {
    struct stored_block *old = store->index;
    store->index = store->spare;
    store->spare = old;
    store->n_indexed = 0;
    for (size_t i = 0; i < store->capacity; i++) store->index[i].segment = -1;
    for (size_t i = 0; i < store->capacity; i++) {
        if (old[i].segment < 0 || old[i].segment == segment || old[i].record < 0) continue;
        index_add(store, old[i].hash, old[i].segment, old[i].record, old[i].is_known);
    }
}
