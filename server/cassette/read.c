/* Reads cassettes, and finds the answers to requests.
 *
 *   records[]   in the order of the file
 *   sorted[]    the same by path and request, equal ones in the order of the file:
 *               [b 3][b 9][c 1]          the first of equal records counts how often it was given
 */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cassette/cassette.h"
#include "server/json/json.h"
#include "server/receipts/receipts.h"

enum { MAX_VALUES = 1 << 26, MAX_SHOWN = 80 };

struct tape_entry {
    struct recorded recorded;
    struct json *tree;
    char *key;          /* path, line end, canonical request */
    atomic_int n_given; /* of the first of equal entries */
};

struct cassette {
    char *path;
    int n, capacity;
    struct tape_entry **records, **sorted;
};

/* ---- reading -------------------------------------------------------------------------------- */

static enum status no_record(struct err *err, const struct cassette *cassette, int line,
                             const char *why) {
    return err_set(err, STATUS_BAD_FILE, "replay", "%s:%d: the line is no record: %s",
                   cassette->path, line, why);
}

static bool is_text_or_null(const struct json *value) {
    return json_is(value, JSON_STRING) || json_is(value, JSON_NULL);
}

/* Does the text hold a byte that may not be in a header or path? */
static bool is_clean(const struct json *value) {
    for (const char *p = json_text(value); *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) return false;
    return strlen(json_text(value)) == json_length(value);
}

static const char *check_members(const struct json *tree) {
    const struct json *status = json_member(tree, "status"), *pieces = json_member(tree, "pieces");
    const struct json *version = json_member(tree, "version");
    if (!json_is(tree, JSON_OBJECT)) return "it is not an object";
    if (!json_is_integer(version) || json_integer(version) != 1) return "its 'version' is not 1";
    if (!json_member(tree, "request")) return "it has no 'request'";
    if (!json_is_integer(status) || json_integer(status) < 200 || json_integer(status) > 599)
        return "its 'status' is not from 200 to 599";
    static const char *const texts[] = {"path", "type", "id"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct json *text = json_member(tree, texts[i]);
        if (!json_is(text, JSON_STRING) || !is_clean(text)) return "a text of its head is wrong";
    }
    if (!is_text_or_null(json_member(tree, "ignored")) || !is_clean(json_member(tree, "ignored")))
        return "its 'ignored' is not a header's value";
    if (!json_is(json_member(tree, "stream"), JSON_BOOL)) return "its 'stream' is not a bool";
    if (!json_is(pieces, JSON_ARRAY)) return "its 'pieces' are not a list";
    json_each(piece, pieces) {
        if (!json_is(piece, JSON_STRING)) return "its 'pieces' are not strings";
    }
    bool is_stream = json_true(json_member(tree, "stream"));
    if (!is_stream && json_count(pieces) != 1) return "a whole answer has exactly one piece";
    return NULL;
}

static char *key_of(const char *path, const struct json *request) {
    struct buf key = {0};
    buf_printf(&key, "%s\n", path);
    canonical_request(&key, request);
    return key.data;
}

static void add_entry(struct cassette *cassette, struct json *tree, int line) {
    if (cassette->n == cassette->capacity) {
        cassette->capacity = max_int(16, 2 * cassette->capacity);
        cassette->records =
            mem_realloc(cassette->records, (size_t)cassette->capacity * sizeof *cassette->records);
    }
    struct tape_entry *entry = mem_calloc(1, sizeof *entry);
    const struct json *ignored = json_member(tree, "ignored");
    json_free(json_detach(tree, "receipt"));
    entry->tree = tree;
    entry->recorded = (struct recorded){.path = json_text(json_member(tree, "path")),
                                        .request = json_member(tree, "request"),
                                        .type = json_text(json_member(tree, "type")),
                                        .id = json_text(json_member(tree, "id")),
                                        .ignored = json_length(ignored) ? json_text(ignored) : NULL,
                                        .pieces = json_member(tree, "pieces"),
                                        .status = (int)json_integer(json_member(tree, "status")),
                                        .is_stream = json_true(json_member(tree, "stream")),
                                        .line = line};
    entry->key = key_of(entry->recorded.path, entry->recorded.request);
    cassette->records[cassette->n++] = entry;
}

static enum status read_line(struct cassette *cassette, const char *text, size_t length, int line,
                             struct err *err) {
    struct json *tree;
    char what[32];
    snprintf(what, sizeof what, "Line %d", line);
    enum status status = json_parse_bounded(&tree, what, text, length, MAX_VALUES, err);
    if (!status) status = json_refuse_doubled(tree, what, err);
    const char *why = status ? NULL : check_members(tree);
    if (!status && !why) {
        add_entry(cassette, tree, line);
        return STATUS_OK;
    }
    struct err reason = *err;
    json_free(tree);
    return no_record(err, cassette, line, why ? why : reason.message);
}

static int by_key(const void *a, const void *b) {
    const struct tape_entry *x = *(const struct tape_entry *const *)a,
                            *y = *(const struct tape_entry *const *)b;
    int order = strcmp(x->key, y->key);
    return order ? order : x->recorded.line - y->recorded.line;
}

enum status cassette_parse(struct cassette **out, const char *path, const char *text, size_t length,
                           struct err *err) {
    struct cassette *cassette = mem_calloc(1, sizeof *cassette);
    enum status status = STATUS_OK;
    int line = 0;
    cassette->path = mem_strdup(path);
    for (size_t at = 0; at < length && !status;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t n = end ? (size_t)(end - text) - at : length - at;
        line++;
        if (!end)
            log_line(LOG_WARNING, "%s:%d: the last record is not complete and is ignored", path,
                     line);
        else if (n > 0)
            status = read_line(cassette, text + at, n, line, err);
        at += n + 1;
    }
    const size_t bytes = (size_t)cassette->n * sizeof *cassette->sorted;
    cassette->sorted = mem_alloc(bytes + 1);
    if (bytes > 0) memcpy(cassette->sorted, cassette->records, bytes);
    if (bytes > 0) qsort(cassette->sorted, (size_t)cassette->n, sizeof *cassette->sorted, by_key);
    *out = status ? NULL : cassette;
    if (status) cassette_free(cassette);
    return status;
}

enum status cassette_read(struct cassette **out, const char *path, struct err *err) {
    char piece[1 << 14];
    struct buf text = {0};
    size_t n;
    FILE *file = fopen(path, "re");
    *out = NULL;
    while (file && (n = fread(piece, 1, sizeof piece, file)) > 0) buf_add(&text, piece, n);
    bool failed = !file || ferror(file);
    enum status status =
        failed ? err_set(err, STATUS_BAD_FILE, "replay", "%s: %s", path, strerror(errno))
               : cassette_parse(out, path, text.data ? text.data : "", text.length, err);
    if (file) fclose(file);
    buf_free(&text);
    return status;
}

void cassette_free(struct cassette *cassette) {
    if (!cassette) return;
    for (int i = 0; i < cassette->n; i++) {
        json_free(cassette->records[i]->tree);
        mem_free(cassette->records[i]->key);
        mem_free(cassette->records[i]);
    }
    mem_free(cassette->records);
    mem_free(cassette->sorted);
    mem_free(cassette->path);
    mem_free(cassette);
}

int cassette_count(const struct cassette *cassette) {
    return cassette->n;
}

const struct recorded *cassette_at(const struct cassette *cassette, int i) {
    assert(i >= 0 && i < cassette->n);
    return &cassette->records[i]->recorded;
}

/* ---- finding -------------------------------------------------------------------------------- */

/* Returns the index of the first sorted entry whose key is not below `key`. */
static int lower_bound(const struct cassette *cassette, const char *key) {
    int low = 0, high = cassette->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strcmp(cassette->sorted[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct recorded *cassette_find(struct cassette *cassette, const char *path,
                                     const struct json *body) {
    char *key = key_of(path, body);
    int first = lower_bound(cassette, key), n = 0;
    while (first + n < cassette->n && strcmp(cassette->sorted[first + n]->key, key) == 0) n++;
    mem_free(key);
    if (n == 0) return NULL;
    atomic_int *counter = &cassette->sorted[first]->n_given;
    int given = atomic_load(counter);
    while (given < n - 1 && !atomic_compare_exchange_weak(counter, &given, given + 1)) {
    }
    return &cassette->sorted[first + given]->recorded;
}

/* ---- explaining ----------------------------------------------------------------------------- */

static void show(struct buf *out, const struct json *value) {
    struct buf text = {0};
    if (!value) {
        buf_puts(out, "absent");
        return;
    }
    canonical_write(&text, value);
    size_t n = text.length;
    if (n > MAX_SHOWN) n = (size_t)utf8_cut(text.data, text.length, MAX_SHOWN);
    buf_add(out, text.data, n);
    if (n < text.length) buf_puts(out, "...");
    buf_free(&text);
}

/* Returns a tree of the request as it is compared. The caller frees it. */
static struct json *as_compared(const struct json *request) {
    struct buf text = {0};
    struct json *tree = NULL;
    canonical_request(&text, request);
    json_parse_bounded(&tree, "It", text.data, text.length, MAX_VALUES, NULL);
    assert(tree); /* canonical JSON is JSON */
    buf_free(&text);
    return tree;
}

/* Returns the record of the path whose request is nearest, or NULL. *request is set to its request
 * as it is compared, which the caller frees. */
static const struct recorded *nearest(const struct cassette *cassette, const char *path,
                                      const struct json *asked, struct json **request) {
    const struct recorded *best = NULL;
    int least = 0;
    *request = NULL;
    for (int i = 0; i < cassette->n; i++) {
        const struct recorded *recorded = &cassette->records[i]->recorded;
        if (strcmp(recorded->path, path) != 0) continue;
        struct json *tree = as_compared(recorded->request);
        int distance = json_distance(tree, asked);
        bool is_nearer = !best || distance < least;
        json_free(is_nearer ? *request : tree);
        if (!is_nearer) continue;
        best = recorded;
        least = distance;
        *request = tree;
    }
    return best;
}

static void explain_difference(const struct cassette *cassette, const struct recorded *best,
                               const struct json *recorded, const struct json *asked,
                               struct err *err) {
    struct buf place = {0}, there = {0}, here = {0};
    const struct json *x, *y;
    json_difference(recorded, asked, &place, &x, &y);
    show(&there, x);
    show(&here, y);
    int shown =
        place.length > 200 ? utf8_cut(place.data, (int)place.length, 200) : (int)place.length;
    err_set(err, STATUS_NOT_FOUND, NULL,
            "%s has no answer to this request. The nearest one, in line %d, differs first at "
            "'%.*s': %s is recorded, %s was sent.",
            cassette->path, best->line, shown, place.length ? place.data : "", there.data,
            here.data);
    buf_free(&place);
    buf_free(&there);
    buf_free(&here);
}

void cassette_explain(const struct cassette *cassette, const char *path, const struct json *body,
                      struct err *err) {
    struct json *asked = as_compared(body), *request;
    const struct recorded *best = nearest(cassette, path, asked, &request);
    if (best)
        explain_difference(cassette, best, request, asked, err);
    else
        err_set(err, STATUS_NOT_FOUND, NULL,
                "%s has no answer to any request for %s; it has %d answers to others.",
                cassette->path, path, cassette->n);
    snprintf(err->code, sizeof err->code, "not_recorded");
    json_free(request);
    json_free(asked);
}
