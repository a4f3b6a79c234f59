/* hf_config: a model that has no weights, only a shape: the config.json of a
 * checkpoint on Hugging Face's hub. For `--load-format dummy`. Folder-internal; one thread opens it
 * and reads the config, then any thread may read the vocabulary. */
#ifndef PENSTOCK_ENGINE_HF_CONFIG_H
#define PENSTOCK_ENGINE_HF_CONFIG_H

#include "engine/engine.h"
#include "engine/files/weights.h"

struct json;

struct hf_config {
    struct json *root;
    char name[128]; /* of the folder that the file is in */
    bool is_tied;   /* the head is the embedding; hf_config_read takes it as the default */
    enum dtype dtype;
    int V;
    char (*token)[16];      /* [V] a stand-in vocabulary */
    struct weights weights; /* the list of tensors, without data */
};

/* Opens the file at `path`, or parses text. Fails with STATUS_BAD_FILE. */
enum status hf_config_open(struct hf_config **out, const char *path, struct err *err);
enum status hf_config_parse(struct hf_config **out, const char *text, size_t length,
                            struct err *err);
void hf_config_close(struct hf_config *hf);

/* The first of "architectures", or "" with length 0. */
const char *hf_config_architecture(const struct hf_config *hf, size_t *length);

/* Fills in what the file says, in a config that its family has begun, and is_tied, dtype and V.
 * Fails with STATUS_BAD_FILE: a key that is missing or out of range, numbers that do not fit each
 * other, or a feature that the forward pass lacks: a speed measured without it would mislead. */
enum status hf_config_read(struct model_config *config, struct hf_config *hf, struct err *err);

/* A stand-in vocabulary: an unknown token, one for each byte, and names in brackets up to V. So a
 * text's tokens are its bytes, and no token ends a generation. Strings point into `hf`; the spec is
 * freed by tokenizer_spec_free. */
void hf_config_vocabulary(struct tokenizer_spec *spec, const struct hf_config *hf);

#endif
