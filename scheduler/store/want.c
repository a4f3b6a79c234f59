/* want: chooses the parts of a prompt to read, and holds the memory of the parts read. */
#include <assert.h>
#include <string.h>

#include "config/config.h"
#include "scheduler/kv/window_pool.h"
#include "scheduler/store/internal.h"

#define MAX_READING ((size_t)512 << 20) /* memory of all parts that are read and not restored */

/* ---- which parts ----------------------------------------------------------------------------- */

/* Returns the first block whose window block the first row after n blocks sees. */
static int first_window(const struct prefix_store *store, int n) {
    const struct prefix_store_config *config = &store->config;
    if (!store->part[PART_WINDOW].is_used) return n;
    return window_first_seen(config->window, config->block_size, n * config->block_size);
}

int want_end(const struct prefix_store *store, const struct prefix_read *read, bool with_stored) {
    bool needs_window = store->part[PART_WINDOW].is_used;
    bool needs_state = store->part[PART_STATE].is_used;
    int end = 0, lacking = -1; /* the last block without a window block */
    for (int i = 0; i < read->n_blocks; i++) {
        struct part_flags flags = read->flags[i];
        uint8_t has = flags.known | (with_stored ? flags.stored : 0);
        if (!part_is_in(has, PART_BLOCK)) break;
        if (needs_window && !part_is_in(has, PART_WINDOW)) lacking = i;
        if (needs_state && !part_is_in(has, PART_STATE)) continue;
        if (lacking < first_window(store, i + 1)) end = i + 1;
    }
    return end;
}

static void want(struct prefix_read *read, enum cache_part part, int block) {
    struct part_flags flags = read->flags[block];
    if (part_is_in(flags.known, part)) return;
    assert(part_is_in(flags.stored, part));
    read->wanted[read->n_wanted++] = (struct wanted_part){part, block};
}

void want_parts(const struct prefix_store *store, struct prefix_read *read) {
    read->n_wanted = 0;
    read->end = want_end(store, read, true);
    assert(read->end >= read->known_end);
    if (read->end == read->known_end) return;
    for (int i = 0; i < read->end; i++) want(read, PART_BLOCK, i);
    for (int i = first_window(store, read->end); i < read->end; i++) want(read, PART_WINDOW, i);
    if (store->part[PART_STATE].is_used) want(read, PART_STATE, read->end - 1);
}

size_t want_most_bytes(const struct prefix_store *store, const struct prefix_read *read) {
    size_t bytes = store->part[PART_STATE].record_bytes;
    int from = first_window(store, read->n_blocks);
    for (int i = 0; i < read->n_blocks; i++) {
        uint8_t known = read->flags[i].known;
        if (!part_is_in(known, PART_BLOCK)) bytes += store->part[PART_BLOCK].record_bytes;
        if (i >= from && !part_is_in(known, PART_WINDOW))
            bytes += store->part[PART_WINDOW].record_bytes;
    }
    return bytes;
}

/* ---- what was read --------------------------------------------------------------------------- */

static size_t content_bytes(const struct prefix_store *store, const struct prefix_read *read) {
    size_t bytes = 0;
    for (int i = 0; i < read->n_wanted; i++)
        bytes += store->config.part_bytes[read->wanted[i].part];
    return bytes;
}

struct restored_prefix *restored_prefix_new(struct prefix_store *store,
                                            const struct prefix_read *read) {
    size_t bytes = content_bytes(store, read);
    struct restored_prefix *prefix = NULL;
    assert(read->n_wanted > 0);
    if (atomic_fetch_add(&store->reading_bytes, bytes) + bytes <= MAX_READING)
        prefix = mem_try_calloc(1, sizeof *prefix);
    if (!prefix) {
        atomic_fetch_sub(&store->reading_bytes, bytes);
        return NULL;
    }
    prefix->store = store;
    prefix->bytes = bytes;
    prefix->part = mem_try_calloc((size_t)read->n_wanted, sizeof *prefix->part);
    prefix->data = mem_try_alloc(bytes + 1); /* blocks may have no bytes */
    if (prefix->part && prefix->data) return prefix;
    restored_prefix_free(prefix);
    return NULL;
}

void restored_prefix_add(struct restored_prefix *prefix, const struct prefix_read *read,
                         const uint8_t *record) {
    const struct prefix_store *store = prefix->store;
    const struct wanted_part *wanted = &read->wanted[prefix->n_parts];
    size_t size = store->config.part_bytes[wanted->part];
    uint8_t *to = prefix->data + prefix->filled;
    assert(prefix->n_parts < read->n_wanted && prefix->filled + size <= prefix->bytes);
    prefix->filled += size;
    memcpy(to, record + record_content_at(store), size);
    prefix->part[prefix->n_parts++] = (struct restored_part){wanted->part, wanted->block, to};
}

struct restored_prefix *restored_prefix_end(struct restored_prefix *prefix,
                                            struct prefix_read *read) {
    const struct prefix_store *store = prefix->store;
    int n = 0;
    for (int i = 0; i < read->n_blocks; i++) read->flags[i].stored = 0;
    for (int i = 0; i < prefix->n_parts; i++)
        read->flags[prefix->part[i].block].stored |= (uint8_t)(1 << prefix->part[i].part);
    prefix->n_blocks = want_end(store, read, true);
    assert(prefix->n_blocks >= read->known_end && prefix->n_blocks <= read->end);
    for (int i = 0; i < prefix->n_parts; i++)
        if (prefix->part[i].block < prefix->n_blocks) prefix->part[n++] = prefix->part[i];
    prefix->n_parts = n;
    if (prefix->n_blocks > read->known_end) return prefix;
    restored_prefix_free(prefix);
    return NULL;
}

void restored_prefix_free(struct restored_prefix *prefix) {
    if (!prefix) return;
    atomic_fetch_sub(&prefix->store->reading_bytes, prefix->bytes);
    mem_free(prefix->part);
    mem_free(prefix->data);
    mem_free(prefix);
}
