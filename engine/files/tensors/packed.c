/* Unpacks rows of matrices that quantised folders store as several tensors (weights.h documents the
 * layouts): into blocks of INT4 or INT8 with the same codes and scales, or into floats. */
#include "engine/files/tensors/weights.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/backend.h"

/* Returns word i. Tensors may be unaligned in the file. */
static uint32_t word_at(const void *words, size_t i) {
    uint32_t word;
    memcpy(&word, (const uint8_t *)words + 4 * i, sizeof word);
    return word;
}

/* Returns the shift of output n in its word in AWQ's order. */
static int awq_shift(int n) {
    static const uint8_t place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return 4 * place[n % 8];
}

int32_t packed_group(const struct packed *p, int k) {
    return p->groups ? (int32_t)word_at(p->groups, (size_t)k) : k / p->group;
}

int packed_zero(const struct packed *p, int n, int g) {
    int per = 32 / p->bits, mask = (1 << p->bits) - 1;
    size_t N = (size_t)p->N, row = (size_t)n, group = (size_t)g;
    if (!p->zeros) return 1 << (p->bits - 1);
    if (p->layout == PACKED_AWQ)
        return (int)(word_at(p->zeros, group * (N / 8) + row / 8) >> awq_shift(n)) & mask;
    size_t i = p->layout == PACKED_WORDS ? row / (size_t)per * (size_t)p->n_groups + group
                                         : group * (N / (size_t)per) + row / (size_t)per;
    return ((int)(word_at(p->zeros, i) >> n % per * p->bits) & mask) + p->zero_add;
}

/* Do all 32 inputs of each block share a group? */
static bool has_whole_blocks(const struct packed *p) {
    for (int k = 0; k < p->K; k++)
        if (packed_group(p, k) != packed_group(p, k - k % 32)) return false;
    return p->K % 32 == 0;
}

enum dtype packed_type(const struct packed *p) {
    if (p->layout == PACKED_E4M3 || p->layout == PACKED_TABLE || !has_whole_blocks(p))
        return DTYPE_F32;
    if (p->bits == 4) return p->scale_type == DTYPE_F16 ? DTYPE_INT4H : DTYPE_INT4;
    for (int g = 0; g < p->n_groups && p->zeros; g++)
        for (int n = 0; n < p->N; n++)
            if (packed_zero(p, n, g) != 128) return DTYPE_F32;
    return DTYPE_INT8;
}

static float e4m3_value(uint8_t bits) { /* a half with fewer exponent bits */
    if ((bits & 127) == 127) return half_to_float(0x7e00);
    return half_to_float((uint16_t)((bits & 128) << 8 | (bits & 127) << 7)) * 0x1p8f;
}

static float float_at(const void *floats, size_t i) {
    float value;
    memcpy(&value, (const char *)floats + i * sizeof value, sizeof value);
    return value;
}

float packed_scale(const struct packed *p, size_t i) {
    const uint8_t *bytes = p->scales;
    float scale;
    if (p->scale_map)
        return float_at(p->scale_map, bytes[i]) *
                   float_at(p->scale_scale, i / (size_t)p->scale_block) +
               p->scale_offset;
    if (p->scale_type == DTYPE_E4M3) return e4m3_value(bytes[i]);
    if ((int)p->scale_type == WEIGHT_RAW_E8M0)
        return bytes[i] == 255 ? NAN : ldexpf(1, bytes[i] - 127);
    dequantise(p->scale_type, bytes + dtype_bytes(p->scale_type, i), &scale, 1);
    return scale;
}

static float scale_of(const struct packed *p, int n, int g) {
    size_t i = (size_t)(n / p->scale_rows) * p->row_stride + (size_t)g * p->group_stride;
    float scale = packed_scale(p, i);
    if (p->times != 0) scale *= p->times;
    return p->over != 0 ? scale / p->over : scale;
}

/* Returns the code of input k as an unsigned number. */
static uint8_t code_at(const struct packed *p, int n, int k) {
    size_t per = 32 / (size_t)p->bits, N = (size_t)p->N, K = (size_t)p->K;
    size_t row = (size_t)n, column = (size_t)k, shift = column % per * (size_t)p->bits;
    uint32_t mask = (1u << p->bits) - 1;
    const uint8_t *bytes = p->codes;
    switch (p->layout) {
    case PACKED_GPTQ:
        return (uint8_t)(word_at(p->codes, column / per * N + row) >> shift & mask);
    case PACKED_AWQ:
        return word_at(p->codes, column * (N / 8) + row / 8) >> awq_shift(n) & 15;
    case PACKED_WORDS:
        return (uint8_t)(word_at(p->codes, row * ((K + per - 1) / per) + column / per) >> shift &
                         mask);
    case PACKED_BYTES:
        return bytes[row * K + column] ^ 0x80;
    case PACKED_TABLE:
        return bytes[row * (K / 2) + column / 2] >> (k % 2 != p->high_first) * 4 & 15;
    case PACKED_E4M3:
    case PACKED_MXFP4:
        break;
    }
    return bytes[row * K + column];
}

static void float_row(const struct packed *p, int n, float *out) {
    int last = -1, zero = 0;
    float scale = 0;
    for (int k = 0; k < p->K; k++) {
        int g = packed_group(p, k);
        if (g != last) scale = scale_of(p, n, g), zero = packed_zero(p, n, g), last = g;
        uint8_t code = code_at(p, n, k);
        out[k] = (p->layout == PACKED_E4M3    ? e4m3_value(code)
                  : p->layout == PACKED_TABLE ? float_at(p->table, code)
                                              : (float)(code - zero)) *
                 scale;
    }
}

/* Writes a row as blocks of INT4, INT4H or INT8. */
static void block_row(const struct packed *p, enum dtype type, int n, uint8_t *out) {
    enum { BLOCK = 32 };
    for (int k = 0; k < p->K; k += BLOCK, out += dtype_block_bytes((int)type)) {
        int g = packed_group(p, k);
        float scale = scale_of(p, n, g);
        uint8_t *after = out + sizeof scale;
        memcpy(out, &scale, sizeof scale);
        if (type == DTYPE_INT4H) {
            assert(p->times == 0 && p->over == 0);
            uint16_t half = float_to_half(scale); /* exact: the file's scale is a half */
            after = out + sizeof half;
            memcpy(out, &half, sizeof half);
        }
        if (type == DTYPE_INT8) {
            for (int i = 0; i < BLOCK; i++) after[i] = code_at(p, n, k + i) ^ 0x80;
            continue;
        }
        after[0] = (uint8_t)packed_zero(p, n, g);
        for (int i = 0; i < BLOCK / 2; i++)
            after[1 + i] = (uint8_t)(code_at(p, n, k + i) | code_at(p, n, k + i + BLOCK / 2) << 4);
    }
}

/* Writes a row as blocks in GGUF's layout: the scale, then bytes of inputs i and i + 16. */
static void mxfp4_row(const struct packed *p, int n, uint8_t *out) {
    size_t blocks = (size_t)p->K / 32, first = (size_t)n * blocks;
    const uint8_t *codes = (const uint8_t *)p->codes + 16 * first;
    const uint8_t *scales = (const uint8_t *)p->scales + first;
    for (size_t b = 0; b < blocks; b++, codes += 16, out += 17) {
        out[0] = scales[b];
        for (int i = 0; i < 16; i++) {
            int low = codes[i / 2] >> i % 2 * 4 & 15, high = codes[8 + i / 2] >> i % 2 * 4 & 15;
            out[1 + i] = (uint8_t)(low | high << 4);
        }
    }
}

/* In most layouts, words of adjacent rows are adjacent. So a thread unpacks as many rows at a time
 * as a cache line has words. */
enum { ROWS_AT_ONCE = 16 };

struct unpacking {
    const struct weight *weight;
    uint8_t *out;
};

static void unpack_some(void *arg, int i) {
    const struct unpacking *job = arg;
    const struct packed *p = job->weight->packed;
    size_t row_bytes = dtype_bytes(job->weight->type, (size_t)p->K);
    for (int n = i * ROWS_AT_ONCE; n < (i + 1) * ROWS_AT_ONCE && n < p->N; n++) {
        uint8_t *row = job->out + (size_t)n * row_bytes;
        if (p->layout == PACKED_MXFP4)
            mxfp4_row(p, n, row);
        else if (job->weight->type == DTYPE_F32)
            float_row(p, n, (float *)(void *)row);
        else
            block_row(p, job->weight->type, n, row);
    }
}

void *packed_rows(struct backend *b, const struct weight *weight) {
    struct unpacking job = {weight, mem_large(weight->bytes)};
    assert(weight->packed && weight->dim[0] == weight->packed->K);
    b->device->parallel(b, unpack_some, &job,
                        (weight->packed->N + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE);
    return job.out;
}
