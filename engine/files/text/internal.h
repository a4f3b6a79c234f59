/* Shared functions of this folder's readers: files, messages, and the memory of a spec's
 * strings. */
#ifndef PENSTOCK_FILES_TEXT_INTERNAL_H
#define PENSTOCK_FILES_TEXT_INTERNAL_H

#include "config/json.h"
#include "engine/files/text/folder_text.h"

enum {
    MAX_VOCABULARY_IDS = 1 << 19, /* half a million: the limit of the sums in sampling */
    MAX_TOKEN_BYTES = UINT16_MAX,
    MAX_FILE_STEPS = 64, /* per list; the tokenizer has further limits */
    MAX_CONFIG_BYTES = 16 << 20,
};
#define MAX_TOKENIZER_BYTES ((size_t)128 << 20)
#define MAX_TOKENIZER_VALUES (6 << 20) /* each merge in the form of a pair is three values */

/* The memory that a spec points into: the spec's `owner`. */
struct holder {
    struct holder_part *parts;
    struct tokenizer_keys keys;
    char *file; /* the path and ": " */
};

/* One file while it is read. */
struct reading {
    const char *path; /* of the file, for messages */
    struct tokenizer_spec *spec;
    struct holder *holder; /* spec->owner */
    int V;                 /* of the model; 0: unknown */
    int capacity;          /* number of tokens that fit into the spec's arrays */
    int n_scores;          /* entries of spec->score */
    struct err *err;
};

/* Begins an empty spec. `keys` are the file's names for its parts. */
void reading_begin(struct reading *reading, struct tokenizer_spec *spec, const char *path, int V,
                   const struct tokenizer_keys *keys, struct err *err);
/* Frees the spec's contents if the status is an error. Returns the status. */
enum status reading_end(struct reading *reading, enum status status);
/* Allocate memory, or keep a tree, until the spec is freed. */
void *holder_alloc(struct holder *holder, size_t bytes);
void holder_keep_tree(struct holder *holder, struct json *tree);
void holder_keep_memory(struct holder *holder, void *memory); /* from malloc */

/* "PATH: key KEY: expected EXPECTED, found FOUND". */
enum status bad_key(const struct reading *reading, const char *key, const char *expected,
                    const char *found, ...) __attribute__((format(printf, 4, 5)));
/* Returns text that describes a value for `found`: "a string", "nothing", or a short string
 * itself. */
const char *found_name(const struct json *value, char out[96]);

/* Finds a member of the required type. may_member also accepts a missing member or null: *out is
 * then NULL. */
enum status need_member(const struct reading *reading, const struct json *object, const char *name,
                        const char *key, enum json_type type, const struct json **out);
enum status may_member(const struct reading *reading, const struct json *object, const char *name,
                       const char *key, enum json_type type, const struct json **out);
enum status read_flag(const struct reading *reading, const struct json *object, const char *name,
                      const char *key, bool otherwise, bool *out);

/* Defines token `id`: its text, type and rules. Fails if the id is out of range or belongs to a
 * token with another spelling. `name` must be valid until the spec is freed. */
enum status add_token(struct reading *reading, const char *key, int64_t id, struct span name,
                      int type, uint8_t rules);
/* Adds all tokens of a BPE vocabulary, {"token": id, ...}. */
enum status add_tokens(struct reading *reading, const struct json *vocabulary);
/* Returns the id of a spelling after a search through all tokens; -1 if it is unknown. */
int32_t find_token(const struct reading *reading, const char *name, size_t length);
/* Pads the vocabulary with unused tokens up to V, and the scores with zeros. */
enum status finish_tokens(struct reading *reading);

/* Decodes base64 into out, which has a capacity of `length` bytes. Returns false if the text is not
 * base64. */
bool base64_decode(const char *text, size_t length, char *out, size_t *n);

/* ---- files ---------------------------------------------------------------------------------- */

/* Reads a whole file of the folder. *text is from malloc, or NULL if the file does not exist. Fails
 * if it cannot be read or has more than `max` bytes. */
enum status read_file(const char *folder, const char *name, size_t max, char **text, size_t *length,
                      struct err *err);
/* Reads a JSON object from a file of the folder; *out is NULL if the file does not exist. */
enum status read_object(const char *folder, const char *name, struct json **out, struct err *err);
/* Parses a JSON object from text, within the limits for tokenizer files. */
enum status parse_object(const char *path, const char *text, size_t length, struct json **out,
                         struct err *err);

/* ---- the parts ------------------------------------------------------------------------------ */

/* Fill the spec's steps, and the tokens before and after a text (tokenizer_steps.c). */
enum status read_normalizers(struct reading *reading, const struct json *root);
enum status read_pre_tokenizers(struct reading *reading, const struct json *root);
enum status read_decoders(struct reading *reading, const struct json *root);
enum status read_post_processor(struct reading *reading, const struct json *root);
/* Reads an added token's rules from lstrip, rstrip, single_word and normalized
 * (tokenizer_json.c). */
enum status read_added_rules(struct reading *reading, const struct json *token, const char *key,
                             uint8_t *rules, int *type);

/* Reads tokenizer_config.json, added_tokens.json and special_tokens_map.json (tokenizer_config.c).
 * If `has_json`, tokenizer.json has already defined the added tokens and the tokens around a
 * text. */
enum status read_config(struct reading *reading, const char *folder, bool has_json);
/* Read vocab.json and merges.txt (vocab_merges.c), and tokenizer.model (sentencepiece_model.c).
 * spec->owner stays NULL if the file does not exist. */
enum status vocab_merges_read(struct tokenizer_spec *spec, const char *folder, int V,
                              struct err *err);
enum status sentencepiece_folder_read(struct tokenizer_spec *spec, const char *folder, int V,
                                      struct err *err);

#endif
