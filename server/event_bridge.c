/* DESIGN: from the engine thread to the loop.
 *
 * The engine thread appends a step's events to `arrived` under the mutex and wakes the loop once.
 * The loop swaps that vector for its own empty one, so the mutex is held only for a copy or a swap,
 * passes each event to its job, and then flushes HTTP once: all chunks of a step leave together.
 * Events of one choice stay in order. Vectors grow to the largest step seen and are then reused. A
 * failure of the device arrives the same way, before the events that follow from it.
 *
 * `penstock batch` has no loop: it waits for `notify` and receives on its main thread.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/job.h"

/* ---- engine thread -------------------------------------------------------------------------- */

void bridge_on_events(void *arg, const struct event *events, int n) {
    struct app *app = arg;
    struct event_vector *arrived = &app->arrived;
    pthread_mutex_lock(&app->mutex);
    assert(arrived->n >= 0 && arrived->n <= arrived->capacity);
    if (arrived->capacity - arrived->n < n) {
        arrived->capacity = max_int(arrived->n + n, arrived->capacity * 2);
        arrived->events =
            mem_realloc(arrived->events, (size_t)arrived->capacity * sizeof *arrived->events);
    }
    memcpy(arrived->events + arrived->n, events, (size_t)n * sizeof *events);
    arrived->n += n;
    pthread_mutex_unlock(&app->mutex);
    app->notify(app);
}

void bridge_on_failure(void *arg, const struct err *err) {
    struct app *app = arg;
    assert(err->status);
    pthread_mutex_lock(&app->mutex);
    app->arrived_failure = *err;
    pthread_mutex_unlock(&app->mutex);
    app->notify(app);
}

static void wake_loop(struct app *app) {
    uv_async_send(&app->wake);
}

/* ---- loop thread ---------------------------------------------------------------------------- */

void bridge_receive(struct app *app, struct err *failure) {
    struct event_vector empty = app->received;
    empty.n = 0;
    app->received = app->arrived;
    app->arrived = empty;
    *failure = app->arrived_failure;
}

static void on_wake(uv_async_t *wake) {
    struct app *app = wake->data;
    struct err failure;
    uint64_t began = now_ns();
    pthread_mutex_lock(&app->mutex);
    bridge_receive(app, &failure);
    pthread_mutex_unlock(&app->mutex);
    if (failure.status && !app->failure.status) {
        app->failure = failure;
        lifecycle_fail(app);
    }
    for (int i = 0; i < app->received.n; i++) job_event(&app->received.events[i]);
    if (app->received.n > 0) http_flush(app->http);
    app->metrics.answer_ns += now_ns() - began;
}

/* ---- opening and closing -------------------------------------------------------------------- */

void bridge_init(struct app *app, void (*notify)(struct app *app)) {
    pthread_mutex_init(&app->mutex, NULL);
    app->notify = notify ? notify : wake_loop;
    if (notify) return;
    uv_async_init(&app->loop, &app->wake, on_wake);
    app->wake.data = app;
}

void bridge_close(struct app *app) {
    if (app->wake.data) uv_close((uv_handle_t *)&app->wake, NULL);
    pthread_mutex_destroy(&app->mutex);
    mem_free(app->arrived.events);
    mem_free(app->received.events);
}
