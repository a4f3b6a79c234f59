/* DESIGN: moves events from the engine thread to the loop.
 *
 * The engine thread appends a step's events to `arrived` under the mutex and wakes the loop once.
 * The loop swaps that vector for an empty one, so the mutex is held only for a copy or a swap. It
 * passes each event to its job and then flushes HTTP once, so all chunks of a step are sent
 * together. Events of one choice stay in order. Vectors grow to the largest step and are then
 * reused. If a vector cannot grow, the engine thread waits until the loop has received its events.
 * A failure of the device arrives the same way, before the events that it causes.
 *
 * `penstock batch` does not have a loop: it waits for `notify` and receives on its main thread.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/app/app.h"

enum { FIRST_EVENTS = 256 }; /* initial capacity of a vector */

/* ---- engine thread -------------------------------------------------------------------------- */

/* Ensures capacity for n more events, if there is memory. */
static void grow(struct event_vector *vector, int n) {
    assert(n >= 0);
    if (vector->capacity - vector->n >= n) return;
    int capacity = max_int(vector->n + n, vector->capacity * 2);
    struct event *events =
        mem_try_realloc(vector->events, (size_t)capacity * sizeof *vector->events);
    if (!events) return;
    vector->events = events;
    vector->capacity = capacity;
}

/* Adds as many of n events as fit. Returns their number. */
static int add(struct event_vector *vector, const struct event *events, int n) {
    grow(vector, n);
    int taken = min_int(n, vector->capacity - vector->n);
    assert(taken >= 0 && vector->n >= 0);
    memcpy(vector->events + vector->n, events, (size_t)taken * sizeof *events);
    vector->n += taken;
    return taken;
}

void bridge_on_events(void *arg, const struct event *events, int n) {
    assert(events && n > 0);
    struct app *app = arg;
    pthread_mutex_lock(&app->mutex);
    for (int at = 0; (at += add(&app->arrived, events + at, n - at)) < n;) {
        app->notify(app);
        pthread_cond_wait(&app->received_some, &app->mutex);
    }
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
    pthread_cond_signal(&app->received_some);
}

static void on_wake(uv_async_t *wake) {
    struct app *app = wake->data;
    app->n_wakes++;
    struct err failure;
    uint64_t began = now_ns();
    pthread_mutex_lock(&app->mutex);
    bridge_receive(app, &failure);
    pthread_mutex_unlock(&app->mutex);
    if (failure.status && !app->failure.status) {
        app->failure = failure;
        lifecycle_fail(app);
    }
    for (int i = 0; i < app->received.n; i++) app->on_event(&app->received.events[i]);
    if (app->received.n > 0) http_flush(app->http);
    app->metrics.answer_ns += now_ns() - began;
}

/* ---- opening and closing -------------------------------------------------------------------- */

void bridge_init(struct app *app, void (*on_event)(const struct event *event),
                 void (*notify)(struct app *app)) {
    assert((on_event != NULL) != (notify != NULL));
    pthread_mutex_init(&app->mutex, NULL);
    pthread_cond_init(&app->received_some, NULL);
    app->arrived.events = mem_alloc(FIRST_EVENTS * sizeof *app->arrived.events);
    app->received.events = mem_alloc(FIRST_EVENTS * sizeof *app->received.events);
    app->arrived.capacity = app->received.capacity = FIRST_EVENTS;
    app->on_event = on_event;
    app->notify = notify ? notify : wake_loop;
    if (notify) return;
    uv_async_init(&app->loop, &app->wake, on_wake);
    app->wake.data = app;
}

void bridge_close(struct app *app) {
    if (app->wake.data) uv_close((uv_handle_t *)&app->wake, NULL);
    pthread_mutex_destroy(&app->mutex);
    pthread_cond_destroy(&app->received_some);
    mem_free(app->arrived.events);
    mem_free(app->received.events);
}
