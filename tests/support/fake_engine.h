/* fake_engine: an engine without a model, for tests of the scheduler.
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
#define FAKE_BIASES 2 /* in a sampling that has any */

/* A step in flight. */
struct fake_pass {
    int R;
    bool sampled;
    int n_samples, n_named;
    const struct sample *named; /* what the step named, or NULL */
    uint64_t *logits;           /* [max_logit_rows] */
    int32_t *last;              /* [max_logit_rows] the token of the row */
    struct sampled *results;    /* [max_logit_rows + MAX_SHARED_SAMPLES] */
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
    uint64_t n_named;   /* steps whose samples were known when they were submitted */
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

/* ---- what it computes ----------------------------------------------------------------------- */

/* What a slot holds: it depends on the token, its position and all that stands before it. */
uint64_t fake_word(int32_t token, int position, uint64_t sum_before);

/* The logits of a row, from the sum of all words up to it. */
uint64_t fake_logits(uint64_t sum);

/* The id that is due, or the next one that is neither banned nor outside the mask; -1: none. */
int32_t fake_choose(uint64_t logits, uint64_t seed, int position, int choice, int32_t last,
                    const int32_t *banned, int n_banned, uint32_t mask);

/* The logprob of a prompt's token. */
float fake_score(uint64_t logits, int32_t id, int n_top);

/* The best ids, in order, for a beam: few values, so that many are equal. Returns how many of
 * `best`, at most `most`. */
int fake_best(uint64_t logits, const int32_t *banned, int n_banned, int most,
              struct token_logprob best[FAKE_V]);

/* The biases of a generation, which the engine expects where its samples point. */
struct logit_bias fake_bias(int i);

bool fake_listed(const int32_t *ids, int n, int32_t id);

/* A generator of numbers from a seed (splitmix64, Steele et al. 2014). */
uint64_t fake_random(uint64_t *state);
int fake_between(uint64_t *state, int low, int high); /* both included */

#endif
