/* Maps paths to functions, and refuses requests before their body is read. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/apis/apis.h"
#include "server/endpoints/endpoints.h"
#include "server/generation/job.h"
#include "server/ollama/ollama.h"

/* ---- paths ---------------------------------------------------------------------------------- */

enum { MAX_PATH = 512 }; /* longer paths are unknown */

/* Writes the canonical form of a path, by which routes are found, and returns `out`. It omits a
 * slash at the end, which clients add to their base address, and adds /v1 to paths that
 * llama-server also serves without it. */
static const char *canonical(const char *path, char out[MAX_PATH]) {
    static const char *const short_paths[] = {"/models",     "/completions", "/chat/completions",
                                              "/embeddings", "/score",       "/classify",
                                              "/pooling",    "/reranking"};
    size_t n = strlen(path);
    if (n > 1 && path[n - 1] == '/') n--;
    out[0] = 0;
    if (n + sizeof "/v1" > MAX_PATH) return out;
    bool is_short = n > 8 && strncmp(path, "/models/", 8) == 0;
    for (size_t i = 0; i < sizeof short_paths / sizeof *short_paths; i++) {
        is_short |= strlen(short_paths[i]) == n && strncmp(path, short_paths[i], n) == 0;
    }
    snprintf(out, MAX_PATH, "%s%.*s", is_short ? "/v1" : "", (int)n, path);
    return out;
}

/* ---- answers -------------------------------------------------------------------------------- */

static void on_models(struct app *app, struct http_request *http) {
    const char *name = http->path + strlen("/v1/models");
    struct buf body = {0};
    if (*name == '/') name++;
    if (*name && !api_serves(&app->limits, name, strlen(name))) {
        struct err err;
        struct buf names = {0};
        api_list_models(&names, &app->limits);
        if (app->limits.adapters)
            err_set(&err, STATUS_NOT_FOUND, "model",
                    "The model `%.100s` does not exist; this server has %s.", name, names.data);
        else
            err_set(&err, STATUS_NOT_FOUND, "model",
                    "The model `%.100s` does not exist; this server has `%.100s`.", name,
                    app->model_name);
        buf_free(&names);
        snprintf(err.code, sizeof err.code, "model_not_found");
        respond_error(app, http, &err, NULL);
    } else {
        api_write_models(&body, &app->limits, *name ? name : NULL, app->started_s);
        respond_json(http, &body);
    }
    buf_free(&body);
    http_release(http);
}

/* Drains the server as SIGTERM does. The answer states the delays. */
static void on_drain(struct app *app, struct http_request *http) {
    struct buf body = {0};
    lifecycle_drain(app, true);
    buf_printf(&body, "{\"status\":\"draining\",\"requests\":%d,\"delay_s\":%d,\"timeout_s\":%d}",
               app->requests.n, app->options->drain.delay_s, app->options->drain.timeout_s);
    respond_json(http, &body);
    buf_free(&body);
    http_release(http);
}

/* ---- the table ------------------------------------------------------------------------------ */

#define STORED_METHODS "GET, HEAD, POST, DELETE, OPTIONS"

static const struct route fixed_routes[] = {
    {"/v1/models", "GET", .answer = on_models, .summary = "Lists the names of the model",
     .answer_members = "object data"},
    {"/v1/models/", "GET", .answer = on_models, .summary = "Describes the model",
     .answer_members = "id object created owned_by"},
    {"/tokenize", "POST", .reads_body = true, .answer = tokenize_start,
     .summary = "Returns the tokens of a text or of messages", .fields = &tokenize_fields,
     .example = "\"prompt\":\"Hello\"", .answer_members = "count max_model_len tokens"},
    {"/detokenize", "POST", .reads_body = true, .answer = detokenize_start,
     .summary = "Returns the text of tokens", .fields = &detokenize_fields,
     .example = "\"tokens\":[1,2]", .answer_members = "prompt content"},
    {"/tokenizer_info", "GET", .answer = tokenizer_info_start,
     .summary = "Describes the tokenizer and its chat template",
     .answer_members = "tokenizer_class model_max_length added_tokens_decoder chat_template"},
    {"/health", "GET", .public = true, .answer = health_ready,
     .summary = "Is the server ready for requests?"},
    {"/health/live", "GET", .public = true, .answer = health_live,
     .summary = "Does the process run?"},
    {"/health/ready", "GET", .public = true, .answer = health_ready,
     .summary = "Is the server ready for requests?"},
    {"/ping", "GET", .public = true, .answer = health_ready,
     .summary = "Is the server ready for requests?"},
    {"/load", "GET", .public = true, .answer = health_load,
     .summary = "Returns the number of open requests", .answer_members = "server_load"},
    {"/openapi.json", "GET", .public = true, .answer = openapi_answer,
     .summary = "Returns this document", .answer_members = "openapi info paths components"},
    {"/metrics", "GET", .monitored = true, .answer = health_metrics, .type = "text/plain",
     .summary = "Returns the metrics for Prometheus"},
    {"/version", "GET", .monitored = true, .answer = health_version,
     .summary = "Returns the program's version", .answer_members = "version commit build backend"},
    {"/kv_event_sources", "GET", .monitored = true, .answer = health_kv_event_sources,
     .summary = "Returns where routers find the events of the prefix cache"},
    {"/get_server_info", "GET", .monitored = true, .answer = health_server_info,
     .summary = "Tells routers the model and the sizes of its KV cache",
     .answer_members = "model_id kv_block_size max_model_len max_num_seqs"},
    {"/", "GET", .public = true, .answer = page_root, .type = "text/plain",
     .summary = "Answers browsers with the web page, and Ollama's clients with a line of text"},
    {"/page/", "GET", .public = true, .answer = page_part, .type = "text/javascript",
     .summary = "Returns a file of the web page"},
    {"/penstock/live", "GET", .answer = live_answer,
     .summary = "Returns a snapshot of the batch, or two a second as events",
     .answer_members = "running waiting swapped blocks step last_minute"},
    {"/api/version", "GET", .answer = ollama_version, .summary = "Returns a version of Ollama",
     .answer_members = "version penstock"},
    {"/api/tags", "GET", .answer = ollama_tags, .summary = "Lists the names of the model",
     .answer_members = "models"},
    {"/api/ps", "GET", .answer = ollama_ps, .summary = "Lists the model as loaded",
     .answer_members = "models"},
    {"/api/show", "POST", .reads_body = true, .answer = ollama_show_start,
     .summary = "Describes the model", .fields = &ollama_show_fields, .example = "",
     .answer_members = "parameters template details model_info capabilities modified_at"},
    {"/props", "GET", .answer = llama_props, .summary = "Describes the server",
     .answer_members = "default_generation_settings total_slots chat_template modalities"},
    {"/slots", "GET", .answer = llama_slots, .summary = "Lists the sequences that can run"},
    {"/apply-template", "POST", .reads_body = true, .answer = llama_template_start,
     .summary = "Returns messages as the model's prompt", .fields = &template_fields,
     .example = "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]",
     .answer_members = "prompt"},
    {"/v1/load_lora_adapter", "POST", .admin = true, .reads_body = true, .answer = lora_load_start,
     .summary = "Loads an adapter", .fields = &lora_load_fields,
     .example = "\"lora_name\":\"a\",\"lora_path\":\"a\""},
    {"/v1/unload_lora_adapter", "POST", .admin = true, .reads_body = true,
     .answer = lora_unload_start, .summary = "Unloads an adapter after its last request",
     .fields = &lora_unload_fields, .example = "\"lora_name\":\"a\""},
    {"/drain", "POST", .admin = true, .answer = on_drain,
     .summary = "Finishes all requests, then ends the server",
     .answer_members = "status requests delay_s timeout_s"},
};

/* Of a server with --state-dir, after all others: their path is the beginning of others. */
static const struct route stored_routes[] = {
    {"/v1/responses/", "GET", .answer = stored_get, .methods = STORED_METHODS,
     .summary = "Returns a stored response, its events with stream=true, or its input: "
                "{id}/input_items"},
    {"/v1/responses/", "DELETE", .answer = stored_delete, .methods = STORED_METHODS,
     .summary = "Deletes a stored response", .answer_members = "id object deleted"},
    {"/v1/responses/", "POST", .answer = stored_post, .methods = STORED_METHODS,
     .summary = "Cancels a background response: {id}/cancel", .answer_members = "id object status"},
};

/* The route of unknown paths. */
static const struct route nowhere = {.path = ""};

static void add_route(struct app *app, const struct route *route) {
    size_t n = (size_t)app->n_routes + 1;
    app->routes = mem_realloc(app->routes, n * sizeof *app->routes);
    app->routes[app->n_routes++] = *route;
}

void routes_open(struct app *app) {
    assert(!app->routes);
    for (size_t i = 0; i < sizeof fixed_routes / sizeof *fixed_routes; i++) {
        add_route(app, &fixed_routes[i]);
    }
    for (int i = 0; api_at(i); i++) {
        struct route generation = {.method = "POST",
                                   .reads_body = true,
                                   .generates = true,
                                   .api = api_at(i),
                                   .start = reply_start,
                                   .summary = "Generates an answer",
                                   .answer_members = api_at(i)->answer_members};
        struct route rendering = generation;
        rendering.generates = false;
        rendering.start = render_start;
        rendering.summary = "Returns the tokens of the prompt that the same body generates from";
        rendering.answer_members = NULL;
        snprintf(generation.path, ROUTE_PATH, "%s", api_at(i)->path);
        int n = snprintf(rendering.path, ROUTE_PATH, "%s/render", api_at(i)->path);
        assert(n < ROUTE_PATH);
        (void)n;
        add_route(app, &generation);
        add_route(app, &rendering);
        if (!api_at(i)->count_path) continue;
        struct route counting = rendering;
        counting.start = count_start;
        counting.summary = "Counts the tokens of the prompt of the same body";
        counting.answer_members = "input_tokens";
        snprintf(counting.path, ROUTE_PATH, "%s", api_at(i)->count_path);
        add_route(app, &counting);
    }
    for (size_t i = 0; app->limits.keeps && i < sizeof stored_routes / sizeof *stored_routes; i++)
        add_route(app, &stored_routes[i]);
    openapi_write(&app->openapi, app);
}

void routes_close(struct app *app) {
    mem_free(app->routes);
    app->routes = NULL;
    app->n_routes = 0;
    buf_free(&app->openapi);
}

/* Returns the route of a canonical path, of several the one with the method if there is one. */
static const struct route *find_route(const struct app *app, const char *path, const char *method) {
    const struct route *first = NULL;
    assert(app->routes);
    for (int i = 0; i < app->n_routes; i++) {
        const char *known = app->routes[i].path;
        size_t n = strlen(known);
        bool fits = n > 1 && known[n - 1] == '/' ? strncmp(known, path, n) == 0 && path[n] != 0
                                                 : strcmp(known, path) == 0;
        if (!fits) continue;
        if (!app->routes[i].methods || strcmp(app->routes[i].method, method) == 0)
            return &app->routes[i];
        if (!first) first = &app->routes[i];
    }
    return first ? first : &nowhere;
}

/* Monitors send such requests every second. */
static bool is_probe(const struct route *route) {
    return route->public || route->monitored;
}

static bool is_served(const struct route *route) {
    return route->path[0] != 0;
}

/* ---- early refusal -------------------------------------------------------------------------- */

static enum status not_json(struct err *err) {
    return err_set(err, STATUS_MEDIA_TYPE, NULL,
                   "The body must be JSON: Content-Type: application/json.");
}

/* Is it this media type, ignoring parameters? */
static bool is_type(const char *type, const char *name) {
    size_t n = strcspn(type, "; \t");
    return n == strlen(name) && strncasecmp(type, name, n) == 0;
}

/* curl -d marks all bodies as forms, and users paste such commands. */
static bool is_form(const struct http_request *http) {
    const char *type = http_header(http, "Content-Type");
    return type && is_type(type, "application/x-www-form-urlencoded");
}

static enum status check_body_type(const struct http_request *http, struct err *err) {
    const char *type = http_header(http, "Content-Type");
    const char *coding = http_header(http, "Content-Encoding");
    if (strcmp(http->method, "POST") != 0) return STATUS_OK;
    if (type && *type && !is_form(http)) {
        size_t n = strcspn(type, "; \t");
        bool ends_json = n > 5 && strncasecmp(type + n - 5, "+json", 5) == 0;
        bool is_json = is_type(type, "application/json") || is_type(type, "text/json") || ends_json;
        if (!is_json) return not_json(err);
    }
    if (!coding || !*coding || strcasecmp(coding, "identity") == 0) return STATUS_OK;
    return err_set(err, STATUS_MEDIA_TYPE, NULL,
                   "The body must be sent without a Content-Encoding.");
}

/* Checks the limits of the request's key. */
static enum status check_limits(const struct app *app, const struct http_request *http,
                                struct err *err) {
    struct api_key *key = auth_key(app, http);
    return key ? key_check(key, now_ns(), err) : STATUS_OK;
}

static enum status refuse_generation(struct app *app, struct err *err) {
    if (app->draining) {
        return err_set(err, STATUS_UNAVAILABLE, NULL, "The server is shutting down.");
    }
    if (app->failure.status) {
        return err_set(err, STATUS_UNAVAILABLE, NULL, "%s", app->failure.message);
    }
    if (scheduler_has_room(app->scheduler, app->n_preparing + 1, 0)) return STATUS_OK;
    app->metrics.refused_overload++;
    err_set(err, STATUS_OVERLOADED, NULL,
            "The waiting queue is full (%d requests); try again later.",
            app->options->scheduler.max_queued_requests);
    err->retry_after_s = scheduler_retry_s(app->scheduler);
    return STATUS_OVERLOADED;
}

static const char *methods_of(const struct route *route) {
    if (route->methods) return route->methods;
    return strcmp(route->method, "GET") == 0 ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
}

static enum status check_key(const struct app *app, const struct http_request *http,
                             const struct route *route, struct err *err) {
    if (route->admin && !auth_is_admin(app, http)) {
        return err_set(err, STATUS_AUTHENTICATION, NULL, "%s",
                       app->admin_keys.n > 0
                           ? "An admin key is needed: Authorization: Bearer <key>."
                           : "An admin key is needed, but this server runs without one: start it "
                             "with --admin-key.");
    }
    const struct keys *keys = route->monitored ? &app->metrics_keys : &app->keys;
    if (route->public || auth_accepts(app, keys, http)) return STATUS_OK;
    return err_set(err, STATUS_AUTHENTICATION, NULL,
                   "A valid %s key is needed: Authorization: Bearer <key>.",
                   route->monitored ? "metrics" : "API");
}

static const char *unknown_hint(const char *path) {
    if (strncmp(path, "/v1/responses/", 14) == 0)
        return " Responses are stored by a server with --state-dir.";
    return strncmp(path, "/v1/", 4) == 0 ? " This server generates text: POST /v1/chat/completions "
                                           "or /v1/completions."
                                         : "";
}

static enum status check_headers(struct app *app, const struct http_request *http,
                                 const struct route *route, const char **allow, struct err *err) {
    if (check_key(app, http, route, err)) return err->status;
    if (!is_served(route) && ollama_unserved(http->path))
        return err_set(err, STATUS_NOT_IMPLEMENTED, NULL, "%s", ollama_unserved(http->path));
    if (!is_served(route)) { /* OpenAI's clients show the message for unsupported paths */
        return err_set(err, STATUS_NOT_FOUND, NULL, "Unknown path %.200s.%s", http->target,
                       unknown_hint(http->path));
    }
    bool is_get = strcmp(route->method, "GET") == 0;
    bool is_head = is_get && strcmp(http->method, "HEAD") == 0;
    if (strcmp(route->method, http->method) != 0 && !is_head) {
        *allow = methods_of(route);
        const char *taken = is_get ? "GET, HEAD" : route->method;
        if (route->methods) taken = route->methods;
        return err_set(err, STATUS_METHOD_NOT_ALLOWED, NULL, "%s takes %s, not %.20s.",
                       http->target, taken, http->method);
    }
    if (check_body_type(http, err)) return err->status;
    if (!route->generates) return STATUS_OK;
    enum status status = refuse_generation(app, err);
    return status ? status : check_limits(app, http, err);
}

/* Computes the canonical path and finds its route, once; later code uses these two. Returns false
 * if memory is short. */
static bool set_route(const struct app *app, struct http_request *http) {
    char path[MAX_PATH];
    assert(!http->route);
    canonical(http->target, path);
    if (strcmp(path, http->path) != 0 && !http_set_path(http, path)) return false;
    http->route = find_route(app, http->path, http->method);
    return true;
}

/* The arguments of an HTTP callback, run in a scope of memory. */
struct visit {
    struct app *app;
    struct http_request *http;
};

static void take_headers(void *arg) {
    const struct visit *visit = arg;
    struct app *app = visit->app;
    struct http_request *http = visit->http;
    struct err err;
    const char *allow = NULL;
    const struct route *route = http->route;
    proxies_name_client(app, http);
    if (!is_probe(route)) supervisor_touch(app);
    if (!is_probe(route)) tracing_begin(app, http);
    if (is_served(route) && strcmp(http->method, "OPTIONS") == 0) {
        cors_answer_options(app, http, methods_of(route));
        return;
    }
    if (check_headers(app, http, route, &allow, &err) == STATUS_OK) {
        if (!route->reads_body) http_discard_body(http);
        return;
    }
    respond_error(app, http, &err, allow);
    http_release(http);
}

/* Runs a callback; refuses the request if memory is short. The callback must allocate all memory
 * before it answers. */
static void visit(struct app *app, struct http_request *http, void (*take)(void *visit)) {
    struct visit arg = {app, http};
    if (mem_run(take, NULL, &arg)) return;
    respond_out_of_memory(app, http);
    http_release(http);
}

void routes_on_headers(void *app, struct http_request *http) {
    if (set_route(app, http)) {
        visit(app, http, take_headers);
        return;
    }
    respond_out_of_memory(app, http);
    http_release(http);
}

static void take_request(void *arg) {
    const struct visit *visit = arg;
    struct app *app = visit->app;
    struct http_request *http = visit->http;
    const struct route *route = http->route;
    assert(is_served(route) && (route->api ? route->start != NULL : route->answer != NULL));
    const char *body = http->body + strspn(http->body, " \t\r\n");
    if (route->reads_body && is_form(http) && *body != '{' && *body != '[') {
        struct err err;
        not_json(&err);
        respond_error(app, http, &err, NULL);
        http_release(http);
    } else if (route->api)
        route->start(app, http, route->api);
    else
        route->answer(app, http);
}

void routes_on_request(void *app, struct http_request *http) {
    visit(app, http, take_request);
}

void routes_on_gone(void *arg, struct http_request *http) {
    if (http->app) {
        async_gone(http->app);
        return;
    }
    live_leave(arg, http);
    http_release(http); /* a watcher, or its body never arrived */
}

int routes_fields(void *arg, struct http_request *http, struct http_field *out) {
    const struct api *api = api_of_errors(http->path);
    int n = 0;
    out[n++] = (struct http_field){"X-Request-Id", http->id};
    if (api && api->id_header) out[n++] = (struct http_field){api->id_header, http->id};
    if (http->trace) out[n++] = (struct http_field){"traceresponse", tracing_span(http)->response};
    return n + cors_fields(arg, http, out + n);
}

size_t routes_error_body(void *arg, const struct http_request *http, const struct err *err,
                         char *out, size_t size) {
    char path[MAX_PATH];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(http->path, "?"), http->path);
    const struct api *api = api_of_errors(path);
    (void)arg;
    return api ? respond_error_body(api, http, err, out, size) : 0;
}

/* ---- access log ----------------------------------------------------------------------------- */

/* Returns the request's traceparent header, or NULL if it is missing, invalid or too long. */
static const char *trace_parent(const struct http_request *http) {
    struct trace_context context;
    const char *text = http_header(http, "traceparent");
    return text && strlen(text) <= 128 && trace_context_read(&context, text) ? text : NULL;
}

/* Writes the id of a span's trace in hex. */
static const char *trace_id_of(const struct trace_span *span, char out[2 * TRACE_ID_BYTES + 1]) {
    snprintf(out, 2 * TRACE_ID_BYTES + 1, "%s", span->response + strlen("00-"));
    return out;
}

/* Returns the method as a label of metrics; a client must not create new labels. */
static const char *method_name(const char *method) {
    static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(method, known[i]) == 0) return known[i];
    }
    return "other";
}

/* Returns the route, also of a request that was refused before its canonical path was set. */
static const struct route *route_of(const struct app *app, const struct http_request *http) {
    char path[MAX_PATH];
    return http->route ? http->route : find_route(app, canonical(http->target, path), http->method);
}

/* Writes the access log. Probes and scrapes arrive every second: they are not counted, and are
 * logged only at level DEBUG unless they fail. */
void routes_on_done(void *arg, struct http_request *http, int status, uint64_t bytes) {
    struct app *app = arg;
    const struct route *route = route_of(app, http);
    bool quiet = is_probe(route);
    double seconds = (double)(now_ns() - http->received_ns) * 1e-9;
    bool is_counted = status >= 100 && status < 600; /* false: nothing was sent */
    if (is_counted) app->metrics.http_requests[status / 100]++;
    if (is_counted && !quiet) {
        const char *path = is_served(route) ? route->path : "none";
        metrics_count_http(&app->metrics, path, method_name(http->method), status, seconds);
    }
    if (!quiet) supervisor_touch(app);
    const char *trace = trace_parent(http);
    char trace_id[2 * TRACE_ID_BYTES + 1];
    struct log_field fields[20];
    int n = 0;
    fields[n++] = LOG_S("client", http->client);
    fields[n++] = LOG_S("method", http->method);
    fields[n++] = LOG_S("path", http->target);
    fields[n++] = LOG_I("status", status);
    fields[n++] = LOG_I("bytes", (long long)bytes);
    fields[n++] = LOG_R("ms", seconds * 1e3);
    fields[n++] = LOG_S("x_request_id", http->id);
    if (trace) fields[n++] = LOG_S("traceparent", trace);
    if (http->trace) fields[n++] = LOG_S("trace_id", trace_id_of(tracing_span(http), trace_id));
    struct async_request *request = http->app;
    if (request) n += async_log_fields(request, fields + n);
    assert(n <= (int)(sizeof fields / sizeof *fields));
    log_fields(quiet && status < 400 ? LOG_DEBUG : LOG_INFO, "request", fields, n);
    tracing_done(app, http, method_name(http->method), is_served(route) ? route->path : NULL,
                 status);
    if (request) async_unref(request);
}
