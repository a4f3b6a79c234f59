/* Sampling on the device: a token for each row of logits, with separate settings per row. The order
 * of operations is that of the CPU's sampler, documented at the top of engine/sampling/sampling.c.
 * The weights' bits and sums are the same too: equal logits give equal tokens and logprobs
 * (docs/cuda/sampling.md).
 *
 * op.cu implements the op: it converts the engine's tokens and settings to rows for the kernel. */
#ifndef PENSTOCK_CUDA_SAMPLING_CUH
#define PENSTOCK_CUDA_SAMPLING_CUH

#include "kernels/cuda/sampling/passage.cuh"

enum {
    SAMPLE_MAX_V = MAX_VOCABULARY,
    SAMPLE_MAX_BEST = MAX_TOP_LOGPROBS,
    SAMPLE_MAX_CHANGES = MAX_LOGIT_BIAS + MAX_BANNED_IDS, /* biases plus bans of a row */
};

/* A token's entry in the counts: its number of occurrences in the output, and flags: it is in the
 * prompt, it is not an allowed id, it would complete a bad word now. */
constexpr uint32_t SAMPLE_IN_PROMPT = 1u << 31, SAMPLE_FORBIDDEN = 1u << 30, SAMPLE_DUE = 1u << 29;
constexpr uint32_t SAMPLE_GENERATED = SAMPLE_DUE - 1;

/* A slot's data for sequences with bad words: the words and the end of the output. Token i is at i
 * % SAMPLE_TAIL. */
constexpr int SAMPLE_TAIL = MAX_BAD_WORD_TOKENS;
struct sample_words {
    int32_t tail[SAMPLE_TAIL];
    struct bad_word word[MAX_BAD_WORDS];
};

/* The settings of one row. Its biases, bans and mask are device memory; repeated ids in biases and
 * bans add up. Allowed ids and bad words are in the slot. */
struct sample_row {
    struct sampling sampling;
    int32_t position, choice; /* the counter of Philox */
    int32_t slot;             /* slot of the counts to read and update; -1: not used */
    int32_t n_output;         /* number of output tokens before this one */
    const uint32_t *mask;     /* [(V + 31) / 32] allowed ids; NULL: all ids */
    /* 0, or the row belongs to a beam: it keeps its changed log-softmax, and the n_best best ids
     * are written to `best` of this row's result and of the following ones */
    int32_t n_best;
    /* device memory: changes from the history; NULL: only the slot's counts apply */
    struct logit_change *changes;
    int32_t n_changes;
    float mirostat_mu; /* as in struct sample */
    /* device memory: the ids whose logprobs are written to `best`; n_ids 0: those of the best */
    const int32_t *ids;
    int32_t n_ids;
};

struct sample_best {
    int32_t id;
    float logprob;
};

/* The result of a row. Without logprobs, the fields logprob, rank and n_best are 0. Only the first
 * n_best entries of `best` are written. It may be host memory: each written byte then crosses the
 * link, and the result is never read back. */
struct sample_result {
    int32_t id;    /* -1: the mask leaves no token */
    float logprob; /* of the chosen token in the model's own distribution */
    int32_t rank;  /* of the chosen token, 1 is the best */
    int32_t n_best;
    float mirostat_mu;                        /* for the next token */
    struct sample_best best[SAMPLE_MAX_BEST]; /* best first, ties by lower id */
};

/* Indices of a row's logits and results, if they are not in the order of the rows. */
struct sample_place {
    int32_t logits, result, id; /* id -1: the id is not stored */
    int32_t scored;             /* score this id instead of sampling; -1: sample */
    int32_t counted;            /* 0: do not add the token to the slot's counts */
};

/* All arrays are device memory. Rows with counted tokens have distinct slots, and rows with biases
 * or bans have distinct logits. */
struct sample_batch {
    int R, V;      /* V is at most SAMPLE_MAX_V */
    float *logits; /* [R][V], modified during sampling and then restored, except for beams */
    const struct sample_row *rows;     /* [R] */
    uint32_t *counts;                  /* [slots][V] */
    struct sample_words *words;        /* [slots] */
    int32_t *ids;                      /* [R] out */
    struct sample_result *results;     /* [R] out; device memory or pinned host memory */
    const struct sample_place *places; /* [R], or NULL: i, i, i, -1, 1 for row i */
};

void sample_rows(const struct sample_batch *batch, cudaStream_t stream);

/* The source of a slot, in device memory. */
struct sample_past {
    int32_t n_prompt, n_output;
    const int32_t *history;  /* [n_prompt + n_output] */
    const uint32_t *allowed; /* [(V + 31) / 32] or NULL: all ids */
    int32_t n_bad_words;
    const struct bad_word *bad_words; /* [n_bad_words] */
    int32_t n_held;                   /* number of output tokens before the history's first one */
};

/* Sets a slot's counts[V], and its words if there are any. */
void sample_count(uint32_t *counts, struct sample_words *words, int V,
                  const struct sample_past *past, cudaStream_t stream);

/* Adds tokens to a slot. If bad words and allowed ids are NULL they stay unchanged; n_bad_words
 * must still tell whether there are any. */
void sample_count_more(uint32_t *counts, struct sample_words *words, int V,
                       const struct sample_past *past, cudaStream_t stream);

/* ---- the op --------------------------------------------------------------------------------- */

/* Implement sampler_new, sampler_free and sample of the op table. */
struct device_sampler *device_sampler_new(int V, int rows, int most);
void device_sampler_free(struct device_sampler *sampler, cudaStream_t stream);

/* Plans the next run with the same samples and changes. Returns the bytes of its settings. Without
 * this call the run plans itself. */
size_t device_sampler_plan(struct device_sampler *sampler, const struct sample *samples, int n,
                           const struct logit_changes *changes);

/* Writes the settings of the planned run to host memory. The run reads them from device memory; the
 * caller queues the copy. Both are aligned to SETTINGS_ALIGN. Without this call the run uses its
 * own memory. */
void device_sampler_lay_out(struct device_sampler *sampler, const struct sample *samples,
                            const struct logit_changes *changes,
                            const struct settings_memory *memory);

void device_sampler_run(struct device_sampler *sampler, float *logits, const struct sample *samples,
                        int n, const struct logit_changes *changes, int32_t *ids,
                        struct sampled *results, cudaStream_t stream);

#endif
