/* Reading a config.json: each number is checked before it is used. */
#include "engine/files/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/hf_keys.h"
#include "engine/files/mapping.h"
#include "engine/files/model_file.h"
#include "engine/files/safetensors.h"

enum { MAX_CONFIG_BYTES = 1 << 20 };

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
                       "and there is no head_dim",
                       c->H, c->K);
    if (c->D < 2 || c->D % 2 != 0 || (int64_t)c->H * c->D > MAX_WIDTH)
        return err_set(err, STATUS_BAD_FILE, "head_dim",
                       "%d heads of %d numbers: expected an even number, and %d in all heads at "
                       "most",
                       c->H, c->D, MAX_WIDTH);
    return STATUS_OK;
}

static enum status read_shape(struct model_config *c, const struct json *root, int min_V,
                              struct err *err) {
    const struct {
        const char *key;
        int min, max, *out;
    } keys[] = {
        {"vocab_size", min_V, MAX_TOKENS, &c->V},
        {"hidden_size|n_embd", 1, MAX_WIDTH, &c->K},
        {"num_hidden_layers|n_layer", 1, MAX_LAYERS, &c->L},
        {"num_attention_heads|n_head", 1, MAX_HEADS, &c->H},
        {"max_position_embeddings|n_positions", 1, MAX_CONTEXT, &c->context_length},
    };
    static const char F_key[] = "intermediate_size|n_inner|ffn_dim";
    bool has_F = key_value(root, F_key) || !key_value(root, "n_embd");
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++)
        status = key_int(root, keys[i].key, keys[i].min, keys[i].max, keys[i].out, err);
    if (!status && !has_F) c->F = 4 * c->K; /* GPT-2's, where n_inner is null */
    if (!status && has_F) status = key_int(root, F_key, 1, MAX_WIDTH, &c->F, err);
    if (!status) status = key_int_or(root, "num_key_value_heads", 1, MAX_HEADS, c->H, &c->G, err);
    if (!status) status = key_int_or(root, "head_dim", 1, MAX_WIDTH, c->K / c->H, &c->D, err);
    if (!status) status = check_heads(c, key_value(root, "head_dim") != NULL, err);
    return status;
}

/* ---- positions ------------------------------------------------------------------------------ */

static enum status read_stretch(struct rope_stretch *out, const struct json *scaling,
                                struct err *err) {
    enum status status = key_number(scaling, "factor", 1, 1e6, &out->factor, err);
    if (!status)
        status = key_number(scaling, "low_freq_factor", 1e-3, 1e6, &out->low_freq_factor, err);
    if (!status)
        status = key_number(scaling, "high_freq_factor", 1e-3, 1e6, &out->high_freq_factor, err);
    if (!status)
        status = key_int(scaling, "original_max_position_embeddings", 1, MAX_CONTEXT,
                         &out->original_context, err);
    if (!status && out->high_freq_factor <= out->low_freq_factor)
        return err_set(err, STATUS_BAD_FILE, "high_freq_factor",
                       "key high_freq_factor: expected more than low_freq_factor, found %g",
                       out->high_freq_factor);
    out->is_set = !status;
    return status;
}

/* What transformers up to version 4 writes as rope_theta and rope_scaling, and later ones as
 * rope_parameters: `of_theta` and `scaling` are the same object there. */
static enum status read_rotation(struct rope_config *rope, int D, const struct json *root,
                                 const struct json *of_theta, const struct json *scaling,
                                 struct err *err) {
    static const char part_key[] = "partial_rotary_factor";
    const struct json *type = key_value(scaling, "rope_type|type");
    const struct json *of_part = key_value(of_theta, part_key) ? of_theta : root;
    char text[64];
    double theta = 10000, part = 1;
    enum status status = key_number_or(of_theta, "rope_theta", 1, 1e30, theta, &theta, err);
    if (!status) status = key_number_or(of_part, part_key, 1e-3, 1, part, &part, err);
    if (status) return status;
    rope->base = (float)theta;
    rope->D_rope = (int)(D * part);
    if (rope->D_rope < 2 || rope->D_rope % 2 != 0)
        return err_set(
            err, STATUS_BAD_FILE, part_key,
            "key %s: %g of a head of %d are %d numbers; an even count from 2 was expected",
            part_key, part, D, rope->D_rope);
    if (!scaling || !type || json_is_text(type, "default")) return STATUS_OK;
    if (json_is_text(type, "llama3")) return read_stretch(&rope->stretch, scaling, err);
    return err_set(err, STATUS_BAD_FILE, "rope_scaling",
                   "key rope_scaling: the type \"%s\" is not supported; \"llama3\" is",
                   key_shown(type, text));
}

static bool is_same_rotation(const struct rope_config *a, const struct rope_config *b) {
    const struct rope_stretch *s = &a->stretch, *t = &b->stretch;
    bool same = a->D_rope == b->D_rope && a->base == b->base && s->is_set == t->is_set;
    return same && s->factor == t->factor && s->low_freq_factor == t->low_freq_factor &&
           s->high_freq_factor == t->high_freq_factor && s->original_context == t->original_context;
}

/* Rotations by the kind of layer: all must be the same. */
static enum status read_rotations(struct model_config *c, const struct json *root,
                                  const struct json *kinds, struct err *err) {
    const struct rope_config begun = c->rope;
    json_each(kind, kinds) {
        struct rope_config rope = begun;
        enum status status = read_rotation(&rope, c->D, root, kind, kind, err);
        if (status) return status;
        if (kind != json_first(kinds) && !is_same_rotation(&rope, &c->rope))
            return err_set(err, STATUS_BAD_FILE, "rope_parameters",
                           "key rope_parameters: layers of different kinds rotate differently, "
                           "which is not supported");
        c->rope = rope;
    }
    return STATUS_OK;
}

static enum status read_rope(struct model_config *c, const struct json *root, struct err *err) {
    const struct json *both = key_value(root, "rope_parameters");
    const struct json *scaling = both ? both : key_value(root, "rope_scaling");
    if (!c->rope.is_used) return STATUS_OK;
    if (scaling && !json_is(scaling, JSON_OBJECT))
        return err_set(err, STATUS_BAD_FILE, both ? "rope_parameters" : "rope_scaling",
                       "key %s: expected an object, found %s",
                       both ? "rope_parameters" : "rope_scaling", json_type_name(scaling));
    if (json_is(json_first(both), JSON_OBJECT)) return read_rotations(c, root, both, err);
    return read_rotation(&c->rope, c->D, root, both ? both : root, scaling, err);
}

/* no_rope_layers has a 1 for each layer with rotary positions, and a 0 for those with none. */
static enum status read_rope_layers(struct model_config *c, const struct json *root,
                                    struct err *err) {
    static const char key[] = "no_rope_layers";
    const struct json *list = key_value(root, key);
    int i = 0;
    if (!list) return STATUS_OK;
    if (!json_is(list, JSON_ARRAY) || list->n_children != c->L)
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: expected an array of %d numbers, one for each layer", key, c->L);
    c->lists_ropes = true;
    json_each(item, list) {
        bool is_flag = json_is(item, JSON_NUMBER) && (item->number == 0 || item->number == 1);
        if (!is_flag)
            return err_set(err, STATUS_BAD_FILE, key, "key %s: expected 0 or 1 for layer %d", key,
                           i);
        c->layer[i++].has_no_rope = item->number == 0;
    }
    return STATUS_OK;
}

/* ---- the rest ------------------------------------------------------------------------------- */

/* Is the file's activation the family's? */
static enum status check_activation(const struct model_config *c, const struct hf_config *hf,
                                    struct err *err) {
    static const char keys[] = "hidden_activation|hidden_act|activation_function";
    static const char *const names[][2] = {
        [ACTIVATION_SILU] = {"silu", "swish"},
        [ACTIVATION_GELU] = {"gelu", "gelu"},
        [ACTIVATION_GELU_TANH] = {"gelu_pytorch_tanh", "gelu_new"},
        [ACTIVATION_RELU] = {"relu", "relu"},
    };
    char text[64];
    const struct json *value = key_value(hf->text, keys);
    const char *const *wanted = names[c->activation];
    if (!value || json_is_text(value, wanted[0]) || json_is_text(value, wanted[1]))
        return STATUS_OK;
    if (hf->activation && json_is_text(value, hf->activation)) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "hidden_act",
                   "key hidden_act: only \"%s\" is supported, found \"%s\"", wanted[0],
                   key_shown(value, text));
}

static enum status read_epsilon(struct model_config *c, const struct json *root, struct err *err) {
    double epsilon = c->norm_epsilon;
    const char *key = c->norm == NORM_RMS ? "rms_norm_eps" : "layer_norm_epsilon|layer_norm_eps";
    if (epsilon > 0 && !key_value(root, key)) return STATUS_OK; /* the family knows it */
    enum status status = key_number(root, key, 1e-30, 0.5, &epsilon, err);
    c->norm_epsilon = (float)epsilon;
    return status;
}

/* What changes the numbers and is not served. */
static enum status refuse_features(const struct json *root, struct err *err) {
    static const struct {
        const char *key;
        bool served;
    } keys[] = {{"attention_bias", false},      {"mlp_bias", false},
                {"do_layer_norm_before", true}, {"_remove_final_layer_norm", false},
                {"enable_bias", true},          {"layer_norm_elementwise_affine", true}};
    char text[64];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool found;
        enum status status = key_bool_or(root, keys[i].key, keys[i].served, &found, err);
        if (status) return status;
        if (found != keys[i].served)
            return err_set(err, STATUS_BAD_FILE, keys[i].key, "key %s: only %s is supported",
                           keys[i].key, keys[i].served ? "true" : "false");
    }
    const struct json *quantised = key_value(root, "quantization_config");
    if (!quantised) return STATUS_OK;
    return err_set(
        err, STATUS_BAD_FILE, "quantization_config",
        "key quantization_config: quantised folders (\"%s\") are not supported; give one "
        "of F32, F16 or BF16, or a GGUF file",
        key_shown(key_value(quantised, "quant_method"), text));
}

/* The window counts unless the file turns it off; layer_types says which layers have it. */
static enum status read_windows(struct model_config *c, const struct json *root, struct err *err) {
    const struct json *types = key_value(root, "layer_types");
    bool has_window;
    int window = 0, i = 0;
    enum status status = key_bool_or(root, "use_sliding_window", true, &has_window, err);
    if (!status) status = key_int_or(root, "sliding_window", 1, INT32_MAX, 0, &window, err);
    if (status) return status;
    c->window = has_window ? window : 0;
    if (!types) return STATUS_OK;
    if (!json_is(types, JSON_ARRAY) || types->n_children != c->L)
        return err_set(err, STATUS_BAD_FILE, "layer_types",
                       "key layer_types: expected an array of %d kinds, one for each layer", c->L);
    c->lists_windows = true;
    json_each(type, types) {
        bool slides = json_is_text(type, "sliding_attention");
        char text[64];
        if (!slides && !json_is_text(type, "full_attention"))
            return err_set(err, STATUS_BAD_FILE, "layer_types",
                           "key layer_types: only \"full_attention\" and \"sliding_attention\" are "
                           "supported, found \"%s\"",
                           key_shown(type, text));
        if (slides && window == 0)
            return err_set(err, STATUS_BAD_FILE, "sliding_window",
                           "key sliding_window is missing, but layer %d has a window "
                           "(layer_types)",
                           i);
        c->layer[i++].window = slides ? window : 0;
    }
    return STATUS_OK;
}

static enum status read_scales(struct model_config *c, const struct json *root, struct err *err) {
    const struct {
        const char *key;
        float *out;
    } keys[] = {{"attn_logit_softcapping", &c->attention_cap},
                {"final_logit_softcapping", &c->logit_cap}};
    double value = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        enum status status = key_number_or(root, keys[i].key, 1e-3, 1e6, 0, &value, err);
        if (status) return status;
        *keys[i].out = (float)value;
    }
    enum status status = key_number_or(root, "query_pre_attn_scalar", 1e-3, 1e6, 0, &value, err);
    if (!status && value > 0) c->attention_scale = (float)(1 / sqrt(value));
    return status;
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

/* ---- the whole ------------------------------------------------------------------------------ */

static enum status read_all(struct model_config *config, struct hf_config *hf, struct err *err) {
    const struct json *root = hf->text;
    const struct json *of_tie = key_value(root, "tie_word_embeddings") ? root : hf->root;
    int min_V = hf->n_shards ? 1 : MIN_STAND_IN_TOKENS;
    snprintf(config->name, sizeof config->name, "%s", hf->name);
    config->file_bytes = hf->file_bytes;
    enum status status = read_shape(config, root, min_V, err);
    if (!status) status = check_activation(config, hf, err);
    if (!status) status = refuse_features(hf->root, err);
    if (!status && root != hf->root) status = refuse_features(root, err);
    if (!status) status = read_windows(config, root, err);
    if (!status) status = read_scales(config, root, err);
    if (!status) status = read_epsilon(config, root, err);
    if (!status) status = read_rope(config, root, err);
    if (!status) status = read_rope_layers(config, root, err);
    if (!status)
        status = key_bool_or(of_tie, "tie_word_embeddings", hf->is_tied, &hf->is_tied, err);
    if (!status) status = read_dtype(hf, err);
    hf->V = config->V;
    if (!status)
        status = key_ids(key_value(root, "eos_token_id") ? root : hf->root, "eos_token_id",
                         hf->V - 1, MAX_FILE_END_IDS, hf->end_ids, &hf->n_end_ids, err);
    return status;
}

enum status hf_config_read(struct model_config *config, struct hf_config *hf, struct err *err) {
    enum status status = read_all(config, hf, err);
    if (status) return blame_file(err, status, hf->path);
    return hf->folder ? hf_generation_read(hf, err) : STATUS_OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

const char *hf_config_architecture(const struct hf_config *hf, size_t *length) {
    const struct json *name = json_first(key_value(hf->root, "architectures"));
    const char *text = json_is(name, JSON_STRING) ? name->string : "";
    *length = strlen(text);
    return text;
}

static struct hf_config *config_new(struct json *root, const char *path) {
    static const struct sampling_defaults none = NO_SAMPLING_DEFAULTS;
    struct hf_config *hf = mem_calloc(1, sizeof *hf);
    const struct json *text = key_value(root, "text_config");
    hf->root = root;
    hf->text = json_is(text, JSON_OBJECT) ? text : root;
    hf->path = mem_strdup(path);
    hf->defaults = none;
    return hf;
}

enum status hf_config_parse(struct hf_config **out, const char *text, size_t length,
                            struct err *err) {
    struct json *root;
    *out = NULL;
    enum status status = hf_text_read(&root, text, length, err);
    if (!status) *out = config_new(root, "config.json");
    return status;
}

enum status hf_config_open(struct hf_config **out, const char *path, struct err *err) {
    struct json *root;
    *out = NULL;
    enum status status = hf_file_read(&root, path, MAX_CONFIG_BYTES, err);
    if (status) return status;
    *out = config_new(root, path);
    const char *end = strrchr(path, '/');
    char *folder = end ? mem_strdup(path) : mem_strdup(".");
    if (end) folder[end == path ? 1 : end - path] = 0;
    model_path_name((*out)->name, folder);
    free(folder);
    return STATUS_OK;
}

enum status hf_config_open_folder(struct hf_config **out, const char *folder, struct err *err) {
    char *path = path_in(folder, "config.json");
    enum status status = hf_config_open(out, path, err);
    if (!status) (*out)->folder = mem_strdup(folder);
    free(path);
    return status;
}

void hf_config_close(struct hf_config *hf) {
    if (!hf) return;
    for (int i = 0; i < hf->n_shards; i++) safetensors_close(&hf->shard[i]);
    free(hf->shard);
    weights_free(&hf->weights);
    json_free(hf->root);
    free(hf->token);
    free(hf->folder);
    free(hf->path);
    free(hf);
}
