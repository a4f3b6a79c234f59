/* server/http: the HTTP front end. One libuv loop turns libmicrohttpd; every function here belongs
 * to the loop thread.
 *
 * A `struct http_server` owns the listening socket and the connections, a `struct http_request` one
 * request from its headers to its last byte. The application provides four callbacks. It answers
 * a request at once or later, whole or as a stream of chunks; no state is kept between requests.
 * What a client can send or withhold is bounded here: header and body sizes, time for them,
 * connections, bytes that a slow reader may leave unread.
 */
#ifndef PENSTOCK_SERVER_HTTP_H
#define PENSTOCK_SERVER_HTTP_H

#include <uv.h>

#include "config/config.h"

struct http_server;

/* One request. The application may set `app`, `route`, `client` and `id`; the other fields are
 * read-only. */
struct http_request {
    const char *method; /* "GET", "POST", ... */
    const char *target; /* the path as the client wrote it: without the query, percent-decoded */
    const char *path;   /* the same, or the canonical one that http_set_path has set */
    /* complete, NUL-terminated; "" if none. Valid until it is dropped or the request is released */
    const char *body;
    size_t body_length;
    uint64_t received_ns; /* now_ns() when the headers had arrived */
    char client[64];      /* address of the peer; the application may name another one */
    /* the client's X-Request-Id if it is printable, otherwise a random one, which the application
     * may replace by an id of its own */
    char id[129];
    bool has_own_id;   /* the client's */
    void *app;         /* the application's own pointer, NULL at first */
    const void *route; /* and one to what it has found by the path */
};

struct http_field {
    const char *name, *value;
};

enum { HTTP_MAX_FIELDS = 8 };

struct http_config {
    const char *host;
    int port;                /* 0: any free one */
    size_t max_header_bytes; /* 431 above */
    size_t max_body_bytes;   /* 413 above */
    size_t max_bodies_bytes; /* of all requests together: 503 above */
    int request_timeout_ms;  /* for headers and body to arrive, or 408 */
    int keep_alive_ms;       /* idle connections are closed after it */
    int max_connections;     /* 503 above */
    /* A complete answer must have been read answer_timeout_ms (0: any time) and a second for each
     * answer_rate bytes after it was given, or its connection is closed. The bytes of a stream that
     * are unread at its end are such an answer. */
    int answer_timeout_ms;
    size_t answer_rate;
    /* Bytes that a stream's reader may leave unread before it is cut off. The most that any one
     * turn of the loop wrote is added, or a large event would cut off every reader. */
    size_t max_stream_backlog;
    int silence_ms; /* after that long without bytes a stream gets the comment `: keep-alive` */

    /* Called when the headers have arrived, before the body is read. To refuse the request early
     * (401, 404, 405, 429, ...) answer it with http_respond; then on_request is not called and the
     * body is not kept. */
    void (*on_headers)(void *app, struct http_request *request);
    /* Called when the request is complete. It must be answered now or later by http_respond or
     * http_stream_begin. */
    void (*on_request)(void *app, struct http_request *request);
    /* Called once when the client has gone (or was cut off) before the response was complete;
     * on_request may not have been called. The application must still release the request; what it
     * writes from now on is discarded. */
    void (*on_gone)(void *app, struct http_request *request);
    /* Called once for every answered request when its last byte was sent or the connection broke,
     * for the access log: `status` is the code that was sent (499 if the client went away first),
     * `bytes` counts the body's. `request->app` is as the application left it, and NULL for a
     * request that was refused before on_headers (413, 431, bad framing, too many connections). May
     * be NULL. */
    void (*on_done)(void *app, struct http_request *request, int status, uint64_t bytes);
    /* Called once for every answer: stores at most HTTP_MAX_FIELDS fields that it is to carry, and
     * returns how many. They are copied at once. May be NULL. */
    int (*fields)(void *app, struct http_request *request, struct http_field *out);
    void *app;
};

/* Could a server be bound here now? For an answer before a model is loaded: nothing is left open.
 * Fails as http_server_new does. Any thread. */
enum status http_check_address(const char *host, int port, struct err *err);

/* Binds and listens. Fails with STATUS_SYSTEM and a sentence that names host, port and cause. */
enum status http_server_new(struct http_server **out, uv_loop_t *loop,
                            const struct http_config *config, struct err *err);

/* The port that was bound. */
int http_server_port(const struct http_server *server);

/* The value of a request header, or NULL. Valid until the request is answered. */
const char *http_header(const struct http_request *request, const char *name);

/* Appends the values of all headers of a name, in order, with commas between them. */
void http_header_list(const struct http_request *request, const char *name, struct buf *out);

/* Replaces the path by its canonical form, which is copied. Call it in on_headers only. */
bool http_set_path(struct http_request *request, const char *path);

/* The body will not be read: it is discarded as it arrives, and `body` stays empty. Call it in
 * on_headers only. */
void http_discard_body(struct http_request *request);

/* Answers with a whole body, which is copied. Extra fields (n may be 0) are copied too. Sends
 * Content-Length. */
void http_respond(struct http_request *request, int status, const char *content_type,
                  const void *body, size_t length, const struct http_field *fields, int n);

/* The same with a body whose memory is taken: `body` is empty afterwards. For large answers, which
 * are then in memory once. */
void http_respond_take(struct http_request *request, int status, const char *content_type,
                       struct buf *body, const struct http_field *fields, int n);

/* Answers with a stream: headers go out at once, chunks follow. */
void http_stream_begin(struct http_request *request, int status, const char *content_type,
                       const struct http_field *fields, int n);

/* Appends bytes to the stream; they are sent by the next http_flush. False if the client is gone or
 * was cut off for reading too slowly (on_gone is or was called). */
bool http_stream_write(struct http_request *request, const void *data, size_t length);

/* Ends the stream: no more bytes follow. */
void http_stream_end(struct http_request *request);

/* Sends what was answered and written since the last call. Call it once after a group of events,
 * and after any response that was not given inside a callback of this header. */
void http_flush(struct http_server *server);

/* The application is done with the request and must not touch it any more. Every request that
 * on_headers has seen must be released exactly once, after it was answered or its client had gone;
 * inside on_request is allowed. */
void http_release(struct http_request *request);

/* Frees the request's body, if it is not needed while the request waits for its response. */
void http_drop_body(struct http_request *request);

/* Is the client gone? */
bool http_is_gone(const struct http_request *request);

struct http_stats {
    int connections;            /* open now */
    int requests;               /* not yet done */
    uint64_t accepted, refused; /* connections */
    uint64_t slow_readers;      /* streams and answers cut off */
    uint64_t timeouts;          /* 408s */
    size_t bodies_bytes;        /* of all bodies that are kept now */
};
void http_stats(const struct http_server *server, struct http_stats *out);

/* From now on every response asks its client to close the connection, which it may do before
 * http_server_drain does. */
void http_server_announce_drain(struct http_server *server);

/* Stops accepting and closes idle connections; complete requests are finished. One that has begun
 * to arrive has a second to become complete, and gets a 503 after it. `on_closed` is called once
 * when no connection is left (at once if there is none). http_server_abort may follow, which cuts
 * off all that are left. */
void http_server_drain(struct http_server *server, void (*on_closed)(void *app));
void http_server_abort(struct http_server *server);

/* Frees a drained server (its uv handles are closed in the loop's next turns). No connection may be
 * left. */
void http_server_free(struct http_server *server);

#endif
