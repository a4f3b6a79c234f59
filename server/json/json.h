/* server/json: writing JSON, and bodies checked against tables of fields. Pure functions over
 * strings and documents (config/json.h): no sockets, no threads, no model. */
#ifndef PENSTOCK_SERVER_JSON_H
#define PENSTOCK_SERVER_JSON_H

#include "config/json.h"

struct api_limits; /* for the checks of a room above: nothing here looks into it */

/* ---- writing JSON (json/write.c) ------------------------------------------------------------ */

/* Appends text as a JSON string with its quotes. What is not UTF-8 becomes U+FFFD, so the result
 * always is. */
void json_write_string(struct buf *out, const char *text, size_t length);
/* The most bytes that json_write_string writes for a text, of which it is a part or all. */
size_t json_string_bound(const char *text, size_t length);
/* Appends text as json_write_string does, without the quotes. */
void json_write_part(struct buf *out, const char *text, size_t length);
void json_write_int(struct buf *out, int64_t value);
void json_write_value(struct buf *out, const struct json *value);    /* without white space */
void json_write_ints(struct buf *out, const int32_t *values, int n); /* [1,2,3] */

/* ---- checked fields (json/fields.c) --------------------------------------------------------- */

enum field_type {
    FIELD_BOOL, /* bool */
    FIELD_INT,  /* int in min..max */
    FIELD_REAL, /* float in min..max */
    FIELD_STRING,
    FIELD_ARRAY,
    FIELD_OBJECT, /* const struct json * */
    FIELD_ANY,    /* its `check` looks at the type */
};

#define FIELD_NOT_STORED ((size_t)-1)
#define MAX_FIELDS 96

struct parse;

/* The fields and n_fields of a parse. */
#define FIELDS_OF(table) .fields = table, .n_fields = sizeof table / sizeof *table

/* One field of a body. The value, or the default when it is absent or null, goes to `offset` in the
 * parse's target. */
struct field {
    const char *name;
    enum field_type type;
    size_t offset;   /* FIELD_NOT_STORED: only its type is checked, or `check` keeps it */
    double fallback; /* default of a bool, int or real */
    double min, max;
    bool above_min; /* min itself is outside the range */
    /* The field before it in the table of which this is another name, in the same place: it has no
     * default of its own, and only one of them may be given. NULL for most. */
    const char *same_as;
    /* Called after the type and range were found right; not for an absent field. May be NULL. */
    enum status (*check)(struct parse *parse, const char *name, const struct json *value);
};

/* One body being checked: what every check may look at. */
struct parse {
    const struct field *fields;
    int n_fields;
    const struct json *object;            /* the body, once fields_parse has begun */
    const struct json *value[MAX_FIELDS]; /* of each field; NULL: absent or null */
    void *target;
    struct arena *arena;
    const struct api_limits *limits;
    struct err *err;
};

/* Checks all fields of an object in the table's order and fills the target. No name is given
 * twice: json_parse_strict has refused that. */
enum status fields_parse(struct parse *parse, const struct json *object);

/* Checks one value against one field and fills the target; `name` is how messages call it. */
enum status field_store(struct parse *parse, const struct field *field, const char *name,
                        const struct json *value);

/* The value a client gave for a field, NULL when it is absent or null. */
const struct json *field_given(const struct parse *parse, const char *name);

/* "'name' must be <right>, but it is <what it is>." as a 400. */
enum status field_wrong_type(struct parse *parse, const char *name, const char *right,
                             const struct json *value);
/* "'name' <message>." as a 400. */
enum status field_wrong(struct parse *parse, const char *name, const char *message);
/* Sets a 400's machine-readable code besides the message that is already in it. */
enum status field_code(struct parse *parse, const char *code);

/* Checks the outermost value of a body, which must be an object. On success parse->arena is the
 * caller's; otherwise the tree was deleted. */
enum status body_check(struct parse *parse, struct json *json);

/* Reads a body and takes it. Fails if an object in it has a name twice. On success parse->arena and
 * *json are the caller's. */
enum status body_parse(struct parse *parse, const char *body, size_t length, struct json **json);

#endif
