#include "scheduler/kv/event_ring.h"

#include <assert.h>
#include <string.h>

#include "config/config.h"

enum { MIN_EVENTS = 1024 }; /* so that a small pool does not overflow in one step */

static uint64_t ring_capacity(int n_blocks) {
    uint64_t capacity = MIN_EVENTS;
    while (capacity <= (uint64_t)n_blocks) capacity *= 2;
    return capacity;
}

static size_t event_bytes(uint64_t capacity) {
    return (size_t)capacity * sizeof(struct block_event);
}

static size_t token_bytes(uint64_t capacity, int block_size) {
    return (size_t)capacity * (size_t)block_size * sizeof(int32_t);
}

size_t event_ring_bytes(int n_blocks, int block_size) {
    uint64_t capacity = ring_capacity(n_blocks);
    return event_bytes(capacity) + token_bytes(capacity, block_size);
}

struct event_ring *event_ring_new(int n_blocks, int block_size) {
    assert(n_blocks > 0 && block_size > 0 && block_size <= MAX_BLOCK_SIZE);
    struct event_ring *ring = mem_calloc(1, sizeof *ring);
    ring->n_blocks = n_blocks;
    ring->block_size = block_size;
    ring->capacity = ring_capacity(n_blocks);
    ring->event = mem_large(event_bytes(ring->capacity));
    ring->tokens = mem_large(token_bytes(ring->capacity, block_size));
    return ring;
}

void event_ring_free(struct event_ring *ring) {
    if (!ring) return;
    uint64_t capacity = ring_capacity(ring->n_blocks);
    mem_large_free(ring->event, event_bytes(capacity));
    mem_large_free(ring->tokens, token_bytes(capacity, ring->block_size));
    mem_free(ring);
}

/* ---- engine thread -------------------------------------------------------------------------- */

static bool is_public(const struct known_block *known) {
    return known->salt[0] == 0 && known->salt[1] == 0;
}

static bool ring_is_full(const struct event_ring *ring) {
    uint64_t unread = ring->written - atomic_load_explicit(&ring->tail, memory_order_acquire);
    assert(unread <= ring->capacity);
    return unread == ring->capacity;
}

/* Returns the place of the next event. The ring must not be full. */
static uint64_t ring_next(struct event_ring *ring) {
    assert(!ring_is_full(ring));
    return ring->written++ & (ring->capacity - 1);
}

/* Writes the event of a block. A stored block also gets its tokens. */
static void write_block(struct event_ring *ring, enum block_change change, int32_t block) {
    const struct known_block *known = &ring->pool->known.block[block];
    uint64_t place = ring_next(ring);
    assert(known->known && is_public(known));
    ring->event[place] = (struct block_event){.change = change,
                                              .has_parent = known->parent != 0,
                                              .id = known->id,
                                              .hash = known->hash.low,
                                              .parent = known->parent_hash.low};
    if (change != BLOCK_STORED) return;
    memcpy(ring->tokens + place * (uint64_t)ring->block_size,
           prefix_cache_tokens(&ring->pool->known, block),
           (size_t)ring->block_size * sizeof *ring->tokens);
}

static void note_change(struct event_ring *ring, enum block_change change, int32_t block) {
    if (!is_public(&ring->pool->known.block[block])) return;
    if (atomic_load_explicit(&ring->lost, memory_order_relaxed)) return;
    if (ring_is_full(ring)) {
        atomic_store(&ring->lost, true);
        return;
    }
    write_block(ring, change, block);
}

static void note_known(void *arg, const struct block_parts *parts) {
    note_change(arg, BLOCK_STORED, parts->block);
}

static void note_evict(void *arg, const struct block_parts *parts) {
    note_change(arg, BLOCK_REMOVED, parts->block);
}

void event_ring_observe(struct event_ring *ring, struct block_pool *pool) {
    const struct block_observer observer = {note_known, note_evict, ring};
    assert(!ring->pool && ring->written == 0);
    assert(pool->n_blocks == ring->n_blocks && pool->block_size == ring->block_size);
    ring->pool = pool;
    block_pool_observe(pool, &observer);
}

/* `lost` is cleared first: a reader that sets it from now on gets another BLOCKS_CLEARED. */
static void write_all(struct event_ring *ring) {
    atomic_store(&ring->lost, false);
    uint64_t first = ring_next(ring);
    int n = 0;
    for (int32_t b = 0; b < ring->n_blocks; b++) {
        const struct known_block *known = &ring->pool->known.block[b];
        if (!known->known || !is_public(known)) continue;
        write_block(ring, BLOCK_STORED, b);
        n++;
    }
    ring->event[first] = (struct block_event){.change = BLOCKS_CLEARED, .n_known = n};
}

void event_ring_end_step(struct event_ring *ring) {
    if (atomic_load(&ring->lost) && ring->written == atomic_load(&ring->tail)) write_all(ring);
    bool has_news = ring->written != atomic_load(&ring->head) || atomic_load(&ring->lost);
    atomic_store(&ring->head, ring->written);
    if (has_news && ring->wake) ring->wake(ring->arg);
}

/* ---- reader --------------------------------------------------------------------------------- */

void event_ring_restart(struct event_ring *ring) {
    atomic_store(&ring->lost, true);
}

bool event_ring_waits(const struct event_ring *ring) {
    return atomic_load(&ring->lost) && event_ring_ready(ring) == 0;
}

uint64_t event_ring_ready(const struct event_ring *ring) {
    return atomic_load(&ring->head) - atomic_load(&ring->tail);
}

static uint64_t ring_place(const struct event_ring *ring, uint64_t i) {
    assert(i < event_ring_ready(ring));
    return (atomic_load_explicit(&ring->tail, memory_order_relaxed) + i) & (ring->capacity - 1);
}

const struct block_event *event_ring_at(const struct event_ring *ring, uint64_t i) {
    return &ring->event[ring_place(ring, i)];
}

const int32_t *event_ring_tokens(const struct event_ring *ring, uint64_t i) {
    assert(event_ring_at(ring, i)->change == BLOCK_STORED);
    return ring->tokens + ring_place(ring, i) * (uint64_t)ring->block_size;
}

void event_ring_consume(struct event_ring *ring, uint64_t n) {
    assert(n <= event_ring_ready(ring));
    atomic_fetch_add(&ring->tail, n);
}
