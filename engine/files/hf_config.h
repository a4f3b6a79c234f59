/* hf_config: a model in the layout of Hugging Face's hub: a folder with a config.json, weights in
 * safetensors, and generation_config.json. Or only a config.json, a shape without weights, for
 * `--load-format dummy`. Folder-internal; one thread opens it and reads the config, then any thread
 * may read the rest. */
#ifndef PENSTOCK_ENGINE_HF_CONFIG_H
#define PENSTOCK_ENGINE_HF_CONFIG_H

#include "engine/config/config.h"
#include "engine/files/tensors/weights.h"
#include "engine/text/text.h"

struct json;
struct safetensors;

/* Keys that turn biases on. The family decides which biases a key stands for. */
enum hf_bias {
    HF_BIAS_ATTENTION,
    HF_BIAS_OUTPUT,
    HF_BIAS_QKV,
    HF_BIAS_MLP,
    HF_BIAS_ALL,
    HF_QK_NORM, /* a norm rather than a bias, but turned on in the same way */
    HF_QK_LAYERNORM,
    HF_CONV_BIAS,
    HF_TWO_NORMS, /* a norm for each of two branches with the same input; set by hf_falcon_read */
    N_HF_BIASES
};

enum { MAX_FILE_END_IDS = 8, MIN_STAND_IN_TOKENS = 257 };

/* The methods of quantization_config. */
enum packing_method {
    PACKING_NONE,
    PACKING_GPTQ,
    PACKING_AWQ,
    PACKING_COMPRESSED, /* compressed-tensors, from llm-compressor */
    PACKING_FP8,
    PACKING_MXFP4, /* for experts only */
    PACKING_MODELOPT,
    PACKING_BITSANDBYTES,
};
struct packing {
    enum packing_method method;
    int bits;            /* of the codes in words */
    int group_size;      /* GPTQ, AWQ: inputs per scale; -1: all; 0: not specified */
    bool zeros_less_one; /* GPTQ's first format stores each zero point minus 1 */
    /* fp8: the size of a block with one scale; 0: a scale per matrix or row */
    int block_rows, block_columns;
};

/* The state of joining: the tensors of each packed matrix become one weight (hf_packing.c,
 * hf_tables.c). */
struct joining {
    const struct packing *packing;
    const struct weights *from;
    struct weights *to;
    bool *used; /* [from->n] tensors that are part of a weight, or that are ignored */
    struct err *err;
};

/* Returns the part `base` + `suffix` of a weight and marks it as used, or returns NULL if it is
 * missing. */
const struct weight *joining_part(struct joining *j, const char *base, const char *suffix);

/* Fails with a sentence that says which part was expected. */
enum status joining_refuse(const struct joining *j, const char *base, const char *suffix,
                           const char *expected);

/* Checks that all scales of a part are finite. Of `p` it needs what packed_scale reads. */
enum status joining_check_scales(const struct joining *j, const struct packed *p,
                                 const struct weight *scales);

/* Adds the weight `base`.weight that the parts form. */
enum status joining_add(struct joining *j, const char *base, const struct packed *p,
                        const struct weight *codes);

/* Measures a weight and adds it with a copy of `p`, the description of its parts. */
enum status joining_add_weight(struct joining *j, struct weight *weight, const struct packed *p);

/* Join the parts of one weight: the blocks of MXFP4 experts; the bytes of NVFP4 [N][K / 2], two
 * codes a byte, whose 8-bit float scales share a global scale; and the bytes of bitsandbytes [N K /
 * 2], whose parts are named after the full name of the weight. */
enum status join_mxfp4(struct joining *j, const char *base, const struct weight *blocks);
enum status join_nvfp4(struct joining *j, const char *base, const struct weight *codes);
enum status join_bitsandbytes(struct joining *j, const char *base, const struct weight *codes);

struct hf_config {
    struct json *root;
    /* the text_config of a model that also has other parts, otherwise root */
    const struct json *text;
    bool has_other_parts; /* for images or sound */
    bool lists_ids;       /* tensors of whole numbers are listed, too; set before hf_weights_open */
    char *folder;         /* NULL: only a config.json was given */
    char *path;           /* of config.json */
    char name[128];       /* of the folder that contains the file */
    bool has_bias[N_HF_BIASES]; /* values of the keys in config.json */
    /* the embedding is also the head; its value before hf_config_read is the default */
    bool is_tied;
    /* the family's extra name for its activation, or NULL; set before hf_config_read */
    const char *activation;
    /* set before hf_config_read: the key of the MLP's width, or NULL for the usual one; positions
     * rotate only if position_embedding_type says so */
    const char *width_key;
    bool rotates_if_said;
    bool pads_positions;         /* as in struct folder_style */
    const char *tanh_activation; /* the name of the activation's approximation, or NULL */
    bool has_falcon_keys;        /* hf_falcon_read reads the keys that only Falcon has */
    enum dtype dtype;
    int V;
    int n_end_ids;
    int32_t end_ids[MAX_FILE_END_IDS];
    struct sampling_defaults defaults;
    char (*token)[16]; /* [V] a stand-in vocabulary, or NULL */
    int n_shards;      /* files of weights; 0: the weights are random */
    struct safetensors *shard;
    int64_t file_bytes; /* of all shards */
    struct packing packing;
    struct json *method;    /* of a file beside config.json that has the quantisation, or NULL */
    struct weights weights; /* the tensors of the shards, or random ones without data */
};

/* Opens the config.json at `path`. Fails with STATUS_BAD_FILE. */
enum status hf_config_open(struct hf_config **out, const char *path, struct err *err);

/* Returns a config that owns the JSON object; messages begin with `path`. */
struct hf_config *hf_config_new(struct json *root, const char *path);

/* Opens the config.json of a folder. */
enum status hf_config_open_folder(struct hf_config **out, const char *folder, struct err *err);
void hf_config_close(struct hf_config *hf);

/* Opens a folder's weights: model.safetensors, or the files that model.safetensors.index.json
 * names, or without an index model-00001-of-0000N.safetensors up to N. Checks each tensor and lists
 * it by its name in the file. Fails with STATUS_BAD_FILE. */
enum status hf_weights_open(struct hf_config *hf, struct err *err);

/* Fails with STATUS_BAD_FILE if a file of weights was written to after it was opened. */
enum status hf_weights_check(const struct hf_config *hf, struct err *err);

/* hf_packing_read reads quantization_config, or the file beside config.json that older quantisers
 * wrote instead; call it before the weights are listed.
 * hf_packing_join joins the tensors of each packed matrix into one weight; call it after that. They
 * fail with STATUS_BAD_FILE if the method is unknown, parts are missing or contradict each other,
 * or scales are not finite. */
enum status hf_packing_read(struct hf_config *hf, struct err *err);
enum status hf_packing_join(struct hf_config *hf, struct err *err);

/* Returns the first of "architectures", else "model_type", else "" with length 0. */
const char *hf_config_architecture(const struct hf_config *hf, size_t *length);

/* Does the config turn on experts that run in parallel with the MLPs? For architectures that may
 * have them. */
bool hf_config_has_experts(const struct hf_config *hf);

/* Fills in the file's values, in a config that its family has begun; also is_tied, dtype, V, the
 * end ids and the sampling defaults. Fails with STATUS_BAD_FILE and a sentence that names the file
 * if a key is missing or out of range, numbers do not fit each other, or the forward pass lacks a
 * feature: without the feature, answers or measured speeds would mislead. */
enum status hf_config_read(struct model_config *config, struct hf_config *hf, struct err *err);

/* Fills in the experts of a model that has them, and which layers have an MLP instead, from the
 * text part of config.json. The dimensions must already be set. */
enum status hf_experts_read(struct model_config *config, const struct json *root, struct err *err);

/* Fills in the rotation of positions from the text part of config.json. The dimensions and the
 * context length must already be set. */
enum status hf_rope_read(struct model_config *config, const struct json *root, struct err *err);

/* Returns the config.json key of a kind of bias. */
const char *hf_bias_key(enum hf_bias bias);

/* Reads the keys of Falcon's config.json that describe heads, branches and norms. */
enum status hf_falcon_read(struct model_config *config, struct hf_config *hf, struct err *err);

/* Reads ModernBERT's window, before other windows. hf_encoder_read reads the keys of encoders,
 * after all others. */
enum status hf_encoder_begin(struct model_config *config, const struct hf_config *hf,
                             struct err *err);
enum status hf_encoder_read(struct model_config *config, const struct hf_config *hf,
                            struct err *err);

/* Reads the keys of a model with recurrent layers: which layers are, and the shape of their
 * convolution and delta rule; for LFM2 also the rule for the MLP's width. Call it after the layers'
 * kinds (layer_types) are read. */
enum status hf_recurrent_read(struct model_config *config, struct hf_config *hf, struct err *err);

/* The same for state spaces: their shape. Does nothing if no layer has one. */
enum status hf_space_read(struct model_config *config, const struct json *root, struct err *err);

/* Sets the heads of latent attention from its ranks and sizes. Fails with STATUS_BAD_FILE if they
 * are not supported. */
enum status config_check_latent(struct model_config *config, struct err *err);

/* Reads the ranks and sizes of latent attention. Call it after the dimensions are read. */
enum status hf_latent_read(struct model_config *config, const struct json *root, struct err *err);

/* Reads the end ids and sampling defaults from a folder's generation_config.json, if it exists. V
 * must already be set. */
enum status hf_generation_read(struct hf_config *hf, struct err *err);

/* Makes a stand-in vocabulary for models whose tokenizer is not read: an unknown token, one token
 * per byte, and names in brackets up to V. So the tokens of a text are its bytes, and no token ends
 * a generation. Strings point into `hf`; tokenizer_spec_free frees the spec. Fails with
 * STATUS_BAD_FILE if V is too small. */
enum status hf_stand_in_vocabulary(struct tokenizer_spec *spec, struct hf_config *hf,
                                   struct err *err);

#endif
