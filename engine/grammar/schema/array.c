/* Arrays of JSON Schema. The first items may have separate schemas; the others share one. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

#define MAX_PREFIX 1000

/* The schemas of the first items: prefixItems, or items if it is an array (draft 7). */
static const struct json *prefix_of(const struct json *schema) {
    const struct json *prefix = schema_value(schema, "prefixItems");
    const struct json *items = schema_value(schema, "items");
    return prefix ? prefix : json_is(items, JSON_ARRAY) ? items : NULL;
}

const struct json *schema_item(struct schema_reader *r, const struct json *schema, int at) {
    const struct json *item = schema_element(r, prefix_of(schema), at);
    return item ? item : schema_unlisted_items(schema);
}

struct conj schema_item_conj(struct schema_reader *r, const struct conj *conj, int at) {
    struct conj out = {0};
    conj_each(schema, conj) {
        const struct json *item = schema_item(r, schema, at);
        r->path.n = 0;
        if (item) conj_add(r, &out, item);
    }
    return out;
}

static struct expr *item(struct schema_reader *r, const struct conj *conj, int at) {
    assert(at >= 0);
    struct builder *b = r->b;
    struct conj value = schema_item_conj(r, conj, at);
    struct expr *all = expr_new(b, EXPR_CAT);
    if (at > 0) {
        expr_add(all, expr_text(b, ","));
        expr_add(all, json_call(b, JSON_RULE_SPACE));
    }
    expr_add(all, conj_call(r, &value));
    return expr_add(all, json_call(b, JSON_RULE_SPACE));
}

/* The items from index `at` on. The first `prefix` items have separate schemas; items below min are
 * required. Each optional item of the prefix begins an optional part with all later items. Each
 * part is a rule, so expressions do not nest. */
static struct expr *items_from(struct schema_reader *r, const struct conj *conj, int at, int prefix,
                               int min, int max) {
    assert(at >= 0 && min >= 0 && (max == NO_MAX || at <= max));
    struct builder *b = r->b;
    struct expr *all = expr_new(b, EXPR_CAT);
    struct expr *into = all;
    for (; at < prefix && at != max && builder_in_time(b); at++) {
        if (at >= min) {
            int rule = rule_new(b, NULL);
            struct expr *part = expr_new(b, EXPR_CAT);
            rule_define(b, rule, part);
            expr_add(into, expr_repeat(b, expr_call(b, rule), 0, 1));
            into = part;
        }
        expr_add(into, item(r, conj, at));
    }
    if (at == max) return all;
    int least = max_int(min - at, 0), most = max == NO_MAX ? NO_MAX : max - at;
    if (at == 0) { /* the first item has no comma */
        struct expr *others = expr_repeat(b, item(r, conj, 1), max_int(least - 1, 0),
                                          most == NO_MAX ? most : most - 1);
        struct expr *some = expr_of(b, EXPR_CAT, item(r, conj, 0), others, NULL);
        expr_add(into, expr_repeat(b, some, least > 0, 1));
    } else {
        expr_add(into, expr_repeat(b, item(r, conj, at), least, most));
    }
    return all;
}

struct expr *schema_array(struct schema_reader *r, const struct conj *conj) {
    struct builder *b = r->b;
    int min = conj_largest(conj, "minItems", 0), max = conj_smallest(conj, "maxItems", NO_MAX);
    int prefix = 0;
    bool says_items = false;
    conj_each(schema, conj) {
        const struct json *own = prefix_of(schema);
        if (own && json_count(own) > MAX_PREFIX)
            schema_fail(r, own, "has more than %d items.", MAX_PREFIX);
        if (own) prefix = max_int(prefix, json_count(own));
        says_items = says_items || own || schema_unlisted_items(schema);
    }
    if (b->status != STATUS_OK || (max != NO_MAX && max < min)) return expr_new(b, EXPR_ALT);
    struct expr *counted = schema_counted_items(r, conj, prefix, min, max);
    if (counted)
        return expr_of(b, EXPR_CAT, expr_text(b, "["), json_call(b, JSON_RULE_SPACE), counted,
                       expr_text(b, "]"), NULL);
    if (!says_items && min == 0 && max == NO_MAX) return json_call(b, JSON_RULE_ARRAY);
    return expr_of(b, EXPR_CAT, expr_text(b, "["), json_call(b, JSON_RULE_SPACE),
                   items_from(r, conj, 0, prefix, min, max), expr_text(b, "]"), NULL);
}
