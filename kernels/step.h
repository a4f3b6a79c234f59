/* kernels/step: the rows of one forward pass. */
#ifndef PENSTOCK_KERNELS_STEP_H
#define PENSTOCK_KERNELS_STEP_H

#include <stdbool.h>
#include <stdint.h>

struct sample;
struct device_sampler;

/* The input of one forward pass. All arrays except `sampled` are host memory that the caller owns.
 * The caller leaves them unchanged until the pass ends (CPU) or until step_begin returns (CUDA).
 * The rows of a sequence are adjacent and ordered by position.
 *
 * A row's token is pending if the previous step samples it and the host does not know it yet. Its
 * id is then pending_token(r), and the device reads it from sampled[r]. */
struct step {
    int M;                /* rows */
    const int32_t *token; /* [M] token ids, or pending ones */
    /* [M] the id after each row's token, or the row's own if none is known; NULL: the model has no
     * layer that guesses ahead */
    const int32_t *next;
    /* The step is of the layer that guesses ahead alone. Row m reads the embedding of next[m], and
     * the hidden vector that row hidden_row[m] of the rows that were read left, in the pass
     * before */
    bool is_ahead;
    const int32_t *hidden_row; /* [M] */
    int n_pending;             /* rows whose token is pending */
    /* device memory: the token sampled from logit row r of the previous step; NULL if no token is
     * pending */
    const int32_t *sampled;
    /* [M] position in its sequence, from 0; the row attends to 0..position */
    const int32_t *position;
    const int32_t *slot; /* [M] its slot in the KV cache: block * B + offset */
    /* [M] the number of each row's adapter, 0: the base model; NULL: all are 0 */
    const int32_t *adapter;
    /* [M] the token type of each row; NULL: all are 0. CUDA has them if rows see both ways */
    const int32_t *type;
    int S;                    /* sequences */
    const int32_t *row_start; /* [S + 1] first row of each sequence; row_start[S] == M */
    /* [S][table_stride] block table: table[i] holds positions i*B .. i*B+B-1 */
    const int32_t *table;
    int table_stride;
    int R; /* rows that the last layer computes to its end */
    /* [R] indices of these rows: those that want logits, then those that want their hidden vector;
     * both parts ascend */
    const int32_t *logit_row;
    int n_hidden;             /* the last n_hidden of the R rows want no logits */
    int n_copies;             /* KV blocks to copy first (copy on write) */
    const int32_t *copy_from; /* [n_copies] */
    const int32_t *copy_to;   /* [n_copies] */
    /* Recurrent layers keep a state per sequence in the cache (struct kv_config); NULL without such
     * layers. A sequence's rows read and replace its state; a row at position 0 reads none. */
    const int32_t *state; /* [S] the number of each sequence's state */
    /* [M] the state into which a recurrent op also copies the sequence's state after this row (of
     * its layer), or -1: a later row may be refused. NULL: none is copied */
    const int32_t *state_after;
    int n_state_copies;        /* states to copy first */
    const int32_t *state_from; /* [n_state_copies] */
    const int32_t *state_to;   /* [n_state_copies] all different, and none is in state_from */
    /* The same arrays for window blocks (struct kv_config); NULL if the model does not use them.
     * Table entries before the windows of all rows are not read. */
    const int32_t *window_slot, *window_table, *window_copy_from, *window_copy_to;
    /* The samples of this step if they are all known already. Their settings are then uploaded
     * together with the arrays above. NULL: they are uploaded later. */
    const struct sample *samples; /* [n_samples] */
    int n_samples;
    struct device_sampler *sampler; /* its next call of `sample` gets these samples; or NULL */
};

/* The arrays of a step that its owner fills again and again. */
struct step_arrays {
    int32_t *token, *position, *slot, *row_start, *logit_row, *table;
    int32_t *window_slot, *window_table; /* NULL: the model does not use window blocks */
    int32_t *state;                      /* [seqs] sequence i has state i */
};

/* Allocates arrays for steps of at most `rows` rows, and of `seqs` sequences with `table_stride`
 * blocks each; at most `seqs` rows are read. Rows have no slots, other arrays are zero. Sets the
 * pointers and the stride of an empty step. */
void step_arrays_alloc(struct step_arrays *arrays, struct step *step, int rows, int seqs,
                       int table_stride, bool has_windows);
void step_arrays_free(struct step_arrays *arrays);

/* Makes it a step of `rows` rows: one for each of `seqs` sequences, all at `position`, and the
 * others as drafts before the last row, which belong to the last sequence. The last `read` rows are
 * read. */
void step_fill(struct step_arrays *arrays, struct step *step, int rows, int seqs, int read,
               int position);

/* The number of rows that want logits. */
static inline int step_logits(const struct step *step) {
    return step->R - step->n_hidden;
}

/* The negative id of a token that is sampled from logit row r of the previous step. The function is
 * its own inverse: applied to such an id it returns r. */
static inline int32_t pending_token(int32_t r) {
    return -1 - r;
}

#endif
