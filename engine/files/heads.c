/* Reads heads: the steps Dense of sentence-transformers, each with its config.json and
 * model.safetensors; and heads for sequence classification in the model's own files, with the names
 * of their labels. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "engine/files/hf_keys.h"
#include "engine/files/model_file.h"
#include "engine/files/tensors/safetensors.h"

enum { MAX_DENSE_BYTES = 1 << 16 };

/* ---- tensors -------------------------------------------------------------------------------- */

static enum status refuse_shape(const struct weight *weight, int n_out, int n_in, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, weight->name,
                   "tensor %s: expected [%d, %d], found [%d, %d]", weight->name, n_out, n_in,
                   (int)weight->dim[1], (int)weight->dim[0]);
}

/* Returns the bias as floats. */
static float *bias_of(const struct weight *bias) {
    float *out = mem_alloc((size_t)bias->n_elements * sizeof *out);
    dequantise(bias->type, bias->data, out, (size_t)bias->n_elements);
    return out;
}

/* Returns the columns of a matrix [n_out][n_in], one after the other. */
static float *columns_of(const struct weight *weight) {
    size_t n_in = (size_t)weight->dim[0], n_out = (size_t)weight->dim[1];
    assert(n_in > 0 && n_out > 0);
    size_t row_bytes = dtype_bytes(weight->type, n_in);
    float *row = mem_alloc(n_in * sizeof *row), *out = mem_alloc(n_in * n_out * sizeof *out);
    for (size_t j = 0; j < n_out; j++) {
        dequantise(weight->type, (const char *)weight->data + j * row_bytes, row, n_in);
        for (size_t i = 0; i < n_in; i++) out[i * n_out + j] = row[i];
    }
    mem_free(row);
    return out;
}

enum status head_add(struct head *head, const struct weight *weight, const struct weight *bias,
                     int n_in, enum head_activation activation, struct err *err) {
    bool is_matrix = weight->n_dims <= 2 && weight->dim[1] >= 1 &&
                     weight->dim[1] <= MAX_HEAD_WIDTH && !weight->packed;
    if (head->n > 0) n_in = head->layer[head->n - 1].n_out;
    if (!is_matrix || weight->dim[0] != n_in)
        return refuse_shape(weight, (int)weight->dim[1], n_in, err);
    if (bias && (bias->n_elements != weight->dim[1] || bias->packed))
        return refuse_shape(bias, 1, (int)weight->dim[1], err);
    if (head->n == MAX_HEAD_LAYERS)
        return err_set(err, STATUS_BAD_FILE, weight->name,
                       "tensor %s: expected at most %d layers after pooling, found more",
                       weight->name, MAX_HEAD_LAYERS);
    assert(head->n >= 0 && n_in > 0);
    head->layer[head->n++] = (struct head_layer){.n_in = n_in,
                                                 .n_out = (int)weight->dim[1],
                                                 .weight = columns_of(weight),
                                                 .bias = bias ? bias_of(bias) : NULL,
                                                 .activation = activation};
    return STATUS_OK;
}

void head_free(struct head *head) {
    for (int i = 0; i < head->n; i++) {
        mem_free(head->layer[i].weight);
        mem_free(head->layer[i].bias);
        mem_free(head->layer[i].gain);
        mem_free(head->layer[i].norm_bias);
    }
    *head = (struct head){0};
}

/* ---- steps of sentence-transformers --------------------------------------------------------- */

/* Reads the name of torch's class. Returns false if it is not served. */
static bool read_activation(const struct json *settings, enum head_activation *out) {
    static const char *const names[N_HEAD_ACTIVATIONS] = {
        [HEAD_IDENTITY] = "Identity", [HEAD_TANH] = "Tanh",       [HEAD_RELU] = "ReLU",
        [HEAD_GELU] = "GELU",         [HEAD_SIGMOID] = "Sigmoid", [HEAD_SILU] = "SiLU"};
    const struct json *value = key_value(settings, "activation_function");
    const char *dot = strrchr(json_text(value), '.'), *name = dot ? dot + 1 : json_text(value);
    *out = HEAD_TANH; /* the usual one of the library */
    if (!value) return true;
    for (int i = 0; i < N_HEAD_ACTIVATIONS; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (enum head_activation)i;
        return true;
    }
    return false;
}

static enum status add_tensors(struct head *head, const struct weights *weights, const char *path,
                               int n_in, enum head_activation activation, struct err *err) {
    const struct weight *weight = weights_lookup(weights, "linear.weight");
    const struct weight *bias = weights_lookup(weights, "linear.bias");
    if (!weight)
        return err_set(err, STATUS_BAD_FILE, path,
                       "%s: expected the tensor linear.weight, found none", path);
    enum status status = head_add(head, weight, bias, n_in, activation, err);
    return status ? blame_file(err, status, path) : STATUS_OK;
}

static enum status read_tensors(struct head *head, const char *path, int n_in,
                                enum head_activation activation, struct err *err) {
    struct safetensors file = {0};
    struct weights weights;
    enum status status = safetensors_open(&file, path, err);
    if (!status) {
        weights_init(&weights, (size_t)file.n_tensors);
        status = safetensors_list(&file, &weights, false, err);
        if (!status) status = add_tensors(head, &weights, path, n_in, activation, err);
        weights_free(&weights);
    }
    safetensors_close(&file);
    return status;
}

enum status dense_step_read(struct head *head, const char *folder, const char *step, int n_in,
                            bool *served, struct err *err) {
    char name[160];
    struct json *settings = NULL;
    enum head_activation activation;
    snprintf(name, sizeof name, "%s/config.json", step);
    char *config = path_in(folder, name);
    enum status status = hf_file_read(&settings, config, MAX_DENSE_BYTES, err);
    mem_free(config);
    snprintf(name, sizeof name, "%s/model.safetensors", step);
    *served = !status && read_activation(settings, &activation) && is_in_folder(folder, name) &&
              head->n < MAX_HEAD_LAYERS;
    json_free(settings);
    if (status || !*served) return status;
    char *path = path_in(folder, name);
    status = read_tensors(head, path, n_in, activation, err);
    mem_free(path);
    return status;
}

/* ---- classifiers ---------------------------------------------------------------------------- */

/* The layers of a head, as names of tensors without ".weight" and ".bias". */
struct head_names {
    const char *first; /* NULL: one layer */
    enum head_activation activation;
    const char *norm; /* of the first layer; NULL: none */
    const char *last;
};
static const struct head_names of_folders[] = {
    {NULL, HEAD_IDENTITY, NULL, "score"},
    {"classifier.dense", HEAD_TANH, NULL, "classifier.out_proj"},
    {"bert.pooler.dense", HEAD_TANH, NULL, "classifier"},
    {"head.dense", HEAD_GELU, "head.norm", "classifier"},
};
/* Of tokens: without a pooler. */
static const struct head_names of_tokens[] = {
    {NULL, HEAD_IDENTITY, NULL, "score"},
    {"head.dense", HEAD_GELU, "head.norm", "classifier"},
    {NULL, HEAD_IDENTITY, NULL, "classifier"},
};
/* ModernBERT's head has a norm, and another activation than BERT's. */
static const struct head_names of_gguf[] = {
    {"cls", HEAD_GELU, "cls.norm", "cls.output"},
    {"cls", HEAD_TANH, NULL, "cls.output"},
    {NULL, HEAD_IDENTITY, NULL, "cls.output"},
};

bool is_head_tensor(const char *name, bool in_gguf) {
    static const char *const of_file[] = {"cls.weight",        "cls.bias",        "cls.norm.weight",
                                          "cls.output.weight", "cls.output.bias", "dense_2.weight",
                                          "dense_3.weight"};
    static const char *const of_folder[] = {"score.weight",
                                            "score.bias",
                                            "classifier.dense.weight",
                                            "classifier.dense.bias",
                                            "classifier.out_proj.weight",
                                            "classifier.out_proj.bias",
                                            "classifier.weight",
                                            "classifier.bias",
                                            "bert.pooler.dense.weight",
                                            "bert.pooler.dense.bias",
                                            "head.dense.weight",
                                            "head.dense.bias",
                                            "head.norm.weight",
                                            "head.norm.bias"};
    const char *const *names = in_gguf ? of_file : of_folder;
    size_t n = in_gguf ? sizeof of_file / sizeof *of_file : sizeof of_folder / sizeof *of_folder;
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static const char for_texts[] = "ForSequenceClassification";
static const char for_tokens[] = "ForTokenClassification";

static bool class_ends_with(const struct hf_config *hf, const char *end) {
    size_t length, n = strlen(end);
    const char *name = hf_config_architecture(hf, &length);
    return length > n && strcmp(name + length - n, end) == 0;
}

bool hf_config_classifies(const struct hf_config *hf) {
    return class_ends_with(hf, for_texts) || class_ends_with(hf, for_tokens);
}

/* Returns the bytes of a class's name before its task: "Qwen3" of Qwen3ForCausalLM. */
static size_t base_of(const char *class) {
    static const char *const tasks[] = {"For", "LMHead", "Model"};
    size_t n = 0;
    for (; class[n]; n++)
        for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
            if (strncmp(class + n, tasks[i], strlen(tasks[i])) == 0) return n;
    return n;
}

bool is_class_or_classifier(const char *name, const char *class) {
    size_t n = base_of(class);
    if (strcmp(name, class) == 0) return true;
    return n == base_of(name) && strncmp(name, class, n) == 0 &&
           (strcmp(name + n, for_texts) == 0 || strcmp(name + n, for_tokens) == 0);
}

/* ---- layers --------------------------------------------------------------------------------- */

/* Finds a tensor by the name in its file. */
static const struct weight *find_tensor(const struct weights *weights, const char *layer,
                                        const char *end) {
    char name[WEIGHT_MAX_NAME + 1];
    assert(layer && end);
    snprintf(name, sizeof name, "%s.%s", layer, end);
    for (int i = 0; i < weights->n; i++)
        if (strcmp(weights->tensor[i].name, name) == 0) return &weights->tensor[i];
    return NULL;
}

static enum status add_layer(struct head *head, const struct weights *weights, const char *name,
                             int n_in, enum head_activation activation, struct err *err) {
    const struct weight *weight = find_tensor(weights, name, "weight");
    const struct weight *bias = find_tensor(weights, name, "bias");
    return head_add(head, weight, bias, n_in, activation, err);
}

/* Reads the norm of the head's last layer. */
static enum status add_norm(struct head *head, const struct weights *weights, const char *name,
                            float epsilon, struct err *err) {
    struct head_layer *layer = &head->layer[head->n - 1];
    const struct weight *const parts[] = {find_tensor(weights, name, "weight"),
                                          find_tensor(weights, name, "bias")};
    assert(parts[0] && !layer->gain);
    for (int i = 0; i < 2; i++) {
        if (!parts[i]) continue;
        if (parts[i]->n_elements != layer->n_out || parts[i]->packed)
            return refuse_shape(parts[i], 1, layer->n_out, err);
        *(i == 0 ? &layer->gain : &layer->norm_bias) = bias_of(parts[i]);
    }
    layer->epsilon = epsilon;
    return STATUS_OK;
}

static bool has_form(const struct weights *weights, const struct head_names *names) {
    const char *const parts[] = {names->first, names->norm, names->last};
    for (int i = 0; i < 3; i++)
        if (parts[i] && !find_tensor(weights, parts[i], "weight")) return false;
    return true;
}

/* Adds the layers of the first form that the file has. */
static enum status read_layers(struct head *head, const struct weights *weights,
                               const struct head_names *names, size_t n,
                               const struct model_config *config, struct err *err) {
    const int n_in = config->K_embedding;
    for (size_t i = 0; i < n; i++, names++) {
        if (!has_form(weights, names)) continue;
        enum status status = STATUS_OK;
        if (names->first)
            status = add_layer(head, weights, names->first, n_in, names->activation, err);
        if (!status && names->norm)
            status = add_norm(head, weights, names->norm, config->norm_epsilon, err);
        if (!status) status = add_layer(head, weights, names->last, n_in, HEAD_IDENTITY, err);
        return status;
    }
    return STATUS_OK;
}

/* ---- labels --------------------------------------------------------------------------------- */

static enum status begin_labels(struct classifier *out, struct err *err) {
    out->n_labels = head_outputs(&out->head, 0);
    if (out->n_labels > MAX_LABELS)
        return err_set(err, STATUS_BAD_FILE, "classifier",
                       "the head of the model has %d labels; the limit is %d", out->n_labels,
                       MAX_LABELS);
    assert(out->n_labels > 0 && !out->label);
    out->label = mem_calloc((size_t)out->n_labels, sizeof *out->label);
    out->activation = out->n_labels == 1 ? LABELS_SIGMOID : LABELS_SOFTMAX;
    out->of_scores = out->activation;
    return STATUS_OK;
}

/* Gives the labels without a name transformers' names. */
static void finish_labels(struct classifier *out) {
    for (int i = 0; i < out->n_labels; i++) {
        char name[32];
        snprintf(name, sizeof name, "LABEL_%d", i);
        if (!out->label[i]) out->label[i] = mem_strdup(name);
    }
}

/* {"0": "negative", "1": "positive"} */
static void read_names(struct classifier *out, const struct json *names) {
    for (int i = 0; i < out->n_labels; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        const struct json *name = json_member(names, number);
        if (json_length(name) > 0) out->label[i] = mem_strdup(json_text(name));
    }
}

/* The activation of scores is the library's that trained the model, as vLLM has it. */
static void read_activations(struct classifier *out, const struct json *root) {
    const struct json *type = key_value(root, "problem_type");
    const struct json *of_scores =
        json_member(key_value(root, "sentence_transformers"), "activation_fn");
    if (!of_scores) of_scores = key_value(root, "sbert_ce_default_activation_function");
    const char *dot = strrchr(json_text(of_scores), '.');
    if (json_is_text(type, "regression")) out->activation = LABELS_IDENTITY;
    if (json_is_text(type, "multi_label_classification")) out->activation = LABELS_SIGMOID;
    if (json_is_text(type, "single_label_classification")) out->activation = LABELS_SOFTMAX;
    if (dot && strcmp(dot, ".Identity") == 0) out->of_scores = LABELS_IDENTITY;
    if (dot && strcmp(dot, ".Sigmoid") == 0) out->of_scores = LABELS_SIGMOID;
}

/* Reads the pooling before ModernBERT's head, and the head's activation. */
static enum status read_head_keys(struct classifier *out, const struct json *root,
                                  struct err *err) {
    static const char *const names[] = {"gelu", "tanh", "relu", "silu"};
    static const enum head_activation kinds[] = {HEAD_GELU, HEAD_TANH, HEAD_RELU, HEAD_SILU};
    const struct json *rows = key_value(root, "classifier_pooling");
    const struct json *activation = key_value(root, "classifier_activation");
    char text[64];
    if (json_is_text(rows, "mean") && !out->of_tokens) out->rows = HIDDEN_ALL;
    if (rows && !json_is_text(rows, "mean") && !json_is_text(rows, "cls"))
        return err_set(err, STATUS_BAD_FILE, "classifier_pooling",
                       "key classifier_pooling: expected \"cls\" or \"mean\", found \"%s\"",
                       key_shown(rows, text));
    for (size_t i = 0; i < sizeof names / sizeof *names && activation; i++) {
        if (!json_is_text(activation, names[i])) continue;
        out->head.layer[0].activation = kinds[i];
        return STATUS_OK;
    }
    if (!activation) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "classifier_activation",
                   "key classifier_activation: expected \"gelu\", \"tanh\", \"relu\" or \"silu\", "
                   "found \"%s\"",
                   key_shown(activation, text));
}

static enum status read_folder(struct classifier *out, const struct hf_config *hf,
                               const struct model_config *config, struct err *err) {
    if (!config->lacks_text || hf->n_shards == 0) return STATUS_OK;
    out->of_tokens = class_ends_with(hf, for_tokens);
    const struct head_names *names = out->of_tokens ? of_tokens : of_folders;
    const size_t n = out->of_tokens ? sizeof of_tokens / sizeof *of_tokens
                                    : sizeof of_folders / sizeof *of_folders;
    enum status status = read_layers(&out->head, &hf->weights, names, n, config, err);
    if (!status && out->head.n == 0)
        status =
            err_set(err, STATUS_BAD_FILE, "model",
                    "%s: expected the tensor score.weight or classifier.weight, as config.json "
                    "names a class for classification, found none",
                    hf->folder);
    if (out->of_tokens) out->rows = HIDDEN_ALL;
    if (!status && out->head.layer[0].gain) status = read_head_keys(out, hf->root, err);
    if (!status) status = begin_labels(out, err);
    if (status) return status;
    read_names(out, key_value(hf->root, "id2label"));
    read_activations(out, hf->root);
    return STATUS_OK;
}

/* ---- GGUF files ----------------------------------------------------------------------------- */

static enum status read_gguf_names(struct classifier *out, const struct gguf *gguf,
                                   const char *architecture, struct err *err) {
    char key[128];
    const struct gguf_value *value;
    snprintf(key, sizeof key, "%s.classifier.output_labels", architecture);
    if (!gguf_find(gguf, key)) return STATUS_OK;
    enum status status = gguf_array(gguf, key, GGUF_STRING, &value, err);
    if (status) return status;
    const uint8_t *at = value->data;
    for (uint64_t i = 0; i < value->count && i < (uint64_t)out->n_labels; i++) {
        size_t length;
        const char *text = gguf_next_string(&at, &length);
        out->label[i] = mem_calloc(length + 1, 1);
        memcpy(out->label[i], text, length);
    }
    return STATUS_OK;
}

static enum status read_gguf(struct classifier *out, const struct gguf *gguf,
                             const struct model_config *config, struct err *err) {
    const char *text = NULL;
    size_t length = 0;
    enum status status = read_layers(&out->head, &gguf->weights, of_gguf,
                                     sizeof of_gguf / sizeof *of_gguf, config, err);
    if (status || out->head.n == 0) return status;
    if (out->head.layer[0].gain) out->rows = HIDDEN_ALL; /* llama.cpp has no key for it */
    status = begin_labels(out, err);
    if (!status) status = read_gguf_names(out, gguf, config->architecture, err);
    if (!status)
        status = gguf_string_or(gguf, "tokenizer.chat_template.rerank", &text, &length, err);
    if (status || !text) return status;
    out->pair_text = mem_calloc(length + 1, 1);
    memcpy(out->pair_text, text, length);
    return STATUS_OK;
}

enum status classifier_read(struct classifier *out, const struct model_file *file,
                            const struct model_config *config, struct err *err) {
    *out = (struct classifier){.rows = config->is_encoder ? HIDDEN_FIRST : HIDDEN_LAST};
    enum status status = file->gguf ? read_gguf(out, file->gguf, config, err)
                                    : read_folder(out, file->hf, config, err);
    if (!status) finish_labels(out);
    return model_file_blame(file, status, err);
}

void classifier_free(struct classifier *classifier) {
    head_free(&classifier->head);
    for (int i = 0; classifier->label && i < classifier->n_labels; i++)
        mem_free(classifier->label[i]);
    mem_free(classifier->label);
    mem_free(classifier->pair_text);
    *classifier = (struct classifier){0};
}
