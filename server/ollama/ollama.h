/* server/ollama: Ollama's /api/chat and /api/generate, and its descriptions of the model. A body is
 * translated to a body of OpenAI's chat or completions and checked by that parser; answers are
 * JSON, one object per line. Pure functions over strings: no sockets, no threads, no model.
 *
 * Specification: https://docs.ollama.com/api. */
#ifndef PENSTOCK_SERVER_OLLAMA_H
#define PENSTOCK_SERVER_OLLAMA_H

#include "server/openai/openai.h"

extern const struct api api_ollama_chat, api_ollama_generate, api_ollama_embed,
    api_ollama_embeddings;

/* ---- models.c: descriptions of the model ---------------------------------------------------- */

/* The version of Ollama whose form these paths have. Some clients refuse an older server. */
#define OLLAMA_VERSION "0.12.0"

/* The answer of GET and HEAD /, by which clients recognise a server. */
#define OLLAMA_RUNS "Ollama is running"

/* The served model, as far as Ollama's paths describe it. */
struct ollama_card {
    const struct api_limits *limits; /* its config must be set */
    int64_t started_s;               /* seconds since 1970 */
    bool is_folder, is_on_host;
    const struct chat_template *chat; /* or NULL */
    const struct tokenizer *tokenizer;
    const int32_t *ends; /* [n_ends] the ids that end an answer */
    int n_ends;
};

/* Writes the answer of /api/tags, or of /api/ps if `as_running` is set: only the first name. */
void ollama_write_models(struct buf *out, const struct ollama_card *card, bool as_running);

/* Writes the answer of /api/show. */
void ollama_write_show(struct buf *out, const struct ollama_card *card);

extern const struct field_table ollama_show_fields; /* of a body of /api/show */

/* Checks a body of /api/show: "model", or "name" in older clients, must be a served name, also with
 * ":latest". Fails with STATUS_INVALID_REQUEST or STATUS_NOT_FOUND. */
enum status ollama_parse_show(const char *body, size_t length, const struct api_limits *limits,
                              struct err *err);

/* Writes the answer of /api/version. */
void ollama_write_version(struct buf *out);

/* Returns what to tell a client that posts to a path of Ollama's that is not served, or NULL for
 * all other paths. */
const char *ollama_unserved(const char *path);

#endif
