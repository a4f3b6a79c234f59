/* kernels/cpu/activations: the inputs of products, quantised and laid out in tiles of 16 rows. */
#ifndef PENSTOCK_KERNELS_CPU_ACTIVATIONS_H
#define PENSTOCK_KERNELS_CPU_ACTIVATIONS_H

#include "kernels/cpu/weights.h"

/* The inputs of a product in tiles of 16 rows. If M is less than 16 there is one tile of M rows:
 * the rows of a block are then closer together (`width` of them), and a single row is contiguous.
 */
struct activations {
    int M, K, width;
    bool quantised, halves, floats; /* the forms below that the matrices need */
    int8_t *q;                      /* [tile][K/32][width][32] codes -127..127 */
    float *scale;                   /* [tile][K/32][width] an input is scale * q */
    float *sum;                     /* [tile][K/32][width] scale * sum of the block's q */
    int32_t *minus_sum; /* [tile][K/32][3][width] minus the sum of q: all, first 16, last 16 */
    float *x;           /* [tile][K][width] inputs unquantised, for float weights */
    /* inputs for two-byte weights, with K rounded up to blocks: */
    int16_t *half_q;   /* [tile][K/32][width][32] codes -HALF_TOP..HALF_TOP */
    float *half_scale; /* [tile][K/32][width] an input is half_scale * half_q */
};

enum { NORM_ROWS = 4 }; /* rows whose norms are computed together */

/* The number of blocks of K inputs. */
static inline int blocks_of(int K) {
    return K / BLOCK + (K % BLOCK != 0);
}

/* Returns the index of block i of a row of a tile. In q it is multiplied by BLOCK. */
static inline size_t activation_at(const struct activations *a, int tile, int i, int row) {
    return ((size_t)tile * (size_t)blocks_of(a->K) + (size_t)i) * (size_t)a->width + (size_t)row;
}

/* Returns the three sums of that block, `width` apart. */
static inline int32_t *activation_minus_sum(const struct activations *a, int tile, int i, int row) {
    return a->minus_sum + 3 * activation_at(a, tile, i, 0) + row;
}

/* inputs_bytes returns the bytes for `rows` (a multiple of LANES) rows of K (a multiple of BLOCK)
 * inputs. inputs_place divides `memory`, aligned to 64 bytes, into these arrays. */
size_t inputs_bytes(size_t rows, size_t K);
void inputs_lay_out(struct activations *a, void *memory, size_t rows, size_t K);
void cpu_plan_inputs(struct cpu *cpu);
void cpu_free_inputs(struct cpu *cpu);
/* Prepares `a` for M rows of K inputs, in the forms that n matrices need. */
void inputs_begin(struct activations *a, int M, int K, const struct linear *linear, int n);
/* Computes row `number` of `a` from x[K]. */
void inputs_make_row(const struct cpu *cpu, struct activations *a, int number, const float *x);
/* Computes the inputs of one tile from rows [M][K], after the norm unless it is NULL. `row` is
 * scratch. */
void inputs_make_tile(const struct cpu *cpu, struct activations *a, int tile, const float *x,
                      const struct norm *norm, float *row);

static inline int tiles_of(int M) {
    return (M + LANES - 1) / LANES;
}
static inline int rows_of_tile(int M, int tile) {
    return M - tile * LANES < LANES ? M - tile * LANES : LANES;
}

#endif
