/* server/http: the HTTP front end. One libuv loop drives libmicrohttpd. Only the loop thread may
 * call these functions, unless a comment says otherwise.
 *
 * A `struct http_server` owns the listening socket and the connections. A `struct http_request` is
 * one request from its headers to its last byte. The application provides four callbacks. It
 * answers a request immediately or later, as a whole or as a stream of chunks. Requests share
 * no state. This folder bounds everything that a client can send or withhold: the size of
 * headers and bodies, their time, connections, and the bytes that a slow reader leaves unread.
 */
#ifndef PENSTOCK_SERVER_HTTP_H
#define PENSTOCK_SERVER_HTTP_H

#include <uv.h>

#include "config/config.h"

struct http_server;

/* One request. The application may set `app`, `route`, `trace`, `client` and `id`; it must only
 * read the other fields. */
struct http_request {
    const char *method; /* "GET", "POST", ... */
    const char *target; /* the client's path, percent-decoded, without the query */
    const char *path;   /* the same, or the canonical path set by http_set_path */
    /* complete, NUL-terminated; "" if empty; valid until it is dropped or the request released */
    const char *body;
    size_t body_length;
    uint64_t received_ns; /* now_ns() at the end of the headers */
    char client[64];      /* address of the peer; the application may replace it */
    /* the client's X-Request-Id if it is printable, else random; the application may replace a
     * random id */
    char id[129];
    bool has_own_id;   /* the id is the client's */
    void *app;         /* the application's pointer, initially NULL */
    const void *route; /* the application's pointer for the path, initially NULL */
    void *trace;       /* the application's pointer for the trace, initially NULL */
};

struct http_field {
    const char *name, *value;
};

enum { HTTP_MAX_FIELDS = 8 };

enum { HTTP_MAX_SOCKETS = 4 }; /* sockets that a server listens on */

struct http_config {
    const char *host;
    int port;                /* 0: any free port */
    const char *socket_path; /* Unix socket to listen on instead of host and port; NULL: none */
    /* [n_sockets] listening sockets to use instead of host, port and path, such as those of a
     * service manager; at most HTTP_MAX_SOCKETS. The server owns them. Connections that wait when
     * it drains are left to the next process. */
    const int *sockets;
    int n_sockets;
    size_t max_header_bytes; /* larger headers: 431 */
    size_t max_body_bytes;   /* larger bodies: 413 */
    size_t max_bodies_bytes; /* limit for all requests together: 503 */
    int request_timeout_ms;  /* to receive headers and body; else 408 */
    int keep_alive_ms;       /* idle connections are closed after this time */
    int max_connections;     /* more connections: 503 */
    /* A client must read a complete answer within answer_timeout_ms (0: no limit) plus one second
     * per answer_rate bytes, or its connection is closed. The unread bytes at the end of a stream
     * are such an answer. */
    int answer_timeout_ms;
    size_t answer_rate;
    /* A stream's reader is cut off if it leaves more bytes unread than this plus the maximum that
     * one turn of the loop wrote; otherwise one large event would cut off every reader. */
    size_t max_stream_backlog;
    int silence_ms; /* after this time without bytes, a stream gets its keep-alive bytes */

    /* Called after the headers, before the body is read. To refuse the request early (401, 404,
     * 405, 429, ...), call http_respond; then on_request is not called and the body is not kept. */
    void (*on_headers)(void *app, struct http_request *request);
    /* Called when the request is complete. The application must answer it, immediately or later,
     * with http_respond or http_stream_begin. */
    void (*on_request)(void *app, struct http_request *request);
    /* Called once if the client disconnects or is cut off before the response is complete, possibly
     * without a preceding on_request. The application must still release the request; further
     * output is discarded. */
    void (*on_gone)(void *app, struct http_request *request);
    /* Called once per answered request after its last byte was sent or the connection broke, for
     * the access log. `status` is the code that was sent (499 if the client disconnected first),
     * `bytes` the size of the body. `request->app` is as the application left it, and NULL if the
     * request was refused before on_headers (413, 431, bad framing, too many connections). May be
     * NULL. */
    void (*on_done)(void *app, struct http_request *request, int status, uint64_t bytes);
    /* Called once per answer: stores at most HTTP_MAX_FIELDS additional fields and returns their
     * number. They are copied immediately. May be NULL. */
    int (*fields)(void *app, struct http_request *request, struct http_field *out);
    /* Writes the body of an error for which the server itself refuses a request (408, 413, bad
     * framing), in the form of the request's path. Returns its length, at most `size`; 0: OpenAI's
     * form is used. May be NULL. */
    size_t (*error_body)(void *app, const struct http_request *request, const struct err *err,
                         char *out, size_t size);
    void *app;
};

/* Checks that a server can listen on the configured path or host and port, before a model is
 * loaded. Leaves nothing open. Not for `sockets`, which are bound already. Fails as http_server_new
 * does. Any thread may call it. */
enum status http_check_address(const struct http_config *config, struct err *err);

/* Binds and listens. Fails with STATUS_SYSTEM or STATUS_USAGE and a message with address and
 * cause. */
enum status http_server_new(struct http_server **out, uv_loop_t *loop,
                            const struct http_config *config, struct err *err);

/* Returns the bound port; 0 if the server listens on Unix sockets only. */
int http_server_port(const struct http_server *server);

/* Returns the path of the Unix socket that the server listens on, or "". */
const char *http_server_socket(const struct http_server *server);

/* Returns the value of a request header, or NULL. It is valid until the request is answered. */
const char *http_header(const struct http_request *request, const char *name);

/* Returns the value of an argument of the query, percent-decoded, or NULL; "" without a value. It
 * is valid until the request is answered. */
const char *http_argument(const struct http_request *request, const char *name);

/* Appends the values of all headers of a name, in order, separated by commas. */
void http_header_list(const struct http_request *request, const char *name, struct buf *out);

/* Replaces the path by its canonical form, which is copied. Returns false if memory is short. Only
 * for on_headers. */
bool http_set_path(struct http_request *request, const char *path);

/* Discards the body as it arrives; `body` stays empty. Only for on_headers. */
void http_discard_body(struct http_request *request);

/* Answers with a whole body and Content-Length. Copies the body and the n additional fields. */
void http_respond(struct http_request *request, int status, const char *content_type,
                  const void *body, size_t length, const struct http_field *fields, int n);

/* The same, but takes ownership of the body's memory and leaves `body` empty, so that a large
 * answer is in memory only once. */
void http_respond_take(struct http_request *request, int status, const char *content_type,
                       struct buf *body, const struct http_field *fields, int n);

/* Begins a stream: the headers are sent first, chunks follow. `keep_alive` is sent whenever the
 * stream has been silent for silence_ms; it must outlive the request. NULL: nothing is sent. */
void http_stream_begin(struct http_request *request, int status, const char *content_type,
                       const char *keep_alive, const struct http_field *fields, int n);

/* Appends bytes to the stream; the next http_flush sends them. Returns false if the client is gone
 * or was cut off as a slow reader (on_gone was or will be called). */
bool http_stream_write(struct http_request *request, const void *data, size_t length);

/* Ends the stream. */
void http_stream_end(struct http_request *request);

/* Sends all output since the last call. Call it once after a group of events, and after any
 * response outside of this header's callbacks. */
void http_flush(struct http_server *server);

/* Ends the application's use of the request. Each request passed to on_headers must be released
 * exactly once, after its answer or after its client is gone; also allowed inside on_request. */
void http_release(struct http_request *request);

/* Frees the request's body, if it is not needed while the request waits for its response. */
void http_drop_body(struct http_request *request);

struct http_stats {
    int connections;            /* currently open */
    int requests;               /* not yet finished */
    uint64_t accepted, refused; /* connections */
    uint64_t slow_readers;      /* streams and answers that were cut off */
    uint64_t timeouts;          /* responses with 408 */
    size_t bodies_bytes;        /* size of all bodies in memory */
};
void http_stats(const struct http_server *server, struct http_stats *out);

/* From now on each response asks its client to close the connection. May be called before
 * http_server_drain. */
void http_server_announce_drain(struct http_server *server);

/* Stops accepting and closes idle connections; complete requests are finished. An incomplete
 * request has one second to become complete, then gets a 503. `on_closed` is called once after the
 * last connection is closed, possibly immediately. http_server_abort may follow; it cuts off the
 * remaining connections. */
void http_server_drain(struct http_server *server, void (*on_closed)(void *app));
void http_server_abort(struct http_server *server);

/* Frees a drained server without connections. The loop closes its uv handles in the next turns. */
void http_server_free(struct http_server *server);

#endif
