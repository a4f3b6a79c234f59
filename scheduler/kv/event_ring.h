/* event_ring: changes of the known blocks, from the engine thread to one reading thread.
 *
 * DESIGN. The engine thread writes one event for each block that becomes known or is evicted, and
 * never waits. A reader that applies all events in order knows the blocks that the pool knows at
 * the end of a step. Blocks with a salt are private to their clients and have no events.
 *
 *     engine thread   write .. write | end_step: head = written, wake the reader
 *     ring            [consumed][ tail .. ready .. head ][ head .. this step .. written ]
 *     reader          ready, at, consume: tail += n
 *
 * If the ring is full, or the reader wants to begin again (event_ring_restart), `lost` is set and
 * nothing more is written. When the reader has consumed all events, the next end_step writes
 * BLOCKS_CLEARED and then all known blocks. They fit: the ring has a place for each block. If the
 * engine thread sleeps by then, the reader must wake it (scheduler_wake).
 *
 * event_ring_new allocates all memory. The functions for the reader are for one thread at a time.
 */
#ifndef PENSTOCK_EVENT_RING_H
#define PENSTOCK_EVENT_RING_H

#include <stdatomic.h>

#include "scheduler/kv/block_pool.h"

enum block_change {
    BLOCK_STORED,
    BLOCK_REMOVED,
    BLOCKS_CLEARED, /* forget all blocks; n_known stored blocks follow, in no order */
};

struct block_event {
    enum block_change change;
    bool has_parent;       /* false: the first block of its prefix */
    int n_known;           /* of BLOCKS_CLEARED */
    uint64_t id;           /* of BLOCK_STORED; larger than the parent's */
    uint64_t hash, parent; /* low halves of the block's hash and of its parent's */
};

struct event_ring {
    int n_blocks, block_size;
    uint64_t capacity;         /* a power of two, more than n_blocks */
    struct block_event *event; /* [capacity] */
    int32_t *tokens;           /* [capacity][block_size] of BLOCK_STORED */
    const struct block_pool *pool;
    uint64_t written;            /* events so far, including this step's; engine thread only */
    _Atomic uint64_t head, tail; /* events that may be read; events that were consumed */
    _Atomic bool lost;           /* events are missing since `written` */
    /* Called on the engine thread at the end of a step if there is anything to read or to ask for.
     * Must not block. NULL: the reader polls. */
    void (*wake)(void *arg);
    void *arg;
};

/* Makes an empty ring for a pool of this size; frees it. */
struct event_ring *event_ring_new(int n_blocks, int block_size);
void event_ring_free(struct event_ring *ring);

/* Returns the bytes that event_ring_new allocates. */
size_t event_ring_bytes(int n_blocks, int block_size);

/* ---- engine thread -------------------------------------------------------------------------- */

/* Observes the pool, which must be empty and must have the size of event_ring_new. */
void event_ring_observe(struct event_ring *ring, struct block_pool *pool);

/* Lets the reader see the events of a step. Writes all known blocks if events are lost and the ring
 * is empty. */
void event_ring_end_step(struct event_ring *ring);

/* ---- reader --------------------------------------------------------------------------------- */

/* Asks for all known blocks: events are lost until BLOCKS_CLEARED. The reader then consumes all
 * events and wakes the engine thread. */
void event_ring_restart(struct event_ring *ring);

/* Must the reader wake the engine thread? True if events are lost and all others are consumed. */
bool event_ring_waits(const struct event_ring *ring);

/* Returns the number of events that can be read. */
uint64_t event_ring_ready(const struct event_ring *ring);

/* Returns the event after `i` others, i < event_ring_ready; and the tokens of a BLOCK_STORED
 * [block_size]. Both are valid until they are consumed. */
const struct block_event *event_ring_at(const struct event_ring *ring, uint64_t i);
const int32_t *event_ring_tokens(const struct event_ring *ring, uint64_t i);

/* Consumes the first n events. */
void event_ring_consume(struct event_ring *ring, uint64_t n);

#endif
