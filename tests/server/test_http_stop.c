/* The HTTP front end: its addresses, and how it stops. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/http_suite.h"

/* ---- draining ------------------------------------------------------------------------------- */

static bool can_connect(void) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)fixture.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool is_connected = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return is_connected;
}

START_TEST(test_drain_with_no_connection) {
    peer_close(&peer);
    struct http_stats stats;
    fixture_run(&fixture, 10);
    EXPECT_SOON(&fixture, (http_stats(fixture.server, &stats), stats.connections == 0));
    http_drain();
    ck_assert(fixture.is_closed);
    ck_assert(!can_connect());
}
END_TEST

START_TEST(test_drain_closes_idle_connections) {
    struct peer fresh;
    peer_open(&fresh, &fixture);
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
    fixture_run(&fixture, 10);
    http_drain();
    EXPECT_SOON(&fixture, fixture.is_closed);
    EXPECT_SOON(&fixture, peer_is_closed(&peer) && peer_is_closed(&fresh));
    ck_assert(!peer.is_reset && !fresh.is_reset);
    peer_close(&fresh);
}
END_TEST

/* Requests that arrived before the port was closed are answered, on idle connections and on ones
 * that are not accepted yet. */
START_TEST(test_drain_answers_complete_requests) {
    struct peer fresh;
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
    peer_say(&peer, &fixture, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    peer_open(&fresh, &fixture);
    peer_say(&fresh, &fixture, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    http_drain();
    fixture_run(&fixture, 20);
    ck_assert(fixture.n_held == 2 && fixture.gone == 0);
    fixture_answer(&fixture);
    fixture_answer(&fixture);
    EXPECT_SOON(&fixture, fixture.is_closed && peer_is_closed(&peer) && peer_is_closed(&fresh));
    ck_assert(peer_has(&peer, "later") && peer_has(&peer, "Connection: close"));
    ck_assert(peer_has(&fresh, "later") && peer_has(&fresh, "Connection: close"));
    ck_assert(!peer.is_reset && !fresh.is_reset && !can_connect());
    peer_close(&fresh);
}
END_TEST

/* Clients are told to leave, and new ones can connect and ask meanwhile. */
START_TEST(test_an_announced_drain_keeps_the_port_open) {
    struct peer idle, fresh;
    peer_open(&idle, &fixture);
    peer_open(&fresh, &fixture);
    peer_say(&idle, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&idle, "hello"));
    ck_assert(!peer_has(&idle, "Connection: close"));
    http_server_announce_drain(fixture.server);
    fixture_run(&fixture, 10);
    ck_assert(can_connect() && !peer_is_closed(&idle) && !peer_is_closed(&fresh));
    peer_say(&fresh, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&fresh, "hello") && peer_is_closed(&fresh));
    ck_assert(peer_has(&fresh, "Connection: close\r\n") && !fresh.is_reset);
    http_drain();
    EXPECT_SOON(&fixture, fixture.is_closed && peer_is_closed(&idle));
    ck_assert(!can_connect() && !idle.is_reset);
    peer_close(&idle);
    peer_close(&fresh);
}
END_TEST

/* A stream continues to its end, and new clients are refused. */
START_TEST(test_drain_lets_requests_finish) {
    struct peer later;
    peer_open(&later, &fixture);
    peer_say(&peer, &fixture, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, fixture.n_held == 1);
    peer_say(&later, &fixture, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, fixture.n_held == 2);
    struct http_request *stream = fixture.held[0];
    http_drain();
    ck_assert(!can_connect());
    for (int i = 0; i < 5; i++) {
        ck_assert(http_stream_write(stream, "data: x\n\n", 9));
        http_flush(fixture.server);
        fixture_run(&fixture, 5);
    }
    EXPECT_SOON(&fixture, peer_count(&peer, "data: x") == 5);
    fixture.held[0] = fixture.held[1];
    fixture.n_held = 1;
    http_stream_end(stream);
    http_release(stream);
    http_flush(fixture.server);
    EXPECT_SOON(&fixture, peer_has(&peer, "\r\n0\r\n\r\n") && peer_is_closed(&peer));
    ck_assert(!fixture.is_closed);
    fixture_answer(&fixture);
    EXPECT_SOON(&fixture, peer_has(&later, "later") && peer_is_closed(&later));
    ck_assert(peer_has(&later, "Connection: close\r\n"));
    EXPECT_SOON(&fixture, fixture.is_closed);
    ck_assert_int_eq(fixture.gone, 0);
    peer_close(&later);
}
END_TEST

/* A partly received request counts as a running one. */
START_TEST(test_drain_lets_a_half_sent_request_finish) {
    peer_say(&peer, &fixture, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc");
    EXPECT_SOON(&fixture, fixture.headers == 1);
    http_drain();
    fixture_run(&fixture, 10);
    peer_say(&peer, &fixture, "def");
    EXPECT_SOON(&fixture, peer_has(&peer, "abcdef") && peer_is_closed(&peer));
    EXPECT_SOON(&fixture, fixture.is_closed);
}
END_TEST

/* Incomplete requests get a 503 soon, long before --request-timeout; a complete one continues. */
START_TEST(test_drain_does_not_wait_for_half_requests) {
    static const char *const texts[] = {
        "GET /n", "GET /now HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc",
        "POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab"};
    enum { N = sizeof texts / sizeof *texts };
    struct peer peers[N];
    for (int i = 0; i < N; i++) {
        peer_open(&peers[i], &fixture);
        peer_say(&peers[i], &fixture, texts[i]);
    }
    peer_say(&peer, &fixture, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, fixture.headers == 4 && fixture.n_held == 1);
    http_drain();
    for (int i = 0; i < N; i++) {
        EXPECT_SOON(&fixture, peer_is_closed(&peers[i]));
        ck_assert(!peers[i].is_reset);
        ck_assert_int_eq(peer_count(&peers[i], "HTTP/1.1 503 "), 1);
        ck_assert(peer_has(&peers[i], "The server is shutting down."));
    }
    struct http_stats stats;
    EXPECT_SOON(&fixture, (http_stats(fixture.server, &stats), stats.connections == 1));
    ck_assert(!fixture.is_closed && !peer_is_closed(&peer));
    for (int i = 0; i < N; i++) peer_close(&peers[i]);
    fixture_answer(&fixture);
    EXPECT_SOON(&fixture, fixture.is_closed && peer_has(&peer, "later"));
    ck_assert_uint_eq(stats.timeouts, 0);
}
END_TEST

START_TEST(test_abort_cuts_everything) {
    enum { N = 100 };
    static struct peer peers[N];
    static const char *const texts[] = {
        "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n", "GET /later HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /sto", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc",
        "GET /big HTTP/1.1\r\nHost: x\r\n\r\n"};
    for (int i = 0; i < N; i++) {
        peer_open(&peers[i], &fixture);
        peer_say(&peers[i], &fixture, texts[i % 5]);
        fixture_turn(&fixture);
    }
    EXPECT_SOON(&fixture, fixture.n_held == 2 * N / 5 && fixture.headers == 4 * N / 5);
    http_drain();
    fixture_run(&fixture, 10);
    ck_assert(!fixture.is_closed);
    http_server_abort(fixture.server);
    EXPECT_SOON(&fixture, fixture.is_closed);
    ck_assert_int_eq(fixture.n_held, 0);
    ck_assert_int_eq(fixture.gone, 3 * N / 5);
    ck_assert_int_eq(fixture.done, fixture.headers);
    for (int i = 0; i < N; i++) peer_close(&peers[i]);
}
END_TEST

/* ---- stopping from within ------------------------------------------------------------------- */

static struct http_server *inner;

static void close_inner(void *app) {
    (void)app;
    http_server_free(inner);
    inner = NULL;
}

static void ignore(void *app, struct http_request *request) {
    (void)app;
    (void)request;
}

static void stop_inside(void *app, struct http_request *request) {
    (void)app;
    http_respond(request, 200, "text/plain", "bye", 3, NULL, 0);
    http_release(request);
    http_server_drain(inner, close_inner);
}

static struct http_request *kept;

static void keep(void *app, struct http_request *request) {
    (void)app;
    kept = request;
}

/* Opens `inner` and a client that sends `text` to it. */
static void open_inner(struct peer *client, struct http_config config, const char *text) {
    struct err err;
    config.on_headers = config.on_gone = ignore;
    config.on_done = NULL;
    ck_assert_int_eq(http_server_new(&inner, &fixture.loop, &config, &err), STATUS_OK);
    struct fixture view = {.port = http_server_port(inner)};
    peer_open(client, &view);
    peer_say(client, &fixture, text);
}

/* The application may hold a request for longer than the server lives. */
START_TEST(test_release_after_the_server) {
    struct http_config config = fixture_config();
    struct peer client;
    kept = NULL;
    config.on_request = keep;
    open_inner(&client, config, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    EXPECT_SOON(&fixture, kept);
    http_server_drain(inner, close_inner);
    http_server_abort(inner);
    EXPECT_SOON(&fixture, !inner);
    fixture_run(&fixture, 10);
    ck_assert_str_eq(kept->body, "abc");
    ck_assert_ptr_null(http_header(kept, "Host"));
    http_respond(kept, 200, "text/plain", "nobody", 6, NULL, 0);
    http_release(kept);
    peer_close(&client);
}
END_TEST

/* A request stops the server, which is freed as soon as it has closed. */
START_TEST(test_drain_and_free_from_callbacks) {
    struct http_config config = fixture_config();
    struct peer client;
    config.on_request = stop_inside;
    open_inner(&client, config, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n");
    EXPECT_SOON(&fixture, !inner);
    EXPECT_SOON(&fixture, peer_has(&client, "bye") && peer_is_closed(&client));
    peer_close(&client);
}
END_TEST

/* ---- listening ------------------------------------------------------------------------------ */

static bool answers_on(int family, const char *address, int port) {
    char got[16] = {0};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    bool is_v4 = family == AF_INET;
    inet_pton(family, address, is_v4 ? (void *)&v4.sin_addr : (void *)&v6.sin6_addr);
    int fd = socket(family, SOCK_STREAM, 0);
    if (fd < 0) return false;
    int rc = is_v4 ? connect(fd, (struct sockaddr *)&v4, sizeof v4)
                   : connect(fd, (struct sockaddr *)&v6, sizeof v6);
    if (rc == 0) {
        (void)!write(fd, "GET / HTTP/1.0\r\n\r\n", 18);
        for (int i = 0; i < 200 && got[0] == 0; i++) {
            fixture_turn(&fixture);
            (void)!recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
        }
    }
    close(fd);
    return strncmp(got, "HTTP/1.1 200", 12) == 0;
}

static bool has_ipv6(void) {
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) close(fd);
    return has;
}

static void listen_on(const char *host) {
    struct http_config config = fixture_config();
    config.host = host;
    fixture_open(&fixture, config);
}

START_TEST(test_hosts) {
    bool v6 = has_ipv6();
    listen_on("0.0.0.0");
    ck_assert(answers_on(AF_INET, "127.0.0.1", fixture.port));
    fixture_close(&fixture);
    listen_on("localhost");
    ck_assert(answers_on(AF_INET, "127.0.0.1", fixture.port) ||
              answers_on(AF_INET6, "::1", fixture.port));
    fixture_close(&fixture);
    if (!v6) return;
    listen_on("::1");
    ck_assert(answers_on(AF_INET6, "::1", fixture.port));
    ck_assert(!answers_on(AF_INET, "127.0.0.1", fixture.port));
    fixture_close(&fixture);
    listen_on("::");
    ck_assert(answers_on(AF_INET6, "::1", fixture.port));
    ck_assert(answers_on(AF_INET, "127.0.0.1", fixture.port));
    fixture_close(&fixture);
}
END_TEST

static void expect_failure(const char *host, int port, const char *cause) {
    struct http_config config = fixture_config();
    struct http_server *server;
    struct err err = {0};
    char number[16];
    config.host = host;
    config.port = port;
    snprintf(number, sizeof number, "%d", port);
    ck_assert_int_eq(http_server_new(&server, &fixture.loop, &config, &err), STATUS_SYSTEM);
    ck_assert_ptr_null(server);
    ck_assert_msg(strstr(err.message, host) && strstr(err.message, number) &&
                      strstr(err.message, cause),
                  "%s", err.message);
}

START_TEST(test_bind_failures) {
    expect_failure("127.0.0.1", fixture.port, "the port is in use");
    expect_failure("0.0.0.0", fixture.port, "the port is in use");
    expect_failure("192.0.2.1", 18432, "does not have this address");
    expect_failure("no-such-host.invalid", 18433, "cannot resolve");
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
}
END_TEST

/* The next server can use the port immediately, although the kernel still has connections of the
 * last one. */
START_TEST(test_port_is_free_after_stop) {
    struct http_config config = fixture_config();
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
    config.port = fixture.port;
    fixture_close(&fixture);
    peer_close(&peer);
    fixture_open(&fixture, config);
    ck_assert_int_eq(fixture.port, config.port);
    peer_open(&peer, &fixture);
    peer_say(&peer, &fixture, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_SOON(&fixture, peer_has(&peer, "hello"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_http_stop");
    TCase *stopping = http_case(suite, "stopping", NULL);
    tcase_add_test(stopping, test_drain_with_no_connection);
    tcase_add_test(stopping, test_drain_closes_idle_connections);
    tcase_add_test(stopping, test_drain_answers_complete_requests);
    tcase_add_test(stopping, test_an_announced_drain_keeps_the_port_open);
    tcase_add_test(stopping, test_drain_lets_requests_finish);
    tcase_add_test(stopping, test_drain_lets_a_half_sent_request_finish);
    tcase_add_test(stopping, test_drain_does_not_wait_for_half_requests);
    tcase_add_test(stopping, test_abort_cuts_everything);
    tcase_add_test(stopping, test_release_after_the_server);
    tcase_add_test(stopping, test_drain_and_free_from_callbacks);
    tcase_add_test(stopping, test_bind_failures);
    tcase_add_test(stopping, test_port_is_free_after_stop);
    TCase *listening = tcase_create("listening");
    tcase_add_test(listening, test_hosts);
    suite_add_tcase(suite, listening);
    return suite_main(suite);
}
