/* Sampling on the device: a token for each row of logits, every row by settings of its own. The
 * order of the operations is that of the CPU's sampler, written down at the top of
 * engine/sampling/sampling.c, and so are the weights' bits and their sums: equal logits give equal
 * tokens and logprobs (docs/cuda/kernels.md, "Sampling").
 *
 * op.cu is the op over this: it turns tokens and settings, as the engine has them, into rows for
 * the kernel. */
#ifndef PENSTOCK_CUDA_SAMPLING_CUH
#define PENSTOCK_CUDA_SAMPLING_CUH

#include "kernels/cuda/sampling/passage.cuh"

enum {
    SAMPLE_MAX_V = MAX_VOCABULARY,
    SAMPLE_MAX_BEST = MAX_TOP_LOGPROBS,
    SAMPLE_MAX_CHANGES = MAX_LOGIT_BIAS + MAX_STOP_IDS, /* biases and bans of a row together */
};

/* A token's entry in the counts: how often it was generated, and bits: the prompt has it, it is not
 * among the allowed ids, it would complete a bad word now. */
constexpr uint32_t SAMPLE_IN_PROMPT = 1u << 31, SAMPLE_FORBIDDEN = 1u << 30, SAMPLE_DUE = 1u << 29;
constexpr uint32_t SAMPLE_GENERATED = SAMPLE_DUE - 1;

/* What a slot has besides its counts, for sequences with bad words: these, and the output's end, in
 * which token i is at i % SAMPLE_TAIL. */
constexpr int SAMPLE_TAIL = MAX_BAD_WORD_TOKENS;
struct sample_words {
    int32_t tail[SAMPLE_TAIL];
    struct bad_word word[MAX_BAD_WORDS];
};

/* How one row's token is chosen. Its biases, bans and mask are device memory, and repeated ids in
 * the first two add up; allowed ids and bad words are the slot's. */
struct sample_row {
    struct sampling sampling;
    int32_t position, choice; /* Philox's counter */
    int32_t slot;             /* the counts to read and to add the token to; -1: none */
    int32_t n_output;         /* tokens of the output before this one */
    const uint32_t *mask;     /* [(V + 31) / 32] ids that may come here, or NULL: all */
    /* 0, or the row is a beam's: it stays as its changed log-softmax, and so many best of it fill
     * `best` of this row's result and of those right behind it */
    int32_t n_best;
    /* device memory: what the history changes, or NULL: nothing but the slot's counts */
    struct logit_change *changes;
    int32_t n_changes;
    float mirostat_mu; /* as in struct sample */
};

struct sample_best {
    int32_t id;
    float logprob;
};

/* The result of a row. Without logprobs logprob, rank and n_best are 0; the first n_best of `best`
 * are written, and no other. It may be the host's memory, where each byte that is written crosses
 * the link, and is never read back. */
struct sample_result {
    int32_t id;    /* -1: the mask has left none */
    float logprob; /* of the chosen token in the model's own distribution */
    int32_t rank;  /* of the chosen token, 1 is the best */
    int32_t n_best;
    float mirostat_mu;                        /* for the next token */
    struct sample_best best[SAMPLE_MAX_BEST]; /* best first, ties by lower id */
};

/* The places of a row's logits and results, if they are not in the order of the rows. */
struct sample_place {
    int32_t logits, result, id; /* id: -1, nowhere */
    int32_t scored;             /* this id is scored instead of choosing one; -1: no */
    int32_t counted;            /* 0: the token is not added to the slot's counts */
};

/* All arrays are device memory. Rows whose tokens are counted have different slots, and rows with
 * biases or bans have different logits. */
struct sample_batch {
    int R, V;      /* V is at most SAMPLE_MAX_V */
    float *logits; /* [R][V], changed while a row is sampled, then as they were but for beams */
    const struct sample_row *rows;     /* [R] */
    uint32_t *counts;                  /* [slots][V] */
    struct sample_words *words;        /* [slots] */
    int32_t *ids;                      /* [R] out */
    struct sample_result *results;     /* [R] out; of the device, or the host's pinned memory */
    const struct sample_place *places; /* [R], or NULL: i, i, i, -1, 1 for row i */
};

void sample_rows(const struct sample_batch *batch, cudaStream_t stream);

/* What a slot is made from, in device memory. */
struct sample_past {
    int32_t n_prompt, n_output;
    const int32_t *history;  /* [n_prompt + n_output] */
    const uint32_t *allowed; /* [(V + 31) / 32] or NULL: all ids */
    int32_t n_bad_words;
    const struct bad_word *bad_words; /* [n_bad_words] */
    int32_t n_held;                   /* tokens of the output before the first one of the history */
};

/* Sets a slot's counts[V], and its words if there are any. */
void sample_count(uint32_t *counts, struct sample_words *words, int V,
                  const struct sample_past *past, cudaStream_t stream);

/* Adds tokens to those that a slot has. Its bad words and allowed ids stay as they are if they are
 * NULL; n_bad_words has to tell whether there are any. */
void sample_count_more(uint32_t *counts, struct sample_words *words, int V,
                       const struct sample_past *past, cudaStream_t stream);

/* ---- the op --------------------------------------------------------------------------------- */

/* As sampler_new, sampler_free and sample of the op table. */
struct device_sampler *device_sampler_new(int V, int rows, int most);
void device_sampler_free(struct device_sampler *sampler, cudaStream_t stream);

/* Plans the next run of the same samples and changes, before it; returns the bytes of its settings.
 * Without this the run does both. */
size_t device_sampler_plan(struct device_sampler *sampler, const struct sample *samples, int n,
                           const struct logit_changes *changes);

/* Fills host memory, 16-byte aligned, with the settings of the run that was planned, which reads
 * them in the device's: the caller queues the copy. Without this the run takes memory of its
 * own. */
void device_sampler_lay_out(struct device_sampler *sampler, const struct sample *samples,
                            const struct logit_changes *changes,
                            const struct settings_memory *memory);

void device_sampler_run(struct device_sampler *sampler, float *logits, const struct sample *samples,
                        int n, const struct logit_changes *changes, int32_t *ids,
                        struct sampled *results, cudaStream_t stream);

#endif
