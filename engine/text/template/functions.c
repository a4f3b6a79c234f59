/* The functions that every template can call, and the methods of loops, lists and dicts.
 * Methods that change their object are omitted, like in jinja2's sandbox. */
#include <assert.h>
#include <string.h>
#include <time.h>

#include "engine/text/template/template.h"

static struct value function_raise(struct render *r, struct value self, const struct args *args) {
    (void)self;
    const struct string *message = value_string(r, args->position[0]);
    render_fail(r, "%.*s", (int)(message->length > 400 ? 400 : message->length), message->data);
}

/* strftime_now(format): the time of the render, in UTC. */
static struct value function_strftime(struct render *r, struct value self,
                                      const struct args *args) {
    (void)self;
    const struct string *format = value_need_string(r, args->position[0], "strftime_now's format");
    char pattern[256], out[1024];
    struct tm parts;
    time_t now = (time_t)r->time_s;
    if (format->length >= sizeof pattern) render_fail(r, "strftime_now's format is too long");
    memcpy(pattern, format->data, format->length);
    pattern[format->length] = 0;
    render_charge(r, NUMBER_STEPS);
    if (!gmtime_r(&now, &parts)) render_fail(r, "strftime_now cannot show this time");
    return string_copy(r, out, strftime(out, sizeof out, pattern, &parts), false);
}

/* Returns the number of items of a range. The step is not zero. */
static uint64_t range_length(int64_t start, int64_t stop, int64_t step) {
    assert(step != 0);
    if (step > 0 ? start >= stop : start <= stop) return 0;
    uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : -(uint64_t)step;
    return (span - 1) / stride + 1;
}

static struct value function_range(struct render *r, struct value self, const struct args *args) {
    (void)self;
    int64_t first = value_need_int(r, args->position[0], "range's argument");
    bool has_stop = args->position[1].kind != VALUE_MISSING;
    int64_t start = has_stop ? first : 0;
    int64_t stop = has_stop ? value_need_int(r, args->position[1], "range's argument") : first;
    int64_t step = value_need_int(r, arg_or(args, 2, VALUE_OF_INT(1)), "range's step");
    if (step == 0) render_fail(r, "range's step must not be zero");
    uint64_t n = range_length(start, stop, step);
    if (n > TEMPLATE_RANGE_MAX) {
        render_fail(r, "a range may have at most %d items", TEMPLATE_RANGE_MAX);
    }
    struct template_list *list = list_new(r, (size_t)n, LIST_RANGE);
    for (uint64_t i = 0; i < n; i++) list->items[i] = VALUE_OF_INT(start + (int64_t)i * step);
    list->start = start;
    list->stop = stop;
    list->step = step;
    return VALUE_OF_LIST(list);
}

/* Python's dict(): fills `dict` from a dict or a list of pairs, then from the keywords. */
static void fill_dict(struct render *r, struct dict *dict, const struct args *args) {
    if (args->n_positions > 1) render_fail(r, "dict takes at most one positional argument");
    if (args->n_positions == 1 && args->position[0].kind == VALUE_DICT) {
        const struct dict *from = args->position[0].dict;
        for (size_t i = 0; i < from->n; i++)
            dict_set(r, dict, from->pairs[i].key, from->pairs[i].value);
    } else if (args->n_positions == 1) {
        const struct template_list *from = value_iterate(r, args->position[0]);
        for (size_t i = 0; i < from->n; i++) {
            const struct template_list *pair = value_iterate(r, from->items[i]);
            if (pair->n != 2) render_fail(r, "dict needs pairs of a key and a value");
            dict_set(r, dict, pair->items[0], pair->items[1]);
        }
    }
    for (size_t i = 0; i < args->n_keywords; i++) {
        dict_set(r, dict, VALUE_OF_STRING(args->keyword[i].name), args->keyword[i].value);
    }
}

static struct value function_dict(struct render *r, struct value self, const struct args *args) {
    (void)self;
    struct dict *dict = dict_new(r);
    fill_dict(r, dict, args);
    return VALUE_OF_DICT(dict);
}

static struct value function_namespace(struct render *r, struct value self,
                                       const struct args *args) {
    (void)self;
    struct dict *dict = dict_new(r);
    fill_dict(r, dict, args);
    for (size_t i = 0; i < dict->n; i++) {
        struct value key = dict->pairs[i].key;
        if (key.kind == VALUE_STRING && key.string->length && key.string->data[0] == '_') {
            render_fail(r, "a namespace's attribute must not begin with an underscore");
        }
    }
    return (struct value){.kind = VALUE_NAMESPACE, .dict = dict};
}

const struct builtin template_functions[] = {
    {"range", function_range, "#start,#stop,#step", 1},
    {"dict", function_dict, NULL, 0},
    {"namespace", function_namespace, NULL, 0},
    {"raise_exception", function_raise, "message", 1},
    {"strftime_now", function_strftime, "format", 1},
    {NULL, NULL, NULL, 0},
};

/* ---- methods of loops ----------------------------------------------------------------------- */

static struct value loop_cycle(struct render *r, struct value self, const struct args *args) {
    if (args->n_positions == 0 || args->n_keywords) render_fail(r, "loop.cycle needs values");
    return args->position[self.loop->index % args->n_positions];
}

static struct value loop_changed(struct render *r, struct value self, const struct args *args) {
    struct loop *loop = self.loop;
    bool same = loop->was_asked && loop->changed.n_positions == args->n_positions;
    for (size_t i = 0; same && i < args->n_positions; i++) {
        same = value_equal(r, loop->changed.position[i], args->position[i]);
    }
    loop->changed = *args;
    loop->was_asked = true;
    return VALUE_OF_BOOL(!same);
}

const struct builtin template_loop_methods[] = {
    {"cycle", loop_cycle, NULL, 0},
    {"changed", loop_changed, NULL, 0},
    {NULL, NULL, NULL, 0},
};

/* ---- lists ---------------------------------------------------------------------------------- */

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
    struct template_list *copy = list_new(r, 0, self.list->flavour);
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

/* Returns the result of keys(), values() and items(): a list of the dict's current content. */
static struct value view(struct render *r, const struct dict *dict, enum list_flavour flavour) {
    struct template_list *list = list_new(r, dict->n, flavour);
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
