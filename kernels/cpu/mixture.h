/* kernels/cpu/mixture: assigns rows to experts, and holds the memory of the op. */
#ifndef PENSTOCK_KERNELS_CPU_MIXTURE_H
#define PENSTOCK_KERNELS_CPU_MIXTURE_H

#include "kernels/cpu/activations.h"

/* Adjacent tiles of one expert's rows, at most TILE_GROUP of them. */
struct expert_span {
    int expert, from, end;
};

/* Rows grouped by expert. The rows of an expert keep the order of the step and have separate tiles:
 *
 *     row_of       r2 r5 r9 | r0 r2 | r1 ..          by expert, in all first[E]
 *     inputs       tile 0   | tile 1| tile 2 ..      of LANES rows each
 *     spans        {0, 0, 1}  {1, 0, 1} ..           tiles counted from the expert's first */
struct mixture {
    struct expert_shape shape;
    int max_rows;
    float *h;         /* [max_rows][K] rows after the norm */
    float *logits;    /* [max_rows][E] of the router */
    float *shared;    /* [max_rows] output of the shared expert's gate, then its weight */
    int32_t *expert;  /* [M][n_used] the experts of each row, in rising order */
    float *weight;    /* [M][n_used] the weights of these experts */
    int32_t *first;   /* [E + 1] the first entry of each expert in row_of */
    int32_t *tile;    /* [E + 1] the first tile of each expert */
    int32_t *row_of;  /* [max_rows * n_used] */
    float *weight_of; /* [max_rows * n_used] the expert's weight for that row */
    int n_spans;
    struct expert_span *spans;         /* in the order of experts */
    struct activations inputs, hidden; /* inputs of the first and of the second product */
    void *memory;
    size_t bytes;
};

/* Allocates memory for experts of that shape and steps of at most max_rows rows. Returns NULL if E
 * is 0. */
struct mixture *mixture_new(const struct expert_shape *shape, int max_rows);
void mixture_free(struct mixture *mixture);

/* Chooses n_used of E experts for a row, in rising order, and their weights (order.md, "Experts").
 */
void route_row(const float *logits, const struct experts *experts, int32_t *expert, float *weight);

/* Groups M rows by expert: fills first, tile, row_of, weight_of and spans. */
void mixture_group(struct mixture *mixture, int M, int n_used, int E);

/* Returns the part of `of` with one expert's rows, as inputs of K numbers for products with the n
 * matrices. */
struct activations mixture_part(const struct mixture *mixture, const struct activations *of,
                                int expert, int K, const struct linear *linear, int n);

#endif
