/* Loads tensors whose layout in files is not that of the model. Experts: the matrices of a layer's
 * experts become one matrix per role. In the file they may be one tensor, one per expert, or two
 * roles in one tensor. Vectors of states may have two dimensions. Convolutions: the weights are
 * turned. Latent attention: the matrices of
 * heads are taken apart, and those of keys are turned. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/models/load/internal.h"
#include "engine/models/load/load.h"
#include "engine/quantise/quantise.h"

void turn_rows(char *rows, const char *from, size_t N, size_t K, size_t column, size_t step,
               size_t size) {
    enum { TILE = 32 };
    for (size_t n0 = 0; n0 < N; n0 += TILE)
        for (size_t k0 = 0; k0 < K; k0 += TILE)
            for (size_t n = n0; n < N && n < n0 + TILE; n++)
                for (size_t k = k0; k < K && k < k0 + TILE; k++)
                    memcpy(rows + (n * K + k) * size, from + (k * column + n * step) * size, size);
}

static void copy_rows(const struct loader *l, const struct weight *weight, void *to) {
    void *made = weight->packed ? packed_rows(l->model->backend, weight) : NULL;
    memcpy(to, made ? made : weight->data, weight->bytes);
    mem_large_free(made, weight->bytes);
}

/* Copies the matrices of all experts, separate tensors in `weights`, one after the other to
 * all->data: mem_large of all->bytes, which the caller frees. */
static enum status gather_experts(const struct loader *l, enum role role, int layer,
                                  struct weight *all) {
    assert(layer >= 0 && layer < l->model->config.L);
    const struct role_info *info = role_info(role);
    const struct model_config *m = &l->model->config;
    enum status status = STATUS_OK;
    char *to = NULL;
    all->data = NULL;
    for (int e = 0; e < m->experts.E && !status; e++) {
        const struct weight *weight;
        char name[ROLE_NAME_BYTES];
        role_piece_name(name, role, layer, e);
        status = weights_matrix(l->weights, name, role_extent(m, info->N, layer),
                                role_extent(m, info->K, layer), &weight, l->err);
        if (status) break;
        if (e == 0) {
            *all = *weight;
            all->bytes = (size_t)m->experts.E * weight->bytes;
            all->n_elements = m->experts.E * weight->n_elements;
            all->data = to = mem_large(all->bytes);
        }
        if (weight->type != all->type)
            status =
                err_set(l->err, STATUS_BAD_FILE, weight->name,
                        "tensor %s: expected type %s as of the first expert, found %s",
                        weight->name, dtype_name((int)all->type), dtype_name((int)weight->type));
        else
            copy_rows(l, weight, to + (size_t)e * weight->bytes);
    }
    all->packed = NULL; /* the copied rows are unpacked */
    return status;
}

/* Loads the matrices of all experts, which are adjacent in memory. */
static enum status load_all_experts(const struct loader *l, struct tensors *out, enum role role,
                                    const struct weight *all) {
    struct weight flat = *all;
    flat.n_dims = 2;
    flat.dim[1] = all->n_elements / all->dim[0];
    flat.dim[2] = 1;
    const struct source source = {.weight = &flat, .N = (int)flat.dim[1], .K = (int)flat.dim[0]};
    return load_rows(l, out, role, &source);
}

/* Copies N rows of one expert: part i of a fused matrix, whose parts are adjacent or
 * interleaved. */
static void copy_part(char *to, const char *from, const struct weight *fused, size_t i, size_t N) {
    size_t K = (size_t)fused->dim[0], all = (size_t)fused->dim[1];
    size_t first = fused->is_interleaved ? i : i * N, step = fused->is_interleaved ? all / N : 1;
    size_t row = dtype_bytes(fused->type, fused->is_transposed ? 1 : K);
    if (fused->is_transposed) {
        turn_rows(to, from + first * row, N, K, all, step, row);
        return;
    }
    for (size_t n = 0; n < N; n++) memcpy(to + n * row, from + (first + n * step) * row, row);
}

/* Loads part i of a fused tensor, or a whole transposed tensor, by collecting its rows from each
 * expert. */
static enum status load_part(const struct loader *l, struct tensors *out, enum role role, int i,
                             const struct weight *fused) {
    assert(i >= 0);
    const struct role_info *info = role_info(role);
    size_t E = (size_t)l->model->config.experts.E, n_parts = info->n_parts ? info->n_parts : 1;
    size_t N = (size_t)fused->dim[1] / n_parts, bytes = fused->bytes / E; /* bytes per expert */
    struct weight part = *fused;
    part.is_transposed = part.is_interleaved = false;
    part.n_elements /= (int64_t)n_parts;
    part.bytes /= n_parts;
    char *to = mem_large(part.bytes);
    for (size_t e = 0; e < E && fused->data; e++)
        copy_part(to + e * bytes / n_parts, (const char *)fused->data + e * bytes, fused, (size_t)i,
                  N);
    part.data = to;
    enum status status = load_all_experts(l, out, info->n_parts ? info->parts[i] : role, &part);
    mem_large_free(to, part.bytes);
    return status;
}

/* Loads the biases of all experts: a tensor [E][N], or parts of a fused one. */
static enum status load_expert_biases(const struct loader *l, struct tensors *out, enum role role,
                                      int layer) {
    const struct role_info *info = role_info(role);
    int E = l->model->config.experts.E, all = role_extent(&l->model->config, info->N, layer);
    int n_parts = info->n_parts ? info->n_parts : 1, N = all / n_parts;
    char name[ROLE_NAME_BYTES];
    const struct weight *fused;
    role_name(name, role, layer);
    enum status status =
        weights_find(l->weights, name, 2, (int64_t[]){all, E}, WEIGHT_ANY_TYPE, &fused, l->err);
    if (!status && dtype_block_elements((int)fused->type) != 1)
        status = err_set(l->err, STATUS_BAD_FILE, fused->name,
                         "tensor %s: expected F32, F16 or BF16, found %s", fused->name,
                         dtype_name((int)fused->type));
    size_t n = (size_t)E * (size_t)all;
    float *values = mem_calloc(2 * n, sizeof *values), *part = values + n;
    if (!status && fused->data) dequantise(fused->type, fused->data, values, n);
    for (int i = 0; i < n_parts && !status; i++) {
        int first = fused->is_interleaved ? i : i * N, step = fused->is_interleaved ? n_parts : 1;
        for (int e = 0; e < E; e++)
            for (int j = 0; j < N; j++)
                part[e * N + j] = values[(size_t)e * (size_t)all + (size_t)(first + j * step)];
        struct weight flat = {.type = DTYPE_F32, .dim = {E * N}, .n_elements = E * N, .data = part};
        const struct source source = {.weight = &flat, .N = E * N};
        status = load_rows(l, out, info->n_parts ? info->parts[i] : role, &source);
    }
    mem_free(values);
    return status;
}

/* Loads the matrices of a layer's experts as one matrix. In the file they are one tensor of 3
 * dimensions, or one tensor per expert. */
static enum status load_expert_matrices(const struct loader *l, struct tensors *out, enum role role,
                                        int layer) {
    const struct role_info *info = role_info(role);
    const struct model_config *m = &l->model->config;
    int N = role_extent(m, info->N, layer), K = role_extent(m, info->K, layer), E = m->experts.E;
    char name[ROLE_NAME_BYTES];
    struct weight all = {0};
    const struct weight *weight;
    role_name(name, role, layer);
    bool is_whole = weights_lookup(l->weights, name) != NULL;
    enum status status = is_whole ? weights_find(l->weights, name, 3, (int64_t[]){K, N, E},
                                                 WEIGHT_ANY_TYPE, &weight, l->err)
                                  : gather_experts(l, role, layer, &all);
    if (is_whole && !status) all = *weight;
    if (is_whole && !status) status = load_check_scales(l, weight);
    void *made = all.packed ? packed_rows(l->model->backend, &all) : NULL;
    if (made) all.data = made, all.packed = NULL;
    for (int i = 0; i < info->n_parts && !status; i++) status = load_part(l, out, role, i, &all);
    if (info->n_parts == 0 && !status)
        status = all.is_transposed ? load_part(l, out, role, 0, &all)
                                   : load_all_experts(l, out, role, &all);
    if (!is_whole) made = (void *)all.data;
    mem_large_free(made, all.bytes);
    return status;
}

enum status load_experts(const struct loader *l, struct tensors *out, enum role role, int layer) {
    return role_info(role)->K ? load_expert_matrices(l, out, role, layer)
                              : load_expert_biases(l, out, role, layer);
}

/* Returns the factor of a channel's inputs. The taps have it: x, B and C are one product. */
static float channel_scale(const struct model_config *m, int channel) {
    const int x = m->state.Hv * m->state.dv, b = m->state.Hk * m->state.dk;
    const struct layer_scales *s = &m->scales;
    const float own = channel < x ? s->space_x : channel < x + b ? s->space_b : s->space_c;
    return scale_or_one(s->space_in) * scale_or_one(own);
}

/* Reads the rows [C][taps] of a convolution, from one tensor or from those of its parts. */
static enum status read_taps(const struct loader *l, enum role role, int layer, float *rows) {
    const struct model_config *m = &l->model->config;
    const int parts = role_pieces(m, role);
    char name[ROLE_NAME_BYTES];
    enum status status = STATUS_OK;
    role_name(name, role, layer);
    const bool is_whole = parts == 0 || weights_lookup(l->weights, name);
    const int n = is_whole ? 1 : parts, C = m->C / n;
    assert(m->C % n == 0);
    for (int i = 0; i < n && !status; i++, rows += C * m->taps) {
        if (!is_whole) role_piece_name(name, role, layer, i);
        const struct weight *weight = weights_lookup(l->weights, name);
        if (!is_whole && weight && weight->dim[0] == m->taps && weight->n_elements == C * m->taps)
            status = STATUS_OK; /* GGUF files have [1][C][1][taps] */
        else
            status = weights_find(l->weights, name, 2, (int64_t[]){m->taps, C}, WEIGHT_ANY_TYPE,
                                  &weight, l->err);
        if (!status && weight->data)
            dequantise(weight->type, weight->data, rows, (size_t)(C * m->taps));
    }
    return status;
}

enum status load_taps(const struct loader *l, struct tensors *out, enum role role, int layer) {
    const struct model_config *m = &l->model->config;
    const size_t C = (size_t)m->C, taps = (size_t)m->taps;
    float *rows = mem_calloc(2 * C * taps, sizeof *rows), *values = rows + C * taps;
    for (size_t i = 0; i < C * taps; i++) rows[i] = 1; /* random tensors have NULL data */
    enum status status = read_taps(l, role, layer, rows);
    turn_rows((char *)values, (const char *)rows, taps, C, taps, 1, sizeof *rows);
    for (size_t i = 0; i < C * taps; i++) values[i] *= channel_scale(m, (int)(i % C));
    const struct weight turned = {.type = DTYPE_F32,
                                  .dim = {(int64_t)(C * taps)},
                                  .n_elements = (int64_t)(C * taps),
                                  .data = values};
    const struct source source = {.weight = &turned, .N = (int)(C * taps)};
    if (!status) status = load_rows(l, out, role, &source);
    mem_free(rows);
    return status;
}

enum status load_flat(const struct loader *l, struct tensors *out, enum role role, int layer) {
    const int N = role_extent(&l->model->config, role_info(role)->N, layer);
    char name[ROLE_NAME_BYTES];
    role_name(name, role, layer);
    const struct weight *found = weights_lookup(l->weights, name);
    struct weight flat;
    struct source source = {.weight = &flat, .N = N};
    if (found && found->n_elements == N && dtype_block_elements((int)found->type) == 1) {
        flat = *found;
        flat.n_dims = 1, flat.dim[0] = N, flat.dim[1] = 1;
        return load_rows(l, out, role, &source);
    }
    enum status status = weights_vector(l->weights, name, N, &source.weight, l->err);
    return status ? status : load_rows(l, out, role, &source);
}

/* ---- latent attention ----------------------------------------------------------------------- */

/* The rows of one part of ROLE_KV_B: N of each head, from row `first` of its `all` rows on. */
struct head_rows {
    size_t H, N, first, all;
};

/* Copies a part's rows of all heads, or with `turns` its columns, to `to`. An element, or a row of
 * the values, has `size` bytes. */
static void copy_heads(char *to, const char *from, const struct head_rows *part, size_t K,
                       size_t size, bool turns) {
    const size_t bytes = part->N * K * size;
    for (size_t h = 0; h < part->H; h++) {
        const char *rows = from + (h * part->all + part->first) * K * size;
        if (turns)
            turn_rows(to + h * bytes, rows, K, part->N, K, 1, size);
        else
            memcpy(to + h * bytes, rows, bytes);
    }
}

/* Loads a part of ROLE_KV_B from its rows; NULL rows: random ones. */
static enum status load_head_rows(const struct loader *l, struct tensors *out, enum role role,
                                  int layer, const struct weight *both, const void *rows,
                                  const struct head_rows *part) {
    const bool turns = role == ROLE_K_B;
    const int64_t rank = both->dim[0];
    struct weight weight = {.type = both->type, .n_dims = 2, .in_16_bits = both->in_16_bits};
    role_name(weight.name, role, layer);
    weight.dim[0] = turns ? (int64_t)part->N : rank;
    weight.dim[1] = (int64_t)part->H * (turns ? rank : (int64_t)part->N);
    enum status status = weight_measure(&weight, l->err);
    if (status) return status;
    void *made = rows ? mem_large(weight.bytes) : NULL;
    const bool is_whole = dtype_block_elements((int)both->type) == 1;
    assert(is_whole || !turns);
    if (made)
        copy_heads(made, rows, part, is_whole ? (size_t)rank : 1,
                   dtype_bytes(both->type, is_whole ? 1 : (size_t)rank), turns);
    weight.data = made;
    const struct source source = {
        .weight = &weight, .N = (int)weight.dim[1], .K = (int)weight.dim[0]};
    status = load_rows(l, out, role, &source);
    mem_large_free(made, weight.bytes);
    return status;
}

/* Loads the keys' and values' matrices from the tensor with both. The rows of quantised keys become
 * floats, because the blocks of columns are not those of rows. */
static enum status load_both(const struct loader *l, struct tensors *out, int layer,
                             const struct weight *both) {
    const struct latent_config *c = &l->model->config.latent;
    const size_t H = (size_t)l->model->config.H, K_rows = (size_t)c->D_unrotated;
    const size_t all = K_rows + (size_t)c->D_value, n = (size_t)both->n_elements;
    const struct head_rows keys = {H, K_rows, 0, all},
                           values = {H, (size_t)c->D_value, K_rows, all};
    void *made = both->packed && !l->settings->dummy ? packed_rows(l->model->backend, both) : NULL;
    const void *rows = made ? made : both->data;
    struct weight floats = *both;
    const bool is_float = dtype_block_elements((int)both->type) == 1;
    if (!is_float) floats.type = DTYPE_F32, floats.in_16_bits = true;
    const size_t bytes = is_float || !rows ? 0 : n * sizeof(float);
    float *turned = bytes ? mem_large(bytes) : NULL;
    if (turned) dequantise(both->type, rows, turned, n);
    enum status status =
        load_head_rows(l, out, ROLE_K_B, layer, &floats, turned ? turned : rows, &keys);
    if (!status) status = load_head_rows(l, out, ROLE_V_B, layer, both, rows, &values);
    mem_large_free(turned, bytes);
    mem_large_free(made, both->bytes);
    return status;
}

enum status load_latents(const struct loader *l, struct tensors *out, enum role role, int layer) {
    const struct model_config *m = &l->model->config;
    const struct role_info *info = role_info(role);
    const int N = role_extent(m, info->N, layer), K = role_extent(m, info->K, layer);
    const struct weight *weight;
    char name[ROLE_NAME_BYTES];
    role_name(name, role, layer);
    enum status status = role == ROLE_KV_B
                             ? weights_matrix(l->weights, name, N, K, &weight, l->err)
                             : weights_find(l->weights, name, 3, (int64_t[]){K, N / m->H, m->H},
                                            WEIGHT_ANY_TYPE, &weight, l->err);
    if (!status) status = load_check_scales(l, weight);
    if (status) return status;
    return role == ROLE_KV_B ? load_both(l, out, layer, weight)
                             : load_all_experts(l, out, role, weight);
}
