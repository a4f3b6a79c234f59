/* The plain path's attention over one chunk of a context: scalar C in the order that order.md
 * writes down. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

static float element(const uint8_t *from, size_t i, size_t bytes) {
    if (bytes == 2) {
        uint16_t half;
        memcpy(&half, from + 2 * i, sizeof half);
        return half_to_float(half);
    }
    float value;
    memcpy(&value, from + 4 * i, sizeof value);
    return value;
}

/* Number d of the key at a position. */
static float key(const struct attend *a, int position, int d) {
    const struct kv_config *c = &a->cache->config;
    const uint8_t *keys =
        kv_head_keys(a->cache, a->layer, a->table[position / c->block_size], a->head);
    return element(keys, (size_t)d * c->block_size + position % c->block_size,
                   a->cache->element_bytes);
}

static float value(const struct attend *a, int position, int d) {
    const struct kv_config *c = &a->cache->config;
    const uint8_t *values =
        kv_head_values(a->cache, a->layer, a->table[position / c->block_size], a->head);
    return element(values, (size_t)(position % c->block_size) * a->cache->D_padded + d,
                   a->cache->element_bytes);
}

/* ---- codes ---------------------------------------------------------------------------------- */

static int code_at(const uint8_t *codes, size_t i, size_t bytes) {
    if (bytes == 1) return (int8_t)codes[i];
    int16_t code;
    memcpy(&code, codes + 2 * i, sizeof code);
    return code;
}

static float scale_at(const uint8_t *scales, size_t i) {
    float scale;
    memcpy(&scale, scales + sizeof scale * i, sizeof scale);
    return scale;
}

static int key_code(const struct attend *a, int position, int d) {
    int B = a->cache->config.block_size;
    const uint8_t *keys = kv_head_keys(a->cache, a->layer, a->table[position / B], a->head);
    return code_at(keys, ((size_t)(d / 2) * B + position % B) * 2 + d % 2, a->cache->element_bytes);
}

static float key_scale(const struct attend *a, int position, int i) {
    int B = a->cache->config.block_size;
    const uint8_t *keys = kv_head_keys(a->cache, a->layer, a->table[position / B], a->head);
    return scale_at(keys + a->cache->head_key_codes, (size_t)i * B + position % B);
}

static int value_code(const struct attend *a, int position, int d) {
    int B = a->cache->config.block_size, offset = position % B;
    const uint8_t *values = kv_head_values(a->cache, a->layer, a->table[position / B], a->head);
    return code_at(values, ((size_t)(offset / 2) * a->cache->D_padded + d) * 2 + offset % 2,
                   a->cache->element_bytes);
}

static float value_scale(const struct attend *a, int position, int i) {
    int B = a->cache->config.block_size;
    const uint8_t *values = kv_head_values(a->cache, a->layer, a->table[position / B], a->head);
    return scale_at(values + a->cache->head_value_codes, (size_t)i * B + position % B);
}

void plain_to_codes(int16_t *codes, float *scales, const float *x, int n, int most) {
    for (int d = 0; d < n; d += SCALED) {
        int end = d + SCALED < n ? d + SCALED : n;
        float largest = 0;
        for (int i = d; i < end; i++) /* a NaN stays */
            if (!isnan(largest) && !(fabsf(x[i]) <= largest)) largest = fabsf(x[i]);
        bool usual = largest >= TINY && largest <= FLT_MAX;
        scales[d / SCALED] = usual ? largest / (float)most : largest < TINY ? 0.0f : largest;
        float inverse = usual ? (float)most / largest : 0.0f;
        for (int i = d; i < end; i++)
            codes[i] = usual ? (int16_t)nearbyintf(x[i] * inverse) : (int16_t)0;
    }
}

static float coded_score(const struct attend *a, const int16_t *q, const float *scales, int j) {
    float dot = 0;
    for (int i = 0; i < a->cache->n_scales; i++) {
        int end = (i + 1) * SCALED < a->cache->config.D ? (i + 1) * SCALED : a->cache->config.D;
        int sum = 0;
        for (int d = i * SCALED; d < end; d++) sum += q[d] * key_code(a, a->start + j, d);
        dot = fmaf((float)sum, scales[i] * a->scale * key_scale(a, a->start + j, i), dot);
    }
    return dot;
}

static float coded_scores(const struct attend *a, const float *q, int count, float *s) {
    float most = -INFINITY;
    plain_to_codes(a->codes, a->scales, q, a->cache->config.D, USED_CODES);
    for (int j = 0; j < count; j++) {
        s[j] = coded_score(a, a->codes, a->scales, j);
        most = s[j] > most ? s[j] : most;
    }
    return most;
}

/* Adds the positions from..end-1, at most SCALED, to numbers of the head that share scale i. */
static void add_coded_values(const struct attend *a, const float *weights, int from, int end, int i,
                             float *sum) {
    float w[SCALED], scale;
    int16_t codes[SCALED];
    int last = (i + 1) * SCALED < a->cache->config.D ? (i + 1) * SCALED : a->cache->config.D;
    for (int j = from; j < end; j++) w[j - from] = weights[j] * value_scale(a, a->start + j, i);
    plain_to_codes(codes, &scale, w, end - from, USED_CODES);
    for (int d = i * SCALED; d < last; d++) {
        int dot = 0;
        for (int j = from; j < end; j++) dot += codes[j - from] * value_code(a, a->start + j, d);
        sum[d] = fmaf((float)dot, scale, sum[d]);
    }
}

static void coded_values(const struct attend *a, const float *weights, int count, float *sum) {
    int D = a->cache->config.D;
    for (int d = 0; d < D; d++) sum[d] = 0;
    for (int from = 0; from < count; from += SCALED)
        for (int i = 0; i < a->cache->n_scales; i++)
            add_coded_values(a, weights, from, from + SCALED < count ? from + SCALED : count, i,
                             sum);
    for (int d = 0; d < D; d++) sum[d] = sum[d] + 0.0f;
}

/* ---- softmax and values --------------------------------------------------------------------- */

/* s[j] = scale * q . key; returns the largest. */
static float score(const struct attend *a, const float *q, int count, float *s) {
    float most = -INFINITY;
    for (int j = 0; j < count; j++) {
        float sum = 0;
        for (int d = 0; d < a->cache->config.D; d++) sum = fmaf(q[d], key(a, a->start + j, d), sum);
        s[j] = sum * a->scale;
        most = s[j] > most ? s[j] : most;
    }
    return most;
}

/* s[j] = exp(s[j] - most); returns their sum, position j in partial sum j % 16. */
static float exponentials(float *s, int count, float most) {
    float partial[LANES] = {0};
    for (int j = 0; j < count; j++) {
        s[j] = plain_exp(s[j] - most);
        partial[j % LANES] = partial[j % LANES] + s[j];
    }
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) partial[i] = partial[i] + partial[i + width];
    return partial[0];
}

void plain_attend(const struct attend *a) {
    for (int i = 0; i < a->n; i++) {
        float *s = a->scores, *part = a->part[i];
        if (a->count[i] == 0) continue;
        part[PART_MAX] = (a->cache->coded ? coded_scores : score)(a, a->q[i], a->count[i], s);
        part[PART_SUM] = exponentials(s, a->count[i], part[PART_MAX]);
        if (a->cache->coded) {
            coded_values(a, s, a->count[i], part + PART_VALUES);
            continue;
        }
        for (int d = 0; d < a->cache->config.D; d++) {
            float sum = 0;
            for (int j = 0; j < a->count[i]; j++) sum = fmaf(s[j], value(a, a->start + j, d), sum);
            part[PART_VALUES + d] = sum;
        }
    }
}

void plain_merge(float *into, const float *part, int n) {
    float most = part[PART_MAX] > into[PART_MAX] ? part[PART_MAX] : into[PART_MAX];
    float old = plain_exp(into[PART_MAX] - most), new = plain_exp(part[PART_MAX] - most);
    into[PART_MAX] = most;
    into[PART_SUM] = fmaf(part[PART_SUM], new, into[PART_SUM] * old);
    for (int i = 0; i < n; i++) {
        float *sum = into + PART_VALUES + i;
        *sum = fmaf(part[PART_VALUES + i], new, *sum * old);
    }
}

void plain_finish(float *y, const float *part, int n) {
    for (int i = 0; i < n; i++) y[i] = part[PART_VALUES + i] / part[PART_SUM];
}
