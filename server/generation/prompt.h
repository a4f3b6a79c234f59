/* server/prompt: from a prompt as a client gave it to token ids. Internal to server/; any thread:
 * the model's tokenizer and template are read-only. */
#ifndef PENSTOCK_SERVER_PROMPT_H
#define PENSTOCK_SERVER_PROMPT_H

#include "server/openai/openai.h"

/* Renders messages with the model's template and encodes the result: what the template writes may
 * name special tokens, what users wrote may not. Or encodes text, with the model's own tokens
 * around it if `add_special`; or copies ids. *ids is malloc'd. Unless `format` is NULL, it
 * learns from the rendered text where thoughts begin.
 *
 * Fails with STATUS_INVALID_REQUEST: no template, one that leaves out a part of the messages, an
 * error of the template's, an empty result of messages, or context_length_exceeded when there are
 * far too many tokens. */
enum status prompt_encode(const struct engine *engine, const struct api_prompt *prompt,
                          bool add_special, struct message_settings *format, int32_t **ids, int *n,
                          struct err *err);

/* Fails with STATUS_INVALID_REQUEST for messages of which the template would leave out a part:
 * those of a role that it does not know, and calls of tools (shown.c). */
enum status check_shown(const struct chat_template *chat, const struct json *messages,
                        struct err *err);

#endif
