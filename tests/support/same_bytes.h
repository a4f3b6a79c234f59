/* same_bytes: requests, what each gives when it runs alone, and a run that holds many of them to
 * it.
 *
 * A `struct request_set` is a model and a set of requests drawn from a seed, with beginnings in
 * common. What a request gives is learnt once, by running it alone on the plainest settings: one
 * thread, no prefix cache, all its rows in one step. A `struct run` is an engine and a scheduler
 * with any settings; its clients submit requests of the set, and each event is compared bit by bit
 * with what had to come.
 */
#ifndef PENSTOCK_TESTS_SAME_BYTES_H
#define PENSTOCK_TESTS_SAME_BYTES_H

#include "scheduler/internal.h"
#include "support/replay_drafter.h"
#include "support/tiny_model.h"

#define MOST_CHOICES 4
#define MAX_CLIENTS 12
#define N_THEMES 3      /* texts that prompts begin with */
#define MOST_ASKED 48   /* requests of a set */
#define LONG_PROMPT 600 /* tokens: two chunks of attention and more */

/* ---- requests and their answers ------------------------------------------------------------- */

struct answer {
    int n_scored;
    struct sampled *scored; /* [n_prompt - 1] */
    struct {
        int n;
        struct sampled *token; /* [max_tokens] */
        enum finish finish;
        float score; /* of a beam's text */
    } choice[MOST_CHOICES];
    bool known;
};

struct asked {
    struct generation generation;
    struct logit_bias bias[4];
    uint32_t *allowed;          /* or NULL */
    struct bad_word *bad_words; /* or NULL */
    struct answer answer;
};

/* ---- settings ------------------------------------------------------------------------------- */

/* All that may change nothing. */
struct setting {
    const char *path;
    int threads, max_rows, max_seqs, max_logit_rows;
    int block_size, n_blocks;
    bool caching;
    int in_flight;  /* steps; 0: as suits the backend */
    int swap_slots; /* blocks in the host's memory; 0: what is preempted is computed again */
    bool eager;     /* no graphs */
    bool persistent_step;
    int graphs;     /* that are kept; 0: as many as suit */
    bool warm_up;   /* before the first request */
    int mixed_rows; /* of prompts, in a step that decodes; 0: any number */
    int max_drafts; /* of a sequence in a step; 0: no speculation */
    int wrong;      /* percent of the drafts; above 100: drafts are looked up */
    bool fixed_drafts;
    bool draft_model;    /* that drafts is the model itself, in a second engine... */
    bool draft_short;    /* ...with blocks for one sequence of full length */
    int window_blocks;   /* for layers with windows; 0: they keep all positions */
    bool samples_forced; /* tokens that must come are sampled, too */
    int max_mask_work;   /* in a step; 0: a default */
    /* overwrites a window block, as steps that begin later find it; NULL: on the CPU */
    void (*poison)(struct backend *b, struct kv_cache *cache, int32_t window_block);
};

/* What of the settings belongs to the model, and may change the bytes. */
struct model_choice {
    const char *file;
    enum kv_dtype kv_dtype;
    int max_model_len;
    enum device device;
    enum compute_dtype dtype;
    enum quantization quantization;
    bool wgmma;
    int ranks; /* that share the model; 0: 1 */
    bool host_samples;
};

struct request_set {
    struct model_choice model;
    const char *reference_path;
    int long_prompt; /* tokens of the first request; 0: LONG_PROMPT */
    int longest;     /* prompt of all others */
    bool searches;   /* some of the requests search with beams, if no layer has windows; ... */
    bool mirostat;   /* ... and some sample with mirostat */
    int V;
    struct kv_config kv;   /* of one block; a run has its own block size */
    int n_windows, window; /* layers with windows; the longest one */
    int n_asked, n_theme;
    const int32_t *theme[N_THEMES]; /* [n_theme] */
    int32_t *drawn;                 /* themes that the set has drawn itself, or NULL */
    struct vocabulary *vocabulary;  /* of requests with a grammar: letters, whatever the model's */
    struct asked asked[MOST_ASKED];
};

/* Draws `n_asked` requests for the model, reference path and longest prompt that are set. The first
 * prompt has LONG_PROMPT tokens. With `text`, prompts are stretches of its n tokens, which must
 * outlive the set; without, of random ids. */
void request_set_init(struct request_set *set, uint64_t seed, int n_asked, const int32_t *text,
                      int n_text);
void request_set_free(struct request_set *set);
void request_set_drop(struct request_set *set); /* and the set itself, of malloc */

/* A set over a tiny model on a GPU, in a file of its own, that is to be drawn. What the model is
 * computed with is taken of `model`. Dropping it drops the file. */
struct request_set *tiny_set_new(const struct tiny_model *tiny, const struct model_choice *model);
void tiny_set_drop(struct request_set *set);

/* For devices whose steps take long: no generation has more tokens. */
void request_set_shorten(struct request_set *set, int max_tokens);

/* Runs the requests alone. Returns the tokens that they gave. */
int request_set_learn(struct request_set *set);

/* Asserts that two sets of the same requests gave the same tokens and ends; their logprobs may
 * differ. */
void request_sets_agree(const struct request_set *right, const struct request_set *got);

/* KV slots that the largest of a request's choices takes. */
int asked_slots(const struct request_set *set, const struct asked *asked);

/* Sequences that a request takes at once if it is to run at all: its beams. */
int asked_width(const struct asked *asked);

/* ---- a run ---------------------------------------------------------------------------------- */

struct client {
    struct generation generation; /* a copy, with flags of its own */
    const struct asked *asked;
    struct answer *into; /* NULL: compare; otherwise learn */
    struct run *run;
    int n_scored, n_tokens[MOST_CHOICES];
    bool ended[MOST_CHOICES], last;
    int submit_at, cancel_at; /* steps; cancel_at -1: never */
    int cancel_choice;        /* -1: all */
};

struct tally {
    uint64_t tokens, scores;          /* compared */
    uint64_t swapped_out, swapped_in; /* blocks */
    uint64_t preemptions, copies, prefix_hits, cancels, steps;
    uint64_t drafts, accepted, forced, late;
    uint64_t differences;
};

struct run {
    const struct request_set *set;
    struct setting setting;
    struct engine *engine, *draft_engine;
    struct scheduler *scheduler;
    struct replay replay;
    struct drafter drafter;
    struct tally tally;
    char first_difference[512];
    int n_clients, n_live;
    struct client client[MAX_CLIENTS];
    pthread_mutex_t mutex; /* guards n_live in a threaded run */
    pthread_cond_t all_ended;
};

void run_open(struct run *run, const struct request_set *set, const struct setting *setting);
void run_close(struct run *run); /* leaves the tally */

/* A client for a request; its submit_at and cancel are the caller's to set. */
struct client *run_add(struct run *run, const struct asked *asked);

/* Overwrites what no sequence can see any more: the window blocks that are free. */
void run_poison(struct run *run);

/* Lets all clients run to their ends, step by step on this thread, or on the scheduler's own. The
 * second takes submit_at and cancel_at as an order only, and ends the run's life for stepping. Then
 * no client is left. */
void run_stepped(struct run *run);
void run_threaded(struct run *run);

/* A number from both included, from a seed's sequence. */
int drawn_between(uint64_t *random, int low, int high);
bool drawn_chance(uint64_t *random, int percent);

#endif
