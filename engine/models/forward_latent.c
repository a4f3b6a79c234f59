/* DESIGN: the rows of ops of latent attention (struct latent of kernels/ops.h).
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
 * numbers are the value. Queries may be scaled by position, after the product with K_h. */
#include <assert.h>

#include "engine/models/forward.h"

/* The published implementations of all families have this epsilon in the norms of latent vectors,
 * whatever config.json says for the others. */
#define LATENT_EPSILON 1e-6f

static struct norm latent_norm(const struct place *at, enum role gain) {
    struct norm norm = norm_of(at, gain, N_ROLES);
    assert(norm.gain && !norm.bias);
    norm.epsilon = LATENT_EPSILON;
    return norm;
}

/* act.latent = the queries, and act.k = the latent vectors and rotated numbers of keys. Latent
 * vectors of queries use act.v. */
static void project(const struct place *at) {
    const bool has_rank = at->t->w[ROLE_Q_A];
    float *q = at->a->latent, *k = at->a->k, *of_q = at->a->v;
    const struct linear first = linear_of(at->t, has_rank ? ROLE_Q_A : ROLE_Q, N_ROLES),
                        keys = linear_of(at->t, ROLE_KV_A, N_ROLES),
                        expands = linear_of(at->t, ROLE_Q_B, N_ROLES);
    assert(first.w && keys.w && (!has_rank || expands.w));
    ADD(at, OP_MATMUL, .y = {has_rank ? of_q : q, k}, .x = {at->x},
        .norm = norm_of(at, ROLE_ATTN_NORM, N_ROLES), .n_products = 2, .products = {first, keys});
    if (has_rank)
        ADD(at, OP_MATMUL, .y = {q}, .x = {of_q}, .norm = latent_norm(at, ROLE_Q_A_NORM),
            .n_products = 1, .products = {expands});
}

/* act.q = the queries times the keys' matrices, and the rotated ends; writes the keys. */
static void absorb(const struct place *at) {
    const struct model_config *m = at->m;
    const struct latent_config *c = &m->latent;
    const float *inv_freq = at->model->inv_freq;
    float *q = at->a->q, *latent = at->a->latent;
    const struct head_linear keys = {at->t->w[ROLE_K_B], m->H, c->rank, c->D_unrotated + c->D_rope,
                                     m->D};
    const struct latent write = {
        .H = m->H,
        .rank = c->rank,
        .D_unrotated = c->D_unrotated,
        .rope = {m->rope.D_rope, inv_freq, m->rope.layout, m->rope.stretch.attention_factor},
        .norm = latent_norm(at, ROLE_KV_A_NORM),
        .q_scale = at->model->query_scale,
        .q_scale_every = m->rope.stretch.original_context};
    assert(keys.w && m->rope.D_rope == c->D_rope && inv_freq);
    ADD(at, OP_MATMUL_HEADS, .y = {q}, .x = {latent}, .head_linear = keys);
    ADD(at, OP_LATENT_WRITE, .cache_layer = config_kv_layer(m, at->layer), .y = {q, at->a->k},
        .x = {latent}, .latent = write);
}

/* attn_out = the values' matrices times act.latent, the attention of act.q. */
static void attend(const struct place *at, enum op_count count) {
    const struct model_config *m = at->m;
    const struct latent_config *c = &m->latent;
    float *latent = at->a->latent;
    const struct attention attention = {.H = m->H, .scale = m->attention_scale};
    const struct head_linear values = {at->t->w[ROLE_V_B], m->H, c->D_value, c->rank, c->D_value};
    assert(values.w && m->attention_cap == 0 && m->layer[at->layer].window == 0);
    ADD(at, OP_ATTENTION, .count = count, .cache_layer = config_kv_layer(m, at->layer),
        .y = {latent}, .x = {at->a->q}, .attention = attention);
    ADD(at, OP_MATMUL_HEADS, .count = count, .y = {at->attn_out}, .x = {latent},
        .head_linear = values);
}

void latent_keys(const struct place *at) {
    assert(at->layer >= 0 && at->count == COUNT_ALL);
    project(at);
    absorb(at);
}

void latent_mix(const struct place *at, enum op_count count) {
    latent_keys(at);
    attend(at, count);
}
