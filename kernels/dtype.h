/* kernels/dtype: the number formats of weights and of the KV cache, and random weights. */
#ifndef PENSTOCK_KERNELS_DTYPE_H
#define PENSTOCK_KERNELS_DTYPE_H

#include "config/config.h"

/* The weight types, one row each. Code that must know all types expands this list. A new quantised
 * type needs a row here and readers of its blocks in kernels/cpu/weights/dequantise.c and
 * kernels/cuda/gemm/source.cuh. If its codes have a new width, they also need a place in a panel
 * (kernels/cpu/weights.h). GGUF files do not contain INT4, INT8 and INT4H (INT4 with scales in half
 * precision): loading a quantised folder converts its codes to blocks of these types. The columns
 * of X(...):
 *
 *   TYPE, name       as in DTYPE_TYPE and in texts
 *   number           GGUF's number of the tensor type
 *   elements, bytes  size of one block in a file
 *   bits             width of a code; for floats 16 if products see them as integers, else 0
 *   zero             the code for 0
 *   has_min          1: a weight is scale * code + minimum
 *   super            1: two levels of scales; a block has 8 sub-blocks of 32
 *   halved           1: one scale per 16 weights, else per 32
 *   table            the values of codes: one of CODES_ below
 *   scales           the format of scales: one of SCALES_ below
 *   scale_at, min_at byte offsets of scale and minimum in a file's block; -1: absent
 *   deviation, mean  for random weights with a scale of 1: their standard deviation, and the
 *                    factor of the minimum that makes their mean 0 */
#define FLOAT_TYPES(X)                                                                             \
    X(F32, f32, 0, 1, 4, 0, 0, 0, 0, 0, CODES_LINEAR, SCALES_HALF, -1, -1, 73.3, 0)                \
    X(F16, f16, 1, 1, 2, 16, 0, 0, 0, 0, CODES_LINEAR, SCALES_HALF, -1, -1, 73.3, 0)               \
    X(BF16, bf16, 30, 1, 2, 16, 0, 0, 0, 0, CODES_LINEAR, SCALES_HALF, -1, -1, 73.3, 0)
#define QUANT_TYPES(X)                                                                             \
    X(Q4_0, q4_0, 2, 32, 18, 4, 8, 0, 0, 0, CODES_LINEAR, SCALES_HALF, 0, -1, 4.6, 0)              \
    X(Q4_1, q4_1, 3, 32, 20, 4, 0, 1, 0, 0, CODES_LINEAR, SCALES_HALF, 0, 2, 4.6, -7.5)            \
    X(Q5_0, q5_0, 6, 32, 22, 5, 16, 0, 0, 0, CODES_LINEAR, SCALES_HALF, 0, -1, 9.2, 0)             \
    X(Q5_1, q5_1, 7, 32, 24, 5, 0, 1, 0, 0, CODES_LINEAR, SCALES_HALF, 0, 2, 9.2, -15.5)           \
    X(Q8_0, q8_0, 8, 32, 34, 8, 128, 0, 0, 0, CODES_LINEAR, SCALES_HALF, 0, -1, 73.9, 0)           \
    X(Q2_K, q2_k, 10, 256, 84, 2, 0, 1, 1, 1, CODES_LINEAR, SCALES_HALF, 80, 82, 13.9, 1.5)        \
    X(Q3_K, q3_k, 11, 256, 110, 3, 4, 0, 1, 1, CODES_LINEAR, SCALES_HALF, 108, -1, 43.3, 0)        \
    X(Q4_K, q4_k, 12, 256, 144, 4, 0, 1, 1, 0, CODES_LINEAR, SCALES_HALF, 0, 2, 258, 7.5)          \
    X(Q5_K, q5_k, 13, 256, 176, 5, 0, 1, 1, 0, CODES_LINEAR, SCALES_HALF, 0, 2, 527, 15.5)         \
    X(Q6_K, q6_k, 14, 256, 210, 6, 32, 0, 1, 1, CODES_LINEAR, SCALES_HALF, 208, -1, 1369, 0)       \
    X(IQ4_NL, iq4_nl, 20, 32, 18, 4, 128, 0, 0, 0, CODES_NL4, SCALES_HALF, 0, -1, 67, 0)           \
    X(IQ4_XS, iq4_xs, 23, 256, 136, 4, 128, 0, 1, 0, CODES_NL4, SCALES_HALF, 0, -1, 1246, 0)       \
    X(TQ1_0, tq1_0, 34, 256, 54, 2, 1, 0, 0, 0, CODES_LINEAR, SCALES_HALF, 52, -1, 0.82, 0)        \
    X(TQ2_0, tq2_0, 35, 256, 66, 2, 1, 0, 0, 0, CODES_LINEAR, SCALES_HALF, 64, -1, 1.12, 0)        \
    X(MXFP4, mxfp4, 39, 32, 17, 4, 128, 0, 0, 0, CODES_E2M1, SCALES_BRAIN, 0, -1, 5.9, 0)          \
    X(Q1_0, q1_0, 41, 128, 18, 2, 1, 0, 0, 0, CODES_LINEAR, SCALES_HALF, 0, -1, 1, 0)              \
    X(Q2_0, q2_0, 42, 64, 18, 2, 1, 0, 0, 0, CODES_LINEAR, SCALES_HALF, 0, -1, 1.12, 0)            \
    X(INT4, int4, 1025, 32, 21, 4, 0, 1, 0, 0, CODES_LINEAR, SCALES_FLOAT, 0, -1, 4.6, 0)          \
    X(INT8, int8, 1026, 32, 36, 8, 128, 0, 0, 0, CODES_LINEAR, SCALES_FLOAT, 0, -1, 73.9, 0)       \
    X(INT4H, int4h, 1027, 32, 19, 4, 0, 1, 0, 0, CODES_LINEAR, SCALES_POINT, 0, -1, 4.6, 0)
#define WEIGHT_TYPES(X) FLOAT_TYPES(X) QUANT_TYPES(X)

/* Types of GGUF files whose codes are indices of a table, 32 weights at a time
 * (kernels/cpu/weights/lookup.c). Products do not support them: loading converts them to the type
 * of the last column. INT8 represents the same weights exactly; F32 is then stored as float weights
 * of folders are. X(TYPE, name, number, elements, bytes, KEPT) */
#define LOOKUP_TYPES(X)                                                                            \
    X(IQ2_XXS, iq2_xxs, 16, 256, 66, INT8)                                                         \
    X(IQ2_XS, iq2_xs, 17, 256, 74, F32)                                                            \
    X(IQ3_XXS, iq3_xxs, 18, 256, 98, INT8)                                                         \
    X(IQ1_S, iq1_s, 19, 256, 50, INT8)                                                             \
    X(IQ3_S, iq3_s, 21, 256, 110, INT8)                                                            \
    X(IQ2_S, iq2_s, 22, 256, 82, F32)                                                              \
    X(IQ1_M, iq1_m, 29, 256, 56, F32)                                                              \
    X(NVFP4, nvfp4, 40, 64, 36, F32)

/* The value of a code c. */
enum codes {
    CODES_LINEAR, /* c - zero */
    CODES_NL4,    /* the 16 values of IQ4, denser near 0 */
    CODES_E2M1,   /* twice a 4-bit float: 0, 1, 2, 3, 4, 6, 8, 12, and their negatives */
};

/* The format of scales. */
enum scales {
    SCALES_HALF,
    SCALES_BRAIN, /* bfloat16, which has a larger range of exponents than half precision */
    SCALES_FLOAT, /* float32; a minimum is minus the scale times a zero point (one byte) */
    SCALES_POINT, /* half precision, with the minima of SCALES_FLOAT */
};

enum dtype {
#define ENTRY(TYPE, name, number, ...) DTYPE_##TYPE = number,
    WEIGHT_TYPES(ENTRY) LOOKUP_TYPES(ENTRY)
#undef ENTRY
    /* only for KV caches; GGUF does not define the second number */
    DTYPE_I16 = 25,
    DTYPE_E4M3 = 1024,
};

/* Returns a type's name ("q4_1"), or NULL for an unknown number. */
const char *dtype_name(int dtype);

/* Return the elements of one block of a type (1, 32, 64, 128 or 256) and the bytes of that block; 0
 * for an unknown number. */
int dtype_block_elements(int dtype);
int dtype_block_bytes(int dtype);

/* Returns the bytes of `n` elements (a whole number of blocks) of a type. */
size_t dtype_bytes(enum dtype dtype, size_t n);

/* Converts n elements (a whole number of blocks) of GGUF data to float32. This is the only reader
 * of each format; the layouts follow the GGUF specification. */
void dequantise(enum dtype dtype, const void *data, float *out, size_t n);

/* Returns the type in which products use rows of a type: KEPT for a LOOKUP_TYPE, else itself. */
enum dtype dtype_kept(enum dtype type);

/* Converts n elements (a whole number of blocks) of a LOOKUP_TYPE to dtype_kept(type). */
void keep_blocks(enum dtype type, const void *data, void *out, size_t n);

/* Quantises n floats (a whole number of blocks). Blocks of Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 have the
 * same bits as ggml's reference; Q4_K and Q6_K use our own search. A block that contains an
 * infinity or a NaN becomes a block of NaN. */
void quantise_blocks(enum dtype type, const float *x, void *out, size_t n);

/* Operations on float weights, on the calling thread. All CPU paths give the same bits. */
struct weight_ops {
    /* Quantises n numbers (a whole number of blocks) of F32, F16 or BF16, as quantise_blocks
     * does. */
    void (*quantise)(enum dtype to, void *out, enum dtype from, const void *rows, size_t n);
};

/* The functions of the path `name`, chosen as by backend_cpu_logit_ops. */
const struct weight_ops *backend_cpu_weight_ops(const char *name);

/* Returns the index of the first of n blocks whose scale or minimum is NaN or infinite, or n if all
 * blocks are sound. Such a block is damaged, and its products are NaN. The result is always n for
 * NVFP4, where every scale is a number, and for float types. */
size_t dtype_broken_block(enum dtype type, const void *data, size_t n);

/* Convert between IEEE half precision and float32 (round to nearest even), exactly everywhere. */
float half_to_float(uint16_t half);
uint16_t float_to_half(float value);

/* ---- random weights ------------------------------------------------------------------------- */

/* A generator of random matrix rows that gives the same rows on every device and thread. Each piece
 * of 8 weights (8 bytes for types with blocks) is a function of the seed and the piece's index. */
struct random_weights {
    enum dtype type;
    uint64_t seed;
    int piece_bytes;
    float unit;           /* a float weight is -127..127 times this power of two */
    int block_bytes;      /* for types with blocks; all bytes are random except scale and minimum */
    int scale_at, min_at; /* their offsets in a block; -1: absent */
    int scale_bytes;      /* 2, or 1 if the scale is the exponent of a power of two */
    uint16_t scale, min;  /* their values, in half precision or as that exponent */
};

/* Plans rows of K weights of a type, scaled so that products with activations of size 1 have about
 * size 1. */
void random_weights_plan(struct random_weights *out, enum dtype type, int K, uint64_t seed);

/* Generates the bytes from..to of the matrix at `data`; `from` is a multiple of piece_bytes. */
void random_weights_fill(const struct random_weights *w, void *data, size_t from, size_t to);

#endif
