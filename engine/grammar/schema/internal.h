/* Shared by the files that read JSON Schema.
 *
 * The constraints on a value are a conjunction: a list of schemas that must all hold, from allOf,
 * from $ref and its siblings, and from schemas that name the same property. Each distinct
 * conjunction has one rule, so recursive schemas end.
 */
#ifndef PENSTOCK_GRAMMAR_SCHEMA_INTERNAL_H
#define PENSTOCK_GRAMMAR_SCHEMA_INTERNAL_H

#include "engine/grammar/read/read.h"
#include "engine/grammar/run/run.h"
#include "engine/grammar/schema/schema.h"

enum { /* kinds of values; a number is an integer or a fraction */
       TYPE_NULL = 1 << 0,
       TYPE_BOOL = 1 << 1,
       TYPE_INTEGER = 1 << 2,
       TYPE_FRACTION = 1 << 3,
       TYPE_STRING = 1 << 4,
       TYPE_ARRAY = 1 << 5,
       TYPE_OBJECT = 1 << 6,
       TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
       TYPE_ANY = (1 << 7) - 1,
};

struct pointers {
    const void **list;
    int n, max;
};

struct conj {
    struct pointers schemas;  /* schemas with constraints; empty: any value */
    struct pointers resolved; /* their anyOf and oneOf with a chosen branch in `schemas` */
    unsigned without;         /* excluded types */
    bool is_false;            /* no value matches */
};

/* Maps nodes of a schema, by address, to values. */
struct node_map {
    struct node_entry {
        const struct json *key; /* NULL: the entry is free */
        void *value;
    } * entries;     /* [max] open addressing, at most half full */
    uint32_t n, max; /* max is a power of 2, or 0 */
};

/* The handling of constraints that cannot be enforced. */
enum schema_mode {
    SCHEMA_PLAIN,  /* refused, except unknown formats, which are annotations */
    SCHEMA_STRICT, /* refused */
    SCHEMA_HINT,   /* ignored */
};

struct schema_reader {
    struct builder *b;
    const struct json *root;
    enum schema_mode mode;
    struct node_map checked;  /* checked by schema_check */
    struct node_map members;  /* children of objects, sorted by name, and of arrays, in order */
    struct node_map strings;  /* sorted children of arrays of strings */
    struct node_map patterns; /* compiled patterns, by the node that has the pattern */
    struct node_map lists;    /* sorted keys of enum and const */
    struct node_map owners;   /* the schemas of values of `nullable` */
    /* of nodes that the reader makes (made.c) */
    struct node_map origins;     /* the node of the document that each stands for */
    struct node_map copies;      /* the originals of copies */
    struct node_map negations;   /* of schemas */
    struct node_map rewrites;    /* of schemas with if or dependents, and of breakers */
    struct node_map unevaluated; /* of unevaluatedProperties and unevaluatedItems */
    struct memo {
        struct conj conj;
        uint32_t hash;
        int rule, next; /* next: same bucket, index + 1; 0: last */
    } * memos;
    int n_memos, max_memos, buckets[256];
    struct bounded_numbers { /* rules of numbers by their bounds (number.c) */
        struct bounded_number {
            const char *bounds;
            int rule;
            struct bounded_number *next; /* same bucket */
        } * buckets[256];
    } numbers;
    struct pointers path; /* the $ref and allOf that are being followed */
};

/* ---- schema.c ------------------------------------------------------------------------------- */

/* Adds a schema, and the schemas that it refers to, to a conjunction. */
void conj_add(struct schema_reader *r, struct conj *conj, const struct json *schema);
struct conj conj_copy(struct schema_reader *r, const struct conj *conj);
void pointers_add(struct builder *b, struct pointers *pointers, const void *pointer);
bool pointers_have(const struct pointers *pointers, const void *pointer);

/* Replaces each `nullable` that waits for a choice by its schema without null. For places that
 * cannot hold null. */
void conj_refuse_null(struct schema_reader *r, struct conj *conj);

/* Return the types that a schema itself, or a conjunction, allows. */
unsigned types_of_schema(const struct json *schema);
unsigned conj_types(const struct conj *conj);

/* Returns the schema of a `nullable` in a conjunction, or NULL. */
const struct json *schema_owner(struct schema_reader *r, const struct json *nullable);

/* The texts of a conjunction that are names of properties, as a regular expression of their JSON
 * spelling; NULL: any text. */
struct expr *conj_names(struct schema_reader *r, const struct conj *conj);

/* The strings of a conjunction as plain text, without quotes and escapes. */
struct expr *conj_text(struct schema_reader *r, const struct conj *conj);

/* Returns a call of the conjunction's rule. */
struct expr *conj_call(struct schema_reader *r, const struct conj *conj);

/* Defines all rules that conj_call created, and the rules that these call. */
void conj_define_rules(struct schema_reader *r);

/* Keywords of schemas that the reader makes. No document contains them, since their names are not
 * valid UTF-8. */
#define MADE '\xFF'
#define NOT_TYPE "\xFF-type"
#define NOT_ENUM "\xFF-enum"
#define NOT_CONST "\xFF-const"
#define NOT_PATTERN "\xFF-pattern"
#define NOT_FORMAT "\xFF-format"
#define NOT_MULTIPLE "\xFF-multipleOf"
/* A schema that a property breaks by the keyword BREAKER_OF, which applies to other properties. */
#define HAS_BREAKER "\xFF-breaker"
#define BREAKER_OF "\xFF-breaker of"
/* The same, broken by the last property, which no schema names. For patternProperties,
 * BREAKER_PATTERN is the pattern that its name matches. */
#define HAS_LAST_BREAKER "\xFF-last breaker"
#define BREAKER_PATTERN "\xFF-breaker pattern"

/* Iterates over the schemas of a conjunction. */
#define conj_each(schema, conj)                                                                    \
    for (int schema##_i = 0; schema##_i < (conj)->schemas.n; schema##_i++)                         \
        for (const struct json *schema = (conj)->schemas.list[schema##_i]; schema; schema = NULL)

/* Iterates over the values of a keyword in the schemas of a conjunction. */
#define conj_each_value(value, conj, keyword)                                                      \
    conj_each(value##_of, conj) for (const struct json *value = schema_value(value##_of, keyword); \
                                     value; value = NULL)

/* Fails with a message that names the place of `at`, a node of the schema: "... at /a/b ...". */
void schema_fail(struct schema_reader *r, const struct json *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a constraint that cannot be enforced. For hints it does nothing, and the caller
 * ignores the constraint. */
void schema_cannot(struct schema_reader *r, const struct json *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Return the largest, or smallest, value of a count keyword; `none` if it is absent. */
int conj_largest(const struct conj *conj, const char *keyword, int none);
int conj_smallest(const struct conj *conj, const char *keyword, int none);

/* ---- index.c -------------------------------------------------------------------------------- */

/* Returns the value of a key, which is NULL at first. Valid until the next key is added. NULL: the
 * builder failed. */
void **node_map_at(struct builder *b, struct node_map *map, const struct json *key);

/* Returns the value of a key; NULL: there is none. */
void *node_map_find(const struct node_map *map, const struct json *key);

/* Like json_member, but n lookups in n members take n log n steps. */
const struct json *schema_member(struct schema_reader *r, const struct json *object,
                                 const char *name);

/* Returns the element of an index, or NULL. */
const struct json *schema_element(struct schema_reader *r, const struct json *array, int index);

/* Does an array of strings contain the text? */
bool schema_lists(struct schema_reader *r, const struct json *array, const char *text);

/* Does the pattern that names a member of patternProperties match anywhere in a property's name? It
 * is compiled once. */
bool schema_pattern_matches(struct schema_reader *r, const struct json *pattern, const char *name);

/* Does a pattern match a listed string? It is compiled once for the node that has it. A pattern
 * that is not served fails, or matches if it is a hint. */
bool schema_text_matches(struct schema_reader *r, const struct json *node, const char *pattern,
                         enum regex_match match, const struct json *string);

/* Should the pattern be read? No if it cannot be enforced and the schema is a hint. */
bool schema_pattern_works(struct schema_reader *r, const char *pattern, size_t n);

/* Frees the patterns; the arena holds the rest. */
void schema_reader_free(struct schema_reader *r);

/* ---- made.c, negate.c, breaker.c, unevaluated.c --------------------------------------------- */

/* Make nodes in the builder's arena, which stand for the place of `origin` in messages. `name` is
 * NULL in an array. The nodes are NULL after a failure. */
struct json *made_new(struct schema_reader *r, const struct json *origin, enum json_type type);
struct json *made_in(struct schema_reader *r, struct json *parent, const char *name,
                     enum json_type type);
void made_text(struct schema_reader *r, struct json *parent, const char *name, const char *text);
void made_number(struct schema_reader *r, struct json *parent, const char *name, double n);
void made_bool(struct schema_reader *r, struct json *parent, const char *name, bool value);

/* Appends a copy that shares the children of the original, and counts as the same schema. */
void made_copy(struct schema_reader *r, struct json *parent, const char *name,
               const struct json *original);

/* Returns the node that a copy counts as; for others, the node itself. */
const struct json *schema_original(struct schema_reader *r, const struct json *node);

/* Returns the node of the document that a node stands for. */
const struct json *schema_place(const struct schema_reader *r, const struct json *node);

bool schema_is_made(const struct schema_reader *r, const struct json *schema);

/* Returns the schema of the values that do not match a schema; NULL after a failure. */
const struct json *schema_negation(struct schema_reader *r, const struct json *schema);

/* Returns a schema's if, dependentRequired and the like, as anyOf; NULL after a failure. */
const struct json *schema_rewritten(struct schema_reader *r, const struct json *schema);

/* Returns the schema that stands for a schema's unevaluatedProperties or unevaluatedItems; NULL
 * after a failure. */
const struct json *schema_unevaluated(struct schema_reader *r, const struct json *schema,
                                      const struct json *keyword);

/* Returns the schema of objects that have a property; NULL after a failure. */
const struct json *made_requiring(struct schema_reader *r, const struct json *origin,
                                  const char *name);

/* Returns a HAS_BREAKER that waits for a choice, or NULL. */
const struct json *open_breaker(const struct conj *conj);

/* Returns the ways in which a property of the conjunction can be the breaker: schemas. */
struct pointers breaker_ways(struct schema_reader *r, const struct conj *conj,
                             const struct json *breaker);

#define MAX_LAST 3

/* Returns the schemas with a HAS_LAST_BREAKER; at most MAX_LAST. */
struct pointers last_breakers(struct schema_reader *r, const struct conj *conj);

/* Keys that match the patterns of the bit set `chosen`, and no other one of the n patterns. */
struct key_kind {
    const struct json *const *patterns; /* members of patternProperties */
    int n;
    unsigned chosen;
};

/* Adds the constraints of the breakers in the bit set to the conjunctions of the value and the name
 * of a property, whose name is of this kind. Returns false if no such property breaks them all. */
bool breakers_narrow(struct schema_reader *r, const struct pointers *lasts, unsigned set,
                     const struct key_kind *kind, struct conj *value, struct conj *name);

/* Does one of the breakers in the bit set depend on the value of its property? */
bool breakers_need_value(const struct pointers *lasts, unsigned set);

/* ---- keywords.c ----------------------------------------------------------------------------- */

enum form {                  /* of a keyword's value */
            FORM_NOTE,       /* an annotation; ignored */
            FORM_SCHEMA,     /* a schema */
            FORM_SCHEMAS,    /* an array of schemas */
            FORM_SCHEMA_MAP, /* an object of schemas */
            FORM_ITEMS,      /* a schema, or an array of them as in draft 7 */
            FORM_DEFS,       /* an object of schemas that apply only through a $ref */
            FORM_COUNT,      /* an integer of at least 0 */
            FORM_NUMBER,
            FORM_BOUND, /* a number; or true or false as in draft 4 */
            FORM_BOOL,
            FORM_STRING,
            FORM_STRINGS,    /* an array of strings */
            FORM_TYPE,       /* a name of a type, or an array of names */
            FORM_VALUES,     /* an array of any values */
            FORM_VALUE,      /* any value */
            FORM_DEPENDENTS, /* an object of schemas and arrays of names */
            FORM_DIALECT,    /* the name of a supported draft */
            FORM_UNENFORCED, /* constrains values, but is not enforced */
};

struct schema_keyword {
    const char *name;
    enum form form;
};

/* The largest double below which each whole number is exact; larger counts do not bound. */
#define MAX_EXACT 9007199254740992.0

/* Returns keyword i, or NULL after the last one. */
const struct schema_keyword *schema_keyword(size_t i);

/* Returns the keyword of this name, or NULL. */
const struct schema_keyword *schema_keyword_find(const char *name);

/* Returns the constraining keyword that an unknown name misspells: other case, - or _ between
 * words, or one or two wrong letters in a long name. NULL: none. */
const char *schema_keyword_meant(const char *name);

/* Returns the value of a keyword in a schema. NULL: it is absent, or null, which counts as absent
 * except for `const`. */
const struct json *schema_value(const struct json *schema, const char *keyword);

/* Is this unevaluatedProperties or unevaluatedItems decided by the schema's own properties or
 * items? Then it is read as additionalProperties or as items after them. */
bool schema_is_decided(const struct json *schema, const struct json *unevaluated);

/* Returns the schema of properties without another one, or of items after the first ones; NULL if
 * the schema has none. */
const struct json *schema_others(const struct json *schema);
const struct json *schema_unlisted_items(const struct json *schema);

/* Does the schema itself constrain values? $ref and allOf do not count. */
bool schema_says(const struct json *schema);

/* ---- the other files ------------------------------------------------------------------------ */

/* Fails on unknown keywords and wrong values in a schema and all schemas inside it. */
void schema_check(struct schema_reader *r, const struct json *schema);

/* Returns the target of a $ref; NULL after a failure. */
const struct json *schema_target(struct schema_reader *r, const struct json *ref);

/* Is it proven that no value matches? */
bool conj_impossible(struct schema_reader *r, const struct conj *conj);

/* Is it proven that no value matches both? */
bool conj_disjoint(struct schema_reader *r, const struct conj *x, const struct conj *y, int depth);

/* Is it proven from listed values that no two of n conjunctions share a value? Either each lists
 * its values, or each requires a property that lists its values. */
bool conjs_disjoint(struct schema_reader *r, const struct conj *all, int n);

/* The values of one type. */
struct expr *schema_string(struct schema_reader *r, const struct conj *conj);
/* The strings of a conjunction as plain text without quotes and escapes: an EXPR_AND, to which the
 * caller may add. */
struct expr *schema_text(struct schema_reader *r, const struct conj *conj);
struct expr *schema_number(struct schema_reader *r, const struct conj *conj, unsigned types);
struct expr *schema_array(struct schema_reader *r, const struct conj *conj);
struct expr *schema_object(struct schema_reader *r, const struct conj *conj);

/* Do the schemas of an object name all properties that it may have? */
bool schema_is_closed(struct schema_reader *r, const struct conj *conj);

/* Returns the conjunction of all propertyNames, and the names that they list. */
struct conj names_together(struct schema_reader *r, const struct conj *conj);
struct pointers names_listed(struct schema_reader *r, const struct conj *names);

/* Returns the conjunction of the schemas for a property's value. */
struct conj schema_property(struct schema_reader *r, const struct conj *conj, const char *name);

/* Returns the conjunction of all schemas for item `at` of an array. */
struct conj schema_item_conj(struct schema_reader *r, const struct conj *conj, int at);

/* The members of an object whose number is bounded. Rules are indices; own + i is a member of
 * property i. */
struct bounded_members {
    int n, own;
    const bool *is_required;      /* [n] */
    int others;                   /* a member without a property; 0: impossible */
    const struct pointers *lasts; /* schemas that members without a property break at the end */
    const int *last_members;      /* [1 << lasts->n] a member that breaks the schemas of a set */
    int min, max;                 /* max may be NO_MAX */
};
struct expr *members_counted(struct builder *b, const struct bounded_members *bounded);

/* The items of an array with contains or uniqueItems; NULL: it has neither. The first `prefix`
 * items have schemas of their own. */
struct expr *schema_counted_items(struct schema_reader *r, const struct conj *conj, int prefix,
                                  int min, int max);

/* The values of a conjunction with enum or const. */
struct expr *schema_values(struct schema_reader *r, const struct conj *conj, unsigned types);
bool schema_has_values(const struct conj *conj);

/* Returns the values that all enum and const of the conjunction list, in the order of the first
 * one. */
struct pointers schema_listed(struct schema_reader *r, const struct conj *conj);

/* The same values without those that the other keywords exclude. */
struct pointers schema_matching(struct schema_reader *r, const struct conj *conj);

/* Does the value of an enum or a const contain this value? */
bool schema_list_has(struct schema_reader *r, const struct json *list, const struct json *value);

/* Does an array contain equal values? */
bool values_repeat(struct schema_reader *r, const struct json *array);

/* Returns the type of a listed value. */
unsigned json_value_type(const struct json *value);

/* Iterates over a list of nodes. */
#define pointers_each(value, pointers)                                                             \
    for (int value##_i = 0; value##_i < (pointers)->n; value##_i++)                                \
        for (const struct json *value = (pointers)->list[value##_i]; value; value = NULL)

/* Do two of n lists share a value? Takes n log n steps for all values. */
bool values_overlap(struct schema_reader *r, const struct pointers *lists, int n);

/* Does a listed value match a schema, or all schemas of a conjunction? Each keyword is checked. */
bool schema_holds(struct schema_reader *r, const struct json *schema, const struct json *value);
bool conj_holds(struct schema_reader *r, const struct conj *conj, const struct json *value);

/* Returns the schema that applies to an array's item by its place, or NULL. */
const struct json *schema_item(struct schema_reader *r, const struct json *schema, int at);

/* The formats; the last one has no name. */
struct string_format {
    const char *name, *pattern; /* pattern NULL: any string; the format describes only its use */
    const char *widest;         /* matches all texts that some reader takes; NULL: unknown */
};
extern const struct string_format schema_formats[];

/* Finds the regular expression of a format; NULL: any string. An unknown format is any string too,
 * and fails in a strict schema. */
const char *format_pattern(struct schema_reader *r, const struct json *format);

/* Returns a pattern for all texts that some reader of the format takes. The negation of a format
 * excludes them, so that it is right for each reader. NULL: it is not known. */
const char *format_widest(const struct json *format);

/* The strings of a conjunction without quotes, as a regular expression; NULL: any string. */
struct expr *schema_string_inside(struct schema_reader *r, const struct conj *conj);

/* The listed values that are strings, without quotes. */
struct expr *schema_text_values(struct schema_reader *r, const struct conj *conj);

/* ---- json_rules.c --------------------------------------------------------------------------- */

/* Returns a rule that JSON grammars share, created at its first use. */
int json_rule(struct builder *b, enum json_rule which);

/* Chooses the spelling of the values that follow: Python's or JSON's. They differ in true, false
 * and null, and Python's strings may have single quotes. */
void json_spell_python(struct builder *b, bool is_python, bool has_single_quotes);

/* The same for Gemma's: {n:3,s:<|"|>a<|"|>} with the mark <|"|> around texts, which are not
 * escaped. NULL: JSON's spelling. The mark begins with "<", is longer than that, and lives as long
 * as the builder. */
#define GEMMA_KEY "[a-zA-Z0-9_.-]{1,64}"
void json_spell_gemma(struct builder *b, const char *mark);

/* The name of a member, with its quotes. */
struct expr *json_key(struct builder *b, const char *name, size_t n);

/* The spelling of true, false or null; `json` is JSON's. */
struct expr *json_word(struct builder *b, const char *json);

/* A JSON value in the enforced spelling: without blanks, strings as in json_quoted. */
struct expr *json_literal(struct builder *b, const struct json *value);

/* The text in quotes. Plain ASCII characters stay; other characters may also be \u escapes. */
struct expr *json_quoted(struct builder *b, const char *text, size_t n);

/* The JSON spelling, without quotes, of the texts that an expression matches. */
struct expr *json_spelled(struct builder *b, const struct expr *content);

/* ---- readers of parsed documents ------------------------------------------------------------ */

/* Reads a JSON Schema inside another document. */
struct expr *schema_tree(struct builder *b, const struct json *root, enum schema_mode mode);

/* The arguments of a call for models that do not write JSON. `style` is a name of arguments.c, as
 * "qwen_xml" or "python"; NULL is returned for others. `root` is the schema of the arguments'
 * object and contains its properties directly; no other properties can be written. Properties that
 * `texts` (an array of strings, or NULL) names are written without quotes. */
struct expr *schema_arguments(struct builder *b, const struct json *root, const char *style,
                              const struct json *texts, enum schema_mode mode);

#endif
