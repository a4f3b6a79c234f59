/* Schemas that list their values. */
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

#define MAX_DISJOINT_DEPTH 4

bool schema_has_values(const struct conj *conj) {
    conj_each(schema, conj) {
        if (schema_value(schema, "enum") || schema_value(schema, "const")) return true;
    }
    return false;
}

static unsigned type_of(const struct json *value) {
    switch (value->type) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_BOOL:
        return TYPE_BOOL;
    case JSON_NUMBER:
        return json_is_integer(value) ? TYPE_INTEGER : TYPE_FRACTION;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    }
    return 0;
}

/* Returns a keyword that constrains values of this type further, or NULL. */
static const struct json *constraint_on(const struct conj *conj, unsigned type) {
    static const struct {
        const char *keyword;
        unsigned types;
    } constraints[] = {
        {"minLength", TYPE_STRING},         {"maxLength", TYPE_STRING},
        {"pattern", TYPE_STRING},           {"format", TYPE_STRING},
        {"minimum", TYPE_NUMBER},           {"maximum", TYPE_NUMBER},
        {"exclusiveMinimum", TYPE_NUMBER},  {"exclusiveMaximum", TYPE_NUMBER},
        {"multipleOf", TYPE_NUMBER},        {"items", TYPE_ARRAY},
        {"prefixItems", TYPE_ARRAY},        {"minItems", TYPE_ARRAY},
        {"maxItems", TYPE_ARRAY},           {"properties", TYPE_OBJECT},
        {"required", TYPE_OBJECT},          {"additionalProperties", TYPE_OBJECT},
        {"patternProperties", TYPE_OBJECT}, {"minProperties", TYPE_OBJECT},
        {"maxProperties", TYPE_OBJECT},     {"propertyNames", TYPE_OBJECT},
    };
    for (size_t i = 0; i < sizeof constraints / sizeof *constraints; i++) {
        if (!(constraints[i].types & type)) continue;
        conj_each_value(value, conj, constraints[i].keyword) return value;
    }
    return NULL;
}

void schema_check_value(struct schema_reader *r, const struct conj *conj,
                        const struct json *value) {
    const struct json *constraint = constraint_on(conj, type_of(value));
    if (constraint)
        schema_cannot(r, constraint,
                      "is not enforced together with an enum or a const; list only the values that "
                      "match it.");
}

struct expr *schema_values(struct schema_reader *r, const struct conj *conj, unsigned types) {
    struct expr *all = expr_new(r->b, EXPR_ALT);
    struct pointers listed = schema_listed(r, conj);
    pointers_each(value, &listed) {
        if (!builder_works(r->b, 100)) return all;
        if (!(type_of(value) & types)) continue;
        schema_check_value(r, conj, value);
        expr_add(all, json_literal(r->b, value));
    }
    return all;
}

struct expr *schema_text_values(struct schema_reader *r, const struct conj *conj) {
    struct expr *all = expr_new(r->b, EXPR_ALT);
    struct pointers listed = schema_listed(r, conj);
    pointers_each(value, &listed) {
        if (!builder_works(r->b, 20)) return all;
        if (json_is(value, JSON_STRING))
            expr_add(all, expr_bytes(r->b, json_text(value), json_length(value)));
    }
    return all;
}
