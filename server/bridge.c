/* DESIGN: from the engine thread to the loop.
 *
 * The engine thread appends a step's events to `arrived` under the mutex and wakes the loop once.
 * The loop swaps the vector with its own empty one, so the mutex is held for a swap or a copy only,
 * hands each event to its job, and then flushes the HTTP side once: all chunks of a step leave
 * together. Events of one choice stay in their order. Vectors grow to the largest step seen and are
 * then reused. That the device has failed comes the same way, before the events that follow from
 * it.
 */
#include <stdlib.h>
#include <string.h>

#include "server/job.h"

void events_append(struct event_vector *vector, const struct event *events, int n) {
    if (vector->capacity - vector->n < n) {
        int capacity = vector->capacity * 2 > vector->n + n ? vector->capacity * 2 : vector->n + n;
        vector->events = mem_realloc(vector->events, (size_t)capacity * sizeof *vector->events);
        vector->capacity = capacity;
    }
    memcpy(vector->events + vector->n, events, (size_t)n * sizeof *events);
    vector->n += n;
}

void bridge_on_events(void *arg, const struct event *events, int n) {
    struct app *app = arg;
    pthread_mutex_lock(&app->mutex);
    events_append(&app->arrived, events, n);
    pthread_mutex_unlock(&app->mutex);
    uv_async_send(&app->wake);
}

void bridge_on_failure(void *arg, const struct err *err) {
    struct app *app = arg;
    pthread_mutex_lock(&app->mutex);
    app->arrived_failure = *err;
    pthread_mutex_unlock(&app->mutex);
    uv_async_send(&app->wake);
}

static void take_failure(struct app *app, const struct err *err) {
    if (app->failure.status || !err->status) return;
    app->failure = *err;
    lifecycle_fail(app);
}

static void on_wake(uv_async_t *wake) {
    struct app *app = wake->data;
    struct event_vector taken;
    uint64_t began = now_ns();
    pthread_mutex_lock(&app->mutex);
    struct err failure = app->arrived_failure;
    taken = app->arrived;
    app->arrived = app->taken;
    app->arrived.n = 0;
    pthread_mutex_unlock(&app->mutex);
    take_failure(app, &failure);
    for (int i = 0; i < taken.n; i++) {
        struct job_prompt *prompt = taken.events[i].generation->owner;
        job_event(prompt->job, prompt, &taken.events[i]);
    }
    app->taken = taken;
    if (taken.n > 0) http_flush(app->http);
    app->metrics.answer_ns += now_ns() - began;
}

void bridge_init(struct app *app) {
    pthread_mutex_init(&app->mutex, NULL);
    uv_async_init(&app->loop, &app->wake, on_wake);
    app->wake.data = app;
}

void bridge_close(struct app *app) {
    uv_close((uv_handle_t *)&app->wake, NULL);
    pthread_mutex_destroy(&app->mutex);
    free(app->arrived.events);
    free(app->taken.events);
}
