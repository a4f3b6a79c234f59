/* Internal to server/traces. */
#ifndef PENSTOCK_SERVER_TRACES_INTERNAL_H
#define PENSTOCK_SERVER_TRACES_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/traces/traces.h"

enum {
    TRACE_SPANS = 2048, /* requests that run, wait for the thread, or are being sent */
    TRACE_BATCH = 128,  /* requests in one message: less than 1 MiB */
};

/* ---- context.c ------------------------------------------------------------------------------- */

/* Writes 2n hex digits, without a NUL. */
void trace_hex_write(char *out, const unsigned char *bytes, int n);

/* ---- settings.c: the endpoint and the OTEL_ variables ---------------------------------------- */

struct trace_settings {
    char *url;
    char **headers; /* [n_headers] "Name: value"; may hold secrets */
    int n_headers;
    long timeout_ms;         /* of one message */
    const char *authorities; /* file of certificates; NULL: the library's own */
    struct buf resource;     /* the JSON of the attributes of this process: [...] */
};

/* Reads the settings. Fails with STATUS_USAGE; no message shows a header's value. Free the settings
 * in all cases. */
enum status trace_settings_read(struct trace_settings *settings, const char *endpoint,
                                struct err *err);
void trace_settings_free(struct trace_settings *settings);

/* Reads the next pair of "name=value,name=value", percent-decoded and without white space around
 * it, and moves *at past it. Returns false if it is not of that form. The name is empty at the end.
 * The buffers are cleared first. */
bool trace_pair_next(const char **at, struct buf *name, struct buf *value);

/* ---- encode.c -------------------------------------------------------------------------------- */

/* Appends the message of the spans of a list: ExportTraceServiceRequest of OTLP, in the JSON form
 * of Protobuf. */
void traces_encode(struct buf *out, const struct buf *resource, const struct list *spans);

/* Appends an attribute with a text to a list that begins with '['. */
void attribute_text(struct buf *out, const char *key, const char *text);

/* Reads the collector's answer. Returns the number of spans that it rejected, and copies its
 * message, or "". */
uint64_t traces_rejected(const char *answer, size_t length, char *message, size_t size);

/* ---- queue.c: the pool of spans, and the queue ----------------------------------------------- */

/* Every span is in `free`, with a request, in `ended`, or in the list of the thread. The mutex
 * guards the lists; it is held only to move nodes. */
struct span_queue {
    pthread_mutex_t mutex;
    pthread_cond_t changed;   /* on CLOCK_MONOTONIC */
    struct trace_span *spans; /* [TRACE_SPANS] */
    struct list free, ended;
    uint64_t oldest_ns; /* when the first of `ended` arrived */
    bool stops;
};

void queue_init(struct span_queue *queue);
void queue_free(struct span_queue *queue);

/* Takes a free span, or returns NULL. It is zeroed. */
struct trace_span *queue_take(struct span_queue *queue);

/* Appends an ended span, and wakes the thread if it has a reason to wake. */
void queue_end(struct span_queue *queue, struct trace_span *span);

/* Waits until spans have waited for delay_ms, or a batch is full, or the queue stops. Moves at most
 * TRACE_BATCH spans to an empty list. Returns false if the queue has stopped and is empty. */
bool queue_wait(struct span_queue *queue, int delay_ms, struct list *batch);

/* Waits for that time, or until the queue stops. */
void queue_sleep(struct span_queue *queue, int64_t ms);

/* Returns the spans of a list to the pool. */
void queue_return(struct span_queue *queue, struct list *batch);

/* Wakes the thread for the last time. */
void queue_stop(struct span_queue *queue);
bool queue_has_stopped(struct span_queue *queue);

/* ---- send.c: one message --------------------------------------------------------------------- */

enum sent {
    SENT_ACCEPTED,
    SENT_AGAIN,   /* the failure may pass */
    SENT_REFUSED, /* sending it again does not help */
};

/* A connection to the collector. For one thread; sender_wake is for any thread. */
struct sender;

/* Fails with STATUS_SYSTEM if libcurl is missing. */
enum status sender_new(struct sender **out, const struct trace_settings *settings, struct err *err);
void sender_free(struct sender *sender);

/* Sends a message. *deadline_ns may be set by another thread, which then calls sender_wake: the
 * message is given up at that time (now_ns(); 0: no limit but the timeout). `why` gets a phrase for
 * the log, *retry_ms the collector's Retry-After (-1: none), *rejected the number of spans that an
 * accepting collector rejected. */
enum sent sender_post(struct sender *sender, const struct buf *message,
                      const _Atomic uint64_t *deadline_ns, struct buf *why, int64_t *retry_ms,
                      uint64_t *rejected);
void sender_wake(struct sender *sender);

#endif
