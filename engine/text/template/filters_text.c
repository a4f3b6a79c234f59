/* Filters that format text: wrapped lines, values over several lines, attributes of HTML. The rules
 * are those of jinja2 and of Python's modules textwrap and pprint, because template authors see
 * their results. */
#include <assert.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/template/template.h"

/* ---- wordwrap ------------------------------------------------------------------------------- */

/* Is it white space at which a line may end? Other white space keeps words together. */
static bool is_gap(const struct points *p, size_t i) {
    int32_t point = p->point[i];
    return point == ' ' || (point >= '\t' && point <= '\r');
}

static bool is_dash(const struct points *p, size_t i) {
    return i < p->n && p->point[i] == '-';
}

static bool is_word(const struct points *p, size_t i) {
    return i < p->n && point_is_word(p->point[i]);
}

static bool is_letter(const struct points *p, size_t i) {
    return is_word(p, i) && utf8proc_category(p->point[i]) != UTF8PROC_CATEGORY_ND;
}

/* Returns the end of a dash of at least two hyphens that begins at i between two words, or 0. */
static size_t dash_end(const struct points *p, size_t i) {
    size_t end = i;
    while (is_dash(p, end)) end++;
    if (end < i + 2 || i == 0 || !is_word(p, end)) return 0;
    int32_t before = p->point[i - 1];
    bool is_behind =
        is_word(p, i - 1) || (before > 0 && before < 0x80 && strchr("!\"'&.,?", before));
    return is_behind ? end : 0;
}

/* Does the hyphen at i separate two parts of a word, each with at least two letters? */
static bool is_hyphen(const struct points *p, size_t i) {
    if (!is_dash(p, i) || i < 2 || !is_letter(p, i - 1)) return false;
    bool is_behind = is_letter(p, i - 2) || (i >= 3 && is_dash(p, i - 2) && is_letter(p, i - 3));
    size_t second = is_dash(p, i + 2) ? i + 3 : i + 2;
    return is_behind && is_letter(p, i + 1) && is_letter(p, second);
}

/* Returns the end of the piece that begins at i: a gap, a dash, or (a part of) a word. */
static size_t piece_end(const struct points *p, size_t i, bool at_hyphens) {
    size_t end = i + 1;
    if (is_gap(p, i)) {
        while (end < p->n && is_gap(p, end)) end++;
        return end;
    }
    if (at_hyphens && dash_end(p, i)) return dash_end(p, i);
    for (; end < p->n && !is_gap(p, end); end++) {
        if (!at_hyphens) continue;
        if (is_hyphen(p, end)) return end + 1;
        if (dash_end(p, end)) return end;
    }
    return end;
}

static bool is_blank(const struct points *p, size_t from, size_t end) {
    while (from < end && point_is_space(p->point[from])) from++;
    return from == end;
}

struct wrapping {
    size_t width;
    bool breaks_words, at_hyphens;
};

/* Returns where a piece from `from` that is longer than any line is broken: after its last hyphen
 * among the `left` characters that fit, or after all of them. */
static size_t break_word(const struct points *p, const struct wrapping *how, size_t from,
                         size_t left) {
    bool has_other = false;
    size_t last = 0;
    for (size_t i = from; how->at_hyphens && i < from + left; i++) {
        if (is_dash(p, i) && has_other) last = i + 1;
        has_other |= !is_dash(p, i);
    }
    return last ? last : from + left;
}

/* Takes pieces from *at on while they fit. Returns the line's end, without a gap before it. */
static size_t take_line(const struct points *p, const struct wrapping *how, size_t *at) {
    size_t start = *at, last = start, end = start; /* `last`: start of the last piece */
    while (end < p->n) {
        size_t next = piece_end(p, end, how->at_hyphens);
        if (next - start > how->width) break;
        last = end, end = next;
    }
    if (end < p->n && piece_end(p, end, how->at_hyphens) - end > how->width) {
        size_t word_end = piece_end(p, end, how->at_hyphens);
        if (how->breaks_words) {
            last = end;
            end = break_word(p, how, end, how->width - (end - start));
        } else if (end == start) {
            end = word_end;
        }
    }
    *at = end;
    return is_blank(p, last, end) ? last : end;
}

/* Writes a line of the text as lines of at most `width` characters. */
static void wrap_line(struct render *r, struct builder *b, const struct string *line,
                      const struct wrapping *how, const struct string *end) {
    struct points p = points_of(r, line);
    bool is_first = true;
    for (size_t at = 0; at < p.n;) {
        size_t gap = piece_end(&p, at, how->at_hyphens);
        if (!is_first && is_blank(&p, at, gap)) at = gap;
        size_t start = at, stop = take_line(&p, how, &at);
        render_charge(r, (at - start) / 8 + 1);
        if (stop == start) continue;
        if (!is_first) builder_add_string(r, b, end);
        builder_add_part(r, b, line, p.at[start], p.at[stop] - p.at[start]);
        is_first = false;
    }
}

/* s|wordwrap(width, break_long_words, wrapstring, break_on_hyphens) */
static struct value filter_wordwrap(struct render *r, struct value self, const struct args *args) {
    int64_t width = value_need_int(r, arg_or(args, 0, VALUE_OF_INT(79)), "wordwrap's width");
    struct value wrap = arg_or(args, 2, VALUE_OF_NONE);
    if (wrap.kind == VALUE_NONE) wrap = string_of(r, "\n");
    const struct string *end = value_need_string(r, wrap, "wordwrap's wrapstring");
    const struct wrapping how = {.width = (size_t)width,
                                 .breaks_words = value_truth(arg_or(args, 1, VALUE_OF_BOOL(true))),
                                 .at_hyphens = value_truth(arg_or(args, 3, VALUE_OF_BOOL(true)))};
    if (width <= 0) render_fail(r, "wordwrap's width must be above 0");
    struct value text = VALUE_OF_STRING(value_need_string(r, self, "what is wrapped"));
    struct args none = {.position = (struct value[]){VALUE_NOTHING}, .n_positions = 0};
    struct value lines = builtin_run(r, builtin_method(text, "splitlines", 10), text, &none);
    struct builder *b = builder_new(r);
    for (size_t i = 0; i < lines.list->n; i++) {
        if (i) builder_add_string(r, b, end);
        wrap_line(r, b, lines.list->items[i].string, &how, end);
    }
    return builder_value(r, b);
}

/* ---- pprint --------------------------------------------------------------------------------- */

enum { PAGE = 80 }; /* characters per line */

/* Orders the keys of a dict by value or, if they are not comparable, by the names of their types.
 */
static bool comes_before(struct render *r, struct value a, struct value b) {
    bool has_order = (value_is_number(a) && value_is_number(b)) ||
                     (a.kind == b.kind && (a.kind == VALUE_STRING || a.kind == VALUE_LIST));
    return has_order ? value_compare(r, a, b) < 0 : strcmp(value_type(a), value_type(b)) < 0;
}

/* Returns the value with the keys of all its dicts sorted. */
static struct value in_order(struct render *r, struct value value) {
    guard_enter(&r->guard);
    render_charge(r, 1);
    if (value.kind == VALUE_LIST && value.list->flavour <= LIST_TUPLE) {
        struct list *list = list_new(r, value.list->n, value.list->flavour);
        for (size_t i = 0; i < list->n; i++) list->items[i] = in_order(r, value.list->items[i]);
        value = VALUE_OF_LIST(list);
    } else if (value.kind == VALUE_DICT) {
        size_t n = value.dict->n;
        struct pair *pairs = guard_array(&r->guard, n + 1, sizeof *pairs);
        for (size_t i = 0; i < n; i++) {
            size_t at = i;
            for (; at > 0 && comes_before(r, value.dict->pairs[i].key, pairs[at - 1].key); at--)
                pairs[at] = pairs[at - 1];
            render_charge(r, i - at);
            pairs[at] = value.dict->pairs[i];
        }
        struct dict *dict = dict_new(r);
        for (size_t i = 0; i < n; i++) dict_set(r, dict, pairs[i].key, in_order(r, pairs[i].value));
        value = VALUE_OF_DICT(dict);
    }
    guard_leave(&r->guard);
    return value;
}

static const struct string *repr_of(struct render *r, struct value value) {
    struct builder *b = builder_new(r);
    value_repr(r, b, value);
    return builder_value(r, b).string;
}

static void put_break(struct render *r, struct builder *b, size_t indent) {
    builder_puts(r, b, "\n");
    for (size_t i = 0; i < indent; i++) builder_puts(r, b, " ");
}

/* Where a value is written: `indent` characters are before it, `allowance` characters follow on its
 * last line. Both may be larger than the page. */
struct place {
    int64_t indent, allowance;
    int level; /* nesting level; 0: the whole value */
};

static void put_pretty(struct render *r, struct builder *b, struct value value, struct place place);

static bool fits(struct render *r, const struct string *repr, int64_t room) {
    return (int64_t)string_points(r, repr) <= room;
}

/* Splits a line of a string into parts that each fit on a line, and adds their reprs to the list;
 * words stay whole. */
static void add_words(struct render *r, struct list *parts, const struct string *line, int64_t room,
                      int64_t last_room) {
    size_t begun = 0, end = 0;
    while (end < line->length) {
        size_t from = end;
        bool in_gap = false;
        while (end < line->length) {
            size_t next = string_next(line, end);
            bool is_space = point_is_space(string_point(line, end, next));
            if (in_gap && !is_space) break;
            in_gap = is_space, end = next;
        }
        int64_t now = end == line->length ? last_room : room;
        struct value all = string_part(r, line, begun, end - begun);
        if (from == begun || fits(r, repr_of(r, all), now)) continue;
        list_push(r, parts, VALUE_OF_STRING(repr_of(r, string_part(r, line, begun, from - begun))));
        begun = from;
    }
    list_push(r, parts,
              VALUE_OF_STRING(repr_of(r, string_part(r, line, begun, line->length - begun))));
}

/* Writes a string as several literals that Python would join: one per line, long lines split at
 * gaps. */
static void put_string(struct render *r, struct builder *b, struct value text, struct place place) {
    struct value keep[1] = {VALUE_OF_BOOL(true)};
    struct args args = {.position = keep, .n_positions = 1};
    struct value lines = builtin_run(r, builtin_method(text, "splitlines", 10), text, &args);
    struct list *parts = list_open(r, LIST_PLAIN);
    bool is_whole = place.level == 1;
    place.indent += is_whole, place.allowance += is_whole;
    for (size_t i = 0; i < lines.list->n; i++) {
        const struct string *line = lines.list->items[i].string, *repr;
        int64_t room = PAGE - place.indent;
        int64_t last = i + 1 == lines.list->n ? room - place.allowance : room;
        repr = repr_of(r, lines.list->items[i]);
        if (fits(r, repr, last))
            list_push(r, parts, VALUE_OF_STRING(repr));
        else
            add_words(r, parts, line, room, last);
    }
    bool has_brackets = is_whole && parts->n > 1;
    if (has_brackets) builder_puts(r, b, "(");
    for (size_t i = 0; i < parts->n; i++) {
        if (i) put_break(r, b, (size_t)place.indent);
        builder_add_string(r, b, parts->items[i].string);
    }
    if (has_brackets) builder_puts(r, b, ")");
}

static void put_items(struct render *r, struct builder *b, const struct list *list,
                      struct place place) {
    bool is_tuple = list->flavour == LIST_TUPLE;
    const char *end = !is_tuple ? "]" : list->n == 1 ? ",)" : ")";
    builder_puts(r, b, is_tuple ? "(" : "[");
    place.indent++;
    for (size_t i = 0; i < list->n; i++) {
        bool is_last = i + 1 == list->n;
        int64_t allowance = is_last ? place.allowance + (int64_t)strlen(end) : 1;
        if (i) builder_puts(r, b, ","), put_break(r, b, (size_t)place.indent);
        put_pretty(r, b, list->items[i], (struct place){place.indent, allowance, place.level});
    }
    builder_puts(r, b, end);
}

static void put_pairs(struct render *r, struct builder *b, const struct dict *dict,
                      struct place place) {
    builder_puts(r, b, "{");
    place.indent++;
    for (size_t i = 0; i < dict->n; i++) {
        const struct string *key = repr_of(r, dict->pairs[i].key);
        bool is_last = i + 1 == dict->n;
        if (i) builder_puts(r, b, ","), put_break(r, b, (size_t)place.indent);
        builder_add_string(r, b, key);
        builder_puts(r, b, ": ");
        put_pretty(r, b, dict->pairs[i].value,
                   (struct place){place.indent + (int64_t)string_points(r, key) + 2,
                                  is_last ? place.allowance + 1 : 1, place.level});
    }
    builder_puts(r, b, "}");
}

static void put_pretty(struct render *r, struct builder *b, struct value value,
                       struct place place) {
    const struct string *repr = repr_of(r, value);
    bool is_list = value.kind == VALUE_LIST && value.list->flavour <= LIST_TUPLE;
    guard_enter(&r->guard);
    place.level++;
    if (fits(r, repr, PAGE - place.indent - place.allowance))
        builder_add_string(r, b, repr);
    else if (value.kind == VALUE_STRING && value.string->length > 0)
        put_string(r, b, value, place);
    else if (is_list)
        put_items(r, b, value.list, place);
    else if (value.kind == VALUE_DICT)
        put_pairs(r, b, value.dict, place);
    else
        builder_add_string(r, b, repr);
    guard_leave(&r->guard);
}

static struct value filter_pprint(struct render *r, struct value self, const struct args *args) {
    struct builder *b = builder_new(r);
    (void)args;
    put_pretty(r, b, in_order(r, self), (struct place){0});
    return builder_value(r, b);
}

/* ---- HTML ----------------------------------------------------------------------------------- */

/* d|xmlattr(autospace): writes keys and values as attributes; skips None and undefined values. */
static struct value filter_xmlattr(struct render *r, struct value self, const struct args *args) {
    struct builder *b = builder_new(r);
    bool has_space = value_truth(arg_or(args, 0, VALUE_OF_BOOL(true))), is_first = true;
    if (self.kind == VALUE_UNDEFINED) value_undefined_fail(r, self);
    if (self.kind != VALUE_DICT) render_fail(r, "xmlattr needs a dict");
    for (size_t i = 0; i < self.dict->n; i++) {
        const struct pair *pair = &self.dict->pairs[i];
        struct value value = pair->value;
        if (value.kind == VALUE_NONE || value.kind == VALUE_UNDEFINED) continue;
        const struct string *key = value_need_string(r, pair->key, "an attribute's name");
        for (size_t at = 0; at < key->length; at++)
            if (key->data[at] && strchr(" \t\n\v\f\r/>=", key->data[at]))
                render_fail(r, "xmlattr: '%.*s' is no name of an attribute", shown_length(key),
                            key->data);
        if (has_space || !is_first) builder_puts(r, b, " ");
        bool is_safe = value_is_safe(value);
        builder_add_string(r, b, string_escape(r, key).string);
        builder_puts(r, b, "=\"");
        builder_add_string(
            r, b, is_safe ? value.string : string_escape(r, value_string(r, value)).string);
        builder_puts(r, b, "\"");
        is_first = false;
    }
    return builder_value(r, b);
}

/* ---- refused -------------------------------------------------------------------------------- */

static struct value filter_random(struct render *r, struct value self, const struct args *args) {
    (void)self, (void)args;
    render_fail(r, "the filter random is not supported: the same request must give the same text");
}

const struct builtin template_filters_text[] = {
    {"wordwrap", filter_wordwrap, "width,break_long_words,wrapstring,break_on_hyphens", 0},
    {"pprint", filter_pprint, "", 0},
    {"xmlattr", filter_xmlattr, "autospace", 0},
    {"random", filter_random, "", 0},
    {NULL, NULL, NULL, 0},
};
