#include "support/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_string(struct buf *out, const char *text, uint64_t length) {
    buf_add(out, &length, sizeof length);
    buf_add(out, text, length);
}

static void begin_key(struct gguf_writer *writer, const char *key, uint32_t type) {
    add_string(&writer->keys, key, strlen(key));
    buf_add(&writer->keys, &type, sizeof type);
    writer->n_keys++;
}

void gguf_writer_value(struct gguf_writer *writer, const char *key, uint32_t type,
                       const void *payload, size_t bytes) {
    begin_key(writer, key, type);
    buf_add(&writer->keys, payload, bytes);
}

void gguf_writer_u32(struct gguf_writer *writer, const char *key, uint32_t value) {
    gguf_writer_value(writer, key, GGUF_UINT32, &value, sizeof value);
}

void gguf_writer_f32(struct gguf_writer *writer, const char *key, float value) {
    gguf_writer_value(writer, key, GGUF_FLOAT32, &value, sizeof value);
}

void gguf_writer_bool(struct gguf_writer *writer, const char *key, bool value) {
    uint8_t byte = value;
    gguf_writer_value(writer, key, GGUF_BOOL, &byte, 1);
}

void gguf_writer_string(struct gguf_writer *writer, const char *key, const char *text) {
    begin_key(writer, key, GGUF_STRING);
    add_string(&writer->keys, text, strlen(text));
}

static void begin_array(struct gguf_writer *writer, const char *key, uint32_t element,
                        uint64_t count) {
    begin_key(writer, key, GGUF_ARRAY);
    buf_add(&writer->keys, &element, sizeof element);
    buf_add(&writer->keys, &count, sizeof count);
}

void gguf_writer_array(struct gguf_writer *writer, const char *key, uint32_t element,
                       uint64_t count, const void *payload, size_t bytes) {
    begin_array(writer, key, element, count);
    buf_add(&writer->keys, payload, bytes);
}

void gguf_writer_strings(struct gguf_writer *writer, const char *key, const char *const *texts,
                         const uint32_t *lengths, uint64_t n) {
    begin_array(writer, key, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        add_string(&writer->keys, texts[i], lengths ? lengths[i] : strlen(texts[i]));
}

void gguf_writer_entry(struct gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims,
                       const int64_t *dim, uint64_t offset) {
    add_string(&writer->tensors, name, strlen(name));
    buf_add(&writer->tensors, &n_dims, sizeof n_dims);
    buf_add(&writer->tensors, dim, n_dims * sizeof *dim);
    buf_add(&writer->tensors, &type, sizeof type);
    buf_add(&writer->tensors, &offset, sizeof offset);
    writer->n_tensors++;
}

static void pad(struct buf *out, uint32_t alignment) {
    while (out->length % alignment) buf_add(out, "", 1);
}

static uint32_t alignment_of(const struct gguf_writer *writer) {
    return writer->alignment ? writer->alignment : 32;
}

void gguf_writer_tensor(struct gguf_writer *writer, const char *name, enum dtype type, int n_dims,
                        const int64_t *dim, const void *data, size_t bytes) {
    pad(&writer->data, alignment_of(writer));
    gguf_writer_entry(writer, name, type, (uint32_t)n_dims, dim, writer->data.length);
    buf_add(&writer->data, data, bytes);
}

void gguf_writer_finish(const struct gguf_writer *writer, struct buf *out) {
    uint32_t version = writer->version ? writer->version : 3;
    struct buf file = {0};
    buf_add(&file, "GGUF", 4);
    buf_add(&file, &version, sizeof version);
    buf_add(&file, &writer->n_tensors, sizeof writer->n_tensors);
    buf_add(&file, &writer->n_keys, sizeof writer->n_keys);
    buf_add(&file, writer->keys.data, writer->keys.length);
    buf_add(&file, writer->tensors.data, writer->tensors.length);
    pad(&file, alignment_of(writer));
    buf_add(&file, writer->data.data, writer->data.length);
    buf_add(out, file.data, file.length);
    buf_free(&file);
}

void gguf_writer_free(struct gguf_writer *writer) {
    buf_free(&writer->keys);
    buf_free(&writer->tensors);
    buf_free(&writer->data);
    *writer = (struct gguf_writer){0};
}

void write_file(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}
