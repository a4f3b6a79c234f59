#include "engine/convert/gguf_write.h"

#include <assert.h>
#include <string.h>

static void put_u32(struct buf *out, uint32_t value) {
    buf_add(out, &value, sizeof value);
}

static void put_u64(struct buf *out, uint64_t value) {
    buf_add(out, &value, sizeof value);
}

static void put_text(struct buf *out, const char *text, size_t length) {
    put_u64(out, length);
    buf_add(out, text, length);
}

/* ---- keys ----------------------------------------------------------------------------------- */

static struct buf *begin_key(struct gguf_keys *keys, const char *key, enum gguf_type type) {
    keys->n++;
    put_text(&keys->text, key, strlen(key));
    put_u32(&keys->text, type);
    return &keys->text;
}

void gguf_put_int(struct gguf_keys *keys, const char *key, uint32_t value) {
    put_u32(begin_key(keys, key, GGUF_UINT32), value);
}

void gguf_put_float(struct gguf_keys *keys, const char *key, float value) {
    buf_add(begin_key(keys, key, GGUF_FLOAT32), &value, sizeof value);
}

void gguf_put_bool(struct gguf_keys *keys, const char *key, bool value) {
    uint8_t byte = value;
    buf_add(begin_key(keys, key, GGUF_BOOL), &byte, 1);
}

void gguf_put_string(struct gguf_keys *keys, const char *key, const char *text, size_t length) {
    put_text(begin_key(keys, key, GGUF_STRING), text, length);
}

static struct buf *begin_array(struct gguf_keys *keys, const char *key, enum gguf_type element,
                               size_t n) {
    struct buf *out = begin_key(keys, key, GGUF_ARRAY);
    put_u32(out, element);
    put_u64(out, n);
    return out;
}

void gguf_put_strings(struct gguf_keys *keys, const char *key, size_t n, const char *const *text,
                      const uint32_t *length) {
    struct buf *out = begin_array(keys, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) put_text(out, text[i], length[i]);
}

void gguf_put_array(struct gguf_keys *keys, const char *key, enum gguf_type element, size_t n,
                    const void *data) {
    assert(gguf_type_bytes(element) > 0);
    buf_add(begin_array(keys, key, element, n), data, n * gguf_type_bytes(element));
}

void gguf_put_value(struct gguf_keys *keys, const struct gguf_value *value) {
    struct buf *out = &keys->text;
    keys->n++;
    put_text(out, value->key, value->key_length);
    put_u32(out, value->type);
    if (value->type == GGUF_ARRAY) {
        put_u32(out, value->element);
        put_u64(out, value->count);
    }
    buf_add(out, value->data, value->bytes);
}

/* ---- the head ------------------------------------------------------------------------------- */

int64_t gguf_write_head(struct buf *out, const struct gguf_keys *keys,
                        const struct gguf_tensor *tensor, int n, uint32_t alignment) {
    enum { VERSION = 3 };
    uint64_t offset = 0;
    buf_add(out, "GGUF", 4);
    put_u32(out, VERSION);
    put_u64(out, (uint64_t)n);
    put_u64(out, keys->n);
    buf_add(out, keys->text.data, keys->text.length);
    for (int i = 0; i < n; i++, offset += -offset % alignment) {
        uint64_t elements = 1;
        put_text(out, tensor[i].name, strlen(tensor[i].name));
        put_u32(out, (uint32_t)tensor[i].n_dims);
        for (int d = 0; d < tensor[i].n_dims; d++) {
            put_u64(out, (uint64_t)tensor[i].dim[d]);
            elements *= (uint64_t)tensor[i].dim[d];
        }
        put_u32(out, (uint32_t)tensor[i].type);
        put_u64(out, offset);
        offset += dtype_bytes(tensor[i].type, elements);
    }
    return (int64_t)offset;
}
