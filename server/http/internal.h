/* server/http, inside: what its files share. Nothing here is for the application.
 *
 * DESIGN
 * - Threads: none of its own. The loop thread owns everything; there is no lock.
 * - A `connection` lives from accept until MHD reports it closed, an `exchange` (one request and
 *   its response, as RFC 9110 calls the pair) from its headers until both libmicrohttpd and the
 *   application have released it.
 * - Turns: http_drive alone has MHD run. Application callbacks run inside it; what they
 *   ask for (responses, flushes, an abort) is noted and done by the running turn, never by a nested
 *   one.
 * - libmicrohttpd parses and writes. Accepting, deadlines, limits, disconnects and faults in what
 *   clients send are handled here, because MHD stops listening at its own limits, counts only
 *   inactivity, does not watch a suspended connection, and answers faults with pages of its own.
 *
 *     accept -> FRESH -> HEADERS -> BODY -> BUSY -> IDLE -> (HEADERS ...)
 *                 \_________\________\-> CUT: refused by bytes written past MHD; what the client
 *                                             still sends is discarded
 *     any of them -> closed
 */
#ifndef PENSTOCK_SERVER_HTTP_INTERNAL_H
#define PENSTOCK_SERVER_HTTP_INTERNAL_H

#include <microhttpd.h>

#include "config/list.h"
#include "server/http/http.h"
#include "server/http/wire.h"

/* ---- deadlines ------------------------------------------------------------------------------ */

/* Deadlines of the same length expire in the order they were set, so a list keeps them sorted. */
struct timeout {
    struct list deadlines; /* the earliest first */
    uint64_t ms;           /* 0: never */
};

struct deadline {
    struct list_node node; /* in a timeout's deadlines, or in none */
    uint64_t at_ms;        /* in uv_now's time */
};

/* ---- objects -------------------------------------------------------------------------------- */

/* Connections above max_connections that are still read, so that they get the 503 as a response to
 * their request. Any further one is turned away when it is accepted. */
enum { HTTP_HEADROOM = 48 };

enum connection_state {
    CONNECTION_FRESH,   /* accepted; nothing has been read */
    CONNECTION_HEADERS, /* a request has begun */
    CONNECTION_BODY,    /* the headers are in */
    CONNECTION_BUSY,    /* the request is complete; its response is awaited or being sent */
    CONNECTION_IDLE,    /* answered; the next request may come */
    CONNECTION_CUT,     /* refused past MHD; input is discarded until the client closes */
};

struct connection {
    struct list_node node; /* in server->connections */
    struct http_server *server;
    struct MHD_Connection *mhd;
    int fd;
    enum connection_state state;
    bool over_limit;           /* above max_connections: it only gets a 503 */
    bool suspended;            /* MHD ignores it until it is resumed */
    bool peer_closed;          /* the client has closed its sending half, or both */
    struct deadline deadline;  /* of reading, closing, writing, keep_alive or linger */
    struct wire wire;          /* where in which request the bytes read so far end */
    struct err *fault;         /* of the byte after them, or NULL */
    uint64_t answered;         /* requests */
    uint64_t discarded;        /* bytes that a refused client sent */
    struct exchange *exchange; /* the current request, or NULL */
    char client[64];
};

enum response_kind { RESPONSE_NONE, RESPONSE_WHOLE, RESPONSE_STREAM };

struct exchange {
    struct http_request request; /* first: the application's pointer is ours */
    struct http_server *server;
    struct connection *connection; /* NULL once MHD is done with the request */
    bool seen;                     /* on_headers was called */
    bool released;                 /* the application is done, or never saw it */
    bool refused;                  /* answered in on_headers: the body is not kept */
    bool discards;                 /* the application does not read the body: it is not kept */
    bool gone;                     /* the client went away or was cut off */
    bool gone_notified;            /* on_gone was called, or need not be */
    bool is_chunked, expects_continue;
    enum response_kind kind;
    struct MHD_Response *mhd_response; /* created and not yet queued */
    int status;                        /* that was or will be sent */
    bool is_cut;                       /* the status was sent past MHD */
    uint64_t bytes;                    /* of the response body that were sent */
    uint64_t whole_bytes;              /* of a whole response's body */
    uint64_t read_by_ms;               /* when a complete answer must be read, in uv_now's time */
    struct buf body;                   /* of the request */
    struct buf refusal;                /* an early response as bytes, in case the body never ends */
    struct buf out;                    /* stream: bytes to send; */
    size_t sent;                       /* MHD has read so many of them */
    uint64_t turn;                     /* stream: the turn of the last write, */
    size_t turn_bytes, max_turn_bytes; /* its bytes, and the most in any turn */
    bool ended;                        /* stream: the application has written all */
    struct list_node ready;  /* in server->ready: to be notified or resumed in the next turn */
    struct deadline silence; /* in server->silence */
    char *text;              /* memory of method and target, */
    char *path;              /* and of a path that is not the target, or NULL */
};

#define MAX_LISTENERS 4

struct listener {
    uv_poll_t poll;
    int fd; /* -1 once closed */
};

struct http_server {
    uv_loop_t *loop;
    struct http_config config;
    struct MHD_Daemon *daemon;
    uv_poll_t mhd_poll, watch_poll;
    uv_timer_t timer;
    uv_idle_t idle;
    struct listener listeners[MAX_LISTENERS];
    int n_listeners;
    int port;
    int watch_fd;              /* epoll set of all connections, to see peers close */
    int reserve_fd;            /* closed for a moment when the process is out of descriptors */
    uint64_t accept_again_ms;  /* when accepting resumes after a failure; 0: it is not paused */
    struct connection *adding; /* passed to MHD, which has not announced it yet */
    struct connection **by_fd; /* [n_by_fd] the connection of a descriptor, or NULL */
    int n_by_fd;
    struct list connections;
    struct list ready; /* exchanges to be notified or resumed */
    struct timeout reading, keep_alive, linger, silence;
    struct timeout closing;       /* like reading and linger, once the port is closed */
    struct timeout writing;       /* until it is looked again whether an answer is late */
    uint64_t timer_at_ms;         /* when the timer fires; 0: it is off */
    uint64_t turns;               /* begun so far */
    bool driving;                 /* a turn is running */
    bool again;                   /* the running turn needs another round */
    bool announced;               /* every response asks for its connection to be closed */
    bool draining;                /* and idle connections are closed */
    void (*on_closed)(void *app); /* once, when draining has ended */
    int open_handles;
    struct http_stats stats;
};

/* ---- http/server.c -------------------------------------------------------------------------- */

/* Runs MHD until nothing is left to do now, then sets the timer. Called inside a turn, it only
 * requests another round. */
void http_drive(struct http_server *server);

/* ---- http/listen.c -------------------------------------------------------------------------- */

/* Binds a socket to every address of the configured host. Fails with a sentence. */
enum status http_listen_open(struct http_server *server, struct err *err);

/* Starts to listen and to accept. */
enum status http_listen_start(struct http_server *server, struct err *err);

/* Accepts all that wait, before the port is closed: a connection that was made and not accepted
 * would be reset. Outside of turns only. */
void http_listen_take(struct http_server *server);

/* Stops listening; the sockets are closed at once, their handles in the loop's next turns. */
void http_listen_close(struct http_server *server);

/* Resumes accepting if it is paused and the pause is over. */
void http_listen_retry(struct http_server *server, uint64_t now_ms);

/* ---- http/connection.c ---------------------------------------------------------------------- */

/* Passes an accepted socket to MHD, or refuses it if there are too many. Takes ownership of fd. */
void http_connection_add(struct http_server *server, int fd, const struct sockaddr *address,
                         socklen_t length);

/* MHD_NotifyConnectionCallback: a connection was opened or closed. */
void http_connection_notify(void *cls, struct MHD_Connection *mhd, void **context,
                            enum MHD_ConnectionNotificationCode code);

/* The connection of an MHD connection. */
struct connection *http_connection_of(struct MHD_Connection *mhd);

/* Writes `response` (a complete HTTP response) past MHD, which is reading, and discards what the
 * client still sends. */
void http_connection_cut(struct connection *connection, int status, const struct buf *response);

/* The same with the error document of `status`. */
void http_connection_refuse(struct connection *connection, enum status status, const char *code,
                            const char *message);

/* A request begins, unless the one before it still awaits its answer. */
void http_connection_begin(struct connection *connection);

/* Refuses the request that has a fault, once all requests before it are answered. */
void http_connection_refuse_fault(struct connection *connection);

/* Suspends the connection in MHD. False if the peer has closed, so that nothing would resume it.
 * Call it in MHD's access handler or reader only. */
bool http_connection_suspend(struct connection *connection);

/* Closes a connection between two requests. What the client has already sent is still answered. */
void http_connection_close_idle(struct connection *connection);

/* ---- http/receive.c ------------------------------------------------------------------------- */

/* Makes room for the connection of a descriptor. False: memory is short. */
bool http_receive_reserve(struct http_server *server, int fd);

/* From now on the connection's bytes are checked, and until it is removed. */
void http_receive_add(struct connection *connection);
void http_receive_remove(struct connection *connection);

/* MHD_run: reads, answers and writes what is due. */
void http_receive_run(struct http_server *server);

/* ---- http/request.c ------------------------------------------------------------------------- */

/* MHD's callbacks: the request line has arrived; headers, body or end have; the exchange is
 * over. */
void *http_request_line(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result http_request_access(void *cls, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version, const char *data,
                                    size_t *size, void **context);
void http_request_completed(void *cls, struct MHD_Connection *mhd, void **context,
                            enum MHD_RequestTerminationCode code);

/* Sets the request's id: the one that the client asked for, if there is one and it is printable. */
void http_request_name(struct http_request *request, const char *asked);

/* Notes that the client is gone; the application is notified in this turn or the next. */
void http_exchange_mark_gone(struct exchange *exchange);

/* Calls on_gone unless it was called or the application is done. */
void http_exchange_notify_gone(struct exchange *exchange);

/* Has the next turn notify or resume the exchange. */
void http_exchange_wake(struct exchange *exchange);

/* ---- http/response.c ------------------------------------------------------------------------ */

/* Passes the prepared response to MHD. Call it in the access handler only. */
enum MHD_Result http_response_queue(struct exchange *exchange);

/* The fields of the application that any answer to a request has. Returns how many. */
int http_response_fields(const struct http_server *server, struct http_request *request,
                         struct http_field out[HTTP_MAX_FIELDS]);

/* Appends a complete HTTP response as sent on the wire; it closes the connection. False: memory is
 * short, and `out` is empty. */
bool http_response_format(struct buf *out, int status, const char *content_type, const void *body,
                          size_t length, const struct http_field *fields, int n);

enum { HTTP_MAX_ERROR = 2048 };

/* Writes the error document `{"error":{...}}` and returns its length. `code` may be NULL; the texts
 * must need no escapes. */
size_t http_error_body(char out[HTTP_MAX_ERROR], enum status status, const char *code,
                       const char *message);

/* ---- http/stream.c -------------------------------------------------------------------------- */

/* The response through which MHD reads a stream, or NULL if out of memory. */
struct MHD_Response *http_stream_response(struct exchange *exchange);

/* Writes a comment, so that proxies do not drop a silent stream. */
void http_stream_keep_alive(struct exchange *exchange);

/* Resumes a slice of the exchanges that are ready. */
void http_stream_resume(struct http_server *server);

/* ---- http/watch.c --------------------------------------------------------------------------- */

enum status http_watch_open(struct http_server *server, struct err *err);
bool http_watch_add(struct connection *connection);
void http_watch_remove(struct connection *connection);

/* ---- http/limits.c -------------------------------------------------------------------------- */

void http_limits_init(struct http_server *server);

/* Sets a deadline to a timeout from now; a timeout of 0 sets none. */
void http_limits_set(struct http_server *server, struct deadline *deadline,
                     struct timeout *timeout);
void http_limits_clear(struct deadline *deadline);

/* From now until it is complete the request is read: sets the deadline for that. */
void http_limits_begin(struct connection *connection);

/* The port is closed: shortens the deadline of a request that is not complete. */
void http_limits_close(struct connection *connection);

/* The answer is complete, with so many bytes to be read: sets the deadline for that. */
void http_limits_answer(struct exchange *exchange, size_t bytes);

/* Handles every deadline that has passed. */
void http_limits_expire(struct http_server *server);

/* The earliest deadline in uv_now's time, or 0. */
uint64_t http_limits_next(const struct http_server *server);

/* Checks the request's size by its headers, and notes its framing in the exchange. Fails with the
 * status and sentence for the client. */
enum status http_limits_check_headers(struct exchange *exchange, struct err *err);

#endif
