/* Schemas that list their values. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

bool schema_has_values(const struct conj *conj) {
    conj_each(schema, conj) {
        if (schema_value(schema, "enum") || schema_value(schema, "const")) return true;
    }
    return false;
}

unsigned json_value_type(const struct json *value) {
    static const unsigned types[] = {
        [JSON_NULL] = TYPE_NULL,     [JSON_BOOL] = TYPE_BOOL,   [JSON_NUMBER] = TYPE_FRACTION,
        [JSON_STRING] = TYPE_STRING, [JSON_ARRAY] = TYPE_ARRAY, [JSON_OBJECT] = TYPE_OBJECT,
    };
    assert(value->type <= JSON_OBJECT);
    return json_is_integer(value) ? TYPE_INTEGER : types[value->type];
}

struct pointers schema_matching(struct schema_reader *r, const struct conj *conj) {
    struct pointers listed = schema_listed(r, conj), matching = {0};
    pointers_each(value, &listed) {
        if (builder_works(r->b, 100) && conj_holds(r, conj, value))
            pointers_add(r->b, &matching, value);
    }
    /* a hint that excludes all values is ignored */
    return matching.n == 0 && r->mode == SCHEMA_HINT ? listed : matching;
}

struct expr *schema_values(struct schema_reader *r, const struct conj *conj, unsigned types) {
    struct expr *all = expr_new(r->b, EXPR_ALT);
    struct pointers matching = schema_matching(r, conj);
    pointers_each(value, &matching) {
        if (!builder_works(r->b, 100)) return all;
        if (json_value_type(value) & types) expr_add(all, json_literal(r->b, value));
    }
    return all;
}

struct expr *schema_text_values(struct schema_reader *r, const struct conj *conj) {
    struct expr *all = expr_new(r->b, EXPR_ALT);
    struct pointers matching = schema_matching(r, conj);
    pointers_each(value, &matching) {
        if (!builder_works(r->b, 20)) return all;
        if (json_is(value, JSON_STRING))
            expr_add(all, expr_bytes(r->b, json_text(value), json_length(value)));
    }
    return all;
}
