/* Prometheus' text format: names of our own, and those of vLLM that dashboards and gateways
 * read. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/metrics.h"

/* Upper bounds in seconds. A small model on a fast machine has steps below a millisecond; a long
 * prompt on a slow one waits for minutes. */
static const double bounds[METRIC_BUCKETS] = {
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1,
    0.2,    0.3,   0.5,   0.75,  1,     2,      3,    5,    10,   30,   60,    120};

void histogram_add(struct histogram *histogram, double seconds) {
    int i = 0;
    if (!(seconds > 0)) seconds = 0;
    while (i < METRIC_BUCKETS && seconds > bounds[i]) i++;
    histogram->counts[i]++;
    histogram->sum += seconds;
    histogram->count++;
}

/* ---- the format ----------------------------------------------------------------------------- */

struct writer {
    struct buf *out;
    struct buf model; /* the served name as a label's value, escaped */
};

static void escape_label(struct buf *out, const char *value) {
    for (const char *p = value; *p; p++) {
        if (*p == '\\' || *p == '"') buf_add(out, "\\", 1);
        if (*p == '\n')
            buf_puts(out, "\\n");
        else
            buf_add(out, p, 1);
    }
}

static void head(struct writer *writer, const char *name, const char *type, const char *help) {
    buf_printf(writer->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* One sample; `label` is "" or `key="value"`. Names of vLLM carry the model's name as theirs do. */
static void sample(struct writer *writer, const char *name, const char *label, double value) {
    bool vllm = strncmp(name, "vllm:", 5) == 0;
    buf_puts(writer->out, name);
    if (vllm || label[0]) {
        buf_puts(writer->out, "{");
        buf_puts(writer->out, label);
        if (vllm) {
            buf_printf(writer->out, "%smodel_name=\"%s\"", label[0] ? "," : "", writer->model.data);
        }
        buf_puts(writer->out, "}");
    }
    buf_printf(writer->out, " %.15g\n", value);
}

static void gauge(struct writer *writer, const char *name, const char *help, double value) {
    head(writer, name, "gauge", help);
    sample(writer, name, "", value);
}

static void counter(struct writer *writer, const char *name, const char *help, double value) {
    head(writer, name, "counter", help);
    sample(writer, name, "", value);
}

static void write_histogram(struct writer *writer, const char *name, const char *help,
                            const struct histogram *histogram) {
    char series[96], label[32];
    uint64_t below = 0;
    head(writer, name, "histogram", help);
    snprintf(series, sizeof series, "%s_bucket", name);
    for (int i = 0; i < METRIC_BUCKETS; i++) {
        below += histogram->counts[i];
        snprintf(label, sizeof label, "le=\"%g\"", bounds[i]);
        sample(writer, series, label, (double)below);
    }
    assert(below + histogram->counts[METRIC_BUCKETS] == histogram->count);
    sample(writer, series, "le=\"+Inf\"", (double)histogram->count);
    snprintf(series, sizeof series, "%s_sum", name);
    sample(writer, series, "", histogram->sum);
    snprintf(series, sizeof series, "%s_count", name);
    sample(writer, series, "", (double)histogram->count);
}

/* ---- the metrics ---------------------------------------------------------------------------- */

static void write_vllm_gauges(struct writer *writer, const struct scheduler_stats *stats) {
    double total = stats->blocks_total > 0 ? stats->blocks_total : 1;
    gauge(writer, "vllm:num_requests_running", "Sequences that are being computed.",
          stats->running);
    gauge(writer, "vllm:num_requests_waiting", "Sequences that wait.", stats->waiting);
    gauge(writer, "vllm:num_requests_swapped", "Sequences that wait in the host's memory.",
          stats->swapped);
    gauge(writer, "vllm:cpu_cache_usage_perc", "Share of the swap space in use, 0 to 1.",
          stats->host_blocks_total > 0 ? (double)stats->host_blocks_used / stats->host_blocks_total
                                       : 0);
    gauge(writer, "vllm:kv_cache_usage_perc", "Share of the KV blocks in use, 0 to 1.",
          stats->blocks_used / total);
    counter(writer, "vllm:prefix_cache_queries_total",
            "Prompt tokens looked up in the prefix cache.", (double)stats->prefix_queries);
    counter(writer, "vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
            (double)stats->prefix_hits);
    counter(writer, "vllm:num_preemptions_total", "Sequences put back to free KV blocks.",
            (double)stats->preemptions);
    counter(writer, "vllm:prompt_tokens_total", "Prompt tokens computed or found.",
            (double)stats->prompt_tokens);
    counter(writer, "vllm:generation_tokens_total", "Tokens generated.",
            (double)stats->generated_tokens);
}

static void write_vllm_requests(struct writer *writer, const struct metrics *metrics) {
    const char *name = "vllm:request_success_total";
    head(writer, name, "counter", "Choices that ended, by reason.");
    sample(writer, name, "finished_reason=\"stop\"", (double)metrics->finished_stop);
    sample(writer, name, "finished_reason=\"length\"", (double)metrics->finished_length);
    sample(writer, name, "finished_reason=\"abort\"", (double)metrics->finished_abort);
    sample(writer, name, "finished_reason=\"error\"", (double)metrics->finished_error);
    write_histogram(writer, "vllm:time_to_first_token_seconds", "From request to first token.",
                    &metrics->ttft);
    write_histogram(writer, "vllm:inter_token_latency_seconds", "From one token to the next.",
                    &metrics->inter_token);
    write_histogram(writer, "vllm:e2e_request_latency_seconds", "From request to last token.",
                    &metrics->e2e);
    write_histogram(writer, "vllm:request_queue_time_seconds", "From request to its first step.",
                    &metrics->queue);
}

static void write_http(struct writer *writer, const struct metrics *metrics, int connections) {
    const char *name = "penstock_http_requests_total";
    gauge(writer, "penstock_http_connections", "Open connections.", connections);
    head(writer, name, "counter", "Answers by class of their status code.");
    for (int i = 1; i < 6; i++) {
        char label[32];
        snprintf(label, sizeof label, "class=\"%dxx\"", i);
        sample(writer, name, label, (double)metrics->http_requests[i]);
    }
    counter(writer, "penstock_refused_overload_total",
            "Requests refused because the queue was full.", (double)metrics->refused_overload);
    counter(writer, "penstock_answer_seconds_total",
            "The loop's time in making tokens text and sending it.",
            (double)metrics->answer_ns * 1e-9);
}

static void write_scheduler(struct writer *writer, const struct scheduler_stats *stats) {
    const char *name = "penstock_kv_blocks";
    gauge(writer, "penstock_queued_tokens", "Prompt tokens that wait.", stats->queued_tokens);
    head(writer, name, "gauge",
         "KV blocks: all, referenced, unreferenced but known by their hash.");
    sample(writer, name, "state=\"total\"", stats->blocks_total);
    sample(writer, name, "state=\"used\"", stats->blocks_used);
    sample(writer, name, "state=\"cached\"", stats->blocks_cached);
    name = "penstock_swap_blocks";
    head(writer, name, "gauge",
         "Blocks of swap space: all, of swapped sequences, kept for the prefix cache.");
    sample(writer, name, "state=\"total\"", stats->host_blocks_total);
    sample(writer, name, "state=\"used\"", stats->host_blocks_used);
    sample(writer, name, "state=\"cached\"", stats->host_blocks_cached);
    name = "penstock_swapped_blocks_total";
    head(writer, name, "counter", "KV blocks that went to the host's memory, and came back.");
    sample(writer, name, "direction=\"out\"", (double)stats->swapped_out);
    sample(writer, name, "direction=\"in\"", (double)stats->swapped_in);
    counter(writer, "penstock_steps_total", "Forward passes.", (double)stats->steps);
    counter(writer, "penstock_step_seconds_total", "Time in forward passes.",
            (double)stats->step_ns * 1e-9);
    name = "penstock_step_part_seconds_total";
    head(writer, name, "counter", "The parts of that time: which of them bounds the speed.");
    sample(writer, name, "part=\"plan\"", (double)stats->part_ns[PART_PLAN] * 1e-9);
    sample(writer, name, "part=\"forward\"", (double)stats->part_ns[PART_FORWARD] * 1e-9);
    sample(writer, name, "part=\"sample\"", (double)stats->part_ns[PART_SAMPLE] * 1e-9);
    sample(writer, name, "part=\"commit\"", (double)stats->part_ns[PART_COMMIT] * 1e-9);
}

static void write_build(struct writer *writer) {
    struct build_info build = build_info();
    struct buf labels = {0};
    buf_printf(&labels, "version=\"%s\",commit=\"%s\",build=\"%s\"", build.version, build.commit,
               build.build);
    head(writer, "penstock_build_info", "gauge", "Always 1; the labels tell the build.");
    sample(writer, "penstock_build_info", labels.data, 1);
    buf_free(&labels);
}

void metrics_write(struct buf *out, const struct metrics *metrics,
                   const struct scheduler_stats *stats, const char *model, int connections) {
    struct writer writer = {.out = out};
    buf_add(&writer.model, "", 0);
    escape_label(&writer.model, model);
    write_build(&writer);
    write_http(&writer, metrics, connections);
    write_scheduler(&writer, stats);
    write_vllm_gauges(&writer, stats);
    write_vllm_requests(&writer, metrics);
    buf_free(&writer.model);
}
