/* server/prompt: from what was asked to token ids. Internal to server/; any thread.
 *
 * The model's tokenizer and template are read-only, so workers, the loop and the command line may
 * all call these.
 */
#ifndef PENSTOCK_SERVER_PROMPT_H
#define PENSTOCK_SERVER_PROMPT_H

#include "server/api.h"

/* Renders messages with the model's template and encodes the result: what the template writes may
 * name special tokens, what users wrote may not. *ids is malloc'd. Fails with
 * STATUS_INVALID_REQUEST: no template, an error of the template's, or context_length_exceeded when
 * there are far too many tokens. */
enum status prompt_from_messages(const struct engine *engine, const struct chat_input *input,
                                 int32_t **ids, int *n, struct err *err);

/* Encodes text or copies ids; *ids is malloc'd. Fails with context_length_exceeded likewise. */
enum status prompt_from_text(const struct engine *engine, const struct api_prompt *prompt,
                             bool add_special, int32_t **ids, int *n, struct err *err);

/* The part of chat_input that the model and the clock give. */
struct chat_input prompt_chat_input(const struct engine *engine);

#endif
