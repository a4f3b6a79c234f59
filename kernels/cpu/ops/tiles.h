/* The tile registers of AMX, as far as a product of bytes needs them: one each for the inputs, the
 * weights and the sums. The processor renames them, so one product need not wait for another.
 *
 * gcc 12 does not tell itself that these instructions read memory: of a configuration it believes 8
 * of 64 bytes read, of a loaded tile none, and drops or delays the stores before. `written` makes
 * it keep them. */
#ifndef PENSTOCK_KERNELS_TILES_H
#define PENSTOCK_KERNELS_TILES_H

#include <immintrin.h>

#include "kernels/cpu/simd/vec16.h"

/* What was stored at p, and wherever else, stands in memory from here on. */
INLINE void written(const void *p) {
    __asm__ volatile("" : : "r"(p) : "memory");
}

/* What ldtilecfg reads: palette 1 has 8 registers of at most 16 rows of 64 bytes. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Which register is what; macros, as the intrinsics take them for a part of a name. */
#define SUMS 0
#define INPUTS 1
#define WEIGHTS 2

/* Shapes the registers for `rows` rows of `inputs` inputs (bytes), times 16 outputs. A thread's
 * registers keep their shape, so only a change costs anything. */
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

/* dots[rows][16] = q[rows][inputs] times weights[inputs / 4][16][4], all signed bytes; rows of q
 * stand BLOCK bytes apart. They are exact. */
INLINE void tiles_multiply(int32_t *dots, const int8_t *q, const int8_t *weights) {
    written(weights);
    _tile_loadd(INPUTS, q, BLOCK);
    _tile_loadd(WEIGHTS, weights, 4 * LANES);
    _tile_zero(SUMS);
    _tile_dpbssd(SUMS, INPUTS, WEIGHTS);
    _tile_stored(SUMS, dots, 4 * LANES);
}

#endif
