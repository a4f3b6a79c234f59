/* gguf: a model file in GGUF, version 2 or 3, little-endian: key-values and tensors, as the
 * specification in ggml's docs/gguf.md defines them.
 *
 * A `struct gguf` is the file mapped once, read-only, with a directory of both. Every count,
 * length, offset and number in it is checked when it is opened, so what the other functions return
 * can be read without further checks. Strings are counted bytes within the map, without a NUL.
 * Folder-internal; after opening, any thread may read.
 */
#ifndef PENSTOCK_ENGINE_GGUF_H
#define PENSTOCK_ENGINE_GGUF_H

#include "engine/files/mapping.h"
#include "engine/files/weights.h"

/* GGUF's numbers of value types. */
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

/* One key-value. */
struct gguf_value {
    const char *key; /* [key_length], printable ASCII */
    size_t key_length;
    enum gguf_type type;
    enum gguf_type element; /* of an array; otherwise the type itself */
    uint64_t count;         /* elements of an array; otherwise 1 */
    const uint8_t *data;    /* [bytes] the payload as the file has it, not aligned */
    size_t bytes;
};

struct gguf {
    const uint8_t *data;
    size_t size;         /* bytes of the file */
    struct mapping file; /* where `data` is, unless it is the caller's */
    uint32_t version;
    uint32_t alignment; /* of tensor data: a power of two */
    int n_values;
    struct gguf_value *value; /* [n_values] in the file's order */
    struct name_index index;
    struct weights weights; /* the tensors; their data lives as long as this struct */
    struct gguf **part;     /* [n_parts] files beyond the first, whose tensors are among these */
    int n_parts;
};

/* ---- opening -------------------------------------------------------------------------------- */

/* Maps the file at `path` and checks all of it but the tensors' data. Fails with STATUS_BAD_FILE
 * and a sentence that names the key or tensor and the place. gguf_close frees it. Of a model in
 * parts ("name-00001-of-00003.gguf") it is the first one's path, whose keys count, and the tensors
 * are those of all. */
enum status gguf_open(struct gguf **out, const char *path, struct err *err);

/* The path of part i, from 1 on, of as many as `first` is the first of; NULL where its name says
 * nothing of parts, or of fewer. The caller frees it. */
char *gguf_part_path(const char *first, int i);

/* The same over bytes in memory, which stay the caller's and must outlive the result. */
enum status gguf_open_memory(struct gguf **out, const void *data, size_t size, struct err *err);
void gguf_close(struct gguf *gguf);

/* Fails with STATUS_BAD_FILE if a file of the model was written to since it was opened. */
enum status gguf_check(const struct gguf *gguf, struct err *err);

/* ---- values by key -------------------------------------------------------------------------- */

/* A type's name as the specification spells it ("uint32"), or NULL for an unknown number. */
const char *gguf_type_name(uint32_t type);

/* The value of a key, or NULL. */
const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);

/* The getters fail with STATUS_BAD_FILE when the key is missing, or has another type (any width of
 * integer and of float will do), or a value out of [min, max]; the message names the key, what
 * was expected and what was found. The `_or` forms give `fallback` where the key is missing, and
 * fail as the others do where it is wrong. */
enum status gguf_int(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                     int64_t *out, struct err *err);
enum status gguf_int_or(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                        int64_t fallback, int64_t *out, struct err *err);
enum status gguf_float(const struct gguf *gguf, const char *key, double *out, struct err *err);
enum status gguf_float_or(const struct gguf *gguf, const char *key, double fallback, double *out,
                          struct err *err);
enum status gguf_bool_or(const struct gguf *gguf, const char *key, bool fallback, bool *out,
                         struct err *err);
/* *text points into the file; NULL, with length 0, is the fallback of gguf_string_or. */
enum status gguf_string(const struct gguf *gguf, const char *key, const char **text, size_t *length,
                        struct err *err);
enum status gguf_string_or(const struct gguf *gguf, const char *key, const char **text,
                           size_t *length, struct err *err);
/* An array whose elements have type `element`. */
enum status gguf_array(const struct gguf *gguf, const char *key, enum gguf_type element,
                       const struct gguf_value **out, struct err *err);

/* ---- inside a value ------------------------------------------------------------------------- */

/* The integer, or floating-point number, at `data` in the form of `type`, which must be one of
 * those. An unsigned 64-bit number above INT64_MAX is given as INT64_MAX. */
int64_t gguf_integer_at(enum gguf_type type, const uint8_t *data);
double gguf_number_at(enum gguf_type type, const uint8_t *data);
bool gguf_is_integer(enum gguf_type type);
bool gguf_is_float(enum gguf_type type);

/* Bytes of a type of fixed size; 0 for strings, arrays and unknown numbers. */
size_t gguf_type_bytes(uint32_t type);

/* Walks strings: *at points to one (a STRING value's data, or its element 0) and is moved to the
 * next. */
const char *gguf_next_string(const uint8_t **at, size_t *length);

#endif
