/* Decides whether a listed value matches a schema. The values of enum and const are finite, so each
 * keyword next to them can be checked exactly when the schema is read. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

enum { MAX_HOLDS_DEPTH = 200 };

static bool holds(struct schema_reader *r, const struct json *schema, const struct json *value,
                  int depth);

/* ---- numbers -------------------------------------------------------------------------------- */

/* Returns a number's digits without trailing zeros, and the power of ten that scales them. */
static uint64_t digits_of(const struct json *number, int *power) {
    char text[40];
    *power = 0;
    if (json_is_integer(number)) {
        int64_t n = json_integer(number);
        return n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    }
    for (int digits = 1; digits <= 17; digits++) { /* the shortest that is the same number */
        snprintf(text, sizeof text, "%.*e", digits - 1, fabs(json_number(number)));
        if (strtod(text, NULL) == fabs(json_number(number))) break;
    }
    char *exponent = strchr(text, 'e');
    *power = atoi(exponent + 1);
    uint64_t all = 0;
    for (const char *c = text; c < exponent; c++) {
        if (*c == '.') continue;
        all = all * 10 + (uint64_t)(*c - '0');
        *power -= c > text;
    }
    return all;
}

/* Is digits * 10^power a multiple of n? */
static bool is_scaled_multiple(uint64_t digits, int power, uint64_t n) {
    assert(n > 0 && power >= 0);
    uint64_t rest = digits % n;
    for (; power > 0 && rest > 0; power--) rest = (uint64_t)((unsigned __int128)rest * 10 % n);
    return rest == 0;
}

static bool is_multiple(const struct json *number, const struct json *divisor) {
    int power, scale;
    uint64_t digits = digits_of(number, &power), n = digits_of(divisor, &scale);
    if (digits == 0) return true;
    for (; power < scale && digits % 10 == 0; power++) digits /= 10;
    for (; power < scale && n <= UINT64_MAX / 10; scale--) n *= 10;
    return power >= scale && is_scaled_multiple(digits, power - scale, n);
}

/* Returns the sign of x - y. */
static int compare(const struct json *x, const struct json *y) {
    if (json_is_integer(x) && json_is_integer(y)) {
        int64_t a = json_integer(x), b = json_integer(y);
        return (a > b) - (a < b);
    }
    double a = json_number(x), b = json_number(y);
    return (a > b) - (a < b);
}

/* In draft 4 an exclusive bound is true or false, and makes the other one strict. */
static bool within(const struct json *schema, const struct json *value, const char *bound,
                   const char *strict_bound, int sign) {
    const struct json *least = schema_value(schema, bound);
    const struct json *strict = schema_value(schema, strict_bound);
    int order = least ? sign * compare(value, least) : 1;
    if (order < 0 || (order == 0 && json_true(strict))) return false;
    return !json_is(strict, JSON_NUMBER) || sign * compare(value, strict) > 0;
}

static bool number_holds(const struct json *schema, const struct json *value) {
    const struct json *divisor = schema_value(schema, "multipleOf");
    const struct json *other = schema_value(schema, NOT_MULTIPLE);
    if (divisor && !is_multiple(value, divisor)) return false;
    if (other && is_multiple(value, other)) return false;
    return within(schema, value, "minimum", "exclusiveMinimum", 1) &&
           within(schema, value, "maximum", "exclusiveMaximum", -1);
}

/* ---- strings -------------------------------------------------------------------------------- */

static double characters(const struct json *string) {
    double n = 0;
    for (size_t i = 0; i < json_length(string); i++) {
        n += ((uint8_t)json_text(string)[i] & 0xC0) != 0x80;
    }
    return n;
}

/* Does a count lie within the bounds of two keywords? */
static bool counts(const struct json *schema, const char *min, const char *max, double n) {
    const struct json *least = schema_value(schema, min), *most = schema_value(schema, max);
    return (!least || n >= json_number(least)) && (!most || n <= json_number(most));
}

static bool format_holds(struct schema_reader *r, const struct json *format,
                         const struct json *value) {
    const char *pattern = format ? format_pattern(r, format) : NULL;
    return !pattern || schema_text_matches(r, format, pattern, REGEX_WHOLE, value);
}

static bool string_holds(struct schema_reader *r, const struct json *schema,
                         const struct json *value) {
    const struct json *pattern = schema_value(schema, "pattern");
    const struct json *other = schema_value(schema, NOT_PATTERN);
    if (!counts(schema, "minLength", "maxLength", characters(value))) return false;
    if (pattern && !schema_text_matches(r, pattern, json_text(pattern), REGEX_SEARCH, value))
        return false;
    if (other && schema_text_matches(r, other, json_text(other), REGEX_SEARCH, value)) return false;
    const struct json *excluded = schema_value(schema, NOT_FORMAT);
    if (excluded && schema_text_matches(r, excluded, format_widest(excluded), REGEX_WHOLE, value))
        return false;
    return format_holds(r, schema_value(schema, "format"), value);
}

/* ---- arrays --------------------------------------------------------------------------------- */

static bool items_hold(struct schema_reader *r, const struct json *schema, const struct json *value,
                       int depth) {
    int at = 0;
    json_each(item, value) {
        const struct json *own = schema_item(r, schema, at++);
        if (own && !holds(r, own, item, depth)) return false;
    }
    return true;
}

static bool contains_holds(struct schema_reader *r, const struct json *schema,
                           const struct json *value, int depth) {
    const struct json *contains = schema_value(schema, "contains");
    const struct json *least = schema_value(schema, "minContains");
    const struct json *most = schema_value(schema, "maxContains");
    double n = 0;
    if (!contains) return true;
    json_each(item, value) n += holds(r, contains, item, depth);
    return n >= (least ? json_number(least) : 1) && (!most || n <= json_number(most));
}

static bool array_holds(struct schema_reader *r, const struct json *schema,
                        const struct json *value, int depth) {
    bool is_set = json_true(schema_value(schema, "uniqueItems"));
    return counts(schema, "minItems", "maxItems", json_count(value)) &&
           (!is_set || !values_repeat(r, value)) && items_hold(r, schema, value, depth) &&
           contains_holds(r, schema, value, depth);
}

/* ---- objects -------------------------------------------------------------------------------- */

static bool has_all(const struct json *value, const struct json *names) {
    json_each(name, names) if (!json_member(value, json_text(name))) return false;
    return true;
}

static bool names_hold(struct schema_reader *r, const struct json *schema, const struct json *value,
                       int depth) {
    const struct json *names = schema_value(schema, "propertyNames");
    json_each_member(member, names ? value : NULL) {
        struct json name = json_borrowed_text(member->name);
        if (!holds(r, names, &name, depth)) return false;
    }
    return true;
}

static bool members_hold(struct schema_reader *r, const struct json *schema,
                         const struct json *value, int depth) {
    const struct json *others = schema_others(schema);
    json_each_member(member, value) {
        const struct json *own = schema_member(r, schema_value(schema, "properties"), member->name);
        bool is_named = own != NULL;
        if (own && !holds(r, own, member, depth)) return false;
        json_each(pattern, schema_value(schema, "patternProperties")) {
            if (!schema_pattern_matches(r, pattern, member->name)) continue;
            is_named = true;
            if (!holds(r, pattern, member, depth)) return false;
        }
        if (!is_named && others && !holds(r, others, member, depth)) return false;
    }
    return true;
}

/* dependentRequired, dependentSchemas, and dependencies, which has both forms. */
static bool dependents_hold(struct schema_reader *r, const struct json *schema,
                            const struct json *value, int depth) {
    static const char *const keywords[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    for (int i = 0; i < 3; i++) {
        json_each_member(dependent, schema_value(schema, keywords[i])) {
            if (!json_member(value, dependent->name)) continue;
            bool is_list = json_is(dependent, JSON_ARRAY);
            if (is_list ? !has_all(value, dependent) : !holds(r, dependent, value, depth))
                return false;
        }
    }
    return true;
}

static bool object_holds(struct schema_reader *r, const struct json *schema,
                         const struct json *value, int depth) {
    return counts(schema, "minProperties", "maxProperties", json_count(value)) &&
           has_all(value, schema_value(schema, "required")) &&
           members_hold(r, schema, value, depth) && names_hold(r, schema, value, depth) &&
           dependents_hold(r, schema, value, depth);
}

/* ---- all values ----------------------------------------------------------------------------- */

static bool listed_holds(struct schema_reader *r, const struct json *schema,
                         const struct json *value) {
    const struct json *list = schema_value(schema, "enum"), *one = schema_value(schema, "const");
    const struct json *others = schema_value(schema, NOT_ENUM);
    const struct json *other = schema_value(schema, NOT_CONST);
    if (list && !schema_list_has(r, list, value)) return false;
    if (one && !schema_list_has(r, one, value)) return false;
    if (other && schema_list_has(r, other, value)) return false;
    return !others || !schema_list_has(r, others, value);
}

/* Returns how many of the schemas match; at most 2. */
static int matching(struct schema_reader *r, const struct json *schemas, const struct json *value,
                    int depth) {
    int n = 0;
    json_each(schema, schemas) {
        n += n < 2 && holds(r, schema, value, depth);
    }
    return n;
}

static bool choices_hold(struct schema_reader *r, const struct json *schema,
                         const struct json *value, const struct pointers *resolved, int depth) {
    const struct json *any = schema_value(schema, "anyOf"), *one = schema_value(schema, "oneOf");
    if (any && !pointers_have(resolved, any) && matching(r, any, value, depth) == 0) return false;
    return !one || pointers_have(resolved, one) || matching(r, one, value, depth) == 1;
}

static bool parts_hold(struct schema_reader *r, const struct json *schema, const struct json *value,
                       int depth) {
    const struct json *ref = schema_value(schema, "$ref");
    const struct json *target = ref ? schema_target(r, ref) : NULL;
    json_each(part, schema_value(schema, "allOf")) {
        if (!holds(r, part, value, depth)) return false;
    }
    return !target || holds(r, target, value, depth);
}

static bool unevaluated_holds(struct schema_reader *r, const struct json *schema,
                              const struct json *value, int depth) {
    static const char *const keywords[] = {"unevaluatedProperties", "unevaluatedItems"};
    for (int i = 0; i < 2 && r->mode != SCHEMA_HINT; i++) {
        const struct json *own = schema_value(schema, keywords[i]), *made = NULL;
        if (own && !schema_is_decided(schema, own)) made = schema_unevaluated(r, schema, own);
        if (made && !holds(r, made, value, depth)) return false;
    }
    return true;
}

static bool conditions_hold(struct schema_reader *r, const struct json *schema,
                            const struct json *value, int depth) {
    const struct json *no = schema_value(schema, "not"), *if_ = schema_value(schema, "if");
    if (no && holds(r, no, value, depth)) return false;
    if (!unevaluated_holds(r, schema, value, depth)) return false;
    if (!if_) return true;
    const struct json *then = schema_value(schema, holds(r, if_, value, depth) ? "then" : "else");
    return !then || holds(r, then, value, depth);
}

static bool own_type_holds(struct schema_reader *r, const struct json *schema,
                           const struct json *value, int depth) {
    switch (value->type) {
    case JSON_NUMBER:
        return number_holds(schema, value);
    case JSON_STRING:
        return string_holds(r, schema, value);
    case JSON_ARRAY:
        return array_holds(r, schema, value, depth);
    case JSON_OBJECT:
        return object_holds(r, schema, value, depth);
    default:
        return true;
    }
}

/* Checks a schema except allOf, $ref and the choices of the list. */
static bool own_holds(struct schema_reader *r, const struct json *schema, const struct json *value,
                      const struct pointers *resolved, int depth) {
    return (types_of_schema(schema) & json_value_type(value)) && listed_holds(r, schema, value) &&
           own_type_holds(r, schema, value, depth) &&
           choices_hold(r, schema, value, resolved, depth) &&
           conditions_hold(r, schema, value, depth);
}

static bool holds(struct schema_reader *r, const struct json *schema, const struct json *value,
                  int depth) {
    const struct pointers none = {0};
    if (!builder_works(r->b, 100)) return true;
    if (json_is(schema, JSON_BOOL)) return json_true(schema);
    if (json_is(value, JSON_NULL) && json_true(schema_value(schema, "nullable"))) return true;
    if (depth == MAX_HOLDS_DEPTH) {
        schema_cannot(r, schema, "refers to itself before any value begins.");
        return true;
    }
    return own_holds(r, schema, value, &none, depth + 1) && parts_hold(r, schema, value, depth + 1);
}

bool schema_holds(struct schema_reader *r, const struct json *schema, const struct json *value) {
    return holds(r, schema, value, 0);
}

bool conj_holds(struct schema_reader *r, const struct conj *conj, const struct json *value) {
    if (conj->is_false || conj->without & json_value_type(value)) return false;
    conj_each(schema, conj) {
        bool is_open = json_is(schema, JSON_BOOL); /* a `nullable` that waits for a choice */
        const struct json *owner = is_open ? schema_owner(r, schema) : NULL;
        if (is_open && owner && !pointers_have(&conj->resolved, schema)) {
            if (!holds(r, owner, value, 0)) return false;
        } else if (!is_open && !own_holds(r, schema, value, &conj->resolved, 0)) {
            return false; /* the conjunction has the schemas of allOf and $ref too */
        }
    }
    return true;
}
