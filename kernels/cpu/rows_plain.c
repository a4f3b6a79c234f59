/* The plain path's ops on rows: scalar C, one line an operation, in the order that order.md writes
 * down. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* The fixed tree over 16 partial sums: halves are added until one is left. */
static float tree_sum(float *s) {
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) s[i] = s[i] + s[i + width];
    return s[0];
}

float plain_exp(float x) {
    if (x < EXP_LOW) return 0.0f;
    if (x > EXP_HIGH) x = EXP_HIGH;
    float shifted = fmaf(x, EXP_LOG2E, EXP_ROUND);
    float n = shifted - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_LOW, fmaf(n, -EXP_LN2_HIGH, x));
    float q = fmaf(r, EXP_Q4, EXP_Q3);
    q = fmaf(q, r, EXP_Q2);
    q = fmaf(q, r, EXP_Q1);
    q = fmaf(q, r, EXP_Q0);
    float p = fmaf(q, r * r, r) + 1.0f;
    uint32_t bits; /* the low bits of `shifted` are n: moved into the exponent they make 2^n */
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000u;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

void plain_rmsnorm(float *y, const float *x, const float *gain, int K, float epsilon) {
    float s[LANES] = {0};
    for (int k = 0; k < K; k++) s[k % LANES] = fmaf(x[k], x[k], s[k % LANES]);
    float r = 1.0f / sqrtf(tree_sum(s) / (float)K + epsilon);
    for (int k = 0; k < K; k++) y[k] = x[k] * r * gain[k];
}

void plain_rope(float *x, int heads, int D, int D_rope, const float *cosine, const float *sine,
                enum rope_layout layout) {
    int pairs = D_rope / 2;
    int step = layout == ROPE_ADJACENT ? 2 : 1, apart = layout == ROPE_ADJACENT ? 1 : pairs;
    for (int h = 0; h < heads; h++, x += D) {
        for (int i = 0; i < pairs; i++) {
            float *a = x + i * step, *b = a + apart, old = *a;
            *a = old * cosine[i] - *b * sine[i];
            *b = *b * cosine[i] + old * sine[i];
        }
    }
}

void plain_add_panel(float *y, size_t stride, const float *x, int rows, int n) {
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++)
            y[(size_t)r * stride + (size_t)i] =
                y[(size_t)r * stride + (size_t)i] + x[r * LANES + i];
}

void plain_to_halves(uint16_t *out, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = float_to_half(x[i]);
}

const struct path path_plain = {
    .name = "plain",
    .rmsnorm = plain_rmsnorm,
    .rope = plain_rope,
    .gate_block = plain_gate_block,
    .add_panel = plain_add_panel,
    .to_halves = plain_to_halves,
    .to_codes = plain_to_codes,
    .quantise = plain_quantise,
    .quantise_half = plain_quantise_half,
    .product = plain_product,
    .attend = plain_attend,
    .merge = plain_merge,
    .finish = plain_finish,
    .logits = &plain_logits,
};
