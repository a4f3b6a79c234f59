#include "tests/support/http_fixture.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the application ------------------------------------------------------------------------ */

static bool is_path(const struct http_request *request, const char *path) {
    return strcmp(request->path, path) == 0;
}

static void hold(struct fixture *fixture, struct http_request *request) {
    ck_assert_int_lt(fixture->n_held, FIXTURE_HELD);
    fixture->held[fixture->n_held++] = request;
}

static void unhold(struct fixture *fixture, struct http_request *request) {
    for (int i = 0; i < fixture->n_held; i++) {
        if (fixture->held[i] != request) continue;
        memmove(&fixture->held[i], &fixture->held[i + 1],
                (size_t)(--fixture->n_held - i) * sizeof *fixture->held);
        return;
    }
}

static void on_headers(void *app, struct http_request *request) {
    struct fixture *fixture = app;
    fixture->headers++;
    request->app = fixture;
    if (!is_path(request, "/refuse")) return;
    struct http_field field = {"WWW-Authenticate", "Bearer"};
    http_respond(request, 401, "text/plain", "no key", 6, &field, 1);
    http_release(request);
}

static void answer_big(struct http_request *request) {
    char *body = mem_alloc(FIXTURE_BIG);
    memset(body, 'b', FIXTURE_BIG);
    http_respond(request, 200, "text/plain", body, FIXTURE_BIG, NULL, 0);
    free(body);
}

static void on_request(void *app, struct http_request *request) {
    struct fixture *fixture = app;
    struct http_field field = {"X-Field", "value"};
    fixture->requests++;
    fixture->body_length = request->body_length;
    snprintf(fixture->path, sizeof fixture->path, "%s", request->path);
    ck_assert_uint_eq(strlen(request->body) <= request->body_length, 1);
    ck_assert(request->body[request->body_length] == 0);
    if (is_path(request, "/later") || is_path(request, "/gone")) {
        hold(fixture, request);
        return;
    }
    if (is_path(request, "/stream")) {
        http_stream_begin(request, 200, "text/event-stream", ": keep-alive\n\n", &field, 1);
        hold(fixture, request);
        return;
    }
    if (is_path(request, "/echo")) {
        http_respond(request, 200, "text/plain", request->body, request->body_length, NULL, 0);
    } else if (is_path(request, "/big")) {
        answer_big(request);
    } else {
        http_respond(request, 200, "text/plain", "hello", 5, &field, 1);
    }
    http_release(request);
}

static void on_gone(void *app, struct http_request *request) {
    struct fixture *fixture = app;
    fixture->gone++;
    if (is_path(request, "/gone")) http_respond(request, 200, NULL, "x", 1, NULL, 0);
    unhold(fixture, request);
    http_release(request);
}

static void on_done(void *app, struct http_request *request, int status, uint64_t bytes) {
    struct fixture *fixture = app;
    ck_assert(request->app == fixture || request->app == NULL);
    ck_assert_str_ne(request->method, "");
    fixture->done++;
    fixture->status = status;
    fixture->bytes = bytes;
}

void fixture_answer(struct fixture *fixture) {
    ck_assert_int_gt(fixture->n_held, 0);
    struct http_request *request = fixture->held[0];
    unhold(fixture, request);
    http_respond(request, 200, "text/plain", "later", 5, NULL, 0);
    http_release(request);
    http_flush(fixture->server);
}

/* ---- the server ----------------------------------------------------------------------------- */

struct http_config fixture_config(void) {
    return (struct http_config){.host = "127.0.0.1",
                                .max_header_bytes = 8192,
                                .max_body_bytes = 1 << 20,
                                .max_bodies_bytes = 4 << 20,
                                .request_timeout_ms = 10000,
                                .keep_alive_ms = 10000,
                                .max_connections = 600,
                                .answer_timeout_ms = 10000,
                                .answer_rate = 1 << 20,
                                .max_stream_backlog = 1 << 18,
                                .silence_ms = 10000,
                                .on_headers = on_headers,
                                .on_request = on_request,
                                .on_gone = on_gone,
                                .on_done = on_done};
}

void fixture_open(struct fixture *fixture, struct http_config config) {
    struct err err;
    memset(fixture, 0, sizeof *fixture);
    ck_assert_int_eq(uv_loop_init(&fixture->loop), 0);
    config.app = fixture;
    enum status status = http_server_new(&fixture->server, &fixture->loop, &config, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    fixture->port = http_server_port(fixture->server);
    ck_assert_int_gt(fixture->port, 0);
}

static void on_closed(void *app) {
    struct fixture *fixture = app;
    ck_assert(!fixture->is_closed);
    fixture->is_closed = true;
}

void fixture_close(struct fixture *fixture) {
    if (!fixture->is_closed) {
        http_server_drain(fixture->server, on_closed);
        http_server_abort(fixture->server);
    }
    EXPECT_SOON(fixture, fixture->is_closed);
    struct http_stats stats;
    http_stats(fixture->server, &stats);
    ck_assert_int_eq(stats.connections, 0);
    ck_assert_int_eq(stats.requests, 0);
    ck_assert_int_eq(fixture->n_held, 0);
    http_server_free(fixture->server);
    uv_run(&fixture->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&fixture->loop), 0);
}

void fixture_turn(struct fixture *fixture) {
    if (uv_run(&fixture->loop, UV_RUN_NOWAIT) == 0) usleep(50);
    usleep(20);
}

void fixture_run(struct fixture *fixture, int ms) {
    uint64_t until_ns = now_ns() + (uint64_t)ms * 1000000u;
    while (now_ns() < until_ns) fixture_turn(fixture);
}

/* ---- the client ----------------------------------------------------------------------------- */

void peer_open(struct peer *peer, const struct fixture *fixture) {
    peer_open_narrow(peer, fixture, 0);
}

void peer_open_narrow(struct peer *peer, const struct fixture *fixture, int buffer) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)fixture->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memset(peer, 0, sizeof *peer);
    peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(peer->fd, 0);
    if (buffer > 0) setsockopt(peer->fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    ck_assert_int_eq(connect(peer->fd, (struct sockaddr *)&address, sizeof address), 0);
    fcntl(peer->fd, F_SETFL, O_NONBLOCK);
}

void peer_close(struct peer *peer) {
    if (peer->fd >= 0) close(peer->fd);
    peer->fd = -1;
    buf_free(&peer->in);
}

void peer_send(struct peer *peer, struct fixture *fixture, const void *data, size_t length) {
    const char *from = data;
    uint64_t until_ns = now_ns() + 5000000000u;
    while (length > 0 && now_ns() < until_ns) {
        ssize_t n = send(peer->fd, from, length, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) break;
        if (n > 0) from += n, length -= (size_t)n;
        if (length > 0) fixture_turn(fixture);
    }
    peer->unsent = length;
}

void peer_say(struct peer *peer, struct fixture *fixture, const char *text) {
    peer_send(peer, fixture, text, strlen(text));
}

size_t peer_read(struct peer *peer) {
    char bytes[65536];
    while (!peer->is_eof) {
        ssize_t n = recv(peer->fd, bytes, sizeof bytes, 0);
        if (n > 0) buf_add(&peer->in, bytes, (size_t)n);
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) peer->is_eof = true;
        if (n < 0) peer->is_reset = true;
    }
    return peer->in.length;
}

int peer_count(struct peer *peer, const char *text) {
    int n = 0;
    if (peer_read(peer) == 0) return 0;
    for (const char *at = peer->in.data; (at = strstr(at, text)); at += strlen(text)) n++;
    return n;
}

bool peer_has(struct peer *peer, const char *text) {
    return peer_read(peer) > 0 && strstr(peer->in.data, text);
}

bool peer_is_closed(struct peer *peer) {
    peer_read(peer);
    return peer->is_eof;
}

void peer_forget(struct peer *peer) {
    buf_clear(&peer->in);
}

void peer_chunks(struct peer *peer, struct buf *out) {
    if (peer_read(peer) == 0) return;
    const char *at = strstr(peer->in.data, "\r\n\r\n"), *end = peer->in.data + peer->in.length;
    for (at = at ? at + 4 : end; at < end;) {
        char *line;
        size_t n = strtoul(at, &line, 16);
        if (n == 0 || line + 2 + n > end) break;
        buf_add(out, line + 2, n);
        at = line + 2 + n + 2;
    }
}
