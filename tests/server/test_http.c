/* The HTTP front end: requests in all shapes, and their answers. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/http_suite.h"

START_TEST(test_get_is_answered) {
    peer_say(&peer, &fixture, "GET /v1%2Fmodels?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
    ck_assert(peer_has(&peer, "HTTP/1.1 200 OK\r\n"));
    ck_assert(peer_has(&peer, "Content-Length: 5\r\n"));
    ck_assert(peer_has(&peer, "Content-Type: text/plain\r\n"));
    ck_assert(peer_has(&peer, "X-Field: value\r\n"));
    ck_assert_str_eq(fixture.path, "/v1/models");
    EXPECT_SOON(&fixture, fixture.done == 1);
    ck_assert_int_eq(fixture.status, 200);
    ck_assert_uint_eq(fixture.bytes, 5);
    ck_assert_int_eq(fixture.gone, 0);
}
END_TEST

START_TEST(test_head_has_no_body) {
    peer_say(&peer, &fixture,
             "HEAD /now HTTP/1.1\r\nHost: x\r\n\r\nGET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_count(&peer, "200 OK") == 2);
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
    ck_assert_int_eq(peer_count(&peer, "Content-Length: 5"), 2);
    ck_assert_int_eq(peer_count(&peer, "hello"), 1);
}
END_TEST

START_TEST(test_head_counts_no_bytes) {
    peer_say(&peer, &fixture, "HEAD /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, fixture.done == 1);
    ck_assert_int_eq(fixture.status, 200);
    ck_assert_uint_eq(fixture.bytes, 0);
}
END_TEST

START_TEST(test_head_of_a_stream_ends) {
    peer_say(&peer, &fixture, "HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n\r\n"));
    EXPECT_SOON(&fixture, fixture.gone == 1 && fixture.done == 1);
}
END_TEST

/* The bytes arrive one by one, and the loop runs in between. */
START_TEST(test_split_at_every_byte) {
    static const char text[] =
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello world";
    for (size_t i = 0; i < sizeof text - 1; i++) {
        peer_send(&peer, &fixture, text + i, 1);
        for (int turn = 0; turn < 3; turn++) fixture_turn(&fixture);
    }
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n\r\nhello world"));
}
END_TEST

/* Two parts, cut at each place, on one connection. */
START_TEST(test_split_in_two) {
    static const char text[] = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                               "chunked\r\n\r\n4\r\nwiki\r\n5\r\npedia\r\n0\r\n\r\n";
    for (size_t i = 1; i < sizeof text - 1; i++) {
        peer_send(&peer, &fixture, text, i);
        for (int turn = 0; turn < 3; turn++) fixture_turn(&fixture);
        peer_send(&peer, &fixture, text + i, sizeof text - 1 - i);
        EXPECT_SOON(&fixture, peer_has(&peer, "\r\n\r\nwikipedia"));
        peer_forget(&peer);
    }
    ck_assert_int_eq(fixture.requests, (int)sizeof text - 2);
}
END_TEST

START_TEST(test_pipelined_requests_are_answered_in_order) {
    peer_say(&peer, &fixture,
             "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nonePOST /echo "
             "HTTP/1.1\r\nHost: x\r\n"
             "Content-Length: 3\r\n\r\ntwoGET /later HTTP/1.1\r\nHost: x\r\n\r\n"
             "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nfour");
    EXPECT_SOON(&fixture, peer_has(&peer, "two") && fixture.n_held == 1);
    ck_assert(strstr(peer.in.data, "one") < strstr(peer.in.data, "two"));
    ck_assert(!peer_has(&peer, "four"));
    fixture_answer(&fixture);
    EXPECT_SOON(&fixture, peer_has(&peer, "four"));
    ck_assert(strstr(peer.in.data, "later") < strstr(peer.in.data, "four"));
    EXPECT_SOON(&fixture, fixture.done == 4);
}
END_TEST

START_TEST(test_many_pipelined_requests) {
    struct buf burst = {0};
    for (int i = 0; i < 500; i++) buf_puts(&burst, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    peer_send(&peer, &fixture, burst.data, burst.length);
    EXPECT_SOON(&fixture, fixture.done == 500);
    EXPECT_SOON(&fixture, peer_count(&peer, "hello") == 500);
    buf_free(&burst);
}
END_TEST

START_TEST(test_thousand_requests_on_one_connection) {
    for (int i = 0; i < 1000; i++) {
        peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
        EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
        peer_forget(&peer);
    }
    ck_assert_int_eq(fixture.requests, 1000);
    EXPECT_SOON(&fixture, fixture.done == 1000);
    struct http_stats stats;
    http_stats(fixture.server, &stats);
    ck_assert_uint_eq(stats.accepted, 1);
}
END_TEST

START_TEST(test_large_body_and_large_answer) {
    size_t n = 1 << 20;
    char *body = mem_alloc(n);
    memset(body, 'x', n);
    peer_say(&peer, &fixture, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n");
    peer_send(&peer, &fixture, body, n);
    EXPECT_SOON(&fixture, peer_read(&peer) > n && peer.in.data[peer.in.length - 1] == 'x');
    const char *start = strstr(peer.in.data, "\r\n\r\n") + 4;
    EXPECT_SOON(&fixture, peer_read(&peer) == (size_t)(start - peer.in.data) + n);
    ck_assert(memcmp(start, body, n) == 0);
    EXPECT_SOON(&fixture, fixture.done == 1);
    ck_assert_uint_eq(fixture.bytes, n);
    free(body);
}
END_TEST

START_TEST(test_body_may_hold_zero_bytes) {
    static const char text[] = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\na\0b\0c";
    peer_send(&peer, &fixture, text, sizeof text - 1);
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n\r\na"));
    EXPECT_SOON(&fixture, memcmp(peer.in.data + peer_read(&peer) - 5, "a\0b\0c", 5) == 0);
    ck_assert_uint_eq(fixture.body_length, 5);
}
END_TEST

START_TEST(test_chunked_body_with_extensions_and_trailer) {
    peer_say(&peer, &fixture,
             "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"
             "3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Trailer: t\r\n\r\nGET /now "
             "HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n\r\nabc0123456789") && peer_has(&peer, "hello"));
}
END_TEST

START_TEST(test_expect_continue) {
    peer_say(&peer, &fixture,
             "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "HTTP/1.1 100 Continue\r\n\r\n"));
    ck_assert_int_eq(fixture.requests, 0);
    peer_say(&peer, &fixture, "abc");
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n\r\nabc"));
}
END_TEST

START_TEST(test_later_answer) {
    peer_say(&peer, &fixture, "GET /later HTTP/1.1\r\nHost: x\r\nX-Mine: yes\r\n\r\n");
    EXPECT_SOON(&fixture, fixture.n_held == 1);
    ck_assert_str_eq(http_header(fixture.held[0], "x-mine"), "yes");
    ck_assert_ptr_null(http_header(fixture.held[0], "x-other"));
    ck_assert_str_eq(fixture.held[0]->client, "127.0.0.1");
    ck_assert_str_eq(fixture.held[0]->method, "GET");
    fixture_run(&fixture, 20);
    ck_assert_uint_eq(peer_read(&peer), 0);
    fixture_answer(&fixture);
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n\r\nlater"));
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
}
END_TEST

START_TEST(test_later_answers_to_many) {
    enum { N = 300 };
    static struct peer peers[N];
    for (int i = 0; i < N; i++) {
        peer_open(&peers[i], &fixture);
        peer_say(&peers[i], &fixture, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
        fixture_turn(&fixture);
    }
    EXPECT_SOON(&fixture, fixture.n_held == N);
    while (fixture.n_held > 0) fixture_answer(&fixture);
    for (int i = 0; i < N; i++) EXPECT_SOON(&fixture, peer_has(&peers[i], "later"));
    for (int i = 0; i < N; i++) peer_close(&peers[i]);
    EXPECT_SOON(&fixture, fixture.done == N);
}
END_TEST

START_TEST(test_refusal_without_a_body_keeps_the_connection) {
    peer_say(&peer, &fixture,
             "GET /refuse HTTP/1.1\r\nHost: x\r\n\r\nGET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "401 Unauthorized") && peer_has(&peer, "hello"));
    ck_assert(peer_has(&peer, "WWW-Authenticate: Bearer\r\n"));
    ck_assert_int_eq(fixture.requests, 1);
}
END_TEST

START_TEST(test_refusal_swallows_the_body) {
    char body[50000];
    memset(body, 'z', sizeof body);
    peer_say(&peer, &fixture, "POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n");
    peer_send(&peer, &fixture, body, sizeof body);
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "401") && peer_has(&peer, "hello"));
    EXPECT_SOON(&fixture, fixture.done == 2);
    ck_assert_int_eq(fixture.requests, 1);
    ck_assert_int_eq(fixture.gone, 0);
}
END_TEST

START_TEST(test_refusal_before_continue) {
    peer_say(
        &peer, &fixture,
        "POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "no key") && peer_is_closed(&peer));
    ck_assert(!peer_has(&peer, "100 Continue"));
    ck_assert_int_eq(fixture.status, 401);
}
END_TEST

START_TEST(test_http_1_0_closes) {
    peer_say(&peer, &fixture, "GET /now HTTP/1.0\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello") && peer_is_closed(&peer));
}
END_TEST

START_TEST(test_connection_close_is_honoured) {
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "Connection: close") && peer_is_closed(&peer));
    ck_assert(peer_has(&peer, "hello"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_http");
    TCase *requests = http_case(suite, "requests", NULL);
    tcase_add_test(requests, test_get_is_answered);
    tcase_add_test(requests, test_head_has_no_body);
    tcase_add_test(requests, test_head_counts_no_bytes);
    tcase_add_test(requests, test_head_of_a_stream_ends);
    tcase_add_test(requests, test_split_at_every_byte);
    tcase_add_test(requests, test_split_in_two);
    tcase_add_test(requests, test_pipelined_requests_are_answered_in_order);
    tcase_add_test(requests, test_many_pipelined_requests);
    tcase_add_test(requests, test_thousand_requests_on_one_connection);
    tcase_add_test(requests, test_large_body_and_large_answer);
    tcase_add_test(requests, test_body_may_hold_zero_bytes);
    tcase_add_test(requests, test_chunked_body_with_extensions_and_trailer);
    tcase_add_test(requests, test_expect_continue);
    tcase_add_test(requests, test_later_answer);
    tcase_add_test(requests, test_later_answers_to_many);
    tcase_add_test(requests, test_refusal_without_a_body_keeps_the_connection);
    tcase_add_test(requests, test_refusal_swallows_the_body);
    tcase_add_test(requests, test_refusal_before_continue);
    tcase_add_test(requests, test_http_1_0_closes);
    tcase_add_test(requests, test_connection_close_is_honoured);
    return suite_main(suite);
}
