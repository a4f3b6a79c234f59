/* The HTTP front end: sizes, framing and deadlines of requests. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/http_suite.h"

/* Fails unless the connection ends after an answer with this status and a JSON document of this
 * type. */
static void expect_refusal(struct peer *client, const char *status, const char *type) {
    char field[80], line[80];
    snprintf(field, sizeof field, "\"type\":\"%s\",\"param\":null,\"code\":", type);
    snprintf(line, sizeof line, "HTTP/1.1 %s", status);
    EXPECT_SOON(&fixture, peer_is_closed(client));
    ck_assert(!client->is_reset);
    ck_assert_msg(peer_has(client, line), "%s", client->in.data);
    ck_assert_msg(peer_has(client, "\r\n\r\n{\"error\":{\"message\":\""), "%s", client->in.data);
    ck_assert_msg(peer_has(client, field), "%s", client->in.data);
    ck_assert(peer_has(client, "\r\nContent-Type: application/json\r\n"));
    ck_assert_int_eq(peer_count(client, "HTTP/1.1 "), 1);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

static void say_header(size_t length, const char *end) {
    char *value = mem_alloc(length);
    memset(value, 'h', length);
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\nX-Large: ");
    peer_send(&peer, &fixture, value, length);
    peer_say(&peer, &fixture, end);
    free(value);
}

START_TEST(test_headers_below_the_limit) {
    say_header(8000, "\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
}
END_TEST

START_TEST(test_headers_above_the_limit) {
    say_header(8400, "\r\n\r\n");
    expect_refusal(&peer, "431", "request_too_large");
    ck_assert_int_eq(fixture.headers, 0);
    ck_assert_int_eq(fixture.done, 1);
    ck_assert_int_eq(fixture.status, 431);
}
END_TEST

START_TEST(test_headers_without_an_end) {
    say_header(20000, "");
    expect_refusal(&peer, "431", "request_too_large");
}
END_TEST

START_TEST(test_headers_above_the_parser_s_limit) {
    say_header(500000, "\r\n\r\n");
    EXPECT_SOON(&fixture, peer_is_closed(&peer));
    ck_assert_int_eq(fixture.headers, 0);
}
END_TEST

START_TEST(test_length_above_the_limit) {
    char *body = mem_calloc(1, 300000);
    peer_say(&peer, &fixture, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n");
    peer_send(&peer, &fixture, body, 300000);
    EXPECT_SOON(&fixture, peer_has(&peer, "}}"));
    peer_send(&peer, &fixture, body, 300000);
    ck_assert_uint_eq(peer.unsent, 0);
    expect_refusal(&peer, "413", "request_too_large");
    ck_assert_int_eq(fixture.headers, 0);
    peer_close(&peer);
    EXPECT_SOON(&fixture, fixture.done == 1);
    ck_assert_int_eq(fixture.status, 413);
    free(body);
}
END_TEST

/* The fixture allows four bodies of the largest size at a time. */
START_TEST(test_bodies_that_are_too_many) {
    struct peer others[4], last;
    char *body = mem_calloc(1, 1 << 20);
    for (int i = 0; i < 4; i++) {
        peer_open(&others[i], &fixture);
        peer_say(&others[i], &fixture,
                 "POST /later HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n");
        peer_send(&others[i], &fixture, body, 1 << 20);
    }
    EXPECT_SOON(&fixture, fixture.n_held == 4);
    peer_say(&peer, &fixture, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    expect_refusal(&peer, "503", "unavailable_error");
    ck_assert(peer_has(&peer, "too_many_bodies"));
    http_drop_body(fixture.held[2]);
    ck_assert_uint_eq(fixture.held[2]->body_length, 0);
    peer_open(&last, &fixture);
    peer_say(&last, &fixture, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    EXPECT_SOON(&fixture, peer_has(&last, "hello"));
    peer_close(&last);
    while (fixture.n_held > 0) fixture_answer(&fixture);
    for (int i = 0; i < 4; i++) {
        EXPECT_SOON(&fixture, peer_has(&others[i], "later"));
        peer_close(&others[i]);
    }
    free(body);
}
END_TEST

START_TEST(test_length_that_is_absurd) {
    peer_say(&peer, &fixture,
             "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999999999\r\n\r\n");
    expect_refusal(&peer, "413", "request_too_large");
}
END_TEST

START_TEST(test_length_above_the_limit_before_continue) {
    peer_say(&peer, &fixture,
             "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\nExpect: "
             "100-continue\r\n\r\n");
    expect_refusal(&peer, "413", "request_too_large");
}
END_TEST

static void say_chunks(const char *path, size_t total) {
    char chunk[4096 + 8];
    memcpy(chunk, "1000\r\n", 6);
    memset(chunk + 6, 'c', 4096);
    memcpy(chunk + 6 + 4096, "\r\n", 2);
    peer_say(&peer, &fixture, "POST ");
    peer_say(&peer, &fixture, path);
    peer_say(&peer, &fixture, " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (size_t sent = 0; sent < total; sent += 4096) {
        peer_send(&peer, &fixture, chunk, sizeof chunk);
    }
}

START_TEST(test_chunks_above_the_limit) {
    say_chunks("/echo", (1 << 20) + 4096);
    expect_refusal(&peer, "413", "request_too_large");
    EXPECT_SOON(&fixture, fixture.gone == 1);
    peer_close(&peer);
    EXPECT_SOON(&fixture, fixture.done == 1);
    ck_assert_int_eq(fixture.status, 413);
    ck_assert_int_eq(fixture.requests, 0);
}
END_TEST

/* An early refusal is answered even if the body does not end. */
START_TEST(test_refused_chunks_without_end) {
    say_chunks("/refuse", (1 << 20) + 4096);
    EXPECT_SOON(&fixture, peer_is_closed(&peer));
    ck_assert(peer_has(&peer, "HTTP/1.1 401") && peer_has(&peer, "no key"));
    ck_assert(peer_has(&peer, "WWW-Authenticate: Bearer\r\n"));
    peer_close(&peer);
    EXPECT_SOON(&fixture, fixture.done == 1);
    ck_assert_int_eq(fixture.status, 401);
    ck_assert_int_eq(fixture.gone, 0);
}
END_TEST

/* ---- framing -------------------------------------------------------------------------------- */

START_TEST(test_noise) {
    char noise[3000];
    srand(7);
    for (int round = 0; round < 50; round++) {
        struct peer client;
        for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)(rand() % 256);
        memcpy(noise, round % 2 ? "POST / HTTP/1.1\r\nHost: x\r\n" : "GET ", round % 2 ? 17 : 4);
        peer_open(&client, &fixture);
        peer_send(&client, &fixture, noise, sizeof noise);
        for (int turn = 0; turn < 5; turn++) fixture_turn(&fixture);
        peer_close(&client);
    }
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
}
END_TEST

/* ---- time ----------------------------------------------------------------------------------- */

static void setup_hasty(void) {
    struct http_config config = fixture_config();
    config.request_timeout_ms = 150;
    config.keep_alive_ms = 300;
    http_open(config);
}

/* Sends a byte every 10 ms until the server closes the connection. The deadline is for the whole
 * request: if each byte extended it, the connection would never close. */
static void drip_until_closed(const char *text) {
    uint64_t give_up_ns = now_ns() + 20000000000u;
    for (size_t i = 0; !peer_is_closed(&peer); i++) {
        ck_assert_msg(now_ns() < give_up_ns, "the connection is never closed");
        peer_send(&peer, &fixture, i < strlen(text) ? text + i : "x", 1);
        if (peer.unsent) break;
        fixture_run(&fixture, 10);
    }
}

static uint64_t timeouts(void) {
    struct http_stats stats;
    http_stats(fixture.server, &stats);
    return stats.timeouts;
}

START_TEST(test_slow_headers) {
    drip_until_closed("GET /now HTTP/1.1\r\nHost: x\r\nX-Slow: ");
    ck_assert(peer_has(&peer, "HTTP/1.1 408 ") && peer_has(&peer, "\"type\":\"timeout_error\""));
    ck_assert_uint_eq(timeouts(), 1);
    ck_assert_int_eq(fixture.headers, 0);
}
END_TEST

START_TEST(test_slow_request_line) {
    drip_until_closed("GET /nowwwwwwwwwwwwwwwwwwwww");
    ck_assert(peer_has(&peer, "HTTP/1.1 408 "));
}
END_TEST

START_TEST(test_slow_body) {
    peer_say(&peer, &fixture, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n");
    drip_until_closed("abc");
    ck_assert(peer_has(&peer, "HTTP/1.1 408 "));
    EXPECT_SOON(&fixture, fixture.gone == 1);
    peer_close(&peer);
    EXPECT_SOON(&fixture, fixture.done == 1);
    ck_assert_int_eq(fixture.status, 408);
    ck_assert_int_eq(fixture.requests, 0);
    ck_assert_uint_eq(timeouts(), 1);
}
END_TEST

START_TEST(test_slow_second_request) {
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
    drip_until_closed("GET /now HTTP/1.1\r\nHost: x\r\nX-Slow: ");
    ck_assert(peer_has(&peer, "HTTP/1.1 408 "));
}
END_TEST

START_TEST(test_client_that_says_nothing) {
    EXPECT_SOON(&fixture, peer_is_closed(&peer));
    ck_assert_uint_eq(peer_read(&peer), 0);
    ck_assert_uint_eq(timeouts(), 0);
}
END_TEST

START_TEST(test_idle_connection_is_closed) {
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
    fixture_run(&fixture, 200);
    ck_assert(!peer_is_closed(&peer));
    EXPECT_SOON(&fixture, peer_is_closed(&peer));
    ck_assert_int_eq(peer_count(&peer, "HTTP/1.1"), 1);
}
END_TEST

/* A complete request may wait for its answer without a limit. */
START_TEST(test_waiting_has_no_deadline) {
    peer_say(&peer, &fixture, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    fixture_run(&fixture, 500);
    ck_assert(!peer_is_closed(&peer));
    fixture_answer(&fixture);
    EXPECT_SOON(&fixture, peer_has(&peer, "later"));
}
END_TEST

/* The next deadline is the earliest of all kinds: the deadline of reading is later than that of an
 * idle connection. */
START_TEST(test_the_earliest_deadline_counts) {
    struct peer silent;
    peer_open(&silent, &fixture);
    fixture_run(&fixture, 20);
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
    fixture_turn(&fixture);
    ck_assert_int_lt(uv_backend_timeout(&fixture.loop), 1000);
    EXPECT_SOON(&fixture, peer_is_closed(&peer));
    ck_assert(!peer_is_closed(&silent));
    peer_close(&silent);
}
END_TEST

START_TEST(test_no_timeout_is_no_deadline) {
    fixture_run(&fixture, 100);
    ck_assert(!peer_is_closed(&peer));
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
    fixture_run(&fixture, 100);
    ck_assert(!peer_is_closed(&peer));
}
END_TEST

/* Without deadlines the loop sleeps forever, otherwise until the next deadline. */
START_TEST(test_loop_sleeps) {
    fixture_run(&fixture, 20);
    ck_assert_int_gt(uv_backend_timeout(&fixture.loop), 20);
    peer_say(&peer, &fixture, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n\r\n"));
    fixture_run(&fixture, 300);
    ck_assert_int_gt(uv_backend_timeout(&fixture.loop), 1000);
    peer_close(&peer);
    EXPECT_SOON(&fixture, fixture.done == 1);
    fixture_run(&fixture, 500);
    ck_assert_int_eq(uv_backend_timeout(&fixture.loop), -1);
}
END_TEST

/* ---- connections ---------------------------------------------------------------------------- */

static void setup_small(void) {
    struct http_config config = fixture_config();
    config.max_connections = 4;
    http_open(config);
}

static int connections(void) {
    struct http_stats stats;
    http_stats(fixture.server, &stats);
    return stats.connections;
}

START_TEST(test_connection_limit_and_recovery) {
    struct peer more[6];
    for (int i = 0; i < 6; i++) peer_open(&more[i], &fixture);
    EXPECT_SOON(&fixture, connections() == 7);
    peer_say(&more[5], &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_refusal(&more[5], "503", "unavailable_error");
    ck_assert(peer_has(&more[5], "Retry-After: 1\r\n"));
    ck_assert(peer_has(&more[5], "\"code\":\"too_many_connections\""));
    peer_say(&more[0], &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&more[0], "hello"));
    for (int i = 0; i < 6; i++) peer_close(&more[i]);
    EXPECT_SOON(&fixture, connections() == 1);
    peer_open(&more[0], &fixture);
    peer_say(&more[0], &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&more[0], "hello"));
    peer_close(&more[0]);
}
END_TEST

static uint64_t accepted_and_refused(void) {
    struct http_stats stats;
    http_stats(fixture.server, &stats);
    return stats.accepted + stats.refused;
}

static int count_told(struct peer *crowd, int n) {
    int told = 0;
    for (int i = 0; i < n; i++) told += peer_has(&crowd[i], "HTTP/1.1 503") ? 1 : 0;
    return told;
}

START_TEST(test_far_above_the_limit) {
    enum { N = 200 };
    static struct peer crowd[N];
    struct http_stats stats;
    for (int i = 0; i < N; i++) peer_open(&crowd[i], &fixture);
    EXPECT_SOON(&fixture, accepted_and_refused() == N + 1);
    EXPECT_SOON(&fixture, count_told(crowd, N) > 100);
    http_stats(fixture.server, &stats);
    ck_assert_uint_eq(stats.accepted, 4);
    ck_assert_uint_eq(stats.refused, N + 1 - 4);
    for (int i = 0; i < N; i++) peer_close(&crowd[i]);
    EXPECT_SOON(&fixture, connections() == 1);
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
}
END_TEST

/* The process has no free descriptor when clients connect. It closes their connections and accepts
 * later ones. */
START_TEST(test_no_descriptors_left) {
    struct peer more[5];
    struct rlimit saved, low;
    fixture_run(&fixture, 10);
    for (int i = 0; i < 5; i++) peer_open(&more[i], &fixture);
    int next = fcntl(0, F_DUPFD, 0);
    close(next);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &saved), 0);
    low = saved;
    low.rlim_cur = (rlim_t)next;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    fixture_run(&fixture, 50);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &saved), 0);
    for (int i = 0; i < 5; i++) EXPECT_SOON(&fixture, peer_is_closed(&more[i]));
    for (int i = 0; i < 5; i++) peer_close(&more[i]);
    ck_assert_int_eq(connections(), 1);
    peer_open(&more[0], &fixture);
    peer_say(&more[0], &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&more[0], "hello"));
    peer_close(&more[0]);
}
END_TEST

static void add_sizes(Suite *suite) {
    TCase *sizes = http_case(suite, "sizes", NULL);
    tcase_add_test(sizes, test_headers_below_the_limit);
    tcase_add_test(sizes, test_headers_above_the_limit);
    tcase_add_test(sizes, test_headers_without_an_end);
    tcase_add_test(sizes, test_headers_above_the_parser_s_limit);
    tcase_add_test(sizes, test_length_above_the_limit);
    tcase_add_test(sizes, test_bodies_that_are_too_many);
    tcase_add_test(sizes, test_length_that_is_absurd);
    tcase_add_test(sizes, test_length_above_the_limit_before_continue);
    tcase_add_test(sizes, test_chunks_above_the_limit);
    tcase_add_test(sizes, test_refused_chunks_without_end);
    tcase_add_test(sizes, test_noise);
}

static void add_times(Suite *suite) {
    TCase *times = http_case(suite, "times", setup_hasty);
    tcase_add_test(times, test_slow_headers);
    tcase_add_test(times, test_slow_request_line);
    tcase_add_test(times, test_slow_body);
    tcase_add_test(times, test_slow_second_request);
    tcase_add_test(times, test_client_that_says_nothing);
    tcase_add_test(times, test_idle_connection_is_closed);
    tcase_add_test(times, test_waiting_has_no_deadline);
    tcase_add_test(times, test_loop_sleeps);
}

static void setup_patient(void) {
    struct http_config config = fixture_config();
    config.keep_alive_ms = 100;
    http_open(config);
}

static void setup_timeless(void) {
    struct http_config config = fixture_config();
    config.request_timeout_ms = config.keep_alive_ms = 0;
    http_open(config);
}

static void add_deadlines(Suite *suite) {
    TCase *earliest = http_case(suite, "earliest", setup_patient);
    TCase *none = http_case(suite, "none", setup_timeless);
    tcase_add_test(earliest, test_the_earliest_deadline_counts);
    tcase_add_test(none, test_no_timeout_is_no_deadline);
}

static void add_connections(Suite *suite) {
    TCase *many = http_case(suite, "connections", setup_small);
    tcase_add_test(many, test_connection_limit_and_recovery);
    tcase_add_test(many, test_far_above_the_limit);
    tcase_add_test(many, test_no_descriptors_left);
}

int main(void) {
    Suite *suite = suite_create("server_http_limits");
    add_sizes(suite);
    add_times(suite);
    add_deadlines(suite);
    add_connections(suite);
    return suite_main(suite);
}
