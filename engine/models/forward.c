/* DESIGN: the forward pass, once for all families.
 *
 * A model is blocks of attention and an MLP on one residual stream x, with norms before a branch,
 * after it, or both:
 *
 *     x = [norm](embedding(token) [+ type] [+ position])
 *     each layer:  x += [norm] output(attention(q, k, v of [norm](x)))
 *                  x += [norm] down(act(gate([norm](x))) * up([norm](x))), or such experts
 *               or x += norm(norm(down(..)) + norm(such experts)), both of the same x
 *               or x += output(attention) + down(..), both of the same x, with one norm or two
 *               or x = norm(x + output(attention(..))), x = norm(x + down(..))
 *     A recurrent layer has a short convolution, a gated delta rule or a state space in place of
 *     attention, or beside it (forward_recurrent.c). Latent attention multiplies keys' matrices
 *     with queries (forward_latent.c). A layer may lack the first branch or the second.
 *     hidden vector = [norm](x), logits = head(hidden vector)
 *
 * An embedding of another width is projected to the stream's width, and back before the head.
 *
 * Families differ in their tensors (a bias, a norm, a missing gate) and in the numbers of
 * model_config (windows, caps, scales). Both are options of the ops. The sequence of ops depends
 * only on the model and on M, S and R, as compute_ops.run requires.
 *
 * Ranks: the products of o and down are partial sums on each rank. Rank 0 adds its partial sum to
 * the stream, the others add theirs to `part`, and all_reduce leaves the sum in the stream of every
 * rank. A norm after a branch needs the complete sum first. So such a sum is computed in `branch`,
 * and norm_add adds its norm to x.
 */
#include <assert.h>
#include <math.h>

#include "engine/models/layers.h"
#include "engine/models/model.h"

/* Returns the experts of a layer, and the shared expert if the layer has one. */
static struct experts experts_of(const struct model *model, const struct tensors *t) {
    const struct expert_config *c = &model->config.experts;
    enum activation activation = model->config.activation;
    float scale = model->config.residual_scale;
    return (struct experts){.E = c->E,
                            .n_used = c->n_used,
                            .normalises = c->normalises,
                            .by_sigmoid = c->by_sigmoid,
                            .correction = t->vec[ROLE_ROUTER_CORRECTION],
                            .n_groups = c->n_groups,
                            .n_used_groups = c->n_used_groups,
                            .weight_scale = c->weight_scale,
                            .expert_scale = t->vec[ROLE_EXPERTS_SCALE],
                            .router = linear_of(t, ROLE_ROUTER, ROLE_ROUTER_BIAS),
                            .mlp = {activation,
                                    linear_of(t, ROLE_EXPERTS_GATE, ROLE_EXPERTS_GATE_BIAS),
                                    linear_of(t, ROLE_EXPERTS_UP, ROLE_EXPERTS_UP_BIAS),
                                    ending_of(model, t, ROLE_EXPERTS_DOWN, ROLE_EXPERTS_DOWN_BIAS)},
                            .shared = {activation,
                                       {t->w[ROLE_SHARED_GATE], NULL},
                                       {t->w[ROLE_SHARED_UP], NULL},
                                       {t->w[ROLE_SHARED_DOWN], NULL, scale}},
                            .shared_gate = {t->w[ROLE_SHARED_ROUTER], NULL}};
}

/* `bias` may be N_ROLES: no bias. */
static struct norm norm_of(const struct model *model, const struct tensors *t, enum role gain,
                           enum role bias) {
    return (struct norm){model->config.norm, t->vec[gain], bias < N_ROLES ? t->vec[bias] : NULL,
                         model->config.norm_epsilon};
}

/* Returns the norm for an op, or NULL if the model lacks it. */
static const struct norm *norm_or_none(const struct norm *norm) {
    return norm->gain ? norm : NULL;
}

/* Returns the norm at the start of a branch, or NULL. */
static const struct norm *norm_before(const struct model *model, const struct norm *norm) {
    return model->config.norms_stream ? NULL : norm_or_none(norm);
}

static struct mlp mlp_of(const struct model *model, const struct tensors *t) {
    const struct layer_scales *scales = &model->config.scales;
    struct mlp mlp = {.activation = model->config.activation,
                      .gate = linear_of(t, ROLE_GATE, ROLE_GATE_BIAS),
                      .up = linear_of(t, ROLE_UP, ROLE_UP_BIAS),
                      .down = ending_of(model, t, ROLE_DOWN, ROLE_DOWN_BIAS),
                      .xielu = xielu_of(model, t)};
    mlp.gate.scale = scales->gate;
    mlp.down.scale = linear_scale(&mlp.down) * scale_or_one(scales->down);
    return mlp;
}

/* Returns the buffer to which this rank adds a product that is summed over the ranks into x: x on
 * rank 0, `part` on the others. */
static float *sum_of(struct model *model, float *x) {
    return model->shard.rank == 0 ? x : model->act.part;
}

/* Replaces x[M][K] on every rank by the sum of all ranks' sum_of buffers. */
static void all_reduce(struct model *model, float *x, int M) {
    struct backend *b = model->backend;
    if (model->shard.ranks == 1) return;
    TIME_OP(b, OP_ALL_REDUCE, compute->all_reduce(b, x, model->act.part, M, model->part.K));
}

/* Embeds tokens in a model whose embedding has another width: looks up, projects, then adds the
 * positions. */
static void embed_and_project(struct model *model, int M) {
    struct backend *b = model->backend;
    const struct tensors *t = &model->ends;
    struct model_activations *a = &model->act;
    const struct embedding tokens = {.tokens = t->w[ROLE_TOKEN_EMBEDDING],
                                     .scale = model->config.embedding_scale};
    const struct embedding positions = {.positions = t->w[ROLE_POSITION_EMBEDDING]};
    const struct linear in = {t->w[ROLE_PROJECT_IN], NULL};
    TIME_OP(b, OP_EMBED, compute->embed(b, a->embedded, &tokens));
    TIME_OP(b, OP_MATMUL, compute->matmul(b, (float *const[]){a->x}, a->embedded, NULL, &in, 1, M));
    if (positions.positions) TIME_OP(b, OP_EMBED, compute->embed(b, a->x, &positions));
}

/* Writes the embeddings of the tokens to x. Rank 0 looks them up and the others add nothing, so
 * those need neither the embedding nor the token ids, some of which only rank 0's device may
 * know. */
static void embed(struct model *model, int M) {
    struct backend *b = model->backend;
    const struct tensors *t = &model->ends;
    const struct norm norm = norm_of(model, t, ROLE_EMBEDDING_NORM, ROLE_EMBEDDING_NORM_BIAS);
    const struct embedding embedding = {.tokens = t->w[ROLE_TOKEN_EMBEDDING],
                                        .scale = model->config.embedding_scale,
                                        .types = t->w[ROLE_TYPE_EMBEDDING],
                                        .positions = t->w[ROLE_POSITION_EMBEDDING],
                                        .norm = norm_or_none(&norm)};
    assert(model->shard.rank > 0 || embedding.tokens);
    if (t->w[ROLE_PROJECT_IN])
        embed_and_project(model, M);
    else if (model->shard.rank == 0)
        TIME_OP(b, OP_EMBED, compute->embed(b, model->act.x, &embedding));
    all_reduce(model, model->act.x, M);
}

/* On rank 0, which has the tokens' embeddings: inputs = norm(project(x)) + the token's row. Both
 * are as wide as all layers together, so the norm sees M * L rows of P. */
static void project_inputs(struct model *model, int M) {
    struct backend *b = model->backend;
    const struct model_config *m = &model->config;
    const struct tensors *t = &model->ends;
    struct model_activations *a = &model->act;
    const struct embedding tokens = {.tokens = t->w[ROLE_INPUTS_EMBEDDING],
                                     .scale = sqrtf((float)m->P)};
    const struct linear projection = {t->w[ROLE_INPUTS_PROJECTION], NULL, 1 / sqrtf((float)m->K)};
    const struct norm norm = norm_of(model, t, ROLE_INPUTS_NORM, N_ROLES);
    assert(model->shard.rank == 0 && tokens.tokens && norm.gain);
    TIME_OP(b, OP_EMBED, compute->embed(b, a->inputs, &tokens));
    TIME_OP(b, OP_MATMUL,
            compute->matmul(b, (float *const[]){a->input_parts}, a->x, NULL, &projection, 1, M));
    TIME_OP(b, OP_NORM_ADD, compute->norm_add(b, a->inputs, a->input_parts, &norm, M * m->L, m->P));
}

/* Computes the per-layer inputs, act.inputs [M][L][P], on every rank. The sum's factor 1 / sqrt(2)
 * is applied in add_input. */
static void make_inputs(struct model *model, int M) {
    struct backend *b = model->backend;
    const struct model_config *m = &model->config;
    struct model_activations *a = &model->act;
    if (m->P == 0) return;
    if (model->shard.rank == 0) project_inputs(model, M);
    if (model->shard.ranks == 1) return;
    TIME_OP(b, OP_ALL_REDUCE, compute->all_reduce(b, a->inputs, a->input_parts, M * m->L, m->P));
}

static struct rope rope_of(const struct model *model, int layer) {
    const struct layer_config *l = &model->part.layer[layer];
    bool own = l->slides && model->window_inv_freq;
    const struct rope_config *rope = own ? &model->part.window_rope : &model->part.rope;
    if (l->has_no_rope) return (struct rope){.layout = rope->layout};
    return (struct rope){rope->D_rope, own ? model->window_inv_freq : model->inv_freq, rope->layout,
                         rope->stretch.attention_factor};
}

static struct heads heads_of(const struct model *model, int layer) {
    assert(layer >= 0 && layer < model->config.L);
    const struct model_config *m = &model->part;
    const struct tensors *t = &model->layers[layer];
    const enum head_norms norms = t->vec[ROLE_Q_NORM_ALL]     ? HEAD_NORMS_TOGETHER
                                  : t->vec[ROLE_Q_NORM_HEADS] ? HEAD_NORMS_OWN
                                                              : HEAD_NORMS_ALIKE;
    static const enum role q_norms[] = {ROLE_Q_NORM, ROLE_Q_NORM_ALL, ROLE_Q_NORM_HEADS};
    static const enum role k_norms[] = {ROLE_K_NORM, ROLE_K_NORM_ALL, ROLE_K_NORM_HEADS};
    return (struct heads){.H = m->H,
                          .rope = rope_of(model, layer),
                          .q_gain = t->vec[q_norms[norms]],
                          .k_gain = t->vec[k_norms[norms]],
                          .epsilon = m->norm_epsilon,
                          .norms = norms,
                          .norms_last = m->norms_heads_last,
                          .v_gain = model->ones,
                          .values_are_keys = m->layer[layer].values_are_keys,
                          .q_scale = model->query_scale,
                          .q_scale_every = m->rope.stretch.original_context};
}

/* Computes q, and writes k and v of all rows to the cache, from norm(x). A layer may lack a matrix
 * for v, or for both k and v. */
static void qkv(struct model *model, int layer, int M, struct kv_cache *cache) {
    struct backend *b = model->backend;
    const struct model_config *m = &model->part;
    const struct tensors *t = &model->layers[layer];
    struct model_activations *a = &model->act;
    bool has_own = t->vec[ROLE_ATTN_NORM_2];
    const struct norm norm = has_own ? norm_of(model, t, ROLE_ATTN_NORM_2, ROLE_ATTN_NORM_2_BIAS)
                                     : norm_of(model, t, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);
    struct linear linear[] = {linear_of(t, ROLE_Q, ROLE_Q_BIAS),
                              linear_of(t, ROLE_K, ROLE_K_BIAS),
                              linear_of(t, ROLE_V, ROLE_V_BIAS),
                              {.w = t->w[ROLE_ATTN_GATE]}};
    for (int i = 0; i < 3; i++) linear[i].scale = m->scales.attn_in;
    linear[1].scale = linear_scale(&linear[1]) * scale_or_one(m->scales.key);
    const struct heads heads = heads_of(model, layer);
    bool reads = config_reads(m, layer);
    int n = reads ? 1 : heads.values_are_keys ? 2 : t->w[ROLE_ATTN_GATE] ? 4 : 3;
    assert(reads || (!heads.q_gain == !heads.k_gain));
    assert(linear[n - 1].w && (m->rope.D_rope == 0 || model->inv_freq));
    TIME_OP(b, OP_MATMUL,
            compute->matmul(b, (float *const[]){a->q, a->k, a->v, a->attn_gate}, a->x,
                            norm_before(model, &norm), linear, n, M));
    TIME_OP(b, OP_ROPE_WRITE,
            compute->rope_write(b, cache, config_kv_layer(m, layer), &heads, a->q,
                                reads ? NULL : a->k, reads ? NULL : a->v));
}

/* attn_out = attention */
static void attention(struct model *model, int layer, const struct kv_cache *cache) {
    assert(layer >= 0 && layer < model->config.L);
    struct backend *b = model->backend;
    const struct model_config *m = &model->part;
    struct model_activations *a = &model->act;
    const struct attention attention = {
        .H = m->H,
        .scale = m->attention_scale,
        .cap = m->attention_cap,
        .window = m->layer[layer].window,
        .both_ways = m->is_encoder,
        .slopes = model->slopes,
        .gate = model->layers[layer].w[ROLE_ATTN_GATE] ? a->attn_gate : NULL,
        .sinks = model->layers[layer].vec[ROLE_SINKS]};
    TIME_OP(b, OP_ATTENTION,
            compute->attention(b, a->attn_out, a->q, cache, config_kv_layer(m, layer), &attention));
}

/* x = (x + norm(y)) * scale, with the norm after a branch. y is zero afterwards. */
static void add_normed(struct model *model, const struct tensors *t, enum role post_norm,
                       float scale, float *x, float *y, int M) {
    struct backend *b = model->backend;
    struct norm norm = norm_of(model, t, post_norm, N_ROLES);
    norm.sum_scale = scale;
    assert(norm.gain);
    TIME_OP(b, OP_NORM_ADD, compute->norm_add(b, x, y, &norm, M, model->part.K));
}

/* Ends a branch whose products are in sum_of(y): sums y over the ranks. If y is not x, adds the
 * norm of y to x, and multiplies the result by `scale`. */
static void end_branch(struct model *model, const struct tensors *t, enum role post_norm,
                       float scale, float *x, float *y, int M) {
    assert(y != x || scale == 1);
    all_reduce(model, y, M);
    if (y != x) add_normed(model, t, post_norm, scale, x, y, M);
}

static float layer_scale(const struct model *model, int layer) {
    return model->layer_scale ? model->layer_scale[layer] : 1;
}

/* M rows: x += norm(out(act(gate(x)) * the layer's inputs / sqrt(2))), then times the layer's
 * scale; the same on every rank. `inputs` are [M][L][P]. */
static void add_input(struct model *model, int layer, float *x, const float *inputs, int M) {
    assert(layer >= 0 && layer < model->config.L);
    struct backend *b = model->backend;
    const struct model_config *m = &model->part;
    const struct tensors *t = &model->layers[layer];
    const struct mlp mlp = {.activation = m->activation,
                            .gate = {t->w[ROLE_INPUT_GATE], NULL},
                            .down = {t->w[ROLE_INPUT_OUT], NULL, sqrtf(0.5f)},
                            .times = inputs,
                            .times_first = layer * m->P,
                            .times_stride = m->L * m->P};
    float *y = model->act.branch;
    TIME_OP(b, OP_MLP, compute->mlp(b, y, x, NULL, &mlp, M));
    add_normed(model, t, ROLE_INPUT_NORM, layer_scale(model, layer), x, y, M);
}

/* M rows: x += output(attn_out) + mlp(norm(x)), with the MLP's norm or attention's. The MLP runs
 * first, while x is still the input of both branches. */
static void parallel_branches(struct model *model, int layer, float *x, const float *attn_out,
                              int M) {
    struct backend *b = model->backend;
    const struct tensors *t = &model->layers[layer];
    bool has_own = t->vec[ROLE_FFN_NORM];
    const struct norm norm = has_own ? norm_of(model, t, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS)
                                     : norm_of(model, t, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);
    const struct mlp mlp = mlp_of(model, t);
    const struct linear output = ending_of(model, t, ROLE_O, ROLE_O_BIAS);
    assert(norm.gain && !t->vec[ROLE_ATTN_POST_NORM] && !t->vec[ROLE_FFN_POST_NORM]);
    TIME_OP(b, OP_MLP, compute->mlp(b, sum_of(model, x), x, &norm, &mlp, M));
    TIME_OP(b, OP_MATMUL_ADD, compute->matmul_add(b, sum_of(model, x), attn_out, &output, M));
    all_reduce(model, x, M);
}

/* M rows: x = norm(x + output(attn_out)), then x = norm(x + mlp(x)). A norm adds its rows to zeros:
 * it reads the stream from one buffer, leaves zeros there, and adds to the other buffer, which is
 * zero. */
static void norms_of_stream(struct model *model, int layer, float *x, const float *attn_out,
                            int M) {
    struct backend *b = model->backend;
    const struct tensors *t = &model->layers[layer];
    const struct norm attn = norm_of(model, t, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);
    const struct norm ffn = norm_of(model, t, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS);
    const struct linear output = ending_of(model, t, ROLE_O, ROLE_O_BIAS);
    const struct mlp mlp = mlp_of(model, t);
    float *y = model->act.branch;
    assert(attn.gain && ffn.gain && y);
    TIME_OP(b, OP_MATMUL_ADD, compute->matmul_add(b, sum_of(model, x), attn_out, &output, M));
    all_reduce(model, x, M);
    TIME_OP(b, OP_NORM_ADD, compute->norm_add(b, y, x, &attn, M, model->part.K));
    TIME_OP(b, OP_MLP, compute->mlp(b, sum_of(model, y), y, NULL, &mlp, M));
    all_reduce(model, y, M);
    TIME_OP(b, OP_NORM_ADD, compute->norm_add(b, x, y, &ffn, M, model->part.K));
}

/* both[M][K] = norm(mlp(norm(x))) + norm(experts(norm(x))). Each norm has separate gains. The
 * router has an additional norm, and its products are divided by sqrt(K). */
static void mlp_and_experts(struct model *model, int layer, float *both, const float *x, int M) {
    struct backend *b = model->backend;
    const struct tensors *t = &model->layers[layer];
    const struct norm of_mlp = norm_of(model, t, ROLE_FFN_NORM, N_ROLES),
                      of_experts = norm_of(model, t, ROLE_EXPERTS_NORM, N_ROLES),
                      of_router = norm_of(model, t, ROLE_ROUTER_GAIN, N_ROLES);
    const struct mlp mlp = mlp_of(model, t);
    struct experts experts = experts_of(model, t);
    float *y = model->act.branch;
    experts.router_norm = &of_router;
    experts.router.scale = 1 / sqrtf((float)model->config.K);
    assert(of_mlp.gain && of_experts.gain && of_router.gain && both != y);
    TIME_OP(b, OP_MLP, compute->mlp(b, sum_of(model, y), x, &of_mlp, &mlp, M));
    end_branch(model, t, ROLE_MLP_POST_NORM, 1, both, y, M);
    TIME_OP(b, OP_EXPERTS, compute->experts(b, sum_of(model, y), x, &of_experts, &experts, M));
    end_branch(model, t, ROLE_EXPERTS_POST_NORM, 1, both, y, M);
}

/* Adds an MLP or experts to y, before the sum over the ranks. */
static void mlp_or_experts(struct model *model, int layer, float *y, const float *x, int M) {
    assert(layer >= 0 && layer < model->config.L && M >= 0);
    struct backend *b = model->backend;
    const struct tensors *t = &model->layers[layer];
    const bool is_alone = model->part.layer[layer].lacks_mixer; /* it has the layer's only norm */
    const struct norm norm = is_alone ? norm_of(model, t, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS)
                                      : norm_of(model, t, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS);
    const struct mlp mlp = mlp_of(model, t);
    const struct experts experts = experts_of(model, t);
    if (experts.router.w)
        TIME_OP(b, OP_EXPERTS, compute->experts(b, sum_of(model, y), x, &norm, &experts, M));
    else
        TIME_OP(b, OP_MLP, compute->mlp(b, sum_of(model, y), x, norm_or_none(&norm), &mlp, M));
}

/* M rows: x += output(attn_out) of attention or a recurrent layer. In a layer with both, attn_out
 * is of attention and state_out of the other. */
static void add_output(struct model *model, int layer, float *x, const struct mixed *mixed, int M) {
    struct backend *b = model->backend;
    const struct tensors *t = &model->layers[layer];
    float *y = t->vec[ROLE_ATTN_POST_NORM] ? model->act.branch : x;
    const bool attends = config_attends(&model->part, layer), has_both = mixed->state_out;
    struct linear output =
        attends ? ending_of(model, t, ROLE_O, ROLE_O_BIAS) : recurrent_output(model, layer);
    if (attends) output.scale = linear_scale(&output) * scale_or_one(model->config.scales.attn_out);
    TIME_OP(b, OP_MATMUL_ADD,
            compute->matmul_add(b, sum_of(model, y), mixed->attn_out, &output, M));
    if (has_both) {
        output = recurrent_output(model, layer);
        TIME_OP(b, OP_MATMUL_ADD,
                compute->matmul_add(b, sum_of(model, y), mixed->state_out, &output, M));
    }
    end_branch(model, t, ROLE_ATTN_POST_NORM, 1, x, y, M);
}

/* M rows: x += output(attn_out), then x += mlp(norm(x)), or one of both. */
static void output_then_mlp(struct model *model, int layer, float *x, const struct mixed *mixed,
                            int M) {
    const struct tensors *t = &model->layers[layer];
    const struct layer_config *l = &model->part.layer[layer];
    assert(M > 0 && !(l->lacks_mixer && l->lacks_mlp));
    if (!l->lacks_mixer) add_output(model, layer, x, mixed, M);
    if (l->lacks_mlp) return;
    float scale = model->part.P > 0 ? 1 : layer_scale(model, layer);
    float *y = t->vec[ROLE_FFN_POST_NORM] ? model->act.branch : x;
    if (model->config.experts.beside_mlp) {
        mlp_and_experts(model, layer, model->act.both, x, M);
        add_normed(model, t, ROLE_FFN_POST_NORM, scale, x, model->act.both, M);
    } else {
        mlp_or_experts(model, layer, y, x, M);
        end_branch(model, t, ROLE_FFN_POST_NORM, scale, x, y, M);
    }
}

/* Runs the part of a layer after attention. */
static void output_and_mlp(struct model *model, int layer, float *x, const struct mixed *mixed,
                           int M) {
    if (model->config.has_parallel_branches)
        parallel_branches(model, layer, x, mixed->attn_out, M);
    else if (model->config.norms_stream)
        norms_of_stream(model, layer, x, mixed->attn_out, M);
    else
        output_then_mlp(model, layer, x, mixed, M);
}

struct matrix *model_head(const struct model *model) {
    struct matrix *own = model->ends.w[ROLE_OUTPUT];
    return own ? own : model->ends.w[ROLE_TOKEN_EMBEDDING];
}

/* Computes the logits of the first rows of logit_x, and the hidden vectors of the last n_hidden of
 * R rows. */
static void read_rows(struct model *model, int R, int n_hidden) {
    struct backend *b = model->backend;
    const int n = R - n_hidden, width = model->config.K_embedding;
    struct model_activations *a = &model->act;
    const struct norm norm = norm_of(model, &model->ends, ROLE_OUTPUT_NORM, ROLE_OUTPUT_NORM_BIAS);
    const struct model_config *m = &model->config;
    const struct lm_head head = {
        {model_head(model), model->ends.vec[ROLE_OUTPUT_BIAS], m->logit_scale}, m->logit_cap};
    const struct linear out = {model->ends.w[ROLE_PROJECT_OUT], NULL};
    const struct norm *last = norm_or_none(&norm);
    const float *x = a->logit_x;
    assert(n >= 0 && n_hidden >= 0 && (n == 0 || !m->is_encoder));
    if (out.w) {
        TIME_OP(b, OP_MATMUL,
                compute->matmul(b, (float *const[]){a->embedded}, x, last, &out, 1, R));
        last = NULL, x = a->embedded;
    }
    if (n > 0) TIME_OP(b, OP_LOGITS, compute->logits(b, a->logits, x, last, &head, n));
    if (n_hidden > 0)
        TIME_OP(b, OP_LOGITS, compute->hidden(b, a->hidden, x, last, n, n_hidden, width));
}

/* attn_out = attention or a recurrent layer. Keys, values and states are written even if no row
 * is read; attention is then left out. */
static void mix(struct model *model, int layer, int M, bool is_read, struct kv_cache *cache) {
    const bool attends = config_attends(&model->part, layer);
    if (model->part.latent.is_used) return latent_mix(model, layer, M, is_read, cache);
    if (model->part.layer[layer].is_recurrent) recurrent_layer(model, layer, M, cache);
    if (attends) qkv(model, layer, M, cache);
    if (attends && is_read) attention(model, layer, cache);
}

/* After the last layer's keys and values, only rows that are read continue. Their x moves to
 * `logit_x`, their attention output to `q` and their state's output to `k`, because queries and
 * keys are no longer needed. */
static void last_layer(struct model *model, const struct step *step, struct kv_cache *cache) {
    struct backend *b = model->backend;
    const struct model_config *m = &model->part;
    struct model_activations *a = &model->act;
    int last = m->L - 1;
    mix(model, last, step->M, step->R > 0, cache);
    if (step->R == 0) return;
    model_adapters_gather(model, step);
    TIME_OP(b, OP_GATHER, compute->gather(b, a->logit_x, a->x, m->K));
    TIME_OP(b, OP_GATHER, compute->gather(b, a->q, a->attn_out, config_mixed_width(m, last)));
    if (m->mixes_both)
        TIME_OP(b, OP_GATHER, compute->gather(b, a->k, a->state_out, config_recurrent_width(m)));
    if (m->P > 0)
        TIME_OP(b, OP_GATHER, compute->gather(b, a->logit_inputs, a->inputs, m->L * m->P));
    const struct mixed mixed = {a->q, m->mixes_both ? a->k : NULL};
    output_and_mlp(model, last, a->logit_x, &mixed, step->R);
    if (m->P > 0) add_input(model, last, a->logit_x, a->logit_inputs, step->R);
    if (model->shard.rank == 0) read_rows(model, step->R, step->n_hidden);
}

void model_forward(struct model *model, const struct step *step, struct kv_cache *cache) {
    struct backend *b = model->backend;
    struct model_activations *a = &model->act;
    assert(step->M <= a->max_rows && step->R <= a->max_logit_rows);
    TIME_OP(b, OP_STEP_BEGIN, compute->step_begin(b, step, cache));
    embed(model, step->M);
    make_inputs(model, step->M);
    const struct mixed mixed = {a->attn_out, a->state_out};
    for (int i = 0; i < model->part.L - 1; i++) {
        mix(model, i, step->M, true, cache);
        output_and_mlp(model, i, a->x, &mixed, step->M);
        if (model->part.P > 0) add_input(model, i, a->x, a->inputs, step->M);
    }
    last_layer(model, step, cache);
}
