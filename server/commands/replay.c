/* DESIGN: `penstock serve --replay FILE` without a model: answers from a cassette.
 *
 * Only the loop thread runs. A complete request waits in a list until the loop's idle handle
 * answers it, because a stream is flushed piece by piece, which the callbacks of HTTP must not do.
 * A request that was not recorded gets a 404 with the nearest recorded one. Keys, limits and
 * metrics need the whole server, so options for them are refused. A signal closes the port and ends
 * the process after the waiting requests; a second one cuts them off.
 */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "server/apis/apis.h"
#include "server/app/app.h"
#include "server/commands/commands.h"

#define HEADER_BYTES (64 << 10)
#define CONNECTION_MS 75000
#define ANSWER_MS 30000
#define ANSWER_RATE (32 << 10)
#define BACKLOG_BYTES (1 << 20)
#define MAX_BODIES 16

enum { N_SIGNALS = 2 };

struct replay_server {
    struct app *app; /* cassette and options */
    uv_loop_t loop;
    uv_idle_t idle; /* active while requests wait */
    uv_signal_t signals[N_SIGNALS];
    struct http_server *http;
    struct list waiting; /* struct waiting_answer */
    bool stops;
};

struct waiting_answer {
    struct list_node node;
    struct http_request *http;
};

/* ---- answers -------------------------------------------------------------------------------- */

static void answer_models(struct replay_server *replay, struct http_request *http) {
    struct buf body = {0};
    const char *name = "recorded";
    for (int i = cassette_count(replay->app->cassette) - 1; i >= 0; i--) {
        const struct recorded *recorded = cassette_at(replay->app->cassette, i);
        const struct json *model = json_member(recorded->request, "model");
        if (json_length(model) > 0) name = json_text(model);
    }
    struct api_limits limits = {.model = name};
    api_write_models(&body, &limits, NULL, replay->app->started_s);
    respond_json(http, &body);
    buf_free(&body);
}

/* Returns the API of a path, also without its /v1, or NULL. */
static const struct api *find_api(const char *path) {
    char full[128];
    const struct api *api = api_find(path);
    snprintf(full, sizeof full, "/v1%.100s", path);
    return api ? api : api_find(full);
}

static void answer_post(struct replay_server *replay, struct http_request *http) {
    struct cassette *cassette = replay->app->cassette;
    const struct api *api = find_api(http->path);
    const struct recorded *recorded = NULL;
    struct json *body = NULL;
    struct err err = {0};
    if (!api)
        err_set(&err, STATUS_NOT_FOUND, NULL,
                "%.100s has no recorded answers: without --model, this server replays requests "
                "that generate.",
                http->path);
    else if (!json_parse_strict(&body, "The body", http->body, http->body_length, &err))
        recorded = cassette_find(cassette, api->path, body);
    if (body && !recorded) cassette_explain(cassette, api->path, body, &err);
    if (recorded)
        respond_recorded(replay->http, http, recorded);
    else
        respond_error(replay->app, http, &err, NULL);
    json_free(body);
}

static void answer(struct replay_server *replay, struct http_request *http) {
    bool is_post = strcmp(http->method, "POST") == 0;
    struct buf body = {0};
    if (is_post) {
        answer_post(replay, http);
    } else if (strncmp(http->path, "/health", 7) == 0) {
        buf_puts(&body, "{\"status\":\"ok\"}");
        respond_json(http, &body);
        buf_free(&body);
    } else if (strcmp(http->path, "/v1/models") == 0 || strcmp(http->path, "/models") == 0) {
        answer_models(replay, http);
    } else {
        struct err err;
        err_set(&err, STATUS_NOT_FOUND, NULL,
                "%.100s is not served without --model: this server replays %s.", http->path,
                replay->app->options->receipts.replay);
        respond_error(replay->app, http, &err, NULL);
    }
}

static void on_idle(uv_idle_t *idle) {
    struct replay_server *replay = idle->data;
    assert(replay->waiting.n > 0);
    struct waiting_answer *waiting =
        list_entry(list_first(&replay->waiting), struct waiting_answer, node);
    list_remove(&replay->waiting, &waiting->node);
    waiting->http->app = NULL;
    answer(replay, waiting->http);
    http_release(waiting->http);
    mem_free(waiting);
    if (replay->waiting.n == 0) uv_idle_stop(idle);
    http_flush(replay->http);
}

/* ---- HTTP ----------------------------------------------------------------------------------- */

static void on_headers(void *arg, struct http_request *http) {
    (void)arg;
    if (strcmp(http->method, "POST") != 0) http_discard_body(http);
}

static void on_request(void *arg, struct http_request *http) {
    struct replay_server *replay = arg;
    struct waiting_answer *waiting = mem_calloc(1, sizeof *waiting);
    assert(!http->app);
    waiting->http = http;
    http->app = waiting;
    list_append(&replay->waiting, &waiting->node);
    uv_idle_start(&replay->idle, on_idle);
}

static void on_gone(void *arg, struct http_request *http) {
    struct replay_server *replay = arg;
    struct waiting_answer *waiting = http->app;
    if (waiting) list_remove(&replay->waiting, &waiting->node);
    if (replay->waiting.n == 0) uv_idle_stop(&replay->idle);
    mem_free(waiting);
    http_release(http);
}

static void on_done(void *arg, struct http_request *http, int status, uint64_t bytes) {
    struct log_field fields[] = {LOG_S("method", http->method), LOG_S("path", http->target),
                                 LOG_I("status", status), LOG_I("bytes", (long long)bytes),
                                 LOG_S("x_request_id", http->id)};
    (void)arg;
    log_fields(LOG_INFO, "request", fields, sizeof fields / sizeof *fields);
}

static int fields_of(void *arg, struct http_request *http, struct http_field *out) {
    const struct api *api = api_of_errors(http->path);
    int n = 0;
    (void)arg;
    out[n++] = (struct http_field){"X-Request-Id", http->id};
    if (api && api->id_header) out[n++] = (struct http_field){api->id_header, http->id};
    return n;
}

static enum status open_http(struct replay_server *replay, struct err *err) {
    struct http_config config = replay->app->options->http;
    config.max_header_bytes = HEADER_BYTES;
    config.max_bodies_bytes = MAX_BODIES * config.max_body_bytes;
    config.keep_alive_ms = CONNECTION_MS;
    config.answer_timeout_ms = ANSWER_MS;
    config.answer_rate = ANSWER_RATE;
    config.max_stream_backlog = BACKLOG_BYTES;
    config.silence_ms = CONNECTION_MS;
    config.on_headers = on_headers;
    config.on_request = on_request;
    config.on_gone = on_gone;
    config.on_done = on_done;
    config.fields = fields_of;
    config.app = replay;
    config.sockets = replay->app->sockets;
    config.n_sockets = replay->app->n_sockets;
    return http_server_new(&replay->http, &replay->loop, &config, err);
}

/* ---- the process ---------------------------------------------------------------------------- */

static void on_closed(void *arg) {
    uv_stop(&((struct replay_server *)arg)->loop);
}

static void on_signal(uv_signal_t *handle, int number) {
    struct replay_server *replay = handle->data;
    log_line(LOG_INFO, "signal %d", number);
    if (replay->stops)
        http_server_abort(replay->http);
    else
        http_server_drain(replay->http, on_closed);
    replay->stops = true;
}

static void open_loop(struct replay_server *replay) {
    static const int numbers[N_SIGNALS] = {SIGTERM, SIGINT};
    uv_loop_init(&replay->loop);
    uv_idle_init(&replay->loop, &replay->idle);
    replay->idle.data = replay;
    for (int i = 0; i < N_SIGNALS; i++) {
        uv_signal_init(&replay->loop, &replay->signals[i]);
        replay->signals[i].data = replay;
        uv_signal_start(&replay->signals[i], on_signal, numbers[i]);
    }
}

static void close_loop(struct replay_server *replay) {
    if (replay->http) http_server_free(replay->http);
    uv_close((uv_handle_t *)&replay->idle, NULL);
    for (int i = 0; i < N_SIGNALS; i++) uv_close((uv_handle_t *)&replay->signals[i], NULL);
    uv_run(&replay->loop, UV_RUN_DEFAULT);
    uv_loop_close(&replay->loop);
}

/* Refuses options that would have no effect. */
static enum status check_options(const struct options *options, struct err *err) {
    const struct {
        const void *given;
        const char *name;
    } unused[] = {{options->receipts.record, "record"},
                  {options->receipts.key, "receipt-key"},
                  {options->access.api_key, "api-key"},
                  {options->access.admin_key, "admin-key"},
                  {options->access.api_key_file, "api-key-file"},
                  {options->access.metrics_key, "metrics-key"},
                  {options->traces.endpoint, "otlp-traces-endpoint"}};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        if (unused[i].given)
            return err_set(err, STATUS_USAGE, unused[i].name,
                           "{%s} needs a model: give {model}, or leave it out with {replay}",
                           unused[i].name);
    return STATUS_OK;
}

int replay_serve(struct app *app) {
    struct replay_server replay = {.app = app};
    struct err err;
    if (check_options(app->options, &err)) return print_error(&err);
    assert(app->cassette && !app->engine);
    list_init(&replay.waiting);
    open_loop(&replay);
    int code = open_http(&replay, &err) ? print_error(&err) : 0;
    if (code == 0) {
        log_line(LOG_INFO, "ready on port %d, without a model: %d recorded answers of %s",
                 http_server_port(replay.http), cassette_count(app->cassette),
                 app->options->receipts.replay);
        uv_run(&replay.loop, UV_RUN_DEFAULT);
        log_line(LOG_INFO, "stopped");
    }
    close_loop(&replay);
    return code;
}
