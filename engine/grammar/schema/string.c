/* Strings of JSON Schema: lengths, patterns, formats. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

static struct expr *in_quotes(struct builder *b, struct expr *inside) {
    if (b->text_mark)
        return expr_of(b, EXPR_CAT, expr_text(b, b->text_mark), inside, expr_text(b, b->text_mark),
                       NULL);
    return expr_of(b, EXPR_CAT, expr_text(b, "\""), inside, expr_text(b, "\""), NULL);
}

/* Single quotes around a text without them. */
static struct expr *in_single_quotes(struct builder *b, struct expr *inside) {
    struct expr *all = inside->kind == EXPR_AND ? inside : expr_of(b, EXPR_AND, inside, NULL);
    expr_add(all, pattern_own(b, "[^']*"));
    return expr_of(b, EXPR_CAT, expr_text(b, "'"), all, expr_text(b, "'"), NULL);
}

static struct expr *any_characters(struct builder *b, int min, int max) {
    struct range all = {0, MAX_CODE_POINT};
    return expr_repeat(b, expr_class(b, &all, 1), min, max);
}

static struct expr *read_pattern(struct schema_reader *r, const struct json *pattern) {
    struct builder *b = r->b;
    if (!schema_pattern_works(r, json_text(pattern), json_length(pattern)))
        return any_characters(b, 0, NO_MAX);
    b->pattern_root = r->root;
    b->pattern = pattern;
    struct expr *expr =
        pattern_read(b, "The pattern", json_text(pattern), json_length(pattern), REGEX_SEARCH);
    b->pattern = NULL;
    return expr;
}

/* Adds the pattern of a format to an EXPR_AND. */
static void add_format(struct schema_reader *r, struct expr *all, const struct json *format) {
    const char *pattern = format_pattern(r, format);
    if (pattern) expr_add(all, pattern_own(r->b, pattern));
}

/* Adds the complement of texts that must not match to an EXPR_AND. */
static void add_excluded(struct schema_reader *r, const struct conj *conj, struct expr *all) {
    struct builder *b = r->b;
    struct expr *excluded = expr_new(b, EXPR_ALT);
    conj_each_value(pattern, conj, NOT_PATTERN) expr_add(excluded, read_pattern(r, pattern));
    conj_each_value(format, conj, NOT_FORMAT)
        expr_add(excluded, pattern_own(b, format_widest(format)));
    conj_each_value(one, conj, NOT_CONST) {
        if (json_is(one, JSON_STRING))
            expr_add(excluded, expr_bytes(b, json_text(one), json_length(one)));
    }
    conj_each_value(list, conj, NOT_ENUM) {
        json_each(value, list) {
            if (!builder_works(b, 100)) return;
            if (json_is(value, JSON_STRING))
                expr_add(excluded, expr_bytes(b, json_text(value), json_length(value)));
        }
    }
    if (b->status != STATUS_OK || !excluded->child) return;
    if (!all->child) expr_add(all, any_characters(b, 0, NO_MAX));
    expr_add(all, expr_of(b, EXPR_NOT, excluded, NULL));
}

/* Does a conjunction say more about strings than their length? */
static bool says_content(const struct conj *conj) {
    static const char *const keywords[] = {"pattern",  "format",  NOT_PATTERN,
                                           NOT_FORMAT, NOT_CONST, NOT_ENUM};
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        conj_each_value(value, conj, keywords[i]) if (value) return true;
    }
    return false;
}

/* The patterns and formats of a string, as children of an EXPR_AND. */
static struct expr *contents(struct schema_reader *r, const struct conj *conj) {
    struct expr *all = expr_new(r->b, EXPR_AND);
    conj_each_value(pattern, conj, "pattern") expr_add(all, read_pattern(r, pattern));
    conj_each_value(format, conj, "format") add_format(r, all, format);
    add_excluded(r, conj, all);
    return all;
}

struct expr *schema_string_inside(struct schema_reader *r, const struct conj *conj) {
    struct builder *b = r->b;
    int min = conj_largest(conj, "minLength", 0), max = conj_smallest(conj, "maxLength", NO_MAX);
    if (max != NO_MAX && max < min) return expr_new(b, EXPR_ALT);
    struct expr *all = contents(r, conj);
    if (b->status != STATUS_OK || (!all->child && min == 0 && max == NO_MAX)) return NULL;
    if (min > 0 || max != NO_MAX) expr_add(all, any_characters(b, min, max));
    return json_spelled(b, all->child->next ? all : all->child);
}

/* A string in quotes, in JSON's or the other kind of Python's. */
static struct expr *quoted_string(struct schema_reader *r, const struct conj *conj, bool single) {
    struct builder *b = r->b;
    int min = conj_largest(conj, "minLength", 0), max = conj_smallest(conj, "maxLength", NO_MAX);
    bool says_more = says_content(conj);
    enum json_rule character = single ? JSON_RULE_SINGLE_CHARACTER : JSON_RULE_CHARACTER;
    if (!says_more && (max == NO_MAX || max >= min) && (min > 0 || max != NO_MAX)) {
        struct expr *inside = expr_repeat(b, json_call(b, character), min, max);
        if (!single) return in_quotes(b, inside);
        return expr_of(b, EXPR_CAT, expr_text(b, "'"), inside, expr_text(b, "'"), NULL);
    }
    if (b->text_mark && says_more)
        return in_quotes(b, expr_add(schema_text(r, conj), pattern_own(b, "[^<]*")));
    struct expr *inside = schema_string_inside(r, conj);
    if (!inside) return json_call(b, single ? JSON_RULE_SINGLE_STRING : JSON_RULE_STRING);
    return single ? in_single_quotes(b, inside) : in_quotes(b, inside);
}

struct expr *schema_string(struct schema_reader *r, const struct conj *conj) {
    struct expr *string = quoted_string(r, conj, false);
    if (!r->b->has_single_quotes) return string;
    return expr_of(r->b, EXPR_ALT, string, quoted_string(r, conj, true), NULL);
}

struct expr *schema_text(struct schema_reader *r, const struct conj *conj) {
    struct builder *b = r->b;
    int min = conj_largest(conj, "minLength", 0), max = conj_smallest(conj, "maxLength", NO_MAX);
    struct expr *all = contents(r, conj);
    if (max != NO_MAX && max < min) return expr_add(all, expr_new(b, EXPR_ALT));
    if (schema_has_values(conj)) expr_add(all, schema_text_values(r, conj));
    return expr_add(all, any_characters(b, min, max));
}
