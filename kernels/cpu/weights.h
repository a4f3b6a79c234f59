/* kernels/cpu/weights: GGUF's blocks taken apart, and weights packed into panels of 16 rows. */
#ifndef PENSTOCK_KERNELS_CPU_WEIGHTS_H
#define PENSTOCK_KERNELS_CPU_WEIGHTS_H

#include <float.h>
#include <math.h>

#include "kernels/cpu/order.h"
#include "kernels/kernels.h"

struct cpu;

/* 32 consecutive weights of one row, as a file holds them: weight i is
 *   d * scale[i / 16] * (what code[i] stands for) + m * min[i / 16],
 * where m is d where that is of float32. */
struct block {
    uint8_t code[BLOCK];
    const int8_t *table; /* what codes stand for; NULL: code - zero */
    enum scales scales;  /* what d is */
    uint16_t d, m;       /* m a half */
    float d_float;       /* instead of both */
    int scale[2], min[2], zero;
};

/* The value of a code. */
static inline int block_value(const struct block *block, int i) {
    return block->table ? block->table[block->code[i]] : block->code[i] - block->zero;
}
/* The scale of weights 16 * half and on, and what is added to them. */
float block_scale(const struct block *block, int half);
float block_min(const struct block *block, int half);

/* The 16 values of a table of codes; NULL for linear ones. */
const int8_t *codes_table(enum codes codes);

/* Reads weights 32 * i .. 32 * i + 31 of a row of a quantised type. */
void block_read(struct block *block, enum dtype type, const void *row, size_t i);
/* Scale and minimum of block i of 8 out of the 12 bytes at `p` in which Q4_K and Q5_K keep them. */
void block_k_scales(const uint8_t *p, int i, uint8_t *scale, uint8_t *min);
/* The weights that a block stands for. */
void block_floats(const struct block *block, float *out);

/* 32 consecutive weights of a row of two-byte floats: weight i is code[i] * scale, where the scale
 * is a power of two. The largest weight has all of its bits, and the others as many as stand above
 * its lowest: a BF16 weight is exact down to 1/32 of the largest, an F16 weight down to 1/4. */
struct half_block {
    int16_t code[BLOCK]; /* below 2^HALF_BITS in magnitude */
    float scale;         /* infinity, with codes 0, when a weight is infinite or NaN */
};

/* A weight's code is at most 2^13 - 4 (a half has 11 bits), an input's at most HALF_TOP: 32
 * products of them are below 2^31. */
enum { HALF_BITS = 13, HALF_TOP = 8191 };

/* How a type's panels look: columns of WEIGHT_TYPES. Kernels are made for constant ones, which
 * FORMAT makes of these columns. */
struct format {
    int bits; /* 2, 3, 4, 5, 6 or 8; 16 for two-byte floats; 0 for float32 */
    int zero; /* with a table 128, as products add that to its values */
    bool has_min, super, halved;
    enum codes table;
    enum scales scales;
};
#define FORMAT(bits, zero, has_min, super, halved, table, scales, ...)                             \
    { bits, zero, has_min, super, halved, table, scales }
const struct format *format_of(enum dtype type);

/* A weight [N][K] in panels of 16 rows, so that a vector's lane is a row (an output). Rows that
 * pad the last panel are zero. A quantised panel is the codes of all its blocks, then their scales:
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
 *   scales of a block: 16 halves d (of bfloat16 in MXFP4), then with a minimum 16 halves m; or 16
 *     float32 d, in INT4H 16 halves d, in both INT4 then 16 bytes zero point
 *   scales of K types, for 8 blocks: 16 halves d, with a minimum 16 halves m; then for each block
 *     16 bytes scale, 16 bytes min (Q4_K, Q5_K); or 16 signed bytes scale (IQ4_XS); or for each of
 *     its halves 16 bytes: a signed scale (Q3_K, Q6_K), or a scale in the low nibble and a minimum
 *     in the high one (Q2_K)
 *
 * A panel of a two-byte float type is made alike, its last block filled with zeros where K ends:
 *
 *   codes of a block: line g is inputs 2g, 2g+1 of each of 16 rows, as int16
 *   scales of a block: 16 bytes, the exponents of the scales as float32 has them (0 for a scale of
 *     0, 255 for infinity)
 *
 * A float32 panel is [K][16] weights. */
struct matrix {
    enum dtype type; /* of the panels */
    const struct format *format;
    int N, K, n_panels;
    int n_blocks;        /* of 32 inputs; 0 for float32 */
    size_t code_bytes;   /* of one block of a panel */
    size_t scale_offset; /* of the scales in a panel */
    size_t scale_bytes;  /* of one block, or of 8 blocks for K types */
    size_t panel_bytes, bytes;
    uint8_t *panels;
    struct slab *slab; /* whose memory it is; NULL: the memory is the caller's of cpu_matrix_map */
};

/* 1 / d, and 0 where that is no number: then every code is that of 0. */
static inline float inverse_of(float d) {
    float inverse = d == 0 ? 0 : 1 / d;
    return fabsf(inverse) <= FLT_MAX ? inverse : 0;
}

/* quantise_blocks() of one block of 256. */
void quantise_q4_k(uint8_t *p, const float *x);
void quantise_q6_k(uint8_t *p, const float *x);

/* The op, of any backend whose matrix_new takes host memory. */
enum status matrix_random(struct backend *b, struct matrix **out, enum dtype type, int N, int K,
                          uint64_t seed, enum matrix_form form, struct err *err);

enum status cpu_matrix_new(struct matrix **out, struct cpu *cpu, enum dtype type, int N, int K,
                           const void *rows, enum matrix_form form, struct err *err);
enum status cpu_matrix_quantised(struct matrix **out, struct cpu *cpu, enum dtype to,
                                 enum dtype from, int N, int K, const void *rows,
                                 struct file_place place, enum matrix_form form, struct err *err);
/* Frees the scratch that making matrices leaves for the next one. */
void cpu_free_packing(struct cpu *cpu);
/* memory_ops.matrix_map. */
struct matrix *cpu_matrix_map(const struct cpu *cpu, enum dtype type, int N, int K,
                              const void *panels, size_t bytes);
void cpu_matrix_free(struct cpu *cpu, struct matrix *matrix);
/* Reads one row's block back out of its panel. */
void matrix_block(const struct matrix *w, struct block *block, int row, int i);
void matrix_half_block(const struct matrix *w, struct half_block *block, int row, int i);
/* matrix_row of two-byte floats. */
void matrix_half_row(const struct matrix *w, int row, float *out);
/* Writes a row of a float type into its panel of two-byte floats, whose memory is zero. */
void matrix_write_halves(struct matrix *w, int row, const void *from, enum dtype type);
/* Writes a row of 4- to 8-bit weights into its panel, whose memory is zero. */
void matrix_write_row(struct matrix *w, int row, const void *from);
/* Writes a panel from its 16 rows, whole, for the types that have a quick way
 * (weights/pack_fast.c); the bytes are those of row by row. False: nothing was done. */
bool pack_panel(struct matrix *w, int panel, const uint8_t *rows, size_t row_bytes);
/* The codes of a block of 16 rows in its panel, from 32 signed bytes of each row. */
void pack_bytes(uint8_t *codes, const uint8_t *bytes, size_t row_bytes);
/* Turns n weights (a whole number of blocks) of a type that is looked up into float32. */
void lookup_floats(enum dtype type, const void *data, float *out, size_t n);

/* out[K] = row `row`, dequantised. */
void matrix_row(const struct matrix *w, int row, float *out);

/* Weights of float32, weights of two bytes; else of 4 to 8 bits. */
static inline bool matrix_is_float(const struct matrix *w) {
    return w->format->bits == 0;
}
static inline bool matrix_is_half(const struct matrix *w) {
    return w->format->bits == 16;
}

static inline const uint8_t *matrix_codes(const struct matrix *w, int panel, int i) {
    return w->panels + (size_t)panel * w->panel_bytes + (size_t)i * w->code_bytes;
}

/* The scales of block i, or of the 8 blocks that it belongs to. */
static inline const uint8_t *matrix_scales(const struct matrix *w, int panel, int i) {
    return w->panels + (size_t)panel * w->panel_bytes + w->scale_offset +
           (size_t)(w->format->super ? i / 8 : i) * w->scale_bytes;
}

#endif
