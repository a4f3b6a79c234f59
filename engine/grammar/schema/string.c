/* Strings of JSON Schema: lengths, patterns, formats. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/schema.h"

static struct expr *in_quotes(struct builder *b, struct expr *inside) {
    return expr_of(b, EXPR_CAT, expr_text(b, "\""), inside, expr_text(b, "\""), NULL);
}

static struct expr *any_characters(struct builder *b, int min, int max) {
    struct range all = {0, MAX_CODE_POINT};
    return expr_repeat(b, expr_class(b, &all, 1), min, max);
}

static struct expr *read_pattern(struct schema_reader *r, const struct json *pattern) {
    struct buf what = {0};
    buf_puts(&what, "The pattern at ");
    json_pointer(r->root, pattern, &what);
    struct expr *expr =
        pattern_read(r->b, what.data, pattern->string, pattern->length, REGEX_SEARCH);
    buf_free(&what);
    return expr;
}

static struct expr *read_format(struct schema_reader *r, const struct json *format) {
    const char *pattern = format_pattern(format->string);
    if (pattern) return pattern_own(r->b, pattern);
    schema_fail(r, format,
                "is no format that is enforced here: date-time, date, time, duration, email, "
                "hostname, ipv4, ipv6, uuid and uri are.");
    return &r->b->spare;
}

/* What the string's characters must match at once, as the children of an EXPR_AND. */
static struct expr *contents(struct schema_reader *r, const struct conj *conj) {
    struct expr *all = expr_new(r->b, EXPR_AND);
    conj_each_value(pattern, conj, "pattern") expr_add(all, read_pattern(r, pattern));
    conj_each_value(format, conj, "format") expr_add(all, read_format(r, format));
    return all;
}

struct expr *schema_string(struct schema_reader *r, const struct conj *conj) {
    struct builder *b = r->b;
    int min = conj_largest(conj, "minLength", 0), max = conj_smallest(conj, "maxLength", NO_MAX);
    if (max != NO_MAX && max < min) return expr_new(b, EXPR_ALT);
    struct expr *all = contents(r, conj);
    if (b->status != STATUS_OK) return all;
    if (!all->child && min == 0 && max == NO_MAX) return json_call(b, JSON_RULE_STRING);
    if (!all->child)
        return in_quotes(b, expr_repeat(b, json_call(b, JSON_RULE_CHARACTER), min, max));
    if (min > 0 || max != NO_MAX) expr_add(all, any_characters(b, min, max));
    return in_quotes(b, json_spelled(b, all->child->next ? all : all->child));
}
