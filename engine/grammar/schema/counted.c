/* Arrays whose items are counted: contains, and uniqueItems over few values. A rule stands for what
 * is counted so far, and ends with a call of the next one. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

enum { MAX_CONTAINS = 3, MAX_COUNT_RULES = 4000, MAX_UNIQUE = 24 };

static struct expr *after_comma(struct builder *b, bool is_first, struct expr *item) {
    struct expr *all = expr_new(b, EXPR_CAT);
    if (!is_first) expr_add(all, expr_text(b, ","));
    if (!is_first) expr_add(all, json_call(b, JSON_RULE_SPACE));
    expr_add(all, item);
    return expr_add(all, json_call(b, JSON_RULE_SPACE));
}

/* ---- contains ------------------------------------------------------------------------------- */

/* One `contains`. Its count stops at `cap`. */
struct contained {
    const struct json *schema;
    int min, max, cap;
};

struct containing {
    struct schema_reader *r;
    const struct conj *conj;
    struct contained parts[MAX_CONTAINS];
    int n_parts;
    int min, max, cap; /* of items; `cap`: places from here on are alike */
    int first;         /* index of the rule of no items */
};

static int count_of(const struct json *schema, const char *keyword, int none) {
    const struct json *value = schema_value(schema, keyword);
    if (!value || json_number(value) >= MAX_EXACT) return none;
    return json_number(value) > 1e6 ? 1000000 : (int)json_number(value);
}

static void gather_contained(struct containing *c) {
    conj_each(schema, c->conj) {
        const struct json *contains = schema_value(schema, "contains");
        struct contained part = {contains, count_of(schema, "minContains", 1),
                                 count_of(schema, "maxContains", NO_MAX), 0};
        if (!contains || (part.min == 0 && part.max == NO_MAX)) continue;
        if (c->n_parts == MAX_CONTAINS) {
            schema_cannot(c->r, contains, "is one of more than %d contains of an array.",
                          MAX_CONTAINS);
            return;
        }
        part.cap = max_int(part.min, part.max == NO_MAX ? 0 : part.max);
        c->parts[c->n_parts++] = part;
    }
}

/* Returns the rule of `at` items, of which counts[i] match part i. */
static int rule_at(const struct containing *c, int at, const int *counts) {
    int index = at;
    for (int i = 0; i < c->n_parts; i++) index = index * (c->parts[i].cap + 1) + counts[i];
    return c->first + index;
}

/* The conjunction of item `at` that matches the parts of the bit set. The others are excluded only
 * where they are limited. */
static struct conj item_matching(struct containing *c, int at, unsigned set) {
    struct conj item = schema_item_conj(c->r, c->conj, at);
    for (int i = 0; i < c->n_parts; i++) {
        const struct json *schema = c->parts[i].schema;
        bool is_in = set >> i & 1, is_limited = c->parts[i].max != NO_MAX;
        if (!is_in && !is_limited) continue;
        if (!is_in) schema = schema_negation(c->r, schema);
        c->r->path.n = 0;
        if (schema) conj_add(c->r, &item, schema);
    }
    return item;
}

/* Another item that matches the parts of the bit set; NULL: there is none. */
static struct expr *next_item(struct containing *c, int at, const int *counts, unsigned set) {
    int next[MAX_CONTAINS];
    for (int i = 0; i < c->n_parts; i++) {
        const struct contained *part = &c->parts[i];
        bool is_in = set >> i & 1;
        if (is_in && counts[i] == part->max) return NULL;
        if (is_in && counts[i] == part->cap && part->max == NO_MAX) return NULL; /* no need */
        next[i] = counts[i] + is_in;
    }
    struct conj item = item_matching(c, at, set);
    if (conj_impossible(c->r, &item)) return NULL;
    struct builder *b = c->r->b;
    struct expr *rest = expr_call(b, rule_at(c, min_int(at + 1, c->cap), next));
    return expr_add(after_comma(b, at == 0, conj_call(c->r, &item)), rest);
}

static struct expr *containing_body(struct containing *c, int at, const int *counts) {
    struct expr *all = expr_new(c->r->b, EXPR_ALT);
    bool may_end = at >= c->min;
    for (int i = 0; i < c->n_parts; i++) may_end = may_end && counts[i] >= c->parts[i].min;
    if (may_end) expr_add(all, expr_new(c->r->b, EXPR_CAT));
    for (unsigned set = 0; set < 1u << c->n_parts && at != c->max; set++) {
        struct expr *next = builder_works(c->r->b, 500) ? next_item(c, at, counts, set) : NULL;
        if (next) expr_add(all, next);
    }
    return all;
}

/* Advances the counts as an odometer. False: they were the last ones. */
static bool next_counts(const struct containing *c, int *counts) {
    for (int i = 0; i < c->n_parts; i++) {
        if (counts[i]++ < c->parts[i].cap) return true;
        counts[i] = 0;
    }
    return false;
}

static struct expr *containing_items(struct containing *c, int prefix) {
    struct builder *b = c->r->b;
    int counts[MAX_CONTAINS] = {0};
    c->cap = max_int(max_int(prefix, c->min), c->max == NO_MAX ? 1 : c->max);
    double n = c->cap + 1.0;
    for (int i = 0; i < c->n_parts; i++) n *= c->parts[i].cap + 1.0;
    if (n > MAX_COUNT_RULES) {
        schema_cannot(c->r, c->parts[0].schema, "is not enforced with counts this large.");
        return NULL;
    }
    c->first = b->n_rules;
    for (int i = 0; i < (int)n; i++) rule_new(b, NULL);
    for (int at = 0; at <= c->cap; at++) {
        do {
            if (!builder_in_time(b)) return NULL;
            rule_define(b, rule_at(c, at, counts), containing_body(c, at, counts));
        } while (next_counts(c, counts));
    }
    return expr_call(b, rule_at(c, 0, counts));
}

/* ---- uniqueItems ---------------------------------------------------------------------------- */

/* The rules of arrays of different values: one for each set of values so far. */
struct unique {
    struct schema_reader *r;
    struct pointers values;
    int min, max;
    uint32_t *sets; /* [n] the values so far, as bits */
    int n, first;   /* rule of set 0; the others follow */
    int value_rules;
};

static int find_set(struct unique *u, uint32_t set) {
    for (int i = u->n - 1; i >= 0; i--) {
        if (u->sets[i] == set) return i;
    }
    assert(u->n < MAX_COUNT_RULES);
    u->sets[u->n] = set;
    return u->n++;
}

/* Finds the sets of at most `max` values, breadth first. False: there are too many. */
static bool find_sets(struct unique *u) {
    find_set(u, 0);
    for (int at = 0; at < u->n && builder_in_time(u->r->b); at++) {
        if (__builtin_popcount(u->sets[at]) == u->max) continue;
        for (int i = 0; i < u->values.n; i++) {
            uint32_t set = u->sets[at] | 1u << i;
            if (u->n == MAX_COUNT_RULES) return false;
            if (set != u->sets[at]) find_set(u, set);
        }
    }
    return u->r->b->status == STATUS_OK;
}

static struct expr *unique_body(struct unique *u, uint32_t set) {
    struct builder *b = u->r->b;
    struct expr *all = expr_new(b, EXPR_ALT);
    int n = __builtin_popcount(set);
    if (n >= u->min) expr_add(all, expr_new(b, EXPR_CAT));
    for (int i = 0; i < u->values.n && n != u->max; i++) {
        if (set >> i & 1) continue;
        struct expr *item = after_comma(b, set == 0, expr_call(b, u->value_rules + i));
        expr_add(all, expr_add(item, expr_call(b, u->first + find_set(u, set | 1u << i))));
    }
    return all;
}

static struct expr *unique_items(struct unique *u) {
    struct builder *b = u->r->b;
    u->value_rules = b->n_rules;
    for (int i = 0; i < u->values.n; i++) rule_new(b, NULL);
    for (int i = 0; i < u->values.n && builder_in_time(b); i++) {
        rule_define(b, u->value_rules + i, json_literal(b, u->values.list[i]));
    }
    u->first = b->n_rules;
    for (int i = 0; i < u->n; i++) rule_new(b, NULL);
    for (int i = 0; i < u->n && builder_in_time(b); i++) {
        rule_define(b, u->first + i, unique_body(u, u->sets[i]));
    }
    return expr_call(b, u->first);
}

/* Removes equal values. */
static void keep_different(struct schema_reader *r, struct pointers *values) {
    int n = 0;
    for (int i = 0; i < values->n && builder_works(r->b, 200); i++) {
        bool is_known = false;
        struct pointers pair[2] = {{&values->list[i], 1, 1}, {values->list, n, n}};
        if (n > 0) is_known = values_overlap(r, pair, 2);
        if (!is_known) values->list[n++] = values->list[i];
    }
    values->n = n;
}

/* Fails if the items of an array with uniqueItems are not few values. */
static struct expr *unique_array(struct schema_reader *r, const struct conj *conj, int prefix,
                                 int min, int max, const struct json *unique) {
    struct unique u = {.r = r, .min = min, .max = max};
    struct conj item = schema_item_conj(r, conj, 0);
    if (prefix == 0 && schema_has_values(&item)) {
        unsigned types = conj_types(&item);
        struct pointers matching = schema_matching(r, &item);
        pointers_each(value, &matching) {
            if (json_value_type(value) & types) pointers_add(r->b, &u.values, value);
        }
        keep_different(r, &u.values);
        u.sets = builder_alloc(r->b, MAX_COUNT_RULES * sizeof *u.sets);
        if (u.sets && u.values.n <= MAX_UNIQUE && find_sets(&u)) return unique_items(&u);
    }
    schema_cannot(r, unique,
                  "is enforced only for arrays whose items are few listed values, since a grammar "
                  "cannot compare other ones; leave it out, or check it afterwards.");
    return NULL;
}

struct expr *schema_counted_items(struct schema_reader *r, const struct conj *conj, int prefix,
                                  int min, int max) {
    struct containing c = {.r = r, .conj = conj, .min = min, .max = max};
    const struct json *unique = NULL;
    if (r->mode == SCHEMA_HINT) return NULL;
    gather_contained(&c);
    conj_each_value(own, conj, "uniqueItems") if (json_true(own)) unique = own;
    if (max == 0 || max == 1) unique = NULL;
    if (unique && c.n_parts > 0)
        schema_cannot(r, unique, "is not enforced together with contains.");
    if (unique) return unique_array(r, conj, prefix, min, max, unique);
    return c.n_parts > 0 ? containing_items(&c, prefix) : NULL;
}

/* ---- members of objects --------------------------------------------------------------------- */

/* Rules that count members. Rule [i][c] is the text from property i on (n: the other members) after
 * c members. Without an upper bound, c stops at the lower bound; the other members count as one.
 * Each rule ends with a call of the next one. Rules [set][c] are the last members, which break the
 * schemas of a set; they end the object. */
struct counting {
    struct builder *b;
    const struct bounded_members *of;
    int first; /* index of rule [0][0] */
    int last;  /* index of the last members' rule [0][0], which is unused */
    int cap;   /* maximum of c */
};

static bool may_add(const struct counting *k, int count) {
    return k->of->max == NO_MAX || count < k->of->max;
}

/* A call of rule [i][count + 1]. */
static struct expr *counted_rest(const struct counting *k, int first, int i, int count) {
    int next = max_int(0, min_int(count + 1, k->cap));
    return expr_call(k->b, first + i * (k->cap + 1) + next);
}

/* Another member, after a comma unless it is the first one. */
static struct expr *another(const struct counting *k, int rule, int count) {
    struct expr *member = expr_call(k->b, rule);
    if (count == 0) return member;
    return expr_of(k->b, EXPR_CAT, expr_text(k->b, ","), json_call(k->b, JSON_RULE_SPACE), member,
                   NULL);
}

static struct expr *counted_member(const struct counting *k, int rule, int i, int count) {
    return expr_of(k->b, EXPR_CAT, another(k, rule, count), counted_rest(k, k->first, i, count),
                   NULL);
}

/* After the last property: other members, then the last members. Together they count as one member
 * for the lower bound, since their names may be equal. */
static struct expr *counted_end(const struct counting *k, int count) {
    const struct bounded_members *of = k->of;
    struct expr *all = expr_new(k->b, EXPR_ALT);
    bool is_enough = count >= of->min - 1 && may_add(k, count);
    int n_sets = 1 << of->lasts->n;
    if (is_enough && of->others) expr_add(all, counted_member(k, of->others, of->n, count));
    if (is_enough && n_sets > 1) expr_add(all, counted_rest(k, k->last, n_sets - 1, count - 1));
    if (n_sets == 1 && count >= of->min) expr_add(all, expr_new(k->b, EXPR_CAT));
    return all;
}

static struct expr *counted_body(const struct counting *k, int i, int count) {
    assert(count >= 0 && i <= k->of->n);
    if (i == k->of->n) return counted_end(k, count);
    struct expr *all = expr_new(k->b, EXPR_ALT);
    if (may_add(k, count)) expr_add(all, counted_member(k, k->of->own + i, i + 1, count));
    if (!k->of->is_required[i]) expr_add(all, counted_rest(k, k->first, i + 1, count - 1));
    return all;
}

/* The last members: one breaks a part of the set, and others break the rest. A breaker by its value
 * is the last of all. */
static struct expr *last_body(const struct counting *k, int set, int count) {
    struct expr *all = expr_new(k->b, EXPR_ALT);
    for (int part = 1; part <= set && may_add(k, count); part++) {
        bool is_last = part == set;
        if ((part & set) != part) continue;
        if (!is_last && breakers_need_value(k->of->lasts, (unsigned)part)) continue;
        struct expr *own = another(k, k->of->last_members[part], count);
        if (!is_last)
            own = expr_of(k->b, EXPR_CAT, own, counted_rest(k, k->last, set ^ part, count), NULL);
        expr_add(all, own);
    }
    return all;
}

/* Defines n rows of rules. */
static void define_counted(const struct counting *k, int first, int n,
                           struct expr *(*read)(const struct counting *, int, int)) {
    for (int i = 0; i < n; i++)
        for (int count = 0; count <= k->cap && builder_in_time(k->b); count++)
            rule_define(k->b, first + i * (k->cap + 1) + count, read(k, i, count));
}

struct expr *members_counted(struct builder *b, const struct bounded_members *bounded) {
    assert(bounded->min >= 0 && (bounded->max == NO_MAX || bounded->max >= bounded->min));
    struct counting k = {.b = b, .of = bounded};
    int n_rows = bounded->n + 1, n_sets = bounded->lasts->n ? 1 << bounded->lasts->n : 0;
    k.cap = bounded->max == NO_MAX ? max_int(bounded->min, 1) : bounded->max;
    k.first = b->n_rules;
    k.last = k.first + n_rows * (k.cap + 1);
    for (int i = 0; i < n_rows + n_sets; i++) {
        for (int count = 0; count <= k.cap && builder_in_time(b); count++) rule_new(b, NULL);
    }
    define_counted(&k, k.first, n_rows, counted_body);
    define_counted(&k, k.last, n_sets, last_body);
    return expr_call(b, k.first);
}
