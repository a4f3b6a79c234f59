/* server/http, inside: what its files share. Nothing here is for the application.
 *
 * DESIGN
 * - Threads: none of its own. The loop thread owns everything; there is no lock.
 * - A `connection` lives from accept to MHD's last word on it, an `exchange` (one request and its
 * answer) from its headers until both libmicrohttpd and the application have let go of it.
 * - Turning: http_drive is the only caller of MHD_run. Application callbacks run inside it; what
 * they ask for (answers, flushes, an abort) is noted and done by the turn that runs, never by a
 * nested one.
 * - libmicrohttpd reads and writes; accepting, deadlines, limits and disconnects are done here,
 * beside it: it stops listening at its own limits, counts only inactivity, and does not look at a
 * connection that waits.
 *
 *       accept -> FRESH -> HEADERS -> BODY -> BUSY -> IDLE -> (HEADERS ...)      closed from any of
 * them
 *                    \________\________\-> CUT: answered past MHD with a refusal, what still comes
 * is swallowed
 */
#ifndef PENSTOCK_SERVER_HTTP_INTERNAL_H
#define PENSTOCK_SERVER_HTTP_INTERNAL_H

#include <microhttpd.h>

#include "server/http.h"

/* ---- intrusive lists ------------------------------------------------------------------------ */

/* A node of a circular list, or its head. A node that is in no list points to itself. */
struct link {
    struct link *prev, *next;
};

#define link_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

static inline void link_init(struct link *node) {
    node->prev = node->next = node;
}

static inline bool link_alone(const struct link *node) {
    return node->next == node;
}

static inline void link_remove(struct link *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    link_init(node);
}

/* Moves a node, from wherever it is, to the end of a list. */
static inline void link_append(struct link *list, struct link *node) {
    link_remove(node);
    node->prev = list->prev;
    node->next = list;
    list->prev->next = node;
    list->prev = node;
}

/* ---- deadlines ------------------------------------------------------------------------------ */

/* Deadlines of one length are reached in the order they were set, so a list keeps them sorted. */
struct span {
    struct link items; /* of struct due, the earliest first */
    uint64_t ms;       /* 0: never */
};

struct due {
    struct link link;
    uint64_t at_ms; /* in uv_now's time */
};

/* ---- objects -------------------------------------------------------------------------------- */

/* Connections above max_connections that still are told so with a whole answer; those above that
 * are turned away. */
enum { HTTP_HEADROOM = 48 };

enum connection_state {
    CONNECTION_FRESH,   /* accepted; no request line yet */
    CONNECTION_HEADERS, /* the request line is in */
    CONNECTION_BODY,    /* the headers are in */
    CONNECTION_BUSY,    /* the request is whole; it waits for its answer or the answer is leaving */
    CONNECTION_IDLE,    /* answered; the next request may come */
    CONNECTION_CUT /* refused by bytes written past MHD; what still comes is swallowed until the
                      client closes */
};

struct connection {
    struct link link; /* in server->connections */
    struct http_server *server;
    struct MHD_Connection *mhd;
    int fd;
    enum connection_state state;
    bool over;                 /* above max_connections: it is only told so */
    bool suspended;            /* MHD leaves it alone until it is resumed */
    bool peer_closed;          /* the client has closed its sending half, or all */
    struct due due;            /* in one of the server's spans, or in none */
    struct link partial;       /* in server->partial while its headers are incomplete */
    bool has_base;             /* header_base is known */
    uint64_t header_base;      /* bytes MHD had taken before the headers that are being read */
    uint64_t swallowed;        /* body bytes thrown away */
    struct exchange *exchange; /* the request under way, or NULL */
    char client[64];
};

enum answer { ANSWER_NONE, ANSWER_WHOLE, ANSWER_STREAM };

struct exchange {
    struct http_request request; /* first: the application's pointer is ours */
    struct http_server *server;
    struct connection *connection; /* NULL once MHD is done with the request */
    bool seen;                     /* on_headers was called */
    bool released;                 /* the application is done, or never saw it */
    bool refused;                  /* answered in on_headers: the body is not kept */
    bool gone;                     /* the client went away or was cut off */
    bool gone_told;                /* on_gone was called, or need not be */
    bool is_chunked, expects_continue;
    enum answer answer;
    struct MHD_Response *response; /* made and not yet queued */
    int status;                    /* that was or will be sent */
    bool is_cut;                   /* the status went out past MHD */
    uint64_t bytes;                /* of the answer's body that were sent */
    uint64_t whole_bytes;          /* of a whole answer's body */
    struct buf body;               /* of the request */
    struct buf refusal;            /* an early answer as bytes, for a body that does not end */
    struct buf out;                /* stream: bytes to be sent ... */
    size_t sent;                   /* ... of which MHD has so many */
    uint64_t turn;                 /* stream: the turn of the last write, ... */
    size_t turn_bytes, most_bytes; /* ... what it brought, and the most that any turn did */
    bool ended;                    /* stream: no more will be written */
    struct link ready;             /* in server->ready: to be told or resumed in the next turn */
    struct due silence;            /* in server->silence */
    char *text;                    /* memory of method and path */
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
    int watch_fd;              /* epoll set of every connection: peers that close */
    int reserve_fd;            /* given up for a moment when there are no descriptors left */
    uint64_t accept_again_ms;  /* when accepting resumes after it failed; 0: it goes on */
    struct connection *adding; /* handed to MHD, which has not announced it yet */
    struct link connections;
    struct link ready;   /* exchanges to be told or resumed */
    struct link partial; /* connections with incomplete headers */
    struct span reading, keep_alive, linger, silence;
    uint64_t timer_at_ms; /* what the timer is set to; 0: it is off */
    uint64_t turns;       /* begun so far */
    size_t bodies_bytes;  /* of bodies of requests under way */
    bool driving;         /* a turn is under way */
    bool again;           /* something was asked for in this turn */
    bool draining;
    void (*on_closed)(void *app); /* once, when draining has ended */
    int open_handles;
    struct http_stats stats;
};

/* ---- http_server.c -------------------------------------------------------------------------- */

/* Lets MHD work until nothing is left to do now, then sets the timer. Inside a turn it only asks
 * for one more round. */
void http_drive(struct http_server *server);

/* ---- http_listen.c -------------------------------------------------------------------------- */

/* Opens a listening socket for every address of the configured host. Fails with a sentence. */
enum status http_listen_open(struct http_server *server, struct err *err);

/* Starts accepting. */
enum status http_listen_start(struct http_server *server, struct err *err);

/* Stops listening; the sockets are closed at once, their handles in the loop's next turns. */
void http_listen_close(struct http_server *server);

/* Accepts again after a pause, when it is over. */
void http_listen_retry(struct http_server *server, uint64_t now_ms);

/* ---- http_connection.c ---------------------------------------------------------------------- */

/* Hands an accepted socket to MHD, or refuses it when there are too many. Owns fd from here on. */
void http_connection_add(struct http_server *server, int fd, const struct sockaddr *address,
                         socklen_t length);

/* MHD_NotifyConnectionCallback: its first and its last word on a connection. */
void http_connection_notify(void *cls, struct MHD_Connection *mhd, void **context,
                            enum MHD_ConnectionNotificationCode code);

/* The connection of an MHD connection. */
struct connection *http_connection_of(struct MHD_Connection *mhd);

/* Writes `answer` (a whole HTTP answer) past MHD, which is reading, and swallows what still
 * comes. */
void http_connection_cut(struct connection *connection, int status, const struct buf *answer);

/* The same with the error document of `status`. */
void http_connection_refuse(struct connection *connection, enum status status, const char *code,
                            const char *message);

/* Takes the connection from MHD until it is resumed. False when there is nobody left to wait for.
 * Call it in MHD's access handler or reader only. */
bool http_connection_suspend(struct connection *connection);

/* Closes a connection between two requests. What the client has sent already is still answered. */
void http_connection_close_idle(struct connection *connection);

/* ---- http_request.c ------------------------------------------------------------------------- */

/* MHD's callbacks: the request line, the request in its parts, its end. */
void *http_request_line(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result http_request_access(void *cls, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version, const char *data,
                                    size_t *size, void **context);
void http_request_completed(void *cls, struct MHD_Connection *mhd, void **context,
                            enum MHD_RequestTerminationCode code);

/* Notes that the client is gone; the application is told in this or the next turn. */
void http_exchange_lose(struct exchange *exchange);

/* Calls on_gone when the application waits for that. */
void http_exchange_tell_gone(struct exchange *exchange);

/* Asks for the exchange to be told or resumed by the next turn. */
void http_exchange_wake(struct exchange *exchange);

/* ---- http_answer.c -------------------------------------------------------------------------- */

/* Gives MHD the answer that was made. Call it in the access handler only. */
enum MHD_Result http_answer_queue(struct exchange *exchange);

/* Appends a whole HTTP answer as it stands on the wire; the connection is closed after it. */
void http_answer_format(struct buf *out, int status, const char *content_type, const void *body,
                        size_t length, const struct http_field *fields, int n);

/* Appends the error document `{"error":{...}}`. `code` may be NULL; neither text may need
 * escapes. */
void http_answer_error(struct buf *out, enum status status, const char *code, const char *message);

/* ---- http_stream.c -------------------------------------------------------------------------- */

/* The response through which MHD reads a stream, or NULL when there is no memory. */
struct MHD_Response *http_stream_response(struct exchange *exchange);

/* Writes the comment that keeps proxies from giving a silent stream up. */
void http_stream_keep_alive(struct exchange *exchange);

/* Resumes a slice of the exchanges that are ready. */
void http_stream_resume(struct http_server *server);

/* ---- http_watch.c --------------------------------------------------------------------------- */

enum status http_watch_open(struct http_server *server, struct err *err);
bool http_watch_add(struct connection *connection);
void http_watch_remove(struct connection *connection);

/* ---- http_limits.c -------------------------------------------------------------------------- */

void http_limits_init(struct http_server *server);

/* Sets the deadline of `due` to a span from now; leaves it without one when the span is 0. */
void http_limits_set(struct http_server *server, struct due *due, struct span *span);
void http_limits_clear(struct due *due);

/* Acts on every deadline that has passed. */
void http_limits_expire(struct http_server *server);

/* The earliest deadline in uv_now's time, or 0. */
uint64_t http_limits_next(const struct http_server *server);

/* Refuses connections whose incomplete headers have passed the limit. */
void http_limits_check_partial(struct http_server *server);

/* Checks what the headers say of the request's size and framing, and notes it in the exchange.
 * Fails with the status and sentence that the client is to see. */
enum status http_limits_check_headers(struct exchange *exchange, struct err *err);

#endif
