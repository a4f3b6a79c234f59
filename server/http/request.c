/* server/http: one request, from its headers to its last byte.
 *
 * DESIGN MHD calls http_request_access after the headers, then for each part of the body, then once
 * when the request is complete, and again after each resume. Responses are queued in that last
 * call, which keeps the connection alive; after an earlier response MHD closes it. An exchange has
 * two holders: MHD until http_request_completed, and the application until http_release. The second
 * one that releases it frees it. Each uses only its own fields.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "server/http/internal.h"

/* ---- lifetime ------------------------------------------------------------------------------- */

void http_request_name(struct http_request *request, const char *asked) {
    size_t length = asked ? strlen(asked) : 0, right = 0;
    while (right < length && asked[right] > ' ' && asked[right] <= '~') right++;
    if (length > 0 && length < sizeof request->id && right == length) {
        memcpy(request->id, asked, length + 1);
        request->has_own_id = true;
        return;
    }
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random) random[0] = random[1] = now_ns();
    snprintf(request->id, sizeof request->id, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
}

/* Returns the path of a target. A target in absolute form, from a proxy, begins with the server's
 * name. */
static const char *path_of(const char *url) {
    if (strncasecmp(url, "http://", 7) != 0) return url;
    const char *path = strchr(url + 7, '/');
    return path ? path : "/";
}

/* Returns NULL if memory is short. */
static struct exchange *exchange_new(struct connection *connection, const char *method,
                                     const char *path) {
    size_t method_size = strlen(method) + 1, path_size = strlen(path) + 1;
    struct exchange *exchange = mem_try_calloc(1, sizeof *exchange);
    char *names = mem_try_alloc(method_size + path_size);
    if (!exchange || !names) {
        mem_free(exchange);
        mem_free(names);
        return NULL;
    }
    exchange->text = names;
    memcpy(exchange->text, method, method_size);
    memcpy(exchange->text + method_size, path, path_size);
    exchange->request.method = exchange->text;
    exchange->request.target = exchange->request.path = exchange->text + method_size;
    exchange->request.body = "";
    exchange->request.received_ns = now_ns();
    memcpy(exchange->request.client, connection->client, sizeof connection->client);
    exchange->server = connection->server;
    exchange->connection = connection;
    exchange->released = true; /* until on_headers is called */
    connection->exchange = exchange;
    http_request_name(&exchange->request, http_header(&exchange->request, "X-Request-Id"));
    connection->server->stats.requests++;
    return exchange;
}

/* A body counts towards max_bodies_bytes only while MHD has the request. The application may keep
 * it longer, even after the server is freed. */
static void uncount_body(struct exchange *exchange) {
    if (!exchange->connection) return;
    assert(exchange->server->stats.bodies_bytes >= exchange->body.length);
    exchange->server->stats.bodies_bytes -= exchange->body.length;
}

static void drop_body(struct exchange *exchange) {
    uncount_body(exchange);
    buf_free(&exchange->body);
    exchange->request.body = "";
    exchange->request.body_length = 0;
}

static void free_if_released(struct exchange *exchange) {
    if (exchange->connection || !exchange->released) return;
    assert(!exchange->ready.list && !exchange->silence.node.list);
    if (exchange->mhd_response) MHD_destroy_response(exchange->mhd_response);
    drop_body(exchange);
    buf_free(&exchange->refusal);
    buf_free(&exchange->out);
    mem_free(exchange->text);
    mem_free(exchange->path);
    mem_free(exchange);
}

void http_release(struct http_request *request) {
    struct exchange *exchange = (struct exchange *)request;
    assert(exchange->seen && !exchange->released);
    assert(exchange->kind != RESPONSE_NONE || exchange->gone);
    assert(exchange->kind != RESPONSE_STREAM || exchange->ended || exchange->gone);
    exchange->released = true;
    free_if_released(exchange);
}

void http_drop_body(struct http_request *request) {
    drop_body((struct exchange *)request);
}

void http_discard_body(struct http_request *request) {
    struct exchange *exchange = (struct exchange *)request;
    assert(exchange->seen && exchange->connection->state == CONNECTION_BODY);
    assert(exchange->body.length == 0);
    exchange->discards = true;
}

bool http_set_path(struct http_request *request, const char *path) {
    struct exchange *exchange = (struct exchange *)request;
    assert(exchange->seen && exchange->connection->state == CONNECTION_BODY);
    size_t size = strlen(path) + 1;
    char *copy = mem_try_alloc(size);
    if (!copy) return false;
    mem_free(exchange->path);
    request->path = exchange->path = memcpy(copy, path, size);
    return true;
}

const char *http_header(const struct http_request *request, const char *name) {
    const struct exchange *exchange = (const struct exchange *)request;
    if (!exchange->connection) return NULL;
    return MHD_lookup_connection_value(exchange->connection->mhd, MHD_HEADER_KIND, name);
}

const char *http_argument(const struct http_request *request, const char *name) {
    const struct exchange *exchange = (const struct exchange *)request;
    const char *value = NULL;
    if (!exchange->connection) return NULL;
    if (MHD_lookup_connection_value_n(exchange->connection->mhd, MHD_GET_ARGUMENT_KIND, name,
                                      strlen(name), &value, NULL) != MHD_YES)
        return NULL;
    return value ? value : "";
}

struct header_list {
    const char *name;
    struct buf *out;
};

static enum MHD_Result add_value(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value) {
    const struct header_list *list = cls;
    (void)kind;
    if (strcasecmp(name, list->name) != 0 || !value) return MHD_YES;
    if (list->out->length > 0) buf_puts(list->out, ",");
    buf_puts(list->out, value);
    return MHD_YES;
}

void http_header_list(const struct http_request *request, const char *name, struct buf *out) {
    const struct exchange *exchange = (const struct exchange *)request;
    struct header_list list = {name, out};
    if (!exchange->connection) return;
    MHD_get_connection_values(exchange->connection->mhd, MHD_HEADER_KIND, add_value, &list);
}

/* ---- waking, and disconnected clients ------------------------------------------------------- */

void http_exchange_wake(struct exchange *exchange) {
    assert(exchange->connection);
    list_move(&exchange->server->ready, &exchange->ready);
}

/* Has the application written the complete response? */
static bool is_answered(const struct exchange *exchange) {
    return exchange->kind == RESPONSE_WHOLE ||
           (exchange->kind == RESPONSE_STREAM && exchange->ended);
}

void http_exchange_mark_gone(struct exchange *exchange) {
    if (exchange->gone || !exchange->connection) return;
    exchange->gone = true;
    exchange->gone_notified = is_answered(exchange);
    http_limits_clear(&exchange->silence);
    http_exchange_wake(exchange);
}

void http_exchange_notify_gone(struct exchange *exchange) {
    if (exchange->gone_notified || exchange->released) return;
    exchange->gone_notified = true;
    exchange->server->config.on_gone(exchange->server->config.app, &exchange->request);
}

/* ---- arrival of a request ------------------------------------------------------------------- */

void *http_request_line(void *cls, const char *uri, struct MHD_Connection *mhd) {
    struct connection *connection = http_connection_of(mhd);
    (void)cls;
    (void)uri;
    http_connection_begin(connection);
    return NULL;
}

static void refuse(struct exchange *exchange, const struct err *err) {
    drop_body(exchange);
    http_connection_refuse(exchange->connection, err->status, err->code[0] ? err->code : NULL,
                           err->message);
}

/* Handles the headers. MHD then continues to read unless a response was queued. */
static enum MHD_Result receive_headers(struct connection *connection, const char *method,
                                       const char *url, void **context) {
    if (connection->state == CONNECTION_CUT) return MHD_NO;
    assert(connection->state == CONNECTION_HEADERS && !connection->exchange);
    struct http_server *server = connection->server;
    struct exchange *exchange = *context = exchange_new(connection, method, path_of(url));
    if (!exchange) return MHD_NO; /* closes the connection */
    struct err err;
    connection->state = CONNECTION_BODY;
    if (http_limits_check_headers(exchange, &err) != STATUS_OK) {
        refuse(exchange, &err);
        return MHD_YES;
    }
    exchange->seen = true;
    exchange->released = false;
    server->config.on_headers(server->config.app, &exchange->request);
    exchange->refused = exchange->kind != RESPONSE_NONE;
    /* A client that waits for `100 Continue` is refused before it sends the body. */
    if (exchange->refused && exchange->expects_continue) return http_response_queue(exchange);
    return MHD_YES;
}

/* Discards body bytes. Returns false if the client sent more than the maximum size of a body. */
static bool discard(struct connection *connection, size_t size) {
    connection->discarded += size;
    return connection->discarded <= connection->server->config.max_body_bytes;
}

static enum MHD_Result receive_part(struct exchange *exchange, const char *data, size_t *size) {
    struct connection *connection = exchange->connection;
    size_t n = *size, limit = connection->server->config.max_body_bytes;
    *size = 0;
    if (connection->state == CONNECTION_CUT) return discard(connection, n) ? MHD_YES : MHD_NO;
    bool is_kept = !exchange->refused && !exchange->discards;
    bool fits = is_kept ? n <= limit - exchange->body.length : discard(connection, n);
    if (!fits && exchange->refused) {
        http_connection_cut(connection, exchange->status, &exchange->refusal);
    } else if (!fits) {
        struct err err;
        err_set(&err, STATUS_TOO_LARGE, NULL, "the body is larger than %zu bytes", limit);
        refuse(exchange, &err);
    } else if (!is_kept) {
        return MHD_YES;
    } else if (n > connection->server->config.max_bodies_bytes -
                       connection->server->stats.bodies_bytes) {
        struct err err;
        err_set(&err, STATUS_UNAVAILABLE, NULL,
                "the bodies of all requests together are too large; try again later");
        strcpy(err.code, "too_many_bodies");
        refuse(exchange, &err);
    } else if (!buf_try_add(&exchange->body, data, n)) {
        struct err err;
        err_out_of_memory(&err);
        refuse(exchange, &err);
    } else {
        connection->server->stats.bodies_bytes += n;
    }
    return MHD_YES;
}

/* Handles the end of the request. */
static void receive_end(struct exchange *exchange) {
    struct connection *connection = exchange->connection;
    struct http_server *server = connection->server;
    connection->state = CONNECTION_BUSY;
    http_limits_clear(&connection->deadline);
    if (exchange->body.data) exchange->request.body = exchange->body.data;
    exchange->request.body_length = exchange->body.length;
    if (exchange->refused || exchange->gone) return;
    server->config.on_request(server->config.app, &exchange->request);
}

enum MHD_Result http_request_access(void *cls, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version, const char *data,
                                    size_t *size, void **context) {
    struct connection *connection = http_connection_of(mhd);
    struct exchange *exchange = *context;
    (void)cls;
    (void)version;
    if (!exchange) return receive_headers(connection, method, url, context);
    if (*size > 0) return receive_part(exchange, data, size);
    if (connection->state == CONNECTION_CUT) return MHD_NO;
    if (connection->state == CONNECTION_BODY) receive_end(exchange);
    if (exchange->gone) return MHD_NO;
    if (exchange->mhd_response) return http_response_queue(exchange);
    return http_connection_suspend(connection) ? MHD_YES : MHD_NO;
}

/* ---- end of the exchange -------------------------------------------------------------------- */

/* Prepares for the connection's next request, unless MHD closes it. */
static void expect_next(struct connection *connection) {
    struct http_server *server = connection->server;
    if (connection->state == CONNECTION_CUT) return;
    connection->state = CONNECTION_IDLE;
    connection->discarded = 0;
    assert(!connection->suspended);
    if (server->draining || connection->peer_closed)
        http_connection_close_idle(connection);
    else
        http_limits_set(server, &connection->deadline, &server->keep_alive);
    bool has_begun =
        connection->wire.phase != WIRE_BETWEEN && connection->wire.phase != WIRE_IGNORED;
    if (has_begun) http_connection_begin(connection);
}

void http_request_completed(void *cls, struct MHD_Connection *mhd, void **context,
                            enum MHD_RequestTerminationCode code) {
    struct exchange *exchange = *context;
    struct connection *connection = http_connection_of(mhd);
    bool is_sent = code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    (void)cls;
    connection->answered++;
    expect_next(connection);
    if (!exchange) return;
    assert(connection->exchange == exchange && exchange->connection == connection);
    *context = NULL;
    if (!is_sent || !is_answered(exchange)) http_exchange_mark_gone(exchange);
    if (exchange->gone) http_exchange_notify_gone(exchange);
    const struct http_config *config = &exchange->server->config;
    int status = is_sent || exchange->is_cut ? exchange->status : status_http(STATUS_CANCELLED);
    if (exchange->kind == RESPONSE_WHOLE && is_sent) exchange->bytes = exchange->whole_bytes;
    if (config->on_done) config->on_done(config->app, &exchange->request, status, exchange->bytes);
    list_detach(&exchange->ready);
    http_limits_clear(&exchange->silence);
    uncount_body(exchange);
    connection->exchange = NULL;
    exchange->connection = NULL;
    exchange->server->stats.requests--;
    assert(exchange->server->stats.requests >= 0);
    free_if_released(exchange);
    bool may_refuse = is_sent && !connection->server->announced;
    if (connection->fault && may_refuse) http_connection_refuse_fault(connection);
}
