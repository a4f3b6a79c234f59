/* Operations on all kinds of values with Python's rules: lists, truth, equality, order, membership
 * and iteration. */
#include <assert.h>
#include <string.h>

#include "engine/text/template/template.h"

/* ---- lists ---------------------------------------------------------------------------------- */

struct list_store {
    struct value *items;
    size_t n, capacity;
};

struct template_list *list_new(struct render *r, size_t n, enum list_flavour flavour) {
    struct template_list *list = render_alloc(r, sizeof *list);
    render_charge(r, n);
    *list = (struct template_list){.n = n, .flavour = flavour};
    list->items = n ? guard_array(&r->guard, n, sizeof *list->items) : NULL;
    return list;
}

struct template_list *list_open(struct render *r, enum list_flavour flavour) {
    struct template_list *list = list_new(r, 0, flavour);
    list->store = render_alloc(r, sizeof *list->store);
    *list->store = (struct list_store){0};
    return list;
}

void list_push(struct render *r, struct template_list *list, struct value value) {
    struct list_store *store = list->store;
    assert(store && store->n == list->n);
    if (store->n == store->capacity) {
        size_t capacity = store->capacity ? 2 * store->capacity : 8;
        struct value *items = guard_array(&r->guard, capacity, sizeof *items);
        if (store->n) memcpy(items, store->items, store->n * sizeof *items);
        store->items = items;
        store->capacity = capacity;
    }
    render_charge(r, 1);
    store->items[store->n++] = value;
    list->items = store->items;
    list->n = store->n;
    assert(list->n <= store->capacity);
}

/* Returns left + right. Like in string_append, if `left` ends at the end of its store, the result
 * shares that store. So building a list by `+` takes linear time. */
struct template_list *list_concat(struct render *r, struct template_list *left,
                                  struct template_list *right) {
    struct template_list *sum = list_open(r, left->flavour);
    if (left->store && left->store->n == left->n) {
        sum->store = left->store;
        sum->items = left->items;
        sum->n = left->n;
    } else {
        for (size_t i = 0; i < left->n; i++) list_push(r, sum, left->items[i]);
    }
    size_t n_right = right->n; /* read first: `right` may be `left` */
    for (size_t i = 0; i < n_right; i++) list_push(r, sum, right->items[i]);
    assert(sum->n == left->n + n_right);
    return sum;
}

struct value list_pair(struct render *r, struct value a, struct value b) {
    struct template_list *pair = list_new(r, 2, LIST_TUPLE);
    pair->items[0] = a;
    pair->items[1] = b;
    return VALUE_OF_LIST(pair);
}

/* ---- numbers and types ---------------------------------------------------------------------- */

bool value_is_integral(struct value value) {
    return value.kind == VALUE_BOOL || value.kind == VALUE_INT;
}

bool value_is_number(struct value value) {
    return value_is_integral(value) || value.kind == VALUE_FLOAT;
}

int64_t value_integer(struct value value) {
    assert(value_is_integral(value));
    return value.kind == VALUE_BOOL ? value.boolean : value.integer;
}

double value_real(struct value value) {
    return value.kind == VALUE_FLOAT ? value.real : (double)value_integer(value);
}

const char *value_digits(const struct render *r, struct value value) {
    if (value.kind != VALUE_FLOAT || value.large == 0) return NULL;
    assert(value.large <= r->n_large);
    return r->large[value.large - 1];
}

const char *value_type(struct value value) {
    static const char *const names[] = {
        [VALUE_MISSING] = "nothing",   [VALUE_UNDEFINED] = "Undefined",
        [VALUE_NONE] = "NoneType",     [VALUE_BOOL] = "bool",
        [VALUE_INT] = "int",           [VALUE_FLOAT] = "float",
        [VALUE_STRING] = "str",        [VALUE_LIST] = "list",
        [VALUE_DICT] = "dict",         [VALUE_NAMESPACE] = "Namespace",
        [VALUE_FUNCTION] = "function", [VALUE_METHOD] = "method",
        [VALUE_MACRO] = "Macro",       [VALUE_LOOP] = "LoopContext"};
    static const char *const flavours[] = {
        [LIST_PLAIN] = "list",         [LIST_TUPLE] = "tuple",        [LIST_RANGE] = "range",
        [LIST_KEYS] = "dict_keys",     [LIST_VALUES] = "dict_values", [LIST_ITEMS] = "dict_items",
        [LIST_GENERATOR] = "generator"};
    if (value.kind == VALUE_FLOAT && value.large > 0) return names[VALUE_INT];
    return value.kind == VALUE_LIST && value.list ? flavours[value.list->flavour]
                                                  : names[value.kind];
}

_Noreturn void value_undefined_fail(struct render *r, struct value value) {
    const struct string *name = value.string;
    if (!name) render_fail(r, "a value is undefined");
    int length = shown_length(name);
    if (value.holder == VALUE_MISSING) render_fail(r, "'%.*s' is undefined", length, name->data);
    render_fail(r, "'%s' has no attribute '%.*s'", value_type((struct value){.kind = value.holder}),
                length, name->data);
}

int64_t value_need_int(struct render *r, struct value value, const char *what) {
    if (value.kind == VALUE_UNDEFINED) value_undefined_fail(r, value);
    if (!value_is_integral(value)) render_fail(r, "%s must be an integer", what);
    return value_integer(value);
}

const struct string *value_need_string(struct render *r, struct value value, const char *what) {
    if (value.kind == VALUE_UNDEFINED) value_undefined_fail(r, value);
    if (value.kind != VALUE_STRING) {
        render_fail(r, "%s must be a string, not '%s'", what, value_type(value));
    }
    return value.string;
}

bool value_truth(struct value value) {
    switch (value.kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value.boolean;
    case VALUE_INT:
        return value.integer != 0;
    case VALUE_FLOAT:
        return value.real != 0;
    case VALUE_STRING:
        return value.string->length > 0;
    case VALUE_LIST:
        return value.list->flavour == LIST_GENERATOR || value.list->n > 0;
    case VALUE_DICT:
        return value.dict->n > 0;
    default:
        return true;
    }
}

/* ---- equality and order --------------------------------------------------------------------- */

static bool lists_equal(struct render *r, const struct template_list *a,
                        const struct template_list *b) {
    bool a_tuple = a->flavour == LIST_TUPLE;
    bool b_tuple = b->flavour == LIST_TUPLE;
    if (a == b) return true;
    if (a_tuple != b_tuple || (!a_tuple && a->flavour != b->flavour)) return false;
    if (a->n != b->n || a->flavour == LIST_VALUES || a->flavour == LIST_GENERATOR) return false;
    for (size_t i = 0; i < a->n; i++) {
        if (!value_equal(r, a->items[i], b->items[i])) return false;
    }
    return true;
}

static bool dicts_equal(struct render *r, const struct dict *a, const struct dict *b) {
    if (a == b) return true;
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *other = dict_get(r, b, a->pairs[i].key);
        if (!other || !value_equal(r, a->pairs[i].value, *other)) return false;
    }
    return true;
}

bool value_equal(struct render *r, struct value a, struct value b) {
    bool equal = false;
    guard_enter(&r->guard);
    render_charge(r, 1);
    if (value_is_integral(a) && value_is_integral(b)) {
        equal = value_integer(a) == value_integer(b);
    } else if (value_is_number(a) && value_is_number(b)) {
        equal = value_real(a) == value_real(b);
    } else if (a.kind != b.kind) {
        equal = false;
    } else if (a.kind == VALUE_STRING) {
        if (a.string->length == b.string->length) render_charge(r, a.string->length / 64);
        equal = string_equal(a.string, b.string);
    } else if (a.kind == VALUE_LIST) {
        equal = lists_equal(r, a.list, b.list);
    } else if (a.kind == VALUE_DICT) {
        equal = dicts_equal(r, a.dict, b.dict);
    } else if (a.kind == VALUE_UNDEFINED || a.kind == VALUE_NONE) {
        equal = true;
    } else {
        equal = a.dict == b.dict; /* other objects are equal only to themselves */
    }
    guard_leave(&r->guard);
    return equal;
}

_Noreturn static void fail_order(struct render *r, struct value a, struct value b) {
    if (a.kind == VALUE_UNDEFINED) value_undefined_fail(r, a);
    if (b.kind == VALUE_UNDEFINED) value_undefined_fail(r, b);
    render_fail(r, "'%s' and '%s' cannot be ordered", value_type(a), value_type(b));
}

static int lists_compare(struct render *r, struct template_list *a, struct template_list *b) {
    bool a_tuple = a->flavour == LIST_TUPLE;
    bool b_tuple = b->flavour == LIST_TUPLE;
    bool ordered = a_tuple ? b_tuple : a->flavour == LIST_PLAIN && b->flavour == LIST_PLAIN;
    if (!ordered) fail_order(r, VALUE_OF_LIST(a), VALUE_OF_LIST(b));
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        if (!value_equal(r, a->items[i], b->items[i])) {
            return value_compare(r, a->items[i], b->items[i]);
        }
    }
    return a->n < b->n ? -1 : a->n > b->n;
}

int value_compare(struct render *r, struct value a, struct value b) {
    int order = 0;
    guard_enter(&r->guard);
    render_charge(r, 1);
    if (value_is_integral(a) && value_is_integral(b)) {
        int64_t x = value_integer(a), y = value_integer(b);
        order = x < y ? -1 : x > y;
    } else if (value_is_number(a) && value_is_number(b)) {
        double x = value_real(a), y = value_real(b);
        order = x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; /* 2: NaN is not ordered */
    } else if (a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
        render_charge(
            r, (a.string->length < b.string->length ? a.string->length : b.string->length) / 64);
        order = string_compare(a.string, b.string);
    } else if (a.kind == VALUE_LIST && b.kind == VALUE_LIST) {
        order = lists_compare(r, a.list, b.list);
    } else {
        fail_order(r, a, b);
    }
    assert(order >= -1 && order <= 2);
    guard_leave(&r->guard);
    return order;
}

/* ---- iteration ------------------------------------------------------------------------------ */

/* Returns a string's characters, each as a string. */
static struct template_list *characters(struct render *r, const struct string *text) {
    struct template_list *list = list_new(r, string_points(r, text), LIST_PLAIN);
    size_t i = 0;
    for (size_t at = 0, next; at < text->length; at = next) {
        next = string_next(text, at);
        list->items[i++] = string_part(r, text, at, next - at);
    }
    assert(i == list->n);
    return list;
}

bool value_is_iterable(struct value value) {
    return value.kind == VALUE_STRING || value.kind == VALUE_LIST || value.kind == VALUE_DICT ||
           value.kind == VALUE_UNDEFINED;
}

struct template_list *value_iterate(struct render *r, struct value value) {
    if (value.kind == VALUE_STRING) return characters(r, value.string);
    if (value.kind == VALUE_DICT) {
        struct template_list *keys = list_new(r, value.dict->n, LIST_PLAIN);
        for (size_t i = 0; i < keys->n; i++) keys->items[i] = value.dict->pairs[i].key;
        return keys;
    }
    if (value.kind == VALUE_UNDEFINED) return list_new(r, 0, LIST_PLAIN);
    if (value.kind != VALUE_LIST) render_fail(r, "'%s' is not iterable", value_type(value));
    struct template_list *list = value.list;
    assert(list->items || list->n == 0);
    if (list->flavour != LIST_GENERATOR) return list;
    if (list->spent) return list_new(r, 0, LIST_PLAIN);
    list->spent = true;
    return list;
}

size_t value_length(struct render *r, struct value value) {
    if (value.kind == VALUE_STRING) return string_points(r, value.string);
    if (value.kind == VALUE_DICT) return value.dict->n;
    if (value.kind == VALUE_UNDEFINED) return 0;
    if (value.kind == VALUE_LOOP) return value.loop->list->n;
    if (value.kind != VALUE_LIST || value.list->flavour == LIST_GENERATOR) {
        render_fail(r, "'%s' has no length", value_type(value));
    }
    return value.list->n;
}

bool value_contains(struct render *r, struct value container, struct value item) {
    if (container.kind == VALUE_STRING) {
        return string_find(r, container.string,
                           value_need_string(r, item, "the text to find in a string"), 0) >= 0;
    }
    if (container.kind == VALUE_DICT) return dict_get(r, container.dict, item) != NULL;
    const struct template_list *list = value_iterate(r, container);
    for (size_t i = 0; i < list->n; i++) {
        if (value_equal(r, list->items[i], item)) return true;
    }
    return false;
}
