#include "support/llama_keys.h"

#include <check.h>
#include <string.h>

const struct number_key llama_shape[N_LLAMA_SHAPE] = {
    {"llama.block_count", 2},          {"llama.context_length", 256},
    {"llama.embedding_length", 64},    {"llama.feed_forward_length", 96},
    {"llama.attention.head_count", 4}, {"llama.attention.head_count_kv", 2},
    {"llama.vocab_size", 6},
};

const char llama_epsilon_key[] = "llama.attention.layer_norm_rms_epsilon";

static const char *const words[N_LLAMA_WORDS] = {"a",          "b",          "</s>",
                                                 "<|im_end|>", "<|eot_id|>", "<|end|>"};
const int32_t llama_word_types[N_LLAMA_WORDS] = {1, 1, 3, 3, 4, 3};

void llama_keys_tokenizer(struct gguf_writer *writer, const char *without) {
    static const char *const merges[] = {"a b"};
    if (strcmp(without, "tokenizer.ggml.model") != 0)
        gguf_writer_string(writer, "tokenizer.ggml.model", "gpt2");
    if (strcmp(without, "tokenizer.ggml.tokens") != 0)
        gguf_writer_strings(writer, "tokenizer.ggml.tokens", words, NULL, N_LLAMA_WORDS);
    if (strcmp(without, "tokenizer.ggml.token_type") != 0)
        gguf_writer_array(writer, "tokenizer.ggml.token_type", GGUF_INT32, N_LLAMA_WORDS,
                          llama_word_types, sizeof llama_word_types);
    if (strcmp(without, "tokenizer.ggml.merges") != 0)
        gguf_writer_strings(writer, "tokenizer.ggml.merges", merges, NULL, 1);
}

void llama_keys(struct gguf_writer *writer, const char *without) {
    if (strcmp(without, "general.architecture") != 0)
        gguf_writer_string(writer, "general.architecture", "llama");
    for (size_t i = 0; i < N_LLAMA_SHAPE; i++) {
        if (strcmp(without, llama_shape[i].key) != 0)
            gguf_writer_u32(writer, llama_shape[i].key, llama_shape[i].value);
    }
    if (strcmp(without, llama_epsilon_key) != 0) gguf_writer_f32(writer, llama_epsilon_key, 1e-5f);
    llama_keys_tokenizer(writer, without);
}

struct gguf *llama_keys_open(struct gguf_writer *writer, struct buf *file) {
    struct gguf *gguf = NULL;
    struct err err = {0};
    gguf_writer_finish(writer, file);
    gguf_writer_free(writer);
    enum status status = gguf_open_memory(&gguf, file->data, file->length, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    return gguf;
}
