/* kernels/step: the rows that one forward pass works on. */
#ifndef PENSTOCK_KERNELS_STEP_H
#define PENSTOCK_KERNELS_STEP_H

#include <stdint.h>

struct sample;
struct device_sampler;

/* What one forward pass works on. All arrays but `sampled` are host memory of the caller's. On the
 * CPU they stay unchanged until the pass has ended, elsewhere until step_begin has returned. Rows
 * of one sequence stand together, in the order of their positions.
 *
 * A row's token may be one that the step before samples, and that the host does not know yet: then
 * its id is pending_token(r), and the device finds it at sampled[r]. */
struct step {
    int M;                /* rows */
    const int32_t *token; /* [M] token ids, or pending ones */
    int n_pending;        /* rows whose token is pending */
    /* device memory: the token sampled from logit row r of the step before; NULL if none is
     * pending */
    const int32_t *sampled;
    /* [M] position in its sequence, from 0; the row attends to 0..position */
    const int32_t *position;
    const int32_t *slot;      /* [M] where its key and value go: block * B + offset */
    int S;                    /* sequences */
    const int32_t *row_start; /* [S + 1] first row of each sequence; row_start[S] == M */
    /* [S][table_stride] block table: table[i] holds positions i*B .. i*B+B-1 */
    const int32_t *table;
    int table_stride;
    int R;                    /* rows that want logits */
    const int32_t *logit_row; /* [R] their numbers, ascending */
    int n_copies;             /* KV blocks to copy before anything else (copy on write) */
    const int32_t *copy_from; /* [n_copies] */
    const int32_t *copy_to;   /* [n_copies] */
    /* For layers that have window blocks (struct kv_config) the same by those; NULL where none has.
     * What of a table lies behind the windows of all rows is not looked at. */
    const int32_t *window_slot, *window_table, *window_copy_from, *window_copy_to;
    /* What its rows will be sampled as, if all of it is known already: then their settings travel
     * with the arrays above, to the device that samples. NULL: they follow. */
    const struct sample *samples; /* [n_samples] */
    int n_samples;
    struct device_sampler *sampler; /* whose `sample` gets the same samples next; or NULL */
};

/* The id, below 0, of a row whose token is sampled from logit row r of the step before. Its own
 * inverse: applied to such an id it gives r. */
static inline int32_t pending_token(int32_t r) {
    return -1 - r;
}

#endif
