/* Reads a config.json. Each number is checked before it is used. */
#include "engine/files/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/hf_keys.h"
#include "engine/files/model_file.h"
#include "engine/files/tensors/mapping.h"
#include "engine/files/tensors/safetensors.h"
#include "kernels/backend.h"

enum { MAX_CONFIG_BYTES = 1 << 20 };

/* For a family that may have experts in parallel with its MLPs. */
static const char MOE_KEY[] = "enable_moe_block";

/* The kinds of layers. */
static const char KINDS[] = "layer_types|layers_block_type";

/* ---- the model ------------------------------------------------------------------------------ */

static enum status check_heads(const struct model_config *c, bool has_head_dim, struct err *err) {
    if (c->H % c->G != 0)
        return err_set(err, STATUS_BAD_FILE, "num_key_value_heads",
                       "%d key-value heads (num_key_value_heads) do not divide %d heads "
                       "(num_attention_heads)",
                       c->G, c->H);
    if (!has_head_dim && c->K % c->H != 0)
        return err_set(err, STATUS_BAD_FILE, "num_attention_heads",
                       "%d heads (num_attention_heads) do not divide a width of %d (hidden_size), "
                       "and head_dim is missing",
                       c->H, c->K);
    if (c->D < 2 || c->D % 2 != 0 || (int64_t)c->H * c->D > MAX_WIDTH)
        return err_set(err, STATUS_BAD_FILE, "head_dim",
                       "%d heads of %d numbers: head_dim must be even and at least 2, and all "
                       "heads together have at most %d numbers",
                       c->H, c->D, MAX_WIDTH);
    return STATUS_OK;
}

/* Reads the head sizes of layers with full attention: in these files "head_dim" is for layers with
 * windows. */
static enum status read_head_sizes(struct model_config *c, const struct json *root,
                                   struct err *err) {
    c->window_heads = (struct kv_heads){c->G, c->D};
    enum status status =
        key_int_or(root, "global_head_dim", 2, MAX_WIDTH, c->head_size, &c->D, err);
    if (!status) status = key_bool_or(root, "attention_k_eq_v", false, &c->keys_serve, err);
    if (status || !c->keys_serve) return status;
    return key_int_or(root, "num_global_key_value_heads", 1, MAX_HEADS, c->G, &c->G, err);
}

/* Reads per_layer_config: head sizes of layers, listed by number. */
static enum status read_listed_heads(struct model_config *c, const struct json *root,
                                     struct err *err) {
    static const char key[] = "per_layer_config";
    const struct json *list = key_value(root, key);
    if (!list) return STATUS_OK;
    if (!json_is(list, JSON_OBJECT))
        return err_set(err, STATUS_BAD_FILE, key, "key %s: expected an object, found %s", key,
                       json_type_name(list));
    json_each(layer, list) {
        char *end;
        long number = strtol(layer->name, &end, 10);
        if (*end || layer->name[0] < '0' || layer->name[0] > '9' || number >= c->L)
            return err_set(err, STATUS_BAD_FILE, key,
                           "key %s: expected numbers of layers below %d as its keys", key, c->L);
        struct kv_heads *heads = &c->layer[number].heads;
        enum status status = key_int_or(layer, "head_dim", 2, MAX_WIDTH, 0, &heads->D, err);
        if (!status)
            status = key_int_or(layer, "num_key_value_heads", 1, MAX_HEADS, 0, &heads->G, err);
        if (status) return status;
    }
    return STATUS_OK;
}

/* Reads the number of layers that read the keys and values of earlier ones, and the width of
 * per-layer inputs. */
static enum status read_layers(struct model_config *c, const struct json *root, struct err *err) {
    bool doubles;
    int V;
    enum status status =
        key_int_or(root, "num_kv_shared_layers", 0, c->L - 1, 0, &c->n_readers, err);
    if (!status) status = key_bool_or(root, "use_double_wide_mlp", false, &doubles, err);
    if (!status) c->F_readers = doubles ? 2 * c->F : 0;
    if (!status)
        status = key_int_or(root, "hidden_size_per_layer_input", 0, MAX_WIDTH, 0, &c->P, err);
    if (!status && c->P > 0)
        status = key_int_or(root, "vocab_size_per_layer_input", c->V, c->V, c->V, &V, err);
    if (!status && c->head_size > 0) status = read_head_sizes(c, root, err);
    return status ? status : read_listed_heads(c, root, err);
}

/* Reads the dimensions. A number that the family has set is the usual one; the file may omit its
 * key. */
static enum status read_shape(struct model_config *c, const struct hf_config *hf, int min_V,
                              struct err *err) {
    const struct json *root = hf->text;
    const struct {
        const char *key;
        int min, max, *out;
    } keys[] = {
        {"vocab_size", min_V, MAX_TOKENS, &c->V},
        {"hidden_size|n_embd", 1, MAX_WIDTH, &c->K},
        {"num_hidden_layers|n_layer", 1, MAX_LAYERS, &c->L},
        {"num_attention_heads|n_head", 1, MAX_HEADS, &c->H},
        {"max_position_embeddings|n_positions|model_max_length", 1, MAX_CONTEXT,
         &c->context_length},
    };
    if (c->has_single_parts) c->L = json_count(key_value(root, KINDS)); /* if it is not stated */
    const char *F_key = hf->width_key ? hf->width_key : "intermediate_size|n_inner|ffn_dim";
    bool has_F = c->lacks_attention || key_value(root, F_key) ||
                 !(hf->has_falcon_keys || key_value(root, "n_embd"));
    bool has_D = c->D > 0 || key_value(root, "head_dim");
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++) {
        bool is_usual = *keys[i].out > 0 && !key_value(root, keys[i].key);
        if (is_usual) continue;
        status = key_int(root, keys[i].key, keys[i].min, keys[i].max, keys[i].out, err);
    }
    if (!status && !has_F) c->F = 4 * c->K; /* the rule of GPT-2 and Falcon */
    if (!status && has_F && !c->lacks_attention)
        status = key_int(root, F_key, 1, MAX_WIDTH, &c->F, err);
    if (!status)
        status = key_int_or(root, "num_key_value_heads", 1, MAX_HEADS, c->G > 0 ? c->G : c->H,
                            &c->G, err);
    if (!status)
        status = key_int_or(root, "word_embed_proj_dim", 1, MAX_WIDTH, c->K, &c->K_embedding, err);
    if (!status)
        status =
            key_int_or(root, "head_dim", 1, MAX_WIDTH, c->D > 0 ? c->D : c->K / c->H, &c->D, err);
    if (!status) status = check_heads(c, has_D, err);
    return status ? status : read_layers(c, root, err);
}

/* ---- other settings ------------------------------------------------------------------------- */

static const char activation_keys[] =
    "hidden_activation|hidden_act|activation_function|mlp_hidden_act";

/* Is the file's activation the family's? */
static enum status check_activation(struct model_config *c, const struct hf_config *hf,
                                    struct err *err) {
    const char *keys = hf->has_falcon_keys ? "activation" : activation_keys;
    static const char *const names[][2] = {
        [ACTIVATION_SILU] = {"silu", "swish"},
        [ACTIVATION_GELU] = {"gelu", "gelu"},
        [ACTIVATION_GELU_TANH] = {"gelu_pytorch_tanh", "gelu_new"},
        [ACTIVATION_RELU] = {"relu", "relu"},
        [ACTIVATION_RELU_SQUARED] = {"relu2", "relu2"},
        [ACTIVATION_CLAMPED] = {"silu", "swish"},
        [ACTIVATION_XIELU] = {"xielu", "xielu"},
    };
    char text[64];
    const struct json *value = key_value(hf->text, keys);
    const char *const *wanted = names[c->activation];
    if (!value || json_is_text(value, wanted[0]) || json_is_text(value, wanted[1]))
        return STATUS_OK;
    if (hf->activation && json_is_text(value, hf->activation)) return STATUS_OK;
    if (hf->tanh_activation && json_is_text(value, hf->tanh_activation)) {
        c->activation = ACTIVATION_GELU_TANH;
        return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_FILE, "hidden_act",
                   "key hidden_act: only \"%s\" is supported, found \"%s\"", wanted[0],
                   key_shown(value, text));
}

const char *hf_bias_key(enum hf_bias bias) {
    static const char *const keys[N_HF_BIASES] = {[HF_BIAS_ATTENTION] = "attention_bias",
                                                  [HF_BIAS_OUTPUT] = "attention_out_bias",
                                                  [HF_BIAS_QKV] = "use_qkv_bias",
                                                  [HF_BIAS_MLP] = "mlp_bias",
                                                  [HF_BIAS_ALL] = "use_bias",
                                                  [HF_QK_NORM] = "use_qk_norm",
                                                  [HF_QK_LAYERNORM] = "qk_layernorm",
                                                  [HF_CONV_BIAS] = "conv_bias",
                                                  [HF_TWO_NORMS] = "num_ln_in_parallel_attn"};
    return keys[bias];
}

static enum status read_epsilon(struct model_config *c, const struct json *root, struct err *err) {
    double epsilon = c->norm_epsilon;
    const char *key = c->norm == NORM_RMS
                          ? "rms_norm_eps|norm_eps|layer_norm_epsilon"
                          : "layer_norm_epsilon|layer_norm_eps|norm_epsilon|norm_eps";
    if (epsilon > 0 && !key_value(root, key)) return STATUS_OK; /* the family has set it */
    enum status status = key_number(root, key, 1e-30, 0.5, &epsilon, err);
    c->norm_epsilon = (float)epsilon;
    return status;
}

/* Refuses unsupported features that change results. */
static enum status refuse_features(const struct json *root, const struct model_config *c,
                                   struct err *err) {
    const struct {
        const char *key;
        bool served;
    } keys[] = {{"_remove_final_layer_norm", false},
                {"enable_bias", true},
                {"layer_norm_elementwise_affine", true},
                {"scale_attn_weights", true},
                {"scale_attn_by_inverse_layer_idx", false},
                {MOE_KEY, c->experts.is_used},
                {"use_cla", false},
                {"use_mla", false},
                {"mup_enabled", true}};
    static const char both_ways[] = "use_bidirectional_attention";
    const struct json *ways = key_value(root, both_ways);
    char text[64];
    bool is_usual = json_is(ways, JSON_BOOL) && ways->boolean == c->is_encoder;
    bool is_for_images = !c->is_encoder && json_is_text(ways, "vision");
    if (ways && !is_usual && !is_for_images) /* "vision": only for image tokens */
        return err_set(err, STATUS_BAD_FILE, both_ways, "key %s: only %s supported, found \"%s\"",
                       both_ways, c->is_encoder ? "true is" : "null and \"vision\" are",
                       !json_is(ways, JSON_BOOL) ? key_shown(ways, text)
                       : ways->boolean           ? "true"
                                                 : "false");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool found;
        enum status status = key_bool_or(root, keys[i].key, keys[i].served, &found, err);
        if (status) return status;
        if (found != keys[i].served)
            return err_set(err, STATUS_BAD_FILE, keys[i].key, "key %s: only %s is supported",
                           keys[i].key, keys[i].served ? "true" : "false");
    }
    return STATUS_OK;
}

/* Reads the places of norms, and whether the branches of a layer run in parallel. */
static enum status read_branches(struct model_config *c, const struct json *root, struct err *err) {
    bool before;
    enum status status = key_bool_or(root, "use_parallel_residual", c->has_parallel_branches,
                                     &c->has_parallel_branches, err);
    if (!status) status = key_bool_or(root, "do_layer_norm_before", !c->norms_stream, &before, err);
    if (!status) c->norms_stream = !before;
    return status;
}

static bool is_recurrent_type(const struct model_config *c, const struct json *type) {
    if (c->state.kind == STATE_CONV) return json_is_text(type, "conv");
    if (c->mixes_both) return json_is_text(type, "hybrid");
    if (c->state.kind == STATE_SPACE && json_is_text(type, "mamba")) return true;
    return json_is_text(type, "linear_attention");
}

/* Reads the windows. The window counts unless the file turns it off; layer_types lists the layers
 * that have it. */
static enum status read_windows(struct model_config *c, const struct json *root, struct err *err) {
    const struct json *types = key_value(root, KINDS);
    bool has_window;
    int window = 0, i = 0;
    enum status status = key_bool_or(root, "use_sliding_window", true, &has_window, err);
    if (!status) status = key_int_or(root, "sliding_window", 0, INT32_MAX, c->window, &window, err);
    if (!status && !types) /* next to layer_types the key may be a word and is redundant */
        status = key_int_or(root, "sliding_window_pattern|global_attn_every_n_layers", 1,
                            MAX_LAYERS, c->full_every, &c->full_every, err);
    if (status) return status;
    c->window = has_window ? window : 0;
    if (!types) return STATUS_OK;
    if (!json_is(types, JSON_ARRAY) || types->n_children != c->L)
        return err_set(err, STATUS_BAD_FILE, "layer_types",
                       "key layer_types: expected an array of %d kinds, one for each layer", c->L);
    c->lists_windows = true;
    json_each(type, types) {
        struct layer_config *layer = &c->layer[i];
        bool slides = json_is_text(type, "sliding_attention");
        char text[64];
        i++;
        layer->is_recurrent = c->taps > 0 && is_recurrent_type(c, type);
        layer->lacks_mixer = c->has_single_parts && json_is_text(type, "mlp");
        if (layer->is_recurrent || layer->lacks_mixer) continue;
        if (!slides && !json_is_text(type, "full_attention") && !json_is_text(type, "attention"))
            return err_set(err, STATUS_BAD_FILE, "layer_types",
                           "key layer_types: only \"full_attention\" and \"sliding_attention\" are "
                           "supported, found \"%s\"",
                           key_shown(type, text));
        if (slides && window == 0)
            return err_set(err, STATUS_BAD_FILE, "sliding_window",
                           "key sliding_window is missing, but layer %d has a window "
                           "(layer_types)",
                           i - 1);
        layer->slides = slides;
        layer->window = slides ? window : 0;
    }
    return STATUS_OK;
}

/* Reads scales and caps. The family's value stays if a key is missing. */
static enum status read_scales(struct model_config *c, const struct json *root, struct err *err) {
    const struct {
        const char *key;
        float *out;
    } keys[] = {{"attn_logit_softcapping", &c->attention_cap},
                {"final_logit_softcapping", &c->logit_cap},
                {"embedding_multiplier", &c->embedding_scale},
                {"residual_multiplier", &c->residual_scale},
                {"attention_multiplier", &c->attention_scale},
                {"logits_scaling|logit_scale|lm_head_multiplier", &c->logit_scale}};
    double value = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        enum status status =
            key_number_or(root, keys[i].key, 1e-6, 1e6, (double)*keys[i].out, &value, err);
        if (status) return status;
        *keys[i].out = (float)value;
    }
    enum status status = key_number_or(root, "query_pre_attn_scalar", 1e-3, 1e6, 0, &value, err);
    if (!status && value > 0) c->attention_scale = (float)(1 / sqrt(value));
    return status;
}

/* Turns off the rotation of all layers if the file must turn it on and does not. */
static void read_rotation(struct model_config *c, const struct hf_config *hf) {
    const struct json *kind = key_value(hf->text, "position_embedding_type");
    bool rotates = !hf->rotates_if_said || json_is_text(kind, "rope");
    for (int i = 0; i < c->L && !rotates; i++) c->layer[i].has_no_rope = true;
}

static enum status read_dtype(struct hf_config *hf, struct err *err) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } names[] = {{"bfloat16", DTYPE_BF16}, {"float16", DTYPE_F16}, {"float32", DTYPE_F32}};
    char text[64];
    const struct json *value = key_value(hf->text, "torch_dtype|dtype");
    if (!value) value = key_value(hf->root, "torch_dtype|dtype");
    hf->dtype = DTYPE_BF16;
    if (!value) return STATUS_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hf->dtype = names[i].dtype;
        if (json_is_text(value, names[i].name)) return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_FILE, "torch_dtype",
                   "key torch_dtype: \"%s\" is not supported; bfloat16, float16 and float32 are",
                   key_shown(value, text));
}

/* Returns the number of layers to which a vision part adds features. */
static int count_deepstack(const struct json *root) {
    const struct json *list =
        key_value(key_value(root, "vision_config"), "deepstack_visual_indexes");
    return json_is(list, JSON_ARRAY) ? (int)list->n_children : 0;
}

/* ---- entry points --------------------------------------------------------------------------- */

static enum status read_all(struct model_config *config, struct hf_config *hf, struct err *err) {
    const struct json *root = hf->text;
    const struct json *of_tie = key_value(root, "tie_word_embeddings") ? root : hf->root;
    int min_V = hf->n_shards ? 1 : MIN_STAND_IN_TOKENS;
    snprintf(config->name, sizeof config->name, "%s", hf->name);
    config->file_bytes = hf->file_bytes;
    enum status status = read_shape(config, hf, min_V, err);
    if (!status && config->latent.is_used) status = hf_latent_read(config, root, err);
    if (!status) status = hf_experts_read(config, root, err);
    if (!status) status = check_activation(config, hf, err);
    if (!status) status = refuse_features(hf->root, config, err);
    if (!status && root != hf->root) status = refuse_features(root, config, err);
    if (!status && hf->n_shards == 0 && key_value(hf->root, "quantization_config"))
        status = err_set(err, STATUS_BAD_FILE, "quantization_config",
                         "key quantization_config: random weights ({load-format} dummy) need a "
                         "folder that is not quantised; remove the key");
    if (!status) status = read_branches(config, root, err);
    if (!status) status = hf_encoder_begin(config, hf, err);
    if (!status) status = read_windows(config, root, err);
    if (!status && config->taps > 0) status = hf_recurrent_read(config, hf, err);
    if (!status) status = read_scales(config, root, err);
    if (!status) status = read_epsilon(config, root, err);
    if (!status) status = hf_rope_read(config, root, err);
    if (!status) read_rotation(config, hf);
    if (!status) status = hf_encoder_read(config, hf, err);
    config->n_deepstack_layers = count_deepstack(hf->root);
    for (enum hf_bias bias = 0; bias < HF_TWO_NORMS && !status; bias++)
        status = key_bool_or(root, hf_bias_key(bias), false, &hf->has_bias[bias], err);
    if (!status && hf->has_falcon_keys) status = hf_falcon_read(config, hf, err);
    if (!status)
        status = key_bool_or(of_tie, "tie_word_embeddings", hf->is_tied, &hf->is_tied, err);
    if (!status) status = read_dtype(hf, err);
    hf->V = config->V;
    if (!status)
        status = key_ids(key_value(root, "eos_token_id") ? root : hf->root, "eos_token_id",
                         hf->V - 1, MAX_FILE_END_IDS, hf->end_ids, &hf->n_end_ids, err);
    return status;
}

bool hf_config_has_experts(const struct hf_config *hf) {
    const struct json *value = key_value(hf->text, MOE_KEY);
    return json_true(value) ||
           json_number(key_value(hf->text, "num_local_experts|n_routed_experts")) > 0;
}

enum status hf_config_read(struct model_config *config, struct hf_config *hf, struct err *err) {
    enum status status = read_all(config, hf, err);
    if (status) return blame_file(err, status, hf->path);
    config->lacks_text = hf_config_classifies(hf);
    if (config->lacks_text) hf->is_tied = true; /* a head for text is not needed */
    return hf->folder ? hf_generation_read(hf, err) : STATUS_OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Is the class a model of several parts whose text part may be of any family? */
static bool wraps_text(const struct json *class) {
    static const char *const wrappers[] = {
        "AyaVisionForConditionalGeneration", "Idefics3ForConditionalGeneration",
        "InternVLForConditionalGeneration",  "KimiK25ForConditionalGeneration",
        "Kimi_K25ForConditionalGeneration",  "Lfm2VlForConditionalGeneration",
        "LlavaForConditionalGeneration",     "SmolVLMForConditionalGeneration"};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (json_is_text(class, wrappers[i])) return true;
    return false;
}

const char *hf_config_architecture(const struct hf_config *hf, size_t *length) {
    const struct json *name = json_first(key_value(hf->root, "architectures"));
    if (hf->text != hf->root && wraps_text(name)) name = key_value(hf->text, "model_type");
    if (!name) name = key_value(hf->root, "model_type");
    const char *text = json_is(name, JSON_STRING) ? name->string : "";
    *length = strlen(text);
    return text;
}

struct hf_config *hf_config_new(struct json *root, const char *path) {
    static const struct sampling_defaults none = NO_SAMPLING_DEFAULTS;
    struct hf_config *hf = mem_calloc(1, sizeof *hf);
    const struct json *text = key_value(root, "text_config");
    hf->root = root;
    hf->text = json_is(text, JSON_OBJECT) ? text : root;
    hf->has_other_parts = hf->text != root || key_value(root, "vision_config");
    hf->path = mem_strdup(path);
    hf->defaults = none;
    return hf;
}

enum status hf_config_open(struct hf_config **out, const char *path, struct err *err) {
    struct json *root;
    *out = NULL;
    enum status status = hf_file_read(&root, path, MAX_CONFIG_BYTES, err);
    if (status) return status;
    *out = hf_config_new(root, path);
    const char *end = strrchr(path, '/');
    char *folder = end ? mem_strdup(path) : mem_strdup(".");
    if (end) folder[end == path ? 1 : end - path] = 0;
    model_path_name((*out)->name, folder);
    mem_free(folder);
    return STATUS_OK;
}

enum status hf_config_open_folder(struct hf_config **out, const char *folder, struct err *err) {
    char *path = path_in(folder, "config.json");
    enum status status = hf_config_open(out, path, err);
    if (!status) (*out)->folder = mem_strdup(folder);
    mem_free(path);
    return status;
}

void hf_config_close(struct hf_config *hf) {
    if (!hf) return;
    for (int i = 0; i < hf->n_shards; i++) safetensors_close(&hf->shard[i]);
    mem_free(hf->shard);
    weights_free(&hf->weights);
    json_free(hf->method);
    json_free(hf->root);
    mem_free(hf->token);
    mem_free(hf->folder);
    mem_free(hf->path);
    mem_free(hf);
}
