/* server/http: the listening sockets.
 *
 * This file accepts connections instead of MHD, because MHD removes its socket from the event set
 * at a limit and may never add it again. Here each connection is accepted immediately, and refused
 * with a response if necessary. If the process has used up its descriptors, a spare one is closed
 * briefly so that the peer can be refused. If that fails too, accepting pauses for ACCEPT_PAUSE_MS
 * instead of spinning.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/internal.h"

enum {
    BACKLOG = 1024,
    ACCEPT_BATCH = 64,
    ACCEPT_PAUSE_MS = 100,
    SEND_BUFFER_BYTES = 64 << 10, /* bounds the kernel memory of a client that does not read */
    VANISHED_MS = 30000           /* a peer that acknowledges nothing for this time is gone */
};

/* ---- opening -------------------------------------------------------------------------------- */

static const char *bind_cause(int error) {
    switch (error) {
    case EADDRINUSE:
        return "the port is in use; stop the program that uses it or choose another port";
    case EACCES:
        return "permission denied; ports below 1024 need privileges, choose a higher one";
    case EADDRNOTAVAIL:
        return "this machine does not have this address; choose one that it has, or 0.0.0.0";
    default:
        return strerror(error);
    }
}

void http_listen_set_options(int fd) {
    assert(fd >= 0);
    int one = 1, idle_s = 60, interval_s = 10, count = 3, buffer = SEND_BUFFER_BYTES;
    unsigned vanished_ms = VANISHED_MS;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &vanished_ms, sizeof vanished_ms);
}

int http_listen_port(int fd) {
    assert(fd >= 0);
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0) return 0;
    if (address.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    if (address.ss_family != AF_INET) return 0;
    return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

/* Binds one address. Returns the socket, or -1 with errno. `::` also accepts IPv4. */
static int bind_address(const struct addrinfo *info, int port) {
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    http_listen_set_options(fd);
    struct sockaddr_storage address;
    assert(info->ai_addrlen <= sizeof address);
    memcpy(&address, info->ai_addr, info->ai_addrlen);
    if (info->ai_family == AF_INET6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address;
        int only = !IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
        in6->sin6_port = htons((uint16_t)port);
    } else {
        ((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)port);
    }
    if (bind(fd, (struct sockaddr *)&address, info->ai_addrlen) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* A name such as localhost may include addresses that this machine lacks, e.g. ::1 without IPv6. */
static bool may_skip(int error) {
    return error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

static enum status cannot_listen(const struct http_server *server, int error, struct err *err) {
    return err_set(err, STATUS_SYSTEM, "port", "cannot listen on %s port %d: %s",
                   server->config.host, server->port, bind_cause(error));
}

static enum status bind_all(struct http_server *server, const struct addrinfo *found,
                            struct err *err) {
    int error = 0;
    server->port = server->config.port;
    for (const struct addrinfo *info = found; info; info = info->ai_next) {
        if (server->n_listeners == HTTP_MAX_SOCKETS) break;
        int fd = bind_address(info, server->port);
        if (fd < 0) {
            error = errno;
            if (may_skip(error)) continue;
            break;
        }
        if (!server->port) server->port = http_listen_port(fd);
        server->listeners[server->n_listeners++].fd = fd;
        error = 0;
    }
    if (server->n_listeners && (!error || may_skip(error))) return STATUS_OK;
    return cannot_listen(server, error, err);
}

static enum status bind_host(struct http_server *server, struct err *err) {
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(server->config.host, NULL, &hints, &found);
    if (rc != 0) {
        return err_set(err, STATUS_SYSTEM, "host",
                       "cannot resolve the host \"%s\" to listen on (port %d): %s; give an address "
                       "of this machine such as 127.0.0.1, or 0.0.0.0 for all",
                       server->config.host, server->config.port, gai_strerror(rc));
    }
    enum status status = bind_all(server, found, err);
    freeaddrinfo(found);
    return status;
}

enum status http_listen_open(struct http_server *server, struct err *err) {
    const struct http_config *config = &server->config;
    enum status status = config->n_sockets > 0 ? http_inherit(server, err)
                         : config->socket_path ? http_unix_bind(server, err)
                                               : bind_host(server, err);
    if (status == STATUS_OK) server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return status;
}

enum status http_check_address(const struct http_config *config, struct err *err) {
    assert(config->n_sockets == 0); /* they are bound */
    struct http_server *probe = mem_calloc(1, sizeof *probe);
    probe->config = *config;
    probe->reserve_fd = -1;
    enum status status = http_listen_open(probe, err);
    for (int i = 0; i < probe->n_listeners; i++) close(probe->listeners[i].fd);
    http_unix_remove(probe);
    if (probe->reserve_fd >= 0) close(probe->reserve_fd);
    mem_free(probe);
    return status;
}

/* ---- accepting ------------------------------------------------------------------------------ */

static void on_acceptable(uv_poll_t *poll, int status, int events);

/* Stops polling: the socket stays readable, so polling would spin. */
static void pause_accepting(struct http_server *server) {
    server->accept_again_ms = uv_now(server->loop) + ACCEPT_PAUSE_MS;
    for (int i = 0; i < server->n_listeners; i++) {
        if (server->listeners[i].fd >= 0) uv_poll_stop(&server->listeners[i].poll);
    }
}

void http_listen_retry(struct http_server *server, uint64_t now_ms) {
    if (!server->accept_again_ms || server->accept_again_ms > now_ms) return;
    server->accept_again_ms = 0;
    for (int i = 0; i < server->n_listeners; i++) {
        struct listener *listener = &server->listeners[i];
        if (listener->fd >= 0) uv_poll_start(&listener->poll, UV_READABLE, on_acceptable);
    }
}

/* Refuses one peer with the spare descriptor. Returns false if even that is unavailable. */
static bool shed_one(struct http_server *server, int listen_fd) {
    if (server->reserve_fd >= 0) close(server->reserve_fd);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) close(fd);
    server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) server->stats.refused++;
    return fd >= 0 && server->reserve_fd >= 0;
}

/* Accepts one connection. Returns false if accepting should stop for now. */
static bool accept_one(struct http_server *server, int listen_fd) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int fd = accept4(listen_fd, (struct sockaddr *)&address, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        http_connection_add(server, fd, (struct sockaddr *)&address, length);
        return true;
    }
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if ((errno == EMFILE || errno == ENFILE) && shed_one(server, listen_fd)) return true;
    pause_accepting(server);
    return false;
}

void http_listen_take(struct http_server *server) {
    assert(!server->driving); /* a running MHD must not get a connection */
    for (int i = 0; i < server->n_listeners; i++) {
        int fd = server->listeners[i].fd;
        for (int j = 0; j < BACKLOG && accept_one(server, fd); j++) continue;
    }
}

static void on_acceptable(uv_poll_t *poll, int status, int events) {
    (void)events;
    struct listener *listener = list_entry(poll, struct listener, poll);
    struct http_server *server = poll->data;
    if (status < 0) {
        pause_accepting(server);
    } else {
        for (int i = 0; i < ACCEPT_BATCH && listener->fd >= 0; i++) {
            if (!accept_one(server, listener->fd)) break;
        }
    }
    http_drive(server);
}

enum status http_listen_start(struct http_server *server, struct err *err) {
    for (int i = 0; i < server->n_listeners; i++) {
        struct listener *listener = &server->listeners[i];
        if (listen(listener->fd, BACKLOG) != 0) return cannot_listen(server, errno, err);
        int rc = uv_poll_init(server->loop, &listener->poll, listener->fd);
        if (rc == 0) {
            listener->poll.data = server;
            rc = uv_poll_start(&listener->poll, UV_READABLE, on_acceptable);
        }
        if (rc != 0) {
            return err_set(err, STATUS_SYSTEM, NULL, "the event loop cannot watch port %d: %s",
                           server->port, uv_strerror(rc));
        }
    }
    return STATUS_OK;
}

void http_listen_close(struct http_server *server) {
    server->accept_again_ms = 0;
    for (int i = 0; i < server->n_listeners; i++) {
        struct listener *listener = &server->listeners[i];
        if (listener->fd < 0) continue;
        if (listener->poll.data) uv_poll_stop(&listener->poll);
        close(listener->fd);
        listener->fd = -1;
    }
    http_unix_remove(server);
}
