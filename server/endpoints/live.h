/* server/endpoints: a snapshot of the batch, for GET /penstock/live. */
#ifndef PENSTOCK_SERVER_LIVE_H
#define PENSTOCK_SERVER_LIVE_H

#include "scheduler/scheduler.h"
#include "server/app/metrics.h"

/* Snapshots of the histograms of a minute, one a second. */
#define LIVE_SECONDS 60

/* Numbers whose change since an earlier moment is shown. */
struct live_past {
    uint64_t at_ns;
    struct scheduler_stats stats;
};

struct live_snapshot {
    uint64_t at_ns; /* now_ns() */
    struct scheduler_stats stats;
    struct live_past before; /* the snapshot before it; at_ns 0: none */
    int block_size;
    int preparing;    /* requests whose prompts are being prepared */
    uint64_t refused; /* because the queue was full */
    /* of the last minute: time to the first token, and between two tokens */
    struct histogram first_token, inter_token;
    const struct scheduler_view *view; /* NULL: none yet */
};

/* The sequences that a client may see, with their ids. */
struct live_reader {
    bool all;
    uint64_t client; /* unless all: those of this client (struct generation); 0: none */
};

/* Appends the snapshot as a JSON object on one line, with the sequences that `reader` may see. */
void live_write(struct buf *out, const struct live_snapshot *snapshot,
                const struct live_reader *reader);

/* Returns the q-quantile of a histogram, interpolated within its bucket; -1 if it is empty. */
double live_quantile(const struct histogram *histogram, const struct histogram_bounds *bounds,
                     double q);

/* "loaded", "unloaded" or "loading". */
const char *model_state_name(enum model_state state);

#endif
