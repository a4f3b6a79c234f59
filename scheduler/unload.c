/* DESIGN: an idle scheduler gives its engine's memory back (--unload-when-idle).
 *
 *     LOADED --- nothing has run for unload_after_ns ---> UNLOADED
 *        ^                                                 |     ^
 *        |                                        a request waits |
 *        |                                                 v     |
 *         \------------------ succeeds ---------------- LOADING --/ fails: all requests end
 *
 * The engine thread does both between two steps, so no step is in flight. The other threads go on:
 * requests are submitted and wait in the inbox, and the first one starts the load for all.
 * Content of blocks is lost with the memory: before it, the prefix cache and the host cache forget
 * all blocks, which their observers hear. Learned costs, statistics and adapters stay.
 *
 * A load takes as long as a start. The engine reports its progress, and between two layers the
 * thread takes new requests, cancels, ends late requests and publishes the statistics, so
 * deadlines hold and a watchdog sees life. A scheduler that is stopped gives the load up.
 *
 * A failed load leaves the model unloaded. The requests that wait end with FINISH_UNLOADED, and the
 * next request tries again.
 */
#include <assert.h>
#include <stdio.h>

#include "scheduler/internal.h"
#include "scheduler/kv/event_ring.h"

/* A client may try again after this time. */
enum { LOAD_RETRY_S = 5 };

/* ---- any thread ----------------------------------------------------------------------------- */

void scheduler_load_error(struct scheduler *s, struct err *err) {
    pthread_mutex_lock(&s->inbox.mutex);
    *err = s->inbox.load_err;
    pthread_mutex_unlock(&s->inbox.mutex);
    assert(err->status == STATUS_UNAVAILABLE);
}

double load_left_ns(const struct scheduler *s) {
    const struct inbox *inbox = &s->inbox;
    const uint64_t least = inbox->published.model == MODEL_LOADED ? 0 : inbox->least_load_ns;
    if (inbox->published.model != MODEL_LOADING) return (double)least;
    const uint64_t since = now_ns() - inbox->loading_since_ns;
    return since < least ? (double)(least - since) : 0;
}

/* ---- engine thread -------------------------------------------------------------------------- */

/* Is the engine unused? */
static bool is_idle(const struct scheduler *s) {
    return s->requests.n == 0 && s->n_in_flight == 0;
}

uint64_t unload_in_ns(const struct scheduler *s, uint64_t now) {
    const uint64_t after = s->config.unload_after_ns;
    if (after == 0 || s->stats.model != MODEL_LOADED || s->inbox.failed || !is_idle(s))
        return UINT64_MAX;
    const uint64_t end = s->stats.last_step_ns + after;
    return now < end ? end - now : 0;
}

static void set_model(struct scheduler *s, enum model_state state, const struct err *why) {
    assert(state != s->stats.model && s->n_in_flight == 0);
    s->stats.model = state;
    inbox_publish(s);
    if (s->config.on_model) s->config.on_model(s->config.arg, state, why);
}

static void unload(struct scheduler *s) {
    const struct engine_port *draft = &s->draft_engine.port;
    assert(s->states.n_free + checkpoints_idle(&s->checkpoints) == s->states.n);
    block_pool_forget(&s->pool);
    swap_forget(&s->swap);
    if (s->config.kv_events) event_ring_end_step(s->config.kv_events);
    if (s->draft_engine.model) draft->unload(draft->self);
    s->port.unload(s->port.self);
    s->stats.unloads++;
    set_model(s, MODEL_UNLOADED, NULL);
}

/* Between two parts of a load: handles everything that does not need the model. */
static void on_progress(void *arg, const char *what, double part) {
    struct scheduler *s = arg;
    (void)what;
    (void)part;
    assert(s->stats.model == MODEL_LOADING);
    inbox_take(s);
    cancel_wanted(s);
    deadline_end_late(s, now_ns());
    s->stats.last_step_ns = now_ns();
    inbox_publish(s);
    events_deliver(s);
}

static enum status load_engines(struct scheduler *s, struct err *err) {
    const struct engine_load_watch watch = {on_progress, s, &s->gives_up};
    const struct engine_port *draft = &s->draft_engine.port;
    enum status status = s->port.load(s->port.self, &watch, err);
    if (status || !s->draft_engine.model) return status;
    status = draft->load(draft->self, &watch, err);
    if (status) s->port.unload(s->port.self);
    return status;
}

static void load_succeeded(struct scheduler *s, uint64_t took) {
    s->stats.loads++;
    s->stats.load_ns += took;
    pthread_mutex_lock(&s->inbox.mutex);
    uint64_t *least = &s->inbox.least_load_ns;
    if (*least == 0 || took < *least) *least = took;
    pthread_mutex_unlock(&s->inbox.mutex);
    set_model(s, MODEL_LOADED, NULL);
    list_each(node, &s->requests) restore_prefix(s, list_entry(node, struct request, node));
}

static void load_failed(struct scheduler *s, struct err *err) {
    assert(err->status == STATUS_UNAVAILABLE);
    snprintf(err->code, sizeof err->code, "model_not_loaded");
    err->retry_after_s = LOAD_RETRY_S;
    s->stats.failed_loads++;
    pthread_mutex_lock(&s->inbox.mutex);
    s->inbox.load_err = *err;
    pthread_mutex_unlock(&s->inbox.mutex);
    set_model(s, MODEL_UNLOADED, err);
    end_everything(s, FINISH_UNLOADED);
}

static void load(struct scheduler *s) {
    const uint64_t began = now_ns();
    struct err err = {0};
    pthread_mutex_lock(&s->inbox.mutex);
    s->inbox.loading_since_ns = began;
    pthread_mutex_unlock(&s->inbox.mutex);
    set_model(s, MODEL_LOADING, NULL);
    enum status status = load_engines(s, &err);
    s->stats.last_step_ns = now_ns();
    if (status)
        load_failed(s, &err);
    else
        load_succeeded(s, s->stats.last_step_ns - began);
    s->part_began_ns = now_ns(); /* a step's time excludes the load */
}

void unload_or_load(struct scheduler *s) {
    if (s->unload_due && s->stats.model == MODEL_LOADED && is_idle(s)) unload(s);
    if (s->stats.model == MODEL_UNLOADED && s->requests.n > 0) load(s);
    s->unload_due = false;
    assert(s->stats.model == MODEL_LOADED || s->requests.n == 0);
}
