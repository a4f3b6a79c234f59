/* Reading GGUF's blocks. Every format is taken apart here and nowhere else: a `struct block` is 32
 * weights as codes, a scale and a minimum, whatever the file's layout was. Layouts follow the GGUF
 * specification; halves are little-endian, as the machines that this runs on are. */
#include <string.h>

#include "kernels/cpu/cpu.h"

static uint16_t read_u16(const uint8_t *p) {
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* 16 bytes: low nibbles are weights 0-15, high nibbles 16-31. */
static void read_nibbles(uint8_t *code, const uint8_t *p) {
    for (int i = 0; i < 16; i++) {
        code[i] = p[i] & 15;
        code[i + 16] = p[i] >> 4;
    }
}

/* 32 bits: bit i is the fifth bit of weight i. */
static void add_fifth_bits(uint8_t *code, const uint8_t *p) {
    for (int i = 0; i < BLOCK; i++) code[i] |= (p[i / 8] >> i % 8 & 1) << 4;
}

/* Each reads block i of 8 where a type has so many, else the one that stands at p. */

static void read_q4_0(struct block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct block){.d = read_u16(p), .scale = {1, 1}, .zero = 8};
    read_nibbles(block->code, p + 2);
}

static void read_q4_1(struct block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct block){.d = read_u16(p), .m = read_u16(p + 2), .scale = {1, 1}, .min = 1};
    read_nibbles(block->code, p + 4);
}

static void read_q5_0(struct block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct block){.d = read_u16(p), .scale = {1, 1}, .zero = 16};
    read_nibbles(block->code, p + 6);
    add_fifth_bits(block->code, p + 2);
}

static void read_q5_1(struct block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct block){.d = read_u16(p), .m = read_u16(p + 2), .scale = {1, 1}, .min = 1};
    read_nibbles(block->code, p + 8);
    add_fifth_bits(block->code, p + 4);
}

static void read_q8_0(struct block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct block){.d = read_u16(p), .scale = {1, 1}, .zero = 128};
    for (int k = 0; k < BLOCK; k++) block->code[k] = p[2 + k] ^ 0x80;
}

/* 12 bytes hold 8 scales and 8 minima of 6 bits: those of the first four blocks are the low 6 bits
 * of bytes 0-3 and 4-7; those of the last four have their low 4 bits in bytes 8-11 and their high
 * 2 in the tops of 0-3, 4-7. */
void block_k_scales(const uint8_t *p, int i, uint8_t *scale, uint8_t *min) {
    *scale = (uint8_t)(i < 4 ? p[i] & 63 : (p[i + 4] & 15) | p[i - 4] >> 6 << 4);
    *min = (uint8_t)(i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | p[i] >> 6 << 4);
}

static void read_k_scales(struct block *block, const uint8_t *p, int i) {
    uint8_t scale, min;
    block_k_scales(p, i, &scale, &min);
    block->scale[0] = block->scale[1] = scale;
    block->min = -min;
}

/* 32 bytes of nibbles serve two blocks: the even one has the low nibbles, the odd one the high
 * ones. */
static void read_k_nibbles(struct block *block, const uint8_t *p, int i) {
    for (int j = 0; j < BLOCK; j++) block->code[j] = p[i / 2 * 32 + j] >> i % 2 * 4 & 15;
}

static void read_q4_k(struct block *block, const uint8_t *p, int i) {
    *block = (struct block){.d = read_u16(p), .m = read_u16(p + 2)};
    read_k_scales(block, p + 4, i);
    read_k_nibbles(block, p + 16, i);
}

static void read_q5_k(struct block *block, const uint8_t *p, int i) {
    *block = (struct block){.d = read_u16(p), .m = read_u16(p + 2)};
    read_k_scales(block, p + 4, i);
    read_k_nibbles(block, p + 48, i);
    for (int j = 0; j < BLOCK; j++) block->code[j] |= (p[16 + j] >> i & 1) << 4;
}

/* 128 bytes of nibbles, 64 bytes of high pairs, 16 signed scales, d. In each half of the 256
 * weights, blocks 0 and 1 are the low nibbles of its first and second 32 bytes, blocks 2 and 3 the
 * high ones. */
static void read_q6_k(struct block *block, const uint8_t *p, int i) {
    const uint8_t *nibbles = p + i / 4 * 64 + i % 2 * 32, *pairs = p + 128 + i / 4 * 32;
    const int8_t *scales = (const int8_t *)p + 192;
    *block = (struct block){.d = read_u16(p + 208), .zero = 32};
    block->scale[0] = scales[2 * i];
    block->scale[1] = scales[2 * i + 1];
    for (int j = 0; j < BLOCK; j++)
        block->code[j] = (nibbles[j] >> i % 4 / 2 * 4 & 15) | (pairs[j] >> i % 4 * 2 & 3) << 4;
}

void block_read(struct block *block, enum dtype type, const void *row, size_t i) {
    const size_t per = (size_t)dtype_block_elements(type) / BLOCK;
    assert(per == 1 || per == 8);
    const uint8_t *p = (const uint8_t *)row + i / per * (size_t)dtype_block_bytes(type);
    switch (type) {
#define ENTRY(TYPE, name, ...)                                                                     \
    case DTYPE_##TYPE:                                                                             \
        read_##name(block, p, (int)(i % 8));                                                       \
        return;
        QUANT_TYPES(ENTRY)
#undef ENTRY
    default:
        assert(!"a quantised type");
    }
}

void block_floats(const struct block *block, float *out) {
    float min = half_to_float(block->m) * (float)block->min;
    for (int i = 0; i < BLOCK; i++) {
        float scale = half_to_float(block->d) * (float)block->scale[i / 16];
        float value = scale * (float)(block->code[i] - block->zero);
        out[i] = block->min ? value + min : value;
    }
}

void dequantise(enum dtype dtype, const void *data, float *out, size_t n) {
    assert(n % (size_t)dtype_block_elements(dtype) == 0);
    const uint8_t *p = data;
    if (dtype == DTYPE_F32) {
        memcpy(out, data, n * sizeof *out);
    } else if (dtype == DTYPE_F16) {
        for (size_t i = 0; i < n; i++) out[i] = half_to_float(read_u16(p + 2 * i));
    } else if (dtype == DTYPE_BF16) {
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)read_u16(p + 2 * i) << 16;
            memcpy(out + i, &bits, sizeof bits);
        }
    } else {
        struct block block;
        for (size_t i = 0; i < n / BLOCK; i++) {
            block_read(&block, dtype, data, i);
            block_floats(&block, out + i * BLOCK);
        }
    }
}
