/* Differences between two JSON documents. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/json.h"
#include "server/receipts/receipts.h"

/* Objects with more members together are not compared member by member, which takes quadratic
 * time. */
enum { MAX_MEMBERS = 4096 };

static bool are_comparable(const struct json *a, const struct json *b) {
    return json_is(a, JSON_OBJECT) && json_is(b, JSON_OBJECT) &&
           json_count(a) + json_count(b) <= MAX_MEMBERS;
}

/* Are they the same value? */
static bool same_value(const struct json *a, const struct json *b) {
    struct buf x = {0}, y = {0};
    if (a->type != b->type) return false;
    canonical_write(&x, a);
    canonical_write(&y, b);
    bool same = x.length == y.length && memcmp(x.data, y.data, x.length) == 0;
    buf_free(&x);
    buf_free(&y);
    return same;
}

static bool are_lists(const struct json *a, const struct json *b) {
    return json_is(a, JSON_ARRAY) && json_is(b, JSON_ARRAY);
}

/* Appends a step of a place, tries it, and removes it if the values below are equal. */
static bool differs_at(const struct json *a, const struct json *b, struct buf *place,
                       const char *name, int index, const struct json **x, const struct json **y) {
    const size_t before = place->length;
    if (name)
        buf_printf(place, "%s%s", before > 0 ? "." : "", name);
    else
        buf_printf(place, "[%d]", index);
    if (json_difference(a, b, place, x, y)) return true;
    place->length = before;
    if (place->data) place->data[before] = 0;
    return false;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns the names of both objects, sorted; the caller frees the list. */
static const char **names_of(const struct json *a, const struct json *b, int *n) {
    const char **names =
        mem_alloc(((size_t)json_count(a) + (size_t)json_count(b) + 1) * sizeof *names);
    *n = 0;
    json_each_member(member, a) names[(*n)++] = member->name;
    json_each_member(member, b) {
        if (!json_member(a, member->name)) names[(*n)++] = member->name;
    }
    qsort(names, (size_t)*n, sizeof *names, by_name);
    return names;
}

static bool objects_differ(const struct json *a, const struct json *b, struct buf *place,
                           const struct json **x, const struct json **y) {
    int n;
    const char **names = names_of(a, b, &n);
    bool differs = false;
    for (int i = 0; i < n && !differs; i++)
        differs = differs_at(json_member(a, names[i]), json_member(b, names[i]), place, names[i], 0,
                             x, y);
    mem_free(names);
    return differs;
}

bool json_difference(const struct json *a, const struct json *b, struct buf *place,
                     const struct json **x, const struct json **y) {
    *x = a;
    *y = b;
    if (!a || !b) return a != b;
    if (are_comparable(a, b)) return objects_differ(a, b, place, x, y);
    if (!are_lists(a, b)) return !same_value(a, b);
    const struct json *in_a = json_first(a), *in_b = json_first(b);
    for (int i = 0; in_a || in_b; i++) {
        if (differs_at(in_a, in_b, place, NULL, i, x, y)) return true;
        in_a = in_a ? in_a->next : NULL;
        in_b = in_b ? in_b->next : NULL;
    }
    return false;
}

/* The number of values in a document, itself included. */
static int weight(const struct json *json) {
    int n = json != NULL;
    json_each(child, json) n += weight(child);
    return n;
}

int json_distance(const struct json *a, const struct json *b) {
    int n = 0;
    if (!a || !b) return weight(a) + weight(b);
    if (are_comparable(a, b)) {
        json_each_member(member, a) n += json_distance(member, json_member(b, member->name));
        json_each_member(member, b) {
            if (!json_member(a, member->name)) n += weight(member);
        }
        return n;
    }
    if (!are_lists(a, b)) return same_value(a, b) ? 0 : weight(a) + weight(b);
    const struct json *in_a = json_first(a), *in_b = json_first(b);
    for (; in_a || in_b; in_a = in_a ? in_a->next : NULL, in_b = in_b ? in_b->next : NULL)
        n += json_distance(in_a, in_b);
    return n;
}
