/* DESIGN: the rows of ops of recurrent layers, in place of attention. They keep a state a
 * sequence.
 *
 *     short convolution   attn_out = out * conv(in * x'), with in, out and x' of norm(x)
 *     state space         x, B, C = SiLU(conv(products of norm(x))); z, dt = products of norm(x)
 *                         attn_out = norm(space(x, B, C, dt) * SiLU(z))
 *     gated delta rule    q, k, v = SiLU(conv(products of norm(x))); z, b, dt = products of norm(x)
 *                         attn_out = norm(rule(q, k, v, b, dt)) * SiLU(z)
 *       with a decay      z and dt = products of products of norm(x)
 *       per channel       attn_out = norm(rule(q, k, v, b, dt)) * sigmoid(z)
 *
 * Their products use the buffers of attention:
 *
 *     buffer      short convolution    gated delta rule                       state space
 *     q           in                   q, k and v of all heads                x, B and C
 *     k           out                  z                                      z
 *     v           x'                   b of max_rows rows, then dt     dt
 *
 * With a decay per channel, q has q of max_rows rows, then k, then v. The buffer v has the first
 * products of dt and z, then dt, then b.
 */
#include <assert.h>

#include "engine/models/forward.h"

/* Returns the norm of the layer's input. */
static struct norm norm_before(const struct place *at) {
    assert(at->m->norm == NORM_RMS && at->t->vec[ROLE_ATTN_NORM]);
    return norm_of(at, ROLE_ATTN_NORM, N_ROLES);
}

static void short_conv(const struct place *at) {
    const struct tensors *t = at->t;
    float *in = at->a->q, *out = at->a->k, *x = at->a->v;
    const struct short_conv conv = {at->m->C, at->m->taps, t->vec[ROLE_CONV],
                                    t->vec[ROLE_CONV_BIAS]};
    const struct linear of_in = linear_of(t, ROLE_CONV_GATE_IN, ROLE_CONV_GATE_IN_BIAS),
                        of_out = linear_of(t, ROLE_CONV_GATE_OUT, ROLE_CONV_GATE_OUT_BIAS),
                        of_x = linear_of(t, ROLE_CONV_X, ROLE_CONV_X_BIAS);
    assert(conv.w && of_x.w);
    ADD(at, OP_MATMUL, .y = {in, out, x}, .x = {at->x}, .norm = norm_before(at), .n_products = 3,
        .products = {of_in, of_out, of_x});
    ADD(at, OP_SHORT_CONV, .cache_layer = at->m->layer[at->layer].n_recurrent, .y = {at->attn_out},
        .x = {in, out, x}, .short_conv = conv);
}

/* x = SiLU(conv(x)) of n channels, from `first` on. */
static void convolve(const struct place *at, float *x, int first, int n, const float *bias) {
    const struct short_conv conv = {n,    at->m->taps, at->t->vec[ROLE_STATE_CONV],
                                    bias, at->m->C,    first};
    assert(conv.w && first >= 0 && first + n <= at->m->C);
    ADD(at, OP_SHORT_CONV, .cache_layer = at->m->layer[at->layer].n_recurrent, .y = {x},
        .x = {NULL, NULL, x}, .short_conv = conv);
}

static struct delta_rule rule_of(const struct place *at) {
    const struct state_config *d = &at->m->state;
    const struct tensors *t = at->t;
    assert(t->vec[ROLE_STATE_DECAY] && t->vec[ROLE_STATE_DT_BIAS] && t->vec[ROLE_STATE_NORM]);
    return (struct delta_rule){.Hk = d->Hk,
                               .Hv = d->Hv,
                               .dk = d->dk,
                               .dv = d->dv,
                               .tiles = d->tiles,
                               .state_first = config_conv_floats(at->m),
                               .decay = t->vec[ROLE_STATE_DECAY],
                               .dt_bias = t->vec[ROLE_STATE_DT_BIAS],
                               .gain = t->vec[ROLE_STATE_NORM],
                               .epsilon = at->m->norm_epsilon,
                               .by_channel = d->by_channel,
                               .by_sigmoid = d->by_channel};
}

/* The delta rule with a decay per channel. */
static void channel_rule(const struct place *at) {
    const struct state_config *d = &at->m->state;
    const struct tensors *t = at->t;
    const size_t rows = (size_t)at->a->max_rows, width = (size_t)(d->Hv * d->dv);
    const int keys = d->Hk * d->dk;
    float *q = at->a->q, *k = q + rows * width, *v = k + rows * width, *z = at->a->k;
    float *of_dt = at->a->v, *of_z = of_dt + rows * (size_t)d->dk;
    float *dt = of_z + rows * (size_t)d->dk, *b = dt + rows * width;
    assert(d->Hk == d->Hv && d->dk == d->dv && t->w[ROLE_Q] && t->w[ROLE_DELTA_DT]);
    ADD(at, OP_MATMUL, .y = {q, k, v, b}, .x = {at->x}, .norm = norm_before(at), .n_products = 4,
        .products = {linear_of(t, ROLE_Q, N_ROLES), linear_of(t, ROLE_K, N_ROLES),
                     linear_of(t, ROLE_V, N_ROLES), linear_of(t, ROLE_DELTA_B, N_ROLES)});
    ADD(at, OP_MATMUL, .y = {of_dt, of_z}, .x = {at->x}, .norm = norm_before(at), .n_products = 2,
        .products = {linear_of(t, ROLE_DELTA_DT_A, N_ROLES),
                     linear_of(t, ROLE_DELTA_Z_A, N_ROLES)});
    ADD(at, OP_MATMUL, .y = {dt}, .x = {of_dt}, .n_products = 1,
        .products = {linear_of(t, ROLE_DELTA_DT, N_ROLES)});
    ADD(at, OP_MATMUL, .y = {z}, .x = {of_z}, .n_products = 1,
        .products = {linear_of(t, ROLE_DELTA_Z, N_ROLES)});
    convolve(at, q, 0, keys, NULL);
    convolve(at, k, keys, keys, NULL);
    convolve(at, v, 2 * keys, keys, NULL);
    ADD(at, OP_DELTA_RULE, .cache_layer = at->m->layer[at->layer].n_recurrent, .y = {at->attn_out},
        .x = {q, z, b, dt, k, v}, .delta_rule = rule_of(at));
}

static void delta_rule(const struct place *at) {
    const struct state_config *d = &at->m->state;
    const struct tensors *t = at->t;
    if (d->by_channel) return channel_rule(at);
    float *qkv = at->a->q, *z = at->a->k, *b = at->a->v;
    float *dt = b + (size_t)at->a->max_rows * (size_t)d->Hv;
    const struct linear of_qkv = linear_of(t, ROLE_DELTA_QKV, N_ROLES),
                        of_z = linear_of(t, ROLE_DELTA_Z, N_ROLES),
                        of_b = linear_of(t, ROLE_DELTA_B, N_ROLES),
                        of_dt = linear_of(t, ROLE_DELTA_DT, N_ROLES);
    const struct delta_rule rule = rule_of(at);
    assert(of_dt.w && 2 * rule.Hv <= config_recurrent_width(at->m));
    ADD(at, OP_MATMUL, .y = {qkv, z, b, dt}, .x = {at->x}, .norm = norm_before(at), .n_products = 4,
        .products = {of_qkv, of_z, of_b, of_dt});
    convolve(at, qkv, 0, at->m->C, NULL);
    ADD(at, OP_DELTA_RULE, .cache_layer = at->m->layer[at->layer].n_recurrent, .y = {at->attn_out},
        .x = {qkv, z, b, dt}, .delta_rule = rule);
}

static struct state_space space_of(const struct place *at) {
    const struct state_config *s = &at->m->state;
    const struct tensors *t = at->t;
    return (struct state_space){.Hk = s->Hk,
                                .Hv = s->Hv,
                                .dk = s->dk,
                                .dv = s->dv,
                                .state_first = config_conv_floats(at->m),
                                .decay = t->vec[ROLE_STATE_DECAY],
                                .dt_bias = t->vec[ROLE_STATE_DT_BIAS],
                                .skip = t->vec[ROLE_SPACE_SKIP],
                                .dt_min = s->dt_min,
                                .dt_max = s->dt_max,
                                .gain = t->vec[ROLE_STATE_NORM],
                                .epsilon = at->m->norm_epsilon,
                                .norms_first = s->norms_first};
}

static void state_space(const struct place *at) {
    const struct layer_scales *scales = &at->m->scales;
    float *xbc = at->a->q, *z = at->a->k, *dt = at->a->v;
    float *y = at->m->mixes_both ? at->state_out : at->attn_out;
    struct linear of_xbc = linear_of(at->t, ROLE_SPACE_XBC, N_ROLES),
                  of_z = linear_of(at->t, ROLE_SPACE_Z, N_ROLES),
                  of_dt = linear_of(at->t, ROLE_SPACE_DT, N_ROLES);
    const float in = scale_or_one(scales->space_in); /* the taps have that of x, B and C */
    of_z.scale = in * scale_or_one(scales->space_z);
    of_dt.scale = in * scale_or_one(scales->space_dt);
    const struct state_space space = space_of(at);
    const float *bias = at->t->vec[ROLE_SPACE_CONV_BIAS];
    assert(bias && of_dt.w && space.decay && space.skip);
    ADD(at, OP_MATMUL, .y = {xbc, z, dt}, .x = {at->x}, .norm = norm_before(at), .n_products = 3,
        .products = {of_xbc, of_z, of_dt});
    convolve(at, xbc, 0, at->m->C, bias);
    ADD(at, OP_STATE_SPACE, .cache_layer = at->m->layer[at->layer].n_recurrent, .y = {y},
        .x = {xbc, z, dt}, .state_space = space);
}

void recurrent_layer(const struct place *at) {
    assert(at->m->layer[at->layer].is_recurrent && at->count == COUNT_ALL);
    static void (*const kinds[])(const struct place *) = {
        [STATE_CONV] = short_conv, [STATE_DELTA] = delta_rule, [STATE_SPACE] = state_space};
    kinds[at->m->state.kind](at);
}

struct linear recurrent_output(const struct place *at) {
    const bool has_matrices = at->m->state.kind != STATE_CONV;
    if (at->m->state.by_channel) return ending_of(at, ROLE_O, N_ROLES);
    assert(at->t->w[has_matrices ? ROLE_STATE_OUT : ROLE_CONV_OUT]);
    if (!has_matrices) return ending_of(at, ROLE_CONV_OUT, ROLE_CONV_OUT_BIAS);
    struct linear out = ending_of(at, ROLE_STATE_OUT, N_ROLES);
    out.scale = linear_scale(&out) * scale_or_one(at->m->scales.space_out);
    return out;
}
