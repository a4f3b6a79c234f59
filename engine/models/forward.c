/* DESIGN: the forward pass, once for all families: writes a model's program, the rows of ops that a
 * backend runs for each step (kernels/program.h).
 *
 * A model is blocks of attention and an MLP on one residual stream x, with norms before a branch,
 * after it, or both:
 *
 *     x = [norm](embedding(token) [+ type] [+ position])
 *     each layer:  x += [norm] output(attention(q, k, v of [norm](x)))
 *                  x += [norm] down(act(gate([norm](x))) * up([norm](x))), or such experts
 *               or x += norm(norm(down(..)) + norm(such experts)), both of the same x
 *               or x += output(attention) + down(..), both of the same x, with one norm or two
 *               or x = norm(x + output(attention(..))), x = norm(x + down(..)); after attention
 *                  there may be two norms
 *     A recurrent layer has a short convolution, a gated delta rule or a state space in place of
 *     attention, or beside it (forward_recurrent.c). Latent attention multiplies keys' matrices
 *     with queries (forward_latent.c). A layer may lack the first branch or the second.
 *     hidden vector = [norm](x), logits = head(hidden vector)
 *     The last layer may guess ahead instead: it has a program of its own (forward_ahead.c).
 *
 * An embedding of another width is projected to the stream's width, and back before the head.
 *
 * Families differ in their tensors (a bias, a norm, a missing gate) and in the numbers of
 * model_config (windows, caps, scales). Both are options of the ops.
 *
 * After the last layer's keys and values, only rows that are read continue. So the last layer
 * gathers them into buffers of their own, and its attention is left out if no row is read.
 *
 * Ranks: the products of o and down are partial sums on each rank. Rank 0 adds its partial sum to
 * the stream, the others add theirs to `part`, and all_reduce leaves the sum in the stream of every
 * rank. A norm after a branch needs the complete sum first. So such a sum is computed in `branch`,
 * and norm_add adds its norm to x.
 */
#include <assert.h>
#include <math.h>

#include "engine/models/forward.h"

void forward_add(const struct place *at, struct op_row row) {
    row.layer = at->layer;
    if (!row.count) row.count = at->count;
    program_add(at->program, &row);
}

struct norm norm_of(const struct place *at, enum role gain, enum role bias) {
    const float *numbers = bias < N_ROLES ? at->t->vec[bias] : NULL;
    return (struct norm){at->m->norm, at->t->vec[gain], numbers, at->m->norm_epsilon};
}

struct linear linear_of(const struct tensors *t, enum role w, enum role bias) {
    assert(t && w < N_ROLES);
    return (struct linear){t->w[w], bias == N_ROLES ? NULL : t->vec[bias], 0, t->low[w]};
}

struct linear ending_of(const struct place *at, enum role w, enum role bias) {
    struct linear linear = linear_of(at->t, w, bias);
    linear.scale = at->m->residual_scale;
    return linear;
}

/* Returns the buffer to which this rank adds a product that is summed over the ranks into x: x on
 * rank 0, `part` on the others. */
static float *sum_of(const struct place *at, float *x) {
    return at->model->shard.rank == 0 ? x : at->a->part;
}

/* Replaces x[M][K] on every rank by the sum of all ranks' sum_of buffers. */
static void all_reduce(const struct place *at, float *x) {
    if (at->model->shard.ranks > 1) ADD(at, OP_ALL_REDUCE, .y = {x, at->a->part}, .K = at->m->K);
}

/* ---- embedding ------------------------------------------------------------------------------ */

/* Writes the embeddings of the tokens to x. If the embedding has another width, it is projected,
 * and positions are added afterwards. Rank 0 looks tokens up and the others add nothing, so those
 * need neither the embedding nor the token ids, some of which only rank 0's device may know. */
static void embed(const struct place *at) {
    const struct tensors *t = at->t;
    const struct linear in = linear_of(t, ROLE_PROJECT_IN, N_ROLES);
    const struct embedding positions = {.positions = t->w[ROLE_POSITION_EMBEDDING]};
    const struct embedding embedding = {
        .tokens = t->w[ROLE_TOKEN_EMBEDDING],
        .scale = at->m->embedding_scale,
        .types = t->w[ROLE_TYPE_EMBEDDING],
        .positions = in.w ? NULL : positions.positions,
        .norm = norm_of(at, ROLE_EMBEDDING_NORM, ROLE_EMBEDDING_NORM_BIAS)};
    assert(at->model->shard.rank > 0 || embedding.tokens);
    if (at->model->shard.rank == 0)
        ADD(at, OP_EMBED, .y = {in.w ? at->a->embedded : at->x}, .embedding = embedding);
    if (in.w)
        ADD(at, OP_MATMUL, .y = {at->x}, .x = {at->a->embedded}, .n_products = 1, .products = {in});
    if (in.w && positions.positions) ADD(at, OP_EMBED, .y = {at->x}, .embedding = positions);
    all_reduce(at, at->x);
}

/* Computes the per-layer inputs, [M][L][P], on every rank. On rank 0, which has the tokens'
 * embeddings: inputs = norm(project(x)) + the token's row. Both are as wide as all layers together,
 * so the norm sees M * L rows of P. The sum's factor 1 / sqrt(2) is applied in add_input. */
static void make_inputs(const struct place *at) {
    const struct model_config *m = at->m;
    float *parts = at->a->input_parts;
    const struct embedding tokens = {.tokens = at->t->w[ROLE_INPUTS_EMBEDDING],
                                     .scale = sqrtf((float)m->P)};
    const struct linear in = {at->t->w[ROLE_INPUTS_PROJECTION], NULL, 1 / sqrtf((float)m->K)};
    if (at->model->shard.rank == 0) {
        assert(tokens.tokens && at->t->vec[ROLE_INPUTS_NORM]);
        ADD(at, OP_EMBED, .y = {at->inputs}, .embedding = tokens);
        ADD(at, OP_MATMUL, .y = {parts}, .x = {at->x}, .n_products = 1, .products = {in});
        ADD(at, OP_NORM_ADD, .times = m->L, .y = {at->inputs, parts},
            .norm = norm_of(at, ROLE_INPUTS_NORM, N_ROLES), .K = m->P);
    }
    if (at->model->shard.ranks > 1)
        ADD(at, OP_ALL_REDUCE, .times = m->L, .y = {at->inputs, parts}, .K = m->P);
}

/* ---- ends of branches ----------------------------------------------------------------------- */

/* x = (x + norm(y)) * scale, with the norm after a branch. y is zero afterwards. */
static void add_normed(const struct place *at, enum role post_norm, float scale, float *x,
                       float *y) {
    struct norm norm = norm_of(at, post_norm, N_ROLES);
    norm.sum_scale = scale;
    assert(norm.gain);
    ADD(at, OP_NORM_ADD, .y = {x, y}, .norm = norm, .K = at->m->K);
}

/* Ends a branch whose products are in sum_of(y): sums y over the ranks. If y is not x, adds the
 * norm of y to x, and multiplies the result by `scale`. */
static void end_branch(const struct place *at, enum role post_norm, float scale, float *x,
                       float *y) {
    assert(y != x || scale == 1);
    all_reduce(at, y);
    if (y != x) add_normed(at, post_norm, scale, x, y);
}

static float layer_scale(const struct place *at) {
    return at->model->layer_scale ? at->model->layer_scale[at->layer] : 1;
}

/* ---- MLPs and experts ----------------------------------------------------------------------- */

/* sum_of(y) += mlp(norm(x)) */
static void add_mlp(const struct place *at, float *y, float *x, struct norm norm) {
    const struct layer_scales *scales = &at->m->scales;
    struct mlp mlp = {.activation = at->m->activation,
                      .gate = linear_of(at->t, ROLE_GATE, ROLE_GATE_BIAS),
                      .up = linear_of(at->t, ROLE_UP, ROLE_UP_BIAS),
                      .down = ending_of(at, ROLE_DOWN, ROLE_DOWN_BIAS),
                      .xielu = xielu_of(at->m, at->layer)};
    mlp.gate.scale = scales->gate;
    mlp.down.scale = linear_scale(&mlp.down) * scale_or_one(scales->down);
    ADD(at, OP_MLP, .y = {sum_of(at, y)}, .x = {x}, .norm = norm, .mlp = mlp);
}

/* sum_of(y) += experts(norm(x)), and the shared expert if the layer has one. The router's norm may
 * be N_ROLES; its products are then not scaled. */
static void add_experts(const struct place *at, float *y, float *x, struct norm norm,
                        enum role router_norm) {
    const struct expert_config *c = &at->m->experts;
    const struct tensors *t = at->t;
    const enum activation activation = at->m->activation;
    struct experts experts = {.E = c->E,
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
                                      ending_of(at, ROLE_EXPERTS_DOWN, ROLE_EXPERTS_DOWN_BIAS)},
                              .shared = {activation,
                                         {t->w[ROLE_SHARED_GATE], NULL},
                                         {t->w[ROLE_SHARED_UP], NULL},
                                         {t->w[ROLE_SHARED_DOWN], NULL, at->m->residual_scale}},
                              .shared_gate = {t->w[ROLE_SHARED_ROUTER], NULL}};
    assert(experts.router.w && norm.gain);
    if (router_norm < N_ROLES) {
        experts.router_norm = norm_of(at, router_norm, N_ROLES);
        experts.router.scale = 1 / sqrtf((float)at->m->K);
        assert(experts.router_norm.gain);
    }
    ADD(at, OP_EXPERTS, .y = {sum_of(at, y)}, .x = {x}, .norm = norm, .experts = experts);
}

/* both[M][K] = norm(mlp(norm(x))) + norm(experts(norm(x))). Each norm has separate gains. The
 * router has an additional norm, and its products are divided by sqrt(K). */
static void mlp_and_experts(const struct place *at) {
    const struct norm of_mlp = norm_of(at, ROLE_FFN_NORM, N_ROLES),
                      of_experts = norm_of(at, ROLE_EXPERTS_NORM, N_ROLES);
    float *y = at->a->branch, *both = at->a->both;
    assert(of_mlp.gain && both != y);
    add_mlp(at, y, at->x, of_mlp);
    end_branch(at, ROLE_MLP_POST_NORM, 1, both, y);
    add_experts(at, y, at->x, of_experts, ROLE_ROUTER_GAIN);
    end_branch(at, ROLE_EXPERTS_POST_NORM, 1, both, y);
}

/* x += mlp(norm(x)), or experts, or both. */
static void mlp_or_experts(const struct place *at) {
    const bool is_alone = at->m->layer[at->layer].lacks_mixer; /* it has the layer's only norm */
    const struct norm norm = is_alone ? norm_of(at, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS)
                                      : norm_of(at, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS);
    const float scale = at->m->P > 0 ? 1 : layer_scale(at);
    float *y = at->t->vec[ROLE_FFN_POST_NORM] ? at->a->branch : at->x;
    if (at->m->experts.beside_mlp) {
        mlp_and_experts(at);
        return add_normed(at, ROLE_FFN_POST_NORM, scale, at->x, at->a->both);
    }
    if (at->t->w[ROLE_ROUTER])
        add_experts(at, y, at->x, norm, N_ROLES);
    else
        add_mlp(at, y, at->x, norm);
    end_branch(at, ROLE_FFN_POST_NORM, scale, at->x, y);
}

/* x += norm(out(act(gate(x)) * the layer's inputs / sqrt(2))), then times the layer's scale; the
 * same on every rank. */
static void add_input(const struct place *at) {
    const struct mlp mlp = {.activation = at->m->activation,
                            .gate = {at->t->w[ROLE_INPUT_GATE], NULL},
                            .down = {at->t->w[ROLE_INPUT_OUT], NULL, sqrtf(0.5f)},
                            .times = at->inputs,
                            .times_first = at->layer * at->m->P,
                            .times_stride = at->m->L * at->m->P};
    float *y = at->a->branch;
    ADD(at, OP_MLP, .y = {y}, .x = {at->x, at->inputs}, .mlp = mlp);
    add_normed(at, ROLE_INPUT_NORM, layer_scale(at), at->x, y);
}

/* ---- layers --------------------------------------------------------------------------------- */

/* attn_out = attention or a recurrent layer of all rows. Keys, values and states are written even
 * if no row is read; `count` is that of the ops without such effects. */
void layer_mix(const struct place *at, enum op_count count) {
    if (at->m->layer[at->layer].is_recurrent) recurrent_layer(at);
    if (!config_attends(at->m, at->layer)) return;
    if (at->m->latent.is_used)
        latent_mix(at, count);
    else
        attention_mix(at, count);
}

/* sum_of(y) += output(mixed) */
static void add_product(const struct place *at, float *y, float *mixed, struct linear output) {
    ADD(at, OP_MATMUL_ADD, .y = {sum_of(at, y)}, .x = {mixed}, .n_products = 1,
        .products = {output});
}

/* x += output(attn_out) of attention or a recurrent layer. In a layer with both, attn_out is of
 * attention and state_out of the other. */
static void add_output(const struct place *at) {
    float *y = at->t->vec[ROLE_ATTN_POST_NORM] ? at->a->branch : at->x;
    const bool attends = config_attends(at->m, at->layer);
    struct linear output = attends ? ending_of(at, ROLE_O, ROLE_O_BIAS) : recurrent_output(at);
    if (attends) output.scale = linear_scale(&output) * scale_or_one(at->m->scales.attn_out);
    add_product(at, y, at->attn_out, output);
    if (at->state_out) add_product(at, y, at->state_out, recurrent_output(at));
    end_branch(at, ROLE_ATTN_POST_NORM, 1, at->x, y);
}

/* x += output(attn_out) + mlp(norm(x)), with the MLP's norm or attention's. The MLP runs first,
 * while x is still the input of both branches. */
static void parallel_branches(const struct place *at) {
    const struct tensors *t = at->t;
    const struct norm norm = t->vec[ROLE_FFN_NORM]
                                 ? norm_of(at, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS)
                                 : norm_of(at, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);
    assert(norm.gain && !t->vec[ROLE_ATTN_POST_NORM] && !t->vec[ROLE_FFN_POST_NORM]);
    add_mlp(at, at->x, at->x, norm);
    add_product(at, at->x, at->attn_out, ending_of(at, ROLE_O, ROLE_O_BIAS));
    all_reduce(at, at->x);
}

/* x = norm(x + output(attn_out)), then x = norm(x + mlp(x)). A norm adds its rows to zeros: it
 * reads the stream from one buffer, leaves zeros there, and adds to the other, which is zero. A
 * layer with a second norm after attention begins with x = norm_2(x + norm(x + output(..))). */
static void norms_of_stream(const struct place *at) {
    const struct norm ffn = norm_of(at, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS),
                      second = norm_of(at, ROLE_ATTN_NORM_2, ROLE_ATTN_NORM_2_BIAS);
    struct norm attn = norm_of(at, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);
    float *x = at->x, *y = at->a->branch, *sum = second.gain ? y : x;
    assert(attn.gain && ffn.gain && y);
    add_product(at, sum, at->attn_out, ending_of(at, ROLE_O, ROLE_O_BIAS));
    all_reduce(at, sum);
    if (second.gain) {
        attn.of_sum = true;
        ADD(at, OP_NORM_ADD, .y = {x, y}, .norm = attn, .K = at->m->K);
        attn = second;
    }
    ADD(at, OP_NORM_ADD, .y = {y, x}, .norm = attn, .K = at->m->K);
    add_mlp(at, y, y, (struct norm){0});
    all_reduce(at, y);
    ADD(at, OP_NORM_ADD, .y = {x, y}, .norm = ffn, .K = at->m->K);
}

/* Writes the part of a layer after attention. */
void layer_end(const struct place *at) {
    const struct layer_config *l = &at->m->layer[at->layer];
    assert(!(l->lacks_mixer && l->lacks_mlp));
    if (at->m->has_parallel_branches) {
        parallel_branches(at);
    } else if (at->m->norms_stream) {
        norms_of_stream(at);
    } else {
        if (!l->lacks_mixer) add_output(at);
        if (!l->lacks_mlp) mlp_or_experts(at);
    }
    if (at->m->P > 0) add_input(at);
}

/* ---- the end -------------------------------------------------------------------------------- */

struct matrix *model_head(const struct model *model) {
    struct matrix *own = model->ends.w[ROLE_OUTPUT];
    return own ? own : model->ends.w[ROLE_TOKEN_EMBEDDING];
}

/* Computes the logits of the first rows of x, and the hidden vectors of the last n_hidden rows. */
static void read_rows(const struct place *at) {
    const struct linear out = linear_of(at->t, ROLE_PROJECT_OUT, N_ROLES);
    const struct lm_head head = {
        {model_head(at->model), at->t->vec[ROLE_OUTPUT_BIAS], at->m->logit_scale},
        at->m->logit_cap};
    struct norm norm = norm_of(at, ROLE_OUTPUT_NORM, ROLE_OUTPUT_NORM_BIAS);
    float *x = at->x, *projected = at->a->embedded;
    if (out.w) {
        ADD(at, OP_MATMUL, .y = {projected}, .x = {x}, .norm = norm, .n_products = 1,
            .products = {out});
        norm = (struct norm){0}, x = projected;
    }
    if (!at->m->is_encoder)
        ADD(at, OP_LOGITS, .count = COUNT_LOGITS, .y = {at->a->logits}, .x = {x}, .norm = norm,
            .lm_head = head);
    ADD(at, OP_HIDDEN, .count = COUNT_HIDDEN, .y = {at->a->hidden}, .x = {x}, .norm = norm,
        .K = at->m->K_embedding);
}

/* Moves the rows that are read to the buffers of `read`. */
void layer_gather(const struct place *read, const struct place *all) {
    const struct model_config *m = read->m;
    const int mixed = config_mixed_width(m, read->layer), state = config_recurrent_width(m);
    ADD(read, OP_GATHER, .y = {read->x}, .x = {all->x}, .K = m->K);
    ADD(read, OP_GATHER, .y = {read->attn_out}, .x = {all->attn_out}, .K = mixed);
    if (read->state_out)
        ADD(read, OP_GATHER, .y = {read->state_out}, .x = {all->state_out}, .K = state);
    if (m->P > 0) ADD(read, OP_GATHER, .y = {read->inputs}, .x = {all->inputs}, .K = m->L * m->P);
}

/* Writes the rows of the model's own layers. The last one gathers the rows that are read, unless a
 * layer that guesses ahead follows: that needs all rows of the stream. */
static void write_layers(struct place *at, struct place *read) {
    const struct model_config *m = at->m;
    const int L = m->L - m->n_ahead;
    for (at->layer = 0; at->layer < L; at->layer++) {
        const bool gathers = at->layer == L - 1 && m->n_ahead == 0;
        read->layer = at->layer, read->t = at->t = &at->model->layers[at->layer];
        ahead_tap(at);
        layer_mix(at, gathers ? COUNT_ALL_IF_READ : COUNT_ALL);
        if (gathers) layer_gather(read, at);
        layer_end(gathers ? read : at);
    }
    ahead_tap(at);
    read->layer = at->layer = -1, read->t = at->t = &at->model->ends;
}

void model_write_program(struct model *model) {
    const struct model_config *m = &model->part;
    struct model_activations *a = &model->act;
    struct model_config *head = m->eagle.is_used ? eagle_config_new(m) : NULL;
    struct place at = {model,       &model->program, m,         a,
                       -1,          &model->ends,    COUNT_ALL, a->x,
                       a->attn_out, a->state_out,    a->inputs, head ? head : m};
    struct place read = at; /* the last rows; queries and keys are no longer needed */
    read.count = COUNT_READ, read.x = a->logit_x, read.inputs = a->logit_inputs;
    read.attn_out = a->q, read.state_out = m->mixes_both ? a->k : NULL;
    program_free(&model->program);
    model->program = (struct program){.max_rows = a->max_rows, .max_read_rows = a->max_logit_rows};
    embed(&at);
    if (m->P > 0) make_inputs(&at);
    write_layers(&at, &read);
    if (m->n_ahead > 0) ahead_end_pass(&at, &read);
    if (model->shard.rank == 0) read_rows(&read);
    if (m->n_ahead > 0) ahead_write_program(&at);
    mem_free(head);
}
