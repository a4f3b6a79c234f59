/* scheduler: which sequence gets how many tokens in which step, and which KV blocks it holds.
 *
 * The boundary: a `struct generation` is what the server asks for (a prompt, how to sample, n
 * choices); the scheduler makes a `struct sequence` of each choice, and an `struct event` of each
 * token. A `struct scheduler` owns the queues, the block pool and the engine thread. submit, cancel
 * and stats may be called from any thread; everything else happens on the engine thread, which
 * calls `on_events` with all that a step has brought.
 */
#ifndef PENSTOCK_SCHEDULER_H
#define PENSTOCK_SCHEDULER_H

#include "engine/engine.h"

struct grammar;
struct vocabulary;

/* ---- what is asked for ---------------------------------------------------------------------- */

#define MAX_CHOICES 128
#define MAX_BEAMS 16

/* When a beam search ends that has found as many texts as it has beams. */
enum beam_stopping {
    BEAMS_STOP_BY_SCORE,    /* if the best beam, at its length, is worth no more than they are */
    BEAMS_STOP_EARLY,       /* at once */
    BEAMS_NEVER_STOP_EARLY, /* if no length could make the best beam worth more */
};

/* What is asked of a beam search (beams/beams.h). */
struct beam_search {
    int width; /* beams, 1..MAX_BEAMS; 0: no search */
    enum beam_stopping stopping;
    double length_penalty; /* above 0 favours long texts */
};

/* One prompt and n choices to generate from it, which the server makes. From a scheduler_submit
 * that succeeds on, the scheduler reads it: the server keeps it, and all that it points to,
 * unchanged and alive. It returns to the server with the event that is marked `last`: from the call
 * of on_events with that event on, neither the scheduler nor the engine reads it. The server may
 * free it at once, even if the step goes on. The scheduler never frees it. */
struct generation {
    const int32_t *prompt; /* [n_prompt], at least one token */
    int n_prompt;
    /* choices, 1..MAX_CHOICES: choice i samples with counter i and shares the prompt's blocks */
    int n;
    /* The choices are the n best texts of this search, n at most its width. All their events come
     * when it ends, so single ones cannot be cancelled. */
    struct beam_search beams;
    int max_tokens; /* of each choice; 0: only the prompt's logprobs */
    int min_tokens;
    int max_drafts;           /* guessed tokens that a step may verify; 0: none */
    const int32_t *predicted; /* [n_predicted] the output that is expected, to guess from */
    int n_predicted;          /* 0: none is */
    struct sampling sampling; /* banned is the scheduler's to fill */
    int n_stop_ids;
    /* end the choice; with the model's end ids unless ignore_eos, already merged in */
    int32_t stop_ids[MAX_STOP_IDS];
    /* What each choice's text keeps to, and the model's vocabulary with it; NULL: anything. It
     * begins behind the first n_begin_ids tokens of the output that are begin_ids, if there are
     * any. It comes before min_tokens and stop_ids (constraint.c). */
    struct grammar *grammar;
    const struct vocabulary *vocabulary;
    int n_begin_ids;
    const int32_t *begin_ids;
    /* -1: none; otherwise an event for each prompt token, with that many best */
    int prompt_logprobs;
    int priority; /* lower first */
    /* prefixes are shared only under the same salt; 0 is the common one */
    uint64_t cache_salt[2];
    uint64_t received_ns; /* now_ns() at which the request came in */
    void *owner;          /* the server's */
    /* set by any thread: all choices end with FINISH_CANCELLED within a step */
    _Atomic bool cancelled;
    /* bit i set: choice i is not wanted any more (a stop string was met) */
    _Atomic uint64_t cancelled_choices[2];
};

/* ---- what comes back ------------------------------------------------------------------------ */

enum finish {
    FINISH_NONE,      /* more will come */
    FINISH_STOP,      /* a stop id: `token` is it */
    FINISH_COMPLETE,  /* nothing can come after the token, which is part of the text */
    FINISH_LENGTH,    /* max_tokens, or the model's length */
    FINISH_CANCELLED, /* asked for, or the server is stopping */
    FINISH_STUCK,     /* no token is left that the grammar and the sampling both allow */
    FINISH_ERROR,     /* a bug: the request ends alone; or the device has failed, with all */
};

enum event_kind {
    EVENT_TOKEN, /* a generated token; `finish` may be set with it */
    /* logprobs of one prompt token, in order, before the first EVENT_TOKEN of choice 0 */
    EVENT_PROMPT_TOKEN,
    EVENT_END, /* an end without a token: cancelled, max_tokens 0, error */
};

struct event {
    struct generation *generation;
    enum event_kind kind;
    int choice;
    enum finish finish;
    bool last;                   /* no event of this generation follows: it is the server's again */
    int position;                /* EVENT_PROMPT_TOKEN: index in the prompt */
    int n_cached;                /* prompt tokens that came from the prefix cache */
    uint64_t first_scheduled_ns; /* when its first row entered a step */
    /* of the predicted output, so far: guesses that held, and that did not */
    int predicted_held, predicted_refused;
    float score;            /* of a beam search: the text's, with its finish */
    struct sampled sampled; /* id; logprobs where asked for */
};

/* ---- the scheduler -------------------------------------------------------------------------- */

struct drafter;

struct scheduler_config {
    int max_num_seqs;             /* sequences in one step */
    int max_num_batched_tokens;   /* rows in one step */
    int max_mixed_prefill_tokens; /* of prompts, in a step that decodes; 0: as suits the engine */
    /* within which 99 of 100 steps with decodes and prompts are to end, in place of that limit,
     * once some were measured; 0: none */
    uint64_t itl_target_ns;
    int max_model_len;       /* prompt + output tokens of a sequence */
    int max_queued_requests; /* generations that wait, inbox included */
    int max_queued_tokens;   /* their prompt tokens */
    int n_blocks, block_size;
    int n_window_blocks, window; /* as in struct engine_memory; 0: layers keep all positions */
    int max_logit_rows;          /* R of a step: bounds how many prompt-logprob rows it may hold */
    bool prefix_caching;
    /* tokens in the cache from which a preempted sequence is swapped, where there is swap space;
     * one of fewer is computed again. 0: a default */
    int swap_from;
    struct speculation speculation;
    bool fixed_drafts; /* all that were guessed are verified, whatever they cost */
    /* A token is sampled also where a grammar lets no other come: the same result, for tests. */
    bool samples_forced;
    /* How much is done for a mask before its sequence sits the step out (matcher_prepare); 0: a
     * default. The same result, for tests. */
    int max_mask_work;
    /* Who guesses tokens instead of what `speculation` says (draft/draft.h), for tests: it must
     * outlive the scheduler. NULL: nobody else. */
    const struct drafter *drafter;
    /* The draft model of SPECULATION_DRAFT_MODEL, which must outlive the scheduler and is its
     * thread's alone; otherwise NULL. It was opened to draft for the scheduler's engine. */
    struct engine *draft_engine;
    /* Called on the engine thread at the end of a step with its events, and in the middle of one
     * that has very many. The events are the scheduler's and only valid during the call. Must not
     * block. */
    void (*on_events)(void *arg, const struct event *events, int n);
    /* Called once on the engine thread when the device has failed, with a sentence that says how;
     * the events that end all requests with FINISH_ERROR follow. Nothing is taken any more. May be
     * NULL. */
    void (*on_failure)(void *arg, const struct err *err);
    void *arg;
};

struct scheduler;

/* Makes a scheduler; `engine` must outlive it. scheduler_start begins its thread; scheduler_free
 * ends and joins it, all that still runs ending with FINISH_CANCELLED. */
struct scheduler *scheduler_new(const struct scheduler_config *config, struct engine *engine);
void scheduler_start(struct scheduler *scheduler);
void scheduler_free(struct scheduler *scheduler);

/* Can this many requests and prompt tokens be queued now? A cheap check before work is spent on a
 * request. Any thread. */
bool scheduler_has_room(const struct scheduler *scheduler, int n_requests, int n_tokens);

/* Could the generation run if it were alone? If not: STATUS_INVALID_REQUEST as of scheduler_submit.
 * Any thread. */
enum status scheduler_check_fits(const struct scheduler *scheduler,
                                 const struct generation *generation, struct err *err);

/* Hands over a generation. Any thread. Fails at once, and nothing is kept, with
 * STATUS_INVALID_REQUEST when it can never fit (code context_length_exceeded, or the KV memory is
 * too small: both numbers in the message), STATUS_OVERLOADED when the queue is full,
 * STATUS_UNAVAILABLE when the scheduler is stopping, or the device has failed. */
enum status scheduler_submit(struct scheduler *scheduler, struct generation *generation,
                             struct err *err);

/* Wakes the engine thread to look at the cancelled flags. Any thread. */
void scheduler_cancel(struct scheduler *scheduler, struct generation *generation);

/* What the time of a step goes to. */
enum step_part {
    PART_PLAN,    /* taking in what has come, guessing, choosing rows, filling the step's arrays */
    PART_FORWARD, /* the model: computing on a CPU, waiting for it on a device */
    PART_SAMPLE,  /* choosing tokens; where the device does, telling it to */
    PART_COMMIT,  /* taking in tokens, handing over their events */
    N_STEP_PARTS
};

/* Steps are counted by their rows: one counter for each of these bounds (1, 8, 16, ... 16384), and
 * one for the steps with more rows. */
#define STEP_ROW_BOUNDS 13
static inline int step_row_bound(int i) {
    return i == 0 ? 1 : 4 << i;
}

/* Numbers for /metrics and the health checks. Counters only grow. */
struct scheduler_stats {
    /* sequences that run; that wait (inbox included); that wait in the host's memory */
    int running, waiting, swapped;
    int queued_tokens; /* prompt tokens that wait */
    /* used: referenced; cached: unreferenced but known by hash */
    int blocks_total, blocks_used, blocks_cached;
    uint64_t steps, prompt_tokens, generated_tokens, preemptions;
    uint64_t cached_tokens; /* of prompt_tokens, those that came from the prefix cache */
    uint64_t step_rows;     /* in all steps together */
    uint64_t steps_by_rows[STEP_ROW_BOUNDS + 1];
    uint64_t dropped_samples; /* whose rows were computed for sequences that had ended */
    /* of speculation: times that drafts were verified, drafts, those that held */
    uint64_t drafts, draft_tokens, accepted_tokens;
    /* of the generated ones, those that were not sampled: no other could come */
    uint64_t forced_tokens;
    uint64_t late_masks; /* for which a sequence sat a step out, or lost drafts */
    /* blocks of swap space: all; of swapped sequences; kept for the prefix cache */
    int host_blocks_total, host_blocks_used, host_blocks_cached;
    /* of layers with windows; 0 where these have none of their own */
    int window_blocks_total, window_blocks_used, window_blocks_cached;
    uint64_t swapped_out, swapped_in;     /* blocks that were copied */
    uint64_t prefix_queries, prefix_hits; /* in tokens */
    uint64_t last_step_ns;                /* now_ns() when the last step ended, or, if that was
                                             later, when work came after there was none */
    uint64_t step_ns;                     /* total time of all steps */
    uint64_t part_ns[N_STEP_PARTS];       /* and of their parts */
    bool stepping;                        /* a step is running now */
};
void scheduler_stats(struct scheduler *scheduler, struct scheduler_stats *out); /* any thread */

#endif
