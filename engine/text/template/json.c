/* Reads values from a JSON document, and writes JSON in the form of Python's json.dumps. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "engine/text/template/template.h"

/* ---- in ------------------------------------------------------------------------------------- */

/* Returns a string of the user. Its bytes stay in the document, which outlives the render. It ends
 * at a NUL byte, like all strings of a template. */
static struct value user_text(struct render *r, const char *data) {
    struct string *text = render_alloc(r, sizeof *text);
    *text = (struct string){.data = data, .length = strlen(data), .user = true};
    return VALUE_OF_STRING(text);
}

/* Adds the text of an integer beyond 64 bits. Returns its number, from 1. */
static uint32_t add_large(struct render *r, const char *digits) {
    uint32_t n = r->n_large;
    if ((n & (n - 1)) == 0) { /* 0 or a power of two: it is full */
        const char **more = guard_array(&r->guard, n > 0 ? 2 * (size_t)n : 1, sizeof *more);
        if (n > 0) memcpy(more, r->large, n * sizeof *more);
        r->large = more;
    }
    r->large[r->n_large++] = digits;
    return r->n_large;
}

/* Every whole number is an integer, in any notation, except -0.0. */
static struct value number_from_json(struct render *r, const struct json *json) {
    const double number = json_number(json);
    struct value value = VALUE_OF_FLOAT(number);
    bool is_whole = number == floor(number) && fabs(number) < 9.2e18;
    if (json_digits(json))
        value.large = add_large(r, json_digits(json));
    else if (json_is_integer(json) && (number != 0 || !signbit(number)))
        value = VALUE_OF_INT(json_integer(json));
    else if (is_whole && number != 0)
        value = VALUE_OF_INT((int64_t)number);
    return value;
}

struct value value_from_json(struct render *r, const struct json *json) {
    struct value value = VALUE_OF_NONE;
    guard_enter(&r->guard);
    render_charge(r, 1);
    if (json_is(json, JSON_BOOL)) value = VALUE_OF_BOOL(json_true(json));
    if (json_is(json, JSON_NUMBER)) value = number_from_json(r, json);
    if (json_is(json, JSON_STRING)) value = user_text(r, json_text(json));
    if (json_is(json, JSON_ARRAY)) value = VALUE_OF_LIST(list_open(r, LIST_PLAIN));
    if (json_is(json, JSON_OBJECT)) value = VALUE_OF_DICT(dict_new(r));
    json_each(item, json) {
        struct value content = value_from_json(r, item);
        if (value.kind == VALUE_LIST) {
            list_push(r, value.list, content);
        } else {
            dict_set(r, value.dict, user_text(r, item->name), content);
        }
    }
    guard_leave(&r->guard);
    return value;
}

/* ---- out ------------------------------------------------------------------------------------ */

struct json_writer {
    struct render *r;
    struct template_builder *out;
    const struct string *indent; /* for one level, or NULL: everything on one line */
    const struct string *comma, *colon;
    bool ascii, sorted;
    int level;
};

static void write_value(struct json_writer *w, struct value value);

static void write_line(struct json_writer *w) {
    if (!w->indent) return;
    builder_puts(w->r, w->out, "\n");
    for (int i = 0; i < w->level; i++) builder_add_string(w->r, w->out, w->indent);
}

/* Writes the escape that JSON or ensure_ascii requires for a character, or "" if it stays as it
 * is. */
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

/* Copies characters without an escape in runs; `kept` is the start of the current run. */
static void write_text(struct json_writer *w, const struct string *text) {
    struct render *r = w->r;
    size_t kept = 0;
    render_charge(r, text->length / 2);
    builder_puts(r, w->out, "\"");
    for (size_t at = 0, next; at < text->length; at = next) {
        char escape[16];
        next = string_next(text, at);
        escape_point(escape, string_point(text, at, next), w->ascii);
        if (!*escape) continue;
        builder_add_part(r, w->out, text, kept, at - kept);
        builder_add(r, w->out, escape, strlen(escape), string_is_user(text, at));
        kept = next;
    }
    builder_add_part(r, w->out, text, kept, text->length - kept);
    builder_puts(r, w->out, "\"");
}

static void write_real(struct json_writer *w, double real) {
    char text[32];
    render_charge(w->r, NUMBER_STEPS);
    real_print(text, real);
    const char *name = isnan(real)   ? "NaN"
                       : isinf(real) ? (real < 0 ? "-Infinity" : "Infinity")
                                     : text;
    builder_puts(w->r, w->out, name);
}

static void write_list(struct json_writer *w, const struct template_list *list) {
    struct render *r = w->r;
    if (list->flavour > LIST_TUPLE) {
        render_fail(r, "'%s' cannot be written as JSON",
                    value_type(VALUE_OF_LIST((struct template_list *)list)));
    }
    builder_puts(r, w->out, "[");
    w->level++;
    for (size_t i = 0; i < list->n; i++) {
        if (i) builder_add_string(r, w->out, w->comma);
        write_line(w);
        write_value(w, list->items[i]);
    }
    w->level--;
    assert(w->level >= 0);
    if (list->n) write_line(w);
    builder_puts(r, w->out, "]");
}

/* A key is always a string in JSON. */
static void write_key(struct json_writer *w, struct value key) {
    if (key.kind == VALUE_STRING) {
        write_text(w, key.string);
        return;
    }
    if (key.kind != VALUE_NONE && !value_is_number(key)) {
        render_fail(w->r, "a key of type '%s' cannot be written as JSON", value_type(key));
    }
    builder_puts(w->r, w->out, "\"");
    write_value(w, key);
    builder_puts(w->r, w->out, "\"");
}

/* Returns the dict's pairs sorted by key. */
static struct dict *sorted_dict(struct render *r, struct dict *dict) {
    const struct builtin *sort = builtin_filter("dictsort", 8);
    struct value case_sensitive = VALUE_OF_BOOL(true);
    struct args args = {.position = &case_sensitive, .n_positions = 1};
    struct value items = builtin_run(r, sort, VALUE_OF_DICT(dict), &args);
    struct dict *sorted = dict_new(r);
    for (size_t i = 0; i < items.list->n; i++) {
        const struct template_list *pair = items.list->items[i].list;
        assert(pair->n == 2);
        dict_set(r, sorted, pair->items[0], pair->items[1]);
    }
    return sorted;
}

static void write_dict(struct json_writer *w, struct dict *dict) {
    struct render *r = w->r;
    if (w->sorted) dict = sorted_dict(r, dict);
    builder_puts(r, w->out, "{");
    w->level++;
    for (size_t i = 0; i < dict->n; i++) {
        if (i) builder_add_string(r, w->out, w->comma);
        write_line(w);
        write_key(w, dict->pairs[i].key);
        builder_add_string(r, w->out, w->colon);
        write_value(w, dict->pairs[i].value);
    }
    w->level--;
    assert(w->level >= 0);
    if (dict->n) write_line(w);
    builder_puts(r, w->out, "}");
}

static void write_value(struct json_writer *w, struct value value) {
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
        if (value_digits(r, value))
            value_repr(r, w->out, value);
        else
            write_real(w, value.real);
        break;
    case VALUE_STRING:
        write_text(w, value.string);
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

static const struct string *indent_text(struct render *r, struct value indent) {
    if (indent.kind == VALUE_NONE) return NULL;
    if (indent.kind == VALUE_STRING) return indent.string;
    int64_t n = value_need_int(r, indent, "indent");
    struct template_builder *b = builder_new(r);
    if (n > 100) render_fail(r, "indent must be at most 100");
    for (int64_t i = 0; i < n; i++) builder_puts(r, b, " ");
    return builder_value(r, b).string;
}

/* x|tojson(ensure_ascii, indent, separators, sort_keys): the filter of transformers, which does not
 * escape HTML. */
struct value filter_tojson(struct render *r, struct value self, const struct args *args) {
    struct json_writer w = {.r = r, .out = builder_new(r)};
    struct value separators = arg_or(args, 2, VALUE_OF_NONE);
    w.ascii = value_truth(arg_or(args, 0, VALUE_OF_BOOL(false)));
    w.indent = indent_text(r, arg_or(args, 1, VALUE_OF_NONE));
    w.sorted = value_truth(arg_or(args, 3, VALUE_OF_BOOL(false)));
    w.comma = string_of(r, w.indent ? "," : ", ").string;
    w.colon = string_of(r, ": ").string;
    if (separators.kind != VALUE_NONE) {
        const struct template_list *pair = value_iterate(r, separators);
        if (pair->n != 2) render_fail(r, "separators must be two strings");
        w.comma = value_need_string(r, pair->items[0], "a separator");
        w.colon = value_need_string(r, pair->items[1], "a separator");
    }
    write_value(&w, self);
    return builder_value(r, w.out);
}
