/* gguf: a model file in GGUF, version 2 or 3, little-endian: key-values and tensors. The
 * specification is ggml's docs/gguf.md.
 *
 * A `struct gguf` is the file, mapped once and read-only, with a directory of its key-values and
 * tensors. Opening checks every count, length, offset and number, so callers may read the results
 * of the other functions without further checks. Strings are counted bytes in the map, without a
 * NUL. After opening, any thread may read.
 */
#ifndef PENSTOCK_ENGINE_GGUF_H
#define PENSTOCK_ENGINE_GGUF_H

#include "engine/files/tensors/mapping.h"
#include "engine/files/tensors/weights.h"

/* GGUF's numbers for value types. */
enum gguf_type {
    GGUF_UINT8 = 0,
    GGUF_INT8 = 1,
    GGUF_UINT16 = 2,
    GGUF_INT16 = 3,
    GGUF_UINT32 = 4,
    GGUF_INT32 = 5,
    GGUF_FLOAT32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_UINT64 = 10,
    GGUF_INT64 = 11,
    GGUF_FLOAT64 = 12,
};

struct gguf_value {
    const char *key; /* [key_length], printable ASCII */
    size_t key_length;
    enum gguf_type type;
    enum gguf_type element; /* of the elements of an array; otherwise equal to `type` */
    uint64_t count;         /* number of elements of an array; otherwise 1 */
    const uint8_t *data;    /* [bytes] the payload in the file's byte order, not aligned */
    size_t bytes;
};

struct gguf {
    const uint8_t *data;
    size_t size;         /* bytes of the file */
    struct mapping file; /* the map that holds `data`; empty if the caller owns the bytes */
    uint32_t version;
    uint32_t alignment; /* of tensor data, in bytes: a power of two */
    int n_values;
    struct gguf_value *value; /* [n_values] in the file's order */
    struct name_index index;
    struct weights weights; /* the tensors; their data is valid until gguf_close */
    struct gguf **part; /* [n_parts] the files after the first; `weights` lists their tensors too */
    int n_parts;
};

/* ---- opening -------------------------------------------------------------------------------- */

/* Maps the file at `path` and checks everything except the tensors' data. Fails with
 * STATUS_BAD_FILE and a sentence that names the key or tensor and the place. gguf_close frees it.
 * For a model in parts ("name-00001-of-00003.gguf"), `path` is the first part: its keys count, and
 * the tensors are those of all parts. */
enum status gguf_open(struct gguf **out, const char *path, struct err *err);

/* Returns the path of part i, counted from 1, of the model whose first part is `first`. Returns
 * NULL if the name of `first` does not end like a first part, or if i is above the number of parts.
 * The caller frees it. */
char *gguf_part_path(const char *first, int i);

/* Opens a file whose bytes are in memory. The caller owns the bytes; they must outlive the
 * result. */
enum status gguf_open_memory(struct gguf **out, const void *data, size_t size, struct err *err);
void gguf_close(struct gguf *gguf);

/* Fails with STATUS_BAD_FILE if a file of the model was written to after it was opened. */
enum status gguf_check(const struct gguf *gguf, struct err *err);

/* ---- values by key -------------------------------------------------------------------------- */

/* Returns a type's name in the specification's spelling ("uint32"), or NULL for an unknown
 * number. */
const char *gguf_type_name(uint32_t type);

/* Returns the value of a key, or NULL. */
const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);

/* The getters fail with STATUS_BAD_FILE if the key is missing, has another type (integers and
 * floats may have any width), or has a value outside [min, max]. The message names the key, the
 * expected and the found value. The `_or` forms return `fallback` if the key is missing, and fail
 * like the others if it is wrong. */
enum status gguf_int(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                     int64_t *out, struct err *err);
enum status gguf_int_or(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                        int64_t fallback, int64_t *out, struct err *err);
enum status gguf_float(const struct gguf *gguf, const char *key, double *out, struct err *err);
enum status gguf_float_or(const struct gguf *gguf, const char *key, double fallback, double *out,
                          struct err *err);
enum status gguf_bool_or(const struct gguf *gguf, const char *key, bool fallback, bool *out,
                         struct err *err);
/* Reads n numbers: an array of them, or one number that stands for all. */
enum status gguf_floats(const struct gguf *gguf, const char *key, int n, float *out,
                        struct err *err);

/* *text points into the file. The fallback of gguf_string_or is NULL with length 0. */
enum status gguf_string(const struct gguf *gguf, const char *key, const char **text, size_t *length,
                        struct err *err);
enum status gguf_string_or(const struct gguf *gguf, const char *key, const char **text,
                           size_t *length, struct err *err);
/* Finds an array whose elements have type `element`. */
enum status gguf_array(const struct gguf *gguf, const char *key, enum gguf_type element,
                       const struct gguf_value **out, struct err *err);

/* ---- inside a value ------------------------------------------------------------------------- */

/* Returns the integer, or the floating-point number, at `data`. `type` must be an integer type, or
 * a floating-point type. An unsigned 64-bit number above INT64_MAX becomes INT64_MAX. */
int64_t gguf_integer_at(enum gguf_type type, const uint8_t *data);
double gguf_number_at(enum gguf_type type, const uint8_t *data);
bool gguf_is_integer(enum gguf_type type);
bool gguf_is_float(enum gguf_type type);

/* Returns the bytes of a type of fixed size; 0 for strings, arrays and unknown numbers. */
size_t gguf_type_bytes(uint32_t type);

/* Returns the string at *at and moves *at to the next one. At the start, *at is the data of a
 * STRING value or of an array of strings. */
const char *gguf_next_string(const uint8_t **at, size_t *length);

#endif
