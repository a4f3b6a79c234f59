/* internal: the scheduler's own state, for the files of this folder and for tests that step it by
 * hand.
 *
 *     inbox --take--> waiting --plan, apply--> running --submit, commit--> events
 *                        ^______ preempted ______|
 *                                or swapped: then it waits too, but owns slots of the host's memory
 *
 * Everything but the inbox and the published statistics belongs to the engine thread.
 */
#ifndef PENSTOCK_SCHEDULER_INTERNAL_H
#define PENSTOCK_SCHEDULER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "scheduler/batch.h"
#include "scheduler/engine_port.h"
#include "scheduler/kv/swap.h"
#include "scheduler/step_cost.h"

/* What other threads may touch. */
struct inbox {
    pthread_mutex_t mutex; /* guards what stands before `cancels` */
    pthread_cond_t changed;
    struct list arrived; /* of requests */
    uint64_t n_arrivals;
    bool stopping;
    bool failed; /* the device has */
    struct scheduler_stats published;
    uint64_t busy_since_ns;      /* now_ns() when work last came where there was none */
    _Atomic bool cancels;        /* a flag was set since the engine thread last looked */
    _Atomic int queued_requests; /* requests that have never run, here and in waiting */
    _Atomic int queued_tokens;   /* their prompts' tokens */
    _Atomic int live_sequences;  /* sequences that have not ended */
    _Atomic bool stepping;
};

/* A second model, which guesses for all sequences at once (draft/model.c). Without one all is
 * zero. */
struct draft_engine {
    struct engine_port port;
    struct draft_model *model;
    struct step_cost cost;      /* of its passes */
    int n_jobs, max_jobs;       /* of the step that is being planned */
    struct draft_job *job;      /* [max_jobs] */
    struct sequence **sequence; /* [max_jobs] whose they are */
    uint64_t ns;                /* that its passes took for that step */
};

struct scheduler {
    struct scheduler_config config;
    struct engine_port port;
    int max_seqs; /* the configured number, as far as rows and logit rows allow it */
    struct block_pool pool;
    struct swap_space swap;
    struct list waiting, running; /* of sequences, in order; swapped ones wait */
    struct list requests;         /* all that live here */
    struct plan plan;
    struct lookup_config lookup;
    struct suffix *suffix;  /* NULL: no drafter looks in texts that have ended */
    struct drafter drafter; /* all zero if nobody guesses */
    struct draft_engine draft_engine;
    struct step_cost cost;
    struct batch batch;
    struct inflight inflight[MAX_IN_FLIGHT]; /* a ring: those in flight from first_in_flight on */
    int first_in_flight, n_in_flight;
    uint32_t *spare_mask; /* [mask_words] */
    struct event *events; /* [max_events] not yet handed over */
    int n_events, max_events;
    struct scheduler_stats stats; /* the counters, as they grow */
    uint64_t part_began_ns;       /* of the step's part that is going on */
    struct inbox inbox;
    pthread_t thread;
    bool started;
};

/* Makes a scheduler on any port, which it then owns. */
struct scheduler *scheduler_new_on(const struct scheduler_config *config,
                                   const struct engine_port *port);

/* Submits a step where there is room for one in flight and something to compute, and commits the
 * oldest where there is none. With one in flight that is: a step, or the news of the inbox. Returns
 * whether anything is left to do. */
bool scheduler_step(struct scheduler *scheduler);

/* The step that was submitted last, NULL: none is in flight. */
struct inflight *inflight_newest(struct scheduler *scheduler);

/* Ends the part of a step that has been going on: its time counts as `part`'s. The next begins. */
void step_part_ends(struct scheduler *scheduler, enum step_part part);

/* inbox.c: takes over what has arrived and publishes the numbers; waits for something to do,
 * false when stopping. */
void inbox_init(struct scheduler *scheduler);
void inbox_free(struct scheduler *scheduler);
void inbox_take(struct scheduler *scheduler);
void inbox_publish(struct scheduler *scheduler);
bool inbox_wait(struct scheduler *scheduler, bool idle);
void inbox_stop(struct scheduler *scheduler);

/* Refuses what comes from now on, since the device has failed; false when that was known. */
bool inbox_fail(struct scheduler *scheduler);

/* apply.c: moves what the plan says. */
void plan_apply(struct scheduler *scheduler);

/* commit.c: waits for the oldest step, and records its results. */
void commit_step(struct scheduler *scheduler, struct inflight *inflight);

/* Registers with the prefix cache the full blocks of positions from..n_committed-1 of a sequence;
 * where an equal block is known already, the sequence shares that one instead. */
void register_blocks(struct scheduler *scheduler, struct sequence *sequence, int from);

/* fork.c: gives the choices of a prompt that was just computed their beginning. */
void fork_choices(struct scheduler *scheduler, struct sequence *leader);

/* Takes the candidates that a step has brought for a beam, in one result or more; when those of all
 * beams have come, the search goes on or ends. Returns the number of results. */
int commit_candidates(struct scheduler *scheduler, struct sequence *sequence,
                      const struct sampled *results);

/* Watches the blocks from first_seen on of those that a running sequence shares, or has shared. */
void watch_blocks(struct scheduler *scheduler, const struct sequence *sequence);

/* Releases a running sequence's last block. */
void release_last_block(struct scheduler *scheduler, struct sequence *sequence);

/* Releases all blocks of a running sequence and takes it out of its batch row and queue. */
void sequence_stop_running(struct scheduler *scheduler, struct sequence *sequence);

/* Ends a sequence with an event of it that was just added; with the last one, its request too. */
void sequence_end(struct scheduler *scheduler, struct sequence *sequence, enum finish finish,
                  struct event *event);

/* Ends a search, whose request goes: with what it has found, or if it is cancelled or has failed
 * with that. */
void end_search(struct scheduler *scheduler, struct request *request, enum finish finish);

/* Ends the choices whose flags are set; ends all, cancelled or with an error. */
void cancel_wanted(struct scheduler *scheduler);
void end_everything(struct scheduler *scheduler, enum finish finish);

/* ---- constraint.c: choices that keep to a grammar ------------------------------------------- */

/* Where a sequence stands before its first token. */
void constraint_begin(struct sequence *sequence);
/* Frees what it has; it may not sample afterwards. */
void constraint_end(struct sequence *sequence);

/* Does a sample need a mask? */
bool constraint_masks(const struct inflight *inflight);

/* Does a sample need a mask that only the step before it can tell? */
bool constraint_waits(const struct inflight *inflight);

/* Gives each sample of a step whose sequence has a grammar its mask. Between the step's submit and
 * its sampling. */
void constraint_make_masks(struct scheduler *scheduler, struct inflight *inflight);

/* How many of n guesses behind the sequence's known tokens may come. */
int constraint_cut_drafts(struct sequence *sequence, int n);

/* The token that comes next as the grammar lets no other come, and the sampler would have no say in
 * it; -1: it is to be sampled. */
int32_t constraint_forced(struct scheduler *scheduler, const struct sequence *sequence);

/* Takes the sequence's last token, which does not end it by itself. FINISH_COMPLETE: nothing can
 * come after it; FINISH_STUCK: the grammar does not allow it, as it has grown beyond its limits;
 * otherwise FINISH_NONE. */
enum finish constraint_take(struct sequence *sequence);

/* ---- ends ----------------------------------------------------------------------------------- */

/* The device has failed: tells, takes nothing any more, and ends all that lives. Again: nothing. */
void scheduler_fail(struct scheduler *scheduler);

/* The request runs for the first time, or ends before it did: it counts as queued no more. */
void request_unqueue(struct scheduler *scheduler, struct request *request);

/* Adds an event of `sequence` to be filled in, which is valid until the next is added; hands all
 * over. */
struct event *event_add(struct scheduler *scheduler, const struct sequence *sequence,
                        enum event_kind kind);
void events_deliver(struct scheduler *scheduler);

/* invariants.c: walks all invariants and asserts them. For tests, between steps. */
void scheduler_check(const struct scheduler *scheduler);

#endif
