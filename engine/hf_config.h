/* hf_config: a model that has no weights, only a shape: the config.json that stands beside a
 * checkpoint on Hugging Face's hub. For `--load-format dummy`.
 *
 * hf_config_read takes the shape out of the JSON; hf_config_open lays a GGUF file out in memory
 * that has it: the keys, the list of tensors, a stand-in vocabulary, and where the tensors' data
 * would be a hole, which nobody may read for numbers. So all that works with a file works with a
 * config.json. Folder-internal; the functions keep nothing and may be called by any thread.
 */
#ifndef PENSTOCK_ENGINE_HF_CONFIG_H
#define PENSTOCK_ENGINE_HF_CONFIG_H

#include "engine/gguf.h"

/* How Llama 3.1 and later stretch RoPE to contexts longer than those that they were first trained
 * for: `rope_type` "llama3". */
struct rope_stretch {
    bool is_asked;
    double factor, low_freq_factor, high_freq_factor;
    int original_context;
};

struct hf_config {
    int V, K, F, L, H, G, D; /* letters of kernels.h */
    int context_length;
    double rope_theta, rms_epsilon;
    struct rope_stretch stretch;
    bool tied; /* the head is the embedding */
    enum dtype dtype;
};

/* Reads a config of the llama family (LlamaForCausalLM, MistralForCausalLM). Fails with
 * STATUS_BAD_FILE: no JSON, another architecture, a key that is missing or out of range, numbers
 * that do not fit each other, or a feature that the forward pass has not. */
enum status hf_config_read(struct hf_config *out, const char *text, size_t length, struct err *err);

/* Lays out a file of that shape; `name` is its general.name, or empty. gguf_close frees it. The
 * vocabulary is a stand-in: an unknown token, one for each byte, and names in brackets up to V. So
 * a text's tokens are its bytes, and no token ends a generation. */
enum status hf_config_lay_out(struct gguf **out, const struct hf_config *config, const char *name,
                              struct err *err);

/* Both, from the file at `path`. */
enum status hf_config_open(struct gguf **out, const char *path, struct err *err);

#endif
