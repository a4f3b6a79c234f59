/* The property that breaks additionalProperties, patternProperties or propertyNames of a negated
 * schema. Which properties these keywords apply to depends on the names in the whole conjunction,
 * so they are chosen after all other choices. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

const struct json *open_breaker(const struct conj *conj) {
    conj_each_value(breaker, conj, HAS_BREAKER) {
        if (!pointers_have(&conj->resolved, breaker)) return breaker;
    }
    return NULL;
}

/* Returns the keyword that the property breaks. */
static const struct json *keyword_of(const struct conj *conj, const struct json *breaker) {
    conj_each(schema, conj) {
        if (schema_value(schema, HAS_BREAKER) == breaker)
            return schema_value(breaker, json_text(schema_value(schema, BREAKER_OF)));
    }
    return NULL;
}

static bool has_property(const struct json *ways, const char *name) {
    json_each(way, ways) {
        if (json_is_text(json_first(schema_value(way, "required")), name)) return true;
    }
    return false;
}

/* Adds a way in which the property exists and, unless `value` is NULL, does not match it. */
static void add_way(struct schema_reader *r, struct json *ways, const char *name,
                    const struct json *value) {
    struct json *way = made_in(r, ways, NULL, JSON_OBJECT);
    struct json *required = way ? made_in(r, way, "required", JSON_ARRAY) : NULL;
    if (!required) return;
    made_text(r, required, NULL, name);
    struct json *values = value ? made_in(r, way, "properties", JSON_OBJECT) : NULL;
    struct json *own = values ? made_in(r, values, name, JSON_OBJECT) : NULL;
    if (own) made_copy(r, own, "not", value);
}

/* Adds the ways in which the property of this name breaks the keyword. */
static void add_name(struct schema_reader *r, struct json *ways, const struct json *schema,
                     const struct json *keyword, const char *name) {
    bool is_named = schema_member(r, schema_value(schema, "properties"), name) != NULL;
    bool is_others = strcmp(keyword->name, "additionalProperties") == 0;
    struct json text = json_borrowed_text((char *)name);
    if (has_property(ways, name)) return;
    if (strcmp(keyword->name, "propertyNames") == 0) {
        if (!schema_holds(r, keyword, &text)) add_way(r, ways, name, NULL);
        return;
    }
    json_each_member(pattern, schema_value(schema, "patternProperties")) {
        if (!schema_pattern_matches(r, pattern, name)) continue;
        is_named = true;
        if (!is_others) add_way(r, ways, name, pattern);
    }
    if (is_others && !is_named) add_way(r, ways, name, keyword);
}

/* Returns the ways that are known for a breaker, for all conjunctions. NULL: failed. */
static struct json *known_ways(struct schema_reader *r, const struct json *breaker) {
    void **known = node_map_at(r->b, &r->rewrites, breaker);
    if (!known) return NULL;
    if (!*known) *known = made_new(r, breaker, JSON_ARRAY);
    return *known;
}

/* Adds the ways of a property, each made once, to `out`. */
static void choose_name(struct schema_reader *r, struct pointers *out, const struct json *breaker,
                        const struct json *keyword, const char *name) {
    struct json *ways = known_ways(r, breaker);
    if (!ways || !builder_works(r->b, 200)) return;
    add_name(r, ways, breaker, keyword, name);
    json_each(way, ways) {
        bool is_own = json_is_text(json_first(schema_value(way, "required")), name);
        if (is_own && !pointers_have(out, way)) pointers_add(r->b, out, way);
    }
}

struct pointers breaker_ways(struct schema_reader *r, const struct conj *conj,
                             const struct json *breaker) {
    const struct json *keyword = keyword_of(conj, breaker);
    struct pointers out = {0};
    if (!keyword) return out;
    if (!schema_is_closed(r, conj))
        schema_cannot(
            r, keyword,
            "cannot be negated exactly, as a not, an if or a oneOf whose branches overlap "
            "needs it, since the object may have properties that no schema names.");
    conj_each_value(properties, conj, "properties") {
        json_each_member(property, properties)
            choose_name(r, &out, breaker, keyword, property->name);
    }
    conj_each_value(required, conj, "required") {
        json_each(name, required) choose_name(r, &out, breaker, keyword, json_text(name));
    }
    return out;
}
