/* server/http: detects disconnected clients.
 *
 * MHD does not watch a suspended connection, and a stream is suspended most of the time. So each
 * connection is also in an edge-triggered epoll set that reports only the peer's close, and the
 * loop watches that set. A client that closes only its sending half is treated as gone, because the
 * two cases cannot be distinguished, and no known client does that.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "server/http/internal.h"

enum { BATCH = 64 };

/* Handles a peer's close. If MHD is still reading the request or writing its whole response, MHD
 * handles the close. It may have missed a close that arrived together with data; shutting down the
 * reading half makes it check again. */
static void peer_closed(struct connection *connection) {
    struct exchange *exchange = connection->exchange;
    connection->peer_closed = true;
    if (!connection->suspended) shutdown(connection->fd, SHUT_RD);
    if (!exchange || connection->state != CONNECTION_BUSY) return;
    if (exchange->kind == RESPONSE_WHOLE) return;
    if (!connection->suspended) shutdown(connection->fd, SHUT_RDWR); /* a write may be blocked */
    http_exchange_mark_gone(exchange);
}

/* MHD runs first, to read data that arrived before the close. The whole batch is then recorded
 * before the next turn, because a turn could free a connection that is later in the batch. */
static void on_watch(uv_poll_t *poll, int status, int flags) {
    struct http_server *server = poll->data;
    struct epoll_event events[BATCH];
    (void)status;
    (void)flags;
    http_drive(server);
    if (uv_is_closing((uv_handle_t *)poll)) return; /* the turn freed the server */
    int n = epoll_wait(server->watch_fd, events, BATCH, 0);
    for (int i = 0; i < n; i++) peer_closed(events[i].data.ptr);
    if (server->ready.n > 0) http_drive(server);
}

enum status http_watch_open(struct http_server *server, struct err *err) {
    server->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->watch_fd < 0) {
        return err_set(err, STATUS_SYSTEM, NULL, "cannot create an epoll descriptor: %s",
                       strerror(errno));
    }
    int rc = uv_poll_init(server->loop, &server->watch_poll, server->watch_fd);
    if (rc == 0) {
        server->watch_poll.data = server;
        rc = uv_poll_start(&server->watch_poll, UV_READABLE, on_watch);
    }
    if (rc == 0) return STATUS_OK;
    return err_set(err, STATUS_SYSTEM, NULL, "the event loop cannot watch connections: %s",
                   uv_strerror(rc));
}

bool http_watch_add(struct connection *connection) {
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = connection};
    return epoll_ctl(connection->server->watch_fd, EPOLL_CTL_ADD, connection->fd, &event) == 0;
}

void http_watch_remove(struct connection *connection) {
    epoll_ctl(connection->server->watch_fd, EPOLL_CTL_DEL, connection->fd, NULL);
}
