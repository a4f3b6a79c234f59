/* server/json: writes JSON, and checks bodies against tables of fields. Pure functions over strings
 * and documents (config/json.h): no sockets, no threads, no model. */
#ifndef PENSTOCK_SERVER_JSON_H
#define PENSTOCK_SERVER_JSON_H

#include "config/json.h"

struct api_limits; /* passed on to checks of the folder above; not used here */

/* ---- writing JSON (json/write.c) ------------------------------------------------------------ */

/* Appends text as a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD, so the output is
 * always valid UTF-8. */
void json_write_string(struct buf *out, const char *text, size_t length);
/* Returns an upper bound on the bytes that json_write_string writes for the text or a part. */
size_t json_string_bound(const char *text, size_t length);
/* Appends text as json_write_string does, without the quotes. */
void json_write_part(struct buf *out, const char *text, size_t length);
void json_write_int(struct buf *out, int64_t value);
void json_write_value(struct buf *out, const struct json *value);    /* no white space */
void json_write_ints(struct buf *out, const int32_t *values, int n); /* [1,2,3] */
/* Appends the text of a JSON object on one line, or {} if the text is not an object, such as the
 * arguments of a call that max_tokens has cut. */
void json_write_object(struct buf *out, const struct buf *text);

/* ---- checked fields (json/fields.c) --------------------------------------------------------- */

enum field_type {
    FIELD_BOOL, /* bool */
    FIELD_INT,  /* int in min..max */
    FIELD_REAL, /* float in min..max */
    FIELD_STRING,
    FIELD_ARRAY,
    FIELD_OBJECT, /* const struct json * */
    FIELD_ANY,    /* only `check` looks at the type */
};

#define FIELD_NOT_STORED ((size_t)-1)
#define MAX_FIELDS 96

struct parse;

/* Initialises the fields and n_fields of a parse. */
#define FIELDS_OF(table) .fields = table, .n_fields = sizeof table / sizeof *table

/* One field of a body. The value, or the default if it is absent or null, is stored at `offset` in
 * the parse's target. */
struct field {
    const char *name;
    enum field_type type;
    size_t offset;   /* FIELD_NOT_STORED: only checked, or stored by `check` */
    double fallback; /* default of a bool, int or real field */
    double min, max;
    bool above_min;   /* min itself is outside the range */
    bool takes_false; /* false counts as absent, as null does */
    /* The name of an earlier field in the table for which this is an alias, with the same offset.
     * An alias does not have a default, and a body may have only one of both names. NULL for most
     * fields. */
    const char *same_as;
    /* In the table of a translated body: the name of the field, in the other body, to which the
     * value is copied. That row has its type and range. */
    const char *copied_to;
    bool required; /* for readers of the table: `check` or the body's parser refuses its absence */
    /* Called for a present field after its type and range are checked. May be NULL. */
    enum status (*check)(struct parse *parse, const char *name, const struct json *value);
};

/* The state of checking one body, which checks may read. */
struct parse {
    const struct field *fields;
    int n_fields;
    const struct json *object;            /* the body; set by fields_parse */
    const struct json *value[MAX_FIELDS]; /* per field; NULL: absent or null */
    void *target;
    struct arena *arena;
    const struct api_limits *limits;
    struct err *err;
};

/* Checks all fields of an object in the table's order and fills the target. The object must not
 * have duplicate names: json_parse_strict rejects them. */
enum status fields_parse(struct parse *parse, const struct json *object);

/* Checks one value against one field and fills the target. Messages use `name` for the field. */
enum status field_store(struct parse *parse, const struct field *field, const char *name,
                        const struct json *value);

/* A table of fields. */
struct field_table {
    const struct field *fields;
    int n_fields;
};

/* Checks the types of the fields of a body that is translated to another, except copied ones. */
enum status fields_check(const struct field_table *table, const struct json *object,
                         struct err *err);

/* Returns a member of a translated body that is present and not null, or NULL. The table must have
 * the field. */
const struct json *fields_member(const struct field_table *table, const struct json *object,
                                 const char *name);

/* Returns the row of a field, or NULL. */
const struct field *fields_find(const struct field_table *table, const char *name);

/* Appends the copied fields of a body as members of another, with commas between them. */
void fields_copy(const struct field_table *table, const struct json *object, struct buf *out);

/* Returns the value of a field in the body, NULL if it is absent or null. */
const struct json *field_given(const struct parse *parse, const char *name);

/* Fails with a 400: "'name' must be <right>, but it is <type of value>." */
enum status field_wrong_type(struct parse *parse, const char *name, const char *right,
                             const struct json *value);
/* Fails with a 400: "'name' <message>." */
enum status field_wrong(struct parse *parse, const char *name, const char *message);
/* Adds a machine-readable code to the 400 that is already in err. */
enum status field_code(struct parse *parse, const char *code);

/* Checks that a body is an object. On success the caller owns parse->arena; on failure the tree is
 * freed. */
enum status body_check(struct parse *parse, struct json *json);

/* Parses a body and calls body_check. Fails if an object in it has duplicate names. On success the
 * caller owns parse->arena and *json. */
enum status body_parse(struct parse *parse, const char *body, size_t length, struct json **json);

#endif
