/* server/http: seeing clients go.
 *
 * libmicrohttpd does not look at a connection that is suspended, which is where a stream spends its
 * life. So every connection is in a second, edge-triggered epoll set that asks for nothing but the
 * peer's end of it, and the loop watches that set. A client that closes only its sending half
 * counts as gone too: the two cannot be told apart, and none of the clients does that.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "server/http_internal.h"

enum { BATCH = 64 };

/* A request that MHD is still reading, or whose whole answer it writes, is MHD's to end. It may
 * have missed the end, which came in one piece with bytes that it took: shutting our half of that
 * direction makes it look again. */
static void peer_closed(struct connection *connection) {
    struct exchange *exchange = connection->exchange;
    connection->peer_closed = true;
    if (!connection->suspended) shutdown(connection->fd, SHUT_RD);
    if (!exchange || connection->state != CONNECTION_BUSY) return;
    if (exchange->answer == ANSWER_WHOLE) return;
    if (!connection->suspended) shutdown(connection->fd, SHUT_RDWR); /* a write may be blocked */
    http_exchange_lose(exchange);
}

/* MHD has the first word, so that what came before the end is still read. Then there is no turn
 * until all of a batch is noted: it could free a connection that stands further down. */
static void on_watch(uv_poll_t *poll, int status, int flags) {
    struct http_server *server = poll->data;
    struct epoll_event events[BATCH];
    (void)status;
    (void)flags;
    http_drive(server);
    if (uv_is_closing((uv_handle_t *)poll)) return; /* the turn was the server's last */
    int n = epoll_wait(server->watch_fd, events, BATCH, 0);
    for (int i = 0; i < n; i++) peer_closed(events[i].data.ptr);
    if (!link_alone(&server->ready)) http_drive(server);
}

enum status http_watch_open(struct http_server *server, struct err *err) {
    server->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->watch_fd < 0) {
        return err_set(err, STATUS_SYSTEM, NULL, "no epoll descriptor could be had: %s",
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
