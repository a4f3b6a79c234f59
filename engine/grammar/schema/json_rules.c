/* Rules that JSON grammars share: the spelling of values, and any value.
 *
 * Between elements one blank is allowed, or a line break and its indent: with more, models produce
 * white space until their token limit. None is allowed before a colon, or around the whole text.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

#define PLAIN "[^\"\\\\\\x00-\\x1f]"
#define HEX "[0-9a-fA-F]"
/* A UTF-16 unit that is a character, or a surrogate pair. */
#define UNICODE                                                                                    \
    "\\\\u(?:[0-9a-cA-CefEF]" HEX "{3}|[dD][0-7]" HEX "{2}"                                        \
    "|[dD][89abAB]" HEX "{2}\\\\u[dD][c-fC-F]" HEX "{2})"
#define CHARACTER PLAIN "|\\\\[\"\\\\/bfnrt]|" UNICODE
/* A character between single quotes, in Python. */
#define SINGLE_CHARACTER "[^'\\\\\\x00-\\x1f]|\\\\[\"\\\\/bfnrt]|" UNICODE
#define INTEGER "-?(?:0|[1-9][0-9]*)"

static const char *const patterns[] = {
    [JSON_RULE_SPACE] = "(?: |\\n[ \\t]{0,40})?",
    [JSON_RULE_STRING] = "\"(?:" CHARACTER ")*\"",
    [JSON_RULE_CHARACTER] = CHARACTER,
    [JSON_RULE_SINGLE_STRING] = "'(?:" SINGLE_CHARACTER ")*'",
    [JSON_RULE_SINGLE_CHARACTER] = SINGLE_CHARACTER,
    [JSON_RULE_NUMBER] = INTEGER "(?:\\.[0-9]+)?(?:[eE][+-]?(?:[0-9]{1,2}|[12][0-9]{2}))?",
    [JSON_RULE_INTEGER] = INTEGER,
};

static struct expr *space(struct builder *b) {
    return json_call(b, JSON_RULE_SPACE);
}

/* open space (element (, space element)*)? close; an element includes the space after it */
static struct expr *container(struct builder *b, const char *open, const char *close,
                              struct expr *(*element)(struct builder *b)) {
    struct expr *more = expr_of(b, EXPR_CAT, expr_text(b, ","), space(b), element(b), NULL);
    struct expr *all = expr_of(b, EXPR_CAT, element(b), expr_repeat(b, more, 0, NO_MAX), NULL);
    return expr_of(b, EXPR_CAT, expr_text(b, open), space(b), expr_repeat(b, all, 0, 1),
                   expr_text(b, close), NULL);
}

static struct expr *any_string(struct builder *b) {
    if (!b->has_single_quotes) return json_call(b, JSON_RULE_STRING);
    return expr_of(b, EXPR_ALT, json_call(b, JSON_RULE_STRING),
                   json_call(b, JSON_RULE_SINGLE_STRING), NULL);
}

static struct expr *any_member(struct builder *b) {
    struct expr *key = b->text_mark ? pattern_own(b, GEMMA_KEY) : any_string(b);
    return expr_of(b, EXPR_CAT, key, expr_text(b, ":"), space(b), json_call(b, JSON_RULE_ANY),
                   space(b), NULL);
}

static struct expr *any_element(struct builder *b) {
    return expr_of(b, EXPR_CAT, json_call(b, JSON_RULE_ANY), space(b), NULL);
}

/* Any text between marks, without "<" and the second byte of a mark. */
static struct expr *marked_string(struct builder *b) {
    char inside[24];
    assert(b->text_mark[0] == '<' && b->text_mark[1]);
    snprintf(inside, sizeof inside, "(?:[^<]|<+[^<%c])*", b->text_mark[1]);
    return expr_of(b, EXPR_CAT, expr_text(b, b->text_mark), pattern_own(b, inside),
                   expr_text(b, b->text_mark), NULL);
}

static struct expr *rule_body(struct builder *b, enum json_rule which) {
    switch (which) {
    case JSON_RULE_OBJECT:
        return container(b, "{", "}", any_member);
    case JSON_RULE_ARRAY:
        return container(b, "[", "]", any_element);
    case JSON_RULE_ANY:
        return expr_of(b, EXPR_ALT, json_call(b, JSON_RULE_OBJECT), json_call(b, JSON_RULE_ARRAY),
                       any_string(b), json_call(b, JSON_RULE_NUMBER), json_word(b, "true"),
                       json_word(b, "false"), json_word(b, "null"), NULL);
    case JSON_RULE_STRING:
        return b->text_mark ? marked_string(b) : pattern_own(b, patterns[which]);
    case JSON_RULE_CHARACTER:
        return pattern_own(b, b->text_mark ? "[^<]" : patterns[which]);
    default:
        return pattern_own(b, patterns[which]);
    }
}

int json_rule(struct builder *b, enum json_rule which) {
    assert(which < N_JSON_RULES);
    if (b->json_rules[which] < 0) {
        b->json_rules[which] = rule_new(b, NULL);
        rule_define(b, b->json_rules[which], rule_body(b, which));
    }
    return b->json_rules[which];
}

struct expr *json_call(struct builder *b, enum json_rule which) {
    return expr_call(b, json_rule(b, which));
}

static void forget_rules(struct builder *b) {
    for (int i = 0; i < N_JSON_RULES; i++) b->json_rules[i] = -1;
}

void json_spell_python(struct builder *b, bool is_python, bool has_single_quotes) {
    assert(is_python || !has_single_quotes);
    if (b->is_python == is_python && b->has_single_quotes == has_single_quotes) return;
    b->is_python = is_python;
    b->has_single_quotes = has_single_quotes;
    forget_rules(b);
}

void json_spell_gemma(struct builder *b, const char *mark) {
    assert(!mark || (mark[0] == '<' && mark[1]));
    if (b->text_mark == mark) return;
    b->text_mark = mark;
    forget_rules(b);
}

struct expr *json_word(struct builder *b, const char *json) {
    if (!b->is_python) return expr_text(b, json);
    return expr_text(b, json[0] == 't' ? "True" : json[0] == 'f' ? "False" : "None");
}

/* ---- spelling ------------------------------------------------------------------------------- */

/* Returns the second byte of a character's two-byte escape, or 0. */
static char short_escape(uint32_t c) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *found = c ? memchr(from, (int)c, c < 0x80 ? sizeof from - 1 : 0) : NULL;
    return found ? to[found - from] : 0;
}

/* \uXXXX with digits in either case. */
static struct expr *unicode_escape(struct builder *b, uint32_t unit) {
    assert(unit <= 0xFFFF);
    struct expr *all = expr_of(b, EXPR_CAT, expr_text(b, "\\u"), NULL);
    for (int shift = 12; shift >= 0; shift -= 4) {
        uint32_t digit = unit >> shift & 15;
        struct range ranges[2] = {{digit + '0', digit + '0'}};
        if (digit > 9) {
            ranges[0].low = ranges[0].high = digit - 10 + 'a';
            ranges[1].low = ranges[1].high = digit - 10 + 'A';
        }
        expr_add(all, expr_class(b, ranges, digit > 9 ? 2 : 1));
    }
    return all;
}

/* A character with spellings other than itself. */
static struct expr *spelled_character(struct builder *b, uint32_t c, const char *bytes, size_t n) {
    assert(c < 0x80 || (n > 0 && n <= 4));
    struct expr *all = expr_new(b, EXPR_ALT);
    char escape[2] = {'\\', short_escape(c)};
    if (escape[1]) expr_add(all, expr_bytes(b, escape, 2));
    if (c < 0x20) expr_add(all, unicode_escape(b, c));
    if (c < 0x80) return all;
    expr_add(all, expr_bytes(b, bytes, n));
    if (c < 0x10000) return expr_add(all, unicode_escape(b, c));
    return expr_add(all, expr_of(b, EXPR_CAT, unicode_escape(b, 0xD800 + ((c - 0x10000) >> 10)),
                                 unicode_escape(b, 0xDC00 + ((c - 0x10000) & 0x3FF)), NULL));
}

/* Appends the spelling of a text. Each run of plain characters is one expression. */
static void add_spelled(struct builder *b, struct expr *sequence, const char *text, size_t n) {
    size_t run = 0;
    for (size_t at = 0; at < n && b->status == STATUS_OK;) {
        size_t size = utf8_character(text + at, n - at);
        assert(size > 0); /* JSON and regular expressions were validated as UTF-8 */
        uint32_t c = utf8_code_point(text + at, size);
        if (c >= 0x80 || c < 0x20 || short_escape(c)) {
            if (at > run) expr_add(sequence, expr_bytes(b, text + run, at - run));
            expr_add(sequence, spelled_character(b, c, text + at, size));
            run = at + size;
        }
        at += size;
    }
    if (n > run) expr_add(sequence, expr_bytes(b, text + run, n - run));
}

/* Does each character have only itself as spelling? */
static bool is_plain(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)text[i];
        if (c < 0x20 || c >= 0x80 || short_escape(c)) return false;
    }
    return true;
}

/* A text in quotes, as one expression, so that alternatives can share its beginning. */
static struct expr *plain_quoted(struct builder *b, const char *text, size_t n, char quote) {
    struct buf quoted = {0};
    buf_add(&quoted, &quote, 1);
    buf_add(&quoted, text, n);
    buf_add(&quoted, &quote, 1);
    struct expr *whole = expr_bytes(b, quoted.data, quoted.length);
    buf_free(&quoted);
    return whole;
}

struct expr *json_key(struct builder *b, const char *name, size_t n) {
    return b->text_mark ? expr_bytes(b, name, n) : json_quoted(b, name, n);
}

struct expr *json_quoted(struct builder *b, const char *text, size_t n) {
    if (b->text_mark)
        return expr_of(b, EXPR_CAT, expr_text(b, b->text_mark), expr_bytes(b, text, n),
                       expr_text(b, b->text_mark), NULL);
    if (is_plain(text, n)) {
        struct expr *whole = plain_quoted(b, text, n, '"');
        if (!b->has_single_quotes || memchr(text, '\'', n)) return whole;
        return expr_of(b, EXPR_ALT, whole, plain_quoted(b, text, n, '\''), NULL);
    }
    struct expr *all = expr_of(b, EXPR_CAT, expr_text(b, "\""), NULL);
    add_spelled(b, all, text, n);
    return expr_add(all, expr_text(b, "\""));
}

/* ---- expressions over a string's characters ------------------------------------------------- */

/* Appends the intersection of a range and low..high to out[*n]. */
static void add_part(struct range range, uint32_t low, uint32_t high, struct range *out, int *n) {
    if (range.low > low) low = range.low;
    if (range.high < high) high = range.high;
    if (low <= high) out[(*n)++] = (struct range){low, high};
}

static struct expr *spelled_class(struct builder *b, const struct expr *class) {
    struct range *plain = builder_alloc(b, ((size_t) class->n_ranges * 3 + 1) * sizeof *plain);
    if (!plain) return &b->spare;
    struct expr *all = expr_new(b, EXPR_ALT);
    int n = 0;
    for (int i = 0; i < class->n_ranges; i++) {
        struct range range = class->ranges[i];
        bool has_controls = range.low == 0 && range.high >= 0x1F;
        if (has_controls) { /* one pattern for all, since a repeat multiplies its states */
            expr_add(all, pattern_own(b, "\\\\(?:[bfnrt]|u00[01]" HEX ")"));
            range.low = 0x20;
        }
        for (uint32_t c = range.low; c <= range.high && c < 0x80; c++) {
            if (c < 0x20 || short_escape(c)) expr_add(all, spelled_character(b, c, NULL, 0));
        }
        add_part(range, 0x20, '"' - 1, plain, &n);
        add_part(range, '"' + 1, '\\' - 1, plain, &n);
        add_part(range, '\\' + 1, MAX_CODE_POINT, plain, &n);
    }
    return expr_add(all, expr_class(b, plain, n));
}

/* The spelling of all texts that an expression does not match. Characters outside ASCII are
 * written literally, since each has only one spelling in classes. */
static struct expr *spelled_complement(struct builder *b, struct expr *complement,
                                       const struct expr *content) {
    struct range any = {0, MAX_CODE_POINT};
    struct expr *character = expr_class(b, &any, 1);
    if (character->kind == EXPR_FAILED) return character;
    expr_add(complement, json_spelled(b, content->child));
    struct expr *text = expr_repeat(b, spelled_class(b, character), 0, NO_MAX);
    return expr_of(b, EXPR_AND, text, complement, NULL);
}

struct expr *json_spelled(struct builder *b, const struct expr *content) {
    if (content->kind == EXPR_FAILED || b->status != STATUS_OK) return &b->spare;
    assert(content->kind != EXPR_CALL);
    if (content->kind == EXPR_CLASS) return spelled_class(b, content);
    struct expr *all = expr_new(b, content->kind == EXPR_BYTES ? EXPR_CAT : content->kind);
    if (content->kind == EXPR_BYTES) {
        add_spelled(b, all, content->text, content->n);
        return all;
    }
    if (content->kind == EXPR_NOT) return spelled_complement(b, all, content);
    if (content->kind == EXPR_REPEAT) {
        all->min = content->min;
        all->max = content->max;
    }
    for (const struct expr *e = content->child; e && b->status == STATUS_OK; e = e->next) {
        expr_add(all, json_spelled(b, e));
    }
    return all;
}

/* ---- values --------------------------------------------------------------------------------- */

static struct expr *number_literal(struct builder *b, const struct json *value) {
    char text[64];
    if (json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)json_integer(value));
    else
        snprintf(text, sizeof text, "%.17g", json_number(value));
    /* the shortest that is the same number */
    for (int digits = 1; digits < 17 && !json_is_integer(value); digits++) {
        char shorter[64];
        snprintf(shorter, sizeof shorter, "%.*g", digits, json_number(value));
        if (strtod(shorter, NULL) != json_number(value)) continue;
        memcpy(text, shorter, sizeof text);
        break;
    }
    return expr_text(b, text);
}

struct expr *json_literal(struct builder *b, const struct json *value) {
    switch (value->type) {
    case JSON_NULL:
        return json_word(b, "null");
    case JSON_BOOL:
        return json_word(b, json_true(value) ? "true" : "false");
    case JSON_NUMBER:
        return number_literal(b, value);
    case JSON_STRING:
        return json_quoted(b, json_text(value), json_length(value));
    default:
        break;
    }
    bool is_object = json_is(value, JSON_OBJECT);
    struct expr *all = expr_of(b, EXPR_CAT, expr_text(b, is_object ? "{" : "["), space(b), NULL);
    json_each(item, value) {
        if (!builder_works(b, 50)) return &b->spare;
        if (item != json_first(value)) {
            expr_add(all, expr_text(b, ","));
            expr_add(all, space(b));
        }
        if (is_object) {
            expr_add(all, json_key(b, item->name, strlen(item->name)));
            expr_add(all, expr_text(b, ":"));
            expr_add(all, space(b));
        }
        expr_add(all, json_literal(b, item));
        expr_add(all, space(b));
    }
    return expr_add(all, expr_text(b, is_object ? "}" : "]"));
}

/* ---- choices -------------------------------------------------------------------------------- */

struct expr *choice_read(struct builder *b, const char *text, size_t n) {
    struct json *choices;
    if (json_parse(&choices, "The choice", text, n, b->err)) {
        b->status = b->err->status;
        return &b->spare;
    }
    struct expr *all = expr_new(b, EXPR_ALT);
    if (!json_is(choices, JSON_ARRAY) || !json_first(choices))
        builder_fail(b, "The choice must be an array of at least one string.");
    int at = 0;
    json_each(choice, choices) {
        if (!builder_works(b, 20)) break;
        if (!json_is(choice, JSON_STRING)) {
            builder_fail(b, "The choice at /%d is %s; it must be a string.", at,
                         json_type_name(choice));
        } else {
            expr_add(all, expr_bytes(b, json_text(choice), json_length(choice)));
        }
        at++;
    }
    json_free(choices);
    return all;
}
