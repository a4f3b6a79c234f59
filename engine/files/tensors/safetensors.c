#include "engine/files/tensors/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/json.h"

#define LENGTH_BYTES 8               /* of the length field before the header */
#define MAX_HEADER_BYTES (32u << 20) /* a header of 36,000 tensors has about 5 MiB */
#define MAX_TENSORS 65536

static const char git_lfs[] = "version https://git-lfs";

/* ---- the header ----------------------------------------------------------------------------- */

static enum status find_header(struct safetensors *file, const uint8_t *bytes, size_t *length,
                               struct err *err) {
    uint64_t n;
    if (file->size >= sizeof git_lfs - 1 && memcmp(bytes, git_lfs, sizeof git_lfs - 1) == 0)
        return err_set(
            err, STATUS_BAD_FILE, NULL,
            "the file is a pointer of Git LFS, not the weights: fetch them with `git lfs "
            "pull`");
    if (file->size < LENGTH_BYTES)
        return err_set(
            err, STATUS_BAD_FILE, NULL,
            "the file has %zu bytes; a safetensors file begins with %d bytes that say how "
            "long its header is",
            file->size, LENGTH_BYTES);
    memcpy(&n, bytes, sizeof n);
    size_t max = file->size - LENGTH_BYTES;
    if (n > max)
        return err_set(
            err, STATUS_BAD_FILE, NULL,
            "the header should have %" PRIu64
            " bytes, but %zu follow: the file is cut short, or is not a safetensors file",
            n, max);
    if (n > MAX_HEADER_BYTES)
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the header has %" PRIu64 " bytes; at most %u are supported", n,
                       MAX_HEADER_BYTES);
    *length = (size_t)n;
    file->data = bytes + LENGTH_BYTES + n;
    file->data_bytes = max - *length;
    return STATUS_OK;
}

enum status safetensors_open_memory(struct safetensors *out, const void *data, size_t size,
                                    struct err *err) {
    size_t length = 0;
    *out = (struct safetensors){.size = size};
    enum status status = find_header(out, data, &length, err);
    if (status) return status;
    if (json_parse(&out->header, "The header", (const char *)data + LENGTH_BYTES, length, err)) {
        if (err) err->status = STATUS_BAD_FILE;
        return STATUS_BAD_FILE;
    }
    if (!json_is(out->header, JSON_OBJECT))
        return err_set(err, STATUS_BAD_FILE, NULL, "the header is %s; an object was expected",
                       json_type_name(out->header));
    out->n_tensors = out->header->n_children;
    if (out->n_tensors <= MAX_TENSORS) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, NULL,
                   "the header has %d entries; at most %d are supported", out->n_tensors,
                   MAX_TENSORS);
}

enum status safetensors_open(struct safetensors *out, const char *path, struct err *err) {
    struct mapping file;
    *out = (struct safetensors){0};
    enum status status = mapping_open(&file, path, err);
    if (status) return status;
    /* Tensors are read once, from the first to the last, into the backend's own layout. */
    madvise((void *)(uintptr_t)file.data, file.size, MADV_SEQUENTIAL);
    status = safetensors_open_memory(out, file.data, file.size, err);
    out->file = file;
    return status ? blame_file(err, status, path) : STATUS_OK;
}

void safetensors_close(struct safetensors *file) {
    json_free(file->header);
    mapping_close(&file->file);
    *file = (struct safetensors){0};
}

bool safetensors_is_computed(const char *name) {
    static const char *const ends[] = {
        "attn.bias", "attn.masked_bias", "attention.bias", "attention.masked_bias",
        "inv_freq",  "cos_cached",       "sin_cached"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i]);
        bool is_word = length == n || (length > n && name[length - n - 1] == '.');
        if (is_word && strcmp(name + length - n, ends[i]) == 0) return true;
    }
    return false;
}

/* ---- one tensor ----------------------------------------------------------------------------- */

/* A tensor's position in the data. */
struct tensor_place {
    const char *name;
    uint64_t begin, end;
};

static enum status read_name(struct weight *weight, const struct json *entry, struct err *err) {
    size_t length = strlen(entry->name);
    bool is_name = length > 0 && length <= WEIGHT_MAX_NAME;
    for (size_t i = 0; is_name && i < length; i++)
        is_name = entry->name[i] > ' ' && entry->name[i] <= '~';
    if (!is_name)
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "a tensor's name has %zu bytes; 1 to %d of printable ASCII were expected",
                       length, WEIGHT_MAX_NAME);
    memcpy(weight->name, entry->name, length + 1);
    return STATUS_OK;
}

/* Checks that the entry has exactly its three members. */
static enum status check_members(const struct json *entry, struct err *err) {
    static const char *const names[] = {"dtype", "shape", "data_offsets"};
    for (size_t i = 0; i < 3; i++)
        if (!json_member(entry, names[i]))
            return err_set(err, STATUS_BAD_FILE, entry->name, "tensor %s has no \"%s\"",
                           entry->name, names[i]);
    if (entry->n_children == 3) return STATUS_OK;
    return err_set(
        err, STATUS_BAD_FILE, entry->name,
        "tensor %s has %d members; dtype, shape and data_offsets were expected, each once",
        entry->name, entry->n_children);
}

static enum status read_type(struct weight *weight, const struct json *entry, bool packed,
                             struct err *err) {
    enum { FLOATS = 3 };
    static const struct {
        const char *name;
        int type;
    } types[] = {{"F32", DTYPE_F32},           {"F16", DTYPE_F16},
                 {"BF16", DTYPE_BF16},         {"I32", WEIGHT_RAW_I32},
                 {"I64", WEIGHT_RAW_I64},      {"I8", WEIGHT_RAW_I8},
                 {"F8_E4M3", WEIGHT_RAW_E4M3}, {"U8", WEIGHT_RAW_U8},
                 {"F8_E8M0", WEIGHT_RAW_E8M0}, {"BOOL", WEIGHT_RAW_U8}};
    const struct json *value = json_member(entry, "dtype");
    for (size_t i = 0; i < (packed ? sizeof types / sizeof *types : FLOATS); i++) {
        weight->type = (enum dtype)types[i].type;
        if (json_is_text(value, types[i].name)) return STATUS_OK;
    }
    bool is_shown = json_is(value, JSON_STRING) && value->length < 32 &&
                    is_printable(value->string, value->length);
    return err_set(err, STATUS_BAD_FILE, entry->name,
                   "tensor %s: the dtype %s is not supported; F32, F16 and BF16 are%s", entry->name,
                   is_shown ? value->string : "?",
                   packed ? ", and in quantised matrices I32, I64, I8, U8, F8_E4M3 and F8_E8M0"
                          : ", and others only if quantization_config names their method");
}

/* The file lists the dimension with the longest stride first, a weight lists it last. A scalar
 * becomes a vector of one. */
static enum status read_shape(struct weight *weight, const struct json *entry, struct err *err) {
    const struct json *shape = json_member(entry, "shape");
    int n = json_is(shape, JSON_ARRAY) ? shape->n_children : -1;
    if (n < 0 || n > WEIGHT_MAX_DIMS)
        return err_set(err, STATUS_BAD_FILE, entry->name,
                       "tensor %s: its shape must be an array of at most %d numbers", entry->name,
                       WEIGHT_MAX_DIMS);
    int i = n;
    weight->n_dims = n ? n : 1;
    weight->dim[0] = 1;
    json_each(item, shape) {
        if (!json_is(item, JSON_NUMBER) || !item->is_integer || item->integer < 0)
            return err_set(err, STATUS_BAD_FILE, entry->name,
                           "tensor %s: number %d of its shape is not a whole number from 0",
                           entry->name, n - i);
        weight->dim[--i] = item->integer;
    }
    return weight_measure_type(weight, err);
}

static enum status read_place(struct tensor_place *place, const struct json *entry,
                              size_t data_bytes, struct err *err) {
    const struct json *pair = json_member(entry, "data_offsets"), *begin = json_first(pair);
    const struct json *end = begin ? begin->next : NULL;
    bool is_pair = json_is(pair, JSON_ARRAY) && pair->n_children == 2 &&
                   json_is(begin, JSON_NUMBER) && json_is(end, JSON_NUMBER) && begin->is_integer &&
                   end->is_integer && begin->integer >= 0 && begin->integer <= end->integer;
    if (!is_pair)
        return err_set(err, STATUS_BAD_FILE, entry->name,
                       "tensor %s: its data_offsets must be two whole numbers from 0, the second "
                       "not below the first",
                       entry->name);
    *place = (struct tensor_place){entry->name, (uint64_t)begin->integer, (uint64_t)end->integer};
    if (place->end <= data_bytes) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, entry->name,
                   "tensor %s ends at byte %" PRIu64
                   " of the data, but the data has only %zu bytes: it is cut short",
                   entry->name, place->end, data_bytes);
}

static enum status read_tensor(struct weight *weight, const struct tensor_place *place,
                               const struct json *entry, bool packed, struct err *err) {
    enum status status = read_type(weight, entry, packed, err);
    if (!status) status = read_shape(weight, entry, err);
    if (status || weight->bytes == place->end - place->begin) return status;
    return err_set(err, STATUS_BAD_FILE, entry->name,
                   "tensor %s: its dtype and shape need %zu bytes, its data_offsets span %" PRIu64,
                   entry->name, weight->bytes, place->end - place->begin);
}

/* ---- all tensors ---------------------------------------------------------------------------- */

static int by_begin(const void *left, const void *right) {
    const struct tensor_place *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

/* Checks that each byte of the data belongs to exactly one tensor. */
static enum status check_places(struct tensor_place *places, int n, size_t data_bytes,
                                struct err *err) {
    static const struct tensor_place start = {"the header", 0, 0};
    const struct tensor_place *before = &start;
    qsort(places, (size_t)n, sizeof *places, by_begin);
    for (int i = 0; i < n; before = &places[i++]) {
        if (places[i].begin < before->end)
            return err_set(err, STATUS_BAD_FILE, places[i].name,
                           "tensors %s and %s overlap in the file", before->name, places[i].name);
        if (places[i].begin > before->end)
            return err_set(err, STATUS_BAD_FILE, places[i].name,
                           "%" PRIu64 " bytes between %s and tensor %s belong to no tensor",
                           places[i].begin - before->end, before->name, places[i].name);
    }
    if (before->end == data_bytes) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, NULL, "%zu bytes after %s belong to no tensor",
                   data_bytes - (size_t)before->end, before->name);
}

static enum status list_entry(struct safetensors *file, struct weights *weights,
                              struct tensor_place *place, const struct json *entry, bool packed,
                              struct err *err) {
    struct weight weight = {0};
    enum status status = read_name(&weight, entry, err);
    if (!status && !json_is(entry, JSON_OBJECT))
        status =
            err_set(err, STATUS_BAD_FILE, entry->name, "tensor %s: expected an object, found %s",
                    entry->name, json_type_name(entry));
    if (!status) status = check_members(entry, err);
    if (!status) status = read_place(place, entry, file->data_bytes, err);
    if (!status && safetensors_is_computed(entry->name)) return file->n_computed++, STATUS_OK;
    if (!status) status = read_tensor(&weight, place, entry, packed, err);
    if (status) return status;
    weight.data = file->data + place->begin;
    return weights_add(weights, &weight, err);
}

enum status safetensors_list(struct safetensors *file, struct weights *weights, bool packed,
                             struct err *err) {
    struct tensor_place *places = mem_alloc(((size_t)file->n_tensors + 1) * sizeof *places);
    enum status status = STATUS_OK;
    int n = 0, n_comments = 0, first = weights->n;
    assert(file->header);
    json_each(entry, file->header) {
        if (status) break;
        if (strcmp(entry->name, "__metadata__") != 0)
            status = list_entry(file, weights, &places[n++], entry, packed, err);
        else if (!json_is(entry, JSON_OBJECT) || n_comments++ > 0)
            status = err_set(err, STATUS_BAD_FILE, entry->name,
                             "__metadata__ must be an object, and may appear only once");
    }
    if (!status) status = check_places(places, n, file->data_bytes, err);
    if (!status && file->file.data) weights_mark_mapped(weights, first, &file->file);
    mem_free(places);
    json_free(file->header);
    file->header = NULL;
    return status;
}
