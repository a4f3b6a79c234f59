/* fake_engine: an engine without a model, for tests of the scheduler.
 *
 * Each slot of its KV store holds a word: a hash of the token, its position and the sum of all
 * words before it, which it reads through the block table as attention does. The logits of a row
 * are a hash of the sum of all words up to it. So each sampled token depends on the whole content
 * of the sequence's slots, and the results of a request are a pure function of the request: any
 * wrong block, copy, position or share produces a wrong token.
 *
 * If layers with windows have separate blocks, these hold the same words, and a row reads those in
 * its window. Window blocks that no sequence can see are overwritten (fake_engine_poison).
 *
 * If the configuration has states, a state holds the sum of the words of its sequence, and a row
 * compares it with the words of the slots. Free states are overwritten, too.
 *
 * A step runs when it is submitted, and is sampled when fake_sample is called. The scheduler gets
 * the results at its wait. With two steps in flight the fake resolves the ids of pending tokens.
 *
 * Blocks that are swapped out are copied immediately to host blocks of words. A block that is
 * swapped in holds garbage until swap_arrive, and no step may touch it before.
 */
#ifndef PENSTOCK_TESTS_FAKE_ENGINE_H
#define PENSTOCK_TESTS_FAKE_ENGINE_H

#include "scheduler/internal.h"

#define FAKE_V 16 /* at most 32: a mask is one word */
#define FAKE_K 2  /* numbers of a hidden vector */
#define FAKE_MAX_TOKENS 512
#define FAKE_BIASES 2 /* in a sampling with biases */

/* A step in flight. */
struct fake_pass {
    int n_logits, n_hidden;
    bool sampled;
    int n_samples, n_named;
    const struct sample *named; /* samples that were passed with the step, or NULL */
    uint64_t *logits;           /* [max_logit_rows] */
    int32_t *last;              /* [max_logit_rows] the token of the row */
    struct sampled *results;    /* [max_logit_rows + MAX_SHARED_SAMPLES] */
    float (*hidden)[FAKE_K];    /* [max_logit_rows] */
};

/* Host blocks of one kind, and the blocks that are being loaded. */
struct fake_swap {
    int n_reserved;
    uint64_t *word;      /* [host blocks * block_size] */
    int32_t *comes_from; /* [blocks] the host block from which a block is being loaded, or -1 */
    uint64_t *comes;     /* [blocks * block_size] its words */
};

struct fake_engine {
    int in_flight; /* 1, or set by the test */
    int n_blocks, block_size, max_seqs, max_rows, max_logit_rows;
    uint64_t *word;              /* [n_blocks * block_size] */
    int n_window_blocks, window; /* from the configuration */
    uint64_t *window_word;       /* [n_window_blocks * block_size] */
    int n_states;                /* from the configuration */
    uint64_t *state;             /* [n_states] the sum of all words of a sequence */
    uint64_t *written_in;        /* [n_blocks] number of the step that last wrote it */
    int *writer;                 /* [n_blocks] and the sequence of that step that wrote it */
    uint64_t n_steps, n_rows, n_copies, n_state_copies;
    int most_seqs;                        /* maximum in one step so far */
    struct fake_pass pass[MAX_IN_FLIGHT]; /* a ring from `first` on */
    int first, n_passes;
    const struct fake_pass *waited;
    uint64_t n_pending; /* rows */
    uint64_t n_named;   /* steps whose samples were passed when they were submitted */
    int32_t *id;        /* [max_logit_rows] the last sampled ids, NO_TOKEN, or -1: no sample */
    int fails_at;       /* number of the wait, from 1, at which the device fails; or 0 */
    int n_waits;
    /* of swap space; 0, or set by the test */
    int n_host_blocks, n_host_windows;
    int n_host, n_host_of_windows; /* numbers of both for which there is memory */
    struct fake_swap swap[N_BLOCK_KINDS];
    uint64_t n_out, n_in; /* copied blocks */
};

struct fake_engine *fake_engine_new(const struct scheduler_config *config);
void fake_engine_free(struct fake_engine *engine); /* after the scheduler */
struct engine_port fake_engine_port(struct fake_engine *engine);

/* Overwrites all free window blocks; all free states. */
void fake_engine_poison(struct fake_engine *engine, const struct window_pool *windows);
void fake_engine_poison_states(struct fake_engine *engine, const struct state_pool *states);

/* ---- its results ---------------------------------------------------------------------------- */

/* Returns the word of a slot: it depends on the token, its position and all words before it. */
uint64_t fake_word(int32_t token, int position, uint64_t sum_before);

/* Returns the logits of a row, from the sum of all words up to it. */
uint64_t fake_logits(uint64_t sum);

/* Returns the chosen id, or the next one that is neither banned nor outside the mask; -1 if all
 * are. */
int32_t fake_choose(uint64_t logits, uint64_t seed, int position, int choice, int32_t last,
                    const int32_t *banned, int n_banned, uint32_t mask);

/* Returns the logprob of a prompt token. */
float fake_score(uint64_t logits, int32_t id, int n_top);

/* Writes the hidden vector of a row with these logits. */
void fake_hidden(uint64_t logits, float hidden[FAKE_K]);

/* Writes the best ids of a beam in order, at most `most`. The values are few, so many are equal.
 * Returns their number. */
int fake_best(uint64_t logits, const int32_t *banned, int n_banned, int most,
              struct token_logprob best[FAKE_V]);

/* Returns bias i of a generation. The engine checks that samples point to these. */
struct logit_bias fake_bias(int i);

bool fake_listed(const int32_t *ids, int n, int32_t id);

/* Returns a random number (splitmix64, Steele et al. 2014); *state is the seed. */
uint64_t fake_random(uint64_t *state);
int fake_between(uint64_t *state, int low, int high); /* bounds included */

#endif
