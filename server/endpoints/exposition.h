/* exposition: the text formats in which metrics are scraped: Prometheus' own, 0.0.4, and
 * OpenMetrics 1.0.0. Internal to server/endpoints.
 *
 * A family is named as its samples are: a counter's name ends in _total, an info's in _info. A
 * histogram's samples add _bucket, _sum and _count. OpenMetrics declares counters and infos without
 * these ends, and tells the unit if the rest ends in one; 0.0.4 declares the whole name, knows no
 * info (it is a gauge of 1) and no units, and has no mark at its end.
 */
#ifndef PENSTOCK_EXPOSITION_H
#define PENSTOCK_EXPOSITION_H

#include "config/config.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_INFO, METRIC_HISTOGRAM };

struct exposition {
    struct buf *out;
    bool openmetrics;
};

/* Does a client that sends this Accept header (NULL: none) prefer OpenMetrics? One that takes
 * either equally gets it. */
bool exposition_prefers_openmetrics(const char *accept);

/* The Content-Type of a format. */
const char *exposition_content_type(bool openmetrics);

/* Declares a family. Its samples follow before the next one is declared. `help` is a sentence
 * without quotes, backslashes and line breaks. */
void exposition_declare(const struct exposition *to, enum metric_type type, const char *name,
                        const char *help);

/* A sample of the declared family; `labels` as exposition_label makes them, or "". */
void exposition_sample(const struct exposition *to, const char *name, const char *labels,
                       double value);

/* A whole histogram: counts[n + 1] of values up to each bound, the last one of those above all. */
void exposition_histogram(const struct exposition *to, const char *name, const char *labels,
                          const double *bounds, int n, const uint64_t *counts, double sum);

/* What stands after the last sample. */
void exposition_end(const struct exposition *to);

/* Appends name="value", escaped, after a comma if `labels` holds any. Bytes that are not UTF-8
 * become U+FFFD. */
void exposition_label(struct buf *labels, const char *name, const char *value);

#endif
