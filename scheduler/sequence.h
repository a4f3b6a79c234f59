/* sequence: one choice of a request, and how far it has come. A `struct request` is the
 * scheduler's side of a generation.
 *
 * There are no phases. A sequence knows n_tokens, of which n_computed have their keys and values
 * in the cache; whatever lies between is computed as steps have room. Decoding is a difference of
 * one, a prompt is a large one, and a preempted sequence is back at 0 (or at what the prefix
 * cache still has), unless its blocks were swapped: then they come back.
 *
 *     tokens   | prompt ..................... | output ......... | pending, or drafts
 *              0   n_committed  n_computed   n_prompt          n_tokens    <= max_tokens
 *     table    [b0][b1][b2]    holds exactly the blocks of 0..n_computed-1 between steps
 *
 * What is computed and what is pending counts from the moment at which a step is submitted: its
 * results always come, so the next step can be planned from there. Only n_tokens and n_committed
 * wait for its commit. Without a step in flight nothing is pending, and n_committed is n_computed.
 *
 * Guessed tokens, drafts, may stand behind the known ones: a step computes them as if they were
 * known, and its commit sets n_computed back to what held (speculate.h).
 *
 * The choices of a request share its prompt: the first live sequence, the leader, computes it,
 * and the others wait unforked, in no queue and without blocks. When the prompt is computed they
 * all sample from its last row.
 *
 * The beams of a search are sequences too, of which only the first is live while the prompt is
 * computed. A beam whose next candidates have come waits for those of the others; then some beams
 * go on, some end, and some fork, sharing their blocks (fork.c). Where no beam is, a sequence is
 * spare.
 *
 * A request and its sequences are one allocation, made on the submitting thread; from then on
 * they are the engine thread's alone.
 */
#ifndef PENSTOCK_SEQUENCE_H
#define PENSTOCK_SEQUENCE_H

#include "config/list.h"
#include "scheduler/beams/beams.h"
#include "scheduler/draft/draft.h"
#include "scheduler/kv/prefix_cache.h"
#include "scheduler/scheduler.h"

enum sequence_state {
    SEQUENCE_UNFORKED, /* waits for the leader to compute the prompt */
    SEQUENCE_SPARE,    /* has no beam: holds nothing, in no queue */
    SEQUENCE_WAITING,  /* in the waiting queue, holds nothing */
    SEQUENCE_SWAPPED,  /* in the waiting queue, owns host blocks and no blocks */
    SEQUENCE_RUNNING,  /* in the running queue, has a batch row and blocks */
    SEQUENCE_ENDED,
};

struct matcher;

/* Where a sequence stands in its generation's grammar; without one it is not used. */
struct constraint {
    struct matcher *matcher; /* made when it first samples */
    int n_tokens;            /* of the sequence that were taken, the prompt included */
    int begins_at;           /* the token behind which the grammar begins, or -1: not yet */
    int n_late;              /* steps that it sat out, one after the other, for a mask */
};

struct sequence {
    struct list_node node; /* in waiting or running */
    struct request *request;
    enum sequence_state state;
    int choice;
    int index;                   /* in request->sequence */
    int n_tokens;                /* known */
    int n_pending;               /* that steps in flight will give */
    int pending_row;             /* the logit row that gives the last of them, or -1: the host has
                                    to see it before a row can be planned that needs it */
    int n_computed;              /* in the KV cache when the steps in flight have ended; while
                                    swapped, in the host's memory */
    int n_committed;             /* in it now, and committed */
    int n_scored;                /* prompt rows whose logprobs were asked for (or are not wanted) */
    int n_cached;                /* prompt tokens that came from the prefix cache */
    int n_blocks;                /* in `table` */
    int first_seen;              /* of them, which layers with a window may still see: it watches
                                    those from here on (kv/window_pool.h) */
    int32_t first_host_block;    /* of its list, while swapped */
    int n_host_blocks;           /* how many of them; 0 unless swapped */
    int rows;                    /* in the step that is being made */
    int batch_row;               /* while running */
    int32_t *table;              /* [n_blocks] the batch row's, while running */
    int32_t *tokens;             /* [request->max_tokens] */
    struct block_hash *hashes;   /* [n_tokens / block_size]; NULL without prefix caching */
    uint64_t first_scheduled_ns; /* 0: never was */
    int n_proposed;              /* drafts behind the known tokens, for the next plan */
    int n_drafts;    /* of them, in the step that is being made or in flight: tokens of rows */
    int draft_match; /* of the first draft */
    float draft_chance[MAX_DRAFT_MATCH + 1]; /* by match */
    void *draft_state;                       /* the drafter's; NULL without one */
    struct prediction prediction;            /* n 0: none */
    bool drafts_predicted;                   /* the drafts are the prediction's */
    int n_predicted_held, n_predicted_refused;
    struct constraint constraint;
    float mirostat_mu; /* for the token after the last known one */
};

struct request {
    struct list_node node;         /* in the inbox, then in the scheduler's requests */
    struct generation *generation; /* NULL when its last event is made: it is the server's again */
    uint64_t arrival;              /* number of its arrival */
    int priority;
    int n;      /* choices, or beams at most */
    int n_live; /* not ended */
    /* sequences in steps in flight; the last one to leave frees what has ended */
    int n_in_flight;
    int n_unforked; /* live sequences besides the leader before the prompt is computed, then 0 */
    int n_prompt;
    int max_tokens; /* of prompt and output: where a sequence ends by length */
    int max_slots;  /* KV slots that a sequence may come to need */
    int max_drafts; /* of a sequence in a step */
    int block_size;
    bool queued;                               /* counts as queued: has never run */
    bool prompt_scored;                        /* prompt_logprobs are asked for */
    struct sampling sampling, sampling_banned; /* the latter before min_tokens */
    struct beams *beams;                       /* of its search; NULL: none */
    struct sequence sequence[];                /* [n] */
};

/* Makes the request of a generation that was checked (scheduler_submit). Its sequences have a state
 * of the drafter, unless that is NULL. NULL when there is no memory. */
struct request *request_new(struct generation *generation, int max_model_len, int block_size,
                            bool hashed, const struct drafter *drafter);

/* Total tokens and KV slots that a choice of `generation` may come to. */
int generation_max_tokens(const struct generation *generation, int max_model_len);
int generation_max_slots(const struct generation *generation, int max_model_len);

/* Is the token one at which a choice of `generation` stops? */
bool generation_stops_at(const struct generation *generation, int32_t token);

/* First in, first out within a priority, choices in order: does a come before b? */
bool sequence_before(const struct sequence *a, const struct sequence *b);

/* The beam that a sequence has, by its place among the others. */
int sequence_beam(const struct sequence *sequence);

/* Has a beam's step come, and does it wait for the other beams? */
static inline bool sequence_waits_for_beams(const struct sequence *sequence) {
    const struct request *request = sequence->request;
    return request->beams && request->beams->known[sequence_beam(sequence)];
}

/* Samples beyond one that a row takes which gives a sequence's next token. */
static inline int sequence_extra_samples(const struct sequence *sequence) {
    const struct request *request = sequence->request;
    return request->beams ? sample_parts(request->beams->n_best) - 1 : request->n_unforked;
}

/* The batch rows that running sequences have or may claim: of a search as many as it may come to
 * have beams, so that these run together. */
int batch_rows_claimed(const struct list *running);

/* Puts a sequence at its place in an ordered queue, searching from the back or the front. */
void sequence_enqueue(struct list *queue, struct sequence *sequence);
void sequence_enqueue_early(struct list *queue, struct sequence *sequence);

/* Appends a token, and the hash of the block that it fills. */
void sequence_append(struct sequence *sequence, int32_t token);

/* Gives an unforked choice the leader's prompt. */
void sequence_fork(const struct sequence *leader, struct sequence *sequence);

/* Are there rows of the prompt whose logprobs are still to be taken? */
static inline bool sequence_scoring(const struct sequence *sequence) {
    return sequence->n_scored < sequence->request->n_prompt - 1;
}

/* The last row of what is due wants logits, unless only the prompt was asked for. */
static inline bool sequence_samples(const struct sequence *sequence) {
    return sequence->request->max_tokens > sequence->request->n_prompt;
}

/* Tokens up to which rows can be planned: those that are known, and the pending one, unless it is
 * the last anyway or the host has to see it first. */
static inline int sequence_n_schedulable(const struct sequence *sequence) {
    int due = sequence->n_tokens + sequence->n_pending;
    bool ahead = sequence->pending_row >= 0 && due < sequence->request->max_tokens;
    return ahead ? due : sequence->n_tokens;
}

/* The key of a sequence's i-th block, behind one with this id. */
struct block_key sequence_key(const struct sequence *sequence, int i, uint64_t parent);

/* The logit rows among `rows` rows from position `from`, drafts aside. */
int sequence_logit_rows(const struct sequence *sequence, int from, int rows);

static inline struct sequence *sequence_of(struct list_node *node) {
    return list_entry(node, struct sequence, node);
}

#endif
