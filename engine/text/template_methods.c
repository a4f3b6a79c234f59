/* The methods of strings, lists and dicts that change nothing; the sandbox has no others. */
#include <string.h>
#include <utf8proc.h>

#include "engine/text/template.h"

/* ---- letters -------------------------------------------------------------------------------- */

static struct value by_filter(struct render *r, struct value self, const char *filter) {
    const struct args none = {.position = NULL};
    return builtin_run(r, builtin_filter(filter, strlen(filter)), self, &none);
}

static struct value text_upper(struct render *r, struct value self, const struct args *args) {
    (void)args;
    return by_filter(r, self, "upper");
}

static struct value text_lower(struct render *r, struct value self, const struct args *args) {
    (void)args;
    return by_filter(r, self, "lower");
}

static struct value text_capitalize(struct render *r, struct value self, const struct args *args) {
    (void)args;
    return by_filter(r, self, "capitalize");
}

/* Python's words are runs of letters that have case. */
static int32_t point_titled(int32_t point, int32_t previous) {
    bool inside = previous >= 0 && point_is_cased(previous);
    return inside ? utf8proc_tolower(point) : utf8proc_totitle(point);
}

static struct value text_title(struct render *r, struct value self, const struct args *args) {
    (void)args;
    return text_map(r, self.text, point_titled);
}

static int32_t point_swapped(int32_t point, int32_t previous) {
    (void)previous;
    int32_t upper = utf8proc_toupper(point);
    return upper != point ? upper : utf8proc_tolower(point);
}

static struct value text_swapcase(struct render *r, struct value self, const struct args *args) {
    (void)args;
    return text_map(r, self.text, point_swapped);
}

/* Whether there are characters and all are as `is` wants them. */
static struct value all_points(struct render *r, const struct text *text, bool (*is)(int32_t)) {
    render_charge(r, text->length / 2);
    for (size_t at = 0, next; at < text->length; at = next) {
        next = text_next(text, at);
        int32_t point = text_point(text, at, next);
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

#define ALL_POINTS(name, is)                                                                       \
    static struct value name(struct render *r, struct value self, const struct args *args) {       \
        (void)args;                                                                                \
        return all_points(r, self.text, is);                                                       \
    }

ALL_POINTS(text_isdigit, point_is_digit)
ALL_POINTS(text_isalpha, point_is_alpha)
ALL_POINTS(text_isalnum, point_is_alnum)
ALL_POINTS(text_isnumeric, point_is_numeric)
ALL_POINTS(text_isspace, point_is_space)

static struct value by_test(struct render *r, struct value self, const char *test) {
    const struct args none = {.position = NULL};
    return builtin_run(r, builtin_test(test, strlen(test)), self, &none);
}

static struct value text_isupper(struct render *r, struct value self, const struct args *args) {
    (void)args;
    return by_test(r, self, "upper");
}

static struct value text_islower(struct render *r, struct value self, const struct args *args) {
    (void)args;
    return by_test(r, self, "lower");
}

/* ---- ends ----------------------------------------------------------------------------------- */

static struct value strip(struct render *r, struct value self, const struct args *args, bool left,
                          bool right) {
    struct value set = arg_or(args, 0, VALUE_OF_NONE);
    const struct text *chars =
        set.kind == VALUE_NONE ? NULL : value_need_text(r, set, "what is stripped");
    return text_strip(r, self.text, chars, left, right);
}

static struct value text_strip_both(struct render *r, struct value self, const struct args *args) {
    return strip(r, self, args, true, true);
}

static struct value text_lstrip(struct render *r, struct value self, const struct args *args) {
    return strip(r, self, args, true, false);
}

static struct value text_rstrip(struct render *r, struct value self, const struct args *args) {
    return strip(r, self, args, false, true);
}

static bool has_end(const struct text *text, const struct text *part, bool at_start) {
    if (part->length > text->length) return false;
    const char *at = at_start ? text->data : text->data + text->length - part->length;
    return memcmp(at, part->data, part->length) == 0;
}

/* The text between the characters that two optional arguments name. */
static const struct text *window(struct render *r, struct value self, const struct args *args) {
    struct value start = arg_or(args, 1, VALUE_OF_NONE), stop = arg_or(args, 2, VALUE_OF_NONE);
    if (start.kind == VALUE_NONE && stop.kind == VALUE_NONE) return self.text;
    return value_slice(r, self, start, stop, VALUE_OF_NONE).text;
}

/* startswith and endswith take one string or a tuple of them. */
static struct value ends(struct render *r, struct value self, const struct args *args,
                         bool at_start) {
    const struct text *text = window(r, self, args);
    struct value part = args->position[0];
    if (part.kind != VALUE_LIST || part.list->flavour != LIST_TUPLE) {
        return VALUE_OF_BOOL(has_end(text, value_need_text(r, part, "a string's end"), at_start));
    }
    for (size_t i = 0; i < part.list->n; i++) {
        render_charge(r, 1);
        const struct text *one = value_need_text(r, part.list->items[i], "a string's end");
        if (has_end(text, one, at_start)) return VALUE_OF_BOOL(true);
    }
    return VALUE_OF_BOOL(false);
}

static struct value text_startswith(struct render *r, struct value self, const struct args *args) {
    return ends(r, self, args, true);
}

static struct value text_endswith(struct render *r, struct value self, const struct args *args) {
    return ends(r, self, args, false);
}

static struct value text_removeprefix(struct render *r, struct value self,
                                      const struct args *args) {
    const struct text *text = self.text, *part = value_need_text(r, args->position[0], "a prefix");
    if (!has_end(text, part, true)) return self;
    return text_part(r, text, part->length, text->length - part->length);
}

static struct value text_removesuffix(struct render *r, struct value self,
                                      const struct args *args) {
    const struct text *text = self.text, *part = value_need_text(r, args->position[0], "a suffix");
    return has_end(text, part, false) ? text_part(r, text, 0, text->length - part->length) : self;
}

/* ---- finding -------------------------------------------------------------------------------- */

/* The character position of a part in the whole string, or -1. */
static int64_t find(struct render *r, struct value self, const struct args *args, bool from_right) {
    const struct text *text = window(r, self, args);
    const struct text *part = value_need_text(r, args->position[0], "what is looked for");
    ptrdiff_t at = from_right ? text_find_last(r, text, part) : text_find(r, text, part, 0);
    if (at < 0) return -1;
    bool inside = text->length > 0;
    size_t before = inside ? (size_t)(text->data - self.text->data) + (size_t)at : 0;
    return (int64_t)text_points(r, text_part(r, self.text, 0, before).text);
}

static struct value text_find_method(struct render *r, struct value self, const struct args *args) {
    return VALUE_OF_INT(find(r, self, args, false));
}

static struct value text_rfind(struct render *r, struct value self, const struct args *args) {
    return VALUE_OF_INT(find(r, self, args, true));
}

static struct value text_index(struct render *r, struct value self, const struct args *args) {
    int64_t at = find(r, self, args, false);
    if (at < 0) render_fail(r, "index: the string does not have this part");
    return VALUE_OF_INT(at);
}

static struct value text_rindex(struct render *r, struct value self, const struct args *args) {
    int64_t at = find(r, self, args, true);
    if (at < 0) render_fail(r, "rindex: the string does not have this part");
    return VALUE_OF_INT(at);
}

static struct value text_count(struct render *r, struct value self, const struct args *args) {
    const struct text *text = window(r, self, args);
    const struct text *part = value_need_text(r, args->position[0], "what is counted");
    if (part->length == 0) return VALUE_OF_INT((int64_t)text_points(r, text) + 1);
    int64_t n = 0;
    for (size_t from = 0;; n++) {
        ptrdiff_t at = text_find(r, text, part, from);
        if (at < 0) return VALUE_OF_INT(n);
        from = (size_t)at + part->length;
    }
}

/* An empty part stands before every character and at the end. */
static struct value replace_nothing(struct render *r, const struct text *text,
                                    const struct text *with, int64_t limit) {
    struct builder *b = builder_new(r);
    int64_t n = 0;
    for (size_t at = 0, next; at < text->length; at = next, n++) {
        next = text_next(text, at);
        if (limit < 0 || n < limit) builder_add_text(r, b, with);
        builder_add_part(r, b, text, at, next - at);
        render_charge(r, 1);
    }
    if (limit < 0 || n < limit) builder_add_text(r, b, with);
    return builder_value(r, b);
}

static struct value text_replace(struct render *r, struct value self, const struct args *args) {
    const struct text *text = self.text;
    const struct text *old = value_need_text(r, args->position[0], "what is replaced");
    const struct text *with = value_need_text(r, args->position[1], "what replaces it");
    int64_t limit = value_need_int(r, arg_or(args, 2, VALUE_OF_INT(-1)), "replace's count");
    if (old->length == 0) return replace_nothing(r, text, with, limit);
    struct builder *b = builder_new(r);
    size_t from = 0;
    for (int64_t n = 0; limit < 0 || n < limit; n++) {
        ptrdiff_t at = text_find(r, text, old, from);
        if (at < 0) break;
        builder_add_part(r, b, text, from, (size_t)at - from);
        builder_add_text(r, b, with);
        from = (size_t)at + old->length;
    }
    if (from == 0) return self;
    builder_add_part(r, b, text, from, text->length - from);
    return builder_value(r, b);
}

/* ---- splitting ------------------------------------------------------------------------------ */

/* Words between white space, at most `limit` cuts, after which the rest stays whole. */
static struct list *split_space(struct render *r, const struct text *text, int64_t limit) {
    struct list *words = list_open(r, LIST_PLAIN);
    const struct text *rest = text_strip(r, text, NULL, true, false).text;
    size_t start = 0;
    for (size_t at = 0, next; at < rest->length; at = next) {
        next = text_next(rest, at);
        if (!point_is_space(text_point(rest, at, next))) continue;
        if (at == start) {
            start = next;
            continue;
        }
        if (limit >= 0 && (int64_t)words->n >= limit) break;
        list_push(r, words, text_part(r, rest, start, at - start));
        start = next;
    }
    if (start < rest->length) {
        list_push(r, words, text_part(r, rest, start, rest->length - start));
    }
    return words;
}

static struct list *split_at(struct render *r, const struct text *text,
                             const struct text *separator, int64_t limit) {
    struct list *parts = list_open(r, LIST_PLAIN);
    size_t from = 0;
    while (limit < 0 || (int64_t)parts->n < limit) {
        ptrdiff_t at = text_find(r, text, separator, from);
        if (at < 0) break;
        list_push(r, parts, text_part(r, text, from, (size_t)at - from));
        from = (size_t)at + separator->length;
    }
    list_push(r, parts, text_part(r, text, from, text->length - from));
    return parts;
}

/* Cuts from the right: all parts, of which the first ones are put together again where there are
 * too many. */
static struct value rejoin_first(struct render *r, const struct text *text, struct list *parts,
                                 int64_t limit) {
    if (limit < 0 || (int64_t)parts->n <= limit + 1) return VALUE_OF_LIST(parts);
    size_t n_first = parts->n - (size_t)limit;
    const struct text *first = parts->items[0].text, *last = parts->items[n_first - 1].text;
    size_t start = (size_t)(first->data - text->data);
    size_t end = (size_t)(last->data - text->data) + last->length;
    struct list *result = list_open(r, LIST_PLAIN);
    list_push(r, result, text_part(r, text, start, end - start));
    for (size_t i = n_first; i < parts->n; i++) list_push(r, result, parts->items[i]);
    return VALUE_OF_LIST(result);
}

static struct value split(struct render *r, struct value self, const struct args *args,
                          bool from_right) {
    struct value separator = arg_or(args, 0, VALUE_OF_NONE);
    int64_t limit = value_need_int(r, arg_or(args, 1, VALUE_OF_INT(-1)), "split's maxsplit");
    struct list *parts;
    if (separator.kind == VALUE_NONE) {
        parts = split_space(r, self.text, from_right ? -1 : limit);
        if (from_right && parts->n && limit >= 0 && (int64_t)parts->n > limit) {
            const struct text *lead = text_part(r, self.text, 0, self.text->length).text;
            size_t skipped = (size_t)(parts->items[0].text->data - self.text->data);
            parts->items[0] = text_part(r, lead, 0, skipped + parts->items[0].text->length);
        }
    } else {
        const struct text *mark = value_need_text(r, separator, "split's separator");
        if (mark->length == 0) render_fail(r, "split's separator is empty");
        parts = split_at(r, self.text, mark, from_right ? -1 : limit);
    }
    return from_right ? rejoin_first(r, self.text, parts, limit) : VALUE_OF_LIST(parts);
}

static struct value text_split(struct render *r, struct value self, const struct args *args) {
    return split(r, self, args, false);
}

static struct value text_rsplit(struct render *r, struct value self, const struct args *args) {
    return split(r, self, args, true);
}

static bool ends_line(int32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static struct value text_splitlines(struct render *r, struct value self, const struct args *args) {
    const struct text *text = self.text;
    bool keep = value_truth(arg_or(args, 0, VALUE_OF_BOOL(false)));
    struct list *lines = list_open(r, LIST_PLAIN);
    size_t start = 0;
    render_charge(r, text->length / 4);
    for (size_t at = 0, next; at < text->length; at = next) {
        next = text_next(text, at);
        if (!ends_line(text_point(text, at, next))) continue;
        if (text->data[at] == '\r' && next < text->length && text->data[next] == '\n') next++;
        list_push(r, lines, text_part(r, text, start, (keep ? next : at) - start));
        start = next;
    }
    if (start < text->length) list_push(r, lines, text_part(r, text, start, text->length - start));
    return VALUE_OF_LIST(lines);
}

static struct value partition(struct render *r, struct value self, const struct args *args,
                              bool from_right) {
    const struct text *text = self.text;
    const struct text *mark = value_need_text(r, args->position[0], "partition's separator");
    if (mark->length == 0) render_fail(r, "partition's separator is empty");
    ptrdiff_t at = from_right ? text_find_last(r, text, mark) : text_find(r, text, mark, 0);
    struct list *three = list_new(r, 3, LIST_TUPLE);
    struct value empty = text_of(r, "");
    if (at < 0) {
        three->items[0] = from_right ? empty : self;
        three->items[1] = empty;
        three->items[2] = from_right ? self : empty;
        return VALUE_OF_LIST(three);
    }
    size_t end = (size_t)at + mark->length;
    three->items[0] = text_part(r, text, 0, (size_t)at);
    three->items[1] = text_part(r, text, (size_t)at, mark->length);
    three->items[2] = text_part(r, text, end, text->length - end);
    return VALUE_OF_LIST(three);
}

static struct value text_partition(struct render *r, struct value self, const struct args *args) {
    return partition(r, self, args, false);
}

static struct value text_rpartition(struct render *r, struct value self, const struct args *args) {
    return partition(r, self, args, true);
}

static struct value text_join(struct render *r, struct value self, const struct args *args) {
    const struct list *list = value_iterate(r, args->position[0]);
    struct builder *b = builder_new(r);
    for (size_t i = 0; i < list->n; i++) {
        render_charge(r, 1);
        if (i) builder_add_text(r, b, self.text);
        builder_add_text(r, b, value_need_text(r, list->items[i], "what is joined"));
    }
    return builder_value(r, b);
}

/* ---- padding -------------------------------------------------------------------------------- */

/* Adds `n` times the fill character. */
static void pad(struct render *r, struct builder *b, const struct text *fill, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        render_charge(r, 1);
        builder_add_text(r, b, fill);
    }
}

static struct value justify(struct render *r, struct value self, const struct args *args,
                            int left_of_two) {
    int64_t missing =
        value_need_int(r, args->position[0], "a width") - (int64_t)text_points(r, self.text);
    const struct text *fill = value_need_text(r, arg_or(args, 1, text_of(r, " ")), "the fill");
    if (text_points(r, fill) != 1) render_fail(r, "the fill must be one character");
    if (missing <= 0) return self;
    struct builder *b = builder_new(r);
    int64_t width = missing + (int64_t)text_points(r, self.text);
    int64_t left = left_of_two == 1   ? missing / 2 + (missing & width & 1)
                   : left_of_two == 2 ? missing
                                      : 0;
    pad(r, b, fill, left);
    builder_add_text(r, b, self.text);
    pad(r, b, fill, missing - left);
    return builder_value(r, b);
}

static struct value text_ljust(struct render *r, struct value self, const struct args *args) {
    return justify(r, self, args, 0);
}

static struct value text_center(struct render *r, struct value self, const struct args *args) {
    return justify(r, self, args, 1);
}

static struct value text_rjust(struct render *r, struct value self, const struct args *args) {
    return justify(r, self, args, 2);
}

static struct value text_zfill(struct render *r, struct value self, const struct args *args) {
    const struct text *text = self.text;
    int64_t missing =
        value_need_int(r, args->position[0], "a width") - (int64_t)text_points(r, text);
    size_t sign = text->length && (text->data[0] == '-' || text->data[0] == '+');
    struct builder *b = builder_new(r);
    builder_add_part(r, b, text, 0, sign);
    pad(r, b, text_of(r, "0").text, missing);
    builder_add_part(r, b, text, sign, text->length - sign);
    return builder_value(r, b);
}

const struct builtin template_text_methods[] = {
    {"upper", text_upper, "", 0},
    {"lower", text_lower, "", 0},
    {"capitalize", text_capitalize, "", 0},
    {"title", text_title, "", 0},
    {"swapcase", text_swapcase, "", 0},
    {"isdigit", text_isdigit, "", 0},
    {"isdecimal", text_isdigit, "", 0},
    {"isnumeric", text_isnumeric, "", 0},
    {"isalpha", text_isalpha, "", 0},
    {"isalnum", text_isalnum, "", 0},
    {"isspace", text_isspace, "", 0},
    {"isupper", text_isupper, "", 0},
    {"islower", text_islower, "", 0},
    {"strip", text_strip_both, "#chars", 0},
    {"lstrip", text_lstrip, "#chars", 0},
    {"rstrip", text_rstrip, "#chars", 0},
    {"startswith", text_startswith, "#prefix,#start,#end", 1},
    {"endswith", text_endswith, "#suffix,#start,#end", 1},
    {"removeprefix", text_removeprefix, "#prefix", 1},
    {"removesuffix", text_removesuffix, "#suffix", 1},
    {"find", text_find_method, "#sub,#start,#end", 1},
    {"rfind", text_rfind, "#sub,#start,#end", 1},
    {"index", text_index, "#sub,#start,#end", 1},
    {"rindex", text_rindex, "#sub,#start,#end", 1},
    {"count", text_count, "#sub,#start,#end", 1},
    {"replace", text_replace, "#old,#new,#count", 2},
    {"split", text_split, "sep,maxsplit", 0},
    {"rsplit", text_rsplit, "sep,maxsplit", 0},
    {"splitlines", text_splitlines, "keepends", 0},
    {"partition", text_partition, "#sep", 1},
    {"rpartition", text_rpartition, "#sep", 1},
    {"join", text_join, "#iterable", 1},
    {"ljust", text_ljust, "#width,#fill", 1},
    {"rjust", text_rjust, "#width,#fill", 1},
    {"center", text_center, "#width,#fill", 1},
    {"zfill", text_zfill, "#width", 1},
    {"format", text_format, NULL, 0},
    {NULL, NULL, NULL, 0},
};
