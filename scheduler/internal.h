/* internal: the state of the scheduler, for the files of this folder and for tests that call
 * scheduler_step directly.
 *
 *     inbox --take--> waiting --plan, apply--> running --submit, commit--> events
 *                        ^______ preempted ______|
 *                                if swapped, it waits too, but owns host blocks
 *
 * The engine thread owns everything except the inbox and the published statistics.
 */
#ifndef PENSTOCK_SCHEDULER_INTERNAL_H
#define PENSTOCK_SCHEDULER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "scheduler/batch.h"
#include "scheduler/engine_port.h"
#include "scheduler/kv/checkpoints.h"
#include "scheduler/kv/swap.h"
#include "scheduler/plan/step_cost.h"
#include "scheduler/scheduler.h"

/* The queued requests of a share, as queued_requests and queued_tokens. */
struct share_queue {
    _Atomic int requests, tokens;
    int running; /* the share's running sequences; with a single share always 0 */
};

/* State that other threads access. */
struct inbox {
    pthread_mutex_t mutex; /* guards the fields before `cancels` */
    pthread_cond_t changed;
    struct list arrived; /* of requests */
    uint64_t n_arrivals;
    bool stopping;
    bool failed; /* the device has failed */
    struct scheduler_stats published;
    bool view_wanted, view_made; /* asked for; made, and not yet copied */
    struct scheduler_view view;
    uint64_t busy_since_ns;       /* now_ns() when work last arrived in an idle scheduler */
    uint64_t queue_since_ns;      /* now_ns() when a request last arrived in an empty queue */
    int last_priority;            /* the largest priority since then */
    struct queue_cost cost;       /* of prompts that wait */
    struct err load_err;          /* why the last load failed */
    uint64_t loading_since_ns;    /* while the model is loaded again */
    uint64_t least_load_ns;       /* the shortest load so far; 0: none */
    int *new_weights;             /* [shares.n] */
    bool has_weights;             /* these wait for the engine thread */
    struct share_queue *by_share; /* [shares.n] */
    _Atomic bool cancels;         /* a flag was set since the engine thread last checked */
    _Atomic int queued_requests;  /* requests that have never run, in the inbox or waiting */
    _Atomic int queued_tokens;    /* prompt tokens of these requests */
    _Atomic int live_sequences;   /* sequences that have not ended */
    _Atomic bool stepping;
};

/* The drafter for all sequences in one call: a second model (draft/model.c), or a layer of the
 * scheduler's own model (draft/ahead.c). All zero without both. */
struct draft_engine {
    struct engine_port port;
    struct draft_model *model;  /* NULL: `ahead` drafts */
    struct draft_ahead *ahead;  /* NULL: `model` drafts */
    struct step_cost cost;      /* cost of its passes */
    int n_jobs, max_jobs;       /* for the step that is being planned */
    struct draft_job *job;      /* [max_jobs] */
    struct sequence **sequence; /* [max_jobs] the sequence of each job */
    uint64_t ns;                /* time of its passes for that step */
};

struct scheduler {
    struct scheduler_config config;
    struct engine_port port;
    int max_seqs; /* the configured number, limited by rows and logit rows */
    struct block_pool pool;
    struct state_pool states;
    struct checkpoints checkpoints;
    struct swap_space swap;
    struct list waiting, running; /* of sequences, in order; swapped ones wait */
    struct list requests;         /* all live requests */
    uint64_t next_deadline_ns;    /* no live request is late before it */
    struct shares shares;
    struct plan plan;
    struct lookup_config lookup;
    struct suffix *suffix;  /* NULL: the drafter does not search texts that have ended */
    struct drafter drafter; /* all zero if there is no drafter */
    struct draft_engine draft_engine;
    struct step_cost cost;
    struct batch batch;
    struct inflight inflight[MAX_IN_FLIGHT]; /* a ring of n_in_flight steps from first_in_flight */
    int first_in_flight, n_in_flight;
    uint32_t *spare_mask; /* [mask_words] */
    int32_t *restored;    /* [n_blocks] for restore_prefix; NULL without a store */
    struct event *events; /* [max_events] not delivered yet */
    int n_events, max_events;
    struct scheduler_stats stats; /* the counters, updated during a step */
    uint64_t part_began_ns;       /* start of the current part of the step */
    bool unload_due;              /* nothing has run for unload_after_ns */
    _Atomic bool gives_up;        /* a load is not needed: the scheduler is stopping */
    struct inbox inbox;
    pthread_t thread;
    bool started;
};

/* Makes a scheduler on any port. The scheduler then owns the port. */
struct scheduler *scheduler_new_on(const struct scheduler_config *config,
                                   const struct engine_port *port);

/* Submits a step if there is anything to compute. Commits the oldest step in flight if the engine
 * holds as many as it can, or if no step was submitted. Returns whether work is left. */
bool scheduler_step(struct scheduler *scheduler);

/* Returns the step that was submitted last, or NULL if none is in flight. */
struct inflight *inflight_newest(struct scheduler *scheduler);

/* Ends the current part of a step: its time is added to `part`. The next part begins. */
void step_part_ends(struct scheduler *scheduler, enum step_part part);

/* inbox.c: takes the arrived requests, publishes the statistics, and waits for work. inbox_wait
 * returns false if the scheduler is stopping. */
void inbox_init(struct scheduler *scheduler);
void inbox_free(struct scheduler *scheduler);
void inbox_take(struct scheduler *scheduler);
void inbox_publish(struct scheduler *scheduler);
bool inbox_wait(struct scheduler *scheduler, bool idle);
void inbox_stop(struct scheduler *scheduler);

/* view.c: makes the view that was asked for. The caller must hold the inbox's mutex. */
void view_fill(struct scheduler *scheduler);

/* Refuses all later requests, since the device has failed. Returns false if that was known. */
bool inbox_fail(struct scheduler *scheduler);

/* apply.c: carries out the plan. */
void plan_apply(struct scheduler *scheduler);

/* commit.c: waits for the oldest step, and records its results. */
void commit_step(struct scheduler *scheduler, struct inflight *inflight);

/* Registers the full blocks of positions from..n_committed-1 of a sequence with the prefix cache.
 * If an equal block is already known, the sequence shares that block instead. */
void register_blocks(struct scheduler *scheduler, struct sequence *sequence, int from);

/* fork.c: starts the choices of a prompt that was just computed. */
void fork_choices(struct scheduler *scheduler, struct sequence *leader);

/* Adds the candidates of one beam from a step, in one or more results. When all beams have theirs,
 * the search advances or ends. Returns the number of results. */
int commit_candidates(struct scheduler *scheduler, struct sequence *sequence,
                      const struct sampled *results);

/* Watches the blocks from first_seen on of a running sequence that has just shared them. */
void watch_blocks(struct scheduler *scheduler, const struct sequence *sequence);

/* Releases the last block of a running sequence. */
void release_last_block(struct scheduler *scheduler, struct sequence *sequence);

/* Releases the states that a running sequence holds for refused drafts. */
void release_row_states(struct scheduler *scheduler, struct sequence *sequence);

/* Releases the blocks and states of a running sequence and removes it from its batch row and
 * queue. */
void sequence_stop_running(struct scheduler *scheduler, struct sequence *sequence);

/* Ends a sequence with its event, which was just added. The last sequence ends its request, too. */
void sequence_end(struct scheduler *scheduler, struct sequence *sequence, enum finish finish,
                  struct event *event);

/* Ends a search and its request. If finish is FINISH_STOP, its events are the texts that it has
 * found; otherwise each choice ends with `finish`. */
void end_search(struct scheduler *scheduler, struct request *request, enum finish finish);

/* Ends the choices whose flags are set; ends all choices with `finish`. */
void cancel_wanted(struct scheduler *scheduler);
void end_everything(struct scheduler *scheduler, enum finish finish);

/* unload.c: unloads the model if that is due and nothing runs, or loads it if a request waits. If
 * that fails, the requests end. Between two steps. */
void unload_or_load(struct scheduler *scheduler);

/* Returns the time until an idle scheduler unloads its model, 0 if that is due, UINT64_MAX if it
 * does not. The engine thread holds the inbox's mutex. */
uint64_t unload_in_ns(const struct scheduler *scheduler, uint64_t now);

/* Returns a lower bound of the time until the model is loaded. The caller must hold the inbox's
 * mutex. Any thread. */
double load_left_ns(const struct scheduler *scheduler);

/* Ends all choices of a request. */
void request_end(struct scheduler *scheduler, struct request *request, enum finish finish);

/* ---- deadline.c ------------------------------------------------------------------------------ */

/* Can the generation meet its deadline? If not, returns STATUS_OVERLOADED. Any thread. */
enum status deadline_check(struct scheduler *scheduler, const struct generation *generation,
                           struct err *err);

/* Publishes the cost of prompts. The caller must hold the inbox's mutex. */
void deadline_publish(struct scheduler *scheduler);

/* A generation has arrived. */
void deadline_note(struct scheduler *scheduler, const struct generation *generation);

/* Ends the requests whose deadlines have passed. */
void deadline_end_late(struct scheduler *scheduler, uint64_t now);

/* ---- restore.c: blocks of a store ------------------------------------------------------------ */

/* Has the store of the configuration follow the pool. */
void restore_init(struct scheduler *scheduler);

/* Makes the restored prefix of a request known to the pool, as far as it has room, and frees it. */
void restore_prefix(struct scheduler *scheduler, struct request *request);

/* ---- constraint.c: choices with a grammar or a limit on their thoughts ---------------------- */

/* Frees the matcher. The sequence must not sample afterwards. */
void constraint_end(struct sequence *sequence);

/* Does any sample need a mask? */
bool constraint_masks(const struct inflight *inflight);

/* Does any sample need a mask that depends on the result of the step before it? */
bool constraint_waits(const struct inflight *inflight);

/* Sets the mask of each sample whose sequence has a grammar, or whose token is forced. Called
 * between the submission of a step and its sampling. */
void constraint_make_masks(struct scheduler *scheduler, struct inflight *inflight);

/* Returns how many of the n drafts after the known tokens the grammar and forced tokens allow. */
int constraint_cut_drafts(struct sequence *sequence, int n);

/* Returns the next token if only one is allowed and the sampler could not refuse it; -1 if it must
 * be sampled. */
int32_t constraint_forced(struct scheduler *scheduler, const struct sequence *sequence);

/* Returns the only candidate of a beam whose thoughts are at their limit, or -1. */
int32_t constraint_only(const struct sequence *sequence);

/* Advances by the last token of the sequence, which does not end it. Returns FINISH_COMPLETE if no
 * token can follow, FINISH_STUCK if the grammar does not allow the token, because it exceeded its
 * limits, FINISH_NO_MEMORY if it ran out of memory, otherwise FINISH_NONE. */
enum finish constraint_take(struct sequence *sequence);

/* Returns why a sequence with a grammar cannot continue: FINISH_STUCK or FINISH_NO_MEMORY. */
enum finish constraint_stuck(const struct sequence *sequence);

/* ---- ends ----------------------------------------------------------------------------------- */

/* Handles a failed device: reports it, refuses later requests, and ends all requests. Later calls
 * do nothing. */
void scheduler_fail(struct scheduler *scheduler);

/* Stops counting a request as queued: it runs for the first time, or ends before it has run. */
void request_unqueue(struct scheduler *scheduler, struct request *request);

/* Adds an event of `sequence`. The caller fills it; it is valid until the next one is added.
 * events_deliver delivers all. */
struct event *event_add(struct scheduler *scheduler, const struct sequence *sequence,
                        enum event_kind kind);
void events_deliver(struct scheduler *scheduler);

/* invariants.c: asserts all invariants. For tests, between steps. */
void scheduler_check(const struct scheduler *scheduler);

#endif
