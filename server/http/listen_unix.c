/* server/http: Unix sockets, which the server binds itself or inherits.
 *
 * A process that ends without closing its socket leaves a file that nobody listens on. Such a file
 * is replaced; a file that another process listens on is not. The server removes its own file when
 * the port is closed, unless a later process has replaced it.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/http/internal.h"

/* Is there a socket of this path that nobody listens on? */
static bool is_stale(const struct sockaddr_un *address) {
    struct stat file;
    if (lstat(address->sun_path, &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    bool refused = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                   errno == ECONNREFUSED;
    close(fd);
    return refused;
}

/* Returns 0 or an errno. */
static int bind_path(int fd, const struct sockaddr_un *address) {
    assert(fd >= 0);
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) == 0) return 0;
    if (errno != EADDRINUSE || !is_stale(address)) return errno;
    if (unlink(address->sun_path) != 0) return errno;
    return bind(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
}

static const char *path_cause(int error) {
    switch (error) {
    case EADDRINUSE:
        return "the file exists, and another program listens on it or it is not a socket; choose "
               "another path";
    case ENOENT:
        return "its folder does not exist; create it";
    case EACCES:
        return "permission denied; choose a folder that this user may write to";
    default:
        return strerror(error);
    }
}

/* Remembers the file, to recognise it when it is removed. */
static void remember(struct http_server *server, const char *path) {
    struct stat file;
    snprintf(server->socket_path, sizeof server->socket_path, "%s", path);
    if (stat(path, &file) != 0) return;
    server->socket_device = file.st_dev;
    server->socket_inode = file.st_ino;
    server->owns_socket_file = true;
}

enum status http_unix_bind(struct http_server *server, struct err *err) {
    const char *path = server->config.socket_path;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert(path && server->n_listeners == 0);
    if (!*path || strlen(path) >= sizeof address.sun_path) {
        return err_set(err, STATUS_USAGE, "uds", "the path of a Unix socket has 1 to %zu bytes",
                       sizeof address.sun_path - 1);
    }
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = fd < 0 ? errno : bind_path(fd, &address);
    if (error) {
        if (fd >= 0) close(fd);
        return err_set(err, STATUS_SYSTEM, "uds", "cannot listen on %s: %s", path,
                       path_cause(error));
    }
    http_listen_set_options(fd);
    remember(server, path);
    server->listeners[server->n_listeners++].fd = fd;
    return STATUS_OK;
}

void http_unix_remove(struct http_server *server) {
    struct stat file;
    if (!server->owns_socket_file) return;
    server->owns_socket_file = false;
    if (stat(server->socket_path, &file) == 0 && file.st_dev == server->socket_device &&
        file.st_ino == server->socket_inode) {
        unlink(server->socket_path);
    }
}

/* ---- inherited sockets ---------------------------------------------------------------------- */

static int option_of(int fd, int option) {
    int value = -1;
    socklen_t length = sizeof value;
    if (getsockopt(fd, SOL_SOCKET, option, &value, &length) != 0) return -1;
    return value;
}

/* Records the address of an inherited socket for the messages of the start. */
static void name_inherited(struct http_server *server, int fd) {
    struct sockaddr_un address = {0};
    socklen_t length = sizeof address;
    int domain = option_of(fd, SO_DOMAIN);
    if (domain != AF_UNIX) {
        if (!server->port) server->port = http_listen_port(fd);
    } else if (getsockname(fd, (struct sockaddr *)&address, &length) == 0) {
        snprintf(server->socket_path, sizeof server->socket_path, "%s", address.sun_path);
    }
}

enum status http_inherit(struct http_server *server, struct err *err) {
    const struct http_config *config = &server->config;
    assert(config->n_sockets <= HTTP_MAX_SOCKETS && server->n_listeners == 0);
    for (int i = 0; i < config->n_sockets; i++) {
        int fd = config->sockets[i], flags = fcntl(fd, F_GETFL);
        if (flags < 0 || option_of(fd, SO_TYPE) != SOCK_STREAM ||
            option_of(fd, SO_ACCEPTCONN) != 1) {
            return err_set(
                err, STATUS_USAGE, NULL,
                "descriptor %d, which was passed at the start, is not a listening stream "
                "socket; a socket unit needs ListenStream= and Accept=no",
                fd);
        }
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        http_listen_set_options(fd);
        name_inherited(server, fd);
        server->listeners[server->n_listeners++].fd = fd;
    }
    return STATUS_OK;
}
