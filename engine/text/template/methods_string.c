/* The methods of strings. Like in Python, they do not change the string. */
#include <assert.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/template/template.h"

/* ---- letters -------------------------------------------------------------------------------- */

static struct value by_filter(struct render *r, struct value self, const char *filter) {
    const struct args none = {.position = NULL};
    return builtin_run(r, builtin_filter(filter, strlen(filter)), self, &none);
}

BUILTIN(string_upper, by_filter(r, self, "upper"))
BUILTIN(string_lower, by_filter(r, self, "lower"))
/* Full case folding: one character may become several. */
static struct value string_casefold(struct render *r, struct value self, const struct args *args) {
    const struct string *text = self.string;
    struct template_builder *b = builder_new(r);
    (void)args;
    render_charge(r, text->length);
    for (size_t at = 0, next; at < text->length; at = next) {
        next = string_next(text, at);
        int32_t point = string_point(text, at, next), folded[8];
        int before = 0;
        ptrdiff_t n =
            point < 0 ? 0 : utf8proc_decompose_char(point, folded, 8, UTF8PROC_CASEFOLD, &before);
        if (n <= 0 || n > 8) builder_add_part(r, b, text, at, next - at);
        for (ptrdiff_t i = 0; i < n && n <= 8; i++) {
            char bytes[4];
            size_t size = utf8_write((uint32_t)folded[i], bytes);
            builder_add(r, b, bytes, size, string_is_user(text, at));
        }
    }
    return builder_value(r, b);
}

BUILTIN(string_capitalize, by_filter(r, self, "capitalize"))

/* Python's words are runs of letters that have case. */
static int32_t point_titled(int32_t point, int32_t previous) {
    bool inside = previous >= 0 && point_is_cased(previous);
    return inside ? utf8proc_tolower(point) : utf8proc_totitle(point);
}

BUILTIN(string_title, string_map(r, self.string, point_titled))

static int32_t point_swapped(int32_t point, int32_t previous) {
    (void)previous;
    int32_t upper = utf8proc_toupper(point);
    return upper != point ? upper : utf8proc_tolower(point);
}

BUILTIN(string_swapcase, string_map(r, self.string, point_swapped))

/* Is the string non-empty, and does `is` hold for all its characters? */
static struct value all_points(struct render *r, const struct string *text, bool (*is)(int32_t)) {
    render_charge(r, text->length / 2);
    for (size_t at = 0, next; at < text->length; at = next) {
        next = string_next(text, at);
        int32_t point = string_point(text, at, next);
        if (point < 0 || !is(point)) return VALUE_OF_BOOL(false);
    }
    return VALUE_OF_BOOL(text->length > 0);
}

static bool point_is_digit(int32_t point) {
    return utf8proc_category(point) == UTF8PROC_CATEGORY_ND;
}

static bool point_is_alpha(int32_t point) {
    utf8proc_category_t c = utf8proc_category(point);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool point_is_numeric(int32_t point) {
    utf8proc_category_t c = utf8proc_category(point);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

static bool point_is_alnum(int32_t point) {
    return point_is_alpha(point) || point_is_numeric(point);
}

BUILTIN(string_isdigit, all_points(r, self.string, point_is_digit))
BUILTIN(string_isalpha, all_points(r, self.string, point_is_alpha))
BUILTIN(string_isalnum, all_points(r, self.string, point_is_alnum))
BUILTIN(string_isnumeric, all_points(r, self.string, point_is_numeric))
BUILTIN(string_isspace, all_points(r, self.string, point_is_space))

static struct value by_test(struct render *r, struct value self, const char *test) {
    const struct args none = {.position = NULL};
    return builtin_run(r, builtin_test(test, strlen(test)), self, &none);
}

BUILTIN(string_isupper, by_test(r, self, "upper"))
BUILTIN(string_islower, by_test(r, self, "lower"))

/* ---- ends ----------------------------------------------------------------------------------- */

static struct value strip(struct render *r, struct value self, const struct args *args, bool left,
                          bool right) {
    struct value set = arg_or(args, 0, VALUE_OF_NONE);
    const struct string *chars =
        set.kind == VALUE_NONE ? NULL : value_need_string(r, set, "what is stripped");
    return string_strip(r, self.string, chars, left, right);
}

BUILTIN(string_strip_both, strip(r, self, args, true, true))
BUILTIN(string_lstrip, strip(r, self, args, true, false))
BUILTIN(string_rstrip, strip(r, self, args, false, true))

static bool has_end(const struct string *text, const struct string *part, bool at_start) {
    if (part->length > text->length) return false;
    const char *at = at_start ? text->data : text->data + text->length - part->length;
    return memcmp(at, part->data, part->length) == 0;
}

/* Returns the part of the string between the optional arguments start and end. */
static const struct string *window(struct render *r, struct value self, const struct args *args) {
    struct value start = arg_or(args, 1, VALUE_OF_NONE), stop = arg_or(args, 2, VALUE_OF_NONE);
    if (start.kind == VALUE_NONE && stop.kind == VALUE_NONE) return self.string;
    return value_slice(r, self, start, stop, VALUE_OF_NONE).string;
}

/* startswith and endswith accept one string or a tuple of strings. */
static struct value has_any_end(struct render *r, struct value self, const struct args *args,
                                bool at_start) {
    const struct string *text = window(r, self, args);
    struct value part = args->position[0];
    if (part.kind != VALUE_LIST || part.list->flavour != LIST_TUPLE) {
        return VALUE_OF_BOOL(has_end(text, value_need_string(r, part, "a string's end"), at_start));
    }
    for (size_t i = 0; i < part.list->n; i++) {
        render_charge(r, 1);
        const struct string *one = value_need_string(r, part.list->items[i], "a string's end");
        if (has_end(text, one, at_start)) return VALUE_OF_BOOL(true);
    }
    return VALUE_OF_BOOL(false);
}

BUILTIN(string_startswith, has_any_end(r, self, args, true))
BUILTIN(string_endswith, has_any_end(r, self, args, false))

static struct value string_removeprefix(struct render *r, struct value self,
                                        const struct args *args) {
    const struct string *text = self.string,
                        *part = value_need_string(r, args->position[0], "a prefix");
    if (!has_end(text, part, true)) return self;
    return string_part(r, text, part->length, text->length - part->length);
}

static struct value string_removesuffix(struct render *r, struct value self,
                                        const struct args *args) {
    const struct string *text = self.string,
                        *part = value_need_string(r, args->position[0], "a suffix");
    return has_end(text, part, false) ? string_part(r, text, 0, text->length - part->length) : self;
}

/* ---- finding -------------------------------------------------------------------------------- */

/* Returns the character index of a part in the whole string, or -1. */
static int64_t find(struct render *r, struct value self, const struct args *args, bool from_right) {
    const struct string *text = window(r, self, args);
    const struct string *part = value_need_string(r, args->position[0], "the text to find");
    ptrdiff_t at = from_right ? string_find_last(r, text, part) : string_find(r, text, part, 0);
    if (at < 0) return -1;
    bool inside = text->length > 0;
    size_t before = inside ? (size_t)(text->data - self.string->data) + (size_t)at : 0;
    assert(before <= self.string->length);
    return (int64_t)string_points(r, string_part(r, self.string, 0, before).string);
}

BUILTIN(string_find_method, VALUE_OF_INT(find(r, self, args, false)))
BUILTIN(string_rfind, VALUE_OF_INT(find(r, self, args, true)))

/* index and rindex: like find, but a missing part is an error. */
static struct value find_or_fail(struct render *r, struct value self, const struct args *args,
                                 bool from_right) {
    int64_t at = find(r, self, args, from_right);
    if (at < 0) {
        render_fail(r, "%s: the string does not contain this part",
                    from_right ? "rindex" : "index");
    }
    return VALUE_OF_INT(at);
}

BUILTIN(string_index, find_or_fail(r, self, args, false))
BUILTIN(string_rindex, find_or_fail(r, self, args, true))

static struct value string_count(struct render *r, struct value self, const struct args *args) {
    const struct string *text = window(r, self, args);
    const struct string *part = value_need_string(r, args->position[0], "what is counted");
    if (part->length == 0) return VALUE_OF_INT((int64_t)string_points(r, text) + 1);
    int64_t n = 0;
    for (size_t from = 0;; n++) {
        ptrdiff_t at = string_find(r, text, part, from);
        if (at < 0) return VALUE_OF_INT(n);
        from = (size_t)at + part->length;
    }
}

/* Replaces the empty string, which occurs before every character and at the end. */
static struct value replace_empty(struct render *r, const struct string *text,
                                  const struct string *with, int64_t limit) {
    struct template_builder *b = builder_new(r);
    int64_t n = 0;
    for (size_t at = 0, next; at < text->length; at = next, n++) {
        next = string_next(text, at);
        if (limit < 0 || n < limit) builder_add_string(r, b, with);
        builder_add_part(r, b, text, at, next - at);
        render_charge(r, 1);
    }
    if (limit < 0 || n < limit) builder_add_string(r, b, with);
    return builder_value(r, b);
}

static struct value string_replace(struct render *r, struct value self, const struct args *args) {
    const struct string *text = self.string;
    const struct string *old = value_need_string(r, args->position[0], "what is replaced");
    const struct string *with = value_need_string(r, args->position[1], "what replaces it");
    int64_t limit = value_need_int(r, arg_or(args, 2, VALUE_OF_INT(-1)), "replace's count");
    if (old->length == 0) return replace_empty(r, text, with, limit);
    struct template_builder *b = builder_new(r);
    size_t from = 0;
    for (int64_t n = 0; limit < 0 || n < limit; n++) {
        ptrdiff_t at = string_find(r, text, old, from);
        if (at < 0) break;
        builder_add_part(r, b, text, from, (size_t)at - from);
        builder_add_string(r, b, with);
        from = (size_t)at + old->length;
    }
    if (from == 0) return self;
    builder_add_part(r, b, text, from, text->length - from);
    return builder_value(r, b);
}

/* ---- splitting ------------------------------------------------------------------------------ */

/* Splits at white space, at most `limit` times; the rest is one part. */
static struct template_list *split_space(struct render *r, const struct string *text,
                                         int64_t limit) {
    struct template_list *words = list_open(r, LIST_PLAIN);
    const struct string *rest = string_strip(r, text, NULL, true, false).string;
    size_t start = 0;
    for (size_t at = 0, next; at < rest->length; at = next) {
        next = string_next(rest, at);
        if (!point_is_space(string_point(rest, at, next))) continue;
        if (at == start) {
            start = next;
            continue;
        }
        if (limit >= 0 && (int64_t)words->n >= limit) break;
        list_push(r, words, string_part(r, rest, start, at - start));
        start = next;
    }
    if (start < rest->length) {
        list_push(r, words, string_part(r, rest, start, rest->length - start));
    }
    return words;
}

static struct template_list *split_at(struct render *r, const struct string *text,
                                      const struct string *separator, int64_t limit) {
    struct template_list *parts = list_open(r, LIST_PLAIN);
    size_t from = 0;
    while (limit < 0 || (int64_t)parts->n < limit) {
        ptrdiff_t at = string_find(r, text, separator, from);
        if (at < 0) break;
        list_push(r, parts, string_part(r, text, from, (size_t)at - from));
        from = (size_t)at + separator->length;
    }
    list_push(r, parts, string_part(r, text, from, text->length - from));
    return parts;
}

/* rsplit: if there are more than `limit` + 1 parts, joins the first ones again. */
static struct value rejoin_first(struct render *r, const struct string *text,
                                 struct template_list *parts, int64_t limit) {
    if (limit < 0 || (int64_t)parts->n - 1 <= limit) return VALUE_OF_LIST(parts);
    size_t n_first = parts->n - (size_t)limit;
    assert(n_first > 1 && n_first <= parts->n);
    const struct string *first = parts->items[0].string, *last = parts->items[n_first - 1].string;
    size_t start = (size_t)(first->data - text->data);
    size_t end = (size_t)(last->data - text->data) + last->length;
    struct template_list *result = list_open(r, LIST_PLAIN);
    list_push(r, result, string_part(r, text, start, end - start));
    for (size_t i = n_first; i < parts->n; i++) list_push(r, result, parts->items[i]);
    return VALUE_OF_LIST(result);
}

static struct value split(struct render *r, struct value self, const struct args *args,
                          bool from_right) {
    struct value separator = arg_or(args, 0, VALUE_OF_NONE);
    int64_t limit = value_need_int(r, arg_or(args, 1, VALUE_OF_INT(-1)), "split's maxsplit");
    struct template_list *parts;
    if (separator.kind == VALUE_NONE) {
        parts = split_space(r, self.string, from_right ? -1 : limit);
        if (from_right && parts->n && limit >= 0 && (int64_t)parts->n > limit) {
            const struct string *lead = string_part(r, self.string, 0, self.string->length).string;
            size_t skipped = (size_t)(parts->items[0].string->data - self.string->data);
            parts->items[0] = string_part(r, lead, 0, skipped + parts->items[0].string->length);
        }
    } else {
        const struct string *mark = value_need_string(r, separator, "split's separator");
        if (mark->length == 0) render_fail(r, "split's separator is empty");
        parts = split_at(r, self.string, mark, from_right ? -1 : limit);
    }
    return from_right ? rejoin_first(r, self.string, parts, limit) : VALUE_OF_LIST(parts);
}

BUILTIN(string_split, split(r, self, args, false))
BUILTIN(string_rsplit, split(r, self, args, true))

/* Does Python's str.splitlines end a line at this character? */
static bool ends_line(int32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static struct value string_splitlines(struct render *r, struct value self,
                                      const struct args *args) {
    const struct string *text = self.string;
    bool keep = value_truth(arg_or(args, 0, VALUE_OF_BOOL(false)));
    struct template_list *lines = list_open(r, LIST_PLAIN);
    size_t start = 0;
    render_charge(r, text->length / 4);
    for (size_t at = 0, next; at < text->length; at = next) {
        next = string_next(text, at);
        if (!ends_line(string_point(text, at, next))) continue;
        if (text->data[at] == '\r' && next < text->length && text->data[next] == '\n') next++;
        list_push(r, lines, string_part(r, text, start, (keep ? next : at) - start));
        start = next;
    }
    if (start < text->length)
        list_push(r, lines, string_part(r, text, start, text->length - start));
    return VALUE_OF_LIST(lines);
}

static struct value partition(struct render *r, struct value self, const struct args *args,
                              bool from_right) {
    const struct string *text = self.string;
    const struct string *mark = value_need_string(r, args->position[0], "partition's separator");
    if (mark->length == 0) render_fail(r, "partition's separator is empty");
    ptrdiff_t at = from_right ? string_find_last(r, text, mark) : string_find(r, text, mark, 0);
    struct template_list *three = list_new(r, 3, LIST_TUPLE);
    struct value empty = string_of(r, "");
    if (at < 0) {
        three->items[0] = from_right ? empty : self;
        three->items[1] = empty;
        three->items[2] = from_right ? self : empty;
        return VALUE_OF_LIST(three);
    }
    size_t end = (size_t)at + mark->length;
    three->items[0] = string_part(r, text, 0, (size_t)at);
    three->items[1] = string_part(r, text, (size_t)at, mark->length);
    three->items[2] = string_part(r, text, end, text->length - end);
    return VALUE_OF_LIST(three);
}

BUILTIN(string_partition, partition(r, self, args, false))
BUILTIN(string_rpartition, partition(r, self, args, true))

static struct value string_join(struct render *r, struct value self, const struct args *args) {
    const struct template_list *list = value_iterate(r, args->position[0]);
    struct template_builder *b = builder_new(r);
    for (size_t i = 0; i < list->n; i++) {
        render_charge(r, 1);
        if (i) builder_add_string(r, b, self.string);
        builder_add_string(r, b, value_need_string(r, list->items[i], "what is joined"));
    }
    return builder_value(r, b);
}

/* ---- padding -------------------------------------------------------------------------------- */

/* Adds the fill character `n` times. */
static void pad(struct render *r, struct template_builder *b, const struct string *fill,
                int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        render_charge(r, 1);
        builder_add_string(r, b, fill);
    }
}

/* `left_of_two`: halves of the padding on the left. The centre is rounded like in Python. */
static struct value justify(struct render *r, struct value self, const struct args *args,
                            int left_of_two) {
    int64_t width = value_need_int(r, args->position[0], "a width");
    int64_t present = (int64_t)string_points(r, self.string);
    const struct string *fill =
        value_need_string(r, arg_or(args, 1, string_of(r, " ")), "the fill");
    if (string_points(r, fill) != 1) render_fail(r, "the fill must be one character");
    if (width <= present) return self;
    int64_t missing = width - present;
    struct template_builder *b = builder_new(r);
    int64_t left = left_of_two == 1   ? missing / 2 + (missing & width & 1)
                   : left_of_two == 2 ? missing
                                      : 0;
    assert(left >= 0 && left <= missing);
    pad(r, b, fill, left);
    builder_add_string(r, b, self.string);
    pad(r, b, fill, missing - left);
    return builder_value(r, b);
}

BUILTIN(string_ljust, justify(r, self, args, 0))
BUILTIN(string_center, justify(r, self, args, 1))
BUILTIN(string_rjust, justify(r, self, args, 2))

static struct value string_zfill(struct render *r, struct value self, const struct args *args) {
    const struct string *text = self.string;
    int64_t width = value_need_int(r, args->position[0], "a width");
    int64_t present = (int64_t)string_points(r, text);
    size_t sign = text->length && (text->data[0] == '-' || text->data[0] == '+');
    struct template_builder *b = builder_new(r);
    builder_add_part(r, b, text, 0, sign);
    pad(r, b, string_of(r, "0").string, width > present ? width - present : 0);
    builder_add_part(r, b, text, sign, text->length - sign);
    return builder_value(r, b);
}

const struct builtin template_string_methods[] = {
    {"upper", string_upper, "", 0},
    {"lower", string_lower, "", 0},
    {"casefold", string_casefold, "", 0},
    {"capitalize", string_capitalize, "", 0},
    {"title", string_title, "", 0},
    {"swapcase", string_swapcase, "", 0},
    {"isdigit", string_isdigit, "", 0},
    {"isdecimal", string_isdigit, "", 0},
    {"isnumeric", string_isnumeric, "", 0},
    {"isalpha", string_isalpha, "", 0},
    {"isalnum", string_isalnum, "", 0},
    {"isspace", string_isspace, "", 0},
    {"isupper", string_isupper, "", 0},
    {"islower", string_islower, "", 0},
    {"strip", string_strip_both, "#chars", 0},
    {"lstrip", string_lstrip, "#chars", 0},
    {"rstrip", string_rstrip, "#chars", 0},
    {"startswith", string_startswith, "#prefix,#start,#end", 1},
    {"endswith", string_endswith, "#suffix,#start,#end", 1},
    {"removeprefix", string_removeprefix, "#prefix", 1},
    {"removesuffix", string_removesuffix, "#suffix", 1},
    {"find", string_find_method, "#sub,#start,#end", 1},
    {"rfind", string_rfind, "#sub,#start,#end", 1},
    {"index", string_index, "#sub,#start,#end", 1},
    {"rindex", string_rindex, "#sub,#start,#end", 1},
    {"count", string_count, "#sub,#start,#end", 1},
    {"replace", string_replace, "#old,#new,#count", 2},
    {"split", string_split, "sep,maxsplit", 0},
    {"rsplit", string_rsplit, "sep,maxsplit", 0},
    {"splitlines", string_splitlines, "keepends", 0},
    {"partition", string_partition, "#sep", 1},
    {"rpartition", string_rpartition, "#sep", 1},
    {"join", string_join, "#iterable", 1},
    {"ljust", string_ljust, "#width,#fill", 1},
    {"rjust", string_rjust, "#width,#fill", 1},
    {"center", string_center, "#width,#fill", 1},
    {"zfill", string_zfill, "#width", 1},
    {"format", string_format, NULL, 0},
    {NULL, NULL, NULL, 0},
};
