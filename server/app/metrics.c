/* Counts what GET /metrics shows of requests. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/app/metrics.h"

/* ---- bounds --------------------------------------------------------------------------------- */

/* Dashboards query vLLM's bounds by their text, so all of vLLM's bounds are included. A small model
 * on a fast machine needs more bounds below 10 ms. */

static const struct histogram_bounds of_first_token = {
    24, {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
         0.75,   1,     2.5,   5,     7.5,  10,   20,   40,   80,   160, 640,  2560}};
static const struct histogram_bounds of_token = {
    25, {0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
         0.3,    0.4,   0.5,   0.75,  1,     2.5,    5,    7.5,   10,   20,    40,  80}};
static const struct histogram_bounds of_request = {
    29, {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1,   1.5,  2,   2.5,
         5,     10,    15,    20,   30,   40,   50,  60,  120, 240, 480, 960, 1920, 7680}};
/* up to the longest supported context */
static const struct histogram_bounds of_tokens = {
    22,
    {1,    2,    5,    10,   20,    50,    100,   200, 500, 1000, 2000,
     5000, 10e3, 20e3, 50e3, 100e3, 200e3, 500e3, 1e6, 2e6, 5e6,  10e6},
    true};
static const struct histogram_bounds of_choices = {7, {1, 2, 5, 10, 20, 50, 100}};
static const struct histogram_bounds of_http = {7, {0.01, 0.1, 0.5, 1, 5, 30, 120}};

static const struct histogram_bounds *const bounds_of[N_HISTOGRAMS] = {
    [HISTOGRAM_FIRST_TOKEN] = &of_first_token, [HISTOGRAM_INTER_TOKEN] = &of_token,
    [HISTOGRAM_OUTPUT_TOKEN] = &of_token,      [HISTOGRAM_QUEUE] = &of_request,
    [HISTOGRAM_PREFILL] = &of_request,         [HISTOGRAM_DECODE] = &of_request,
    [HISTOGRAM_INFERENCE] = &of_request,       [HISTOGRAM_REQUEST] = &of_request,
    [HISTOGRAM_PROMPT] = &of_tokens,           [HISTOGRAM_COMPUTED] = &of_tokens,
    [HISTOGRAM_GENERATION] = &of_tokens,       [HISTOGRAM_LONGEST] = &of_tokens,
    [HISTOGRAM_MAX_TOKENS] = &of_tokens,       [HISTOGRAM_N] = &of_choices,
};

const struct histogram_bounds *metrics_bounds(enum histogram_id id) {
    assert(id < N_HISTOGRAMS && bounds_of[id] && bounds_of[id]->n <= METRIC_BUCKETS);
    return bounds_of[id];
}

const struct histogram_bounds *metrics_http_bounds(void) {
    return &of_http;
}

/* ---- counting ------------------------------------------------------------------------------- */

static void add(struct histogram *histogram, const struct histogram_bounds *bounds, double value) {
    assert(bounds->n > 0 && bounds->n <= METRIC_BUCKETS);
    int i = 0;
    if (!(value > 0)) value = 0;
    while (i < bounds->n && value > bounds->at[i]) i++;
    histogram->counts[i]++;
    histogram->sum += value;
}

void metrics_observe(struct metrics *metrics, enum histogram_id id, double value) {
    add(&metrics->histograms[id], metrics_bounds(id), value);
}

void metrics_count_http(struct metrics *metrics, const char *path, const char *method, int status,
                        double seconds) {
    int i = 0;
    assert(status >= 100 && status < 600 && strlen(path) < sizeof metrics->http->path);
    while (i < metrics->n_http && (strcmp(metrics->http[i].path, path) != 0 ||
                                   strcmp(metrics->http[i].method, method) != 0)) {
        i++;
    }
    if (i == MAX_HTTP_COUNTS) i--;
    if (i == metrics->n_http) {
        metrics->n_http++;
        snprintf(metrics->http[i].path, sizeof metrics->http[i].path, "%s", path);
        metrics->http[i].method = method;
    }
    metrics->http[i].by_class[status / 100]++;
    add(&metrics->http[i].seconds, &of_http, seconds);
}
