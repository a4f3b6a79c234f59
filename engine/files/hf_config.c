/* Reading a config.json: each number is checked before it is used. */
#include "engine/files/hf_config.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "engine/files/model_file.h"

enum { MAX_JSON_BYTES = 1 << 20 };

/* ---- the stand-in vocabulary ---------------------------------------------------------------- */

enum {
    UNKNOWN = 0,
    FIRST_BYTE = 1,
    FIRST_NAME = FIRST_BYTE + 256,
    MIN_TOKENS = FIRST_NAME,
};

static void make_tokens(struct hf_config *hf, int V) {
    assert(V >= MIN_TOKENS && !hf->token);
    hf->V = V;
    hf->token = mem_calloc((size_t)V, sizeof *hf->token);
    for (int id = 0; id < V; id++) {
        const char *form = id == UNKNOWN ? "<unk>" : id < FIRST_NAME ? "<0x%02X>" : "[%d]";
        snprintf(hf->token[id], sizeof hf->token[id], form, id < FIRST_NAME ? id - FIRST_BYTE : id);
    }
}

void hf_config_vocabulary(struct tokenizer_spec *spec, const struct hf_config *hf) {
    size_t n = (size_t)hf->V;
    assert(hf->token);
    const char **token = mem_alloc(n * sizeof *token);
    uint32_t *length = mem_alloc(n * sizeof *length);
    int32_t *type = mem_alloc(n * sizeof *type);
    for (int id = 0; id < hf->V; id++) {
        token[id] = hf->token[id];
        length[id] = (uint32_t)strlen(token[id]);
        type[id] = id == UNKNOWN ? TOKEN_UNKNOWN : id < FIRST_NAME ? TOKEN_BYTE : TOKEN_NORMAL;
    }
    *spec = (struct tokenizer_spec){
        .kind = TOKENIZER_SENTENCEPIECE, /* which knows byte tokens */
        .n_tokens = hf->V,
        .token = token,
        .token_length = length,
        .type = type,
        .score = mem_calloc(n, sizeof *spec->score),
        .bos = -1,
        .eos = -1,
        .unknown = UNKNOWN,
    };
}

/* ---- values --------------------------------------------------------------------------------- */

/* The value of a key; NULL if it is missing or null. Keys that mean the same are separated by "|",
 * the usual one first. */
static const struct json *value_of(const struct json *object, const char *keys) {
    for (const char *key = keys; *key; key += strspn(key, "|")) {
        char one[64];
        int length = (int)strcspn(key, "|");
        snprintf(one, sizeof one, "%.*s", length, key);
        const struct json *value = json_member(object, one);
        if (value && !json_is(value, JSON_NULL)) return value;
        key += length;
    }
    return NULL;
}

/* The usual one of keys that mean the same. */
static const char *usual_key(const char *keys, char out[64]) {
    snprintf(out, 64, "%.*s", (int)strcspn(keys, "|"), keys);
    return out;
}

static enum status read_number(const struct json *object, const char *keys, double min, double max,
                               double *out, struct err *err) {
    char text[64];
    const char *key = usual_key(keys, text);
    const struct json *value = value_of(object, keys);
    if (!value) return err_set(err, STATUS_BAD_FILE, key, "key %s is missing", key);
    if (!json_is(value, JSON_NUMBER))
        return err_set(err, STATUS_BAD_FILE, key, "key %s: expected a number", key);
    if (!(value->number >= min && value->number <= max))
        return err_set(err, STATUS_BAD_FILE, key, "key %s: expected %.9g to %.9g, found %.9g", key,
                       min, max, value->number);
    *out = value->number;
    return STATUS_OK;
}

static enum status read_int(const struct json *object, const char *keys, int min, int max, int *out,
                            struct err *err) {
    char text[64];
    double number = 0;
    enum status status = read_number(object, keys, min, max, &number, err);
    *out = (int)number;
    if (status || number == *out) return status;
    const char *key = usual_key(keys, text);
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected a whole number, found %g", key,
                   number);
}

static enum status read_int_or(const struct json *object, const char *key, int max, int fallback,
                               int *out, struct err *err) {
    *out = fallback;
    return value_of(object, key) ? read_int(object, key, 1, max, out, err) : STATUS_OK;
}

static enum status read_bool_or(const struct json *object, const char *key, bool fallback,
                                bool *out, struct err *err) {
    const struct json *value = value_of(object, key);
    *out = json_is(value, JSON_BOOL) ? value->boolean : fallback;
    if (!value || json_is(value, JSON_BOOL)) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected true or false", key);
}

/* As much of a string as may go into a message. */
static const char *shown(const struct json *value, char out[64]) {
    const char *text = json_is(value, JSON_STRING) ? value->string : "";
    size_t length = 0, n = strlen(text);
    while (length < n && length < 40) {
        size_t bytes = printable_prefix(text + length, n - length);
        if (bytes == 0) break;
        length += bytes;
    }
    memcpy(out, text, length);
    out[length] = 0;
    return out;
}

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

static enum status read_shape(struct model_config *c, const struct json *root, struct err *err) {
    const struct {
        const char *key;
        int min, max, *out;
    } keys[] = {
        {"vocab_size", MIN_TOKENS, MAX_TOKENS, &c->V},
        {"hidden_size|n_embd", 1, MAX_WIDTH, &c->K},
        {"num_hidden_layers|n_layer", 1, MAX_LAYERS, &c->L},
        {"num_attention_heads|n_head", 1, MAX_HEADS, &c->H},
        {"max_position_embeddings|n_positions", 1, MAX_CONTEXT, &c->context_length},
    };
    static const char F_key[] = "intermediate_size|n_inner";
    bool has_F = value_of(root, F_key) || !value_of(root, "n_embd");
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !status; i++)
        status = read_int(root, keys[i].key, keys[i].min, keys[i].max, keys[i].out, err);
    if (!status && !has_F) c->F = 4 * c->K; /* GPT-2's, where n_inner is null */
    if (!status && has_F) status = read_int(root, F_key, 1, MAX_WIDTH, &c->F, err);
    if (!status) status = read_int_or(root, "num_key_value_heads", MAX_HEADS, c->H, &c->G, err);
    if (!status) status = read_int_or(root, "head_dim", MAX_WIDTH, c->K / c->H, &c->D, err);
    if (!status) status = check_heads(c, value_of(root, "head_dim") != NULL, err);
    return status;
}

/* ---- positions ------------------------------------------------------------------------------ */

static enum status read_stretch(struct rope_stretch *out, const struct json *scaling,
                                struct err *err) {
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
    out->is_set = !status;
    return status;
}

/* transformers up to version 4 writes rope_theta and rope_scaling, later ones both in
 * rope_parameters. */
static enum status read_rope(struct model_config *c, const struct json *root, struct err *err) {
    char text[64];
    const struct json *both = value_of(root, "rope_parameters");
    const struct json *scaling = both ? both : value_of(root, "rope_scaling");
    const struct json *of_theta = both ? both : root, *type = value_of(scaling, "rope_type|type");
    double theta = 10000;
    enum status status = STATUS_OK;
    if (!c->rope.is_used) return STATUS_OK;
    if (value_of(of_theta, "rope_theta"))
        status = read_number(of_theta, "rope_theta", 1, 1e30, &theta, err);
    c->rope.base = (float)theta;
    c->rope.D_rope = c->D;
    if (status || !scaling || json_is_text(type, "default") || (both && !type)) return status;
    if (json_is_text(type, "llama3")) return read_stretch(&c->rope.stretch, scaling, err);
    return err_set(err, STATUS_BAD_FILE, "rope_scaling",
                   "key rope_scaling: the type \"%s\" is not supported; \"llama3\" is",
                   shown(type, text));
}

/* ---- the rest ------------------------------------------------------------------------------- */

/* Is the file's activation the family's? */
static enum status check_activation(const struct model_config *c, const struct json *root,
                                    struct err *err) {
    static const char keys[] = "hidden_activation|hidden_act|activation_function";
    static const char *const names[][2] = {
        [ACTIVATION_SILU] = {"silu", "swish"},
        [ACTIVATION_GELU] = {"gelu", "gelu"},
        [ACTIVATION_GELU_TANH] = {"gelu_pytorch_tanh", "gelu_new"},
        [ACTIVATION_RELU] = {"relu", "relu"},
    };
    char text[64];
    const struct json *value = value_of(root, keys);
    const char *const *wanted = names[c->activation];
    if (!value || json_is_text(value, wanted[0]) || json_is_text(value, wanted[1]))
        return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "hidden_act",
                   "key hidden_act: only \"%s\" is supported, found \"%s\"", wanted[0],
                   shown(value, text));
}

static enum status read_epsilon(struct model_config *c, const struct json *root, struct err *err) {
    double epsilon = 0;
    const char *key = c->norm == NORM_RMS ? "rms_norm_eps" : "layer_norm_epsilon|layer_norm_eps";
    enum status status = read_number(root, key, 1e-30, 0.5, &epsilon, err);
    c->norm_epsilon = (float)epsilon;
    return status;
}

/* Biases beyond the family's are refused; a window counts unless the file turns it off. */
static enum status read_options(struct model_config *c, const struct json *root, struct err *err) {
    static const char *const off[] = {"attention_bias", "mlp_bias"};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        bool is_on;
        enum status status = read_bool_or(root, off[i], false, &is_on, err);
        if (status) return status;
        if (is_on)
            return err_set(err, STATUS_BAD_FILE, off[i], "key %s: only false is supported", off[i]);
    }
    const struct {
        const char *key;
        double min, max, fallback;
    } keys[] = {{"sliding_window", 1, INT32_MAX, 0},
                {"attn_logit_softcapping", 1e-3, 1e6, 0},
                {"final_logit_softcapping", 1e-3, 1e6, 0},
                {"query_pre_attn_scalar", 1e-3, 1e6, 0}};
    double value[4];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        value[i] = keys[i].fallback;
        if (!value_of(root, keys[i].key)) continue;
        enum status status =
            read_number(root, keys[i].key, keys[i].min, keys[i].max, &value[i], err);
        if (status) return status;
    }
    bool has_window;
    enum status status = read_bool_or(root, "use_sliding_window", true, &has_window, err);
    c->window = has_window ? (int)value[0] : 0;
    c->attention_cap = (float)value[1];
    c->logit_cap = (float)value[2];
    if (value[3] > 0) c->attention_scale = (float)(1 / sqrt(value[3]));
    return status;
}

static enum status read_dtype(struct hf_config *hf, struct err *err) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } names[] = {{"bfloat16", DTYPE_BF16}, {"float16", DTYPE_F16}, {"float32", DTYPE_F32}};
    char text[64];
    const struct json *value = value_of(hf->root, "torch_dtype|dtype");
    hf->dtype = DTYPE_BF16;
    if (!value) return STATUS_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hf->dtype = names[i].dtype;
        if (json_is_text(value, names[i].name)) return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_FILE, "torch_dtype",
                   "key torch_dtype: \"%s\" is not supported; bfloat16, float16 and float32 are",
                   shown(value, text));
}

/* ---- the whole ------------------------------------------------------------------------------ */

enum status hf_config_read(struct model_config *config, struct hf_config *hf, struct err *err) {
    const struct json *root = hf->root;
    snprintf(config->name, sizeof config->name, "%s", hf->name);
    enum status status = read_shape(config, root, err);
    if (!status) status = check_activation(config, root, err);
    if (!status) status = read_options(config, root, err);
    if (!status) status = read_epsilon(config, root, err);
    if (!status) status = read_rope(config, root, err);
    if (!status) status = read_bool_or(root, "tie_word_embeddings", hf->is_tied, &hf->is_tied, err);
    if (!status) status = read_dtype(hf, err);
    if (!status) make_tokens(hf, config->V);
    return status;
}

/* ---- the file ------------------------------------------------------------------------------- */

const char *hf_config_architecture(const struct hf_config *hf, size_t *length) {
    const struct json *name = json_first(value_of(hf->root, "architectures"));
    const char *text = json_is(name, JSON_STRING) ? name->string : "";
    *length = strlen(text);
    return text;
}

enum status hf_config_parse(struct hf_config **out, const char *text, size_t length,
                            struct err *err) {
    *out = NULL;
    struct json *root;
    if (json_parse(&root, "The file", text, length, err) || !json_is(root, JSON_OBJECT)) {
        json_free(root);
        return err_set(err, STATUS_BAD_FILE, NULL, "the file is not a JSON object");
    }
    *out = mem_calloc(1, sizeof **out);
    (*out)->root = root;
    return STATUS_OK;
}

static enum status read_json(const char *path, char **text, size_t *length, struct err *err) {
    FILE *file = fopen(path, "re");
    if (!file) return err_set(err, STATUS_BAD_FILE, "model", "%s: %s", path, strerror(errno));
    *text = mem_alloc(MAX_JSON_BYTES + 1);
    *length = fread(*text, 1, MAX_JSON_BYTES + 1, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (!failed && *length <= MAX_JSON_BYTES) return STATUS_OK;
    free(*text);
    return err_set(err, STATUS_BAD_FILE, "model",
                   failed ? "%s cannot be read" : "%s is longer than the 1 MiB of a config.json",
                   path);
}

enum status hf_config_open(struct hf_config **out, const char *path, struct err *err) {
    char *text = NULL;
    size_t length = 0;
    struct err cause;
    enum status status = read_json(path, &text, &length, err);
    if (status) return status;
    status = hf_config_parse(out, text, length, &cause);
    free(text);
    if (status) return err_set(err, status, "model", "%s: %s", path, cause.message);
    const char *end = strrchr(path, '/'), *begin = end ? end : path;
    while (begin > path && begin[-1] != '/') begin--;
    int n = end ? (int)(end - begin) : (int)strlen(path);
    snprintf((*out)->name, sizeof(*out)->name, "%.*s", n, begin);
    return STATUS_OK;
}

void hf_config_close(struct hf_config *hf) {
    if (!hf) return;
    json_free(hf->root);
    free(hf->token);
    weights_free(&hf->weights);
    free(hf);
}
