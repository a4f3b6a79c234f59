/* Objects of JSON Schema: the named properties in the schemas' order, each at most once, then the
 * others.
 *
 * If leading properties are optional, rule "tail i" is the text that may follow property i. Each
 * tail ends with a call of the next one. Tail calls do not nest. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

#define MAX_PATTERNS 32
/* Each combination of patterns that match a key is a separate kind of key. For few patterns all
 * combinations are tried. */
#define FEW_PATTERNS 4
#define MAX_KINDS 64

struct property {
    const char *name;
    int order; /* position in the schemas */
    int rule;  /* of its member in a large object; -1: none yet */
    bool is_required;
};

struct object {
    struct schema_reader *r;
    const struct conj *conj;
    struct property *properties;
    int n, max;
    const struct json *patterns[MAX_PATTERNS]; /* members of patternProperties */
    int n_patterns;
    struct conj names; /* propertyNames; names that it lists become properties */
    bool has_others;
    bool is_closed;                  /* only properties that a schema names */
    bool is_loose;                   /* a pattern is ignored: other keys may have any value */
    bool is_impossible;              /* a required property may not exist */
    struct pointers lasts;           /* schemas that the last members break */
    int last_members[1 << MAX_LAST]; /* rules of a member that breaks the schemas of a set */
    int last_rule;                   /* of `lasts`; 0: that is empty */
};

/* ---- the schemas of a property -------------------------------------------------------------- */

/* Adds the constraints of one schema on a property. additionalProperties applies only if no other
 * keyword does. */
static void add_property(struct schema_reader *r, struct conj *out, const struct json *schema,
                         const char *name) {
    const struct json *own = schema_member(r, schema_value(schema, "properties"), name);
    const struct json *others = schema_others(schema);
    bool is_named = own != NULL;
    r->path.n = 0;
    if (own) conj_add(r, out, own);
    json_each(pattern, schema_value(schema, "patternProperties")) {
        bool matches = schema_pattern_matches(r, pattern, name);
        r->path.n = 0;
        if (matches) conj_add(r, out, pattern);
        is_named = is_named || matches;
    }
    r->path.n = 0;
    if (!is_named && others) conj_add(r, out, others);
}

struct conj schema_property(struct schema_reader *r, const struct conj *conj, const char *name) {
    struct conj out = {0};
    conj_each(schema, conj) if (builder_works(r->b, 50)) add_property(r, &out, schema, name);
    return out;
}

/* ---- gathering ------------------------------------------------------------------------------ */

static void add_name(struct object *o, const char *name, bool is_required) {
    if (!builder_works(o->r->b, 10)) return;
    if (o->n == o->max) {
        int max = o->max ? 2 * o->max : 16;
        struct property *properties = builder_alloc(o->r->b, (size_t)max * sizeof *properties);
        if (!properties) return;
        if (o->n) memcpy(properties, o->properties, (size_t)o->n * sizeof *properties);
        o->properties = properties;
        o->max = max;
    }
    o->properties[o->n] = (struct property){name, o->n, -1, is_required};
    o->n++;
}

static int by_name(const void *a, const void *b) {
    const struct property *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->order - y->order;
}

static int by_order(const void *a, const void *b) {
    const struct property *x = a, *y = b;
    return x->order - y->order;
}

/* Merges properties of the same name at the position of the first one. */
static void unite_names(struct object *o) {
    int n = 0;
    if (o->n == 0 || o->r->b->status != STATUS_OK) return;
    qsort(o->properties, (size_t)o->n, sizeof *o->properties, by_name);
    for (int i = 0; i < o->n; i++) {
        const struct property property = o->properties[i];
        if (n > 0 && strcmp(o->properties[n - 1].name, property.name) == 0)
            o->properties[n - 1].is_required |= property.is_required;
        else
            o->properties[n++] = property;
    }
    o->n = n;
    qsort(o->properties, (size_t)n, sizeof *o->properties, by_order);
    builder_works(o->r->b, (size_t)n * 20);
}

/* Reads propertyNames. Each name that it lists becomes a property, so it cannot be repeated. As a
 * hint it is ignored next to properties. */
static void gather_names(struct object *o) {
    if (o->n > 0 && o->r->mode == SCHEMA_HINT) return;
    o->names = names_together(o->r, o->conj);
    struct pointers listed = names_listed(o->r, &o->names);
    pointers_each(name, &listed) add_name(o, json_text(name), false);
}

/* Removes the properties whose names propertyNames forbids. */
static void remove_names(struct object *o) {
    int n = 0;
    for (int i = 0; i < o->n && builder_works(o->r->b, 50); i++) {
        struct json name = json_borrowed_text((char *)o->properties[i].name);
        if (conj_holds(o->r, &o->names, &name))
            o->properties[n++] = o->properties[i];
        else
            o->is_impossible |= o->properties[i].is_required;
    }
    o->n = n;
}

static void add_pattern(struct object *o, const struct json *pattern) {
    bool is_served = schema_pattern_works(o->r, pattern->name, strlen(pattern->name));
    if (o->n_patterns == MAX_PATTERNS)
        schema_cannot(o->r, pattern, "is one of more than %d patterns.", MAX_PATTERNS);
    if (is_served && o->n_patterns < MAX_PATTERNS)
        o->patterns[o->n_patterns++] = pattern;
    else
        o->is_loose = true;
}

static void gather(struct object *o) {
    o->lasts = last_breakers(o->r, o->conj);
    conj_each_value(properties, o->conj, "properties") {
        json_each_member(property, properties) add_name(o, property->name, false);
    }
    conj_each_value(required, o->conj, "required") {
        json_each(name, required) {
            if (o->r->b->status != STATUS_OK) return;
            if (strlen(json_text(name)) < json_length(name))
                schema_fail(o->r, name, "is a name with \\u0000, which is not served.");
            add_name(o, json_text(name), true);
        }
    }
    gather_names(o);
    unite_names(o);
    remove_names(o);
    conj_each_value(patterns, o->conj, "patternProperties") {
        json_each(pattern, patterns) add_pattern(o, pattern);
    }
}

/* Objects with `properties` and without `additionalProperties` have no other properties: models
 * would write more of them until their token limit. A larger minProperties needs others. */
static bool closes(const struct object *o) {
    bool lists = false, says_others = o->is_loose || o->r->b->limits.open_objects;
    conj_each(schema, o->conj) {
        if (schema_is_made(o->r, schema)) continue;
        lists = lists || schema_value(schema, "properties");
        const struct json *rest = schema_value(schema, "unevaluatedProperties");
        bool allows = rest && (!json_is(rest, JSON_BOOL) || json_true(rest));
        says_others = says_others || allows || schema_others(schema);
    }
    return lists && !says_others && conj_largest(o->conj, "minProperties", 0) <= o->n;
}

/* ---- members -------------------------------------------------------------------------------- */

static struct expr *member(struct object *o, struct expr *key, const struct conj *value) {
    struct builder *b = o->r->b;
    return expr_of(b, EXPR_CAT, key, expr_text(b, ":"), json_call(b, JSON_RULE_SPACE),
                   conj_call(o->r, value), json_call(b, JSON_RULE_SPACE), NULL);
}

/* A member may be written as the first one or after another one. In a large object both call one
 * rule, which takes fewer nodes. */
#define LARGE_OBJECT 200

static struct expr *named_member(struct object *o, int i) {
    struct builder *b = o->r->b;
    struct property *property = &o->properties[i];
    if (property->rule >= 0) return expr_call(b, property->rule);
    struct conj value = schema_property(o->r, o->conj, property->name);
    struct expr *key = json_key(b, property->name, strlen(property->name));
    struct expr *own = member(o, key, &value);
    if (o->n <= LARGE_OBJECT) return own;
    property->rule = rule_new(b, NULL);
    rule_define(b, property->rule, own);
    return expr_call(b, property->rule);
}

static struct expr *after_comma(struct builder *b, struct expr *member) {
    return expr_of(b, EXPR_CAT, expr_text(b, ","), json_call(b, JSON_RULE_SPACE), member, NULL);
}

/* Characters of a key in a unique spelling: printable ASCII is never escaped. With patterns, which
 * match unescaped characters, all characters that can be are unescaped. */
#define PLAIN_KEY "[^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\bfnrt]"
#define HEX "[0-9a-fA-F]"
#define OTHER_KEY                                                                                  \
    PLAIN_KEY "|\\\\u(?:00[0189a-fA-F]" HEX "|0[1-9a-fA-F]" HEX "{2}|[1-9a-cA-CefEF]" HEX          \
              "{3}|[dD][0-7]" HEX "{2}|[dD][89abAB]" HEX "{2}\\\\u[dD][c-fC-F]" HEX "{2})"

static struct expr *read_key_pattern(struct object *o, int i) {
    const char *text = o->patterns[i]->name;
    return pattern_read(o->r->b, "A pattern of patternProperties", text, strlen(text),
                        REGEX_SEARCH);
}

/* Keys that are not properties, that match the patterns of the bit set `chosen` and no other
 * pattern. Printable ASCII is unescaped in them, so an escape cannot spell a property's name. */
static struct expr *other_key(struct object *o, unsigned chosen, const struct conj *names) {
    struct builder *b = o->r->b;
    struct expr *all = expr_new(b, EXPR_AND), *own = expr_new(b, EXPR_ALT);
    if (all->kind == EXPR_FAILED) return all;
    if (b->text_mark) expr_add(all, pattern_own(b, GEMMA_KEY));
    expr_add(all, pattern_own(b, o->n_patterns ? "(?:" PLAIN_KEY ")*" : "(?:" OTHER_KEY ")*"));
    struct expr *named = conj_names(o->r, names);
    if (named) expr_add(all, named);
    for (int i = 0; i < o->n; i++) {
        struct expr *name = expr_bytes(b, o->properties[i].name, strlen(o->properties[i].name));
        expr_add(own, json_spelled(b, name));
        if (!builder_works(b, 50)) return &b->spare;
    }
    if (o->n) expr_add(all, expr_of(b, EXPR_NOT, own, NULL));
    for (int i = 0; i < o->n_patterns && b->status == STATUS_OK; i++) {
        struct expr *pattern = json_spelled(b, read_key_pattern(o, i));
        expr_add(all, chosen >> i & 1 ? pattern : expr_of(b, EXPR_NOT, pattern, NULL));
    }
    struct expr *inside = all->child && all->child->next ? all : all->child;
    if (b->status != STATUS_OK) return &b->spare;
    if (b->text_mark) return inside;
    return expr_of(b, EXPR_CAT, expr_text(b, "\""), inside, expr_text(b, "\""), NULL);
}

/* The conjunction of the schemas for the value of such a key. */
static struct conj other_value(struct object *o, unsigned chosen) {
    struct conj out = {0};
    if (o->is_loose && chosen == 0) return out;
    conj_each(schema, o->conj) {
        const struct json *patterns = schema_value(schema, "patternProperties");
        const struct json *others = schema_others(schema);
        bool is_named = false;
        for (int i = 0; i < o->n_patterns; i++) {
            bool is_own = false;
            json_each(pattern, patterns) is_own = is_own || pattern == o->patterns[i];
            if (!is_own || !(chosen >> i & 1)) continue;
            is_named = true;
            o->r->path.n = 0;
            conj_add(o->r, &out, o->patterns[i]);
        }
        o->r->path.n = 0;
        if (!is_named && others) conj_add(o->r, &out, others);
    }
    return out;
}

/* Writes the sets of patterns that a key may match together, and returns their number. */
static int key_kinds(struct object *o, unsigned kinds[MAX_KINDS]) {
    struct builder *b = o->r->b;
    struct expr *patterns[MAX_PATTERNS];
    int n = MAX_KINDS + 1;
    for (int i = 0; i < o->n_patterns && o->n_patterns > FEW_PATTERNS; i++)
        patterns[i] = read_key_pattern(o, i);
    if (o->n_patterns > FEW_PATTERNS && b->status == STATUS_OK)
        n = builder_kinds(b, patterns, o->n_patterns, kinds, MAX_KINDS);
    if (n <= MAX_KINDS || b->status != STATUS_OK) return min_int(n, MAX_KINDS);
    if (o->n_patterns > FEW_PATTERNS) {
        schema_cannot(o->r, o->patterns[FEW_PATTERNS],
                      "is one of patterns that overlap in more than %d ways.", MAX_KINDS);
        o->is_loose = true;
        o->n_patterns = FEW_PATTERNS;
    }
    for (unsigned chosen = 0; chosen < 1u << o->n_patterns; chosen++) kinds[chosen] = chosen;
    return 1 << o->n_patterns;
}

/* Creates the rule of a member without a named property, which is the breaker of each schema in the
 * bit set `broken`. */
static int other_rule(struct object *o, unsigned broken) {
    struct builder *b = o->r->b;
    struct expr *all = expr_new(b, EXPR_ALT);
    bool has_others = !schema_has_values(&o->names) && conj_types(&o->names) & TYPE_STRING;
    unsigned kinds[MAX_KINDS];
    int n = has_others ? key_kinds(o, kinds) : 0;
    for (int i = 0; i < n && b->status == STATUS_OK; i++) {
        struct conj value = other_value(o, kinds[i]), names = conj_copy(o->r, &o->names);
        struct key_kind kind = {o->patterns, o->n_patterns, kinds[i]};
        if (value.is_false || (kinds[i] == 0 && o->is_closed)) continue;
        if (!breakers_narrow(o->r, &o->lasts, broken, &kind, &value, &names)) continue;
        o->has_others = true;
        expr_add(all, member(o, other_key(o, kinds[i], &names), &value));
    }
    int rule = rule_new(b, NULL);
    rule_define(b, rule, all);
    return rule;
}

/* Creates the rule of the last members, the breakers of the schemas in o->lasts. A breaker by its
 * value is the last of all: its name may not be repeated. */
static int last_members(struct object *o) {
    struct builder *b = o->r->b;
    int *members = o->last_members, all = (1 << o->lasts.n) - 1;
    for (int set = 1; set <= all; set++) members[set] = other_rule(o, (unsigned)set);
    int first = b->n_rules;
    for (int set = 0; set <= all; set++) rule_new(b, NULL);
    for (int left = 1; left <= all && builder_in_time(b); left++) {
        struct expr *next = expr_of(b, EXPR_ALT, expr_call(b, members[left]), NULL);
        for (int set = 1; set < left; set++) {
            if ((set & left) != set || breakers_need_value(&o->lasts, (unsigned)set)) continue;
            struct expr *rest = after_comma(b, expr_call(b, first + (left ^ set)));
            expr_add(next, expr_of(b, EXPR_CAT, expr_call(b, members[set]), rest, NULL));
        }
        rule_define(b, first + left, next);
    }
    return first + all;
}

/* ---- the order of members ------------------------------------------------------------------- */

/* The members after property `at` - 1, if a member precedes them. */
static struct expr *rest(struct object *o, int at, int others) {
    assert(at >= 0 && at <= o->n);
    struct builder *b = o->r->b;
    struct expr *all = expr_new(b, EXPR_CAT);
    for (int i = at; i < o->n && builder_in_time(b); i++) {
        struct expr *next = after_comma(b, named_member(o, i));
        expr_add(all, o->properties[i].is_required ? next : expr_repeat(b, next, 0, 1));
    }
    if (o->has_others) {
        struct expr *other = after_comma(b, expr_call(b, others));
        expr_add(all, expr_repeat(b, other, 0, NO_MAX));
    }
    if (o->last_rule) expr_add(all, after_comma(b, expr_call(b, o->last_rule)));
    return all;
}

/* All members. Each property up to the first required one may be the first member. */
static struct expr *members(struct object *o, int others) {
    struct builder *b = o->r->b;
    int first = 0;
    while (first < o->n && !o->properties[first].is_required) first++;
    bool may_be_empty = first == o->n;
    int n_tails = may_be_empty ? o->n : first + 1, tails = b->n_rules;
    for (int i = 0; i < n_tails; i++) rule_new(b, NULL);
    struct expr *all = expr_new(b, EXPR_ALT);
    for (int i = 0; i < n_tails && builder_in_time(b); i++) { /* tail i follows property i */
        struct expr *tail = i + 1 == n_tails ? rest(o, i + 1, others) : expr_new(b, EXPR_CAT);
        if (i + 1 < n_tails) {
            struct expr *next = after_comma(b, named_member(o, i + 1));
            bool is_required = o->properties[i + 1].is_required;
            expr_add(tail, is_required ? next : expr_repeat(b, next, 0, 1));
            expr_add(tail, expr_call(b, tails + i + 1));
        }
        rule_define(b, tails + i, tail);
        expr_add(all, expr_of(b, EXPR_CAT, named_member(o, i), expr_call(b, tails + i), NULL));
    }
    if (may_be_empty && o->has_others) {
        struct expr *more = expr_repeat(b, after_comma(b, expr_call(b, others)), 0, NO_MAX);
        struct expr *some = expr_of(b, EXPR_CAT, expr_call(b, others), more, NULL);
        if (o->last_rule) expr_add(some, after_comma(b, expr_call(b, o->last_rule)));
        expr_add(all, some);
    }
    if (may_be_empty && o->last_rule) expr_add(all, expr_call(b, o->last_rule));
    return expr_repeat(b, all, may_be_empty && !o->last_rule ? 0 : 1, 1);
}

/* ---- the number of members ------------------------------------------------------------------- */

/* Returns the lower bound. Fails if it needs several other members: their names may be equal, which
 * makes them one member, so together they count as one. */
static int least_members(struct object *o, int min) {
    if (!o->has_others || min <= o->n + 1) return min;
    conj_each_value(least, o->conj, "minProperties") {
        if (json_number(least) > o->n + 1)
            schema_cannot(o->r, least,
                          "cannot be enforced if it asks for more than one property that no schema "
                          "names: such a name may appear twice. List them in 'properties'.");
    }
    return o->n + 1;
}

static struct expr *counted_members(struct object *o, int others, int min, int max) {
    struct builder *b = o->r->b;
    bool *is_required = builder_alloc(b, (size_t)o->n + 1);
    if (!is_required) return &b->spare;
    struct bounded_members bounded = {.n = o->n,
                                      .is_required = is_required,
                                      .others = o->has_others ? others : 0,
                                      .lasts = &o->lasts,
                                      .last_members = o->last_members,
                                      .min = min,
                                      .max = max,
                                      .own = b->n_rules};
    for (int i = 0; i < o->n; i++) {
        rule_new(b, NULL);
        is_required[i] = o->properties[i].is_required;
    }
    for (int i = 0; i < o->n && builder_in_time(b); i++) {
        rule_define(b, bounded.own + i, named_member(o, i));
    }
    return members_counted(b, &bounded);
}

/* The members. They are counted only if the schema does not already imply the bounds. */
static struct expr *bounded_members(struct object *o, int others) {
    int min = conj_largest(o->conj, "minProperties", 0), required = 0;
    int max = conj_smallest(o->conj, "maxProperties", NO_MAX);
    for (int i = 0; i < o->n; i++) required += o->properties[i].is_required;
    if (min <= required && (max == NO_MAX || (!o->has_others && max >= o->n)))
        return members(o, others);
    if (!o->has_others && (max == NO_MAX || max > o->n)) max = o->n;
    if (max != NO_MAX && max < min) return expr_new(o->r->b, EXPR_ALT);
    return counted_members(o, others, least_members(o, min), max);
}

struct expr *schema_object(struct schema_reader *r, const struct conj *conj) {
    struct builder *b = r->b;
    struct object o = {.r = r, .conj = conj};
    gather(&o);
    o.is_closed = closes(&o);
    bool says_others = o.lasts.n > 0;
    conj_each(schema, conj) says_others |=
        schema_others(schema) != NULL || schema_value(schema, "propertyNames") != NULL;
    if (b->status != STATUS_OK) return &b->spare;
    if (o.is_impossible) return expr_new(b, EXPR_ALT);
    bool says_counts =
        conj_largest(conj, "minProperties", 0) > 0 || conj_smallest(conj, "maxProperties", -1) >= 0;
    if (o.n == 0 && o.n_patterns == 0 && !says_others && !says_counts && !o.is_closed)
        return json_call(b, JSON_RULE_OBJECT);
    int others = other_rule(&o, 0);
    if (o.lasts.n > 0) o.last_rule = last_members(&o);
    return expr_of(b, EXPR_CAT, expr_text(b, "{"), json_call(b, JSON_RULE_SPACE),
                   bounded_members(&o, others), expr_text(b, "}"), NULL);
}

bool schema_is_closed(struct schema_reader *r, const struct conj *conj) {
    struct object o = {.r = r, .conj = conj};
    gather(&o);
    if (closes(&o) && o.n_patterns == 0) return true;
    struct conj value = other_value(&o, 0);
    return (value.is_false || schema_has_values(&o.names)) && o.n_patterns == 0;
}
