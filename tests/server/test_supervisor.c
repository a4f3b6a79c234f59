/* The service manager's view: messages, watchdog, passed sockets and --exit-when-idle, with
 * stand-ins for scheduler, HTTP and shutdown. */
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/app/app.h"
#include "tests/support/suite_main.h"

static struct app *app;
static struct options options;
static struct scheduler_stats scheduler;
static struct http_stats http;
static int drains, manager;

/* ---- stand-ins; the linker prefers them ------------------------------------------------------ */

void scheduler_stats(struct scheduler *s, struct scheduler_stats *out) {
    (void)s;
    *out = scheduler;
}

void http_stats(const struct http_server *server, struct http_stats *out) {
    (void)server;
    *out = http;
}

void lifecycle_drain(struct app *drained, bool delayed) {
    ck_assert_ptr_eq(drained, app);
    ck_assert(!delayed);
    app->draining = true;
    drains++;
    uv_stop(&app->loop);
}

/* ---- the manager ----------------------------------------------------------------------------- */

/* Listens for messages on a socket without a file. */
static void listen_for_messages(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    int n = snprintf(name, sizeof name, "@penstock-test-%d", (int)getpid());
    memcpy(address.sun_path + 1, name + 1, (size_t)n - 1);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n);
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(manager, (struct sockaddr *)&address, length), 0);
    setenv("NOTIFY_SOCKET", name, 1);
}

/* Returns the next message, or "". */
static const char *heard(void) {
    static char message[512];
    ssize_t n = read(manager, message, sizeof message - 1);
    message[n > 0 ? n : 0] = 0;
    return message;
}

static void setup(void) {
    options = (struct options){.drain = {.delay_s = 5, .timeout_s = 30}};
    app = mem_calloc(1, sizeof *app);
    app->options = &options;
    app->model_name = "m";
    app->http = (struct http_server *)app; /* not used by the stand-ins */
    scheduler = (struct scheduler_stats){0};
    http = (struct http_stats){0};
    drains = 0;
    unsetenv("WATCHDOG_USEC");
    listen_for_messages();
    list_init(&app->requests);
    uv_loop_init(&app->loop);
    supervisor_init(app);
}

static void teardown(void) {
    supervisor_close(app);
    uv_run(&app->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&app->loop), 0);
    unsetenv("NOTIFY_SOCKET");
    close(manager);
    free(app);
}

static void stop_waiting(uv_timer_t *timer) {
    uv_stop(timer->loop);
}

static void run_for(uint64_t ms) {
    uv_timer_t timer;
    uv_timer_init(&app->loop, &timer);
    uv_timer_start(&timer, stop_waiting, ms, 0);
    uv_run(&app->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&app->loop, UV_RUN_NOWAIT);
}

/* ---- messages -------------------------------------------------------------------------------- */

START_TEST(the_manager_hears_each_phase) {
    supervisor_loading("weights", 0.5);
    ck_assert_str_eq(heard(), "STATUS=Loading weights: 50 %\nEXTEND_TIMEOUT_USEC=60000000");
    supervisor_ready(app);
    ck_assert_str_eq(heard(), "READY=1\nSTATUS=Serving m");
    supervisor_stopping(app);
    ck_assert_str_eq(heard(),
                     "STOPPING=1\nSTATUS=Draining, 0 requests\nEXTEND_TIMEOUT_USEC=45000000");
    run_for(20);
    ck_assert_str_eq(heard(), "");
}
END_TEST

START_TEST(the_manager_hears_of_an_unloaded_model) {
    struct err err;
    supervisor_model(app, MODEL_UNLOADED, NULL);
    ck_assert_str_eq(heard(), "STATUS=Idle, the model is unloaded");
    scheduler.model = MODEL_UNLOADED;
    supervisor_reloaded(app);
    ck_assert_str_eq(heard(), "READY=1\nSTATUS=Idle, the model is unloaded");
    supervisor_model(app, MODEL_LOADING, NULL);
    ck_assert_str_eq(heard(), "STATUS=Loading the model again");
    err_set(&err, STATUS_UNAVAILABLE, NULL, "lower {max-num-seqs}.");
    supervisor_model(app, MODEL_UNLOADED, &err);
    ck_assert_str_eq(heard(), "STATUS=Idle, the model is unloaded. lower --max-num-seqs.");
    supervisor_model(app, MODEL_LOADED, NULL);
    ck_assert_str_eq(heard(), "STATUS=Serving m");
}
END_TEST

static void set_watchdog(const char *us) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_USEC", us, 1);
    setenv("WATCHDOG_PID", pid, 1);
    supervisor_ready(app);
    ck_assert_str_eq(heard(), "READY=1\nSTATUS=Serving m");
}

START_TEST(an_idle_engine_feeds_the_watchdog) {
    set_watchdog("30000");
    for (int i = 0; i < 3; i++) {
        while (!*heard()) run_for(10);
    }
    ck_assert_int_eq(drains, 0);
}
END_TEST

START_TEST(an_engine_without_steps_does_not) {
    scheduler.waiting = 1;
    scheduler.last_step_ns = now_ns() - 1000000000u;
    set_watchdog("30000");
    run_for(60);
    ck_assert_str_eq(heard(), "");
    ck_assert(supervisor_is_stuck(app, 500000000u));
    ck_assert(!supervisor_is_stuck(app, 3600000000000u));
    scheduler.last_step_ns = now_ns() + 1000000000u; /* a step that ends after the look */
    while (!*heard()) run_for(10);
    scheduler.last_step_ns = 1;
    scheduler.waiting = 0; /* no work: no step is expected */
    while (*heard()) continue;
    while (!*heard()) run_for(10);
}
END_TEST

/* ---- idle ------------------------------------------------------------------------------------ */

START_TEST(the_process_ends_when_it_is_idle) {
    options.drain.idle_s = 1;
    supervisor_ready(app);
    for (int i = 0; i < 100 && !drains; i++) run_for(100);
    ck_assert_int_eq(drains, 1);
}
END_TEST

START_TEST(a_request_keeps_it) {
    options.drain.idle_s = 1;
    http.requests = 1;
    supervisor_ready(app);
    app->active_ms = 0;
    run_for(1500);
    ck_assert_int_eq(drains, 0);
    ck_assert_uint_gt(app->active_ms, 0); /* the time begins anew */
    http.requests = 0;
    for (int i = 0; i < 100 && !drains; i++) run_for(100);
    ck_assert_int_eq(drains, 1);
}
END_TEST

START_TEST(without_the_option_it_stays) {
    supervisor_ready(app);
    ck_assert(!uv_is_active((uv_handle_t *)&app->idle_timer));
    ck_assert(!uv_is_active((uv_handle_t *)&app->watchdog_timer));
}
END_TEST

/* ---- passed sockets -------------------------------------------------------------------------- */

static enum status sockets(const char *count, struct err *err) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", count, 1);
    return supervisor_sockets(app, err);
}

/* Runs in a process of its own, because Check uses the same descriptors. Returns the line that
 * fails, or 0. */
static int take_sockets(void) {
    struct err err;
    if (supervisor_sockets(app, &err) != STATUS_OK || app->n_sockets != 0) return __LINE__;
    for (int i = 3; i < 8; i++) dup2(manager, i);
    if (sockets("2", &err) != STATUS_OK || app->n_sockets != 2) return __LINE__;
    if (app->sockets[0] != 3 || app->sockets[1] != 4 || getenv("LISTEN_FDS")) return __LINE__;
    if (sockets("5", &err) != STATUS_USAGE) return __LINE__;
    if (strcmp(err.message, "5 sockets were passed at the start; the limit is 4")) return __LINE__;
    if (sockets("many", &err) != STATUS_SYSTEM || !strstr(err.message, "LISTEN_FDS"))
        return __LINE__;
    return 0;
}

START_TEST(sockets_are_taken_once) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(take_sockets());
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server supervisor");
    TCase *manager_case = tcase_create("manager"), *idle = tcase_create("idle");
    tcase_set_timeout(manager_case, 30);
    tcase_set_timeout(idle, 30);
    tcase_add_checked_fixture(manager_case, setup, teardown);
    tcase_add_checked_fixture(idle, setup, teardown);
    tcase_add_test(manager_case, the_manager_hears_each_phase);
    tcase_add_test(manager_case, the_manager_hears_of_an_unloaded_model);
    tcase_add_test(manager_case, an_idle_engine_feeds_the_watchdog);
    tcase_add_test(manager_case, an_engine_without_steps_does_not);
    tcase_add_test(manager_case, sockets_are_taken_once);
    tcase_add_test(idle, the_process_ends_when_it_is_idle);
    tcase_add_test(idle, a_request_keeps_it);
    tcase_add_test(idle, without_the_option_it_stays);
    suite_add_tcase(suite, manager_case);
    suite_add_tcase(suite, idle);
    return suite_main(suite);
}
