/* Answers of finished promises, and the items of requests, read from the journal by a worker. */
#include <assert.h>
#include <string.h>

#include "config/json.h"
#include "server/apis/apis.h"
#include "server/app/promised/promised.h"

struct fetch {
    struct async_request async; /* must be first: http_request.app points here */
    struct promise_entry entry;
    uint8_t key[RECORD_KEY_BYTES];
    bool has_key;
    char id[RECORD_MAX_ID + 1];            /* asked for; "": by Idempotency-Key: */
    char text[RECORD_MAX_IDEMPOTENCY + 1]; /* asked for, or "" */
    uint8_t hash[RECORD_HASH_BYTES];
    bool has_hash, is_stream;
    int64_t after;
    struct api_item_page page; /* limit 0: the answer is asked for */
    struct err err;
    struct answer_share share;
    struct buf bytes; /* of the record */
    struct record record;
    const struct api *api;
    struct buf out; /* the stream, or the items */
};

const uint8_t *promise_key(const struct app *app, const struct http_request *http) {
    const struct api_key *key = auth_key(app, http);
    return key ? key->digest : NULL;
}

/* An answer that is neither live nor finished could not be written. */
enum status promise_lost(struct err *err) {
    return err_set(err, STATUS_UNAVAILABLE, NULL,
                   "The answer could not be kept, for example because the disk was full. The next "
                   "start of the server computes it again.");
}

/* ---- on a worker ---------------------------------------------------------------------------- */

static enum status not_found(struct fetch *fetch) {
    return err_set(&fetch->err, STATUS_NOT_FOUND, NULL,
                   "There is no response '%.63s' of this key: it was deleted, or evicted to make "
                   "room (--state-size).",
                   fetch->id);
}

/* Is it the client's, and the one that was asked for? The index goes by hashes. */
static bool is_asked_for(const struct fetch *fetch) {
    const struct record *record = &fetch->record;
    if (!record_is(record, RECORD_KEY, fetch->key, fetch->has_key ? RECORD_KEY_BYTES : 0))
        return false;
    return fetch->id[0] ? record_is(record, RECORD_ID, fetch->id, strlen(fetch->id))
                        : record_is(record, RECORD_IDEMPOTENCY, fetch->text, strlen(fetch->text));
}

static enum status check(struct fetch *fetch) {
    const struct record_bytes *path = &fetch->record.field[RECORD_PATH];
    char name[ROUTE_PATH];
    snprintf(name, sizeof name, "%.*s", (int)path->length, path->data);
    fetch->api = api_find(name);
    if (!fetch->api || !is_asked_for(fetch)) return not_found(fetch);
    if (!fetch->has_hash || record_is(&fetch->record, RECORD_HASH, fetch->hash, RECORD_HASH_BYTES))
        return STATUS_OK;
    return idempotency_reused(&fetch->err);
}

/* The events after the last one that the client has. */
static void write_stream(struct fetch *fetch) {
    const struct record_bytes *events = &fetch->record.field[RECORD_EVENTS];
    const struct record_bytes *body = &fetch->record.field[RECORD_ANSWER_BODY];
    const struct api *api = fetch->api;
    const struct buf log = {(char *)events->data, events->length, events->length};
    struct event_cursor cursor = {0, 0};
    bool numbers = strcmp(api->stream_type, "text/event-stream") == 0;
    if (events->length > 0)
        events_write(&fetch->out, &log, numbers, fetch->after, &cursor);
    else if (api->write_last_event)
        api->write_last_event(&fetch->out, body->data, body->length, fetch->after + 1);
}

/* Writes the items of the request, which is freed. */
static enum status write_items(struct fetch *fetch) {
    const struct record_bytes *bytes = &fetch->record.field[RECORD_BODY];
    const struct api *api = fetch->api;
    struct json *body;
    if (!api->write_input_items) return not_found(fetch);
    if (json_parse(&body, "The stored request", bytes->data ? bytes->data : "", bytes->length,
                   &fetch->err))
        return fetch->err.status;
    buf_free(&fetch->bytes);
    fetch->record = (struct record){.kind = fetch->record.kind};
    enum status status =
        api->write_input_items(&fetch->out, body, fetch->id, &fetch->page, &fetch->err);
    json_free(body);
    return status;
}

/* Reads the record. The record of a promise that runs moves while the journal makes room, so the
 * place is looked up once more. */
static enum status read_record(struct fetch *fetch) {
    struct app *app = fetch->async.app;
    struct journal *journal = app->promises->journal;
    const uint8_t *key = fetch->has_key ? fetch->key : NULL;
    for (int try = 0;; try++) {
        struct err *err = &fetch->err;
        if (answer_reserve(&app->answers, &fetch->share, fetch->entry.length, NULL, err) ||
            !journal_read(journal, &fetch->entry, &fetch->bytes, &fetch->record, err))
            return err->status;
        if (try > 0 || !fetch->id[0] || !journal_find_id(journal, key, fetch->id, &fetch->entry))
            return err->status;
        *err = (struct err){0};
    }
}

static enum async_next run(struct async_request *async) {
    struct fetch *fetch = (struct fetch *)async;
    if (read_record(fetch) || check(fetch)) return ASYNC_ANSWER;
    if (fetch->page.limit > 0) {
        write_items(fetch);
        return ASYNC_ANSWER;
    }
    bool has_events = fetch->record.field[RECORD_EVENTS].length > 0;
    if (!fetch->id[0])
        fetch->is_stream =
            (fetch->record.flags & RECORD_STREAM) && (has_events || fetch->api->write_last_event);
    if (fetch->is_stream) write_stream(fetch);
    return ASYNC_ANSWER;
}

static void undo(struct async_request *async) {
    struct fetch *fetch = (struct fetch *)async;
    buf_free(&fetch->bytes);
    buf_free(&fetch->out);
    err_out_of_memory(&fetch->err);
}

/* ---- on the loop ---------------------------------------------------------------------------- */

static void respond_stream(struct fetch *fetch) {
    const struct http_field fields[] = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    struct http_request *http = fetch->async.http;
    http_stream_begin(http, 200, fetch->api->stream_type, NULL, fields, 2);
    if (fetch->out.length > 0) http_stream_write(http, fetch->out.data, fetch->out.length);
    if (!fetch->async.gone) http_stream_end(http);
}

static void done(struct async_request *async) {
    struct fetch *fetch = (struct fetch *)async;
    const struct record_bytes *body = &fetch->record.field[RECORD_ANSWER_BODY];
    const struct err *err = async->err.status ? &async->err : &fetch->err;
    const int status = fetch->record.http_status;
    if (!async->gone && err->status)
        respond_error(async->app, async->http, err, NULL);
    else if (!async->gone && fetch->is_stream)
        respond_stream(fetch);
    else if (!async->gone && fetch->page.limit > 0)
        respond_json(async->http, &fetch->out);
    else if (!async->gone)
        http_respond(async->http, status >= 100 ? status : 200, "application/json", body->data,
                     body->length, NULL, 0);
    async_release_http(async);
}

static void free_fetch(struct async_request *async) {
    struct fetch *fetch = (struct fetch *)async;
    answer_release(&async->app->answers, &fetch->share);
    buf_free(&fetch->bytes);
    buf_free(&fetch->out);
    mem_free(fetch);
}

void fetch_start(struct app *app, struct http_request *http, const struct promise_entry *entry,
                 const struct fetch_wish *wish) {
    static const struct async_kind kind = {
        .lane = LANE_TEXT, .run = run, .done = done, .undo = undo, .free = free_fetch};
    struct fetch *fetch = mem_calloc(1, sizeof *fetch);
    const uint8_t *key = promise_key(app, http);
    assert((wish->id != NULL) != (wish->text != NULL));
    assert(!wish->page || (wish->id && !wish->is_stream && wish->page->limit > 0));
    fetch->entry = *entry;
    fetch->has_key = key != NULL;
    if (key) memcpy(fetch->key, key, sizeof fetch->key);
    snprintf(fetch->id, sizeof fetch->id, "%s", wish->id ? wish->id : "");
    snprintf(fetch->text, sizeof fetch->text, "%s", wish->text ? wish->text : "");
    fetch->has_hash = wish->hash != NULL;
    if (wish->hash) memcpy(fetch->hash, wish->hash, sizeof fetch->hash);
    fetch->is_stream = wish->is_stream;
    fetch->after = wish->after;
    if (wish->page) fetch->page = *wish->page;
    async_start(&fetch->async, &kind, app, http);
}
