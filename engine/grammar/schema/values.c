/* Schemas that list their values, and what can be said of two schemas at once. */
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/schema.h"

#define MAX_DISJOINT_DEPTH 4

bool schema_has_values(const struct conj *conj) {
    conj_each(schema, conj) {
        if (json_member(schema, "enum") || json_member(schema, "const")) return true;
    }
    return false;
}

static bool same_value(const struct json *x, const struct json *y);

static bool same_members(const struct json *x, const struct json *y) {
    if (json_count(x) != json_count(y)) return false;
    const struct json *other = json_first(y);
    json_each(item, x) {
        const struct json *same = item->name ? json_member(y, item->name) : other;
        if (!same || !same_value(item, same)) return false;
        other = other->next;
    }
    return true;
}

static bool same_value(const struct json *x, const struct json *y) {
    if (x->type != y->type) return false;
    switch (x->type) {
    case JSON_NULL:
        return true;
    case JSON_BOOL:
        return json_true(x) == json_true(y);
    case JSON_NUMBER:
        if (json_is_integer(x) && json_is_integer(y)) return json_integer(x) == json_integer(y);
        return json_number(x) == json_number(y);
    case JSON_STRING:
        return json_length(x) == json_length(y) &&
               memcmp(json_text(x), json_text(y), json_length(x)) == 0;
    default:
        return same_members(x, y);
    }
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

/* The values to choose from: those of the first list, which others may narrow. */
static const struct json *first_list(const struct conj *conj) {
    conj_each(schema, conj) {
        const struct json *only = json_member(schema, "const"), *some = json_member(schema, "enum");
        if (only) return only;
        if (some) return json_first(some);
    }
    return NULL;
}

/* Do all lists of values have this one, which is of the first? */
static bool is_listed(const struct conj *conj, const struct json *value) {
    const struct json *first = first_list(conj);
    conj_each(schema, conj) {
        const struct json *only = json_member(schema, "const"), *some = json_member(schema, "enum");
        if (only && !same_value(only, value)) return false;
        bool found = !some || json_first(some) == first;
        json_each(item, some) {
            if (found) break;
            found = same_value(item, value);
        }
        if (!found) return false;
    }
    return true;
}

/* Is it the only value of its list? A const stands among the other keywords. */
static bool is_const(const struct json *value) {
    return value->name && strcmp(value->name, "const") == 0;
}

const struct json *schema_next_value(const struct conj *conj, const struct json *value) {
    value = !value ? first_list(conj) : is_const(value) ? NULL : value->next;
    while (value && !is_listed(conj, value)) value = is_const(value) ? NULL : value->next;
    return value;
}

/* The keyword, if any, that says more of values of this type than their type. */
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
        schema_fail(r, constraint,
                    "stands beside an enum or a const, where it is not enforced; "
                    "list only the values that keep to it.");
}

struct expr *schema_values(struct schema_reader *r, const struct conj *conj, unsigned types) {
    struct expr *all = expr_new(r->b, EXPR_ALT);
    values_each(value, conj) {
        if (!(type_of(value) & types)) continue;
        schema_check_value(r, conj, value);
        expr_add(all, json_literal(r->b, value));
        if (r->b->status != STATUS_OK) break;
    }
    return all;
}

struct expr *schema_text_values(struct schema_reader *r, const struct conj *conj) {
    struct expr *all = expr_new(r->b, EXPR_ALT);
    values_each(value, conj) {
        if (json_is(value, JSON_STRING))
            expr_add(all, expr_bytes(r->b, json_text(value), json_length(value)));
    }
    return all;
}

/* ---- disjoint conjunctions ------------------------------------------------------------------ */

static bool values_disjoint(const struct conj *x, const struct conj *y) {
    values_each(value, x) {
        values_each(other, y) {
            if (same_value(value, other)) return false;
        }
    }
    return true;
}

/* Is there a property that x requires, and that can have no value that both allow? */
static bool properties_disjoint(struct schema_reader *r, const struct conj *x, const struct conj *y,
                                int depth) {
    conj_each_value(required, x, "required") {
        json_each(name, required) {
            struct conj of_x = schema_property(r, x, json_text(name));
            struct conj of_y = schema_property(r, y, json_text(name));
            if (r->b->status == STATUS_OK && conj_disjoint(r, &of_x, &of_y, depth + 1)) return true;
        }
    }
    return false;
}

bool conj_disjoint(struct schema_reader *r, const struct conj *x, const struct conj *y, int depth) {
    unsigned types = conj_types(x) & conj_types(y);
    if (types == 0) return true;
    if (schema_has_values(x) && schema_has_values(y)) return values_disjoint(x, y);
    if (types != TYPE_OBJECT || depth == MAX_DISJOINT_DEPTH) return false;
    return properties_disjoint(r, x, y, depth) || properties_disjoint(r, y, x, depth);
}
