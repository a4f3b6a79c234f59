/* kernels/dtype: the number formats of weights and of the KV cache, and weights made of random
 * numbers. */
#ifndef PENSTOCK_KERNELS_DTYPE_H
#define PENSTOCK_KERNELS_DTYPE_H

#include "config/config.h"

/* The list of weight types, a row each; whatever must know all of them unfolds it. A new quantised
 * type is a row here, and how its blocks are read: kernels/cpu/weights/dequantise.c and
 * kernels/cuda/gemm/source.cuh. One that has codes of a new width also needs their place in a panel
 * (kernels/cpu/weights.h). INT4, INT8 and INT4H (INT4 whose scales are halves) are no types of GGUF
 * files: the codes of quantised folders become their blocks while they are loaded. The columns of
 * X(...):
 *
 *   TYPE, name       as in DTYPE_TYPE and in texts
 *   number           GGUF's number of the tensor type, so that a file's type needs no translation
 *   elements, bytes  of one block in a file
 *   bits             of a code; floats: 16 if products see them as integers, else 0
 *   zero             the code that means 0
 *   has_min          a weight is scale * code + minimum
 *   super            scales in two steps: a block is 8 small ones of 32
 *   halved           a scale for each 16 weights, else for 32
 *   table            what codes stand for: a CODES_ of below
 *   scales           what scales are kept as: a SCALES_ of below
 *   scale_at, min_at where a file's block has its scale and minimum, halves; -1: none
 *   deviation, mean  of random weights with a scale of 1: their standard deviation, and what a
 *                    minimum must be multiplied by for their mean to be 0 */
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
    X(INT4, int4, 1025, 32, 21, 4, 0, 1, 0, 0, CODES_LINEAR, SCALES_FLOAT, 0, -1, 4.6, 0)          \
    X(INT8, int8, 1026, 32, 36, 8, 128, 0, 0, 0, CODES_LINEAR, SCALES_FLOAT, 0, -1, 73.9, 0)       \
    X(INT4H, int4h, 1027, 32, 19, 4, 0, 1, 0, 0, CODES_LINEAR, SCALES_POINT, 0, -1, 4.6, 0)
#define WEIGHT_TYPES(X) FLOAT_TYPES(X) QUANT_TYPES(X)

/* Types of GGUF files whose codes are looked up, 32 weights at a time
 * (kernels/cpu/weights/lookup.c). No product is made of them: while a model is loaded they become
 * the type of the last column. That of INT8 has the same weights; floats are then kept as those of
 * folders are. X(TYPE, name, number, elements, bytes, KEPT) */
#define LOOKUP_TYPES(X)                                                                            \
    X(IQ2_XXS, iq2_xxs, 16, 256, 66, INT8)                                                         \
    X(IQ2_XS, iq2_xs, 17, 256, 74, F32)                                                            \
    X(IQ3_XXS, iq3_xxs, 18, 256, 98, INT8)                                                         \
    X(IQ1_S, iq1_s, 19, 256, 50, INT8)                                                             \
    X(IQ3_S, iq3_s, 21, 256, 110, INT8)                                                            \
    X(IQ2_S, iq2_s, 22, 256, 82, F32)                                                              \
    X(IQ1_M, iq1_m, 29, 256, 56, F32)                                                              \
    X(NVFP4, nvfp4, 40, 64, 36, F32)

/* What a code c stands for. */
enum codes {
    CODES_LINEAR, /* c - zero */
    CODES_NL4,    /* the 16 values of IQ4: finer about 0 */
    CODES_E2M1,   /* twice a float of 4 bits: 0, 1, 2, 3, 4, 6, 8, 12, and their negatives */
};

/* What scales are. */
enum scales {
    SCALES_HALF,
    SCALES_BRAIN, /* bfloat16, which has powers of two that halves lack */
    SCALES_FLOAT, /* float32; a minimum is minus the scale times a zero point, a byte */
    SCALES_POINT, /* halves, with the minima of SCALES_FLOAT */
};

enum dtype {
#define ENTRY(TYPE, name, number, ...) DTYPE_##TYPE = number,
    WEIGHT_TYPES(ENTRY) LOOKUP_TYPES(ENTRY)
#undef ENTRY
    /* only in a key-value cache; the second is no number of GGUF's */
    DTYPE_I16 = 25,
    DTYPE_E4M3 = 1024,
};

/* A type's name ("q4_1"), or NULL for a number that is no type of ours. */
const char *dtype_name(int dtype);

/* Elements in one block of a type (1, 32, 64 or 256), and bytes of that block; 0 for an unknown
 * number. */
int dtype_block_elements(int dtype);
int dtype_block_bytes(int dtype);

/* Bytes of `n` elements (a whole number of blocks) in a type. */
size_t dtype_bytes(enum dtype dtype, size_t n);

/* Turns n elements (a whole number of blocks) of GGUF data into float32. The reading of each format
 * is here and nowhere else; the layouts follow the GGUF specification. */
void dequantise(enum dtype dtype, const void *data, float *out, size_t n);

/* The type that rows of a type are multiplied as: its own, but of those that are looked up. */
enum dtype dtype_kept(enum dtype type);

/* Turns n elements (a whole number of blocks) of a type that is looked up into that type. */
void keep_blocks(enum dtype type, const void *data, void *out, size_t n);

/* Turns n floats (a whole number of blocks) into blocks of Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1, with the
 * bits of ggml's reference, or of Q4_K or Q6_K, by a search of our own. A block that holds an
 * infinity or a NaN becomes one of NaN. */
void quantise_blocks(enum dtype type, const float *x, void *out, size_t n);

/* What is done to float weights, on the calling thread. All CPU paths give the same bits. */
struct weight_ops {
    /* out = n numbers (a whole number of blocks) of F32, F16 or BF16 as quantise_blocks makes
     * blocks of them. */
    void (*quantise)(enum dtype to, void *out, enum dtype from, const void *rows, size_t n);
};

/* The functions of the path `name`, chosen as for backend_cpu_logit_ops. */
const struct weight_ops *backend_cpu_weight_ops(const char *name);

/* The first of n blocks of GGUF data whose scale or minimum is NaN or infinite; n where none is.
 * Such a block is damage, and would make NaN of whatever it is multiplied with. Of NVFP4 the format
 * reads every scale as a number, and float types have no blocks. */
size_t dtype_broken_block(enum dtype type, const void *data, size_t n);

/* IEEE half precision to float32 and back (round to nearest even), exact on every machine. */
float half_to_float(uint16_t half);
uint16_t float_to_half(float value);

/* ---- random weights ------------------------------------------------------------------------- */

/* How the rows of a matrix are made of nothing, the same on every device and thread: pieces of 8
 * weights, or in a type with blocks of 8 bytes, each from the seed and its number. */
struct random_weights {
    enum dtype type;
    uint64_t seed;
    int piece_bytes;
    float unit;           /* a float weight is -127..127 times this power of two */
    int block_bytes;      /* of a type with blocks: its bytes are random, but for */
    int scale_at, min_at; /* where a block has its scale and minimum; -1: none */
    int scale_bytes;      /* 2, or 1 where the scale is the exponent of a power of two */
    uint16_t scale, min;  /* which are these, in half precision or that exponent */
};

/* Plans rows of K weights of a type: they have such a size that products of activations of size 1
 * have about size 1. */
void random_weights_plan(struct random_weights *out, enum dtype type, int K, uint64_t seed);

/* Makes bytes from .. to of the matrix that begins at `data`; `from` is a multiple of
 * piece_bytes. */
void random_weights_fill(const struct random_weights *w, void *data, size_t from, size_t to);

#endif
