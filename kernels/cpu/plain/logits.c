/* The plain path's reductions over a row of logits: scalar C in the order of order.md. The loops
 * iterate over lanes innermost, so a compiler may use the baseline's vectors without changing a
 * bit. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

static inline float weight_of(float x) {
    float clamped = x >= WEIGHT_LOW ? x : WEIGHT_LOW;
    float shifted = clamped * WEIGHT_LOG2E + EXP_ROUND; /* the sum's low bits are n */
    float n = shifted - EXP_ROUND;
    float r = clamped - n * WEIGHT_LN2_HIGH;
    r = r + n * WEIGHT_LN2_LOW;
    float p = WEIGHT_P7;
    p = p * r + WEIGHT_P6;
    p = p * r + WEIGHT_P5;
    p = p * r + WEIGHT_P4;
    p = p * r + WEIGHT_P3;
    p = p * r + WEIGHT_P2;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    float y = p * power;
    return x >= WEIGHT_LOW ? y : 0.0f;
}

float plain_weight(float x) {
    return weight_of(x);
}

static float block_maxima(float *maxima, const float *x, int n) {
    float lane[LANES], best = -INFINITY;
    for (int i = 0; i < LANES; i++) lane[i] = -INFINITY;
    int k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int i = 0; i < LANES; i++) lane[i] = x[k + i] > lane[i] ? x[k + i] : lane[i];
    for (int i = 0; k + i < n; i++) lane[i] = x[k + i] > lane[i] ? x[k + i] : lane[i];
    for (int i = 0; i < LANES; i++) best = lane[i] > best ? lane[i] : best;
    memcpy(maxima, lane, sizeof lane);
    return best;
}

static float maxima_of(float *maxima, const float *x, int n) {
    assert(n >= 0); /* 0: a mask allows no token */
    float best = -INFINITY;
    for (int k = 0; k < n; k += LOGIT_BLOCK, maxima += LANES) {
        float block_max = block_maxima(maxima, x + k, n - k < LOGIT_BLOCK ? n - k : LOGIT_BLOCK);
        best = block_max > best ? block_max : best;
    }
    return best;
}

static float mask_row(float *y, float *maxima, const float *x, const uint32_t *mask, int n) {
    for (int i = 0; i < n; i++) y[i] = mask[i / 32] >> i % 32 & 1 ? x[i] : -INFINITY;
    return maxima_of(maxima, y, n);
}

static int count_above(const float *x, int n, float bound) {
    int count = 0;
    for (int i = 0; i < n; i++) count += x[i] > bound;
    return count;
}

static bool reaches(const float *maxima, float bound) {
    bool any = false;
    for (int i = 0; i < LANES; i++) any |= maxima[i] >= bound;
    return any;
}

static int collect(float *value, int32_t *id, int max_found, const float *x, int n,
                   const float *maxima, float bound) {
    assert(n > 0 && max_found >= 0);
    int found = 0;
    for (int k = 0; k < n; k += LOGIT_BLOCK, maxima += LANES) {
        if (!reaches(maxima, bound)) continue;
        for (int i = k; i < n && i < k + LOGIT_BLOCK; i++) {
            if (!(x[i] >= bound)) continue;
            if (found == max_found) return found;
            value[found] = x[i];
            id[found++] = i;
        }
    }
    return found;
}

static uint64_t sum_of_shares(const float *weight, int n) {
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) sum += weight_share(weight[i]);
    return sum;
}

static uint64_t weights_of(float *weight, const float *x, int n, float max, float inverse) {
    for (int i = 0; i < n; i++) weight[i] = weight_of((x[i] - max) * inverse);
    return sum_of_shares(weight, n);
}

static void run_sums(uint64_t *sum, const float *weight) {
    for (int r = 0; r < LOGIT_RUNS; r++)
        sum[r] = sum_of_shares(weight + (size_t)r * LOGIT_BLOCK, LOGIT_BLOCK);
}

const struct logit_ops plain_logits = {maxima_of, mask_row,   count_above,
                                       collect,   weights_of, run_sums};
