/* DESIGN: the orderly end.
 *
 * The first SIGTERM, SIGINT or SIGHUP drains: the port is closed, readiness says no, idle
 * connections go, running requests finish. When the last connection is closed and the last job is
 * freed, the loop is stopped; exit code 0. After --drain-timeout, or at a second signal, what still
 * runs ends with an error of status 503 (a stream gets it as its last event), and connections that
 * do not take it within a second are cut. A terminal that closes sends SIGHUP; whoever started the
 * server with nohup does not want it to end by that, so it is left ignored where it is.
 *
 * When the device has failed, nothing can be served any more, and only a new process may have a
 * working device. All requests end with an error. For half a second the port stays open, so that
 * readiness checks and clients get their 503; then the process drains what is left as at a second
 * signal, and ends with an exit code of its own, for a supervisor to start it again. A signal in
 * that time changes nothing, and a drain that is under way when the device fails ends as soon.
 */
#include <signal.h>

#include "server/app.h"

/* How long an aborted answer may take to leave. */
#define ABORT_GRACE_MS 1000

/* How long the port stays open after the device has failed. */
#define FAILED_OPEN_MS 500

/* Stops the loop once nothing is left that could still answer somebody. */
static void end_if_finished(struct app *app) {
    if (app->http_closed && app->n_jobs == 0 && app->n_texts == 0) uv_stop(&app->loop);
}

void lifecycle_job_ended(struct app *app) {
    end_if_finished(app);
}

static void on_http_closed(void *arg) {
    struct app *app = arg;
    app->http_closed = true;
    end_if_finished(app);
}

static void on_grace_over(uv_timer_t *timer) {
    struct app *app = timer->data;
    http_server_abort(app->http);
}

static void abort_all(struct app *app, const char *why) {
    if (app->aborted) return;
    app->aborted = true;
    if (app->n_jobs > 0) log_line(LOG_WARNING, "%s: %d requests are cut off", why, app->n_jobs);
    uv_timer_start(&app->drain_timer, on_grace_over, ABORT_GRACE_MS, 0);
    jobs_abort(app);
}

static void on_drain_timeout(uv_timer_t *timer) {
    abort_all(timer->data, "--drain-timeout is over");
}

static void begin_drain(struct app *app) {
    if (app->draining) return;
    app->draining = true;
    http_server_drain(app->http, on_http_closed);
}

static void on_failure_told(uv_timer_t *timer) {
    begin_drain(timer->data);
    abort_all(timer->data, "the device has failed");
}

static void drain(struct app *app, int signal) {
    log_line(LOG_INFO, "signal %d: draining, %d requests under way", signal, app->n_jobs);
    uint64_t timeout_ms = (uint64_t)app->options->drain_timeout_s * 1000;
    uv_timer_start(&app->drain_timer, on_drain_timeout, timeout_ms, 0);
    begin_drain(app);
}

/* Whoever was aborted has that timer already. */
void lifecycle_fail(struct app *app) {
    log_line(LOG_ERROR, "%s %d requests end with an error, and then the server.",
             app->failure.message, app->n_jobs);
    if (!app->aborted) uv_timer_start(&app->drain_timer, on_failure_told, FAILED_OPEN_MS, 0);
}

static void on_signal(uv_signal_t *handle, int signal) {
    struct app *app = handle->data;
    if (app->draining)
        abort_all(app, "second signal");
    else if (!app->failure.status)
        drain(app, signal);
}

static const int numbers[APP_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};

static bool is_ignored(int signal) {
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void lifecycle_init(struct app *app) {
    for (int i = 0; i < APP_SIGNALS; i++) {
        uv_signal_init(&app->loop, &app->signals[i]);
        app->signals[i].data = app;
        if (numbers[i] == SIGHUP && is_ignored(SIGHUP)) continue;
        uv_signal_start(&app->signals[i], on_signal, numbers[i]);
    }
    uv_timer_init(&app->loop, &app->drain_timer);
    app->drain_timer.data = app;
}

/* What is asked for now is being done: one signal more must not cost the exit code. */
void lifecycle_close(struct app *app) {
    for (int i = 0; i < APP_SIGNALS; i++) {
        uv_close((uv_handle_t *)&app->signals[i], NULL);
        signal(numbers[i], SIG_IGN);
    }
    uv_close((uv_handle_t *)&app->drain_timer, NULL);
}
