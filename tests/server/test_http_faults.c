/* Invalid requests over sockets. Each gets one answer of this server, after the answers to earlier
 * requests, and then the connection ends. They include all faults that libmicrohttpd refuses. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/http_suite.h"

#define POST "POST /echo HTTP/1.1\r\nHost: x\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const struct {
    const char *text;
    const char *status;
    const char *says;
} faults[] = {
    {"GET\r\n\r\n", "400 Bad Request", "the request line must be METHOD PATH HTTP/1.1"},
    {"GET  HTTP/1.1\r\n\r\n", "400 Bad Request", "the request line must be METHOD PATH HTTP/1.1"},
    {"GET /now\r\n\r\n", "400 Bad Request", "the request line must be METHOD PATH HTTP/1.1"},
    {"GET /now HTTP/1.1x\r\n\r\n", "400 Bad Request", "the request line must be"},
    {"GET /now HTTP/9.9\r\n\r\n", "505 HTTP Version Not Supported", "HTTP/1.1 and HTTP/1.0"},
    {"GET /now HTTP/0.9\r\n\r\n", "505 HTTP Version Not Supported", "HTTP/1.1 and HTTP/1.0"},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 HTTP Version Not Supported", "HTTP/1.1 and HTTP/1.0"},
    {"\x16\x03\x01\x02", "400 Bad Request", "control character"},
    {"GET /now%00x HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request", "the path may not hold %00"},
    {"GET /now HTTP/1.1\r\n\r\n", "400 Bad Request", "a request of HTTP/1.1 needs a Host header"},
    {"GET /now HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400 Bad Request", "more than one Host"},
    {"GET /now HTTP/1.1\r\nHost: x\r\nno-colon\r\n\r\n", "400 Bad Request", "lacks a colon"},
    {"GET /now HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", "400 Bad Request", "must be one line"},
    {"GET /now HTTP/1.1\nHost: x\n\n", "400 Bad Request", "a line feed without a carriage return"},
    {POST "Content-Length: -1\r\n\r\n", "400 Bad Request", "Content-Length must be one number"},
    {POST "Content-Length: +5\r\n\r\nhello", "400 Bad Request",
     "Content-Length must be one number"},
    {POST "Content-Length: 0x10\r\n\r\nhello", "400 Bad Request",
     "Content-Length must be one number"},
    {POST "Content-Length: 5,6\r\n\r\nhello!", "400 Bad Request",
     "Content-Length must be one number"},
    {POST "Content-Length: 5, 5\r\n\r\nhello", "400 Bad Request",
     "Content-Length must be one number"},
    {POST "Content-Length: 5 \r\n\r\nhello", "400 Bad Request",
     "Content-Length must be one number"},
    {POST "Content-Length: \r\n\r\n", "400 Bad Request", "Content-Length must be one number"},
    {POST "Content-Length: abc\r\n\r\n", "400 Bad Request", "Content-Length must be one number"},
    {POST "Content-Length: 99999999999999999999\r\n\r\n", "413 Content Too Large",
     "larger than any body"},
    {POST "Content-Length: 18446744073709551616\r\n\r\n", "413 Content Too Large",
     "larger than any body"},
    {POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "400 Bad Request",
     "more than one Content-Length"},
    {POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "400 Bad Request",
     "more than one Content-Length"},
    {POST "Content-Length : 3\r\n\r\nabc", "400 Bad Request", "a header's name holds"},
    {POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400 Bad Request",
     "both a Content-Length"},
    {POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", "400 Bad Request",
     "both a Content-Length"},
    {POST "Transfer-Encoding: gzip\r\n\r\nabc", "400 Bad Request", "is chunked"},
    {POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "400 Bad Request", "is chunked"},
    {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     "400 Bad Request", "more than one Transfer-Encoding"},
    {POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400 Bad Request",
     "a header's name holds"},
    {CHUNKED "xyz\r\n", "400 Bad Request", "a chunk's size is not a hexadecimal number"},
    {CHUNKED "\r\n", "400 Bad Request", "a chunk lacks a size"},
    {CHUNKED "-1\r\n", "400 Bad Request", "a chunk's size is not a hexadecimal number"},
    {CHUNKED "ffffffffffffffffff\r\n", "413 Content Too Large", "a chunk is larger than any body"},
    {CHUNKED "3\r\nabcd\r\n", "400 Bad Request", "a chunk is longer than its size says"},
    {CHUNKED "3\r\nabc\r\n0\r\nno-colon\r\n\r\n", "400 Bad Request", "lacks a colon"},
};

#define N_FAULTS ((int)(sizeof faults / sizeof *faults))

/* Fails unless the connection has ended after `before` and exactly this answer. */
static void expect_answer(const char *before, const char *status, const char *says) {
    EXPECT_SOON(&fixture, peer_is_closed(&peer));
    ck_assert(!peer.is_reset);
    ck_assert_ptr_nonnull(peer.in.data);
    size_t skipped = strlen(before);
    ck_assert_msg(strncmp(peer.in.data, before, skipped) == 0, "%s", peer.in.data);
    const char *answer = peer.in.data + skipped, *body = strstr(answer, "\r\n\r\n");
    ck_assert_msg(body != NULL, "%s", peer.in.data);
    char head[256];
    snprintf(head, sizeof head,
             "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %zu\r\n"
             "Content-Type: application/json",
             status, strlen(body + 4));
    ck_assert_msg(strncmp(answer, head, strlen(head)) == 0, "%s\nis not\n%s", answer, head);
    ck_assert_ptr_eq(answer + strlen(head), body);
    ck_assert_msg(strncmp(body + 4, "{\"error\":{\"message\":\"", 21) == 0, "%s", body);
    ck_assert_msg(strstr(body, says) != NULL, "%s: %s", says, body);
    ck_assert_str_eq(peer.in.data + peer.in.length - 2, "}}");
    ck_assert_uint_eq(strlen(peer.in.data), peer.in.length);
}

/* After the client has gone too, the log contains the refusal, after this many answered
 * requests. */
static void expect_report(int requests) {
    peer_close(&peer);
    EXPECT_SOON(&fixture, fixture.done == requests + 1);
    fixture_run(&fixture, 5);
    ck_assert_int_eq(fixture.done, requests + 1);
    ck_assert_int_eq(fixture.requests, requests);
}

START_TEST(at_once) {
    peer_say(&peer, &fixture, faults[_i].text);
    expect_answer("", faults[_i].status, faults[_i].says);
    expect_report(0);
    ck_assert_int_eq(fixture.status, atoi(faults[_i].status));
}
END_TEST

START_TEST(byte_by_byte) {
    for (const char *at = faults[_i].text; *at && !peer_is_closed(&peer); at++) {
        peer_send(&peer, &fixture, at, 1);
        for (int turn = 0; turn < 3; turn++) fixture_turn(&fixture);
    }
    expect_answer("", faults[_i].status, faults[_i].says);
    expect_report(0);
}
END_TEST

/* A new client of the same server. */
static void http_reopen(void) {
    struct http_stats stats;
    peer_close(&peer);
    EXPECT_SOON(&fixture, (http_stats(fixture.server, &stats), stats.connections == 0));
    fixture.requests = 0;
    peer_open(&peer, &fixture);
}

/* The answer to GET /now, as libmicrohttpd writes it, without its date. */
static char first_answer[512];

static void take_first_answer(void) {
    EXPECT_SOON(&fixture, peer_has(&peer, "hello") || peer_has(&peer, "later"));
    const char *end = strstr(peer.in.data, "\r\n\r\n") + 4 + 5;
    ck_assert(strncmp(peer.in.data, "HTTP/1.1 200 OK\r\n", 17) == 0);
    snprintf(first_answer, sizeof first_answer, "%.*s", (int)(end - peer.in.data), peer.in.data);
}

START_TEST(after_an_answer) {
    struct buf text = {0};
    buf_printf(&text, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n%s", faults[_i].text);
    peer_say(&peer, &fixture, text.data);
    take_first_answer();
    expect_answer(first_answer, faults[_i].status, faults[_i].says);
    expect_report(1);
    buf_free(&text);
}
END_TEST

/* The fault is not answered while the request before it waits for its answer. */
START_TEST(while_an_answer_is_awaited) {
    struct buf text = {0};
    buf_printf(&text, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n%s", faults[_i].text);
    peer_say(&peer, &fixture, text.data);
    EXPECT_SOON(&fixture, fixture.n_held == 1);
    fixture_run(&fixture, 20);
    ck_assert_uint_eq(peer_read(&peer), 0);
    fixture_answer(&fixture);
    take_first_answer();
    expect_answer(first_answer, faults[_i].status, faults[_i].says);
    buf_free(&text);
}
END_TEST

START_TEST(after_an_idle_time) {
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    take_first_answer();
    fixture_run(&fixture, 10);
    peer_say(&peer, &fixture, faults[_i].text);
    expect_answer(first_answer, faults[_i].status, faults[_i].says);
}
END_TEST

/* Heads of a connection's last request. libmicrohttpd misses a `close` after a prefix of that
 * word. */
static const char *const last[] = {
    "1.1\r\nConnection: close",
    "1.1\r\nConnection: c,close",
    "1.1\r\nConnection: clos , CLOSE\t,x",
    "1.1\r\nConnection: x\r\nConnection: cl,close",
    "1.1\r\nConnection: keep-alive, c, close",
    "1.1\r\nConnection: o2345678901234567890123456789012345678901234567890123456,c,close",
    "1.0",
    "1.0\r\nConnection: k,keep-aliv",
};

enum { N_LAST = sizeof last / sizeof *last };

static void say_last(const char *path, const char *head, const char *more) {
    struct buf text = {0};
    buf_printf(&text, "GET %s HTTP/%s\r\nHost: x\r\n\r\n%s", path, head, more);
    peer_say(&peer, &fixture, text.data);
    buf_free(&text);
}

/* Fails unless the connection has ended after one answer, which says so once. */
static void expect_one_answer(const char *body) {
    EXPECT_SOON(&fixture, peer_is_closed(&peer));
    ck_assert_msg(peer_count(&peer, "HTTP/1.1") == 1, "%s", peer.in.data);
    ck_assert_int_eq(peer_count(&peer, "Connection: close\r\n"), 1);
    ck_assert_int_eq(peer_count(&peer, "\r\n\r\n"), 1);
    ck_assert(peer_has(&peer, body));
    ck_assert_int_eq(fixture.requests, 1);
}

/* Bytes after the last request of a connection are discarded, whenever they arrive. */
START_TEST(after_the_last_request) {
    for (int i = 0; i < N_LAST; i++) {
        say_last("/now", last[i], faults[_i].text);
        expect_one_answer("hello");
        http_reopen();
        say_last("/later", last[i], "");
        EXPECT_SOON(&fixture, fixture.n_held == 1);
        peer_say(&peer, &fixture, faults[_i].text);
        fixture_run(&fixture, 1);
        fixture_answer(&fixture);
        expect_one_answer("later");
        http_reopen();
    }
}
END_TEST

START_TEST(a_last_request_may_follow_others) {
    for (int i = 0; i < N_LAST; i++) {
        peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
        take_first_answer();
        ck_assert_ptr_null(strstr(first_answer, "Connection"));
        say_last("/now", last[i], "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
        EXPECT_SOON(&fixture, peer_is_closed(&peer));
        ck_assert_int_eq(peer_count(&peer, "HTTP/1.1 200"), 2);
        ck_assert_int_eq(peer_count(&peer, "Connection: close\r\n"), 1);
        http_reopen();
        struct buf both = {0};
        buf_puts(&both, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
        buf_printf(&both, "GET /now HTTP/%s\r\nHost: x\r\n\r\nGET", last[i]);
        peer_say(&peer, &fixture, both.data);
        EXPECT_SOON(&fixture, peer_is_closed(&peer));
        ck_assert_int_eq(peer_count(&peer, "HTTP/1.1 200"), 2);
        ck_assert_int_eq(peer_count(&peer, "Connection: close\r\n"), 1);
        buf_free(&both);
        http_reopen();
    }
}
END_TEST

/* If a client continues to send after a fault, its bytes are read to the end, up to the limit of a
 * body. */
START_TEST(bytes_after_the_request_are_discarded) {
    char *more = mem_alloc(500000);
    memset(more, 'x', 500000);
    peer_say(&peer, &fixture, "GET /now HTTP/9.9\r\n\r\n");
    peer_send(&peer, &fixture, more, 500000);
    ck_assert_uint_eq(peer.unsent, 0);
    expect_answer("", "505 HTTP Version Not Supported", "HTTP/1.1");
    peer_close(&peer);
    struct http_stats stats;
    do {
        fixture_turn(&fixture);
        http_stats(fixture.server, &stats);
    } while (stats.connections > 0);
    ck_assert_int_eq(fixture.requests, 0);
    free(more);
}
END_TEST

START_TEST(a_line_of_a_chunk_size_without_end) {
    peer_say(&peer, &fixture, CHUNKED);
    char *digits = mem_alloc(100000);
    memset(digits, '0', 100000);
    peer_send(&peer, &fixture, digits, 100000);
    expect_answer("", "413 Content Too Large", "a chunk is larger than any body");
    memcpy(digits, "1;", 2);
    peer_close(&peer);
    peer_open(&peer, &fixture);
    peer_say(&peer, &fixture, CHUNKED);
    peer_send(&peer, &fixture, digits, 100000);
    expect_answer("", "400 Bad Request", "the line of a chunk's size is too long");
    free(digits);
}
END_TEST

/* ---- the largest heads that pass ------------------------------------------------------------ */

static void setup_usual_limits(void) {
    struct http_config config = fixture_config();
    config.max_header_bytes = 64 << 10;
    http_open(config);
}

/* libmicrohttpd's memory per connection is enough for all heads that wire.c accepts: a head of the
 * full size with the maximum of fields, cookies and arguments. */
static void largest_head(struct buf *out, int arguments, int headers, int cookies,
                         size_t cookie_bytes) {
    buf_puts(out, "GET /now?");
    for (int i = 1; i < arguments; i++) buf_puts(out, "&");
    buf_puts(out, " HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < headers; i++) buf_puts(out, "a:\r\n");
    if (cookie_bytes > 0) buf_puts(out, "Cookie: ");
    for (int i = 0; i < cookies; i++) buf_puts(out, "a=b; ");
    for (size_t i = (size_t)cookies * 5; i < cookie_bytes; i++) buf_puts(out, "c");
    buf_puts(out, cookie_bytes > 0 ? "\r\nn: " : "n: ");
    while (out->length < (64 << 10) - 4) buf_puts(out, "v");
    buf_puts(out, "\r\n\r\n");
}

START_TEST(the_largest_heads_are_served) {
    struct buf head = {0};
    for (int round = 0; round < 3; round++) {
        for (int kind = 0; kind < 4; kind++) {
            buf_clear(&head);
            largest_head(&head, kind == 1 ? 197 : 1, kind == 0 ? 197 : 0, kind == 2 ? 190 : 0,
                         kind >= 2 ? 8192 : 0);
            ck_assert_uint_eq(head.length, 64 << 10);
            peer_forget(&peer);
            peer_send(&peer, &fixture, head.data, head.length);
            EXPECT_SOON(&fixture, peer_has(&peer, "hello") || peer_is_closed(&peer));
            ck_assert_msg(peer_has(&peer, "HTTP/1.1 200 OK"), "kind %d: %s", kind, peer.in.data);
        }
    }
    buf_free(&head);
}
END_TEST

START_TEST(many_headers) {
    struct buf head = {0};
    buf_puts(&head, "GET /now HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 20000; i++) buf_puts(&head, "a:b\r\n");
    peer_send(&peer, &fixture, head.data, head.length);
    expect_answer("", "431 Request Header Fields Too Large", "more than 200 headers");
    buf_free(&head);
}
END_TEST

START_TEST(a_long_target) {
    struct buf head = {0};
    buf_puts(&head, "GET /");
    for (int i = 0; i < 100000; i++) buf_puts(&head, "p");
    peer_send(&peer, &fixture, head.data, head.length);
    expect_answer("", "414 URI Too Long", "the request line is larger than 65536 bytes");
    buf_free(&head);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_http_faults");
    TCase *all = http_case(suite, "faults", NULL);
    tcase_add_loop_test(all, at_once, 0, N_FAULTS);
    tcase_add_loop_test(all, byte_by_byte, 0, N_FAULTS);
    tcase_add_loop_test(all, after_an_answer, 0, N_FAULTS);
    tcase_add_loop_test(all, while_an_answer_is_awaited, 0, N_FAULTS);
    tcase_add_loop_test(all, after_an_idle_time, 0, N_FAULTS);
    tcase_add_loop_test(all, after_the_last_request, 0, N_FAULTS);
    tcase_add_test(all, a_last_request_may_follow_others);
    tcase_add_test(all, bytes_after_the_request_are_discarded);
    tcase_add_test(all, a_line_of_a_chunk_size_without_end);
    TCase *sizes = http_case(suite, "sizes", setup_usual_limits);
    tcase_add_test(sizes, the_largest_heads_are_served);
    tcase_add_test(sizes, many_headers);
    tcase_add_test(sizes, a_long_target);
    return suite_main(suite);
}
