/* The tile registers of AMX, as far as a product of bytes needs them. Two sets of three registers
 * (inputs, weights, sums) are used in turn, so that one product need not wait for the one before.
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

/* The first register of each kind; the second set's are one behind. */
enum { TILE_SETS = 2, SUMS = 0, INPUTS = 2, WEIGHTS = 4 };

/* Shapes the registers for `rows` rows of `inputs` inputs (bytes), times 16 outputs. A thread's
 * registers keep their shape, so only a change costs anything. */
INLINE void tiles_shape(int rows, int inputs) {
    static _Thread_local int shaped;
    int shape = rows << 8 | inputs;
    if (shape == shaped) return;
    struct tile_config config = {.palette = 1};
    for (int set = 0; set < TILE_SETS; set++) {
        config.rows[SUMS + set] = config.rows[INPUTS + set] = (uint8_t)rows;
        config.rows[WEIGHTS + set] = (uint8_t)(inputs / 4);
        config.row_bytes[SUMS + set] = config.row_bytes[WEIGHTS + set] = 4 * LANES;
        config.row_bytes[INPUTS + set] = (uint16_t)inputs;
    }
    written(&config);
    _tile_loadconfig(&config);
    shaped = shape;
}

/* dots[rows][16] = q[rows][inputs] times weights[inputs / 4][16][4], all signed bytes; rows of q
 * stand BLOCK bytes apart. They are exact. */
#define TILES_MULTIPLY(name, sums_tile, inputs_tile, weights_tile)                                 \
    INLINE void name(int32_t *dots, const int8_t *q, const int8_t *weights) {                      \
        written(weights);                                                                          \
        _tile_loadd(inputs_tile, q, BLOCK);                                                        \
        _tile_loadd(weights_tile, weights, 4 * LANES);                                             \
        _tile_zero(sums_tile);                                                                     \
        _tile_dpbssd(sums_tile, inputs_tile, weights_tile);                                        \
        _tile_stored(sums_tile, dots, 4 * LANES);                                                  \
    }
TILES_MULTIPLY(tiles_multiply_even, 0, 2, 4)
TILES_MULTIPLY(tiles_multiply_odd, 1, 3, 5)
#undef TILES_MULTIPLY

#endif
