/* Filters over strings. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/template/template.h"

BUILTIN(filter_string, VALUE_OF_STRING(value_string(r, self)))
BUILTIN(filter_upper, string_map(r, value_string(r, self), point_upper))
BUILTIN(filter_lower, string_map(r, value_string(r, self), point_lower))

static int32_t point_capitalized(int32_t point, int32_t previous) {
    return previous == -1 ? utf8proc_totitle(point) : utf8proc_tolower(point);
}

BUILTIN(filter_capitalize, string_map(r, value_string(r, self), point_capitalized))

/* In jinja2's title, a word begins after white space, a hyphen or an opening bracket. */
static int32_t point_titled(int32_t point, int32_t previous) {
    bool begins = previous == -1 || point_is_space(previous) ||
                  (previous > 0 && previous < 0x80 && strchr("-({[<", previous));
    return begins ? utf8proc_toupper(point) : utf8proc_tolower(point);
}

BUILTIN(filter_title, string_map(r, value_string(r, self), point_titled))

static struct value filter_trim(struct render *r, struct value self, const struct args *args) {
    struct value set = arg_or(args, 0, VALUE_OF_NONE);
    const struct string *chars =
        set.kind == VALUE_NONE ? NULL
                               : value_need_string(r, set, "the characters that trim removes");
    return string_strip(r, value_string(r, self), chars, true, true);
}

static struct value filter_replace(struct render *r, struct value self, const struct args *args) {
    struct value text = VALUE_OF_STRING(value_string(r, self)), bound[3];
    bound[0] = VALUE_OF_STRING(value_string(r, args->position[0]));
    bound[1] = VALUE_OF_STRING(value_string(r, args->position[1]));
    bound[2] = arg_or(args, 2, VALUE_OF_NONE);
    if (bound[2].kind == VALUE_NONE) bound[2] = VALUE_OF_INT(-1);
    const struct args full = {.position = bound, .n_positions = 3};
    return builtin_run(r, builtin_method(text, "replace", 7), text, &full);
}

struct value string_escape(struct render *r, const struct string *text) {
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct template_builder *b = builder_new(r);
    render_charge(r, text->length / 2);
    for (size_t at = 0; at < text->length; at++) {
        const char *known = text->data[at] ? strchr(from, text->data[at]) : NULL;
        if (known) {
            const char *entity = to[known - from];
            builder_add(r, b, entity, strlen(entity), string_is_user(text, at));
        } else {
            builder_add_part(r, b, text, at, 1);
        }
    }
    return value_safe(builder_value(r, b));
}

BUILTIN(filter_safe, value_safe(VALUE_OF_STRING(value_string(r, self))))
BUILTIN(filter_escape, value_is_safe(self) ? self : string_escape(r, value_string(r, self)))

/* s|indent(width, first, blank): indents every line; the first and empty lines only if
 * requested. */
static struct value filter_indent(struct render *r, struct value self, const struct args *args) {
    struct value width = arg_or(args, 0, VALUE_OF_INT(4));
    bool first = value_truth(arg_or(args, 1, VALUE_OF_BOOL(false)));
    bool blank = value_truth(arg_or(args, 2, VALUE_OF_BOOL(false)));
    const struct string *space = width.kind == VALUE_STRING ? width.string : NULL;
    if (!space) space = value_binary(r, '*', string_of(r, " "), width).string;
    struct value text = VALUE_OF_STRING(value_need_string(r, self, "what is indented"));
    struct value whole = string_append(r, text.string, string_of(r, "\n").string);
    struct args none = {.position = (struct value[]){VALUE_NOTHING}, .n_positions = 0};
    struct value lines = builtin_run(r, builtin_method(whole, "splitlines", 10), whole, &none);
    struct template_builder *b = builder_new(r);
    for (size_t i = 0; i < lines.list->n; i++) {
        const struct string *line = lines.list->items[i].string;
        if (i) builder_puts(r, b, "\n");
        if (i ? blank || line->length : first) builder_add_string(r, b, space);
        builder_add_string(r, b, line);
    }
    return builder_value(r, b);
}

static struct value filter_format(struct render *r, struct value self, const struct args *args) {
    const struct string *format = value_string(r, self);
    if (args->n_keywords && args->n_positions) {
        render_fail(r, "format takes values by position or by name, not both");
    }
    if (args->n_keywords) {
        struct dict *dict = dict_new(r);
        for (size_t i = 0; i < args->n_keywords; i++) {
            dict_set(r, dict, VALUE_OF_STRING(args->keyword[i].name), args->keyword[i].value);
        }
        return string_percent(r, format, VALUE_OF_DICT(dict));
    }
    struct template_list *values = list_new(r, args->n_positions, LIST_TUPLE);
    for (size_t i = 0; i < values->n; i++) values->items[i] = args->position[i];
    return string_percent(r, format, VALUE_OF_LIST(values));
}

const struct builtin template_filters_string[] = {
    {"tojson", filter_tojson, "ensure_ascii,indent,separators,sort_keys", 0},
    {"string", filter_string, "", 0},
    {"safe", filter_safe, "", 0},
    {"upper", filter_upper, "", 0},
    {"lower", filter_lower, "", 0},
    {"capitalize", filter_capitalize, "", 0},
    {"title", filter_title, "", 0},
    {"trim", filter_trim, "chars", 0},
    {"replace", filter_replace, "old,new,count", 2},
    {"escape", filter_escape, "", 0},
    {"e", filter_escape, "", 0},
    {"indent", filter_indent, "width,first,blank", 0},
    {"format", filter_format, NULL, 0},
    {NULL, NULL, NULL, 0},
};
