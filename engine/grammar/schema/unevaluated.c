/* unevaluatedProperties and unevaluatedItems apply to the members that no other keyword of the
 * schema evaluates, nor the schemas that apply to the same value and match it (2020-12 core, 11).
 * Which branches of an anyOf, a oneOf, an if or dependents match differs, so there are several
 * ways:
 *
 *   {"anyOf": [A, B], "unevaluatedProperties": S}
 *      A matches     S for the names that A does not list
 *      B matches     S for the names that B does not list
 *      both match    S for the names that neither lists
 *
 * If further branches match, more members are evaluated and S applies to fewer. So a value that
 * passes in one way passes, and only a failed `if` must be excluded. */
#include <assert.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

enum { MAX_WAYS = 64, MAX_APPLIED_DEPTH = 60 };

enum fact_kind {
    FACT_NEEDS,    /* the schema matches */
    FACT_REFUTES,  /* the schema does not match */
    FACT_PRESENT,  /* the object has the property of this node's name */
    FACT_NAMES,    /* evaluated: the names of a `properties` */
    FACT_PATTERNS, /* evaluated: names that match a key of a `patternProperties` */
    FACT_CONTAINS, /* evaluated: items that match the schema */
};

struct way_fact {
    enum fact_kind kind;
    const struct json *node;
    const struct way_fact *before;
};

/* One way in which schemas match, and what they evaluate in it. */
struct way {
    const struct way_fact *last; /* NULL: none */
    int prefix;                  /* evaluated first items */
    bool is_all;                 /* every member is evaluated */
};

struct ways {
    int n;
    struct way list[MAX_WAYS];
};

struct evaluation {
    struct schema_reader *r;
    const struct json *keyword; /* the unevaluatedProperties or unevaluatedItems */
    bool is_items;
    int depth;
};

static void collect(struct evaluation *e, struct ways *ways, const struct json *schema);

static void cannot(struct evaluation *e) {
    schema_cannot(e->r, e->keyword,
                  "is enforced only if the anyOf, oneOf, if and dependentSchemas next to it can "
                  "match in at most %d ways.",
                  MAX_WAYS);
}

/* ---- sets of ways --------------------------------------------------------------------------- */

static const struct ways one_way = {.n = 1};

static void add_fact(struct evaluation *e, struct way *way, enum fact_kind kind,
                     const struct json *node) {
    struct way_fact *fact = builder_alloc(e->r->b, sizeof *fact);
    if (!fact) return;
    *fact = (struct way_fact){kind, node, way->last};
    way->last = fact;
}

static void add_to_all(struct evaluation *e, struct ways *ways, enum fact_kind kind,
                       const struct json *node) {
    for (int i = 0; i < ways->n; i++) add_fact(e, &ways->list[i], kind, node);
}

static void add_way(struct evaluation *e, struct ways *ways, const struct way *way) {
    if (ways->n == MAX_WAYS || !builder_works(e->r->b, 50)) {
        cannot(e);
        return;
    }
    ways->list[ways->n++] = *way;
}

/* Appends facts in their order. */
static void add_facts(struct evaluation *e, struct way *way, const struct way_fact *last) {
    if (!last) return;
    add_facts(e, way, last->before);
    add_fact(e, way, last->kind, last->node);
}

/* Returns the way in which the schemas of both match. */
static struct way both(struct evaluation *e, const struct way *x, const struct way *y) {
    struct way way = {x->last, max_int(x->prefix, y->prefix), x->is_all || y->is_all};
    add_facts(e, &way, y->last);
    return way;
}

/* Replaces each way by its combinations with those of `others`. */
static void multiply(struct evaluation *e, struct ways *ways, const struct ways *others) {
    struct ways product = {0};
    for (int i = 0; i < ways->n; i++) {
        for (int k = 0; k < others->n && e->r->b->status == STATUS_OK; k++) {
            struct way way = both(e, &ways->list[i], &others->list[k]);
            add_way(e, &product, &way);
        }
    }
    *ways = product;
}

/* Is no member evaluated in any of the ways? */
static bool is_silent(const struct ways *ways) {
    for (int i = 0; i < ways->n; i++) {
        if (ways->list[i].is_all || ways->list[i].prefix > 0) return false;
        for (const struct way_fact *fact = ways->list[i].last; fact; fact = fact->before)
            if (fact->kind >= FACT_NAMES) return false;
    }
    return true;
}

/* ---- choices -------------------------------------------------------------------------------- */

/* Returns the ways in which a branch matches. */
static struct ways ways_of(struct evaluation *e, enum fact_kind kind, const struct json *condition,
                           const struct json *schema) {
    struct ways ways = one_way;
    add_to_all(e, &ways, kind, condition);
    if (schema) collect(e, &ways, schema);
    return ways;
}

/* A branch that evaluates nothing does not count as a way. If there is one, or if no branch must
 * match, the first way is that none of the others does. */
static void choose(struct evaluation *e, struct ways *ways, const struct json *branches,
                   bool is_any) {
    struct ways all = one_way;
    bool may_be_silent = false;
    json_each(branch, branches) {
        struct ways own = ways_of(e, FACT_NEEDS, branch, branch);
        if (e->r->b->status != STATUS_OK) return;
        may_be_silent = may_be_silent || is_silent(&own);
        if (is_silent(&own)) continue;
        int n = is_any ? all.n : 1;
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < own.n; k++) {
                struct way way = both(e, &all.list[i], &own.list[k]);
                add_way(e, &all, &way);
            }
        }
    }
    if (!may_be_silent && all.n > 1) all.list[0] = all.list[--all.n];
    multiply(e, ways, &all);
}

/* A condition that matches, with its `then`; or one that fails, with its `else`. */
static void choose_condition(struct evaluation *e, struct ways *ways, const struct json *schema) {
    const struct json *if_ = schema_value(schema, "if"), *then = schema_value(schema, "then");
    struct ways yes = ways_of(e, FACT_NEEDS, if_, if_);
    if (then) collect(e, &yes, then);
    struct ways no = ways_of(e, FACT_REFUTES, if_, schema_value(schema, "else"));
    if (is_silent(&yes)) yes = one_way;
    if (is_silent(&no)) no = one_way;
    for (int i = 0; i < no.n; i++) add_way(e, &yes, &no.list[i]);
    multiply(e, ways, &yes);
}

static void choose_dependent(struct evaluation *e, struct ways *ways,
                             const struct json *dependent) {
    struct ways all = one_way, own = ways_of(e, FACT_PRESENT, dependent, dependent);
    if (is_silent(&own)) return;
    for (int i = 0; i < own.n; i++) add_way(e, &all, &own.list[i]);
    multiply(e, ways, &all);
}

/* ---- what a schema evaluates ---------------------------------------------------------------- */

/* Does the schema itself evaluate every member? */
static bool evaluates_all(const struct evaluation *e, const struct json *schema) {
    const struct json *own = schema_value(schema, e->keyword->name);
    const struct json *items = schema_value(schema, "items");
    if (own && own != e->keyword) return true;
    if (!e->is_items) return schema_value(schema, "additionalProperties");
    if (!json_is(items, JSON_ARRAY)) return items;
    return schema_value(schema, "additionalItems");
}

/* Adds what the schema's own keywords evaluate. */
static void collect_own(struct evaluation *e, struct ways *ways, const struct json *schema) {
    const struct json *properties = schema_value(schema, "properties");
    const struct json *patterns = schema_value(schema, "patternProperties");
    const struct json *prefix = schema_value(schema, "prefixItems");
    const struct json *items = schema_value(schema, "items");
    const struct json *contains = schema_value(schema, "contains");
    bool is_all = evaluates_all(e, schema);
    if (!prefix && json_is(items, JSON_ARRAY)) prefix = items;
    for (int i = 0; i < ways->n && is_all; i++) ways->list[i].is_all = true;
    if (!e->is_items && properties) add_to_all(e, ways, FACT_NAMES, properties);
    if (!e->is_items && patterns) add_to_all(e, ways, FACT_PATTERNS, patterns);
    if (!e->is_items) return;
    for (int i = 0; i < ways->n; i++)
        ways->list[i].prefix = max_int(ways->list[i].prefix, json_count(prefix));
    if (contains) add_to_all(e, ways, FACT_CONTAINS, contains);
}

static void collect_applied(struct evaluation *e, struct ways *ways, const struct json *schema) {
    static const char *const dependents[] = {"dependentSchemas", "dependencies"};
    const struct json *ref = schema_value(schema, "$ref");
    const struct json *target = ref ? schema_target(e->r, ref) : NULL;
    const struct json *any = schema_value(schema, "anyOf"), *one = schema_value(schema, "oneOf");
    if (target) collect(e, ways, target);
    json_each(part, schema_value(schema, "allOf")) collect(e, ways, part);
    if (any) choose(e, ways, any, true);
    if (one) choose(e, ways, one, false);
    if (schema_value(schema, "if")) choose_condition(e, ways, schema);
    for (int i = 0; i < 2; i++) {
        json_each_member(dependent,
                         schema_value(schema, dependents[i])) if (!json_is(dependent, JSON_ARRAY))
            choose_dependent(e, ways, dependent);
    }
}

/* Adds to each way what the schema evaluates if it matches. */
static void collect(struct evaluation *e, struct ways *ways, const struct json *schema) {
    schema = schema_original(e->r, schema);
    if (json_is(schema, JSON_BOOL) || !builder_works(e->r->b, 200)) return;
    if (e->depth == MAX_APPLIED_DEPTH) {
        schema_cannot(e->r, e->keyword, "is enforced only through %d schemas at most.",
                      MAX_APPLIED_DEPTH);
        return;
    }
    e->depth++;
    collect_own(e, ways, schema);
    collect_applied(e, ways, schema);
    e->depth--;
    assert(ways->n > 0 || e->r->b->status != STATUS_OK);
}

/* ---- the schema that is made ---------------------------------------------------------------- */

/* Iterates over the facts of a kind, the last one first. */
#define facts_each(fact, way, which)                                                               \
    for (const struct way_fact *fact = (way)->last; fact; fact = fact->before)                     \
        if (fact->kind == (which))

static void make_conditions(struct evaluation *e, struct json *made, const struct way *way) {
    struct json *all = made_in(e->r, made, "allOf", JSON_ARRAY);
    struct json *required = made_in(e->r, made, "required", JSON_ARRAY);
    if (!all || !required) return;
    facts_each(fact, way, FACT_NEEDS) made_copy(e->r, all, NULL, fact->node);
    facts_each(fact, way, FACT_PRESENT) made_text(e->r, required, NULL, fact->node->name);
    facts_each(fact, way, FACT_REFUTES) {
        struct json *no = made_in(e->r, all, NULL, JSON_OBJECT);
        if (no) made_copy(e->r, no, "not", fact->node);
    }
}

/* Adds the names of a map's members, with schemas that match every value. */
static void make_true(struct evaluation *e, struct json *made, const char *keyword,
                      const struct way *way, enum fact_kind kind) {
    struct json *values = made_in(e->r, made, keyword, JSON_OBJECT);
    facts_each(fact, way, kind) {
        json_each_member(member, values ? fact->node : NULL) if (builder_works(e->r->b, 50))
            made_bool(e->r, values, member->name, true);
    }
}

static void make_items(struct evaluation *e, struct json *made, const struct way *way) {
    struct json *prefix = way->prefix ? made_in(e->r, made, "prefixItems", JSON_ARRAY) : NULL;
    for (int i = 0; i < way->prefix && prefix; i++) made_bool(e->r, prefix, NULL, true);
    struct json *items = made_in(e->r, made, "items", JSON_OBJECT);
    struct json *any = items ? made_in(e->r, items, "anyOf", JSON_ARRAY) : NULL;
    if (!any) return;
    made_copy(e->r, any, NULL, e->keyword);
    facts_each(fact, way, FACT_CONTAINS) made_copy(e->r, any, NULL, fact->node);
}

static void make_way(struct evaluation *e, struct json *ways, const struct way *way) {
    struct json *made = made_in(e->r, ways, NULL, JSON_OBJECT);
    if (!made) return;
    make_conditions(e, made, way);
    if (way->is_all) return;
    if (e->is_items) {
        make_items(e, made, way);
        return;
    }
    make_true(e, made, "properties", way, FACT_NAMES);
    make_true(e, made, "patternProperties", way, FACT_PATTERNS);
    made_copy(e->r, made, "additionalProperties", e->keyword);
}

const struct json *schema_unevaluated(struct schema_reader *r, const struct json *schema,
                                      const struct json *keyword) {
    struct evaluation e = {.r = r, .keyword = keyword};
    struct ways ways = one_way;
    void **known = node_map_at(r->b, &r->unevaluated, keyword);
    if (!known || *known) return known ? *known : NULL;
    e.is_items = strcmp(keyword->name, "unevaluatedItems") == 0;
    collect(&e, &ways, schema);
    struct json *made = made_new(r, keyword, JSON_OBJECT);
    struct json *any = made ? made_in(r, made, "anyOf", JSON_ARRAY) : NULL;
    for (int i = 0; i < ways.n && any; i++) make_way(&e, any, &ways.list[i]);
    known = any ? node_map_at(r->b, &r->unevaluated, keyword) : NULL;
    if (!known || r->b->status != STATUS_OK) return NULL;
    *known = made;
    return made;
}
