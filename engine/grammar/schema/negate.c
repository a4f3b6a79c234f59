/* The negation of a schema, as a schema: an anyOf of the ways in which a value can break it.
 *
 *     {"type": "object", "required": ["a", "b"]}
 *
 * is broken by a value of another type, by an object without a, or by one without b. Schemas inside
 * stay under `not`, and are negated only when a conjunction needs them, so recursion ends. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

enum { MAX_PAIRED = 12 }; /* branches of a negated oneOf; each pair is an alternative */

struct negation {
    struct schema_reader *r;
    const struct json *schema;
    struct json *ways; /* the anyOf */
};

/* Adds a way, an object that has a type unless it is NULL, and returns it. NULL: failed. */
static struct json *way(struct negation *n, const char *type) {
    struct json *made = made_in(n->r, n->ways, NULL, JSON_OBJECT);
    if (made && type) made_text(n->r, made, "type", type);
    return made;
}

static void cannot(struct negation *n, const struct json *at) {
    schema_cannot(n->r, at,
                  "cannot be negated exactly, as a not, an if or a oneOf whose branches overlap "
                  "needs it; use anyOf, or leave it out.");
}

static void not_in(struct negation *n, struct json *parent, const char *name,
                   const struct json *schema) {
    struct json *made = made_in(n->r, parent, name, JSON_OBJECT);
    if (made) made_copy(n->r, made, "not", schema);
}

/* Can a value break the schema at all? */
static bool may_break(const struct json *schema) {
    if (json_is(schema, JSON_BOOL)) return !json_true(schema);
    return schema_says(schema) || schema_value(schema, "$ref") || schema_value(schema, "allOf");
}

/* ---- values, numbers, strings --------------------------------------------------------------- */

static void copy_as(struct negation *n, const struct json *value, const char *type,
                    const char *as) {
    struct json *made = way(n, type);
    if (made) made_copy(n->r, made, as, value);
}

static void count_below(struct negation *n, const struct json *value, const char *type,
                        const char *most) {
    double least = json_number(value);
    struct json *made = least > 0 ? way(n, type) : NULL;
    if (made) made_number(n->r, made, most, least - 1);
}

static void count_above(struct negation *n, const struct json *value, const char *type,
                        const char *least) {
    bool is_bound = json_number(value) < MAX_EXACT;
    struct json *made = is_bound ? way(n, type) : NULL;
    if (made) made_number(n->r, made, least, json_number(value) + 1);
}

/* In draft 4, exclusiveMinimum true makes minimum strict, so an equal number breaks it. */
static void beyond_bound(struct negation *n, const struct json *bound, const char *strict,
                         const char *other, const char *other_strict) {
    if (!json_is(bound, JSON_NUMBER)) return;
    bool is_strict =
        strncmp(bound->name, "exclusive", 9) == 0 || json_true(schema_value(n->schema, strict));
    copy_as(n, bound, "number", is_strict ? other : other_strict);
}

static void other_format(struct negation *n, const struct json *format) {
    const char *pattern = format_pattern(n->r, format);
    if (!pattern) return;
    if (format_widest(format))
        copy_as(n, format, "string", NOT_FORMAT);
    else
        cannot(n, format);
}

/* ---- arrays --------------------------------------------------------------------------------- */

/* Adds a way: the item `at` breaks its schema. */
static void break_item(struct negation *n, const struct json *item, int at) {
    assert(at >= 0);
    struct json *made = may_break(item) ? way(n, "array") : NULL;
    struct json *prefix = made ? made_in(n->r, made, "prefixItems", JSON_ARRAY) : NULL;
    if (!prefix) return;
    made_number(n->r, made, "minItems", at + 1);
    for (int i = 0; i < at; i++) made_bool(n->r, prefix, NULL, true);
    not_in(n, prefix, NULL, item);
}

/* Adds a way: an item after the first `after` ones breaks `rest`, the schema of all these items. */
static void break_rest(struct negation *n, const struct json *rest, int after) {
    if (!may_break(rest)) return;
    if (json_is(rest, JSON_BOOL)) {
        struct json *longer = way(n, "array");
        if (longer) made_number(n->r, longer, "minItems", after + 1);
    } else if (after > 0) {
        cannot(n, rest);
    } else {
        struct json *made = way(n, "array");
        if (made) not_in(n, made, "contains", rest);
    }
}

static void break_items(struct negation *n, const struct json *keyword) {
    const struct json *prefix = schema_value(n->schema, "prefixItems");
    const struct json *items = schema_value(n->schema, "items");
    bool is_list = json_is(keyword, JSON_ARRAY);
    if (!prefix && json_is(items, JSON_ARRAY)) prefix = items;
    bool is_additional = strcmp(keyword->name, "additionalItems") == 0;
    if (is_additional && !json_is(items, JSON_ARRAY)) return;
    if (!is_list) {
        break_rest(n, keyword, json_count(prefix));
        return;
    }
    int at = 0;
    if (keyword == prefix) json_each(item, prefix) break_item(n, item, at++);
}

static void break_contains(struct negation *n, const struct json *contains) {
    const struct json *least = schema_value(n->schema, "minContains");
    const struct json *most = schema_value(n->schema, "maxContains");
    double min = least ? json_number(least) : 1;
    struct json *fewer = min > 0 ? way(n, "array") : NULL;
    if (fewer && min == 1) not_in(n, fewer, "items", contains);
    if (fewer && min > 1) {
        made_copy(n->r, fewer, "contains", contains);
        made_number(n->r, fewer, "minContains", 0);
        made_number(n->r, fewer, "maxContains", min - 1);
    }
    struct json *more = most && json_number(most) < MAX_EXACT ? way(n, "array") : NULL;
    if (!more) return;
    made_copy(n->r, more, "contains", contains);
    made_number(n->r, more, "minContains", json_number(most) + 1);
}

/* ---- objects -------------------------------------------------------------------------------- */

static void without_names(struct negation *n, const struct json *required) {
    json_each(name, required) {
        struct json *made = builder_works(n->r->b, 100) ? way(n, "object") : NULL;
        struct json *properties = made ? made_in(n->r, made, "properties", JSON_OBJECT) : NULL;
        if (properties) made_bool(n->r, properties, json_text(name), false);
    }
}

/* Adds a way in which an object has a property. */
static struct json *has_name(struct negation *n, const char *name) {
    struct json *made = builder_works(n->r->b, 100) ? way(n, "object") : NULL;
    struct json *required = made ? made_in(n->r, made, "required", JSON_ARRAY) : NULL;
    if (required) made_text(n->r, required, NULL, name);
    return required ? made : NULL;
}

static void break_properties(struct negation *n, const struct json *properties) {
    json_each_member(property, properties) {
        struct json *made = may_break(property) ? has_name(n, property->name) : NULL;
        struct json *values = made ? made_in(n->r, made, "properties", JSON_OBJECT) : NULL;
        if (values) not_in(n, values, property->name, property);
    }
}

/* A property that additionalProperties, patternProperties or propertyNames applies to breaks it.
 * Which names there are depends on the conjunction. */
static void break_other(struct negation *n, const struct json *keyword) {
    bool is_map = strcmp(keyword->name, "patternProperties") == 0, may = false;
    json_each_member(pattern, is_map ? keyword : NULL) may = may || may_break(pattern);
    if (!is_map) may = may_break(keyword);
    struct json *made = may ? way(n, "object") : NULL;
    if (made) made_copy(n->r, made, HAS_BREAKER, n->schema);
    if (made) made_text(n->r, made, BREAKER_OF, keyword->name);
}

static void break_dependents(struct negation *n, const struct json *dependents) {
    json_each_member(dependent, dependents) {
        struct json *made = has_name(n, dependent->name);
        if (!made) return;
        if (!json_is(dependent, JSON_ARRAY)) {
            made_copy(n->r, made, "not", dependent);
            continue;
        }
        struct json *no = made_in(n->r, made, "not", JSON_OBJECT);
        if (no) made_copy(n->r, no, "required", dependent);
    }
}

/* ---- combined schemas ----------------------------------------------------------------------- */

/* Adds a way that matches `yes` and not `no`; each may be NULL. */
static void match_one(struct negation *n, const struct json *yes, const struct json *no) {
    assert(yes || no); /* any value would match */
    struct json *made = way(n, NULL);
    if (made && no) made_copy(n->r, made, "not", no);
    struct json *all = made && yes ? made_in(n->r, made, "allOf", JSON_ARRAY) : NULL;
    if (all) made_copy(n->r, all, NULL, yes);
}

static void match_none(struct negation *n, const struct json *schemas) {
    struct json *made = way(n, NULL);
    struct json *all = made ? made_in(n->r, made, "allOf", JSON_ARRAY) : NULL;
    json_each(schema, all ? schemas : NULL) not_in(n, all, NULL, schema);
}

static void match_two(struct negation *n, const struct json *one_of) {
    if (json_count(one_of) > MAX_PAIRED) cannot(n, one_of);
    json_each(x, one_of) {
        for (const struct json *y = x->next; y; y = y->next) {
            struct json *made = builder_works(n->r->b, 100) ? way(n, NULL) : NULL;
            struct json *all = made ? made_in(n->r, made, "allOf", JSON_ARRAY) : NULL;
            if (!all) return;
            made_copy(n->r, all, NULL, x);
            made_copy(n->r, all, NULL, y);
        }
    }
}

static void break_condition(struct negation *n, const struct json *if_) {
    const struct json *then = schema_value(n->schema, "then");
    const struct json *other = schema_value(n->schema, "else");
    if (then) match_one(n, if_, then);
    if (!other) return;
    struct json *made = way(n, NULL);
    if (!made) return;
    struct json *all = made_in(n->r, made, "allOf", JSON_ARRAY);
    if (all) not_in(n, all, NULL, if_);
    if (all) not_in(n, all, NULL, other);
}

/* ---- keywords ------------------------------------------------------------------------------- */

static void break_ref(struct negation *n, const struct json *ref) {
    const struct json *target = schema_target(n->r, ref);
    if (target) match_one(n, NULL, target);
}

static void break_number(struct negation *n, const struct json *value) {
    const char *name = value->name;
    if (strcmp(name, "multipleOf") == 0) copy_as(n, value, "number", NOT_MULTIPLE);
    if (strstr(name, "inimum"))
        beyond_bound(n, value, "exclusiveMinimum", "maximum", "exclusiveMaximum");
    if (strstr(name, "aximum"))
        beyond_bound(n, value, "exclusiveMaximum", "minimum", "exclusiveMinimum");
}

static void break_count(struct negation *n, const struct json *value) {
    static const char *const rows[][3] = {{"minLength", "string", "maxLength"},
                                          {"minItems", "array", "maxItems"},
                                          {"minProperties", "object", "maxProperties"}};
    for (int i = 0; i < 3; i++) {
        if (strcmp(value->name, rows[i][0]) == 0) count_below(n, value, rows[i][1], rows[i][2]);
        if (strcmp(value->name, rows[i][2]) == 0) count_above(n, value, rows[i][1], rows[i][0]);
    }
}

static void break_unevaluated(struct negation *n, const struct json *value) {
    const struct json *made = json_true(value) ? NULL : schema_unevaluated(n->r, n->schema, value);
    if (made) match_one(n, NULL, made);
}

static void break_all_of(struct negation *n, const struct json *all_of) {
    json_each(part, all_of) if (may_break(part)) match_one(n, NULL, part);
}

static void break_one_of(struct negation *n, const struct json *one_of) {
    match_none(n, one_of);
    match_two(n, one_of);
}

static void break_type(struct negation *n, const struct json *type) {
    copy_as(n, type, NULL, NOT_TYPE);
}
static void break_enum(struct negation *n, const struct json *list) {
    copy_as(n, list, NULL, NOT_ENUM);
}
static void break_const(struct negation *n, const struct json *value) {
    copy_as(n, value, NULL, NOT_CONST);
}
static void break_pattern(struct negation *n, const struct json *pattern) {
    copy_as(n, pattern, "string", NOT_PATTERN);
}
static void break_not(struct negation *n, const struct json *no) {
    match_one(n, no, NULL);
}
static void break_unique(struct negation *n, const struct json *unique) {
    if (json_true(unique)) cannot(n, unique);
}

static const struct {
    const char *keyword;
    void (*add)(struct negation *n, const struct json *value);
} breaks[] = {
    {"type", break_type},
    {"enum", break_enum},
    {"const", break_const},
    {"pattern", break_pattern},
    {"format", other_format},
    {"minLength", break_count},
    {"maxLength", break_count},
    {"minItems", break_count},
    {"maxItems", break_count},
    {"minProperties", break_count},
    {"maxProperties", break_count},
    {"minimum", break_number},
    {"maximum", break_number},
    {"exclusiveMinimum", break_number},
    {"exclusiveMaximum", break_number},
    {"multipleOf", break_number},
    {"items", break_items},
    {"prefixItems", break_items},
    {"additionalItems", break_items},
    {"uniqueItems", break_unique},
    {"contains", break_contains},
    {"required", without_names},
    {"properties", break_properties},
    {"additionalProperties", break_other},
    {"patternProperties", break_other},
    {"propertyNames", break_other},
    {"unevaluatedProperties", break_unevaluated},
    {"unevaluatedItems", break_unevaluated},
    {"dependentRequired", break_dependents},
    {"dependentSchemas", break_dependents},
    {"dependencies", break_dependents},
    {"anyOf", match_none},
    {"oneOf", break_one_of},
    {"allOf", break_all_of},
    {"not", break_not},
    {"if", break_condition},
    {"$ref", break_ref},
};

/* Made keywords occur under `not` only inside schemas that were negated already. */
static void break_keyword(struct negation *n, const struct json *value) {
    if (json_is(value, JSON_NULL) && strcmp(value->name, "const") != 0) return;
    if (value->name[0] == MADE) cannot(n, value);
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        if (strcmp(breaks[i].keyword, value->name) == 0) breaks[i].add(n, value);
    }
}

const struct json *schema_negation(struct schema_reader *r, const struct json *schema) {
    schema = schema_original(r, schema);
    void **known = node_map_at(r->b, &r->negations, schema);
    if (!known || *known) return known ? *known : NULL;
    struct json *made = made_new(r, schema, JSON_OBJECT);
    if (!made) return NULL;
    *known = made;
    if (json_is(schema, JSON_BOOL)) {
        *made = json_made_bool(!json_true(schema));
        return made;
    }
    struct negation n = {r, schema, made_in(r, made, "anyOf", JSON_ARRAY)};
    if (!n.ways) return NULL;
    if (json_true(schema_value(schema, "nullable"))) made_text(r, made, NOT_TYPE, "null");
    json_each_member(value, schema) {
        if (builder_works(r->b, 100)) break_keyword(&n, value);
    }
    if (json_count(n.ways) == 0) *made = json_made_bool(false);
    return made;
}
