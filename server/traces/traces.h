/* server/traces: sends traces of requests to a collector of OpenTelemetry, and reads the headers of
 * W3C Trace Context (https://www.w3.org/TR/trace-context/).
 *
 * A `struct traces` is a pool of spans, a queue and one thread with a connection of libcurl. The
 * loop thread begins a span with a request, fills it in and ends it. The thread writes ended spans
 * as OTLP/HTTP JSON, sends them, and returns them to the pool. A span has times, names and counts;
 * it never has text of a prompt or of an answer.
 *
 * The loop thread calls these functions, unless a comment says otherwise. Only traces_close
 * waits.
 */
#ifndef PENSTOCK_SERVER_TRACES_H
#define PENSTOCK_SERVER_TRACES_H

#include "config/config.h"
#include "config/list.h"

struct traces;

/* ---- context: the headers of a request ------------------------------------------------------- */

enum {
    TRACE_ID_BYTES = 16,
    SPAN_ID_BYTES = 8,
    TRACE_PARENT_BYTES = 56, /* of a traceparent header, including NUL */
    TRACE_STATE_BYTES = 513, /* of a tracestate header, including NUL */
};

enum { TRACE_SAMPLED = 1, TRACE_RANDOM = 2 }; /* flags */

struct trace_context {
    unsigned char trace_id[TRACE_ID_BYTES], span_id[SPAN_ID_BYTES]; /* neither is all zero */
    unsigned char flags;
};

/* Reads the value of a traceparent header of any version. Returns false if it is invalid; the
 * specification says that a new trace then begins. Pure; any thread. */
bool trace_context_read(struct trace_context *out, const char *text);

/* Writes a traceparent of version 00. Pure; any thread. */
void trace_context_write(const struct trace_context *context, char out[TRACE_PARENT_BYTES]);

/* Reads the values of all tracestate headers, joined by commas. Writes the members without white
 * space, as many from the front as fit. Returns false, and writes "", if a member is invalid. Pure;
 * any thread. */
bool trace_state_read(char out[TRACE_STATE_BYTES], const char *text);

/* ---- spans ----------------------------------------------------------------------------------- */

/* The parts of a request that generates, in their order: each has a child span. */
enum trace_phase {
    PHASE_RECEIVED, /* from the headers to the end of the body */
    PHASE_PREPARED, /* a worker parses, renders, tokenises and compiles */
    PHASE_QUEUED,   /* until the first step */
    PHASE_PREFILL,  /* until the first token */
    PHASE_DECODE,   /* until the last token */
    N_TRACE_PHASES
};

enum { MAX_TRACE_FINISHES = 8, TRACE_NAME_BYTES = 128, TRACE_ERROR_BYTES = 48 };

/* A request that generates or reads. Texts have static storage or that of a served name. */
struct trace_generation {
    const char *operation;                    /* "chat"; NULL: it is another request */
    char model[TRACE_NAME_BYTES];             /* the served name, or "" */
    char id[64];                              /* of the answer, or "" */
    const char *finishes[MAX_TRACE_FINISHES]; /* [n_finishes] of the first choices */
    int n_finishes;
    uint64_t begins[N_TRACE_PHASES]; /* now_ns(); 0: the phase did not begin */
    uint64_t last_token_ns;          /* 0: not yet */
    bool has_settings;               /* the body was read: */
    int max_tokens;                  /* -1: not stated */
    int n;                           /* choices */
    double temperature, top_p;
    bool has_usage; /* the prompt was read: */
    int input_tokens, output_tokens, cached_tokens;
};

/* One request, from its headers to its last byte. The loop thread sets the fields below `own`. */
struct trace_span {
    struct list_node node;    /* of the pool or the queue; private */
    struct trace_context own; /* the trace, and this span */
    unsigned char parent_id[SPAN_ID_BYTES];
    bool has_parent;
    char state[TRACE_STATE_BYTES];     /* the client's tracestate, or "" */
    char response[TRACE_PARENT_BYTES]; /* the value of a traceresponse header */
    int64_t clock_ns;                  /* time since 1970 less now_ns() */
    uint64_t start_ns, end_ns;         /* now_ns() */
    const char *method, *route;        /* live as long as the traces; route NULL: an unknown path */
    int http_status;                   /* 0: none was sent */
    char error[TRACE_ERROR_BYTES];     /* kind of the error, or "" */
    bool is_failed;                    /* the server is the cause of the error */
    struct trace_generation generation;
};

/* ---- the exporter ---------------------------------------------------------------------------- */

struct traces_config {
    const char *endpoint; /* http://HOST[:PORT]/PATH or https; without a path it is /v1/traces */
    double ratio;         /* share, 0 to 1, of the requests without a parent that get a span */
};

/* Counts of requests with a span. Each has one span and up to N_TRACE_PHASES children. */
struct traces_stats {
    uint64_t sent;           /* the collector has accepted them */
    uint64_t queue_full;     /* lost: no span was free */
    uint64_t failed;         /* lost: the collector refused them, or could not be reached */
    uint64_t rejected_spans; /* spans rejected in accepted messages */
};

/* Allocates all spans, reads the OTEL_ variables and loads libcurl. Fails with STATUS_USAGE if the
 * endpoint or a variable is wrong, and with STATUS_SYSTEM if the library is missing. */
enum status traces_open(struct traces **out, const struct traces_config *config, struct err *err);

/* Starts the thread. */
enum status traces_start(struct traces *traces, struct err *err);

/* Begins the span of a request with these headers; each may be NULL. Returns NULL if the
 * request is not sampled or no span is free. It begins at `start_ns`. */
struct trace_span *traces_begin(struct traces *traces, const char *traceparent,
                                const char *tracestate, uint64_t start_ns);

/* Ends a span, which then belongs to the thread. The method must be set. Sets end_ns if it is 0. */
void traces_end(struct traces *traces, struct trace_span *span);

/* Sends the ended spans, for at most TRACES_FLUSH_MS, ends the thread and frees everything; NULL is
 * allowed. All spans must have ended. */
enum { TRACES_FLUSH_MS = 2000 };
void traces_close(struct traces *traces);

/* Returns the bytes of the spans. */
size_t traces_bytes(const struct traces *traces);

/* Returns the collector's URL. It lives as long as the traces. */
const char *traces_url(const struct traces *traces);

/* Any thread. */
void traces_stats(const struct traces *traces, struct traces_stats *out);

#endif
