/* server/http: what a client may send, and by when.
 *
 * Deadlines are hard: they count from the start of what they bound and not from the last byte, so
 * that a client that sends a byte a second is treated like one that sends none. Headers and framing
 * are checked before libmicrohttpd's parsing is relied on: with two lengths, a length together with
 * a transfer coding, or an unknown coding, a proxy and this server could disagree about where the
 * request ends.
 *
 * What libmicrohttpd's own parser refuses (a line without a colon, a length that is not a number, a
 * request line or headers larger than its pool) does not arrive here: MHD answers with the right
 * status and a small page of its own, and closes. Version 0.9.75 sends the head of that page twice
 * if the length is wrong.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "server/http/internal.h"
#include "server/http/tcp_info.h"

enum {
    LINGER_MS = 3000,  /* for a refused client to read why */
    PARTIAL_CHECKS = 4 /* connections with incomplete headers that are checked in one round */
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
                                        &server->linger};
    uint64_t at = 0;
    for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
        const struct deadline *deadline = first_of(timeouts[i]);
        if (deadline && (!at || deadline->at_ms < at)) at = deadline->at_ms;
    }
    return at;
}

/* Headers or body were not complete in time. A client that has sent nothing gets no response. */
static void reading_expired(struct connection *connection) {
    if (connection->state == CONNECTION_FRESH && http_kernel_bytes_read(connection->fd) == 0) {
        shutdown(connection->fd, SHUT_RDWR);
        return;
    }
    connection->server->stats.timeouts++;
    http_connection_refuse(connection, STATUS_TIMEOUT, "request_timeout",
                           "the request was not complete in time");
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
    while ((deadline = remove_expired(&server->silence, now))) {
        http_stream_keep_alive(list_entry(deadline, struct exchange, silence));
    }
}

/* ---- headers -------------------------------------------------------------------------------- */

/* Have the headers read so far exceeded the limit? On a reused connection the bytes of earlier
 * requests are only known from the first check on, so the check errs in the client's favour; MHD's
 * own limit is the backstop. */
static bool partial_is_over(struct connection *connection) {
    uint64_t bytes = http_kernel_bytes_read(connection->fd);
    if (!connection->has_base) {
        connection->has_base = true;
        connection->header_base = bytes;
    }
    return bytes - connection->header_base > connection->server->config.max_header_bytes;
}

static enum status headers_too_large(const struct http_server *server, struct err *err) {
    return err_set(err, STATUS_HEADERS_TOO_LARGE, NULL, "the headers are larger than %zu bytes",
                   server->config.max_header_bytes);
}

void http_limits_check_partial(struct http_server *server) {
    int n = min_int(server->partial.n, PARTIAL_CHECKS);
    for (int i = 0; i < n; i++) {
        struct list_node *node = list_first(&server->partial);
        struct connection *connection = list_entry(node, struct connection, partial);
        list_move(&server->partial, node); /* the next round checks the others */
        if (!partial_is_over(connection)) continue;
        struct err err;
        headers_too_large(server, &err);
        http_connection_refuse(connection, err.status, NULL, err.message);
    }
}

/* What the headers say about the body. */
struct framing {
    int lengths, codings;
    uint64_t length;
    bool is_chunked; /* the coding is `chunked` and nothing else */
    bool has_bad_name, has_bad_length, expects_continue;
};

/* Digits only, and no more than an int64 holds. */
static bool parse_length(const char *text, uint64_t *out) {
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 18 || text[n]) return false;
    *out = strtoull(text, NULL, 10);
    return true;
}

static enum MHD_Result note_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                   const char *value) {
    struct framing *framing = cls;
    (void)kind;
    if (!value) value = "";
    if (!name[0] || strpbrk(name, " \t")) framing->has_bad_name = true;
    if (strcasecmp(name, "Content-Length") == 0) {
        framing->lengths++;
        if (!parse_length(value, &framing->length)) framing->has_bad_length = true;
    } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        framing->codings++;
        framing->is_chunked = strcasecmp(value, "chunked") == 0;
    } else if (strcasecmp(name, "Expect") == 0) {
        framing->expects_continue = strcasecmp(value, "100-continue") == 0;
    }
    return MHD_YES;
}

static enum status check_framing(const struct framing *framing, struct err *err) {
    const char *fault = NULL;
    if (framing->has_bad_name) fault = "a header's name holds white space";
    if (framing->lengths > 1) fault = "the request has more than one Content-Length";
    if (framing->has_bad_length) fault = "Content-Length is not a number";
    if (framing->codings > 0 && !framing->is_chunked) {
        fault = "the only Transfer-Encoding that is understood is chunked";
    }
    if (framing->codings > 1) fault = "the request has more than one Transfer-Encoding";
    if (framing->codings > 0 && framing->lengths > 0) {
        fault = "the request has both a Content-Length and a Transfer-Encoding";
    }
    return fault ? err_set(err, STATUS_INVALID_REQUEST, NULL, "%s", fault) : STATUS_OK;
}

enum status http_limits_check_headers(struct exchange *exchange, struct err *err) {
    const struct connection *connection = exchange->connection;
    const struct http_server *server = connection->server;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    assert(connection->exchange == exchange && connection->state == CONNECTION_BODY);
    if (connection->over_limit) {
        err_set(err, STATUS_UNAVAILABLE, NULL,
                "the server has too many connections; try again later");
        strcpy(err->code, "too_many_connections");
        return STATUS_UNAVAILABLE;
    }
    if (info && info->header_size > server->config.max_header_bytes) {
        return headers_too_large(server, err);
    }
    struct framing framing = {0};
    MHD_get_connection_values(connection->mhd, MHD_HEADER_KIND, note_header, &framing);
    if (check_framing(&framing, err) != STATUS_OK) return err->status;
    if (framing.length > server->config.max_body_bytes) {
        return err_set(err, STATUS_TOO_LARGE, NULL, "the body is larger than %zu bytes",
                       server->config.max_body_bytes);
    }
    exchange->is_chunked = framing.is_chunked;
    exchange->expects_continue =
        framing.expects_continue && (framing.is_chunked || framing.length > 0);
    return STATUS_OK;
}
