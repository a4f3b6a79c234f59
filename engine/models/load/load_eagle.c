/* Loads an EAGLE-3 head (eagle.c) from its folder, or a rank's part of it. eagle_add has checked
 * the shapes. */
#include <assert.h>
#include <string.h>

#include "engine/memory/device.h"
#include "engine/models/load/internal.h"

/* Copies columns first .. first + K of a float tensor [N][columns]; mem_large of *bytes. */
static void *columns_of(const struct weight *weight, const struct eagle_matrix *matrix,
                        size_t *bytes) {
    const size_t row = dtype_bytes(weight->type, (size_t)matrix->columns),
                 first = dtype_bytes(weight->type, (size_t)matrix->first),
                 part = dtype_bytes(weight->type, (size_t)matrix->K);
    *bytes = (size_t)matrix->N * part;
    char *made = mem_large(*bytes);
    assert(matrix->first + matrix->K <= matrix->columns && weight->data);
    for (size_t n = 0; n < (size_t)matrix->N; n++)
        memcpy(made + n * part, (const char *)weight->data + n * row + first, part);
    return made;
}

static enum status load_matrix(const struct loader *l, const struct eagle_matrix *matrix) {
    const struct weight *weight;
    struct tensors loaded = {0};
    enum status status =
        weights_matrix(l->weights, matrix->name, matrix->N, matrix->columns, &weight, l->err);
    if (status) return status;
    struct weight part = *weight;
    void *made = NULL;
    if (matrix->K < matrix->columns) {
        made = columns_of(weight, matrix, &part.bytes);
        part.data = made, part.dim[0] = matrix->K;
        part.n_elements = (int64_t)matrix->N * matrix->K;
    }
    const struct source source = {.weight = &part, .N = matrix->N, .K = matrix->K};
    status = load_rows(l, &loaded, matrix->role, &source);
    mem_large_free(made, part.bytes);
    assert(!*matrix->at && (status || loaded.w[matrix->role] || l->model->shard.rank > 0));
    *matrix->at = loaded.w[matrix->role];
    return status;
}

/* Reads the model's ids of the head's tokens. The file is mapped, so it may have changed since
 * eagle_add checked them. */
static enum status read_ids(const struct loader *l, int32_t *ids) {
    const struct model_config *m = &l->model->config;
    const struct weight *d2t = weights_lookup(l->weights, "d2t");
    assert(d2t && d2t->n_elements == m->eagle.V && d2t->type == (enum dtype)WEIGHT_RAW_I64);
    for (int i = 0; i < m->eagle.V; i++) {
        int64_t offset;
        memcpy(&offset, (const char *)d2t->data + (size_t)i * sizeof offset, sizeof offset);
        if (offset < -i || offset >= m->V - i)
            return err_set(l->err, STATUS_BAD_FILE, "d2t",
                           "tensor d2t of the EAGLE-3 head was written to while it was loaded; "
                           "start again when the file is complete");
        ids[i] = (int32_t)(i + offset);
    }
    return STATUS_OK;
}

static enum status load_ids(const struct loader *l) {
    struct model *model = l->model;
    const size_t bytes = (size_t)model->config.eagle.V * sizeof *model->eagle.to;
    void *buffer;
    if (!model->config.eagle.maps_ids || model->shard.rank > 0) return STATUS_OK;
    int32_t *ids = mem_alloc(bytes);
    enum status status = read_ids(l, ids);
    if (!status)
        status = buffer_take(model->backend, &buffer, bytes, "the weights",
                             "give a smaller model, or free memory of the GPU", l->err);
    if (!status) {
        model->backend->memory->upload(model->backend, buffer, ids, bytes);
        model->eagle.to = buffer;
    }
    mem_free(ids);
    return status;
}

enum status load_eagle(const struct loader *of_model) {
    struct model *model = of_model->model;
    struct engine_config settings = *of_model->settings;
    settings.dummy = false; /* the head's weights are its own even if the model's are random */
    const struct loader l = {.model = model,
                             .weights = model->eagle.weights,
                             .settings = &settings,
                             .err = of_model->err};
    struct eagle_matrix matrices[N_EAGLE_MATRICES];
    const int n = eagle_matrices(model, matrices);
    struct tensors *layer = &model->layers[model->config.L - 1];
    enum status status = STATUS_OK;
    assert(l.weights);
    for (int i = 0; i < n && !status; i++) status = load_matrix(&l, &matrices[i]);
    for (int i = 0; i < N_EAGLE_GAINS && !status; i++) {
        struct source source = {.N = model->config.K};
        status = weights_vector(l.weights, eagle_gains[i].name, source.N, &source.weight, l.err);
        if (!status) status = load_rows(&l, layer, eagle_gains[i].role, &source);
    }
    if (!status) status = load_ids(&l);
    return status ? status : load_rotation(&l, &model->config.eagle.rope, &model->eagle.inv_freq);
}

void load_eagle_free(struct model *model) {
    struct eagle *eagle = &model->eagle;
    struct backend *b = model->backend;
    struct matrix *matrices[] = {eagle->tap[0], eagle->tap[1], eagle->tap[2], eagle->head,
                                 eagle->embedding};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        if (matrices[i]) b->memory->matrix_free(b, matrices[i]);
    if (eagle->to)
        b->memory->buffer_free(b, eagle->to, (size_t)model->config.eagle.V * sizeof *eagle->to);
    const size_t frequencies = (size_t)model->config.eagle.rope.D_rope / 2 * sizeof(float);
    if (eagle->inv_freq) b->memory->buffer_free(b, eagle->inv_freq, frequencies);
    *eagle = (struct eagle){0};
}
