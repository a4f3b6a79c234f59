/* model_file: a model's files in any format: a GGUF file, a folder in the layout of Hugging Face's
 * hub, or a config.json with only a shape. It reads everything that the rest of the engine needs
 * from them: the config, the vocabulary, the ids that end a generation, the chat template. The
 * functions keep no state; any thread may call them. */
#ifndef PENSTOCK_ENGINE_MODEL_FILE_H
#define PENSTOCK_ENGINE_MODEL_FILE_H

#include "engine/config/config.h"
#include "engine/files/hf_config.h"
#include "engine/files/tensors/gguf.h"
#include "engine/files/tensors/mapping.h"
#include "engine/files/text/folder_text.h"

#define MAX_TOKENS MAX_VOCABULARY /* half a million: the limit of the sums in sampling */

struct model_file {
    const char *path;
    struct gguf *gguf;       /* NULL for a folder or a config.json */
    struct hf_config *hf;    /* NULL for a GGUF file */
    bool has_stand_in;       /* for a folder whose tokenizer must not be read */
    bool guesses_ahead;      /* as in struct engine_config */
    struct hf_config *eagle; /* the folder of a head that guesses ahead, or NULL */
    const char *eagle_path;  /* the caller keeps it until model_config_read has returned */
    uint64_t stamp;          /* of its files, just before they were opened */
};

/* Why a model is opened. */
enum model_use {
    MODEL_WHOLE, /* to run it; a lone config.json is refused */
    MODEL_SHAPE, /* with random weights: a folder's weights are not opened */
    MODEL_TEXT,  /* only for the tokenizer and the chat template */
};

/* Opens the model at `path`: a folder, a config.json, or else a GGUF file. The path must outlive
 * the file. model_file_close frees it. */
enum status model_file_open(struct model_file *out, const char *path, enum model_use use,
                            struct err *err);
void model_file_close(struct model_file *file);

/* Makes the model guess ahead if the settings want it, and opens the folder of their EAGLE-3 head.
 * Call it before model_config_read; on failure the caller closes the file. */
enum status model_file_guess(struct model_file *file, const struct engine_config *config,
                             struct err *err);

/* Opens the folder of a head with float weights (hf_eagle.c). hf_config_close frees it, even after
 * a failure. */
enum status hf_eagle_open(struct hf_config **out, const char *folder, struct err *err);

/* Fails with STATUS_BAD_FILE if a folder that was given as a model is such a head. */
enum status hf_eagle_refuse(const struct hf_config *hf, struct err *err);

/* Reads the shape of that head and the layers that it reads, in a config whose last layer is the
 * head's. Fails with STATUS_BAD_FILE (hf_eagle.c). */
enum status hf_eagle_read(struct model_config *config, const struct hf_config *hf, struct err *err);

/* Fails with STATUS_BAD_FILE if a file of weights was written to after it was opened. Call it after
 * everything was read: only then do all bytes belong to one version of the file. */
enum status model_file_check(const struct model_file *file, struct err *err);

/* Puts the path of a GGUF file before the message of an error in the file, unless the message
 * begins with it. Messages about folders already name their files. Returns the status. */
enum status model_file_blame(const struct model_file *file, enum status status, struct err *err);

/* Returns a number that changes when a file that the weights depend on is replaced or written to.
 * It covers names, sizes and times of the parts of a GGUF model, or of a folder's .json and
 * .safetensors files. */
uint64_t model_file_stamp(const char *path);

/* Returns the model's tensors. Random tensors are listed by model_config_read and have NULL
 * data. */
const struct weights *model_file_weights(const struct model_file *file);

/* Returns the tensors of its EAGLE-3 head, or NULL. */
const struct weights *model_file_eagle(const struct model_file *file);

/* Reads the file's name for the model's architecture; it becomes "" if it is too long or not
 * printable. */
enum { MAX_ARCHITECTURE = 64 };
enum status model_file_architecture(char name[MAX_ARCHITECTURE], const struct model_file *file,
                                    struct err *err);

/* Fills in the file's values, in a config that its family has begun: the family chooses the norm,
 * the activation, and whether there are rotary positions. Fails with STATUS_BAD_FILE if a key is
 * missing or wrong, dimensions do not fit each other, or the model needs an unsupported feature
 * without which answers would be wrong. */
enum status model_file_config(struct model_config *config, struct model_file *file,
                              struct err *err);

/* Reads the sampling defaults in a folder's generation_config.json or a GGUF file's keys, without
 * suppressed ids from V on, the size of the model's vocabulary. Call it after model_config_read.
 * Fails with STATUS_BAD_FILE if a number is outside the range of requests. */
enum status model_file_sampling(struct sampling_defaults *out, const struct model_file *file, int V,
                                struct err *err);

/* Reads how the model's makers pool hidden vectors: modules.json of sentence-transformers and the
 * files that it names, or the key ARCHITECTURE.pooling_type. Without these, the last row of a
 * decoder is pooled, and all rows of an encoder. pooling_free frees it, also after a failure. Fails
 * with STATUS_BAD_FILE. */
enum status model_file_pooling(struct pooling *out, const struct model_file *file,
                               const struct model_config *config, struct err *err);
void pooling_free(struct pooling *pooling);

/* Appends a layer to a head: a matrix [outputs][n_in], or [outputs][outputs of the layer before],
 * and a bias or NULL. Fails with STATUS_BAD_FILE if their shapes differ (heads.c). */
enum status head_add(struct head *head, const struct weight *weight, const struct weight *bias,
                     int n_in, enum head_activation activation, struct err *err);
void head_free(struct head *head);

/* Reads a head for sequence classification: a folder's score or classifier with the labels of
 * config.json, or cls.output of a GGUF file with ARCHITECTURE.classifier.output_labels. A model
 * without one gives a head without layers. classifier_free frees it, also after a failure. Fails
 * with STATUS_BAD_FILE (heads.c). */
enum status classifier_read(struct classifier *out, const struct model_file *file,
                            const struct model_config *config, struct err *err);
void classifier_free(struct classifier *classifier);

/* Is it a tensor of a head after pooling, by its name in a GGUF file or in a folder whose class
 * classifies sequences? */
bool is_head_tensor(const char *name, bool in_gguf);
/* Is `name` the class, or the class of the same model with a head that classifies? */
bool is_class_or_classifier(const char *name, const char *class);
/* Does the class of a folder's config.json classify sequences? */
bool hf_config_classifies(const struct hf_config *hf);

/* Appends the step Dense in the folder `step` of the model's folder. *served becomes false, and
 * nothing is appended, if the step has another activation or no safetensors (heads.c). */
enum status dense_step_read(struct head *head, const char *folder, const char *step, int n_in,
                            bool *served, struct err *err);

/* ---- text ----------------------------------------------------------------------------------- */

/* Fills `spec`. Its strings point into the file, which must outlive it. The spec owns the arrays of
 * pointers, lengths, types and scores; tokenizer_spec_free frees them and also accepts an all-zero
 * spec. Fails with STATUS_BAD_FILE if arrays differ in length, an id is outside the vocabulary, or
 * the kind of tokenizer is unknown. */
enum status tokenizer_spec_read(struct tokenizer_spec *spec, const struct model_file *file,
                                struct err *err);
void tokenizer_spec_free(struct tokenizer_spec *spec);

/* Reads the model's chat templates or, if `given` is not NULL, the template in the file `given`
 * instead. The caller frees them with folder_templates_free. */
enum status chat_templates_read(struct folder_templates *out, const struct model_file *file,
                                const char *given, struct err *err);

/* Capacity for every result of end_ids_read. */
#define MAX_END_IDS 24

/* Fills ids[MAX_END_IDS] with the tokens that end a generation, without duplicates, and *n with
 * their number. For a folder they are eos_token_id of generation_config.json, or else of
 * config.json, and no others. For a GGUF file, and a folder without these keys, they are
 *   - the end of text of tokenizer.ggml.eos_token_id, eot_token_id and eom_token_id, or of the
 *     folder's tokenizer;
 *   - the tokens spelled like an end ("<|im_end|>", "<|eot_id|>", ...) that are control tokens or
 *     that a template writes;
 *   - without <|end|> in vocabularies of formats in which it ends a message inside an answer.
 * `templates` may be all zero. Fails with STATUS_BAD_FILE for an id outside the vocabulary. */
enum status end_ids_read(int32_t *ids, int *n, const struct model_file *file,
                         const struct tokenizer_spec *spec,
                         const struct folder_templates *templates, struct err *err);

/* ---- the readers ---------------------------------------------------------------------------- */

enum status gguf_config_read(struct model_config *config, const struct gguf *gguf, const char *path,
                             struct err *err);

/* Reads the keys of encoders, after all others. Does nothing for other models. */
enum status gguf_latent_read(struct model_config *config, const struct gguf *gguf, struct err *err);
enum status gguf_encoder_read(struct model_config *config, const struct gguf *gguf,
                              struct err *err);

/* The same for gated delta rules: their shape, and the layers that have them; and for state
 * spaces, whose layers are known from the numbers of key-value heads. */
enum status gguf_delta_read(struct model_config *config, const struct gguf *gguf, struct err *err);
enum status gguf_space_read(struct model_config *config, const struct gguf *gguf, struct err *err);

/* Finds the parts of layers. Layers without key-value heads are recurrent, or with single parts an
 * MLP if they have a width. */
void gguf_mark_parts(struct model_config *config, bool is_list, const int F[MAX_LAYERS],
                     const int G[MAX_LAYERS]);

/* Reads the shape of the matrices that recurrent layers keep, which both have. */
enum status gguf_state_shape(struct model_config *config, const struct gguf *gguf, struct err *err);

/* The numeric sampling defaults: their keys in generation_config.json and in GGUF files, and their
 * ranges, which are those of requests. */
struct sampling_number {
    const char *key, *gguf;
    double min, max;
    size_t at; /* offset in struct sampling_defaults */
};
enum { N_SAMPLING_NUMBERS = 4 };
extern const struct sampling_number sampling_numbers[N_SAMPLING_NUMBERS];
double *sampling_number_of(struct sampling_defaults *defaults,
                           const struct sampling_number *number);

/* Reads the "general.sampling." keys and the suppressed ids of a GGUF file. */
#define SUPPRESS_KEY "tokenizer.ggml.suppress_tokens"
enum status gguf_sampling_read(struct sampling_defaults *out, const struct gguf *gguf, int V,
                               struct err *err);
enum status gguf_tokenizer_read(struct tokenizer_spec *spec, const struct gguf *gguf,
                                struct err *err);
/* Adds BERT's steps to a spec of its kind, and the form of pairs of encoders (gguf_bert.c). */
enum status gguf_bert_read(struct tokenizer_spec *spec, const struct gguf *gguf, struct err *err);

#endif
