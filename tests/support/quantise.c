#include "support/quantise.h"

#include <math.h>
#include <string.h>

#define BLOCK 32

static void put_half(uint8_t *out, float value) {
    uint16_t half = float_to_half(value);
    memcpy(out, &half, sizeof half);
}

/* Returns the number as it will be read back. Levels are computed with it, so rounding the scale
 * adds no error. */
static float as_half(float value) {
    return half_to_float(float_to_half(value));
}

static int level(float value, float step, int least, int most) {
    if (step == 0) return least > 0 ? least : 0;
    float rounded = roundf(value / step);
    return rounded < (float)least ? least : rounded > (float)most ? most : (int)rounded;
}

/* Returns the number of the largest magnitude in a block, with its sign. */
static float extreme(const float *x) {
    float best = 0;
    for (int i = 0; i < BLOCK; i++) {
        if (fabsf(x[i]) > fabsf(best)) best = x[i];
    }
    return best;
}

static void block_q8_0(const float *x, uint8_t *out) {
    float step = as_half(fabsf(extreme(x)) / 127);
    put_half(out, step);
    for (int i = 0; i < BLOCK; i++) out[2 + i] = (uint8_t)(int8_t)level(x[i], step, -127, 127);
}

/* Levels -8..7: the extreme becomes -8, whatever its sign, so the step has the opposite sign. */
static void block_q4_0(const float *x, uint8_t *out) {
    float step = as_half(extreme(x) / -8);
    put_half(out, step);
    for (int i = 0; i < BLOCK / 2; i++) {
        int low = level(x[i], step, -8, 7) + 8, high = level(x[i + BLOCK / 2], step, -8, 7) + 8;
        out[2 + i] = (uint8_t)(low | high << 4);
    }
}

static void block_q4_1(const float *x, uint8_t *out) {
    float least = x[0], most = x[0];
    for (int i = 1; i < BLOCK; i++) {
        least = fminf(least, x[i]);
        most = fmaxf(most, x[i]);
    }
    float base = as_half(least), step = as_half((most - least) / 15);
    put_half(out, step);
    put_half(out + 2, base);
    for (int i = 0; i < BLOCK / 2; i++) {
        int low = level(x[i] - base, step, 0, 15);
        int high = level(x[i + BLOCK / 2] - base, step, 0, 15);
        out[4 + i] = (uint8_t)(low | high << 4);
    }
}

static void put_bf16(float value, uint8_t *out) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1); /* round to nearest, ties to even */
    uint16_t top = (uint16_t)(bits >> 16);
    memcpy(out, &top, sizeof top);
}

/* Writes random bytes, the same for the same numbers, with a scale that makes weights about as
 * large as those of a matrix with 256 inputs. */
static void block_looked_up(enum dtype type, const float *x, uint8_t *out) {
    uint8_t scale[2];
    uint32_t state;
    memcpy(&state, x, sizeof state);
    for (int i = 0; i < dtype_block_bytes((int)type); i++) {
        state = state * 1664525 + 1013904223;
        out[i] = (uint8_t)(state >> 24);
    }
    bool of_ones = type == DTYPE_IQ1_S || type == DTYPE_IQ1_M;
    put_half(scale, of_ones ? 0.01f : type == DTYPE_IQ3_S ? 0.0005f : 0.001f);
    if (type == DTYPE_NVFP4)
        for (int i = 0; i < 4; i++) out[i] = 4 + (out[i] & 15);
    else if (type == DTYPE_IQ1_M)
        for (int i = 0; i < 4; i++)
            out[49 + 2 * i] = (out[49 + 2 * i] & 15) | (scale[i / 2] >> i % 2 * 4 & 15) << 4;
    else
        memcpy(out, scale, 2);
}

/* Does the same for a type that products read without conversion. */
static void block_random(enum dtype type, const float *x, uint8_t *out) {
    uint32_t seed;
    struct random_weights weights;
    memcpy(&seed, x, sizeof seed);
    random_weights_plan(&weights, type, 256, seed);
    random_weights_fill(&weights, out, 0, (size_t)dtype_block_bytes((int)type));
}

static void quantise_block(enum dtype type, const float *x, uint8_t *out) {
    if (dtype_kept(type) != type) {
        block_looked_up(type, x, out);
        return;
    }
    switch ((int)type) {
    case DTYPE_F32:
        memcpy(out, x, sizeof *x);
        break;
    case DTYPE_F16:
        put_half(out, *x);
        break;
    case DTYPE_BF16:
        put_bf16(*x, out);
        break;
    case DTYPE_Q8_0:
        block_q8_0(x, out);
        break;
    case DTYPE_Q4_0:
        block_q4_0(x, out);
        break;
    case DTYPE_Q4_1:
        block_q4_1(x, out);
        break;
    default:
        block_random(type, x, out);
    }
}

void quantise(enum dtype type, const float *x, void *out, size_t n) {
    size_t elements = (size_t)dtype_block_elements((int)type);
    size_t bytes = (size_t)dtype_block_bytes((int)type);
    for (size_t i = 0; i < n / elements; i++)
        quantise_block(type, x + i * elements, (uint8_t *)out + i * bytes);
}
