/* The plain path's attention over one chunk of a context: scalar C in the order that order.md
 * writes down. */
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
    const uint8_t *keys = kv_keys(a->cache, a->layer, a->table[position / c->block_size]);
    size_t i = ((size_t)a->head * c->D + d) * c->block_size + position % c->block_size;
    return element(keys, i, a->cache->element_bytes);
}

static float value(const struct attend *a, int position, int d) {
    const struct kv_config *c = &a->cache->config;
    const uint8_t *values = kv_values(a->cache, a->layer, a->table[position / c->block_size]);
    size_t i =
        ((size_t)a->head * c->block_size + position % c->block_size) * a->cache->D_padded + d;
    return element(values, i, a->cache->element_bytes);
}

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
        part[PART_MAX] = score(a, a->q[i], a->count[i], s);
        part[PART_SUM] = exponentials(s, a->count[i], part[PART_MAX]);
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
