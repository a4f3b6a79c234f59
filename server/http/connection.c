/* server/http: one connection, from accept to close.
 *
 * DESIGN
 * libmicrohttpd (MHD) accepts a response only in certain states. So a refusal while it still reads
 * a request (headers or body wrong, late or too large) is written directly to the socket. This is
 * safe because MHD does not send while it reads. Then this side is shut down, and further bytes
 * from the client are discarded, up to a limit and for LINGER_MS. Closing a socket with unread
 * bytes would reset it, and the client would not see the refusal.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/internal.h"

struct connection *http_connection_of(struct MHD_Connection *mhd) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* Writes the peer's address as text. An IPv4 peer of an IPv6 socket is written as IPv4, and a peer
 * of a Unix socket as "unix". */
static void name_peer(char *out, size_t size, const struct sockaddr *address) {
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
    const void *bytes = &((const struct sockaddr_in *)address)->sin_addr;
    int family = address->sa_family;
    if (family == AF_INET6) bytes = &in6->sin6_addr;
    if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        bytes = &in6->sin6_addr.s6_addr[12];
        family = AF_INET;
    }
    if (family == AF_UNIX) {
        snprintf(out, size, "unix");
        return;
    }
    if (!inet_ntop(family, bytes, out, (socklen_t)size)) snprintf(out, size, "unknown");
}

/* Sends as much as the socket accepts immediately; does not wait for a refused peer. */
static void send_now(int fd, const struct buf *bytes) {
    ssize_t sent = send(fd, bytes->data, bytes->length, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

/* Asks the application for the body of an error. Returns its length, or 0. */
static size_t own_body(const struct http_server *server, const struct http_request *request,
                       char body[HTTP_MAX_ERROR], enum status status, const char *code,
                       const char *message) {
    const struct http_config *config = &server->config;
    struct err err;
    if (!request || !config->error_body) return 0;
    err_set(&err, status, NULL, "%s", message);
    if (code) snprintf(err.code, sizeof err.code, "%s", code);
    size_t length = config->error_body(config->app, request, &err, body, HTTP_MAX_ERROR);
    assert(length <= HTTP_MAX_ERROR);
    return length;
}

/* `request` may be NULL, before there is one. If memory is short, `out` stays empty. */
static void format_refusal(const struct http_server *server, struct http_request *request,
                           struct buf *out, enum status status, const char *code,
                           const char *message) {
    char body[HTTP_MAX_ERROR], seconds[12];
    struct http_field fields[HTTP_MAX_FIELDS + 1];
    int n = request ? http_response_fields(server, request, fields) : 0;
    snprintf(seconds, sizeof seconds, "%d", pace_seconds(&server->pace, now_ns(), 1));
    if (status == STATUS_UNAVAILABLE) fields[n++] = (struct http_field){"Retry-After", seconds};
    size_t length = own_body(server, request, body, status, code, message);
    if (length == 0) length = http_error_body(body, status, code, message);
    http_response_format(out, status_http(status), "application/json", body, length, fields, n);
}

/* Answers a connection far above the limit with a 503, without allocating memory for it and before
 * reading its request. */
static void turn_away(struct http_server *server, int fd) {
    assert(fd >= 0);
    struct buf response = {0};
    char unread[16384];
    format_refusal(server, NULL, &response, STATUS_UNAVAILABLE, "too_many_connections",
                   "the server has too many connections; try again later");
    /* unread bytes would reset the connection */
    ssize_t dropped = recv(fd, unread, sizeof unread, MSG_DONTWAIT);
    (void)dropped;
    send_now(fd, &response);
    shutdown(fd, SHUT_WR);
    close(fd);
    buf_free(&response);
    server->stats.refused++;
}

/* Returns NULL if memory is short. */
static struct connection *connection_new(struct http_server *server, int fd,
                                         const struct sockaddr *address) {
    struct connection *connection = mem_try_calloc(1, sizeof *connection);
    if (!connection) return NULL;
    connection->server = server;
    connection->fd = fd;
    connection->over_limit = server->stats.connections >= server->config.max_connections;
    connection->wire.max_head_bytes = server->config.max_header_bytes;
    name_peer(connection->client, sizeof connection->client, address);
    return connection;
}

void http_connection_add(struct http_server *server, int fd, const struct sockaddr *address,
                         socklen_t length) {
    assert(fd >= 0);
    if (server->stats.connections >= server->config.max_connections + HTTP_HEADROOM) {
        turn_away(server, fd);
        return;
    }
    struct connection *connection = connection_new(server, fd, address);
    if (!connection || !http_receive_reserve(server, fd)) {
        mem_free(connection);
        close(fd);
        server->stats.refused++;
        return;
    }
    if (connection->over_limit)
        server->stats.refused++;
    else
        server->stats.accepted++;
    server->adding = connection;
    MHD_add_connection(server->daemon, fd, address, length); /* closes fd on failure */
    if (server->adding) mem_free(server->adding);            /* it failed before the notification */
    server->adding = NULL;
}

static void started(struct connection *connection, struct MHD_Connection *mhd) {
    struct http_server *server = connection->server;
    assert(connection->state == CONNECTION_FRESH && !connection->mhd);
    connection->mhd = mhd;
    http_receive_add(connection);
    list_append(&server->connections, &connection->node);
    if (server->stats.connections++ == 0) pace_begin(&server->pace, now_ns());
    http_limits_set(server, &connection->deadline,
                    connection->over_limit ? &server->linger : &server->reading);
    if (!http_watch_add(connection)) shutdown(connection->fd, SHUT_RDWR);
}

static void closed(struct connection *connection) {
    struct http_server *server = connection->server;
    assert(!connection->exchange && !connection->suspended);
    http_receive_remove(connection);
    http_watch_remove(connection);
    http_limits_clear(&connection->deadline);
    list_remove(&server->connections, &connection->node);
    server->stats.connections--;
    pace_note(&server->pace, now_ns());
    assert(server->stats.connections == server->connections.n);
    mem_free(connection->fault);
    mem_free(connection);
}

void http_connection_notify(void *cls, struct MHD_Connection *mhd, void **context,
                            enum MHD_ConnectionNotificationCode code) {
    struct http_server *server = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        assert(server->adding);
        *context = server->adding;
        server->adding = NULL;
        started(*context, mhd);
    } else {
        closed(*context);
    }
}

/* Makes an exchange from the known parts of a request that MHD has not seen. */
static struct exchange unseen_exchange(const struct connection *connection) {
    const struct wire *wire = &connection->wire;
    struct exchange unseen = {.server = connection->server,
                              .request = {.method = wire->method_length ? wire->method : "-",
                                          .target = wire->target_length ? wire->target : "-",
                                          .body = "",
                                          .received_ns = now_ns()}};
    unseen.request.path = unseen.request.target;
    memcpy(unseen.request.client, connection->client, sizeof connection->client);
    http_request_name(&unseen.request, NULL);
    return unseen;
}

void http_connection_begin(struct connection *connection) {
    if (connection->state != CONNECTION_FRESH && connection->state != CONNECTION_IDLE) return;
    connection->state = CONNECTION_HEADERS;
    http_limits_begin(connection);
}

void http_connection_refuse_fault(struct connection *connection) {
    const struct err *fault = connection->fault;
    assert(fault && connection->state != CONNECTION_CUT);
    if (connection->answered != connection->wire.messages) return;
    http_connection_begin(connection);
    http_connection_refuse(connection, fault->status, NULL, fault->message);
}

void http_connection_cut(struct connection *connection, int status, const struct buf *response) {
    struct http_server *server = connection->server;
    assert(!connection->suspended && connection->state < CONNECTION_BUSY);
    send_now(connection->fd, response);
    shutdown(connection->fd, SHUT_WR);
    connection->state = CONNECTION_CUT;
    http_limits_set(server, &connection->deadline,
                    server->draining ? &server->closing : &server->linger);
    if (connection->exchange) {
        connection->exchange->is_cut = true;
        connection->exchange->status = status;
        http_exchange_mark_gone(connection->exchange);
    }
}

void http_connection_refuse(struct connection *connection, enum status status, const char *code,
                            const char *message) {
    const struct http_config *config = &connection->server->config;
    struct buf response = {0};
    struct exchange unseen = unseen_exchange(connection);
    bool is_seen = connection->exchange != NULL;
    struct http_request *request = is_seen ? &connection->exchange->request : &unseen.request;
    format_refusal(connection->server, request, &response, status, code, message);
    http_connection_cut(connection, status_http(status), &response);
    if (!is_seen && config->on_done) {
        config->on_done(config->app, request, status_http(status), response.length);
    }
    buf_free(&response);
}

bool http_connection_suspend(struct connection *connection) {
    assert(!connection->suspended && connection->exchange);
    if (connection->peer_closed) return false;
    MHD_suspend_connection(connection->mhd);
    connection->suspended = true;
    return true;
}

void http_connection_close_idle(struct connection *connection) {
    http_limits_clear(&connection->deadline);
    shutdown(connection->fd, SHUT_RD);
}
