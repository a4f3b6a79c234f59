/* server/http, internal: declarations that the files of this folder share. The application must not
 * use them.
 *
 * DESIGN
 * - Threads: this folder starts none. The loop thread owns everything; there are no locks.
 * - A `connection` lives from accept until MHD reports its end. An `exchange` (one request and its
 *   response, a term of RFC 9110) lives from its headers until both MHD and the application have
 *   released it.
 * - Turns: only http_drive runs MHD. Application callbacks run inside it; their requests
 *   (responses, flushes, an abort) are recorded and executed by the running turn, never by a
 *   nested one.
 * - MHD parses and writes. This folder handles accepting, deadlines, limits, disconnects and
 *   invalid input, because MHD stops listening at its limits, measures only inactivity, does not
 *   watch a suspended connection, and answers invalid input with HTML pages.
 *
 *     accept -> FRESH -> HEADERS -> BODY -> BUSY -> IDLE -> (HEADERS ...)
 *                 \_________\________\-> CUT: refused by bytes that bypass MHD; further input is
 *                                             discarded
 *     any of them -> closed
 */
#ifndef PENSTOCK_SERVER_HTTP_INTERNAL_H
#define PENSTOCK_SERVER_HTTP_INTERNAL_H

#include <microhttpd.h>

#include "config/list.h"
#include "config/pace.h"
#include "server/http/http.h"
#include "server/http/wire.h"

/* ---- deadlines ------------------------------------------------------------------------------ */

/* Deadlines of equal length expire in the order in which they were set, so each list is sorted. */
struct timeout {
    struct list deadlines; /* the earliest first */
    uint64_t ms;           /* 0: never */
};

struct deadline {
    struct list_node node; /* in a timeout's deadlines, or in no list */
    uint64_t at_ms;        /* on the clock of uv_now */
};

/* ---- objects -------------------------------------------------------------------------------- */

/* Connections above max_connections that are still read, so that their request gets a 503. Further
 * connections are refused when they are accepted. */
enum { HTTP_HEADROOM = 48 };

enum connection_state {
    CONNECTION_FRESH,   /* accepted; not yet read */
    CONNECTION_HEADERS, /* a request has begun */
    CONNECTION_BODY,    /* the headers are complete */
    CONNECTION_BUSY,    /* the request is complete; its response is pending or being sent */
    CONNECTION_IDLE,    /* answered; waits for the next request */
    CONNECTION_CUT,     /* refused, bypassing MHD; input is discarded until the client closes */
};

struct connection {
    struct list_node node; /* in server->connections */
    struct http_server *server;
    struct MHD_Connection *mhd;
    int fd;
    enum connection_state state;
    bool over_limit;           /* above max_connections: gets only a 503 */
    bool suspended;            /* MHD ignores it until it is resumed */
    bool peer_closed;          /* the client closed its sending half, or both */
    struct deadline deadline;  /* of reading, closing, writing, keep_alive or linger */
    struct wire wire;          /* parser state after the bytes read so far */
    struct err *fault;         /* error in the next byte, or NULL */
    uint64_t answered;         /* number of answered requests */
    uint64_t discarded;        /* bytes discarded from a refused client */
    struct exchange *exchange; /* the current request, or NULL */
    char client[64];
};

enum response_kind { RESPONSE_NONE, RESPONSE_WHOLE, RESPONSE_STREAM };

struct exchange {
    struct http_request request; /* must be first: the application's pointer refers to it */
    struct http_server *server;
    struct connection *connection; /* NULL after MHD has finished the request */
    bool seen;                     /* on_headers was called */
    bool released;                 /* the application released it or never saw it */
    bool refused;                  /* answered in on_headers: the body is not kept */
    bool discards;                 /* the application does not read the body: it is not kept */
    bool gone;                     /* the client disconnected or was cut off */
    bool gone_notified;            /* on_gone was called or is not needed */
    bool is_chunked, expects_continue;
    enum response_kind kind;
    struct MHD_Response *mhd_response; /* created, not yet queued */
    int status;                        /* sent or to be sent */
    bool is_cut;                       /* the status was sent bypassing MHD */
    uint64_t bytes;                    /* sent bytes of the response's body */
    uint64_t whole_bytes;              /* size of a whole response's body */
    uint64_t read_by_ms; /* deadline for reading a complete answer, on the clock of uv_now */
    struct buf body;     /* the request's body */
    struct buf refusal;  /* bytes of an early response, used if the body does not end */
    struct buf out;      /* stream: bytes to send; MHD has read */
    size_t sent;         /* the first `sent` bytes */
    uint64_t turn;       /* stream: the turn of the last write, */
    size_t turn_bytes, max_turn_bytes; /* its bytes, and the maximum of all turns */
    bool ended;                        /* stream: the application has ended it */
    struct list_node ready;            /* in server->ready: to notify or resume in the next turn */
    struct deadline silence;           /* in server->silence */
    const char *keep_alive;            /* of a stream: sent after silence; NULL: nothing */
    char *text;                        /* memory of method and target */
    char *path;                        /* memory of a path that differs from the target, or NULL */
};

struct listener {
    uv_poll_t poll;
    int fd; /* -1: closed */
};

struct http_server {
    uv_loop_t *loop;
    struct http_config config;
    struct MHD_Daemon *daemon;
    uv_poll_t mhd_poll, watch_poll;
    uv_timer_t timer;
    uv_idle_t idle;
    struct listener listeners[HTTP_MAX_SOCKETS];
    int n_listeners;
    int port;              /* 0: only Unix sockets */
    char socket_path[108]; /* of a Unix socket, or "" */
    bool owns_socket_file; /* this server made the file, and these identify it */
    dev_t socket_device;
    ino_t socket_inode;
    int watch_fd;              /* epoll set of all connections, to detect disconnects */
    int reserve_fd;            /* closed briefly if the process has used up its descriptors */
    uint64_t accept_again_ms;  /* when accepting resumes after a failure; 0: not paused */
    struct connection *adding; /* passed to MHD, not yet announced by it */
    struct connection **by_fd; /* [n_by_fd] connection per descriptor, or NULL */
    int n_by_fd;
    struct list connections;
    struct list ready; /* exchanges to notify or resume */
    struct timeout reading, keep_alive, linger, silence;
    struct timeout closing;       /* replaces reading and linger after the port is closed */
    struct timeout writing;       /* interval of the checks for late answers */
    uint64_t timer_at_ms;         /* when the timer fires; 0: off */
    uint64_t turns;               /* number of turns */
    bool driving;                 /* a turn is running */
    bool again;                   /* the running turn needs another round */
    bool announced;               /* responses ask their clients to close the connection */
    bool draining;                /* as `announced`; idle connections are closed */
    void (*on_closed)(void *app); /* called once, after draining */
    int open_handles;
    struct http_stats stats;
    struct pace pace; /* of connections that end */
};

/* ---- http/server.c -------------------------------------------------------------------------- */

/* Runs MHD until no work is due, then sets the timer. Inside a turn, it only requests another
 * round. */
void http_drive(struct http_server *server);

/* ---- http/listen.c -------------------------------------------------------------------------- */

/* Opens the configured sockets: those passed at the start, a Unix socket, or one for each address
 * of the host. */
enum status http_listen_open(struct http_server *server, struct err *err);

/* Starts to listen and accept. */
enum status http_listen_start(struct http_server *server, struct err *err);

/* Accepts all pending connections before the port is closed; otherwise they would be reset. Only
 * outside of turns. */
void http_listen_take(struct http_server *server);

/* Stops listening. Closes the sockets immediately and their handles in the loop's next turns. */
void http_listen_close(struct http_server *server);

/* Resumes accepting if a pause has ended. */
void http_listen_retry(struct http_server *server, uint64_t now_ms);

/* Sets options that accepted sockets inherit. On failure the kernel's defaults are acceptable; on a
 * Unix socket those of TCP fail. */
void http_listen_set_options(int fd);

/* Returns the port that a socket is bound to; 0 if it has none. */
int http_listen_port(int fd);

/* ---- http/listen_unix.c --------------------------------------------------------------------- */

/* Binds config.socket_path. Fails with STATUS_USAGE if the path is too long, else STATUS_SYSTEM. */
enum status http_unix_bind(struct http_server *server, struct err *err);

/* Removes the file that http_unix_bind made. */
void http_unix_remove(struct http_server *server);

/* Takes config.sockets. Fails with STATUS_USAGE if one is not a listening stream socket. */
enum status http_inherit(struct http_server *server, struct err *err);

/* ---- http/connection.c ---------------------------------------------------------------------- */

/* Passes an accepted socket to MHD, or refuses it if there are too many. Takes ownership of fd. */
void http_connection_add(struct http_server *server, int fd, const struct sockaddr *address,
                         socklen_t length);

/* MHD_NotifyConnectionCallback: a connection was opened or closed. */
void http_connection_notify(void *cls, struct MHD_Connection *mhd, void **context,
                            enum MHD_ConnectionNotificationCode code);

/* Returns the connection of an MHD connection. */
struct connection *http_connection_of(struct MHD_Connection *mhd);

/* Writes `response` (a complete HTTP response) while MHD reads, bypassing it. Discards further
 * input. */
void http_connection_cut(struct connection *connection, int status, const struct buf *response);

/* The same with the error document of `status`. */
void http_connection_refuse(struct connection *connection, enum status status, const char *code,
                            const char *message);

/* Begins a request, unless the previous one is not yet answered. */
void http_connection_begin(struct connection *connection);

/* Refuses the request that has a fault, after all earlier requests are answered. */
void http_connection_refuse_fault(struct connection *connection);

/* Suspends the connection in MHD. Returns false if the peer has closed, because nothing would
 * resume it. Only for MHD's access handler or reader. */
bool http_connection_suspend(struct connection *connection);

/* Closes a connection between two requests. Input that the client has already sent is still
 * answered. */
void http_connection_close_idle(struct connection *connection);

/* ---- http/receive.c ------------------------------------------------------------------------- */

/* Allocates the table entry of a descriptor. Returns false if memory is short. */
bool http_receive_reserve(struct http_server *server, int fd);

/* Begin and end the checks of a connection's bytes. */
void http_receive_add(struct connection *connection);
void http_receive_remove(struct connection *connection);

/* Calls MHD_run, which reads, answers and writes. */
void http_receive_run(struct http_server *server);

/* ---- http/request.c ------------------------------------------------------------------------- */

/* MHD's callbacks: the request line arrived; headers, body or end arrived; the exchange ended. */
void *http_request_line(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result http_request_access(void *cls, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version, const char *data,
                                    size_t *size, void **context);
void http_request_completed(void *cls, struct MHD_Connection *mhd, void **context,
                            enum MHD_RequestTerminationCode code);

/* Sets the request's id to `asked` if that is not NULL and printable, else to a random id. */
void http_request_name(struct http_request *request, const char *asked);

/* Records that the client is gone. The application is notified in this turn or the next. */
void http_exchange_mark_gone(struct exchange *exchange);

/* Calls on_gone unless it was called or the application has released the request. */
void http_exchange_notify_gone(struct exchange *exchange);

/* Makes the next turn notify or resume the exchange. */
void http_exchange_wake(struct exchange *exchange);

/* ---- http/response.c ------------------------------------------------------------------------ */

/* Passes the prepared response to MHD. Only for the access handler. */
enum MHD_Result http_response_queue(struct exchange *exchange);

/* Gets the application's fields for any answer to a request. Returns their number. */
int http_response_fields(const struct http_server *server, struct http_request *request,
                         struct http_field out[HTTP_MAX_FIELDS]);

/* Appends the bytes of a complete HTTP response that closes the connection. Returns false and
 * leaves `out` empty if memory is short. */
bool http_response_format(struct buf *out, int status, const char *content_type, const void *body,
                          size_t length, const struct http_field *fields, int n);

enum { HTTP_MAX_ERROR = 2048 };

/* Writes the error document `{"error":{...}}` and returns its length. `code` may be NULL. The texts
 * must not need escapes. */
size_t http_error_body(char out[HTTP_MAX_ERROR], enum status status, const char *code,
                       const char *message);

/* ---- http/stream.c -------------------------------------------------------------------------- */

/* Makes a response that reads from the stream. Returns NULL if memory is short. */
struct MHD_Response *http_stream_response(struct exchange *exchange);

/* Writes a comment, so that proxies keep a silent stream open. */
void http_stream_keep_alive(struct exchange *exchange);

/* Resumes some of the ready exchanges. */
void http_stream_resume(struct http_server *server);

/* ---- http/watch.c --------------------------------------------------------------------------- */

enum status http_watch_open(struct http_server *server, struct err *err);
bool http_watch_add(struct connection *connection);
void http_watch_remove(struct connection *connection);

/* ---- http/limits.c -------------------------------------------------------------------------- */

void http_limits_init(struct http_server *server);

/* Sets a deadline at a timeout from now; a timeout of 0 sets none. */
void http_limits_set(struct http_server *server, struct deadline *deadline,
                     struct timeout *timeout);
void http_limits_clear(struct deadline *deadline);

/* Sets the deadline for the request that begins to arrive. */
void http_limits_begin(struct connection *connection);

/* Shortens the deadline of an incomplete request after the port is closed. */
void http_limits_close(struct connection *connection);

/* Sets the deadline for reading a complete answer of `bytes`. */
void http_limits_answer(struct exchange *exchange, size_t bytes);

/* Handles every deadline that has passed. */
void http_limits_expire(struct http_server *server);

/* Returns the earliest deadline on the clock of uv_now, or 0. */
uint64_t http_limits_next(const struct http_server *server);

/* Checks the request's size from its headers, and records its framing in the exchange. Fails with
 * the status and message for the client. */
enum status http_limits_check_headers(struct exchange *exchange, struct err *err);

#endif
