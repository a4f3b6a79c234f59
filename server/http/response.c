/* server/http: whole responses, through MHD or as bytes. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/http/internal.h"

int http_response_fields(const struct http_server *server, struct http_request *request,
                         struct http_field out[HTTP_MAX_FIELDS]) {
    const struct http_config *config = &server->config;
    int n = config->fields ? config->fields(config->app, request, out) : 0;
    assert(n >= 0 && n <= HTTP_MAX_FIELDS);
    return n;
}

/* ---- as bytes ------------------------------------------------------------------------------- */

struct response_text {
    struct buf *out;
    int status;
    const char *content_type;
    const void *body;
    size_t length;
    const struct http_field *fields;
    int n;
};

static void write_text(void *arg) {
    const struct response_text *text = arg;
    struct buf *out = text->out;
    buf_printf(out, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %zu\r\n", text->status,
               MHD_get_reason_phrase_for((unsigned)text->status), text->length);
    if (text->content_type) buf_printf(out, "Content-Type: %s\r\n", text->content_type);
    for (int i = 0; i < text->n; i++)
        buf_printf(out, "%s: %s\r\n", text->fields[i].name, text->fields[i].value);
    buf_puts(out, "\r\n");
    buf_add(out, text->body, text->length);
}

static void drop_text(void *arg) {
    buf_free(((const struct response_text *)arg)->out);
}

bool http_response_format(struct buf *out, int status, const char *content_type, const void *body,
                          size_t length, const struct http_field *fields, int n) {
    struct response_text text = {out, status, content_type, body, length, fields, n};
    return mem_run(write_text, drop_text, &text);
}

size_t http_error_body(char out[HTTP_MAX_ERROR], enum status status, const char *code,
                       const char *message) {
    const char *quote = code ? "\"" : "";
    int n =
        snprintf(out, HTTP_MAX_ERROR,
                 "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":%s%s%s}}",
                 message, status_type(status), quote, code ? code : "null", quote);
    assert(n > 0 && n < HTTP_MAX_ERROR); /* a message has at most 1,023 bytes */
    return (size_t)n;
}

/* ---- through MHD ---------------------------------------------------------------------------- */

/* MHD rejects values with line breaks and tabs, which may originate from a client. Such a field is
 * omitted. */
static void add_field(struct MHD_Response *response, const char *name, const char *value) {
    if (MHD_add_response_header(response, name, value) == MHD_YES) return;
    log_line(LOG_WARNING, "the response header %s was left out: its value cannot be sent", name);
}

static void add_fields(struct exchange *exchange, struct MHD_Response *response,
                       const char *content_type, const struct http_field *fields, int n) {
    struct http_field common[HTTP_MAX_FIELDS];
    int n_common = http_response_fields(exchange->server, &exchange->request, common);
    if (content_type) add_field(response, "Content-Type", content_type);
    for (int i = 0; i < n; i++) add_field(response, fields[i].name, fields[i].value);
    for (int i = 0; i < n_common; i++) add_field(response, common[i].name, common[i].value);
}

/* Does the request's Connection header or HTTP version make it the last one of its connection? */
static bool is_last_request(const struct connection *connection) {
    const struct wire *wire = &connection->wire;
    return wire->phase == WIRE_IGNORED && wire->messages == connection->answered + 1;
}

enum MHD_Result http_response_queue(struct exchange *exchange) {
    struct MHD_Response *response = exchange->mhd_response;
    assert(response);
    if (exchange->server->announced || is_last_request(exchange->connection))
        add_field(response, "Connection", "close");
    enum MHD_Result queued =
        MHD_queue_response(exchange->connection->mhd, (unsigned)exchange->status, response);
    MHD_destroy_response(response); /* MHD holds another reference */
    exchange->mhd_response = NULL;
    bool is_complete = exchange->kind == RESPONSE_WHOLE;
    if (queued == MHD_YES && is_complete) http_limits_answer(exchange, exchange->whole_bytes);
    return queued;
}

/* Stores the response. MHD gets it when its access handler returns or is called again. */
static void set_response(struct exchange *exchange, enum response_kind kind, int status,
                         struct MHD_Response *response) {
    assert(exchange->kind == RESPONSE_NONE && !exchange->mhd_response);
    exchange->kind = kind;
    exchange->status = status;
    exchange->mhd_response = response;
    if (exchange->connection->suspended) http_exchange_wake(exchange);
}

/* Stores a response of `length` bytes. `body` holds the same bytes as the response. */
static void respond(struct exchange *exchange, int status, const char *content_type,
                    struct MHD_Response *response, const void *body, size_t length,
                    const struct http_field *fields, int n) {
    struct http_request *request = &exchange->request;
    add_fields(exchange, response, content_type, fields, n);
    if (exchange->is_chunked && exchange->connection->state == CONNECTION_BODY) {
        struct http_field all[2 * HTTP_MAX_FIELDS];
        int n_all = http_response_fields(exchange->server, request, all);
        assert(n <= HTTP_MAX_FIELDS);
        for (int i = 0; i < n; i++) all[n_all++] = fields[i];
        if (!http_response_format(&exchange->refusal, status, content_type, body, length, all,
                                  n_all)) {
            MHD_destroy_response(response);
            http_exchange_mark_gone(exchange);
            return;
        }
    }
    exchange->whole_bytes = strcmp(request->method, "HEAD") == 0 ? 0 : length;
    set_response(exchange, RESPONSE_WHOLE, status, response);
}

void http_respond(struct http_request *request, int status, const char *content_type,
                  const void *body, size_t length, const struct http_field *fields, int n) {
    struct exchange *exchange = (struct exchange *)request;
    assert(exchange->kind == RESPONSE_NONE && !exchange->released);
    if (exchange->gone || !exchange->connection) return;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (response)
        respond(exchange, status, content_type, response, body, length, fields, n);
    else
        http_exchange_mark_gone(exchange);
}

void http_respond_take(struct http_request *request, int status, const char *content_type,
                       struct buf *body, const struct http_field *fields, int n) {
    struct exchange *exchange = (struct exchange *)request;
    assert(exchange->kind == RESPONSE_NONE && !exchange->released);
    bool is_awaited = !exchange->gone && exchange->connection;
    struct MHD_Response *response =
        is_awaited
            ? MHD_create_response_from_buffer_with_free_callback(body->length, body->data, mem_free)
            : NULL;
    if (response) {
        respond(exchange, status, content_type, response, body->data, body->length, fields, n);
        *body = (struct buf){0}; /* the response frees the memory */
        return;
    }
    if (is_awaited) http_exchange_mark_gone(exchange);
    buf_free(body);
}

/* ---- begin of streams; http/stream.c has the rest ------------------------------------------- */

void http_stream_begin(struct http_request *request, int status, const char *content_type,
                       const char *keep_alive, const struct http_field *fields, int n) {
    struct exchange *exchange = (struct exchange *)request;
    assert(exchange->kind == RESPONSE_NONE && !exchange->released);
    if (exchange->gone || !exchange->connection) return;
    struct MHD_Response *response = http_stream_response(exchange);
    if (!response) {
        http_exchange_mark_gone(exchange);
        return;
    }
    add_fields(exchange, response, content_type, fields, n);
    exchange->keep_alive = keep_alive;
    set_response(exchange, RESPONSE_STREAM, status, response);
    if (keep_alive)
        http_limits_set(exchange->server, &exchange->silence, &exchange->server->silence);
}
