/* Answers of all paths: errors in the form of the request's API, and JSON. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/apis/apis.h"
#include "server/app/app.h"

struct error_answer {
    const struct err *err;
    const struct api *api; /* NULL: OpenAI's form */
    const char *request_id;
    struct buf body;
};

static void write_error(void *arg) {
    struct error_answer *answer = arg;
    if (answer->api)
        answer->api->write_error(&answer->body, answer->err, answer->request_id);
    else
        api_write_error(&answer->body, answer->err);
}

static void drop_error(void *arg) {
    buf_free(&((struct error_answer *)arg)->body);
}

/* Returns the seconds until a next process of this server may serve: this one ends after its
 * requests, at most --drain-timeout later, and the next one starts as long as this one did. */
static int restart_s(const struct app *app, uint64_t now) {
    int requests_s = app->requests.n > 0 ? pace_seconds(&app->pace, now, app->requests.n) : 0;
    int start_s = (int)min_int64((int64_t)(app->start_ns / 1000000000), PACE_MAX_S);
    int seconds = start_s + min_int(requests_s, app->options->drain.timeout_s);
    return seconds < 1 ? 1 : min_int(seconds, PACE_MAX_S);
}

int respond_retry_s(const struct app *app, const struct err *err) {
    uint64_t now = now_ns();
    if (err->retry_after_s > 0) return err->retry_after_s;
    if (err->status != STATUS_OVERLOADED && err->status != STATUS_UNAVAILABLE) return 0;
    if (app->draining || app->failure.status) return restart_s(app, now);
    return pace_seconds(&app->pace, now, 1);
}

void respond_out_of_memory(const struct app *app, struct http_request *http) {
    const struct api *api = api_of_errors(http->path);
    const char *body = (api ? api : &api_chat)->no_memory_body;
    const struct err err = {.status = STATUS_UNAVAILABLE, .code = "out_of_memory"};
    char seconds[12];
    tracing_error(http, &err);
    snprintf(seconds, sizeof seconds, "%d", respond_retry_s(app, &err));
    struct http_field field = {"Retry-After", seconds};
    http_respond(http, 503, "application/json", body, strlen(body), &field, 1);
}

void respond_error(const struct app *app, struct http_request *http, const struct err *why,
                   const char *allow) {
    struct err timed = *why, *err = &timed;
    assert(err->status != STATUS_OK);
    tracing_error(http, err);
    err->retry_after_s = respond_retry_s(app, why);
    struct http_field fields[2];
    char seconds[12];
    int n = 0;
    snprintf(seconds, sizeof seconds, "%d", err->retry_after_s);
    if (allow)
        fields[n++] = (struct http_field){"Allow", allow};
    else if (err->retry_after_s > 0)
        fields[n++] = (struct http_field){"Retry-After", seconds};
    else if (err->status == STATUS_AUTHENTICATION) {
        fields[n++] = (struct http_field){"WWW-Authenticate", "Bearer"};
        fields[n++] = (struct http_field){"X-Should-Retry", "false"}; /* Claude Code retries 401 */
    }
    struct error_answer answer = {
        .err = err, .api = api_of_errors(http->path), .request_id = http->id};
    if (!mem_run(write_error, drop_error, &answer)) {
        respond_out_of_memory(app, http);
        return;
    }
    http_respond(http, api_http(answer.api, err->status), "application/json", answer.body.data,
                 answer.body.length, fields, n);
    buf_free(&answer.body);
}

size_t respond_error_body(const struct api *api, const struct http_request *http,
                          const struct err *err, char *out, size_t size) {
    struct error_answer answer = {.err = err, .api = api, .request_id = http->id};
    if (!mem_run(write_error, drop_error, &answer)) return 0;
    size_t length = answer.body.length;
    if (length > size) length = 0;
    if (length > 0) memcpy(out, answer.body.data, length);
    buf_free(&answer.body);
    return length;
}

void respond_json(struct http_request *http, struct buf *body) {
    http_respond_take(http, 200, "application/json", body, NULL, 0);
}

/* A flush after each piece keeps the borders of chunks: all unread bytes leave together. */
static void stream_recorded(struct http_server *server, struct http_request *http,
                            const struct recorded *recorded, const struct http_field *ignored,
                            int n_ignored) {
    struct http_field fields[3] = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    if (n_ignored > 0) fields[2] = *ignored;
    http_stream_begin(http, recorded->status, recorded->type, NULL, fields, 2 + n_ignored);
    http_flush(server);
    json_each(piece, recorded->pieces) {
        if (!http_stream_write(http, json_text(piece), json_length(piece))) break;
        http_flush(server);
    }
    http_stream_end(http);
}

void respond_recorded(struct http_server *server, struct http_request *http,
                      const struct recorded *recorded) {
    struct http_field ignored = {"X-Penstock-Ignored", recorded->ignored};
    const struct json *whole = json_first(recorded->pieces);
    int n = recorded->ignored != NULL;
    if (!http->has_own_id) snprintf(http->id, sizeof http->id, "%s", recorded->id);
    if (recorded->is_stream)
        stream_recorded(server, http, recorded, &ignored, n);
    else
        http_respond(http, recorded->status, recorded->type, json_text(whole), json_length(whole),
                     &ignored, n);
}
