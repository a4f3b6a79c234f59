/* PEFT's folders: adapter_config.json and adapter_model.safetensors. A tensor's name is that of the
 * base model's module, followed by its half:
 *
 *     base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight      [rank][K]
 *     base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight      [N][rank]
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "engine/adapters/internal.h"
#include "engine/files/tensors/safetensors.h"

enum { MAX_CONFIG_BYTES = 1 << 20, MAX_PATH_BYTES = 4096 };

/* The files of a folder. */
struct peft {
    struct adapter_file *file;
    struct json *config;
    struct safetensors tensors;
    struct weights weights;
    double alpha, rank; /* of modules without a pattern */
    bool by_root;       /* rsLoRA (Kalajdzievski 2023): alpha / sqrt(rank) */
};

/* ---- adapter_config.json -------------------------------------------------------------------- */

static enum status read_json(struct peft *p, const char *path) {
    struct mapping file;
    struct err *err = p->file->err;
    enum status status = mapping_open(&file, path, err);
    if (status) return status;
    if (file.size > MAX_CONFIG_BYTES)
        status = err_set(err, STATUS_BAD_FILE, "adapter_config.json",
                         "adapter_config.json has %zu bytes; the limit is %d", file.size,
                         (int)MAX_CONFIG_BYTES);
    else if (json_parse(&p->config, "adapter_config.json", (const char *)file.data, file.size, err))
        status = err->status = STATUS_BAD_FILE;
    mapping_close(&file);
    if (!status && !json_is(p->config, JSON_OBJECT))
        status = err_set(err, STATUS_BAD_FILE, "adapter_config.json",
                         "adapter_config.json is %s, not an object", json_type_name(p->config));
    return status;
}

/* Does the key ask for something: true, a text, or a list or an object with members? */
static bool is_set(const struct json *value) {
    if (!value || value->type == JSON_NULL) return false;
    if (json_is(value, JSON_BOOL)) return json_true(value);
    if (json_is(value, JSON_NUMBER)) return json_number(value) != 0;
    return json_is(value, JSON_STRING) || json_count(value) > 0;
}

/* The features that would give other answers if they were ignored. */
static const struct {
    const char *key, *what;
} refused[] = {
    {"use_dora", "DoRA (weights with a separate magnitude)"},
    {"modules_to_save", "whole modules that replace those of the base model"},
    {"trainable_token_indices", "changed embeddings of tokens"},
    {"lora_bias", "biases of its matrices"},
    {"target_parameters", "changes of parameters that are not projections, such as experts"},
    {"layer_replication", "repeated layers"},
    {"use_qalora", "QALoRA"},
    {"use_bdlora", "BD-LoRA"},
    {"alora_invocation_tokens", "aLoRA, which begins at a token"},
    {"arrow_config", "routing among adapters"},
    {"kasa_config", "KaSA"},
    {"monteclora_config", "MonteCLoRA"},
    {"velora_config", "VeLoRA"},
};

static enum status refuse_key(const struct peft *p, const char *key, const char *what) {
    return err_set(p->file->err, STATUS_BAD_FILE, key,
                   "adapter_config.json: key %s asks for %s, which is not supported", key, what);
}

static enum status check_features(const struct peft *p) {
    const struct json *type = json_member(p->config, "peft_type");
    const struct json *bias = json_member(p->config, "bias");
    const char *initial = json_text(json_member(p->config, "init_lora_weights"));
    static const char *const changing[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    if (!json_is_text(type, "LORA"))
        return err_set(p->file->err, STATUS_BAD_FILE, "peft_type",
                       "adapter_config.json: key peft_type is \"%s\"; only \"LORA\" is supported",
                       json_text(type));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (is_set(json_member(p->config, refused[i].key)))
            return refuse_key(p, refused[i].key, refused[i].what);
    if (is_set(bias) && !json_is_text(bias, "none"))
        return refuse_key(p, "bias", "trained biases of the base model");
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
        if (strncmp(initial, changing[i], strlen(changing[i])) == 0)
            return refuse_key(p, "init_lora_weights",
                              "changed weights of the base model (convert the adapter to LoRA when "
                              "you save it)");
    return STATUS_OK;
}

/* Reads a number that is finite and at least `least`; `fallback` if the key does not exist. */
static enum status read_number(const struct peft *p, const struct json *value, const char *key,
                               double least, double fallback, double *out) {
    *out = fallback;
    if (!value || value->type == JSON_NULL) return STATUS_OK;
    *out = json_number(value);
    if (json_is(value, JSON_NUMBER) && isfinite(*out) && *out >= least) return STATUS_OK;
    return err_set(p->file->err, STATUS_BAD_FILE, key,
                   "adapter_config.json: key %s must be a finite number of at least %g", key,
                   least);
}

static enum status read_scales(struct peft *p) {
    const struct json *alpha = json_member(p->config, "lora_alpha"),
                      *rank = json_member(p->config, "r");
    enum status status = read_number(p, rank, "r", 1, 8, &p->rank);
    if (!status) status = read_number(p, alpha, "lora_alpha", -1e9, 8, &p->alpha);
    p->by_root = json_true(json_member(p->config, "use_rslora"));
    return status;
}

/* Finds the value of a module in alpha_pattern or rank_pattern. A key is the end of the module's
 * name, after a dot. Keys that are regular expressions are refused. */
static enum status find_pattern(const struct peft *p, const char *pattern, const char *module,
                                double fallback, double *out) {
    *out = fallback;
    json_each_member(member, json_member(p->config, pattern)) {
        size_t n = strlen(member->name), length = strlen(module);
        if (strpbrk(member->name, "*+?^$[](){}|\\"))
            return refuse_key(p, pattern, "modules by a regular expression");
        if (n > length || strcmp(module + length - n, member->name) != 0) continue;
        if (n < length && module[length - n - 1] != '.') continue;
        return read_number(p, member, pattern, -1e9, fallback, out);
    }
    return STATUS_OK;
}

/* Sets the scale of a module, of which `weight` is matrix A if `is_a`. */
static enum status find_scale(const struct peft *p, const char *module, const struct weight *weight,
                              bool is_a, float *scale) {
    double alpha, rank = 1;
    *scale = 0;
    enum status status = find_pattern(p, "alpha_pattern", module, p->alpha, &alpha);
    if (!status) status = find_pattern(p, "rank_pattern", module, p->rank, &rank);
    if (status) return status;
    if (is_a && (double)weight->dim[1] != rank)
        return err_set(p->file->err, STATUS_BAD_FILE, weight->name,
                       "tensor %s has rank %d, but adapter_config.json says %g", weight->name,
                       (int)weight->dim[1], rank);
    *scale = (float)(alpha / (p->by_root ? sqrt(rank) : rank));
    return STATUS_OK;
}

/* ---- tensors -------------------------------------------------------------------------------- */

static enum status refuse_tensor(const struct peft *p, const struct weight *weight,
                                 const char *what) {
    return err_set(p->file->err, STATUS_BAD_FILE, weight->name, "tensor %s is %s", weight->name,
                   what);
}

static enum status refuse_name(const struct peft *p, const struct weight *weight) {
    const char *name = weight->name;
    if (strstr(name, "lora_magnitude"))
        return refuse_tensor(p, weight, "a magnitude of DoRA, which is not supported");
    if (strstr(name, "lora_embedding"))
        return refuse_tensor(p, weight, "for an embedding, which adapters cannot change here");
    if (strstr(name, "lora_"))
        return refuse_tensor(p, weight, "not a matrix lora_A.weight or lora_B.weight");
    return refuse_tensor(p, weight,
                         "a whole tensor (modules_to_save or a bias); only lora_A and lora_B are "
                         "supported");
}

static enum status add_tensor(struct peft *p, const struct weight *weight) {
    static const char ends[2][16] = {".lora_A.weight", ".lora_B.weight"};
    const size_t length = strlen(weight->name), end = strlen(ends[0]);
    char name[WEIGHT_MAX_NAME + 8];
    int half = 0, layer;
    float scale;
    while (half < 2 && (length <= end || strcmp(weight->name + length - end, ends[half]) != 0))
        half++;
    if (half == 2) return refuse_name(p, weight);
    snprintf(name, sizeof name, "%.*s", (int)(length - end), weight->name);
    enum status status = find_scale(p, name, weight, half == 0, &scale);
    if (status) return status;
    strcat(name, ".weight");
    enum role role = model_folder_role(&p->file->model->config, name, &layer);
    return pair_add(p->file, weight, half == 0 ? 'a' : 'b', role, layer, scale);
}

static enum status open_tensors(struct peft *p, const char *path) {
    struct err *err = p->file->err;
    enum status status = safetensors_open(&p->tensors, path, err);
    if (status) return status;
    weights_init(&p->weights, (size_t)p->tensors.n_tensors);
    status = safetensors_list(&p->tensors, &p->weights, false, err);
    for (int i = 0; i < p->weights.n && !status; i++) status = add_tensor(p, &p->weights.tensor[i]);
    return status;
}

enum status peft_read(struct adapter **out, struct adapter_file *file,
                      const struct adapter_limits *limits) {
    char config[MAX_PATH_BYTES], tensors[MAX_PATH_BYTES];
    struct peft p = {.file = file};
    int n = snprintf(config, sizeof config, "%s/adapter_config.json", file->path);
    int m = snprintf(tensors, sizeof tensors, "%s/adapter_model.safetensors", file->path);
    if (n >= MAX_PATH_BYTES || m >= MAX_PATH_BYTES)
        return err_set(file->err, STATUS_BAD_FILE, "lora_path", "the path is too long");
    enum status status = read_json(&p, config);
    if (!status) status = check_features(&p);
    if (!status) status = read_scales(&p);
    if (!status) status = open_tensors(&p, tensors);
    if (!status) status = parts_make(out, file, limits);
    if (!status) status = mapping_check(&p.tensors.file, file->err);
    json_free(p.config);
    weights_free(&p.weights);
    safetensors_close(&p.tensors);
    return status;
}
