/* Converts floats to blocks. Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 are rounded exactly as by their
 * reference: the scale is computed in float32, and codes are computed from it before it is rounded
 * to a half. quantise_k.c converts K types. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

static void put_half(uint8_t *p, float value) {
    uint16_t half = float_to_half(value);
    memcpy(p, &half, sizeof half);
}

static float largest_magnitude(const float *x) {
    float max = 0;
    for (int i = 0; i < BLOCK; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    return max;
}

/* Returns the number with the largest magnitude, the first of equal ones. */
static float largest(const float *x) {
    float max = largest_magnitude(x);
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) == max) return x[i];
    return max;
}

/* Writes codes 0..top of (x - min) / d, rounded to nearest by adding `half`, which includes the
 * zero point. */
static void codes_of(uint8_t *code, const float *x, float min, float inverse, float half, int top) {
    for (int i = 0; i < BLOCK; i++) {
        float rounded = (x[i] - min) * inverse + half;
        rounded = rounded > 0 ? rounded : 0;
        code[i] = (uint8_t)(int)(rounded < (float)top ? rounded : (float)top);
    }
}

static void put_nibbles(uint8_t *p, const uint8_t *code) {
    for (int i = 0; i < 16; i++) p[i] = (uint8_t)((code[i] & 15) | code[i + 16] << 4);
}

static void put_fifth_bits(uint8_t *p, const uint8_t *code) {
    memset(p, 0, 4);
    for (int i = 0; i < BLOCK; i++) p[i / 8] |= (uint8_t)(code[i] >> 4 << i % 8);
}

/* Codes with the zero in the middle: the largest magnitude gets the lowest code. */
static void quantise_middle(uint8_t *p, const float *x, int bits) {
    uint8_t code[BLOCK];
    int zero = 1 << (bits - 1);
    float d = largest(x) / (float)-zero;
    put_half(p, d);
    codes_of(code, x, 0, inverse_of(d), (float)zero + 0.5f, 2 * zero - 1);
    if (bits == 5) put_fifth_bits(p + 2, code);
    put_nibbles(p + (bits == 5 ? 6 : 2), code);
}

/* Codes from the smallest number to the largest. */
static void quantise_range(uint8_t *p, const float *x, int bits) {
    uint8_t code[BLOCK];
    float min = x[0], max = x[0];
    int top = (1 << bits) - 1;
    for (int i = 1; i < BLOCK; i++) min = x[i] < min ? x[i] : min, max = x[i] > max ? x[i] : max;
    float d = (max - min) / (float)top;
    put_half(p, d);
    put_half(p + 2, min);
    codes_of(code, x, min, inverse_of(d), 0.5f, top);
    if (bits == 5) put_fifth_bits(p + 4, code);
    put_nibbles(p + (bits == 5 ? 8 : 4), code);
}

static void quantise_bytes(uint8_t *p, const float *x) {
    float d = largest_magnitude(x) / 127, inverse = inverse_of(d);
    put_half(p, d);
    for (int i = 0; i < BLOCK; i++) {
        /* roundf with operations of every processor: a half is rounded away from zero */
        float value = x[i] * inverse;
        int whole = (int)value;
        float rest = value - (float)whole;
        p[2 + i] = (uint8_t)(int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
    }
}

/* Do n numbers include an infinity or a NaN? */
static bool is_broken(const float *x, int n) {
    int broken = 0;
    for (int i = 0; i < n; i++) broken |= !(fabsf(x[i]) <= FLT_MAX);
    return broken;
}

/* Products with a block of broken numbers must be NaN rather than plausible numbers. */
static void write_nan(enum dtype type, uint8_t *p, size_t bytes) {
    static const uint16_t nan = 0x7e00;
    memset(p, 0, bytes);
    memcpy(p + (type == DTYPE_Q6_K ? 208 : 0), &nan, sizeof nan);
}

static void quantise_block(enum dtype type, uint8_t *p, const float *x) {
    switch (type) {
    case DTYPE_Q8_0:
        quantise_bytes(p, x);
        return;
    case DTYPE_Q4_0:
        quantise_middle(p, x, 4);
        return;
    case DTYPE_Q5_0:
        quantise_middle(p, x, 5);
        return;
    case DTYPE_Q4_1:
        quantise_range(p, x, 4);
        return;
    case DTYPE_Q5_1:
        quantise_range(p, x, 5);
        return;
    case DTYPE_Q4_K:
        quantise_q4_k(p, x);
        return;
    default:
        assert(type == DTYPE_Q6_K);
        quantise_q6_k(p, x);
    }
}

void quantise_blocks(enum dtype type, const float *x, void *out, size_t n) {
    size_t each = (size_t)dtype_block_elements((int)type), bytes = dtype_bytes(type, each);
    assert(each > 1 && n % each == 0);
    uint8_t *p = out;
    for (size_t i = 0; i < n; i += each, x += each, p += bytes) {
        if (is_broken(x, (int)each))
            write_nan(type, p, bytes);
        else
            quantise_block(type, p, x);
    }
}

static void quantise_weights(enum dtype to, void *out, enum dtype from, const void *rows,
                             size_t n) {
    enum { PIECE = 1024 }; /* numbers: whole blocks of any type */
    float x[PIECE];
    for (size_t at = 0; at < n; at += PIECE) {
        size_t count = n - at < PIECE ? n - at : PIECE;
        dequantise(from, (const uint8_t *)rows + dtype_bytes(from, at), x, count);
        quantise_blocks(to, x, (uint8_t *)out + dtype_bytes(to, at), count);
    }
}

const struct weight_ops plain_weights = {quantise_weights};
