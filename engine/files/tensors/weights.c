#include "engine/files/tensors/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void weights_init(struct weights *weights, size_t n) {
    assert(n <= INT32_MAX);
    *weights = (struct weights){.capacity = (int)n};
    weights->tensor = mem_calloc(n, sizeof *weights->tensor);
    name_index_init(&weights->index, n);
}

void weights_free(struct weights *weights) {
    for (int i = 0; i < weights->n; i++) mem_free(weights->tensor[i].packed);
    mem_free(weights->tensor);
    mem_free(weights->pages);
    mem_free(weights->renamed);
    name_index_free(&weights->index);
    *weights = (struct weights){0};
}

/* ---- measuring ------------------------------------------------------------------------------ */

static enum status refuse_type(const struct weight *weight, struct err *err) {
    struct buf names = {0};
    for (int type = 0; type <= WEIGHT_MAX_TYPE; type++) {
        const char *name = dtype_name(type);
        if (name) buf_printf(&names, "%s%s", names.length ? ", " : "", name);
    }
    enum status status = err_set(err, STATUS_BAD_FILE, weight->name,
                                 "tensor %s: type number %u is not supported; these are: %s",
                                 weight->name, (unsigned)weight->type, names.data);
    buf_free(&names);
    return status;
}

static enum status measure_dims(struct weight *weight, struct err *err) {
    if (weight->n_dims < 1 || weight->n_dims > WEIGHT_MAX_DIMS) {
        return err_set(err, STATUS_BAD_FILE, weight->name,
                       "tensor %s has %d dimensions; 1 to %d are possible", weight->name,
                       weight->n_dims, WEIGHT_MAX_DIMS);
    }
    weight->n_elements = 1;
    for (int i = 0; i < WEIGHT_MAX_DIMS; i++) {
        if (i >= weight->n_dims) weight->dim[i] = 1;
        int64_t dim = weight->dim[i];
        if (dim < 1 || dim > INT32_MAX) {
            return err_set(err, STATUS_BAD_FILE, weight->name,
                           "tensor %s: dimension %d is %" PRIu64 "; 1 to %d is possible",
                           weight->name, i, (uint64_t)dim, INT32_MAX);
        }
        if (__builtin_mul_overflow(weight->n_elements, dim, &weight->n_elements)) {
            return err_set(err, STATUS_BAD_FILE, weight->name,
                           "tensor %s: its dimensions multiply to more than 2^63 elements",
                           weight->name);
        }
    }
    return STATUS_OK;
}

enum status weight_measure(struct weight *weight, struct err *err) {
    if ((unsigned)weight->type > WEIGHT_MAX_TYPE) return refuse_type(weight, err);
    return weight_measure_type(weight, err);
}

/* Returns the bytes of a number in a part of a packed matrix, or 0 for other types. */
static int raw_bytes(int type) {
    switch (type) {
    case WEIGHT_RAW_I32:
        return 4;
    case WEIGHT_RAW_I64:
        return 8;
    case WEIGHT_RAW_I8:
    case WEIGHT_RAW_E4M3:
    case WEIGHT_RAW_E8M0:
    case WEIGHT_RAW_U8:
        return 1;
    default:
        return 0;
    }
}

enum status weight_measure_type(struct weight *weight, struct err *err) {
    int raw = raw_bytes((int)weight->type);
    int elements = raw ? 1 : dtype_block_elements((int)weight->type);
    int block_bytes = raw ? raw : dtype_block_bytes((int)weight->type);
    if (elements <= 0) return refuse_type(weight, err);
    enum status status = measure_dims(weight, err);
    if (status != STATUS_OK) return status;
    if (weight->dim[0] % elements != 0) {
        return err_set(err, STATUS_BAD_FILE, weight->name,
                       "tensor %s: rows of %" PRId64 " elements are not whole blocks of %d (%s)",
                       weight->name, weight->dim[0], elements, dtype_name((int)weight->type));
    }
    int64_t bytes;
    if (__builtin_mul_overflow(weight->n_elements / elements, (int64_t)block_bytes, &bytes)) {
        return err_set(err, STATUS_BAD_FILE, weight->name, "tensor %s takes more than 2^63 bytes",
                       weight->name);
    }
    weight->bytes = (size_t)bytes;
    return STATUS_OK;
}

/* ---- the directory -------------------------------------------------------------------------- */

enum status weights_add(struct weights *weights, const struct weight *weight, struct err *err) {
    assert(weights->n < weights->capacity && weight->bytes > 0);
    struct weight *copy = &weights->tensor[weights->n];
    *copy = *weight;
    if (!name_index_add(&weights->index, copy->name, strlen(copy->name), weights->n)) {
        return err_set(err, STATUS_BAD_FILE, weight->name, "tensor %s is in the file twice",
                       weight->name);
    }
    weights->n++;
    return STATUS_OK;
}

static int by_address(const void *left, const void *right) {
    const struct weight *a = *(const struct weight *const *)left;
    const struct weight *b = *(const struct weight *const *)right;
    return a->data < b->data ? -1 : a->data > b->data;
}

enum status weights_check_apart(const struct weights *weights, struct err *err) {
    enum status status = STATUS_OK;
    const struct weight **sorted = mem_alloc((size_t)weights->n * sizeof *sorted);
    for (int i = 0; i < weights->n; i++) sorted[i] = &weights->tensor[i];
    qsort(sorted, (size_t)weights->n, sizeof *sorted, by_address);
    for (int i = 1; i < weights->n && status == STATUS_OK; i++) {
        const struct weight *before = sorted[i - 1], *after = sorted[i];
        if ((const char *)after->data - (const char *)before->data >= (ptrdiff_t)before->bytes)
            continue;
        status = err_set(err, STATUS_BAD_FILE, after->name, "tensors %s and %s overlap in the file",
                         before->name, after->name);
    }
    mem_free(sorted);
    return status;
}

const struct weight *weights_lookup(const struct weights *weights, const char *name) {
    int number = name_index_find(&weights->index, name, strlen(name));
    return number < 0 ? NULL : &weights->tensor[number];
}

/* ---- second names --------------------------------------------------------------------------- */

enum status weights_rename(struct weights *weights, char (*names)[WEIGHT_MAX_RENAMED + 1],
                           struct err *err) {
    assert(!weights->renamed);
    weights->renamed = names;
    name_index_free(&weights->index);
    name_index_init(&weights->index, (size_t)weights->n);
    for (int i = 0; i < weights->n; i++) {
        if (!names[i][0] || name_index_add(&weights->index, names[i], strlen(names[i]), i))
            continue;
        const char *first = weights_lookup(weights, names[i])->name,
                   *again = weights->tensor[i].name;
        return err_set(err, STATUS_BAD_FILE, again,
                       "tensors %s and %s are the same part of a model", first, again);
    }
    return STATUS_OK;
}

const char *weights_name(const struct weights *weights, int number) {
    assert(number >= 0 && number < weights->n);
    return weights->renamed ? weights->renamed[number] : weights->tensor[number].name;
}

/* ---- pages ---------------------------------------------------------------------------------- */

void weights_mark_mapped(struct weights *weights, int first, const struct mapping *file) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = UINTPTR_MAX, to = 0;
    for (int i = first; i < weights->n; i++) {
        uintptr_t begin = (uintptr_t)weights->tensor[i].data;
        uintptr_t end = begin + weights->tensor[i].bytes;
        if (begin < from) from = begin;
        if (end > to) to = end;
    }
    if (!to) return;
    from = (from + page - 1) & ~(page - 1);
    to &= ~(page - 1);
    if (from >= to) return;
    size_t n = (size_t)weights->n_pages++;
    weights->pages = mem_realloc(weights->pages, (n + 1) * sizeof *weights->pages);
    weights->pages[n] = (struct weight_pages){*file, (void *)from, to - from};
}

struct file_place weights_place(const struct weights *weights, const void *data) {
    for (int i = 0; i < weights->n_pages; i++) {
        const struct mapping *file = &weights->pages[i].file;
        size_t offset = (uintptr_t)data - (uintptr_t)file->data;
        if (offset < file->size) return (struct file_place){file->fd, (int64_t)offset};
    }
    return (struct file_place){.fd = -1};
}

/* The mapping is private and never written to, so the system reads released pages from the file
 * again. The call is advice: a system that ignores it only keeps more in memory. */
void weights_release_file_pages(const struct weights *weights) {
    for (int i = 0; i < weights->n_pages; i++)
        madvise(weights->pages[i].begin, weights->pages[i].bytes, MADV_DONTNEED);
}

/* Requests all missing pages together. Page faults would request a few at a time and wait for each
 * group. This call is advice, too. */
void weight_read_ahead(const struct weight *weight) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)weight->data;
    if (weight->packed) return; /* its data is several tensors */
    uintptr_t first = begin & ~(page - 1);
    madvise((void *)first, weight->bytes + (begin - first), MADV_WILLNEED);
}

/* ---- finding a model's tensors -------------------------------------------------------------- */

void weight_shape_text(struct buf *out, int n_dims, const int64_t *dim) {
    buf_puts(out, "[");
    for (int i = 0; i < n_dims; i++) buf_printf(out, "%s%" PRId64, i ? " x " : "", dim[i]);
    buf_puts(out, "]");
}

static enum status refuse_shape(const struct weight *weight, int n_dims, const int64_t *dim,
                                struct err *err) {
    struct buf wanted = {0}, found = {0};
    weight_shape_text(&wanted, n_dims, dim);
    weight_shape_text(&found, weight->n_dims, weight->dim);
    enum status status =
        err_set(err, STATUS_BAD_FILE, weight->name, "tensor %s: expected %s, found %s",
                weight->name, wanted.data, found.data);
    buf_free(&wanted);
    buf_free(&found);
    return status;
}

enum status weights_find(const struct weights *weights, const char *name, int n_dims,
                         const int64_t *dim, int type, const struct weight **out, struct err *err) {
    assert(n_dims >= 1 && n_dims <= WEIGHT_MAX_DIMS);
    const struct weight *weight = weights_lookup(weights, name);
    if (!weight) return err_set(err, STATUS_BAD_FILE, name, "tensor %s is missing", name);
    for (int i = 0; i < WEIGHT_MAX_DIMS; i++)
        if (weight->dim[i] != (i < n_dims ? dim[i] : 1))
            return refuse_shape(weight, n_dims, dim, err);
    if (type != WEIGHT_ANY_TYPE && (int)weight->type != type) {
        return err_set(err, STATUS_BAD_FILE, name, "tensor %s: expected type %s, found %s", name,
                       dtype_name(type), dtype_name((int)weight->type));
    }
    *out = weight;
    return STATUS_OK;
}

enum status weights_matrix(const struct weights *weights, const char *name, int N, int K,
                           const struct weight **out, struct err *err) {
    return weights_find(weights, name, 2, (int64_t[]){K, N}, WEIGHT_ANY_TYPE, out, err);
}

enum status weights_vector(const struct weights *weights, const char *name, int K,
                           const struct weight **out, struct err *err) {
    enum status status = weights_find(weights, name, 1, (int64_t[]){K}, WEIGHT_ANY_TYPE, out, err);
    if (status) return status;
    enum dtype type = (*out)->type;
    if (type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, name,
                   "tensor %s: expected type f32, f16 or bf16, found %s", (*out)->name,
                   dtype_name((int)type));
}

/* ---- groups of rows ------------------------------------------------------------------------- */

int64_t weight_ungrouped_row(const struct weight *weight, int64_t row) {
    int64_t each = 0, before = 0;
    int part = 0;
    for (int i = 0; i < WEIGHT_MAX_PARTS; i++) each += weight->group_rows[i];
    assert(weight->groups > 0 && row >= 0 && row < weight->groups * each);
    while (row >= (int64_t)weight->groups * weight->group_rows[part]) {
        row -= (int64_t)weight->groups * weight->group_rows[part];
        before += weight->group_rows[part++];
    }
    return row / weight->group_rows[part] * each + before + row % weight->group_rows[part];
}

struct weight weight_ungrouped(struct backend *b, const struct weight *weight) {
    struct weight plain = *weight;
    bool is_vector = weight->n_dims == 1;
    size_t N = (size_t)(is_vector ? weight->dim[0] : weight->dim[1]), row = weight->bytes / N;
    void *made = weight->packed ? packed_rows(b, weight) : NULL;
    const char *from = made ? made : weight->data;
    char *to = mem_large(weight->bytes);
    for (size_t i = 0; i < N; i++)
        memcpy(to + i * row, from + (size_t)weight_ungrouped_row(weight, (int64_t)i) * row, row);
    mem_large_free(made, weight->bytes);
    plain.data = to, plain.packed = NULL, plain.groups = 0;
    return plain;
}
