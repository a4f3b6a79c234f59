/* What the readers of this folder share: files, messages, and what a spec's strings live in. */
#ifndef PENSTOCK_FILES_TEXT_INTERNAL_H
#define PENSTOCK_FILES_TEXT_INTERNAL_H

#include "config/json.h"
#include "engine/files/text/folder_text.h"

enum {
    MAX_VOCABULARY_IDS = 1 << 19, /* half a million: what sampling can add up */
    MAX_TOKEN_BYTES = 1 << 16,
    MAX_FILE_STEPS = 64, /* of one list; the tokenizer bounds them further */
    MAX_CONFIG_BYTES = 16 << 20,
};
#define MAX_TOKENIZER_BYTES ((size_t)128 << 20)
#define MAX_TOKENIZER_VALUES (6 << 20) /* merges as pairs are three values each */

/* What a spec points into. The spec's `owner`. */
struct holder {
    struct holder_part *parts;
    struct tokenizer_keys keys;
    char *file; /* the path and ": " */
};

/* One file as it is read. */
struct reading {
    const char *path; /* of the file, for messages */
    struct tokenizer_spec *spec;
    struct holder *holder; /* spec->owner */
    int V;                 /* of the model; 0: not known */
    int capacity;          /* tokens that the spec's arrays have room for */
    int n_scores;          /* entries of spec->score */
    struct err *err;
};

/* Begins a spec that holds nothing yet. `keys` says how the file calls its parts. */
void reading_begin(struct reading *reading, struct tokenizer_spec *spec, const char *path, int V,
                   const struct tokenizer_keys *keys, struct err *err);
/* On failure frees what the spec holds, and returns the status. */
enum status reading_end(struct reading *reading, enum status status);
/* Memory, or a tree, that lives as long as the spec. */
void *holder_alloc(struct holder *holder, size_t bytes);
void holder_keep_tree(struct holder *holder, struct json *tree);
void holder_keep_memory(struct holder *holder, void *memory); /* malloc'd */

/* "PATH: key KEY: expected EXPECTED, found FOUND". */
enum status bad_key(const struct reading *reading, const char *key, const char *expected,
                    const char *found, ...) __attribute__((format(printf, 4, 5)));
/* What a value is, for `found`: "a string", "nothing"; of a short text the text itself. */
const char *found_name(const struct json *value, char out[96]);

/* A member that must be of a type; or that may be missing (*out is then NULL), as null counts. */
enum status need_member(const struct reading *reading, const struct json *object, const char *name,
                        const char *key, enum json_type type, const struct json **out);
enum status may_member(const struct reading *reading, const struct json *object, const char *name,
                       const char *key, enum json_type type, const struct json **out);
enum status read_flag(const struct reading *reading, const struct json *object, const char *name,
                      const char *key, bool otherwise, bool *out);

/* Makes token `id` exist: its text, type, rules. Checks the range, and that a token with another
 * spelling does not have the id. `name` must live as long as the spec. */
enum status add_token(struct reading *reading, const char *key, int64_t id, struct span name,
                      int type, uint8_t rules);
/* All tokens of a BPE's vocabulary, {"token": id, ...}. */
enum status add_tokens(struct reading *reading, const struct json *vocabulary);
/* The id of the spelling, by a search through all tokens; -1: none. */
int32_t find_token(const struct reading *reading, const char *name, size_t length);
/* Pads the vocabulary with unused tokens up to V, and the scores with zeros. */
enum status finish_tokens(struct reading *reading);

/* Decodes base64 into out, which has room for `length` bytes. False if it is none. */
bool base64_decode(const char *text, size_t length, char *out, size_t *n);

/* ---- files ---------------------------------------------------------------------------------- */

/* Reads a whole file of the folder; *text is malloc'd, and NULL if there is no such file. Fails if
 * it cannot be read or has more than `max` bytes. */
enum status read_file(const char *folder, const char *name, size_t max, char **text, size_t *length,
                      struct err *err);
/* The same as a tree, NULL where there is no such file. It must be a JSON object. */
enum status read_object(const char *folder, const char *name, struct json **out, struct err *err);
/* A JSON object from text, with the bounds of a tokenizer's file. */
enum status parse_object(const char *path, const char *text, size_t length, struct json **out,
                         struct err *err);
/* The path of a file of the folder; the caller frees it. */
char *path_of(const char *folder, const char *name);

/* ---- the parts ------------------------------------------------------------------------------ */

/* Fill the spec's steps, and what is put around a text (tokenizer_steps.c). */
enum status read_normalizers(struct reading *reading, const struct json *root);
enum status read_pre_tokenizers(struct reading *reading, const struct json *root);
enum status read_decoders(struct reading *reading, const struct json *root);
enum status read_post_processor(struct reading *reading, const struct json *root);
/* An added token's rules from lstrip, rstrip, single_word and normalized (tokenizer_json.c). */
enum status read_added_rules(struct reading *reading, const struct json *token, const char *key,
                             uint8_t *rules, int *type);

/* What tokenizer_config.json, added_tokens.json and special_tokens_map.json add
 * (tokenizer_config.c). `has_json`: tokenizer.json has said which tokens are added and what is put
 * around a text. */
enum status read_config(struct reading *reading, const char *folder, bool has_json);
/* From vocab.json and merges.txt (vocab_merges.c), and from tokenizer.model
 * (sentencepiece_model.c); spec->owner stays NULL where there is no such file. */
enum status vocab_merges_read(struct tokenizer_spec *spec, const char *folder, int V,
                              struct err *err);
enum status sentencepiece_folder_read(struct tokenizer_spec *spec, const char *folder, int V,
                                      struct err *err);

#endif
