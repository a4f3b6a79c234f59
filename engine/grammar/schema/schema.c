/* Conjunctions of schemas and their rules. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

void pointers_add(struct builder *b, struct pointers *pointers, const void *pointer) {
    assert(pointers->n <= pointers->max);
    if (pointers->n == pointers->max) {
        int max = pointers->max ? 2 * pointers->max : 4;
        const void **list = builder_alloc(b, (size_t)max * sizeof *list);
        if (!list) return;
        if (pointers->n) memcpy(list, pointers->list, (size_t)pointers->n * sizeof *list);
        pointers->list = list;
        pointers->max = max;
    }
    pointers->list[pointers->n++] = pointer;
}

bool pointers_have(const struct pointers *pointers, const void *pointer) {
    for (int i = 0; i < pointers->n; i++) {
        if (pointers->list[i] == pointer) return true;
    }
    return false;
}

/* ---- failures ------------------------------------------------------------------------------- */

static void fail_at(struct schema_reader *r, const struct json *at, const char *format,
                    va_list arguments) {
    char problem[256];
    struct buf pointer = {0};
    /* finding the place takes as long as reading the schema */
    if (r->b->status != STATUS_OK) return;
    vsnprintf(problem, sizeof problem, format, arguments);
    json_pointer(r->root, schema_place(r, at), &pointer);
    builder_fail(r->b, "The schema at \"%.200s\" %s", pointer.data, problem);
    buf_free(&pointer);
}

void schema_fail(struct schema_reader *r, const struct json *at, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fail_at(r, at, format, arguments);
    va_end(arguments);
}

void schema_cannot(struct schema_reader *r, const struct json *at, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (r->mode != SCHEMA_HINT) fail_at(r, at, format, arguments);
    va_end(arguments);
}

/* ---- conjunctions --------------------------------------------------------------------------- */

enum { MAX_PATH = 200, MAX_TOGETHER = 200 };

static void follow(struct schema_reader *r, struct conj *conj, const struct json *schema,
                   const struct json *from) {
    if (r->path.n >= MAX_PATH) {
        schema_cannot(r, from, "leads through more than %d schemas before any value begins.",
                      MAX_PATH);
        return;
    }
    if (pointers_have(&r->path, schema)) {
        schema_cannot(r, from,
                      "refers to itself before any value begins; a cycle of $ref needs a "
                      "property or an item in between.");
        return;
    }
    pointers_add(r->b, &r->path, schema);
    conj_add(r, conj, schema);
    if (r->b->status == STATUS_OK) r->path.n--;
}

/* If the schema is nullable, adds the keyword instead of the schema: the rule's body chooses
 * between null and the schema. */
static bool add_nullable(struct schema_reader *r, struct conj *conj, const struct json *schema) {
    const struct json *nullable = schema_value(schema, "nullable");
    if (!json_true(nullable) || pointers_have(&conj->resolved, nullable)) return false;
    void **owner = node_map_at(r->b, &r->owners, nullable);
    if (owner) *owner = (void *)schema;
    if (!pointers_have(&conj->schemas, nullable)) pointers_add(r->b, &conj->schemas, nullable);
    return true;
}

static void add_unevaluated(struct schema_reader *r, struct conj *conj, const struct json *schema) {
    static const char *const keywords[] = {"unevaluatedProperties", "unevaluatedItems"};
    for (int i = 0; i < 2; i++) {
        const struct json *value = schema_value(schema, keywords[i]), *made = NULL;
        if (value && !schema_is_decided(schema, value)) made = schema_unevaluated(r, schema, value);
        if (made) conj_add(r, conj, made);
    }
}

/* Adds what `not`, `if` and dependents mean. As hints they are ignored. */
static void add_rewritten(struct schema_reader *r, struct conj *conj, const struct json *schema) {
    static const char *const keywords[] = {"if", "dependentRequired", "dependentSchemas",
                                           "dependencies"};
    const struct json *no = schema_value(schema, "not"), *negation = NULL, *rewritten = NULL;
    if (r->mode == SCHEMA_HINT) return;
    if (no && pointers_have(&conj->schemas, schema_original(r, no))) conj->is_false = true;
    if (no && !conj->is_false) negation = schema_negation(r, no);
    if (negation) conj_add(r, conj, negation);
    for (int i = 0; i < 4 && !rewritten; i++) {
        if (schema_value(schema, keywords[i])) rewritten = schema_rewritten(r, schema);
    }
    if (rewritten) conj_add(r, conj, rewritten);
    add_unevaluated(r, conj, schema);
}

void conj_add(struct schema_reader *r, struct conj *conj, const struct json *schema) {
    schema = schema_original(r, schema);
    if (r->b->status != STATUS_OK || pointers_have(&conj->schemas, schema)) return;
    if (json_is(schema, JSON_BOOL)) {
        conj->is_false |= !json_true(schema);
        return;
    }
    if (conj->schemas.n >= MAX_TOGETHER) {
        schema_fail(r, schema, "is one of more than %d schemas that must hold together.",
                    MAX_TOGETHER);
        return;
    }
    if (add_nullable(r, conj, schema)) return;
    if (schema_says(schema)) pointers_add(r->b, &conj->schemas, schema);
    const struct json *ref = schema_value(schema, "$ref");
    const struct json *target = ref ? schema_target(r, ref) : NULL;
    if (target) follow(r, conj, target, ref);
    json_each(part, schema_value(schema, "allOf")) {
        follow(r, conj, schema_original(r, part), part);
    }
    add_rewritten(r, conj, schema);
}

static unsigned type_named(const char *name) {
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOL},  {"integer", TYPE_INTEGER},
                 {"number", TYPE_NUMBER}, {"string", TYPE_STRING}, {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, name) == 0) return types[i].type;
    }
    return 0;
}

/* The types that a value of `type` names. */
static unsigned types_named(const struct json *type) {
    unsigned named = json_is(type, JSON_STRING) ? type_named(json_text(type)) : 0;
    json_each(item, type) named |= type_named(json_text(item));
    return named;
}

unsigned types_of_schema(const struct json *schema) {
    const struct json *type = schema_value(schema, "type");
    return (type ? types_named(type) : TYPE_ANY) & ~types_named(schema_value(schema, NOT_TYPE));
}

unsigned conj_types(const struct conj *conj) {
    unsigned types = conj->is_false ? 0 : TYPE_ANY & ~conj->without;
    conj_each(schema, conj) types &= types_of_schema(schema);
    return types;
}

int conj_largest(const struct conj *conj, const char *keyword, int none) {
    int largest = none;
    conj_each_value(value, conj, keyword) {
        int n = json_number(value) > 1e9 ? 1000000000 : (int)json_number(value);
        if (n > largest) largest = n;
    }
    return largest;
}

int conj_smallest(const struct conj *conj, const char *keyword, int none) {
    int smallest = none;
    conj_each_value(value, conj, keyword) {
        int n = json_number(value) > 1e9 ? 1000000000 : (int)json_number(value);
        if (json_number(value) >= MAX_EXACT) continue; /* no bound */
        if (smallest == none || n < smallest) smallest = n;
    }
    return smallest;
}

/* ---- bodies --------------------------------------------------------------------------------- */

struct conj conj_copy(struct schema_reader *r, const struct conj *conj) {
    struct conj out = {.is_false = conj->is_false, .without = conj->without};
    pointers_each(schema, &conj->schemas) pointers_add(r->b, &out.schemas, schema);
    pointers_each(choice, &conj->resolved) pointers_add(r->b, &out.resolved, choice);
    return out;
}

/* Returns a copy of the conjunction with one branch of `choice`, an anyOf, a oneOf or a nullable,
 * and with `choice` marked as resolved. branch NULL: none is added. */
static struct conj with_branch(struct schema_reader *r, const struct conj *conj,
                               const struct json *choice, const struct json *branch) {
    struct conj out = conj_copy(r, conj);
    pointers_add(r->b, &out.resolved, choice);
    r->path.n = 0;
    if (branch) conj_add(r, &out, branch);
    return out;
}

/* Returns a `nullable` that waits for a choice, or NULL. */
static const struct json *open_nullable(const struct conj *conj) {
    conj_each(schema, conj) {
        if (json_is(schema, JSON_BOOL) && !pointers_have(&conj->resolved, schema)) return schema;
    }
    return NULL;
}

const struct json *schema_owner(struct schema_reader *r, const struct json *nullable) {
    void **owner = node_map_at(r->b, &r->owners, nullable);
    return owner ? *owner : NULL;
}

void conj_refuse_null(struct schema_reader *r, struct conj *conj) {
    const struct json *nullable;
    while (r->b->status == STATUS_OK && (nullable = open_nullable(conj))) {
        *conj = with_branch(r, conj, nullable, schema_owner(r, nullable));
    }
}

/* null, or a value of the nullable schema. */
static struct expr *value_or_null(struct schema_reader *r, const struct conj *conj,
                                  const struct json *nullable) {
    struct conj null = with_branch(r, conj, nullable, NULL);
    struct conj other = with_branch(r, conj, nullable, schema_owner(r, nullable));
    null.without |= TYPE_ANY & ~TYPE_NULL;
    other.without |= TYPE_NULL;
    return expr_of(r->b, EXPR_ALT, conj_call(r, &other), conj_call(r, &null), NULL);
}

/* OpenAPI's discriminator names a property that each branch has: it is required. */
static void require_tag(struct schema_reader *r, const struct conj *conj, const struct json *one_of,
                        struct conj *with) {
    const struct json *tag = NULL;
    conj_each(schema, conj) {
        if (schema_value(schema, "oneOf") == one_of)
            tag = json_member(schema_value(schema, "discriminator"), "propertyName");
    }
    if (!json_is(tag, JSON_STRING)) return;
    for (int i = 0; i < json_count(one_of); i++) {
        struct conj value = schema_property(r, &with[i], json_text(tag));
        if (!schema_has_values(&value)) return;
    }
    const struct json *required = made_requiring(r, tag, json_text(tag));
    for (int i = 0; i < json_count(one_of) && required; i++) conj_add(r, &with[i], required);
}

static void fail_overlap(struct schema_reader *r, const struct json *branch) {
    schema_cannot(r, branch,
                  "may hold together with another branch of its oneOf; use anyOf, or branches that "
                  "differ in type, or in a required property's const.");
}

/* Excludes from each branch of a oneOf the branches that may match the same value. with[i] is the
 * conjunction with branch i. */
static void make_disjoint(struct schema_reader *r, const struct conj *conj,
                          const struct json *one_of, struct conj *with) {
    enum { MAX_OVERLAPS = 2000 };
    int n = json_count(one_of), i = 0, overlaps = 0;
    require_tag(r, conj, one_of, with);
    if (r->mode == SCHEMA_HINT || conjs_disjoint(r, with, n)) return;
    struct conj *own = builder_alloc(r->b, (size_t)n * sizeof *own);
    if (!own) return;
    for (int k = 0; k < n; k++) own[k] = with[k];
    json_each(x, one_of) {
        int k = 0;
        json_each(y, one_of) {
            if (!builder_in_time(r->b)) return;
            if (x != y && !conj_disjoint(r, &own[i], &own[k], 0)) {
                if (++overlaps > MAX_OVERLAPS) fail_overlap(r, y);
                const struct json *negation = schema_negation(r, y);
                with[i] = with_branch(r, &with[i], one_of, negation);
            }
            k++;
        }
        i++;
    }
}

/* Returns an unresolved anyOf or oneOf, or NULL. */
static const struct json *open_choice(const struct conj *conj) {
    static const char *const keywords[] = {"anyOf", "oneOf"};
    for (int i = 0; i < 2; i++) {
        conj_each_value(choice, conj, keywords[i]) {
            if (!pointers_have(&conj->resolved, choice)) return choice;
        }
    }
    return NULL;
}

/* Adds an alternative for each branch of a choice: a call of its rule, or its names. */
static struct expr *choose(struct schema_reader *r, const struct conj *conj,
                           const struct json *choice,
                           struct expr *(*add)(struct schema_reader *, const struct conj *)) {
    struct builder *b = r->b;
    struct expr *all = expr_new(b, EXPR_ALT);
    struct conj *with = builder_alloc(b, (size_t)json_count(choice) * sizeof *with);
    int n = 0;
    if (!with) return all;
    json_each(branch, choice) {
        if (!builder_works(b, (size_t)(conj->schemas.n + conj->resolved.n) + 100)) return all;
        with[n++] = with_branch(r, conj, choice, branch);
    }
    if (strcmp(choice->name, "oneOf") == 0) make_disjoint(r, conj, choice, with);
    for (int i = 0; i < n && b->status == STATUS_OK; i++) {
        if (!conj_impossible(r, &with[i])) expr_add(all, add(r, &with[i]));
    }
    return all;
}

static struct expr *names_of(struct schema_reader *r, const struct conj *conj) {
    struct expr *names = conj_names(r, conj);
    return names ? names : pattern_own(r->b, "(?s:.*)");
}

struct expr *conj_names(struct schema_reader *r, const struct conj *conj) {
    struct conj names = conj_copy(r, conj);
    conj_refuse_null(r, &names);
    const struct json *choice = open_choice(&names);
    if (!(conj_types(&names) & TYPE_STRING)) return expr_new(r->b, EXPR_ALT);
    if (schema_has_values(&names)) return json_spelled(r->b, schema_text_values(r, &names));
    return choice ? choose(r, &names, choice, names_of) : schema_string_inside(r, &names);
}

struct expr *conj_text(struct schema_reader *r, const struct conj *conj) {
    struct conj text = conj_copy(r, conj);
    conj_refuse_null(r, &text);
    const struct json *choice = open_choice(&text);
    if (!(conj_types(&text) & TYPE_STRING)) return expr_new(r->b, EXPR_ALT);
    bool is_decided = !choice || schema_has_values(&text);
    return is_decided ? schema_text(r, &text) : choose(r, &text, choice, conj_text);
}

/* A property breaks a schema: each is an alternative. */
static struct expr *break_by_property(struct schema_reader *r, const struct conj *conj,
                                      const struct json *breaker) {
    struct expr *all = expr_new(r->b, EXPR_ALT);
    struct pointers ways = breaker_ways(r, conj, breaker);
    pointers_each(way, &ways) {
        if (!builder_works(r->b, 100)) return all;
        struct conj with = with_branch(r, conj, breaker, way);
        if (!conj_impossible(r, &with)) expr_add(all, conj_call(r, &with));
    }
    return all;
}

/* Fails if an array or object is excluded: only scalar values can be. */
static void check_excluded(struct schema_reader *r, const struct conj *conj, unsigned types) {
    static const char *const keywords[] = {NOT_ENUM, NOT_CONST};
    for (int i = 0; i < 2; i++) {
        conj_each_value(list, conj, keywords[i]) {
            const struct json *only = i == 0 ? json_first(list) : list;
            for (const struct json *value = only; value; value = i == 0 ? value->next : NULL) {
                unsigned type = json_value_type(value);
                if (type & types & (TYPE_ARRAY | TYPE_OBJECT))
                    schema_cannot(r, list, "excludes an array or an object, which is not served.");
            }
        }
    }
}

/* Does the conjunction exclude true, false or null? */
static bool excludes(struct schema_reader *r, const struct conj *conj, struct json value) {
    conj_each_value(list, conj, NOT_ENUM) if (schema_list_has(r, list, &value)) return true;
    conj_each_value(one, conj, NOT_CONST) if (schema_list_has(r, one, &value)) return true;
    return false;
}

static struct expr *typed(struct schema_reader *r, const struct conj *conj, unsigned types) {
    struct builder *b = r->b;
    struct expr *all = expr_new(b, EXPR_ALT);
    const struct json null = {.type = JSON_NULL};
    check_excluded(r, conj, types);
    if (types & TYPE_NULL && !excludes(r, conj, null)) expr_add(all, json_word(b, "null"));
    for (int value = 1; types & TYPE_BOOL && value >= 0; value--) {
        if (!excludes(r, conj, json_made_bool(value)))
            expr_add(all, json_word(b, value ? "true" : "false"));
    }
    if (types & TYPE_NUMBER) expr_add(all, schema_number(r, conj, types));
    if (types & TYPE_STRING) expr_add(all, schema_string(r, conj));
    if (types & TYPE_ARRAY) expr_add(all, schema_array(r, conj));
    if (types & TYPE_OBJECT) expr_add(all, schema_object(r, conj));
    return all;
}

static struct expr *body(struct schema_reader *r, const struct conj *conj) {
    unsigned types = conj_types(conj);
    if (types == 0) return expr_new(r->b, EXPR_ALT);
    const struct json *choice = open_choice(conj), *nullable = open_nullable(conj);
    if (nullable) return value_or_null(r, conj, nullable);
    if (schema_has_values(conj)) return schema_values(r, conj, types);
    if (choice) return choose(r, conj, choice, conj_call);
    const struct json *breaker = types & TYPE_OBJECT ? open_breaker(conj) : NULL;
    if (breaker) return break_by_property(r, conj, breaker);
    return typed(r, conj, types);
}

/* ---- rules ---------------------------------------------------------------------------------- */

static bool same_pointers(const struct pointers *x, const struct pointers *y) {
    if (x->n != y->n) return false;
    return x->n == 0 || memcmp(x->list, y->list, (size_t)x->n * sizeof *x->list) == 0;
}

static uint32_t hash_conj(const struct conj *conj) {
    uint64_t hash = (uint64_t)conj->resolved.n << 8 | conj->without;
    for (int i = 0; i < conj->schemas.n; i++) {
        hash = (hash ^ (uintptr_t)conj->schemas.list[i]) * 0x9E3779B97F4A7C15u;
    }
    for (int i = 0; i < conj->resolved.n; i++) {
        hash = (hash ^ (uintptr_t)conj->resolved.list[i]) * 0x9E3779B97F4A7C15u;
    }
    return (uint32_t)(hash >> 32);
}

/* Stores the rule of a conjunction. Its body is read later, so neither a recursive schema nor a
 * long chain of schemas recurses here. */
static void remember(struct schema_reader *r, const struct conj *conj, uint32_t hash, int rule) {
    if (r->n_memos == r->max_memos) {
        int max = r->max_memos ? 2 * r->max_memos : 64;
        struct memo *memos = builder_alloc(r->b, (size_t)max * sizeof *memos);
        if (!memos) return;
        if (r->n_memos) memcpy(memos, r->memos, (size_t)r->n_memos * sizeof *memos);
        r->memos = memos;
        r->max_memos = max;
    }
    r->memos[r->n_memos] = (struct memo){*conj, hash, rule, r->buckets[hash % 256]};
    r->buckets[hash % 256] = ++r->n_memos;
}

struct expr *conj_call(struct schema_reader *r, const struct conj *conj) {
    struct builder *b = r->b;
    if (b->status != STATUS_OK) return &b->spare;
    if (conj->is_false) return expr_new(b, EXPR_ALT);
    if (conj->schemas.n == 0 && !conj->without) return json_call(b, JSON_RULE_ANY);
    uint32_t hash = hash_conj(conj);
    for (int i = r->buckets[hash % 256]; i; i = r->memos[i - 1].next) {
        const struct memo *memo = &r->memos[i - 1];
        if (memo->hash == hash && memo->conj.without == conj->without &&
            same_pointers(&memo->conj.schemas, &conj->schemas) &&
            same_pointers(&memo->conj.resolved, &conj->resolved))
            return expr_call(b, memo->rule);
    }
    int rule = rule_new(b, NULL);
    if (b->status == STATUS_OK && conj->schemas.n > 0)
        b->rules[rule].at = schema_place(r, conj->schemas.list[0]);
    remember(r, conj, hash, rule);
    return expr_call(b, rule);
}

void conj_define_rules(struct schema_reader *r) {
    for (int i = 0; i < r->n_memos && builder_in_time(r->b); i++) {
        struct memo memo = r->memos[i]; /* a copy, since the array may move */
        r->b->at = r->b->rules[memo.rule].at;
        rule_define(r->b, memo.rule, body(r, &memo.conj));
    }
}

struct expr *schema_tree(struct builder *b, const struct json *root, enum schema_mode mode) {
    struct schema_reader r = {.b = b, .root = root, .mode = mode};
    struct conj conj = {0};
    b->at_root = root;
    schema_check(&r, root);
    conj_add(&r, &conj, root);
    struct expr *expr = conj_call(&r, &conj);
    conj_define_rules(&r);
    schema_reader_free(&r);
    b->at_root = b->at = NULL;
    return b->status == STATUS_OK ? expr : &b->spare;
}

struct expr *schema_read(struct builder *b, const char *text, size_t n, bool is_strict) {
    struct json *root;
    if (json_parse_strict(&root, "The schema", text, n, b->err)) {
        b->status = b->err->status;
        return &b->spare;
    }
    b->document = root;
    return schema_tree(b, root, is_strict ? SCHEMA_STRICT : SCHEMA_PLAIN);
}
