/* kernels/sampling: token sampling from a row of logits: settings, results, and the functions that
 * the host's sampler uses to read rows. */
#ifndef PENSTOCK_KERNELS_SAMPLING_H
#define PENSTOCK_KERNELS_SAMPLING_H

#include <string.h>

#include "config/config.h"

#define MAX_TOP_LOGPROBS 20
#define MAX_BEST 64 /* candidates of a beam */
#define MAX_BEST_PARTS ((MAX_BEST + MAX_TOP_LOGPROBS - 1) / MAX_TOP_LOGPROBS)
#define MAX_STOP_IDS 72
#define MAX_SUPPRESSED 64 /* ids that a model must never write */
#define MAX_BANNED_IDS (MAX_STOP_IDS + MAX_SUPPRESSED)
#define MAX_LOGIT_BIAS 1024
#define MAX_BAD_WORDS 512      /* words of several tokens */
#define MAX_BAD_WORD_TOKENS 16 /* tokens of one word */
#define MAX_REPEAT 256         /* compared tokens of a repeat (DRY), or tokens of an n-gram */
#define MAX_SHARED_SAMPLES 127 /* samples of a step in addition to one per logit row */

struct logit_bias {
    int32_t id;
    float bias;
};

/* A forbidden word of several tokens. If the output ends with all of its tokens except the last,
 * the last one is banned. */
struct bad_word {
    int32_t last;
    int32_t n_before;                        /* 1..MAX_BAD_WORD_TOKENS - 1 */
    int32_t before[MAX_BAD_WORD_TOKENS - 1]; /* [n_before] tokens before `last`, nearest first */
};

/* Does the output end with the word's tokens before its last one? at[-1] is the newest token. */
static inline bool bad_word_is_due(const struct bad_word *word, const int32_t *at, int n_output) {
    if (word->n_before > n_output) return false;
    for (int i = 0; i < word->n_before; i++)
        if (word->before[i] != at[-1 - i]) return false;
    return true;
}

/* A change to one logit of a row that follows from the row's history. */
struct logit_change {
    int32_t id;
    /* the id's count for the penalties; -1: only the repetition penalty applies; 0: no penalty */
    int32_t count;
    float minus; /* subtracted after the penalties; INFINITY: the id is banned */
    float kept;  /* storage for the original logit while a device samples */
};

struct logit_changes {
    const struct logit_change *change; /* [n] with distinct ids; NULL: an empty list */
    int n;
};

/* The sampling settings of one sequence. engine/sampling/sampling.c documents the order of
 * operations. */
struct sampling {
    float temperature;                         /* 0: greedy */
    float top_p, min_p;                        /* 1 and 0: off */
    int top_k;                                 /* 0: off */
    float top_n_sigma;                         /* standard deviations of the logits; 0: off */
    float epsilon_cutoff, eta_cutoff;          /* probabilities; 0: off */
    float typical_p;                           /* 0 and 1: off */
    float xtc_probability, xtc_threshold;      /* probability 0: off */
    float mirostat_tau, mirostat_eta;          /* target surprise in bits, rate; tau 0: off */
    float presence_penalty, frequency_penalty; /* over generated tokens; 0: off */
    float repetition_penalty;                  /* over prompt and generated tokens; 1: off */
    /* number of last tokens, prompt included, that all three penalties consider; 0: off */
    int penalty_last_n;
    /* DRY: if an id continues a repeat of at least dry_allowed_length tokens within the last
     * dry_last_n tokens, multiplier * base^(length - allowed length) is subtracted from its logit;
     * a multiplier of 0: off */
    float dry_multiplier, dry_base;
    int dry_allowed_length, dry_last_n;
    const uint32_t *dry_breakers; /* [(V + 31) / 32] ids that end a repeat; NULL: no id does */
    int no_repeat_ngram;          /* n-grams of this length may not repeat; 0: off */
    uint64_t seed;
    /* -1: no logprobs; 0..MAX_TOP_LOGPROBS: the chosen token and this many best tokens */
    int n_logprobs;
    int n_bias;
    const struct logit_bias *bias; /* [n_bias], the request's */
    int n_banned; /* banned ids (a model's suppressed ones, end tokens before min_tokens) */
    const int32_t *banned;
    const uint32_t *allowed; /* [(V + 31) / 32] one bit per allowed id; NULL: all are allowed */
    int n_bad_words;
    const struct bad_word *bad_words; /* [n_bad_words] sorted by before[0] */
};

/* The most probable token, without any other rule and without logprobs. */
#define SAMPLING_GREEDY                                                                            \
    { .top_p = 1, .repetition_penalty = 1, .n_logprobs = -1 }

static inline bool sampling_has_penalties(const struct sampling *s) {
    return s->presence_penalty != 0 || s->frequency_penalty != 0 || s->repetition_penalty != 1;
}

static inline void sampling_drop_penalties(struct sampling *s) {
    s->presence_penalty = s->frequency_penalty = 0;
    s->repetition_penalty = 1;
}

/* Does the host list the row's logit changes, penalties included? Some rules need the whole
 * history, which only the host knows. Otherwise the device counts tokens for the penalties. */
static inline bool sampling_lists_changes(const struct sampling *s) {
    return s->dry_multiplier > 0 || s->no_repeat_ngram > 0 ||
           (s->penalty_last_n > 0 && sampling_has_penalties(s));
}

/* Do any rules need sums over the whole row to select candidates (step 5)? */
static inline bool sampling_has_cuts(const struct sampling *s) {
    return s->top_n_sigma > 0 || s->epsilon_cutoff > 0 || s->eta_cutoff > 0 ||
           (s->typical_p > 0 && s->typical_p < 1) || s->xtc_probability > 0 || s->mirostat_tau > 0;
}

/* Does the host need a sequence's last token and its result before it can sample the next one? */
static inline bool sampling_needs_last(const struct sampling *s) {
    return sampling_lists_changes(s) || s->mirostat_tau > 0;
}

/* The maximum surprise of the first token, in bits. */
static inline float mirostat_first(const struct sampling *s) {
    return 2 * s->mirostat_tau;
}

/* Does a device that samples keep state for the sequence between tokens: token counts, the end of
 * the output, bit sets over the vocabulary? */
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
    int32_t id; /* -1: the sample's mask leaves no token */
    /* of the chosen token in the model's own distribution (before temperature) */
    float logprob;
    /* of the chosen token, 1 is the best; 0 if the request has no logprobs */
    int rank;
    int n_top;
    float mirostat_mu; /* for the next token; 0: mirostat is off */
    /* best first, ties by lower id; or those of the sample's ids */
    struct token_logprob top[MAX_TOP_LOGPROBS];
};

/* One token to sample from a row of logits, or one to score.
 *
 * Penalties depend on the tokens before it. The device counts the tokens that it samples, so the
 * host need not know the last one yet. The counts of a sequence stay valid while its samples have
 * consecutive positions; otherwise the device counts all of `history` again. */
struct sample {
    int row;                         /* of the logits */
    const struct sampling *sampling; /* NULL: the result is the logprob of `scored`, and n_top */
    int32_t scored;
    int n_top;
    /* If there are ids, the result's `top` lists their logprobs, in this order, and not the best
     * tokens. With `sampling`, n_logprobs is then at least 0. */
    const int32_t *ids;     /* [n_ids] */
    int n_ids;              /* 0..MAX_TOP_LOGPROBS */
    int position, choice;   /* the counter of Philox */
    float mirostat_mu;      /* mirostat: the maximum surprise of the token, in bits */
    const int32_t *history; /* [n_prompt + n_output] */
    int n_prompt, n_output;
    /* [(V + 31) / 32] one bit per allowed id; NULL: all are allowed. If the mask and the sampling
     * settings together allow no id, the result's id is -1. */
    const uint32_t *mask;
    /* The unique number of the sequence. A sequence has one sample per step; with drafts it has
     * several adjacent ones, and the history of each is one draft longer. */
    uint64_t sequence;
    /* the token is not counted: other samples may read the row, or the token may be discarded */
    bool shared;
    /* the host does not know the last token of the history; the device has already counted it */
    bool last_is_pending;
    /* 0: sample a token. Otherwise the result is the n_best best tokens. The row then belongs to
     * one beam, and no other sample reads it. As in transformers, logits processors are applied
     * after the log-softmax. The tokens fill the `top` arrays of this sample's result and of the
     * following parts, MAX_TOP_LOGPROBS each. */
    int n_best;
    bool part; /* continues the results of a sample with n_best; causes no work */
};

/* The number of samples, parts included, that n_best tokens of a row take. */
static inline int sample_parts(int n_best) {
    return (n_best + MAX_TOP_LOGPROBS - 1) / MAX_TOP_LOGPROBS;
}

/* ---- rows of logits ------------------------------------------------------------------------- */

/* Functions that read a row of logits, on the calling thread. All CPU paths give the same bits. A
 * NaN is never the maximum, never above a bound, and never collected. */
struct logit_ops {
    /* Returns the maximum of x[n], or -inf if all are NaN. Also writes maxima[logit_maxima(n)], the
     * maximum of each of 16 columns per block of 256: maxima[16 * b + i] is the maximum of
     * x[256 * b + i], x[256 * b + 16 + i], ... */
    float (*maxima)(float *maxima, const float *x, int n);
    /* y[i] = x[i] if bit i % 32 of mask[i / 32] is set, else -inf. Returns the maximum of y and
     * writes its maxima. y may be x. */
    float (*mask)(float *y, float *maxima, const float *x, const uint32_t *mask, int n);
    /* Returns the number of x[n] above the bound. */
    int (*count_above)(const float *x, int n, float bound);
    /* Collects the first max_found of x[n] that are at least the bound, in the order of their ids.
     * Returns their number. `maxima` are the maxima of x. */
    int (*collect)(float *value, int32_t *id, int max_found, const float *x, int n,
                   const float *maxima, float bound);
    /* weight[n] = exp((x - max) * inverse). No x may be above max. Returns the sum of the weights'
     * shares. weight may be x. */
    uint64_t (*weights)(float *weight, const float *x, int n, float max, float inverse);
    /* sum[16] = the sums of the shares of 16 consecutive runs of 256 weights. */
    void (*run_sums)(uint64_t *sum, const float *weight);
};

enum { LOGIT_BLOCK = 256, LOGIT_RUNS = 16, MAX_VOCABULARY = 1 << 19 };

/* A weight (at most 1) in units of 2^-44, rounded to nearest, ties to even. Sums of shares are
 * integers, so they are exact in any order of addition, and below 2^64 for a whole vocabulary.
 * (The last bit of a double between 256 and 512 is 2^-44.) */
#define SHARE_UNIT 0x1p-44
#define SHARE_ROUND 0x1p8
#define SHARE_ROUND_BITS 0x4070000000000000u
static inline uint64_t weight_share(float weight) {
    double rounded = (double)weight + SHARE_ROUND;
    uint64_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits - SHARE_ROUND_BITS;
}

/* The standard deviation of a row is computed from each logit's distance below the maximum, at most
 * SIGMA_REACH, and its square, both in integer units. Sums of 2^19 of them are below 2^64. */
#define SIGMA_REACH 256.0f
#define SIGMA_UNITS 0x1p36
#define SIGMA_SQUARE_UNITS 0x1p28

/* The number of maxima of a row of n: 16 per block. */
static inline size_t logit_maxima(int n) {
    return ((size_t)n + LOGIT_BLOCK - 1) / LOGIT_BLOCK * 16;
}

/* Returns the functions of the path `name`. NULL selects the path in PENSTOCK_CPU, or else the best
 * path of this machine. If the machine cannot run the path, the plain path is returned. */
const struct logit_ops *backend_cpu_logit_ops(const char *name);

#endif
