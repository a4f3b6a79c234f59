/* Schemas that the reader makes: nodes in the builder's arena. A copy shares its children with the
 * original, and counts as the original where schemas are compared. Each node knows the node of the
 * document that it stands for, which messages name. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

/* ---- nodes ---------------------------------------------------------------------------------- */

struct json *made_new(struct schema_reader *r, const struct json *origin, enum json_type type) {
    struct json *made = builder_alloc(r->b, sizeof *made);
    void **place = made ? node_map_at(r->b, &r->origins, made) : NULL;
    if (!place) return NULL;
    *made = json_made_parent(type);
    *place = (void *)schema_place(r, origin);
    return made;
}

struct json *made_in(struct schema_reader *r, struct json *parent, const char *name,
                     enum json_type type) {
    struct json *made = made_new(r, parent, type);
    if (made) json_adopt(parent, made, (char *)name);
    return made;
}

static void add_value(struct schema_reader *r, struct json *parent, const char *name,
                      struct json value) {
    struct json *made = made_new(r, parent, value.type);
    if (!made) return;
    *made = value;
    json_adopt(parent, made, (char *)name);
}

void made_text(struct schema_reader *r, struct json *parent, const char *name, const char *text) {
    add_value(r, parent, name, json_borrowed_text((char *)text));
}

void made_number(struct schema_reader *r, struct json *parent, const char *name, double n) {
    add_value(r, parent, name, json_made_number(n));
}

void made_bool(struct schema_reader *r, struct json *parent, const char *name, bool value) {
    add_value(r, parent, name, json_made_bool(value));
}

void made_copy(struct schema_reader *r, struct json *parent, const char *name,
               const struct json *original) {
    struct json *made = made_new(r, original, original->type);
    void **copied = made ? node_map_at(r->b, &r->copies, made) : NULL;
    if (!copied) return;
    *made = *original;
    *copied = (void *)schema_original(r, original);
    json_adopt(parent, made, (char *)name);
}

const struct json *schema_original(struct schema_reader *r, const struct json *node) {
    const struct json *original = node_map_find(&r->copies, node);
    return original ? original : node;
}

const struct json *schema_place(const struct schema_reader *r, const struct json *node) {
    const struct json *place = node_map_find(&r->origins, node);
    return place ? place : node;
}

bool schema_is_made(const struct schema_reader *r, const struct json *schema) {
    return node_map_find(&r->origins, schema) != NULL;
}

/* ---- keywords that are rewritten ------------------------------------------------------------ */

/* if: matched with then, or not matched with else. */
static void add_condition(struct schema_reader *r, struct json *all, const struct json *schema) {
    static const char *const keywords[] = {"then", "else"};
    const struct json *if_ = schema_value(schema, "if");
    if (!schema_value(schema, "then") && !schema_value(schema, "else")) return;
    struct json *made = made_in(r, all, NULL, JSON_OBJECT);
    struct json *ways = made ? made_in(r, made, "anyOf", JSON_ARRAY) : NULL;
    for (int i = 0; i < 2 && ways; i++) {
        const struct json *result = schema_value(schema, keywords[i]);
        struct json *way = made_in(r, ways, NULL, JSON_OBJECT);
        struct json *parts = way ? made_in(r, way, "allOf", JSON_ARRAY) : NULL;
        if (!parts) return;
        if (i == 0) made_copy(r, parts, NULL, if_);
        if (i == 1) made_copy(r, way, "not", if_);
        if (result) made_copy(r, parts, NULL, result);
    }
}

/* A property is absent, or the object also matches its dependent. */
static void add_dependent(struct schema_reader *r, struct json *all, const struct json *dependent) {
    struct json *made = made_in(r, all, NULL, JSON_OBJECT);
    struct json *ways = made ? made_in(r, made, "anyOf", JSON_ARRAY) : NULL;
    struct json *absent = ways ? made_in(r, ways, NULL, JSON_OBJECT) : NULL;
    struct json *none = absent ? made_in(r, absent, "properties", JSON_OBJECT) : NULL;
    struct json *present = none ? made_in(r, ways, NULL, JSON_OBJECT) : NULL;
    struct json *required = present ? made_in(r, present, "required", JSON_ARRAY) : NULL;
    if (!required) return;
    made_bool(r, none, dependent->name, false);
    made_text(r, present, "type", "object");
    made_text(r, required, NULL, dependent->name);
    if (json_is(dependent, JSON_ARRAY)) {
        json_each(name, dependent) made_copy(r, required, NULL, name);
        return;
    }
    struct json *parts = made_in(r, present, "allOf", JSON_ARRAY);
    if (parts) made_copy(r, parts, NULL, dependent);
}

const struct json *schema_rewritten(struct schema_reader *r, const struct json *schema) {
    static const char *const dependents[] = {"dependentRequired", "dependentSchemas",
                                             "dependencies"};
    void **known = node_map_at(r->b, &r->rewrites, schema);
    if (!known || *known) return known ? *known : NULL;
    struct json *made = made_new(r, schema, JSON_OBJECT);
    struct json *all = made ? made_in(r, made, "allOf", JSON_ARRAY) : NULL;
    if (!all) return NULL;
    known = node_map_at(r->b, &r->rewrites, schema);
    if (!known) return NULL;
    assert(!*known);
    *known = made;
    if (schema_value(schema, "if")) add_condition(r, all, schema);
    for (int i = 0; i < 3; i++) {
        json_each_member(dependent, schema_value(schema, dependents[i])) {
            bool is_none = json_is(dependent, JSON_ARRAY) && json_count(dependent) == 0;
            if (builder_works(r->b, 200) && !is_none) add_dependent(r, all, dependent);
        }
    }
    return made;
}

const struct json *made_requiring(struct schema_reader *r, const struct json *origin,
                                  const char *name) {
    struct json *made = made_new(r, origin, JSON_OBJECT);
    struct json *required = made ? made_in(r, made, "required", JSON_ARRAY) : NULL;
    if (required) made_text(r, made, "type", "object");
    if (required) made_text(r, required, NULL, name);
    return required ? made : NULL;
}
