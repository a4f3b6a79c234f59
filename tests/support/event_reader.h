/* event_reader: a subscriber of the changes of the known blocks. It applies the events of a ring to
 * a set of its own, and compares the set with the blocks that the pool knows. */
#ifndef PENSTOCK_TEST_EVENT_READER_H
#define PENSTOCK_TEST_EVENT_READER_H

#include "scheduler/kv/event_ring.h"

struct event_reader {
    struct event_ring *ring;
    int capacity;           /* of the set; a power of two */
    struct seen_block *set; /* [capacity] open addressing */
    int32_t *tokens;        /* [capacity][block_size] */
    int n_seen;
    uint64_t n_stored, n_removed, n_cleared;
};

/* Makes a reader with a ring of the smallest capacity. Frees both. */
struct event_reader *event_reader_new(int n_blocks, int block_size);
void event_reader_free(struct event_reader *reader);

/* Applies all events that can be read. Each event must be possible: a stored block is new and its
 * parent, if it has one, is known, except among the blocks after BLOCKS_CLEARED, which are in no
 * order. A removed block is known. Returns their number. */
int event_reader_apply(struct event_reader *reader);

/* Compares the set with the blocks without salt that the pool knows: hash, parent and tokens. The
 * events must be applied, and none may be lost. */
void event_reader_check(const struct event_reader *reader, const struct block_pool *pool);

#endif
