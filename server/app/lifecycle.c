/* DESIGN: the orderly shutdown.
 *
 *   serving -- SIGTERM, POST /drain --> delay -- --drain-delay is over --> port closed
 *      |                                  |                                    |
 *      |------ SIGINT, SIGHUP ---|--->|
 *      |                                  |                                    |
 *      |                    second signal |      second signal, --drain-timeout |
 *      |                                  v                                    v
 *      \------ device fails --> failed (port open) -- FAILED_OPEN_MS --> aborted --> loop stops
 *
 * A supervisor sends SIGTERM, and routers may not yet know about it. So readiness and new
 * generations are refused immediately, but port and connections stay open for --drain-delay: a
 * router gets a 503, which it may retry elsewhere, instead of a refused or broken connection. Then
 * the port and idle connections are closed, and running requests finish. When the last connection
 * is closed and the last request is freed, the loop is stopped; the exit code is 0. After
 * --drain-timeout, or at a second signal, the remaining requests end with an error of status 503 (a
 * stream gets it as its last event). Connections that do not accept it within a second are cut off.
 *
 * SIGINT is sent by a person at a terminal, SIGHUP by a terminal that closes: they skip the delay,
 * and end one that has begun. Without a controlling terminal (a service, a container) SIGHUP asks a
 * server to read its settings again (commands/reload.c). If SIGHUP is ignored at the start, as with
 * nohup, it stays ignored.
 * POST /drain is not a signal: a SIGTERM after it has no further effect.
 *
 * SIGUSR1 and SIGUSR2 have no effect: log rotation and monitors send them, and by default they
 * would end the process. main.c ignores them from the start; here each one is logged.
 *
 * If the device fails or another rank is lost, only new processes can go on. All requests end with
 * an error. The port stays open for half a second, so that readiness checks and clients get their
 * 503. Then the rest is aborted as at a second signal, and the process ends with a special exit
 * code, so that a supervisor restarts it. Signals during that time have no effect. A failure during
 * a drain ends it in the same time.
 */
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "server/app/app.h"

/* Time for sending the error responses of aborted requests. */
#define ABORT_GRACE_MS 1000

/* Time that the port stays open after the device has failed. */
#define FAILED_OPEN_MS 500

void lifecycle_request_ended(struct app *app) {
    if (app->http_closed && app->requests.n == 0) uv_stop(&app->loop);
}

/* ---- from serving to the end ---------------------------------------------------------------- */

static void on_http_closed(void *arg) {
    struct app *app = arg;
    assert(app->port_closed && !app->http_closed);
    app->http_closed = true;
    lifecycle_request_ended(app);
}

/* Refuses new connections; running requests continue. */
static void close_port(struct app *app) {
    if (app->port_closed) return;
    app->draining = app->port_closed = true;
    http_server_drain(app->http, on_http_closed);
}

static void on_grace_over(uv_timer_t *timer) {
    struct app *app = timer->data;
    assert(app->port_closed && app->aborted);
    http_server_abort(app->http);
}

static void abort_all(struct app *app, const char *why) {
    if (app->aborted) return;
    close_port(app);
    app->aborted = true;
    if (app->requests.n > 0)
        log_line(LOG_WARNING, "%s: aborting %d requests", why, app->requests.n);
    uv_timer_start(&app->drain_timer, on_grace_over, ABORT_GRACE_MS, 0);
    struct err err;
    err_set(&err, STATUS_UNAVAILABLE, NULL, "The server is shutting down.");
    async_abort_all(app, &err);
}

static void on_drain_timeout(uv_timer_t *timer) {
    abort_all(timer->data, "--drain-timeout is over");
}

static void on_delay_over(uv_timer_t *timer) {
    struct app *app = timer->data;
    uint64_t timeout_ms = (uint64_t)app->options->drain.timeout_s * 1000;
    assert(app->draining && !app->port_closed);
    log_line(LOG_INFO, "the port is closed, %d requests running", app->requests.n);
    uv_timer_start(timer, on_drain_timeout, timeout_ms, 0);
    close_port(app);
}

void lifecycle_drain(struct app *app, bool delayed) {
    int delay_s = delayed ? app->options->drain.delay_s : 0;
    if (app->failure.status || app->port_closed) return;
    if (app->draining && delay_s > 0) return; /* the delay has already begun */
    log_line(LOG_INFO, "draining: %d requests running, the port closes in %d s", app->requests.n,
             delay_s);
    if (!app->draining) http_server_announce_drain(app->http);
    app->draining = true;
    supervisor_stopping(app);
    if (delay_s > 0)
        uv_timer_start(&app->drain_timer, on_delay_over, (uint64_t)delay_s * 1000, 0);
    else
        on_delay_over(&app->drain_timer);
}

static void on_failure_announced(uv_timer_t *timer) {
    abort_all(timer->data, "the device or a rank has failed");
}

/* During an abort, the timer is already used for the grace period. */
void lifecycle_fail(struct app *app) {
    assert(app->failure.status);
    log_line(LOG_ERROR, "%s %d requests end with an error, then the server stops.",
             app->failure.message, app->requests.n);
    supervisor_stopping(app);
    if (!app->aborted) uv_timer_start(&app->drain_timer, on_failure_announced, FAILED_OPEN_MS, 0);
}

/* ---- signals -------------------------------------------------------------------------------- */

static const int numbers[APP_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};
static const int ignored_numbers[APP_IGNORED] = {SIGUSR1, SIGUSR2};

static void on_ignored_signal(uv_signal_t *handle, int signal) {
    (void)handle;
    log_line(LOG_INFO, "signal %d is ignored; the log goes to standard error, not to a file",
             signal);
}

static void on_signal(uv_signal_t *handle, int signal) {
    struct app *app = handle->data;
    if (app->signalled) {
        abort_all(app, "second signal");
    } else if (signal == SIGHUP && app->on_hangup && !app->has_terminal && !app->draining) {
        app->on_hangup(app);
    } else if (app->draining || !app->failure.status) {
        log_line(LOG_INFO, "signal %d", signal);
        app->signalled = true;
        lifecycle_drain(app, signal == SIGTERM);
    }
}

static bool has_terminal(void) {
    int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

void lifecycle_init(struct app *app) {
    app->has_terminal = has_terminal();
    struct sigaction hangup;
    bool ignored = sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
    for (int i = 0; i < APP_SIGNALS; i++) {
        uv_signal_init(&app->loop, &app->signals[i]);
        app->signals[i].data = app;
        if (numbers[i] == SIGHUP && ignored) continue;
        uv_signal_start(&app->signals[i], on_signal, numbers[i]);
    }
    for (int i = 0; i < APP_IGNORED; i++) {
        uv_signal_init(&app->loop, &app->ignored[i]);
        uv_signal_start(&app->ignored[i], on_ignored_signal, ignored_numbers[i]);
    }
    uv_timer_init(&app->loop, &app->drain_timer);
    app->drain_timer.data = app;
}

/* The shutdown is complete: further signals must not change the exit code. */
void lifecycle_close(struct app *app) {
    for (int i = 0; i < APP_SIGNALS; i++) {
        uv_close((uv_handle_t *)&app->signals[i], NULL);
        signal(numbers[i], SIG_IGN);
    }
    for (int i = 0; i < APP_IGNORED; i++) {
        uv_close((uv_handle_t *)&app->ignored[i], NULL);
        signal(ignored_numbers[i], SIG_IGN);
    }
    uv_close((uv_handle_t *)&app->drain_timer, NULL);
}
