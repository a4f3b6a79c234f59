/* The plain path's writing of keys and values to the cache, one number after the other. */
#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Writes number i of a row of floats. */
static void put_float(uint8_t *to, size_t i, float x, bool halves) {
    uint16_t half = halves ? float_to_half(x) : 0;
    if (halves)
        memcpy(to + 2 * i, &half, sizeof half);
    else
        memcpy(to + 4 * i, &x, sizeof x);
}

/* Writes row r. A key is spread over its block, one number per line of B positions. A value is
 * contiguous. */
static void write_floats(const struct kv_rows *rows, size_t r) {
    const struct kv_kind *kv = rows->kv;
    const float *k = rows->k + r * rows->stride;
    size_t at = (size_t)rows->offset + r, D = (size_t)kv->D;
    bool halves = kv->element_bytes == 2;
    for (size_t d = 0; d < D; d++) put_float(rows->keys, d * (size_t)kv->B + at, k[d], halves);
    if (!rows->values) return;
    const float *v = rows->v + r * rows->stride;
    for (size_t d = 0; d < D; d++)
        put_float(rows->values, at * (size_t)kv->D_value_padded + d, v[d], halves);
}

/* Writes one code of one or two bytes. */
static void put_code(uint8_t *codes, size_t i, int16_t code, bool bytes) {
    if (bytes)
        codes[i] = (uint8_t)(int8_t)code;
    else
        memcpy(codes + 2 * i, &code, 2);
}

/* Converts up to SCALED numbers, and writes their scale to place `at` of a line of scales. */
static void make_codes(const struct kv_kind *kv, int16_t *codes, uint8_t *scales, size_t at,
                       const float *x, size_t n) {
    float scale;
    plain_to_codes(codes, &scale, x, (int)n, kv->element_bytes == 1 ? INT8_MAX : KEPT_CODES);
    memcpy(scales + at * sizeof scale, &scale, sizeof scale);
}

/* Writes row r. Number d of a key is half d % 2 of line d / 2. Position p of a value is half p % 2
 * of row p / 2. The padding after D stays zero, as it is at allocation. */
static void write_codes(const struct kv_rows *rows, size_t r) {
    const struct kv_kind *kv = rows->kv;
    size_t B = (size_t)kv->B, D = (size_t)kv->D, at = (size_t)rows->offset + r;
    size_t value_row = at / 2 * 2 * (size_t)kv->D_value_padded + at % 2;
    bool bytes = kv->element_bytes == 1;
    int16_t codes[SCALED];
    for (size_t d = 0; d < D; d += SCALED) {
        size_t n = D - d < SCALED ? D - d : SCALED, line = d / SCALED * B + at;
        make_codes(kv, codes, rows->keys + kv->head_key_codes, line, rows->k + r * rows->stride + d,
                   n);
        for (size_t i = 0; i < n; i++)
            put_code(rows->keys, ((d + i) / 2 * B + at) * 2 + i % 2, codes[i], bytes);
        if (!rows->values) continue;
        make_codes(kv, codes, rows->values + kv->head_value_codes, line,
                   rows->v + r * rows->stride + d, n);
        for (size_t i = 0; i < n; i++)
            put_code(rows->values, value_row + 2 * (d + i), codes[i], bytes);
    }
}

void plain_write_kv(const struct kv_rows *rows) {
    assert(rows->n > 0 && rows->n <= MAX_KV_ROWS && rows->offset + rows->n <= rows->kv->B);
    assert(!rows->values == rows->kv->shares);
    for (size_t r = 0; r < (size_t)rows->n; r++)
        (rows->kv->coded ? write_codes : write_floats)(rows, r);
}
