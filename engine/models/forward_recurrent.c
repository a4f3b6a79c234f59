/* DESIGN: recurrent layers, in place of attention. They keep a state per sequence.
 *
 *     short convolution   attn_out = out * conv(in * x'), with in, out and x' of norm(x)
 *     state space         x, B, C = SiLU(conv(products of norm(x))); z, dt = products of norm(x)
 *                         attn_out = norm(space(x, B, C, dt) * SiLU(z))
 *     gated delta rule    q, k, v = SiLU(conv(products of norm(x))); z, b, dt = products of norm(x)
 *                         attn_out = norm(rule(q, k, v, b, dt)) * SiLU(z)
 *
 * Their products use the buffers of attention:
 *
 *     buffer      short convolution    gated delta rule                       state space
 *     q           in                   q, k and v of all heads                x, B and C
 *     k           out                  z                                      z
 *     v           x'                   b of all rows, then dt of all rows     dt
 */
#include <assert.h>

#include "engine/models/layers.h"
#include "engine/models/model.h"

static struct norm norm_of_layer(const struct model *model, const struct tensors *t) {
    assert(model->config.norm == NORM_RMS && t->vec[ROLE_ATTN_NORM]);
    return (struct norm){NORM_RMS, t->vec[ROLE_ATTN_NORM], NULL, model->config.norm_epsilon};
}

static void short_conv(struct model *model, int layer, int M, struct kv_cache *cache) {
    struct backend *b = model->backend;
    const struct model_config *m = &model->part;
    const struct tensors *t = &model->layers[layer];
    struct model_activations *a = &model->act;
    const struct norm norm = norm_of_layer(model, t);
    const struct linear linear[] = {linear_of(t, ROLE_CONV_GATE_IN, ROLE_CONV_GATE_IN_BIAS),
                                    linear_of(t, ROLE_CONV_GATE_OUT, ROLE_CONV_GATE_OUT_BIAS),
                                    linear_of(t, ROLE_CONV_X, ROLE_CONV_X_BIAS)};
    const struct short_conv conv = {m->C, m->taps, t->vec[ROLE_CONV], t->vec[ROLE_CONV_BIAS]};
    assert(conv.w && linear[2].w);
    TIME_OP(b, OP_MATMUL,
            compute->matmul(b, (float *const[]){a->q, a->k, a->v}, a->x, &norm, linear, 3, M));
    TIME_OP(b, OP_SHORT_CONV,
            compute->short_conv(b, a->attn_out, a->q, a->k, a->v, cache,
                                m->layer[layer].n_recurrent, &conv));
}

static struct delta_rule rule_of(const struct model *model, const struct tensors *t) {
    const struct state_config *d = &model->part.state;
    return (struct delta_rule){.Hk = d->Hk,
                               .Hv = d->Hv,
                               .dk = d->dk,
                               .dv = d->dv,
                               .tiles = d->tiles,
                               .state_first = config_conv_floats(&model->part),
                               .decay = t->vec[ROLE_STATE_DECAY],
                               .dt_bias = t->vec[ROLE_STATE_DT_BIAS],
                               .gain = t->vec[ROLE_STATE_NORM],
                               .epsilon = model->config.norm_epsilon};
}

static void delta_rule(struct model *model, int layer, int M, struct kv_cache *cache) {
    struct backend *b = model->backend;
    const struct model_config *m = &model->part;
    const struct tensors *t = &model->layers[layer];
    struct model_activations *a = &model->act;
    const struct norm norm = norm_of_layer(model, t);
    const struct linear linear[] = {
        linear_of(t, ROLE_DELTA_QKV, N_ROLES), linear_of(t, ROLE_DELTA_Z, N_ROLES),
        linear_of(t, ROLE_DELTA_B, N_ROLES), linear_of(t, ROLE_DELTA_DT, N_ROLES)};
    const struct short_conv conv = {m->C, m->taps, t->vec[ROLE_STATE_CONV], NULL};
    const struct delta_rule rule = rule_of(model, t);
    const struct delta_rows rows = {a->q, a->k, a->v, a->v + (size_t)M * (size_t)rule.Hv};
    const int at = m->layer[layer].n_recurrent;
    assert(conv.w && linear[3].w && rule.decay && 2 * rule.Hv <= config_recurrent_width(m));
    TIME_OP(b, OP_MATMUL,
            compute->matmul(b, (float *const[]){rows.qkv, rows.z, rows.b, rows.dt}, a->x, &norm,
                            linear, 4, M));
    TIME_OP(b, OP_SHORT_CONV,
            compute->short_conv(b, rows.qkv, NULL, NULL, rows.qkv, cache, at, &conv));
    TIME_OP(b, OP_DELTA_RULE, compute->delta_rule(b, a->attn_out, &rows, cache, at, &rule));
}

static struct state_space space_of(const struct model *model, const struct tensors *t) {
    const struct state_config *s = &model->part.state;
    return (struct state_space){.Hk = s->Hk,
                                .Hv = s->Hv,
                                .dk = s->dk,
                                .dv = s->dv,
                                .state_first = config_conv_floats(&model->part),
                                .decay = t->vec[ROLE_STATE_DECAY],
                                .dt_bias = t->vec[ROLE_STATE_DT_BIAS],
                                .skip = t->vec[ROLE_SPACE_SKIP],
                                .dt_min = s->dt_min,
                                .dt_max = s->dt_max,
                                .gain = t->vec[ROLE_STATE_NORM],
                                .epsilon = model->config.norm_epsilon,
                                .norms_first = s->norms_first};
}

static void state_space(struct model *model, int layer, int M, struct kv_cache *cache) {
    struct backend *b = model->backend;
    const struct model_config *m = &model->part;
    const struct tensors *t = &model->layers[layer];
    struct model_activations *a = &model->act;
    const struct norm norm = norm_of_layer(model, t);
    struct linear linear[] = {linear_of(t, ROLE_SPACE_XBC, N_ROLES),
                              linear_of(t, ROLE_SPACE_Z, N_ROLES),
                              linear_of(t, ROLE_SPACE_DT, N_ROLES)};
    const struct short_conv conv = {m->C, m->taps, t->vec[ROLE_STATE_CONV],
                                    t->vec[ROLE_SPACE_CONV_BIAS]};
    const float in = scale_or_one(m->scales.space_in); /* the taps have that of x, B and C */
    linear[1].scale = in * scale_or_one(m->scales.space_z);
    linear[2].scale = in * scale_or_one(m->scales.space_dt);
    const struct state_space space = space_of(model, t);
    const struct space_rows rows = {a->q, a->k, a->v};
    const int at = m->layer[layer].n_recurrent;
    assert(conv.w && conv.bias && linear[2].w && space.decay && space.skip);
    TIME_OP(b, OP_MATMUL,
            compute->matmul(b, (float *const[]){a->q, a->k, a->v}, a->x, &norm, linear, 3, M));
    TIME_OP(b, OP_SHORT_CONV, compute->short_conv(b, a->q, NULL, NULL, a->q, cache, at, &conv));
    float *y = m->mixes_both ? a->state_out : a->attn_out;
    TIME_OP(b, OP_STATE_SPACE, compute->state_space(b, y, &rows, cache, at, &space));
}

void recurrent_layer(struct model *model, int layer, int M, struct kv_cache *cache) {
    assert(model->part.layer[layer].is_recurrent && cache);
    static void (*const kinds[])(struct model *, int, int, struct kv_cache *) = {
        [STATE_CONV] = short_conv, [STATE_DELTA] = delta_rule, [STATE_SPACE] = state_space};
    kinds[model->part.state.kind](model, layer, M, cache);
}

struct linear recurrent_output(const struct model *model, int layer) {
    const struct tensors *t = &model->layers[layer];
    const bool has_matrices = model->part.state.kind != STATE_CONV;
    assert(t->w[has_matrices ? ROLE_STATE_OUT : ROLE_CONV_OUT]);
    if (!has_matrices) return ending_of(model, t, ROLE_CONV_OUT, ROLE_CONV_OUT_BIAS);
    struct linear out = ending_of(model, t, ROLE_STATE_OUT, N_ROLES);
    out.scale = linear_scale(&out) * scale_or_one(model->config.scales.space_out);
    return out;
}
