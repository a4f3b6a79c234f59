/* server/http: the server, and how the loop drives MHD.
 *
 * DESIGN
 * MHD runs in its external epoll mode: one descriptor represents all its connections, and MHD_run
 * does all work that is due. A turn (http_drive) resumes some of the ready responses, runs MHD, and
 * repeats while MHD has more work; a resumed response needs two rounds, one to be read and one to
 * be sent. After DRIVE_ROUNDS it returns to the loop, so that thousands of streams do not delay a
 * new request. The timer is set only while there are deadlines.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/internal.h"

enum {
    DRIVE_ROUNDS = 4,
    /* for MHD's records of the headers, its copy of the cookies, and the response's headers */
    POOL_EXTRA_BYTES = 32 << 10
};

/* ---- turns ---------------------------------------------------------------------------------- */

/* Returns the milliseconds until MHD has work, or -1. */
static long long mhd_timeout_ms(struct http_server *server) {
    MHD_UNSIGNED_LONG_LONG ms;
    if (MHD_get_timeout(server->daemon, &ms) != MHD_YES) return -1;
    return ms > 3600000 ? 3600000 : (long long)ms;
}

static void on_timer(uv_timer_t *timer) {
    struct http_server *server = timer->data;
    server->timer_at_ms = 0;
    http_limits_expire(server);
    http_drive(server);
}

/* Sets the timer for the earliest deadline. If that deadline moves later, the timer is not changed:
 * one extra wake-up is cheaper than setting it in every turn. */
static void arm_timer(struct http_server *server, long long mhd_ms) {
    uint64_t now = uv_now(server->loop), at = http_limits_next(server);
    if (mhd_ms >= 0 && (!at || now + (uint64_t)mhd_ms < at)) at = now + (uint64_t)mhd_ms;
    if (server->accept_again_ms && (!at || server->accept_again_ms < at)) {
        at = server->accept_again_ms;
    }
    if (!at) {
        uv_timer_stop(&server->timer);
        server->timer_at_ms = 0;
    } else if (!server->timer_at_ms || at < server->timer_at_ms) {
        server->timer_at_ms = at;
        uv_timer_start(&server->timer, on_timer, at > now ? at - now : 1, 0);
    }
}

static void on_idle(uv_idle_t *idle) {
    http_drive(idle->data);
}

void http_drive(struct http_server *server) {
    if (server->driving) {
        server->again = true;
        return;
    }
    server->driving = true;
    server->turns++;
    long long timeout_ms;
    bool more;
    int round = 0;
    do {
        server->again = false;
        http_stream_resume(server);
        http_receive_run(server);
        timeout_ms = mhd_timeout_ms(server);
        more = server->again || timeout_ms == 0 || server->ready.n > 0;
    } while (more && ++round < DRIVE_ROUNDS);
    server->driving = false;
    if (more)
        uv_idle_start(&server->idle, on_idle);
    else
        uv_idle_stop(&server->idle);
    arm_timer(server, more ? -1 : timeout_ms);
    if (server->on_closed && server->connections.n == 0) {
        void (*on_closed)(void *) = server->on_closed;
        server->on_closed = NULL;
        on_closed(server->config.app);
    }
}

static void on_mhd_ready(uv_poll_t *poll, int status, int events) {
    (void)status;
    (void)events;
    http_drive(poll->data);
}

/* ---- start ---------------------------------------------------------------------------------- */

/* MHD's timeout ends responses whose client reads nothing for that time. limits.c checks that
 * clients read fast enough. */
static enum status start_mhd(struct http_server *server, struct err *err) {
    const struct http_config *config = &server->config;
    int longest_ms = max_int(config->request_timeout_ms, config->keep_alive_ms);
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
        http_request_access, server, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)config->max_connections + HTTP_HEADROOM, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        config->max_header_bytes + POOL_EXTRA_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(longest_ms > 0 ? longest_ms / 1000 + 2 : 0), MHD_OPTION_NOTIFY_COMPLETED,
        http_request_completed, server, MHD_OPTION_NOTIFY_CONNECTION, http_connection_notify,
        server, MHD_OPTION_URI_LOG_CALLBACK, http_request_line, server, MHD_OPTION_END);
    if (server->daemon) return STATUS_OK;
    return err_set(err, STATUS_SYSTEM, NULL, "the HTTP server could not be started: %s",
                   strerror(errno));
}

static void server_free(struct http_server *server) {
    assert(server->connections.n == 0);
    mem_free(server->by_fd);
    mem_free(server);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct http_server *server = handle->data;
    if (--server->open_handles == 0) server_free(server);
}

static void close_handle(struct http_server *server, uv_handle_t *handle) {
    handle->data = server;
    server->open_handles++;
    uv_close(handle, on_handle_closed);
}

/* Opens the handles that run MHD. A handle that fails to open must not be closed, because libuv
 * does not know it. */
static enum status start_turning(struct http_server *server, struct err *err) {
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    uv_timer_init(server->loop, &server->timer);
    uv_idle_init(server->loop, &server->idle);
    server->timer.data = server->idle.data = server;
    int rc = uv_poll_init(server->loop, &server->mhd_poll, info->epoll_fd);
    if (rc == 0) {
        server->mhd_poll.data = server;
        rc = uv_poll_start(&server->mhd_poll, UV_READABLE, on_mhd_ready);
    }
    if (rc == 0) return STATUS_OK;
    return err_set(err, STATUS_SYSTEM, NULL, "the event loop cannot watch the HTTP server: %s",
                   uv_strerror(rc));
}

static struct http_server *server_new(uv_loop_t *loop, const struct http_config *config) {
    struct http_server *server = mem_calloc(1, sizeof *server);
    server->loop = loop;
    server->config = *config;
    server->watch_fd = server->reserve_fd = -1;
    list_init(&server->connections);
    list_init(&server->ready);
    http_limits_init(server);
    return server;
}

/* Closes all open parts, also after a failed start. A handle is open if its data is set. */
static void close_all(struct http_server *server) {
    server->open_handles = 1; /* the server must outlive this function */
    http_listen_close(server);
    uv_handle_t *handles[] = {(uv_handle_t *)&server->mhd_poll, (uv_handle_t *)&server->watch_poll,
                              (uv_handle_t *)&server->timer, (uv_handle_t *)&server->idle};
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) {
        if (handles[i]->data) close_handle(server, handles[i]);
    }
    for (int i = 0; i < server->n_listeners; i++) {
        uv_handle_t *handle = (uv_handle_t *)&server->listeners[i].poll;
        if (handle->data) close_handle(server, handle);
    }
    if (server->daemon) MHD_stop_daemon(server->daemon);
    if (server->watch_fd >= 0) close(server->watch_fd);
    if (server->reserve_fd >= 0) close(server->reserve_fd);
    if (--server->open_handles == 0) server_free(server);
}

enum status http_server_new(struct http_server **out, uv_loop_t *loop,
                            const struct http_config *config, struct err *err) {
    assert(config->host && config->on_headers && config->on_request && config->on_gone);
    assert(config->port >= 0 && config->port <= 65535 && config->max_connections > 0);
    assert(config->n_sockets >= 0 && config->n_sockets <= HTTP_MAX_SOCKETS);
    assert(config->max_header_bytes > 0 && config->max_stream_backlog > 0);
    assert(config->answer_timeout_ms == 0 || config->answer_rate > 0);
    *out = NULL;
    struct http_server *server = server_new(loop, config);
    enum status status = http_listen_open(server, err);
    if (status == STATUS_OK) status = start_mhd(server, err);
    if (status == STATUS_OK) status = start_turning(server, err);
    if (status == STATUS_OK) status = http_watch_open(server, err);
    if (status == STATUS_OK) status = http_listen_start(server, err);
    server->config.host = server->config.socket_path = NULL; /* the caller owns them */
    server->config.sockets = NULL;
    if (status == STATUS_OK)
        *out = server;
    else
        close_all(server);
    return status;
}

int http_server_port(const struct http_server *server) {
    return server->port;
}

const char *http_server_socket(const struct http_server *server) {
    return server->socket_path;
}

void http_stats(const struct http_server *server, struct http_stats *out) {
    *out = server->stats;
}

/* ---- stop ----------------------------------------------------------------------------------- */

void http_server_announce_drain(struct http_server *server) {
    server->announced = true;
}

void http_server_drain(struct http_server *server, void (*on_closed)(void *app)) {
    assert(!server->draining);
    server->announced = server->draining = true;
    if (!server->driving && server->config.n_sockets == 0) http_listen_take(server);
    http_listen_close(server);
    http_drive(server); /* handles input that has arrived: such a connection is not idle */
    server->on_closed = on_closed;
    list_each(node, &server->connections) {
        struct connection *connection = list_entry(node, struct connection, node);
        if (connection->state == CONNECTION_IDLE || connection->state == CONNECTION_FRESH) {
            http_connection_close_idle(connection);
        } else {
            http_limits_close(connection);
        }
    }
    http_drive(server);
}

void http_server_abort(struct http_server *server) {
    list_each(node, &server->connections) {
        struct connection *connection = list_entry(node, struct connection, node);
        shutdown(connection->fd, SHUT_RDWR);
        if (connection->exchange) http_exchange_mark_gone(connection->exchange);
    }
    http_drive(server);
}

void http_server_free(struct http_server *server) {
    if (!server) return;
    assert(!server->driving && server->connections.n == 0);
    close_all(server);
}
