/* config/json: a JSON document in memory, and the strict reader that makes it.
 *
 * A document is a tree of `struct json` that its root owns. Each node has a type. The fields of the
 * union are for config/json*.c; other files read a value by json_text, json_number and the like,
 * which answer for a value of another type too, so that a check that was forgotten reads no memory
 * of another type. Any number of threads may read a tree, one at a time may change it.
 */
#ifndef PENSTOCK_CONFIG_JSON_H
#define PENSTOCK_CONFIG_JSON_H

#include "config/config.h"

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_type type;
    bool boolean;      /* of a bool */
    bool is_integer;   /* of a number: it is an integer within int64, and `integer` is exact */
    char *name;        /* of an object's member, NUL-terminated and without NUL bytes; else NULL */
    struct json *next; /* element or member after this one, or NULL */
    union {
        struct { /* a number */
            double number;
            int64_t integer;
        };
        struct { /* a string: UTF-8, NUL-terminated, but it may hold NUL bytes: use length */
            char *string;
            size_t length;
        };
        struct { /* an array or object */
            struct json *child;
            int n_children;
        };
    };
};

/* ---- reading (config/json_read.c) ----------------------------------------------------------- */

#define JSON_MAX_DEPTH 128
#define JSON_MAX_VALUES                                                                            \
    (1 << 20) /* a tree takes 30 times the room of "1,1,1": bounded apart from the text's size */

/* Reads exactly one JSON document as RFC 8259 defines it, in valid UTF-8. Escaped surrogates
 * without their other half become U+FFFD, as they do where JavaScript encodes UTF-8. Fails with
 * STATUS_INVALID_REQUEST and line and column; `what` begins the message, as in "The body". */
enum status json_parse(struct json **out, const char *what, const char *text, size_t length,
                       struct err *err);

/* The same with another bound than JSON_MAX_VALUES, for files that hold more. */
enum status json_parse_bounded(struct json **out, const char *what, const char *text, size_t length,
                               int max_values, struct err *err);

/* The same as json_parse, and fails as json_refuse_doubled does. For what clients send. */
enum status json_parse_strict(struct json **out, const char *what, const char *text, size_t length,
                              struct err *err);

/* Refuses a tree in which an object has a name twice. The sentence names the place as a JSON
 * pointer (RFC 6901), and so does `param` of err. n log n in the number of values
 * (config/json_names.c). */
enum status json_refuse_doubled(const struct json *root, const char *what, struct err *err);

/* Frees a tree; NULL is none. */
void json_free(struct json *json);

/* ---- looking at values (config/json.c) ------------------------------------------------------ */

/* Is there a value of this type? */
static inline bool json_is(const struct json *json, enum json_type type) {
    return json && json->type == type;
}

/* Is it a string of this text? */
bool json_is_text(const struct json *json, const char *text);

/* The text of a string, NUL-terminated, and its bytes; "" and 0 for any other value. */
static inline const char *json_text(const struct json *json) {
    return json_is(json, JSON_STRING) ? json->string : "";
}
static inline size_t json_length(const struct json *json) {
    return json_is(json, JSON_STRING) ? json->length : 0;
}

/* Is it a number that is an integer within int64? Then json_integer is exact. */
static inline bool json_is_integer(const struct json *json) {
    return json_is(json, JSON_NUMBER) && json->is_integer;
}

/* A number; 0 for any other value, and json_integer is 0 for a number that is no integer too. */
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

/* The number of elements or members; 0 for a value without any. */
static inline int json_count(const struct json *json) {
    return json_is(json, JSON_ARRAY) || json_is(json, JSON_OBJECT) ? json->n_children : 0;
}

/* The first element or member, or NULL. */
static inline struct json *json_first(const struct json *json) {
    return json_is(json, JSON_ARRAY) || json_is(json, JSON_OBJECT) ? json->child : NULL;
}

/* Walks the elements or members of a value. */
#define json_each(item, parent)                                                                    \
    for (const struct json *item = json_first(parent); item; item = item->next)

/* Walks the members of an object, which have names; a value of another type has no members. */
#define json_each_member(item, parent)                                                             \
    json_each(item, json_is(parent, JSON_OBJECT) ? (parent) : NULL)

/* The member of an object, the first one where a name is given twice; NULL where there is none. */
struct json *json_member(const struct json *object, const char *name);

/* "a string", "an object", ... for messages. */
const char *json_type_name(const struct json *json);

/* ---- changing values ------------------------------------------------------------------------ */

/* Removes the member that json_member finds and returns it, which is then the caller's. */
struct json *json_detach(struct json *object, const char *name);

/* Removes every member of this name that is null or an empty array. */
void json_drop_empty(struct json *object, const char *name);

/* Gives a value what another one is, but not its name; `from`, which is in no tree, is freed. */
void json_take(struct json *json, struct json *from);

/* Adds an empty string as the last member of an object, which must not have one of this name. */
struct json *json_add_string(struct json *object, const char *name);

/* Turns a value into a string, which it owns from now on: malloc'd, NUL-terminated. */
void json_set_string(struct json *json, char *string, size_t length);

#endif
