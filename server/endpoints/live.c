/* GET /penstock/live: snapshots of the batch, for people.
 *
 * DESIGN. A timer ticks twice a second while there is a watcher. Each tick makes one snapshot, from
 * the counters of this thread and of the scheduler, and sends it to all watchers. The sequences are
 * those of the engine thread's last view (scheduler_look), which is asked for LEAD_MS before the
 * tick. A tick never waits for it: while a long step runs, the sequences are older. A client that
 * does not ask for events gets one snapshot as JSON and is a watcher until the next tick. A reader
 * that leaves a stream unread is cut off as any other (http.h). Without watchers nothing runs. A
 * drain ends all streams at the next tick.
 */
#include "server/endpoints/live.h"

#include <assert.h>
#include <string.h>

#include "server/endpoints/endpoints.h"

enum { MAX_WATCHERS = 16, TICK_MS = 500, LEAD_MS = 50, TICKS_PER_S = 1000 / TICK_MS };

struct watcher {
    struct http_request *http; /* NULL: unused */
    struct live_reader reader;
    bool is_stream;
    uint64_t sent; /* the value of live.ticks when it got its last snapshot; 0: none yet */
};

/* The histograms at one moment. */
struct live_minute {
    struct histogram first_token, inter_token;
};

struct live {
    struct app *app;
    uv_timer_t timer;
    struct watcher watchers[MAX_WATCHERS];
    int n_watchers;
    uint64_t ticks; /* since the first watcher came */
    /* a ring: second s is at s % LIVE_SECONDS */
    struct live_minute past[LIVE_SECONDS];
    bool has_view;
    struct scheduler_view view;
    struct live_snapshot snapshot;
};

/* ---- a snapshot ----------------------------------------------------------------------------- */

/* Sets `out` to the counts that `now` has in addition to `then`. */
static void subtract(struct histogram *out, const struct histogram *now,
                     const struct histogram *then) {
    for (int i = 0; i <= METRIC_BUCKETS; i++) out->counts[i] = now->counts[i] - then->counts[i];
    out->sum = now->sum - then->sum;
}

/* Sets the histograms of the last minute, or of the time since the first watcher came. */
static void take_minute(struct live *live) {
    const struct histogram *all = live->app->metrics.histograms;
    const struct live_minute now = {all[HISTOGRAM_FIRST_TOKEN], all[HISTOGRAM_INTER_TOKEN]};
    uint64_t second = live->ticks / TICKS_PER_S;
    uint64_t oldest = second >= LIVE_SECONDS ? second - LIVE_SECONDS + 1 : 0;
    if (live->ticks % TICKS_PER_S == 0) live->past[second % LIVE_SECONDS] = now;
    const struct live_minute *then = &live->past[oldest % LIVE_SECONDS];
    subtract(&live->snapshot.first_token, &now.first_token, &then->first_token);
    subtract(&live->snapshot.inter_token, &now.inter_token, &then->inter_token);
}

static void take_snapshot(struct live *live) {
    struct app *app = live->app;
    struct live_snapshot *snapshot = &live->snapshot;
    snapshot->before = (struct live_past){snapshot->at_ns, snapshot->stats};
    snapshot->at_ns = now_ns();
    scheduler_stats(app->scheduler, &snapshot->stats);
    snapshot->block_size = engine_memory(app->engine)->block_size;
    snapshot->preparing = app->n_preparing;
    snapshot->refused = app->metrics.refused_overload;
    live->has_view |= scheduler_look(app->scheduler, &live->view);
    snapshot->view = live->has_view ? &live->view : NULL;
    take_minute(live);
    live->ticks++;
}

/* ---- watchers ------------------------------------------------------------------------------- */

static void forget(struct live *live, struct watcher *watcher) {
    assert(watcher->http && live->n_watchers > 0);
    watcher->http = NULL;
    if (--live->n_watchers > 0) return;
    uv_timer_stop(&live->timer);
    live->ticks = 0;
    live->has_view = false;
    live->snapshot.at_ns = 0;
    memset(&live->snapshot.stats, 0, sizeof live->snapshot.stats);
}

/* The text of a snapshot for clients that may see the same sequences. */
struct live_text {
    const struct live_snapshot *snapshot;
    struct live_reader reader;
    struct buf json;
};

static void write_text(void *arg) {
    struct live_text *text = arg;
    live_write(&text->json, text->snapshot, &text->reader);
}

static void drop_text(void *arg) {
    buf_free(&((struct live_text *)arg)->json);
}

/* Ends a watcher whose answer is complete. */
static void finish(struct live *live, struct watcher *watcher) {
    struct http_request *http = watcher->http;
    forget(live, watcher);
    http_release(http);
}

/* Sends the snapshot. Whoever is cut off here leaves by live_leave. */
static void send_to(struct live *live, struct watcher *watcher, const struct buf *json) {
    struct http_request *http = watcher->http;
    if (watcher->is_stream) {
        if (http_stream_write(http, "data: ", 6) &&
            http_stream_write(http, json->data, json->length))
            http_stream_write(http, "\n\n", 2);
        return;
    }
    const struct http_field field = {"Cache-Control", "no-store"};
    http_respond(http, 200, "application/json", json->data, json->length, &field, 1);
    finish(live, watcher);
}

/* Sends the snapshot to the watchers from `first` on that may see the same as the first one. If
 * memory is short, the next tick tries again. */
static void send_from(struct live *live, int first) {
    const struct live_reader reader = live->watchers[first].reader;
    struct live_text text = {.snapshot = &live->snapshot, .reader = reader};
    const uint64_t tick = live->ticks;
    if (!mem_run(write_text, drop_text, &text)) return;
    for (int i = first; i < MAX_WATCHERS; i++) {
        struct watcher *watcher = &live->watchers[i];
        bool is_same = watcher->reader.all == reader.all && watcher->reader.client == reader.client;
        if (!watcher->http || watcher->sent == tick || !is_same) continue;
        watcher->sent = tick;
        send_to(live, watcher, &text.json);
    }
    buf_free(&text.json);
}

static void send_to_all(struct live *live) {
    const uint64_t tick = live->ticks;
    assert(tick > 0);
    for (int i = 0; i < MAX_WATCHERS; i++) {
        if (live->watchers[i].http && live->watchers[i].sent != tick) send_from(live, i);
    }
}

static void end_streams(struct live *live) {
    for (int i = 0; i < MAX_WATCHERS; i++) {
        struct watcher *watcher = &live->watchers[i];
        if (!watcher->http || !watcher->is_stream) continue;
        http_stream_end(watcher->http);
        finish(live, watcher);
    }
}

static void on_ask(uv_timer_t *timer);

static void on_tick(uv_timer_t *timer) {
    struct live *live = timer->data;
    assert(live->n_watchers > 0);
    uv_timer_start(timer, on_ask, TICK_MS - LEAD_MS, 0);
    take_snapshot(live);
    send_to_all(live);
    if (live->app->draining) end_streams(live);
    http_flush(live->app->http);
}

static void on_ask(uv_timer_t *timer) {
    struct live *live = timer->data;
    live->has_view |= scheduler_look(live->app->scheduler, &live->view);
    uv_timer_start(timer, on_tick, LEAD_MS, 0);
}

void live_leave(struct app *app, const struct http_request *http) {
    for (int i = 0; i < MAX_WATCHERS; i++) {
        if (app->live->watchers[i].http == http) forget(app->live, &app->live->watchers[i]);
    }
}

/* ---- a new watcher -------------------------------------------------------------------------- */

/* Does the client ask for events? Otherwise it gets one snapshot. */
static bool wants_events(const struct http_request *http) {
    const char *accept = http_header(http, "Accept");
    return accept && strstr(accept, "text/event-stream");
}

static struct watcher *free_watcher(struct live *live) {
    for (int i = 0; i < MAX_WATCHERS; i++) {
        if (!live->watchers[i].http) return &live->watchers[i];
    }
    return NULL;
}

static enum status check_room(const struct app *app, const struct watcher *watcher,
                              struct err *err) {
    if (app->draining)
        return err_set(err, STATUS_UNAVAILABLE, NULL, "The server is shutting down.");
    if (watcher) return STATUS_OK;
    return err_set(err, STATUS_UNAVAILABLE, NULL,
                   "%d clients watch this server, which is the limit; try again later.",
                   MAX_WATCHERS);
}

/* An admin key sees all sequences, and a key with a name sees its own. Other keys see nothing.
 * Without keys, every client sees all. */
static struct live_reader reader_of(const struct app *app, const struct http_request *http) {
    struct live_reader reader = {0};
    const struct api_key *key = auth_key(app, http);
    reader.all = auth_is_admin(app, http) || (app->keys.n == 0 && app->admin_keys.n == 0);
    if (!reader.all && key && key->name[0]) reader.client = auth_key_client(app, key);
    return reader;
}

void live_answer(struct app *app, struct http_request *http) {
    struct live *live = app->live;
    struct watcher *watcher = free_watcher(live);
    struct err err;
    bool is_head = strcmp(http->method, "HEAD") == 0, is_stream = wants_events(http);
    if (check_room(app, watcher, &err) || is_head) {
        if (is_head)
            http_respond(http, 200, is_stream ? "text/event-stream" : "application/json", "", 0,
                         NULL, 0);
        else
            respond_error(app, http, &err, NULL);
        http_release(http);
        return;
    }
    *watcher = (struct watcher){http, reader_of(app, http), is_stream, 0};
    if (is_stream) {
        const struct http_field fields[] = {{"Cache-Control", "no-store"},
                                            {"X-Accel-Buffering", "no"}};
        http_stream_begin(http, 200, "text/event-stream", NULL, fields, 2);
    }
    if (live->n_watchers++ > 0) return;
    on_ask(&live->timer);
    live->has_view = false; /* that view may be older than the watcher */
}

/* ---- opening and closing -------------------------------------------------------------------- */

void live_open(struct app *app) {
    assert(!app->live);
    app->live = mem_calloc(1, sizeof *app->live);
    app->live->app = app;
    app->live->timer.data = app->live;
    uv_timer_init(&app->loop, &app->live->timer);
}

static void on_closed(uv_handle_t *handle) {
    mem_free(handle->data);
}

void live_close(struct app *app) {
    assert(app->live->n_watchers == 0);
    uv_close((uv_handle_t *)&app->live->timer, on_closed);
    app->live = NULL;
}
