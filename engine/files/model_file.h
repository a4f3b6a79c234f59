/* model_file: a model's files, whatever their format: a GGUF file, a folder as Hugging Face's hub
 * has it, or a config.json that has only a shape. What the rest of the engine needs to know of them
 * is read here: the config, the vocabulary, the ids that end a generation, the chat template. The
 * door of engine/files/, with weights.h; the functions keep nothing and may be called by any
 * thread. */
#ifndef PENSTOCK_ENGINE_MODEL_FILE_H
#define PENSTOCK_ENGINE_MODEL_FILE_H

#include "engine/engine.h"
#include "engine/files/gguf.h"
#include "engine/files/hf_config.h"
#include "engine/files/mapping.h"
#include "engine/files/text/folder_text.h"

#define MAX_TOKENS MAX_VOCABULARY /* half a million: what sampling can add up */

struct model_file {
    const char *path;
    struct gguf *gguf;    /* NULL: it is a folder or a config.json */
    struct hf_config *hf; /* NULL: it is a GGUF file */
    bool has_stand_in;    /* a folder whose own tokenizer is not to be read */
    uint64_t stamp;       /* of its files just before they were opened */
};

/* What a model is opened for. */
enum model_use {
    MODEL_WHOLE, /* a config.json alone is refused */
    MODEL_SHAPE, /* weights are random: those of a folder are not opened */
    MODEL_TEXT,  /* only the tokenizer is read, and the chat template */
};

/* Opens what is at `path`: a folder, a config.json, or else a GGUF file. The path must outlive the
 * file. model_file_close frees what was opened. */
enum status model_file_open(struct model_file *out, const char *path, enum model_use use,
                            struct err *err);
void model_file_close(struct model_file *file);

/* Fails with STATUS_BAD_FILE if a file of weights was written to since it was opened. Call it once
 * all was read: before that, no byte is known to be of one file. */
enum status model_file_check(const struct model_file *file, struct err *err);

/* Puts a GGUF file's path before the message of an error that is the file's, unless it is there.
 * Messages about folders name their files already. Returns the status. */
enum status model_file_blame(const struct model_file *file, enum status status, struct err *err);

/* A number that changes when a file that the weights depend on is replaced or written to: of names,
 * sizes and times of a GGUF model's parts, and of a folder's .json and .safetensors. */
uint64_t model_file_stamp(const char *path);

/* Its tensors. Random ones are listed by model_config_read and have no data. */
const struct weights *model_file_weights(const struct model_file *file);

/* What the file calls its model's architecture, as far as that may be shown. */
enum { MAX_ARCHITECTURE = 64 };
enum status model_file_architecture(char name[MAX_ARCHITECTURE], const struct model_file *file,
                                    struct err *err);

/* Fills in what the file says, in a config that its family has begun: it says which norm, which
 * activation, and whether there are rotary positions. Fails with STATUS_BAD_FILE: a key that is
 * missing or wrong, letters that do not fit each other, or a feature (scaled RoPE, experts) that
 * would silently give wrong answers. */
enum status model_file_config(struct model_config *config, struct model_file *file,
                              struct err *err);

/* What a folder's generation_config.json or a GGUF file's keys say of sampling, once
 * model_config_read has read the file. Fails with STATUS_BAD_FILE where a key has a number that no
 * request may have. */
enum status model_file_sampling(struct sampling_defaults *out, const struct model_file *file,
                                struct err *err);

/* ---- text ----------------------------------------------------------------------------------- */

/* Fills `spec`. Its strings point into the file, which must outlive it; the arrays of pointers,
 * lengths, types and scores are the spec's and are freed by tokenizer_spec_free, which also takes
 * an all-zero spec. Fails with STATUS_BAD_FILE: arrays that differ in length, an id outside the
 * vocabulary, an unknown kind of tokenizer. */
enum status tokenizer_spec_read(struct tokenizer_spec *spec, const struct model_file *file,
                                struct err *err);
void tokenizer_spec_free(struct tokenizer_spec *spec);

/* Room for all that end_ids_read can find. */
#define MAX_END_IDS 16

/* Fills ids[MAX_END_IDS] with the tokens that end a generation, without duplicates, and *n with
 * their number: those that tokenizer.ggml.eos_token_id, eot_token_id and eom_token_id name, or the
 * eos_token_id of a folder's generation_config.json or config.json; and the control tokens that are
 * spelt as an end of turn is ("<|im_end|>", "<|eot_id|>", ...). Fails with STATUS_BAD_FILE for an
 * id outside the vocabulary. */
enum status end_ids_read(int32_t *ids, int *n, const struct model_file *file,
                         const struct tokenizer_spec *spec, struct err *err);

/* The model's chat templates, or instead of them the one in the file `given` (NULL: none is given).
 * The caller frees them with folder_templates_free. */
enum status chat_templates_read(struct folder_templates *out, const struct model_file *file,
                                const char *given, struct err *err);

/* ---- the readers ---------------------------------------------------------------------------- */

enum status gguf_config_read(struct model_config *config, const struct gguf *gguf, const char *path,
                             struct err *err);

/* Defaults of sampling that are numbers: their keys in generation_config.json and in GGUF files,
 * and the ranges, those of requests. */
struct sampling_number {
    const char *key, *gguf;
    double min, max;
    size_t at; /* in struct sampling_defaults */
};
enum { N_SAMPLING_NUMBERS = 4 };
extern const struct sampling_number sampling_numbers[N_SAMPLING_NUMBERS];
double *sampling_number_of(struct sampling_defaults *defaults,
                           const struct sampling_number *number);

/* The keys "general.sampling." of a GGUF file. */
enum status gguf_sampling_read(struct sampling_defaults *out, const struct gguf *gguf,
                               struct err *err);
enum status gguf_tokenizer_read(struct tokenizer_spec *spec, const struct gguf *gguf,
                                struct err *err);

/* Bytes of the first character of text[length], or 0 when it should not be shown as it stands:
 * invalid UTF-8, or a control character, with which a file could steer a terminal. */
size_t printable_prefix(const char *text, size_t length);

/* May text[length] go into logs and JSON as it stands? */
bool is_printable(const char *text, size_t length);

#endif
