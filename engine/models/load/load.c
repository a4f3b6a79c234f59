/* Loading: copies each tensor of the model's roles, or this rank's part of it, from the file into
 * the backend's layout. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memory/device.h"
#include "engine/models/load/internal.h"
#include "engine/models/load/load.h"
#include "engine/models/load/weight_cache.h"
#include "engine/quantise/quantise.h"

/* Releasing pages interrupts every processor that maps them, so many are released together. */
enum { RELEASE_BYTES = 16 << 20 };

/* fp8 is only for layers: an error in the head goes directly into the logits. */
static enum matrix_form form_of(const struct engine_config *settings, enum role role) {
    bool fp8 = settings->quantization == QUANTIZATION_FP8;
    if (settings->dtype == COMPUTE_FLOAT32 || role_info(role)->is_float32) return MATRIX_FLOAT32;
    return fp8 && role_is_of_layer(role) ? MATRIX_FP8 : MATRIX_NATIVE;
}

/* Makes a matrix from rows of a type that the kernels do not read; the rows are converted to the
 * type in which they are kept. */
static enum status make_kept(const struct loader *l, enum role role, enum dtype type, int N, int K,
                             const void *rows, struct matrix **out) {
    struct backend *b = l->model->backend;
    enum matrix_form form = form_of(l->settings, role);
    enum dtype kept = dtype_kept(type);
    size_t bytes;
    void *made = kept_rows(b, type, rows, N, K, &bytes);
    if (kept == DTYPE_F32 && form == MATRIX_NATIVE) form = MATRIX_HALVES;
    enum status status = b->memory->matrix_new(b, out, kept, N, K, made, form, l->err);
    mem_large_free(made, bytes);
    return status;
}

/* Makes a matrix from rows of a type, quantised first if the settings require it. */
static enum status make_matrix(const struct loader *l, enum role role, const struct weight *weight,
                               int N, int K, const void *rows, struct matrix **out) {
    struct backend *b = l->model->backend;
    enum dtype type = weight->type;
    enum matrix_form form = form_of(l->settings, role);
    if (dtype_kept(type) != type) return make_kept(l, role, type, N, K, rows, out);
    if (weight->in_16_bits && form == MATRIX_NATIVE) form = MATRIX_HALVES;
    enum dtype to = quantised_type(l->settings->quantization, role_info(role)->gguf, type, K);
    if (to == type) return b->memory->matrix_new(b, out, type, N, K, rows, form, l->err);
    if (form == MATRIX_HALVES) form = MATRIX_NATIVE;
    if (b->memory->matrix_quantised)
        return b->memory->matrix_quantised(b, out, to, type, N, K, rows,
                                           weights_place(l->weights, rows), form, l->err);
    size_t bytes = (size_t)N * dtype_bytes(to, (size_t)K);
    void *made = mem_large(bytes);
    quantise_rows(b, to, made, type, rows, N, K);
    enum status status = b->memory->matrix_new(b, out, to, N, K, made, form, l->err);
    mem_large_free(made, bytes);
    return status;
}

/* Returns rows first .. first + N of a transposed matrix: mem_large of `bytes`, which the caller
 * frees. */
static void *turned_rows(const struct source *source, size_t bytes) {
    const struct weight *weight = source->weight;
    size_t size = dtype_bytes(weight->type, 1), N = (size_t)source->N, K = (size_t)source->K;
    const char *from = (const char *)weight->data + (size_t)source->first * size;
    char *rows = mem_large(bytes);
    assert(weight->is_transposed && bytes == N * K * size);
    turn_rows(rows, from, N, K, (size_t)weight->dim[1], 1, size);
    return rows;
}

/* Loads some rows of a tensor, or a shard's part of them. Random tensors are cut in the same way,
 * so all ranks together have the rows of one random tensor. */
static enum status load_piece(const struct loader *l, enum role role, const struct source *source,
                              struct matrix **out) {
    const struct weight *weight = source->weight;
    size_t row_bytes = dtype_bytes(weight->type, (size_t)source->K);
    size_t turned_bytes = (size_t)source->N * row_bytes;
    void *made = l->settings->dummy ? dummy_matrix(weight)
                 : weight->packed   ? packed_rows(l->model->backend, weight)
                                    : NULL;
    void *turned = weight->is_transposed ? turned_rows(source, turned_bytes) : NULL;
    const char *rows = made ? made : weight->data;
    struct piece piece;
    assert(source->first >= 0 && source->first + source->N <= weight->dim[1] && !(made && turned));
    rows = turned ? turned : rows + (size_t)source->first * row_bytes;
    const struct model_config *m = &l->model->config;
    const enum split split = role_split(m, role);
    const struct division division =
        shard_division(m, role, split == SPLIT_INPUTS ? source->K : source->N);
    piece_cut(&piece, l->model->shard, split, &division, weight->type, source->N, source->K, rows);
    enum status status = make_matrix(l, role, weight, piece.N, piece.K, piece.rows, out);
    piece_free(&piece);
    mem_large_free(made, weight->bytes);
    mem_large_free(turned, turned_bytes);
    return status;
}

static enum status load_matrix(const struct loader *l, enum role role, const struct source *given,
                               struct matrix **out) {
    struct weight random = *given->weight; /* in a type that can be random */
    struct source own = *given, *source = &own;
    random.type = dtype_kept(random.type);
    random.bytes = dtype_bytes(random.type, (size_t)random.n_elements);
    if (l->settings->dummy) own.weight = &random;
    const struct weight *weight = source->weight;
    struct backend *b = l->model->backend;
    enum split split = role_split(&l->model->config, role);
    bool is_cut = l->model->shard.ranks > 1 && (split == SPLIT_OUTPUTS || split == SPLIT_INPUTS);
    bool in_pieces =
        weight->packed || (l->settings->dummy && quantization_is_blocks(l->settings->quantization));
    enum status status;
    if (!l->settings->dummy) weight_read_ahead(weight);
    if (is_cut || in_pieces || source->N != weight->dim[1] || weight->is_transposed)
        status = load_piece(l, role, source, out);
    else if (l->settings->dummy)
        status = b->memory->matrix_random(b, out, weight->type, source->N, source->K,
                                          name_hash(weight->name, strlen(weight->name)),
                                          form_of(l->settings, role), l->err);
    else
        status = make_matrix(l, role, weight, source->N, source->K, weight->data, out);
    if (!l->settings->dummy) l->model->unreleased_bytes += weight->bytes;
    if (l->model->unreleased_bytes >= RELEASE_BYTES) {
        l->model->unreleased_bytes = 0;
        weights_release_file_pages(l->weights);
    }
    if (!status) l->model->weight_bytes += (int64_t)b->memory->matrix_bytes(*out);
    return status;
}

enum status load_floats(struct model *model, const float *values, int n, float **out,
                        struct err *err) {
    assert(values && n > 0);
    struct backend *b = model->backend;
    size_t bytes = (size_t)n * sizeof *values;
    void *buffer;
    enum status status = buffer_take(b, &buffer, bytes, "the weights",
                                     "give a smaller model, or free memory of the GPU", err);
    if (status) return status;
    b->memory->upload(b, buffer, values, bytes);
    *out = buffer;
    return STATUS_OK;
}

/* Loads a vector. It is cut like the rows of its matrix. */
static enum status load_vector(const struct loader *l, enum role role, const struct source *source,
                               float **out) {
    const struct weight *weight = source->weight;
    struct model *model = l->model;
    int all = (int)weight->n_elements;
    float *values = mem_alloc((size_t)all * sizeof *values);
    /* "[n x 1]" is also a vector */
    assert(source->first >= 0 && source->first + source->N <= all && all == weight->dim[0]);
    if (!l->settings->dummy) dequantise(weight->type, weight->data, values, (size_t)all);
    for (int i = 0; l->settings->dummy && i < all; i++)
        values[i] = role_info(role)->is_bias ? 0 : 1;
    for (int i = 0; weight->adds_one && i < all; i++) values[i] += 1;
    for (int i = 0; weight->is_log && i < all; i++) values[i] = -expf(values[i]);
    struct piece piece;
    const struct division division = shard_division(&model->config, role, source->N);
    piece_cut(&piece, model->shard, role_split(&model->config, role), &division, DTYPE_F32,
              source->N, 1, values + source->first);
    enum status status = load_floats(model, piece.rows, piece.N, out, l->err);
    if (!status) model->weight_bytes += piece.N * (int64_t)sizeof **out;
    piece_free(&piece);
    mem_free(values);
    return status;
}

enum status load_rows(const struct loader *l, struct tensors *out, enum role role,
                      const struct source *source) {
    if (role_info(role)->split == SPLIT_FIRST && l->model->shard.rank > 0) return STATUS_OK;
    assert(!out->w[role] && !out->vec[role]);
    return source->K ? load_matrix(l, role, source, &out->w[role])
                     : load_vector(l, role, source, &out->vec[role]);
}

/* Finds and loads a role's tensor. A fused tensor is loaded as its parts. */
static enum status load_role(const struct loader *l, struct tensors *out, enum role role,
                             int layer) {
    const struct role_info *info = role_info(role);
    const struct model_config *m = &l->model->config;
    struct source source = {.N = role_extent(m, info->N, layer),
                            .K = role_extent(m, info->K, layer)};
    char name[ROLE_NAME_BYTES];
    config_role_name(name, m, role, layer);
    enum status status =
        info->K ? weights_matrix(l->weights, name, source.N, source.K, &source.weight, l->err)
                : weights_vector(l->weights, name, source.N, &source.weight, l->err);
    if (!status) status = load_check_scales(l, source.weight);
    if (status) return status;
    enum role parts[MAX_PARTS];
    const int n_parts = role_parts(m, role, parts);
    if (n_parts == 0) return load_rows(l, out, role, &source);
    struct weight grouped = *source.weight, plain = {0};
    if (grouped.groups == 0) grouped.groups = role_groups(m, role, layer, grouped.group_rows);
    if (grouped.groups > 0 && !l->settings->dummy) {
        plain = weight_ungrouped(l->model->backend, &grouped);
        source.weight = &plain;
    }
    for (int i = 0; i < n_parts && !status; i++) {
        source.N = role_extent(m, role_info(parts[i])->N, layer);
        status = load_rows(l, out, parts[i], &source);
        source.first += source.N;
    }
    mem_large_free((void *)plain.data, plain.bytes);
    return status;
}

/* Loads the gains of norms per head: one tensor [heads][D], or in a folder one tensor per head. */
static enum status load_head_gains(const struct loader *l, struct tensors *out, enum role role,
                                   int layer) {
    const struct model_config *m = &l->model->config;
    int n = role_pieces(m, role), D = config_heads(m, layer).D;
    char name[ROLE_NAME_BYTES];
    enum status status = STATUS_OK;
    role_name(name, role, layer);
    bool is_whole = weights_lookup(l->weights, name) != NULL;
    float *values = mem_calloc((size_t)n * (size_t)D, sizeof *values);
    for (int i = 0; i < (is_whole ? 1 : n) && !status; i++) {
        const struct weight *weight;
        if (!is_whole) role_piece_name(name, role, layer, i);
        status = is_whole ? weights_find(l->weights, name, 2, (int64_t[]){D, n}, WEIGHT_ANY_TYPE,
                                         &weight, l->err)
                          : weights_vector(l->weights, name, D, &weight, l->err);
        if (!status && weight->data)
            dequantise(weight->type, weight->data, values + i * D, (size_t)weight->n_elements);
    }
    const struct weight all = {
        .type = DTYPE_F32, .dim = {n * D}, .n_elements = n * D, .data = values};
    const struct source source = {.weight = &all, .N = n * D};
    if (!status) status = load_rows(l, out, role, &source);
    mem_free(values);
    return status;
}

/* Loads all roles of a layer, or for a layer below 0 the roles outside the layers. */
static enum status load_tensors(const struct loader *l, struct tensors *out, int layer) {
    assert(layer >= -1 && layer < l->model->config.L);
    enum status status = STATUS_OK;
    for (enum role role = 0; role < N_ROLES && !status; role++) {
        bool is_matrix = role_info(role)->K != 0;
        if (!config_has_in(&l->model->config, role, layer) || (is_matrix && l->has_matrices))
            continue;
        if (role_info(role)->of_experts)
            status = load_experts(l, out, role, layer);
        else if (role_info(role)->of_heads)
            status = load_head_gains(l, out, role, layer);
        else if (role_info(role)->is_flat)
            status = load_flat(l, out, role, layer);
        else if (role_info(role)->of_taps)
            status = load_taps(l, out, role, layer);
        else if (role_info(role)->of_latents)
            status = load_latents(l, out, role, layer);
        else if (role_info(role)->split != SPLIT_HOST)
            status = load_role(l, out, role, layer);
    }
    return status;
}

/* Loads the factors that multiply the stream after each layer. */
static enum status load_layer_scales(const struct loader *l) {
    struct model *model = l->model;
    const struct model_config *m = &model->config;
    if (!config_has(m, ROLE_LAYER_SCALE)) return STATUS_OK;
    model->layer_scale = mem_calloc((size_t)m->L, sizeof *model->layer_scale);
    for (int i = 0; i < m->L; i++) {
        const struct weight *weight;
        char name[ROLE_NAME_BYTES];
        role_name(name, ROLE_LAYER_SCALE, i);
        enum status status = weights_vector(l->weights, name, 1, &weight, l->err);
        if (status) return status;
        model->layer_scale[i] = 1; /* random tensors have NULL data */
        if (!l->settings->dummy) dequantise(weight->type, weight->data, &model->layer_scale[i], 1);
    }
    return STATUS_OK;
}

/* Loads gains of 1 for norms without gains. */
static enum status load_ones(const struct loader *l) {
    const struct model_config *m = &l->model->config;
    int n = config_widest(m).kv;
    if (!m->norms_values) return STATUS_OK;
    float *ones = mem_alloc((size_t)n * sizeof *ones);
    for (int i = 0; i < n; i++) ones[i] = 1;
    enum status status = load_floats(l->model, ones, n, &l->model->ones, l->err);
    if (!status) l->model->n_ones = n;
    mem_free(ones);
    return status;
}

/* ---- entry points --------------------------------------------------------------------------- */

static enum status load_all(const struct loader *l) {
    struct model *model = l->model;
    const struct engine_config *settings = l->settings;
    int L = model->config.L;
    enum status status = load_tensors(l, &model->ends, -1);
    if (!status) status = load_frequencies(l);
    if (!status) status = load_query_scales(l);
    if (!status) status = load_layer_scales(l);
    if (!status) status = load_ones(l);
    if (!status) status = load_slopes(l);
    for (int i = 0; i < L && !status; i++) {
        status = load_tensors(l, &model->layers[i], i);
        if (!status && settings->gives_up && atomic_load(settings->gives_up))
            return err_set(l->err, STATUS_UNAVAILABLE, NULL, "The load was given up.");
        if (model->shard.rank == 0 && settings->progress)
            settings->progress(settings->progress_arg, "weights", (i + 1.0) / L);
    }
    if (!status && model->config.eagle.is_used) status = load_eagle(l);
    return status;
}

enum status model_load(struct model *model, const struct weights *weights,
                       const struct engine_config *settings, struct err *err) {
    struct loader l = {.model = model, .weights = weights, .settings = settings, .err = err};
    assert(model->config.L > 0 && model->backend && !model->layers);
    model->part = shard_config(&model->config, model->shard.ranks);
    model->layers = mem_calloc((size_t)model->config.L, sizeof *model->layers);
    l.has_matrices = settings->weight_cache && weight_cache_take(model, settings);
    enum status status = load_all(&l);
    if (!status && settings->weight_cache && !l.has_matrices) weight_cache_keep(model, settings);
    if (!status) status = activations_open(model, settings, err);
    if (!status) model_write_program(model);
    return status;
}

static void free_tensors(struct model *model, struct tensors *tensors, int layer) {
    struct backend *b = model->backend;
    for (enum role role = 0; role < N_ROLES; role++) {
        size_t n = (size_t)role_extent(&model->part, role_info(role)->N, layer);
        if (role_info(role)->of_experts) n *= (size_t)model->part.experts.E;
        if (tensors->w[role]) b->memory->matrix_free(b, tensors->w[role]);
        if (tensors->vec[role]) b->memory->buffer_free(b, tensors->vec[role], n * sizeof(float));
    }
}

/* The config and the limits of rows are not written: other threads may read them. */
static void forget_loaded(struct model *model) {
    struct model_activations *act = &model->act;
    struct model_buffer buffers[N_MODEL_BUFFERS];
    model_buffers(act, model, buffers);
    for (int i = 0; i < N_MODEL_BUFFERS; i++) *buffers[i].buffer = NULL;
    model->backend = NULL;
    model->ends = (struct tensors){0};
    model->layers = NULL;
    model->inv_freq = model->window_inv_freq = model->query_scale = NULL;
    model->layer_scale = model->slopes = model->ones = NULL;
    model->n_query_scales = model->n_ones = 0;
    model->weight_bytes = 0;
    model->kept = (struct mapping){0};
    model->unreleased_bytes = 0;
}

void model_unload(struct model *model) {
    struct backend *b = model->backend;
    activations_close(model);
    adapter_copies_close(model);
    for (int i = 0; model->layers && i < model->config.L; i++)
        free_tensors(model, &model->layers[i], i);
    program_free(&model->program);
    program_free(&model->ahead);
    mem_free(model->layers);
    free_tensors(model, &model->ends, -1);
    load_eagle_free(model);
    mapping_close(&model->kept);
    mem_free(model->layer_scale);
    size_t bytes = (size_t)model->n_ones * sizeof(float);
    if (model->ones) b->memory->buffer_free(b, model->ones, bytes);
    bytes = (size_t)model->config.rope.D_rope / 2 * sizeof(float);
    if (model->inv_freq) b->memory->buffer_free(b, model->inv_freq, bytes);
    bytes = (size_t)model->config.window_rope.D_rope / 2 * sizeof(float);
    if (model->window_inv_freq) b->memory->buffer_free(b, model->window_inv_freq, bytes);
    bytes = (size_t)model->part.H * sizeof(float);
    if (model->slopes) b->memory->buffer_free(b, model->slopes, bytes);
    bytes = (size_t)model->n_query_scales * sizeof(float);
    if (model->query_scale) b->memory->buffer_free(b, model->query_scale, bytes);
    forget_loaded(model);
}
