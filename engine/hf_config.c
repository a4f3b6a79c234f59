/* Reading a config.json: each number is checked before it is used, and what would mean another
 * forward pass than llama's is refused, since a speed measured without it would mislead. */
#include "engine/hf_config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "engine/model_file.h"

/* Bounds that no model is near; model_info.c has the same. */
enum { MAX_LAYERS = 1024, MAX_WIDTH = 1 << 20, MAX_HEADS = 65536, MAX_CONTEXT = 1 << 28 };
enum { LEAST_TOKENS = 257 }; /* an unknown one and the bytes */

/* ---- values --------------------------------------------------------------------------------- */

/* What a key holds; NULL where it is missing or null. */
static const cJSON *value_of(const cJSON *object, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(value) ? NULL : value;
}

static enum status refuse_number(const char *key, double least, double most, const cJSON *value,
                                 struct err *err) {
    if (!value) return err_set(err, STATUS_BAD_FILE, key, "key %s is missing", key);
    if (!cJSON_IsNumber(value))
        return err_set(err, STATUS_BAD_FILE, key, "key %s: expected a number", key);
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected %.9g to %.9g, found %.9g", key,
                   least, most, value->valuedouble);
}

static enum status read_number(const cJSON *object, const char *key, double least, double most,
                               double *out, struct err *err) {
    const cJSON *value = value_of(object, key);
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= least && value->valuedouble <= most))
        return refuse_number(key, least, most, value, err);
    *out = value->valuedouble;
    return STATUS_OK;
}

static enum status read_int(const cJSON *object, const char *key, int least, int most, int *out,
                            struct err *err) {
    double number = 0;
    enum status status = read_number(object, key, least, most, &number, err);
    *out = (int)number;
    if (status || number == *out) return status;
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected a whole number, found %g", key,
                   number);
}

static enum status read_int_or(const cJSON *object, const char *key, int most, int fallback,
                               int *out, struct err *err) {
    *out = fallback;
    return value_of(object, key) ? read_int(object, key, 1, most, out, err) : STATUS_OK;
}

static enum status read_bool_or(const cJSON *object, const char *key, bool fallback, bool *out,
                                struct err *err) {
    const cJSON *value = value_of(object, key);
    *out = value ? cJSON_IsTrue(value) : fallback;
    if (!value || cJSON_IsBool(value)) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected true or false", key);
}

static bool is_text(const cJSON *value, const char *text) {
    return cJSON_IsString(value) && strcmp(value->valuestring, text) == 0;
}

/* As much of a string as may go into a message. */
static const char *shown(const cJSON *value, char out[64]) {
    const char *text = cJSON_IsString(value) ? value->valuestring : "";
    size_t length = 0, n = strlen(text);
    while (length < n && length < 40) {
        size_t bytes = showable_bytes(text + length, n - length);
        if (bytes == 0) break;
        length += bytes;
    }
    memcpy(out, text, length);
    out[length] = 0;
    return out;
}

/* ---- the model ------------------------------------------------------------------------------ */

static enum status check_architecture(const cJSON *root, struct err *err) {
    static const char *const names[] = {"LlamaForCausalLM", "MistralForCausalLM"};
    char text[64];
    const cJSON *list = value_of(root, "architectures"), *name = cJSON_GetArrayItem(list, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_text(name, names[i])) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "architectures",
                   "the architecture \"%s\" (architectures) is not supported; LlamaForCausalLM and "
                   "MistralForCausalLM are",
                   shown(name, text));
}

/* Keys that must be false or missing, and the activation. */
static enum status check_features(const cJSON *root, int context_length, struct err *err) {
    static const char *const off[] = {"attention_bias", "mlp_bias"};
    char text[64];
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        bool is_on;
        enum status status = read_bool_or(root, off[i], false, &is_on, err);
        if (status) return status;
        if (is_on)
            return err_set(err, STATUS_BAD_FILE, off[i], "key %s: only false is supported", off[i]);
    }
    const cJSON *act = value_of(root, "hidden_act"), *window = value_of(root, "sliding_window");
    if (act && !is_text(act, "silu"))
        return err_set(err, STATUS_BAD_FILE, "hidden_act",
                       "key hidden_act: only \"silu\" is supported, found \"%s\"",
                       shown(act, text));
    if (window && !(cJSON_IsNumber(window) && window->valuedouble >= context_length))
        return err_set(err, STATUS_BAD_FILE, "sliding_window",
                       "key sliding_window: a window shorter than max_position_embeddings is not "
                       "supported");
    return STATUS_OK;
}

static enum status check_heads(const struct hf_config *c, bool has_head_dim, struct err *err) {
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

static enum status read_shape(struct hf_config *c, const cJSON *root, struct err *err) {
    const struct {
        const char *key;
        int least, most, *out;
    } keys[] = {
        {"vocab_size", LEAST_TOKENS, MAX_TOKENS, &c->V},
        {"hidden_size", 1, MAX_WIDTH, &c->K},
        {"intermediate_size", 1, MAX_WIDTH, &c->F},
        {"num_hidden_layers", 1, MAX_LAYERS, &c->L},
        {"num_attention_heads", 1, MAX_HEADS, &c->H},
        {"max_position_embeddings", 1, MAX_CONTEXT, &c->context_length},
    };
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++)
        status = read_int(root, keys[i].key, keys[i].least, keys[i].most, keys[i].out, err);
    if (!status) status = read_int_or(root, "num_key_value_heads", MAX_HEADS, c->H, &c->G, err);
    if (!status) status = read_int_or(root, "head_dim", MAX_WIDTH, c->K / c->H, &c->D, err);
    if (!status) status = check_heads(c, value_of(root, "head_dim") != NULL, err);
    return status;
}

/* ---- positions ------------------------------------------------------------------------------ */

static enum status read_stretch(struct rope_stretch *out, const cJSON *scaling, struct err *err) {
    enum status status = read_number(scaling, "factor", 1, 1e6, &out->factor, err);
    if (!status)
        status = read_number(scaling, "low_freq_factor", 1e-3, 1e6, &out->low_freq_factor, err);
    if (!status)
        status = read_number(scaling, "high_freq_factor", 1e-3, 1e6, &out->high_freq_factor, err);
    if (!status)
        status = read_int(scaling, "original_max_position_embeddings", 1, MAX_CONTEXT,
                          &out->original_context, err);
    if (!status && out->high_freq_factor <= out->low_freq_factor)
        return err_set(err, STATUS_BAD_FILE, "high_freq_factor",
                       "key high_freq_factor: expected more than low_freq_factor, found %g",
                       out->high_freq_factor);
    out->is_asked = !status;
    return status;
}

/* transformers up to version 4 writes rope_theta and rope_scaling, later ones both in
 * rope_parameters. */
static enum status read_rope(struct hf_config *c, const cJSON *root, struct err *err) {
    char text[64];
    const cJSON *both = value_of(root, "rope_parameters");
    const cJSON *scaling = both ? both : value_of(root, "rope_scaling");
    const cJSON *of_theta = both ? both : root, *type = value_of(scaling, "rope_type");
    if (!type) type = value_of(scaling, "type");
    c->rope_theta = 10000;
    enum status status = STATUS_OK;
    if (value_of(of_theta, "rope_theta"))
        status = read_number(of_theta, "rope_theta", 1, 1e30, &c->rope_theta, err);
    if (status || !scaling || is_text(type, "default") || (both && !type)) return status;
    if (is_text(type, "llama3")) return read_stretch(&c->stretch, scaling, err);
    return err_set(err, STATUS_BAD_FILE, "rope_scaling",
                   "key rope_scaling: the type \"%s\" is not supported; \"llama3\" is",
                   shown(type, text));
}

static enum status read_dtype(struct hf_config *c, const cJSON *root, struct err *err) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } names[] = {{"bfloat16", DTYPE_BF16}, {"float16", DTYPE_F16}, {"float32", DTYPE_F32}};
    char text[64];
    const cJSON *value = value_of(root, "torch_dtype");
    if (!value) value = value_of(root, "dtype");
    c->dtype = DTYPE_BF16;
    if (!value) return STATUS_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        c->dtype = names[i].dtype;
        if (is_text(value, names[i].name)) return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_FILE, "torch_dtype",
                   "key torch_dtype: \"%s\" is not supported; bfloat16, float16 and float32 are",
                   shown(value, text));
}

static enum status read_root(struct hf_config *c, const cJSON *root, struct err *err) {
    enum status status = check_architecture(root, err);
    if (!status) status = read_shape(c, root, err);
    if (!status) status = check_features(root, c->context_length, err);
    if (!status) status = read_number(root, "rms_norm_eps", 1e-30, 0.5, &c->rms_epsilon, err);
    if (!status) status = read_rope(c, root, err);
    if (!status) status = read_bool_or(root, "tie_word_embeddings", false, &c->tied, err);
    if (!status) status = read_dtype(c, root, err);
    return status;
}

enum status hf_config_read(struct hf_config *out, const char *text, size_t length,
                           struct err *err) {
    *out = (struct hf_config){0};
    cJSON *root = cJSON_ParseWithLength(text, length);
    enum status status = cJSON_IsObject(root)
                             ? read_root(out, root, err)
                             : err_set(err, STATUS_BAD_FILE, NULL, "the file is not a JSON object");
    cJSON_Delete(root);
    return status;
}
