/* The plain path's products: scalar C in the order of order.md. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* The largest magnitude of a block. Compared as integers, a NaN is above infinity and so is not
 * lost. */
static float largest_magnitude(const float *x) {
    uint32_t max_magnitude = 0;
    for (int i = 0; i < BLOCK; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        if (bits > max_magnitude) max_magnitude = bits;
    }
    float value;
    memcpy(&value, &max_magnitude, sizeof value);
    return value;
}

/* Quantises block i of a row: codes, scale, sums. A block of zeros has scale 0. A block with an
 * infinity or a NaN has this value as its scale and codes 0, so that the outputs are NaN rather
 * than plausible numbers. */
static void quantise_block(struct activations *a, int row, int i, const float *x) {
    size_t at = activation_at(a, row / LANES, i, row % LANES);
    int half_sum[2] = {0, 0};
    int8_t *q = a->q + at * BLOCK;
    float max_magnitude = largest_magnitude(x);
    bool usable = max_magnitude >= TINY && max_magnitude <= FLT_MAX;
    float inverse = usable ? 127.0f / max_magnitude : 0.0f;
    for (int k = 0; k < BLOCK; k++) {
        q[k] = usable ? (int8_t)rintf(x[k] * inverse) : 0;
        half_sum[k / 16] += q[k];
    }
    int sum = half_sum[0] + half_sum[1];
    float scale = usable ? max_magnitude / 127.0f : max_magnitude < TINY ? 0.0f : max_magnitude;
    a->scale[at] = scale;
    a->sum[at] = scale * (float)sum;
    int32_t *minus = activation_minus_sum(a, row / LANES, i, row % LANES);
    minus[0] = -sum;
    minus[a->width] = -half_sum[0];
    minus[2 * a->width] = -half_sum[1];
}

void plain_quantise(struct activations *a, int row, const float *x) {
    assert(row < a->M && a->K % BLOCK == 0);
    for (int i = 0; i < a->K / BLOCK; i++) quantise_block(a, row, i, x + (size_t)i * BLOCK);
}

/* The same with 16 bits. The missing inputs of the last block are zeros. */
static void quantise_half_block(struct activations *a, size_t at, const float *x) {
    float max_magnitude = largest_magnitude(x);
    bool usable = max_magnitude >= TINY && max_magnitude <= FLT_MAX;
    float inverse = usable ? HALF_TOP / max_magnitude : 0.0f;
    for (int k = 0; k < BLOCK; k++)
        a->half_q[at * BLOCK + (size_t)k] = usable ? (int16_t)rintf(x[k] * inverse) : 0;
    a->half_scale[at] = usable                 ? max_magnitude / HALF_TOP
                        : max_magnitude < TINY ? 0.0f
                                               : max_magnitude;
}

void plain_quantise_half(struct activations *a, int row, const float *x) {
    assert(row >= 0 && row < a->M);
    for (int i = 0; i < blocks_of(a->K); i++, x += BLOCK) {
        float block[BLOCK] = {0};
        size_t left = (size_t)(a->K - i * BLOCK);
        memcpy(block, x, (left < BLOCK ? left : BLOCK) * sizeof *x);
        quantise_half_block(a, activation_at(a, row / LANES, i, row % LANES), block);
    }
}

void plain_put_block(struct activations *a, int tile, int i, int rows, const float *x, int n) {
    assert(rows <= a->width && n > 0 && n <= BLOCK && i < blocks_of(a->K));
    for (int r = 0; r < rows; r++, x += BLOCK) {
        float block[BLOCK] = {0};
        memcpy(block, x, (size_t)n * sizeof *x);
        if (a->quantised) quantise_block(a, tile * LANES + r, i, block);
        if (a->halves) quantise_half_block(a, activation_at(a, tile, i, r), block);
        if (!a->floats) continue;
        size_t first = (size_t)tile * (size_t)a->K + (size_t)i * BLOCK, width = (size_t)a->width;
        for (int k = 0; k < n; k++) a->x[(first + (size_t)k) * width + (size_t)r] = block[k];
    }
}

static int dot(const struct weight_block *w, const int8_t *q, int from, int to) {
    int sum = 0;
    for (int k = from; k < to; k++) sum += block_value(w, k) * q[k];
    return sum;
}

/* Returns acc plus one block's contribution to an output. */
static float add_block(float acc, const struct format *format, const struct weight_block *w,
                       const int8_t *q, float scale, float sum) {
    if (!format->halved) {
        acc = fmaf((float)dot(w, q, 0, 32), block_scale(w, 0) * scale, acc);
        return format->has_min ? fmaf(block_min(w, 0), sum, acc) : acc;
    }
    for (int half = 0; half < 2; half++) {
        int from = 16 * half, half_sum = 0;
        for (int k = from; k < from + 16; k++) half_sum += q[k];
        acc = fmaf((float)dot(w, q, from, from + 16), block_scale(w, half) * scale, acc);
        if (format->has_min) acc = fmaf(block_min(w, half), scale * (float)half_sum, acc);
    }
    return acc;
}

static void quantised_lane(const struct matrix *w, int output, const struct activations *a,
                           int tile, int rows, float *acc) {
    for (int r = 0; r < rows; r++) acc[r] = 0;
    for (int i = 0; i < w->n_blocks; i++) {
        struct weight_block block;
        matrix_block(w, &block, output, i);
        size_t at = activation_at(a, tile, i, 0);
        for (int r = 0; r < rows; r++, at++)
            acc[r] =
                add_block(acc[r], w->format, &block, a->q + at * BLOCK, a->scale[at], a->sum[at]);
    }
}

static void half_lane(const struct matrix *w, int output, const struct activations *a, int tile,
                      int rows, float *acc) {
    for (int r = 0; r < rows; r++) acc[r] = 0;
    for (int i = 0; i < w->n_blocks; i++) {
        struct half_block block;
        matrix_half_block(w, &block, output, i);
        size_t at = activation_at(a, tile, i, 0);
        for (int r = 0; r < rows; r++, at++) {
            int sum = 0;
            for (int k = 0; k < BLOCK; k++)
                sum += block.code[k] * a->half_q[at * BLOCK + (size_t)k];
            acc[r] = fmaf((float)sum, block.scale * a->half_scale[at], acc[r]);
        }
    }
}

static void float_lane(const struct matrix *w, int output, const struct activations *a, int tile,
                       int rows, float *acc) {
    const float *x = a->x + (size_t)tile * (size_t)a->K * (size_t)a->width;
    const float *weight =
        (const float *)(w->panels + (size_t)(output / LANES) * w->panel_bytes) + output % LANES;
    for (int r = 0; r < rows; r++) acc[r] = 0;
    for (int k = 0; k < w->K; k++, x += a->width, weight += LANES)
        for (int r = 0; r < rows; r++) acc[r] = fmaf(x[r], *weight, acc[r]);
}

void plain_product(const struct matrix *w, int panel, const struct activations *a, int tile,
                   int rows, float *y, size_t stride) {
    assert(rows > 0 && rows <= LANES && a->K == w->K);
    for (int lane = 0; lane < LANES && panel * LANES + lane < w->N; lane++) {
        float acc[LANES];
        if (matrix_is_float(w))
            float_lane(w, panel * LANES + lane, a, tile, rows, acc);
        else if (matrix_is_half(w))
            half_lane(w, panel * LANES + lane, a, tile, rows, acc);
        else
            quantised_lane(w, panel * LANES + lane, a, tile, rows, acc);
        for (int r = 0; r < rows; r++) y[(size_t)r * stride + (size_t)lane] = acc[r];
    }
}
