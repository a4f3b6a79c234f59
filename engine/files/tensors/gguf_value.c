#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/files/tensors/gguf.h"

/* ---- types ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [GGUF_UINT8] = {"uint8", 1},     [GGUF_INT8] = {"int8", 1},     [GGUF_UINT16] = {"uint16", 2},
    [GGUF_INT16] = {"int16", 2},     [GGUF_UINT32] = {"uint32", 4}, [GGUF_INT32] = {"int32", 4},
    [GGUF_FLOAT32] = {"float32", 4}, [GGUF_BOOL] = {"bool", 1},     [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0},     [GGUF_UINT64] = {"uint64", 8}, [GGUF_INT64] = {"int64", 8},
    [GGUF_FLOAT64] = {"float64", 8},
};

const char *gguf_type_name(uint32_t type) {
    return type < sizeof types / sizeof *types ? types[type].name : NULL;
}

size_t gguf_type_bytes(uint32_t type) {
    return type < sizeof types / sizeof *types ? types[type].bytes : 0;
}

bool gguf_is_float(enum gguf_type type) {
    return type == GGUF_FLOAT32 || type == GGUF_FLOAT64;
}

bool gguf_is_integer(enum gguf_type type) {
    return gguf_type_bytes(type) > 0 && type != GGUF_BOOL && !gguf_is_float(type);
}

/* ---- payloads ------------------------------------------------------------------------------- */

int64_t gguf_integer_at(enum gguf_type type, const uint8_t *data) {
    assert(gguf_is_integer(type));
    size_t bytes = gguf_type_bytes(type);
    uint64_t raw = 0;
    memcpy(&raw, data, bytes);
    if (type == GGUF_UINT64) return raw > INT64_MAX ? INT64_MAX : (int64_t)raw;
    if (type == GGUF_INT8 || type == GGUF_INT16 || type == GGUF_INT32) {
        int unused = 64 - 8 * (int)bytes;
        return (int64_t)(raw << unused) >> unused; /* extends the sign */
    }
    return (int64_t)raw;
}

double gguf_number_at(enum gguf_type type, const uint8_t *data) {
    assert(gguf_is_float(type));
    float narrow;
    double wide;
    memcpy(&narrow, data, sizeof narrow);
    if (type == GGUF_FLOAT32) return narrow;
    memcpy(&wide, data, sizeof wide);
    return wide;
}

const char *gguf_next_string(const uint8_t **at, size_t *length) {
    uint64_t n;
    memcpy(&n, *at, sizeof n);
    const char *text = (const char *)*at + sizeof n;
    *length = (size_t)n;
    *at += sizeof n + n;
    return text;
}

/* ---- getters -------------------------------------------------------------------------------- */

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key) {
    int number = name_index_find(&gguf->index, key, strlen(key));
    return number < 0 ? NULL : &gguf->value[number];
}

static enum status missing(const char *key, const char *wanted, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, key, "key %s (%s) is missing", key, wanted);
}

static enum status wrong_type(const struct gguf_value *value, const char *key, const char *wanted,
                              struct err *err) {
    bool array = value->type == GGUF_ARRAY;
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected %s, found %s%s", key, wanted,
                   array ? "array of " : "", gguf_type_name(value->element));
}

static enum status integer_of(const struct gguf_value *value, const char *key, int64_t min,
                              int64_t max, int64_t *out, struct err *err) {
    assert(min <= max);
    if (!gguf_is_integer(value->type)) return wrong_type(value, key, "an integer", err);
    int64_t found = gguf_integer_at(value->type, value->data);
    if (found < min || found > max) {
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: expected %" PRId64 " to %" PRId64 ", found %" PRId64, key, min, max,
                       found);
    }
    *out = found;
    return STATUS_OK;
}

enum status gguf_int(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                     int64_t *out, struct err *err) {
    const struct gguf_value *value = gguf_find(gguf, key);
    return value ? integer_of(value, key, min, max, out, err) : missing(key, "an integer", err);
}

enum status gguf_int_or(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                        int64_t fallback, int64_t *out, struct err *err) {
    const struct gguf_value *value = gguf_find(gguf, key);
    *out = fallback;
    return value ? integer_of(value, key, min, max, out, err) : STATUS_OK;
}

static enum status number_of(const struct gguf_value *value, const char *key, double *out,
                             struct err *err) {
    if (!gguf_is_float(value->type)) return wrong_type(value, key, "a float", err);
    *out = gguf_number_at(value->type, value->data);
    return STATUS_OK;
}

enum status gguf_float(const struct gguf *gguf, const char *key, double *out, struct err *err) {
    const struct gguf_value *value = gguf_find(gguf, key);
    return value ? number_of(value, key, out, err) : missing(key, "a float", err);
}

enum status gguf_float_or(const struct gguf *gguf, const char *key, double fallback, double *out,
                          struct err *err) {
    const struct gguf_value *value = gguf_find(gguf, key);
    *out = fallback;
    return value ? number_of(value, key, out, err) : STATUS_OK;
}

enum status gguf_bool_or(const struct gguf *gguf, const char *key, bool fallback, bool *out,
                         struct err *err) {
    const struct gguf_value *value = gguf_find(gguf, key);
    *out = fallback;
    if (!value) return STATUS_OK;
    if (value->type != GGUF_BOOL) return wrong_type(value, key, "a bool", err);
    *out = value->data[0] != 0;
    return STATUS_OK;
}

enum status gguf_string_or(const struct gguf *gguf, const char *key, const char **text,
                           size_t *length, struct err *err) {
    const struct gguf_value *value = gguf_find(gguf, key);
    *text = NULL;
    *length = 0;
    if (!value) return STATUS_OK;
    if (value->type != GGUF_STRING) return wrong_type(value, key, "a string", err);
    const uint8_t *at = value->data;
    *text = gguf_next_string(&at, length);
    return STATUS_OK;
}

enum status gguf_string(const struct gguf *gguf, const char *key, const char **text, size_t *length,
                        struct err *err) {
    enum status status = gguf_string_or(gguf, key, text, length, err);
    return status == STATUS_OK && !*text ? missing(key, "a string", err) : status;
}

enum status gguf_array(const struct gguf *gguf, const char *key, enum gguf_type element,
                       const struct gguf_value **out, struct err *err) {
    const struct gguf_value *value = gguf_find(gguf, key);
    const char *name = gguf_type_name(element);
    char wanted[32];
    assert(name);
    snprintf(wanted, sizeof wanted, "array of %s", name);
    if (!value) return missing(key, wanted, err);
    if (value->type != GGUF_ARRAY || value->element != element)
        return wrong_type(value, key, wanted, err);
    *out = value;
    return STATUS_OK;
}

enum status gguf_floats(const struct gguf *gguf, const char *key, int n, float *out,
                        struct err *err) {
    const struct gguf_value *value = gguf_find(gguf, key);
    double number = 0;
    assert(n > 0);
    if (!value || value->type != GGUF_ARRAY) {
        enum status status = gguf_float(gguf, key, &number, err);
        for (int i = 0; i < n; i++) out[i] = (float)number;
        return status;
    }
    enum status status = gguf_array(gguf, key, GGUF_FLOAT32, &value, err);
    if (status) return status;
    if (value->count != (uint64_t)n)
        return err_set(err, STATUS_BAD_FILE, key, "key %s: expected %d numbers, found %zu", key, n,
                       (size_t)value->count);
    memcpy(out, value->data, (size_t)n * sizeof *out);
    return STATUS_OK;
}
