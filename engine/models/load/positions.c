/* Loads the numbers of positions: frequencies of rotary positions, scales of queries, slopes of
 * heads. */
#include <math.h>

#include "engine/models/load/internal.h"

/* Returns the role of the tensor by which frequencies are divided, or N_ROLES. */
static enum role factors_role(const struct model_config *m, int length) {
    if (config_has(m, ROLE_ROPE_FACTORS)) return ROLE_ROPE_FACTORS;
    if (m->rope.stretch.kind != ROPE_LONG || m->rope.stretch.n_factors > 0) return N_ROLES;
    return length > m->rope.stretch.original_context ? ROLE_ROPE_LONG : ROLE_ROPE_SHORT;
}

/* Reads the file's factors. They must be finite and positive: frequencies are divided by them. */
static enum status read_factors(const struct loader *l, const struct weight *weight, float *factors,
                                int n) {
    dequantise(weight->type, weight->data, factors, (size_t)n);
    for (int i = 0; i < n; i++)
        if (!(factors[i] > 0 && isfinite(factors[i])))
            return err_set(l->err, STATUS_BAD_FILE, weight->name,
                           "tensor %s: number %d is %g; finite numbers above 0 were expected",
                           weight->name, i, (double)factors[i]);
    return STATUS_OK;
}

/* Loads the frequencies of one kind of layer, divided by the file's factors if it has a tensor of
 * them. */
static enum status load_kind(const struct loader *l, const struct rope_config *rope, enum role role,
                             int length, float **out) {
    const struct weight *weight = NULL;
    int n = rope->D_rope / 2;
    enum status status = STATUS_OK;
    if (n == 0) return STATUS_OK;
    if (role != N_ROLES)
        status = weights_vector(l->weights, role_info(role)->gguf, n, &weight, l->err);
    if (status) return status;
    float *factors = mem_alloc((size_t)n * sizeof *factors);
    float *inv_freq = mem_alloc((size_t)n * sizeof *inv_freq);
    for (int i = 0; i < n; i++) factors[i] = 1; /* random tensors have NULL data */
    if (weight && !l->settings->dummy) status = read_factors(l, weight, factors, n);
    if (!status) rope_frequencies(inv_freq, rope, weight ? factors : NULL, length);
    for (int i = 0; i < n && !rope->is_used; i++) inv_freq[i] = 0; /* nothing rotates */
    if (!status) status = load_floats(l->model, inv_freq, n, out, l->err);
    mem_free(inv_freq);
    mem_free(factors);
    return status;
}

enum status load_frequencies(const struct loader *l) {
    struct model *model = l->model;
    const struct model_config *m = &model->config;
    int length = l->settings->max_model_len ? l->settings->max_model_len : m->context_length;
    enum role role = factors_role(m, length);
    enum status status = load_kind(l, &m->rope, role, length, &model->inv_freq);
    if (!status && m->window_rotation != WINDOW_ROPE_SAME)
        status = load_kind(l, &m->window_rope, N_ROLES, length, &model->window_inv_freq);
    return status;
}

enum status load_rotation(const struct loader *l, const struct rope_config *rope, float **out) {
    int length = l->settings->max_model_len;
    return load_kind(l, rope, N_ROLES, length ? length : l->model->config.context_length, out);
}

enum status load_query_scales(const struct loader *l) {
    struct model *model = l->model;
    const struct model_config *m = &model->config;
    int length = l->settings->max_model_len ? l->settings->max_model_len : m->context_length;
    if (m->query_beta == 0) return STATUS_OK;
    int every = m->rope.stretch.original_context, n = (length + every - 1) / every;
    float *scales = mem_alloc((size_t)n * sizeof *scales);
    for (int i = 0; i < n; i++) scales[i] = (float)(1 + (double)m->query_beta * log1p(i));
    enum status status = load_floats(model, scales, n, &model->query_scale, l->err);
    if (!status) model->n_query_scales = n;
    mem_free(scales);
    return status;
}

/* Returns the slope of one of H heads: the factor of the distance of two positions, by which a
 * score is lowered. Of n heads, a power of two, head i has 2^(-8 (i + 1) / n). Of another number,
 * the heads beyond the power of two below it have every second slope of twice that power (Press et
 * al. 2022). */
static float slope_of(int head, int H) {
    int n = 1;
    while (2 * n <= H) n *= 2;
    if (head < n) return (float)exp2(-8.0 * (head + 1) / n);
    return (float)exp2(-8.0 * (2 * (head - n) + 1) / (2 * n));
}

enum status load_slopes(const struct loader *l) {
    struct model *model = l->model;
    const int n = model->part.H, first = model->shard.rank * n;
    if (!model->config.has_slopes) return STATUS_OK;
    float *slopes = mem_alloc((size_t)n * sizeof *slopes);
    for (int i = 0; i < n; i++) slopes[i] = slope_of(first + i, model->config.H);
    enum status status = load_floats(model, slopes, n, &model->slopes, l->err);
    mem_free(slopes);
    return status;
}
