/* same_bytes: requests, their results when each runs alone, and a run that compares many of them
 * with these.
 *
 * A `struct request_set` is a model and a set of requests drawn from a seed, with common prefixes.
 * The results of a request are learnt once, by running it alone with the simplest settings: one
 * thread, no prefix cache, all its rows in one step. A `struct run` is an engine and a scheduler
 * with any settings. Its clients submit requests of the set, and each event is compared bit by bit
 * with the expected one.
 */
#ifndef PENSTOCK_TESTS_SAME_BYTES_H
#define PENSTOCK_TESTS_SAME_BYTES_H

#include "scheduler/internal.h"
#include "scheduler/store/prefix_store.h"
#include "support/replay_drafter.h"
#include "support/tiny_model.h"

#define MOST_CHOICES 4
#define MAX_CLIENTS 12
#define N_THEMES 3      /* texts with which prompts begin */
#define MOST_ASKED 48   /* requests of a set */
#define LONG_PROMPT 600 /* in tokens: more than two chunks of attention */

/* ---- requests and their answers ------------------------------------------------------------- */

struct answer {
    int n_scored;
    struct sampled *scored; /* [n_prompt - 1], or of the ids that are read */
    double *hidden;         /* [K] the sum of the hidden vectors that are read */
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
    int32_t read_ids[64];       /* its logprob_ids */
    int adapter;                /* 1..n_adapters of the set; 0: the base model */
    struct answer answer;
};

/* ---- settings ------------------------------------------------------------------------------- */

/* The settings that must not change results. */
struct setting {
    const char *path;
    int threads, max_rows, max_seqs, max_logit_rows;
    int block_size, n_blocks;
    bool caching;
    int in_flight;  /* steps in flight; 0: the backend's default */
    int swap_slots; /* host blocks; 0: preempted sequences are recomputed */
    bool eager;     /* without graphs */
    bool persistent_step;
    int graphs;     /* maximum number of cached graphs; 0: the default */
    bool warm_up;   /* before the first request */
    int mixed_rows; /* of prompts, in a step that decodes; 0: unlimited */
    int max_drafts; /* of a sequence in a step; 0: no speculation */
    int wrong;      /* percentage of spoilt drafts; above 100: lookup */
    bool fixed_drafts;
    bool draft_model;    /* the same model, in a second engine, drafts... */
    bool draft_short;    /* ...with blocks for one sequence of full length */
    bool guesses_ahead;  /* the model's own layer drafts */
    int window_blocks;   /* for layers with windows; 0: they keep all positions */
    bool samples_forced; /* forced tokens are sampled, too */
    int max_mask_work;   /* in a step; 0: a default */
    /* of recurrent layers: states of cached prefixes, blocks between them; the engine chooses the
     * number of states for drafts */
    int checkpoints, checkpoint_blocks;
    const char *store; /* folder or address of a prefix store; NULL: none. Only with caching */
    /* Overwrites a window block before later steps. NULL: on the CPU. */
    void (*poison)(struct backend *b, struct kv_cache *cache, int32_t window_block);
    /* Overwrites a free state before later steps. NULL: on the CPU; states of a device stay. */
    void (*poison_state)(struct backend *b, struct kv_cache *cache, int32_t state);
};

/* The settings that belong to the model, and may change the bytes. */
struct model_choice {
    const char *file;
    const char *eagle; /* the folder of a head that guesses ahead, or NULL */
    enum kv_dtype kv_dtype;
    int max_model_len;
    enum device device;
    enum compute_dtype dtype;
    enum quantization quantization;
    bool wgmma;
    int ranks; /* that share the model; 0: 1 */
    bool host_samples;
};

enum { MOST_ADAPTERS = 5 };

struct request_set {
    struct model_choice model;
    /* Files of adapters, which each run loads. A test sets them, and the adapters of requests,
     * before request_set_learn. */
    int n_adapters;
    const char *adapter[MOST_ADAPTERS];
    const char *reference_path;
    int long_prompt;     /* tokens of the first request; 0: LONG_PROMPT */
    int longest;         /* maximum prompt length of the others */
    bool searches;       /* some requests are beam searches, if no layer has windows; ... */
    bool mirostat;       /* ... and some use mirostat */
    bool reads;          /* some requests read their prompt, or list the logprobs of given ids */
    int V, K;            /* K: numbers of a hidden vector */
    struct kv_config kv; /* for one block; a run sets its block size */
    struct kv_heads heads[MAX_LAYERS]; /* of the layers with keys */
    bool has_states;                   /* some layers are recurrent */
    int64_t state_bytes;               /* of a sequence in these */
    int n_windows, window;             /* number of layers with windows; the longest window */
    int n_asked, n_theme;
    const int32_t *theme[N_THEMES]; /* [n_theme] */
    int32_t *drawn;                 /* themes that the set has drawn, or NULL */
    struct vocabulary *vocabulary;  /* for requests with a grammar: letters, whatever the model's */
    struct asked asked[MOST_ASKED];
};

/* Draws `n_asked` requests for the model, the reference path and the longest prompt, which must be
 * set. The first prompt has LONG_PROMPT tokens. Prompts are parts of `text`, which has n_text
 * tokens and must outlive the set, or random ids if it is NULL. */
void request_set_init(struct request_set *set, uint64_t seed, int n_asked, const int32_t *text,
                      int n_text);
void request_set_free(struct request_set *set);
void request_set_drop(struct request_set *set); /* also frees the set, which malloc allocated */

/* Returns a set for a tiny model on a GPU, in a new file, without requests. `model` has the other
 * settings of the model. tiny_set_drop deletes the file. */
struct request_set *tiny_set_new(const struct tiny_model *tiny, const struct model_choice *model);
void tiny_set_drop(struct request_set *set);

/* Limits the tokens of all generations, for devices with slow steps. */
void request_set_shorten(struct request_set *set, int max_tokens);

/* Runs each request alone. Returns the number of generated tokens. */
int request_set_learn(struct request_set *set);

/* Asserts that two sets of the same requests have the same tokens and ends. Their logprobs may
 * differ. */
void request_sets_agree(const struct request_set *right, const struct request_set *got);

/* Returns the KV slots of the largest choice of a request. */
int asked_slots(const struct request_set *set, const struct asked *asked);

/* Returns the sequences of a request that must run together: its beams. */
int asked_width(const struct asked *asked);

/* ---- a run ---------------------------------------------------------------------------------- */

struct client {
    struct generation generation; /* a copy, with separate flags */
    const struct asked *asked;
    struct answer *into; /* NULL: compare; otherwise learn */
    struct run *run;
    double *hidden; /* [K] its generation's hidden_sum */
    int n_scored, n_tokens[MOST_CHOICES];
    bool ended[MOST_CHOICES], last;
    int submit_at, cancel_at; /* in steps; cancel_at -1: never */
    int cancel_choice;        /* -1: all */
};

struct tally {
    uint64_t tokens, scores;          /* number of compared events */
    uint64_t swapped_out, swapped_in; /* blocks */
    uint64_t preemptions, copies, prefix_hits, cancels, steps;
    uint64_t drafts, accepted, forced, unready;
    uint64_t state_hits, state_accepted; /* with recurrent layers */
    uint64_t restored[N_CACHE_PARTS];    /* parts that were read from the store */
    uint64_t differences;
};

struct run {
    const struct request_set *set;
    struct setting setting;
    struct engine *engine, *draft_engine;
    struct scheduler *scheduler;
    struct prefix_store *store;
    int adapter_number[MOST_ADAPTERS]; /* in the engine; 0: not loaded */
    uint64_t adapter_id[MOST_ADAPTERS], n_adapter_ids;
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
void run_close(struct run *run); /* keeps the tally */

/* Unloads all adapters of the set and loads them again, in the order first, first + 1, ... They get
 * new ids and other numbers. No client may be added. */
void run_reload_adapters(struct run *run, int first);

/* Adds a client for a request. The caller sets submit_at and cancel_at. */
struct client *run_add(struct run *run, const struct asked *asked);

/* Overwrites the free window blocks, which no sequence can see. */
void run_poison(struct run *run);

/* Run all clients to their ends. The first runs steps on this thread. The second runs them on the
 * scheduler's thread, uses submit_at and cancel_at only as an order, and must be the last run.
 * Afterwards the run has zero clients. */
void run_stepped(struct run *run);
void run_threaded(struct run *run);

/* Returns a random number, bounds included; *random is the seed. */
int drawn_between(uint64_t *random, int low, int high);
bool drawn_chance(uint64_t *random, int percent);

#endif
