/* server/generation: converts a client's prompt to token ids. Internal to server/. Any thread may
 * call these functions: the model's tokenizer and template are read-only. */
#ifndef PENSTOCK_SERVER_PROMPT_H
#define PENSTOCK_SERVER_PROMPT_H

#include "server/openai/openai.h"

/* Renders messages with the model's template and encodes the result; special tokens are recognised
 * in the template's text, but not in the users' text. Or encodes a text, with the model's begin and
 * end tokens if `add_special` is set. Or copies ids. The caller frees *ids. Unless `format` is
 * NULL, sets in it where reasoning begins, from the rendered text.
 *
 * Fails with STATUS_INVALID_REQUEST: no template, a template that omits a part of the messages, an
 * error of the template, an empty result of messages, or context_length_exceeded if there are far
 * too many tokens. */
enum status prompt_encode(const struct engine *engine, const struct api_prompt *prompt,
                          bool add_special, struct message_settings *format, int32_t **ids, int *n,
                          struct err *err);

/* Appends the client's names of the wishes in a chat that its template does not know: effort,
 * thinking, verbosity. Agents cannot leave these out, so they are ignored. */
void prompt_list_ignored(const struct engine *engine, const struct api_request *request,
                         struct buf *list);

/* Appends the prompt of messages, rendered with the model's template. Unless `pieces` is NULL, sets
 * it as chat_template_render does. Fails like prompt_encode. */
enum status prompt_render(const struct engine *engine, const struct api_prompt *prompt,
                          struct buf *text, struct chat_piece **pieces, int *n_pieces,
                          struct err *err);

/* Names the input, or the query, of an API that reads in the error of its prompt. */
void prompt_name_input(const struct api_request *request, int index, struct err *err);

/* Encodes a prompt whose middle the model fills in; the model must have the tokens for it
 * (infill.c). Fails with context_length_exceeded if a part has more than `limit` tokens. */
enum status infill_encode(const struct engine *engine, const struct api_prompt *prompt,
                          bool add_special, int limit, int32_t **ids, int *n, struct err *err);

/* Fails with STATUS_INVALID_REQUEST if the template would omit a part of the messages: those of an
 * unknown role, or tool calls (shown.c). */
enum status check_shown(const struct chat_template *chat, const struct json *messages,
                        struct err *err);

/* Gives the role "system" to messages of the role "developer" if the template does not know that
 * role (history.c). */
void history_rename_developers(const struct chat_template *chat, const struct json *messages);

/* Returns a conversation that more templates accept, or NULL if there is nothing to change: the
 * system messages at the front become one, and a call's arguments that are a text become an object
 * with the member "arguments". The caller frees it (history.c). */
struct json *history_simplified(const struct json *messages);

/* Returns a conversation whose calls have their arguments as texts, for templates that join them to
 * other texts, or NULL if there are none. The caller frees it. */
struct json *history_with_texts(const struct json *messages);

#endif
