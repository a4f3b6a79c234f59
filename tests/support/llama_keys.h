/* llama_keys: the keys of a right GGUF file of a tiny llama, which tests write in part, to add some
 * that are wrong. */
#ifndef PENSTOCK_TESTS_LLAMA_KEYS_H
#define PENSTOCK_TESTS_LLAMA_KEYS_H

#include "engine/files/gguf.h"
#include "support/gguf_writer.h"

struct number_key {
    const char *key;
    uint32_t value;
};

enum { N_LLAMA_SHAPE = 7, N_LLAMA_WORDS = 6 };

/* The numbers that a model's shape follows from. */
extern const struct number_key llama_shape[N_LLAMA_SHAPE];

/* The key of its norms' epsilon. */
extern const char llama_epsilon_key[];

/* Kinds of the vocabulary's entries; the last four are what ends a text in some model. */
extern const int32_t llama_word_types[N_LLAMA_WORDS];

/* The keys of the vocabulary but for one; "": all of them. */
void llama_keys_tokenizer(struct gguf_writer *writer, const char *without);

/* The keys of a right model but for one, which the test writes in its own way or leaves out. */
void llama_keys(struct gguf_writer *writer, const char *without);

/* Opens what was written, and ends the writer; *file is to be freed after the result is closed. */
struct gguf *llama_keys_open(struct gguf_writer *writer, struct buf *file);

#endif
