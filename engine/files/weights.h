/* weights: the tensors of a model by name, whatever format its files have.
 *
 * A reader (gguf.c, safetensors.c) adds each tensor that it has checked against the file's end; the
 * model asks for tensors by name, shape and type. The names that it asks by are those of GGUF; a
 * folder's tensors get them as second names (weights_rename), and messages keep the file's. The
 * data stays where the reader has it and lives as long as the reader. Folder-internal; one thread
 * fills it, then any thread may look.
 */
#ifndef PENSTOCK_ENGINE_WEIGHTS_H
#define PENSTOCK_ENGINE_WEIGHTS_H

#include "config/name_index.h"
#include "engine/files/mapping.h"
#include "kernels/kernels.h"

#define WEIGHT_MAX_DIMS 4
#define WEIGHT_MAX_NAME 127
#define WEIGHT_ANY_TYPE (-1)
#define WEIGHT_MAX_TYPE 63 /* no type that is supported has a higher number */

/* Types of tensors that are parts of a packed matrix, and of no other: numbers of no `enum
 * dtype`. */
enum { WEIGHT_RAW_I32 = 2001, WEIGHT_RAW_I64, WEIGHT_RAW_I8, WEIGHT_RAW_E4M3, WEIGHT_RAW_U8 };

/* How a quantised folder keeps the codes of a matrix [N][K]. Words are 32 bits, the first code in
 * the lowest bits:
 *   GPTQ   [K / 8][N] words of 8 inputs; zero points [groups][N / 8]
 *   AWQ    [K][N / 8] words of 8 outputs, in the order 0 2 4 6 1 3 5 7; zero points alike
 *   WORDS  [N][K / 8] words of 8 inputs; zero points [N / 8][groups], words of 8 outputs; with
 *          codes of 8 bits 4 in the place of 8
 *   BYTES  [N][K] signed
 *   E4M3   [N][K] floats of 8 bits
 *   MXFP4  [N][K / 32][16] bytes of 2 inputs, the first in the lower bits; scales [N][K / 32], a
 *          byte's power of two. N is the rows of all experts
 *   TABLE  [N][K / 2] bytes of 2 inputs; a code's number is table[code] */
enum packed_layout {
    PACKED_GPTQ,
    PACKED_AWQ,
    PACKED_WORDS,
    PACKED_BYTES,
    PACKED_E4M3,
    PACKED_MXFP4,
    PACKED_TABLE
};

/* A matrix of several tensors, all checked: weight [n][k] is
 *   scale[n / scale_rows * row_stride + group * group_stride] * (code - zero point).
 * A scale may be quantised itself: number i is scale_map[byte i] * scale_scale[i / scale_block] +
 * scale_offset; and the whole matrix may have one more. */
struct packed {
    enum packed_layout layout;
    int N, K, bits;
    int group, n_groups; /* inputs that share a scale, where `groups` does not say it */
    int zero_add;        /* what zero points are stored less of */
    const void *codes, *zeros, *scales; /* zeros NULL: the middle */
    const void *groups;                 /* [K] int32 the group of each input, or NULL */
    enum dtype scale_type;              /* E4M3 too */
    int scale_rows;
    size_t row_stride, group_stride;
    const void *table;       /* [16] floats, of TABLE */
    bool high_first;         /* of TABLE: the first input has the higher bits */
    float times, over;       /* what all scales are multiplied and divided by; 0: nothing */
    const void *scale_map;   /* [256] floats; NULL: scales are numbers */
    const void *scale_scale; /* floats */
    int scale_block;
    float scale_offset;
};

/* Scale i of those that `scales` has, without what the whole matrix has. */
float packed_scale(const struct packed *p, size_t i);

/* The type of the matrix's rows. Codes of 4 bits with a zero point, and signed bytes, are
 * multiplied as integers where 32 of them share a scale. What does not fit becomes floats. */
enum dtype packed_type(const struct packed *p);

/* The group of input k, and the zero point of an output's group. */
int32_t packed_group(const struct packed *p, int k);
int packed_zero(const struct packed *p, int n, int g);

/* One tensor. Dimensions are in GGUF's order: dim[0] is the length of a row (K, the inputs), dim[1]
 * the number of rows (N, the outputs); those beyond n_dims are 1. */
struct weight {
    char name[WEIGHT_MAX_NAME + 1]; /* NUL-terminated, printable ASCII */
    enum dtype type;
    int n_dims;                   /* 1..WEIGHT_MAX_DIMS */
    int64_t dim[WEIGHT_MAX_DIMS]; /* each 1..INT32_MAX */
    int64_t n_elements;           /* their product */
    const void *data;             /* [bytes], aligned as the file has it: read it with dequantise */
    size_t bytes;                 /* dtype_bytes(type, n_elements) */
    struct packed *packed;        /* owned: rows are made of several tensors; or NULL */
    bool in_16_bits;              /* of F32: products may see 16 bits of it */
    bool is_transposed;  /* data holds columns one after the other; of F32, F16 and BF16 alone */
    bool is_interleaved; /* rows of two matrices that take turns */
    bool adds_one;       /* a gain of which the model takes 1 more than the file has */
};

/* One mapped file, and the whole pages of it that tensors lie in. */
struct weight_pages {
    struct mapping file;
    void *begin;
    size_t bytes;
};

#define WEIGHT_MAX_RENAMED 63 /* bytes of a second name */

/* The rows of a packed matrix, in its type, made on all threads of the backend; mem_large of
 * weight->bytes, which the caller frees. */
void *packed_rows(struct backend *b, const struct weight *weight);

struct weights {
    int n, capacity;
    struct weight *tensor; /* [n] in the files' order */
    int n_pages;
    struct weight_pages *pages;              /* [n_pages] what can be released */
    char (*renamed)[WEIGHT_MAX_RENAMED + 1]; /* [n] NULL: tensors are found by their own names */
    struct name_index index;
};

/* Makes an empty directory with room for n tensors, n at most INT32_MAX. */
void weights_init(struct weights *weights, size_t n);
void weights_free(struct weights *weights);

/* Works out n_elements and bytes of a tensor from its type and dimensions. Fails with
 * STATUS_BAD_FILE for a type that is not supported (with those that are), a dimension or product
 * out of range, or rows that are not whole blocks. */
enum status weight_measure(struct weight *weight, struct err *err);

/* The same without a bound of the type's number: of types of ours. */
enum status weight_measure_type(struct weight *weight, struct err *err);

/* Adds a copy of a measured tensor. Fails with STATUS_BAD_FILE when its name is in use. */
enum status weights_add(struct weights *weights, const struct weight *weight, struct err *err);

/* Checks that no two tensors share bytes. Fails with STATUS_BAD_FILE and both names. */
enum status weights_check_apart(const struct weights *weights, struct err *err);

/* Notes that the data of the tensors from number `first` on lies in `file`, which stays mapped as
 * long as the tensors are read, and whose pages there can be released. */
void weights_mark_mapped(struct weights *weights, int first, const struct mapping *file);

/* From now on tensor i is found by names[i], and not at all if that is empty. The array becomes the
 * weights' own: of mem_alloc, [n]. Fails with STATUS_BAD_FILE where two have the same. */
enum status weights_rename(struct weights *weights, char (*names)[WEIGHT_MAX_RENAMED + 1],
                           struct err *err);

/* The name that tensor `number` is found by. */
const char *weights_name(const struct weights *weights, int number);

/* The tensor of that name, or NULL: for what a model may lack. */
const struct weight *weights_lookup(const struct weights *weights, const char *name);

/* Finds tensor `name` and checks that it has exactly the dimensions dim[n_dims] (in GGUF's order;
 * trailing 1s are ignored) and the type, unless that is WEIGHT_ANY_TYPE. Fails with
 * STATUS_BAD_FILE: the tensor, what was expected and what was found. */
enum status weights_find(const struct weights *weights, const char *name, int n_dims,
                         const int64_t *dim, int type, const struct weight **out, struct err *err);

/* The two shapes that models are made of: a matrix of N rows of K, of any type, and a vector of K
 * numbers in F32, F16 or BF16. */
enum status weights_matrix(const struct weights *weights, const char *name, int N, int K,
                           const struct weight **out, struct err *err);
enum status weights_vector(const struct weights *weights, const char *name, int K,
                           const struct weight **out, struct err *err);

/* Releases the resident pages of the tensors' data, once what was read of them has been copied into
 * another layout. Reading them again is correct, and costs as much as the first time. Data that is
 * not mapped stays. */
void weights_release_file_pages(const struct weights *weights);

/* Where bytes of a tensor lie in its file. */
struct file_place weights_place(const struct weights *weights, const void *data);

/* Has the system read a mapped tensor's pages that are not in memory, without waiting for them. */
void weight_read_ahead(const struct weight *weight);

/* Appends a shape as people write it: "[576 x 1536]". */
void weight_shape_text(struct buf *out, int n_dims, const int64_t *dim);

#endif
