/* Objects of JSON Schema: the named properties in the schemas' order, each once, then the others.
 *
 * Where a first property may be left out, the rule "tail i" is what may follow once something
 * stands before property i; each tail calls the next one last, which costs no depth. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/schema.h"

#define MAX_PATTERNS 4 /* of other properties: each of their combinations is a kind of key */

struct property {
    const char *name;
    bool is_required;
};

struct object {
    struct schema_reader *r;
    const struct conj *conj;
    struct property *properties;
    int n, max;
    const struct json *patterns[MAX_PATTERNS]; /* members of patternProperties */
    int n_patterns;
    bool has_others;
};

/* ---- what schemas say of a property --------------------------------------------------------- */

/* Adds what one schema says of the property: its additionalProperties do if nothing else does. */
static void add_property(struct schema_reader *r, struct conj *out, const struct json *schema,
                         const char *name) {
    const struct json *own = json_member(json_member(schema, "properties"), name);
    const struct json *others = json_member(schema, "additionalProperties");
    bool is_named = own != NULL;
    r->path.n = 0;
    if (own) conj_add(r, out, own);
    json_each(pattern, json_member(schema, "patternProperties")) {
        bool matches = false;
        if (pattern_found(r->b, pattern->name, name, &matches))
            schema_fail(r, pattern, "has a pattern that is not served.");
        r->path.n = 0;
        if (matches) conj_add(r, out, pattern);
        is_named = is_named || matches;
    }
    r->path.n = 0;
    if (!is_named && others) conj_add(r, out, others);
}

struct conj schema_property(struct schema_reader *r, const struct conj *conj, const char *name) {
    struct conj out = {0};
    conj_each(schema, conj) add_property(r, &out, schema, name);
    return out;
}

/* ---- gathering ------------------------------------------------------------------------------ */

static void add_name(struct object *o, const char *name, bool is_required) {
    for (int i = 0; i < o->n; i++) {
        if (strcmp(o->properties[i].name, name) != 0) continue;
        o->properties[i].is_required |= is_required;
        return;
    }
    if (o->n == o->max) {
        int max = o->max ? 2 * o->max : 16;
        struct property *properties = builder_alloc(o->r->b, (size_t)max * sizeof *properties);
        if (!properties) return;
        if (o->n) memcpy(properties, o->properties, (size_t)o->n * sizeof *properties);
        o->properties = properties;
        o->max = max;
    }
    o->properties[o->n++] = (struct property){name, is_required};
}

static void gather(struct object *o) {
    conj_each_value(properties, o->conj, "properties") {
        json_each(property, properties) add_name(o, property->name, false);
    }
    conj_each_value(required, o->conj, "required") {
        json_each(name, required) {
            if (strlen(name->string) < name->length)
                schema_fail(o->r, name, "is a name with \\u0000, which is not served.");
            add_name(o, name->string, true);
        }
    }
    conj_each_value(patterns, o->conj, "patternProperties") {
        json_each(pattern, patterns) {
            if (o->n_patterns < MAX_PATTERNS)
                o->patterns[o->n_patterns++] = pattern;
            else
                schema_fail(o->r, pattern, "is one of more than %d patterns.", MAX_PATTERNS);
        }
    }
}

/* ---- members -------------------------------------------------------------------------------- */

static struct expr *member(struct object *o, struct expr *key, const struct conj *value) {
    struct builder *b = o->r->b;
    return expr_of(b, EXPR_CAT, key, json_call(b, JSON_RULE_SPACE), expr_text(b, ":"),
                   json_call(b, JSON_RULE_SPACE), conj_call(o->r, value),
                   json_call(b, JSON_RULE_SPACE), NULL);
}

static struct expr *named_member(struct object *o, int i) {
    const char *name = o->properties[i].name;
    struct conj value = schema_property(o->r, o->conj, name);
    return member(o, json_quoted(o->r->b, name, strlen(name)), &value);
}

static struct expr *after_comma(struct builder *b, struct expr *member) {
    return expr_of(b, EXPR_CAT, expr_text(b, ","), json_call(b, JSON_RULE_SPACE), member, NULL);
}

/* Keys that no property has, that match the patterns of `chosen` and not the other ones. Printable
 * ASCII is spelled as itself in them, so that no escape makes one of the names. */
static struct expr *other_key(struct object *o, unsigned chosen) {
    struct builder *b = o->r->b;
    struct expr *all = expr_new(b, EXPR_AND), *names = expr_new(b, EXPR_ALT);
    if (all->kind == EXPR_FAILED) return all;
    expr_add(all, pattern_own(b, "(?:[^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\bfnrt])*"));
    for (int i = 0; i < o->n; i++) {
        struct expr *name = expr_bytes(b, o->properties[i].name, strlen(o->properties[i].name));
        expr_add(names, json_spelled(b, name));
    }
    if (o->n) expr_add(all, expr_of(b, EXPR_NOT, names, NULL));
    for (int i = 0; i < o->n_patterns && b->status == STATUS_OK; i++) {
        const char *text = o->patterns[i]->name;
        struct expr *pattern =
            pattern_read(b, "A pattern of patternProperties", text, strlen(text), REGEX_SEARCH);
        pattern = json_spelled(b, pattern);
        expr_add(all, chosen >> i & 1 ? pattern : expr_of(b, EXPR_NOT, pattern, NULL));
    }
    struct expr *inside = all->child && all->child->next ? all : all->child;
    if (b->status != STATUS_OK) return &b->spare;
    return expr_of(b, EXPR_CAT, expr_text(b, "\""), inside, expr_text(b, "\""), NULL);
}

/* What the schemas say of the value of such a key. */
static struct conj other_value(struct object *o, unsigned chosen) {
    struct conj out = {0};
    conj_each(schema, o->conj) {
        const struct json *patterns = json_member(schema, "patternProperties");
        const struct json *others = json_member(schema, "additionalProperties");
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

/* The rule of a member that no property names; made once an object. */
static int other_rule(struct object *o) {
    struct builder *b = o->r->b;
    struct expr *all = expr_new(b, EXPR_ALT);
    for (unsigned chosen = 0; chosen < 1u << o->n_patterns && b->status == STATUS_OK; chosen++) {
        struct conj value = other_value(o, chosen);
        if (value.is_false) continue;
        o->has_others = true;
        expr_add(all, member(o, other_key(o, chosen), &value));
    }
    int rule = rule_new(b, NULL);
    rule_define(b, rule, all);
    return rule;
}

/* ---- the order of members ------------------------------------------------------------------- */

/* What may follow once something stands before property `at`: in one sequence. */
static struct expr *rest(struct object *o, int at, int others) {
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
    return all;
}

/* All members: any of those up to the first required one may be the first. */
static struct expr *members(struct object *o, int others) {
    struct builder *b = o->r->b;
    int first = 0;
    while (first < o->n && !o->properties[first].is_required) first++;
    bool may_be_empty = first == o->n;
    int n_tails = may_be_empty ? o->n : first + 1, tails = b->n_rules;
    for (int i = 0; i < n_tails; i++) rule_new(b, NULL);
    struct expr *all = expr_new(b, EXPR_ALT);
    for (int i = 0; i < n_tails && builder_in_time(b); i++) { /* tail i stands behind property i */
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
        struct expr *more = after_comma(b, expr_call(b, others));
        expr_add(all,
                 expr_of(b, EXPR_CAT, expr_call(b, others), expr_repeat(b, more, 0, NO_MAX), NULL));
    }
    return expr_repeat(b, all, may_be_empty ? 0 : 1, 1);
}

/* Fails where the number of properties would have to be counted. */
static void check_counts(struct object *o) {
    int required = 0;
    for (int i = 0; i < o->n; i++) required += o->properties[i].is_required;
    conj_each_value(min, o->conj, "minProperties") {
        if (min->number > required)
            schema_fail(o->r, min, "is not enforced beyond the required properties.");
    }
    conj_each_value(max, o->conj, "maxProperties") {
        if (o->has_others || max->number < o->n)
            schema_fail(o->r, max, "is not enforced where more properties are possible.");
    }
}

struct expr *schema_object(struct schema_reader *r, const struct conj *conj) {
    struct builder *b = r->b;
    struct object o = {.r = r, .conj = conj};
    gather(&o);
    bool says_others = false;
    conj_each(schema, conj) says_others |= json_member(schema, "additionalProperties") != NULL;
    if (b->status != STATUS_OK) return &b->spare;
    bool says_counts =
        conj_largest(conj, "minProperties", 0) > 0 || conj_smallest(conj, "maxProperties", -1) >= 0;
    if (o.n == 0 && o.n_patterns == 0 && !says_others && !says_counts)
        return json_call(b, JSON_RULE_OBJECT);
    int others = other_rule(&o);
    check_counts(&o);
    return expr_of(b, EXPR_CAT, expr_text(b, "{"), json_call(b, JSON_RULE_SPACE),
                   members(&o, others), expr_text(b, "}"), NULL);
}
