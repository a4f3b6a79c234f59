/* kernels/sampling: how a token is chosen from a row of logits: what is asked for, what comes out,
 * and what the host's sampler reads rows with. */
#ifndef PENSTOCK_KERNELS_SAMPLING_H
#define PENSTOCK_KERNELS_SAMPLING_H

#include <string.h>

#include "config/config.h"

#define MAX_TOP_LOGPROBS 20
#define MAX_BEST 64 /* candidates of a beam */
#define MAX_BEST_PARTS ((MAX_BEST + MAX_TOP_LOGPROBS - 1) / MAX_TOP_LOGPROBS)
#define MAX_STOP_IDS 64
#define MAX_LOGIT_BIAS 1024
#define MAX_BAD_WORDS 512      /* of several tokens */
#define MAX_BAD_WORD_TOKENS 16 /* of one */
#define MAX_REPEAT 256         /* tokens of a repeat that are compared, or of an n-gram */
#define MAX_SHARED_SAMPLES 127 /* of a step, beyond one for each logit row */

struct logit_bias {
    int32_t id;
    float bias;
};

/* A word of several tokens that must not come: where the output ends with all but its last one,
 * that one may not be chosen. */
struct bad_word {
    int32_t last;
    int32_t n_before;                        /* 1..MAX_BAD_WORD_TOKENS - 1 */
    int32_t before[MAX_BAD_WORD_TOKENS - 1]; /* [n_before] the nearest one first */
};

/* Does the output, at[-1] its newest token, end with what comes before the word's last token? */
static inline bool bad_word_is_due(const struct bad_word *word, const int32_t *at, int n_output) {
    if (word->n_before > n_output) return false;
    for (int i = 0; i < word->n_before; i++)
        if (word->before[i] != at[-1 - i]) return false;
    return true;
}

/* How the history of a row changes one of its logits. */
struct logit_change {
    int32_t id;
    /* how often the id counts for the penalties; -1: for the repetition penalty only; 0: for none
     * */
    int32_t count;
    float minus; /* what is taken off after the penalties; INFINITY: the id may not be chosen */
    float kept;  /* where a device that samples keeps the logit while it is changed */
};

struct logit_changes {
    const struct logit_change *change; /* [n] each of another id; NULL: none are listed */
    int n;
};

/* How one sequence's next token is chosen. The order of operations is documented in
 * engine/sampling/sampling.c. */
struct sampling {
    float temperature;                         /* 0: greedy */
    float top_p, min_p;                        /* 1 and 0: off */
    int top_k;                                 /* 0: off */
    float top_n_sigma;                         /* standard deviations of the logits; 0: off */
    float epsilon_cutoff, eta_cutoff;          /* probabilities; 0: off */
    float typical_p;                           /* 0 and 1: off */
    float xtc_probability, xtc_threshold;      /* probability 0: off */
    float mirostat_tau, mirostat_eta;          /* bits of surprise aimed at, rate; tau 0: off */
    float presence_penalty, frequency_penalty; /* over generated tokens; 0: off */
    float repetition_penalty;                  /* over prompt and generated tokens; 1: off */
    /* All three penalties are over so many last tokens, of prompt and output alike; 0: off */
    int penalty_last_n;
    /* DRY: of each id that would continue a repeat of at least dry_allowed_length tokens, among the
     * dry_last_n last ones, multiplier * base^(length - allowed length); a multiplier of 0: off */
    float dry_multiplier, dry_base;
    int dry_allowed_length, dry_last_n;
    const uint32_t *dry_breakers; /* [(V + 31) / 32] ids that no repeat goes across; NULL: none */
    int no_repeat_ngram;          /* runs of so many tokens come once; 0: off */
    uint64_t seed;
    /* -1: none; 0..MAX_TOP_LOGPROBS: the chosen token's and that many best */
    int n_logprobs;
    int n_bias;
    const struct logit_bias *bias; /* [n_bias], the request's */
    int n_banned;                  /* ids that may not be chosen (end tokens before min_tokens) */
    const int32_t *banned;
    const uint32_t *allowed; /* [(V + 31) / 32] a bit for each id that may be chosen; NULL: all */
    int n_bad_words;
    const struct bad_word *bad_words; /* [n_bad_words] in the order of before[0] */
};

static inline bool sampling_has_penalties(const struct sampling *s) {
    return s->presence_penalty != 0 || s->frequency_penalty != 0 || s->repetition_penalty != 1;
}

static inline void sampling_drop_penalties(struct sampling *s) {
    s->presence_penalty = s->frequency_penalty = 0;
    s->repetition_penalty = 1;
}

/* Are there rules for which the host lists a row's changes, the penalties among them, as it knows
 * the whole history? Otherwise a device counts for the penalties by itself. */
static inline bool sampling_lists_changes(const struct sampling *s) {
    return s->dry_multiplier > 0 || s->no_repeat_ngram > 0 ||
           (s->penalty_last_n > 0 && sampling_has_penalties(s));
}

/* Are there rules that need sums over the whole row to say what they keep (step 5)? */
static inline bool sampling_has_cuts(const struct sampling *s) {
    return s->top_n_sigma > 0 || s->epsilon_cutoff > 0 || s->eta_cutoff > 0 ||
           (s->typical_p > 0 && s->typical_p < 1) || s->xtc_probability > 0 || s->mirostat_tau > 0;
}

/* Does the host have to know a sequence's last token, and what came of it, before the next one can
 * be sampled? */
static inline bool sampling_needs_last(const struct sampling *s) {
    return sampling_lists_changes(s) || s->mirostat_tau > 0;
}

/* The bits of surprise that the first token may have. */
static inline float mirostat_first(const struct sampling *s) {
    return 2 * s->mirostat_tau;
}

/* Does a device that samples keep something of a sequence from one token to the next: its counts,
 * the end of its output, lists over the vocabulary? */
static inline bool sampling_takes_slot(const struct sampling *s) {
    return s->allowed || s->n_bad_words > 0 ||
           (sampling_has_penalties(s) && !sampling_lists_changes(s));
}
static inline size_t sampling_slot_bytes(int V) {
    return (size_t)V * sizeof(uint32_t) + MAX_BAD_WORD_TOKENS * sizeof(int32_t) +
           MAX_BAD_WORDS * sizeof(struct bad_word);
}

struct token_logprob {
    int32_t id;
    float logprob;
};

struct sampled {
    int32_t id; /* -1: the sample's mask has left none */
    /* of the chosen token in the model's own distribution (before temperature) */
    float logprob;
    /* of the chosen token, 1 is the best; 0 when logprobs were not asked for */
    int rank;
    int n_top;
    float mirostat_mu;                          /* for the next token; 0 without mirostat */
    struct token_logprob top[MAX_TOP_LOGPROBS]; /* best first, ties by lower id */
};

/* One token to be chosen on the device, or one to be scored, from a row of logits.
 *
 * Penalties depend on the tokens before it. The device counts the tokens that it chooses, so the
 * host need not know the last one where the device chose it. The counts of a sequence hold as long
 * as each of its samples is the next one; otherwise all of `history` is counted again. */
struct sample {
    int row;                         /* of the logits */
    const struct sampling *sampling; /* NULL: `scored` gets a logprob, with the n_top best */
    int32_t scored;
    int n_top;
    int position, choice;   /* Philox's counter */
    float mirostat_mu;      /* the bits of surprise that a token may have at most, with mirostat */
    const int32_t *history; /* [n_prompt + n_output] */
    int n_prompt, n_output;
    /* [(V + 31) / 32] a bit for each id that may come here; NULL: all. With none left that the
     * sampling allows too, the id of the result is -1. */
    const uint32_t *mask;
    /* A number that no other one has. It chooses from one row at a time; or, with drafts, from one
     * after the other: these samples stand together, and each knows one token more, a draft. */
    uint64_t sequence;
    /* other samples may read the row, or the token may be taken back: it is not counted */
    bool shared;
    /* the last token of the history is not known: it was counted on the device */
    bool late;
    /* 0: a token is chosen. Otherwise the row is a beam's, nobody else reads it, and the result is
     * that many best: of the log-softmax of the row, then changed by the processors, as
     * transformers does it. They fill the `top` of this sample's result and of those of the
     * samples right behind it, MAX_TOP_LOGPROBS each. */
    int n_best;
    bool part; /* such a sample behind one with n_best: it has a result and no work of its own */
};

/* How many samples, the parts among them, a row of which n_best are wanted takes. */
static inline int sample_parts(int n_best) {
    return (n_best + MAX_TOP_LOGPROBS - 1) / MAX_TOP_LOGPROBS;
}

/* ---- rows of logits ------------------------------------------------------------------------- */

/* The functions by which sampling reads a row of logits, on the calling thread. All CPU
 * paths give the same bits. A NaN is never the largest, above a bound, or collected. */
struct logit_ops {
    /* Returns the largest of x[n], -inf when there is none, and in maxima[logit_maxima(n)] that of
     * each of 16 columns in each block of 256: maxima[16 * b + i] is the largest of x[256 * b + i],
     * x[256 * b + 16 + i], ... */
    float (*maxima)(float *maxima, const float *x, int n);
    /* y[n] = x where bit i % 32 of mask[i / 32] is set, and -inf elsewhere; returns the largest and
     * leaves the maxima of y. y may be x. */
    float (*mask)(float *y, float *maxima, const float *x, const uint32_t *mask, int n);
    /* How many of x[n] are above the bound. */
    int (*count_above)(const float *x, int n, float bound);
    /* The first of x[n] that are at least the bound, at most max_found of them, in the order of
     * their ids; returns how many. `maxima` are those of x. */
    int (*collect)(float *value, int32_t *id, int max_found, const float *x, int n,
                   const float *maxima, float bound);
    /* weight[n] = exp((x - max) * inverse), where no x is above max; returns the sum of their
     * shares. weight may be x. */
    uint64_t (*weights)(float *weight, const float *x, int n, float max, float inverse);
    /* sum[16] = the sums of the shares of 16 runs of 256 weights, one run after the other. */
    void (*run_sums)(uint64_t *sum, const float *weight);
};

enum { LOGIT_BLOCK = 256, LOGIT_RUNS = 16, MAX_VOCABULARY = 1 << 19 };

/* A weight, at most 1, as a number of units of 2^-44, rounded to nearest, ties to even. Sums of
 * shares are integers: exact, so the same in whatever order a device takes them, and below 2^64
 * for a whole vocabulary. (The last bit of a double between 256 and 512 is 2^-44.) */
#define SHARE_UNIT 0x1p-44
#define SHARE_ROUND 0x1p8
#define SHARE_ROUND_BITS 0x4070000000000000u
static inline uint64_t weight_share(float weight) {
    double rounded = (double)weight + SHARE_ROUND;
    uint64_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits - SHARE_ROUND_BITS;
}

/* What the standard deviation of a row is made of: how far a logit is below the largest, at most
 * SIGMA_REACH, and its square, as integer numbers of units. Sums of 2^19 are below 2^64. */
#define SIGMA_REACH 256.0f
#define SIGMA_UNITS 0x1p36
#define SIGMA_SQUARE_UNITS 0x1p28

/* How many maxima a row of n has: 16 a block. */
static inline size_t logit_maxima(int n) {
    return ((size_t)n + LOGIT_BLOCK - 1) / LOGIT_BLOCK * 16;
}

/* The functions of the path `name`. NULL: of the path that PENSTOCK_CPU names, or else of the best
 * path that this machine can run. A path that it cannot run: of the plain one. */
const struct logit_ops *backend_cpu_logit_ops(const char *name);

#endif
