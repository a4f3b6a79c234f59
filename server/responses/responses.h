/* server/responses: OpenAI's Responses API, /v1/responses. A body is translated to a body of
 * /v1/chat/completions and checked by that parser; an answer is a response with output items, a
 * stream a sequence of numbered events. Nothing is stored: a client sends the whole conversation.
 * Pure functions over strings: no sockets, no threads, no model.
 *
 * Specification: https://platform.openai.com/docs/api-reference/responses. */
#ifndef PENSTOCK_SERVER_RESPONSES_H
#define PENSTOCK_SERVER_RESPONSES_H

#include "server/openai/openai.h"

extern const struct api api_responses;

/* For another API whose body has such an `input`: appends `,"messages":[...]`, the input in a
 * chat's form, and the client's names of the messages to `names`. Fails with a 400. */
enum status responses_write_input(struct buf *out, struct buf *names, const struct json *body,
                                  struct err *err);

#endif
