/* config/json: a JSON document in memory, and the strict reader that makes it.
 *
 * A document is a tree of `struct json` that its root owns. Each node has a type, and what belongs
 * to another type must not be read: json_is asks first, and json_first and json_member give NULL
 * for a value without children. Any number of threads may read a tree, one at a time may change it.
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

/* The first element or member, or NULL. */
static inline struct json *json_first(const struct json *json) {
    return json_is(json, JSON_ARRAY) || json_is(json, JSON_OBJECT) ? json->child : NULL;
}

/* Walks the elements or members of a value. */
#define json_each(item, parent)                                                                    \
    for (const struct json *item = json_first(parent); item; item = item->next)

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
