/* server/metrics: what the loop thread counts for GET /metrics. All zero is empty. */
#ifndef PENSTOCK_SERVER_METRICS_H
#define PENSTOCK_SERVER_METRICS_H

#include "scheduler/scheduler.h"
#include "server/generation/grammar_store.h"
#include "server/lanes.h"

/* What is counted by size; endpoints/metrics.c has names and bounds. "Requests" are prompts here:
 * each one of an HTTP request with several counts. Times are in seconds. */
enum histogram_id {
    HISTOGRAM_FIRST_TOKEN,  /* from the request to the prompt's first token */
    HISTOGRAM_INTER_TOKEN,  /* from one token of a choice to the next */
    HISTOGRAM_OUTPUT_TOKEN, /* of a choice that is done: the mean of these, from two tokens on */
    HISTOGRAM_QUEUE,        /* from the request to its first step */
    HISTOGRAM_PREFILL,      /* from there to the first token, or to the end if there is none */
    HISTOGRAM_DECODE,       /* from the first token to the end */
    HISTOGRAM_INFERENCE,    /* prefill and decode together */
    HISTOGRAM_REQUEST,      /* from the request to the end */
    HISTOGRAM_PROMPT,       /* tokens of the prompt */
    HISTOGRAM_COMPUTED,     /* of these, those that the prefix cache did not have */
    HISTOGRAM_GENERATION,   /* tokens of a choice that is done */
    HISTOGRAM_LONGEST,      /* tokens of the longest choice of a prompt */
    HISTOGRAM_MAX_TOKENS,   /* tokens that were asked for */
    HISTOGRAM_N,            /* choices that were asked for */
    HISTOGRAM_STEP_TOKENS,  /* rows of a step: the scheduler counts them */
    N_HISTOGRAMS
};

#define METRIC_BUCKETS 32
struct histogram {
    uint64_t counts[METRIC_BUCKETS + 1]; /* by bound; above the last one */
    double sum;
};

/* HTTP requests to one path by one method. */
struct http_count {
    char path[48];
    const char *method;
    uint64_t by_class[6]; /* index status / 100 */
    struct histogram seconds;
};

#define MAX_HTTP_COUNTS 64

struct metrics {
    struct histogram histograms[N_HISTOGRAMS];
    struct http_count http[MAX_HTTP_COUNTS]; /* [n_http] in the order in which they came */
    int n_http;
    uint64_t finished_stop, finished_length, finished_abort, finished_error;
    uint64_t http_requests[6]; /* by status class, index status / 100 */
    uint64_t refused_overload;
    uint64_t answer_ns; /* the loop's time in making tokens text and sending it */
};

/* Counts a value, at least 0. */
void metrics_observe(struct metrics *metrics, enum histogram_id id, double value);

/* Counts an answered HTTP request. `path` is one of a list, and copied; `method` lives as long as
 * the process. Past MAX_HTTP_COUNTS pairs of them, requests are counted with the last one. */
void metrics_count_http(struct metrics *metrics, const char *path, const char *method, int status,
                        double seconds);

/* What the operating system says of this process. NAN: it does not say. */
struct process_stats {
    double cpu_s;   /* of all threads, since the start */
    double start_s; /* since 1970 */
    double virtual_bytes, resident_bytes;
    double open_files, max_files;
};
void process_stats(struct process_stats *out);

/* The state that a scrape shows. */
struct metrics_view {
    const struct metrics *metrics;
    const struct scheduler_stats *stats;
    struct lane_stats lanes[N_LANES];
    struct grammar_store_stats grammars;
    struct process_stats process;
    int connections;
    size_t answer_bytes;     /* of answers that are made or wait to be read */
    const char *model;       /* the served name */
    int max_model_len;       /* bounds the histograms of tokens */
    int block_size;          /* of the KV cache */
    const char *cache_dtype; /* of the KV cache, as the option has it */
    bool prefix_caching;
};

/* Appends everything, in Prometheus' own format or in OpenMetrics: names of our own (penstock_...),
 * vLLM's, those of its HTTP server and of every process. */
void metrics_write(struct buf *out, bool openmetrics, const struct metrics_view *view);

#endif
