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

struct schema_reader {
    struct builder *b;
    const struct json *root;
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

/* The first value that every list of the conjunction has (after NULL), or the next one, or NULL. */
const struct json *schema_next_value(const struct conj *conj, const struct json *value);

/* Walks them. */
#define values_each(value, conj)                                                                   \
    for (const struct json *value = schema_next_value(conj, NULL); value;                          \
         value = schema_next_value(conj, value))

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
