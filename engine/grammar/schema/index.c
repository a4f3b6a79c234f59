/* Finds members, elements and strings of schema nodes in n log n steps. A long list is sorted at
 * its first lookup. Names are sorted, not hashed, since a client may choose names with equal
 * hashes. Nodes are hashed by address, which a client cannot choose. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

#include "engine/grammar/build/network.h"

enum { FEW_CHILDREN = 8 };

/* ---- maps from nodes ------------------------------------------------------------------------ */

static uint32_t place_of(const struct node_map *map, const struct json *key) {
    uint64_t hash = (uint64_t)(uintptr_t)key * 0x9E3779B97F4A7C15u;
    uint32_t i = (uint32_t)(hash >> 32) & (map->max - 1);
    while (map->entries[i].key && map->entries[i].key != key) i = (i + 1) & (map->max - 1);
    return i;
}

static bool grow_map(struct builder *b, struct node_map *map) {
    assert(map->n <= map->max);
    struct node_map larger = {.max = map->max ? 2 * map->max : 16};
    larger.entries = builder_alloc(b, larger.max * sizeof *larger.entries);
    if (!larger.entries) return false;
    memset(larger.entries, 0, larger.max * sizeof *larger.entries);
    for (uint32_t i = 0; i < map->max; i++) {
        const struct json *key = map->entries[i].key;
        if (key) larger.entries[place_of(&larger, key)] = map->entries[i];
    }
    larger.n = map->n;
    *map = larger;
    return true;
}

void **node_map_at(struct builder *b, struct node_map *map, const struct json *key) {
    bool is_full = 2 * map->n >= map->max;
    if (is_full && !grow_map(b, map)) return NULL;
    struct node_entry *entry = &map->entries[place_of(map, key)];
    map->n += !entry->key;
    assert(2 * map->n <= map->max + 1);
    entry->key = key;
    return &entry->value;
}

void *node_map_find(const struct node_map *map, const struct json *key) {
    if (map->n == 0) return NULL;
    const struct node_entry *entry = &map->entries[place_of(map, key)];
    return entry->key ? entry->value : NULL;
}

/* ---- sorted children ------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b) {
    const struct json *x = *(const struct json *const *)a, *y = *(const struct json *const *)b;
    return strcmp(x->name, y->name);
}

static int compare_texts(const void *a, const void *b) {
    const struct json *x = *(const struct json *const *)a, *y = *(const struct json *const *)b;
    return strcmp(json_text(x), json_text(y));
}

/* Returns the children of a node, sorted if `compare` is not NULL. Cached. NULL: the builder
 * failed. */
static const struct json **children_of(struct schema_reader *r, struct node_map *map,
                                       const struct json *parent,
                                       int (*compare)(const void *, const void *)) {
    void **known = node_map_at(r->b, map, parent);
    if (!known || *known) return known ? *known : NULL;
    size_t n = (size_t)json_count(parent), i = 0;
    const struct json **children = builder_alloc(r->b, n * sizeof *children);
    if (!children) return NULL;
    json_each(child, parent) children[i++] = child;
    assert(i == n);
    if (compare) qsort(children, n, sizeof *children, compare);
    builder_works(r->b, n);
    *known = children;
    return children;
}

const struct json *schema_member(struct schema_reader *r, const struct json *object,
                                 const char *name) {
    if (json_count(object) <= FEW_CHILDREN || !json_is(object, JSON_OBJECT))
        return json_member(object, name);
    const struct json **children = children_of(r, &r->members, object, compare_names);
    struct json wanted = {.name = (char *)name}, *key = &wanted;
    if (!children) return NULL;
    const struct json **found =
        bsearch(&key, children, (size_t)json_count(object), sizeof *children, compare_names);
    return found ? *found : NULL;
}

const struct json *schema_element(struct schema_reader *r, const struct json *array, int index) {
    if (!json_is(array, JSON_ARRAY) || index < 0 || index >= json_count(array)) return NULL;
    const struct json **children = children_of(r, &r->members, array, NULL);
    return children ? children[index] : NULL;
}

bool schema_lists(struct schema_reader *r, const struct json *array, const char *text) {
    if (json_count(array) <= FEW_CHILDREN || !json_is(array, JSON_ARRAY)) {
        json_each(item, array) if (json_is_text(item, text)) return true;
        return false;
    }
    const struct json **children = children_of(r, &r->strings, array, compare_texts);
    struct json wanted = {.type = JSON_STRING, .string = (char *)text}, *key = &wanted;
    return children &&
           bsearch(&key, children, (size_t)json_count(array), sizeof *children, compare_texts);
}

/* ---- patterns ------------------------------------------------------------------------------- */

/* Compiles a pattern within the builder's limits and remaining time. Returns NULL if the pattern is
 * not supported; the builder does not fail. */
static struct grammar *pattern_compile(const struct builder *b, const char *pattern,
                                       enum regex_match match) {
    struct grammar_limits limits = b->limits;
    struct builder own;
    struct err ignored;
    const size_t n = strlen(pattern);
    uint64_t now = builder_thread_ns();
    if (now >= b->deadline_ns) return NULL;
    limits.max_ms = (int)((b->deadline_ns - now) / 1000000) + 1;
    if (!builder_begin(&own, &limits, n, &ignored)) return NULL;
    int root = rule_new(&own, NULL);
    rule_define(&own, root, pattern_read(&own, "The regular expression", pattern, n, match));
    struct network *network = network_new(&own, root);
    builder_end(&own);
    return network ? grammar_new(network, limits.max_bytes, true) : NULL;
}

/* Returns the compiled pattern of a node; NULL: it is not served, or the builder failed. */
static struct grammar *pattern_of(struct schema_reader *r, const struct json *node,
                                  const char *pattern, enum regex_match match) {
    void **known = r->b->status == STATUS_OK ? node_map_at(r->b, &r->patterns, node) : NULL;
    if (!known) return NULL;
    if (!*known) {
        *known = pattern_compile(r->b, pattern, match);
        if (!*known && builder_in_time(r->b))
            schema_cannot(r, node, "has a pattern that is not served.");
    }
    return builder_works(r->b, 100) ? *known : NULL;
}

static bool matches(struct schema_reader *r, struct grammar *pattern, const char *text, size_t n) {
    bool is_whole;
    return builder_works(r->b, 10 * n) && grammar_match(pattern, text, n, &is_whole) == n &&
           is_whole;
}

bool schema_pattern_matches(struct schema_reader *r, const struct json *pattern, const char *name) {
    struct grammar *compiled = pattern_of(r, pattern, pattern->name, REGEX_SEARCH);
    return compiled && matches(r, compiled, name, strlen(name));
}

bool schema_text_matches(struct schema_reader *r, const struct json *node, const char *pattern,
                         enum regex_match match, const struct json *string) {
    struct grammar *compiled = pattern_of(r, node, pattern, match);
    return !compiled || matches(r, compiled, json_text(string), json_length(string));
}

bool schema_pattern_works(struct schema_reader *r, const char *pattern, size_t n) {
    const struct grammar_limits limits = {.max_bytes = (size_t)4 << 20};
    struct builder own;
    struct err why = {0};
    if (r->mode != SCHEMA_HINT) return true; /* the reader of the pattern names its problem */
    if (!builder_works(r->b, 100 * n) || !builder_begin(&own, &limits, n, &why)) return false;
    pattern_read(&own, "The pattern", pattern, n, REGEX_SEARCH);
    return builder_end(&own) == STATUS_OK;
}

void schema_reader_free(struct schema_reader *r) {
    for (uint32_t i = 0; i < r->patterns.max; i++) grammar_release(r->patterns.entries[i].value);
    r->patterns = (struct node_map){0};
}
