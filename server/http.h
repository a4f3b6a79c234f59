/* server/http: the HTTP front end. One libuv loop turns libmicrohttpd; every function here belongs
 * to the loop thread.
 *
 * A `struct http_server` owns the listening socket and the connections, a `struct http_request` one
 * request from its headers to its last byte. The application gives four callbacks. It answers a
 * request at once or later, whole or as a stream of chunks; between requests nothing of it is held.
 * What a client can send or withhold is bounded here: header and body sizes, time for them,
 * connections, bytes that a slow reader may leave unread.
 */
#ifndef PENSTOCK_SERVER_HTTP_H
#define PENSTOCK_SERVER_HTTP_H

#include <uv.h>

#include "config/config.h"

struct http_server;

/* One request. The fields are read-only for the application except `app`. */
struct http_request {
    const char *method; /* "GET", "POST", ... */
    const char *path;   /* without the query, percent-decoded */
    /* whole, NUL-terminated; "" without one. Valid until it is dropped or the request released */
    const char *body;
    size_t body_length;
    uint64_t received_ns; /* now_ns() when the headers were in */
    char client[64];      /* address of the peer */
    void *app;            /* the application's own, NULL at first */
};

struct http_config {
    const char *host;
    int port;                /* 0: any free one */
    size_t max_header_bytes; /* 431 above */
    size_t max_body_bytes;   /* 413 above */
    size_t max_bodies_bytes; /* of all requests together: 503 above */
    int request_timeout_ms;  /* headers and body whole within it, or 408 */
    int keep_alive_ms;       /* idle connections are closed after it */
    int max_connections;     /* 503 above */
    /* bytes a stream's reader may leave unread before it is cut off; the most that one turn of the
     * loop brought comes on top, or a large event would cut off every reader */
    size_t max_stream_backlog;
    int silence_ms; /* a stream silent for that long gets the comment `: keep-alive` */

    /* Called when the headers are in, before the body is read. To refuse the request early (401,
     * 404, 405, 429, ...) answer it with http_respond; then on_request is not called and the body
     * is not kept. */
    void (*on_headers)(void *app, struct http_request *request);
    /* Called when the request is whole. It must be answered now or later by http_respond or
     * http_stream_begin. */
    void (*on_request)(void *app, struct http_request *request);
    /* Called once when the client has gone (or was cut off) before the answer was whole; on_request
     * may not have been called. The application must still release the request; what it writes from
     * now on is thrown away. */
    void (*on_gone)(void *app, struct http_request *request);
    /* Called once for every answered request when its last byte was taken or the connection broke,
     * for the access log: `status` is the code that was sent (499 when the client went away first),
     * bytes counts the body's. `request->app` is as the application left it, and NULL for a request
     * that was refused before on_headers (413, 431, bad framing, too many connections). on_done may
     * be NULL: nobody asks. */
    void (*on_done)(void *app, struct http_request *request, int status, uint64_t bytes);
    void *app;
};

/* Binds and listens. Fails with STATUS_SYSTEM and a sentence that names host, port and cause (in
 * use: says so). */
enum status http_server_new(struct http_server **out, uv_loop_t *loop,
                            const struct http_config *config, struct err *err);

/* The port that was bound. */
int http_server_port(const struct http_server *server);

/* A request header's value, or NULL. Valid until the request is answered. */
const char *http_header(const struct http_request *request, const char *name);

struct http_field {
    const char *name, *value;
};

/* Answers with a whole body, which is copied. Extra fields (n may be 0) are copied too. Sends
 * Content-Length. */
void http_respond(struct http_request *request, int status, const char *content_type,
                  const void *body, size_t length, const struct http_field *fields, int n);

/* Answers with a stream: headers go out at once, chunks follow. */
void http_stream_begin(struct http_request *request, int status, const char *content_type,
                       const struct http_field *fields, int n);

/* Appends bytes to the stream; they leave with the next http_flush. False when the client is gone
 * or was cut off for reading too slowly (on_gone is or was called). */
bool http_stream_write(struct http_request *request, const void *data, size_t length);

/* No more bytes will come. */
void http_stream_end(struct http_request *request);

/* Sends what was answered and written since the last call. Call it once after a group of events,
 * and after any answer that was not given inside a callback of this header. */
void http_flush(struct http_server *server);

/* The application is done with the request: it may not be touched after this. Every request that
 * on_headers has seen is released exactly once, after it was answered or its client had gone; it
 * may be inside on_request. */
void http_release(struct http_request *request);

/* Frees the request's body: a request may wait for its answer for long. */
void http_drop_body(struct http_request *request);

/* Is the client gone? */
bool http_is_gone(const struct http_request *request);

struct http_stats {
    int connections;            /* open now */
    int requests;               /* not yet done */
    uint64_t accepted, refused; /* connections */
    uint64_t slow_readers;      /* streams cut off */
    uint64_t timeouts;          /* 408s */
};
void http_stats(const struct http_server *server, struct http_stats *out);

/* Stops accepting and closes idle connections; requests under way are finished. `on_closed` is
 * called once when no connection is left (at once when there is none). May be followed by
 * http_server_abort, which cuts off what is left. */
void http_server_drain(struct http_server *server, void (*on_closed)(void *app));
void http_server_abort(struct http_server *server);

/* Frees a drained server (its uv handles are closed in the loop's next turns). No connection may be
 * left. */
void http_server_free(struct http_server *server);

#endif
