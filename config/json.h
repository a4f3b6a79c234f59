/* config/json: a JSON document in memory, and its strict parser.
 *
 * A document is a tree of `struct json`, owned by its root. Each node has a type. Only
 * config/json*.c may use the fields of the union. Other files read a value with json_text,
 * json_number and similar functions, which return a default for a value of another type, so that a
 * missing check cannot read invalid memory. Any number of threads may read a tree, but only one at
 * a time may change it.
 *
 * It is the only reader: request bodies and schemas need the order of members, places in messages
 * and exact integers, and it bounds depth and values. A model's files are read by it too. cJSON
 * would be a second reader beside it: its numbers are doubles, its depth is that of its build, its
 * values are not bounded, and it takes doubled names and invalid UTF-8, so each of these needs a
 * check. Tests use cJSON as an independent reader.
 */
#ifndef PENSTOCK_CONFIG_JSON_H
#define PENSTOCK_CONFIG_JSON_H

#include <string.h>

#include "config/config.h"

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_type type;
    bool boolean;      /* value of a bool */
    bool is_integer;   /* of a number: `integer` is exact (within int64) */
    bool is_large;     /* of a number: an integer beyond int64, whose text is `digits` */
    char *name;        /* of an object's member: NUL-terminated, without NUL bytes; else NULL */
    struct json *next; /* the next element or member, or NULL */
    union {
        struct { /* number */
            double number;
            union {
                int64_t integer;
                char *digits;
            };
        };
        struct { /* string: UTF-8, NUL-terminated, may contain NUL bytes: use length */
            char *string;
            size_t length;
        };
        struct { /* array or object */
            struct json *child;
            int n_children;
        };
    };
};

/* ---- parsing (config/json_read.c) ----------------------------------------------------------- */

#define JSON_MAX_DEPTH 128
#define JSON_MAX_VALUES                                                                            \
    (1 << 20) /* a tree takes 30 times the memory of the text "1,1,1", so it has a separate bound */

/* Parses exactly one JSON document (RFC 8259) in valid UTF-8. Unpaired escaped surrogates become
 * U+FFFD, as in JavaScript's UTF-8 encoder. Fails with STATUS_INVALID_REQUEST and the line and
 * column. The message begins with `what`, for example "The body". */
enum status json_parse(struct json **out, const char *what, const char *text, size_t length,
                       struct err *err);

/* The same with a bound other than JSON_MAX_VALUES, for larger files. */
enum status json_parse_bounded(struct json **out, const char *what, const char *text, size_t length,
                               int max_values, struct err *err);

/* The same as json_parse, but also fails if json_refuse_doubled does. For clients' documents. */
enum status json_parse_strict(struct json **out, const char *what, const char *text, size_t length,
                              struct err *err);

/* Fails if an object in the tree has duplicate names. The message and err's `param` give the place
 * as a JSON pointer (RFC 6901). Takes n log n steps for n values (config/json_names.c). */
enum status json_refuse_doubled(const struct json *root, const char *what, struct err *err);

/* Frees a tree; `json` may be NULL. */
void json_free(struct json *json);

/* ---- queries (config/json.c) ---------------------------------------------------------------- */

/* Does the value exist and have this type? */
static inline bool json_is(const struct json *json, enum json_type type) {
    return json && json->type == type;
}

/* Is it a string equal to this text? */
bool json_is_text(const struct json *json, const char *text);

/* Return the NUL-terminated text of a string and its length in bytes; "" and 0 for other values. */
static inline const char *json_text(const struct json *json) {
    return json_is(json, JSON_STRING) ? json->string : "";
}
static inline size_t json_length(const struct json *json) {
    return json_is(json, JSON_STRING) ? json->length : 0;
}

/* Is it an integer within int64? Then json_integer is exact. */
static inline bool json_is_integer(const struct json *json) {
    return json_is(json, JSON_NUMBER) && json->is_integer;
}

/* Returns the text of an integer beyond int64, or NULL for other values. */
static inline const char *json_digits(const struct json *json) {
    return json_is(json, JSON_NUMBER) && json->is_large ? json->digits : NULL;
}

/* Return a number. json_number returns 0 if the value is not a number, json_integer 0 if
 * json_is_integer is false. */
static inline double json_number(const struct json *json) {
    return json_is(json, JSON_NUMBER) ? json->number : 0;
}
static inline int64_t json_integer(const struct json *json) {
    return json_is_integer(json) ? json->integer : 0;
}

/* Is it the value true? */
static inline bool json_true(const struct json *json) {
    return json_is(json, JSON_BOOL) && json->boolean;
}

/* Returns the number of elements or members; 0 for other values. */
static inline int json_count(const struct json *json) {
    return json_is(json, JSON_ARRAY) || json_is(json, JSON_OBJECT) ? json->n_children : 0;
}

/* Returns the first element or member, or NULL. */
static inline struct json *json_first(const struct json *json) {
    return json_is(json, JSON_ARRAY) || json_is(json, JSON_OBJECT) ? json->child : NULL;
}

/* Iterates over the elements or members of a value. */
#define json_each(item, parent)                                                                    \
    for (const struct json *item = json_first(parent); item; item = item->next)

/* Iterates over the members of an object, which have names; other values have no members. */
#define json_each_member(item, parent)                                                             \
    json_each(item, json_is(parent, JSON_OBJECT) ? (parent) : NULL)

/* Returns the member of an object, the first one if the name is a duplicate, or NULL. */
struct json *json_member(const struct json *object, const char *name);

/* Returns a string without a name that borrows the text. */
static inline struct json json_borrowed_text(char *text) {
    return (struct json){.type = JSON_STRING, .string = text, .length = strlen(text)};
}

/* Return a value without a name that owns nothing: a truth value, a number, an empty array or
 * object. */
static inline struct json json_made_bool(bool value) {
    return (struct json){.type = JSON_BOOL, .boolean = value};
}
struct json json_made_number(double n);
static inline struct json json_made_parent(enum json_type type) {
    return (struct json){.type = type};
}

/* Appends a child to an array or, under a name, to an object, all of which the caller owns. */
void json_adopt(struct json *parent, struct json *child, char *name);

/* Returns "a string", "an object", ... for messages. */
const char *json_type_name(const struct json *json);

/* ---- changes -------------------------------------------------------------------------------- */

/* Unlinks the member that json_member finds, and returns it to the caller, who owns it. */
struct json *json_detach(struct json *object, const char *name);

/* Removes each member of this name that is null or an empty array. */
void json_drop_empty(struct json *object, const char *name);

/* Removes the first element of an array that is not empty. */
void json_drop_first(struct json *array);

/* Moves the content of `from` to a value, which keeps its name, and frees `from`. `from` must not
 * be part of a tree. */
void json_take(struct json *json, struct json *from);

/* Adds an empty string as the last member of an object. The name must be new. */
struct json *json_add_string(struct json *object, const char *name);

/* Changes a value to a string and takes ownership of it: allocated by mem_alloc, NUL-terminated. */
void json_set_string(struct json *json, char *string, size_t length);

#endif
