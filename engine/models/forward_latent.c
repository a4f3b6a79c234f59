/* DESIGN: latent attention (struct latent of kernels/ops.h).
 *
 *     q = Q_B(norm(Q_A(x))) or Q(x)         [H][D_unrotated + D_rope]
 *     c, r = KV_A(x)                        [rank], [D_rope]
 *
 * Head h would have the keys K_h norm(c), rotated(r) and the values V_h norm(c). But K_h may be
 * multiplied with the query instead of the keys, and V_h with the sum of latent vectors instead of
 * each value:
 *
 *     score of head h = (K_h^T q_h, rotated(q_h's end)) . (norm(c), rotated(r))
 *     output of head h = V_h (sum of weight * norm(c))
 *
 * So the cache has one row (norm(c), rotated(r)) per token, all heads read it, and its first `rank`
 * numbers are the value. */
#include <assert.h>

#include "engine/models/layers.h"
#include "engine/models/model.h"

static struct norm norm_of(const struct model *model, const float *gain) {
    assert(gain);
    return (struct norm){model->config.norm, gain, NULL, model->config.norm_epsilon};
}

/* act.latent = the queries, and act.k = the latent vectors and rotated numbers of keys. Latent
 * vectors of queries use act.v. */
static void project(struct model *model, const struct tensors *t, int M) {
    struct backend *b = model->backend;
    struct model_activations *a = &model->act;
    const bool has_rank = t->w[ROLE_Q_A];
    const struct norm norm = norm_of(model, t->vec[ROLE_ATTN_NORM]);
    const struct linear linear[] = {linear_of(t, has_rank ? ROLE_Q_A : ROLE_Q, N_ROLES),
                                    linear_of(t, ROLE_KV_A, N_ROLES)};
    assert(linear[0].w && linear[1].w);
    TIME_OP(b, OP_MATMUL,
            compute->matmul(b, (float *const[]){has_rank ? a->v : a->latent, a->k}, a->x, &norm,
                            linear, 2, M));
    if (!has_rank) return;
    const struct norm of_q = norm_of(model, t->vec[ROLE_Q_A_NORM]);
    const struct linear expands = linear_of(t, ROLE_Q_B, N_ROLES);
    TIME_OP(b, OP_MATMUL,
            compute->matmul(b, (float *const[]){a->latent}, a->v, &of_q, &expands, 1, M));
}

/* act.q = the queries times the keys' matrices, and the rotated ends; writes the keys. */
static void absorb(struct model *model, const struct tensors *t, int layer, int M,
                   struct kv_cache *cache) {
    struct backend *b = model->backend;
    struct model_activations *a = &model->act;
    const struct model_config *m = &model->part;
    const struct latent_config *c = &m->latent;
    const struct head_linear keys = {t->w[ROLE_K_B], m->H, c->rank, c->D_unrotated + c->D_rope,
                                     m->D};
    const struct latent latent = {
        .H = m->H,
        .rank = c->rank,
        .D_unrotated = c->D_unrotated,
        .rope = {m->rope.D_rope, model->inv_freq, m->rope.layout, m->rope.stretch.attention_factor},
        .norm = norm_of(model, t->vec[ROLE_KV_A_NORM])};
    assert(keys.w && m->rope.D_rope == c->D_rope && model->inv_freq);
    TIME_OP(b, OP_MATMUL, compute->matmul_heads(b, a->q, a->latent, &keys, M));
    TIME_OP(
        b, OP_ROPE_WRITE,
        compute->latent_write(b, cache, config_kv_layer(m, layer), &latent, a->q, a->latent, a->k));
}

/* attn_out = the values' matrices times act.latent, the attention of act.q. */
static void attend(struct model *model, const struct tensors *t, int layer, int M,
                   const struct kv_cache *cache) {
    struct backend *b = model->backend;
    struct model_activations *a = &model->act;
    const struct model_config *m = &model->part;
    const struct latent_config *c = &m->latent;
    const struct attention attention = {.H = m->H, .scale = m->attention_scale};
    const struct head_linear values = {t->w[ROLE_V_B], m->H, c->D_value, c->rank, c->D_value};
    assert(values.w && m->attention_cap == 0 && m->layer[layer].window == 0);
    TIME_OP(b, OP_ATTENTION,
            compute->attention(b, a->latent, a->q, cache, config_kv_layer(m, layer), &attention));
    TIME_OP(b, OP_MATMUL, compute->matmul_heads(b, a->attn_out, a->latent, &values, M));
}

void latent_mix(struct model *model, int layer, int M, bool is_read, struct kv_cache *cache) {
    const struct tensors *t = &model->layers[layer];
    assert(layer >= 0 && layer < model->part.L && model->backend->compute->matmul_heads);
    project(model, t, M);
    absorb(model, t, layer, M, cache);
    if (is_read) attend(model, t, layer, M, cache);
}
