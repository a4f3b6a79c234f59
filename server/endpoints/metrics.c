/* Writes GET /metrics from the table of its series. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "server/app/adapters.h"
#include "server/endpoints/exposition.h"
#include "server/endpoints/metrics_view.h"

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
                  .traces = view->traces,
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
    if (view->journal) writer.shown.journal = *view->journal;
    assert(stats->cached_tokens <= stats->prompt_tokens);
    write_infos(&writer);
    write_adapters(&writer);
    for (int i = 0; i < n_metrics; i++) write_row(&writer, &metric_table[i]);
    write_http(&writer);
    write_keys(&writer);
    exposition_end(&writer.to);
    buf_free(&writer.labels);
}
