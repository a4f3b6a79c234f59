/* DESIGN: life under a service manager, by systemd's protocols (sd_notify(3), sd_listen_fds(3)).
 *
 * - The manager may pass listening sockets. It then keeps them open, so a connection that arrives
 *   while no process runs waits for the next one.
 * - It hears READY when the port is open, STATUS while weights load and while the server drains,
 *   and STOPPING when a shutdown begins, with the time that this may take.
 * - The watchdog is fed from the loop, so a loop that hangs does not feed it. It is not fed either
 *   while there is work and the engine finishes no step; then the manager ends the process.
 * - --exit-when-idle ends the process after a time without requests. One timer fires at most once
 *   in that time, so an idle server uses no CPU. Probes and scrapes are not counted as requests.
 * - --unload-when-idle is kept by the scheduler (scheduler/unload.c), which reports here.
 *
 * Without a manager (no NOTIFY_SOCKET) all messages are dropped by the library. The loop thread
 * calls all functions, except supervisor_loading, which the thread that opens the engine calls, and
 * supervisor_model, which the engine thread calls.
 */
#include <assert.h>
#include <inttypes.h>
#include <malloc.h>
#include <systemd/sd-daemon.h>

#include "server/app/app.h"

#define LOADING_US 60000000u /* a start may take this long after each sign of progress */
#define MARGIN_S 10          /* for the last answers of a shutdown */

enum status supervisor_sockets(struct app *app, struct err *err) {
    int n = sd_listen_fds(1); /* the variables are not for child processes */
    if (n < 0)
        return err_set(err, STATUS_SYSTEM, NULL,
                       "the variables LISTEN_FDS and LISTEN_PID are not "
                       "valid: %s",
                       strerror(-n));
    if (n > HTTP_MAX_SOCKETS)
        return err_set(err, STATUS_USAGE, NULL,
                       "%d sockets were passed at the start; the limit is %d", n, HTTP_MAX_SOCKETS);
    for (int i = 0; i < n; i++) app->sockets[i] = SD_LISTEN_FDS_START + i;
    app->n_sockets = n;
    return STATUS_OK;
}

void supervisor_loading(const char *what, double part) {
    assert(part >= 0);
    sd_notifyf(0, "STATUS=Loading %s: %.0f %%\nEXTEND_TIMEOUT_USEC=%u", what, part * 100,
               LOADING_US);
}

/* ---- watchdog ------------------------------------------------------------------------------- */

bool supervisor_is_stuck(const struct app *app, uint64_t longest_ns) {
    struct scheduler_stats stats;
    uint64_t now = now_ns();
    scheduler_stats(app->scheduler, &stats);
    bool working = stats.running + stats.waiting + stats.swapped > 0;
    return working && now > stats.last_step_ns && now - stats.last_step_ns > longest_ns;
}

static void on_watchdog(uv_timer_t *timer) {
    const struct app *app = timer->data;
    assert(app->watchdog_us > 0);
    if (!supervisor_is_stuck(app, app->watchdog_us * 1000 / 2)) sd_notify(0, "WATCHDOG=1");
}

/* Feeds the watchdog three times in its period. */
static void start_watchdog(struct app *app) {
    if (sd_watchdog_enabled(0, &app->watchdog_us) <= 0) return;
    uint64_t period_ms = app->watchdog_us / 3000;
    if (period_ms == 0) period_ms = 1;
    uv_timer_start(&app->watchdog_timer, on_watchdog, period_ms, period_ms);
}

/* ---- idle ----------------------------------------------------------------------------------- */

static uint64_t idle_ms(const struct app *app) {
    return (uint64_t)app->options->drain.idle_s * 1000;
}

/* Is there a request of which not all bytes are sent? */
static bool has_requests(const struct app *app) {
    struct http_stats stats;
    http_stats(app->http, &stats);
    return app->requests.n > 0 || stats.requests > 0;
}

static void on_idle_timer(uv_timer_t *timer) {
    struct app *app = timer->data;
    uint64_t now = uv_now(&app->loop), end = app->active_ms + idle_ms(app);
    assert(idle_ms(app) > 0);
    if (app->draining || app->failure.status) return;
    if (has_requests(app)) app->active_ms = now, end = now + idle_ms(app);
    if (now < end) {
        uv_timer_start(timer, on_idle_timer, end - now, 0);
        return;
    }
    log_line(LOG_INFO, "no request for %d s", app->options->drain.idle_s);
    lifecycle_drain(app, false);
}

void supervisor_touch(struct app *app) {
    app->active_ms = uv_now(&app->loop);
}

/* ---- a model that is unloaded when idle ------------------------------------------------------ */

static void say_unloaded(const struct app *app) {
    malloc_trim(0);
    log_line(LOG_INFO, "no step for %d s: weights and cache are given back, the next request loads",
             app->options->drain.unload_s);
    sd_notify(0, "STATUS=Idle, the model is unloaded");
}

void supervisor_model(void *arg, enum model_state state, const struct err *err) {
    const struct app *app = arg;
    struct buf why = {0};
    if (err) options_message(err->message, &why);
    if (err) {
        log_line(LOG_ERROR, "%s", why.data);
        sd_notifyf(0, "STATUS=Idle, the model is unloaded. %s", why.data);
    } else if (state == MODEL_UNLOADED) {
        say_unloaded(app);
    } else if (state == MODEL_LOADING) {
        log_line(LOG_INFO, "loading the model again");
        sd_notify(0, "STATUS=Loading the model again");
    } else {
        log_line(LOG_INFO, "the model is loaded again");
        sd_notifyf(0, "STATUS=Serving %s", app->model_name);
    }
    buf_free(&why);
}

/* ---- from open to closed -------------------------------------------------------------------- */

void supervisor_init(struct app *app) {
    uv_timer_init(&app->loop, &app->watchdog_timer);
    uv_timer_init(&app->loop, &app->idle_timer);
    app->watchdog_timer.data = app->idle_timer.data = app;
}

void supervisor_ready(struct app *app) {
    assert(app->http && !app->draining);
    sd_notifyf(0, "READY=1\nSTATUS=Serving %s", app->model_name);
    start_watchdog(app);
    supervisor_touch(app);
    if (idle_ms(app) > 0) uv_timer_start(&app->idle_timer, on_idle_timer, idle_ms(app), 0);
}

void supervisor_reloading(void) {
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=Reading settings again",
               now_ns() / 1000);
}

void supervisor_reloaded(const struct app *app) {
    struct scheduler_stats stats;
    assert(app->http);
    scheduler_stats(app->scheduler, &stats);
    if (stats.model == MODEL_LOADED)
        sd_notifyf(0, "READY=1\nSTATUS=Serving %s", app->model_name);
    else
        sd_notify(0, "READY=1\nSTATUS=Idle, the model is unloaded");
}

void supervisor_stopping(const struct app *app) {
    uint64_t seconds =
        (uint64_t)app->options->drain.delay_s + (uint64_t)app->options->drain.timeout_s + MARGIN_S;
    sd_notifyf(0, "STOPPING=1\nSTATUS=Draining, %d requests\nEXTEND_TIMEOUT_USEC=%" PRIu64,
               app->requests.n, seconds * 1000000);
}

void supervisor_close(struct app *app) {
    uv_close((uv_handle_t *)&app->watchdog_timer, NULL);
    uv_close((uv_handle_t *)&app->idle_timer, NULL);
}
