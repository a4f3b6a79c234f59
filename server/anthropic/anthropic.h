/* server/anthropic: Anthropic's Messages API, /v1/messages. A body is translated to a body of
 * /v1/chat/completions and checked by that parser; answers and streams have Anthropic's form. Pure
 * functions over strings: no sockets, no threads, no model.
 *
 * Specification: https://docs.anthropic.com/en/api/messages and /messages-streaming. */
#ifndef PENSTOCK_SERVER_ANTHROPIC_H
#define PENSTOCK_SERVER_ANTHROPIC_H

#include "server/openai/openai.h"

extern const struct api api_messages;

#endif
