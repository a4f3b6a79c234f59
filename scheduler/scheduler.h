/* scheduler: assigns tokens and KV blocks to sequences, step by step.
 *
 * A step is one batch: rows of several sequences that the engine computes together. The server
 * makes a `struct generation`: a prompt, sampling settings and n choices. The scheduler makes a
 * `struct sequence` for each choice, and a `struct event` for each token. A `struct scheduler` owns
 * the queues, the block pool and the engine thread. Any thread may call submit, cancel and stats.
 * Everything else runs on the engine thread, which hands the events of a step to `on_events`.
 */
#ifndef PENSTOCK_SCHEDULER_H
#define PENSTOCK_SCHEDULER_H

#include "config/pace.h"
#include "scheduler/sequence/generation.h"

/* ---- events --------------------------------------------------------------------------------- */

enum finish {
    FINISH_NONE,      /* not the end */
    FINISH_STOP,      /* a stop id, in sampled.id */
    FINISH_COMPLETE,  /* no token can follow; the token is part of the text */
    FINISH_LENGTH,    /* max_tokens, or the maximum length of the model */
    FINISH_CANCELLED, /* on request, or the server is stopping */
    FINISH_TIMEOUT,   /* its deadline has passed */
    FINISH_STUCK,     /* no token is allowed by both the grammar and the sampling settings */
    FINISH_NO_MEMORY, /* memory ran out while the grammar was followed */
    FINISH_UNLOADED,  /* the model could not be loaded again (scheduler_load_error) */
    FINISH_ERROR,     /* a bug: only this request ends; or the device has failed: all end */
};

enum event_kind {
    EVENT_TOKEN, /* a generated token; `finish` may be set with it */
    /* logprobs of one prompt token; sent in order, before the first EVENT_TOKEN of choice 0 */
    EVENT_PROMPT_TOKEN,
    /* logprobs of up to MAX_TOP_LOGPROBS of the ids that are read, in their order, in sampled.top;
     * sent before EVENT_END */
    EVENT_READ,
    EVENT_END, /* an end without a token: cancelled, max_tokens 0, error */
};

struct event {
    struct generation *generation;
    enum event_kind kind;
    int choice;
    enum finish finish;
    bool last;    /* the last event of this generation, which returns to the server */
    int position; /* EVENT_PROMPT_TOKEN: index in the prompt */
    int n_cached; /* prompt tokens found in the prefix cache */
    uint64_t first_scheduled_ns; /* when its first row was planned for a step */
    /* drafts from the predicted output, so far: accepted and refused */
    int predicted_held, predicted_refused;
    float score;            /* of a beam search: the score of the text, with its finish */
    struct sampled sampled; /* id; logprobs if requested */
};

/* ---- the scheduler -------------------------------------------------------------------------- */

/* Are the weights and the cache in memory? */
enum model_state { MODEL_LOADED, MODEL_UNLOADED, MODEL_LOADING };

struct drafter;

struct scheduler_config {
    int max_num_seqs;           /* sequences in one step */
    int max_num_batched_tokens; /* rows in one step */
    /* prompt rows in a step that decodes; 0: a default for the engine */
    int max_mixed_prefill_tokens;
    /* The 99% quantile of steps with decodes and prompts should stay below this. It replaces
     * max_mixed_prefill_tokens after some such steps were measured. 0: no target. */
    uint64_t itl_target_ns;
    bool itl_auto;           /* on a CPU, without a target: as in struct plan_view */
    int max_model_len;       /* prompt + output tokens of a sequence */
    int max_queued_requests; /* waiting generations, including the inbox */
    int max_queued_tokens;   /* their prompt tokens */
    /* Requests of several clients share the steps by these weights (plan/shares.h). */
    const int *share_weights; /* [n_shares] 1..MAX_SHARE_WEIGHT; read by scheduler_new */
    int n_shares;             /* 0: a single share */
    int n_blocks, block_size;
    int n_window_blocks, window; /* as in struct engine_memory; 0: layers keep all positions */
    /* States of recurrent layers, 0: none. They include n_checkpoints, which keep states of cached
     * prefixes (kv/checkpoints.h; 0: prefixes are not cached), and n_draft_states for drafts of a
     * step (speculate.h; 0: it has no drafts). At least max_num_seqs are left. */
    int n_states, n_checkpoints, n_draft_states;
    int checkpoint_every; /* tokens between checkpoints: a multiple of block_size */
    int checkpoint_least; /* tokens after the last one that a prompt's end needs; 0: a default */
    int max_logit_rows;   /* R of a step; limits its prompt-logprob rows */
    bool prefix_caching;
    /* Encoders: a prompt is computed in one step, and is only read for its hidden vectors. Then
     * max_logit_rows equals max_num_batched_tokens, and prefix_caching is off. */
    bool whole_prompts;
    /* Minimum number of cached tokens for which a preempted sequence is swapped, if there is swap
     * space. A shorter sequence is recomputed. 0: a default. */
    int swap_from;
    struct speculation speculation;
    bool fixed_drafts; /* verify all drafts, whatever their cost */
    /* Sample a token even if the grammar allows only one. Same result, for tests. */
    bool samples_forced;
    /* Maximum work for a mask before its sequence skips the step (matcher_prepare); 0: a default.
     * Same result, for tests. */
    int max_mask_work;
    /* A drafter that replaces the one of `speculation` (draft/draft.h), for tests. It must outlive
     * the scheduler. NULL: no replacement. */
    const struct drafter *drafter;
    /* The draft model of SPECULATION_DRAFT_MODEL, opened to draft for the scheduler's engine;
     * otherwise NULL. It must outlive the scheduler, and only the scheduler's thread may use it. */
    struct engine *draft_engine;
    /* Gets the changes of the known blocks (kv/event_ring.h), made for n_blocks of block_size. It
     * must outlive the scheduler. NULL: nobody reads them. */
    struct event_ring *kv_events;
    /* Keeps prefixes in files or a server (store/prefix_store.h); it must outlive the scheduler.
     * NULL: no store. It needs prefix_caching, an engine whose parts can be copied
     * (engine_has_parts) and, if there are states, checkpoints. */
    struct prefix_store *prefix_store;
    /* Called on the engine thread at the end of a step with its events, and earlier if they fill
     * their array. The scheduler owns the events; they are valid only during the call. Must not
     * block. */
    void (*on_events)(void *arg, const struct event *events, int n);
    /* Called once on the engine thread when the device has failed, with a sentence that describes
     * the failure. Events that end all requests with FINISH_ERROR follow, and later submissions
     * fail. May be NULL. */
    void (*on_failure)(void *arg, const struct err *err);
    /* Nanoseconds without a step after which weights and cache are given back; the next request
     * loads them again. 0: never. */
    uint64_t unload_after_ns;
    /* Called on the engine thread when this changes; err is the reason why a load failed, or NULL.
     * May be NULL. */
    void (*on_model)(void *arg, enum model_state state, const struct err *err);
    void *arg;
};

struct scheduler;

/* Makes a scheduler; `engine` must outlive it. scheduler_start starts its thread. scheduler_free
 * stops and joins the thread, and ends all sequences with FINISH_CANCELLED. */
struct scheduler *scheduler_new(const struct scheduler_config *config, struct engine *engine);
void scheduler_start(struct scheduler *scheduler);
void scheduler_free(struct scheduler *scheduler);

/* Can this number of requests and prompt tokens be queued now? A cheap check before work is spent
 * on a request. Any thread. */
bool scheduler_has_room(const struct scheduler *scheduler, int n_requests, int n_tokens);

/* Returns the seconds until a request is likely to leave the queue, 1 to PACE_MAX_S. Any thread. */
int scheduler_retry_s(struct scheduler *scheduler);

/* Can the generation run if it is alone? If not, returns STATUS_INVALID_REQUEST as scheduler_submit
 * does. Any thread. */
enum status scheduler_check_fits(const struct scheduler *scheduler,
                                 const struct generation *generation, struct err *err);

/* Submits a generation. Any thread. If it fails, it fails immediately and keeps nothing. Fails with
 * STATUS_INVALID_REQUEST if the generation can never fit (code context_length_exceeded, or the KV
 * memory is too small; the message has both numbers), with STATUS_OVERLOADED if the queue is full
 * (the error has the seconds of scheduler_retry_s) or the deadline cannot be met (code
 * deadline_unreachable), and with STATUS_UNAVAILABLE if memory is lacking, the scheduler is
 * stopping or the device has failed. */
enum status scheduler_submit(struct scheduler *scheduler, struct generation *generation,
                             struct err *err);

/* Changes the weights of all n shares of the configuration, from the next step on. Any thread. */
void scheduler_set_weights(struct scheduler *scheduler, const int *weights, int n);

/* Copies the reason why the last load has failed, of status STATUS_UNAVAILABLE. Any thread. */
void scheduler_load_error(struct scheduler *scheduler, struct err *err);

/* Wakes the engine thread to check the cancelled flags. Any thread. */
void scheduler_cancel(struct scheduler *scheduler, struct generation *generation);

/* Makes the engine thread run a step, also if there is nothing to compute. Any thread. */
void scheduler_wake(struct scheduler *scheduler);

/* The parts of a step whose times are measured. */
enum step_part {
    PART_PLAN,    /* read the inbox, draft, choose rows, fill the arrays of the step */
    PART_FORWARD, /* run the model on a CPU, or wait for it on a device */
    PART_SAMPLE,  /* choose tokens, or launch their choice on a device */
    PART_COMMIT,  /* record tokens, deliver their events */
    N_STEP_PARTS
};

/* Steps are counted by their rows: one counter for each of these bounds (1, 8, 16, ... 16384), and
 * one for steps with more rows. */
#define STEP_ROW_BOUNDS 13
static inline int step_row_bound(int i) {
    return i == 0 ? 1 : 4 << i;
}

/* Numbers for /metrics and the health checks. Counters never decrease. */
struct scheduler_stats {
    /* sequences that run, that wait (including the inbox), and that are swapped */
    int running, waiting, swapped;
    int queued_tokens; /* prompt tokens of waiting requests */
    /* used: referenced; cached: unreferenced but known */
    int blocks_total, blocks_used, blocks_cached;
    uint64_t steps, prompt_tokens, generated_tokens, preemptions;
    uint64_t cached_tokens; /* the part of prompt_tokens that the prefix cache had */
    uint64_t step_rows;     /* total over all steps */
    uint64_t steps_by_rows[STEP_ROW_BOUNDS + 1];
    uint64_t dropped_samples; /* samples of sequences that had ended */
    /* speculation: verifications, drafts, accepted drafts */
    uint64_t drafts, draft_tokens, accepted_tokens;
    /* generated tokens that were not sampled, since the grammar allowed only one */
    uint64_t forced_tokens;
    /* masks that were not ready: a sequence skipped a step, or lost drafts */
    uint64_t unready_masks;
    /* blocks of swap space: all, owned by swapped sequences, kept for the prefix cache */
    int host_blocks_total, host_blocks_used, host_blocks_cached;
    /* of layers with windows; 0 if these have no separate blocks */
    int window_blocks_total, window_blocks_used, window_blocks_cached;
    /* of recurrent layers, 0 without these: all, those of sequences, those that only checkpoints
     * of cached prefixes hold */
    int states_total, states_used, states_cached;
    uint64_t swapped_out, swapped_in;     /* copied blocks */
    uint64_t prefix_queries, prefix_hits; /* in tokens */
    /* now_ns() at the end of the last step, or, if later, when work arrived after an idle time */
    uint64_t last_step_ns;
    uint64_t step_ns;               /* total time of all steps */
    uint64_t part_ns[N_STEP_PARTS]; /* total time of each part */
    bool stepping;                  /* is a step running? */
    enum model_state model;
    uint64_t unloads, loads, failed_loads; /* of an idle server: all times, loads that succeeded */
    uint64_t load_ns;                      /* total time of successful loads */
    struct pace queue_pace;                /* of requests that leave the queue */
};
void scheduler_stats(struct scheduler *scheduler, struct scheduler_stats *out); /* any thread */

/* ---- the batch, for people who watch it ----------------------------------------------------- */

/* Sequences that a view lists at most: those that run, then those that wait. */
#define VIEW_SEQUENCES 256
#define VIEW_NAME 64 /* bytes, including NUL */

enum view_state { VIEW_PREFILL, VIEW_DECODE, VIEW_WAITING, VIEW_SWAPPED };

/* One sequence at the end of a step. It has no token and no text. */
struct sequence_view {
    char name[VIEW_NAME]; /* of its generation; may be cut */
    uint64_t client;      /* as in struct generation */
    int choice;
    enum view_state state;
    int prompt, computed; /* prompt tokens: all, and those in the KV cache */
    int output;           /* generated tokens */
    int cached;           /* prompt tokens found in the prefix cache */
    int blocks;           /* that it refers to, shared ones included; while swapped, of the host */
    uint64_t received_ns; /* as in struct generation */
};

struct scheduler_view {
    int n;
    struct sequence_view sequences[VIEW_SEQUENCES];
};

/* Copies the newest view, unless the caller has it already, and asks the engine thread for another:
 * it makes one at the end of its step, or at once if it sleeps. Returns whether `out` was set. No
 * view is made before somebody has asked for it. Any thread. */
bool scheduler_look(struct scheduler *scheduler, struct scheduler_view *out);

#endif
