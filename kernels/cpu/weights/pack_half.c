/* Panels of two-byte floats: blocks of 32 weights become integers with a common power of two, see
 * `struct half_block`. All paths read the same panels. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { PAIR = 2, LINE = 2 * LANES }; /* inputs of a row in a line; numbers in a line */

static float power_of_two(uint32_t exponent) {
    uint32_t bits = exponent << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns the float32 exponent of the scale that leaves HALF_BITS bits for the largest of 32
 * magnitudes. A largest magnitude below TINY counts as zero. */
static uint32_t scale_exponent(const float *values) {
    uint32_t bits[BLOCK], max_magnitude = 0, tiny = 127 - 100;
    memcpy(bits, values, sizeof bits);
    for (int i = 0; i < BLOCK; i++)
        max_magnitude =
            (bits[i] & 0x7fffffff) > max_magnitude ? bits[i] & 0x7fffffff : max_magnitude;
    uint32_t exponent = max_magnitude >> 23;
    if (exponent == 255) return 255;
    return exponent < tiny ? 0 : exponent - (HALF_BITS - 1);
}

static void write_block(uint8_t *codes, uint8_t *scales, const float *values, int lane) {
    uint32_t exponent = scale_exponent(values);
    scales[lane] = (uint8_t)exponent;
    if (exponent == 0 || exponent == 255) return;
    int16_t code[BLOCK];
    float inverse = power_of_two(254 - exponent);
    for (int i = 0; i < BLOCK; i++) {
        /* 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits */
        float shifted = values[i] * inverse + 0x1.8p23f;
        uint32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        code[i] = (int16_t)(bits & 0xffff);
    }
    for (int i = 0; i < BLOCK; i += PAIR)
        memcpy(codes + (i / PAIR * LINE + PAIR * lane) * sizeof *code, code + i,
               PAIR * sizeof *code);
}

void matrix_write_halves(struct matrix *w, int row, const void *from, enum dtype type) {
    assert(row >= 0 && row < w->N && matrix_is_half(w));
    int panel = row / LANES, lane = row % LANES;
    for (int i = 0; i < w->n_blocks; i++) {
        float values[BLOCK] = {0};
        size_t left = (size_t)(w->K - i * BLOCK);
        dequantise(type, (const uint8_t *)from + dtype_bytes(type, (size_t)i * BLOCK), values,
                   left < BLOCK ? left : BLOCK);
        write_block((uint8_t *)matrix_codes(w, panel, i), (uint8_t *)matrix_scales(w, panel, i),
                    values, lane);
    }
}

void matrix_half_block(const struct matrix *w, struct half_block *block, int row, int i) {
    assert(row >= 0 && row < w->N && i >= 0);
    int panel = row / LANES, lane = row % LANES;
    const int16_t *codes = (const int16_t *)matrix_codes(w, panel, i) + PAIR * lane;
    for (int k = 0; k < BLOCK; k++) block->code[k] = codes[k / PAIR * LINE + k % PAIR];
    block->scale = power_of_two(matrix_scales(w, panel, i)[lane]);
}

void matrix_half_row(const struct matrix *w, int row, float *out) {
    assert(row >= 0 && row < w->N && matrix_is_half(w));
    for (int i = 0; i < w->n_blocks; i++) {
        struct half_block block;
        matrix_half_block(w, &block, row, i);
        int left = w->K - i * BLOCK;
        for (int k = 0; k < BLOCK && k < left; k++, out++)
            *out = (float)block.code[k] * block.scale;
    }
}
