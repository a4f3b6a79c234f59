/* The tile registers of AMX for products of bytes: one each for the inputs, the weights and the
 * sums. The processor renames them, so consecutive products do not wait for each other.
 *
 * gcc 12 does not know how much memory these instructions read: it assumes 8 of the configuration's
 * 64 bytes and none of a tile, and drops or delays earlier stores. `written` prevents this. */
#ifndef PENSTOCK_KERNELS_TILES_H
#define PENSTOCK_KERNELS_TILES_H

#include <immintrin.h>

#include "kernels/cpu/simd/vec16.h"

/* Ensures that the data stored at p, and all other stored data, is in memory from here on. */
INLINE void written(const void *p) {
    __asm__ volatile("" : : "r"(p) : "memory");
}

/* The operand of ldtilecfg: palette 1 has 8 registers of at most 16 rows of 64 bytes. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* The use of each register. These are macros because the intrinsics paste them into names. */
#define SUMS 0
#define INPUTS 1
#define WEIGHTS 2

/* Sets the shapes of the registers for `rows` rows of `inputs` inputs (bytes) times 16 outputs. A
 * thread keeps its shapes, so only a change has a cost. */
INLINE void tiles_shape(int rows, int inputs) {
    static _Thread_local int shaped;
    int shape = rows << 8 | inputs;
    if (shape == shaped) return;
    struct tile_config config = {.palette = 1};
    config.rows[SUMS] = config.rows[INPUTS] = (uint8_t)rows;
    config.rows[WEIGHTS] = (uint8_t)(inputs / 4);
    config.row_bytes[SUMS] = config.row_bytes[WEIGHTS] = 4 * LANES;
    config.row_bytes[INPUTS] = (uint16_t)inputs;
    written(&config);
    _tile_loadconfig(&config);
    shaped = shape;
}

/* dots[rows][16] = q[rows][inputs] times weights[inputs / 4][16][4], all signed bytes, exactly.
 * Rows of q are BLOCK bytes apart. */
INLINE void tiles_multiply(int32_t *dots, const int8_t *q, const int8_t *weights) {
    written(weights);
    _tile_loadd(INPUTS, q, BLOCK);
    _tile_loadd(WEIGHTS, weights, 4 * LANES);
    _tile_zero(SUMS);
    _tile_dpbssd(SUMS, INPUTS, WEIGHTS);
    _tile_stored(SUMS, dots, 4 * LANES);
}

#endif
