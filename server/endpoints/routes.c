/* Which path does what, and which requests are refused before their body is read. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/app.h"

/* ---- answers -------------------------------------------------------------------------------- */

void respond_error(struct http_request *http, const struct err *err, const char *allow) {
    struct buf body = {0};
    struct http_field field = {NULL, NULL};
    if (allow)
        field = (struct http_field){"Allow", allow};
    else if (err->status == STATUS_OVERLOADED)
        field = (struct http_field){"Retry-After", "1"};
    else if (err->status == STATUS_UNAVAILABLE)
        field = (struct http_field){"Retry-After", "5"};
    else if (err->status == STATUS_AUTHENTICATION) {
        field = (struct http_field){"WWW-Authenticate", "Bearer"};
    }
    const struct api *api = api_find(http->path);
    (api ? api->write_error : api_write_error)(&body, err);
    http_respond(http, status_http(err->status), "application/json", body.data, body.length, &field,
                 field.name != NULL);
    buf_free(&body);
}

void respond_json(struct http_request *http, const struct buf *body) {
    http_respond(http, 200, "application/json", body->data, body->length, NULL, 0);
}

static void on_models(struct app *app, struct http_request *http) {
    const char *prefix = "/v1/models/";
    bool list = strncmp(http->path, prefix, strlen(prefix)) != 0;
    struct buf body = {0};
    if (!list && strcmp(http->path + strlen(prefix), app->model_name) != 0) {
        struct err err;
        err_set(&err, STATUS_NOT_FOUND, "model",
                "The model `%.100s` does not exist; this server has `%.100s`.",
                http->path + strlen(prefix), app->model_name);
        snprintf(err.code, sizeof err.code, "model_not_found");
        respond_error(http, &err, NULL);
    } else {
        api_write_models(&body, app->model_name, app->limits.max_model_len, app->started_s, list);
        respond_json(http, &body);
    }
    buf_free(&body);
    http_release(http);
}

/* The server ends as after a SIGTERM; the answer says when. */
static void on_drain(struct app *app, struct http_request *http) {
    struct buf body = {0};
    lifecycle_drain(app, true);
    buf_printf(&body, "{\"status\":\"draining\",\"requests\":%d,\"delay_s\":%d,\"timeout_s\":%d}",
               app->requests.n, app->options->drain_delay_s, app->options->drain_timeout_s);
    respond_json(http, &body);
    buf_free(&body);
    http_release(http);
}

/* ---- routes --------------------------------------------------------------------------------- */

/* One path. Those of an API are found in the list of APIs, and are refused while there is no room
 * in the queue. */
struct route {
    const char *path;      /* a path that ends in '/' stands for everything below it */
    const char *method;    /* GET also answers HEAD */
    bool public;           /* needs no key: what probes ask */
    bool monitored;        /* needs one of --metrics-key, if there are any: what monitors read */
    bool admin;            /* needs an admin key */
    const struct api *api; /* generates by it; otherwise `answer` answers */
    void (*answer)(struct app *app, struct http_request *http);
};

static const struct route routes[] = {
    {"/v1/models", "GET", .answer = on_models},
    {"/v1/models/", "GET", .answer = on_models},
    {"/tokenize", "POST", .answer = tokenize_start},
    {"/detokenize", "POST", .answer = detokenize_start},
    {"/tokenizer_info", "GET", .answer = tokenizer_info_start},
    {"/health", "GET", .public = true, .answer = health_ready},
    {"/health/live", "GET", .public = true, .answer = health_live},
    {"/health/ready", "GET", .public = true, .answer = health_ready},
    {"/metrics", "GET", .monitored = true, .answer = health_metrics},
    {"/version", "GET", .monitored = true, .answer = health_version},
    {"/drain", "POST", .admin = true, .answer = on_drain},
};

/* The route of a path; its own path is NULL if there is none. */
static struct route route_find(const char *path) {
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const char *known = routes[i].path;
        size_t n = strlen(known);
        bool fits = known[n - 1] == '/' ? strncmp(known, path, n) == 0 && path[n] != 0
                                        : strcmp(known, path) == 0;
        if (fits) return routes[i];
    }
    const struct api *api = api_find(path), *rendered = render_api(path);
    if (api) return (struct route){api->path, "POST", .api = api};
    if (rendered) return (struct route){rendered->path, "POST", .answer = render_start};
    return (struct route){NULL};
}

/* ---- early refusal -------------------------------------------------------------------------- */

static enum status check_body_type(const struct http_request *http, struct err *err) {
    const char *type = http_header(http, "Content-Type");
    const char *coding = http_header(http, "Content-Encoding");
    if (strcmp(http->method, "POST") != 0) return STATUS_OK;
    /* curl -d calls whatever it sends a form, and people paste such lines. */
    bool is_json = !type || !*type || strcasestr(type, "json") ||
                   strcasestr(type, "application/x-www-form-urlencoded");
    if (!is_json) {
        return err_set(err, STATUS_MEDIA_TYPE, NULL,
                       "The body must be JSON: Content-Type: application/json.");
    }
    if (!coding || !*coding || strcasecmp(coding, "identity") == 0) return STATUS_OK;
    return err_set(err, STATUS_MEDIA_TYPE, NULL,
                   "The body must be sent as it is, without a Content-Encoding.");
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
    return err_set(err, STATUS_OVERLOADED, NULL,
                   "The waiting queue is full (%d requests); try again later.",
                   app->options->max_queued_requests);
}

static enum status check_headers(struct app *app, const struct http_request *http,
                                 const char **allow, struct err *err) {
    const struct route route = route_find(http->path);
    if (route.admin && !auth_is_admin(app, http)) {
        return err_set(err, STATUS_AUTHENTICATION, NULL, "%s",
                       app->admin_keys.length > 0
                           ? "An admin key is needed: Authorization: Bearer <key>."
                           : "An admin key is needed, and this server has none: --admin-key.");
    }
    const struct buf *keys = route.monitored ? &app->metrics_keys : &app->keys;
    if (!route.public && !auth_accepts(app, keys, http)) {
        return err_set(err, STATUS_AUTHENTICATION, NULL,
                       "A valid %s key is needed: Authorization: Bearer <key>.",
                       route.monitored ? "metrics" : "API");
    }
    if (!route.path) {
        return err_set(err, STATUS_NOT_FOUND, NULL, "Unknown path %.200s.", http->path);
    }
    bool is_get = strcmp(route.method, "GET") == 0;
    if (strcmp(route.method, http->method) != 0 && !(is_get && strcmp(http->method, "HEAD") == 0)) {
        *allow = is_get ? "GET, HEAD" : route.method;
        return err_set(err, STATUS_METHOD_NOT_ALLOWED, NULL, "%s takes %s, not %.20s.", http->path,
                       *allow, http->method);
    }
    if (check_body_type(http, err)) return err->status;
    return route.api ? refuse_generation(app, err) : STATUS_OK;
}

void routes_on_headers(void *arg, struct http_request *http) {
    struct app *app = arg;
    struct err err;
    const char *allow = NULL;
    if (check_headers(app, http, &allow, &err) == STATUS_OK) return;
    respond_error(http, &err, allow);
    http_release(http);
}

void routes_on_request(void *arg, struct http_request *http) {
    struct app *app = arg;
    const struct route route = route_find(http->path);
    assert(route.path && (route.api || route.answer)); /* or the headers had been refused */
    if (route.api)
        reply_start(app, http, route.api);
    else
        route.answer(app, http);
}

void routes_on_gone(void *arg, struct http_request *http) {
    (void)arg;
    if (http->app)
        async_gone(http->app);
    else
        http_release(http); /* its body never came */
}

/* ---- access log ----------------------------------------------------------------------------- */

/* The method as a label of metrics, which a client is not to invent. */
static const char *method_name(const char *method) {
    static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(method, known[i]) == 0) return known[i];
    }
    return "other";
}

/* Probes and scrapes come every second: they are neither logged, unless they fail, nor counted. */
void routes_on_done(void *arg, struct http_request *http, int status, uint64_t bytes) {
    struct app *app = arg;
    const struct route route = route_find(http->path);
    bool quiet = route.public || route.monitored;
    double seconds = (double)(now_ns() - http->received_ns) * 1e-9;
    bool is_counted = status >= 100 && status < 600; /* or nothing was sent */
    if (is_counted) app->metrics.http_requests[status / 100]++;
    if (is_counted && !quiet) {
        const char *path = route.answer == render_start ? http->path : route.path;
        metrics_count_http(&app->metrics, path ? path : "none", method_name(http->method), status,
                           seconds);
    }
    struct log_field fields[16];
    int n = 0;
    fields[n++] = LOG_S("client", http->client);
    fields[n++] = LOG_S("method", http->method);
    fields[n++] = LOG_S("path", http->path);
    fields[n++] = LOG_I("status", status);
    fields[n++] = LOG_I("bytes", (long long)bytes);
    fields[n++] = LOG_R("ms", seconds * 1e3);
    struct async_request *request = http->app;
    if (request) n += async_log_fields(request, fields + n);
    assert(n <= (int)(sizeof fields / sizeof *fields));
    log_fields(quiet && status < 400 ? LOG_DEBUG : LOG_INFO, "request", fields, n);
    if (request) async_unref(request);
}
