/* engine/files/text: the tokenizer and the chat templates of a folder as Hugging Face's hub has it.
 *
 * Each reader fills a `struct tokenizer_spec` (engine/text/text.h), which engine/text builds the
 * tokenizer from. Files come from anywhere: each value is checked, sizes are bounded, and what is
 * not known is refused by its name. Every failure is one sentence with the file, the key, what was
 * expected and what was found. Nothing is kept; any thread may call.
 */
#ifndef PENSTOCK_FOLDER_TEXT_H
#define PENSTOCK_FOLDER_TEXT_H

#include "engine/text/text.h"

/* Fills `spec` from the first of these in the folder: tokenizer.json; vocab.json with merges.txt;
 * tokenizer.model (SentencePiece); tekken.json. tokenizer_config.json names the special tokens.
 * `V` is the size of the model's vocabulary: ids that the files leave out up to it are unused
 * tokens, and added tokens beyond it, which the model cannot compute, are left out. 0: as many as
 * the files have. What the spec holds is freed by release(owner). Fails with STATUS_BAD_FILE. */
enum status hf_tokenizer_read(struct tokenizer_spec *spec, const char *folder, int V,
                              struct err *err);

/* The same for one file's text, without the files beside it; for tests. `path` is for messages. */
enum status tokenizer_json_read(struct tokenizer_spec *spec, const char *path, const char *text,
                                size_t length, int V, struct err *err);
enum status sentencepiece_model_read(struct tokenizer_spec *spec, const char *path,
                                     const char *bytes, size_t length, int V, struct err *err);
enum status tekken_json_read(struct tokenizer_spec *spec, const char *path, const char *text,
                             size_t length, int V, struct err *err);

/* Fills a spec from what a SentencePiece model says of its normalizer: `map` is its
 * precompiled_charsmap. The spec's owner holds the steps. */
void sentencepiece_normalizers(struct tokenizer_spec *spec, struct span map, bool squeeze_spaces);

/* A model's chat templates. NULL: there is none. folder_templates_free frees all of it. */
struct folder_templates {
    char *text;
    size_t length;
    char *tools_text; /* the one for requests with tools, if the folder has one of its own */
    size_t tools_length;
    char *file, *tools_file; /* which they are from; NULL: keys of a GGUF file */
};

/* Reads chat_template.jinja with additional_chat_templates/tool_use.jinja, or else the field
 * chat_template of tokenizer_config.json: a text, or a list of named ones (`default`, `tool_use`);
 * or else that field of chat_template.json, which models with pictures have. Fails with
 * STATUS_BAD_FILE. */
enum status folder_templates_read(struct folder_templates *out, const char *folder,
                                  struct err *err);
void folder_templates_free(struct folder_templates *templates);

/* Compiles a template that is from `file`, which a message about it begins with; NULL: from a GGUF
 * file, which the caller names. Otherwise as chat_template_new. */
enum status folder_template_new(struct chat_template **out, const char *text, size_t length,
                                const char *file, struct err *err);

/* Reads a template from a file of its own, which must be there. */
enum status template_file_read(struct folder_templates *out, const char *path, struct err *err);

#endif
