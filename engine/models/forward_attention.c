/* DESIGN: the rows of ops of attention.
 *
 *     q, k, v = products of [norm](x)
 *     the cache's rows = [norm] and rotation of k, [norm] of v; q likewise
 *     attn_out = softmax(scores of q) . values
 */
#include <assert.h>

#include "engine/models/forward.h"

/* Returns the norm at the start of attention. */
static struct norm norm_before(const struct place *at) {
    const bool has_own = at->t->vec[ROLE_ATTN_NORM_2];
    if (at->m->norms_stream) return (struct norm){0};
    return has_own ? norm_of(at, ROLE_ATTN_NORM_2, ROLE_ATTN_NORM_2_BIAS)
                   : norm_of(at, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);
}

static struct rope rope_of(const struct place *at) {
    const struct layer_config *l = &at->m->layer[at->layer];
    const float *windows = at->model->window_inv_freq, *others = at->model->inv_freq;
    const bool own = l->slides && windows;
    const struct rope_config *rope = own ? &at->m->window_rope : &at->m->rope;
    if (at->m != &at->model->part) others = at->model->eagle.inv_freq;
    if (l->has_no_rope) return (struct rope){.layout = rope->layout};
    assert(at->m->rope.D_rope == 0 || others);
    return (struct rope){rope->D_rope, own ? windows : others, rope->layout,
                         rope->stretch.attention_factor};
}

static struct heads heads_of(const struct place *at) {
    const struct model_config *m = at->m;
    const struct tensors *t = at->t;
    const enum head_norms norms = t->vec[ROLE_Q_NORM_ALL_BIAS] ? HEAD_NORMS_LAYER
                                  : t->vec[ROLE_Q_NORM_ALL]    ? HEAD_NORMS_TOGETHER
                                  : t->vec[ROLE_Q_NORM_HEADS]  ? HEAD_NORMS_OWN
                                                               : HEAD_NORMS_ALIKE;
    static const enum role q_norms[] = {ROLE_Q_NORM, ROLE_Q_NORM_ALL, ROLE_Q_NORM_HEADS,
                                        ROLE_Q_NORM_ALL};
    static const enum role k_norms[] = {ROLE_K_NORM, ROLE_K_NORM_ALL, ROLE_K_NORM_HEADS,
                                        ROLE_K_NORM_ALL};
    return (struct heads){.H = m->H,
                          .rope = rope_of(at),
                          .q_gain = t->vec[q_norms[norms]],
                          .k_gain = t->vec[k_norms[norms]],
                          .q_bias = t->vec[ROLE_Q_NORM_ALL_BIAS],
                          .k_bias = t->vec[ROLE_K_NORM_ALL_BIAS],
                          .epsilon = m->norm_epsilon,
                          .norms = norms,
                          .norms_last = m->norms_heads_last,
                          .v_gain = at->model->ones,
                          .values_are_keys = m->layer[at->layer].values_are_keys,
                          .q_scale = at->model->query_scale,
                          .q_scale_every = m->rope.stretch.original_context};
}

/* Computes q, and writes k and v of all rows to the cache, from norm(x). A layer may lack a matrix
 * for v, or for both k and v. */
void attention_keys(const struct place *at) {
    const struct model_config *m = at->m;
    const struct tensors *t = at->t;
    const struct heads heads = heads_of(at);
    const bool reads = config_reads(m, at->layer);
    float *q = at->a->q, *k = at->a->k, *v = at->a->v, *gate = at->a->attn_gate;
    const int n = reads ? 1 : heads.values_are_keys ? 2 : t->w[ROLE_ATTN_GATE] ? 4 : 3;
    struct linear of_q = linear_of(t, ROLE_Q, ROLE_Q_BIAS),
                  of_k = linear_of(t, ROLE_K, ROLE_K_BIAS),
                  of_v = linear_of(t, ROLE_V, ROLE_V_BIAS);
    of_q.scale = of_k.scale = of_v.scale = m->scales.attn_in;
    of_k.scale = linear_scale(&of_k) * scale_or_one(m->scales.key);
    assert(reads || (of_k.w && !heads.q_gain == !heads.k_gain));
    assert(of_q.w && (n < 3 || of_v.w));
    ADD(at, OP_MATMUL, .y = {q, k, v, gate}, .x = {at->attn_in ? at->attn_in : at->x},
        .norm = norm_before(at), .n_products = n,
        .products = {of_q, of_k, of_v, {t->w[ROLE_ATTN_GATE]}});
    ADD(at, OP_ROPE_WRITE, .cache_layer = config_kv_layer(m, at->layer),
        .y = {q, reads ? NULL : k, reads ? NULL : v}, .heads = heads);
}

void attention_mix(const struct place *at, enum op_count count) {
    const struct model_config *m = at->m;
    float *gate = at->t->w[ROLE_ATTN_GATE] ? at->a->attn_gate : NULL;
    const struct attention attention = {.H = m->H,
                                        .scale = m->attention_scale,
                                        .cap = m->attention_cap,
                                        .window = m->layer[at->layer].window,
                                        .both_ways = m->is_encoder,
                                        .slopes = at->model->slopes,
                                        .gate = gate,
                                        .sinks = at->t->vec[ROLE_SINKS]};
    assert(at->layer >= 0 && at->count == COUNT_ALL && at->attn_out == at->a->attn_out);
    attention_keys(at);
    ADD(at, OP_ATTENTION, .count = count, .cache_layer = config_kv_layer(m, at->layer),
        .y = {at->attn_out}, .x = {at->a->q, gate}, .attention = attention);
}
