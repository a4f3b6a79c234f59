/* Shared functions of the readers: files of a folder, JSON values by type, and the memory of a
 * spec. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/files/text/internal.h"

/* ---- the memory of a spec ------------------------------------------------------------------- */

struct holder_part {
    struct holder_part *next;
    struct json *tree; /* or: */
    void *memory;
};

static void release(void *owner) {
    struct holder *holder = owner;
    for (struct holder_part *part = holder->parts, *next; part; part = next) {
        next = part->next;
        json_free(part->tree);
        mem_free(part->memory);
        mem_free(part);
    }
    mem_free(holder->file);
    mem_free(holder);
}

static void keep(struct holder *holder, struct json *tree, void *memory) {
    struct holder_part *part = mem_alloc(sizeof *part);
    *part = (struct holder_part){.next = holder->parts, .tree = tree, .memory = memory};
    holder->parts = part;
}

void *holder_alloc(struct holder *holder, size_t bytes) {
    void *memory = mem_calloc(1, bytes ? bytes : 1);
    keep(holder, NULL, memory);
    return memory;
}

void holder_keep_tree(struct holder *holder, struct json *tree) {
    keep(holder, tree, NULL);
}

void holder_keep_memory(struct holder *holder, void *memory) {
    keep(holder, NULL, memory);
}

void reading_begin(struct reading *reading, struct tokenizer_spec *spec, const char *path, int V,
                   const struct tokenizer_keys *keys, struct err *err) {
    struct holder *holder = mem_calloc(1, sizeof *holder);
    *spec = (struct tokenizer_spec){.bos = -1,
                                    .eos = -1,
                                    .unknown = -1,
                                    .keys = &holder->keys,
                                    .owner = holder,
                                    .release = release};
    *reading = (struct reading){.path = path, .spec = spec, .holder = holder, .V = V, .err = err};
    struct buf file = {0};
    buf_printf(&file, "%s: ", path);
    holder->file = file.data;
    holder->keys = *keys;
    holder->keys.file = holder->file;
}

enum status reading_end(struct reading *reading, enum status status) {
    struct tokenizer_spec *spec = reading->spec;
    if (!status) return status;
    mem_free((void *)spec->pre);
    mem_free((void *)spec->token);
    mem_free((void *)spec->token_length);
    mem_free((void *)spec->type);
    mem_free((void *)spec->added);
    mem_free((void *)spec->score);
    mem_free((void *)spec->merge);
    mem_free((void *)spec->merge_length);
    mem_free((void *)spec->merge_right);
    mem_free((void *)spec->normalizers);
    mem_free((void *)spec->pre_tokenizers);
    mem_free((void *)spec->decoders);
    spec->release(spec->owner);
    *spec = (struct tokenizer_spec){0};
    return status;
}

/* ---- messages ------------------------------------------------------------------------------- */

enum status bad_key(const struct reading *reading, const char *key, const char *expected,
                    const char *found, ...) {
    assert(expected && found);
    char text[256];
    va_list args;
    va_start(args, found);
    vsnprintf(text, sizeof text, found, args);
    va_end(args);
    text[utf8_valid_prefix(text, strlen(text))] = 0;
    return err_set(reading->err, STATUS_BAD_FILE, key, "%s: key %s: expected %s, found %s",
                   reading->path, key, expected, text);
}

const char *found_name(const struct json *value, char out[96]) {
    bool is_shown = json_is(value, JSON_STRING) && value->length < 64;
    if (is_shown) {
        snprintf(out, 96, "\"%s\"", value->string);
    } else if (json_is(value, JSON_NUMBER)) {
        snprintf(out, 96, "%.17g", value->number);
    } else {
        snprintf(out, 96, "%s", value ? json_type_name(value) : "nothing");
    }
    return out;
}

static const char *type_words(enum json_type type) {
    static const char *const words[] = {
        [JSON_NULL] = "null",       [JSON_BOOL] = "true or false", [JSON_NUMBER] = "a number",
        [JSON_STRING] = "a string", [JSON_ARRAY] = "an array",     [JSON_OBJECT] = "an object",
    };
    return words[type];
}

enum status may_member(const struct reading *reading, const struct json *object, const char *name,
                       const char *key, enum json_type type, const struct json **out) {
    char found[96];
    const struct json *value = json_is(object, JSON_OBJECT) ? json_member(object, name) : NULL;
    *out = NULL;
    if (!value || value->type == JSON_NULL) return STATUS_OK;
    if (value->type != type)
        return bad_key(reading, key, type_words(type), "%s", found_name(value, found));
    *out = value;
    return STATUS_OK;
}

enum status need_member(const struct reading *reading, const struct json *object, const char *name,
                        const char *key, enum json_type type, const struct json **out) {
    enum status status = may_member(reading, object, name, key, type, out);
    if (status || *out) return status;
    return bad_key(reading, key, type_words(type), "nothing");
}

enum status read_flag(const struct reading *reading, const struct json *object, const char *name,
                      const char *key, bool otherwise, bool *out) {
    const struct json *value;
    enum status status = may_member(reading, object, name, key, JSON_BOOL, &value);
    *out = value ? value->boolean : otherwise;
    return status;
}

/* ---- tokens --------------------------------------------------------------------------------- */

/* Lengthens the arrays. The new entries are gaps: unused tokens without a name. */
static void grow(struct reading *reading, int n) {
    struct tokenizer_spec *spec = reading->spec;
    if (n > reading->capacity) {
        int wanted = reading->capacity ? 2 * reading->capacity : 1024;
        size_t room = (size_t)(wanted > n ? wanted : n);
        spec->token = mem_realloc((void *)spec->token, room * sizeof *spec->token);
        spec->token_length =
            mem_realloc((void *)spec->token_length, room * sizeof *spec->token_length);
        spec->type = mem_realloc((void *)spec->type, room * sizeof *spec->type);
        spec->added = mem_realloc((void *)spec->added, room * sizeof *spec->added);
        reading->capacity = (int)room;
    }
    for (int i = spec->n_tokens; i < n; i++) {
        ((const char **)spec->token)[i] = "";
        ((uint32_t *)spec->token_length)[i] = 0;
        ((int32_t *)spec->type)[i] = TOKEN_UNUSED;
        ((uint8_t *)spec->added)[i] = 0;
    }
    if (n > spec->n_tokens) spec->n_tokens = n;
}

enum status add_token(struct reading *reading, const char *key, int64_t id, struct span name,
                      int type, uint8_t rules) {
    struct tokenizer_spec *spec = reading->spec;
    int most = reading->V > 0 ? reading->V : MAX_VOCABULARY_IDS;
    char expected[64];
    if (id < 0 || id >= most) {
        snprintf(expected, sizeof expected, "ids from 0 to %d", most - 1);
        return bad_key(reading, key, expected, "%lld of the token \"%.*s\"", (long long)id,
                       (int)(name.length < 64 ? name.length : 64), name.data);
    }
    if (name.length > MAX_TOKEN_BYTES) {
        snprintf(expected, sizeof expected, "tokens of at most %d bytes", MAX_TOKEN_BYTES);
        return bad_key(reading, key, expected, "%zu in token %d", name.length, (int)id);
    }
    grow(reading, (int)id + 1);
    size_t length = spec->token_length[id];
    bool is_free = length == 0 && spec->type[id] == TOKEN_UNUSED;
    bool is_same = length == name.length && memcmp(spec->token[id], name.data, length) == 0;
    if (!is_free && (!is_same || !(rules || type != TOKEN_NORMAL)))
        return bad_key(reading, key, "each id once", "%d for \"%.*s\" and for \"%.*s\"", (int)id,
                       (int)(length < 64 ? length : 64), spec->token[id],
                       (int)(name.length < 64 ? name.length : 64), name.data);
    ((const char **)spec->token)[id] = name.data;
    ((uint32_t *)spec->token_length)[id] = (uint32_t)name.length;
    ((int32_t *)spec->type)[id] = type;
    ((uint8_t *)spec->added)[id] = rules;
    return STATUS_OK;
}

enum status add_tokens(struct reading *reading, const struct json *vocabulary) {
    const char *key = reading->holder->keys.tokens;
    char found[96];
    json_each(token, vocabulary) {
        if (!json_is(token, JSON_NUMBER) || !token->is_integer)
            return bad_key(reading, key, "an id for each token", "%s for \"%.64s\"",
                           found_name(token, found), token->name);
        enum status status =
            add_token(reading, key, token->integer, (struct span){token->name, strlen(token->name)},
                      TOKEN_NORMAL, 0);
        if (status) return status;
    }
    return STATUS_OK;
}

int32_t find_token(const struct reading *reading, const char *name, size_t length) {
    assert(name || length == 0);
    const struct tokenizer_spec *spec = reading->spec;
    for (int i = 0; length > 0 && i < spec->n_tokens; i++) {
        if (spec->token_length[i] == length && memcmp(spec->token[i], name, length) == 0) return i;
    }
    return -1;
}

enum status finish_tokens(struct reading *reading) {
    struct tokenizer_spec *spec = reading->spec;
    if (reading->V > spec->n_tokens) grow(reading, reading->V);
    if (spec->score) {
        double *scores =
            mem_realloc((void *)spec->score, (size_t)(spec->n_tokens + 1) * sizeof *scores);
        for (int i = reading->n_scores; i < spec->n_tokens; i++) scores[i] = 0;
        spec->score = scores;
    }
    if (spec->n_tokens > 0) return STATUS_OK;
    return bad_key(reading, spec->keys->tokens, "at least one token", "none");
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Reads the open file to its end. */
static enum status read_open(FILE *file, const char *path, size_t max, char **text, size_t *length,
                             struct err *err) {
    struct stat stat;
    if (fstat(fileno(file), &stat) != 0 || !S_ISREG(stat.st_mode))
        return err_set(err, STATUS_BAD_FILE, "model", "%s: expected a regular file", path);
    if ((uint64_t)stat.st_size > max)
        return err_set(err, STATUS_BAD_FILE, "model", "%s: expected at most %zu bytes, found %lld",
                       path, max, (long long)stat.st_size);
    *text = mem_alloc((size_t)stat.st_size + 1);
    *length = fread(*text, 1, (size_t)stat.st_size, file);
    (*text)[*length] = 0;
    if (!ferror(file)) return STATUS_OK;
    mem_free(*text);
    *text = NULL;
    return err_set(err, STATUS_BAD_FILE, "model", "%s: it cannot be read", path);
}

enum status read_file(const char *folder, const char *name, size_t max, char **text, size_t *length,
                      struct err *err) {
    char *path = path_in(folder, name);
    /* refuses a pipe instead of waiting for it */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    enum status status = STATUS_OK;
    *text = NULL;
    *length = 0;
    if (file) {
        status = read_open(file, path, max, text, length, err);
        fclose(file);
    } else if (errno != ENOENT && errno != ENOTDIR) {
        status = err_set(err, STATUS_BAD_FILE, "model", "%s: %s", path, strerror(errno));
    }
    mem_free(path);
    return status;
}

enum status parse_object(const char *path, const char *text, size_t length, struct json **out,
                         struct err *err) {
    assert(text || length == 0);
    struct err cause = {0};
    *out = NULL;
    if (json_parse_bounded(out, "it", text, length, MAX_TOKENIZER_VALUES, &cause)) {
        return err_set(err, STATUS_BAD_FILE, "model", "%s: expected a JSON object; %s", path,
                       cause.message);
    }
    if (json_is(*out, JSON_OBJECT)) return STATUS_OK;
    const char *found = json_type_name(*out);
    enum status status =
        err_set(err, STATUS_BAD_FILE, "model", "%s: expected a JSON object, found %s", path, found);
    json_free(*out);
    *out = NULL;
    return status;
}

enum status read_object(const char *folder, const char *name, struct json **out, struct err *err) {
    char *text;
    size_t length;
    *out = NULL;
    enum status status = read_file(folder, name, MAX_CONFIG_BYTES, &text, &length, err);
    if (status || !text) return status;
    char *path = path_in(folder, name);
    status = parse_object(path, text, length, out, err);
    mem_free(path);
    mem_free(text);
    return status;
}
