/* `penstock health`: asks a server over HTTP whether it is ready. It is the health check of
 * containers, so it needs no other program. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/commands/commands.h"

enum { ANSWER_BYTES = 4096, WAIT_S = 5 };

static const char request[] = "GET /health/ready HTTP/1.1\r\nHost: localhost\r\n"
                              "Connection: close\r\n\r\n";

/* A server that listens on all addresses is reached by the loopback address. */
static const char *reachable(const char *host) {
    if (!*host || strcmp(host, "0.0.0.0") == 0) return "127.0.0.1";
    return strcmp(host, "::") == 0 ? "::1" : host;
}

/* Returns a connected socket whose reads and writes end after WAIT_S, or -1 with errno. */
static int connect_to(const struct sockaddr *address, socklen_t length) {
    struct timeval wait = {.tv_sec = WAIT_S};
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (connect(fd, address, length) == 0) return fd;
    int error = errno == EINPROGRESS ? ETIMEDOUT : errno;
    close(fd);
    errno = error;
    return -1;
}

static int connect_path(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    return connect_to((struct sockaddr *)&address, sizeof address);
}

static int connect_port(const char *host, int port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(reachable(host), service, &hints, &found) != 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    int fd = -1;
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
        fd = connect_to(at->ai_addr, at->ai_addrlen);
    int error = errno;
    freeaddrinfo(found);
    errno = error;
    return fd;
}

/* Sends the request and reads the answer into text[ANSWER_BYTES], NUL-terminated. Returns false
 * with errno if no answer arrived. */
static bool ask(int fd, char *text) {
    size_t length = 0;
    ssize_t n = send(fd, request, sizeof request - 1, MSG_NOSIGNAL);
    if (n != (ssize_t)sizeof request - 1) return false;
    while (length < ANSWER_BYTES - 1 &&
           (n = recv(fd, text + length, ANSWER_BYTES - 1 - length, 0)) > 0)
        length += (size_t)n;
    if (n < 0 && errno == EAGAIN) errno = ETIMEDOUT;
    assert(length < ANSWER_BYTES);
    text[length] = 0;
    return n >= 0 || length > 0;
}

int command_health(struct options *options) {
    char answer[ANSWER_BYTES];
    const struct http_config *http = &options->http;
    int fd =
        http->socket_path ? connect_path(http->socket_path) : connect_port(http->host, http->port);
    if (fd < 0 || !ask(fd, answer)) {
        int error = errno;
        if (fd >= 0) close(fd);
        if (http->socket_path)
            print_failure("no server answers on %s: %s", http->socket_path, strerror(error));
        else
            print_failure("no server answers on %s port %d: %s", reachable(http->host), http->port,
                          strerror(error));
        return 1;
    }
    close(fd);
    if (strncmp(answer, "HTTP/1.1 200 ", 13) == 0) {
        printf("ready\n");
        return 0;
    }
    const char *body = strstr(answer, "\r\n\r\n");
    print_failure("the server is not ready: %s", body ? body + 4 : "its answer is not HTTP");
    return 1;
}
