/* server/endpoints: the state that GET /metrics writes, and the table of its series. */
#ifndef PENSTOCK_SERVER_METRICS_VIEW_H
#define PENSTOCK_SERVER_METRICS_VIEW_H

#include "scheduler/scheduler.h"
#include "scheduler/store/prefix_store.h"
#include "server/app/lanes.h"
#include "server/app/metrics.h"
#include "server/endpoints/exposition.h"
#include "server/generation/grammar_store.h"
#include "server/keys/keys.h"
#include "server/promises/promises.h"
#include "server/traces/traces.h"

/* The operating system's data on this process. NAN: unknown. */
struct process_stats {
    double cpu_s;   /* of all threads since the start */
    double start_s; /* since 1970 */
    double virtual_bytes, resident_bytes;
    double open_files, max_files;
};
void process_stats(struct process_stats *out);

/* The state to write. */
struct metrics_view {
    const struct metrics *metrics;
    const struct scheduler_stats *stats;
    struct lane_stats lanes[N_LANES];
    struct grammar_store_stats grammars;
    struct process_stats process;
    const struct prefix_store_stats *store; /* NULL: no store */
    struct traces_stats traces;
    const struct journal_stats *journal; /* NULL: no --state-dir */
    int connections;
    size_t answer_bytes;     /* of answers being made or waiting to be read */
    const char *model;       /* served name */
    int max_model_len;       /* upper limit of the histograms of tokens */
    int block_size;          /* of the KV cache */
    const char *cache_dtype; /* of the KV cache; the option's value */
    bool prefix_caching;
    struct adapters *adapters; /* NULL: no adapters */
    const struct keys *keys;   /* those with a name have metrics */
};

/* ---- the table (metrics_table.c) ------------------------------------------------------------ */

/* The values that the rows refer to. */
struct shown {
    struct metrics metrics;
    struct scheduler_stats stats;
    struct lane_stats prepare, grammar, text;
    struct grammar_store_stats grammars;
    struct process_stats process;
    struct prefix_store_stats store;
    struct traces_stats traces;
    struct journal_stats journal; /* zeros without --state-dir */
    double store_up;              /* NAN without a store */
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

/* One row per series. */
extern const struct metric metric_table[];
extern const int n_metrics;

/* ---- writing (metrics.c) -------------------------------------------------------------------- */

/* Appends all metrics, in Prometheus' format or in OpenMetrics: Penstock's (penstock_...), vLLM's,
 * those of vLLM's HTTP server, and those of every process. */
void metrics_write(struct buf *out, bool openmetrics, const struct metrics_view *view);

#endif
