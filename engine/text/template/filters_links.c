/* urlize: turns addresses in a text into HTML links. The regular expressions of jinja2's utils.py
 * define addresses. Only whether they match matters, and each of their parts ends at the first
 * character outside it. So a single pass decides, for every text. */
#include <string.h>
#include <utf8proc.h>

#include "engine/text/template/template.h"

struct range {
    size_t from, end; /* indices of characters */
};

struct links {
    struct render *r;
    struct builder *b;
    struct points p;
    /* maximum number of shown characters of an address; VALUE_NONE: unlimited */
    struct value limit;
    const struct string *attributes; /* rel and target, in HTML syntax */
    const struct list *schemes;      /* additional schemes of addresses */
};

/* ---- recognising addresses ------------------------------------------------------------------- */

/* Returns a character in lower case, for a comparison with a to z. Python's case-insensitive
 * regular expressions match four more characters with these letters. */
static int32_t folded(int32_t point) {
    bool is_dotted = point == 0x130 || point == 0x131; /* I with a dot above, and i without a dot */
    if (is_dotted) return 'i';
    if (point == 0x17F) return 's';  /* the long s */
    if (point == 0x212A) return 'k'; /* the kelvin sign */
    return point >= 'A' && point <= 'Z' ? point + 'a' - 'A' : point;
}

/* Does the range begin with these letters? */
static bool begins(const struct points *p, struct range range, const char *with, bool folds) {
    if (range.end - range.from < strlen(with)) return false;
    for (size_t i = 0; with[i]; i++) {
        int32_t point = p->point[range.from + i];
        if ((folds ? folded(point) : point) != with[i]) return false;
    }
    return true;
}

static bool is_digit(int32_t point) {
    return point >= 0 && utf8proc_category(point) == UTF8PROC_CATEGORY_ND;
}

static bool is_of_label(int32_t point) {
    return point_is_word(point) || point == '%' || point == '-';
}

/* Is the rest empty, or an optional port followed by nothing, a path, a query or a fragment? */
static bool ends_address(const struct points *p, struct range left) {
    size_t at = left.from;
    if (at < left.end && p->point[at] == ':') {
        size_t end = at + 1;
        while (end < left.end && is_digit(p->point[end])) end++;
        size_t n_digits = end - at - 1;
        if (n_digits >= 1 && n_digits <= 5) at = end;
    }
    return at == left.end || p->point[at] == '/' || p->point[at] == '?' || p->point[at] == '#';
}

/* May it be the last label after http:// or www.: letters, or xn-- and a code? */
static bool is_top_label(const struct points *p, struct range label) {
    size_t n = label.end - label.from, n_letters = 0;
    for (size_t i = label.from; i < label.end; i++)
        n_letters += folded(p->point[i]) >= 'a' && folded(p->point[i]) <= 'z';
    if (n_letters == n && n >= 2 && n <= 63) return true;
    if (!begins(p, label, "xn--", true) || n < 6 || n > 63) return false;
    for (size_t i = label.from + 4; i < label.end; i++)
        if (p->point[i] == '-') return false;
    return true;
}

/* Is it one of the labels that make a bare name an address, without http:// or www.? */
static bool is_common_label(const struct points *p, struct range label) {
    static const char *const common[] = {"com", "net", "int", "edu", "gov", "org", "info", "mil"};
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (label.end - label.from == strlen(common[i]) && begins(p, label, common[i], true))
            return true;
    return false;
}

/* Is it labels with dots between them, and the rest of an address? After http:// or www. one label
 * is enough. A bare name has at least two, of 2 to 63 characters. */
static bool is_name(const struct points *p, struct range range, bool is_bare) {
    struct range label = {range.from, range.from};
    bool has_several = false;
    for (; label.end < range.end; label.end++) {
        size_t n = label.end - label.from;
        if (is_of_label(p->point[label.end])) continue;
        if (p->point[label.end] != '.') break;
        if (n == 0 || (is_bare && (n < 2 || n > 63))) return false;
        label.from = label.end + 1, has_several = true;
    }
    bool is_top = is_bare ? has_several && is_common_label(p, label) : is_top_label(p, label);
    return is_top && ends_address(p, (struct range){label.end, range.end});
}

/* Is it four numbers of at most three digits, and the rest of an address? */
static bool is_ipv4(const struct points *p, struct range range) {
    size_t at = range.from;
    for (int i = 0; i < 4; i++) {
        if (i > 0 && (at == range.end || p->point[at++] != '.')) return false;
        size_t first = at;
        while (at < range.end && is_digit(p->point[at])) at++;
        if (at == first || at - first > 3) return false;
    }
    return ends_address(p, (struct range){at, range.end});
}

/* Is it an IPv6 address in brackets: two groups of at most four hexadecimal digits, each with a
 * colon after it, and up to six more groups, in which digits or colons may be missing? There, more
 * than four digits count as several groups. */
static bool is_ipv6(const struct points *p, struct range range) {
    size_t n_colons = 0, n_more = 0, n_digits = 0, at = range.from + 1;
    if (range.from == range.end || p->point[range.from] != '[') return false;
    for (; at < range.end; at++) {
        int32_t point = folded(p->point[at]);
        bool is_hex = is_digit(point) || (point >= 'a' && point <= 'f');
        if (!is_hex && point != ':') break;
        n_digits += is_hex;
        if (is_hex) continue;
        if (n_colons++ >= 2)
            n_more += n_digits ? (n_digits + 3) / 4 : 1;
        else if (n_digits > 4)
            return false;
        n_digits = 0;
    }
    n_more += (n_digits + 3) / 4;
    return at < range.end && p->point[at] == ']' && n_colons >= 2 && n_more <= 6 &&
           ends_address(p, (struct range){at + 1, range.end});
}

static bool is_web_address(const struct points *p, struct range range) {
    static const char *const prefixes[] = {"https://", "http://", "www."};
    if (is_name(p, range, true)) return true;
    for (size_t i = 0; i < 3; i++) {
        struct range rest = {range.from + strlen(prefixes[i]), range.end};
        if (!begins(p, range, prefixes[i], true)) continue;
        return is_name(p, rest, false) || (i < 2 && (is_ipv4(p, rest) || is_ipv6(p, rest)));
    }
    return false;
}

/* Is it some text, an @, and a name of letters, digits, hyphens and dots, without a hyphen after
 * the last dot? */
static bool is_mail_address(const struct points *p, struct range range) {
    size_t name = range.end, dot = range.end;
    while (name > range.from && p->point[name - 1] != '@') name--;
    if (name < range.from + 2) return false;
    for (size_t i = name; i < range.end; i++) {
        int32_t point = p->point[i];
        bool is_allowed = point_is_word(point) || (i > name && (point == '.' || point == '-'));
        if (!is_allowed) return false;
        if (point == '.') dot = i;
    }
    for (size_t i = dot + 1; i < range.end; i++)
        if (p->point[i] == '-') return false;
    return dot + 1 < range.end;
}

/* ---- writing links --------------------------------------------------------------------------- */

static void put_range(struct links *l, struct range range) {
    size_t from = l->p.at[range.from];
    builder_add_part(l->r, l->b, l->p.text, from, l->p.at[range.end] - from);
}

/* Writes a link to `before` and the address; its text is the range `shown`. */
static void put_link(struct links *l, const char *before, struct range address, struct range shown,
                     bool has_attributes) {
    builder_puts(l->r, l->b, "<a href=\"");
    builder_puts(l->r, l->b, before);
    put_range(l, address);
    builder_puts(l->r, l->b, "\"");
    if (has_attributes) builder_add_string(l->r, l->b, l->attributes);
    builder_puts(l->r, l->b, ">");
    put_range(l, shown);
}

/* Returns the part of an address that is shown; a negative limit counts from its end. */
static struct range within_limit(const struct links *l, struct range range) {
    if (l->limit.kind == VALUE_NONE) return range;
    int64_t n = (int64_t)(range.end - range.from);
    int64_t limit = value_need_int(l->r, l->limit, "urlize's trim_url_limit");
    if (n <= limit) return range;
    if (limit < 0) limit = n + limit > 0 ? n + limit : 0;
    return (struct range){range.from, range.from + (size_t)limit};
}

static void put_web_link(struct links *l, struct range range) {
    bool has_scheme =
        begins(&l->p, range, "https://", false) || begins(&l->p, range, "http://", false);
    struct range shown = within_limit(l, range);
    put_link(l, has_scheme ? "" : "https://", range, shown, true);
    builder_puts(l->r, l->b, shown.end < range.end ? "...</a>" : "</a>");
}

static bool has_further_scheme(const struct links *l, struct range range) {
    const struct string *text = l->p.text;
    size_t from = l->p.at[range.from], length = l->p.at[range.end] - from;
    for (size_t i = 0; i < l->schemes->n; i++) {
        const struct string *scheme = l->schemes->items[i].string;
        render_charge(l->r, 1 + scheme->length / 8);
        if (length > scheme->length && memcmp(text->data + from, scheme->data, scheme->length) == 0)
            return true;
    }
    return false;
}

/* Writes a word without surrounding brackets and punctuation: as a link if it is an address. */
static void put_address(struct links *l, struct range range) {
    const struct points *p = &l->p;
    struct range behind_scheme = {range.from + strlen("mailto:"), range.end};
    bool has_at = false, has_colon = false;
    for (size_t i = range.from; i < range.end; i++) {
        has_at |= p->point[i] == '@';
        has_colon |= p->point[i] == ':';
    }
    bool is_mail = has_at && !has_colon && !begins(p, range, "www.", false);
    if (is_web_address(p, range)) {
        put_web_link(l, range);
    } else if (begins(p, range, "mailto:", false) && is_mail_address(p, behind_scheme)) {
        put_link(l, "", range, behind_scheme, false);
        builder_puts(l->r, l->b, "</a>");
    } else if (is_mail && p->point[range.from] != '@' && is_mail_address(p, range)) {
        put_link(l, "mailto:", range, range, false);
        builder_puts(l->r, l->b, "</a>");
    } else if (has_further_scheme(l, range)) {
        put_link(l, "", range, range, true);
        builder_puts(l->r, l->b, "</a>");
    } else {
        put_range(l, range);
    }
}

/* ---- trimming words -------------------------------------------------------------------------- */

/* The brackets of escaped text, as characters. */
static const char *const brackets[][2] = {{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};

/* Returns the index of the first such bracket in the range, or the range's end. */
static size_t find(const struct points *p, struct range range, const char *bracket) {
    while (range.from < range.end && !begins(p, range, bracket, false)) range.from++;
    return range.from;
}

static size_t count(const struct points *p, struct range range, const char *bracket) {
    size_t n = 0;
    for (; (range.from = find(p, range, bracket)) < range.end; range.from++) n++;
    return n;
}

/* Returns the word without leading opening brackets, trailing closing ones and punctuation. */
static struct range trimmed(const struct points *p, struct range word) {
    for (;;) {
        size_t n = begins(p, word, "(", false) || begins(p, word, "<", false) ? 1 : 0;
        if (begins(p, word, "&lt;", false)) n = strlen("&lt;");
        if (n == 0) break;
        word.from += n;
    }
    while (word.end > word.from) {
        int32_t last = p->point[word.end - 1];
        struct range entity = {word.end - strlen("&gt;"), word.end};
        bool is_entity = word.end - word.from >= 4 && begins(p, entity, "&gt;", false);
        if (!is_entity && last != ')' && last != '>' && last != '.' && last != ',') break;
        word.end -= is_entity ? 4 : 1;
    }
    return word;
}

/* Writes a word. Trailing closing brackets belong to the address as long as they match opening ones
 * in it. */
static void put_word(struct links *l, struct range word) {
    const struct points *p = &l->p;
    struct range middle = trimmed(p, word);
    render_charge(l->r, word.end - word.from);
    for (size_t i = 0; i < sizeof brackets / sizeof *brackets; i++) {
        const char *close = brackets[i][1];
        size_t n_open = count(p, middle, brackets[i][0]);
        if (n_open <= count(p, middle, close)) continue;
        for (; n_open > 0; n_open--) {
            size_t at = find(p, (struct range){middle.end, word.end}, close);
            if (at == word.end) break;
            middle.end = at + strlen(close);
        }
    }
    put_range(l, (struct range){word.from, middle.from});
    put_address(l, middle);
    put_range(l, (struct range){middle.end, word.end});
}

/* ---- the filter ----------------------------------------------------------------------------- */

/* Returns ` rel="..." target="..."`: the words of rel in order, each once, including "noopener". */
static const struct string *attributes_of(struct render *r, const struct args *args) {
    struct value given = arg_or(args, 3, VALUE_OF_NONE), target = arg_or(args, 2, VALUE_OF_NONE);
    struct value rel = value_truth(given) ? given : string_of(r, "");
    struct value defaults[3] = {VALUE_NOTHING, VALUE_OF_BOOL(true), VALUE_NOTHING};
    const struct args in_order = {.position = defaults, .n_positions = 3};
    const struct args none = {.position = defaults, .n_positions = 0};
    value_need_string(r, rel, "urlize's rel");
    struct list *words = builtin_run(r, builtin_method(rel, "split", 5), rel, &none).list;
    if (value_truth(arg_or(args, 1, VALUE_OF_BOOL(false))))
        list_push(r, words, string_of(r, "nofollow"));
    list_push(r, words, string_of(r, "noopener"));
    struct value all = VALUE_OF_LIST(words);
    all = builtin_run(r, builtin_filter("sort", 4), all, &in_order);
    struct builder *b = builder_new(r);
    builder_puts(r, b, " rel=\"");
    for (size_t i = 0; i < all.list->n; i++) {
        if (i && value_equal(r, all.list->items[i], all.list->items[i - 1])) continue;
        if (i) builder_puts(r, b, " ");
        builder_add_string(r, b, string_escape(r, all.list->items[i].string).string);
    }
    builder_puts(r, b, "\"");
    if (value_truth(target)) {
        bool is_safe = value_is_safe(target);
        builder_puts(r, b, " target=\"");
        builder_add_string(
            r, b, is_safe ? target.string : string_escape(r, value_string(r, target)).string);
        builder_puts(r, b, "\"");
    }
    return builder_value(r, b).string;
}

/* Is it at least two letters, digits, dots, plus signs or hyphens, a colon, and up to two slashes?
 */
static bool is_scheme(struct render *r, const struct string *text) {
    struct points p = points_of(r, text);
    size_t n = p.n;
    while (n > 0 && p.n - n < 2 && p.point[n - 1] == '/') n--;
    if (n < 3 || p.point[n - 1] != ':') return false;
    for (size_t i = 0; i + 1 < n; i++) {
        int32_t point = p.point[i];
        if (!point_is_word(point) && point != '.' && point != '+' && point != '-') return false;
    }
    return true;
}

static const struct list *schemes_of(struct render *r, struct value given) {
    if (given.kind == VALUE_NONE) return list_new(r, 0, LIST_PLAIN);
    const struct list *schemes = value_iterate(r, given);
    for (size_t i = 0; i < schemes->n; i++) {
        const struct string *scheme = value_need_string(r, schemes->items[i], "urlize's scheme");
        if (!is_scheme(r, scheme))
            render_fail(r, "urlize: '%.*s' is no beginning of an address", shown_length(scheme),
                        scheme->data);
    }
    return schemes;
}

/* s|urlize(trim_url_limit, nofollow, target, rel, extra_schemes) */
static struct value filter_urlize(struct render *r, struct value self, const struct args *args) {
    struct links l = {.r = r,
                      .b = builder_new(r),
                      .limit = arg_or(args, 0, VALUE_OF_NONE),
                      .attributes = attributes_of(r, args),
                      .schemes = schemes_of(r, arg_or(args, 4, VALUE_OF_NONE))};
    bool is_safe = value_is_safe(self);
    l.p = points_of(r, is_safe ? self.string : string_escape(r, value_string(r, self)).string);
    for (struct range word = {0, 0}; word.from < l.p.n; word.from = word.end) {
        bool is_gap = point_is_space(l.p.point[word.from]);
        while (word.end < l.p.n && point_is_space(l.p.point[word.end]) == is_gap) word.end++;
        if (is_gap)
            put_range(&l, word);
        else
            put_word(&l, word);
    }
    return builder_value(r, l.b);
}

const struct builtin template_filters_links[] = {
    {"urlize", filter_urlize, "trim_url_limit,nofollow,target,rel,extra_schemes", 0},
    {NULL, NULL, NULL, 0},
};
