/* Reads the config.json of an EAGLE-3 head (Li et al. 2025, "EAGLE-3"), in the published form:
 * LlamaForCausalLMEagle3 of the authors and of SpecForge, Eagle3LlamaForCausalLM of AngelSlim.
 *
 * A head reads three vectors of the model's stream. Published ids of them have two meanings:
 *
 *     eagle_aux_hidden_state_layer_ids               as vLLM counts: id i is the input of layer i
 *     eagle_config.eagle_aux_hidden_state_layer_ids  as SGLang counts: its output
 *     neither                                        both: the inputs of layers 2, n / 2 and n - 3
 */
#include <assert.h>
#include <string.h>

#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"
#include "engine/files/model_file.h"

static const char ids_key[] = "eagle_aux_hidden_state_layer_ids";

static enum status refuse_packing(const struct hf_config *hf, struct err *err) {
    enum status status = err_set(err, STATUS_BAD_FILE, "quantization_config",
                                 "key quantization_config: only EAGLE-3 heads with float weights "
                                 "are supported; name a head that is not quantised");
    return blame_file(err, status, hf->path);
}

enum status hf_eagle_open(struct hf_config **out, const char *folder, struct err *err) {
    enum status status = hf_config_open_folder(out, folder, err);
    if (status) return status;
    if (key_value((*out)->root, "quantization_config")) return refuse_packing(*out, err);
    (*out)->lists_ids = true;
    status = hf_weights_open(*out, err);
    if (status) return status;
    /* other keys, or a file beside config.json, may also name a method */
    return (*out)->packing.method == PACKING_NONE ? STATUS_OK : refuse_packing(*out, err);
}

static bool has_class(const struct hf_config *hf) {
    static const char *const names[] = {"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"};
    size_t length = 0;
    const char *text = hf_config_architecture(hf, &length);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (length == strlen(names[i]) && memcmp(text, names[i], length) == 0) return true;
    return false;
}

enum status hf_eagle_refuse(const struct hf_config *hf, struct err *err) {
    if (!has_class(hf)) return STATUS_OK;
    enum status status =
        err_set(err, STATUS_BAD_FILE, "architectures",
                "key architectures: the folder is an EAGLE-3 head, and no model; name it in "
                "{speculative-config} with its method, \"method\": \"eagle3\", beside the model "
                "that it was trained for");
    return blame_file(err, status, hf->path);
}

static enum status check_class(const struct hf_config *hf, struct err *err) {
    size_t length = 0;
    const char *text = hf_config_architecture(hf, &length);
    if (has_class(hf)) return STATUS_OK;
    const bool is_shown = length > 0 && length < 64 && is_printable(text, length);
    return err_set(err, STATUS_BAD_FILE, "architectures",
                   "key architectures: \"%.*s\" is not an EAGLE-3 head that is supported; "
                   "LlamaForCausalLMEagle3 and Eagle3LlamaForCausalLM are",
                   is_shown ? (int)length : 0, text);
}

/* Refuses features without which the guesses would be wrong. */
static enum status check_features(const struct json *root, struct err *err) {
    const struct json *eagle = key_value(root, "eagle_config");
    const struct json *act = key_value(root, "hidden_act");
    const struct {
        const struct json *in;
        const char *key;
        bool usual;
    } flags[] = {{root, "attention_bias", false},
                 {root, "mlp_bias", false},
                 {root, "norm_before_fc", false},
                 {eagle, "use_aux_hidden_state", true}};
    if (eagle && !json_is(eagle, JSON_OBJECT))
        return err_set(err, STATUS_BAD_FILE, "eagle_config",
                       "key eagle_config: expected an object, found %s", json_type_name(eagle));
    if (act && !json_is_text(act, "silu"))
        return err_set(err, STATUS_BAD_FILE, "hidden_act",
                       "key hidden_act: only \"silu\" is supported in an EAGLE-3 head");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool value = flags[i].usual;
        enum status status =
            flags[i].in ? key_bool_or(flags[i].in, flags[i].key, value, &value, err) : STATUS_OK;
        if (status) return status;
        if (value != flags[i].usual)
            return err_set(err, STATUS_BAD_FILE, flags[i].key,
                           "key %s: only %s is supported in an EAGLE-3 head", flags[i].key,
                           flags[i].usual ? "true" : "false");
    }
    return STATUS_OK;
}

/* Compares a number with the model's. */
static enum status check_same(const char *key, int found, int wanted, struct err *err) {
    if (found == wanted) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, key,
                   "key %s: the head is for a model with %d, and this model has %d; name the head "
                   "that was trained for this model",
                   key, found, wanted);
}

static enum status check_heads(int H, const struct kv_heads *heads, struct err *err) {
    if (H % heads->G == 0 && heads->D % 2 == 0 && (int64_t)H * heads->D <= MAX_WIDTH)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "num_attention_heads",
                   "key num_attention_heads: %d query heads of %d over %d key-value heads are not "
                   "supported: the former must be a multiple of the latter, and the size even",
                   H, heads->D, heads->G);
}

/* Reads the sizes of the head's layer. */
static enum status read_layer(struct model_config *config, const struct json *root,
                              struct err *err) {
    struct eagle_config *eagle = &config->eagle;
    struct layer_config *layer = &config->layer[config->L - 1];
    double epsilon = 1e-6;
    int n = 0, K = 0;
    enum status status = key_int(root, "num_hidden_layers", 1, MAX_LAYERS, &n, err);
    if (!status && n != 1)
        status =
            err_set(err, STATUS_BAD_FILE, "num_hidden_layers",
                    "key num_hidden_layers: an EAGLE-3 head of 1 layer is supported, found %d", n);
    if (!status) status = key_int(root, "hidden_size", 1, MAX_WIDTH, &K, err);
    if (!status) status = check_same("hidden_size", K, config->K, err);
    if (!status) status = key_int_or(root, "target_hidden_size", 1, MAX_WIDTH, K, &K, err);
    if (!status) status = check_same("target_hidden_size", K, config->K, err);
    if (!status) status = key_int(root, "intermediate_size", 1, MAX_WIDTH, &layer->F, err);
    if (!status) status = key_int(root, "num_attention_heads", 1, MAX_HEADS, &eagle->H, err);
    if (status) return status;
    status = key_int_or(root, "num_key_value_heads", 1, MAX_HEADS, eagle->H, &layer->heads.G, err);
    if (!status)
        status = key_int_or(root, "head_dim", 2, MAX_WIDTH, max_int(config->K / eagle->H, 2),
                            &layer->heads.D, err);
    if (!status) status = check_heads(eagle->H, &layer->heads, err);
    if (!status) status = key_number_or(root, "rms_norm_eps", 0, 1, epsilon, &epsilon, err);
    eagle->norm_epsilon = (float)epsilon;
    return status ? status
                  : key_bool_or(root, "norm_before_residual", false, &eagle->norms_stream, err);
}

static enum status read_vocabulary(struct model_config *config, const struct json *root,
                                   struct err *err) {
    int V = 0;
    enum status status = key_int(root, "vocab_size", 1, MAX_TOKENS, &V, err);
    if (!status) status = check_same("vocab_size", V, config->V, err);
    if (!status)
        status =
            key_int_or(root, "draft_vocab_size", 1, config->V, config->V, &config->eagle.V, err);
    return status;
}

/* Reads the rotation as that of a model. */
static enum status read_rotation(struct model_config *config, const struct json *root,
                                 struct err *err) {
    struct model_config *own = mem_calloc(1, sizeof *own);
    const struct rope_config usual = {.is_used = true, .base = 10000, .layout = ROPE_HALVES};
    own->L = 1, own->D = config->layer[config->L - 1].heads.D, own->rope = usual;
    enum status status = key_int_or(root, "max_position_embeddings", 1, MAX_CONTEXT, 2048,
                                    &own->context_length, err);
    if (!status) status = hf_rope_read(own, root, err);
    if (!status && own->layer[0].has_no_rope)
        status = err_set(err, STATUS_BAD_FILE, "no_rope_layers",
                         "key no_rope_layers: an EAGLE-3 head rotates its queries and keys");
    config->eagle.rope = own->rope;
    mem_free(own);
    return status;
}

/* Reads the ids of the vectors, or chooses them. */
static enum status read_taps(struct model_config *config, const struct json *root,
                             struct err *err) {
    const int L = config->L - 1; /* the model's own */
    int32_t *tap = config->eagle.tap;
    const struct json *eagle = key_value(root, "eagle_config");
    const bool is_outer = key_value(root, ids_key),
               is_inner = !is_outer && key_value(eagle, ids_key);
    int n = 0;
    enum status status = is_inner ? key_ids(eagle, ids_key, L - 1, N_TAPS, tap, &n, err)
                                  : key_ids(root, ids_key, L, N_TAPS, tap, &n, err);
    for (int i = 0; i < n && is_inner; i++) tap[i]++;
    if (status || n == N_TAPS) return status;
    if (is_outer || is_inner)
        return err_set(err, STATUS_BAD_FILE, ids_key, "key %s: %d ids were expected, found %d",
                       ids_key, N_TAPS, n);
    if (L < 4)
        return err_set(err, STATUS_BAD_FILE, ids_key,
                       "key %s: it is missing, and the usual ids need a model of 4 layers; this "
                       "model has %d",
                       ids_key, L);
    tap[0] = 2, tap[1] = L / 2, tap[2] = L - 3;
    return STATUS_OK;
}

enum status hf_eagle_read(struct model_config *config, const struct hf_config *hf,
                          struct err *err) {
    assert(config->L > 1 && config->K > 0 && config->V > 0 && config->eagle.is_used);
    enum status status = check_class(hf, err);
    if (!status) status = check_features(hf->root, err);
    if (!status) status = read_layer(config, hf->root, err);
    if (!status) status = read_vocabulary(config, hf->root, err);
    if (!status) status = read_rotation(config, hf->root, err);
    if (!status) status = read_taps(config, hf->root, err);
    for (int i = 0; i < N_TAPS && !status; i++)
        assert(config->eagle.tap[i] >= 0 && config->eagle.tap[i] < config->L);
    return status ? blame_file(err, status, hf->path) : STATUS_OK;
}
