/* Clients that leave while their request is prepared, at each of its stages: the request is freed,
 * its work stops, and all gauges return to zero. Sanitizers find uses after that. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/generation/grammar_store.h"
#include "support/app_fixture.h"
#include "support/slow_schema.h"
#include "support/suite_main.h"

enum { GRAMMAR_THREADS = 2, GIVE_UP_S = 60 };

static void setup(void) {
    app_setup_queue("100");
}

static struct grammar_store_stats store_stats(void) {
    struct grammar_store_stats stats;
    grammar_store_stats(app->grammars, &stats);
    return stats;
}

static int sequences(void) {
    struct scheduler_stats stats;
    scheduler_stats(app->scheduler, &stats);
    return stats.running + stats.waiting + stats.swapped;
}

/* Runs the loop until a condition holds. */
#define TURN_UNTIL(condition)                                                                      \
    for (uint64_t end_ns = now_ns() + GIVE_UP_S * 1000000000ull; !(condition);) {                  \
        ck_assert_msg(now_ns() < end_ns, "never: %s", #condition);                                 \
        uv_run(&app->loop, UV_RUN_NOWAIT);                                                         \
    }

/* Sends a request whose client then waits. Returns its socket. */
static int send_request(const char *path, const char *body) {
    struct buf text = {0};
    int fd = connect_to_server();
    buf_printf(&text, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s", path,
               strlen(body), body);
    ck_assert_int_eq(send(fd, text.data, text.length, MSG_NOSIGNAL), (ssize_t)text.length);
    buf_free(&text);
    return fd;
}

static int send_slow(const char *path, int number) {
    struct buf body = {0};
    buf_puts(&body, "{\"prompt\":\"hi\",\"max_tokens\":1,\"guided_json\":");
    slow_schema(&body, number);
    buf_puts(&body, "}");
    int fd = send_request(path, body.data);
    buf_free(&body);
    return fd;
}

static struct lane_stats grammars(void) {
    return lanes_stats(app->lanes, LANE_GRAMMAR);
}

/* Fails unless all requests are gone. */
static void check_idle(void) {
    TURN_UNTIL(app->requests.n == 0 && sequences() == 0);
    for (int i = 0; i < N_LANES; i++) {
        struct lane_stats stats = lanes_stats(app->lanes, (enum lane)i);
        ck_assert_int_eq(stats.waiting + stats.running + stats.parked, 0);
    }
    ck_assert_int_eq(app->n_preparing, 0);
    ck_assert_int_eq(store_stats().compiling, 0);
    ask(COMPLETION, "", PROMPT);
    expect_status("afterwards", 200);
}

static const char *const paths[] = {"/v1/completions", "/v1/completions/render"};

START_TEST(a_compilation_whose_client_leaves_stops) {
    int fd = send_slow(paths[_i], 1);
    TURN_UNTIL(store_stats().compiling == 1);
    close(fd);
    check_idle();
    ck_assert_uint_eq(store_stats().cancelled, 1);
    ck_assert_uint_eq(store_stats().refused, 0);
}
END_TEST

/* Only requests that a thread compiles have begun, and these stop, too. */
START_TEST(a_request_whose_client_leaves_while_it_waits_is_not_begun) {
    int fds[12];
    for (int i = 0; i < 12; i++) fds[i] = send_slow(paths[_i], i);
    TURN_UNTIL(store_stats().compiling == GRAMMAR_THREADS && grammars().waiting == 10);
    for (int i = 11; i >= 0; i--) close(fds[i]);
    check_idle();
    ck_assert_uint_le(store_stats().cancelled, GRAMMAR_THREADS);
    ck_assert_uint_eq(store_stats().refused, 0);
}
END_TEST

/* Four clients send one text: one compiles, three are parked. They leave in different orders. */
START_TEST(parked_requests_leave_in_any_order) {
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}};
    int fds[4];
    for (int i = 0; i < 4; i++) fds[i] = send_slow(paths[i % 2], 1);
    TURN_UNTIL(grammars().parked == 3);
    ck_assert_int_eq(grammars().running, 1); /* a waiting request does not occupy a thread */
    for (int i = 0; i < 4; i++) {
        close(fds[orders[_i][i]]);
        uv_run(&app->loop, UV_RUN_NOWAIT);
    }
    check_idle();
    ck_assert_uint_eq(store_stats().cancelled, 1);
}
END_TEST

static void expect_answer(int fd, const char *text) {
    char part[4096];
    ssize_t n;
    buf_clear(&answer);
    while ((n = recv(fd, part, sizeof part, 0)) > 0) buf_add(&answer, part, (size_t)n);
    ck_assert(n < 0 && errno == EAGAIN);
    expect_text(text);
}

/* The client whose request compiles leaves; the others with this text get the result. */
START_TEST(those_that_stay_get_the_result) {
    int fds[3];
    for (int i = 0; i < 3; i++) fds[i] = send_slow(paths[i % 2], 1);
    TURN_UNTIL(grammars().parked == 2);
    close(fds[0]);
    TURN_UNTIL(app->requests.n == 0);
    for (int i = 1; i < 3; i++) {
        expect_answer(fds[i], "'guided_json' cannot be enforced");
        close(fds[i]);
    }
    check_idle();
    ck_assert_uint_eq(store_stats().refused, 1); /* it was compiled once */
    ck_assert_uint_eq(store_stats().cancelled, 0);
}
END_TEST

/* The workers have prepared the request, and the loop is told of that and of the client's departure
 * in the same turn. */
START_TEST(a_prepared_request_leaves) {
    int fd =
        send_request(paths[_i], "{\"prompt\":\"hi\",\"max_tokens\":1,\"guided_regex\":\"a+\"}");
    TURN_UNTIL(app->requests.n == 1);
    uint64_t until_ns = now_ns() + 20000000; /* long enough in most runs; both outcomes are right */
    while (now_ns() < until_ns) sched_yield();
    close(fd);
    check_idle();
}
END_TEST

/* Does the scheduler have the only request? */
static bool is_submitted(void) {
    const struct list_node *node = list_first(&app->requests);
    return node && !list_entry(node, struct async_request, node)->running;
}

START_TEST(a_submitted_request_leaves) {
    int fd =
        send_request(paths[0], "{\"prompt\":[\"a\",\"b\",\"c\",\"d\"],\"n\":4,\"ignore_eos\":true,"
                               "\"guided_regex\":\"(?s:.)*\"}");
    TURN_UNTIL(is_submitted());
    close(fd);
    check_idle();
}
END_TEST

START_TEST(requests_of_texts_leave) {
    static const char *const of_texts[] = {"/tokenize", "/detokenize", "/v1/completions/render"};
    int fds[30];
    for (int i = 0; i < 30; i++)
        fds[i] = send_request(of_texts[i % 3], i % 3 == 1 ? "{\"tokens\":[1,2]}" : PROMPT);
    for (int i = 0; i < 30; i++) {
        uv_run(&app->loop, UV_RUN_NOWAIT);
        close(fds[i]);
    }
    check_idle();
}
END_TEST

/* Clients of all kinds leave after a random number of turns of the loop. */
START_TEST(clients_leave_at_any_time) {
    enum { AT_ONCE = 16, ROUNDS = 120 };
    int fds[AT_ONCE] = {0};
    unsigned seed = 1 + (unsigned)_i;
    for (int round = 0; round < ROUNDS; round++) {
        int i = rand_r(&seed) % AT_ONCE, kind = rand_r(&seed) % 5;
        if (fds[i]) close(fds[i]);
        if (kind < 2)
            fds[i] = send_slow(paths[kind], rand_r(&seed) % 3);
        else if (kind == 2)
            fds[i] = send_request(paths[0], "{\"prompt\":\"hi\",\"guided_regex\":\"[a-z]{9}\"}");
        else
            fds[i] = send_request(kind == 3 ? paths[0] : "/tokenize", PROMPT);
        for (int turns = rand_r(&seed) % 8; turns > 0; turns--) uv_run(&app->loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < AT_ONCE; i++)
        if (fds[i]) close(fds[i]);
    check_idle();
}
END_TEST

/* An aborted server answers requests that compile, wait or are parked, and ends. */
START_TEST(an_abort_ends_requests_at_every_stage) {
    struct err err;
    int fds[6];
    for (int i = 0; i < 6; i++) fds[i] = send_slow(paths[i % 2], i / 2);
    TURN_UNTIL(grammars().running == GRAMMAR_THREADS && app->n_preparing + grammars().waiting >= 3);
    err_set(&err, STATUS_UNAVAILABLE, NULL, "The server is shutting down.");
    app->aborted = true;
    async_abort_all(app, &err);
    TURN_UNTIL(app->requests.n == 0);
    for (int i = 0; i < 6; i++) {
        expect_answer(fds[i], "HTTP/1.1 503 ");
        close(fds[i]);
    }
    app->aborted = false;
    check_idle();
}
END_TEST

/* A request without a grammar is answered while both threads compile and others wait. */
START_TEST(a_plain_request_waits_for_no_grammar) {
    int fds[12];
    for (int i = 0; i < 12; i++) fds[i] = send_slow(paths[0], i);
    TURN_UNTIL(store_stats().compiling == GRAMMAR_THREADS);
    ask(COMPLETION, "", PROMPT);
    expect_status("a plain request", 200);
    ck_assert_uint_lt(store_stats().refused, 12); /* the others are not finished */
    for (int i = 0; i < 12; i++) close(fds[i]);
    check_idle();
}
END_TEST

/* A request whose grammar is compiled already does not wait for others, either. */
START_TEST(a_known_grammar_waits_for_no_other) {
    static const char known[] = "{\"prompt\":\"hi\",\"max_tokens\":1,\"guided_regex\":\"a+\"}";
    int fds[12];
    ask(COMPLETION, "", known);
    for (int i = 0; i < 12; i++) fds[i] = send_slow(paths[0], i);
    TURN_UNTIL(store_stats().compiling == GRAMMAR_THREADS && grammars().waiting > 0);
    ask(COMPLETION, "", known);
    expect_status("a known grammar", 200);
    ck_assert_uint_lt(store_stats().refused, 12);
    for (int i = 0; i < 12; i++) close(fds[i]);
    check_idle();
}
END_TEST

START_TEST(a_client_with_too_many_waiting_grammars_is_refused) {
    int fds[8];
    lanes_set_limit(app->lanes, LANE_GRAMMAR, 4); /* one client may use two places */
    for (int i = 0; i < 8; i++) fds[i] = send_slow(paths[0], i);
    TURN_UNTIL(app->metrics.refused_overload > 0);
    ck_assert_int_le(grammars().waiting, 2);
    buf_clear(&answer);
    for (int i = 0; i < 8; i++) {
        char part[4096];
        ssize_t n = recv(fds[i], part, sizeof part, 0);
        if (n > 0) buf_add(&answer, part, (size_t)n);
        close(fds[i]);
    }
    expect_text("HTTP/1.1 429 ");
    expect_text("Retry-After: 1");
    expect_text("Too many requests wait for their grammars");
    check_idle();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_departures");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, app_teardown);
    tcase_set_timeout(core, 240);
    tcase_add_loop_test(core, a_compilation_whose_client_leaves_stops, 0, 2);
    tcase_add_loop_test(core, a_request_whose_client_leaves_while_it_waits_is_not_begun, 0, 2);
    tcase_add_loop_test(core, parked_requests_leave_in_any_order, 0, 3);
    tcase_add_test(core, those_that_stay_get_the_result);
    tcase_add_loop_test(core, a_prepared_request_leaves, 0, 2);
    tcase_add_test(core, a_submitted_request_leaves);
    tcase_add_test(core, requests_of_texts_leave);
    tcase_add_loop_test(core, clients_leave_at_any_time, 0, 4);
    tcase_add_test(core, an_abort_ends_requests_at_every_stage);
    tcase_add_test(core, a_plain_request_waits_for_no_grammar);
    tcase_add_test(core, a_known_grammar_waits_for_no_other);
    tcase_add_test(core, a_client_with_too_many_waiting_grammars_is_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
