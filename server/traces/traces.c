/* DESIGN: traces of requests, from the loop thread to the collector.
 *
 *     loop thread --queue.c--> exporter thread --send.c--> collector
 *
 * The loop thread only moves nodes of lists, so the collector cannot delay a request. The exporter
 * thread sleeps until the first span has waited for DELAY_MS or a batch is full; an idle server
 * uses no CPU.
 *
 * A message that fails in a way that may pass is sent again, up to MAX_TRIES times, after the
 * collector's Retry-After or a pause that doubles. Then its spans are lost, which is counted. At
 * the end of the server, traces_close sets a deadline, and the thread sends what is there: each
 * message once, and none after a failure or the deadline.
 *
 * Lack of memory loses the batch, not the process: a message is written in a scope of memory.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "server/traces/internal.h"

enum {
    DELAY_MS = 1000, /* that a span may wait for others */
    MAX_TRIES = 5,
    FIRST_PAUSE_MS = 1000, /* before the second try; then it doubles */
    MAX_PAUSE_MS = 30000,  /* also of a Retry-After */
};

struct traces {
    struct trace_settings settings;
    uint64_t bound; /* a new trace is sampled if 63 bits of its id are below it */
    struct span_queue queue;
    struct sender *sender;
    pthread_t thread;
    bool started;
    _Atomic uint64_t deadline_ns; /* of the end; 0: the server serves */
    _Atomic uint64_t sent, queue_full, failed, rejected_spans;
    /* the thread's: */
    struct buf message, why;
    bool is_failing; /* the last batch was lost: the log says so once */
};

/* ---- opening --------------------------------------------------------------------------------- */

enum status traces_open(struct traces **out, const struct traces_config *config, struct err *err) {
    struct traces *traces = mem_calloc(1, sizeof *traces);
    assert(config->ratio >= 0 && config->ratio <= 1);
    traces->bound = (uint64_t)(config->ratio * 0x1p63);
    enum status status = trace_settings_read(&traces->settings, config->endpoint, err);
    if (!status) status = sender_new(&traces->sender, &traces->settings, err);
    if (!status) queue_init(&traces->queue);
    *out = traces;
    if (status) {
        traces_close(traces);
        *out = NULL;
    }
    return status;
}

size_t traces_bytes(const struct traces *traces) {
    (void)traces;
    return TRACE_SPANS * sizeof(struct trace_span);
}

const char *traces_url(const struct traces *traces) {
    return traces->settings.url;
}

void traces_stats(const struct traces *traces, struct traces_stats *out) {
    *out = (struct traces_stats){.sent = atomic_load(&traces->sent),
                                 .queue_full = atomic_load(&traces->queue_full),
                                 .failed = atomic_load(&traces->failed),
                                 .rejected_spans = atomic_load(&traces->rejected_spans)};
}

/* ---- spans ----------------------------------------------------------------------------------- */

static int64_t clock_offset(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)now_ns();
}

/* Draws 63 bits of a new trace's id, as other samplers do: equal ids have equal results. */
static bool is_drawn(const struct traces *traces, const struct trace_context *context) {
    uint64_t low = 0;
    for (int i = TRACE_ID_BYTES / 2; i < TRACE_ID_BYTES; i++) low = low << 8 | context->trace_id[i];
    return low >> 1 < traces->bound;
}

/* Makes the ids of a span. Returns false if it is not sampled. */
static bool make_context(const struct traces *traces, const struct trace_context *parent,
                         struct trace_context *own) {
    struct {
        unsigned char trace[TRACE_ID_BYTES], span[SPAN_ID_BYTES];
    } drawn;
    if (parent && !(parent->flags & TRACE_SAMPLED)) return false;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) return false;
    drawn.trace[0] |= !parent; /* not all zero */
    drawn.span[0] |= 1;
    memcpy(own->span_id, drawn.span, sizeof own->span_id);
    memcpy(own->trace_id, parent ? parent->trace_id : drawn.trace, sizeof own->trace_id);
    own->flags = parent ? parent->flags : TRACE_SAMPLED;
    return parent || is_drawn(traces, own);
}

struct trace_span *traces_begin(struct traces *traces, const char *traceparent,
                                const char *tracestate, uint64_t start_ns) {
    struct trace_context parent, own;
    bool has_parent = traceparent && trace_context_read(&parent, traceparent);
    if (!make_context(traces, has_parent ? &parent : NULL, &own)) return NULL;
    struct trace_span *span = queue_take(&traces->queue);
    if (!span) {
        atomic_fetch_add(&traces->queue_full, 1);
        return NULL;
    }
    span->own = own;
    span->has_parent = has_parent;
    if (has_parent) memcpy(span->parent_id, parent.span_id, sizeof span->parent_id);
    if (has_parent && tracestate) trace_state_read(span->state, tracestate);
    trace_context_write(&own, span->response);
    span->clock_ns = clock_offset();
    span->start_ns = start_ns;
    return span;
}

void traces_end(struct traces *traces, struct trace_span *span) {
    assert(span->start_ns > 0 && span->method);
    if (!span->end_ns) span->end_ns = now_ns();
    queue_end(&traces->queue, span);
}

/* ---- the thread ------------------------------------------------------------------------------ */

struct encoding {
    struct traces *traces;
    const struct list *batch;
};

static void encode(void *arg) {
    const struct encoding *encoding = arg;
    traces_encode(&encoding->traces->message, &encoding->traces->settings.resource,
                  encoding->batch);
}

static void drop_message(void *arg) {
    buf_free(&((const struct encoding *)arg)->traces->message);
}

/* Arguments of a try, which may lack memory. */
struct try {
    struct traces *traces;
    enum sent sent;
    int64_t retry_ms;
    uint64_t rejected;
};

static void post(void *arg) {
    struct try *try = arg;
    struct traces *traces = try->traces;
    try->sent = sender_post(traces->sender, &traces->message, &traces->deadline_ns, &traces->why,
                            &try->retry_ms, &try->rejected);
}

static void drop_why(void *arg) {
    buf_free(&((const struct try *)arg)->traces->why);
}

/* Returns the pause before a try: Retry-After, or one that doubles, with jitter of up to a half so
 * that many servers do not send at once. */
static int64_t pause_ms(int tries, int64_t retry_ms) {
    if (retry_ms >= 0) return min_int64(retry_ms, MAX_PAUSE_MS);
    int64_t most = min_int64((int64_t)FIRST_PAUSE_MS << tries, MAX_PAUSE_MS);
    return most / 2 + (int64_t)(now_ns() % (uint64_t)(most / 2 + 1));
}

static void note_lost(struct traces *traces, int n) {
    atomic_fetch_add(&traces->failed, (uint64_t)n);
    if (!traces->is_failing)
        log_line(LOG_WARNING, "traces: the spans of %d requests are lost, at %s: %s", n,
                 traces->settings.url, traces->why.length > 0 ? traces->why.data : "no memory");
    traces->is_failing = true;
}

static void note_sent(struct traces *traces, int n, uint64_t rejected) {
    atomic_fetch_add(&traces->sent, (uint64_t)n);
    atomic_fetch_add(&traces->rejected_spans, rejected);
    if (traces->is_failing)
        log_line(LOG_INFO, "traces: %s accepts spans again", traces_url(traces));
    if (rejected > 0)
        log_line(LOG_WARNING, "traces: %s rejects %llu spans: %s", traces_url(traces),
                 (unsigned long long)rejected, traces->why.length > 0 ? traces->why.data : "");
    traces->is_failing = false;
}

/* Sends the message, again if the failure may pass. Returns false if its spans are lost. */
static bool send_message(struct traces *traces, int n) {
    for (int tries = 0; tries < MAX_TRIES; tries++) {
        struct try try = {.traces = traces, .sent = SENT_AGAIN, .retry_ms = -1};
        mem_run(post, drop_why, &try);
        if (try.sent == SENT_ACCEPTED) {
            note_sent(traces, n, try.rejected);
            return true;
        }
        bool is_last = tries + 1 == MAX_TRIES || try.sent == SENT_REFUSED;
        if (is_last || queue_has_stopped(&traces->queue)) break;
        log_line(LOG_DEBUG, "traces: %s: try %d: %s", traces_url(traces), tries + 1,
                 traces->why.length > 0 ? traces->why.data : "no memory");
        queue_sleep(&traces->queue, pause_ms(tries, try.retry_ms));
    }
    note_lost(traces, n);
    return false;
}

/* Returns false if the batch is lost. */
static bool send_batch(struct traces *traces, const struct list *batch) {
    struct encoding encoding = {traces, batch};
    buf_clear(&traces->message);
    buf_clear(&traces->why);
    assert(batch->n > 0 && batch->n <= TRACE_BATCH);
    if (mem_run(encode, drop_message, &encoding)) return send_message(traces, batch->n);
    note_lost(traces, batch->n);
    return false;
}

static void *exporter_thread(void *arg) {
    struct traces *traces = arg;
    struct list batch;
    bool gives_up = false; /* at the end, after a failure */
    list_init(&batch);
    while (queue_wait(&traces->queue, DELAY_MS, &batch)) {
        if (gives_up)
            atomic_fetch_add(&traces->failed, (uint64_t)batch.n);
        else if (!send_batch(traces, &batch))
            gives_up = queue_has_stopped(&traces->queue);
        queue_return(&traces->queue, &batch);
    }
    return NULL;
}

enum status traces_start(struct traces *traces, struct err *err) {
    assert(!traces->started);
    int failed = pthread_create(&traces->thread, NULL, exporter_thread, traces);
    if (failed)
        return err_set(err, STATUS_SYSTEM, NULL,
                       "The thread of --otlp-traces-endpoint cannot be started: %s",
                       strerror(failed));
    traces->started = true;
    return STATUS_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void stop(struct traces *traces) {
    struct traces_stats before, after;
    traces_stats(traces, &before);
    atomic_store(&traces->deadline_ns, now_ns() + (uint64_t)TRACES_FLUSH_MS * 1000000);
    queue_stop(&traces->queue);
    sender_wake(traces->sender);
    pthread_join(traces->thread, NULL);
    traces->started = false;
    traces_stats(traces, &after);
    if (after.failed > before.failed)
        log_line(LOG_WARNING, "traces: the spans of the last %llu requests were not sent",
                 (unsigned long long)(after.failed - before.failed));
}

void traces_close(struct traces *traces) {
    if (!traces) return;
    if (traces->started) stop(traces);
    sender_free(traces->sender);
    queue_free(&traces->queue);
    trace_settings_free(&traces->settings);
    buf_free(&traces->message);
    buf_free(&traces->why);
    mem_free(traces);
}
