/* server/app/lanes: runs work that is too long for the loop thread, in four queues with separate
 * threads. A lane is one queue and its threads; work in one lane never waits for work in another.
 *
 *   loop    lanes_push     queues work, or refuses it because the lane is full
 *   thread  run            the work's function, called once or, if it parks, several times
 *   loop    done           the work has ended, or was dropped before it ran
 *
 * Clients share a lane fairly: the queue alternates among them, independent of their queued work.
 * The work belongs to its user and must not be freed between lanes_push and `done`.
 */
#ifndef PENSTOCK_SERVER_LANES_H
#define PENSTOCK_SERVER_LANES_H

#include <uv.h>

#include "config/list.h"

enum lane {
    LANE_PREPARE, /* bodies of requests that generate: JSON, template, tokens */
    LANE_GRAMMAR, /* compiling grammars */
    LANE_TEXT,    /* /tokenize, /detokenize and /render */
    LANE_ADAPTER, /* loading and unloading adapters, one at a time */
    N_LANES
};

enum lane_verdict {
    LANE_ENDED,
    LANE_PARKED, /* waits, without a thread, for lanes_resume; or was already resumed */
};

/* One piece of work. Zero-initialise it before its first push. Fields are private to lanes.c. */
struct lane_work {
    struct list_node node; /* in the queue, the parked list, or the ended list */
    enum lane lane;
    uint64_t owner; /* its client */
    uint64_t turn;  /* position in the queue; a client has one work per turn */
    bool is_running;
    bool is_resumed; /* resumed while running: it does not park */
    bool is_dropped;
};

/* The amount of work in a lane. */
struct lane_stats {
    int waiting, running, parked;
};

struct lanes;

/* Starts the threads, which call `run`. The loop's thread calls `done`. */
struct lanes *lanes_new(uv_loop_t *loop, enum lane_verdict (*run)(struct lane_work *work),
                        void (*done)(struct lane_work *work));

/* Ends the threads. All work must have ended. The loop must run once more. NULL is ignored. */
void lanes_free(struct lanes *lanes);

/* Limits the number of waiting works of a lane; 0: no limit. A client may use at most as much space
 * as it leaves free, so that one client cannot fill the lane. */
void lanes_set_limit(struct lanes *lanes, enum lane lane, int max_waiting);

/* Queues work. Returns false, without a change, if the lane is full or the client has used its
 * share. */
bool lanes_push(struct lanes *lanes, struct lane_work *work, enum lane lane, uint64_t owner);

/* Returns the seconds until a work of the lane is likely to end, 1 to PACE_MAX_S. Any thread may
 * call it. */
int lanes_retry_s(struct lanes *lanes, enum lane lane);

/* Queues parked work again, before all waiting work. It may be called before `run` returns
 * LANE_PARKED, but only for work that will park. Any thread may call it. */
void lanes_resume(struct lanes *lanes, struct lane_work *work);

/* Ends waiting or parked work without running it again: `done` follows in a later turn of the loop.
 * Running work ends when its function returns, even if it asks to park. */
void lanes_drop(struct lanes *lanes, struct lane_work *work);

/* Any thread may call it. */
struct lane_stats lanes_stats(struct lanes *lanes, enum lane lane);

#endif
