/* Reads --api-key-file: one key per line, or YAML.
 *
 * A file whose first line of content is `keys:` is YAML: a map whose only member is a list of maps
 * from the names in `members` to scalars. Other files have one key per line; lines that begin with
 * # are comments.
 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "scheduler/scheduler.h"
#include "server/keys/internal.h"

#define MAX_FILE_BYTES ((size_t)1 << 20)

/* The state of reading one file. */
struct key_reader {
    const char *path;
    yaml_parser_t parser;
    yaml_event_t event;
    struct keys *keys;
    unsigned given; /* bit i: members[i] of the current entry is given */
    struct err *err;
};

static enum status fail(const struct key_reader *reader, const char *message, const char *what) {
    return err_set(reader->err, STATUS_BAD_FILE, "api-key-file", "--api-key-file %s:%zu: %s%.80s",
                   reader->path, reader->event.start_mark.line + 1, message, what);
}

/* ---- members of an entry -------------------------------------------------------------------- */

enum member { NAME, KEY, SHA256, WEIGHT, MAX_REQUESTS, TOKENS, PRIORITY, ADMIN, N_MEMBERS };

static const char *const members[N_MEMBERS] = {"name",          "key",          "sha256",
                                               "weight",        "max_requests", "tokens_per_minute",
                                               "best_priority", "admin"};

/* Reads a whole number from low to high. */
static bool read_number(const char *text, long long low, long long high, long long *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *text && !*end && errno == 0 && *out >= low && *out <= high;
}

static enum status set_number(struct key_reader *reader, struct api_key *key, enum member member,
                              const char *text) {
    long long value;
    bool is_priority = member == PRIORITY;
    long long high = member == WEIGHT   ? MAX_SHARE_WEIGHT
                     : member == TOKENS ? INT64_MAX / 2
                                        : INT_MAX;
    if (!read_number(text, is_priority ? INT_MIN + 1 : 1, high, &value))
        return fail(reader,
                    member == WEIGHT ? "weight is a whole number from 1 to 1000, not "
                    : is_priority    ? "best_priority is a whole number, not "
                                     : "a limit is a whole number above 0, not ",
                    text);
    if (member == WEIGHT) key->weight = (int)value;
    if (member == MAX_REQUESTS) key->max_requests = (int)value;
    if (member == TOKENS) key->tokens_per_minute = value;
    if (is_priority) key->best_priority = (int)value;
    return STATUS_OK;
}

/* A name is a label in /metrics and a field in the log. */
static enum status set_name(struct key_reader *reader, struct api_key *key, const char *text) {
    size_t n = strlen(text);
    if (n == 0 || n >= KEY_NAME_BYTES || strspn(text, NAME_CHARACTERS) < n)
        return fail(reader, "a name has 1 to 64 letters, digits, - _ . @, not ", text);
    for (int i = 0; i + 1 < reader->keys->n; i++)
        if (strcmp(reader->keys->key[i].name, text) == 0)
            return fail(reader, "two keys have the name ", text);
    memcpy(key->name, text, n + 1);
    return STATUS_OK;
}

static enum status set_sha256(struct key_reader *reader, struct api_key *key, const char *text) {
    size_t n = 0;
    const char *end = text;
    bool right =
        sodium_hex2bin(key->digest, sizeof key->digest, text, strlen(text), NULL, &n, &end) == 0;
    if (right && n == sizeof key->digest && !*end) return STATUS_OK;
    return fail(reader, "sha256 has 64 hexadecimal digits: printf %s KEY | sha256sum", "");
}

static enum status set_admin(struct key_reader *reader, struct api_key *key, const char *text) {
    key->admin = strcmp(text, "true") == 0;
    if (key->admin || strcmp(text, "false") == 0) return STATUS_OK;
    return fail(reader, "admin is true or false, not ", text);
}

static enum status set_member(struct key_reader *reader, enum member member, const char *text) {
    struct api_key *key = &reader->keys->key[reader->keys->n - 1];
    switch (member) {
    case NAME:
        return set_name(reader, key, text);
    case KEY:
        if (!*text) return fail(reader, "key is empty", "");
        key_digest(key->digest, text, strlen(text));
        return STATUS_OK;
    case SHA256:
        return set_sha256(reader, key, text);
    case ADMIN:
        return set_admin(reader, key, text);
    default:
        return set_number(reader, key, member, text);
    }
}

/* ---- the tree ------------------------------------------------------------------------------- */

static enum status next_event(struct key_reader *reader) {
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event)) return STATUS_OK;
    const char *problem = reader->parser.problem ? reader->parser.problem : "it is not YAML";
    return err_set(reader->err, STATUS_BAD_FILE, "api-key-file", "--api-key-file %s:%zu: %s",
                   reader->path, reader->parser.problem_mark.line + 1, problem);
}

static enum status expect(struct key_reader *reader, yaml_event_type_t type, const char *message) {
    enum status status = next_event(reader);
    if (status == STATUS_OK && reader->event.type != type) status = fail(reader, message, "");
    return status;
}

static const char *scalar(const struct key_reader *reader) {
    assert(reader->event.type == YAML_SCALAR_EVENT);
    return (const char *)reader->event.data.scalar.value;
}

static enum status read_member(struct key_reader *reader) {
    int member = 0;
    if (reader->event.type != YAML_SCALAR_EVENT) return fail(reader, "a name is expected", "");
    while (member < N_MEMBERS && strcmp(scalar(reader), members[member]) != 0) member++;
    if (member == N_MEMBERS)
        return fail(reader,
                    "a key has name, key, sha256, weight, max_requests, tokens_per_minute, "
                    "best_priority, admin, not ",
                    scalar(reader));
    if (reader->given >> member & 1) return fail(reader, "it is given twice: ", members[member]);
    reader->given |= 1u << member;
    enum status status = expect(reader, YAML_SCALAR_EVENT, "one value is expected");
    return status ? status : set_member(reader, (enum member)member, scalar(reader));
}

/* Reads one entry, after its beginning. */
static enum status read_entry(struct key_reader *reader) {
    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return fail(reader, "an entry of `keys` is a map such as {name: alice, key: ...}", "");
    if (reader->keys->n == MAX_KEYS) return fail(reader, "a file has at most 1000 keys", "");
    keys_append(reader->keys);
    reader->given = 0;
    enum status status = next_event(reader);
    while (status == STATUS_OK && reader->event.type != YAML_MAPPING_END_EVENT) {
        status = read_member(reader);
        if (status == STATUS_OK) status = next_event(reader);
    }
    if (status != STATUS_OK) return status;
    if (!(reader->given >> NAME & 1)) return fail(reader, "an entry lacks its name", "");
    if ((reader->given >> KEY & 1) == (reader->given >> SHA256 & 1))
        return fail(reader, "an entry has either key or sha256", "");
    return STATUS_OK;
}

static enum status read_tree(struct key_reader *reader) {
    enum status status;
    if ((status = expect(reader, YAML_STREAM_START_EVENT, "")) ||
        (status = expect(reader, YAML_DOCUMENT_START_EVENT, "")) ||
        (status = expect(reader, YAML_MAPPING_START_EVENT, "`keys:` is expected")) ||
        (status = expect(reader, YAML_SCALAR_EVENT, "`keys:` is expected")) ||
        (status = expect(reader, YAML_SEQUENCE_START_EVENT, "`keys` is a list"))) {
        return status;
    }
    while ((status = next_event(reader)) == STATUS_OK &&
           reader->event.type != YAML_SEQUENCE_END_EVENT)
        if ((status = read_entry(reader))) return status;
    if (status == STATUS_OK)
        status = expect(reader, YAML_MAPPING_END_EVENT, "only `keys` may be in this file");
    if (status == STATUS_OK) status = expect(reader, YAML_DOCUMENT_END_EVENT, "");
    if (status == STATUS_OK)
        status = expect(reader, YAML_STREAM_END_EVENT, "a second document begins here; keep one");
    return status;
}

static enum status parse_yaml(struct keys *keys, const char *path, const char *data, size_t length,
                              struct err *err) {
    struct key_reader reader = {.path = path, .keys = keys, .err = err};
    if (!yaml_parser_initialize(&reader.parser))
        return err_set(err, STATUS_SYSTEM, "api-key-file", "%s: out of memory", path);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)data, length);
    enum status status = read_tree(&reader);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    return status;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Returns the first line that is neither empty nor a comment. */
static const char *first_content(const char *at, const char *end) {
    while (at < end) {
        size_t blank = strspn(at, " \t\r\n");
        if (at + blank >= end || at[blank] != '#') return at + blank;
        at += blank;
        at += strcspn(at, "\n");
    }
    return at;
}

static void parse_lines(struct keys *keys, const char *data, size_t length) {
    const char *end = data + length;
    for (const char *at = data, *next; at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        if (!next) next = end;
        if (*at != '#') keys_add(keys, at, (size_t)(next - at));
    }
}

enum status keys_parse(struct keys *keys, const char *path, const char *data, size_t length,
                       struct err *err) {
    assert(data[length] == 0);
    int before = keys->n;
    enum status status = STATUS_OK;
    if (memchr(data, 0, length))
        return err_set(err, STATUS_BAD_FILE, "api-key-file", "--api-key-file %s holds a NUL byte",
                       path);
    if (strncmp(first_content(data, data + length), "keys:", 5) == 0)
        status = parse_yaml(keys, path, data, length, err);
    else
        parse_lines(keys, data, length);
    if (status != STATUS_OK || keys->n > before) return status;
    return err_set(err, STATUS_BAD_FILE, "api-key-file",
                   "--api-key-file %s holds no key; write one per line, or a YAML list `keys`",
                   path);
}

enum status keys_read_file(struct keys *keys, const char *path, struct err *err) {
    FILE *file = fopen(path, "r");
    char *data = mem_alloc(MAX_FILE_BYTES + 2);
    errno = file ? 0 : errno;
    size_t length = file ? fread(data, 1, MAX_FILE_BYTES + 1, file) : 0;
    enum status status;
    data[length] = 0;
    if (!file || ferror(file))
        status = err_set(err, STATUS_BAD_FILE, "api-key-file",
                         "--api-key-file %s cannot be read: %s", path, strerror(errno));
    else if (length > MAX_FILE_BYTES)
        status = err_set(err, STATUS_BAD_FILE, "api-key-file",
                         "--api-key-file %s is larger than 1 MiB", path);
    else
        status = keys_parse(keys, path, data, length, err);
    sodium_memzero(data, length);
    mem_free(data);
    if (file) fclose(file);
    return status;
}
