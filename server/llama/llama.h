/* server/llama: llama-server's own /completion, /props and /slots. The fields of /completion have
 * the names that /v1/completions also takes, so that parser checks them; only the answers differ.
 * Pure functions over strings: no sockets, no threads, no model.
 *
 * Specification: tools/server/README.md of llama.cpp. */
#ifndef PENSTOCK_SERVER_LLAMA_H
#define PENSTOCK_SERVER_LLAMA_H

#include "server/openai/openai.h"

extern const struct api api_llama_completion, api_llama_infill, api_llama_embedding;

/* ---- props.c: descriptions of the server ---------------------------------------------------- */

/* The server, as far as llama-server's paths describe it. */
struct llama_card {
    const struct api_limits *limits;
    int n_slots;                      /* sequences that run at a time; > 0 */
    const struct chat_template *chat; /* or NULL */
    const struct tokenizer *tokenizer;
};

/* Writes the answer of /props. `model_path` is the model's name: a path is not for clients. */
void llama_write_props(struct buf *out, const struct llama_card *card);

/* Writes the answer of /slots: the first n_running slots are busy. It contains nothing that a
 * client wrote. */
void llama_write_slots(struct buf *out, const struct llama_card *card, int n_running);

/* Writes the answer of /apply-template: the rendered text. */
void llama_write_prompt(struct buf *out, const char *text, size_t length);

#endif
