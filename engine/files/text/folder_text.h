/* engine/files/text: the tokenizer and the chat templates of a folder in the layout of Hugging
 * Face's hub.
 *
 * Each reader fills a `struct tokenizer_spec` (engine/text/text.h), from which engine/text builds
 * the tokenizer. Files are untrusted: each value is checked, sizes are bounded, and unknown
 * features are refused by name. Every error is one sentence with the file, the key, the expected
 * and the found value. The functions keep no state; any thread may call them.
 */
#ifndef PENSTOCK_FOLDER_TEXT_H
#define PENSTOCK_FOLDER_TEXT_H

#include "engine/text/text.h"

/* Fills `spec` from the first of these in the folder: tokenizer.json; vocab.json with merges.txt;
 * tokenizer.model (SentencePiece); tekken.json. tokenizer_config.json names the special tokens. `V`
 * is the size of the model's vocabulary; 0: the size in the files. Missing ids below V become
 * unused tokens. Added tokens from V on are left out, because the model cannot compute them.
 * release(owner) frees the spec's contents. Fails with STATUS_BAD_FILE. */
enum status hf_tokenizer_read(struct tokenizer_spec *spec, const char *folder, int V,
                              struct err *err);

/* Read one file's text without the other files of its folder; for tests. `path` is for messages. */
enum status tokenizer_json_read(struct tokenizer_spec *spec, const char *path, const char *text,
                                size_t length, int V, struct err *err);
enum status sentencepiece_model_read(struct tokenizer_spec *spec, const char *path,
                                     const char *bytes, size_t length, int V, struct err *err);
enum status tekken_json_read(struct tokenizer_spec *spec, const char *path, const char *text,
                             size_t length, int V, struct err *err);

/* Fills a spec's normalizers from the settings of a SentencePiece model. `map` is its
 * precompiled_charsmap. The spec owns the steps. */
void sentencepiece_normalizers(struct tokenizer_spec *spec, struct span map, bool squeeze_spaces);

/* A model's chat templates, or NULL. folder_templates_free frees all of it. */
struct folder_templates {
    char *text;
    size_t length;
    char *tools_text; /* the template for requests with tools, if the folder has a separate one */
    size_t tools_length;
    char *file, *tools_file; /* their source files; NULL: keys of a GGUF file */
};

/* Reads chat_template.jinja, or else the field chat_template of tokenizer_config.json: a text, or a
 * list of named ones (`default`, `tool_use`); or else that field of chat_template.json, a file of
 * models with images. The template for tools may also be in
 * additional_chat_templates/tool_use.jinja. Fails with STATUS_BAD_FILE. */
enum status folder_templates_read(struct folder_templates *out, const char *folder,
                                  struct err *err);
void folder_templates_free(struct folder_templates *templates);

/* Compiles a template from `file`; messages begin with the file's name. NULL: from a GGUF file,
 * which the caller names. Otherwise like chat_template_new. */
enum status folder_template_new(struct chat_template **out, const char *text, size_t length,
                                const char *file, struct err *err);

/* Reads a template from a separate file. Fails if the file does not exist. */
enum status template_file_read(struct folder_templates *out, const char *path, struct err *err);

#endif
