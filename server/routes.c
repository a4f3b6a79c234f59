/* Which path does what, and what is refused before its body is read. */
#include <stdlib.h>
#include <string.h>

#include "server/app.h"

static void on_models(struct app *app, struct http_request *http);

static void on_completion(struct app *app, struct http_request *http) {
    job_start(app, http, API_COMPLETION);
}

static void on_chat(struct app *app, struct http_request *http) {
    job_start(app, http, API_CHAT);
}

/* One path. Those that generate are refused while there is no room in the queue. */
struct route {
    const char *path;   /* a path that ends in '/' stands for everything below it */
    const char *method; /* GET also answers HEAD */
    bool open;          /* needs no API key */
    bool generates;
    void (*answer)(struct app *app, struct http_request *http);
};

static const struct route routes[] = {
    {"/v1/completions", "POST", false, true, on_completion},
    {"/v1/chat/completions", "POST", false, true, on_chat},
    {"/v1/models", "GET", false, false, on_models},
    {"/v1/models/", "GET", false, false, on_models},
    {"/tokenize", "POST", false, false, text_tokenize},
    {"/detokenize", "POST", false, false, text_detokenize},
    {"/health", "GET", true, false, health_ready},
    {"/health/live", "GET", true, false, health_live},
    {"/health/ready", "GET", true, false, health_ready},
    {"/metrics", "GET", false, false, health_metrics},
    {"/version", "GET", false, false, health_version},
};

static bool path_matches(const struct route *route, const char *path) {
    size_t n = strlen(route->path);
    if (route->path[n - 1] != '/') return strcmp(route->path, path) == 0;
    return strncmp(route->path, path, n) == 0 && path[n] != 0;
}

static const struct route *route_find(const char *path) {
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (path_matches(&routes[i], path)) return &routes[i];
    }
    return NULL;
}

static bool method_fits(const struct route *route, const char *method) {
    if (strcmp(route->method, method) == 0) return true;
    return strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0;
}

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
    api_write_error(&body, err);
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

/* ---- early refusal -------------------------------------------------------------------------- */

static bool says_other_than_json(const struct http_request *http) {
    const char *type = http_header(http, "Content-Type");
    if (!type || !*type) return false;
    return !strcasestr(type, "json") && strcmp(http->method, "POST") == 0 &&
           /* curl -d says this of whatever it sends, and people paste such lines */
           !strcasestr(type, "application/x-www-form-urlencoded");
}

/* A compressed body would only be read as broken JSON. */
static bool is_encoded(const struct http_request *http) {
    const char *coding = http_header(http, "Content-Encoding");
    return coding && *coding && strcasecmp(coding, "identity") != 0 &&
           strcmp(http->method, "POST") == 0;
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
    const struct route *route = route_find(http->path);
    if (!(route && route->open) && !auth_accepts(app, http)) {
        return err_set(err, STATUS_AUTHENTICATION, NULL,
                       "A valid API key is needed: Authorization: Bearer <key>.");
    }
    if (!route) {
        return err_set(err, STATUS_NOT_FOUND, NULL, "Unknown path %.200s.", http->path);
    }
    if (!method_fits(route, http->method)) {
        *allow = strcmp(route->method, "GET") == 0 ? "GET, HEAD" : route->method;
        return err_set(err, STATUS_METHOD_NOT_ALLOWED, NULL, "%s takes %s, not %.20s.", http->path,
                       *allow, http->method);
    }
    if (says_other_than_json(http)) {
        return err_set(err, STATUS_MEDIA_TYPE, NULL,
                       "The body must be JSON: Content-Type: application/json.");
    }
    if (is_encoded(http)) {
        return err_set(err, STATUS_MEDIA_TYPE, NULL,
                       "The body must be sent as it is, without a Content-Encoding.");
    }
    return route->generates ? refuse_generation(app, err) : STATUS_OK;
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
    route_find(http->path)->answer(app, http);
}

void routes_on_gone(void *arg, struct http_request *http) {
    const struct owner *owner = http->app;
    (void)arg;
    if (!owner)
        http_release(http); /* its body never came */
    else if (owner->kind == OWNER_JOB)
        job_gone(http);
    /* a text's worker reads the body still, and releases the request when it is done */
}

/* ---- access log ----------------------------------------------------------------------------- */

void routes_on_done(void *arg, struct http_request *http, int status, uint64_t bytes) {
    struct app *app = arg;
    int class = status / 100;
    if (class >= 1 && class <= 5) app->metrics.http_requests[class]++;
    struct log_field fields[16];
    int n = 0;
    fields[n++] = LOG_S("client", http->client);
    fields[n++] = LOG_S("method", http->method);
    fields[n++] = LOG_S("path", http->path);
    fields[n++] = LOG_I("status", status);
    fields[n++] = LOG_I("bytes", (long long)bytes);
    fields[n++] = LOG_R("ms", (double)(now_ns() - http->received_ns) * 1e-6);
    const struct owner *owner = http->app;
    bool is_job = owner && owner->kind == OWNER_JOB;
    if (is_job) n += job_log_fields(http, fields + n);
    const struct route *route = route_find(http->path);
    bool quiet = route && route->open && status < 400; /* health checks come every second */
    log_fields(quiet ? LOG_DEBUG : LOG_INFO, "request", fields, n);
    if (is_job) job_done(http);
}
