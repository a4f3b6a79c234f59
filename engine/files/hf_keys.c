#include "engine/files/hf_keys.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "engine/files/tensors/mapping.h"

/* ---- files ---------------------------------------------------------------------------------- */

/* Replaces each Infinity outside of strings, which Python writes and JSON lacks, by a number of the
 * same length. Returns a copy that the caller frees, or NULL if the text has none. */
static char *without_infinity(const char *text, size_t length) {
    static const char infinity[] = "Infinity", number[] = "1e308   ";
    const size_t n = sizeof infinity - 1;
    bool in_string = false;
    if (!memmem(text, length, infinity, n)) return NULL;
    char *copy = mem_alloc(length);
    memcpy(copy, text, length);
    for (size_t i = 0; i < length; i++) {
        if (in_string && copy[i] == '\\')
            i++;
        else if (copy[i] == '"')
            in_string = !in_string;
        else if (!in_string && length - i >= n && memcmp(copy + i, infinity, n) == 0)
            memcpy(copy + i, number, n);
    }
    return copy;
}

static enum status text_read(struct json **out, const char *text, size_t length,
                             enum json_type type, struct err *err) {
    static const char mark[] = "\xef\xbb\xbf";
    *out = NULL;
    if (length >= 3 && memcmp(text, mark, 3) == 0)
        return err_set(err, STATUS_BAD_FILE, NULL,
                       "the file begins with a byte order mark, which JSON does not allow: remove "
                       "its first three bytes");
    char *finite = without_infinity(text, length);
    const enum status status = json_parse(out, "the file", finite ? finite : text, length, err);
    mem_free(finite);
    if (status) {
        if (err) err->status = STATUS_BAD_FILE;
        return STATUS_BAD_FILE;
    }
    if (json_is(*out, type)) return STATUS_OK;
    const char *found = json_type_name(*out);
    json_free(*out);
    *out = NULL;
    return err_set(err, STATUS_BAD_FILE, NULL, "the file is %s, not a JSON %s", found,
                   type == JSON_OBJECT ? "object" : "array");
}

enum status hf_text_read(struct json **out, const char *text, size_t length, struct err *err) {
    return text_read(out, text, length, JSON_OBJECT, err);
}

static enum status file_read(struct json **out, const char *path, size_t max_bytes,
                             enum json_type type, struct err *err) {
    struct mapping file;
    *out = NULL;
    enum status status = mapping_open(&file, path, err);
    if (status) return status;
    if (file.size > max_bytes)
        status =
            err_set(err, STATUS_BAD_FILE, "model",
                    "the file has %zu bytes; the limit for this file is %zu", file.size, max_bytes);
    else
        status = text_read(out, (const char *)file.data, file.size, type, err);
    mapping_close(&file);
    return status ? blame_file(err, status, path) : STATUS_OK;
}

enum status hf_file_read(struct json **out, const char *path, size_t max_bytes, struct err *err) {
    return file_read(out, path, max_bytes, JSON_OBJECT, err);
}

enum status hf_list_read(struct json **out, const char *path, size_t max_bytes, struct err *err) {
    return file_read(out, path, max_bytes, JSON_ARRAY, err);
}

/* ---- values --------------------------------------------------------------------------------- */

const struct json *key_value(const struct json *object, const char *keys) {
    for (const char *key = keys; *key; key += strspn(key, "|")) {
        char one[64];
        int length = (int)strcspn(key, "|");
        assert(length > 0 && length < (int)sizeof one);
        snprintf(one, sizeof one, "%.*s", length, key);
        const struct json *value = json_member(object, one);
        if (value && !json_is(value, JSON_NULL)) return value;
        key += length;
    }
    return NULL;
}

/* Returns the first of the keys, which is the usual one. */
static const char *usual_key(const char *keys, char out[64]) {
    assert(*keys && strcspn(keys, "|") < 64);
    snprintf(out, 64, "%.*s", (int)strcspn(keys, "|"), keys);
    return out;
}

/* Returns the number that an array repeats, as if for each layer, or else the value itself. */
static const struct json *repeated(const struct json *value) {
    const struct json *first = json_is(value, JSON_ARRAY) ? json_first(value) : NULL;
    if (!json_is(first, JSON_NUMBER)) return value;
    json_each(item,
              value) if (!json_is(item, JSON_NUMBER) || item->number != first->number) return value;
    return first;
}

enum status key_number(const struct json *object, const char *keys, double min, double max,
                       double *out, struct err *err) {
    char text[64];
    const char *key = usual_key(keys, text);
    const struct json *value = key_value(object, keys);
    if (!value) return err_set(err, STATUS_BAD_FILE, key, "key %s is missing", key);
    value = repeated(value);
    if (!json_is(value, JSON_NUMBER))
        return err_set(err, STATUS_BAD_FILE, key, "key %s: expected a number, found %s", key,
                       json_type_name(value));
    if (!(value->number >= min && value->number <= max))
        return err_set(err, STATUS_BAD_FILE, key, "key %s: expected %.9g to %.9g, found %.9g", key,
                       min, max, value->number);
    *out = value->number;
    return STATUS_OK;
}

enum status key_int(const struct json *object, const char *keys, int min, int max, int *out,
                    struct err *err) {
    char text[64];
    double number = 0;
    enum status status = key_number(object, keys, min, max, &number, err);
    *out = (int)number;
    if (status || number == *out) return status;
    const char *key = usual_key(keys, text);
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected a whole number, found %g", key,
                   number);
}

enum status key_number_or(const struct json *object, const char *keys, double min, double max,
                          double fallback, double *out, struct err *err) {
    *out = fallback;
    return key_value(object, keys) ? key_number(object, keys, min, max, out, err) : STATUS_OK;
}

enum status key_int_or(const struct json *object, const char *keys, int min, int max, int fallback,
                       int *out, struct err *err) {
    *out = fallback;
    return key_value(object, keys) ? key_int(object, keys, min, max, out, err) : STATUS_OK;
}

enum status key_bool_or(const struct json *object, const char *key, bool fallback, bool *out,
                        struct err *err) {
    const struct json *value = key_value(object, key);
    *out = json_is(value, JSON_BOOL) ? value->boolean : fallback;
    if (!value || json_is(value, JSON_BOOL)) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected true or false, found %s", key,
                   json_type_name(value));
}

enum status key_ids(const struct json *object, const char *key, int max, int room, int32_t *ids,
                    int *n, struct err *err) {
    const struct json *value = key_value(object, key);
    const struct json *item = json_is(value, JSON_ARRAY) ? json_first(value) : value;
    *n = 0;
    if (json_is(value, JSON_ARRAY) && value->n_children > room)
        return err_set(err, STATUS_BAD_FILE, key, "key %s: expected at most %d ids, found %d", key,
                       room, value->n_children);
    for (; item; item = item->next) {
        if (!json_is(item, JSON_NUMBER) || !item->is_integer)
            return err_set(err, STATUS_BAD_FILE, key,
                           "key %s: expected an id or an array of ids, found %s", key,
                           json_type_name(item));
        if (item->integer < 0 || item->integer > max)
            return err_set(err, STATUS_BAD_FILE, key, "key %s: expected ids in 0..%d, found %lld",
                           key, max, (long long)item->integer);
        ids[(*n)++] = (int32_t)item->integer;
        if (!json_is(value, JSON_ARRAY)) break;
    }
    return STATUS_OK;
}

const char *key_shown(const struct json *value, char out[64]) {
    const char *text = json_is(value, JSON_STRING) ? value->string : "";
    size_t length = 0, n = strlen(text);
    while (length < n && length < 40) {
        size_t bytes = printable_prefix(text + length, n - length);
        if (bytes == 0) break;
        length += bytes;
    }
    memcpy(out, text, length);
    out[length] = 0;
    return out;
}
