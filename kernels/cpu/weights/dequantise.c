/* Reads GGUF's blocks. This file is the only reader of each format. A `struct weight_block` has 32
 * weights as codes, a scale and a minimum, for every file layout. Layouts follow the GGUF
 * specification.
 * Halves are little-endian, as are all supported machines. */
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

/* Each function reads the 32 weights number i of the file's block at p. */

static void read_q4_0(struct weight_block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct weight_block){.d = read_u16(p), .scale = {1, 1}, .zero = 8};
    read_nibbles(block->code, p + 2);
}

static void read_q4_1(struct weight_block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct weight_block){
        .d = read_u16(p), .m = read_u16(p + 2), .scale = {1, 1}, .min = {1, 1}};
    read_nibbles(block->code, p + 4);
}

static void read_q5_0(struct weight_block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct weight_block){.d = read_u16(p), .scale = {1, 1}, .zero = 16};
    read_nibbles(block->code, p + 6);
    add_fifth_bits(block->code, p + 2);
}

static void read_q5_1(struct weight_block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct weight_block){
        .d = read_u16(p), .m = read_u16(p + 2), .scale = {1, 1}, .min = {1, 1}};
    read_nibbles(block->code, p + 8);
    add_fifth_bits(block->code, p + 4);
}

static void read_q8_0(struct weight_block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct weight_block){.d = read_u16(p), .scale = {1, 1}, .zero = 128};
    for (int k = 0; k < BLOCK; k++) block->code[k] = p[2 + k] ^ 0x80;
}

/* 12 bytes hold 8 scales and 8 minima of 6 bits. Those of the first four blocks are the low 6 bits
 * of bytes 0-3 and 4-7. Those of the last four have their low 4 bits in bytes 8-11 and their high 2
 * bits at the top of bytes 0-3 and 4-7. */
void block_k_scales(const uint8_t *p, int i, uint8_t *scale, uint8_t *min) {
    *scale = (uint8_t)(i < 4 ? p[i] & 63 : (p[i + 4] & 15) | p[i - 4] >> 6 << 4);
    *min = (uint8_t)(i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | p[i] >> 6 << 4);
}

static void read_k_scales(struct weight_block *block, const uint8_t *p, int i) {
    uint8_t scale, min;
    block_k_scales(p, i, &scale, &min);
    block->scale[0] = block->scale[1] = scale;
    block->min[0] = block->min[1] = -min;
}

/* 32 bytes of nibbles serve two blocks: the even block uses the low nibbles, the odd block the high
 * ones. */
static void read_k_nibbles(struct weight_block *block, const uint8_t *p, int i) {
    for (int j = 0; j < BLOCK; j++) block->code[j] = p[i / 2 * 32 + j] >> i % 2 * 4 & 15;
}

static void read_q4_k(struct weight_block *block, const uint8_t *p, int i) {
    *block = (struct weight_block){.d = read_u16(p), .m = read_u16(p + 2)};
    read_k_scales(block, p + 4, i);
    read_k_nibbles(block, p + 16, i);
}

static void read_q5_k(struct weight_block *block, const uint8_t *p, int i) {
    *block = (struct weight_block){.d = read_u16(p), .m = read_u16(p + 2)};
    read_k_scales(block, p + 4, i);
    read_k_nibbles(block, p + 48, i);
    for (int j = 0; j < BLOCK; j++) block->code[j] |= (p[16 + j] >> i & 1) << 4;
}

/* 128 bytes of nibbles, 64 bytes of high pairs, 16 signed scales, d. In each half of the 256
 * weights, blocks 0 and 1 use the low nibbles of its first and second 32 bytes, blocks 2 and 3 the
 * high nibbles. */
static void read_q6_k(struct weight_block *block, const uint8_t *p, int i) {
    const uint8_t *nibbles = p + i / 4 * 64 + i % 2 * 32, *pairs = p + 128 + i / 4 * 32;
    const int8_t *scales = (const int8_t *)p + 192;
    *block = (struct weight_block){.d = read_u16(p + 208), .zero = 32};
    block->scale[0] = scales[2 * i];
    block->scale[1] = scales[2 * i + 1];
    for (int j = 0; j < BLOCK; j++)
        block->code[j] = (nibbles[j] >> i % 4 / 2 * 4 & 15) | (pairs[j] >> i % 4 * 2 & 3) << 4;
}

/* ---- fewer bits ----------------------------------------------------------------------------- */

/* 32 bytes of pairs serve four blocks: block i % 4 uses bits 2 * (i % 4) of each byte. */
static void read_pairs(uint8_t *code, const uint8_t *p, int i) {
    for (int j = 0; j < BLOCK; j++) code[j] = p[i / 4 * 32 + j] >> i % 4 * 2 & 3;
}

/* 16 bytes with a scale in the low nibble and a minimum in the high nibble; 64 bytes of pairs, d,
 * dmin. */
static void read_q2_k(struct weight_block *block, const uint8_t *p, int i) {
    *block = (struct weight_block){.d = read_u16(p + 80), .m = read_u16(p + 82)};
    for (int half = 0; half < 2; half++) {
        block->scale[half] = p[2 * i + half] & 15;
        block->min[half] = -(p[2 * i + half] >> 4);
    }
    read_pairs(block->code, p + 16, i);
}

/* 12 bytes hold 16 scales of 6 bits. The low nibbles of the first 8 bytes belong to scales 0-7, the
 * high nibbles to 8-15. Bits 2 * (i / 4) of byte 8 + i % 4 are the top bits. */
static int q3_k_scale(const uint8_t *p, int i) {
    return ((p[i % 8] >> i / 8 * 4 & 15) | (p[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
}

/* 32 bytes of third bits, bit i for block i; 64 of pairs, 12 of scales, d. */
static void read_q3_k(struct weight_block *block, const uint8_t *p, int i) {
    *block = (struct weight_block){.d = read_u16(p + 108), .zero = 4};
    for (int half = 0; half < 2; half++) block->scale[half] = q3_k_scale(p + 96, 2 * i + half);
    read_pairs(block->code, p + 32, i);
    for (int j = 0; j < BLOCK; j++) block->code[j] |= (p[j] >> i & 1) << 2;
}

/* 48 bytes hold five base-3 digits each, 4 more bytes hold four. A byte is the digits' number / 243
 * (/ 81) * 256, rounded up; multiplying it by 3 repeatedly gives the digits as overflow. Digits n
 * of the first 32 bytes are weights 32 * n and on, those of the next 16 bytes weights 160 + 16 * n
 * and on, those of the last 4 bytes weights 240 + 4 * n and on. */
static void read_tq1_0(struct weight_block *block, const uint8_t *p, int i) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    *block = (struct weight_block){.d = read_u16(p + 52), .scale = {1, 1}, .zero = 1};
    for (int j = 0; j < BLOCK; j++) {
        int k = i * BLOCK + j;
        uint8_t byte = k < 160   ? p[k % 32] * power[k / 32]
                       : k < 240 ? p[32 + k % 16] * power[(k - 160) / 16]
                                 : p[48 + k % 4] * power[(k - 240) / 4];
        block->code[j] = (uint8_t)(byte * 3 >> 8);
    }
}

static void read_tq2_0(struct weight_block *block, const uint8_t *p, int i) {
    *block = (struct weight_block){.d = read_u16(p + 64), .scale = {1, 1}, .zero = 1};
    read_pairs(block->code, p, i);
}

/* d, then 4 codes a byte. */
static void read_q2_0(struct weight_block *block, const uint8_t *p, int i) {
    *block = (struct weight_block){.d = read_u16(p), .scale = {1, 1}, .zero = 1};
    for (int j = 0; j < BLOCK; j++) block->code[j] = p[2 + i * 8 + j / 4] >> j % 4 * 2 & 3;
}

/* d, then one bit per weight: d if it is set, else -d. */
static void read_q1_0(struct weight_block *block, const uint8_t *p, int i) {
    *block = (struct weight_block){.d = read_u16(p), .scale = {1, 1}, .zero = 1};
    for (int j = 0; j < BLOCK; j++)
        block->code[j] = (uint8_t)((p[2 + i * 4 + j / 8] >> j % 8 & 1) << 1);
}

/* ---- codes of a table ----------------------------------------------------------------------- */

const int8_t *codes_table(enum codes codes) {
    static const int8_t tables[][16] = {
        [CODES_NL4] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
        [CODES_E2M1] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
    };
    return codes == CODES_LINEAR ? NULL : tables[codes];
}

static void read_iq4_nl(struct weight_block *block, const uint8_t *p, int i) {
    (void)i;
    *block =
        (struct weight_block){.d = read_u16(p), .scale = {1, 1}, .table = codes_table(CODES_NL4)};
    read_nibbles(block->code, p + 2);
}

/* d, two bytes with the high pairs of 8 scales, four bytes with their low nibbles, the codes. */
static void read_iq4_xs(struct weight_block *block, const uint8_t *p, int i) {
    *block = (struct weight_block){.d = read_u16(p), .table = codes_table(CODES_NL4)};
    int low = p[4 + i / 2] >> i % 2 * 4 & 15, high = read_u16(p + 2) >> 2 * i & 3;
    block->scale[0] = block->scale[1] = (low | high << 4) - 32;
    read_nibbles(block->code, p + 8 + 16 * i);
}

/* A byte e, then the codes. Their scale is 2^(e - 128), half of the format's, because the table has
 * doubled values. It is exact in bfloat16, subnormals included. */
static void read_mxfp4(struct weight_block *block, const uint8_t *p, int i) {
    (void)i;
    uint16_t scale = (uint16_t)(*p < 2 ? 0x20 << *p : (*p - 1) << 7);
    *block = (struct weight_block){.d = scale, .scales = SCALES_BRAIN, .scale = {1, 1}};
    block->table = codes_table(CODES_E2M1);
    read_nibbles(block->code, p + 1);
}

/* ---- codes of quantised folders ------------------------------------------------------------- */

static float read_float(const uint8_t *p) {
    float value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* A float32, the zero point, the codes. */
static void read_int4(struct weight_block *block, const uint8_t *p, int i) {
    (void)i;
    *block =
        (struct weight_block){.scales = SCALES_FLOAT, .d_float = read_float(p), .scale = {1, 1}};
    block->min[0] = block->min[1] = -p[4];
    read_nibbles(block->code, p + 5);
}

/* A half, the zero point, the codes. */
static void read_int4h(struct weight_block *block, const uint8_t *p, int i) {
    (void)i;
    *block = (struct weight_block){.scales = SCALES_POINT, .d = read_u16(p), .scale = {1, 1}};
    block->m = block->d;
    block->min[0] = block->min[1] = -p[2];
    read_nibbles(block->code, p + 3);
}

/* A float32, then signed bytes. */
static void read_int8(struct weight_block *block, const uint8_t *p, int i) {
    (void)i;
    *block =
        (struct weight_block){.scales = SCALES_FLOAT, .d_float = read_float(p), .scale = {1, 1}};
    block->zero = 128;
    for (int k = 0; k < BLOCK; k++) block->code[k] = p[4 + k] ^ 0x80;
}

/* ---- any type ------------------------------------------------------------------------------- */

void block_read(struct weight_block *block, enum dtype type, const void *row, size_t i) {
    const size_t per = (size_t)dtype_block_elements(type) / BLOCK;
    assert(per > 0 && per <= 8);
    const uint8_t *p = (const uint8_t *)row + i / per * (size_t)dtype_block_bytes(type);
    switch (type) {
#define ENTRY(TYPE, name, ...)                                                                     \
    case DTYPE_##TYPE:                                                                             \
        read_##name(block, p, (int)(i % per));                                                     \
        return;
        QUANT_TYPES(ENTRY)
#undef ENTRY
    default:
        assert(!"a quantised type");
    }
}

static float brain_to_float(uint16_t brain) {
    uint32_t bits = (uint32_t)brain << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float block_scale(const struct weight_block *block, int half) {
    float d = block->scales == SCALES_FLOAT   ? block->d_float
              : block->scales == SCALES_BRAIN ? brain_to_float(block->d)
                                              : half_to_float(block->d);
    return d * (float)block->scale[half];
}

float block_min(const struct weight_block *block, int half) {
    float m = block->scales == SCALES_FLOAT ? block->d_float : half_to_float(block->m);
    return m * (float)block->min[half];
}

void block_floats(const struct weight_block *block, float *out) {
    const float scale[2] = {block_scale(block, 0), block_scale(block, 1)};
    const float min[2] = {block_min(block, 0), block_min(block, 1)};
    bool has_min = block->min[0] || block->min[1];
    for (int i = 0; i < BLOCK; i++) {
        float value = scale[i / 16] * (float)block_value(block, i);
        out[i] = has_min ? value + min[i / 16] : value;
    }
}

/* half_to_float without branches, so that compilers can vectorise it. */
static void floats_of_halves(float *out, const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t half = read_u16(p + 2 * i), fraction = half & 0x3ff;
        float small = (float)(int32_t)fraction * 0x1p-24f; /* the value for exponent 0 */
        uint32_t bits = (half & 0x7fff) << 13, of_small;
        memcpy(&of_small, &small, sizeof of_small);
        bits += (half & 0x7c00) == 0x7c00 ? 224u << 23 : 112u << 23;
        bits |= (half & 0x7c00) == 0x7c00 && fraction ? 0x400000 : 0;
        bits = (half & 0x7c00) == 0 ? of_small : bits;
        bits |= (half & 0x8000) << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

void dequantise(enum dtype dtype, const void *data, float *out, size_t n) {
    assert(n % (size_t)dtype_block_elements(dtype) == 0);
    const uint8_t *p = data;
    if (dtype == DTYPE_F32) {
        memcpy(out, data, n * sizeof *out);
    } else if (dtype == DTYPE_F16) {
        floats_of_halves(out, p, n);
    } else if (dtype == DTYPE_BF16) {
        for (size_t i = 0; i < n; i++) out[i] = brain_to_float(read_u16(p + 2 * i));
    } else if (dtype_kept(dtype) != dtype) {
        lookup_floats(dtype, data, out, n);
    } else {
        struct weight_block block;
        for (size_t i = 0; i < n / BLOCK; i++) {
            block_read(&block, dtype, data, i);
            block_floats(&block, out + i * BLOCK);
        }
    }
}
