/* What all families share: taking tensors into the backend, the activation buffers, and letting go
 * of both. */
#include "engine/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device.h"

static const struct model_family *const families[] = {&model_llama};

const struct model_family *model_family_find(const char *architecture) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(families[i]->architecture, architecture) == 0) return families[i];
    }
    return NULL;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* A seed of the tensor's own, from its name (FNV-1a). */
static uint64_t name_seed(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* fp8 is for the layers: an error of the head goes straight into the logits. */
static enum matrix_form form_of(const struct engine_config *config, const char *name) {
    bool fp8 = config->quantization && strcmp(config->quantization, "fp8") == 0;
    if (config->float32) return MATRIX_FLOAT32;
    return fp8 && strncmp(name, "blk.", 4) == 0 ? MATRIX_FP8 : MATRIX_AS_FILED;
}

enum { LET_GO_BYTES = 16 << 20 };

/* Letting pages go interrupts every processor that has them, so it is done for many at once. */
static void let_go(struct model *model, const struct weights *weights, size_t bytes) {
    model->file_bytes += bytes;
    if (model->file_bytes < LET_GO_BYTES) return;
    model->file_bytes = 0;
    weights_let_go(weights);
}

enum status model_take_matrix(struct model *model, const struct weights *weights,
                              const struct engine_config *config, const char *name, int N, int K,
                              struct matrix **out, struct err *err) {
    const struct weight *weight;
    enum status status = weights_matrix(weights, name, N, K, &weight, err);
    if (status) return status;
    struct backend *b = model->backend;
    enum matrix_form form = form_of(config, name);
    if (config->dummy)
        status = b->ops->matrix_random(b, out, weight->type, N, K, name_seed(name), form, err);
    else
        status = b->ops->matrix_new(b, out, weight->type, N, K, weight->data, form, err);
    if (!config->dummy) let_go(model, weights, weight->bytes);
    if (!status) model->weight_bytes += (int64_t)b->ops->matrix_bytes(*out);
    return status;
}

/* A gain of 1 stands for those of a file that is not read. */
static void read_vector(float *values, const struct weight *weight, int n, bool dummy) {
    if (!dummy) dequantise(weight->type, weight->data, values, (size_t)n);
    for (int i = 0; dummy && i < n; i++) values[i] = 1.0f;
}

enum status model_take_vector(struct model *model, const struct weights *weights,
                              const struct engine_config *config, const char *name, int n,
                              float **out, struct err *err) {
    const struct weight *weight;
    enum status status = weights_vector(weights, name, n, &weight, err);
    if (status) return status;
    size_t bytes = (size_t)n * sizeof(float);
    float *values = mem_alloc(bytes);
    read_vector(values, weight, n, config->dummy);
    status = model_upload(model, values, (size_t)n, out, err);
    free(values);
    if (status) return status;
    model->weight_bytes += n * (int64_t)sizeof(float);
    return STATUS_OK;
}

enum status model_upload(struct model *model, const float *values, size_t n, float **out,
                         struct err *err) {
    struct backend *b = model->backend;
    void *made;
    enum status status = buffer_take(b, &made, n * sizeof *values, "the weights",
                                     "give a smaller model, or free memory of the GPU", err);
    *out = made;
    if (!status) b->ops->upload(b, made, values, n * sizeof *values);
    return status;
}

/* ---- activations ---------------------------------------------------------------------------- */

/* One buffer of the activations: rows of `width` floats, for every row or only for those that want
 * logits. */
struct field {
    float **buffer;
    int width;
    bool per_logit_row;
};

#define N_FIELDS 7

static void activation_fields(struct activations *a, const struct model_info *m,
                              struct field fields[N_FIELDS]) {
    const struct field all[N_FIELDS] = {
        {&a->x, m->K, false},        {&a->q, m->H * m->D, false},     {&a->k, m->G * m->D, false},
        {&a->v, m->G * m->D, false}, {&a->mixed, m->H * m->D, false}, {&a->rows, m->K, true},
        {&a->logits, m->V, true},
    };
    memcpy(fields, all, sizeof all);
}

static size_t field_bytes(const struct field *field, const struct activations *a) {
    int rows = field->per_logit_row ? a->max_logit_rows : a->max_rows;
    return (size_t)rows * (size_t)field->width * sizeof(float);
}

int64_t activations_bytes(const struct model_info *info, int max_rows, int max_logit_rows) {
    struct activations a = {.max_rows = max_rows, .max_logit_rows = max_logit_rows};
    struct field fields[N_FIELDS];
    activation_fields(&a, info, fields);
    int64_t bytes = 0;
    for (int i = 0; i < N_FIELDS; i++) bytes += (int64_t)field_bytes(&fields[i], &a);
    return bytes;
}

static enum status make_activations(struct model *model, const struct engine_config *config,
                                    struct err *err) {
    struct activations *a = &model->act;
    struct field fields[N_FIELDS];
    a->max_rows = config->max_num_batched_tokens;
    a->max_logit_rows = config->max_logit_rows;
    activation_fields(a, &model->info, fields);
    enum status status = STATUS_OK;
    for (int i = 0; i < N_FIELDS && !status; i++) {
        void *made;
        status = buffer_take(model->backend, &made, field_bytes(&fields[i], a), "activations",
                             "lower --max-num-batched-tokens or --max-num-seqs", err);
        *fields[i].buffer = made;
    }
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------ */

enum status model_load(struct model *model, const struct weights *weights,
                       const struct engine_config *config, struct err *err) {
    model->family = model_family_find(model->info.architecture);
    if (!model->family) {
        return err_set(err, STATUS_BAD_FILE, "general.architecture",
                       "architecture \"%s\" is not served; this version serves llama",
                       model->info.architecture);
    }
    model->layers = mem_calloc((size_t)model->info.L, sizeof *model->layers);
    enum status status = model->family->load(model, weights, config, err);
    return status ? status : make_activations(model, config, err);
}

static void free_buffer(struct backend *b, float *buffer, size_t n) {
    if (buffer) b->ops->buffer_free(b, buffer, n * sizeof(float));
}

static void free_layer(struct model *model, struct layer *layer) {
    struct backend *b = model->backend;
    struct matrix *const all[] = {layer->wq,   layer->wk, layer->wv,  layer->wo,
                                  layer->gate, layer->up, layer->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]) b->ops->matrix_free(b, all[i]);
    }
    free_buffer(b, layer->attention_norm, (size_t)model->info.K);
    free_buffer(b, layer->mlp_norm, (size_t)model->info.K);
}

void model_close(struct model *model) {
    struct backend *b = model->backend;
    struct field fields[N_FIELDS];
    activation_fields(&model->act, &model->info, fields);
    for (int i = 0; i < N_FIELDS; i++) {
        if (*fields[i].buffer) {
            b->ops->buffer_free(b, *fields[i].buffer, field_bytes(&fields[i], &model->act));
        }
    }
    for (int i = 0; model->layers && i < model->info.L; i++) free_layer(model, &model->layers[i]);
    free(model->layers);
    if (model->head && model->head != model->embedding) b->ops->matrix_free(b, model->head);
    if (model->embedding) b->ops->matrix_free(b, model->embedding);
    free_buffer(b, model->final_norm, (size_t)model->info.K);
    free_buffer(b, model->inv_freq, (size_t)model->info.D_rope / 2);
    memset(model, 0, sizeof *model);
}
