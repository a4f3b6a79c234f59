/* kernels/cpu/weights: unpacked GGUF blocks, and weights packed into panels of 16 rows. */
#ifndef PENSTOCK_KERNELS_CPU_WEIGHTS_H
#define PENSTOCK_KERNELS_CPU_WEIGHTS_H

#include <float.h>
#include <math.h>

#include "kernels/cpu/order.h"
#include "kernels/kernels.h"

struct cpu;

/* 32 consecutive weights of one row, as in a file. Weight i is
 *   d * scale[i / 16] * (value of code[i]) + m * min[i / 16].
 * If d is float32, m is d. */
struct weight_block {
    uint8_t code[BLOCK];
    const int8_t *table; /* values of codes; NULL: code - zero */
    enum scales scales;  /* format of d */
    uint16_t d, m;       /* m is in half precision */
    float d_float;       /* replaces both */
    int scale[2], min[2], zero;
};

/* Returns the value of code i. */
static inline int block_value(const struct weight_block *block, int i) {
    return block->table ? block->table[block->code[i]] : block->code[i] - block->zero;
}
/* block_scale returns the scale of weights 16 * half .. 16 * half + 15, block_min their minimum. */
float block_scale(const struct weight_block *block, int half);
float block_min(const struct weight_block *block, int half);

/* Returns the 16 values of a table of codes, or NULL for linear codes. */
const int8_t *codes_table(enum codes codes);

/* Reads weights 32 * i .. 32 * i + 31 of a row of a quantised type. */
void block_read(struct weight_block *block, enum dtype type, const void *row, size_t i);
/* Reads scale and minimum of block i of 8 from the 12 bytes `p` of Q4_K and Q5_K. */
void block_k_scales(const uint8_t *p, int i, uint8_t *scale, uint8_t *min);
/* Computes the weights of a block. */
void block_floats(const struct weight_block *block, float *out);

/* 32 consecutive weights of a row of two-byte floats. Weight i is code[i] * scale, and the scale is
 * a power of two. The largest weight keeps all of its bits; the others keep the bits above its
 * lowest bit: a BF16 weight is exact down to 1/32 of the largest, an F16 weight down to 1/4. */
struct half_block {
    int16_t code[BLOCK]; /* below 2^HALF_BITS in magnitude */
    float scale;         /* infinity, with codes 0, if a weight is infinite or NaN */
};

/* A weight's code is at most 2^13 - 4 (a half has 11 bits), an input's at most HALF_TOP: 32
 * products of them are below 2^31. */
enum { HALF_BITS = 13, HALF_TOP = 8191 };

/* The panel layout of a type, from the columns of WEIGHT_TYPES. Kernels are compiled for constant
 * formats, which FORMAT makes from these columns. */
struct format {
    int bits; /* 2, 3, 4, 5, 6 or 8; 16 for two-byte floats; 0 for float32 */
    int zero; /* 128 with a table, because products add that to its values */
    bool has_min, super, halved;
    enum codes table;
    enum scales scales;
};
#define FORMAT(bits, zero, has_min, super, halved, table, scales, ...)                             \
    { bits, zero, has_min, super, halved, table, scales }
const struct format *format_of(enum dtype type);

/* A weight [N][K] in panels of 16 rows, so that a vector lane is a row (an output). The padding
 * rows of the last panel are zero. A quantised panel consists of the codes of all its blocks, then
 * their scales:
 *
 *   codes of a block, line = 64 bytes = 4 bytes of each of 16 rows,
 *                     group g = inputs 4g .. 4g+3 of the block:
 *     2, 3 bits     line j < 2: bits 2f, 2f+1 of byte t of a row are input 4 * (4j + f) + t
 *     3 bits        line 2: bit g of byte t of a row is bit 2 of input 4g + t
 *     4, 5, 6 bits  line j < 4: low nibbles are group j, high nibbles are group j + 4
 *     5 bits        line 4: bit g of byte t of a row is bit 4 of input 4g + t
 *     6 bits        line 4 + i: bits 2f, 2f+1 of byte t of a row are bits 4, 5 of input
 *                   4 * (4i + f) + t
 *     8 bits        line g is group g, as code = weight + 128
 *   scales of a block: 16 halves d (bfloat16 for MXFP4), then with a minimum 16 halves m; or 16
 *     float32 d, for INT4H 16 halves d, for INT4 and INT4H then 16 bytes zero point
 *   scales of K types, for 8 blocks: 16 halves d, with a minimum 16 halves m; then for each block
 *     16 bytes scale, 16 bytes min (Q4_K, Q5_K); or 16 signed bytes scale (IQ4_XS); or for each of
 *     its halves 16 bytes: a signed scale (Q3_K, Q6_K), or a scale in the low nibble and a minimum
 *     in the high one (Q2_K)
 *
 * A panel of a two-byte float type is similar. Its last block is padded with zeros after K:
 *
 *   codes of a block: line g is inputs 2g, 2g+1 of each of 16 rows, as int16
 *   scales of a block: 16 bytes, the exponents of the scales as in float32 (0 for a scale of 0, 255
 *     for infinity)
 *
 * A float32 panel is [K][16] weights. */
struct matrix {
    enum dtype type; /* type of the panels */
    const struct format *format;
    int N, K, n_panels;
    int n_blocks;        /* number of blocks of 32 inputs; 0 for float32 */
    size_t code_bytes;   /* size of one block in a panel */
    size_t scale_offset; /* offset of the scales in a panel */
    size_t scale_bytes;  /* size for one block, or for 8 blocks of K types */
    size_t panel_bytes, bytes;
    uint8_t *panels;
    struct slab *slab; /* owner of the memory; NULL: the caller of cpu_matrix_map owns it */
};

/* 1 / d, or 0 if that is not finite: all codes are then the code of 0. */
static inline float inverse_of(float d) {
    float inverse = d == 0 ? 0 : 1 / d;
    return fabsf(inverse) <= FLT_MAX ? inverse : 0;
}

/* quantise_blocks() for one block of 256. */
void quantise_q4_k(uint8_t *p, const float *x);
void quantise_q6_k(uint8_t *p, const float *x);

/* The op for every backend whose matrix_new takes host memory. */
enum status matrix_random(struct backend *b, struct matrix **out, enum dtype type, int N, int K,
                          uint64_t seed, enum matrix_form form, struct err *err);

enum status cpu_matrix_new(struct matrix **out, struct cpu *cpu, enum dtype type, int N, int K,
                           const void *rows, enum matrix_form form, struct err *err);
enum status cpu_matrix_quantised(struct matrix **out, struct cpu *cpu, enum dtype to,
                                 enum dtype from, int N, int K, const void *rows,
                                 struct file_place place, enum matrix_form form, struct err *err);
/* Frees the scratch memory that packing a matrix keeps for the next one. */
void cpu_free_packing(struct cpu *cpu);
/* memory_ops.matrix_map. */
struct matrix *cpu_matrix_map(const struct cpu *cpu, enum dtype type, int N, int K,
                              const void *panels, size_t bytes);
void cpu_matrix_free(struct cpu *cpu, struct matrix *matrix);
/* Reads block i of a row from its panel. */
void matrix_block(const struct matrix *w, struct weight_block *block, int row, int i);
void matrix_half_block(const struct matrix *w, struct half_block *block, int row, int i);
/* matrix_row for two-byte floats. */
void matrix_half_row(const struct matrix *w, int row, float *out);
/* Writes a row of a float type to its zeroed panel of two-byte floats. */
void matrix_write_halves(struct matrix *w, int row, const void *from, enum dtype type);
/* Writes a row of 4- to 8-bit weights to its zeroed panel. */
void matrix_write_row(struct matrix *w, int row, const void *from);
/* Packs a whole panel from its 16 rows, for types with a fast method (weights/pack_fast.c). The
 * bytes are those of packing row by row. Returns false if it did nothing. */
bool pack_panel(struct matrix *w, int panel, const uint8_t *rows, size_t row_bytes);
/* Packs a block of a panel's codes from 32 signed bytes of each of 16 rows. */
void pack_bytes(uint8_t *codes, const uint8_t *bytes, size_t row_bytes);
/* Converts n weights (a whole number of blocks) of a LOOKUP_TYPE to float32. */
void lookup_floats(enum dtype type, const void *data, float *out, size_t n);

/* out[K] = row `row`, dequantised. */
void matrix_row(const struct matrix *w, int row, float *out);

/* Is the matrix float32? Is it a two-byte float type? Otherwise it has 2 to 8 bits. */
static inline bool matrix_is_float(const struct matrix *w) {
    return w->format->bits == 0;
}
static inline bool matrix_is_half(const struct matrix *w) {
    return w->format->bits == 16;
}

static inline const uint8_t *matrix_codes(const struct matrix *w, int panel, int i) {
    return w->panels + (size_t)panel * w->panel_bytes + (size_t)i * w->code_bytes;
}

/* The scales of block i, or of the group of 8 blocks that contains it. */
static inline const uint8_t *matrix_scales(const struct matrix *w, int panel, int i) {
    return w->panels + (size_t)panel * w->panel_bytes + w->scale_offset +
           (size_t)(w->format->super ? i / 8 : i) * w->scale_bytes;
}

#endif
