/* The plain path's attention over one chunk of a context: scalar C in the order of order.md. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
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

/* Number d of a position's key. */
static float key(const struct attend *a, int position, int d) {
    const struct kv_kind *c = a->kv;
    const uint8_t *keys = kv_head_keys(a->kv, a->place, a->table[position / c->B], a->head);
    return element(keys, (size_t)d * c->B + position % c->B, c->element_bytes);
}

static float value(const struct attend *a, int position, int d) {
    const struct kv_kind *c = a->kv;
    if (c->shares) return key(a, position, d);
    const uint8_t *values = kv_head_values(a->kv, a->place, a->table[position / c->B], a->head);
    return element(values, (size_t)(position % c->B) * c->D_value_padded + d, c->element_bytes);
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
    int B = a->kv->B, offset = position % B;
    const uint8_t *keys = kv_head_keys(a->kv, a->place, a->table[position / B], a->head);
    return code_at(keys, ((size_t)(d / 2) * B + offset) * 2 + d % 2, a->kv->element_bytes);
}

static float key_scale(const struct attend *a, int position, int i) {
    int B = a->kv->B;
    const uint8_t *keys = kv_head_keys(a->kv, a->place, a->table[position / B], a->head);
    return scale_at(keys + a->kv->head_key_codes, (size_t)i * B + position % B);
}

static int value_code(const struct attend *a, int position, int d) {
    int B = a->kv->B, offset = position % B;
    if (a->kv->shares) return key_code(a, position, d);
    const uint8_t *values = kv_head_values(a->kv, a->place, a->table[position / B], a->head);
    return code_at(values, ((size_t)(offset / 2) * a->kv->D_value_padded + d) * 2 + offset % 2,
                   a->kv->element_bytes);
}

static float value_scale(const struct attend *a, int position, int i) {
    int B = a->kv->B;
    if (a->kv->shares) return key_scale(a, position, i);
    const uint8_t *values = kv_head_values(a->kv, a->place, a->table[position / B], a->head);
    return scale_at(values + a->kv->head_value_codes, (size_t)i * B + position % B);
}

void plain_to_codes(int16_t *codes, float *scales, const float *x, int n, int max_code) {
    assert(n > 0 && max_code > 0);
    for (int d = 0; d < n; d += SCALED) {
        int end = d + SCALED < n ? d + SCALED : n;
        float largest = 0;
        for (int i = d; i < end; i++) /* a NaN stays */
            if (!isnan(largest) && !(fabsf(x[i]) <= largest)) largest = fabsf(x[i]);
        bool usual = largest >= TINY && largest <= FLT_MAX;
        scales[d / SCALED] = usual ? largest / (float)max_code : largest < TINY ? 0.0f : largest;
        float inverse = usual ? (float)max_code / largest : 0.0f;
        for (int i = d; i < end; i++)
            codes[i] = usual ? (int16_t)nearbyintf(x[i] * inverse) : (int16_t)0;
    }
}

/* scale * q . key of position j of the chunk, with codes. */
static float coded_score(const struct attend *a, const int16_t *q, const float *scales, int j) {
    int position = a->start + j, D = a->kv->D;
    float dot = 0;
    for (int i = 0; i < a->kv->n_scales; i++) {
        int end = (i + 1) * SCALED < D ? (i + 1) * SCALED : D, sum = 0;
        for (int d = i * SCALED; d < end; d++) sum += q[d] * key_code(a, position, d);
        dot = fmaf((float)sum, scales[i] * a->scale * key_scale(a, position, i), dot);
    }
    return dot;
}

static void coded_scores(const struct attend *a, int i, float *s) {
    plain_to_codes(a->codes, a->scales, a->q[i], a->kv->D, USED_CODES);
    for (int j = a->begin[i]; j < a->end[i]; j++) s[j] = coded_score(a, a->codes, a->scales, j);
}

/* Adds positions from..end-1, at most SCALED of them, to the numbers of the head that share scale
 * i. */
static void add_coded_values(const struct attend *a, const float *weights, int from, int end, int i,
                             float *sum) {
    float w[SCALED], scale;
    int16_t codes[SCALED];
    int D = a->kv->D_value, last = (i + 1) * SCALED < D ? (i + 1) * SCALED : D;
    for (int j = from; j < end; j++) w[j - from] = weights[j] * value_scale(a, a->start + j, i);
    plain_to_codes(codes, &scale, w, end - from, USED_CODES);
    for (int d = i * SCALED; d < last; d++) {
        int dot = 0;
        for (int j = from; j < end; j++) dot += codes[j - from] * value_code(a, a->start + j, d);
        sum[d] = fmaf((float)dot, scale, sum[d]);
    }
}

static void coded_values(const struct attend *a, int i, const float *weights, float *sum) {
    int D = a->kv->D_value;
    for (int d = 0; d < D; d++) sum[d] = 0;
    for (int from = a->begin[i], end; from < a->end[i]; from = end) {
        /* end of the run of positions that are coded together */
        end = (from / SCALED + 1) * SCALED;
        if (end > a->end[i]) end = a->end[i];
        for (int scale = 0; scale < a->kv->n_value_scales; scale++)
            add_coded_values(a, weights, from, end, scale, sum);
    }
    for (int d = 0; d < D; d++) sum[d] = sum[d] + 0.0f;
}

/* ---- softmax and values --------------------------------------------------------------------- */

/* s[j] = scale * q . key. */
static void scores(const struct attend *a, int i, float *s) {
    for (int j = a->begin[i]; j < a->end[i]; j++) {
        float sum = 0;
        for (int d = 0; d < a->kv->D; d++) sum = fmaf(a->q[i][d], key(a, a->start + j, d), sum);
        s[j] = sum * a->scale;
    }
}

/* s[j] = exp(s[j] - max), after slope and cap. Position j is added to partial sum j % 16. */
static void exponentials(const struct attend *a, int i, float *s, float *part) {
    float max = -INFINITY, partial[LANES] = {0};
    for (int j = a->begin[i]; j < a->end[i]; j++) {
        int apart = abs(a->start + j - a->position[i]);
        if (a->slope[i] != 0) s[j] = s[j] - a->slope[i] * (float)apart;
        if (a->cap != 0) s[j] = a->cap * plain_tanh(s[j] / a->cap);
        max = s[j] > max ? s[j] : max;
    }
    for (int j = a->begin[i]; j < a->end[i]; j++) {
        s[j] = plain_exp(s[j] - max);
        partial[j % LANES] = partial[j % LANES] + s[j];
    }
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int k = 0; k < width; k++) partial[k] = partial[k] + partial[k + width];
    part[PART_MAX] = max;
    part[PART_SUM] = partial[0];
}

static void values(const struct attend *a, int i, const float *weights, float *sum) {
    for (int d = 0; d < a->kv->D_value; d++) {
        sum[d] = 0;
        for (int j = a->begin[i]; j < a->end[i]; j++)
            sum[d] = fmaf(weights[j], value(a, a->start + j, d), sum[d]);
    }
}

/* A query that sees nothing of the chunk gets a part of sum 0, which is not merged. */
void plain_attend(const struct attend *a) {
    assert(a->n >= 0 && a->n <= QUERIES && a->start % CHUNK == 0);
    for (int i = 0; i < a->n; i++) {
        float *s = a->scores, *part = a->part[i];
        (a->kv->coded ? coded_scores : scores)(a, i, s);
        exponentials(a, i, s, part);
        (a->kv->coded ? coded_values : values)(a, i, s, part + PART_VALUES);
    }
}

void plain_merge(float *into, const float *part, int n) {
    assert(n > 0);
    float max = part[PART_MAX] > into[PART_MAX] ? part[PART_MAX] : into[PART_MAX];
    float old = plain_exp(into[PART_MAX] - max), new = plain_exp(part[PART_MAX] - max);
    into[PART_MAX] = max;
    into[PART_SUM] = fmaf(part[PART_SUM], new, into[PART_SUM] * old);
    for (int i = 0; i < n; i++) {
        float *sum = into + PART_VALUES + i;
        *sum = fmaf(part[PART_VALUES + i], new, *sum * old);
    }
}

void plain_finish(float *y, const float *part, int n) {
    for (int i = 0; i < n; i++) y[i] = part[PART_VALUES + i] / part[PART_SUM];
}
