/* DESIGN: HTTP requests that need a worker.
 *
 *   async_start   loop     counts the request and queues it for a worker
 *   kind->run     worker   the long and pure part; the request is the worker's alone
 *   kind->done    loop     answers, or begins to; the body is gone
 *   kind->stop    loop     the client has gone or the server ends, while the request goes on
 *   kind->free    loop     no reference is left
 *
 * A reference each is held by the worker until `done` has returned, by HTTP until the request is
 * released, by HTTP until it reports the request done (in whatever order), and by whom the kind
 * gives one. The process ends when the list of requests is empty.
 *
 * A large body takes up to 30 times its size while a worker reads it, and the C library keeps what
 * is freed for the thread that had it. So a second after such a body a worker returns the free
 * memory of all threads to the system, and twice more, for what its answer held until later.
 */
#include <assert.h>
#include <malloc.h>
#include <stdlib.h>

#include "server/app.h"

enum {
    LARGE_BODY = 64 << 10, /* bytes from which on a body's memory is worth returning */
    TRIM_DELAY_MS = 1000,
    N_TRIMS = 3,
    TRIM_THRESHOLD = 1 << 20 /* free memory at the end of a thread's own that it may keep */
};

/* ---- memory that large bodies leave behind -------------------------------------------------- */

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

static void on_trim_due(uv_timer_t *timer) {
    struct app *app = timer->data;
    assert(app->trims_due > 0);
    if (!app->trimming) app->trims_due--;
    if (app->trims_due > 0) uv_timer_start(timer, on_trim_due, TRIM_DELAY_MS, 0);
    if (app->trimming) return;
    app->trimming = true;
    app->trim_work.data = app;
    uv_queue_work(&app->loop, &app->trim_work, trim, after_trim);
}

/* malloc_trim leaves alone what is free at the end of a thread's memory; the threshold, which the
 * C library otherwise raises by itself to twice the largest block that was freed, bounds that. */
void async_init(struct app *app) {
    mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD);
    uv_timer_init(&app->loop, &app->trim_timer);
    app->trim_timer.data = app;
}

void async_close(struct app *app) {
    assert(app->requests.n == 0);
    uv_close((uv_handle_t *)&app->trim_timer, NULL);
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
    list_remove(&app->requests, &request->node);
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

static void run(uv_work_t *work) {
    struct async_request *request = work->data;
    request->kind->run(request);
}

static void after_run(uv_work_t *work, int status) {
    struct async_request *request = work->data;
    struct app *app = request->app;
    assert(status == 0 && request->running); /* only uv_cancel gives another, which is not used */
    (void)status;
    request->running = false;
    bool is_large = request->http->body_length >= LARGE_BODY;
    bool is_due = uv_is_active((uv_handle_t *)&app->trim_timer);
    if (is_large) app->trims_due = N_TRIMS;
    if (is_large && !is_due) uv_timer_start(&app->trim_timer, on_trim_due, TRIM_DELAY_MS, 0);
    http_drop_body(request->http);
    request->kind->done(request);
    http_flush(app->http);
    async_unref(request);
}

void async_start(struct async_request *request, const struct async_kind *kind, struct app *app,
                 struct http_request *http) {
    assert(!http->app);
    *request = (struct async_request){.kind = kind,
                                      .app = app,
                                      .http = http,
                                      .work = {.data = request},
                                      .references = 3,
                                      .running = true};
    list_append(&app->requests, &request->node);
    http->app = request;
    uv_queue_work(&app->loop, &request->work, run, after_run);
}

void async_gone(struct async_request *request) {
    if (request->gone) return;
    request->gone = true;
    if (!request->running && request->kind->stop) request->kind->stop(request, NULL);
}

int async_log_fields(const struct async_request *request, struct log_field *fields) {
    if (request->running || !request->kind->log_fields) return 0; /* a worker may be writing them */
    return request->kind->log_fields(request, fields);
}

void async_abort_all(struct app *app, const struct err *err) {
    assert(app->aborted); /* so that those which a worker has end in `done` */
    list_each_removable(node, &app->requests) {
        struct async_request *request = list_entry(node, struct async_request, node);
        bool goes_on = request->http && !request->running && request->kind->stop;
        if (goes_on) request->kind->stop(request, err);
    }
    http_flush(app->http);
}
