/* Stored responses: GET and DELETE /v1/responses/{id}, GET /v1/responses/{id}/input_items, POST
 * /v1/responses/{id}/cancel. A client sees only the responses of its own key. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/app/promised/promised.h"
#include "server/endpoints/endpoints.h"

#define STORED_PATH "/v1/responses/"
#define ITEMS_ACTION "/input_items"

/* A response that a client names. */
struct stored {
    char id[RECORD_MAX_ID + 1];
    struct promise_entry entry;
    struct promised *live; /* or NULL */
};

/* ---- finding -------------------------------------------------------------------------------- */

/* Is the path a response's with this action after its id? */
static bool path_ends_with(const struct http_request *http, const char *action) {
    const char *name = http->path + strlen(STORED_PATH);
    size_t length = strlen(name), n = strlen(action);
    return length > n && strcmp(name + length - n, action) == 0;
}

/* Names the path's id, without the action after it. */
static enum status unknown(const struct http_request *http, const char *action, struct err *err) {
    const char *name = http->path + strlen(STORED_PATH);
    size_t n = strlen(name);
    if (path_ends_with(http, action)) n -= strlen(action);
    return err_set(err, STATUS_NOT_FOUND, NULL,
                   "There is no response '%.*s' of this key: it was not stored, was deleted, or "
                   "was evicted to make room (--state-size).",
                   (int)(n < 100 ? n : 100), name);
}

/* Reads the id from the path, which ends with `action` after it. */
static bool read_id(const struct http_request *http, const char *action, char *id, size_t size) {
    const char *name = http->path + strlen(STORED_PATH);
    size_t length = strlen(name), n = strlen(action);
    if (!path_ends_with(http, action) || length - n >= size) return false;
    memcpy(id, name, length - n);
    id[length - n] = 0;
    return strchr(id, '/') == NULL;
}

static enum status find(const struct app *app, const struct http_request *http, const char *action,
                        struct stored *out, struct err *err) {
    const struct promises *promises = app->promises;
    assert(promises && strncmp(http->path, STORED_PATH, strlen(STORED_PATH)) == 0);
    *out = (struct stored){.live = NULL};
    if (!read_id(http, action, out->id, sizeof out->id) ||
        !journal_find_id(promises->journal, promise_key(app, http), out->id, &out->entry))
        return unknown(http, action, err);
    out->live = promised_find(promises, out->entry.number);
    return out->live || out->entry.is_finished ? STATUS_OK : promise_lost(err);
}

static void refuse(const struct app *app, struct http_request *http, const struct err *err) {
    respond_error(app, http, err, NULL);
    http_release(http);
}

/* ---- GET ------------------------------------------------------------------------------------ */

static bool wants_stream(const struct http_request *http) {
    const char *value = http_argument(http, "stream");
    bool is_set = value && (strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0);
    return is_set && strcmp(http->method, "GET") == 0;
}

static enum status read_limit(const struct http_request *http, int *limit, struct err *err) {
    const char *text = http_argument(http, "limit");
    *limit = API_USUAL_ITEMS;
    if (!text) return STATUS_OK;
    size_t n = strspn(text, "0123456789");
    long value = n > 0 && n < 9 && !text[n] ? strtol(text, NULL, 10) : 0;
    if (value < 1 || value > API_MAX_ITEMS)
        return err_set(err, STATUS_INVALID_REQUEST, "limit",
                       "'limit' must be an integer between 1 and %d, but it is \"%.40s\".",
                       API_MAX_ITEMS, text);
    *limit = (int)value;
    return STATUS_OK;
}

/* Reads the page that a query asks for. OpenAI's servers list the newest item first. */
static enum status read_page(const struct http_request *http, struct api_item_page *page,
                             struct err *err) {
    const char *order = http_argument(http, "order"), *after = http_argument(http, "after");
    *page = (struct api_item_page){.limit = 0};
    if (read_limit(http, &page->limit, err)) return err->status;
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return err_set(err, STATUS_INVALID_REQUEST, "order",
                       "'order' must be \"asc\" or \"desc\", but it is \"%.40s\".", order);
    if (after && strlen(after) > API_MAX_ITEM_ID)
        return err_set(err, STATUS_INVALID_REQUEST, "after",
                       "'after' must be the id of an item: at most %d bytes.", API_MAX_ITEM_ID);
    page->oldest_first = order && strcmp(order, "asc") == 0;
    snprintf(page->after, sizeof page->after, "%s", after ? after : "");
    return STATUS_OK;
}

/* The journal has the request of a promise that runs, too. */
static void get_items(struct app *app, struct http_request *http) {
    struct err err = {0};
    struct stored stored;
    struct api_item_page page;
    if (find(app, http, ITEMS_ACTION, &stored, &err) || read_page(http, &page, &err)) {
        refuse(app, http, &err);
        return;
    }
    const struct fetch_wish fetch = {.id = stored.id, .after = -1, .page = &page};
    fetch_start(app, http, &stored.entry, &fetch);
}

void stored_get(struct app *app, struct http_request *http) {
    if (path_ends_with(http, ITEMS_ACTION)) {
        get_items(app, http);
        return;
    }
    struct err err = {0};
    struct stored stored;
    bool is_stream = wants_stream(http);
    struct reader_wish wish = {.form = is_stream ? READER_STREAM : READER_NOW, .after = -1};
    if (find(app, http, "", &stored, &err) ||
        (is_stream && reader_after(http, &wish.after, &err))) {
        refuse(app, http, &err);
    } else if (stored.live) {
        reader_start(stored.live, http, NULL, &wish);
    } else {
        const struct fetch_wish fetch = {
            .id = stored.id, .is_stream = is_stream, .after = wish.after};
        fetch_start(app, http, &stored.entry, &fetch);
    }
}

/* ---- DELETE --------------------------------------------------------------------------------- */

/* It is answered when the journal has forgotten the response. */
struct deletion {
    struct async_request async; /* must be first: http_request.app points here */
    struct buf body;
};

static void answer_deletion(struct async_request *async) {
    struct deletion *deletion = (struct deletion *)async;
    respond_json(async->http, &deletion->body);
}

static void stop_deletion(struct async_request *async, const struct err *err) {
    if (err && async->http) respond_error(async->app, async->http, err, NULL);
    async_release_http(async);
}

static void free_deletion(struct async_request *async) {
    buf_free(&((struct deletion *)async)->body);
    mem_free(async);
}

void stored_delete(struct app *app, struct http_request *http) {
    static const struct async_kind kind = {
        .done = answer_deletion, .stop = stop_deletion, .free = free_deletion};
    struct err err = {0};
    struct stored stored;
    if (find(app, http, "", &stored, &err)) {
        refuse(app, http, &err);
        return;
    }
    struct deletion *deletion = mem_calloc(1, sizeof *deletion);
    const struct record removed = {.kind = RECORD_REMOVED, .promise = stored.entry.number};
    buf_printf(&deletion->body, "{\"id\":\"%s\",\"object\":\"response\",\"deleted\":true}",
               stored.id);
    struct promises_ticket *ticket = promises_ticket_new(app->promises, NULL, &removed);
    async_attach(&deletion->async, &kind, app, http);
    promises_push(ticket, &deletion->async);
    if (stored.live) promised_forget(stored.live);
}

/* ---- POST .../cancel ------------------------------------------------------------------------ */

static enum status check_cancel(const struct promised *live, struct err *err) {
    if (!live->runner && !live->has_ended) {
        err_set(err, STATUS_OVERLOADED, NULL,
                "The response waits for its start after the server's: try again.");
        err->retry_after_s = lanes_retry_s(live->promises->app->lanes, LANE_PREPARE);
        return STATUS_OVERLOADED;
    }
    if (live->record.flags & RECORD_BACKGROUND) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, NULL,
                   "Only a response with 'background': true can be cancelled: close the connection "
                   "of another one.");
}

static void cancel_live(struct app *app, struct http_request *http, struct promised *live) {
    const struct reader_wish wish = {.form = READER_WHOLE, .after = -1};
    struct err err = {0};
    if (check_cancel(live, &err)) {
        refuse(app, http, &err);
        return;
    }
    bool runs = !live->has_ended;
    reader_start(live, http, NULL, &wish);
    if (runs) app->promises->calls->cancel(live);
}

void stored_post(struct app *app, struct http_request *http) {
    struct err err = {0};
    struct stored stored;
    if (find(app, http, "/cancel", &stored, &err)) {
        refuse(app, http, &err);
    } else if (stored.live) {
        cancel_live(app, http, stored.live);
    } else {
        const struct fetch_wish fetch = {.id = stored.id, .after = -1};
        fetch_start(app, http, &stored.entry, &fetch);
    }
}
