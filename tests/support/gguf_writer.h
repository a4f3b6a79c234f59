/* gguf_writer: builds GGUF files for tests, valid and invalid ones. All zero is an empty writer of
 * version 3 with the default alignment of 32. It checks nothing, so that tests can write wrong
 * files. */
#ifndef PENSTOCK_TESTS_GGUF_WRITER_H
#define PENSTOCK_TESTS_GGUF_WRITER_H

#include "engine/files/tensors/gguf.h"

struct gguf_writer {
    struct buf keys, tensors, data; /* the three parts of the file */
    uint64_t n_keys, n_tensors;     /* values for the header */
    uint32_t version;               /* 0: 3 */
    uint32_t alignment;             /* 0: 32; other values do not write the key general.alignment */
};

/* Adds a key-value of any type, with its payload as in the file. */
void gguf_writer_value(struct gguf_writer *writer, const char *key, uint32_t type,
                       const void *payload, size_t bytes);
void gguf_writer_u32(struct gguf_writer *writer, const char *key, uint32_t value);
void gguf_writer_f32(struct gguf_writer *writer, const char *key, float value);
void gguf_writer_bool(struct gguf_writer *writer, const char *key, bool value);
void gguf_writer_string(struct gguf_writer *writer, const char *key, const char *text);

/* Adds an array of numbers, with its payload as in the file. */
void gguf_writer_array(struct gguf_writer *writer, const char *key, uint32_t element,
                       uint64_t count, const void *payload, size_t bytes);
/* Adds an array of n strings. If lengths is NULL, they end at their NUL. */
void gguf_writer_strings(struct gguf_writer *writer, const char *key, const char *const *texts,
                         const uint32_t *lengths, uint64_t n);

/* Adds a tensor with its data, at the next aligned offset. */
void gguf_writer_tensor(struct gguf_writer *writer, const char *name, enum dtype type, int n_dims,
                        const int64_t *dim, const void *data, size_t bytes);
/* Adds only the entry of a tensor, with any type number and offset. */
void gguf_writer_entry(struct gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims,
                       const int64_t *dim, uint64_t offset);

/* Appends the file to `out`. The writer is unchanged. */
void gguf_writer_finish(const struct gguf_writer *writer, struct buf *out);
void gguf_writer_free(struct gguf_writer *writer);

/* Writes bytes to a file. If that fails, ends the test program with a message. */
void write_file(const char *path, const void *data, size_t size);

#endif
