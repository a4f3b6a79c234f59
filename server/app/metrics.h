/* server/app/metrics: counters of the loop thread. All zero is empty. endpoints/metrics.c writes
 * them for GET /metrics. */
#ifndef PENSTOCK_SERVER_METRICS_H
#define PENSTOCK_SERVER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

/* Values counted by size; endpoints/metrics.c has their names, metrics.c their bounds. Here a
 * "request" is a prompt: each prompt of an HTTP request counts. Times are in seconds. */
enum histogram_id {
    HISTOGRAM_FIRST_TOKEN,  /* from the request to the prompt's first token */
    HISTOGRAM_INTER_TOKEN,  /* from one token of a choice to the next */
    HISTOGRAM_OUTPUT_TOKEN, /* mean of these per finished choice with at least two tokens */
    HISTOGRAM_QUEUE,        /* from the request to its first step */
    HISTOGRAM_PREFILL,      /* from there to the first token, or to the end without tokens */
    HISTOGRAM_DECODE,       /* from the first token to the end */
    HISTOGRAM_INFERENCE,    /* prefill and decode together */
    HISTOGRAM_REQUEST,      /* from the request to the end */
    HISTOGRAM_PROMPT,       /* prompt tokens */
    HISTOGRAM_COMPUTED,     /* prompt tokens that the prefix cache lacked */
    HISTOGRAM_GENERATION,   /* tokens of a finished choice */
    HISTOGRAM_LONGEST,      /* tokens of a prompt's longest choice */
    HISTOGRAM_MAX_TOKENS,   /* maximum requested tokens */
    HISTOGRAM_N,            /* requested choices */
    HISTOGRAM_STEP_TOKENS,  /* rows of a step, counted by the scheduler */
    N_HISTOGRAMS
};

#define METRIC_BUCKETS 32

/* Upper bounds of a histogram's buckets. */
struct histogram_bounds {
    int n;
    double at[METRIC_BUCKETS];
    bool counts_tokens; /* bounds above the model's context are not written */
};

struct histogram {
    uint64_t counts[METRIC_BUCKETS + 1]; /* by bound; the last one above all bounds */
    double sum;
};

/* HTTP requests with one path and method. */
struct http_count {
    char path[48];
    const char *method;
    uint64_t by_class[6]; /* index status / 100 */
    struct histogram seconds;
};

#define MAX_HTTP_COUNTS 64

struct metrics {
    struct histogram histograms[N_HISTOGRAMS];
    struct http_count http[MAX_HTTP_COUNTS]; /* [n_http] in the order of the first request */
    int n_http;
    uint64_t finished_stop, finished_length, finished_abort, finished_timeout, finished_error;
    uint64_t refused_deadline; /* of refused_overload: requests that could not be in time */
    uint64_t http_requests[6]; /* by status class, index status / 100 */
    uint64_t refused_overload;
    uint64_t answer_ns; /* the loop's time for converting tokens to text and sending it */
};

/* Return the bounds of a histogram that the server counts, and of http_count.seconds. */
const struct histogram_bounds *metrics_bounds(enum histogram_id id);
const struct histogram_bounds *metrics_http_bounds(void);

/* Counts a value of at least 0. */
void metrics_observe(struct metrics *metrics, enum histogram_id id, double value);

/* Counts an answered HTTP request. `path` is from a fixed list and is copied; `method` must have
 * static storage. If there are more than MAX_HTTP_COUNTS pairs, further ones are added to the last
 * one. */
void metrics_count_http(struct metrics *metrics, const char *path, const char *method, int status,
                        double seconds);

#endif
