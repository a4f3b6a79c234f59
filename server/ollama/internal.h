/* Internal to server/ollama. */
#ifndef PENSTOCK_SERVER_OLLAMA_INTERNAL_H
#define PENSTOCK_SERVER_OLLAMA_INTERNAL_H

#include "server/json/json.h"
#include "server/ollama/ollama.h"

/* ---- request.c ------------------------------------------------------------------------------ */

/* A translated body while it is written. */
struct ollama_translation {
    const struct json *body; /* the client's */
    const struct field_table *fields;
    struct buf out;   /* OpenAI's body so far, without the closing brace */
    bool is_text;     /* a body of completions instead of chat */
    bool only_loads;  /* a body without a prompt */
    bool has_maximum; /* of tokens; false: as many as fit */
    struct err *err;
};

/* All fields of the bodies of the two paths that this server reads. */
extern const struct field_table ollama_chat_fields, ollama_generate_fields;

/* Returns a field of the body that is present and not null, or NULL. */
const struct json *ollama_field(const struct ollama_translation *to, const char *name);

/* Parse the bodies of the two paths, as `parse` of struct api. */
enum status ollama_parse_chat(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err);
enum status ollama_parse_generate(struct api_request **out, struct json *body,
                                  const struct api_limits *limits, struct err *err);

/* ---- models.c ------------------------------------------------------------------------------- */

/* Returns the length of a model's name without ":latest", which Ollama's clients add to a name
 * without a tag, unless the server serves the whole name. */
size_t ollama_name_length(const struct api_limits *limits, const char *name, size_t n);

/* ---- response.c ----------------------------------------------------------------------------- */

/* Writes {"error": text}. */
/* Is the value absent, null, an empty string or an empty array? */
bool ollama_is_empty(const struct json *value);

void ollama_write_error(struct buf *out, const struct err *err, const char *request_id);
#define OLLAMA_NO_MEMORY "{\"error\":\"Not enough memory for this request: try again later.\"}"

/* ---- messages.c ----------------------------------------------------------------------------- */

/* Appends "messages":[...] with OpenAI's form of the body's messages. */
enum status ollama_messages(struct ollama_translation *to);

/* Fails for images, which no model here reads. `where` names the object. */
enum status ollama_refuse_images(const struct json *object, const char *where, struct err *err);

/* ---- options.c ------------------------------------------------------------------------------ */

/* Appends the members of "options" and of the body that have another name or place in OpenAI's
 * body. */
enum status ollama_options(struct ollama_translation *to);

/* Replaces the name of an OpenAI field in an error by the name of the client's field. */
void ollama_rename(struct err *err);

#endif
