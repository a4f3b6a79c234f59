/* DESIGN: `penstock serve`, from options to shutdown.
 *
 * Checks run in the order of their cost: keys, port and model file first, then the model is loaded,
 * which may take minutes, and then open_app.c opens the rest. The start logs what it loads, the
 * memory it uses, and an example request.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/peers/peers.h"
#include "server/app/adapters.h"
#include "server/commands/commands.h"
#include "server/endpoints/endpoints.h"

/* ---- start-up report ------------------------------------------------------------------------ */

static void report_loading(const struct options *options) {
    struct stat file;
    if (stat(options->engine.model, &file) != 0) return; /* open_engine reports the error */
    if (options->engine.dummy)
        log_line(LOG_INFO, "making random weights in the shape of %s", options->engine.model);
    else if (S_ISDIR(file.st_mode))
        log_line(LOG_INFO, "loading the folder %s", options->engine.model);
    else
        log_line(LOG_INFO, "loading %s, %.0f MiB", options->engine.model,
                 mib((int64_t)file.st_size));
}

static void report_gpu(const struct engine_memory *memory) {
    log_line(LOG_INFO,
             "GPU memory: %.0f MiB, %.0f MiB free; the limit is a share of %.2f; sampling %.0f "
             "MiB, steps and attention %.0f MiB, kept free %.0f MiB",
             mib((int64_t)memory->device.total), mib((int64_t)memory->device.free), memory->share,
             mib(memory->sampling), mib(memory->steps), mib(memory->kept));
    log_line(LOG_INFO, "swap space: up to %.0f MiB of host memory, allocated when needed",
             mib(memory->swap));
}

/* Logs the model's sampling defaults that differ from the API's: they affect every client that does
 * not set these fields. */
static void report_sampling(const struct sampling_defaults *defaults) {
    struct buf text = {0};
    if (defaults && defaults->temperature >= 0)
        buf_printf(&text, " temperature %g", defaults->temperature);
    if (defaults && defaults->top_p >= 0) buf_printf(&text, " top_p %g", defaults->top_p);
    if (defaults && defaults->top_k >= 0) buf_printf(&text, " top_k %d", defaults->top_k);
    if (defaults && defaults->min_p >= 0) buf_printf(&text, " min_p %g", defaults->min_p);
    if (defaults && defaults->repetition_penalty >= 0)
        buf_printf(&text, " repetition_penalty %g", defaults->repetition_penalty);
    if (defaults && defaults->n_suppressed > 0)
        buf_printf(&text, " %d suppressed tokens", defaults->n_suppressed);
    if (text.length)
        log_line(
            LOG_INFO,
            "sampling defaults from the model's files (--generation-config none ignores them):%s",
            text.data);
    buf_free(&text);
}

static void report_draft_model(const struct engine *draft) {
    const struct model_config *m = engine_model(draft);
    const struct engine_memory *memory = engine_memory(draft);
    log_line(LOG_INFO,
             "draft model %s: %s, %.1f M parameters, %s; memory: weights %.0f MiB, KV cache %.0f "
             "MiB of %lld tokens, scratch %.0f MiB",
             m->name, m->architecture, (double)m->n_parameters * 1e-6, m->quantisation,
             mib(memory->weights), mib(memory->kv_cache),
             (long long)memory->n_blocks * memory->block_size, mib(memory->scratch));
}

/* Logs the key by which clients check receipts. */
static void report_receipts(const struct app *app) {
    struct buf key = {0};
    if (!app->receipt_key) return;
    receipt_write_base64(&key, app->receipt_key->public, sizeof app->receipt_key->public);
    log_line(LOG_INFO, "receipts are signed by the Ed25519 key whose public half is %s", key.data);
    buf_free(&key);
}

static void report_prefix_store(const struct app *app) {
    struct prefix_store_stats stats;
    prefix_store_stats(app->prefix_store, &stats);
    log_line(LOG_INFO, "prefix store %s: %d records in %.0f MiB; memory %.0f MiB",
             prefix_store_name(app->prefix_store), stats.n_records, mib(stats.n_bytes),
             mib((int64_t)prefix_store_memory(app->prefix_store)));
}

/* Reports the layers that guess ahead. */
static void report_ahead(const struct model_config *m) {
    if (m->eagle.is_used)
        log_line(LOG_INFO,
                 "an EAGLE-3 head of %d tokens guesses beyond the next one, for drafts (eagle3)",
                 m->eagle.V);
    else if (m->n_ahead > 0)
        log_line(LOG_INFO, "layer %d guesses tokens beyond the next one, for drafts (mtp)",
                 m->L - 1);
    if (m->n_unread_layers > 0)
        log_line(LOG_INFO, "%d layer%s tokens beyond the next one (nextn); %s not used",
                 m->n_unread_layers,
                 m->n_unread_layers == 1 ? " of the file guesses" : "s of the file guess",
                 m->n_unread_layers == 1 ? "it is" : "they are");
}

static void report(const struct app *app) {
    const struct model_config *m = engine_model(app->engine);
    const struct engine_memory *memory = engine_memory(app->engine);
    assert(app->model_name && app->http && app->scheduler);
    int64_t tokens = (int64_t)memory->n_blocks * memory->block_size;
    log_line(LOG_INFO, "model %s: %s, %.1f M parameters, %s, context %d, served as \"%s\"", m->name,
             m->architecture, (double)m->n_parameters * 1e-6, m->quantisation,
             memory->max_model_len, app->model_name);
    report_ahead(m);
    log_line(LOG_INFO, "backend %s", engine_backend_name(app->engine));
    log_line(LOG_INFO, "loaded weights: %.0f MiB repacked in %.0f ms (%d thread%s)",
             mib(memory->weights), engine_weights_ms(app->engine), engine_threads(app->engine),
             engine_threads(app->engine) == 1 ? "" : "s");
    log_line(LOG_INFO, "memory: weights %.0f MiB, KV cache %.0f MiB, scratch %.0f MiB",
             mib(memory->weights), mib(memory->kv_cache), mib(memory->scratch));
    if (memory->adapters > 0)
        log_line(LOG_INFO, "adapters: up to %d at once, and %.0f MiB", adapters_most(app->adapters),
                 mib(memory->adapters));
    if (memory->device.total > 0) report_gpu(memory);
    report_sampling(app->limits.sampling);
    report_receipts(app);
    log_line(
        LOG_INFO, "KV cache: %lld tokens in %d blocks of %d; fits %.1f requests of full length",
        (long long)tokens, memory->n_blocks, memory->block_size, engine_memory_sequences(memory));
    if (memory->n_window_blocks > 0)
        log_line(
            LOG_INFO,
            "KV cache: layers with windows keep %d tokens of a sequence, in %d separate blocks",
            memory->window, memory->n_window_blocks);
    if (memory->n_states > 0)
        log_line(
            LOG_INFO,
            "recurrent layers: %d states of %.1f MiB: %d of cached prefixes, every %d tokens; %d "
            "for drafts",
            memory->n_states, mib(memory->state_bytes), memory->n_checkpoints,
            memory->checkpoint_every, memory->n_draft_states);
    if (app->draft_engine) report_draft_model(app->draft_engine);
    if (app->prefix_store) report_prefix_store(app);
    if (app->traces)
        log_line(LOG_INFO, "traces: sent to %s; memory %.1f MiB", traces_url(app->traces),
                 mib((int64_t)traces_bytes(app->traces)));
    if (app->kv_events)
        log_line(LOG_INFO, "KV events: published on %s; memory %.0f MiB",
                 app->options->kv_events.endpoint, mib((int64_t)kv_events_bytes(app->kv_events)));
}

/* ---- example request ------------------------------------------------------------------------ */

static void url_write(struct buf *out, const char *host, int port, bool reachable) {
    bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 || !*host;
    if (reachable && any) host = strcmp(host, "::") == 0 ? "::1" : "127.0.0.1";
    buf_puts(out, strchr(host, ':') ? "http://[" : "http://");
    for (; *host; host++) buf_puts(out, *host == '%' ? "%25" : (char[]){*host, 0});
    buf_printf(out, strchr(out->data, '[') ? "]:%d" : ":%d", port);
}

/* Writes the server's URL, or the path of its Unix socket. `reachable`: as an argument of curl. */
static void address_write(struct buf *out, const struct app *app, bool reachable) {
    int port = http_server_port(app->http);
    const char *host = app->n_sockets > 0 ? "0.0.0.0" : app->options->http.host;
    if (port > 0)
        url_write(out, host, port, reachable);
    else
        buf_printf(out, reachable ? "--unix-socket '%s' http://localhost" : "unix:%s",
                   http_server_socket(app->http));
}

/* Writes a command line that sends a request to this server. If a key is required, it refers to the
 * key without showing it. */
static void example_write(struct buf *out, const struct app *app, const char *url) {
    const struct options *options = app->options;
    const struct model_config *config = engine_model(app->engine);
    const bool lacks_text = config->is_encoder || config->lacks_text;
    buf_printf(out, "curl %s", url);
    const struct classifier *head = app->limits.classifier;
    buf_puts(out, lacks_text && head ? (head->of_tokens ? "/v1/pooling" : "/v1/classify")
                  : lacks_text       ? "/v1/embeddings"
                  : app->limits.has_chat_template ? "/v1/chat/completions"
                                                  : "/v1/completions");
    bool is_list = app->keys.n > 0 && !app->keys.key[0].name[0]; /* one key per line */
    if (options->access.api_key_file && is_list)
        buf_printf(out, " -H \"Authorization: Bearer $(grep -m 1 '^[^#]' '%s')\"",
                   options->access.api_key_file);
    else if (app->keys.n > 0)
        buf_puts(out, " -H \"Authorization: Bearer $PENSTOCK_API_KEY\"");
    buf_puts(out, lacks_text ? " -d '{\"input\": \"Water flows\"}'"
                  : app->limits.has_chat_template
                      ? " -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Name a "
                        "river.\"}], \"max_tokens\": 32}'"
                      : " -d '{\"prompt\": \"Water flows\", \"max_tokens\": 16}'");
}

/* On a terminal the example has a separate line for copying; in a log it is a message. */
static void report_ready(const struct app *app, double seconds) {
    const struct options *options = app->options;
    struct buf url = {0}, reachable = {0}, example = {0};
    address_write(&url, app, false);
    address_write(&reachable, app, true);
    example_write(&example, app, reachable.data);
    log_line(LOG_INFO, "ready on %s after %.0f ms", url.data, seconds * 1e3);
    if (options->log.format == LOG_JSON || !isatty(STDERR_FILENO))
        log_line(LOG_INFO, "try it: %s", example.data);
    else if (options->log.level <= LOG_INFO)
        fprintf(stderr, "Try it, and end the server with Ctrl-C:\n    %s\n", example.data);
    buf_free(&url);
    buf_free(&reachable);
    buf_free(&example);
}

/* ---- serve --check -------------------------------------------------------------------------- */

static int check(const struct options *options) {
    struct err err;
    struct engine_memory memory;
    if (check_engine(&memory, options, &err)) return print_error(&err);
    printf(
        "%s can be served: weights %.0f MiB (estimate), KV cache %.0f MiB of %lld tokens, scratch "
        "%.0f MiB (estimate)\n",
        options->engine.model, mib(memory.weights), mib(memory.kv_cache),
        (long long)memory.n_blocks * memory.block_size, mib(memory.scratch));
    return 0;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int serve(struct app *app, uint64_t started_ns) {
    struct err err;
    int code = 0;
    if (app_open(app, &err)) {
        code = print_error(&err);
    } else {
        report(app);
        app->start_ns = now_ns() - started_ns;
        report_ready(app, (double)app->start_ns * 1e-9);
        supervisor_ready(app);
        uv_run(&app->loop, UV_RUN_DEFAULT);
        log_line(LOG_INFO, "stopped");
        if (app->failure.status) code = EXIT_DEVICE_FAILED;
    }
    app_close(app);
    return code;
}

/* Other processes keep their shards until this one ends. */
static enum status check_unload(const struct options *options, struct err *err) {
    if (options->drain.unload_s == 0 || !options->engine.peers) return STATUS_OK;
    return err_set(
        err, STATUS_USAGE, "unload-when-idle",
        "--unload-when-idle does not work with ranks that are processes of mpirun; leave "
        "it out");
}

/* Finds a port in use before the model is loaded. Sockets of a service manager are bound. */
static enum status check_address(const struct app *app, struct err *err) {
    return app->n_sockets > 0 ? STATUS_OK : http_check_address(&app->options->http, err);
}

static int load_and_serve(struct app *app, struct options *options, uint64_t started_ns) {
    struct err err;
    if (reload_open(app, options, &err)) return print_error(&err);
    report_loading(options);
    int code = open_engine(&app->engine, app->options);
    if (code == 0) code = open_draft_engine(&app->draft_engine, app->engine, app->options);
    if (code) return code;
    app_set_name(app);
    return serve(app, started_ns);
}

static int serve_first(struct options *options) {
    uint64_t started_ns = now_ns();
    struct app *app = mem_calloc(1, sizeof *app);
    struct err err;
    app->options = options;
    app->started_s = (int64_t)time(NULL);
    enum status status = auth_load(app, &err);
    if (!status) status = proxies_load(app, &err);
    if (!status) status = app_check_parsers(options, &err);
    if (!status) status = check_unload(options, &err);
    if (!status) status = app_read_receipt_key(app, &err);
    if (!status) status = app_open_cassettes(app, &err);
    if (!status) status = supervisor_sockets(app, &err);
    if (!status) status = check_address(app, &err);
    bool replays = options->receipts.replay && !options->engine.model;
    int code = status ? print_error(&err) : replays ? 0 : find_models(options);
    if (code == 0 && replays) {
        code = replay_serve(app);
    } else if (code == 0) {
        call_ranks(options);
        code = options->check ? check(options) : load_and_serve(app, options, started_ns);
    }
    app_close_cassettes(app);
    reload_close(app);
    engine_close(app->draft_engine);
    engine_close(app->engine);
    mem_free(app);
    return code;
}

int command_serve(struct options *options) {
    struct peers *peers = NULL;
    struct err err;
    if (peers_open(&peers, options->engine.rank_timeout_s, EXIT_DEVICE_FAILED, &err))
        return print_error(&err);
    options->engine.peers = peers;
    int code = peers && peers_rank(peers) > 0 ? follow_rank(options) : serve_first(options);
    peers_close(peers, code);
    return code;
}
