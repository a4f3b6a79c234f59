/* DESIGN: HTTP requests that need a worker.
 *
 *   async_start   loop     counts the request and queues it in a lane (lanes.c)
 *   kind->run     worker   the long work; only the worker may use the request
 *   kind->done    loop     answers, or begins to; the body is freed
 *   kind->stop    loop     the client has left or the server ends before the request is finished
 *   kind->free    loop     after the last reference
 *
 * `run` may return ASYNC_COMPILE: the loop frees the body and queues the request in the lane of
 * grammars, where `run` is called again. There it may return ASYNC_WAIT: the request then occupies
 * no worker, and async_resume queues it again.
 *
 * A request in a lane is cancelled if its client leaves or the server ends. If it waits there, it
 * leaves the lane immediately, else at its next check of `cancelled`. `done` follows in both cases.
 *
 * Two kinds of requests are exceptions: one that is alone computes a promise (promised/) and has
 * no client; a reader of a promise (async_attach) needs no worker.
 *
 * References are held by the lane until `done` has returned, by HTTP until the request is released,
 * by HTTP until it reports the end of the request (in either order), and by other holders that the
 * kind adds. The process ends when the list of requests is empty.
 *
 * A large body takes up to 30 times its size while a worker parses it, and the C library keeps
 * freed memory for the thread that used it. So one second after such a body, a worker returns the
 * free memory of all threads to the system, and twice more, for the memory that its answer held.
 */
#include <assert.h>
#include <malloc.h>
#include <stdlib.h>

#include "server/app/app.h"

enum {
    LARGE_BODY = 64 << 10, /* bytes; bodies of this size trigger trims */
    TRIM_DELAY_MS = 1000,
    N_TRIMS = 3,
    TRIM_THRESHOLD = 1 << 20, /* free memory at the end of a thread's heap that it may keep */
    MAX_WAITING_TEXTS = 256   /* limit of waiting requests in the lanes of texts and adapters */
};

/* ---- memory that large bodies used ---------------------------------------------------------- */

static void trim(uv_work_t *work) {
    (void)work;
    malloc_trim(0);
}

static void after_trim(uv_work_t *work, int status) {
    struct app *app = work->data;
    assert(status == 0 && app->trimming);
    (void)status;
    app->trimming = false;
}

static void begin_trim(struct app *app) {
    assert(!app->trimming);
    app->trimming = true;
    app->trim_work.data = app;
    uv_queue_work(&app->loop, &app->trim_work, trim, after_trim);
}

static void on_trim_due(uv_timer_t *timer) {
    struct app *app = timer->data;
    assert(app->trims_due > 0);
    if (!app->trimming) app->trims_due--;
    if (app->trims_due > 0) uv_timer_start(timer, on_trim_due, TRIM_DELAY_MS, 0);
    if (!app->trimming) begin_trim(app);
}

/* ---- requests ------------------------------------------------------------------------------- */

void async_ref(struct async_request *request) {
    assert(request->references > 0);
    request->references++;
}

void async_unref(struct async_request *request) {
    struct app *app = request->app;
    assert(request->references > 0);
    if (--request->references > 0) return;
    assert(!request->http && !request->running);
    pace_note(&app->pace, now_ns());
    list_remove(&app->requests, &request->node);
    tracing_end(request);
    request->kind->free(request);
    lifecycle_request_ended(app);
}

void async_release_http(struct async_request *request) {
    struct http_request *http = request->http;
    if (!http) return;
    request->http = NULL;
    http_release(http);
    async_unref(request);
}

void async_respond(struct async_request *request, struct buf *body, const struct http_field *header,
                   const struct err *err) {
    const struct err *why = request->err.status ? &request->err : err;
    assert(request->gone || (why->status == STATUS_OK) == (body->length > 0));
    if (!request->gone && why->status) respond_error(request->app, request->http, why, NULL);
    if (!request->gone && !why->status)
        http_respond_take(request->http, 200, "application/json", body, header,
                          header->name ? 1 : 0);
    async_release_http(request);
}

/* ---- lanes ---------------------------------------------------------------------------------- */

static struct async_request *request_of(struct lane_work *work) {
    return list_entry(work, struct async_request, work);
}

static void run_kind(void *arg) {
    struct async_request *request = arg;
    request->next = request->kind->run(request);
}

static void undo_kind(void *arg) {
    struct async_request *request = arg;
    request->kind->undo(request);
    request->next = ASYNC_ANSWER;
}

static enum lane_verdict run(struct lane_work *work) {
    struct async_request *request = request_of(work);
    mem_run(run_kind, undo_kind, request);
    return request->next == ASYNC_WAIT ? LANE_PARKED : LANE_ENDED;
}

/* Frees the body, which only the first run reads. */
static void drop_body(struct async_request *request) {
    struct app *app = request->app;
    if (!request->http) return;
    bool is_large = request->http->body_length >= LARGE_BODY;
    bool is_due = uv_is_active((uv_handle_t *)&app->trim_timer);
    if (is_large) app->trims_due = N_TRIMS;
    if (is_large && !is_due) uv_timer_start(&app->trim_timer, on_trim_due, TRIM_DELAY_MS, 0);
    http_drop_body(request->http);
}

static void finish(struct async_request *request) {
    assert(request->running);
    request->running = false;
    request->kind->done(request);
    async_unref(request);
}

static void add_request(struct async_request *request) {
    struct app *app = request->app;
    if (app->requests.n == 0) pace_begin(&app->pace, now_ns());
    list_append(&app->requests, &request->node);
}

static void enqueue(struct async_request *request, enum lane lane) {
    struct app *app = request->app;
    if (lanes_push(app->lanes, &request->work, lane, request->owner)) return;
    app->metrics.refused_overload++;
    err_set(&request->err, STATUS_OVERLOADED, NULL,
            "Too many requests wait %s, in all or of this client; try again later.",
            lane == LANE_GRAMMAR ? "for their grammars" : "for this path");
    request->err.retry_after_s = lanes_retry_s(app->lanes, lane);
    finish(request);
}

static void end_run(struct lane_work *work) {
    struct async_request *request = request_of(work);
    struct app *app = request->app;
    bool goes_on = request->next == ASYNC_COMPILE && !atomic_load(&request->cancelled);
    drop_body(request);
    if (goes_on)
        enqueue(request, LANE_GRAMMAR);
    else
        finish(request);
    http_flush(app->http);
}

void async_resume(struct async_request *request) {
    lanes_resume(request->app->lanes, &request->work);
}

void async_start(struct async_request *request, const struct async_kind *kind, struct app *app,
                 struct http_request *http) {
    assert(!http->app);
    *request = (struct async_request){.kind = kind,
                                      .app = app,
                                      .http = http,
                                      .owner = auth_client(app, http),
                                      .references = 3,
                                      .running = true};
    add_request(request);
    http->app = request;
    enqueue(request, kind->lane);
}

void async_start_alone(struct async_request *request, const struct async_kind *kind,
                       struct app *app, uint64_t owner) {
    *request = (struct async_request){.kind = kind,
                                      .app = app,
                                      .owner = owner,
                                      .references = 1,
                                      .is_alone = true,
                                      .running = true};
    add_request(request);
    enqueue(request, kind->lane);
}

void async_attach(struct async_request *request, const struct async_kind *kind, struct app *app,
                  struct http_request *http) {
    assert(!http->app && kind->stop && !kind->run);
    *request = (struct async_request){
        .kind = kind, .app = app, .http = http, .owner = auth_client(app, http), .references = 2};
    add_request(request);
    http->app = request;
}

struct http_request *async_detach(struct async_request *request) {
    struct http_request *http = request->http;
    assert(http && !request->running && !request->gone && request->references > 2);
    http->app = NULL;
    request->http = NULL;
    request->references -= 2;
    request->is_alone = true;
    return http;
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* malloc_trim does not return free memory at the end of a thread's heap. The threshold bounds it;
 * otherwise the C library raises the threshold to twice the largest freed block. Only a free that
 * merges chunks applies the threshold. A free into a fast bin does not merge: then malloc_trim
 * moves a whole tree of JSON to the heap's end, where it stays. So no chunk uses fast bins. */
static void configure_malloc(void) {
    mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD);
    mallopt(M_MXFAST, 0);
}

void async_init(struct app *app) {
    configure_malloc();
    uv_timer_init(&app->loop, &app->trim_timer);
    app->trim_timer.data = app;
    /* libuv starts its threads now: later it aborts if there is no memory for them */
    begin_trim(app);
    app->lanes = lanes_new(&app->loop, run, end_run);
    lanes_set_limit(app->lanes, LANE_TEXT, MAX_WAITING_TEXTS);
    lanes_set_limit(app->lanes, LANE_ADAPTER, MAX_WAITING_TEXTS);
    lanes_set_limit(app->lanes, LANE_GRAMMAR,
                    max_int(1, app->options->scheduler.max_queued_requests / 2));
}

void async_close(struct app *app) {
    assert(app->requests.n == 0);
    lanes_free(app->lanes);
    app->lanes = NULL;
    uv_close((uv_handle_t *)&app->trim_timer, NULL);
}

/* ---- end ------------------------------------------------------------------------------------ */

/* Cancels a request in a lane. */
static void cancel(struct async_request *request, const struct err *err) {
    assert(request->running);
    if (atomic_exchange(&request->cancelled, true)) return;
    if (err) request->err = *err;
    if (request->kind->leave) request->kind->leave(request);
    lanes_drop(request->app->lanes, &request->work);
}

void body_request_respond(struct async_request *async) {
    struct body_request *request = (struct body_request *)async;
    answer_settle(&async->app->answers, &request->share, request->body.length);
    async_respond(async, &request->body, &request->header, request->err);
}

/* Frees the body and its share of the answers' memory. */
static void drop_answer(struct body_request *request) {
    answer_release(&request->async.app->answers, &request->share);
    buf_free(&request->body);
}

void body_request_undo(struct async_request *async) {
    struct body_request *request = (struct body_request *)async;
    drop_answer(request);
    err_out_of_memory(request->err);
}

void body_request_free(struct async_request *async) {
    drop_answer((struct body_request *)async);
    mem_free(async);
}

void async_gone(struct async_request *request) {
    if (request->gone) return;
    request->gone = true;
    if (request->running)
        cancel(request, NULL);
    else if (request->kind->stop)
        request->kind->stop(request, NULL);
}

int async_log_fields(const struct async_request *request, struct log_field *fields) {
    if (request->running || !request->kind->log_fields) return 0; /* a worker may be writing them */
    return request->kind->log_fields(request, fields);
}

void async_abort_all(struct app *app, const struct err *err) {
    assert(app->aborted);
    list_each_removable(node, &app->requests) {
        struct async_request *request = list_entry(node, struct async_request, node);
        if (request->running)
            cancel(request, err);
        else if ((request->http || request->is_alone) && request->kind->stop)
            request->kind->stop(request, err);
    }
    http_flush(app->http);
}
