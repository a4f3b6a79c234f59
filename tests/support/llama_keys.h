/* llama_keys: the keys of a valid GGUF file of a tiny llama. Tests write a part of them, and add
 * wrong ones. */
#ifndef PENSTOCK_TESTS_LLAMA_KEYS_H
#define PENSTOCK_TESTS_LLAMA_KEYS_H

#include "engine/files/tensors/gguf.h"
#include "support/gguf_writer.h"

struct number_key {
    const char *key;
    uint32_t value;
};

enum { N_LLAMA_SHAPE = 7, N_LLAMA_WORDS = 6 };

/* The numbers that define the shape of a model. */
extern const struct number_key llama_shape[N_LLAMA_SHAPE];

/* The key of the epsilon of its norms. */
extern const char llama_epsilon_key[];

/* The kinds of the vocabulary's entries. Each of the last four ends a text in some model. */
extern const int32_t llama_word_types[N_LLAMA_WORDS];

/* Writes the keys of the vocabulary except one; "": all of them. */
void llama_keys_tokenizer(struct gguf_writer *writer, const char *without);

/* Writes the keys of a valid model except one, which the test writes differently or omits. */
void llama_keys(struct gguf_writer *writer, const char *without);

/* Opens the written file, and ends the writer. Free *file after the result is closed. */
struct gguf *llama_keys_open(struct gguf_writer *writer, struct buf *file);

#endif
