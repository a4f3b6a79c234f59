/* sequence: one choice of a request, and its progress. A `struct request` is the scheduler's side
 * of a generation.
 *
 * Prefill and decode are the same to the scheduler. A sequence knows n_tokens; the keys and values
 * of the first n_computed are in the cache. Steps compute the others when they have room. Decoding
 * computes one token at a time, prefill computes many. A preempted sequence starts again at 0, or
 * at the end of its cached prefix. If its blocks were swapped, they are loaded instead.
 *
 *     tokens   | prompt ..................... | output ......... | pending, or drafts
 *              0   n_committed  n_computed   n_prompt          n_tokens    <= max_tokens
 *     table    [b0][b1][b2]    holds exactly the blocks of 0..n_computed-1 between steps
 *
 * A step is in flight from its submission to its commit. Tokens count as computed, and the next
 * token as pending, when a step is submitted: its results will arrive, so the next step can be
 * planned from them. Only n_tokens and n_committed change at the commit. If no step is in flight,
 * no token is pending, and n_committed equals n_computed.
 *
 * Drafts are guessed tokens. They may follow the known tokens: a step computes them as if they were
 * known, and its commit sets n_computed to the end of the accepted ones (speculate.h).
 *
 * The choices of a request share its prompt. The first live sequence, the leader, computes it. The
 * others wait unforked, in no queue and without blocks. When the prompt is computed, all sample
 * from its last row.
 *
 * The beams of a search are sequences, too. Only the first is live while the prompt is computed. A
 * beam whose next candidates are known waits for those of the other beams. Then some beams
 * continue, some end, and some fork and share their blocks (fork.c). A sequence without a beam is
 * spare.
 *
 * A request and its sequences are one allocation, made on the submitting thread. Afterwards only
 * the engine thread accesses them.
 */
#ifndef PENSTOCK_SEQUENCE_H
#define PENSTOCK_SEQUENCE_H

#include "config/list.h"
#include "scheduler/draft/draft.h"
#include "scheduler/kv/prefix_cache.h"
#include "scheduler/sequence/generation.h"

enum sequence_state {
    SEQUENCE_UNFORKED, /* waits for the leader to compute the prompt */
    SEQUENCE_SPARE,    /* without a beam: holds nothing, in no queue */
    SEQUENCE_WAITING,  /* in the waiting queue, holds nothing */
    SEQUENCE_SWAPPED,  /* in the waiting queue, owns host blocks but no blocks */
    SEQUENCE_RUNNING,  /* in the running queue, has a batch row and blocks */
    SEQUENCE_ENDED,
};

struct matcher;

/* The state of a sequence in the grammar of its generation. Unused without a grammar. */
struct constraint {
    struct matcher *matcher; /* made before the first sample */
    int n_tokens;            /* tokens that the matcher has read, including the prompt */
    int begins_at;           /* index at which the grammar begins, or -1: not known yet */
    int n_unready; /* consecutive steps that were skipped because the mask was not ready */
};

/* The memory of a sequence in the KV cache: its blocks while it runs, its host blocks while it is
 * swapped, and its hashes for the prefix cache. apply.c, commit.c and fork.c change it. */
struct sequence_kv {
    int32_t *table; /* [n_blocks] of the batch row, while running */
    int n_blocks;   /* in `table` */
    /* first block that a layer with a window may still see; blocks from here on are watched
     * (kv/window_pool.h) */
    int first_seen;
    int32_t state; /* of recurrent layers (kv/state_pool.h), or -1 */
    /* States after the rows that precede each draft of the step in flight, the first after
     * first_row_state tokens. Only recurrent layers need these. */
    int n_row_states, first_row_state;
    int32_t row_state[MAX_DRAFTS];
    int32_t first_host_block;  /* first of its list, while swapped */
    int n_host_blocks;         /* length of this list; 0 unless swapped */
    struct block_hash *hashes; /* [n_tokens / block_size]; NULL without prefix caching */
    int n_cached;              /* prompt tokens found in the prefix cache */
};

/* The drafts of a sequence, and the estimated chances of their acceptance (speculate.h). */
struct sequence_drafts {
    void *state;    /* for the drafter; NULL without one */
    int n_proposed; /* drafts after the known tokens, for the next plan */
    /* the place of the last committed row among the rows that the last step read, until the next
     * step is planned; -1: none (draft/ahead.c) */
    int hidden_row;
    /* in the step that is planned or in flight: tokens of rows */
    int n;
    int match;                         /* of the first one */
    float chance[MAX_DRAFT_MATCH + 1]; /* estimated chance by match */
    struct prediction prediction;      /* n is 0 without a prediction */
    bool are_predicted;                /* they are from the prediction */
    int n_predicted_held, n_predicted_refused;
};

struct sequence {
    struct list_node node; /* in waiting or running */
    struct request *request;
    enum sequence_state state;
    int choice;
    int index;                   /* in request->sequence */
    int rows;                    /* in the step that is being planned */
    int batch_row;               /* while running */
    uint64_t first_scheduled_ns; /* 0: not yet */

    /* tokens, and how far they are computed */
    int32_t *tokens; /* [request->max_tokens] */
    int n_tokens;    /* known tokens */
    int n_pending;   /* tokens that steps in flight will yield */
    /* the logit row of the last pending token; -1: the token must be committed before further rows
     * are planned */
    int pending_row;
    /* tokens in the KV cache after the steps in flight; while swapped, in host memory */
    int n_computed;
    int n_committed;   /* tokens in the KV cache, committed */
    int n_scored;      /* prompt rows that were scored or read by a step (or need not be) */
    float mirostat_mu; /* for the token after the last known one */

    struct sequence_kv kv;
    struct sequence_drafts drafts;
    struct constraint constraint;
    struct thoughts thoughts; /* after the last known token */
};

struct request {
    struct list_node node; /* in the inbox, then in the scheduler's requests */
    /* NULL after its last event was added: it returns to the server */
    struct generation *generation;
    uint64_t arrival; /* number in order of arrival */
    int priority;
    int share;
    int n;      /* choices, or maximum number of beams */
    int n_live; /* not ended */
    /* Sequences in steps in flight. The last one to leave frees the request if it has ended. */
    int n_in_flight;
    int n_unforked; /* live sequences except the leader until the prompt is computed, then 0 */
    int n_prompt;
    int max_tokens; /* of prompt and output: a sequence ends at this length */
    int max_slots;  /* maximum number of KV slots of a sequence */
    int max_drafts; /* of one sequence in one step */
    int block_size;
    bool queued;     /* has never run */
    bool is_counted; /* while it is queued, it counts against the queue's limits */
    /* prompt rows before this one are scored, from each sequence's n_scored on, or are read */
    int score_end;
    int n_hidden;       /* rows whose hidden vectors are kept (generation.keeps_hidden) */
    bool prompt_scored; /* all these rows are computed, none is cached */
    struct sampling sampling, sampling_banned; /* the latter is used before min_tokens */
    struct sampling sampling_forced; /* of a token that must follow thoughts: refuses nothing */
    struct beams *beams;             /* NULL without a search */
    struct sequence sequence[];      /* [n] */
};

/* Makes the request of a generation that was checked (scheduler_submit). Each sequence gets a state
 * of the drafter, unless that is NULL. Returns NULL if memory is lacking. */
struct request *request_new(struct generation *generation, int max_model_len, int block_size,
                            bool hashed, const struct drafter *drafter);

/* Return the maximum number of tokens and KV slots of a choice of `generation`. */
int generation_max_tokens(const struct generation *generation, int max_model_len);
int generation_max_slots(const struct generation *generation, int max_model_len);

/* Does the token end a choice of `generation`? */
bool generation_stops_at(const struct generation *generation, int32_t token);

/* Is a before b? The order is first in, first out within a priority; choices are in order. */
bool sequence_before(const struct sequence *a, const struct sequence *b);

/* Returns the index of the beam of a sequence. */
int sequence_beam(const struct sequence *sequence);

/* Are the beam's candidates known, while it waits for the other beams? */
static inline bool sequence_waits_for_beams(const struct sequence *sequence) {
    const struct request *request = sequence->request;
    return request->beams && request->beams->known[sequence_beam(sequence)];
}

/* Returns the number of samples that read the ids of the last prompt row. */
static inline int sequence_reads(const struct sequence *sequence) {
    const struct generation *generation = sequence->request->generation;
    return generation_reads(generation) ? sample_parts(generation->n_logprob_ids) : 0;
}

/* Returns the number of samples, beyond the first, of the row that yields the next token or is
 * read. */
static inline int sequence_extra_samples(const struct sequence *sequence) {
    const struct request *request = sequence->request;
    if (sequence_reads(sequence) > 0) return sequence_reads(sequence) - 1;
    return request->beams ? sample_parts(request->beams->n_best) - 1 : request->n_unforked;
}

/* Returns the batch rows that running sequences have or may claim. A search claims one for each
 * possible beam, so that its beams can run together. */
int batch_rows_claimed(const struct list *running);

/* Insert a sequence into an ordered queue. The first searches from the back, the second from the
 * front. */
void sequence_enqueue(struct list *queue, struct sequence *sequence);
void sequence_enqueue_early(struct list *queue, struct sequence *sequence);

/* Appends a token. If it fills a block, computes the hash of that block. */
void sequence_append(struct sequence *sequence, int32_t token);

/* Returns the state of the thoughts before the token at `position`, after known tokens and drafts.
 * A pending token before it is left out. */
struct thoughts sequence_thoughts_at(const struct sequence *sequence, int position);

/* Copies the leader's prompt to an unforked choice. */
void sequence_fork(const struct sequence *leader, struct sequence *sequence);

/* Are there prompt rows that must still be scored or read? */
static inline bool sequence_scoring(const struct sequence *sequence) {
    return sequence->n_scored < sequence->request->score_end;
}

/* Returns the number of first tokens whose keys and values may come from a cache. The last token
 * must be computed, for its logits, and so must all rows from the next scored one on. */
static inline int sequence_cacheable(const struct sequence *sequence) {
    if (!sequence_scoring(sequence)) return sequence->n_tokens - 1;
    return max_int(sequence->n_computed, sequence->n_scored);
}

/* Does the last due row need logits? It does unless only the prompt is wanted. */
static inline bool sequence_samples(const struct sequence *sequence) {
    return sequence->request->max_tokens > sequence->request->n_prompt;
}

/* Returns the number of tokens up to which rows can be planned: the known ones, and the pending
 * one, unless it is the last or must be committed first. */
static inline int sequence_n_schedulable(const struct sequence *sequence) {
    int due = sequence->n_tokens + sequence->n_pending;
    bool ahead = sequence->pending_row >= 0 && due < sequence->request->max_tokens;
    return ahead ? due : sequence->n_tokens;
}

/* Does it need one row: that of its last token? */
static inline bool sequence_decodes(const struct sequence *sequence) {
    return sequence_n_schedulable(sequence) - sequence->n_computed == 1;
}

/* Are two sequences beams of one search? */
static inline bool sequence_searches_with(const struct sequence *a, const struct sequence *b) {
    return a->request == b->request && a->request->beams;
}

/* Returns the key of the i-th block of a sequence. `parent` is the id of the block before it. */
struct block_key sequence_key(const struct sequence *sequence, int i, uint64_t parent);

/* Returns the number of logit rows among `rows` rows from position `from`, without drafts. */
int sequence_logit_rows(const struct sequence *sequence, int from, int rows);

/* ---- drafts --------------------------------------------------------------------------------- */

/* Sets the initial estimates. */
void drafts_init(struct sequence_drafts *drafts);

/* Returns the estimated chance that draft `i` is accepted if those before it are. */
float drafts_chance(const struct sequence_drafts *drafts, int i);

/* Learns from a verification: the first `taken` of the n drafts were accepted. */
void drafts_learn(struct sequence_drafts *drafts, int taken);

/* Moves the estimates towards their initial values, since the drafts were not worth a try. */
void drafts_forget(struct sequence_drafts *drafts);

/* Returns the sequence of a node in a queue. */
static inline struct sequence *sequence_of(struct list_node *node) {
    return list_entry(node, struct sequence, node);
}

#endif
