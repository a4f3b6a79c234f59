/* Internal to server/anthropic. */
#ifndef PENSTOCK_SERVER_ANTHROPIC_INTERNAL_H
#define PENSTOCK_SERVER_ANTHROPIC_INTERNAL_H

#include "server/anthropic/anthropic.h"
#include "server/json/json.h"

/* A translated body while it is written. Functions that return a status have set `err`. */
struct anthropic_translation {
    const struct json *body; /* the client's */
    const struct api_limits *limits;
    struct buf out;    /* the body of a chat so far, without the closing brace */
    struct buf names;  /* the client's names of its fields (api_name_add) */
    int n_messages;    /* written so far */
    bool is_continued; /* the last message is the beginning of the answer */
    struct err *err;
};

/* Fails with a 400: "'where' <message>." */
enum status messages_wrong(struct anthropic_translation *to, const char *where,
                           const char *message);

/* Returns a member that is present and not null, or NULL. */
const struct json *messages_member(const struct json *object, const char *name);

/* ---- request.c ------------------------------------------------------------------------------ */

/* All fields of a body that this server reads. */
extern const struct field_table messages_fields;

/* Returns a field of the body that is present and not null, or NULL. */
const struct json *messages_field(const struct anthropic_translation *to, const char *name);

/* Parses a body, as `parse` of struct api. */
enum status messages_parse(struct api_request **out, struct json *body,
                           const struct api_limits *limits, struct err *err);

/* ---- blocks.c ------------------------------------------------------------------------------- */

/* Appends "messages":[...] with the system prompt and the body's messages. A last message of the
 * assistant, unless it has calls, is the beginning of the answer. */
enum status messages_write(struct anthropic_translation *to);

/* ---- client_tools.c ------------------------------------------------------------------------- */

/* A tool that Anthropic has defined and the client runs. */
struct client_tool {
    const char *type;                 /* the beginning of its types, which end with a date */
    const char *description, *schema; /* for the model; NULL: the tool is not served */
};

/* Returns the tool of a type, such as "bash_20250124", or NULL. */
const struct client_tool *messages_client_tool(const char *type);

/* ---- tools.c -------------------------------------------------------------------------------- */

/* Appends the tools and the choice among them. Tools that only Anthropic's servers run are left
 * out. */
enum status messages_write_tools(struct anthropic_translation *to);

#endif
