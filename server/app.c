/* DESIGN: the parts of a serving process.
 *
 * They are opened in this order and closed in the reverse order: engine (model, memory), scheduler
 * (its thread), loop, HTTP. The port is bound last, so every client that can connect is answered.
 * The loop runs until lifecycle.c stops it. All jobs have then ended, so the scheduler sends no
 * more events and its thread can end before the loop's handles are closed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>

#include "server/app.h"
#include "server/commands/commands.h"
#include "server/generation/grammar_store.h"

#define IDLE_CONNECTION_MS 75000
#define ANSWER_MS 30000        /* for a client to read an answer, plus a second per */
#define ANSWER_RATE (32 << 10) /* this many bytes */
#define MAX_HEADER_BYTES (64 << 10)
#define MAX_STREAM_BACKLOG (1 << 20)
#define SILENCE_MS 15000
#define MAX_BODIES 16 /* limit on buffered request bodies of the maximum size */
#define MAX_PROMPTS 256

/* ---- names and limits ----------------------------------------------------------------------- */

void app_set_name(struct app *app) {
    const char *served = app->options->served_model_name;
    _Static_assert(sizeof app->names > MODEL_NAME_BYTES, "a path's name has room");
    memset(app->names, 0, sizeof app->names);
    app->model_name = app->names;
    if (!served) {
        model_path_name(app->names, app->options->model);
        return;
    }
    char *out = app->names, *end = app->names + sizeof app->names - 2;
    while (*served && out < end) {
        size_t n = strcspn(served, ",");
        int taken = snprintf(out, (size_t)(end - out), "%.*s", (int)n, served);
        if (taken > 0) out += min_int(taken, (int)(end - out)) + 1;
        served += n + (served[n] == ',');
    }
}

static bool is_word_for_formats(const char *name) {
    return strcmp(name, "auto") == 0 || strcmp(name, "none") == 0;
}

enum status app_check_parsers(const struct options *options, struct err *err) {
    const char *tool = options->tool_call_parser, *reasoning = options->reasoning_parser;
    struct buf names = {0};
    enum status status = STATUS_OK;
    if (!is_word_for_formats(tool) && !tool_format_find(tool)) {
        tool_format_names(&names);
        status = err_set(err, STATUS_USAGE, "tool-call-parser",
                         "--tool-call-parser must be auto, none or one of %s, but it is %.40s",
                         names.data, tool);
    } else if (!is_word_for_formats(reasoning) && !reasoning_format_find(reasoning)) {
        reasoning_format_names(&names);
        status = err_set(err, STATUS_USAGE, "reasoning-parser",
                         "--reasoning-parser must be auto, none or one of %s, but it is %.40s",
                         names.data, reasoning);
    }
    buf_free(&names);
    return status;
}

/* Sets the model's formats of calls and reasoning, from the options or its template. */
static void set_formats(struct app *app) {
    const struct chat_template *chat = engine_chat_template(app->engine, true);
    const char *tool = app->options->tool_call_parser, *reasoning = app->options->reasoning_parser;
    size_t length = 0;
    const char *source = chat ? chat_template_source(chat, &length) : "";
    app->limits.tool_format = tool_format_find(tool);
    app->limits.reasoning_format = reasoning_format_find(reasoning);
    if (strcmp(tool, "auto") == 0)
        app->limits.tool_format = tool_format_of_template(source, length);
    if (strcmp(reasoning, "auto") == 0)
        app->limits.reasoning_format = reasoning_format_of_template(source, length);
}

/* Sets the limits on a request, from the model and the options. */
void app_set_limits(struct app *app) {
    const struct options *options = app->options;
    uint64_t seed = (uint64_t)options->seed;
    if (options->seed < 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = now_ns();
    app->limits = (struct api_limits){
        .model = app->model_name,
        .more = app->model_name == app->names ? app->names + strlen(app->names) + 1 : NULL,
        .any_model = options->any_model_name,
        .V = engine_model(app->engine)->V,
        .max_model_len = engine_memory(app->engine)->max_model_len,
        .max_choices = min_int(options->max_num_seqs, MAX_CHOICES),
        /* more could never be queued */
        .max_prompts = min_int(options->max_queued_requests, MAX_PROMPTS),
        .default_seed = seed,
        .has_chat_template = engine_chat_template(app->engine, false) != NULL,
        .sampling = options->generation_config == GENERATION_CONFIG_AUTO
                        ? engine_sampling_defaults(app->engine)
                        : NULL,
    };
    set_formats(app);
}

/* ---- parts ---------------------------------------------------------------------------------- */

static enum status open_http(struct app *app, struct err *err) {
    const struct options *options = app->options;
    struct http_config config = {
        .host = options->host,
        .port = options->port,
        .max_header_bytes = MAX_HEADER_BYTES,
        .max_body_bytes = (size_t)options->max_body_size,
        .max_bodies_bytes = MAX_BODIES * (size_t)options->max_body_size,
        .request_timeout_ms = options->request_timeout_s * 1000,
        .keep_alive_ms = IDLE_CONNECTION_MS,
        .max_connections = options->max_connections,
        .answer_timeout_ms = ANSWER_MS,
        .answer_rate = ANSWER_RATE,
        .max_stream_backlog = MAX_STREAM_BACKLOG,
        .silence_ms = SILENCE_MS,
        .on_headers = routes_on_headers,
        .on_request = routes_on_request,
        .on_gone = routes_on_gone,
        .on_done = routes_on_done,
        .fields = routes_fields,
        .app = app,
    };
    return http_server_new(&app->http, &app->loop, &config, err);
}

enum status app_open(struct app *app, struct err *err) {
    list_init(&app->requests);
    app_set_limits(app);
    routes_open(app);
    app->grammars =
        grammar_store_new(app->engine, app->limits.V, (size_t)app->options->grammar_cache,
                          (size_t)app->options->grammar_memory);
    app->answers.max_bytes = ANSWERS_MAX_BYTES;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* each connection is a file */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    uv_loop_init(&app->loop);
    bridge_init(app, NULL);
    lifecycle_init(app);
    async_init(app);
    struct scheduler_config config = scheduler_config_from(app->options, app->engine);
    config.draft_engine = app->draft_engine;
    config.on_events = bridge_on_events;
    config.on_failure = bridge_on_failure;
    config.arg = app;
    app->scheduler = scheduler_new(&config, app->engine);
    scheduler_start(app->scheduler);
    return open_http(app, err);
}

void app_close(struct app *app) {
    if (app->http) http_server_free(app->http);
    scheduler_free(app->scheduler);
    lifecycle_close(app);
    async_close(app);
    bridge_close(app);
    uv_run(&app->loop, UV_RUN_DEFAULT);
    uv_loop_close(&app->loop);
    grammar_store_free(app->grammars);
    routes_close(app);
    buf_free(&app->keys);
    buf_free(&app->proxies);
    buf_free(&app->admin_keys);
    buf_free(&app->metrics_keys);
}
