/* Reads the layers of heads: the steps Dense of sentence-transformers, each with its config.json
 * and model.safetensors, and tensors of the model's own files. */
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
    bool is_matrix = weight->n_dims <= 2 && weight->dim[1] <= MAX_HEAD_WIDTH && !weight->packed;
    if (head->n > 0) n_in = head->layer[head->n - 1].n_out;
    if (!is_matrix || weight->dim[0] != n_in)
        return refuse_shape(weight, (int)weight->dim[1], n_in, err);
    if (bias && (bias->n_elements != weight->dim[1] || bias->packed))
        return refuse_shape(bias, 1, (int)weight->dim[1], err);
    if (head->n == MAX_HEAD_LAYERS)
        return err_set(err, STATUS_BAD_FILE, weight->name,
                       "tensor %s: expected at most %d layers after pooling, found more",
                       weight->name, MAX_HEAD_LAYERS);
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
