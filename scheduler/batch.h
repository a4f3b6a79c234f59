/* batch: the arrays of a `struct step`, and the batch rows that hold the block tables of the
 * running sequences.
 *
 * A running sequence has a batch row. Its block table is that row of the step's table array, which
 * the engine reads, so a step copies no tables. Batch rows are dense, and the sequences that
 * compute in a step are first:
 *
 *     batch row  0        S-1        n_sequences-1    max_seqs-1
 *                [computes ][ skips the step    ][ empty     ]
 *
 * A table moves only when a sequence ends, is preempted, or changes between computing and skipping.
 */
#ifndef PENSTOCK_BATCH_H
#define PENSTOCK_BATCH_H

#include "scheduler/inflight.h"
#include "scheduler/plan/plan.h"

struct batch {
    struct step step; /* points to the arrays below */
    int max_seqs, max_rows, max_logit_rows, stride;
    int block_size;
    int n_sequences;
    struct sequence **sequence; /* [max_seqs] by batch row */
    int32_t *table;             /* [max_seqs + 1][stride], the last is spare */
    int32_t *token, *next, *position, *slot, *adapter, *type; /* [max_rows] */
    int32_t *row_start;                                       /* [max_seqs + 1] */
    int32_t *logit_row;                                       /* [max_logit_rows] */
    int32_t *copy_from, *copy_to;                             /* [max_seqs] */
    /* [max_seqs] of recurrent layers */
    int32_t *state, *state_from, *state_to;
    int32_t *state_after; /* [max_rows] of recurrent layers */
    const struct window_pool *windows;
    int32_t *window_table, *window_slot, *window_from, *window_to; /* the same for window blocks */
};

/* Allocates the arrays of an empty batch; frees them. `stride`: maximum number of blocks of one
 * sequence. `windows` maps blocks to window blocks. */
void batch_init(struct batch *batch, int max_seqs, int max_rows, int max_logit_rows, int stride,
                int block_size, const struct window_pool *windows);
void batch_free(struct batch *batch);

/* Assigns a batch row with an empty table to a sequence; frees the row. */
void batch_add(struct batch *batch, struct sequence *sequence);
void batch_remove(struct batch *batch, struct sequence *sequence);

/* Adds a block copy with which the next step begins. */
void batch_copy(struct batch *batch, int32_t from, int32_t to);

/* The same for a state. */
void batch_copy_state(struct batch *batch, int32_t from, int32_t to);

/* Makes the step of all sequences whose `rows` is not 0, and fills `inflight`, which must be empty.
 * Their tables must already hold the blocks. The contents of the previous step are overwritten. */
const struct step *batch_fill(struct batch *batch, struct inflight *inflight);

#endif
