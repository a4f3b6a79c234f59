/* Recursive descent reader of regular expressions in RE2's syntax, with look-ahead. Constructs that
 * are not regular are refused by name: backreferences; so are look-behind and word boundaries.
 * Greedy and lazy repetitions are the same, since a mask allows every way of matching. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/read/regex.h"

static struct expr *read_alternatives(struct regex *r);

/* The name of the regular expression, with its place in a schema. */
static void write_name(const struct regex *r, struct buf *out) {
    buf_puts(out, r->what);
    if (!r->b->pattern) return;
    buf_puts(out, " at ");
    json_pointer(r->b->pattern_root, r->b->pattern, out);
}

enum status pattern_fail(struct regex *r, const char *at, const char *problem) {
    assert(problem && r->at <= r->end);
    int line = 1, column = 1;
    struct buf name = {0};
    if (r->b->status != STATUS_OK) return r->b->status;
    for (const char *p = r->text; p < at; p++) {
        column++;
        if (*p == '\n') line++, column = 1;
    }
    write_name(r, &name);
    if (r->counts_lines)
        builder_fail(r->b, "%s has %s at line %d, column %d.", name.data, problem, line, column);
    else
        builder_fail(r->b, "%s has %s at byte %zu.", name.data, problem, (size_t)(at - r->text));
    buf_free(&name);
    return r->b->status;
}

static bool next_is(struct regex *r, char c) {
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

/* ---- atoms ---------------------------------------------------------------------------------- */

static struct expr *character(struct regex *r, uint32_t c) {
    if (r->ignores_case) {
        struct ranges ranges = {0};
        ranges_add(&ranges, c, c);
        return pattern_ranges(r, &ranges);
    }
    char bytes[4];
    return expr_bytes(r->b, bytes, utf8_write(c, bytes));
}

static struct expr *read_dot(struct regex *r) {
    struct range ranges[2] = {{0, '\n' - 1}, {'\n' + 1, MAX_CODE_POINT}};
    if (r->dot_takes_newline) ranges[0].high = '\n';
    return expr_class(r->b, ranges, 2);
}

/* Reads the rest of \Q...\E after the Q. */
static struct expr *read_quoted(struct regex *r) {
    const char *end = memmem(r->at, (size_t)(r->end - r->at), "\\E", 2);
    struct expr *expr = expr_bytes(r->b, r->at, (size_t)((end ? end : r->end) - r->at));
    r->at = end ? end + 2 : r->end;
    return expr;
}

/* Reads an anchor at `at`. */
static struct expr *anchor(struct regex *r, const char *at, bool at_end) {
    if (!r->is_stop) return pattern_anchor_new(r->b, at_end);
    if (at_end)
        pattern_fail(r, at, "an anchor at the end of the text, which cannot stop an answer");
    return expr_new(r->b, EXPR_BEGIN);
}

static struct expr *read_escape(struct regex *r) {
    const char *at = r->at - 1;
    struct ranges ranges = {0};
    char letter = r->at < r->end ? *r->at : 0;
    if (letter && ranges_add_perl(&ranges, letter, r->is_ecma)) {
        r->at++;
        struct expr *expr = expr_class(r->b, ranges.list, ranges.n);
        ranges_free(&ranges);
        return expr;
    }
    if (letter == 'p' || letter == 'P') {
        r->at++;
        if (!pattern_property(r, letter, &ranges))
            pattern_fail(r, at, "an unknown Unicode property");
        return pattern_ranges(r, &ranges);
    }
    if (letter && strchr("QAz", letter)) {
        r->at++;
        return letter == 'Q' ? read_quoted(r) : anchor(r, at, letter == 'z');
    }
    if (letter == 'b' || letter == 'B') pattern_fail(r, at, "a word boundary, which is not served");
    if (letter >= '1' && letter <= '9' && !(r->end - r->at >= 3 && isdigit((uint8_t)r->at[1])))
        pattern_fail(r, at, "a backreference, which is not regular");
    int32_t c = pattern_escaped(r);
    if (c < 0 || (c >= 0xD800 && c < 0xE000)) {
        pattern_fail(r, at, "an unknown escape");
        return &r->b->spare;
    }
    return character(r, (uint32_t)c);
}

/* ---- groups --------------------------------------------------------------------------------- */

/* Reads the flags of (?i) or (?s-i:...). False: it is another group. */
static bool read_flags(struct regex *r) {
    for (bool on = true; r->at < r->end && *r->at != ':' && *r->at != ')'; r->at++) {
        if (*r->at == '-')
            on = false;
        else if (*r->at == 'i')
            r->ignores_case = on;
        else if (*r->at == 's')
            r->dot_takes_newline = on;
        else if (*r->at != 'U')
            return false;
    }
    return r->at < r->end;
}

enum group_kind { GROUP_PLAIN, GROUP_FLAGS, GROUP_AHEAD, GROUP_NOT_AHEAD };

enum { MAX_AHEAD = 16 };

/* Reads the sign of a look-around. */
static enum group_kind read_ahead(struct regex *r, const char *at) {
    bool is_not = *r->at == '!';
    if (!r->sees_ahead || *r->at == '<') pattern_fail(r, at, "a lookaround, which is not served");
    if (++r->n_ahead > MAX_AHEAD) pattern_fail(r, at, "more than 16 lookaheads");
    r->at++;
    return is_not ? GROUP_NOT_AHEAD : GROUP_AHEAD;
}

/* Reads from after "(?" to the beginning of the group's expression. */
static enum group_kind read_group_kind(struct regex *r) {
    const char *at = r->at - 2;
    size_t left = (size_t)(r->end - r->at);
    bool is_named = (left > 1 && r->at[0] == 'P' && r->at[1] == '<') ||
                    (left > 1 && r->at[0] == '<' && r->at[1] != '=' && r->at[1] != '!');
    if (is_named) {
        const char *close = memchr(r->at, '>', left);
        if (close)
            r->at = close + 1;
        else
            pattern_fail(r, at, "a group's name without its '>'");
    } else if (left > 0 && strchr("=!<", *r->at)) {
        return read_ahead(r, at);
    } else if (!read_flags(r)) {
        pattern_fail(r, at, "an unknown kind of group");
    } else {
        return *r->at++ == ')' ? GROUP_FLAGS : GROUP_PLAIN;
    }
    return GROUP_PLAIN;
}

static struct expr *read_group(struct regex *r) {
    const char *open = r->at - 1;
    bool ignores_case = r->ignores_case, newline = r->dot_takes_newline;
    enum group_kind kind = GROUP_PLAIN;
    struct expr *expr = &r->b->spare;
    if (r->b->depth == r->b->limits.max_depth) {
        char problem[64];
        snprintf(problem, sizeof problem, "groups nested deeper than %d levels",
                 r->b->limits.max_depth);
        pattern_fail(r, open, problem);
    }
    if (!builder_down(r->b, r->what)) return expr;
    if (next_is(r, '?')) kind = read_group_kind(r);
    if (kind == GROUP_FLAGS) { /* flags for the rest of the enclosing group */
        expr = expr_new(r->b, EXPR_CAT);
    } else if (r->b->status == STATUS_OK) {
        expr = read_alternatives(r);
        if (!next_is(r, ')')) pattern_fail(r, open, "a '(' without its ')'");
        r->ignores_case = ignores_case;
        r->dot_takes_newline = newline;
    }
    builder_up(r->b);
    if (kind != GROUP_AHEAD && kind != GROUP_NOT_AHEAD) return expr;
    struct expr *ahead = expr_of(r->b, EXPR_AHEAD, expr, NULL);
    if (ahead->kind == EXPR_AHEAD) ahead->is_not = kind == GROUP_NOT_AHEAD;
    return ahead;
}

static struct expr *read_atom(struct regex *r) {
    const char *at = r->at;
    size_t size = utf8_character(at, (size_t)(r->end - at));
    assert(size > 0);
    r->at += size;
    switch (*at) {
    case '(':
        return read_group(r);
    case '[':
        return pattern_class(r);
    case '.':
        return read_dot(r);
    case '\\':
        return read_escape(r);
    case '^':
    case '$':
        return anchor(r, at, *at == '$');
    case '*':
    case '+':
    case '?':
        pattern_fail(r, at, "a repetition of nothing");
        return &r->b->spare;
    default:
        return character(r, utf8_code_point(at, size));
    }
}

/* ---- repetitions ---------------------------------------------------------------------------- */

static bool read_number(struct regex *r, int *n) {
    if (r->at == r->end || !isdigit((unsigned char)*r->at)) return false;
    *n = 0;
    for (; r->at < r->end && isdigit((unsigned char)*r->at); r->at++) {
        *n = min_int(*n * 10 + *r->at - '0', MAX_COUNT);
    }
    return true;
}

/* Reads {n}, {n,} or {n,m}. Other braces are literal characters, as in RE2. */
static bool read_counts(struct regex *r, int *min, int *max) {
    const char *at = r->at;
    bool is_count = next_is(r, '{') && read_number(r, min);
    *max = *min;
    if (is_count && next_is(r, ',') && !read_number(r, max)) *max = NO_MAX;
    if (is_count && next_is(r, '}')) return true;
    r->at = at;
    return false;
}

static bool read_repetition(struct regex *r, int *min, int *max) {
    if (r->at == r->end) return false;
    switch (*r->at) {
    case '*':
        *min = 0, *max = NO_MAX;
        break;
    case '+':
        *min = 1, *max = NO_MAX;
        break;
    case '?':
        *min = 0, *max = 1;
        break;
    default:
        return read_counts(r, min, max);
    }
    r->at++;
    return true;
}

static struct expr *read_repeated(struct regex *r) {
    if (!builder_works(r->b, 20)) return &r->b->spare;
    struct expr *expr = read_atom(r);
    int min = 0, max = 0;
    const char *at = r->at;
    if (!read_repetition(r, &min, &max)) return expr;
    next_is(r, '?'); /* lazy: matches the same texts */
    if (max != NO_MAX && max < min) {
        pattern_fail(r, at, "a count whose end is before its beginning");
        return expr;
    }
    int more_min, more_max;
    const char *again = r->at;
    if (read_repetition(r, &more_min, &more_max))
        pattern_fail(r, again, "a repetition of a repetition; put the first one in parentheses");
    return expr_repeat(r->b, expr, min, max);
}

static struct expr *read_sequence(struct regex *r) {
    struct expr *sequence = expr_new(r->b, EXPR_CAT);
    while (r->at < r->end && *r->at != '|' && *r->at != ')' && r->b->status == STATUS_OK) {
        expr_add(sequence, read_repeated(r));
    }
    return sequence;
}

static struct expr *read_alternatives(struct regex *r) {
    struct expr *first = read_sequence(r);
    if (r->at == r->end || *r->at != '|') return first;
    struct expr *all = expr_of(r->b, EXPR_ALT, first, NULL);
    while (next_is(r, '|') && r->b->status == STATUS_OK) expr_add(all, read_sequence(r));
    return all;
}

struct expr *pattern_read(struct builder *b, const char *what, const char *text, size_t n,
                          enum regex_match match) {
    struct regex r = {.b = b, .what = what, .text = text, .at = text, .end = text + n};
    r.is_ecma = match == REGEX_SEARCH;
    r.is_stop = match == REGEX_STOP;
    r.sees_ahead = match == REGEX_WHOLE || match == REGEX_SEARCH;
    size_t valid = utf8_valid_prefix(text, n);
    if (valid < n) pattern_fail(&r, text + valid, "a byte that is not UTF-8");
    struct expr *expr = b->status == STATUS_OK ? read_alternatives(&r) : &b->spare;
    if (b->status == STATUS_OK && r.at < r.end) pattern_fail(&r, r.at, "a ')' without its '('");
    return b->status == STATUS_OK && !r.is_stop ? pattern_anchor(&r, expr, match) : expr;
}

struct expr *pattern_own(struct builder *b, const char *text) {
    return pattern_read(b, "Our own pattern", text, strlen(text), REGEX_WHOLE);
}
