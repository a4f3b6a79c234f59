/* server/api_internal: what the api_*.c files share. Nothing outside them includes it.
 *
 * JSON values are cJSON trees that json_parse has made. They differ from cJSON's own in two ways: a
 * string node keeps its length in `valueint` (it may hold NUL bytes), and a number node whose
 * integer has more digits than a double can hold keeps its text in `valuestring`.
 */
#ifndef PENSTOCK_SERVER_API_INTERNAL_H
#define PENSTOCK_SERVER_API_INTERNAL_H

#include <cjson/cJSON.h>

#include "server/api.h"

/* ---- reading JSON (api_json.c) -------------------------------------------------------------- */

#define JSON_MAX_DEPTH 128
#define JSON_MAX_VALUES                                                                            \
    (1 << 20) /* a tree takes 40 times the room of "1,1,1": bounded apart from the body's size */

/* Reads exactly one JSON document as RFC 8259 defines it, in valid UTF-8. Escaped surrogates
 * without their other half become U+FFFD, as they do where JavaScript encodes UTF-8. Fails with
 * STATUS_INVALID_REQUEST and line and column. Free *out with cJSON_Delete. */
enum status json_parse(cJSON **out, const char *text, size_t length, struct err *err);

/* A string node's text may hold NUL bytes; this is its length. */
size_t json_string_length(const cJSON *string);

/* The exact value of a number that is an integer within int64; false for any other node. */
bool json_integer(const cJSON *number, int64_t *out);

/* "a string", "an object", ... for messages. */
const char *json_type_name(const cJSON *value);

/* ---- writing JSON (api_text.c) -------------------------------------------------------------- */

/* Appends text as a JSON string with its quotes. What is not UTF-8 becomes U+FFFD, so the result
 * always is. */
void json_write_string(struct buf *out, const char *text, size_t length);
void json_write_int(struct buf *out, int64_t value);
void json_write_ints(struct buf *out, const int32_t *values, int n); /* [1,2,3] */

/* ---- checked fields (api_fields.c) ---------------------------------------------------------- */

enum field_type {
    FIELD_BOOL, /* bool */
    FIELD_INT,  /* int in min..max */
    FIELD_REAL, /* float in min..max */
    FIELD_STRING,
    FIELD_ARRAY,
    FIELD_OBJECT, /* const cJSON * */
    FIELD_ANY,    /* its `check` looks at the type */
};

#define FIELD_NOT_KEPT ((size_t)-1)
#define MAX_FIELDS 64

struct parse;

/* One field of a body. The value, or the default when it is absent or null, goes to `offset` in the
 * parse's target. */
struct field {
    const char *name;
    unsigned kinds; /* bits: in which kinds of body the field is known */
    enum field_type type;
    size_t offset;    /* FIELD_NOT_KEPT: only its type is checked, or `check` keeps it */
    double otherwise; /* default of a bool, int or real */
    double min, max;
    bool above_min; /* min itself is outside the range */
    /* Called after the type and range were found right; not for an absent field. May be NULL. */
    enum status (*check)(struct parse *parse, const char *name, const cJSON *value);
};

/* One body being checked: what every check may look at. */
struct parse {
    const struct field *fields;
    int n_fields;
    unsigned kind;                  /* bit of struct field's kinds */
    const cJSON *value[MAX_FIELDS]; /* of each field; NULL: absent or null */
    void *target;
    struct arena *arena;
    const struct api_limits *limits;
    struct err *err;
};

/* Checks all fields of an object in the table's order and fills the target. Of fields that are
 * given twice the last counts. */
enum status fields_parse(struct parse *parse, const cJSON *object);

/* Checks one value against one field and fills the target; `name` is how messages call it. */
enum status field_store(struct parse *parse, const struct field *field, const char *name,
                        const cJSON *value);

/* The value a client gave for a field, NULL when it is absent or null. */
const cJSON *field_given(const struct parse *parse, const char *name);

/* "'name' must be <right>, but it is <what it is>." as a 400. */
enum status field_wrong_type(struct parse *parse, const char *name, const char *right,
                             const cJSON *value);
/* Sets a 400's machine-readable code besides the message that is already in it. */
enum status field_code(struct parse *parse, const char *code);

/* An array's integers in 0..V-1 (token ids), at most `most`, into memory of the arena. */
enum status field_ids(struct parse *parse, const char *name, const cJSON *array, int most,
                      int32_t **ids, int *n);

/* Checks the outermost value of a body, which must be an object. On success parse->arena is the
 * caller's; otherwise the tree was deleted. */
enum status body_take(struct parse *parse, cJSON *json);

/* Reads a body and takes it. On success parse->arena and *json are the caller's. */
enum status body_parse(struct parse *parse, const char *body, size_t length, cJSON **json);

/* The check of `model`, which every body has. */
enum status check_model(struct parse *parse, const char *name, const cJSON *value);

/* ---- parts of a request (api_prompt.c, api_sampling.c) -------------------------------------- */

/* What a generation request is collected in before its fields are weighed against each other. */
struct draft {
    struct api_request request; /* first: offsets into it are offsets into the draft */
    int max_completion_tokens;  /* -1: absent */
    int logprobs;               /* completions; -1: absent */
    bool chat_logprobs;
    int top_logprobs; /* -1: absent */
    int best_of;      /* 0: absent */
};

/* The checks of the table's fields, each of the field that it is named after. */
enum status check_prompt(struct parse *parse, const char *name, const cJSON *value);
enum status check_stop(struct parse *parse, const char *name, const cJSON *value);
enum status check_stop_ids(struct parse *parse, const char *name, const cJSON *value);
enum status check_logit_bias(struct parse *parse, const char *name, const cJSON *value);
enum status check_seed(struct parse *parse, const char *name, const cJSON *value);
enum status check_request_id(struct parse *parse, const char *name, const cJSON *value);
enum status check_cache_salt(struct parse *parse, const char *name, const cJSON *value);

/* Checks an array of messages and joins contents that come in parts, in place. */
enum status check_messages(struct parse *parse, const char *name, const cJSON *value);

/* Settles add_generation_prompt, whose default depends on continue_final_message. */
enum status settle_generation_prompt(struct parse *parse, bool *add, bool continue_final);

/* Weighs the sampling fields against each other once all are in. */
enum status settle_sampling(struct parse *parse, struct draft *draft);

/* ---- parts of an answer (api_logprobs.c, api_write.c) --------------------------------------- */

/* The value of a choice's "logprobs", null included. */
void write_logprobs(struct buf *out, enum api_kind kind, const struct tokenizer *tokenizer,
                    const struct api_choice *choice);
/* `{"id":…` up to where "choices" begins: what all answers of a request start with. */
void write_envelope(struct buf *out, const struct api_request *request, const char *object,
                    const char *model);
/* `,"logprobs":…` up to and with the token ids: what ends every choice, without its brace. */
void write_choice_end(struct buf *out, enum api_kind kind, const struct tokenizer *tokenizer,
                      const struct api_choice *choice);
void write_usage(struct buf *out, const struct api_usage *usage); /* the object, or null */

#endif
