/* The index of the parts that are stored, or that the pool knows. */
#include <assert.h>
#include <string.h>

#include "config/config.h"
#include "scheduler/store/internal.h"

void index_init(struct prefix_store *store, size_t n) {
    /* Records take at most half of it, parts of the pool an eighth. */
    size_t known = N_CACHE_PARTS * (size_t)store->config.n_blocks;
    store->capacity = 64;
    while (store->capacity < 2 * n || store->capacity < 8 * known) store->capacity *= 2;
    store->index = mem_calloc(store->capacity, sizeof *store->index);
    store->spare = mem_calloc(store->capacity, sizeof *store->spare);
    for (size_t i = 0; i < store->capacity; i++) store->index[i].segment = -1;
}

/* Returns the part's entry, or the free entry for it. */
static struct stored_part *index_place(struct prefix_store *store, enum cache_part part,
                                       struct block_hash hash) {
    size_t i = (hash.low + (size_t)part * 0x9E3779B97F4A7C15u) & (store->capacity - 1);
    for (;; i = (i + 1) & (store->capacity - 1)) {
        struct stored_part *entry = &store->index[i];
        bool is_it =
            entry->part == part && entry->hash.low == hash.low && entry->hash.high == hash.high;
        if (entry->segment < 0 || is_it) return entry;
    }
}

struct stored_part *store_index_find(struct prefix_store *store, enum cache_part part,
                                     struct block_hash hash) {
    struct stored_part *found = index_place(store, part, hash);
    return found->segment >= 0 && found->record >= 0 ? found : NULL;
}

/* Open addressing without deleted entries: those that stay are added again. */
static void index_keep(struct prefix_store *store, bool (*stays)(const struct stored_part *entry)) {
    struct stored_part *old = store->index;
    store->index = store->spare;
    store->spare = old;
    store->n_indexed = 0;
    store->n_stored = 0;
    for (size_t i = 0; i < store->capacity; i++) store->index[i].segment = -1;
    for (size_t i = 0; i < store->capacity; i++) {
        if (old[i].segment < 0 || !stays(&old[i])) continue;
        *index_place(store, old[i].part, old[i].hash) = old[i];
        store->n_indexed++;
        store->n_stored += old[i].record >= 0;
    }
}

static bool is_known_part(const struct stored_part *entry) {
    return entry->is_known;
}

static bool is_of_use(const struct stored_part *entry) {
    return entry->is_known || entry->record >= 0;
}

void index_drop_segment(struct prefix_store *store, int segment) {
    for (size_t i = 0; i < store->capacity; i++)
        if (store->index[i].segment == segment) store->index[i].record = -1;
    index_keep(store, is_of_use);
}

/* Returns the part's entry, or adds one. If the index is full, entries without a use are dropped,
 * or, if records may be forgotten, all parts that the pool does not know. */
static struct stored_part *index_make(struct prefix_store *store, enum cache_part part,
                                      struct block_hash hash) {
    struct stored_part *entry = index_place(store, part, hash);
    if (entry->segment >= 0) return entry;
    if (store->n_indexed + 1 > store->capacity / 4 * 3) {
        index_keep(store, store->backend->forgets ? is_known_part : is_of_use);
        entry = index_place(store, part, hash);
    }
    assert(store->n_indexed < store->capacity / 4 * 3);
    store->n_indexed++;
    *entry = (struct stored_part){.hash = hash, .record = -1, .part = (uint8_t)part};
    return entry;
}

void index_note(struct prefix_store *store, enum cache_part part, struct block_hash hash,
                bool is_known) {
    if (is_known || index_place(store, part, hash)->segment >= 0)
        index_make(store, part, hash)->is_known = is_known;
}

bool index_is_known(struct prefix_store *store, enum cache_part part, struct block_hash hash) {
    const struct stored_part *entry = index_place(store, part, hash);
    return entry->segment >= 0 && entry->is_known;
}

void index_set_stored(struct prefix_store *store, enum cache_part part, struct block_hash hash,
                      int segment, int record) {
    bool is_new = index_place(store, part, hash)->segment < 0;
    bool is_full = (size_t)store->n_stored >= store->capacity / 2 && !store->backend->forgets;
    assert(segment >= 0 && record >= -1);
    if ((record < 0 && is_new) || (record >= 0 && is_full)) return;
    struct stored_part *entry = index_make(store, part, hash);
    store->n_stored += (record >= 0) - (entry->record >= 0);
    entry->segment = segment;
    entry->record = record;
    assert(store->n_stored >= 0 && (size_t)store->n_stored <= store->n_indexed);
}
