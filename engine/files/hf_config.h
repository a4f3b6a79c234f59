/* hf_config: a model as Hugging Face's hub has it: a folder with a config.json, weights in
 * safetensors, and generation_config.json; or a config.json alone, a shape without weights, for
 * `--load-format dummy`. Folder-internal; one thread opens it and reads the config, then any thread
 * may read the rest. */
#ifndef PENSTOCK_ENGINE_HF_CONFIG_H
#define PENSTOCK_ENGINE_HF_CONFIG_H

#include "engine/engine.h"
#include "engine/files/weights.h"

struct json;
struct safetensors;

/* Keys that turn biases on; which they are is the family's. */
enum hf_bias {
    HF_BIAS_ATTENTION,
    HF_BIAS_OUTPUT,
    HF_BIAS_QKV,
    HF_BIAS_MLP,
    HF_BIAS_ALL,
    HF_QK_NORM, /* no bias, but turned on alike */
    HF_QK_LAYERNORM,
    N_HF_BIASES
};

enum { MAX_FILE_END_IDS = 8, MIN_STAND_IN_TOKENS = 257 };

/* What quantization_config says of the tensors. */
enum packing_method {
    PACKING_NONE,
    PACKING_GPTQ,
    PACKING_AWQ,
    PACKING_COMPRESSED, /* compressed-tensors, of llm-compressor */
    PACKING_FP8,
    PACKING_MXFP4, /* of experts alone */
    PACKING_MODELOPT,
    PACKING_BITSANDBYTES,
};
struct packing {
    enum packing_method method;
    int bits;                      /* of codes in words */
    int group_size;                /* GPTQ, AWQ: inputs of a scale; -1: all; 0: it is not said */
    bool zeros_less_one;           /* GPTQ's first format stores zero points less one */
    int block_rows, block_columns; /* fp8: of a scale; 0: each matrix or row has one */
};

/* The tensors of packed matrices on their way to one weight each (hf_packing.c, hf_tables.c). */
struct joining {
    const struct packing *packing;
    const struct weights *from;
    struct weights *to;
    bool *used; /* [from->n] tensors that are a part of a weight, or that nothing is done with */
    struct err *err;
};

/* The part `base` + `suffix` of a weight, which becomes used; NULL where there is none. */
const struct weight *joining_part(struct joining *j, const char *base, const char *suffix);

/* Fails with a sentence that such a part was expected to be another one. */
enum status joining_refuse(const struct joining *j, const char *base, const char *suffix,
                           const char *expected);

/* Adds the weight `base`.weight that the parts are. */
enum status joining_add(struct joining *j, const char *base, const struct packed *p,
                        const struct weight *codes);

/* Adds a measured kind of weight, with a copy of what its rows are made of. */
enum status joining_add_weight(struct joining *j, struct weight *weight, const struct packed *p);

/* Join the blocks of experts of MXFP4; the bytes of two codes [N][K / 2] of NVFP4, whose scales are
 * floats of 8 bits and have one of their own; and those of bitsandbytes [N K / 2], with the parts
 * behind their own name. */
enum status join_mxfp4(struct joining *j, const char *base, const struct weight *blocks);
enum status join_nvfp4(struct joining *j, const char *base, const struct weight *codes);
enum status join_bitsandbytes(struct joining *j, const char *base, const struct weight *codes);

struct hf_config {
    struct json *root;
    const struct json *text;    /* the text_config of a model with other parts, otherwise root */
    char *folder;               /* NULL: config.json was given alone */
    char *path;                 /* of config.json */
    char name[128];             /* of the folder that the file is in */
    bool has_bias[N_HF_BIASES]; /* as config.json says it */
    bool is_tied;           /* the head is the embedding; hf_config_read takes it as the default */
    const char *activation; /* a name of the family's own for it, or NULL; set like is_tied */
    enum dtype dtype;
    int V;
    int n_end_ids;
    int32_t end_ids[MAX_FILE_END_IDS];
    struct sampling_defaults defaults;
    char (*token)[16]; /* [V] a stand-in vocabulary; NULL: there is none */
    int n_shards;      /* files of weights; 0: the weights are random */
    struct safetensors *shard;
    int64_t file_bytes; /* of all shards */
    struct packing packing;
    struct weights weights; /* the tensors: the shards', or random ones without data */
};

/* Opens the config.json at `path`, or parses the text of one. Fails with STATUS_BAD_FILE. */
enum status hf_config_open(struct hf_config **out, const char *path, struct err *err);
enum status hf_config_parse(struct hf_config **out, const char *text, size_t length,
                            struct err *err);

/* Opens the config.json of a folder. */
enum status hf_config_open_folder(struct hf_config **out, const char *folder, struct err *err);
void hf_config_close(struct hf_config *hf);

/* Opens a folder's weights: model.safetensors, or the files that model.safetensors.index.json
 * names. Lists their tensors, each of them checked, by the names that the files have. Fails with
 * STATUS_BAD_FILE. */
enum status hf_weights_open(struct hf_config *hf, struct err *err);

/* Fails with STATUS_BAD_FILE if a file of weights was written to since it was opened. */
enum status hf_weights_check(const struct hf_config *hf, struct err *err);

/* Reads quantization_config, if there is one, before the weights are listed; and joins the tensors
 * of a packed matrix to one weight, after that. They fail with STATUS_BAD_FILE: an unknown method,
 * parts that are missing or contradict each other, scales that are no numbers. */
enum status hf_packing_read(struct hf_config *hf, struct err *err);
enum status hf_packing_join(struct hf_config *hf, struct err *err);

/* The first of "architectures", or "" with length 0. */
const char *hf_config_architecture(const struct hf_config *hf, size_t *length);

/* Does it say that there are experts beside the MLPs? For architectures with and without. */
bool hf_config_has_experts(const struct hf_config *hf);

/* Fills in what the file says, in a config that its family has begun, and is_tied, dtype, V, the
 * end ids and the sampling defaults. Fails with STATUS_BAD_FILE, and a sentence that names the
 * file: a key that is missing or out of range, numbers that do not fit each other, or a feature
 * that the forward pass lacks: answers, or a speed measured, without it would mislead. */
enum status hf_config_read(struct model_config *config, struct hf_config *hf, struct err *err);

/* Fills in how positions are rotated, from the config.json's part of the text. The letters and the
 * context's length are known. */
enum status hf_rope_read(struct model_config *config, const struct json *root, struct err *err);

/* The key of a kind of biases. */
const char *hf_bias_key(enum hf_bias bias);

/* Fills in the end ids and sampling defaults of a folder's generation_config.json, if there is one.
 * V is known. */
enum status hf_generation_read(struct hf_config *hf, struct err *err);

/* A stand-in vocabulary, where a model's own is not read: an unknown token, one for each byte, and
 * names in brackets up to V. So a text's tokens are its bytes, and no token ends a generation.
 * Strings point into `hf`; the spec is freed by tokenizer_spec_free. Fails with STATUS_BAD_FILE
 * where V is too small for that. */
enum status hf_stand_in_vocabulary(struct tokenizer_spec *spec, struct hf_config *hf,
                                   struct err *err);

#endif
