/* Strings of JSON Schema: lengths, patterns, formats. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

static struct expr *in_quotes(struct builder *b, struct expr *inside) {
    if (b->is_gemma)
        return expr_of(b, EXPR_CAT, expr_text(b, GEMMA_QUOTE), inside, expr_text(b, GEMMA_QUOTE),
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
    const char *pattern;
    bool is_known = format_find(json_text(format), &pattern);
    if (is_known && pattern) expr_add(all, pattern_own(r->b, pattern));
    if (!is_known && r->mode == SCHEMA_STRICT)
        schema_fail(r, format,
                    "is not an enforced format; the formats are date-time, date, time, duration, "
                    "email, hostname, ipv4, ipv6, uuid, uri and base64.");
}

/* The patterns and formats of a string, as children of an EXPR_AND. */
static struct expr *contents(struct schema_reader *r, const struct conj *conj) {
    struct expr *all = expr_new(r->b, EXPR_AND);
    conj_each_value(pattern, conj, "pattern") expr_add(all, read_pattern(r, pattern));
    conj_each_value(format, conj, "format") add_format(r, all, format);
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
    bool says_more = false;
    conj_each_value(pattern, conj, "pattern") says_more = says_more || pattern;
    conj_each_value(format, conj, "format") says_more = says_more || format;
    enum json_rule character = single ? JSON_RULE_SINGLE_CHARACTER : JSON_RULE_CHARACTER;
    if (!says_more && (max == NO_MAX || max >= min) && (min > 0 || max != NO_MAX)) {
        struct expr *inside = expr_repeat(b, json_call(b, character), min, max);
        if (!single) return in_quotes(b, inside);
        return expr_of(b, EXPR_CAT, expr_text(b, "'"), inside, expr_text(b, "'"), NULL);
    }
    if (b->is_gemma && says_more)
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
