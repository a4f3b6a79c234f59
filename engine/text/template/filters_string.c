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
        set.kind == VALUE_NONE ? NULL : value_need_string(r, set, "what trim takes away");
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
    struct builder *b = builder_new(r);
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
BUILTIN(filter_forceescape, string_escape(r, value_string(r, self)))
BUILTIN(filter_escape, value_is_safe(self) ? self : string_escape(r, value_string(r, self)))

/* s|indent(width, first, blank): indents every line; the first and empty lines only if requested.
 */
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
    struct builder *b = builder_new(r);
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
    struct list *values = list_new(r, args->n_positions, LIST_TUPLE);
    for (size_t i = 0; i < values->n; i++) values->items[i] = args->position[i];
    return string_percent(r, format, VALUE_OF_LIST(values));
}

static struct value filter_wordcount(struct render *r, struct value self, const struct args *args) {
    (void)args;
    const struct string *text = value_string(r, self);
    int64_t n = 0;
    bool inside = false;
    render_charge(r, text->length / 2);
    for (size_t at = 0, next; at < text->length; at = next) {
        next = string_next(text, at);
        bool is_word = point_is_word(string_point(text, at, next));
        n += is_word && !inside;
        inside = is_word;
    }
    return VALUE_OF_INT(n);
}

/* s|truncate(length, killwords, end, leeway) */
static struct value filter_truncate(struct render *r, struct value self, const struct args *args) {
    const struct string *text = value_need_string(r, self, "what is truncated");
    int64_t length = value_need_int(r, arg_or(args, 0, VALUE_OF_INT(255)), "truncate's length");
    const struct string *end =
        value_need_string(r, arg_or(args, 2, string_of(r, "...")), "truncate's end");
    struct value slack = arg_or(args, 3, VALUE_OF_NONE);
    int64_t leeway = slack.kind == VALUE_NONE ? 5 : value_need_int(r, slack, "truncate's leeway");
    int64_t n_end = (int64_t)string_points(r, end), n = (int64_t)string_points(r, text);
    if (length < n_end || leeway < 0) render_fail(r, "truncate's length or leeway is too small");
    if (n - length <= leeway) return self;
    struct value cut = string_part(r, text, 0, string_offset(text, 0, (size_t)(length - n_end)));
    if (!value_truth(arg_or(args, 1, VALUE_OF_BOOL(false)))) {
        const struct string space = {.data = " ", .length = 1};
        ptrdiff_t at = string_find_last(r, cut.string, &space);
        if (at >= 0) cut = string_part(r, text, 0, (size_t)at);
    }
    return string_append(r, cut.string, end);
}

/* ---- other forms of text: for URLs, without tags, with units --------------------------------- */

static struct value filter_center(struct render *r, struct value self, const struct args *args) {
    struct value text = VALUE_OF_STRING(value_string(r, self));
    struct value bound[2] = {arg_or(args, 0, VALUE_OF_INT(80)), VALUE_NOTHING};
    const struct args full = {.position = bound, .n_positions = 1};
    return builtin_run(r, builtin_method(text, "center", 6), text, &full);
}

/* ---- urlencode ------------------------------------------------------------------------------ */

/* Writes all characters except letters, digits and those of `kept` as %XX; a space in a query's
 * part as +. */
static void add_quoted(struct render *r, struct builder *b, const struct string *text,
                       bool in_query) {
    static const char kept[] = "_.-~/";
    render_charge(r, text->length);
    for (size_t i = 0; i < text->length; i++) {
        uint8_t c = (uint8_t)text->data[i];
        bool is_plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        is_plain |= c && strchr(kept, c) && !(in_query && c == '/');
        char quoted[4];
        int n = snprintf(quoted, sizeof quoted, is_plain ? "%c" : "%%%02X", c);
        if (in_query && c == ' ') quoted[0] = '+', n = 1;
        builder_add(r, b, quoted, (size_t)n, string_is_user(text, i));
    }
}

/* Accepts a text, or the pairs of a query: a dict, or a list of pairs. */
static struct value filter_urlencode(struct render *r, struct value self, const struct args *args) {
    (void)args;
    struct builder *b = builder_new(r);
    if (self.kind == VALUE_STRING || !value_is_iterable(self)) {
        add_quoted(r, b, value_string(r, self), false);
        return builder_value(r, b);
    }
    bool is_dict = self.kind == VALUE_DICT;
    const struct list *pairs = is_dict ? NULL : value_iterate(r, self);
    for (size_t i = 0; i < (is_dict ? self.dict->n : pairs->n); i++) {
        struct value part[2];
        if (is_dict) {
            part[0] = self.dict->pairs[i].key;
            part[1] = self.dict->pairs[i].value;
        } else {
            const struct list *pair = value_iterate(r, pairs->items[i]);
            if (pair->n != 2) render_fail(r, "urlencode needs pairs of a key and a value");
            memcpy(part, pair->items, sizeof part);
        }
        if (i > 0) builder_puts(r, b, "&");
        add_quoted(r, b, value_string(r, part[0]), true);
        builder_puts(r, b, "=");
        add_quoted(r, b, value_string(r, part[1]), true);
    }
    return builder_value(r, b);
}

/* ---- striptags ------------------------------------------------------------------------------ */

/* Returns the text without everything between `begin` and `end`, including these. */
static const struct string *without(struct render *r, const struct string *text, const char *begin,
                                    const char *end) {
    struct builder *b = builder_new(r);
    const struct string *open = string_of(r, begin).string, *close = string_of(r, end).string;
    size_t at = 0;
    for (;;) {
        ptrdiff_t from = string_find(r, text, open, at);
        ptrdiff_t to = from < 0 ? -1 : string_find(r, text, close, (size_t)from);
        if (to < 0) break;
        builder_add_part(r, b, text, at, (size_t)from - at);
        at = (size_t)to + close->length;
    }
    builder_add_part(r, b, text, at, text->length - at);
    return builder_value(r, b).string;
}

/* Reads an entity at `at`: a common name, or a number. Returns its bytes, or 0. */
static size_t entity_at(const struct string *text, size_t at, uint32_t *point) {
    static const struct {
        const char *name;
        uint32_t point;
    } named[] = {{"&amp;", '&'},  {"&lt;", '<'},    {"&gt;", '>'},
                 {"&quot;", '"'}, {"&apos;", '\''}, {"&nbsp;", 0xA0}};
    size_t left = text->length - at;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        size_t n = strlen(named[i].name);
        *point = named[i].point;
        if (left >= n && memcmp(text->data + at, named[i].name, n) == 0) return n;
    }
    const char *semicolon = memchr(text->data + at, ';', left < 12 ? left : 12);
    if (!semicolon || left < 4 || text->data[at + 1] != '#') return 0;
    bool is_hex = text->data[at + 2] == 'x' || text->data[at + 2] == 'X';
    char digits[12] = {0}, *stop;
    size_t n = (size_t)(semicolon - (text->data + at)), skipped = is_hex ? 3 : 2;
    memcpy(digits, text->data + at + skipped, n - skipped);
    unsigned long value = strtoul(digits, &stop, is_hex ? 16 : 10);
    bool is_valid = value > 0 && value < 0x110000 && !(value >= 0xD800 && value < 0xE000);
    if (*stop || stop == digits || !is_valid) return 0;
    *point = (uint32_t)value;
    return n + 1;
}

static struct value unescape(struct render *r, const struct string *text) {
    struct builder *b = builder_new(r);
    for (size_t at = 0, n; at < text->length; at += n) {
        uint32_t point;
        n = text->data[at] == '&' ? entity_at(text, at, &point) : 0;
        if (n == 0) {
            builder_add_part(r, b, text, at, n = 1);
            continue;
        }
        char bytes[4];
        builder_add(r, b, bytes, utf8_write(point, bytes), string_is_user(text, at));
    }
    return builder_value(r, b);
}

/* Removes comments and tags, collapses white space, and converts entities to characters. */
static struct value filter_striptags(struct render *r, struct value self, const struct args *args) {
    (void)args;
    const struct args none = {.position = (struct value[]){VALUE_NOTHING, VALUE_NOTHING}};
    const struct string *text = without(r, value_string(r, self), "<!--", "-->");
    struct value whole = VALUE_OF_STRING(without(r, text, "<", ">"));
    struct value words = builtin_run(r, builtin_method(whole, "split", 5), whole, &none);
    struct builder *b = builder_new(r);
    for (size_t i = 0; i < words.list->n; i++) {
        if (i > 0) builder_puts(r, b, " ");
        builder_add_string(r, b, words.list->items[i].string);
    }
    return unescape(r, builder_value(r, b).string);
}

/* ---- filesizeformat ------------------------------------------------------------------------- */

static struct value filter_filesizeformat(struct render *r, struct value self,
                                          const struct args *args) {
    static const char *const units[2][8] = {
        {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
        {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"},
    };
    bool binary = value_truth(arg_or(args, 0, VALUE_OF_BOOL(false)));
    double base = binary ? 1024 : 1000, unit = base * base;
    struct value number =
        self.kind == VALUE_STRING
            ? builtin_run(r, builtin_filter("float", 5), self, &(struct args){.position = NULL})
            : self;
    if (!value_is_number(number)) render_fail(r, "filesizeformat needs a number");
    double bytes = value_real(number);
    char text[400];
    render_charge(r, NUMBER_STEPS);
    if (bytes == 1) return string_of(r, "1 Byte");
    if (bytes < base) {
        snprintf(text, sizeof text, "%.0f Bytes", bytes < 0 ? -floor(-bytes) : floor(bytes));
        return string_copy(r, text, strlen(text), false);
    }
    int i = 0;
    for (; i < 7 && bytes >= unit; i++) unit *= base;
    snprintf(text, sizeof text, "%.1f %s", base * bytes / unit, units[binary][i]);
    return string_copy(r, text, strlen(text), false);
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
    {"forceescape", filter_forceescape, "", 0},
    {"indent", filter_indent, "width,first,blank", 0},
    {"format", filter_format, NULL, 0},
    {"wordcount", filter_wordcount, "", 0},
    {"truncate", filter_truncate, "length,killwords,end,leeway", 0},
    {"center", filter_center, "width", 0},
    {"urlencode", filter_urlencode, "", 0},
    {"striptags", filter_striptags, "", 0},
    {"filesizeformat", filter_filesizeformat, "binary", 0},
    {NULL, NULL, NULL, 0},
};
