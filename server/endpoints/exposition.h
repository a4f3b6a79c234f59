/* exposition: the text formats of metrics: Prometheus 0.0.4 and OpenMetrics 1.0.0. Internal to
 * server/endpoints.
 *
 * A family has the name of its samples: a counter's name ends in _total, an info's in _info. The
 * names of a histogram's samples end in _bucket, _sum and _count. OpenMetrics declares counters and
 * infos without these suffixes, and declares the unit if the rest of the name ends in one. Version
 * 0.0.4 declares the whole name, lacks infos (it writes a gauge of 1) and units, and has no end
 * mark.
 */
#ifndef PENSTOCK_EXPOSITION_H
#define PENSTOCK_EXPOSITION_H

#include "config/config.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_INFO, METRIC_HISTOGRAM };

struct exposition {
    struct buf *out;
    bool openmetrics;
};

/* Does a client with this Accept header (may be NULL) prefer OpenMetrics? If it accepts both
 * equally, the answer is true. */
bool exposition_prefers_openmetrics(const char *accept);

/* Returns the Content-Type of a format. */
const char *exposition_content_type(bool openmetrics);

/* Declares a family. Its samples must follow before the next declaration. `help` is a sentence
 * without quotes, backslashes and line breaks. */
void exposition_declare(const struct exposition *to, enum metric_type type, const char *name,
                        const char *help);

/* Writes a sample of the declared family. `labels` are from exposition_label, or "". */
void exposition_sample(const struct exposition *to, const char *name, const char *labels,
                       double value);

/* Writes a whole histogram: counts[n + 1] of values up to each bound, and of values above all. */
void exposition_histogram(const struct exposition *to, const char *name, const char *labels,
                          const double *bounds, int n, const uint64_t *counts, double sum);

/* Writes the end mark after the last sample. */
void exposition_end(const struct exposition *to);

/* Appends name="value", escaped, with a comma before it if `labels` is not empty. Invalid UTF-8
 * becomes U+FFFD. */
void exposition_label(struct buf *labels, const char *name, const char *value);

#endif
