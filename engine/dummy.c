/* Weights without a file's data: random, small and of the right form, so that speed and memory can
 * be measured with a model's shapes alone. Every type's scales are set to a small finite number;
 * the rest is random bytes. */
#include <string.h>

#include "engine/model.h"

static uint64_t next(uint64_t *state) {
    uint64_t x = *state += 0x9E3779B97F4A7C15u; /* SplitMix64 (Steele, Lea, Flood 2014) */
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Where a block's half-precision scales stand; -1: none. */
static void scale_offsets(enum dtype type, int *first, int *second) {
    bool pair =
        type == DTYPE_Q4_1 || type == DTYPE_Q5_1 || type == DTYPE_Q4_K || type == DTYPE_Q5_K;
    *first = type == DTYPE_Q6_K ? 208 : 0;
    *second = pair ? 2 : -1;
}

static void fill_floats(enum dtype type, void *data, size_t n, uint64_t *state) {
    for (size_t i = 0; i < n; i++) {
        float value = ((float)(next(state) >> 40) / (float)(1 << 24) - 0.5f) * 0.1f;
        uint16_t half = float_to_half(value);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint16_t brain = (uint16_t)(bits >> 16);
        if (type == DTYPE_F32)
            memcpy((char *)data + i * 4, &value, 4);
        else
            memcpy((char *)data + i * 2, type == DTYPE_F16 ? &half : &brain, 2);
    }
}

void dummy_fill(enum dtype type, void *data, size_t n, uint64_t seed) {
    uint64_t state = seed;
    if (type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16) {
        fill_floats(type, data, n, &state);
        return;
    }
    size_t bytes = dtype_bytes(type, n), block = (size_t)dtype_block_bytes(type);
    uint8_t *out = data;
    for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(next(&state) >> 56);
    int first, second;
    scale_offsets(type, &first, &second);
    uint16_t scale = float_to_half(0.002f);
    for (size_t at = 0; at < bytes; at += block) {
        memcpy(out + at + first, &scale, sizeof scale);
        if (second >= 0) memcpy(out + at + second, &scale, sizeof scale);
    }
}
