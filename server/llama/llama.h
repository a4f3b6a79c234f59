/* server/llama: llama-server's own /completion. Its fields have the names that /v1/completions also
 * takes, so that parser checks them; only the answers differ. Pure functions over strings: no
 * sockets, no threads, no model.
 *
 * Specification: tools/server/README.md of llama.cpp. */
#ifndef PENSTOCK_SERVER_LLAMA_H
#define PENSTOCK_SERVER_LLAMA_H

#include "server/openai/openai.h"

extern const struct api api_llama_completion;

#endif
