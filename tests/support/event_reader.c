#include "support/event_reader.h"

#include <assert.h>
#include <string.h>

#include "config/config.h"

struct seen_block {
    bool used, has_parent;
    uint64_t hash, parent;
};

struct event_reader *event_reader_new(int n_blocks, int block_size) {
    struct event_reader *reader = mem_calloc(1, sizeof *reader);
    reader->ring = event_ring_new(n_blocks, block_size);
    reader->ring->capacity = 1;
    while (reader->ring->capacity <= (uint64_t)n_blocks) reader->ring->capacity *= 2;
    reader->capacity = 4 * (int)reader->ring->capacity;
    reader->set = mem_calloc((size_t)reader->capacity, sizeof *reader->set);
    reader->tokens = mem_calloc((size_t)(reader->capacity * block_size), sizeof *reader->tokens);
    return reader;
}

void event_reader_free(struct event_reader *reader) {
    if (!reader) return;
    event_ring_free(reader->ring);
    mem_free(reader->set);
    mem_free(reader->tokens);
    mem_free(reader);
}

/* ---- the set -------------------------------------------------------------------------------- */

/* Returns the place of a block, or the free place for it. */
static int place_of(const struct event_reader *reader, uint64_t hash) {
    int place = (int)(hash & (uint64_t)(reader->capacity - 1));
    while (reader->set[place].used && reader->set[place].hash != hash)
        place = (place + 1) & (reader->capacity - 1);
    return place;
}

static int32_t *tokens_at(const struct event_reader *reader, int place) {
    return reader->tokens + (size_t)place * (size_t)reader->ring->block_size;
}

static void move(struct event_reader *reader, int from, int to) {
    if (from == to) return;
    reader->set[to] = reader->set[from];
    memcpy(tokens_at(reader, to), tokens_at(reader, from),
           (size_t)reader->ring->block_size * sizeof(int32_t));
    reader->set[from].used = false;
}

/* Closes the gap that a removed block leaves. */
static void set_remove(struct event_reader *reader, int place) {
    reader->set[place].used = false;
    reader->n_seen--;
    for (int i = (place + 1) & (reader->capacity - 1); reader->set[i].used;
         i = (i + 1) & (reader->capacity - 1)) {
        struct seen_block block = reader->set[i];
        reader->set[i].used = false;
        int to = place_of(reader, block.hash);
        reader->set[i] = block;
        move(reader, i, to);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static void store(struct event_reader *reader, const struct block_event *event,
                  const int32_t *tokens, bool in_order) {
    int place = place_of(reader, event->hash);
    assert(!reader->set[place].used && reader->n_seen < reader->ring->n_blocks);
    assert(!in_order || !event->has_parent || reader->set[place_of(reader, event->parent)].used);
    reader->set[place] = (struct seen_block){true, event->has_parent, event->hash, event->parent};
    memcpy(tokens_at(reader, place), tokens, (size_t)reader->ring->block_size * sizeof(int32_t));
    reader->n_seen++;
    reader->n_stored++;
}

static void forget(struct event_reader *reader, const struct block_event *event) {
    int place = place_of(reader, event->hash);
    assert(reader->set[place].used);
    set_remove(reader, place);
    reader->n_removed++;
}

static void forget_all(struct event_reader *reader) {
    memset(reader->set, 0, (size_t)reader->capacity * sizeof *reader->set);
    reader->n_seen = 0;
    reader->n_cleared++;
}

int event_reader_apply(struct event_reader *reader) {
    int n = (int)event_ring_ready(reader->ring), listed = 0;
    for (int i = 0; i < n; i++) {
        const struct block_event *event = event_ring_at(reader->ring, (uint64_t)i);
        assert(listed == 0 || event->change == BLOCK_STORED);
        if (event->change == BLOCKS_CLEARED) {
            forget_all(reader);
            listed = event->n_known;
        } else if (event->change == BLOCK_REMOVED) {
            forget(reader, event);
        } else {
            store(reader, event, event_ring_tokens(reader->ring, (uint64_t)i), listed == 0);
            if (listed > 0) listed--;
        }
    }
    assert(listed == 0);
    event_ring_consume(reader->ring, (uint64_t)n);
    return n;
}

void event_reader_check(const struct event_reader *reader, const struct block_pool *pool) {
    int n = 0;
    assert(event_ring_ready(reader->ring) == 0 && !event_ring_waits(reader->ring));
    for (int32_t b = 0; b < pool->n_blocks; b++) {
        const struct known_block *known = &pool->known.block[b];
        if (!known->known || known->salt[0] || known->salt[1]) continue;
        int place = place_of(reader, known->hash.low);
        const struct seen_block *seen = &reader->set[place];
        assert(seen->used && seen->has_parent == (known->parent != 0));
        assert(seen->parent == known->parent_hash.low);
        assert(memcmp(tokens_at(reader, place), prefix_cache_tokens(&pool->known, b),
                      (size_t)pool->block_size * sizeof(int32_t)) == 0);
        n++;
    }
    assert(n == reader->n_seen);
}
