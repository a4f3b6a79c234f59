/* server/ollama: Ollama's /api/chat and /api/generate. A body is translated to a body of OpenAI's
 * chat or completions and checked by that parser; answers are JSON, one object per line. Pure
 * functions over strings: no sockets, no threads, no model.
 *
 * Specification: https://docs.ollama.com/api. */
#ifndef PENSTOCK_SERVER_OLLAMA_H
#define PENSTOCK_SERVER_OLLAMA_H

#include "server/openai/openai.h"

extern const struct api api_ollama_chat, api_ollama_generate;

#endif
