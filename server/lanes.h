/* server/lanes: work that is too long for the loop thread, in three queues with threads of their
 * own. A lane is one queue with its threads; work in one lane never waits for work in another.
 *
 *   loop    lanes_push     work joins a queue, or is refused because the lane is full
 *   thread  run            the work's own function, once or, if it parks, several times
 *   loop    done           the work has ended, or was dropped before it ran
 *
 * Clients share a lane fairly: the queue takes turns among them, however much each has queued.
 * The work belongs to its user, and must not be freed between lanes_push and `done`.
 */
#ifndef PENSTOCK_SERVER_LANES_H
#define PENSTOCK_SERVER_LANES_H

#include <uv.h>

#include "config/list.h"

enum lane {
    LANE_PREPARE, /* bodies of requests that generate: JSON, template, tokens */
    LANE_GRAMMAR, /* compiling grammars */
    LANE_TEXT,    /* /tokenize, /detokenize and /render */
    N_LANES
};

enum lane_verdict {
    LANE_ENDED,
    LANE_PARKED, /* it waits, without a thread, for lanes_resume; or was resumed already */
};

/* One piece of work. All zero before its first push; its fields are lanes.c's. */
struct lane_work {
    struct list_node node; /* in the queue, among the parked, or among the ended */
    enum lane lane;
    uint64_t owner; /* the client that it is done for */
    uint64_t turn;  /* the queue's order: one client has one work in each turn */
    bool is_running;
    bool is_resumed; /* while it ran: it does not park */
    bool is_dropped;
};

/* How much work a lane has. */
struct lane_stats {
    int waiting, running, parked;
};

struct lanes;

/* Starts the threads. `run` is called on them, `done` on the loop's thread. */
struct lanes *lanes_new(uv_loop_t *loop, enum lane_verdict (*run)(struct lane_work *work),
                        void (*done)(struct lane_work *work));

/* Ends the threads; no work may be left. The loop must be run once more. NULL is ignored. */
void lanes_free(struct lanes *lanes);

/* Work of the lane waits no more than this in all: a number, or 0 for no limit. One client may use
 * at most the room that it leaves free for others, so that it cannot fill the lane. */
void lanes_set_limit(struct lanes *lanes, enum lane lane, int max_waiting);

/* Queues work. False, and nothing has changed: the lane is full, or the client has its share. */
bool lanes_push(struct lanes *lanes, struct lane_work *work, enum lane lane, uint64_t owner);

/* Parked work goes on, before all that waits. Also allowed before its `run` has returned
 * LANE_PARKED, but only for work that is going to. Any thread. */
void lanes_resume(struct lanes *lanes, struct lane_work *work);

/* Work that waits or is parked ends without running again: `done` follows in a later turn of the
 * loop. Work that is running ends when its function returns, also if that wants to park. */
void lanes_drop(struct lanes *lanes, struct lane_work *work);

/* Any thread. */
struct lane_stats lanes_stats(struct lanes *lanes, enum lane lane);

#endif
