#include "engine/quantise/gguf_write.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a file without a name ------------------------------------------------------------------ */

static enum status refuse(const struct part_file *file, const char *what, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, "output", "%s cannot be %s: %s", file->path, what,
                   strerror(errno));
}

/* A file of the path's folder that has no name; below 0 where there can be none. */
static int open_unnamed(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = mem_alloc(strlen(path) + 2);
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    memcpy(folder, path, length);
    memcpy(folder + length, ".", 2);
    int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    free(folder);
    return fd;
}

enum status part_file_open(struct part_file *file, const char *path, struct err *err) {
    *file = (struct part_file){.path = path};
    if (access(path, F_OK) == 0)
        return err_set(err, STATUS_USAGE, "output",
                       "%s is there already; remove it, or give another name", path);
    file->fd = open_unnamed(path);
    if (file->fd >= 0) return STATUS_OK;
    file->part = mem_alloc(strlen(path) + sizeof ".part");
    memcpy(file->part, path, strlen(path));
    memcpy(file->part + strlen(path), ".part", sizeof ".part");
    file->fd = open(file->part, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (file->fd >= 0) return STATUS_OK;
    free(file->part);
    return refuse(file, "made", err);
}

enum status part_file_write(struct part_file *file, const void *data, size_t bytes,
                            struct err *err) {
    const char *at = data;
    for (size_t left = bytes; left > 0;) {
        ssize_t n = write(file->fd, at, left);
        if (n < 0 && errno != EINTR) return refuse(file, "written", err);
        if (n > 0) at += n, left -= (size_t)n;
    }
    file->bytes += (int64_t)bytes;
    return STATUS_OK;
}

enum status part_file_pad(struct part_file *file, size_t alignment, struct err *err) {
    static const char zeros[4096];
    size_t left = -(size_t)file->bytes % alignment;
    enum status status = STATUS_OK;
    for (; left > 0 && !status; left -= left < sizeof zeros ? left : sizeof zeros)
        status = part_file_write(file, zeros, left < sizeof zeros ? left : sizeof zeros, err);
    return status;
}

/* Both calls fail where the name has come into being meanwhile. */
static int give_name(const struct part_file *file) {
    char link_path[64];
    if (file->part) return link(file->part, file->path);
    snprintf(link_path, sizeof link_path, "/proc/self/fd/%d", file->fd);
    return linkat(AT_FDCWD, link_path, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW);
}

enum status part_file_close(struct part_file *file, bool is_whole, struct err *err) {
    enum status status = STATUS_OK;
    if (is_whole && (fsync(file->fd) != 0 || give_name(file) != 0))
        status = refuse(file, "written", err);
    close(file->fd);
    if (file->part) unlink(file->part);
    free(file->part);
    return status;
}

/* ---- the head ------------------------------------------------------------------------------- */

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

static void put_number(struct buf *out, const char *key, uint32_t value) {
    put_text(out, key, strlen(key));
    put_u32(out, GGUF_UINT32);
    put_u32(out, value);
}

static void put_value(struct buf *out, const struct gguf_value *value) {
    put_text(out, value->key, value->key_length);
    put_u32(out, value->type);
    if (value->type == GGUF_ARRAY) {
        put_u32(out, value->element);
        put_u64(out, value->count);
    }
    buf_add(out, value->data, value->bytes);
}

static bool is_key(const struct gguf_value *value, const char *key) {
    return value->key_length == strlen(key) && memcmp(value->key, key, value->key_length) == 0;
}

static void put_tensors(struct buf *out, const struct gguf *gguf, const enum dtype *type) {
    uint64_t offset = 0;
    for (int i = 0; i < gguf->weights.n; i++) {
        const struct weight *weight = &gguf->weights.tensor[i];
        put_text(out, weight->name, strlen(weight->name));
        put_u32(out, (uint32_t)weight->n_dims);
        for (int d = 0; d < weight->n_dims; d++) put_u64(out, (uint64_t)weight->dim[d]);
        put_u32(out, (uint32_t)type[i]);
        put_u64(out, offset);
        offset += dtype_bytes(type[i], (size_t)weight->n_elements);
        offset += -offset % gguf->alignment;
    }
}

void gguf_write_head(struct buf *out, const struct gguf *gguf, const enum dtype *type,
                     uint32_t file_type) {
    static const char file_key[] = "general.file_type", key[] = "general.quantization_version";
    enum { VERSION = 3, BLOCKS_VERSION = 2 };
    uint64_t n = (uint64_t)gguf->n_values;
    n += !gguf_find(gguf, file_key);
    n += !gguf_find(gguf, key);
    buf_add(out, "GGUF", 4);
    put_u32(out, VERSION);
    put_u64(out, (uint64_t)gguf->weights.n);
    put_u64(out, n);
    for (int i = 0; i < gguf->n_values; i++)
        if (!is_key(&gguf->value[i], file_key) && !is_key(&gguf->value[i], key))
            put_value(out, &gguf->value[i]);
    put_number(out, file_key, file_type);
    put_number(out, key, BLOCKS_VERSION);
    put_tensors(out, gguf, type);
}
