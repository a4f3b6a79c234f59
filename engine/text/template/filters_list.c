/* Filters over lists and dicts. */
#include <assert.h>
#include <string.h>

#include "engine/text/template/template.h"

static struct value generator(struct template_list *list) {
    list->flavour = LIST_GENERATOR;
    return VALUE_OF_LIST(list);
}

static struct value lowered(struct render *r, struct value value) {
    return value.kind == VALUE_STRING ? string_map(r, value.string, point_lower) : value;
}

/* ---- attributes by path --------------------------------------------------------------------- */

/* Returns one part of "a.b.0": digits become an index. */
static struct value path_part(struct render *r, const struct string *path, size_t start,
                              size_t length) {
    int64_t index = 0;
    for (size_t i = 0; i < length; i++) {
        char c = path->data[start + i];
        if (c < '0' || c > '9' || length > 9) return string_part(r, path, start, length);
        index = index * 10 + (c - '0');
    }
    return length ? VALUE_OF_INT(index) : string_part(r, path, start, 0);
}

/* Returns item.a.b for the path "a.b"; an undefined intermediate value becomes `otherwise`, if
 * given. */
static struct value follow(struct render *r, struct value item, struct value path,
                           struct value otherwise) {
    if (path.kind == VALUE_MISSING || path.kind == VALUE_NONE) return item;
    if (path.kind != VALUE_STRING) {
        item = value_item(r, item, path);
        return item.kind == VALUE_UNDEFINED && otherwise.kind > VALUE_NONE ? otherwise : item;
    }
    const struct string *text = path.string;
    for (size_t start = 0; start <= text->length;) {
        const char *dot = memchr(text->data + start, '.', text->length - start);
        size_t end = dot ? (size_t)(dot - text->data) : text->length;
        item = value_item(r, item, path_part(r, text, start, end - start));
        if (item.kind == VALUE_UNDEFINED && otherwise.kind > VALUE_NONE) item = otherwise;
        start = end + 1;
    }
    return item;
}

/* Returns the sort key of an item: one attribute, or a list of several separated by commas; in
 * lower case unless `keep_case`. */
static struct value sort_key(struct render *r, struct value item, struct value path,
                             bool keep_case) {
    if (path.kind != VALUE_STRING || !memchr(path.string->data, ',', path.string->length)) {
        struct value key = follow(r, item, path, VALUE_NOTHING);
        return keep_case ? key : lowered(r, key);
    }
    struct template_list *keys = list_open(r, LIST_PLAIN);
    for (size_t start = 0; start <= path.string->length;) {
        const char *comma = memchr(path.string->data + start, ',', path.string->length - start);
        size_t end = comma ? (size_t)(comma - path.string->data) : path.string->length;
        struct value key =
            follow(r, item, string_part(r, path.string, start, end - start), VALUE_NOTHING);
        list_push(r, keys, keep_case ? key : lowered(r, key));
        start = end + 1;
    }
    return VALUE_OF_LIST(keys);
}

/* ---- sorting -------------------------------------------------------------------------------- */

/* Merge sort: stable in both directions. `spare` has capacity for n pairs. */
static void sort_pairs(struct render *r, struct pair *pairs, struct pair *spare, size_t n,
                       bool reverse) {
    if (n < 2) return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    sort_pairs(r, pairs, spare, half, reverse);
    sort_pairs(r, pairs + half, spare, n - half, reverse);
    while (i < half && j < n) {
        int order = reverse ? value_compare(r, pairs[i].key, pairs[j].key)
                            : value_compare(r, pairs[j].key, pairs[i].key);
        spare[k++] = order == -1 ? pairs[j++] : pairs[i++];
    }
    while (i < half) spare[k++] = pairs[i++];
    while (j < n) spare[k++] = pairs[j++];
    assert(k == n);
    memcpy(pairs, spare, n * sizeof *pairs);
}

/* Sorts values, each paired with its key, into a new list. */
static struct template_list *sorted(struct render *r, struct pair *pairs, size_t n, bool reverse) {
    struct pair *spare = guard_array(&r->guard, n + 1, sizeof *spare);
    struct template_list *list = list_new(r, n, LIST_PLAIN);
    sort_pairs(r, pairs, spare, n, reverse);
    for (size_t i = 0; i < n; i++) list->items[i] = pairs[i].value;
    return list;
}

static bool flag(const struct args *args, size_t i) {
    return value_truth(arg_or(args, i, VALUE_OF_BOOL(false)));
}

static struct value filter_sort(struct render *r, struct value self, const struct args *args) {
    const struct template_list *list = value_iterate(r, self);
    bool keep_case = flag(args, 1);
    struct pair *pairs = guard_array(&r->guard, list->n + 1, sizeof *pairs);
    for (size_t i = 0; i < list->n; i++) {
        struct value key = sort_key(r, list->items[i], args->position[2], keep_case);
        pairs[i] = (struct pair){key, list->items[i]};
    }
    return VALUE_OF_LIST(sorted(r, pairs, list->n, flag(args, 0)));
}

static struct value filter_dictsort(struct render *r, struct value self, const struct args *args) {
    if (self.kind == VALUE_UNDEFINED) value_undefined_fail(r, self);
    if (self.kind != VALUE_DICT) render_fail(r, "dictsort needs a dict");
    const struct string *by =
        value_need_string(r, arg_or(args, 1, string_of(r, "key")), "dictsort's by");
    if (!string_is(by, "key") && !string_is(by, "value"))
        render_fail(r, "dictsort's by must be 'key' or 'value'");
    struct dict *dict = self.dict;
    struct pair *pairs = guard_array(&r->guard, dict->n + 1, sizeof *pairs);
    for (size_t i = 0; i < dict->n; i++) {
        struct value key = string_is(by, "key") ? dict->pairs[i].key : dict->pairs[i].value;
        pairs[i].key = flag(args, 0) ? key : lowered(r, key);
        pairs[i].value = list_pair(r, dict->pairs[i].key, dict->pairs[i].value);
    }
    return VALUE_OF_LIST(sorted(r, pairs, dict->n, flag(args, 2)));
}

static struct value filter_unique(struct render *r, struct value self, const struct args *args) {
    const struct template_list *list = value_iterate(r, self);
    struct template_list *kept = list_open(r, LIST_PLAIN);
    struct dict *seen = dict_new(r);
    for (size_t i = 0; i < list->n; i++) {
        struct value key = follow(r, list->items[i], args->position[1], VALUE_NOTHING);
        if (!flag(args, 0)) key = lowered(r, key);
        if (dict_get(r, seen, key)) continue;
        dict_set(r, seen, key, VALUE_OF_NONE);
        list_push(r, kept, list->items[i]);
    }
    return generator(kept);
}

/* Returns the item with the smallest (`sign` -1) or largest (1) key. */
static struct value extreme(struct render *r, struct value self, const struct args *args,
                            int sign) {
    assert(sign == -1 || sign == 1);
    const struct template_list *list = value_iterate(r, self);
    if (list->n == 0) return (struct value){.kind = VALUE_UNDEFINED};
    struct pair best = {{0}, {0}};
    for (size_t i = 0; i < list->n; i++) {
        struct value key = follow(r, list->items[i], args->position[1], VALUE_NOTHING);
        if (!flag(args, 0)) key = lowered(r, key);
        if (i == 0 || value_compare(r, key, best.key) == sign) {
            best = (struct pair){key, list->items[i]};
        }
    }
    return best.value;
}

BUILTIN(filter_min, extreme(r, self, args, -1))
BUILTIN(filter_max, extreme(r, self, args, 1))

/* ---- mapping and selecting ------------------------------------------------------------------ */

static struct args without_first(const struct args *args, size_t n) {
    struct args rest = *args;
    assert(n <= args->n_positions);
    if (n) rest.position += n;
    rest.n_positions -= n;
    return rest;
}

static struct value map_attribute(struct render *r, const struct template_list *list,
                                  const struct args *args) {
    struct value path = VALUE_NOTHING, otherwise = VALUE_NOTHING;
    for (size_t i = 0; i < args->n_keywords; i++) {
        const struct keyword *k = &args->keyword[i];
        if (string_is(k->name, "attribute")) {
            path = k->value;
        } else if (string_is(k->name, "default")) {
            otherwise = k->value;
        } else {
            render_fail(r, "map takes an attribute and a default");
        }
    }
    if (path.kind == VALUE_MISSING) render_fail(r, "map needs a filter's name or an attribute");
    struct template_list *mapped = list_new(r, list->n, LIST_GENERATOR);
    for (size_t i = 0; i < list->n; i++) {
        mapped->items[i] = follow(r, list->items[i], path, otherwise);
    }
    return VALUE_OF_LIST(mapped);
}

static struct value filter_map(struct render *r, struct value self, const struct args *args) {
    if (!value_truth(self)) return VALUE_OF_LIST(list_new(r, 0, LIST_GENERATOR));
    const struct template_list *list = value_iterate(r, self);
    if (args->n_positions == 0) return map_attribute(r, list, args);
    const struct string *name = value_need_string(r, args->position[0], "a filter's name");
    const struct builtin *filter = builtin_filter(name->data, name->length);
    const struct args rest = without_first(args, 1);
    struct template_list *mapped = list_new(r, list->n, LIST_GENERATOR);
    if (!filter && list->n) {
        render_fail(r, "unknown filter '%.*s'", shown_length(name), name->data);
    }
    for (size_t i = 0; i < list->n; i++) {
        mapped->items[i] = builtin_run(r, filter, list->items[i], &rest);
    }
    return VALUE_OF_LIST(mapped);
}

/* Returns the items whose test result equals `keep`. `by_attribute`: the first argument names an
 * attribute of the item, which is tested instead of the item. */
static struct value choose(struct render *r, struct value self, const struct args *args, bool keep,
                           bool by_attribute) {
    struct template_list *chosen = list_open(r, LIST_PLAIN);
    if (!value_truth(self)) return generator(chosen);
    const struct template_list *list = value_iterate(r, self);
    if (by_attribute && args->n_positions == 0) render_fail(r, "an attribute's name is needed");
    struct value path = by_attribute ? args->position[0] : VALUE_NOTHING;
    struct args rest = without_first(args, by_attribute);
    const struct builtin *test = NULL;
    if (rest.n_positions) {
        const struct string *name = value_need_string(r, rest.position[0], "a test's name");
        test = builtin_test(name->data, name->length);
        if (!test && list->n) {
            render_fail(r, "unknown test '%.*s'", shown_length(name), name->data);
        }
        rest = without_first(&rest, 1);
    }
    for (size_t i = 0; i < list->n; i++) {
        struct value subject = follow(r, list->items[i], path, VALUE_NOTHING);
        bool passes = test ? builtin_test_passes(r, test, subject, &rest) : value_truth(subject);
        if (passes == keep) list_push(r, chosen, list->items[i]);
    }
    return generator(chosen);
}

BUILTIN(filter_select, choose(r, self, args, true, false))
BUILTIN(filter_reject, choose(r, self, args, false, false))
BUILTIN(filter_selectattr, choose(r, self, args, true, true))
BUILTIN(filter_rejectattr, choose(r, self, args, false, true))

/* ---- items and defaults --------------------------------------------------------------------- */

static struct value filter_list(struct render *r, struct value self, const struct args *args) {
    (void)args;
    const struct template_list *from = value_iterate(r, self);
    struct template_list *list = list_new(r, 0, LIST_PLAIN);
    list->items = from->items;
    list->n = from->n;
    return VALUE_OF_LIST(list);
}

BUILTIN(filter_length, VALUE_OF_INT((int64_t)value_length(r, self)))

static struct value filter_first(struct render *r, struct value self, const struct args *args) {
    (void)args;
    const struct template_list *list = value_iterate(r, self);
    return list->n ? list->items[0] : (struct value){.kind = VALUE_UNDEFINED};
}

static struct value filter_last(struct render *r, struct value self, const struct args *args) {
    (void)args;
    if (self.kind == VALUE_LIST && self.list->flavour == LIST_GENERATOR) {
        render_fail(r, "a generator cannot return its last item");
    }
    const struct template_list *list = value_iterate(r, self);
    return list->n ? list->items[list->n - 1] : (struct value){.kind = VALUE_UNDEFINED};
}

static struct value filter_reverse(struct render *r, struct value self, const struct args *args) {
    (void)args;
    if (self.kind == VALUE_STRING) {
        return value_slice(r, self, VALUE_OF_NONE, VALUE_OF_NONE, VALUE_OF_INT(-1));
    }
    bool is_walk = self.kind == VALUE_LIST && self.list->flavour == LIST_GENERATOR;
    const struct template_list *list = value_iterate(r, self);
    struct template_list *reversed = list_new(r, list->n, is_walk ? LIST_PLAIN : LIST_GENERATOR);
    for (size_t i = 0; i < list->n; i++) reversed->items[i] = list->items[list->n - 1 - i];
    return VALUE_OF_LIST(reversed);
}

static struct value filter_join(struct render *r, struct value self, const struct args *args) {
    const struct template_list *list = value_iterate(r, self);
    const struct string *between = value_string(r, arg_or(args, 0, string_of(r, "")));
    struct template_builder *b = builder_new(r);
    for (size_t i = 0; i < list->n; i++) {
        render_charge(r, 1);
        if (i) builder_add_string(r, b, between);
        value_print(r, b, follow(r, list->items[i], args->position[1], VALUE_NOTHING));
    }
    return builder_value(r, b);
}

static struct value filter_items(struct render *r, struct value self, const struct args *args) {
    (void)args;
    struct template_list *items = list_open(r, LIST_PLAIN);
    if (self.kind != VALUE_DICT && self.kind != VALUE_UNDEFINED) {
        render_fail(r, "items needs a dict, not '%s'", value_type(self));
    }
    for (size_t i = 0; self.kind == VALUE_DICT && i < self.dict->n; i++) {
        list_push(r, items, list_pair(r, self.dict->pairs[i].key, self.dict->pairs[i].value));
    }
    return generator(items);
}

static struct value filter_batch(struct render *r, struct value self, const struct args *args) {
    const struct template_list *list = value_iterate(r, self);
    int64_t width = value_need_int(r, args->position[0], "batch's linecount");
    struct value fill = arg_or(args, 1, VALUE_OF_NONE);
    struct template_list *rows = list_open(r, LIST_PLAIN), *row = list_open(r, LIST_PLAIN);
    for (size_t i = 0; i < list->n; i++) {
        if ((int64_t)row->n == width) {
            list_push(r, rows, VALUE_OF_LIST(row));
            row = list_open(r, LIST_PLAIN);
        }
        list_push(r, row, list->items[i]);
    }
    if (row->n) list_push(r, rows, VALUE_OF_LIST(row));
    while (row->n && fill.kind != VALUE_NONE && (int64_t)row->n < width) list_push(r, row, fill);
    return generator(rows);
}

static struct value filter_default(struct render *r, struct value self, const struct args *args) {
    bool falls_back = self.kind == VALUE_UNDEFINED || (flag(args, 1) && !value_truth(self));
    return falls_back ? arg_or(args, 0, string_of(r, "")) : self;
}

/* object|attr(name): like object.name, but never an item of a dict. */
static struct value filter_attr(struct render *r, struct value self, const struct args *args) {
    const struct string *name = value_need_string(r, args->position[0], "attr's name");
    if (self.kind == VALUE_UNDEFINED) value_undefined_fail(r, self);
    struct value found = value_attribute(r, self, name);
    bool is_item = self.kind == VALUE_DICT && found.kind != VALUE_METHOD;
    return is_item ? (struct value){.kind = VALUE_UNDEFINED, .holder = self.kind, .string = name}
                   : found;
}

const struct builtin template_filters_list[] = {
    {"default", filter_default, "default_value,boolean", 0},
    {"d", filter_default, "default_value,boolean", 0},
    {"length", filter_length, "", 0},
    {"count", filter_length, "", 0},
    {"list", filter_list, "", 0},
    {"first", filter_first, "", 0},
    {"last", filter_last, "", 0},
    {"join", filter_join, "d,attribute", 0},
    {"map", filter_map, NULL, 0},
    {"select", filter_select, NULL, 0},
    {"reject", filter_reject, NULL, 0},
    {"selectattr", filter_selectattr, NULL, 0},
    {"rejectattr", filter_rejectattr, NULL, 0},
    {"items", filter_items, "", 0},
    {"dictsort", filter_dictsort, "case_sensitive,by,reverse", 0},
    {"sort", filter_sort, "reverse,case_sensitive,attribute", 0},
    {"unique", filter_unique, "case_sensitive,attribute", 0},
    {"min", filter_min, "case_sensitive,attribute", 0},
    {"max", filter_max, "case_sensitive,attribute", 0},
    {"reverse", filter_reverse, "", 0},
    {"batch", filter_batch, "linecount,fill_with", 1},
    {"attr", filter_attr, "name", 1},
    {NULL, NULL, NULL, 0},
};
