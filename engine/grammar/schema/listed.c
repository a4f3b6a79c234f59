/* Schemas that list their values, and the values that several lists of a schema share. Each value
 * is written as a key; equal values have equal keys. The keys are sorted, so the time is n log n
 * for all values. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

/* ---- keys ----------------------------------------------------------------------------------- */

/* Writes a value's key. Numbers are equal as in JSON Schema: 1.0 is 1. The order of an object's
 * members does not matter. */
static void write_key(struct buf *out, const struct json *value);

static int by_name(const void *a, const void *b) {
    const struct json *x = *(const struct json *const *)a, *y = *(const struct json *const *)b;
    return strcmp(x->name, y->name);
}

static void write_object(struct buf *out, const struct json *object) {
    size_t n = (size_t)json_count(object), i = 0;
    const struct json **members = mem_alloc((n + 1) * sizeof *members);
    json_each(member, object) members[i++] = member;
    qsort(members, n, sizeof *members, by_name);
    for (i = 0; i < n; i++) {
        buf_printf(out, "%zu:", strlen(members[i]->name));
        buf_puts(out, members[i]->name);
        write_key(out, members[i]);
    }
    mem_free(members);
}

static void write_key(struct buf *out, const struct json *value) {
    switch (value->type) {
    case JSON_NULL:
        buf_puts(out, "n");
        break;
    case JSON_BOOL:
        buf_puts(out, json_true(value) ? "t" : "f");
        break;
    case JSON_NUMBER:
        if (json_is_integer(value))
            buf_printf(out, "%lld;", (long long)json_integer(value));
        else
            buf_printf(out, "%.17g;", json_number(value));
        break;
    case JSON_STRING:
        buf_printf(out, "s%zu:", json_length(value));
        buf_add(out, json_text(value), json_length(value));
        break;
    default:
        buf_puts(out, json_is(value, JSON_OBJECT) ? "{" : "[");
        if (json_is(value, JSON_OBJECT)) write_object(out, value);
        if (json_is(value, JSON_ARRAY)) json_each(item, value) write_key(out, item);
        buf_puts(out, "]");
    }
}

struct listed_key {
    const char *text; /* in the builder's arena */
    size_t n;
    int list; /* index of the value's list */
};

static int by_text(const void *a, const void *b) {
    const struct listed_key *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* Returns the key of a value. Its text is empty if the builder failed. */
static struct listed_key key_of(struct builder *b, const struct json *value, int list) {
    struct buf text = {0};
    struct listed_key key = {"", 0, list};
    write_key(&text, value);
    char *copy = builder_alloc(b, text.length);
    if (copy && builder_works(b, 20 + text.length))
        key = (struct listed_key){memcpy(copy, text.data, text.length), text.length, list};
    buf_free(&text);
    return key;
}

static void sort_keys(struct builder *b, struct listed_key *keys, int n) {
    if (n > 1) qsort(keys, (size_t)n, sizeof *keys, by_text);
    builder_works(b, (size_t)n * 20);
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* The values of an enum, or the one value of a const. */
static struct pointers values_of(struct builder *b, const struct json *list) {
    struct pointers values = {0};
    bool is_const = strcmp(list->name, "const") == 0 || strcmp(list->name, NOT_CONST) == 0;
    if (is_const) pointers_add(b, &values, list);
    if (!is_const) json_each(value, list) pointers_add(b, &values, value);
    return values;
}

/* The sorted keys of a list. */
struct sorted_keys {
    struct listed_key *keys;
    int n;
};

/* Returns the keys of a value of enum or const, which are sorted once. NULL: the builder failed. */
static const struct sorted_keys *keys_of_list(struct schema_reader *r, const struct json *list) {
    void **known = node_map_at(r->b, &r->lists, list);
    if (!known || *known) return known ? *known : NULL;
    struct pointers values = values_of(r->b, list);
    struct sorted_keys *sorted = builder_alloc(r->b, sizeof *sorted);
    if (!sorted) return NULL;
    *sorted = (struct sorted_keys){0};
    sorted->keys = builder_alloc(r->b, (size_t)(values.n + 1) * sizeof *sorted->keys);
    if (!sorted->keys) return NULL;
    pointers_each(value, &values) sorted->keys[sorted->n++] = key_of(r->b, value, 0);
    sort_keys(r->b, sorted->keys, sorted->n);
    *known = sorted;
    return sorted;
}

bool schema_list_has(struct schema_reader *r, const struct json *list, const struct json *value) {
    const struct sorted_keys *sorted = keys_of_list(r, list);
    struct listed_key key = key_of(r->b, value, 0);
    if (!sorted || r->b->status != STATUS_OK) return true;
    return bsearch(&key, sorted->keys, (size_t)sorted->n, sizeof key, by_text);
}

/* Removes the values that are not in a list. */
static void keep_listed(struct schema_reader *r, struct pointers *values, const struct json *list) {
    int kept = 0;
    for (int i = 0; i < values->n && r->b->status == STATUS_OK; i++) {
        bool is_listed = schema_list_has(r, list, values->list[i]);
        if (is_listed) values->list[kept++] = values->list[i];
    }
    values->n = kept;
}

struct pointers schema_listed(struct schema_reader *r, const struct conj *conj) {
    static const char *const keywords[] = {"const", "enum"};
    struct pointers values = {0};
    bool is_first = true;
    conj_each(schema, conj) {
        for (int i = 0; i < 2; i++) {
            const struct json *list = schema_value(schema, keywords[i]);
            if (list && is_first) values = values_of(r->b, list);
            if (list && !is_first) keep_listed(r, &values, list);
            is_first = is_first && !list;
        }
    }
    return values;
}

bool values_overlap(struct schema_reader *r, const struct pointers *lists, int n) {
    size_t n_keys = 0, i = 0;
    for (int list = 0; list < n; list++) n_keys += (size_t)lists[list].n;
    struct listed_key *keys = builder_alloc(r->b, (n_keys + 1) * sizeof *keys);
    if (!keys) return true;
    for (int list = 0; list < n; list++) {
        pointers_each(value, &lists[list]) keys[i++] = key_of(r->b, value, list);
    }
    assert(i == n_keys);
    sort_keys(r->b, keys, (int)n_keys);
    for (i = 1; i < n_keys; i++) {
        bool is_same = by_text(&keys[i - 1], &keys[i]) == 0;
        if (is_same && keys[i - 1].list != keys[i].list) return true;
    }
    return r->b->status != STATUS_OK;
}

bool values_repeat(struct schema_reader *r, const struct json *array) {
    int n = 0;
    struct listed_key *keys = builder_alloc(r->b, (size_t)(json_count(array) + 1) * sizeof *keys);
    if (!keys) return false;
    json_each(item, array) keys[n++] = key_of(r->b, item, 0);
    sort_keys(r->b, keys, n);
    for (int i = 1; i < n; i++) {
        if (by_text(&keys[i - 1], &keys[i]) == 0) return true;
    }
    return false;
}

/* ---- schemas that list values --------------------------------------------------------------- */

bool schema_has_values(const struct conj *conj) {
    conj_each(schema, conj) {
        if (schema_value(schema, "enum") || schema_value(schema, "const")) return true;
    }
    return false;
}

unsigned json_value_type(const struct json *value) {
    static const unsigned types[] = {
        [JSON_NULL] = TYPE_NULL,     [JSON_BOOL] = TYPE_BOOL,   [JSON_NUMBER] = TYPE_FRACTION,
        [JSON_STRING] = TYPE_STRING, [JSON_ARRAY] = TYPE_ARRAY, [JSON_OBJECT] = TYPE_OBJECT,
    };
    assert(value->type <= JSON_OBJECT);
    return json_is_integer(value) ? TYPE_INTEGER : types[value->type];
}

struct pointers schema_matching(struct schema_reader *r, const struct conj *conj) {
    struct pointers listed = schema_listed(r, conj), matching = {0};
    pointers_each(value, &listed) {
        if (builder_works(r->b, 100) && conj_holds(r, conj, value))
            pointers_add(r->b, &matching, value);
    }
    /* a hint that excludes all values is ignored */
    return matching.n == 0 && r->mode == SCHEMA_HINT ? listed : matching;
}

struct expr *schema_values(struct schema_reader *r, const struct conj *conj, unsigned types) {
    struct expr *all = expr_new(r->b, EXPR_ALT);
    struct pointers matching = schema_matching(r, conj);
    pointers_each(value, &matching) {
        if (!builder_works(r->b, 100)) return all;
        if (json_value_type(value) & types) expr_add(all, json_literal(r->b, value));
    }
    return all;
}

struct expr *schema_text_values(struct schema_reader *r, const struct conj *conj) {
    struct expr *all = expr_new(r->b, EXPR_ALT);
    struct pointers matching = schema_matching(r, conj);
    pointers_each(value, &matching) {
        if (!builder_works(r->b, 20)) return all;
        if (json_is(value, JSON_STRING))
            expr_add(all, expr_bytes(r->b, json_text(value), json_length(value)));
    }
    return all;
}

/* ---- the names of properties ---------------------------------------------------------------- */

struct conj names_together(struct schema_reader *r, const struct conj *conj) {
    struct conj names = {0};
    conj_each_value(schema, conj, "propertyNames") {
        r->path.n = 0;
        conj_add(r, &names, schema);
    }
    conj_refuse_null(r, &names);
    return names;
}

struct pointers names_listed(struct schema_reader *r, const struct conj *names) {
    struct pointers listed = {0}, matching = {0};
    if (schema_has_values(names)) matching = schema_matching(r, names);
    pointers_each(name, &matching) {
        bool is_name = json_is(name, JSON_STRING) && strlen(json_text(name)) == json_length(name);
        if (is_name && builder_works(r->b, 100)) pointers_add(r->b, &listed, name);
    }
    return listed;
}
