/* Between the files that read JSON Schema.
 *
 * What a value must keep to is a conjunction: a list of schemas that hold together, by allOf, by
 * $ref and its siblings, by properties that several schemas name. Each becomes one rule, found
 * again by its list, so that recursion ends.
 */
#ifndef PENSTOCK_GRAMMAR_SCHEMA_H
#define PENSTOCK_GRAMMAR_SCHEMA_H

#include "engine/grammar/build.h"

enum { /* kinds of values; a number is an integer or has a fraction */
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
    struct pointers schemas;  /* objects with keywords that say something; none: any value */
    struct pointers resolved; /* the anyOf and oneOf of them, of which a branch is in the list */
    bool is_false;            /* no value at all */
};

/* From nodes of the schema, by their addresses. */
struct node_map {
    struct node_entry {
        const struct json *key; /* NULL: the place is free */
        void *value;
    } * entries;     /* [max], open addressing, at most half full */
    uint32_t n, max; /* max is a power of 2, or 0 */
};

struct schema_reader {
    struct builder *b;
    const struct json *root;
    struct node_map checked;  /* schemas that schema_check has read */
    struct node_map members;  /* objects and arrays: their children, sorted by name or in order */
    struct node_map strings;  /* arrays of strings: these, sorted */
    struct node_map patterns; /* members of patternProperties: the compiled pattern */
    struct memo {
        struct conj conj;
        uint32_t hash;
        int rule, next; /* of the same bucket, index + 1 */
    } * memos;
    int n_memos, max_memos, buckets[256];
    struct pointers path; /* of $ref and allOf that are being followed */
};

/* ---- schema.c ------------------------------------------------------------------------------- */

/* Adds a schema to a conjunction, with those that it refers to. */
void conj_add(struct schema_reader *r, struct conj *conj, const struct json *schema);
void pointers_add(struct builder *b, struct pointers *pointers, const void *pointer);
bool pointers_have(const struct pointers *pointers, const void *pointer);

/* The types that values of the conjunction may have. */
unsigned conj_types(const struct conj *conj);

/* Calls the rule of a conjunction. */
struct expr *conj_call(struct schema_reader *r, const struct conj *conj);

/* Reads the bodies of all rules that conj_call has made, and of those that they call. */
void conj_define_rules(struct schema_reader *r);

/* Walks the schemas of a conjunction. */
#define conj_each(schema, conj)                                                                    \
    for (int schema##_i = 0; schema##_i < (conj)->schemas.n; schema##_i++)                         \
        for (const struct json *schema = (conj)->schemas.list[schema##_i]; schema; schema = NULL)

/* Walks the values that the schemas of a conjunction give a keyword. */
#define conj_each_value(value, conj, keyword)                                                      \
    conj_each(value##_of, conj) for (const struct json *value = json_member(value##_of, keyword);  \
                                     value; value = NULL)

/* Fails, naming the place of `at`, which is a node of the schema: "... at /a/b ...". */
void schema_fail(struct schema_reader *r, const struct json *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The largest of the values of a count keyword, or the smallest; `none` where there is none. */
int conj_largest(const struct conj *conj, const char *keyword, int none);
int conj_smallest(const struct conj *conj, const char *keyword, int none);

/* ---- index.c -------------------------------------------------------------------------------- */

/* The value of a key, NULL at first; NULL: the builder failed. It moves as keys are added. */
void **node_map_at(struct builder *b, struct node_map *map, const struct json *key);

/* As json_member, but n lookups in n members take n log n steps. */
const struct json *schema_member(struct schema_reader *r, const struct json *object,
                                 const char *name);

/* The element of this index, or NULL. */
const struct json *schema_element(struct schema_reader *r, const struct json *array, int index);

/* Is the text one of an array's strings? */
bool schema_lists(struct schema_reader *r, const struct json *array, const char *text);

/* Is the name of a member of patternProperties found, as a pattern, in a property's name? It is
 * compiled once. */
bool schema_pattern_matches(struct schema_reader *r, const struct json *pattern, const char *name);

/* Releases the patterns; all else is in the builder's arena. */
void schema_reader_free(struct schema_reader *r);

/* ---- the other files ------------------------------------------------------------------------ */

/* Checks that the keywords are known and have values of their kind, through the whole schema. */
void schema_check(struct schema_reader *r, const struct json *schema);

/* Keyword number i that is known, NULL behind the last one; is it an annotation? */
const char *schema_keyword(size_t i, bool *is_note);

/* Does it have a keyword that says something about values by itself? */
bool schema_says(const struct json *schema);

/* The schema that a $ref means, or NULL after a failure. */
const struct json *schema_target(struct schema_reader *r, const struct json *ref);

/* No value is in both: provably. */
bool conj_disjoint(struct schema_reader *r, const struct conj *x, const struct conj *y, int depth);

/* Is it plain from listed values that no two of n conjunctions share a value? Either each lists its
 * values, or each requires a property that lists its values. False may also mean "unknown". */
bool conjs_disjoint(struct schema_reader *r, const struct conj *all, int n);

/* The values of one kind. */
struct expr *schema_string(struct schema_reader *r, const struct conj *conj);
/* The strings of one as they are, without quotes and escapes: an EXPR_AND, to which more may be
 * added. */
struct expr *schema_text(struct schema_reader *r, const struct conj *conj);
struct expr *schema_number(struct schema_reader *r, const struct conj *conj, bool is_integer);
struct expr *schema_array(struct schema_reader *r, const struct conj *conj);
struct expr *schema_object(struct schema_reader *r, const struct conj *conj);

/* The conjunction of what schemas say of a property's value. */
struct conj schema_property(struct schema_reader *r, const struct conj *conj, const char *name);

/* The values of a conjunction with enum or const. */
struct expr *schema_values(struct schema_reader *r, const struct conj *conj, unsigned types);
bool schema_has_values(const struct conj *conj);

/* The values that every enum and const of the conjunction lists, in the order of the first one. */
struct pointers schema_listed(struct schema_reader *r, const struct conj *conj);

/* Walks a list of nodes. */
#define pointers_each(value, pointers)                                                             \
    for (int value##_i = 0; value##_i < (pointers)->n; value##_i++)                                \
        for (const struct json *value = (pointers)->list[value##_i]; value; value = NULL)

/* Do two of the lists share a value? n log n in all values. */
bool values_overlap(struct schema_reader *r, const struct pointers *lists, int n);

/* Fails where another keyword says more of a listed value, which must keep to that too. */
void schema_check_value(struct schema_reader *r, const struct conj *conj, const struct json *value);

/* The regular expression of a format, or NULL: any string; false: the format is not known. */
bool format_find(const char *name, const char **pattern);

/* The name of format number i, NULL behind the last one. */
const char *format_name(size_t i);

/* URIs of at most `max` characters, as a regular expression; NULL: that is too few for it. */
struct expr *format_short_uri(struct builder *b, int max);

/* The strings of a conjunction without their quotes, as a regular expression; NULL: all strings. */
struct expr *schema_string_inside(struct schema_reader *r, const struct conj *conj);

/* Those of its values that are strings, without quotes. */
struct expr *schema_text_values(struct schema_reader *r, const struct conj *conj);

#endif
