#include "engine/gguf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the reader takes numbers from the file as they stand, which needs a little-endian machine"
#endif

#define MAX_NESTING 4     /* arrays within arrays */
#define MAX_ENTRIES 65536 /* keys or tensors: bounds what names that collide can cost */
#define MAX_ALIGNMENT (1 << 20)
#define LEAST_VALUE 14 /* bytes of the shortest key-value: length, one letter, type, a byte */
#define LEAST_TENSOR                                                                               \
    33 /* bytes of the shortest tensor entry: length, one letter, n, one dim, type, offset */

/* ---- reading forwards ----------------------------------------------------------------------- */

/* Where reading stands. */
struct cursor {
    const uint8_t *begin, *at, *end;
};

static size_t left(const struct cursor *cursor) {
    return (size_t)(cursor->end - cursor->at);
}

static bool take(struct cursor *cursor, void *out, size_t bytes) {
    if (left(cursor) < bytes) return false;
    memcpy(out, cursor->at, bytes);
    cursor->at += bytes;
    return true;
}

static bool take_string(struct cursor *cursor, const char **text, size_t *length) {
    uint64_t n;
    if (!take(cursor, &n, sizeof n) || n > left(cursor)) return false;
    *text = (const char *)cursor->at;
    *length = (size_t)n;
    cursor->at += n;
    return true;
}

static enum status cut_short(const struct cursor *cursor, const char *what, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, NULL,
                   "the file ends, or is forged, within %s, at byte %td of %td", what,
                   cursor->at - cursor->begin, cursor->end - cursor->begin);
}

/* Names go into messages and terminals as they are, so they must be letters that do no harm
 * there. */
static bool printable(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (text[i] <= ' ' || text[i] > '~') return false;
    }
    return length > 0;
}

/* ---- key-values ----------------------------------------------------------------------------- */

static const char *skip_elements(struct cursor *cursor, uint32_t type, uint64_t count, int depth);

static const char *skip_strings(struct cursor *cursor, uint64_t count) {
    const char *text;
    size_t length;
    for (uint64_t i = 0; i < count; i++) {
        if (!take_string(cursor, &text, &length)) return "a string goes past the file's end";
    }
    return NULL;
}

static const char *skip_array(struct cursor *cursor, int depth) {
    uint32_t type;
    uint64_t count;
    if (depth >= MAX_NESTING) return "arrays are nested too deeply";
    if (!take(cursor, &type, sizeof type) || !take(cursor, &count, sizeof count))
        return "the file ends within an array";
    return skip_elements(cursor, type, count, depth + 1);
}

static const char *skip_bools(struct cursor *cursor, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        if (cursor->at[i] > 1) return "a bool is neither 0 nor 1";
    }
    cursor->at += count;
    return NULL;
}

/* Moves behind `count` elements of a type, checking them. Returns NULL, or why they cannot be
 * right. */
static const char *skip_elements(struct cursor *cursor, uint32_t type, uint64_t count, int depth) {
    size_t least = type == GGUF_STRING ? 8 : type == GGUF_ARRAY ? 12 : gguf_type_bytes(type);
    if (least == 0) return "its type number is unknown";
    if (count > left(cursor) / least) return "it goes past the file's end";
    if (type == GGUF_STRING) return skip_strings(cursor, count);
    if (type == GGUF_BOOL) return skip_bools(cursor, count);
    if (type != GGUF_ARRAY) {
        cursor->at += count * least;
        return NULL;
    }
    const char *cause = NULL;
    for (uint64_t i = 0; i < count && !cause; i++) cause = skip_array(cursor, depth);
    return cause;
}

/* Reads the type and the payload that follow a key. Returns NULL, or why they cannot be right. */
static const char *read_payload(struct cursor *cursor, struct gguf_value *value) {
    uint32_t type, element;
    if (!take(cursor, &type, sizeof type)) return "the file ends within its type";
    element = type;
    value->count = 1;
    if (type == GGUF_ARRAY && (!take(cursor, &element, sizeof element) ||
                               !take(cursor, &value->count, sizeof value->count)))
        return "the file ends within its array";
    value->data = cursor->at;
    const char *cause = skip_elements(cursor, element, value->count, type == GGUF_ARRAY ? 1 : 0);
    if (cause) return cause;
    value->type = (enum gguf_type)type;
    value->element = (enum gguf_type)element;
    value->bytes = (size_t)(cursor->at - value->data);
    return NULL;
}

static enum status read_value(struct gguf *gguf, struct cursor *cursor, struct err *err) {
    struct gguf_value *value = &gguf->value[gguf->n_values];
    if (!take_string(cursor, &value->key, &value->key_length))
        return cut_short(cursor, "a key", err);
    if (!printable(value->key, value->key_length) || value->key_length > UINT16_MAX) {
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "key number %d is empty, too long or not printable ASCII", gguf->n_values);
    }
    char name[64]; /* as much as err.param holds */
    snprintf(name, sizeof name, "%.*s", (int)value->key_length, value->key);
    const char *cause = read_payload(cursor, value);
    if (cause) {
        return err_set(err, STATUS_BAD_FILE, name, "key %s, before byte %td: %s", name,
                       cursor->at - cursor->begin, cause);
    }
    if (!name_index_add(&gguf->index, value->key, value->key_length, gguf->n_values))
        return err_set(err, STATUS_BAD_FILE, name, "key %s stands in the file twice", name);
    gguf->n_values++;
    return STATUS_OK;
}

/* ---- tensors -------------------------------------------------------------------------------- */

static enum status read_tensor_name(struct cursor *cursor, struct weight *weight, int number,
                                    struct err *err) {
    const char *text;
    size_t length;
    if (!take_string(cursor, &text, &length)) return cut_short(cursor, "a tensor's name", err);
    if (!printable(text, length) || length > WEIGHT_MAX_NAME) {
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the name of tensor number %d is empty, too long or not printable ASCII",
                       number);
    }
    memcpy(weight->name, text, length);
    return STATUS_OK;
}

static enum status read_tensor_shape(struct cursor *cursor, struct weight *weight,
                                     struct err *err) {
    uint32_t n_dims, type;
    if (!take(cursor, &n_dims, sizeof n_dims)) return cut_short(cursor, "the tensor list", err);
    if (n_dims < 1 || n_dims > WEIGHT_MAX_DIMS) {
        return err_set(err, STATUS_BAD_FILE, weight->name,
                       "tensor %s has %" PRIu32 " dimensions; 1 to %d are possible", weight->name,
                       n_dims, WEIGHT_MAX_DIMS);
    }
    weight->n_dims = (int)n_dims;
    if (!take(cursor, weight->dim, n_dims * sizeof weight->dim[0]) ||
        !take(cursor, &type, sizeof type))
        return cut_short(cursor, "the tensor list", err);
    weight->type = (enum dtype)type;
    return weight_measure(weight, err);
}

/* Reads one entry of the tensor list; its data is left as an offset in *offset. */
static enum status read_tensor(struct cursor *cursor, struct weight *weight, uint64_t *offset,
                               int number, struct err *err) {
    *weight = (struct weight){0};
    enum status status = read_tensor_name(cursor, weight, number, err);
    if (status == STATUS_OK) status = read_tensor_shape(cursor, weight, err);
    if (status != STATUS_OK) return status;
    if (!take(cursor, offset, sizeof *offset)) return cut_short(cursor, "the tensor list", err);
    return STATUS_OK;
}

/* Turns an offset into a place, once the tensor list was read and `data` .. `data + size` is known
 * to be the data. */
static enum status place_tensor(const struct gguf *gguf, struct weight *weight, uint64_t offset,
                                const uint8_t *data, size_t size, struct err *err) {
    if (offset % gguf->alignment != 0) {
        return err_set(err, STATUS_BAD_FILE, weight->name,
                       "tensor %s: offset %" PRIu64 " is no multiple of the alignment, %" PRIu32,
                       weight->name, offset, gguf->alignment);
    }
    if (offset > size || weight->bytes > size - offset) {
        return err_set(err, STATUS_BAD_FILE, weight->name,
                       "tensor %s: %zu bytes at offset %" PRIu64
                       " go past the file's end (%zu bytes of tensor data are there); the file is "
                       "cut short",
                       weight->name, weight->bytes, offset, size);
    }
    weight->data = data + offset;
    return STATUS_OK;
}

/* Reads the list once to find where the data begins, and again to place each tensor in it. */
static enum status read_tensors(struct gguf *gguf, struct cursor *cursor, int n, struct err *err) {
    struct cursor again = *cursor;
    struct weight weight;
    uint64_t offset;
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = read_tensor(cursor, &weight, &offset, i, err);
    if (status != STATUS_OK) return status;
    size_t used = (size_t)(cursor->at - cursor->begin), padding = -used % gguf->alignment;
    size_t size = left(cursor) > padding ? left(cursor) - padding : 0;
    const uint8_t *data = size ? cursor->at + padding : cursor->end;
    weights_init(&gguf->weights, (size_t)n);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        status = read_tensor(&again, &weight, &offset, i, err);
        assert(status == STATUS_OK);
        status = place_tensor(gguf, &weight, offset, data, size, err);
        if (status == STATUS_OK) status = weights_add(&gguf->weights, &weight, err);
    }
    return status != STATUS_OK ? status : weights_check_apart(&gguf->weights, err);
}

/* ---- the whole file ------------------------------------------------------------------------- */

struct head {
    uint32_t version;
    uint64_t n_tensors, n_values;
};

static enum status read_version(struct cursor *cursor, uint32_t *version, struct err *err) {
    char magic[4];
    if (!take(cursor, magic, 4)) return cut_short(cursor, "its first four bytes", err);
    if (memcmp(magic, "GGUF", 4) != 0)
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the file does not begin with GGUF: not a GGUF file");
    if (!take(cursor, version, sizeof *version)) return cut_short(cursor, "its version", err);
    if ((*version & 0xffff) == 0 && *version != 0) {
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the file is big-endian GGUF; only little-endian files are supported");
    }
    if (*version < 2 || *version > 3) {
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the file is GGUF version %" PRIu32 "; versions 2 and 3 are supported",
                       *version);
    }
    return STATUS_OK;
}

/* A count that more bytes would be needed for than there are is forged; it must not decide how much
 * is allocated. */
static enum status check_count(const struct cursor *cursor, const char *what, uint64_t count,
                               size_t least, struct err *err) {
    size_t most = left(cursor) / least;
    if (most > MAX_ENTRIES) most = MAX_ENTRIES;
    if (count <= most) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, NULL,
                   "the file says it has %" PRIu64 " %s; %zu are the most that are possible in it",
                   count, what, most);
}

static enum status read_head(struct cursor *cursor, struct head *head, struct err *err) {
    enum status status = read_version(cursor, &head->version, err);
    if (status != STATUS_OK) return status;
    if (!take(cursor, &head->n_tensors, sizeof head->n_tensors) ||
        !take(cursor, &head->n_values, sizeof head->n_values))
        return cut_short(cursor, "its counts", err);
    status = check_count(cursor, "tensors", head->n_tensors, LEAST_TENSOR, err);
    if (status != STATUS_OK) return status;
    return check_count(cursor, "keys", head->n_values, LEAST_VALUE, err);
}

static enum status read_alignment(struct gguf *gguf, struct err *err) {
    int64_t alignment;
    enum status status =
        gguf_int_or(gguf, "general.alignment", 1, MAX_ALIGNMENT, 32, &alignment, err);
    if (status != STATUS_OK) return status;
    if (alignment & (alignment - 1)) {
        return err_set(err, STATUS_BAD_FILE, "general.alignment",
                       "key general.alignment: %" PRId64 " is no power of two", alignment);
    }
    gguf->alignment = (uint32_t)alignment;
    return STATUS_OK;
}

static enum status read_all(struct gguf *gguf, struct err *err) {
    struct cursor cursor = {gguf->data, gguf->data, gguf->data + gguf->size};
    struct head head = {0};
    enum status status = read_head(&cursor, &head, err);
    if (status != STATUS_OK) return status;
    gguf->version = head.version;
    gguf->value = mem_calloc((size_t)head.n_values, sizeof *gguf->value);
    name_index_init(&gguf->index, (size_t)head.n_values);
    for (uint64_t i = 0; i < head.n_values && status == STATUS_OK; i++)
        status = read_value(gguf, &cursor, err);
    if (status == STATUS_OK) status = read_alignment(gguf, err);
    if (status == STATUS_OK) status = read_tensors(gguf, &cursor, (int)head.n_tensors, err);
    return status;
}

enum status gguf_open_memory(struct gguf **out, const void *data, size_t size, struct err *err) {
    struct gguf *gguf = mem_calloc(1, sizeof *gguf);
    gguf->data = data;
    gguf->size = size;
    enum status status = read_all(gguf, err);
    if (status == STATUS_OK) {
        *out = gguf;
    } else {
        gguf_close(gguf);
    }
    return status;
}

/* Maps a regular file that is not empty. */
static enum status map_file(const char *path, void **data, size_t *size, struct err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        int cause = errno;
        if (fd >= 0) close(fd);
        return err_set(err, STATUS_BAD_FILE, "model", "%s: %s", path, strerror(cause));
    }
    *data = MAP_FAILED;
    int cause = EINVAL;
    if (S_ISREG(info.st_mode) && info.st_size > 0) {
        *size = (size_t)info.st_size;
        *data = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
        cause = errno;
    }
    close(fd);
    if (*data != MAP_FAILED) return STATUS_OK;
    if (!S_ISREG(info.st_mode) || info.st_size == 0)
        return err_set(err, STATUS_BAD_FILE, "model", "%s: not a file, or an empty one", path);
    return err_set(err, STATUS_BAD_FILE, "model", "%s: %s", path, strerror(cause));
}

/* Puts the file's name before what is wrong with it. */
static void name_file(struct err *err, const char *path) {
    struct err copy;
    if (!err) return;
    copy = *err;
    err_set(err, copy.status, copy.param[0] ? copy.param : "model", "%s: %s", path, copy.message);
}

enum status gguf_open(struct gguf **out, const char *path, struct err *err) {
    void *data = NULL;
    size_t size = 0;
    enum status status = map_file(path, &data, &size, err);
    if (status != STATUS_OK) return status;
    /* Tensors are read once, from the first to the last, into the backend's own layout. */
    madvise(data, size, MADV_SEQUENTIAL);
    status = gguf_open_memory(out, data, size, err);
    if (status == STATUS_OK) {
        (*out)->mapped = (*out)->weights.mapped = true;
    } else {
        munmap(data, size);
        name_file(err, path);
    }
    return status;
}

void gguf_close(struct gguf *gguf) {
    if (!gguf) return;
    if (gguf->mapped) munmap((void *)(uintptr_t)gguf->data, gguf->size);
    weights_free(&gguf->weights);
    name_index_free(&gguf->index);
    free(gguf->value);
    free(gguf);
}
