/* fake_engine: an engine without a model, for tests of the scheduler, and the client that knows
 * what must come out of it.
 *
 * Its KV store holds in each slot a word made of the token, its position and the sum of all words
 * before it, which it reads through the block table like attention would. The logits of a row are
 * a hash of the sum of all words up to it. So each token that is sampled depends on the whole
 * content of the sequence's slots, and what a request must give is a pure function of the
 * request: any wrong block, copy, position or share comes out as a wrong token.
 *
 * Where layers with windows have blocks of their own, these hold the same words, of which a row
 * looks at those in its window. What no sequence can see any more is rubbish (fake_engine_poison).
 *
 * Steps run when they are submitted and are sampled when that is asked for; the scheduler sees the
 * results at its wait. With two steps in flight the ids of pending tokens are the fake's own.
 *
 * Blocks that are swapped are copied to host blocks of words at once. A block that is swapped in
 * holds rubbish until swap_arrive, and no step may touch it before.
 */
#ifndef PENSTOCK_TESTS_FAKE_ENGINE_H
#define PENSTOCK_TESTS_FAKE_ENGINE_H

#include "scheduler/internal.h"

#define FAKE_V 16 /* at most 32: a mask is one word */
#define FAKE_MAX_TOKENS 512

/* A step in flight. */
struct fake_pass {
    int R;
    bool sampled;
    int n_samples;
    uint64_t *logits;        /* [max_logit_rows] */
    int32_t *last;           /* [max_logit_rows] the token of the row */
    struct sampled *results; /* [max_logit_rows + MAX_SHARED_SAMPLES] */
};

/* Blocks of one kind on the host, and those that are on their way. */
struct fake_swap {
    int n_reserved;
    uint64_t *word;      /* [host blocks * block_size] */
    int32_t *comes_from; /* [blocks] -1, or the host block whose words a block gets */
    uint64_t *comes;     /* [blocks * block_size] those words */
};

struct fake_engine {
    int in_flight; /* 1, or the test's to set */
    int n_blocks, block_size, max_seqs, max_rows, max_logit_rows;
    uint64_t *word;              /* [n_blocks * block_size] */
    int n_window_blocks, window; /* of the configuration */
    uint64_t *window_word;       /* [n_window_blocks * block_size] */
    uint64_t *written_in;        /* [n_blocks] number of the step that last wrote it */
    int *writer;                 /* [n_blocks] and which of its sequences did */
    uint64_t n_steps, n_rows, n_copies;
    int most_seqs;                        /* in one step so far */
    struct fake_pass pass[MAX_IN_FLIGHT]; /* a ring from `first` on */
    int first, n_passes;
    uint64_t n_pending; /* rows */
    int32_t *id;        /* [max_logit_rows] what was sampled last, NO_TOKEN, or -1: no sample */
    int fails_at;       /* number of the wait, from 1, that finds the device failed; or 0 */
    int n_waits;
    /* of swap space; 0, or the test's to set. Window blocks have theirs, where there are such */
    int n_host_blocks, n_host_windows;
    int n_host, n_host_of_windows; /* of both those that there is memory for */
    struct fake_swap swap[2];      /* of blocks, and of window blocks */
    uint64_t n_out, n_in;          /* blocks */
};

struct fake_engine *fake_engine_new(const struct scheduler_config *config);
void fake_engine_free(struct fake_engine *engine); /* after the scheduler */
struct engine_port fake_engine_port(struct fake_engine *engine);

/* Overwrites all window blocks that are free. */
void fake_engine_poison(struct fake_engine *engine, const struct window_pool *windows);

/* ---- what must come out --------------------------------------------------------------------- */

/* One choice as its events have shown it so far. */
struct fake_choice {
    uint64_t sum;            /* of the words of all its tokens */
    int32_t last;            /* token */
    struct matcher *matcher; /* with a grammar, until it ends: all its tokens were taken */
    bool begun;              /* the grammar has */
    int n_output;
    bool ended;
    enum finish finish;
};

/* A text that a search must find. */
struct fake_text {
    int n;
    int32_t token[FAKE_MAX_TOKENS];
    float score;
    bool by_stop_id;
};

/* A generation with room for what it points to, and what has come of it. */
struct fake_client {
    struct generation generation;
    int32_t prompt[FAKE_MAX_TOKENS], predicted[FAKE_MAX_TOKENS];
    uint64_t prompt_sum[FAKE_MAX_TOKENS]; /* words of prompt[0..i] */
    int max_model_len;
    struct fake_choice choice[MAX_CHOICES];
    int n_texts; /* that its search must find, best first */
    struct fake_text text[MAX_BEAMS];
    int n_scored, n_ended, n_cached;
    bool done;
    uint64_t submitted_at, work_before; /* for the test: step, work that had ended */
};

/* Prepares a client whose generation has a prompt, n and limits set. */
void fake_client_ready(struct fake_client *client, int max_model_len);

/* Asserts that an event is the one that had to come. */
void fake_client_take(struct fake_client *client, const struct event *event);

/* The tokens that a choice gives after those that its events have shown: at most n into out, which
 * struct replay's foresee wants (replay_drafter.h). Returns n. */
int fake_foresee(void *client, int choice, int n_known, int32_t *out, int n);

/* A generator of numbers from a seed (splitmix64, Steele et al. 2014). */
uint64_t fake_random(uint64_t *state);
int fake_between(uint64_t *state, int low, int high); /* both included */

#endif
