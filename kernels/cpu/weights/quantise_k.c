/* From floats to the blocks of Q4_K and Q6_K. Their format defines no rounding; this one looks for
 * the scale, and minimum, of each small block that leave the least squared error, where a larger
 * weight counts for more. The scales are then rounded themselves, and codes chosen for what became
 * of them. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { SUPER = 256, SMALL_4 = 32, SMALL_6 = 16, TRIALS = 10 };

static int clamped(float value, int low, int high) {
    int n = (int)(value + (value < 0 ? -0.5f : 0.5f));
    return n < low ? low : n > high ? high : n;
}

/* ---- Q4_K: x is about scale * code - min ---------------------------------------------------- */

/* Sums over a small block, each number weighted. */
struct sums {
    float w, x, code, code2, x_code;
};

struct range {
    float scale, min; /* neither is below 0 */
};

/* The squared error of a range with these codes. */
static float error_of(struct range range, const float *x, const float *weight,
                      const uint8_t *code) {
    float error = 0;
    for (int i = 0; i < SMALL_4; i++) {
        float off = range.scale * (float)code[i] - range.min - x[i];
        error += weight[i] * off * off;
    }
    return error;
}

/* The best range for these codes: least squares, with a minimum that may not be below 0. */
static struct range solve(const struct sums *s) {
    float determinant = s->w * s->code2 - s->code * s->code;
    if (s->code2 <= 0) return (struct range){0};
    if (determinant > 0) {
        float scale = (s->w * s->x_code - s->x * s->code) / determinant;
        float min = (s->code * s->x_code - s->code2 * s->x) / determinant;
        if (scale >= 0 && min >= 0) return (struct range){scale, min};
    }
    float scale = s->x_code / s->code2;
    return (struct range){scale > 0 ? scale : 0, 0};
}

/* One trial: codes by `inverse`, then the best range for them. */
static float try_range(struct range *out, const float *x, const float *weight, float low,
                       float inverse) {
    uint8_t code[SMALL_4];
    struct sums s = {0};
    for (int i = 0; i < SMALL_4; i++) {
        code[i] = (uint8_t)clamped((x[i] - low) * inverse, 0, 15);
        float of_code = weight[i] * (float)code[i];
        s.w += weight[i];
        s.x += weight[i] * x[i];
        s.code += of_code;
        s.code2 += of_code * (float)code[i];
        s.x_code += of_code * x[i];
    }
    *out = solve(&s);
    return error_of(*out, x, weight, code);
}

static struct range find_range(const float *x) {
    float low = 0, high = x[0], square = 0, weight[SMALL_4];
    for (int i = 0; i < SMALL_4; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        square += x[i] * x[i];
    }
    float mean = sqrtf(square / SMALL_4), best_error = INFINITY;
    struct range best = {0, -low};
    if (!(high > low)) return best;
    for (int i = 0; i < SMALL_4; i++) weight[i] = mean + fabsf(x[i]);
    for (int trial = -TRIALS; trial <= TRIALS; trial++) {
        struct range range;
        float inverse = (15 + 0.1f * (float)trial) / (high - low);
        float error = try_range(&range, x, weight, low, inverse);
        if (error < best_error) best = range, best_error = error;
    }
    return best;
}

/* The reverse of block_k_scales. */
static void put_scales(uint8_t *p, int i, int scale, int min) {
    if (i < 4) {
        p[i] |= (uint8_t)scale;
        p[i + 4] |= (uint8_t)min;
    } else {
        p[i + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
        p[i - 4] |= (uint8_t)(scale >> 4 << 6);
        p[i] |= (uint8_t)(min >> 4 << 6);
    }
}

static float put_half(uint8_t *p, float value) {
    uint16_t half = float_to_half(value);
    memcpy(p, &half, sizeof half);
    return half_to_float(half);
}

void quantise_q4_k(uint8_t *p, const float *x) {
    struct range range[8];
    float max_scale = 0, max_min = 0;
    memset(p, 0, 144);
    for (int i = 0; i < 8; i++) {
        range[i] = find_range(x + i * SMALL_4);
        max_scale = range[i].scale > max_scale ? range[i].scale : max_scale;
        max_min = range[i].min > max_min ? range[i].min : max_min;
    }
    float d = put_half(p, max_scale / 63), dmin = put_half(p + 2, max_min / 63);
    for (int i = 0; i < 8; i++) {
        int scale = d > 0 ? clamped(range[i].scale / d, 0, 63) : 0;
        int min = dmin > 0 ? clamped(range[i].min / dmin, 0, 63) : 0;
        float step = d * (float)scale, inverse = step > 0 ? 1 / step : 0;
        put_scales(p + 4, i, scale, min);
        for (int j = 0; j < SMALL_4; j++) {
            int code = clamped((x[i * SMALL_4 + j] + dmin * (float)min) * inverse, 0, 15);
            p[16 + i / 2 * 32 + j] |= (uint8_t)(code << i % 2 * 4);
        }
    }
}

/* ---- Q6_K: x is about scale * code, of -32..31 ---------------------------------------------- */

static float find_scale(const float *x) {
    float max = 0, best = 0, best_gain = 0;
    for (int i = 0; i < SMALL_6; i++)
        if (fabsf(x[i]) > fabsf(max)) max = x[i];
    if (max == 0) return 0;
    for (int trial = -TRIALS; trial <= TRIALS; trial++) {
        float inverse = -(32 + 0.1f * (float)trial) / max, product = 0, square = 0;
        for (int i = 0; i < SMALL_6; i++) {
            float code = (float)clamped(x[i] * inverse, -32, 31), weight = x[i] * x[i];
            product += weight * x[i] * code;
            square += weight * code * code;
        }
        /* the error is what x has of squares, less product^2 / square */
        if (square > 0 && product * product > best_gain * square)
            best = product / square, best_gain = product * product / square;
    }
    return best;
}

/* The places of code j of small block i: blocks of 16, in halves of 128. */
static void put_code(uint8_t *p, int i, int j, int code) {
    int block = i / 2, at = i % 2 * SMALL_6 + j; /* of 32 */
    uint8_t *nibble = p + block / 4 * 64 + block % 2 * 32 + at;
    uint8_t *pair = p + 128 + block / 4 * 32 + at;
    *nibble |= (uint8_t)((code & 15) << block % 4 / 2 * 4);
    *pair |= (uint8_t)(code >> 4 << block % 4 * 2);
}

void quantise_q6_k(uint8_t *p, const float *x) {
    enum { N = SUPER / SMALL_6 };
    float scale[N], max = 0;
    memset(p, 0, 210);
    for (int i = 0; i < N; i++) {
        scale[i] = find_scale(x + i * SMALL_6);
        if (fabsf(scale[i]) > fabsf(max)) max = scale[i];
    }
    float d = put_half(p + 208, max / -128);
    for (int i = 0; i < N; i++) {
        int rounded = d != 0 ? clamped(scale[i] / d, -128, 127) : 0;
        float step = d * (float)rounded, inverse = step != 0 ? 1 / step : 0;
        p[192 + i] = (uint8_t)rounded;
        for (int j = 0; j < SMALL_6; j++)
            put_code(p, i, j, clamped(x[i * SMALL_6 + j] * inverse, -32, 31) + 32);
    }
}
