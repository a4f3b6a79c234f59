/* DESIGN. Detects duplicate names in an object.
 *
 * RFC 8259 does not define which of several equal names is valid. If a check reads the first and
 * its user the last, a client can send a value past the check. So a client's document is rejected
 * if an object, at any depth, has duplicate names. The names of a small object are compared in
 * pairs. The names of a larger one are sorted by hash, then by text. This takes n log n steps even
 * if all names are chosen to have one hash.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/name_index.h"

enum { FEW_NAMES = 8, SHOWN_NAME = 48 };

/* The path from the root to the current value. */
struct trail {
    int depth;
    struct {
        const struct json *value; /* a child of the previous value */
        int index;                /* its index among its parent's children */
    } at[JSON_MAX_DEPTH + 1];
};

/* ---- object --------------------------------------------------------------------------------- */

struct hashed_name {
    uint64_t hash;
    const struct json *member;
};

static int names_compare(const void *a, const void *b) {
    const struct hashed_name *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return strcmp(x->member->name, y->member->name);
}

static const struct json *doubled_of_few(const struct json *object) {
    json_each(member, object) {
        for (const struct json *later = member->next; later; later = later->next)
            if (strcmp(member->name, later->name) == 0) return later;
    }
    return NULL;
}

static const struct json *doubled_of_many(const struct json *object) {
    size_t n = (size_t)object->n_children, i = 0;
    struct hashed_name *names = mem_alloc(n * sizeof *names);
    const struct json *doubled = NULL;
    json_each(member, object) {
        names[i++] = (struct hashed_name){name_hash(member->name, strlen(member->name)), member};
    }
    assert(i == n);
    qsort(names, n, sizeof *names, names_compare);
    for (i = 1; i < n && !doubled; i++)
        if (names_compare(&names[i - 1], &names[i]) == 0) doubled = names[i].member;
    mem_free(names);
    return doubled;
}

static const struct json *doubled_of(const struct json *value) {
    if (!json_is(value, JSON_OBJECT)) return NULL;
    return value->n_children <= FEW_NAMES ? doubled_of_few(value) : doubled_of_many(value);
}

/* ---- tree ----------------------------------------------------------------------------------- */

/* Finds a duplicate name at or below a value. On success the trail leads to the later member;
 * otherwise it is unchanged. */
static bool find_doubled(struct trail *trail, const struct json *value) {
    const struct json *doubled = doubled_of(value);
    int depth = trail->depth, index = 0;
    assert(depth <= JSON_MAX_DEPTH);
    if (doubled) {
        trail->at[trail->depth++].value = doubled;
        return true;
    }
    json_each(child, value) {
        if (json_first(child)) {
            trail->at[depth].value = child;
            trail->at[depth].index = index;
            trail->depth = depth + 1;
            if (find_doubled(trail, child)) return true;
            trail->depth = depth;
        }
        index++;
    }
    return false;
}

/* Appends a name to a JSON pointer (RFC 6901): ~0 is '~', ~1 is '/'. */
static void pointer_add_name(struct buf *out, const char *name) {
    size_t shown = (size_t)utf8_cut(name, strlen(name), SHOWN_NAME);
    for (size_t i = 0; i < shown; i++) {
        if (name[i] == '~' || name[i] == '/')
            buf_puts(out, name[i] == '~' ? "~0" : "~1");
        else
            buf_add(out, &name[i], 1);
    }
    if (name[shown]) buf_puts(out, "...");
}

static void pointer_write(struct buf *out, const struct trail *trail) {
    for (int i = 0; i < trail->depth; i++) {
        buf_puts(out, "/");
        if (trail->at[i].value->name)
            pointer_add_name(out, trail->at[i].value->name);
        else
            buf_printf(out, "%d", trail->at[i].index);
    }
}

enum status json_refuse_doubled(const struct json *root, const char *what, struct err *err) {
    struct trail trail = {.depth = 0};
    if (!find_doubled(&trail, root)) return STATUS_OK;
    struct buf pointer = {0};
    pointer_write(&pointer, &trail);
    err_set(err, STATUS_INVALID_REQUEST, pointer.data,
            "%s has the member '%s' twice: give each name of an object once.", what, pointer.data);
    buf_free(&pointer);
    return STATUS_INVALID_REQUEST;
}

enum status json_parse_strict(struct json **out, const char *what, const char *text, size_t length,
                              struct err *err) {
    enum status status = json_parse(out, what, text, length, err);
    if (status == STATUS_OK) status = json_refuse_doubled(*out, what, err);
    if (status == STATUS_OK) return STATUS_OK;
    json_free(*out);
    *out = NULL;
    return status;
}
