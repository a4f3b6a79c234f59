/* DESIGN: the span of an HTTP request.
 *
 *   tracing_begin  loop   the headers are complete: http->trace gets a span, or stays NULL
 *   tracing_error  loop   an error answers the request
 *   tracing_done   loop   HTTP has ended. Without an async_request the span ends. Otherwise that
 *                         takes the span, because the scheduler may still return generations
 *   tracing_end    loop   the request is freed: kind->trace describes it, and the span ends
 *
 * A request whose HTTP is detached for a promise leaves its span with HTTP, so with the reader.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/app/app.h"

struct trace_span *tracing_span(const struct http_request *http) {
    return http->trace;
}

void tracing_begin(struct app *app, struct http_request *http) {
    struct buf parent = {0}, state = {0};
    assert(!http->trace);
    if (!app->traces) return;
    /* two traceparent headers are joined by a comma, so they are invalid, as they should be */
    http_header_list(http, "traceparent", &parent);
    http_header_list(http, "tracestate", &state);
    http->trace = traces_begin(app->traces, parent.data, state.data, http->received_ns);
    buf_free(&parent);
    buf_free(&state);
}

void tracing_error(const struct http_request *http, const struct err *err) {
    struct trace_span *span = tracing_span(http);
    assert(err->status);
    if (!span) return;
    snprintf(span->error, sizeof span->error, "%s",
             err->code[0] ? err->code : status_type(err->status));
}

/* Sets the status code and, unless it is known better, the kind of the error. */
static void set_status(struct trace_span *span, int status) {
    bool is_sent = status >= 100 && status < 600 && status != status_http(STATUS_CANCELLED);
    span->http_status = is_sent ? status : 0;
    span->is_failed |= is_sent && status >= 500;
    if (!is_sent)
        snprintf(span->error, sizeof span->error, "%s", status_type(STATUS_CANCELLED));
    else if (status >= 400 && !span->error[0])
        snprintf(span->error, sizeof span->error, "%d", status);
}

void tracing_done(struct app *app, struct http_request *http, const char *method, const char *route,
                  int status) {
    struct trace_span *span = tracing_span(http);
    struct async_request *request = http->app;
    if (!span) return;
    assert(app->traces && !span->end_ns);
    http->trace = NULL;
    span->end_ns = now_ns();
    span->method = strcmp(method, "other") == 0 ? "_OTHER" : method;
    span->route = route;
    set_status(span, status);
    if (!request) {
        traces_end(app->traces, span);
        return;
    }
    assert(!request->span);
    request->span = span;
}

void tracing_end(struct async_request *request) {
    struct trace_span *span = request->span;
    if (!span) return;
    assert(request->references == 0);
    request->span = NULL;
    if (request->kind->trace) request->kind->trace(request, span);
    traces_end(request->app->traces, span);
}

const char *tracing_operation(const struct api *api) {
    static const char *const chats[] = {"chat", "messages", "responses"};
    const char *last = strrchr(api->path, '/') + 1;
    if (api->reads) return strncmp(last, "embed", 5) == 0 ? "embeddings" : last;
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++)
        if (strstr(api->path, chats[i])) return "chat";
    return "text_completion";
}
