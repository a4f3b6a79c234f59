/* The HTTP front end: streams, and clients that disconnect. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/support/http_suite.h"

static bool write_text(struct http_request *request, const char *text) {
    return http_stream_write(request, text, strlen(text));
}

/* Opens the stream of `client` and returns its request after the headers have arrived. */
static struct http_request *open_stream(struct peer *client) {
    int n = fixture.n_held;
    peer_say(client, &fixture, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, fixture.n_held == n + 1 && peer_has(client, "\r\n\r\n"));
    return fixture.held[n];
}

static void finish(struct http_request *request) {
    fixture.n_held--;
    ck_assert_ptr_eq(fixture.held[fixture.n_held], request);
    http_stream_end(request);
    http_release(request);
    http_flush(fixture.server);
}

START_TEST(test_headers_leave_before_the_first_byte) {
    struct http_request *request = open_stream(&peer);
    ck_assert(peer_has(&peer, "HTTP/1.1 200 OK\r\n"));
    ck_assert(peer_has(&peer, "Content-Type: text/event-stream\r\n"));
    ck_assert(peer_has(&peer, "X-Field: value\r\n"));
    ck_assert(peer_has(&peer, "Transfer-Encoding: chunked\r\n"));
    finish(request);
    EXPECT_SOON(&fixture, peer_has(&peer, "0\r\n\r\n"));
    EXPECT_SOON(&fixture, fixture.done == 1);
    ck_assert_int_eq(fixture.status, 200);
    ck_assert_uint_eq(fixture.bytes, 0);
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
}
END_TEST

/* Each flush sends one chunk, immediately and whole. */
START_TEST(test_events_arrive_as_they_are_written) {
    struct http_request *request = open_stream(&peer);
    for (int i = 0; i < 50; i++) {
        char event[64], chunk[80];
        int n = snprintf(event, sizeof event, "data: %d\n\n", i);
        snprintf(chunk, sizeof chunk, "%X\r\n%s\r\n", (unsigned)n, event);
        ck_assert(write_text(request, event));
        http_flush(fixture.server);
        EXPECT_SOON(&fixture, peer_has(&peer, chunk));
    }
    finish(request);
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n0\r\n\r\n"));
}
END_TEST

START_TEST(test_events_between_flushes_share_a_chunk) {
    struct http_request *request = open_stream(&peer);
    for (int i = 0; i < 3; i++) ck_assert(write_text(request, "data: abc\n\n"));
    fixture_run(&fixture, 10);
    ck_assert(!peer_has(&peer, "abc"));
    http_flush(fixture.server);
    EXPECT_SOON(&fixture, peer_has(&peer, "21\r\ndata: abc\n\ndata: abc\n\ndata: abc\n\n\r\n"));
    finish(request);
}
END_TEST

START_TEST(test_long_stream_arrives_whole) {
    struct http_request *request = open_stream(&peer);
    struct buf sent = {0}, got = {0};
    for (int i = 0; i < 3000; i++) {
        char event[600];
        int n = snprintf(event, sizeof event, "%0*d;", 1 + i * 7 % 500, i);
        buf_add(&sent, event, (size_t)n);
        ck_assert(http_stream_write(request, event, (size_t)n));
        if (i % 7 == 0) http_flush(fixture.server);
        if (i % 50 == 0) fixture_run(&fixture, 1), peer_read(&peer);
    }
    finish(request);
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n0\r\n\r\n"));
    peer_chunks(&peer, &got);
    ck_assert_uint_eq(got.length, sent.length);
    ck_assert(memcmp(got.data, sent.data, sent.length) == 0);
    EXPECT_SOON(&fixture, fixture.done == 1);
    ck_assert_uint_eq(fixture.bytes, sent.length);
    buf_free(&sent);
    buf_free(&got);
}
END_TEST

START_TEST(test_stream_to_http_1_0_has_no_chunks) {
    peer_say(&peer, &fixture, "GET /stream HTTP/1.0\r\n\r\n");
    EXPECT_SOON(&fixture, fixture.n_held == 1);
    struct http_request *request = fixture.held[0];
    write_text(request, "one ");
    http_flush(fixture.server);
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n\r\none "));
    write_text(request, "two");
    finish(request);
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n\r\none two") && peer_is_closed(&peer));
}
END_TEST

START_TEST(test_three_hundred_streams) {
    enum { N = 300, STEPS = 20 };
    static struct peer peers[N];
    for (int i = 0; i < N; i++) {
        peer_open(&peers[i], &fixture);
        peer_say(&peers[i], &fixture, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        fixture_turn(&fixture);
    }
    EXPECT_SOON(&fixture, fixture.n_held == N);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < N; i++) ck_assert(write_text(fixture.held[i], "data: t\n\n"));
        http_flush(fixture.server);
        fixture_turn(&fixture);
    }
    while (fixture.n_held > 0) finish(fixture.held[fixture.n_held - 1]);
    for (int i = 0; i < N; i++) {
        struct buf body = {0};
        EXPECT_SOON(&fixture, peer_has(&peers[i], "\r\n0\r\n\r\n"));
        peer_chunks(&peers[i], &body);
        ck_assert_uint_eq(body.length, STEPS * strlen("data: t\n\n"));
        buf_free(&body);
        peer_close(&peers[i]);
    }
    EXPECT_SOON(&fixture, fixture.done == N);
    ck_assert_int_eq(fixture.gone, 0);
}
END_TEST

/* ---- clients that disconnect ---------------------------------------------------------------- */

static void expect_gone_soon(uint64_t since_ns) {
    EXPECT_SOON(&fixture, fixture.gone == 1 && fixture.done == 1);
    printf("seen after %.1f ms\n", (double)(now_ns() - since_ns) * 1e-6);
    ck_assert_int_eq(fixture.status, 499);
    struct http_stats stats;
    http_stats(fixture.server, &stats);
    ck_assert_int_eq(stats.requests, 0);
}

static void reset(struct peer *client) {
    struct linger linger = {.l_onoff = 1};
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    peer_close(client);
}

START_TEST(test_fin_in_a_silent_stream) {
    open_stream(&peer);
    uint64_t since_ns = now_ns();
    peer_close(&peer);
    expect_gone_soon(since_ns);
}
END_TEST

START_TEST(test_reset_in_a_stream) {
    write_text(open_stream(&peer), "data: 1\n\n");
    http_flush(fixture.server);
    EXPECT_SOON(&fixture, peer_has(&peer, "data: 1"));
    uint64_t since_ns = now_ns();
    reset(&peer);
    expect_gone_soon(since_ns);
}
END_TEST

START_TEST(test_fin_before_the_answer) {
    peer_say(&peer, &fixture, "GET /gone HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, fixture.n_held == 1);
    uint64_t since_ns = now_ns();
    peer_close(&peer);
    expect_gone_soon(since_ns);
}
END_TEST

/* The request and the end of the connection arrive together. An immediate answer still reaches the
 * client. */
START_TEST(test_fin_after_the_request) {
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(peer.fd, SHUT_WR);
    EXPECT_SOON(&fixture, peer_has(&peer, "hello") && peer_is_closed(&peer));
    ck_assert_int_eq(fixture.gone, 0);
}
END_TEST

static const char *const waiting[] = {"GET /later HTTP/1.1\r\nHost: x\r\n\r\n",
                                      "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"};

START_TEST(test_fin_after_a_request_that_waits) {
    peer_say(&peer, &fixture, waiting[_i]);
    shutdown(peer.fd, SHUT_WR);
    EXPECT_SOON(&fixture, fixture.gone == 1 && fixture.done == 1);
    EXPECT_SOON(&fixture, peer_is_closed(&peer));
    ck_assert_int_eq(fixture.status, 499);
}
END_TEST

START_TEST(test_fin_in_the_body) {
    peer_say(&peer, &fixture, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    EXPECT_SOON(&fixture, fixture.headers == 1);
    uint64_t since_ns = now_ns();
    peer_close(&peer);
    expect_gone_soon(since_ns);
    ck_assert_int_eq(fixture.requests, 0);
}
END_TEST

START_TEST(test_fin_with_bytes_pending) {
    struct http_request *request = open_stream(&peer);
    write_text(request, "data: never read\n\n");
    uint64_t since_ns = now_ns();
    peer_close(&peer);
    http_flush(fixture.server);
    expect_gone_soon(since_ns);
}
END_TEST

START_TEST(test_all_of_many_go_at_once) {
    enum { N = 200 };
    static struct peer peers[N];
    for (int i = 0; i < N; i++) {
        peer_open(&peers[i], &fixture);
        open_stream(&peers[i]);
    }
    for (int i = 0; i < N; i++) {
        if (i % 2)
            reset(&peers[i]);
        else
            peer_close(&peers[i]);
    }
    EXPECT_SOON(&fixture, fixture.gone == N && fixture.done == N);
    struct http_stats stats;
    EXPECT_SOON(&fixture, (http_stats(fixture.server, &stats), stats.connections == 1));
}
END_TEST

/* The client never reads: its buffer fills, its stream is cut off, and the others continue. */
START_TEST(test_slow_reader_is_cut_off) {
    struct http_stats stats;
    char block[4096];
    size_t written = 0;
    memset(block, 's', sizeof block);
    struct http_request *request = open_stream(&peer);
    while (written < (64u << 20) && http_stream_write(request, block, sizeof block)) {
        written += sizeof block;
        if (written % (16 * sizeof block) == 0) http_flush(fixture.server);
        if (written % (64 * sizeof block) == 0) fixture_turn(&fixture);
    }
    ck_assert_uint_lt(written, 32u << 20);
    http_flush(fixture.server);
    EXPECT_SOON(&fixture, fixture.gone == 1 && fixture.done == 1);
    ck_assert_int_eq(fixture.status, 499);
    http_stats(fixture.server, &stats);
    ck_assert_uint_eq(stats.slow_readers, 1);
    EXPECT_SOON(&fixture, (http_stats(fixture.server, &stats), stats.connections == 0));
}
END_TEST

/* A large event alone does not cut the stream off. Unread bytes of other events do. */
START_TEST(test_write_above_the_backlog) {
    enum { BACKLOG = 1 << 18, LARGE = 32 << 20 };
    struct http_request *request = open_stream(&peer);
    char *block = mem_calloc(1, LARGE);
    ck_assert(http_stream_write(request, block, LARGE));
    http_flush(fixture.server);
    ck_assert(http_stream_write(request, block, BACKLOG));
    http_flush(fixture.server);
    ck_assert_int_eq(fixture.gone, 0);
    ck_assert(!http_stream_write(request, block, LARGE));
    ck_assert(!write_text(request, "more"));
    ck_assert_int_eq(fixture.gone, 0);
    http_flush(fixture.server);
    ck_assert_int_eq(fixture.gone, 1);
    EXPECT_SOON(&fixture, fixture.done == 1);
    free(block);
}
END_TEST

/* ---- silence -------------------------------------------------------------------------------- */

static void setup_silence(void) {
    struct http_config config = fixture_config();
    config.silence_ms = 60;
    http_open(config);
}

START_TEST(test_silent_stream_gets_a_comment) {
    struct http_request *request = open_stream(&peer);
    EXPECT_SOON(&fixture, peer_count(&peer, "\r\n: keep-alive\n\n\r\n") == 2);
    peer_forget(&peer);
    for (int i = 0; i < 10; i++) {
        write_text(request, "data: x\n\n");
        http_flush(fixture.server);
        fixture_run(&fixture, 15);
    }
    ck_assert_int_eq(peer_count(&peer, "keep-alive"), 0);
    EXPECT_SOON(&fixture, peer_has(&peer, ": keep-alive\n\n"));
    finish(request);
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n0\r\n\r\n"));
    peer_forget(&peer);
    fixture_run(&fixture, 100);
    ck_assert_uint_eq(peer_read(&peer), 0);
}
END_TEST

/* A stream that has ended gets no more comments, however slowly its reader reads. */
START_TEST(test_an_ended_stream_is_silent) {
    enum { LARGE = 16 << 20 };
    struct http_request *request = open_stream(&peer);
    char *block = mem_calloc(1, LARGE);
    ck_assert(http_stream_write(request, block, LARGE));
    http_flush(fixture.server);
    finish(request);
    fixture_run(&fixture, 200);
    ck_assert_int_eq(fixture.done, 0);
    free(block);
}
END_TEST

/* Fills the block with a pattern with a long period, which continues from call to call. */
static void fill(char *block, size_t length, uint32_t *state) {
    for (size_t i = 0; i < length; i++) {
        *state = *state * 1664525 + 1013904223;
        block[i] = (char)('a' + (*state >> 24) % 26);
    }
}

/* The reader has read most of a large event when the next one is written. The unread rest moves to
 * the front of the buffer, and no byte is lost or doubled. */
START_TEST(test_events_of_a_slow_reader) {
    enum { LARGE = 16 << 20, SMALL = 1 << 16 };
    struct http_request *request = open_stream(&peer);
    struct buf sent = {0}, got = {0};
    char *block = mem_alloc(LARGE);
    uint32_t state = 1;
    fill(block, LARGE, &state);
    buf_add(&sent, block, LARGE);
    ck_assert(http_stream_write(request, block, LARGE));
    http_flush(fixture.server);
    EXPECT_SOON(&fixture, peer_read(&peer) > LARGE * 3 / 4);
    for (int i = 0; i < 3; i++) {
        fill(block, SMALL, &state);
        buf_add(&sent, block, SMALL);
        ck_assert(http_stream_write(request, block, SMALL));
        http_flush(fixture.server);
    }
    finish(request);
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n0\r\n\r\n"));
    peer_chunks(&peer, &got);
    ck_assert_uint_eq(got.length, sent.length);
    ck_assert(memcmp(got.data, sent.data, sent.length) == 0);
    buf_free(&sent);
    buf_free(&got);
    free(block);
}
END_TEST

/* Writes of one turn count as one event, which may be larger than the backlog. */
START_TEST(test_writes_of_a_turn_count_together) {
    enum { BACKLOG = 1 << 18 };
    struct http_request *request = open_stream(&peer);
    char *block = mem_calloc(1, BACKLOG);
    for (int i = 0; i < 8; i++) ck_assert(http_stream_write(request, block, BACKLOG));
    http_flush(fixture.server);
    ck_assert_int_eq(fixture.gone, 0);
    finish(request);
    free(block);
}
END_TEST

static void add_streams(Suite *suite) {
    TCase *streams = http_case(suite, "streams", NULL);
    tcase_add_test(streams, test_headers_leave_before_the_first_byte);
    tcase_add_test(streams, test_events_arrive_as_they_are_written);
    tcase_add_test(streams, test_events_between_flushes_share_a_chunk);
    tcase_add_test(streams, test_long_stream_arrives_whole);
    tcase_add_test(streams, test_stream_to_http_1_0_has_no_chunks);
    tcase_add_test(streams, test_three_hundred_streams);
    tcase_add_test(streams, test_events_of_a_slow_reader);
    tcase_add_test(streams, test_writes_of_a_turn_count_together);
    TCase *silence = http_case(suite, "silence", setup_silence);
    tcase_add_test(silence, test_silent_stream_gets_a_comment);
    tcase_add_test(silence, test_an_ended_stream_is_silent);
}

static void add_clients(Suite *suite) {
    TCase *clients = http_case(suite, "clients that go", NULL);
    tcase_add_test(clients, test_fin_in_a_silent_stream);
    tcase_add_test(clients, test_reset_in_a_stream);
    tcase_add_test(clients, test_fin_before_the_answer);
    tcase_add_test(clients, test_fin_after_the_request);
    tcase_add_loop_test(clients, test_fin_after_a_request_that_waits, 0, 2);
    tcase_add_test(clients, test_fin_in_the_body);
    tcase_add_test(clients, test_fin_with_bytes_pending);
    tcase_add_test(clients, test_all_of_many_go_at_once);
    tcase_add_test(clients, test_slow_reader_is_cut_off);
    tcase_add_test(clients, test_write_above_the_backlog);
}

int main(void) {
    Suite *suite = suite_create("server_http_stream");
    add_streams(suite);
    add_clients(suite);
    return suite_main(suite);
}
