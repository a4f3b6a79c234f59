/* The methods of lists and dicts. Those that change their object are missing, as in the sandbox of
 * jinja2. */
#include "engine/text/template/template.h"

static struct value list_index(struct render *r, struct value self, const struct args *args) {
    for (size_t i = 0; i < self.list->n; i++) {
        if (value_equal(r, self.list->items[i], args->position[0])) return VALUE_OF_INT((int64_t)i);
    }
    render_fail(r, "index: the list does not contain this item");
}

static struct value list_count(struct render *r, struct value self, const struct args *args) {
    int64_t n = 0;
    for (size_t i = 0; i < self.list->n; i++) {
        n += value_equal(r, self.list->items[i], args->position[0]);
    }
    return VALUE_OF_INT(n);
}

static struct value list_copy(struct render *r, struct value self, const struct args *args) {
    (void)args;
    struct list *copy = list_new(r, 0, self.list->flavour);
    copy->items = self.list->items;
    copy->n = self.list->n;
    return VALUE_OF_LIST(copy);
}

const struct builtin template_list_methods[] = {
    {"index", list_index, "#value", 1},
    {"count", list_count, "#value", 1},
    {"copy", list_copy, "", 0},
    {NULL, NULL, NULL, 0},
};

/* ---- dicts ---------------------------------------------------------------------------------- */

static struct value dict_get_method(struct render *r, struct value self, const struct args *args) {
    const struct value *found = dict_get(r, self.dict, args->position[0]);
    return found ? *found : arg_or(args, 1, VALUE_OF_NONE);
}

/* What keys(), values() and items() return: a list of the dict's present content. */
static struct value view(struct render *r, const struct dict *dict, enum list_flavour flavour) {
    struct list *list = list_new(r, dict->n, flavour);
    for (size_t i = 0; i < dict->n; i++) {
        const struct pair *pair = &dict->pairs[i];
        list->items[i] = flavour == LIST_KEYS     ? pair->key
                         : flavour == LIST_VALUES ? pair->value
                                                  : list_pair(r, pair->key, pair->value);
    }
    return VALUE_OF_LIST(list);
}

BUILTIN(dict_keys, view(r, self.dict, LIST_KEYS))
BUILTIN(dict_values, view(r, self.dict, LIST_VALUES))
BUILTIN(dict_items, view(r, self.dict, LIST_ITEMS))
BUILTIN(dict_copy_method, VALUE_OF_DICT(dict_copy(r, self.dict)))

const struct builtin template_dict_methods[] = {
    {"get", dict_get_method, "#key,#default", 1},
    {"keys", dict_keys, "", 0},
    {"values", dict_values, "", 0},
    {"items", dict_items, "", 0},
    {"copy", dict_copy_method, "", 0},
    {NULL, NULL, NULL, 0},
};
