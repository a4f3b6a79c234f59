/* weights: the tensors of a model by name, for every file format.
 *
 * A reader (gguf.c, safetensors.c) adds each tensor after it has checked the tensor against the
 * file's end. The model finds tensors by name, shape and type. It uses GGUF's names; a folder's
 * tensors get them as second names (weights_rename), and messages show the names in the file. The
 * data stays in the reader's memory and is valid until the reader closes. One
 * thread fills it, then any thread may read.
 */
#ifndef PENSTOCK_ENGINE_WEIGHTS_H
#define PENSTOCK_ENGINE_WEIGHTS_H

#include "config/name_index.h"
#include "engine/files/tensors/mapping.h"
#include "kernels/memory.h"

struct backend;

#define WEIGHT_MAX_DIMS 5 /* convolutions over images and time have 5 */
#define WEIGHT_MAX_NAME 127
#define WEIGHT_ANY_TYPE (-1)
#define WEIGHT_MAX_TYPE 63 /* the largest supported type number */

/* Types of tensors that are parts of packed matrices. The numbers are outside `enum dtype`. */
enum {
    WEIGHT_RAW_I32 = 2001,
    WEIGHT_RAW_I64,
    WEIGHT_RAW_I8,
    WEIGHT_RAW_E4M3,
    WEIGHT_RAW_U8,
    WEIGHT_RAW_E8M0, /* exponents of powers of two, plus 127 */
};

/* How a quantised folder stores the codes of a matrix [N][K]. Words have 32 bits, the first code in
 * the lowest bits:
 *   GPTQ   [K / 8][N] words of 8 inputs; zero points [groups][N / 8]
 *   AWQ    [K][N / 8] words of 8 outputs, in the order 0 2 4 6 1 3 5 7; zero points in that order
 *   WORDS  [N][K / 8] words of 8 inputs; zero points [N / 8][groups], words of 8 outputs. With
 *          codes of 8 bits, a word has 4 of them
 *   BYTES  [N][K] signed
 *   E4M3   [N][K] floats of 8 bits
 *   MXFP4  [N][K / 32][16] bytes of 2 inputs, the first in the lower bits; scales [N][K / 32], a
 *          power of two whose exponent is a byte. N counts the rows of all experts
 *   TABLE  [N][K / 2] bytes of 2 inputs; the value of a code is table[code] */
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
 * Scales may be quantised: scale i is then scale_map[byte i] * scale_scale[i / scale_block] +
 * scale_offset. The whole matrix may have an additional scale. */
struct packed {
    enum packed_layout layout;
    int N, K, bits;
    int group, n_groups;                /* inputs per scale, if `groups` is NULL */
    int zero_add;                       /* added to each stored zero point */
    const void *codes, *zeros, *scales; /* zeros NULL: the middle of the code range */
    const void *groups;                 /* [K] int32, the group of each input, or NULL */
    enum dtype scale_type;              /* may be E4M3 or WEIGHT_RAW_E8M0 */
    int scale_rows;
    size_t row_stride, group_stride;
    const void *table;       /* [16] floats, for TABLE */
    bool high_first;         /* for TABLE: the first input is in the higher bits */
    float times, over;       /* factor and divisor of all scales; 0: unused */
    const void *scale_map;   /* [256] floats; NULL: scales are not quantised */
    const void *scale_scale; /* floats */
    int scale_block;
    float scale_offset;
};

/* Returns scale i of `scales`, without the scale of the whole matrix. */
float packed_scale(const struct packed *p, size_t i);

/* Returns the type of the matrix's rows. Codes of 4 bits and signed bytes are multiplied as
 * integers if each block of 32 inputs shares a scale. All others become floats. */
enum dtype packed_type(const struct packed *p);

/* Return the group of input k, and the zero point of output n in group g. */
int32_t packed_group(const struct packed *p, int k);
int packed_zero(const struct packed *p, int n, int g);

enum { WEIGHT_MAX_PARTS = 4 };

/* One tensor. Dimensions are in GGUF's order: dim[0] is the length of a row (K, the inputs), dim[1]
 * the number of rows (N, the outputs). Dimensions from n_dims on are 1. */
struct weight {
    char name[WEIGHT_MAX_NAME + 1]; /* NUL-terminated, printable ASCII */
    enum dtype type;
    int n_dims;                   /* 1..WEIGHT_MAX_DIMS */
    int64_t dim[WEIGHT_MAX_DIMS]; /* each 1..INT32_MAX */
    int64_t n_elements;           /* their product */
    const void *data;             /* [bytes], with the file's alignment: read it with dequantise */
    size_t bytes;                 /* dtype_bytes(type, n_elements) */
    struct packed *packed;        /* owned description of a matrix of several tensors, or NULL */
    bool in_16_bits;              /* for F32: products may round it to 16 bits */
    bool is_transposed;  /* data holds columns one after the other; only for F32, F16 and BF16 */
    bool is_interleaved; /* rows of two matrices alternate */
    /* rows of several parts, for example of queries, keys and values, are in this number of groups,
     * each with group_rows[i] rows of part i. 0: all rows of the first part come first */
    int groups, group_rows[WEIGHT_MAX_PARTS];
    bool adds_one; /* a gain: the model uses the file's value plus 1 */
    bool is_log;   /* the model uses -exp of the file's value */
};

/* Returns the row in the file of row `row` of queries, then keys, then values. */
int64_t weight_ungrouped_row(const struct weight *weight, int64_t row);

/* Returns a copy of a weight with groups, unpacked and in the order without groups. The caller
 * frees its data: mem_large of its bytes. */
struct weight weight_ungrouped(struct backend *b, const struct weight *weight);

/* One mapped file, and the whole pages of it that hold tensors. */
struct weight_pages {
    struct mapping file;
    void *begin;
    size_t bytes;
};

#define WEIGHT_MAX_RENAMED 63 /* bytes of a second name */

/* Unpacks the rows of a packed matrix, in its type, on all threads of the backend. Returns
 * weight->bytes bytes from mem_large, which the caller frees. */
void *packed_rows(struct backend *b, const struct weight *weight);

struct weights {
    int n, capacity;
    struct weight *tensor; /* [n] in the files' order */
    int n_pages;
    struct weight_pages *pages; /* [n_pages] pages that can be released */
    /* [n] second names; NULL: tensors are found by the file's names */
    char (*renamed)[WEIGHT_MAX_RENAMED + 1];
    struct name_index index;
};

/* Makes an empty directory with capacity for n tensors, n at most INT32_MAX. */
void weights_init(struct weights *weights, size_t n);
void weights_free(struct weights *weights);

/* Computes n_elements and bytes of a tensor from its type and dimensions. Fails with
 * STATUS_BAD_FILE if the type is not supported (the message lists those that are), a dimension or
 * product is out of range, or rows are not whole blocks. */
enum status weight_measure(struct weight *weight, struct err *err);

/* Does the same for any type number, so also for types that no file has. */
enum status weight_measure_type(struct weight *weight, struct err *err);

/* Adds a copy of a measured tensor. Fails with STATUS_BAD_FILE if its name is in use. */
enum status weights_add(struct weights *weights, const struct weight *weight, struct err *err);

/* Checks that no two tensors share bytes. Fails with STATUS_BAD_FILE and both names. */
enum status weights_check_apart(const struct weights *weights, struct err *err);

/* Records that the data of the tensors from index `first` on is in `file`. The file must stay
 * mapped while the tensors are read; its pages can be released. */
void weights_mark_mapped(struct weights *weights, int first, const struct mapping *file);

/* Renames the tensors: tensor i is then found by names[i], or never if names[i] is empty. The
 * weights become the owner of the array [n] from mem_alloc. Fails with STATUS_BAD_FILE if two names
 * are equal. */
enum status weights_rename(struct weights *weights, char (*names)[WEIGHT_MAX_RENAMED + 1],
                           struct err *err);

/* Returns the name by which tensor `number` is found. */
const char *weights_name(const struct weights *weights, int number);

/* Returns the tensor with that name, or NULL: for optional tensors. */
const struct weight *weights_lookup(const struct weights *weights, const char *name);

/* Finds tensor `name` and checks that it has exactly the dimensions dim[n_dims] (in GGUF's order;
 * trailing 1s are ignored) and the type, unless that is WEIGHT_ANY_TYPE. Fails with
 * STATUS_BAD_FILE; the message names the tensor, the expected and the found value. */
enum status weights_find(const struct weights *weights, const char *name, int n_dims,
                         const int64_t *dim, int type, const struct weight **out, struct err *err);

/* Find a tensor of one of the two usual shapes: a matrix of N rows of K, of any type, or a vector
 * of K numbers in F32, F16 or BF16. */
enum status weights_matrix(const struct weights *weights, const char *name, int N, int K,
                           const struct weight **out, struct err *err);
enum status weights_vector(const struct weights *weights, const char *name, int K,
                           const struct weight **out, struct err *err);

/* Releases the resident pages of the tensors' data. Call it after the data has been copied into
 * another layout. Reading the pages again is correct, and costs as much as the first time. Data
 * that is not mapped stays. */
void weights_release_file_pages(const struct weights *weights);

/* Returns the place in its file of a tensor's bytes. */
struct file_place weights_place(const struct weights *weights, const void *data);

/* Asks the system to read the pages of a mapped tensor that are not in memory, without waiting. */
void weight_read_ahead(const struct weight *weight);

/* Appends a shape in the usual notation: "[576 x 1536]". */
void weight_shape_text(struct buf *out, int n_dims, const int64_t *dim);

#endif
