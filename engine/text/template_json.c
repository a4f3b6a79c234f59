/* JSON in, from cJSON's tree, and out, as Python's json.dumps writes it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "engine/text/template.h"

/* ---- in ------------------------------------------------------------------------------------- */

/* The string stays where cJSON has it: the caller keeps the tree until the render is over. */
static struct value user_text(struct render *r, const char *data) {
    struct text *text = render_alloc(r, sizeof *text);
    *text =
        (struct text){.data = data ? data : "", .length = data ? strlen(data) : 0, .user = true};
    return VALUE_OF_TEXT(text);
}

/* cJSON holds every number as a double: one that is whole was written as an integer. */
static struct value number(double real) {
    if (real == floor(real) && fabs(real) < 9.2e18) return VALUE_OF_INT((int64_t)real);
    return VALUE_OF_FLOAT(real);
}

static struct value list_from_json(struct render *r, const cJSON *json) {
    struct list *list = list_open(r, LIST_PLAIN);
    for (const cJSON *item = json->child; item; item = item->next) {
        list_push(r, list, value_from_json(r, item));
    }
    return VALUE_OF_LIST(list);
}

static struct value dict_from_json(struct render *r, const cJSON *json) {
    struct dict *dict = dict_new(r);
    for (const cJSON *item = json->child; item; item = item->next) {
        dict_set(r, dict, user_text(r, item->string), value_from_json(r, item));
    }
    return VALUE_OF_DICT(dict);
}

struct value value_from_json(struct render *r, const struct cJSON *json) {
    struct value value = VALUE_OF_NONE;
    guard_enter(&r->guard);
    render_charge(r, 1);
    if (cJSON_IsBool(json)) value = VALUE_OF_BOOL(cJSON_IsTrue(json));
    if (cJSON_IsNumber(json)) value = number(json->valuedouble);
    if (cJSON_IsString(json)) value = user_text(r, json->valuestring);
    if (cJSON_IsArray(json)) value = list_from_json(r, json);
    if (cJSON_IsObject(json)) value = dict_from_json(r, json);
    guard_leave(&r->guard);
    return value;
}

/* ---- out ------------------------------------------------------------------------------------ */

struct writer {
    struct render *r;
    struct builder *out;
    const struct text *indent; /* of one level, or NULL: all on one line */
    const struct text *comma, *colon;
    bool ascii, sorted;
    int level;
};

static void write_value(struct writer *w, struct value value);

static void write_line(struct writer *w) {
    if (!w->indent) return;
    builder_puts(w->r, w->out, "\n");
    for (int i = 0; i < w->level; i++) builder_add_text(w->r, w->out, w->indent);
}

/* An escape for what JSON or ensure_ascii does not let stand; empty where the character stands
 * for itself. */
static void escape_point(char out[16], int32_t point, bool ascii) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *known = point > 0 && point < 0x80 ? strchr(from, point) : NULL;
    out[0] = 0;
    if (known) {
        snprintf(out, 16, "\\%c", to[known - from]);
    } else if (point >= 0x10000 && ascii) {
        unsigned rest = (unsigned)point - 0x10000;
        snprintf(out, 16, "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else if ((point >= 0 && point < 0x20) || (point >= 0x7F && ascii)) {
        snprintf(out, 16, "\\u%04x", (unsigned)point);
    }
}

/* What needs no escape goes over in stretches, of which `kept` is where the current one began. */
static void write_text(struct writer *w, const struct text *text) {
    struct render *r = w->r;
    size_t kept = 0;
    render_charge(r, text->length / 2);
    builder_puts(r, w->out, "\"");
    for (size_t at = 0, next; at < text->length; at = next) {
        char escape[16];
        next = text_next(text, at);
        escape_point(escape, text_point(text, at, next), w->ascii);
        if (!*escape) continue;
        builder_add_part(r, w->out, text, kept, at - kept);
        builder_add(r, w->out, escape, strlen(escape), text_is_user(text, at));
        kept = next;
    }
    builder_add_part(r, w->out, text, kept, text->length - kept);
    builder_puts(r, w->out, "\"");
}

static void write_real(struct writer *w, double real) {
    char text[32];
    render_charge(w->r, NUMBER_STEPS);
    real_print(text, real);
    const char *name = isnan(real)   ? "NaN"
                       : isinf(real) ? (real < 0 ? "-Infinity" : "Infinity")
                                     : text;
    builder_puts(w->r, w->out, name);
}

static void write_list(struct writer *w, const struct list *list) {
    struct render *r = w->r;
    if (list->flavour > LIST_GROUP) {
        render_fail(r, "'%s' cannot be written as JSON",
                    value_type(VALUE_OF_LIST((struct list *)list)));
    }
    builder_puts(r, w->out, "[");
    w->level++;
    for (size_t i = 0; i < list->n; i++) {
        if (i) builder_add_text(r, w->out, w->comma);
        write_line(w);
        write_value(w, list->items[i]);
    }
    w->level--;
    if (list->n) write_line(w);
    builder_puts(r, w->out, "]");
}

/* A key is a string in JSON, whatever it was. */
static void write_key(struct writer *w, struct value key) {
    if (key.kind == VALUE_TEXT) {
        write_text(w, key.text);
        return;
    }
    if (key.kind != VALUE_NONE && !value_is_number(key)) {
        render_fail(w->r, "a key of type '%s' cannot be written as JSON", value_type(key));
    }
    builder_puts(w->r, w->out, "\"");
    write_value(w, key);
    builder_puts(w->r, w->out, "\"");
}

/* The dict's pairs in the order of their keys. */
static struct dict *sorted_dict(struct render *r, struct dict *dict) {
    const struct builtin *sort = builtin_filter("dictsort", 8);
    struct value case_sensitive = VALUE_OF_BOOL(true);
    struct args args = {.position = &case_sensitive, .n_positions = 1};
    struct value items = builtin_run(r, sort, VALUE_OF_DICT(dict), &args);
    struct dict *sorted = dict_new(r);
    for (size_t i = 0; i < items.list->n; i++) {
        const struct list *pair = items.list->items[i].list;
        dict_set(r, sorted, pair->items[0], pair->items[1]);
    }
    return sorted;
}

static void write_dict(struct writer *w, struct dict *dict) {
    struct render *r = w->r;
    if (w->sorted) dict = sorted_dict(r, dict);
    builder_puts(r, w->out, "{");
    w->level++;
    for (size_t i = 0; i < dict->n; i++) {
        if (i) builder_add_text(r, w->out, w->comma);
        write_line(w);
        write_key(w, dict->pairs[i].key);
        builder_add_text(r, w->out, w->colon);
        write_value(w, dict->pairs[i].value);
    }
    w->level--;
    if (dict->n) write_line(w);
    builder_puts(r, w->out, "}");
}

static void write_value(struct writer *w, struct value value) {
    struct render *r = w->r;
    guard_enter(&r->guard);
    render_charge(r, 1);
    switch (value.kind) {
    case VALUE_NONE:
        builder_puts(r, w->out, "null");
        break;
    case VALUE_BOOL:
        builder_puts(r, w->out, value.boolean ? "true" : "false");
        break;
    case VALUE_INT:
        value_repr(r, w->out, value);
        break;
    case VALUE_FLOAT:
        write_real(w, value.real);
        break;
    case VALUE_TEXT:
        write_text(w, value.text);
        break;
    case VALUE_LIST:
        write_list(w, value.list);
        break;
    case VALUE_DICT:
        write_dict(w, value.dict);
        break;
    default:
        render_fail(r, "'%s' cannot be written as JSON", value_type(value));
    }
    guard_leave(&r->guard);
}

static const struct text *indent_text(struct render *r, struct value indent) {
    if (indent.kind == VALUE_NONE) return NULL;
    if (indent.kind == VALUE_TEXT) return indent.text;
    int64_t n = value_need_int(r, indent, "indent");
    struct builder *b = builder_new(r);
    if (n > 100) render_fail(r, "indent must be at most 100");
    for (int64_t i = 0; i < n; i++) builder_puts(r, b, " ");
    return builder_value(r, b).text;
}

/* x|tojson(ensure_ascii, indent, separators, sort_keys): transformers' own filter, which escapes
 * no HTML. */
struct value filter_tojson(struct render *r, struct value self, const struct args *args) {
    struct writer w = {.r = r, .out = builder_new(r)};
    struct value separators = arg_or(args, 2, VALUE_OF_NONE);
    w.ascii = value_truth(arg_or(args, 0, VALUE_OF_BOOL(false)));
    w.indent = indent_text(r, arg_or(args, 1, VALUE_OF_NONE));
    w.sorted = value_truth(arg_or(args, 3, VALUE_OF_BOOL(false)));
    w.comma = text_of(r, w.indent ? "," : ", ").text;
    w.colon = text_of(r, ": ").text;
    if (separators.kind != VALUE_NONE) {
        const struct list *pair = value_iterate(r, separators);
        if (pair->n != 2) render_fail(r, "separators must be two strings");
        w.comma = value_need_text(r, pair->items[0], "a separator");
        w.colon = value_need_text(r, pair->items[1], "a separator");
    }
    write_value(&w, self);
    return builder_value(r, w.out);
}
