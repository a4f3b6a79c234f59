/* Numbers of attention that depend on positions.
 *
 * Slopes (Press et al. 2022): of n heads, a power of two, head i has 2^(-8 (i + 1) / n). Of another
 * number, the heads beyond the power of two below it have every second slope of twice that power.
 */
#include <math.h>

#include "engine/models/load.h"

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
 * score is lowered. */
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
