/* Converts floats to blocks of Q4_K and Q6_K. The formats do not define how scales and codes are
 * chosen. This code searches the scale of each small block, and in Q4_K its minimum, with the least
 * squared error. Errors of larger numbers have larger weights. Then it rounds the scales and
 * chooses the codes for the rounded scales. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { SUPER = 256, SMALL_4 = 32, SMALL_6 = 16, TRIALS = 10 };

/* Four partial sums over a small block: each adds every fourth number, and they are added last to
 * first. The compiler keeps them in one register of any processor. */
typedef float four __attribute__((vector_size(16)));

static four load(const float *x) {
    four out;
    memcpy(&out, x, sizeof out);
    return out;
}

static float total(four x) {
    return (x[0] + x[2]) + (x[1] + x[3]);
}

/* out[i] = the integer nearest to (x[i] - from) * inverse, ties to even, clamped to low..high. */
static inline void codes_of(float *out, const float *x, int n, float from, float inverse, float low,
                            float high) {
    const float whole = 0x1.8p23f; /* adding this removes the fraction bits */
    for (int i = 0; i < n; i++) {
        float code = (x[i] - from) * inverse;
        code = code > low ? code : low;
        code = code < high ? code : high;
        out[i] = (code + whole) - whole;
    }
}

static int clamped(float value, int low, int high) {
    int n = (int)(value + (value < 0 ? -0.5f : 0.5f));
    return n < low ? low : n > high ? high : n;
}

/* ---- Q4_K: x is about scale * code - min ---------------------------------------------------- */

/* Weighted sums over a small block. */
struct sums {
    float w, x, code, code2, x_code;
};

struct k_range {
    float scale, min; /* both are >= 0 */
};

/* The squared error of a range with these codes. */
static float error_of(struct k_range range, const float *x, const float *weight,
                      const float *code) {
    four error = {0};
    for (int i = 0; i < SMALL_4; i += 4) {
        four off = range.scale * load(code + i) - range.min - load(x + i);
        error += load(weight + i) * off * off;
    }
    return total(error);
}

/* The best range for these codes: least squares, with a minimum that may not be below 0. */
static struct k_range solve(const struct sums *s) {
    float determinant = s->w * s->code2 - s->code * s->code;
    if (s->code2 <= 0) return (struct k_range){0};
    if (determinant > 0) {
        float scale = (s->w * s->x_code - s->x * s->code) / determinant;
        float min = (s->code * s->x_code - s->code2 * s->x) / determinant;
        if (scale >= 0 && min >= 0) return (struct k_range){scale, min};
    }
    float scale = s->x_code / s->code2;
    return (struct k_range){scale > 0 ? scale : 0, 0};
}

/* One trial: codes for `inverse`, then the best range for them. `s` has the sums that do not depend
 * on codes. */
static float try_range(struct k_range *out, struct sums s, const float *x, const float *weight,
                       float low, float inverse) {
    float code[SMALL_4];
    four sum = {0}, sum2 = {0}, x_sum = {0};
    codes_of(code, x, SMALL_4, low, inverse, 0, 15);
    for (int i = 0; i < SMALL_4; i += 4) {
        four of_code = load(weight + i) * load(code + i);
        sum += of_code;
        sum2 += of_code * load(code + i);
        x_sum += of_code * load(x + i);
    }
    s.code = total(sum), s.code2 = total(sum2), s.x_code = total(x_sum);
    *out = solve(&s);
    return error_of(*out, x, weight, code);
}

/* Larger numbers have larger weights. */
static struct sums weigh(float *weight, const float *x) {
    four square = {0}, sum = {0}, x_sum = {0};
    for (int i = 0; i < SMALL_4; i += 4) square += load(x + i) * load(x + i);
    float mean = sqrtf(total(square) / SMALL_4);
    for (int i = 0; i < SMALL_4; i++) weight[i] = mean + fabsf(x[i]);
    for (int i = 0; i < SMALL_4; i += 4) {
        sum += load(weight + i);
        x_sum += load(weight + i) * load(x + i);
    }
    return (struct sums){.w = total(sum), .x = total(x_sum)};
}

static struct k_range find_range(const float *x) {
    float low = 0, high = x[0], weight[SMALL_4], best_error = INFINITY;
    for (int i = 0; i < SMALL_4; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    struct k_range best = {0, -low};
    if (!(high > low)) return best;
    struct sums sums = weigh(weight, x);
    for (int trial = -TRIALS; trial <= TRIALS; trial++) {
        struct k_range range;
        float inverse = (15 + 0.1f * (float)trial) / (high - low);
        float error = try_range(&range, sums, x, weight, low, inverse);
        if (error < best_error) best = range, best_error = error;
    }
    return best;
}

/* The inverse of block_k_scales. */
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
    struct k_range range[8];
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
        float code[SMALL_4];
        put_scales(p + 4, i, scale, min);
        codes_of(code, x + (size_t)i * SMALL_4, SMALL_4, -dmin * (float)min, inverse, 0, 15);
        for (int j = 0; j < SMALL_4; j++)
            p[16 + i / 2 * 32 + j] |= (uint8_t)((int)code[j] << i % 2 * 4);
    }
}

/* ---- Q6_K: x is about scale * code, of -32..31 ---------------------------------------------- */

static float find_scale(const float *x) {
    float max = 0, best = 0, best_gain = 0, weighted[SMALL_6], code[SMALL_6];
    for (int i = 0; i < SMALL_6; i++)
        if (fabsf(x[i]) > fabsf(max)) max = x[i];
    if (max == 0) return 0;
    for (int i = 0; i < SMALL_6; i++) weighted[i] = x[i] * x[i];
    for (int trial = -TRIALS; trial <= TRIALS; trial++) {
        four products = {0}, squares = {0};
        codes_of(code, x, SMALL_6, 0, -(32 + 0.1f * (float)trial) / max, -32, 31);
        for (int i = 0; i < SMALL_6; i += 4) {
            four of_code = load(weighted + i) * load(code + i);
            products += of_code * load(x + i);
            squares += of_code * load(code + i);
        }
        float product = total(products), square = total(squares);
        /* the error is the sum of squares of x, less product^2 / square */
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
        float code[SMALL_6];
        p[192 + i] = (uint8_t)rounded;
        codes_of(code, x + (size_t)i * SMALL_6, SMALL_6, 0, inverse, -32, 31);
        for (int j = 0; j < SMALL_6; j++) put_code(p, i, j, (int)code[j] + 32);
    }
}
