/* The plain path's ops on rows: scalar C, one line per operation, in the order of order.md. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* The fixed tree over 16 partial sums: adds the upper half to the lower half until one is left. */
float tree_sum(float *s) {
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) s[i] = s[i] + s[i + width];
    return s[0];
}

/* exp(x) = (m + 1) * 2^n for x <= EXP_HIGH. Returns m and writes 2^n to *power. */
static float exp_parts(float x, float *power) {
    float shifted = fmaf(x, EXP_LOG2E, EXP_ROUND);
    float n = shifted - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_LOW, fmaf(n, -EXP_LN2_HIGH, x));
    float q = fmaf(r, EXP_Q4, EXP_Q3);
    q = fmaf(q, r, EXP_Q2);
    q = fmaf(q, r, EXP_Q1);
    q = fmaf(q, r, EXP_Q0);
    uint32_t bits; /* the low bits of `shifted` are n: moved into the exponent they make 2^n */
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000u;
    memcpy(power, &bits, sizeof *power);
    return fmaf(q, r * r, r);
}

float plain_exp(float x) {
    if (x < EXP_LOW) return 0.0f;
    if (x > EXP_HIGH) x = EXP_HIGH;
    float power, m = exp_parts(x, &power);
    return (m + 1.0f) * power;
}

/* With e = exp(2|x|) - 1, which is accurate for small x, the result is e / (e + 2). */
float plain_tanh(float x) {
    float twice = 2.0f * fabsf(x);
    if (twice > EXP_HIGH) twice = EXP_HIGH;
    float power, m = exp_parts(twice, &power);
    float e = fmaf(m, power, power - 1.0f);
    return copysignf(e / (e + 2.0f), x);
}

static float relu(float x) {
    return 0.0f > x ? 0.0f : x;
}

/* x * (1 + erf(x / sqrt(2))) / 2, computed as max(x, 0) - |x| / 2 * erfc(|x| / sqrt(2)). */
static float gelu(float x) {
    float a = fabsf(x);
    float g = fmaf(GELU_G9, a, GELU_G8);
    g = fmaf(g, a, GELU_G7);
    g = fmaf(g, a, GELU_G6);
    g = fmaf(g, a, GELU_G5);
    g = fmaf(g, a, GELU_G4);
    g = fmaf(g, a, GELU_G3);
    g = fmaf(g, a, GELU_G2);
    g = fmaf(g, a, GELU_G1);
    g = fmaf(g, a, GELU_G0);
    float tail = plain_exp(-(a * g));
    return relu(x) - 0.5f * a * tail;
}

float plain_activation(float x, enum activation activation) {
    switch (activation) {
    case ACTIVATION_SILU:
        return x / (1.0f + plain_exp(-x));
    case ACTIVATION_GELU:
        return gelu(x);
    case ACTIVATION_GELU_TANH: /* as (1 + tanh(z)) / 2 = 1 / (1 + exp(-2z)) */
        return x / (1.0f + plain_exp(-(x * fmaf(x * x, GELU_T3, GELU_T1))));
    case ACTIVATION_RELU:
        return relu(x);
    case ACTIVATION_RELU_SQUARED:
        return relu(x) * relu(x);
    case ACTIVATION_CLAMPED: /* only defined with a gated value */
    case ACTIVATION_XIELU:   /* plain_xielu */
        break;
    }
    assert(!"an activation");
    return 0;
}

static float clamped(float g, float u) {
    g = CLAMP_LIMIT < g ? CLAMP_LIMIT : g;
    u = CLAMP_LIMIT < u ? CLAMP_LIMIT : u;
    u = -CLAMP_LIMIT > u ? -CLAMP_LIMIT : u;
    return g / (1.0f + plain_exp(-(g * CLAMP_ALPHA))) * (u + 1.0f);
}

void plain_activate(float *x, const float *times, size_t n, enum activation activation) {
    for (size_t i = 0; i < n; i++) {
        if (activation == ACTIVATION_CLAMPED) {
            x[i] = clamped(x[i], times[i]);
            continue;
        }
        x[i] = plain_activation(x[i], activation);
        if (times) x[i] = x[i] * times[i];
    }
}

/* exp(x) - 1 for x <= 0, which is accurate for small x. */
static float exp_less_one(float x) {
    if (x < EXP_LOW) x = EXP_LOW;
    float power, m = exp_parts(x, &power);
    return fmaf(m, power, power - 1.0f);
}

void plain_xielu(float *x, size_t n, const struct xielu *numbers) {
    const struct xielu *c = numbers;
    assert(c->limit <= 0);
    for (size_t i = 0; i < n; i++) {
        float v = x[i], r = relu(v);
        float bent = (exp_less_one(c->limit < v ? c->limit : v) - v) * c->negative;
        if (v > 0.0f) bent = 0.0f;
        x[i] = (r * r * c->positive + bent) + v * c->linear;
    }
}

void plain_epilogue(float *y, size_t stride, int rows, int n, const struct epilogue *e) {
    assert(rows >= 0 && n > 0);
    for (int r = 0; r < rows; r++, y += stride) {
        for (int i = 0; i < n; i++) {
            if (e->bias) y[i] = y[i] + e->bias[i];
            if (e->scale != 1) y[i] = y[i] * e->scale;
            if (e->cap != 0) y[i] = e->cap * plain_tanh(y[i] / e->cap);
        }
    }
}

void plain_rmsnorm(float *y, const float *x, const float *gain, int K, float epsilon) {
    assert(K > 0 && epsilon >= 0);
    float s[LANES] = {0};
    for (int k = 0; k < K; k++) s[k % LANES] = fmaf(x[k], x[k], s[k % LANES]);
    float r = 1.0f / sqrtf(tree_sum(s) / (float)K + epsilon);
    for (int k = 0; k < K; k++) y[k] = x[k] * r * gain[k];
}

void plain_layernorm(float *y, const float *x, const float *gain, const float *bias, int K,
                     float epsilon) {
    assert(K > 0 && epsilon >= 0);
    float s[LANES] = {0}, v[LANES] = {0};
    for (int k = 0; k < K; k++) s[k % LANES] = s[k % LANES] + x[k];
    float mean = tree_sum(s) / (float)K;
    for (int k = 0; k < K; k++) v[k % LANES] = fmaf(x[k] - mean, x[k] - mean, v[k % LANES]);
    float r = 1.0f / sqrtf(tree_sum(v) / (float)K + epsilon);
    for (int k = 0; k < K; k++) {
        y[k] = (x[k] - mean) * r * gain[k];
        if (bias) y[k] = y[k] + bias[k];
    }
}

void plain_rope(float *x, int heads, int D, int D_rope, const float *cosine, const float *sine,
                enum rope_layout layout) {
    assert(D_rope > 0 && D_rope <= D && D_rope % 2 == 0);
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

const struct path path_plain = {
    .name = "plain",
    .rmsnorm = plain_rmsnorm,
    .layernorm = plain_layernorm,
    .rope = plain_rope,
    .activate = plain_activate,
    .xielu = plain_xielu,
    .put_block = plain_put_block,
    .epilogue = plain_epilogue,
    .add_panel = plain_add_panel,
    .write_kv = plain_write_kv,
    .quantise = plain_quantise,
    .quantise_half = plain_quantise_half,
    .product = plain_product,
    .low_rank_inner = plain_low_rank_inner,
    .low_rank_add = plain_low_rank_add,
    .attend = plain_attend,
    .short_conv = plain_short_conv,
    .state_row = plain_state_row,
    .gate = plain_gate,
    .merge = plain_merge,
    .finish = plain_finish,
    .logits = &plain_logits,
    .weights = &plain_weights,
};
