/* Writes GET /metrics: one row per series, with its name, its help and the location of its value.
 * vLLM's names are included for dashboards, gateways and autoscalers that use them. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "server/app/adapters.h"
#include "server/endpoints/exposition.h"
#include "server/endpoints/metrics_view.h"

/* ---- the table ------------------------------------------------------------------------------ */

/* The values that the rows refer to. */
struct shown {
    struct metrics metrics;
    struct scheduler_stats stats;
    struct lane_stats prepare, grammar, text;
    struct grammar_store_stats grammars;
    struct process_stats process;
    struct prefix_store_stats store;
    double store_up; /* NAN without a store */
    int connections;
    uint64_t answer_bytes;
    uint64_t computed_tokens; /* prompt tokens that were not in the prefix cache */
    double kv_usage, swap_usage;
    double zero, awake, asleep;
};

enum number { NUMBER_INT, NUMBER_COUNT, NUMBER_NS, NUMBER_REAL };

struct metric {
    enum metric_type type;
    const char *name; /* see exposition.h for its suffix */
    const char *help; /* NULL: another series of the previous row's family */
    const char *label, *value;
    enum number number;
    size_t offset;               /* of the value in struct shown */
    enum histogram_id histogram; /* for METRIC_HISTOGRAM, instead of a value */
};

#define KIND(member)                                                                               \
    _Generic(((struct shown *)0)->member, int                                                      \
             : NUMBER_INT, uint64_t                                                                \
             : NUMBER_COUNT, double                                                                \
             : NUMBER_REAL)
#define AT(member) .number = KIND(member), .offset = offsetof(struct shown, member)
#define NS_AT(member) .number = NUMBER_NS, .offset = offsetof(struct shown, member)

#define COUNTER(name, help, at)                                                                    \
    { METRIC_COUNTER, name, help, NULL, NULL, at }
#define GAUGE(name, help, at)                                                                      \
    { METRIC_GAUGE, name, help, NULL, NULL, at }
#define COUNTER_OF(name, help, label, value, at)                                                   \
    { METRIC_COUNTER, name, help, label, value, at }
#define GAUGE_OF(name, help, label, value, at)                                                     \
    { METRIC_GAUGE, name, help, label, value, at }
#define HISTOGRAM(name, help, id)                                                                  \
    { METRIC_HISTOGRAM, name, help, .histogram = id }

static const struct metric table[] = {
    GAUGE("penstock_http_connections", "Open connections.", AT(connections)),
    GAUGE("penstock_answer_bytes",
          "Bytes of large answers that are in preparation or wait for their client.",
          AT(answer_bytes)),
    COUNTER_OF("penstock_http_requests_total", "Answers by class of their status code.", "class",
               "1xx", AT(metrics.http_requests[1])),
    COUNTER_OF("penstock_http_requests_total", NULL, "class", "2xx", AT(metrics.http_requests[2])),
    COUNTER_OF("penstock_http_requests_total", NULL, "class", "3xx", AT(metrics.http_requests[3])),
    COUNTER_OF("penstock_http_requests_total", NULL, "class", "4xx", AT(metrics.http_requests[4])),
    COUNTER_OF("penstock_http_requests_total", NULL, "class", "5xx", AT(metrics.http_requests[5])),
    COUNTER("penstock_refused_overload_total", "Requests refused because the queue was full.",
            AT(metrics.refused_overload)),
    COUNTER("penstock_refused_deadline_total",
            "Requests refused because their deadline could not be met.",
            AT(metrics.refused_deadline)),
    COUNTER("penstock_answer_seconds_total",
            "The loop's time to turn tokens into text and send it.", NS_AT(metrics.answer_ns)),
    GAUGE_OF("penstock_prepare_requests",
             "Requests whose prompts workers prepare, or will prepare.", "state", "waiting",
             AT(prepare.waiting)),
    GAUGE_OF("penstock_prepare_requests", NULL, "state", "running", AT(prepare.running)),
    GAUGE_OF("penstock_grammar_requests",
             "Requests with grammars: they wait for a worker, a worker compiles, or they wait for "
             "the same compilation.",
             "state", "waiting", AT(grammar.waiting)),
    GAUGE_OF("penstock_grammar_requests", NULL, "state", "running", AT(grammar.running)),
    GAUGE_OF("penstock_grammar_requests", NULL, "state", "parked", AT(grammar.parked)),
    GAUGE_OF("penstock_text_requests",
             "Requests to /tokenize, /detokenize and /render that wait, and that workers process.",
             "state", "waiting", AT(text.waiting)),
    GAUGE_OF("penstock_text_requests", NULL, "state", "running", AT(text.running)),
    COUNTER_OF("penstock_grammar_compilations_total",
               "Compilations of grammars by result; cancelled: no client waits any more.", "result",
               "compiled", AT(grammars.compiled)),
    COUNTER_OF("penstock_grammar_compilations_total", NULL, "result", "refused",
               AT(grammars.refused)),
    COUNTER_OF("penstock_grammar_compilations_total", NULL, "result", "cancelled",
               AT(grammars.cancelled)),
    GAUGE_OF("penstock_grammar_bytes", "Memory of grammars: all, and those in the cache.", "state",
             "live", AT(grammars.live_bytes)),
    GAUGE_OF("penstock_grammar_bytes", NULL, "state", "cached", AT(grammars.kept_bytes)),
    GAUGE("penstock_queued_tokens", "Prompt tokens that wait.", AT(stats.queued_tokens)),
    GAUGE_OF("penstock_kv_blocks", "KV blocks: all, referenced, unreferenced but known by hash.",
             "state", "total", AT(stats.blocks_total)),
    GAUGE_OF("penstock_kv_blocks", NULL, "state", "used", AT(stats.blocks_used)),
    GAUGE_OF("penstock_kv_blocks", NULL, "state", "cached", AT(stats.blocks_cached)),
    GAUGE_OF("penstock_kv_window_blocks",
             "Blocks of layers with windows: all, that a sequence sees, kept for the prefix cache.",
             "state", "total", AT(stats.window_blocks_total)),
    GAUGE_OF("penstock_kv_window_blocks", NULL, "state", "used", AT(stats.window_blocks_used)),
    GAUGE_OF("penstock_kv_window_blocks", NULL, "state", "cached", AT(stats.window_blocks_cached)),
    GAUGE_OF("penstock_recurrent_states",
             "States of recurrent layers: all, of sequences, of cached prefixes.", "state", "total",
             AT(stats.states_total)),
    GAUGE_OF("penstock_recurrent_states", NULL, "state", "used", AT(stats.states_used)),
    GAUGE_OF("penstock_recurrent_states", NULL, "state", "cached", AT(stats.states_cached)),
    GAUGE_OF("penstock_swap_blocks",
             "Blocks of swap space: all, of swapped sequences, kept for the prefix cache.", "state",
             "total", AT(stats.host_blocks_total)),
    GAUGE_OF("penstock_swap_blocks", NULL, "state", "used", AT(stats.host_blocks_used)),
    GAUGE_OF("penstock_swap_blocks", NULL, "state", "cached", AT(stats.host_blocks_cached)),
    COUNTER_OF("penstock_swapped_blocks_total",
               "KV blocks swapped out to the host's memory, and swapped in.", "direction", "out",
               AT(stats.swapped_out)),
    COUNTER_OF("penstock_swapped_blocks_total", NULL, "direction", "in", AT(stats.swapped_in)),
    GAUGE("penstock_prefix_store_up",
          "1 if the last operation of the prefix store's disk or server worked, else 0.",
          AT(store_up)),
    COUNTER_OF("penstock_prefix_store_blocks_total",
               "Blocks of prompts that the prefix cache lacked: read from the store, or not.",
               "result", "hit", AT(store.n_hits)),
    COUNTER_OF("penstock_prefix_store_blocks_total", NULL, "result", "miss", AT(store.n_misses)),
    COUNTER_OF("penstock_prefix_store_bytes_total", "Bytes of records of the prefix store.",
               "direction", "read", AT(store.bytes_read)),
    COUNTER_OF("penstock_prefix_store_bytes_total", NULL, "direction", "written",
               AT(store.bytes_written)),
    COUNTER_OF("penstock_prefix_store_dropped_records_total",
               "Records that were not written or not used, by reason.", "reason", "queue_full",
               AT(store.dropped[DROP_QUEUE_FULL])),
    COUNTER_OF("penstock_prefix_store_dropped_records_total", NULL, "reason", "unavailable",
               AT(store.dropped[DROP_UNAVAILABLE])),
    COUNTER_OF("penstock_prefix_store_dropped_records_total", NULL, "reason", "damaged",
               AT(store.dropped[DROP_DAMAGED])),
    COUNTER("penstock_prefix_store_errors_total",
            "Failed operations of the prefix store's disk or server.", AT(store.n_errors)),
    COUNTER("penstock_steps_total", "Forward passes.", AT(stats.steps)),
    COUNTER("penstock_step_seconds_total", "Time in forward passes.", NS_AT(stats.step_ns)),
    COUNTER_OF("penstock_step_part_seconds_total",
               "Time of each part of a step; the longest part bounds the speed.", "part", "plan",
               NS_AT(stats.part_ns[PART_PLAN])),
    COUNTER_OF("penstock_step_part_seconds_total", NULL, "part", "forward",
               NS_AT(stats.part_ns[PART_FORWARD])),
    COUNTER_OF("penstock_step_part_seconds_total", NULL, "part", "sample",
               NS_AT(stats.part_ns[PART_SAMPLE])),
    COUNTER_OF("penstock_step_part_seconds_total", NULL, "part", "commit",
               NS_AT(stats.part_ns[PART_COMMIT])),
    COUNTER("penstock_model_unloads_total", "Times that an idle server gave its model back.",
            AT(stats.unloads)),
    COUNTER_OF("penstock_model_loads_total", "Loads of a model that was given back.", "result",
               "loaded", AT(stats.loads)),
    COUNTER_OF("penstock_model_loads_total", NULL, "result", "failed", AT(stats.failed_loads)),
    COUNTER("penstock_model_load_seconds_total", "Time of these loads.", NS_AT(stats.load_ns)),

    COUNTER("process_cpu_seconds_total", "Processor time of all threads.", AT(process.cpu_s)),
    GAUGE("process_start_time_seconds", "When the process started, in seconds since 1970.",
          AT(process.start_s)),
    GAUGE("process_virtual_memory_bytes", "Address space in use.", AT(process.virtual_bytes)),
    GAUGE("process_resident_memory_bytes", "Memory in use.", AT(process.resident_bytes)),
    GAUGE("process_open_fds", "Open file descriptors.", AT(process.open_files)),
    GAUGE("process_max_fds", "Limit of open file descriptors.", AT(process.max_files)),

    GAUGE_OF("vllm:engine_sleep_state", "Are weights and cache in memory, or given back?",
             "sleep_state", "awake", AT(awake)),
    GAUGE_OF("vllm:engine_sleep_state", NULL, "sleep_state", "weights_offloaded", AT(zero)),
    GAUGE_OF("vllm:engine_sleep_state", NULL, "sleep_state", "discard_all", AT(asleep)),
    GAUGE("vllm:num_requests_running", "Sequences that are being computed.", AT(stats.running)),
    GAUGE("vllm:num_requests_waiting", "Sequences that wait.", AT(stats.waiting)),
    GAUGE_OF("vllm:num_requests_waiting_by_reason",
             "Sequences that wait for memory or for a place in the batch.", "reason", "capacity",
             AT(stats.waiting)),
    GAUGE_OF("vllm:num_requests_waiting_by_reason", NULL, "reason", "deferred", AT(zero)),
    GAUGE("vllm:num_requests_swapped", "Sequences that wait in the host's memory.",
          AT(stats.swapped)),
    GAUGE("vllm:kv_cache_usage_perc", "Share of the KV blocks in use, 0 to 1.", AT(kv_usage)),
    GAUGE("vllm:gpu_cache_usage_perc", "Older name of vllm:kv_cache_usage_perc.", AT(kv_usage)),
    GAUGE("vllm:cpu_cache_usage_perc", "Share of the swap space in use, 0 to 1.", AT(swap_usage)),
    COUNTER("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
            AT(stats.prefix_queries)),
    COUNTER("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
            AT(stats.prefix_hits)),
    COUNTER("vllm:gpu_prefix_cache_queries_total", "Older name of vllm:prefix_cache_queries_total.",
            AT(stats.prefix_queries)),
    COUNTER("vllm:gpu_prefix_cache_hits_total", "Older name of vllm:prefix_cache_hits_total.",
            AT(stats.prefix_hits)),
    COUNTER("vllm:num_preemptions_total", "Sequences put back to free KV blocks.",
            AT(stats.preemptions)),
    COUNTER("vllm:spec_decode_num_drafts_total", "Verifications of drafted tokens.",
            AT(stats.drafts)),
    COUNTER("vllm:spec_decode_num_draft_tokens_total", "Drafted tokens that were verified.",
            AT(stats.draft_tokens)),
    COUNTER("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens that were accepted.",
            AT(stats.accepted_tokens)),
    COUNTER("vllm:prompt_tokens_total",
            "Tokens of prompts that were computed or found in the cache.", AT(stats.prompt_tokens)),
    COUNTER("vllm:prompt_tokens_cached_total", "Prompt tokens that were found in the prefix cache.",
            AT(stats.cached_tokens)),
    COUNTER_OF("vllm:prompt_tokens_by_source_total", "Prompt tokens by source.", "source",
               "local_compute", AT(computed_tokens)),
    COUNTER_OF("vllm:prompt_tokens_by_source_total", NULL, "source", "local_cache_hit",
               AT(stats.cached_tokens)),
    COUNTER_OF("vllm:prompt_tokens_by_source_total", NULL, "source", "external_kv_transfer",
               AT(zero)),
    COUNTER("vllm:generation_tokens_total", "Tokens generated.", AT(stats.generated_tokens)),
    COUNTER_OF("vllm:request_success_total", "Choices that ended, by reason.", "finished_reason",
               "stop", AT(metrics.finished_stop)),
    COUNTER_OF("vllm:request_success_total", NULL, "finished_reason", "length",
               AT(metrics.finished_length)),
    COUNTER_OF("vllm:request_success_total", NULL, "finished_reason", "abort",
               AT(metrics.finished_abort)),
    COUNTER_OF("vllm:request_success_total", NULL, "finished_reason", "timeout",
               AT(metrics.finished_timeout)),
    COUNTER_OF("vllm:request_success_total", NULL, "finished_reason", "error",
               AT(metrics.finished_error)),
    HISTOGRAM("vllm:time_to_first_token_seconds", "From request to first token.",
              HISTOGRAM_FIRST_TOKEN),
    HISTOGRAM("vllm:inter_token_latency_seconds", "From one token to the next.",
              HISTOGRAM_INTER_TOKEN),
    HISTOGRAM("vllm:time_per_output_token_seconds",
              "Older name of vllm:inter_token_latency_seconds.", HISTOGRAM_INTER_TOKEN),
    HISTOGRAM("vllm:request_time_per_output_token_seconds",
              "Mean time of a choice's tokens after the first, of choices of two or more.",
              HISTOGRAM_OUTPUT_TOKEN),
    HISTOGRAM("vllm:e2e_request_latency_seconds", "From request to last token.", HISTOGRAM_REQUEST),
    HISTOGRAM("vllm:request_queue_time_seconds", "From request to its first step.",
              HISTOGRAM_QUEUE),
    HISTOGRAM("vllm:request_prefill_time_seconds", "From the first step to the first token.",
              HISTOGRAM_PREFILL),
    HISTOGRAM("vllm:request_decode_time_seconds", "From the first token to the last.",
              HISTOGRAM_DECODE),
    HISTOGRAM("vllm:request_inference_time_seconds", "From the first step to the last token.",
              HISTOGRAM_INFERENCE),
    HISTOGRAM("vllm:request_prompt_tokens", "Tokens of a prompt.", HISTOGRAM_PROMPT),
    HISTOGRAM("vllm:request_prefill_kv_computed_tokens",
              "Tokens of a prompt that were not in the prefix cache.", HISTOGRAM_COMPUTED),
    HISTOGRAM("vllm:request_generation_tokens", "Tokens generated for a choice.",
              HISTOGRAM_GENERATION),
    HISTOGRAM("vllm:request_max_num_generation_tokens",
              "Tokens generated for a prompt's longest choice.", HISTOGRAM_LONGEST),
    HISTOGRAM("vllm:request_params_max_tokens", "Tokens that may be generated for a choice.",
              HISTOGRAM_MAX_TOKENS),
    HISTOGRAM("vllm:request_params_n", "Choices asked for.", HISTOGRAM_N),
    HISTOGRAM("vllm:iteration_tokens_total", "Tokens computed in a step, of prompts and outputs.",
              HISTOGRAM_STEP_TOKENS),
};

/* ---- writing -------------------------------------------------------------------------------- */

struct metrics_writer {
    struct exposition to;
    const struct metrics_view *view;
    struct shown shown;
    struct buf labels; /* labels of the current sample */
};

/* Makes the labels for exposition_sample. vLLM's names have vLLM's labels: the index of the only
 * engine, and the model's name. */
static const char *labels_of(struct metrics_writer *writer, const char *name, const char *label,
                             const char *value) {
    bool is_vllm = strncmp(name, "vllm:", 5) == 0;
    buf_clear(&writer->labels);
    if (is_vllm) exposition_label(&writer->labels, "engine", "0");
    if (label) exposition_label(&writer->labels, label, value);
    if (is_vllm) exposition_label(&writer->labels, "model_name", writer->view->model);
    return writer->labels.length > 0 ? writer->labels.data : "";
}

/* Writes a histogram. Omits buckets above the model's context, which would always be full. */
static void write_histogram(struct metrics_writer *writer, const char *name, const char *labels,
                            const struct histogram_bounds *bounds,
                            const struct histogram *histogram) {
    uint64_t counts[METRIC_BUCKETS + 1];
    int n = 0;
    while (n < bounds->n &&
           (!bounds->counts_tokens || bounds->at[n] <= writer->view->max_model_len))
        n++;
    memcpy(counts, histogram->counts, sizeof counts);
    for (int i = n + 1; i <= bounds->n; i++) counts[n] += counts[i];
    exposition_histogram(&writer->to, name, labels, bounds->at, n, counts, histogram->sum);
}

static void write_steps(struct metrics_writer *writer, const char *name, const char *labels) {
    const struct scheduler_stats *stats = &writer->shown.stats;
    double bounds[STEP_ROW_BOUNDS];
    for (int i = 0; i < STEP_ROW_BOUNDS; i++) bounds[i] = step_row_bound(i);
    exposition_histogram(&writer->to, name, labels, bounds, STEP_ROW_BOUNDS, stats->steps_by_rows,
                         (double)stats->step_rows);
}

static double number_of(const struct shown *shown, const struct metric *metric) {
    const char *at = (const char *)shown + metric->offset;
    switch (metric->number) {
    case NUMBER_INT:
        return *(const int *)at;
    case NUMBER_COUNT:
        return (double)*(const uint64_t *)at;
    case NUMBER_NS:
        return (double)*(const uint64_t *)at * 1e-9;
    case NUMBER_REAL:
        return *(const double *)at;
    }
    assert(false);
    return 0;
}

/* Writes a row. Omits it if its value is unknown. */
static void write_row(struct metrics_writer *writer, const struct metric *metric) {
    const struct exposition *to = &writer->to;
    const char *name = metric->name;
    double number = metric->type == METRIC_HISTOGRAM ? 0 : number_of(&writer->shown, metric);
    if (isnan(number)) return;
    if (metric->help) exposition_declare(to, metric->type, name, metric->help);
    const char *labels = labels_of(writer, name, metric->label, metric->value);
    if (metric->type != METRIC_HISTOGRAM) {
        exposition_sample(to, name, labels, number);
    } else if (metric->histogram == HISTOGRAM_STEP_TOKENS) {
        write_steps(writer, name, labels);
    } else {
        write_histogram(writer, name, labels, metrics_bounds(metric->histogram),
                        &writer->shown.metrics.histograms[metric->histogram]);
    }
}

static void write_infos(struct metrics_writer *writer) {
    const struct metrics_view *view = writer->view;
    struct build_info build = build_info();
    struct buf *labels = &writer->labels;
    char size[32], blocks[32], host_blocks[32];
    exposition_declare(&writer->to, METRIC_INFO, "penstock_build_info",
                       "Always 1; the labels describe the build.");
    labels_of(writer, "penstock_build_info", "version", build.version);
    exposition_label(labels, "commit", build.commit);
    exposition_label(labels, "build", build.build);
    exposition_sample(&writer->to, "penstock_build_info", labels->data, 1);

    snprintf(size, sizeof size, "%d", view->block_size);
    snprintf(blocks, sizeof blocks, "%d", view->stats->blocks_total);
    snprintf(host_blocks, sizeof host_blocks, "%d", view->stats->host_blocks_total);
    exposition_declare(&writer->to, METRIC_INFO, "vllm:cache_config_info",
                       "Always 1; the labels describe the KV cache.");
    labels_of(writer, "vllm:cache_config_info", "block_size", size);
    exposition_label(labels, "num_gpu_blocks", blocks);
    exposition_label(labels, "num_cpu_blocks", host_blocks);
    exposition_label(labels, "cache_dtype", view->cache_dtype);
    exposition_label(labels, "enable_prefix_caching", view->prefix_caching ? "True" : "False");
    exposition_sample(&writer->to, "vllm:cache_config_info", labels->data, 1);
}

/* Writes the adapters with requests, as routers of vLLM read them: the value is the time. */
static void write_adapters(struct metrics_writer *writer) {
    struct adapters *adapters = writer->view->adapters;
    struct buf running = {0}, waiting = {0};
    char most[16];
    if (!adapters) return;
    adapters_busy(adapters, &running, &waiting);
    snprintf(most, sizeof most, "%d", adapters_most(adapters));
    exposition_declare(&writer->to, METRIC_GAUGE, "vllm:lora_requests_info",
                       "Adapters with requests; the value is the time of the sample.");
    labels_of(writer, "vllm:lora_requests_info", "max_lora", most);
    exposition_label(&writer->labels, "running_lora_adapters", running.data ? running.data : "");
    exposition_label(&writer->labels, "waiting_lora_adapters", waiting.data ? waiting.data : "");
    exposition_sample(&writer->to, "vllm:lora_requests_info", writer->labels.data,
                      (double)time(NULL));
    buf_free(&running);
    buf_free(&waiting);
}

/* Writes the metrics of the library that instruments vLLM's HTTP server, for its dashboards. */
static void write_http(struct metrics_writer *writer) {
    const struct metrics *metrics = &writer->shown.metrics;
    const char *name = "http_requests_total";
    exposition_declare(&writer->to, METRIC_COUNTER, name, "Answers, without health and scrapes.");
    for (int i = 0; i < metrics->n_http; i++) {
        const struct http_count *count = &metrics->http[i];
        for (int class = 1; class < 6; class ++) {
            char status[] = {(char)('0' + class), 'x', 'x', 0};
            if (count->by_class[class] == 0) continue;
            labels_of(writer, name, "handler", count->path);
            exposition_label(&writer->labels, "method", count->method);
            exposition_label(&writer->labels, "status", status);
            exposition_sample(&writer->to, name, writer->labels.data,
                              (double)count->by_class[class]);
        }
    }
    name = "http_request_duration_seconds";
    exposition_declare(&writer->to, METRIC_HISTOGRAM, name, "From headers to the last byte.");
    for (int i = 0; i < metrics->n_http; i++) {
        labels_of(writer, name, "handler", metrics->http[i].path);
        exposition_label(&writer->labels, "method", metrics->http[i].method);
        write_histogram(writer, name, writer->labels.data, metrics_http_bounds(),
                        &metrics->http[i].seconds);
    }
}

/* ---- keys ----------------------------------------------------------------------------------- */

static double running_of(const struct key_use *use) {
    return use->n_requests;
}

static double requests_of(const struct key_use *use) {
    return (double)use->requests;
}

static double refused_of(const struct key_use *use) {
    return (double)use->refused;
}

static double prompt_tokens_of(const struct key_use *use) {
    return (double)use->prompt_tokens;
}

static double output_tokens_of(const struct key_use *use) {
    return (double)use->output_tokens;
}

static const struct {
    enum metric_type type;
    const char *name, *help;
    double (*value)(const struct key_use *use);
} key_table[] = {
    {METRIC_GAUGE, "penstock_key_requests", "Running requests by the name of the API key.",
     running_of},
    {METRIC_COUNTER, "penstock_key_requests_total", "Requests by the name of the API key.",
     requests_of},
    {METRIC_COUNTER, "penstock_key_refused_total",
     "Requests that were refused because of a limit of the API key.", refused_of},
    {METRIC_COUNTER, "penstock_key_prompt_tokens_total",
     "Prompt tokens of the API key, without those from the prefix cache.", prompt_tokens_of},
    {METRIC_COUNTER, "penstock_key_output_tokens_total", "Generated tokens of the API key.",
     output_tokens_of},
};

/* Writes the metrics of the keys that have names: those of a file, so their number is bounded. */
static void write_keys(struct metrics_writer *writer) {
    const struct keys *keys = writer->view->keys;
    bool named = false;
    for (int i = 0; keys && i < keys->n; i++) named |= keys->key[i].name[0] != 0;
    for (size_t row = 0; named && row < sizeof key_table / sizeof *key_table; row++) {
        const char *name = key_table[row].name;
        exposition_declare(&writer->to, key_table[row].type, name, key_table[row].help);
        for (int i = 0; i < keys->n; i++) {
            const struct api_key *key = &keys->key[i];
            if (!key->name[0]) continue;
            exposition_sample(&writer->to, name, labels_of(writer, name, "key", key->name),
                              key_table[row].value(key->use));
        }
    }
}

static double share(int part, int whole) {
    return whole > 0 ? (double)part / whole : 0;
}

void metrics_write(struct buf *out, bool openmetrics, const struct metrics_view *view) {
    const struct scheduler_stats *stats = view->stats;
    double windows = share(stats->window_blocks_used, stats->window_blocks_total);
    double blocks = share(stats->blocks_used, stats->blocks_total);
    struct metrics_writer writer = {
        .to = {out, openmetrics},
        .view = view,
        .shown = {.metrics = *view->metrics,
                  .stats = *stats,
                  .prepare = view->lanes[LANE_PREPARE],
                  .grammar = view->lanes[LANE_GRAMMAR],
                  .text = view->lanes[LANE_TEXT],
                  .grammars = view->grammars,
                  .process = view->process,
                  .store_up = view->store ? view->store->is_up : (double)NAN,
                  .connections = view->connections,
                  .answer_bytes = view->answer_bytes,
                  .computed_tokens = stats->prompt_tokens - stats->cached_tokens,
                  .awake = stats->model == MODEL_LOADED,
                  .asleep = stats->model != MODEL_LOADED,
                  .kv_usage = windows > blocks ? windows : blocks,
                  .swap_usage = share(stats->host_blocks_used, stats->host_blocks_total)},
    };
    if (view->store) writer.shown.store = *view->store;
    assert(stats->cached_tokens <= stats->prompt_tokens);
    write_infos(&writer);
    write_adapters(&writer);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) write_row(&writer, &table[i]);
    write_http(&writer);
    write_keys(&writer);
    exposition_end(&writer.to);
    buf_free(&writer.labels);
}
