#include "engine/files/tensors/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the reader takes numbers from the file unchanged, which needs a little-endian machine"
#endif

#define MAX_NESTING 4     /* arrays within arrays */
#define GGUF_MAX_DIMS 4   /* of a tensor */
#define MAX_ENTRIES 65536 /* keys or tensors: bounds the cost of colliding names */
#define MAX_ALIGNMENT (1 << 20)
/* Bytes of the shortest key-value (length, one letter, type, a byte) and of the shortest entry of
 * the tensor list (length, one letter, n, one dim, type, offset). */
#define MIN_VALUE 14
#define MIN_TENSOR 33

/* ---- reading forwards ----------------------------------------------------------------------- */

/* A position in the file. */
struct cursor {
    const uint8_t *begin, *at, *end;
};

static size_t left(const struct cursor *cursor) {
    return (size_t)(cursor->end - cursor->at);
}

static bool read_bytes(struct cursor *cursor, void *out, size_t bytes) {
    if (left(cursor) < bytes) return false;
    memcpy(out, cursor->at, bytes);
    cursor->at += bytes;
    return true;
}

static bool read_string(struct cursor *cursor, const char **text, size_t *length) {
    uint64_t n;
    if (!read_bytes(cursor, &n, sizeof n) || n > left(cursor)) return false;
    *text = (const char *)cursor->at;
    *length = (size_t)n;
    cursor->at += n;
    return true;
}

static enum status cut_short(const struct cursor *cursor, const char *what, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, NULL,
                   "the file ends, or is damaged, within %s, at byte %td of %td", what,
                   cursor->at - cursor->begin, cursor->end - cursor->begin);
}

/* Names go unchanged into messages and terminals, so only harmless characters are allowed. */
static bool is_name(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (text[i] <= ' ' || text[i] > '~') return false;
    }
    return length > 0;
}

/* ---- key-values ----------------------------------------------------------------------------- */

/* Skips and checks `count` elements of a type. Returns NULL, or why they are wrong. */
static const char *skip_elements(struct cursor *cursor, uint32_t type, uint64_t count, int depth) {
    size_t min = type == GGUF_STRING ? 8 : type == GGUF_ARRAY ? 12 : gguf_type_bytes(type);
    if (min == 0) return "its type number is unknown";
    if (count > left(cursor) / min) return "it goes past the file's end";
    if (type != GGUF_STRING && type != GGUF_ARRAY) {
        for (uint64_t i = 0; type == GGUF_BOOL && i < count; i++)
            if (cursor->at[i] > 1) return "a bool is neither 0 nor 1";
        cursor->at += count * min;
        return NULL;
    }
    const char *cause = NULL, *text;
    size_t length;
    for (uint64_t i = 0; i < count && !cause; i++) {
        uint32_t element;
        uint64_t n;
        if (type == GGUF_STRING)
            cause =
                read_string(cursor, &text, &length) ? NULL : "a string goes past the file's end";
        else if (depth >= MAX_NESTING)
            cause = "arrays are nested too deeply";
        else if (!read_bytes(cursor, &element, sizeof element) || !read_bytes(cursor, &n, sizeof n))
            cause = "the file ends within an array";
        else
            cause = skip_elements(cursor, element, n, depth + 1);
    }
    return cause;
}

/* Reads the type and the payload after a key. Returns NULL, or why they are wrong. */
static const char *read_payload(struct cursor *cursor, struct gguf_value *value) {
    uint32_t type, element;
    if (!read_bytes(cursor, &type, sizeof type)) return "the file ends within its type";
    element = type;
    value->count = 1;
    if (type == GGUF_ARRAY && (!read_bytes(cursor, &element, sizeof element) ||
                               !read_bytes(cursor, &value->count, sizeof value->count)))
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
    if (!read_string(cursor, &value->key, &value->key_length))
        return cut_short(cursor, "a key", err);
    if (!is_name(value->key, value->key_length) || value->key_length > UINT16_MAX) {
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "key number %d is empty, too long or not printable ASCII", gguf->n_values);
    }
    char name[64]; /* the size of err.param */
    snprintf(name, sizeof name, "%.*s", (int)value->key_length, value->key);
    const char *cause = read_payload(cursor, value);
    if (cause) {
        return err_set(err, STATUS_BAD_FILE, name, "key %s, before byte %td: %s", name,
                       cursor->at - cursor->begin, cause);
    }
    if (!name_index_add(&gguf->index, value->key, value->key_length, gguf->n_values))
        return err_set(err, STATUS_BAD_FILE, name, "key %s is in the file twice", name);
    gguf->n_values++;
    return STATUS_OK;
}

/* ---- tensors -------------------------------------------------------------------------------- */

static enum status read_tensor_name(struct cursor *cursor, struct weight *weight, int number,
                                    struct err *err) {
    const char *text;
    size_t length;
    if (!read_string(cursor, &text, &length)) return cut_short(cursor, "a tensor's name", err);
    if (!is_name(text, length) || length > WEIGHT_MAX_NAME) {
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the name of tensor number %d is empty, too long or not printable ASCII",
                       number);
    }
    memcpy(weight->name, text, length);
    return STATUS_OK;
}

/* Reads one entry of the tensor list; *offset receives the offset of its data. */
static enum status read_tensor(struct cursor *cursor, struct weight *weight, uint64_t *offset,
                               int number, struct err *err) {
    static const char list[] = "the tensor list";
    uint32_t n_dims, type;
    *weight = (struct weight){0};
    enum status status = read_tensor_name(cursor, weight, number, err);
    if (status != STATUS_OK) return status;
    if (!read_bytes(cursor, &n_dims, sizeof n_dims)) return cut_short(cursor, list, err);
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS) {
        return err_set(err, STATUS_BAD_FILE, weight->name,
                       "tensor %s has %" PRIu32 " dimensions; 1 to %d are possible", weight->name,
                       n_dims, GGUF_MAX_DIMS);
    }
    weight->n_dims = (int)n_dims;
    if (!read_bytes(cursor, weight->dim, n_dims * sizeof weight->dim[0]) ||
        !read_bytes(cursor, &type, sizeof type))
        return cut_short(cursor, list, err);
    weight->type = (enum dtype)type;
    status = weight_measure(weight, err);
    if (status != STATUS_OK) return status;
    return read_bytes(cursor, offset, sizeof *offset) ? STATUS_OK : cut_short(cursor, list, err);
}

/* Turns an offset into a pointer. The tensor list has been read, so `data` .. `data + size` is the
 * data. */
static enum status place_tensor(const struct gguf *gguf, struct weight *weight, uint64_t offset,
                                const uint8_t *data, size_t size, struct err *err) {
    if (offset % gguf->alignment != 0) {
        return err_set(err, STATUS_BAD_FILE, weight->name,
                       "tensor %s: offset %" PRIu64 " is not a multiple of the alignment, %" PRIu32,
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

/* Reads the list once to find the start of the data, and again to place each tensor in it. */
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
        /* it can fail: the file may change */
        status = read_tensor(&again, &weight, &offset, i, err);
        if (status == STATUS_OK) status = place_tensor(gguf, &weight, offset, data, size, err);
        if (status == STATUS_OK) status = weights_add(&gguf->weights, &weight, err);
    }
    return status != STATUS_OK ? status : weights_check_apart(&gguf->weights, err);
}

/* ---- the whole file ------------------------------------------------------------------------- */

struct gguf_head {
    uint32_t version;
    uint64_t n_tensors, n_values;
};

static enum status read_version(struct cursor *cursor, uint32_t *version, struct err *err) {
    char magic[4];
    if (!read_bytes(cursor, magic, 4)) return cut_short(cursor, "its first four bytes", err);
    if (memcmp(magic, "GGUF", 4) != 0)
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the file does not begin with GGUF: not a GGUF file");
    if (!read_bytes(cursor, version, sizeof *version)) return cut_short(cursor, "its version", err);
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

/* A count that needs more bytes than the file has is forged; it must not set the size of an
 * allocation. */
static enum status check_count(const struct cursor *cursor, const char *what, uint64_t count,
                               size_t min, struct err *err) {
    assert(min > 0);
    size_t max = left(cursor) / min;
    if (max > MAX_ENTRIES) max = MAX_ENTRIES;
    if (count <= max) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, NULL,
                   "the file says it has %" PRIu64 " %s; at most %zu are possible in it", count,
                   what, max);
}

static enum status read_head(struct cursor *cursor, struct gguf_head *head, struct err *err) {
    enum status status = read_version(cursor, &head->version, err);
    if (status != STATUS_OK) return status;
    if (!read_bytes(cursor, &head->n_tensors, sizeof head->n_tensors) ||
        !read_bytes(cursor, &head->n_values, sizeof head->n_values))
        return cut_short(cursor, "its counts", err);
    status = check_count(cursor, "tensors", head->n_tensors, MIN_TENSOR, err);
    if (status != STATUS_OK) return status;
    return check_count(cursor, "keys", head->n_values, MIN_VALUE, err);
}

static enum status read_alignment(struct gguf *gguf, struct err *err) {
    int64_t alignment;
    enum status status =
        gguf_int_or(gguf, "general.alignment", 1, MAX_ALIGNMENT, 32, &alignment, err);
    if (status != STATUS_OK) return status;
    if (alignment & (alignment - 1)) {
        return err_set(err, STATUS_BAD_FILE, "general.alignment",
                       "key general.alignment: %" PRId64 " is not a power of two", alignment);
    }
    gguf->alignment = (uint32_t)alignment;
    return STATUS_OK;
}

static enum status read_all(struct gguf *gguf, struct err *err) {
    struct cursor cursor = {gguf->data, gguf->data, gguf->data + gguf->size};
    struct gguf_head head = {0};
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

/* Opens one file, which may be a part of a model. */
static enum status open_file(struct gguf **out, const char *path, struct err *err) {
    struct mapping file;
    enum status status = mapping_open(&file, path, err);
    if (status != STATUS_OK) return status;
    /* Tensors are read once, from the first to the last, into the backend's own layout. */
    madvise((void *)(uintptr_t)file.data, file.size, MADV_SEQUENTIAL);
    status = gguf_open_memory(out, file.data, file.size, err);
    if (status != STATUS_OK) {
        mapping_close(&file);
        return blame_file(err, status, path);
    }
    (*out)->file = file;
    return STATUS_OK;
}

/* ---- models in parts ------------------------------------------------------------------------ */

#define PART_NAME "-%05d-of-%05d.gguf"
enum { MAX_PARTS = 9999, PART_NAME_BYTES = sizeof "-00001-of-00003.gguf" - 1 };

char *gguf_part_path(const char *first, int i) {
    assert(first && i >= 0);
    size_t length = strlen(first);
    char end[32];
    int n = 0;
    if (length < PART_NAME_BYTES) return NULL;
    const char *name = first + length - PART_NAME_BYTES;
    if (sscanf(name, "-00001-of-%5d", &n) != 1 || i > n || n > MAX_PARTS) return NULL;
    snprintf(end, sizeof end, PART_NAME, 1, n);
    if (strcmp(name, end) != 0) return NULL;
    struct buf path = {0};
    buf_printf(&path, "%.*s" PART_NAME, (int)(name - first), first, i, n);
    return path.data;
}

/* Reads a file's part number, from 0, and the number of parts. */
static enum status read_part(const struct gguf *gguf, int64_t *number, int64_t *n,
                             struct err *err) {
    enum status status = gguf_int_or(gguf, "split.count", 1, MAX_PARTS, 1, n, err);
    return status ? status : gguf_int_or(gguf, "split.no", 0, *n - 1, 0, number, err);
}

static enum status open_part(struct gguf *gguf, const char *first, int i, int n, struct err *err) {
    struct gguf **part = &gguf->part[gguf->n_parts];
    int64_t number, count;
    char *path = gguf_part_path(first, i + 1);
    if (!path)
        return err_set(err, STATUS_BAD_FILE, "split.count",
                       "key split.count: the file is the first of %d parts, so its name has to end "
                       "with " PART_NAME ", as those of the others do",
                       n, 1, n);
    enum status status = open_file(part, path, err);
    if (!status) gguf->n_parts++;
    if (!status) status = read_part(*part, &number, &count, err);
    if (!status && (number != i || count != n))
        status = err_set(err, STATUS_BAD_FILE, "split.no",
                         "%s: expected part %d of %d, found part %" PRId64 " of %" PRId64, path,
                         i + 1, n, number + 1, count);
    mem_free(path);
    return status;
}

static enum status add_tensors(struct weights *all, const struct gguf *part, struct err *err) {
    int first = all->n;
    enum status status = STATUS_OK;
    for (int i = 0; i < part->weights.n && !status; i++)
        status = weights_add(all, &part->weights.tensor[i], err);
    weights_mark_mapped(all, first, &part->file);
    return status;
}

/* Merges the tensors of all parts. */
static enum status join_parts(struct gguf *gguf, struct err *err) {
    struct weights all;
    int64_t n = gguf->weights.n, expected;
    for (int i = 0; i < gguf->n_parts; i++) n += gguf->part[i]->weights.n;
    enum status status = gguf_int_or(gguf, "split.tensors.count", 0, INT32_MAX, n, &expected, err);
    if (status) return status;
    if (expected != n)
        return err_set(err, STATUS_BAD_FILE, "split.tensors.count",
                       "key split.tensors.count: expected %" PRId64 " tensors, found %" PRId64
                       " in the %d parts",
                       expected, n, gguf->n_parts + 1);
    weights_init(&all, (size_t)n);
    status = add_tensors(&all, gguf, err);
    for (int i = 0; i < gguf->n_parts && !status; i++)
        status = add_tensors(&all, gguf->part[i], err);
    weights_free(&gguf->weights);
    gguf->weights = all;
    return status;
}

static enum status open_parts(struct gguf *gguf, const char *path, struct err *err) {
    int64_t number, n;
    enum status status = read_part(gguf, &number, &n, err);
    if (!status && number > 0)
        status = err_set(err, STATUS_BAD_FILE, "split.no",
                         "the file is part %" PRId64 " of %" PRId64
                         "; give the first one, whose name ends with " PART_NAME,
                         number + 1, n, 1, (int)n);
    if (status) return status;
    gguf->part = mem_calloc((size_t)n, sizeof *gguf->part);
    for (int i = 1; i < n && !status; i++) status = open_part(gguf, path, i, (int)n, err);
    return status ? status : join_parts(gguf, err);
}

enum status gguf_open(struct gguf **out, const char *path, struct err *err) {
    struct gguf *gguf;
    enum status status = open_file(&gguf, path, err);
    if (status) return status;
    status = open_parts(gguf, path, err);
    if (!status) {
        *out = gguf;
        return STATUS_OK;
    }
    gguf_close(gguf);
    return blame_file(err, status, path);
}

enum status gguf_check(const struct gguf *gguf, struct err *err) {
    enum status status = mapping_check(&gguf->file, err);
    for (int i = 0; i < gguf->n_parts && !status; i++)
        status = mapping_check(&gguf->part[i]->file, err);
    return status;
}

void gguf_close(struct gguf *gguf) {
    if (!gguf) return;
    for (int i = 0; i < gguf->n_parts; i++) gguf_close(gguf->part[i]);
    mem_free(gguf->part);
    mapping_close(&gguf->file);
    weights_free(&gguf->weights);
    name_index_free(&gguf->index);
    mem_free(gguf->value);
    mem_free(gguf);
}
