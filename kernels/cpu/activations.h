/* kernels/cpu/activations: the inputs of products, quantised and laid out in tiles of 16 rows. */
#ifndef PENSTOCK_KERNELS_CPU_ACTIVATIONS_H
#define PENSTOCK_KERNELS_CPU_ACTIVATIONS_H

#include "kernels/cpu/weights.h"

/* The input of a product in tiles of 16 rows, or in one tile of M rows when M is less: then a
 * block's rows stand closer together (`width` of them), and a single row is one run of bytes. */
struct activations {
    int M, K, width;
    bool quantised, halves, floats; /* which of what follows the matrices ask for */
    int8_t *q;                      /* [tile][K/32][width][32] codes -127..127 */
    float *scale;                   /* [tile][K/32][width] an input is scale * q */
    float *sum;                     /* [tile][K/32][width] scale * sum of the block's q */
    int32_t *minus_sum; /* [tile][K/32][3][width] minus the sum of q: all, first 16, last 16 */
    float *x;           /* [tile][K][width] inputs unquantised, for float weights */
    /* for two-byte weights, K rounded up to blocks: */
    int16_t *half_q;   /* [tile][K/32][width][32] codes -HALF_TOP..HALF_TOP */
    float *half_scale; /* [tile][K/32][width] an input is half_scale * half_q */
};

/* Blocks of K inputs. */
static inline int blocks_of(int K) {
    return K / BLOCK + (K % BLOCK != 0);
}

/* Where block i of a row of a tile stands; times BLOCK in q. */
static inline size_t activation_at(const struct activations *a, int tile, int i, int row) {
    return ((size_t)tile * (size_t)blocks_of(a->K) + (size_t)i) * (size_t)a->width + (size_t)row;
}

/* The three sums of that block, `width` apart. */
static inline int32_t *activation_minus_sum(const struct activations *a, int tile, int i, int row) {
    return a->minus_sum + 3 * activation_at(a, tile, i, 0) + row;
}

/* Bytes of inputs of so many rows, a multiple of LANES, of K, a multiple of BLOCK; and their layout
 * at `memory`, of 64-byte lines. */
size_t inputs_bytes(size_t rows, size_t K);
void inputs_lay_out(struct activations *a, void *memory, size_t rows, size_t K);
void cpu_plan_inputs(struct cpu *cpu);
void cpu_free_inputs(struct cpu *cpu);
/* `a` is to be M rows of K inputs, in the forms that n matrices ask for. */
void inputs_begin(struct activations *a, int M, int K, const struct linear *linear, int n);
/* Makes row `number` of `a` from x[K]. */
void inputs_make_row(const struct cpu *cpu, struct activations *a, int number, const float *x);
/* Makes the inputs of one tile out of rows [M][K], through the norm unless it is NULL; `row` is
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
