/* server/http: the bytes that libmicrohttpd reads.
 *
 * DESIGN
 * MHD calls recv; except for TLS, it has no hook between the socket and its parser. This file
 * defines the program's recv, which the linker binds in all libraries. While a turn runs on this
 * thread, wire.c checks a connection's bytes first, and MHD gets only valid ones. Every other
 * caller of recv gets the kernel's function.
 *
 * So MHD never finds an error, and its error responses are never sent. They are HTML pages, and
 * version 0.9.75 sends the head of one twice if it refuses a Content-Length, because
 * parse_connection_headers continues after its answer. This folder answers errors itself:
 * immediately if the error is in the current request, otherwise after the answers to the earlier
 * requests. Bytes after an error are discarded. So are bytes after the last request of a
 * connection, because MHD reads some Connection headers differently (it misses the close in
 * "c,close") and must not get unchecked bytes.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "server/http/internal.h"

/* The server whose turn runs on this thread. */
static _Thread_local struct http_server *turning;

ssize_t recv(int fd, void *out, size_t size, int flags);

static ssize_t receive(int fd, void *out, size_t size, int flags) {
    return recvfrom(fd, out, size, flags, NULL, NULL);
}

/* Reads and discards further input of a refused client. Closes the connection if the client sends
 * more than the maximum size of a body. */
static ssize_t discard_all(struct connection *connection) {
    char unread[16384];
    for (;;) {
        ssize_t n = receive(connection->fd, unread, sizeof unread, MSG_DONTWAIT);
        if (n <= 0) return n;
        connection->discarded += (size_t)n;
        if (connection->discarded > connection->server->config.max_body_bytes) return 0;
    }
}

static ssize_t read_checked(struct connection *connection, char *out, size_t size, int flags) {
    struct wire *wire = &connection->wire;
    bool is_refused = connection->fault || connection->state == CONNECTION_CUT;
    if (is_refused || wire->phase == WIRE_IGNORED) return discard_all(connection);
    ssize_t n = receive(connection->fd, out, size, flags);
    if (n <= 0) return n;
    struct err fault;
    size_t whole;
    size_t right = wire_check(wire, out, (size_t)n, &whole, &fault);
    if (wire->phase == WIRE_IGNORED) return (ssize_t)whole;
    if (whole < right) http_connection_begin(connection);
    if (right == (size_t)n) return n;
    connection->fault = mem_try_alloc(sizeof *connection->fault);
    if (!connection->fault) { /* the error cannot be answered; reading stops */
        shutdown(connection->fd, SHUT_RDWR);
        return 0;
    }
    *connection->fault = fault;
    http_connection_refuse_fault(connection);
    /* Complete requests before the invalid byte are passed on. */
    return whole > 0 ? (ssize_t)whole : discard_all(connection);
}

ssize_t recv(int fd, void *out, size_t size, int flags) {
    if (!turning || fd < 0 || fd >= turning->n_by_fd || !turning->by_fd[fd]) {
        return receive(fd, out, size, flags);
    }
    return read_checked(turning->by_fd[fd], out, size, flags);
}

bool http_receive_reserve(struct http_server *server, int fd) {
    assert(fd >= 0);
    if (fd < server->n_by_fd) return true;
    int n = max_int(fd + 1, 2 * server->n_by_fd);
    struct connection **by_fd = mem_try_realloc(server->by_fd, (size_t)n * sizeof *by_fd);
    if (!by_fd) return false;
    server->by_fd = by_fd;
    while (server->n_by_fd < n) server->by_fd[server->n_by_fd++] = NULL;
    return true;
}

void http_receive_add(struct connection *connection) {
    struct http_server *server = connection->server;
    int fd = connection->fd;
    assert(fd < server->n_by_fd && !server->by_fd[fd]);
    server->by_fd[fd] = connection;
}

void http_receive_remove(struct connection *connection) {
    struct http_server *server = connection->server;
    assert(server->by_fd[connection->fd] == connection);
    server->by_fd[connection->fd] = NULL;
}

void http_receive_run(struct http_server *server) {
    assert(!turning);
    turning = server;
    MHD_run(server->daemon);
    turning = NULL;
}
