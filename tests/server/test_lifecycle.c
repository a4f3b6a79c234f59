/* The shutdown: signals, drains, aborts and a failed device, with a separate loop and stand-ins for
 * HTTP and the requests. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/app/app.h"
#include "tests/support/suite_main.h"

static struct app *app;
static struct options options;
static struct list_node request; /* represents a running request */
static int announced, drains, aborts, requests_aborts;
static void (*on_closed)(void *app);

/* ---- stand-ins for functions of HTTP and requests; the linker prefers them ------------------- */

void http_server_announce_drain(struct http_server *server) {
    (void)server;
    ck_assert_int_eq(drains, 0);
    announced++;
}

void http_server_drain(struct http_server *server, void (*closed)(void *app)) {
    (void)server;
    drains++;
    on_closed = closed;
}

void http_server_abort(struct http_server *server) {
    (void)server;
    aborts++;
}

void async_abort_all(struct app *aborted, const struct err *err) {
    ck_assert_ptr_eq(aborted, app);
    ck_assert_int_eq(err->status, STATUS_UNAVAILABLE);
    requests_aborts++;
}

void supervisor_stopping(const struct app *stopping) {
    ck_assert_ptr_eq(stopping, app);
    ck_assert(app->draining || app->failure.status);
}

static const int all_signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

/* ---- the loop ------------------------------------------------------------------------------- */

static void setup(void) {
    options = (struct options){.drain.timeout_s = 30};
    app = mem_calloc(1, sizeof *app);
    app->options = &options;
    announced = drains = aborts = requests_aborts = 0;
    on_closed = NULL;
    request = (struct list_node){0};
    list_init(&app->requests);
    uv_loop_init(&app->loop);
    lifecycle_init(app);
}

static void teardown(void) {
    lifecycle_close(app);
    uv_run(&app->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&app->loop), 0);
    free(app);
    for (int i = 0; i < 5; i++) signal(all_signals[i], SIG_DFL);
}

static void stop_waiting(uv_timer_t *timer) {
    uv_stop(timer->loop);
}

/* Runs the loop for `ms`. Returns true if the lifecycle stopped it earlier. */
static bool run_for(uint64_t ms) {
    uv_timer_t timer;
    uv_timer_init(&app->loop, &timer);
    uv_timer_start(&timer, stop_waiting, ms, 0);
    uv_run(&app->loop, UV_RUN_DEFAULT);
    bool stopped = uv_is_active((uv_handle_t *)&timer);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&app->loop, UV_RUN_NOWAIT);
    return stopped;
}

static void send_signal(int number) {
    ck_assert_int_eq(kill(getpid(), number), 0);
    run_for(20);
}

static void fail_device(void) {
    err_set(&app->failure, STATUS_SERVER_ERROR, NULL, "The device has failed.");
    lifecycle_fail(app);
}

/* ---- draining ------------------------------------------------------------------------------- */

START_TEST(a_signal_drains) {
    list_append(&app->requests, &request);
    send_signal((int[]){SIGTERM, SIGINT, SIGHUP}[_i]);
    ck_assert(app->draining && !app->aborted);
    ck_assert_int_eq(drains, 1);
    ck_assert_int_eq(requests_aborts, 0);
    list_remove(&app->requests, &request);
    lifecycle_request_ended(app);
    ck_assert(!run_for(20)); /* connections are open */
    on_closed(app);
    ck_assert(run_for(1000));
    ck_assert_int_eq(aborts, 0);
}
END_TEST

/* A worker's request may outlive its connection. */
START_TEST(the_last_one_stops_the_loop) {
    struct list_node other = {0};
    list_append(&app->requests, &request);
    list_append(&app->requests, &other);
    send_signal(SIGTERM);
    on_closed(app);
    ck_assert(!run_for(20));
    list_remove(&app->requests, &request);
    lifecycle_request_ended(app);
    ck_assert(!run_for(20));
    list_remove(&app->requests, &other);
    lifecycle_request_ended(app);
    ck_assert(run_for(1000));
}
END_TEST

START_TEST(requests_end_without_stopping_a_server) {
    list_append(&app->requests, &request);
    list_remove(&app->requests, &request);
    lifecycle_request_ended(app);
    ck_assert(!run_for(20));
    ck_assert_int_eq(drains, 0);
}
END_TEST

START_TEST(a_second_signal_aborts) {
    list_append(&app->requests, &request);
    send_signal(SIGTERM);
    send_signal(SIGINT);
    ck_assert(app->aborted);
    ck_assert_int_eq(drains, 1);
    ck_assert_int_eq(requests_aborts, 1);
    ck_assert_int_eq(aborts, 0);
    send_signal(SIGTERM); /* a third one changes nothing */
    ck_assert_int_eq(requests_aborts, 1);
    ck_assert(!run_for(1200)); /* the grace period is over, and the request still exists */
    ck_assert_int_eq(aborts, 1);
    list_remove(&app->requests, &request);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

START_TEST(the_timeout_aborts) {
    options.drain.timeout_s = 0;
    send_signal(SIGTERM);
    run_for(20);
    ck_assert(app->aborted);
    ck_assert_int_eq(requests_aborts, 1);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

/* ---- with a delay --------------------------------------------------------------------------- */

static void setup_delay(void) {
    setup();
    options.drain.delay_s = 1;
}

/* New generations are refused immediately. The port stays open for a second. */
START_TEST(sigterm_waits_before_the_port_is_closed) {
    list_append(&app->requests, &request);
    send_signal(SIGTERM);
    ck_assert(app->draining && !app->port_closed);
    ck_assert(announced == 1 && drains == 0);
    run_for(700);
    ck_assert_int_eq(drains, 0);
    run_for(500);
    ck_assert(app->port_closed && !app->aborted);
    ck_assert(announced == 1 && drains == 1);
    list_remove(&app->requests, &request);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

/* The timeout begins when the delay is over. */
START_TEST(the_timeout_follows_the_delay) {
    options.drain.timeout_s = 1;
    list_append(&app->requests, &request);
    send_signal(SIGTERM);
    run_for(1500);
    ck_assert(drains == 1 && requests_aborts == 0);
    run_for(1000);
    ck_assert(app->aborted && requests_aborts == 1);
    list_remove(&app->requests, &request);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

START_TEST(a_second_signal_ends_the_delay_and_aborts) {
    list_append(&app->requests, &request);
    send_signal(SIGTERM);
    send_signal((int[]){SIGTERM, SIGINT}[_i]);
    ck_assert(app->port_closed && app->aborted);
    ck_assert(drains == 1 && requests_aborts == 1);
    list_remove(&app->requests, &request);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

START_TEST(a_person_does_not_wait) {
    send_signal((int[]){SIGINT, SIGHUP}[_i]);
    ck_assert(app->port_closed && !app->aborted);
    ck_assert(announced == 1 && drains == 1);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

/* A later SIGTERM of a supervisor neither restarts the drain nor aborts. A person's signal ends the
 * delay. */
START_TEST(a_drain_without_a_signal) {
    lifecycle_drain(app, true);
    ck_assert(app->draining && !app->port_closed && announced == 1);
    lifecycle_drain(app, true);
    ck_assert_int_eq(announced, 1);
    if (_i == 0) run_for(700);
    send_signal((int[]){SIGTERM, SIGINT}[_i]);
    ck_assert(!app->aborted && app->port_closed == (_i == 1));
    if (_i == 0) run_for(500);
    ck_assert(app->port_closed && drains == 1);
    send_signal(SIGTERM);
    ck_assert(app->aborted);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

START_TEST(a_failure_ends_the_delay) {
    options.drain.delay_s = 30;
    send_signal(SIGTERM);
    fail_device();
    lifecycle_drain(app, false); /* changes nothing */
    ck_assert_int_eq(drains, 0);
    run_for(700);
    ck_assert(app->port_closed && app->aborted && drains == 1);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

/* ---- a failed device ------------------------------------------------------------------------ */

START_TEST(a_failure_keeps_the_port_open_and_then_aborts) {
    fail_device();
    ck_assert(!run_for(300));
    ck_assert(!app->draining && drains == 0);
    send_signal(SIGTERM); /* changes nothing */
    ck_assert(!app->draining && drains == 0);
    run_for(400);
    ck_assert(app->draining && app->aborted);
    ck_assert(drains == 1 && requests_aborts == 1);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

START_TEST(a_failure_shortens_a_drain) {
    list_append(&app->requests, &request);
    send_signal(SIGTERM);
    fail_device();
    ck_assert(!app->aborted);
    run_for(700);
    ck_assert(app->aborted);
    ck_assert(drains == 1 && requests_aborts == 1);
    list_remove(&app->requests, &request);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

/* The abort's grace period does not change. */
START_TEST(a_failure_after_an_abort_changes_nothing) {
    list_append(&app->requests, &request);
    send_signal(SIGTERM);
    send_signal(SIGTERM);
    run_for(700);
    fail_device();
    run_for(500);
    ck_assert_int_eq(aborts, 1);
    ck_assert(drains == 1 && requests_aborts == 1);
    list_remove(&app->requests, &request);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

/* ---- signals -------------------------------------------------------------------------------- */

/* Like a server that nohup started. */
START_TEST(an_ignored_hangup_stays_ignored) {
    teardown();
    signal(SIGHUP, SIG_IGN);
    setup();
    send_signal(SIGHUP);
    ck_assert(!app->draining);
    send_signal(SIGTERM);
    ck_assert(app->draining);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

/* Log rotation and monitors send these signals. They do not drain, and do not count as the first
 * signal. */
START_TEST(user_signals_change_nothing) {
    list_append(&app->requests, &request);
    for (int i = 0; i < 6; i++) send_signal(i % 2 ? SIGUSR1 : SIGUSR2);
    ck_assert(!app->draining && !app->signalled && announced == 0 && drains == 0);
    send_signal(SIGTERM);
    send_signal(SIGUSR1);
    ck_assert(app->draining && !app->aborted);
    list_remove(&app->requests, &request);
    on_closed(app);
    ck_assert(run_for(1000));
}
END_TEST

START_TEST(after_the_end_signals_are_ignored) {
    send_signal(SIGTERM);
    on_closed(app);
    ck_assert(run_for(1000));
    lifecycle_close(app);
    uv_run(&app->loop, UV_RUN_DEFAULT);
    for (int i = 0; i < 5; i++) kill(getpid(), all_signals[i]);
    lifecycle_init(app); /* for teardown */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_lifecycle");
    TCase *drain = tcase_create("drain"), *failure = tcase_create("failure");
    TCase *signals = tcase_create("signals"), *delay = tcase_create("delay");
    tcase_set_timeout(drain, 30);
    tcase_set_timeout(failure, 30);
    tcase_add_checked_fixture(drain, setup, teardown);
    tcase_set_timeout(delay, 30);
    tcase_add_checked_fixture(delay, setup_delay, teardown);
    tcase_add_checked_fixture(failure, setup, teardown);
    tcase_add_checked_fixture(signals, setup, teardown);
    tcase_add_loop_test(drain, a_signal_drains, 0, 3);
    tcase_add_test(drain, the_last_one_stops_the_loop);
    tcase_add_test(drain, requests_end_without_stopping_a_server);
    tcase_add_test(drain, a_second_signal_aborts);
    tcase_add_test(drain, the_timeout_aborts);
    tcase_add_test(delay, sigterm_waits_before_the_port_is_closed);
    tcase_add_test(delay, the_timeout_follows_the_delay);
    tcase_add_loop_test(delay, a_second_signal_ends_the_delay_and_aborts, 0, 2);
    tcase_add_loop_test(delay, a_person_does_not_wait, 0, 2);
    tcase_add_loop_test(delay, a_drain_without_a_signal, 0, 2);
    tcase_add_test(delay, a_failure_ends_the_delay);
    tcase_add_test(failure, a_failure_keeps_the_port_open_and_then_aborts);
    tcase_add_test(failure, a_failure_shortens_a_drain);
    tcase_add_test(failure, a_failure_after_an_abort_changes_nothing);
    tcase_add_test(signals, an_ignored_hangup_stays_ignored);
    tcase_add_test(signals, user_signals_change_nothing);
    tcase_add_test(signals, after_the_end_signals_are_ignored);
    suite_add_tcase(suite, drain);
    suite_add_tcase(suite, delay);
    suite_add_tcase(suite, failure);
    suite_add_tcase(suite, signals);
    return suite_main(suite);
}
