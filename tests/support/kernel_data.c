#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/kernel_data.h"

const enum dtype all_types[N_TYPES] = {
#define ENTRY(TYPE, ...) DTYPE_##TYPE,
    WEIGHT_TYPES(ENTRY)
#undef ENTRY
};

uint32_t random_u32(uint64_t *state) { /* xorshift64*, Vigna 2016 */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (uint32_t)(*state * 0x2545f4914f6cdd1dull >> 32);
}

int random_below(uint64_t *state, int n) {
    return (int)(random_u32(state) % (uint32_t)n);
}

float random_float(uint64_t *state) {
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)(int32_t)random_u32(state) * 0x1p-31f;
    return random_below(state, 500) ? sum : sum * 20.0f;
}

float *random_floats(uint64_t *state, size_t n) {
    float *floats = mem_alloc(n * sizeof *floats);
    for (size_t i = 0; i < n; i++) floats[i] = random_float(state);
    return floats;
}

static void put_half(uint8_t *p, float value) {
    uint16_t half = float_to_half(value);
    memcpy(p, &half, sizeof half);
}

/* Gives scales of ordinary size to a block of random bytes. */
static void put_scales(uint64_t *state, uint8_t *block, enum dtype type) {
    float scale = 0.01f + 0.02f * fabsf(random_float(state)), min = -0.1f * random_float(state);
    if (random_below(state, 8) == 0) scale = -scale;
    if (random_below(state, 40) == 0) scale = 0;
    switch (type) {
    case DTYPE_Q6_K:
        put_half(block + 208, scale / 64);
        break;
    case DTYPE_Q2_K:
        put_half(block + 80, scale / 4), put_half(block + 82, min / 8);
        break;
    case DTYPE_Q3_K:
        put_half(block + 108, scale / 16);
        break;
    case DTYPE_IQ4_XS:
        put_half(block, scale / 256);
        break;
    case DTYPE_TQ1_0:
        put_half(block + 52, scale);
        break;
    case DTYPE_TQ2_0:
        put_half(block + 64, scale);
        break;
    case DTYPE_INT4: /* with a zero point of 0 to 16 */
        memcpy(block, &scale, sizeof scale);
        block[4] = (uint8_t)random_below(state, 17);
        break;
    case DTYPE_INT4H:
        put_half(block, scale);
        block[2] = (uint8_t)random_below(state, 17);
        break;
    case DTYPE_INT8:
        scale /= 8;
        memcpy(block, &scale, sizeof scale);
        break;
    case DTYPE_MXFP4: /* powers of two of ordinary size, and sometimes zero */
        *block = (uint8_t)(scale == 0 ? 0 : 119 + random_below(state, 6));
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        put_half(block, scale / 16), put_half(block + 2, min / 32);
        break;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        put_half(block, scale), put_half(block + 2, min);
        break;
    default:
        put_half(block, scale);
    }
}

static void put_float(uint64_t *state, uint8_t *p, enum dtype type) {
    float value = 0.1f * random_float(state);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t top = (uint16_t)(bits >> 16), half = float_to_half(value);
    if (type == DTYPE_F32)
        memcpy(p, &value, 4);
    else
        memcpy(p, type == DTYPE_BF16 ? &top : &half, 2);
}

/* Writes scales, or floats, into blocks of random bytes. */
static void put_all(uint64_t *state, enum dtype type, uint8_t *weights, size_t bytes) {
    size_t step = (size_t)dtype_block_bytes((int)type);
    for (size_t i = 0; i < bytes; i += step) {
        if (dtype_block_elements((int)type) == 1)
            put_float(state, weights + i, type);
        else
            put_scales(state, weights + i, type);
    }
}

void *random_weights(uint64_t *state, enum dtype type, size_t n) {
    size_t bytes = dtype_bytes(type, n);
    uint8_t *weights = mem_alloc(bytes);
    for (size_t i = 0; i < bytes; i++) weights[i] = (uint8_t)random_u32(state);
    put_all(state, type, weights, bytes);
    return weights;
}

void *filled_weights(uint64_t *state, enum dtype type, size_t n, uint8_t byte) {
    size_t bytes = dtype_bytes(type, n);
    uint8_t *weights = mem_alloc(bytes);
    memset(weights, byte, bytes);
    put_all(state, type, weights, bytes);
    return weights;
}

struct backend *open_backend(const char *path, int threads, int max_rows, int max_k) {
    struct backend_config config = {threads, path, max_rows, max_k};
    struct backend *b = NULL;
    struct err err = {0};
    enum status status = backend_cpu_open(&b, &config, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    return b;
}

void assert_same_floats(const float *a, const float *b, size_t n, const char *what) {
    if (memcmp(a, b, n * sizeof *a) == 0) return;
    size_t i = 0;
    while (memcmp(a + i, b + i, sizeof *a) == 0) i++;
    ck_abort_msg("%s: number %zu of %zu is %a, not %a", what, i, n, (double)a[i], (double)b[i]);
}
