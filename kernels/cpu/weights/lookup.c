/* Reads the LOOKUP_TYPES. The codes of IQ1, IQ2 and IQ3 are indices of a grid: groups of 4 or 8
 * values that the format lists. NVFP4 has 4-bit floats with an 8-bit float scale per 16 weights.
 * Products do not use these types directly: loading converts them to blocks of INT8 if that is
 * exact, else to floats.
 *
 * DESIGN: grids.inc has one bit per possible group. The first reader of a type expands its grid;
 * afterwards grids are only read. */
#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* ---- grids ---------------------------------------------------------------------------------- */

enum grid { GRID_IQ2_XXS, GRID_IQ2_XS, GRID_IQ2_S, GRID_IQ3_XXS, GRID_IQ3_S, GRID_IQ1_S, N_GRIDS };

static const char *const grid_bits[N_GRIDS] = {
#include "kernels/cpu/weights/grids.inc"
};

enum { GRID_VALUES = (256 + 512 + 1024) * 8 + (256 + 512) * 4 + 2048 * 8 };
static int8_t grid_values[GRID_VALUES];
static const int8_t *grids[N_GRIDS]; /* [entries][4 or 8] */

static int grid_length(enum grid grid) {
    return grid == GRID_IQ3_XXS || grid == GRID_IQ3_S ? 4 : 8;
}

/* Writes the values of one group. Returns the place of the next group. */
static int8_t *unfold_group(int8_t *out, enum grid grid, int number) {
    static const int8_t twos[] = {8, 25, 43}, ones[] = {-1, 0, 1};
    static const int8_t threes[] = {4, 12, 20, 28, 36, 44, 52, 62};
    static const int8_t odd[] = {1, 3, 5, 7, 9, 11, 13, 15};
    static const int8_t *const values[N_GRIDS] = {twos, twos, twos, threes, odd, ones};
    int base = grid_length(grid) == 4 ? 8 : 3;
    for (int i = 0; i < grid_length(grid); i++, number /= base)
        *out++ = values[grid][number % base];
    return out;
}

static void unfold_grids(void) {
    static const char digits[] = "0123456789abcdef";
    int8_t *out = grid_values;
    for (enum grid grid = 0; grid < N_GRIDS; grid++) {
        grids[grid] = out;
        for (int i = 0; grid_bits[grid][i]; i++) {
            int bits = (int)(strchr(digits, grid_bits[grid][i]) - digits);
            for (int j = 0; j < 4; j++)
                if (bits >> j & 1) out = unfold_group(out, grid, 4 * i + j);
        }
    }
    assert(out == grid_values + GRID_VALUES);
}

/* ---- blocks of 32 --------------------------------------------------------------------------- */

/* A weight is scale[i / 16] * code[i]. */
struct looked_up {
    float scale[2];
    int8_t code[BLOCK];
};

static uint16_t read_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t read_u32(const uint8_t *p) {
    return read_u16(p) | (uint32_t)read_u16(p + 2) << 16;
}

/* Writes entry `number` of a grid to code[0..]; bits of `signs` make values negative. */
static void look_up(int8_t *code, enum grid grid, int number, int signs) {
    const int8_t *value = grids[grid] + number * grid_length(grid);
    for (int i = 0; i < grid_length(grid); i++)
        code[i] = (int8_t)(signs >> i & 1 ? -value[i] : value[i]);
}

/* 7 signs; the eighth makes the number of negative values even. */
static int even_signs(uint32_t seven) {
    seven &= 127;
    return (int)(seven | (uint32_t)__builtin_parity(seven) << 7);
}

static void set_scales(struct looked_up *b, const uint8_t *d, int first, int second, float unit) {
    b->scale[0] = half_to_float(read_u16(d)) * (0.5f + (float)first) * unit;
    b->scale[1] = half_to_float(read_u16(d)) * (0.5f + (float)second) * unit;
}

/* d; per 32 weights 4 indices, then 4 times 7 signs and a scale of 4 bits. */
static void read_iq2_xxs(struct looked_up *b, const uint8_t *p, int i) {
    const uint8_t *q = p + 2 + 8 * i;
    uint32_t rest = read_u32(q + 4);
    set_scales(b, p, (int)(rest >> 28), (int)(rest >> 28), 0.25f);
    for (int j = 0; j < 4; j++)
        look_up(b->code + 8 * j, GRID_IQ2_XXS, q[j], even_signs(rest >> 7 * j));
}

/* d, 32 indices of 9 bits with 7 signs each, 8 bytes of two scales. */
static void read_iq2_xs(struct looked_up *b, const uint8_t *p, int i) {
    set_scales(b, p, p[66 + i] & 15, p[66 + i] >> 4, 0.25f);
    for (int j = 0; j < 4; j++) {
        int word = read_u16(p + 2 + 8 * i + 2 * j);
        look_up(b->code + 8 * j, GRID_IQ2_XS, word & 511, even_signs((uint32_t)word >> 9));
    }
}

/* d, the low 8 bits of 32 indices, their signs, 8 bytes with their high 2 bits, 8 bytes of two
 * scales. */
static void read_iq2_s(struct looked_up *b, const uint8_t *p, int i) {
    set_scales(b, p, p[74 + i] & 15, p[74 + i] >> 4, 0.25f);
    for (int j = 0; j < 4; j++) {
        int number = p[2 + 4 * i + j] | (p[66 + i] >> 2 * j & 3) << 8;
        look_up(b->code + 8 * j, GRID_IQ2_S, number, p[34 + 4 * i + j]);
    }
}

/* d, 64 indices; per 32 weights 4 times 7 signs and a scale of 4 bits. */
static void read_iq3_xxs(struct looked_up *b, const uint8_t *p, int i) {
    uint32_t rest = read_u32(p + 66 + 4 * i);
    set_scales(b, p, (int)(rest >> 28), (int)(rest >> 28), 0.5f);
    for (int j = 0; j < 8; j++) {
        int signs = even_signs(rest >> 7 * (j / 2)) >> j % 2 * 4;
        look_up(b->code + 4 * j, GRID_IQ3_XXS, p[2 + 8 * i + j], signs);
    }
}

/* d, the low 8 bits of 64 indices, 8 bytes with the ninth bits, 32 bytes of signs, 4 bytes of two
 * scales. */
static void read_iq3_s(struct looked_up *b, const uint8_t *p, int i) {
    int scale = p[106 + i / 2] >> i % 2 * 4 & 15;
    b->scale[0] = b->scale[1] = half_to_float(read_u16(p)) * (float)(1 + 2 * scale);
    for (int j = 0; j < 8; j++) {
        int number = p[2 + 8 * i + j] | (p[66 + i] >> j & 1) << 8;
        look_up(b->code + 4 * j, GRID_IQ3_S, number, p[74 + 4 * i + j / 2] >> j % 2 * 4);
    }
}

/* Values -1, 0 and 1 shifted up or down by an eighth, multiplied by 8. */
static void look_up_ones(int8_t *code, int number, bool down) {
    const int8_t *value = grids[GRID_IQ1_S] + 8 * number;
    for (int i = 0; i < 8; i++) code[i] = (int8_t)(8 * value[i] + (down ? -1 : 1));
}

static float ones_scale(uint16_t d, int scale) {
    return half_to_float(d) * (float)(2 * scale + 1) * 0.125f;
}

/* d, the low 8 bits of 32 indices; per 32 weights their high 3 bits, a scale and the direction of
 * the shift. */
static void read_iq1_s(struct looked_up *b, const uint8_t *p, int i) {
    int word = read_u16(p + 34 + 2 * i);
    b->scale[0] = b->scale[1] = ones_scale(read_u16(p), word >> 12 & 7);
    for (int j = 0; j < 4; j++)
        look_up_ones(b->code + 8 * j, p[2 + 4 * i + j] | (word >> 3 * j & 7) << 8, word >> 15);
}

/* The low 8 bits of 32 indices, nibbles with their high 3 bits and the direction of the shift, 4
 * words of 4 scales of 3 bits; the highest nibbles of these words are d. */
static void read_iq1_m(struct looked_up *b, const uint8_t *p, int i) {
    uint16_t d = 0;
    for (int j = 0; j < 4; j++) d |= (uint16_t)((p[49 + 2 * j] >> 4) << 4 * j);
    int scales = read_u16(p + 48 + i / 2 * 2) >> i % 2 * 6;
    b->scale[0] = ones_scale(d, scales & 7);
    b->scale[1] = ones_scale(d, scales >> 3 & 7);
    for (int j = 0; j < 4; j++) {
        int nibble = p[32 + 2 * i + j / 2] >> j % 2 * 4;
        look_up_ones(b->code + 8 * j, p[4 * i + j] | (nibble & 7) << 8, nibble >> 3 & 1);
    }
}

/* An unsigned 8-bit float with 4 exponent bits. The code of its NaN means 0. */
static float e4m3_scale(uint8_t byte) {
    int exponent = byte >> 3 & 15, fraction = byte & 7;
    if (byte == 0x7f) return 0;
    if (exponent == 0) return (float)fraction * 0x1p-9f;
    return (float)(8 + fraction) * 0x1p-10f * (float)(1 << exponent);
}

/* 4 scales, then 8 bytes per 16 weights; the low nibbles are the first 8 weights. Blocks have 64
 * weights. */
static void read_nvfp4(struct looked_up *b, const uint8_t *p, int i) {
    const int8_t *value = codes_table(CODES_E2M1);
    for (int half = 0; half < 2; half++) {
        const uint8_t *q = p + 4 + 16 * i + 8 * half;
        b->scale[half] = e4m3_scale(p[2 * i + half]) * 0.5f; /* the table's values are doubled */
        for (int j = 0; j < 16; j++) b->code[16 * half + j] = value[q[j % 8] >> j / 8 * 4 & 15];
    }
}

/* ---- any of them ---------------------------------------------------------------------------- */

/* Block i of 32 of a row. */
static void read_block(struct looked_up *b, enum dtype type, const void *row, size_t i) {
    const size_t per = (size_t)dtype_block_elements((int)type) / BLOCK;
    const uint8_t *p = (const uint8_t *)row + i / per * (size_t)dtype_block_bytes((int)type);
    switch (type) {
#define ENTRY(TYPE, name, ...)                                                                     \
    case DTYPE_##TYPE:                                                                             \
        read_##name(b, p, (int)(i % per));                                                         \
        return;
        LOOKUP_TYPES(ENTRY)
#undef ENTRY
    default:
        assert(!"a type that is looked up");
    }
}

static void prepare(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, unfold_grids);
}

void lookup_floats(enum dtype type, const void *data, float *out, size_t n) {
    assert(data && out);
    struct looked_up block;
    prepare();
    for (size_t i = 0; i < n / BLOCK; i++, out += BLOCK) {
        read_block(&block, type, data, i);
        for (int j = 0; j < BLOCK; j++) out[j] = block.scale[j / 16] * (float)block.code[j];
    }
}

enum dtype dtype_kept(enum dtype type) {
    switch (type) {
#define ENTRY(TYPE, name, number, elements, bytes, KEPT)                                           \
    case DTYPE_##TYPE:                                                                             \
        return DTYPE_##KEPT;
        LOOKUP_TYPES(ENTRY)
#undef ENTRY
    default:
        return type;
    }
}

void keep_blocks(enum dtype type, const void *data, void *out, size_t n) {
    struct looked_up block;
    uint8_t *to = out;
    if (dtype_kept(type) == DTYPE_F32) {
        lookup_floats(type, data, out, n);
        return;
    }
    assert(dtype_kept(type) == DTYPE_INT8);
    prepare();
    for (size_t i = 0; i < n / BLOCK; i++, to += 4 + BLOCK) {
        read_block(&block, type, data, i);
        memcpy(to, &block.scale[0], 4);
        memcpy(to + 4, block.code, BLOCK);
    }
}
