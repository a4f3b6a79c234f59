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

/* ---- properties without a name -------------------------------------------------------------- */

static void make_true(struct schema_reader *r, struct json *way, const char *keyword,
                      const struct json *map) {
    struct json *values = map ? made_in(r, way, keyword, JSON_OBJECT) : NULL;
    json_each_member(member, values ? map : NULL) made_bool(r, values, member->name, true);
}

/* Adds the way in which a property without a name is the breaker. The way lists the names and
 * patterns that the keyword depends on. */
static void add_last(struct schema_reader *r, struct json *ways, const struct json *breaker,
                     const struct json *keyword, const struct json *pattern) {
    bool is_others = strcmp(keyword->name, "additionalProperties") == 0;
    struct json *way = made_in(r, ways, NULL, JSON_OBJECT);
    if (!way) return;
    made_copy(r, way, HAS_LAST_BREAKER, breaker);
    made_text(r, way, BREAKER_OF, keyword->name);
    if (pattern) made_text(r, way, BREAKER_PATTERN, pattern->name);
    if (is_others) make_true(r, way, "properties", schema_value(breaker, "properties"));
    if (is_others || pattern)
        make_true(r, way, "patternProperties", schema_value(breaker, "patternProperties"));
}

struct pointers last_breakers(struct schema_reader *r, const struct conj *conj) {
    struct pointers lasts = {0};
    conj_each(schema, conj) if (schema_value(schema, HAS_LAST_BREAKER))
        pointers_add(r->b, &lasts, schema);
    assert(lasts.n <= MAX_LAST || r->b->status != STATUS_OK);
    return lasts;
}

/* Returns the keyword that the last property breaks. */
static const struct json *last_keyword(const struct json *last) {
    return schema_value(schema_value(last, HAS_LAST_BREAKER),
                        json_text(schema_value(last, BREAKER_OF)));
}

/* Does the name alone make a property the breaker? */
static bool is_by_name(const struct json *last) {
    const struct json *keyword = last_keyword(last);
    const struct json *pattern = schema_value(last, BREAKER_PATTERN);
    const struct json *broken = pattern ? json_member(keyword, json_text(pattern)) : keyword;
    bool is_false = json_is(broken, JSON_BOOL) && !json_true(broken);
    return is_false || strcmp(keyword->name, "propertyNames") == 0;
}

bool breakers_need_value(const struct pointers *lasts, unsigned set) {
    for (int i = 0; i < lasts->n; i++)
        if (set >> i & 1 && !is_by_name(lasts->list[i])) return true;
    return false;
}

/* Fails if a way needs another last property than those of the conjunction. */
static void check_last(struct schema_reader *r, const struct conj *conj, const struct json *way,
                       const struct json *keyword) {
    struct pointers lasts = last_breakers(r, conj);
    bool is_right = lasts.n < MAX_LAST && (is_by_name(way) || !breakers_need_value(&lasts, ~0u));
    if (!is_right)
        schema_cannot(r, keyword,
                      "cannot be negated exactly, as a not, an if or a oneOf whose branches "
                      "overlap needs it, since another property without a name breaks another "
                      "schema.");
}

/* Adds these ways, each made once, to `out`. */
static void choose_last(struct schema_reader *r, struct pointers *out, const struct conj *conj,
                        const struct json *breaker, const struct json *keyword) {
    bool is_map = strcmp(keyword->name, "patternProperties") == 0, is_known = false;
    struct json *ways = known_ways(r, breaker);
    if (!ways || !builder_works(r->b, 200)) return;
    json_each(way, ways) is_known = is_known || schema_value(way, HAS_LAST_BREAKER);
    if (!is_known && !is_map) add_last(r, ways, breaker, keyword, NULL);
    json_each_member(pattern, !is_known && is_map ? keyword : NULL)
        add_last(r, ways, breaker, keyword, pattern);
    json_each(way, ways) {
        if (!schema_value(way, HAS_LAST_BREAKER)) continue;
        check_last(r, conj, way, keyword);
        pointers_add(r->b, out, way);
    }
}

/* Does the kind match this pattern? */
static bool kind_matches(const struct key_kind *kind, const char *pattern) {
    for (int i = 0; i < kind->n; i++)
        if (strcmp(kind->patterns[i]->name, pattern) == 0) return kind->chosen >> i & 1;
    return false;
}

/* Adds the negation of a schema to a conjunction. Returns false if nothing breaks it. */
static bool add_negation(struct schema_reader *r, struct conj *conj, const struct json *schema) {
    const struct json *negation = schema_negation(r, schema);
    r->path.n = 0;
    if (negation) conj_add(r, conj, negation);
    return negation && !conj->is_false;
}

static bool narrow(struct schema_reader *r, const struct json *last, const struct key_kind *kind,
                   struct conj *value, struct conj *name) {
    const struct json *schema = schema_value(last, HAS_LAST_BREAKER);
    const struct json *pattern = schema_value(last, BREAKER_PATTERN);
    const struct json *patterns = schema_value(schema, "patternProperties");
    const struct json *keyword = last_keyword(last);
    if (strcmp(keyword->name, "propertyNames") == 0) return add_negation(r, name, keyword);
    if (pattern) {
        const struct json *own = schema_member(r, keyword, json_text(pattern));
        return kind_matches(kind, json_text(pattern)) && add_negation(r, value, own);
    }
    json_each_member(other, patterns) if (kind_matches(kind, other->name)) return false;
    return add_negation(r, value, keyword);
}

bool breakers_narrow(struct schema_reader *r, const struct pointers *lasts, unsigned set,
                     const struct key_kind *kind, struct conj *value, struct conj *name) {
    for (int i = 0; i < lasts->n; i++)
        if (set >> i & 1 && !narrow(r, lasts->list[i], kind, value, name)) return false;
    return true;
}

/* ---- all ways ------------------------------------------------------------------------------- */

struct pointers breaker_ways(struct schema_reader *r, const struct conj *conj,
                             const struct json *breaker) {
    const struct json *keyword = keyword_of(conj, breaker);
    struct pointers out = {0};
    if (!keyword) return out;
    if (!schema_is_closed(r, conj)) choose_last(r, &out, conj, breaker, keyword);
    conj_each_value(properties, conj, "properties") {
        json_each_member(property, properties)
            choose_name(r, &out, breaker, keyword, property->name);
    }
    conj_each_value(required, conj, "required") {
        json_each(name, required) choose_name(r, &out, breaker, keyword, json_text(name));
    }
    struct conj names = names_together(r, conj);
    struct pointers listed = names_listed(r, &names);
    pointers_each(name, &listed) choose_name(r, &out, breaker, keyword, json_text(name));
    return out;
}
