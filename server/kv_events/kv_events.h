/* server/kv_events: tells subscribers which prefixes the KV cache has, in vLLM's form, so that a
 * router sends a prompt to the replica that has its beginning.
 *
 * A `struct kv_events` is a ring (scheduler/kv/event_ring.h), the sockets of libzmq and one thread,
 * which publishes the ring's events. Each message has a topic, a sequence number (8 bytes,
 * big-endian) and a batch in MessagePack: [time, events, rank]. A new subscriber gets
 * AllBlocksCleared and all known blocks; so does everybody after events were lost. A second socket
 * replays recent batches.
 *
 * Order: open, make the scheduler with the ring, start; stop, free the scheduler, close. One thread
 * calls these functions.
 */
#ifndef PENSTOCK_SERVER_KV_EVENTS_H
#define PENSTOCK_SERVER_KV_EVENTS_H

#include "config/config.h"

struct event_ring;
struct kv_events;

struct kv_events_config {
    const char *endpoint;        /* tcp://HOST:PORT; HOST * for all addresses, PORT * for any */
    const char *replay_endpoint; /* the same, or NULL: no replay */
    const char *topic;           /* of all messages; NULL: "" */
    int n_blocks, block_size;    /* of the pool */
};

/* Loads libzmq, allocates the memory and binds the sockets. Fails with STATUS_SYSTEM if the library
 * is missing or an endpoint cannot be bound, and with STATUS_USAGE if an endpoint is not of its
 * form. */
enum status kv_events_open(struct kv_events **events, const struct kv_events_config *config,
                           struct err *err);

/* Returns the ring, which belongs to `events`. */
struct event_ring *kv_events_ring(struct kv_events *events);

/* Returns the bytes of the ring and of the kept batches. */
size_t kv_events_bytes(const struct kv_events *events);

/* Starts the thread. It calls wake_engine(arg) to have the engine thread run a step. */
enum status kv_events_start(struct kv_events *events, void (*wake_engine)(void *arg), void *arg,
                            struct err *err);

/* Publishes the remaining events and AllBlocksCleared, and ends the thread. Does nothing if it was
 * not started. */
void kv_events_stop(struct kv_events *events);

/* Frees everything; NULL is allowed. */
void kv_events_close(struct kv_events *events);

/* Appends the answer of GET /kv_event_sources: an object by rank, empty if `events` is NULL. */
void kv_events_write_sources(const struct kv_events *events, struct buf *out);

#endif
