/* Clients that read a live promise: each has an HTTP request of its own. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/apis/apis.h"
#include "server/app/promised/promised.h"

struct reader {
    struct async_request async; /* must be first: http_request.app points here */
    struct list_node node;      /* in promised->readers */
    struct promised *promised;  /* NULL after its end */
    enum reader_form form;
    int64_t after; /* the number of the last event that the client has; -1: none */
    struct event_cursor cursor;
    uint8_t hash[RECORD_HASH_BYTES];
    bool has_begun;        /* the stream's headers were sent */
    const struct api *api; /* of the promise; NULL: not known yet */
    char id[64];           /* of the answer, for the log */
    int prompt_tokens, output_tokens;
};

/* ---- events --------------------------------------------------------------------------------- */

static bool has_numbers(const struct api *api) {
    return api->stream_type && strcmp(api->stream_type, "text/event-stream") == 0;
}

/* Returns the bytes of the complete event at the start of the text; 0: there is none. Text in
 * events is JSON without line breaks, so an empty line ends an event. */
static size_t event_length(const char *text, size_t length) {
    const char *end = memmem(text, length, "\n\n", 2);
    return end ? (size_t)(end - text) + 2 : 0;
}

void events_write(struct buf *out, const struct buf *log, bool numbers, int64_t after,
                  struct event_cursor *cursor) {
    if (!numbers) {
        if (log->length > cursor->at)
            buf_add(out, log->data + cursor->at, log->length - cursor->at);
        cursor->at = log->length;
        return;
    }
    while (cursor->at < log->length) {
        const char *event = log->data + cursor->at;
        size_t n = event_length(event, log->length - cursor->at);
        if (n == 0) return;
        if (cursor->number > after) {
            buf_printf(out, "id: %lld\n", (long long)cursor->number);
            buf_add(out, event, n);
        }
        cursor->number++;
        cursor->at += n;
    }
}

enum status reader_after(const struct http_request *http, int64_t *after, struct err *err) {
    const char *text = http_argument(http, "starting_after");
    const char *name = text ? "starting_after" : "Last-Event-ID";
    char *end;
    *after = -1;
    if (!text) text = http_header(http, "Last-Event-ID");
    if (!text || !*text) return STATUS_OK;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!*end && !errno && value >= 0 && is_digit(*text)) {
        *after = value;
        return STATUS_OK;
    }
    return err_set(err, STATUS_INVALID_REQUEST, name,
                   "'%s' must be the number of an event, but it is \"%.40s\".", name, text);
}

/* ---- the end of a reader -------------------------------------------------------------------- */

/* Its answer is complete, or its client has left. */
static void finish(struct reader *reader) {
    struct promised *promised = reader->promised;
    assert(promised);
    reader->api = promised->api;
    reader->prompt_tokens = promised->prompt_tokens;
    reader->output_tokens = promised->output_tokens;
    list_remove(&promised->readers, &reader->node);
    reader->promised = NULL;
    async_release_http(&reader->async);
}

/* Its last reader has left. A promise in the background, or with an Idempotency-Key, goes on; any
 * other ends with its last client, as without a journal. */
static void cancel_unread(struct promised *promised) {
    const struct record *record = &promised->record;
    bool goes_on = promised->readers.n > 0 || promised->has_ended || promised->is_dropped ||
                   (record->flags & RECORD_BACKGROUND) ||
                   record->field[RECORD_IDEMPOTENCY].length > 0;
    if (!goes_on) promised->promises->calls->cancel(promised);
}

/* The client has left (no `err`), or the server ends: then the next process computes it. */
static void stop(struct async_request *async, const struct err *err) {
    struct reader *reader = (struct reader *)async;
    struct promised *promised = reader->promised;
    if (!promised) return;
    if (err && !reader->has_begun) respond_error(async->app, async->http, err, NULL);
    if (err && reader->has_begun) http_stream_end(async->http);
    finish(reader);
    if (!err) cancel_unread(promised);
}

static int log_fields_of(const struct async_request *async, struct log_field *fields) {
    const struct reader *reader = (const struct reader *)async;
    fields[0] = LOG_S("request_id", reader->id);
    fields[1] = LOG_I("prompt_tokens", reader->prompt_tokens);
    fields[2] = LOG_I("output_tokens", reader->output_tokens);
    return 3;
}

/* The answer may be computed for several readers, so its phases are in no span. */
static void trace(const struct async_request *async, struct trace_span *span) {
    const struct reader *reader = (const struct reader *)async;
    struct trace_generation *g = &span->generation;
    if (!reader->api) return;
    g->operation = tracing_operation(reader->api);
    snprintf(g->id, sizeof g->id, "%s", reader->id);
    g->has_usage = true;
    g->input_tokens = reader->prompt_tokens;
    g->output_tokens = reader->output_tokens;
}

static void free_reader(struct async_request *async) {
    mem_free(async);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void respond_body(struct reader *reader, int status, const char *body, size_t length) {
    http_respond(reader->async.http, status, "application/json", body, length, NULL, 0);
    finish(reader);
}

/* Answers with the whole answer; a failed one as an error, as without a promise. */
static void send_whole(struct reader *reader) {
    const struct promised *promised = reader->promised;
    const struct buf *document = &promised->document;
    if (promised->err.status) {
        respond_error(reader->async.app, reader->async.http, &promised->err, NULL);
        finish(reader);
    } else if (document->length > 0) {
        respond_body(reader, 200, document->data, document->length);
    } else {
        respond_body(reader, 200, promised->log.data, promised->log.length);
    }
}

/* The next bytes of a stream. */
struct stream_piece {
    struct reader *reader;
    struct event_cursor cursor;
    struct buf out;
};

static void write_piece(void *arg) {
    struct stream_piece *piece = arg;
    const struct promised *promised = piece->reader->promised;
    const struct buf *document = &promised->document;
    events_write(&piece->out, &promised->log, has_numbers(promised->api), piece->reader->after,
                 &piece->cursor);
    bool is_broken = promised->has_ended && promised->log.length == 0;
    if (is_broken && promised->api->write_last_event)
        promised->api->write_last_event(&piece->out, document->data, document->length,
                                        piece->reader->after + 1);
}

static void drop_piece(void *arg) {
    buf_free(&((struct stream_piece *)arg)->out);
}

static void begin_stream(struct reader *reader) {
    const struct http_field fields[] = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    const struct api *api = reader->promised->api;
    http_stream_begin(reader->async.http, 200, api->stream_type, api->keep_alive, fields, 2);
    reader->has_begun = true;
}

/* For lack of memory the stream ends early; the client may come back for the rest. */
static void send_stream(struct reader *reader) {
    const struct promised *promised = reader->promised;
    struct stream_piece piece = {reader, reader->cursor, {0}};
    bool has_ended = promised->has_ended;
    if (!reader->has_begun) begin_stream(reader);
    bool ok = mem_run(write_piece, drop_piece, &piece);
    reader->cursor = piece.cursor;
    if (ok && piece.out.length > 0)
        http_stream_write(reader->async.http, piece.out.data, piece.out.length);
    buf_free(&piece.out);
    if (!reader->promised || (ok && !has_ended)) return; /* it may have been cut off just now */
    http_stream_end(reader->async.http);
    finish(reader);
}

static void send_head(struct reader *reader) {
    const struct record_bytes *head = &reader->promised->record.field[RECORD_HEAD];
    respond_body(reader, 200, head->data, head->length);
}

/* Answers with the document as it is now. */
static void send_now(struct reader *reader) {
    const struct promised *promised = reader->promised;
    struct buf out = {0};
    if (promised->document.length > 0)
        respond_body(reader, 200, promised->document.data, promised->document.length);
    else if (promised->promises->calls->document(promised, "in_progress", &out))
        respond_body(reader, 200, out.data, out.length);
    else
        send_head(reader);
    buf_free(&out);
}

/* Did the promise end before its stream began, with an error that is no event? */
static bool is_refused(const struct promised *promised) {
    return promised->has_ended && promised->err.status && promised->log.length == 0 &&
           !promised->api->write_last_event;
}

enum status idempotency_reused(struct err *err) {
    err_set(err, STATUS_INVALID_REQUEST, NULL,
            "This Idempotency-Key was used with another request: use a new key for a new request.");
    snprintf(err->code, sizeof err->code, "idempotency_key_reused");
    return err->status;
}

/* The form of the first request with the same key. Returns false if that was another request. */
static bool settle_form(struct reader *reader) {
    const struct record *record = &reader->promised->record;
    struct err err;
    if (!record_is(record, RECORD_HASH, reader->hash, RECORD_HASH_BYTES)) {
        idempotency_reused(&err);
        respond_error(reader->async.app, reader->async.http, &err, NULL);
        finish(reader);
        return false;
    }
    reader->form = record->flags & RECORD_STREAM       ? READER_STREAM
                   : record->flags & RECORD_BACKGROUND ? READER_NOW
                                                       : READER_WHOLE;
    return true;
}

/* Before its record is read again, nothing is known of the promise. */
static void update(struct reader *reader) {
    const struct promised *promised = reader->promised;
    if (!promised->is_durable || !promised->record.kind) return;
    if (reader->form == READER_SAME && !settle_form(reader)) return;
    if (reader->form == READER_HEAD)
        send_head(reader);
    else if (reader->form == READER_NOW)
        send_now(reader);
    else if (reader->form == READER_STREAM && !is_refused(promised))
        send_stream(reader);
    else if (promised->has_ended)
        send_whole(reader);
}

void readers_flush(struct promised *promised) {
    list_each_removable(node, &promised->readers) update(list_entry(node, struct reader, node));
}

void readers_end(struct promised *promised, const struct err *err) {
    list_each_removable(node, &promised->readers) {
        struct reader *reader = list_entry(node, struct reader, node);
        stop(&reader->async, err);
    }
    assert(promised->readers.n == 0);
}

void reader_start(struct promised *promised, struct http_request *http, struct async_request *from,
                  const struct reader_wish *wish) {
    static const struct async_kind kind = {
        .stop = stop, .log_fields = log_fields_of, .trace = trace, .free = free_reader};
    struct reader *reader = mem_calloc(1, sizeof *reader);
    const struct record_bytes *id = &promised->record.field[RECORD_ID];
    if (from) async_detach(from);
    async_attach(&reader->async, &kind, promised->promises->app, http);
    reader->promised = promised;
    reader->form = wish->form;
    reader->after = wish->after;
    if (wish->hash) memcpy(reader->hash, wish->hash, sizeof reader->hash);
    list_append(&promised->readers, &reader->node);
    if (id->length > 0) snprintf(reader->id, sizeof reader->id, "%.*s", (int)id->length, id->data);
    if (id->length > 0 && !http->has_own_id) snprintf(http->id, sizeof http->id, "%s", reader->id);
    update(reader);
}
