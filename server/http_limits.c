/* server/http: what a client may send, and by when.
 *
 * Deadlines are hard: they count from the start of what they bound and not from the last byte, so
 * that a client that sends a byte a second ends like one that sends none. Headers and framing are
 * judged before libmicrohttpd's reading of them is trusted: two lengths, a length beside a transfer
 * coding, or a coding it does not know are where proxies and servers come to disagree about where a
 * request ends.
 *
 * What libmicrohttpd's own parser refuses (a line without a colon, a length that is no number, a
 * request line or records of headers beyond its pool) never gets here: it answers with the right
 * status and a small page of its own, and closes. Version 0.9.75 sends the head of that page twice
 * when the length is at fault.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "server/http_internal.h"
#include "server/http_kernel.h"

enum {
    LINGER_MS = 3000,  /* for a refused client to read why */
    PARTIAL_CHECKS = 4 /* connections with incomplete headers looked at in one round */
};

/* ---- deadlines ------------------------------------------------------------------------------ */

static void span_init(struct span *span, int ms) {
    link_init(&span->items);
    span->ms = ms > 0 ? (uint64_t)ms : 0;
}

void http_limits_init(struct http_server *server) {
    span_init(&server->reading, server->config.request_timeout_ms);
    span_init(&server->keep_alive, server->config.keep_alive_ms);
    span_init(&server->silence, server->config.silence_ms);
    span_init(&server->linger, LINGER_MS);
}

void http_limits_set(struct http_server *server, struct due *due, struct span *span) {
    link_remove(&due->link);
    if (!span->ms) return;
    due->at_ms = uv_now(server->loop) + span->ms;
    link_append(&span->items, &due->link);
}

void http_limits_clear(struct due *due) {
    link_remove(&due->link);
}

static struct due *first_of(const struct span *span) {
    return link_alone(&span->items) ? NULL : link_entry(span->items.next, struct due, link);
}

/* Takes the first deadline of a span that has passed, or returns NULL. */
static struct due *take_expired(struct span *span, uint64_t now) {
    struct due *due = first_of(span);
    if (!due || due->at_ms > now) return NULL;
    link_remove(&due->link);
    return due;
}

uint64_t http_limits_next(const struct http_server *server) {
    const struct span *spans[] = {&server->reading, &server->keep_alive, &server->silence,
                                  &server->linger};
    uint64_t at = 0;
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        const struct due *due = first_of(spans[i]);
        if (due && (!at || due->at_ms < at)) at = due->at_ms;
    }
    return at;
}

/* Headers or body were not whole in time. A client that has not begun to ask is not owed an
 * answer. */
static void reading_expired(struct connection *connection) {
    if (connection->state == CONNECTION_FRESH && http_kernel_bytes_read(connection->fd) == 0) {
        shutdown(connection->fd, SHUT_RDWR);
        return;
    }
    connection->server->stats.timeouts++;
    http_connection_refuse(connection, STATUS_TIMEOUT, "request_timeout",
                           "the request was not whole in time");
}

void http_limits_expire(struct http_server *server) {
    uint64_t now = uv_now(server->loop);
    struct due *due;
    http_listen_retry(server, now);
    while ((due = take_expired(&server->reading, now))) {
        reading_expired(link_entry(due, struct connection, due));
    }
    while ((due = take_expired(&server->keep_alive, now))) {
        http_connection_close_idle(link_entry(due, struct connection, due));
    }
    while ((due = take_expired(&server->linger, now))) {
        shutdown(link_entry(due, struct connection, due)->fd, SHUT_RDWR);
    }
    while ((due = take_expired(&server->silence, now))) {
        http_stream_keep_alive(link_entry(due, struct exchange, silence));
    }
}

/* ---- headers -------------------------------------------------------------------------------- */

/* Is what MHD took of these headers already more than they may be? On a connection that was used
 * before, what MHD had taken is only known from the first look on; so the check errs in the
 * client's favour, and MHD's own limit stands behind it. */
static bool partial_is_over(struct connection *connection) {
    uint64_t taken = http_kernel_bytes_read(connection->fd);
    if (!connection->has_base) {
        connection->has_base = true;
        connection->header_base = taken;
    }
    return taken - connection->header_base > connection->server->config.max_header_bytes;
}

static enum status headers_too_large(const struct http_server *server, struct err *err) {
    return err_set(err, STATUS_HEADERS_TOO_LARGE, NULL, "the headers are larger than %zu bytes",
                   server->config.max_header_bytes);
}

void http_limits_check_partial(struct http_server *server) {
    const struct link *last = server->partial.prev;
    bool is_last = link_alone(&server->partial);
    for (int i = 0; i < PARTIAL_CHECKS && !is_last; i++) {
        struct link *node = server->partial.next;
        struct connection *connection = link_entry(node, struct connection, partial);
        is_last = node == last;
        link_append(&server->partial, node); /* so that every one has its turn */
        if (!partial_is_over(connection)) continue;
        struct err err;
        headers_too_large(server, &err);
        http_connection_refuse(connection, err.status, NULL, err.message);
    }
}

/* What the headers say of the body. */
struct framing {
    int lengths, codings;
    uint64_t length;
    bool is_chunked; /* the coding is `chunked` and nothing else */
    bool has_bad_name, has_bad_length, expects_continue;
};

/* Digits and nothing else, not too many of them. */
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

static enum status check_room(const struct connection *connection, struct err *err) {
    if (!connection->over) return STATUS_OK;
    err_set(err, STATUS_UNAVAILABLE, NULL, "the server has too many connections; try again later");
    strcpy(err->code, "too_many_connections");
    return STATUS_UNAVAILABLE;
}

enum status http_limits_check_headers(struct exchange *exchange, struct err *err) {
    const struct connection *connection = exchange->connection;
    const struct http_server *server = connection->server;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (check_room(connection, err) != STATUS_OK) return err->status;
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
