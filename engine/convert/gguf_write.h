/* gguf_write: writes the part of a GGUF file before the tensors' data. Folder-internal. */
#ifndef PENSTOCK_ENGINE_GGUF_WRITE_H
#define PENSTOCK_ENGINE_GGUF_WRITE_H

#include "engine/files/model_file.h"

/* Key-values in the file's format. All zero: empty. Free the text with buf_free. */
struct gguf_keys {
    struct buf text;
    uint64_t n;
};

/* Each appends a key with its value. Integers are unsigned 32-bit, floats are float32. */
void gguf_put_int(struct gguf_keys *keys, const char *key, uint32_t value);
void gguf_put_float(struct gguf_keys *keys, const char *key, float value);
void gguf_put_bool(struct gguf_keys *keys, const char *key, bool value);
void gguf_put_string(struct gguf_keys *keys, const char *key, const char *text, size_t length);
/* An array of n texts. */
void gguf_put_strings(struct gguf_keys *keys, const char *key, size_t n, const char *const *text,
                      const uint32_t *length);
/* An array of n elements of a type of fixed size, copied unchanged. */
void gguf_put_array(struct gguf_keys *keys, const char *key, enum gguf_type element, size_t n,
                    const void *data);
/* A value copied from another file. */
void gguf_put_value(struct gguf_keys *keys, const struct gguf_value *value);

/* A tensor of the directory. */
struct gguf_tensor {
    const char *name;
    enum dtype type;
    int n_dims;
    const int64_t *dim; /* [n_dims] in GGUF's order */
};

/* Appends the head: the keys, and the directory of tensors in their order. Returns the bytes of the
 * data that must follow, with each tensor padded to a multiple of `alignment`. */
int64_t gguf_write_head(struct buf *out, const struct gguf_keys *keys,
                        const struct gguf_tensor *tensor, int n, uint32_t alignment);

#endif
