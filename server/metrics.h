/* server/metrics: what the loop thread counts for GET /metrics. All zero is empty. */
#ifndef PENSTOCK_SERVER_METRICS_H
#define PENSTOCK_SERVER_METRICS_H

#include "scheduler/scheduler.h"

/* Prometheus histograms and counters that the loop thread keeps. */
#define METRIC_BUCKETS 24
struct histogram {
    uint64_t counts[METRIC_BUCKETS + 1];
    double sum;
    uint64_t count;
};
struct metrics {
    struct histogram ttft, inter_token, e2e, queue;
    uint64_t finished_stop, finished_length, finished_abort, finished_error;
    uint64_t http_requests[6]; /* by status class, index status / 100 */
    uint64_t refused_overload;
    uint64_t answer_ns; /* the loop's time in making tokens text and sending it */
};
void histogram_add(struct histogram *histogram, double seconds);

/* Appends the Prometheus text of everything: names of our own (penstock_...) and the vLLM names. */
void metrics_write(struct buf *out, const struct metrics *metrics,
                   const struct scheduler_stats *stats, const char *model, int connections);

#endif
