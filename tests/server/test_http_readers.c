/* The HTTP front end: the time that a client may take to read a complete answer. */
#include <string.h>
#include <unistd.h>

#include "tests/support/http_suite.h"

enum { TIMEOUT_MS = 300, NARROW = 4096 };

static void setup_hasty(void) {
    struct http_config config = fixture_config();
    config.answer_timeout_ms = TIMEOUT_MS;
    config.answer_rate = 1 << 30;
    config.max_stream_backlog = 4 << 20;
    http_open(config);
}

/* Four seconds for FIXTURE_BIG. */
static void setup_steady(void) {
    struct http_config config = fixture_config();
    config.answer_timeout_ms = TIMEOUT_MS;
    config.answer_rate = FIXTURE_BIG / 4;
    http_open(config);
}

static void ask_for(struct peer *client, const char *path) {
    char text[128];
    peer_open_narrow(client, &fixture, NARROW);
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    peer_say(client, &fixture, text);
}

/* Fails unless the server has dropped n answers: their memory is free, and each is logged once. */
static void expect_cut(int n) {
    struct http_stats stats;
    EXPECT_SOON(&fixture, fixture.done == n);
    ck_assert_int_eq(fixture.status, 499);
    http_stats(fixture.server, &stats);
    ck_assert_uint_eq(stats.slow_readers, (uint64_t)n);
    ck_assert_int_eq(stats.requests, 0);
}

START_TEST(an_answer_that_is_not_read_is_given_up) {
    struct peer clients[3];
    for (int i = 0; i < 3; i++) ask_for(&clients[i], "/big");
    EXPECT_SOON(&fixture, fixture.requests == 3);
    ck_assert_int_eq(fixture.done, 0);
    expect_cut(3);
    ck_assert_int_eq(fixture.gone, 0); /* it was answered */
    for (int i = 0; i < 3; i++) peer_close(&clients[i]);
}
END_TEST

START_TEST(a_trickle_does_not_keep_an_answer) {
    struct peer client;
    char byte;
    ask_for(&client, "/big");
    EXPECT_SOON(&fixture, fixture.requests == 1);
    uint64_t until_ns = now_ns() + 5000000000u;
    while (fixture.done == 0 && now_ns() < until_ns) {
        (void)!read(client.fd, &byte, 1);
        fixture_run(&fixture, 5);
    }
    expect_cut(1);
    peer_close(&client);
}
END_TEST

/* The unread bytes of a stream at its end count as an answer. While it runs, its backlog is bounded
 * instead. */
START_TEST(the_end_of_a_stream_is_an_answer) {
    static char event[1 << 20];
    struct peer client;
    memset(event, 'e', sizeof event);
    ask_for(&client, "/stream");
    EXPECT_SOON(&fixture, fixture.n_held == 1);
    struct http_request *stream = fixture.held[0];
    ck_assert(http_stream_write(stream, event, sizeof event));
    http_flush(fixture.server);
    fixture_run(&fixture, 2 * TIMEOUT_MS);
    ck_assert_int_eq(fixture.done, 0);
    http_stream_end(stream);
    http_release(stream);
    fixture.n_held = 0;
    http_flush(fixture.server);
    expect_cut(1);
    peer_close(&client);
}
END_TEST

/* A client above the minimum rate may take longer than the timeout, however often the server
 * checks. */
START_TEST(a_steady_reader_gets_its_answer) {
    struct peer client;
    char part[FIXTURE_BIG / 20];
    size_t total = 0;
    ask_for(&client, "/big");
    for (uint64_t since_ns = now_ns(), due = 0; total < FIXTURE_BIG && !client.is_eof;) {
        fixture_turn(&fixture);
        due = (now_ns() - since_ns) * FIXTURE_BIG / 700000000u; /* in 700 ms */
        while (total < due && total < FIXTURE_BIG) {
            ssize_t n = read(client.fd, part, sizeof part);
            if (n > 0) total += (size_t)n;
            if (n == 0) client.is_eof = true;
            if (n <= 0) break;
        }
    }
    EXPECT_SOON(&fixture, fixture.done == 1);
    ck_assert_int_eq(fixture.status, 200);
    ck_assert_uint_eq(fixture.bytes, FIXTURE_BIG);
    peer_close(&client);
}
END_TEST

/* An answer that was read leaves no deadline, and the connection continues. */
START_TEST(the_next_request_has_its_own_time) {
    for (int i = 1; i <= 3; i++) {
        peer_say(&peer, &fixture, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
        EXPECT_SOON(&fixture, fixture.n_held == 1);
        fixture_run(&fixture, TIMEOUT_MS + 50);
        fixture_answer(&fixture);
        EXPECT_SOON(&fixture, peer_count(&peer, "later") == i);
    }
    ck_assert(!peer_is_closed(&peer));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_http_readers");
    TCase *hasty = http_case(suite, "hasty", setup_hasty);
    tcase_add_test(hasty, an_answer_that_is_not_read_is_given_up);
    tcase_add_test(hasty, a_trickle_does_not_keep_an_answer);
    tcase_add_test(hasty, the_end_of_a_stream_is_an_answer);
    tcase_add_test(hasty, the_next_request_has_its_own_time);
    TCase *steady = http_case(suite, "steady", setup_steady);
    tcase_add_test(steady, a_steady_reader_gets_its_answer);
    return suite_main(suite);
}
