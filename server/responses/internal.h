/* Internal to server/responses. */
#ifndef PENSTOCK_SERVER_RESPONSES_INTERNAL_H
#define PENSTOCK_SERVER_RESPONSES_INTERNAL_H

#include "server/json/json.h"
#include "server/responses/responses.h"

/* ---- request.c ------------------------------------------------------------------------------ */

/* A translated body while it is written. Functions that return a status have set `err`. */
struct responses_translation {
    const struct json *body; /* the client's */
    const struct api_limits *limits;
    struct buf out;   /* the body of a chat so far, without the closing brace */
    struct buf names; /* the client's names of its fields (api_name_add) */
    struct err *err;
};

/* All fields of a body that this server reads. */
extern const struct field_table responses_fields;

/* Returns a field of the body that is present and not null, or NULL. */
const struct json *responses_field(const struct responses_translation *to, const char *name);

/* Fails with a 400: "'where' <message>." */
enum status responses_wrong(struct responses_translation *to, const char *where,
                            const char *message);

/* Returns a member that is present and not null, or NULL. */
const struct json *responses_member(const struct json *object, const char *name);

/* Parses a body, as `parse` of struct api. */
enum status responses_parse(struct api_request **out, struct json *body,
                            const struct api_limits *limits, struct err *err);

/* ---- items.c -------------------------------------------------------------------------------- */

/* Appends "messages":[...] with the instructions and the input. System messages at the front are
 * joined, because many templates allow one. */
enum status responses_write_messages(struct responses_translation *to);

/* ---- tools.c -------------------------------------------------------------------------------- */

/* Appends the functions among the tools and the choice among them. Tools that only OpenAI's
 * servers run are left out. */
enum status responses_write_tools(struct responses_translation *to);

/* ---- response.c ----------------------------------------------------------------------------- */

enum item_kind { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL };

/* Returns the kind of item for a part of a message. */
enum item_kind responses_kind(enum message_kind kind);

/* One output item: its text is reasoning, content or arguments. */
struct output_item {
    enum item_kind kind;
    int index;                  /* in the output */
    const char *call_id, *name; /* of a call */
    const char *text;           /* [length] */
    size_t length;
};

/* Appends the id of an item, without quotes; the response's id and the index make it unique. */
void responses_write_item_id(struct buf *out, const struct api_answer *answer,
                             const struct output_item *item);

/* Appends an item; one that is in progress has no text. */
void responses_write_item(struct buf *out, const struct api_answer *answer,
                          const struct output_item *item, bool is_done);

/* Appends a content part of a message or of reasoning. */
void responses_write_part(struct buf *out, const struct output_item *item, bool is_done);

/* Appends the whole response. `status` is "in_progress", "completed", "incomplete" or "failed";
 * `output` holds the items, separated by commas; `usage` is NULL in progress; `err` is NULL unless
 * the response failed. */
void responses_write(struct buf *out, const struct api_answer *answer, const char *status,
                     const struct buf *output, const struct api_usage *usage,
                     const struct err *err);

/* Returns the status of an answer that ended for this reason. */
const char *responses_status(const char *finish_reason);

/* ---- stored.c ------------------------------------------------------------------------------- */

/* The functions of struct api for stored responses. */
void responses_write_document(struct buf *out, const struct api_answer *answer, const char *status,
                              const struct api_usage *usage, const struct err *err);
void responses_write_broken(struct buf *out, const char *queued, size_t length,
                            const struct err *err);
void responses_write_last_event(struct buf *out, const char *document, size_t length,
                                int64_t number);
void responses_write_continued(struct buf *out, const struct json *asked,
                               const struct json *earlier, const struct json *old_answer);

/* Writes the error of a response: {"code","message"}. */
void responses_write_error(struct buf *out, const struct err *err);

/* ---- input_items.c -------------------------------------------------------------------------- */

/* `write_input_items` of struct api. */
enum status responses_write_input_items(struct buf *out, const struct json *body, const char *id,
                                        const struct api_item_page *page, struct err *err);

/* ---- events.c ------------------------------------------------------------------------------- */

/* The state of a stream. The last event repeats all finished items. */
struct response_stream {
    int n_events, n_items;
    struct buf output;   /* the finished items, separated by commas */
    enum item_kind open; /* the kind of the open item */
    struct buf text;     /* of the open item */
    char call_id[MAX_CALL_ID], name[MAX_TOOL_NAME + 1]; /* of an open call */
    const char *finish_reason;
};

void responses_free_stream(void *state);
void responses_write_start(struct buf *out, const struct api_answer *answer, int index,
                           const struct api_usage *usage);
void responses_write_chunk(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choice, const struct api_usage *usage);
void responses_write_done(struct buf *out, const struct api_answer *answer,
                          const struct api_usage *usage);
void responses_write_failed(struct buf *out, const struct api_answer *answer,
                            const struct err *err);

#endif
