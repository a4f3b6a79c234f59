/* str() and repr() with Python's rules. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/template/template.h"

/* Returns the smallest number of digits that parse to the same number. */
static int shortest_digits(double real) {
    char text[32];
    int digits = 1;
    for (; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, real);
        if (strtod(text, NULL) == real) break;
    }
    assert(digits <= 17);
    return digits;
}

void real_print(char out[32], double real) {
    char text[32];
    if (isnan(real) || isinf(real)) {
        snprintf(text, sizeof text, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
    } else {
        int digits = shortest_digits(real);
        snprintf(text, sizeof text, "%.*e", digits - 1,
                 real); /* C and Python write exponents in the same way */
        int exponent = atoi(strchr(text, 'e') + 1), decimals = digits - 1 - exponent;
        if (exponent >= -4 && exponent < 16) {
            snprintf(text, sizeof text, "%.*f", decimals > 1 ? decimals : 1, real);
        }
    }
    memcpy(out, text, sizeof text);
}

/* ---- repr of strings ------------------------------------------------------------------------ */

static void repr_point(struct render *r, struct template_builder *b, const struct string *text,
                       size_t at, size_t next, char quote) {
    char escape[16] = "";
    int32_t point = string_point(text, at, next);
    if (point == quote || point == '\\') {
        snprintf(escape, sizeof escape, "\\%c", (char)point);
    } else if (point == '\n' || point == '\r' || point == '\t') {
        snprintf(escape, sizeof escape, "\\%c", point == '\n' ? 'n' : point == '\r' ? 'r' : 't');
    } else if (point >= 0 && !point_is_printable(point)) {
        const char *form = point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x";
        snprintf(escape, sizeof escape, form, (unsigned)point);
    }
    bool user = string_is_user(text, at);
    builder_add(r, b, *escape ? escape : text->data + at, *escape ? strlen(escape) : next - at,
                user);
}

static void repr_string(struct render *r, struct template_builder *b, const struct string *text) {
    bool has_single = memchr(text->data, '\'', text->length) != NULL;
    bool has_double = memchr(text->data, '"', text->length) != NULL;
    char quote[2] = {has_single && !has_double ? '"' : '\'', 0};
    render_charge(r, text->length / 2);
    builder_puts(r, b, quote);
    for (size_t at = 0, next; at < text->length; at = next) {
        next = string_next(text, at);
        repr_point(r, b, text, at, next, quote[0]);
    }
    builder_puts(r, b, quote);
}

/* ---- repr of containers --------------------------------------------------------------------- */

static void print_range(struct render *r, struct template_builder *b,
                        const struct template_list *list) {
    char text[80];
    int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)list->start,
                     (long long)list->stop);
    if (list->step != 1) {
        snprintf(text + n, sizeof text - (size_t)n, ", %lld", (long long)list->step);
    }
    builder_puts(r, b, text);
    builder_puts(r, b, ")");
}

static void print_list(struct render *r, struct template_builder *b,
                       const struct template_list *list) {
    static const char *const opening[] = {[LIST_PLAIN] = "[",
                                          [LIST_TUPLE] = "(",
                                          [LIST_KEYS] = "dict_keys([",
                                          [LIST_VALUES] = "dict_values([",
                                          [LIST_ITEMS] = "dict_items(["};
    static const char *const closing[] = {[LIST_PLAIN] = "]",
                                          [LIST_TUPLE] = ")",
                                          [LIST_KEYS] = "])",
                                          [LIST_VALUES] = "])",
                                          [LIST_ITEMS] = "])"};
    if (list->flavour == LIST_RANGE) {
        print_range(r, b, list);
    } else if (list->flavour == LIST_GENERATOR) {
        builder_puts(r, b, "<generator object>");
    } else {
        assert(opening[list->flavour] && closing[list->flavour]);
        builder_puts(r, b, opening[list->flavour]);
        for (size_t i = 0; i < list->n; i++) {
            if (i) builder_puts(r, b, ", ");
            value_repr(r, b, list->items[i]);
        }
        if (list->flavour == LIST_TUPLE && list->n == 1) builder_puts(r, b, ",");
        builder_puts(r, b, closing[list->flavour]);
    }
}

static void print_dict(struct render *r, struct template_builder *b, const struct dict *dict) {
    builder_puts(r, b, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i) builder_puts(r, b, ", ");
        value_repr(r, b, dict->pairs[i].key);
        builder_puts(r, b, ": ");
        value_repr(r, b, dict->pairs[i].value);
    }
    builder_puts(r, b, "}");
}

/* Prints functions, loops and the like, whose exact repr does not matter to templates. */
static void print_object(struct render *r, struct template_builder *b, struct value value) {
    builder_puts(r, b, "<");
    builder_puts(r, b, value_type(value));
    if (value.kind == VALUE_NAMESPACE) {
        builder_puts(r, b, " ");
        print_dict(r, b, value.dict);
    } else if (value.kind == VALUE_LOOP) {
        char text[64];
        snprintf(text, sizeof text, " %zu/%zu", value.loop->index + 1, value.loop->list->n);
        builder_puts(r, b, text);
    }
    builder_puts(r, b, ">");
}

void value_repr(struct render *r, struct template_builder *b, struct value value) {
    char number[32];
    guard_enter(&r->guard);
    render_charge(r, 1);
    switch (value.kind) {
    case VALUE_UNDEFINED:
    case VALUE_MISSING:
        builder_puts(r, b, "Undefined");
        break;
    case VALUE_NONE:
        builder_puts(r, b, "None");
        break;
    case VALUE_BOOL:
        builder_puts(r, b, value.boolean ? "True" : "False");
        break;
    case VALUE_INT:
        snprintf(number, sizeof number, "%lld", (long long)value.integer);
        builder_puts(r, b, number);
        break;
    case VALUE_FLOAT:
        render_charge(r, NUMBER_STEPS);
        real_print(number, value.real);
        builder_puts(r, b, value_digits(r, value) ? value_digits(r, value) : number);
        break;
    case VALUE_STRING:
        repr_string(r, b, value.string);
        break;
    case VALUE_LIST:
        print_list(r, b, value.list);
        break;
    case VALUE_DICT:
        print_dict(r, b, value.dict);
        break;
    case VALUE_MACRO:
        builder_puts(r, b, "<Macro ");
        repr_string(r, b,
                    value.macro->node->name ? value.macro->node->name
                                            : string_of(r, "caller").string);
        builder_puts(r, b, ">");
        break;
    default:
        print_object(r, b, value);
    }
    guard_leave(&r->guard);
}

void value_print(struct render *r, struct template_builder *b, struct value value) {
    if (value.kind == VALUE_STRING) {
        builder_add_string(r, b, value.string);
    } else if (value.kind != VALUE_UNDEFINED && value.kind != VALUE_MISSING) {
        value_repr(r, b, value);
    }
}

const struct string *value_string(struct render *r, struct value value) {
    if (value.kind == VALUE_STRING) return value.string;
    struct template_builder *b = builder_new(r);
    value_print(r, b, value);
    return builder_value(r, b).string;
}
