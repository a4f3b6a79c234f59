/* model_file: what the rest of the program needs to know of a GGUF file, read from its keys: the
 * model's shape, its vocabulary, the ids that end a generation. Folder-internal; the functions keep
 * nothing and may be called by any
 * thread. */
#ifndef PENSTOCK_ENGINE_MODEL_FILE_H
#define PENSTOCK_ENGINE_MODEL_FILE_H

#include "engine/engine.h"
#include "engine/gguf.h"

#define MAX_TOKENS MAX_VOCABULARY /* half a million: what sampling can add up */

/* Opens the file that config->model names: a GGUF file, or for config->dummy a config.json, which
 * becomes one without data (hf_config.h). gguf_close frees it. */
enum status model_file_open(struct gguf **out, const struct engine_config *config, struct err *err);

/* Fills `info` from the keys of a llama model. `path` gives the name where the file has none. Fails
 * with STATUS_BAD_FILE: another architecture, a key that is missing or wrong, letters that do not
 * fit each other, or a feature (scaled RoPE, experts, a sliding window) that would silently give
 * wrong answers. */
enum status model_info_read(struct model_info *info, const struct gguf *gguf, const char *path,
                            struct err *err);

/* Fills `spec` from the tokenizer's keys. Strings point into the file, which must outlive the spec;
 * the arrays of pointers, lengths, types and scores are the spec's and go with tokenizer_spec_free,
 * which also takes an all-zero spec. Fails with STATUS_BAD_FILE: arrays that differ in length, an
 * id outside the vocabulary, an unknown kind of tokenizer. */
enum status tokenizer_spec_read(struct tokenizer_spec *spec, const struct gguf *gguf,
                                struct err *err);
void tokenizer_spec_free(struct tokenizer_spec *spec);

/* Room for all that end_ids_collect can find. */
#define MAX_END_IDS 16

/* Fills ids[MAX_END_IDS] with the tokens that end a generation, without duplicates, and *n with
 * their number: those that tokenizer.ggml.eos_token_id, eot_token_id and eom_token_id name, and the
 * control tokens that are spelt as an end of turn is ("<|im_end|>", "<|eot_id|>", ...). Fails with
 * STATUS_BAD_FILE for an id outside the vocabulary. */
enum status end_ids_collect(int32_t *ids, int *n, const struct gguf *gguf,
                            const struct tokenizer_spec *spec, struct err *err);

/* The chat template's text (not NUL-terminated, in the file), or NULL when the file has none. */
enum status chat_template_text(const struct gguf *gguf, const char **text, size_t *length,
                               struct err *err);

/* Bytes of the first character of text[length], or 0 when it should not be shown as it stands: no
 * UTF-8, or a control character, with which a file could steer a terminal. */
size_t showable_bytes(const char *text, size_t length);

#endif
