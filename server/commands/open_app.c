/* DESIGN: the parts of a serving process.
 *
 * They are opened in this order and closed in the reverse order: engine (model, memory), the
 * sockets of --kv-events, the store of --prefix-store, the exporter of --otlp-traces-endpoint,
 * scheduler (its thread), loop, HTTP. The port is bound last, so every client that can connect is
 * answered. The loop runs until lifecycle.c stops it. All jobs have then ended, so the scheduler
 * sends no more events and its thread can end before the loop's handles are closed.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <xxhash.h>

#include "engine/peers/peers.h"
#include "server/app/adapters.h"
#include "server/app/promised/promised.h"
#include "server/commands/commands.h"
#include "server/endpoints/endpoints.h"
#include "server/generation/job.h"

#define IDLE_CONNECTION_MS 75000
#define ANSWER_MS 30000        /* for a client to read an answer, plus a second per */
#define ANSWER_RATE (32 << 10) /* this many bytes */
#define MAX_HEADER_BYTES (64 << 10)
#define MAX_STREAM_BACKLOG (1 << 20)
#define SILENCE_MS 15000
#define MAX_BODIES 16 /* limit on buffered request bodies of the maximum size */

static enum status open_http(struct app *app, struct err *err) {
    struct http_config config = app->options->http;
    config.max_header_bytes = MAX_HEADER_BYTES;
    config.max_bodies_bytes = MAX_BODIES * config.max_body_bytes;
    config.keep_alive_ms = IDLE_CONNECTION_MS;
    config.answer_timeout_ms = ANSWER_MS;
    config.answer_rate = ANSWER_RATE;
    config.max_stream_backlog = MAX_STREAM_BACKLOG;
    config.silence_ms = SILENCE_MS;
    config.on_headers = routes_on_headers;
    config.on_request = routes_on_request;
    config.on_gone = routes_on_gone;
    config.on_done = routes_on_done;
    config.fields = routes_fields;
    config.error_body = routes_error_body;
    config.app = app;
    config.sockets = app->sockets;
    config.n_sockets = app->n_sockets;
    return http_server_new(&app->http, &app->loop, &config, err);
}

/* ---- events of the prefix cache ------------------------------------------------------------- */

static void wake_engine(void *arg) {
    scheduler_wake(((struct app *)arg)->scheduler);
}

/* Opens the sockets of --kv-events, and has the scheduler write to its ring. */
static enum status open_kv_events(struct app *app, struct scheduler_config *config,
                                  struct err *err) {
    const struct kv_events_config events = {.endpoint = app->options->kv_events.endpoint,
                                            .replay_endpoint =
                                                app->options->kv_events.replay_endpoint,
                                            .topic = app->options->kv_events.topic,
                                            .n_blocks = config->n_blocks,
                                            .block_size = config->block_size};
    if (!events.endpoint && (events.replay_endpoint || events.topic))
        return err_set(err, STATUS_USAGE, NULL,
                       "--kv-events-replay and --kv-events-topic are used with --kv-events");
    if (!events.endpoint) return STATUS_OK;
    if (!config->prefix_caching)
        return err_set(err, STATUS_USAGE, NULL,
                       "--kv-events reports the blocks of the prefix cache, and this server has "
                       "none: leave it out, or use a model with a prefix cache and without "
                       "--no-enable-prefix-caching");
    enum status status = kv_events_open(&app->kv_events, &events, err);
    if (status == STATUS_OK) config->kv_events = kv_events_ring(app->kv_events);
    return status;
}

/* ---- the prefix store ----------------------------------------------------------------------- */

/* Everything that decides the bytes of a block with given tokens, beside the size of a block. */
static void store_identity(const struct app *app, uint64_t identity[2]) {
    struct buf text = {0};
    fingerprint_write(&text, &app->fingerprint, FINGERPRINT_BLOCKS);
    const char *backend = engine_backend_name(app->engine); /* the layout depends on the path */
    buf_add(&text, backend, strcspn(backend, ","));
    if (engine_model(app->engine)->n_ahead > 0) buf_add(&text, " ahead", 6); /* one more layer */
    if (engine_model(app->engine)->eagle.is_used)
        buf_printf(&text, " %" PRIu64, engine_model(app->engine)->eagle.stamp);
    const XXH128_hash_t hash = XXH3_128bits(text.data, text.length);
    identity[0] = hash.low64;
    identity[1] = hash.high64;
    buf_free(&text);
}

/* Returns why the prefixes of the model cannot be stored, or NULL. */
static const char *why_not_stored(const struct app *app, const struct scheduler_config *config) {
    if (config->whole_prompts) return "this model is an encoder, which has no prefix cache";
    if (!config->prefix_caching) return "--no-enable-prefix-caching turns that cache off";
    if (config->n_states > 0 && config->n_checkpoints == 0)
        return "--state-checkpoints 0 leaves none of a model with recurrent layers";
    if (!engine_on_host(app->engine)) return "the model runs on a GPU, whose cache is not stored";
    if (!engine_has_parts(app->engine)) return "the cache is divided between several ranks";
    return NULL;
}

static enum status open_prefix_store(struct app *app, struct scheduler_config *config,
                                     struct err *err) {
    struct prefix_store_config store = {.place = app->options->prefix_store.place,
                                        .max_bytes = app->options->prefix_store.bytes,
                                        .n_blocks = config->n_blocks,
                                        .block_size = config->block_size,
                                        .window = config->window};
    if (!store.place) return STATUS_OK;
    const char *why = why_not_stored(app, config);
    if (why)
        return err_set(err, STATUS_USAGE, NULL,
                       "--prefix-store keeps the prefix cache on the CPU, and %s; leave it out",
                       why);
    for (enum cache_part part = 0; part < N_CACHE_PARTS; part++)
        store.part_bytes[part] = engine_part_bytes(app->engine, part);
    store_identity(app, store.identity);
    enum status status = prefix_store_open(&app->prefix_store, &store, err);
    config->prefix_store = app->prefix_store;
    return status;
}

/* Opens the exporter of --otlp-traces-endpoint. */
static enum status open_traces(struct app *app, struct err *err) {
    const struct traces_config config = {.endpoint = app->options->traces.endpoint,
                                         .ratio = app->options->traces.ratio};
    if (!config.endpoint && config.ratio < 1)
        return err_set(err, STATUS_USAGE, NULL,
                       "--otlp-traces-sampler-ratio is used with --otlp-traces-endpoint");
    return config.endpoint ? traces_open(&app->traces, &config, err) : STATUS_OK;
}

/* Starts the engine thread, the publisher and the watch over other ranks, which wake it, and the
 * thread that sends traces. */
static enum status start_threads(struct app *app, struct err *err) {
    struct peers *peers = app->options->engine.peers;
    enum status status = STATUS_OK;
    assert(app->scheduler);
    scheduler_start(app->scheduler);
    if (peers) peers_on_loss(peers, wake_engine, app);
    if (app->kv_events) status = kv_events_start(app->kv_events, wake_engine, app, err);
    if (!status && app->traces) status = traces_start(app->traces, err);
    return status;
}

/* ---- all parts ------------------------------------------------------------------------------ */

enum status app_open(struct app *app, struct err *err) {
    int weights[MAX_SHARES];
    assert(app->engine && !app->scheduler && !app->http);
    list_init(&app->requests);
    pthread_mutex_init(&app->keys_mutex, NULL);
    app_set_limits(app);
    app_set_identity(app);
    app->limits.keeps = app->options->state.folder != NULL;
    routes_open(app);
    app->grammars =
        grammar_store_new(app->engine, app->limits.V, (size_t)app->options->api.grammar_cache,
                          (size_t)app->options->api.grammar_memory);
    grammar_store_open_objects(app->grammars, app->options->api.open_objects);
    app->answers.max_bytes = ANSWERS_MAX_BYTES;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* each connection is a file */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    uv_loop_init(&app->loop);
    bridge_init(app, job_event, NULL);
    lifecycle_init(app);
    supervisor_init(app);
    async_init(app);
    live_open(app);
    struct scheduler_config config = scheduler_config_from(app->options, app->engine);
    config.n_shares = auth_share_weights(app, weights);
    config.share_weights = weights;
    config.draft_engine = app->draft_engine;
    config.on_events = bridge_on_events;
    config.on_failure = bridge_on_failure;
    config.on_model = supervisor_model;
    config.arg = app;
    enum status status = open_kv_events(app, &config, err);
    if (!status) status = open_prefix_store(app, &config, err);
    if (!status) status = open_traces(app, err);
    if (status) return status;
    app->scheduler = scheduler_new(&config, app->engine);
    status = start_threads(app, err);
    if (!status) status = adapters_open(app, err);
    if (!status) status = promises_open(app, &reply_promises, err);
    if (!status) status = open_http(app, err);
    if (!status && app->promises) promises_start(app->promises);
    return status;
}

void app_close(struct app *app) {
    if (app->http) http_server_free(app->http);
    promises_close(app);
    traces_close(app->traces);      /* all requests have ended */
    kv_events_stop(app->kv_events); /* it wakes the scheduler */
    if (app->options->engine.peers) peers_off_loss(app->options->engine.peers, wake_engine);
    scheduler_free(app->scheduler);
    kv_events_close(app->kv_events);
    prefix_store_close(app->prefix_store);
    live_close(app);
    lifecycle_close(app);
    supervisor_close(app);
    async_close(app);
    bridge_close(app);
    uv_run(&app->loop, UV_RUN_DEFAULT);
    uv_loop_close(&app->loop);
    grammar_store_free(app->grammars);
    app_clear_identity(app);
    adapters_close(app);
    routes_close(app);
    tool_format_free(app->derived_format);
    buf_free(&app->proxies);
    auth_free_retired(app);
    pthread_mutex_destroy(&app->keys_mutex);
    keys_free(&app->keys);
    keys_free(&app->admin_keys);
    keys_free(&app->metrics_keys);
}
