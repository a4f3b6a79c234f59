/* Grammars as text: llama-server's GBNF, vLLM's EBNF (the same with other quotes), and a part of
 * Lark. They differ in the beginning of a rule and in a few atoms.
 *
 *     GBNF, EBNF   root ::= "a" [0-9]+ (x | y)?      # comment       starts at root
 *     Lark         start: "a" /[0-9]+/ [x | Y]       // comment      starts at start
 *
 * Lark's templates, priorities and directives such as %ignore change the match or need a lexer;
 * they are refused by name. %import of common's terminals is supported.
 */
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "config/name_index.h"
#include "engine/grammar/read/regex.h"

struct text_grammar {
    struct regex r; /* position, and the reader of classes */
    bool is_lark;
    struct named_rule {
        const char *name, *used_at; /* NULL: not used yet */
        size_t n;
        int rule, next; /* next: same bucket, index + 1; 0: last */
        bool is_defined;
    } * names;
    int n_names, max_names, *buckets, n_buckets; /* n_buckets is a power of 2 */
};

static struct expr *read_alternatives(struct text_grammar *g);

static struct expr *fail(struct text_grammar *g, const char *at, const char *problem) {
    pattern_fail(&g->r, at, problem);
    return &g->r.b->spare;
}

static bool fine(const struct text_grammar *g) {
    return g->r.b->status == STATUS_OK;
}

static bool looking_at(const struct text_grammar *g, const char *text) {
    size_t n = strlen(text);
    return (size_t)(g->r.end - g->r.at) >= n && memcmp(g->r.at, text, n) == 0;
}

static void skip_space(struct text_grammar *g) {
    struct regex *r = &g->r;
    while (r->at < r->end) {
        bool is_comment = *r->at == '#' ? !g->is_lark : g->is_lark && looking_at(g, "//");
        if (is_comment) {
            while (r->at < r->end && *r->at != '\n') r->at++;
        } else if (isspace((unsigned char)*r->at)) {
            r->at++;
        } else {
            return;
        }
    }
}

/* ---- names ---------------------------------------------------------------------------------- */

static size_t name_length(const struct text_grammar *g, const char *at) {
    const char *p = at;
    while (p < g->r.end && (isalnum((unsigned char)*p) || *p == '_' || (*p == '-' && !g->is_lark)))
        p++;
    return (size_t)(p - at);
}

static int *bucket_of(const struct text_grammar *g, const char *name, size_t n) {
    uint64_t hash = name_hash(name, n);
    assert(g->n_buckets > 0 && (g->n_buckets & (g->n_buckets - 1)) == 0);
    return &g->buckets[(hash ^ hash >> 32) & (uint64_t)(g->n_buckets - 1)];
}

static void grow_names(struct text_grammar *g) {
    g->max_names = g->max_names ? 2 * g->max_names : 32;
    g->names = mem_realloc(g->names, (size_t)g->max_names * sizeof *g->names);
    mem_free(g->buckets);
    g->n_buckets = g->max_names;
    g->buckets = mem_calloc((size_t)g->n_buckets, sizeof *g->buckets);
    assert(g->n_names < g->max_names);
    for (int i = 0; i < g->n_names; i++) {
        int *bucket = bucket_of(g, g->names[i].name, g->names[i].n);
        g->names[i].next = *bucket;
        *bucket = i + 1;
    }
}

/* Returns the rule of a name, created at its first use or definition. Checks the time limit along a
 * bucket, since a client may choose names with equal hashes. */
static struct named_rule *find_name(struct text_grammar *g, const char *name, size_t n) {
    if (g->n_names == g->max_names) grow_names(g);
    int *bucket = bucket_of(g, name, n);
    builder_works(g->r.b, n);
    for (int i = *bucket; i; i = g->names[i - 1].next) {
        struct named_rule *named = &g->names[i - 1];
        if (named->n == n && memcmp(named->name, name, n) == 0) return named;
        if (!builder_works(g->r.b, 1)) break;
    }
    assert(g->n_names < g->max_names);
    struct named_rule *named = &g->names[g->n_names];
    *named =
        (struct named_rule){.name = name, .n = n, .rule = rule_new(g->r.b, NULL), .next = *bucket};
    *bucket = ++g->n_names;
    return named;
}

/* If a rule's definition begins here, returns its bytes up to the end of its sign; otherwise 0. */
static size_t definition_length(const struct text_grammar *g, const char **name, size_t *n) {
    const char *p = g->r.at, *end = g->r.end;
    for (int i = 0; i < 2 && g->is_lark && p < end && (*p == '?' || *p == '!'); i++) p++;
    *name = p;
    *n = name_length(g, p);
    if (*n == 0) return 0;
    p += *n;
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    size_t left = (size_t)(end - p);
    if (g->is_lark) return left > 0 && *p == ':' ? (size_t)(p + 1 - g->r.at) : 0;
    return left > 2 && memcmp(p, "::=", 3) == 0 ? (size_t)(p + 3 - g->r.at) : 0;
}

static bool at_definition(const struct text_grammar *g) {
    const char *name;
    size_t n;
    return definition_length(g, &name, &n) > 0;
}

static struct expr *read_reference(struct text_grammar *g) {
    struct regex *r = &g->r;
    const char *at = r->at;
    size_t n = name_length(g, at);
    r->at += n;
    if (g->is_lark && r->at < r->end && *r->at == '{')
        return fail(g, at, "a template, which is not served");
    struct named_rule *named = find_name(g, at, n);
    if (!named->used_at) named->used_at = at;
    return expr_call(r->b, named->rule);
}

/* ---- atoms ---------------------------------------------------------------------------------- */

/* Reads the eight digits of \U. */
static int32_t read_long_escape(struct regex *r) {
    int32_t value = 0;
    for (int i = 0; i < 8; i++, r->at++) {
        if (r->at == r->end || !isxdigit((unsigned char)*r->at) || value > MAX_CODE_POINT >> 4)
            return -1;
        int digit = *r->at <= '9' ? *r->at - '0' : (*r->at | 32) - 'a' + 10;
        value = value * 16 + digit;
    }
    return value > MAX_CODE_POINT ? -1 : value;
}

/* Adds one character or escape of a literal. */
static void add_character(struct text_grammar *g, struct buf *text) {
    struct regex *r = &g->r;
    const char *at = r->at++;
    if (*at != '\\') {
        buf_add(text, at, 1);
        return;
    }
    bool is_long = r->at < r->end && *r->at == 'U';
    r->at += is_long;
    int32_t c = is_long ? read_long_escape(r) : pattern_escaped(r);
    if (c < 0 || (c >= 0xD800 && c < 0xE000)) {
        fail(g, at, "an unknown escape");
        return;
    }
    char bytes[4];
    buf_add(text, bytes, utf8_write((uint32_t)c, bytes));
}

/* Matches the text in either case of each letter. */
static struct expr *caseless(struct builder *b, const struct buf *text) {
    struct expr *all = expr_new(b, EXPR_CAT);
    for (size_t at = 0; at < text->length;) {
        size_t size = utf8_character(text->data + at, text->length - at);
        struct ranges ranges = {0};
        uint32_t c = utf8_code_point(text->data + at, size);
        ranges_add(&ranges, c, c);
        ranges_fold(&ranges);
        expr_add(all, expr_class(b, ranges.list, ranges.n));
        ranges_free(&ranges);
        at += size;
    }
    return all;
}

static struct expr *read_literal(struct text_grammar *g) {
    struct regex *r = &g->r;
    const char *open = r->at++;
    struct buf text = {0};
    buf_puts(&text, "");
    while (fine(g) && r->at < r->end && *r->at != *open && *r->at != '\n') add_character(g, &text);
    struct expr *expr = &r->b->spare;
    if (r->at == r->end || *r->at != *open) {
        fail(g, open, "a text in quotes without its end");
    } else {
        r->at++;
        bool ignores_case = g->is_lark && r->at < r->end && *r->at == 'i';
        r->at += ignores_case;
        expr = ignores_case && fine(g) ? caseless(r->b, &text)
                                       : expr_bytes(r->b, text.data, text.length);
    }
    buf_free(&text);
    return expr;
}

/* Reads Lark's /regex/flags. */
static struct expr *read_slashed(struct text_grammar *g) {
    struct regex *r = &g->r;
    assert(r->at < r->end);
    const char *open = r->at++, *from = r->at;
    while (r->at < r->end && *r->at != '/' && *r->at != '\n') {
        r->at += *r->at == '\\' && r->end - r->at > 1 ? 2 : 1;
    }
    if (r->at >= r->end || *r->at != '/') return fail(g, open, "a /regex/ without its end");
    size_t n = (size_t)(r->at++ - from);
    struct buf pattern = {0};
    const char *flags = r->at;
    while (r->at < r->end && strchr("imslux", *r->at)) r->at++;
    for (const char *flag = flags; flag < r->at; flag++) {
        if (*flag != 'i' && *flag != 's' && *flag != 'u')
            fail(g, flag, "a flag of a /regex/ that is not served: only i and s are");
        if (*flag == 'i' || *flag == 's') buf_printf(&pattern, "(?%c)", *flag);
    }
    buf_add(&pattern, from, n);
    struct expr *expr =
        pattern_read(r->b, "A /regex/ of the grammar", pattern.data, pattern.length, REGEX_PART);
    buf_free(&pattern);
    return expr;
}

static struct expr *read_group(struct text_grammar *g, char close) {
    const char *open = g->r.at++;
    if (!builder_down(g->r.b, "The grammar")) return &g->r.b->spare;
    struct expr *expr = read_alternatives(g);
    builder_up(g->r.b);
    if (!fine(g)) return expr;
    if (g->r.at == g->r.end || *g->r.at != close)
        return fail(g, open, close == ')' ? "a '(' without its ')'" : "a '[' without its ']'");
    g->r.at++;
    return close == ']' ? expr_repeat(g->r.b, expr, 0, 1) : expr;
}

/* Reads the rest of Lark's "a".."z" after its first literal. */
static struct expr *read_span(struct text_grammar *g, const char *at, struct expr *low) {
    assert(g->is_lark && looking_at(g, ".."));
    g->r.at += 2;
    skip_space(g);
    if (g->r.at == g->r.end || *g->r.at != '"') return fail(g, at, "a range without its end");
    struct expr *high = read_literal(g);
    if (!fine(g)) return high;
    bool is_one = low->n == utf8_character(low->text, low->n) && low->n > 0 &&
                  high->n == utf8_character(high->text, high->n) && high->n > 0;
    struct range range = {0};
    if (is_one)
        range = (struct range){utf8_code_point(low->text, low->n),
                               utf8_code_point(high->text, high->n)};
    if (!is_one || range.low > range.high)
        return fail(g, at, "a range that is not from one character up to another");
    return expr_class(g->r.b, &range, 1);
}

static struct expr *read_atom(struct text_grammar *g) {
    struct regex *r = &g->r;
    const char *at = r->at;
    struct range all = {0, MAX_CODE_POINT};
    if (*at == '(') return read_group(g, ')');
    if (*at == '"' || (*at == '\'' && !g->is_lark)) {
        struct expr *literal = read_literal(g);
        bool is_span = fine(g) && literal->kind == EXPR_BYTES && g->is_lark && looking_at(g, "..");
        return is_span ? read_span(g, at, literal) : literal;
    }
    if (name_length(g, at) > 0) return read_reference(g);
    if (*at == '[' && g->is_lark) return read_group(g, ']');
    if (*at == '/' && g->is_lark) return read_slashed(g);
    if (*at == '[') {
        r->at++;
        return pattern_class(r);
    }
    if (*at == '.' && !g->is_lark) {
        r->at++;
        return expr_class(r->b, &all, 1);
    }
    return fail(g, at, "an unexpected character");
}

/* ---- repetitions, sequences, alternatives --------------------------------------------------- */

static int read_count(struct text_grammar *g, int none) {
    struct regex *r = &g->r;
    int n = r->at < r->end && isdigit((unsigned char)*r->at) ? 0 : none;
    for (; r->at < r->end && isdigit((unsigned char)*r->at); r->at++) {
        n = min_int(n * 10 + *r->at - '0', MAX_COUNT);
    }
    skip_space(g);
    return n;
}

/* Reads {m}, {m,} or {m,n} after the brace, or m..n after Lark's ~. */
static bool read_counts(struct text_grammar *g, int *min, int *max) {
    struct regex *r = &g->r;
    const char *at = r->at - 1;
    skip_space(g);
    bool in_braces = *at == '{';
    *min = read_count(g, in_braces ? 0 : -1);
    *max = *min;
    if (in_braces && looking_at(g, ",")) {
        r->at++;
        skip_space(g);
        *max = read_count(g, NO_MAX);
    } else if (!in_braces && looking_at(g, "..")) {
        r->at += 2;
        *max = read_count(g, -2);
    }
    bool closed = !in_braces || (r->at < r->end && *r->at++ == '}');
    bool is_right = closed && *min >= 0 && (*max == NO_MAX || *max >= *min);
    if (!is_right) fail(g, at, "an invalid count of repetitions");
    return is_right;
}

static struct expr *read_repeated(struct text_grammar *g) {
    struct regex *r = &g->r;
    int depth = 0;
    if (!builder_works(r->b, 30)) return &r->b->spare;
    struct expr *expr = read_atom(g);
    for (skip_space(g); fine(g) && r->at < r->end && !at_definition(g); skip_space(g)) {
        int min = *r->at == '+', max = *r->at == '?' ? 1 : NO_MAX;
        bool counts = *r->at == (g->is_lark ? '~' : '{');
        if (!counts && *r->at != '*' && *r->at != '+' && *r->at != '?') break;
        r->at++;
        if (counts && !read_counts(g, &min, &max)) break;
        if (++depth > r->b->limits.max_depth)
            return fail(g, r->at - 1, "too many repetitions of a repetition");
        expr = expr_repeat(r->b, expr, min, max);
    }
    return expr;
}

/* Skips the alias of an alternative in Lark: -> name. */
static void skip_alias(struct text_grammar *g) {
    if (!g->is_lark || !looking_at(g, "->")) return;
    g->r.at += 2;
    skip_space(g);
    g->r.at += name_length(g, g->r.at);
    skip_space(g);
}

static struct expr *read_sequence(struct text_grammar *g) {
    struct regex *r = &g->r;
    struct expr *all = expr_new(r->b, EXPR_CAT);
    for (skip_space(g); fine(g) && r->at < r->end; skip_space(g)) {
        skip_alias(g);
        bool is_end = r->at == r->end || strchr("|);%", *r->at) || (*r->at == ']' && g->is_lark);
        if (is_end || at_definition(g)) break;
        expr_add(all, read_repeated(g));
    }
    return all;
}

static struct expr *read_alternatives(struct text_grammar *g) {
    struct expr *first = read_sequence(g);
    if (g->r.at == g->r.end || *g->r.at != '|') return first;
    struct expr *all = expr_of(g->r.b, EXPR_ALT, first, NULL);
    while (fine(g) && g->r.at < g->r.end && *g->r.at == '|') {
        g->r.at++;
        expr_add(all, read_sequence(g));
    }
    return all;
}

/* ---- rules ---------------------------------------------------------------------------------- */

static void define(struct text_grammar *g, const char *name, size_t n, struct expr *body) {
    struct named_rule *named = find_name(g, name, n);
    if (named->is_defined) fail(g, name, "a rule that is defined twice");
    rule_define(g->r.b, named->rule, body);
    named->is_defined = true;
}

/* Defines Lark's common.NAME. */
static void import_common(struct text_grammar *g, const char *at, const char *name, size_t n) {
    static const struct {
        const char *name, *pattern;
    } common[] = {
        {"DIGIT", "[0-9]"},
        {"HEXDIGIT", "[0-9a-fA-F]"},
        {"INT", "[0-9]+"},
        {"SIGNED_INT", "[+-]?[0-9]+"},
        {"NUMBER", "[0-9]+(\\.[0-9]*)?([eE][+-]?[0-9]+)?|\\.[0-9]+([eE][+-]?[0-9]+)?"},
        {"SIGNED_NUMBER",
         "[+-]?([0-9]+(\\.[0-9]*)?([eE][+-]?[0-9]+)?|\\.[0-9]+([eE][+-]?[0-9]+)?)"},
        {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\.)*\""},
        {"LETTER", "[a-zA-Z]"},
        {"WORD", "[a-zA-Z]+"},
        {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
        {"WS", "[ \\t\\f\\r\\n]+"},
        {"WS_INLINE", "[ \\t]+"},
        {"NEWLINE", "(\\r?\\n)+"},
    };
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        if (strlen(common[i].name) != n || memcmp(common[i].name, name, n) != 0) continue;
        define(g, name, n, pattern_own(g->r.b, common[i].pattern));
        return;
    }
    fail(g, at, "an import that is not served");
}

static void read_directive(struct text_grammar *g) {
    static const char prefix[] = "%import common.";
    const char *at = g->r.at;
    if (!looking_at(g, prefix)) {
        fail(g, at, "a directive that is not served: only %import common.NAME is");
        return;
    }
    g->r.at += sizeof prefix - 1;
    const char *name = g->r.at;
    size_t n = name_length(g, name);
    g->r.at += n;
    import_common(g, at, name, n);
}

static void read_rules(struct text_grammar *g) {
    for (skip_space(g); fine(g) && g->r.at < g->r.end; skip_space(g)) {
        const char *name;
        size_t n, length = definition_length(g, &name, &n);
        if (length == 0 && g->is_lark && *g->r.at == '%') {
            read_directive(g);
            continue;
        }
        if (length == 0) {
            fail(g, g->r.at,
                 g->is_lark ? "no rule, as in \"name: ...\"," : "no rule, as in \"name ::= ...\",");
            return;
        }
        g->r.at += length;
        define(g, name, n, read_alternatives(g));
        skip_space(g);
        if (fine(g) && g->r.at < g->r.end && *g->r.at == ';') g->r.at++;
    }
}

struct expr *gbnf_read(struct builder *b, const char *text, size_t n) {
    bool is_lark = !memmem(text, n, "::=", 3);
    struct text_grammar g = {.is_lark = is_lark};
    g.r = (struct regex){.b = b,
                         .what = "The grammar",
                         .text = text,
                         .at = text,
                         .end = text + n,
                         .counts_lines = true};
    size_t valid = utf8_valid_prefix(text, n);
    if (valid < n) fail(&g, text + valid, "a byte that is not UTF-8");
    read_rules(&g);
    const char *start = is_lark ? "start" : "root";
    struct named_rule *root = find_name(&g, start, strlen(start));
    int rule = root->rule;
    if (fine(&g) && !root->is_defined)
        builder_fail(b, "The grammar lacks its start rule \"%s\".", start);
    for (int i = 0; i < g.n_names && fine(&g); i++) {
        if (!g.names[i].is_defined) fail(&g, g.names[i].used_at, "the name of an undefined rule");
    }
    mem_free(g.names);
    mem_free(g.buckets);
    return fine(&g) ? expr_call(b, rule) : &b->spare;
}
