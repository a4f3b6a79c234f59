/* server/http: limits on the size and time of clients' input.
 *
 * Deadlines count from the start of an action and not from the last byte. So a client that sends
 * one byte per second is treated like one that sends nothing. wire.c checks the syntax earlier.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "server/http/internal.h"

enum {
    LINGER_MS = 3000,  /* for a refused client to read the response */
    CLOSING_MS = 1000, /* after the port is closed: for that, and for the rest of a request */
    WRITING_MS = 1000
};

/* ---- deadlines ------------------------------------------------------------------------------ */

static void timeout_init(struct timeout *timeout, int ms) {
    list_init(&timeout->deadlines);
    timeout->ms = ms > 0 ? (uint64_t)ms : 0;
}

void http_limits_init(struct http_server *server) {
    timeout_init(&server->reading, server->config.request_timeout_ms);
    timeout_init(&server->keep_alive, server->config.keep_alive_ms);
    timeout_init(&server->silence, server->config.silence_ms);
    timeout_init(&server->linger, LINGER_MS);
    timeout_init(&server->closing, CLOSING_MS);
    timeout_init(&server->writing, min_int(server->config.answer_timeout_ms, WRITING_MS));
}

void http_limits_set(struct http_server *server, struct deadline *deadline,
                     struct timeout *timeout) {
    list_detach(&deadline->node);
    if (!timeout->ms) return;
    deadline->at_ms = uv_now(server->loop) + timeout->ms;
    list_append(&timeout->deadlines, &deadline->node);
}

void http_limits_clear(struct deadline *deadline) {
    list_detach(&deadline->node);
}

static struct deadline *first_of(const struct timeout *timeout) {
    return timeout->deadlines.n > 0
               ? list_entry(list_first(&timeout->deadlines), struct deadline, node)
               : NULL;
}

/* Removes and returns the first deadline if it has passed, else returns NULL. */
static struct deadline *remove_expired(struct timeout *timeout, uint64_t now) {
    struct deadline *deadline = first_of(timeout);
    if (!deadline || deadline->at_ms > now) return NULL;
    list_remove(&timeout->deadlines, &deadline->node);
    return deadline;
}

uint64_t http_limits_next(const struct http_server *server) {
    const struct timeout *timeouts[] = {&server->reading, &server->keep_alive, &server->silence,
                                        &server->linger,  &server->closing,    &server->writing};
    uint64_t at = 0;
    for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
        const struct deadline *deadline = first_of(timeouts[i]);
        if (deadline && (!at || deadline->at_ms < at)) at = deadline->at_ms;
    }
    return at;
}

/* ---- actions with deadlines ----------------------------------------------------------------- */

void http_limits_begin(struct connection *connection) {
    struct http_server *server = connection->server;
    struct timeout *timeout = server->draining ? &server->closing : &server->reading;
    if (!connection->over_limit) http_limits_set(server, &connection->deadline, timeout);
}

void http_limits_close(struct connection *connection) {
    struct http_server *server = connection->server;
    const struct deadline *deadline = &connection->deadline;
    assert(server->draining);
    if (connection->state != CONNECTION_HEADERS && connection->state != CONNECTION_BODY) return;
    bool is_sooner = deadline->node.list && deadline->at_ms <= uv_now(server->loop) + CLOSING_MS;
    if (!is_sooner) http_limits_begin(connection);
}

/* The rate is an average: a client may pause and then read fast. */
void http_limits_answer(struct exchange *exchange, size_t bytes) {
    struct http_server *server = exchange->server;
    const struct http_config *config = &server->config;
    if (!server->writing.ms) return;
    exchange->read_by_ms = uv_now(server->loop) + (uint64_t)config->answer_timeout_ms +
                           (uint64_t)bytes * 1000 / config->answer_rate;
    http_limits_set(server, &exchange->connection->deadline, &server->writing);
}

/* Headers or body were incomplete at the deadline. A client that sent nothing gets no response. */
static void reading_expired(struct connection *connection) {
    if (connection->state == CONNECTION_FRESH) {
        shutdown(connection->fd, SHUT_RDWR);
        return;
    }
    connection->server->stats.timeouts++;
    http_connection_refuse(connection, STATUS_TIMEOUT, "request_timeout",
                           "the request was not complete in time");
}

/* After the port was closed, the request is still incomplete, or its refusal still unread. */
static void closing_expired(struct connection *connection) {
    if (connection->state == CONNECTION_CUT) {
        shutdown(connection->fd, SHUT_RDWR);
        return;
    }
    http_connection_refuse(connection, STATUS_UNAVAILABLE, NULL, "The server is shutting down.");
}

/* An answer is not yet read. */
static void writing_expired(struct connection *connection) {
    struct http_server *server = connection->server;
    struct exchange *exchange = connection->exchange;
    assert(exchange && exchange->read_by_ms > 0);
    if (uv_now(server->loop) < exchange->read_by_ms) {
        http_limits_set(server, &connection->deadline, &server->writing);
        return;
    }
    server->stats.slow_readers++;
    shutdown(connection->fd, SHUT_RDWR); /* MHD notices only this while a write is blocked */
    http_exchange_mark_gone(exchange);
}

void http_limits_expire(struct http_server *server) {
    uint64_t now = uv_now(server->loop);
    struct deadline *deadline;
    http_listen_retry(server, now);
    while ((deadline = remove_expired(&server->reading, now))) {
        reading_expired(list_entry(deadline, struct connection, deadline));
    }
    while ((deadline = remove_expired(&server->keep_alive, now))) {
        http_connection_close_idle(list_entry(deadline, struct connection, deadline));
    }
    while ((deadline = remove_expired(&server->linger, now))) {
        shutdown(list_entry(deadline, struct connection, deadline)->fd, SHUT_RDWR);
    }
    while ((deadline = remove_expired(&server->closing, now))) {
        closing_expired(list_entry(deadline, struct connection, deadline));
    }
    while ((deadline = remove_expired(&server->writing, now))) {
        writing_expired(list_entry(deadline, struct connection, deadline));
    }
    while ((deadline = remove_expired(&server->silence, now))) {
        http_stream_keep_alive(list_entry(deadline, struct exchange, silence));
    }
}

/* ---- headers -------------------------------------------------------------------------------- */

static const char *header(const struct connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection->mhd, MHD_HEADER_KIND, name);
}

enum status http_limits_check_headers(struct exchange *exchange, struct err *err) {
    const struct connection *connection = exchange->connection;
    const struct http_server *server = connection->server;
    assert(connection->exchange == exchange && connection->state == CONNECTION_BODY);
    if (connection->over_limit) {
        err_set(err, STATUS_UNAVAILABLE, NULL,
                "the server has too many connections; try again later");
        strcpy(err->code, "too_many_connections");
        return STATUS_UNAVAILABLE;
    }
    const char *digits = header(connection, "Content-Length"); /* wire.c has checked it */
    uint64_t length = digits ? strtoull(digits, NULL, 10) : 0;
    if (length > server->config.max_body_bytes) {
        return err_set(err, STATUS_TOO_LARGE, NULL, "the body is larger than %zu bytes",
                       server->config.max_body_bytes);
    }
    const char *expect = header(connection, "Expect");
    bool has_body = header(connection, "Transfer-Encoding") || length > 0;
    exchange->is_chunked = header(connection, "Transfer-Encoding") != NULL;
    exchange->expects_continue = has_body && expect && strcasecmp(expect, "100-continue") == 0;
    return STATUS_OK;
}
