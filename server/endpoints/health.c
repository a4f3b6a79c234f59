/* The state of the process: liveness, readiness, metrics, version. */
#include "server/app/promised/promised.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/exposition.h"
#include "server/endpoints/live.h"
#include "server/endpoints/metrics_view.h"
#include "server/json/json.h"

/* If a step runs for this time, the engine hangs. */
#define STUCK_S 60

static void respond_and_release(struct http_request *http, struct buf *body) {
    respond_json(http, body);
    buf_free(body);
    http_release(http);
}

void health_live(struct app *app, struct http_request *http) {
    (void)app;
    struct buf body = {0};
    buf_puts(&body, "{\"status\":\"ok\"}");
    respond_and_release(http, &body);
}

static enum status readiness(struct app *app, struct err *err) {
    if (app->draining)
        return err_set(err, STATUS_UNAVAILABLE, NULL, "The server is shutting down.");
    if (app->failure.status)
        return err_set(err, STATUS_UNAVAILABLE, NULL, "%s", app->failure.message);
    if (supervisor_is_stuck(app, STUCK_S * 1000000000ull)) {
        return err_set(err, STATUS_UNAVAILABLE, NULL,
                       "The engine has not finished a step for %d s.", STUCK_S);
    }
    return STATUS_OK;
}

/* A server without its model is ready: the next request loads it. */
static void answer_ready(const struct app *app, struct http_request *http) {
    struct scheduler_stats stats;
    struct buf body = {0};
    scheduler_stats(app->scheduler, &stats);
    buf_puts(&body, "{\"status\":\"ok\"");
    if (stats.model != MODEL_LOADED)
        buf_printf(&body, ",\"model\":\"%s\"", model_state_name(stats.model));
    buf_puts(&body, "}");
    respond_and_release(http, &body);
}

void health_ready(struct app *app, struct http_request *http) {
    struct err err;
    if (readiness(app, &err) == STATUS_OK) {
        answer_ready(app, http);
        return;
    }
    respond_error(app, http, &err, NULL);
    http_release(http);
}

void health_metrics(struct app *app, struct http_request *http) {
    struct scheduler_stats stats;
    struct http_stats connections;
    struct prefix_store_stats store;
    struct journal_stats journal;
    struct buf body = {0};
    bool openmetrics = exposition_prefers_openmetrics(http_header(http, "Accept"));
    scheduler_stats(app->scheduler, &stats);
    http_stats(app->http, &connections);
    struct metrics_view view = {
        .metrics = &app->metrics,
        .stats = &stats,
        .connections = connections.connections,
        .answer_bytes = atomic_load(&app->answers.bytes),
        .model = app->model_name,
        .max_model_len = app->limits.max_model_len,
        .block_size = engine_memory(app->engine)->block_size,
        .adapters = app->adapters,
        .cache_dtype = value_name(kv_dtype_names, app->options->engine.kv_dtype),
        .prefix_caching = app->options->scheduler.prefix_caching,
        .keys = &app->keys,
    };
    for (int i = 0; i < N_LANES; i++) view.lanes[i] = lanes_stats(app->lanes, (enum lane)i);
    grammar_store_stats(app->grammars, &view.grammars);
    process_stats(&view.process);
    if (app->prefix_store) prefix_store_stats(app->prefix_store, &store);
    if (app->prefix_store) view.store = &store;
    if (app->promises) journal_stats(app->promises->journal, &journal);
    if (app->promises) view.journal = &journal;
    if (app->traces) traces_stats(app->traces, &view.traces);
    metrics_write(&body, openmetrics, &view);
    http_respond(http, 200, exposition_content_type(openmetrics), body.data, body.length, NULL, 0);
    buf_free(&body);
    http_release(http);
}

/* As in vLLM: writes the number of open requests. */
void health_load(struct app *app, struct http_request *http) {
    struct buf body = {0};
    buf_printf(&body, "{\"server_load\":%d}", app->requests.n);
    respond_and_release(http, &body);
}

/* As in vLLM: writes where routers find the events of the prefix cache. */
void health_kv_event_sources(struct app *app, struct http_request *http) {
    struct buf body = {0};
    kv_events_write_sources(app->kv_events, &body);
    respond_and_release(http, &body);
}

/* For vllm-router: tells how to compare prompts with the blocks of the events. */
void health_server_info(struct app *app, struct http_request *http) {
    const struct engine_memory *memory = engine_memory(app->engine);
    struct buf body = {0};
    buf_puts(&body, "{\"model_id\":");
    json_write_string(&body, app->model_name, strlen(app->model_name));
    buf_puts(&body, ",\"served_model_name\":");
    json_write_string(&body, app->model_name, strlen(app->model_name));
    buf_printf(&body,
               ",\"kv_block_size\":%d,\"effective_attention_block_size\":%d,"
               "\"max_model_len\":%d,\"max_num_seqs\":%d,\"max_total_num_tokens\":%lld}",
               memory->block_size, memory->block_size, app->limits.max_model_len,
               app->options->engine.max_num_seqs, (long long)memory->n_blocks * memory->block_size);
    respond_and_release(http, &body);
}

void health_version(struct app *app, struct http_request *http) {
    struct buf body = {0};
    version_write_json(&body, engine_backend_name(app->engine));
    respond_and_release(http, &body);
}

/* ---- version -------------------------------------------------------------------------------- */

void version_write(struct buf *out) {
    struct build_info build = build_info();
    buf_printf(out, "penstock %s (commit %s, %s)", build.version, build.commit, build.build);
}

void version_write_json(struct buf *out, const char *backend) {
    struct build_info build = build_info();
    buf_printf(out, "{\"version\":\"%s\",\"commit\":\"%s\",\"build\":\"%s\",\"backend\":\"%s\"}",
               build.version, build.commit, build.build, backend);
}
