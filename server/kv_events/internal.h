/* Internal to server/kv_events. */
#ifndef PENSTOCK_SERVER_KV_EVENTS_INTERNAL_H
#define PENSTOCK_SERVER_KV_EVENTS_INTERNAL_H

#include "scheduler/kv/event_ring.h"
#include "server/kv_events/kv_events.h"

/* ---- batch.c: events of a ring as MessagePack ----------------------------------------------- */

/* Limits of one batch. A batch of the largest blocks has less than 1 MiB. */
enum { BATCH_BLOCKS = 256 };

/* One event of the batch: n consecutive events of the ring with the same change. The stored blocks
 * of a run are a chain: each is the parent of the next. */
struct event_run {
    enum block_change change;
    uint64_t first; /* index in `order` */
    int n;
};

/* A batch, and the memory to make it. The events are those of the ring in the order of `order`. */
struct event_batch {
    const struct event_ring *ring;
    uint64_t *order; /* [ring->capacity] indices for event_ring_at */
    struct event_run run[BATCH_BLOCKS];
    int n_runs;
    char *data; /* [capacity] MessagePack */
    size_t length, capacity;
};

/* Allocates the memory for a ring; frees it. */
void event_batch_init(struct event_batch *batch, const struct event_ring *ring);
void event_batch_free(struct event_batch *batch);

/* Sets the order for the n events that can be read: that of the ring, but blocks that follow
 * BLOCKS_CLEARED are sorted: parents precede their children. */
void event_batch_order(struct event_batch *batch, uint64_t n);

/* Makes a batch of the ordered events from..n-1, as many as fit, at `time` in seconds since 1970.
 * Returns the number of events. */
uint64_t event_batch_make(struct event_batch *batch, uint64_t from, uint64_t n, double time);

/* Makes a batch with AllBlocksCleared alone. */
void event_batch_make_cleared(struct event_batch *batch, double time);

/* ---- replay.c: recent batches --------------------------------------------------------------- */

enum { KEPT_BATCHES = 10000 };        /* as vLLM keeps */
#define KEPT_BYTES ((size_t)32 << 20) /* more than the largest batch */

struct kept_batch {
    uint64_t sequence;
    size_t offset, length; /* in `data` */
};

/* The most recent batches, limited by number and bytes. The oldest are dropped. */
struct kept_batches {
    struct kept_batch *batch; /* [KEPT_BATCHES] ring of n from first */
    int first, n;
    char *data; /* [KEPT_BYTES] */
    size_t end; /* end of the newest batch */
};

/* Allocates an empty list; frees it. */
void replay_init(struct kept_batches *replay);
void replay_free(struct kept_batches *replay);

/* Keeps a copy of a batch. Sequence numbers increase by one. */
void replay_add(struct kept_batches *replay, uint64_t sequence, const char *data, size_t length);

/* Returns the i-th kept batch, the oldest first. Its bytes start at data + offset. */
const struct kept_batch *replay_at(const struct kept_batches *replay, int i);

/* Returns the index of the first kept batch with this sequence number or a later one; n if there is
 * none. */
int replay_find(const struct kept_batches *replay, uint64_t sequence);

#endif
