/* DESIGN: a layer that guesses ahead (multi-token prediction: DeepSeek-AI 2024, "DeepSeek-V3"). It
 * is the last of the model's layers, and its rows of ops are in two programs.
 *
 *     position           0        1      ..    p                     p + 1
 *     token              t0       t1           tp                    tp+1     not known: tp+2
 *     hidden vector      h0       h1           hp                             of the model's pass
 *     row of the layer                         [norm(embedding of tp+1) ; norm(hp)] -> projection
 *                                              -> the layer -> norm -> the model's head -> tp+2
 *
 * So a row needs its hidden vector and the next token. The model's pass knows both for all rows but
 * a sequence's last one. After its layers it writes the keys and values of this layer, to the same
 * slots as its own: blocks, prefix hits, forks and preemption need nothing else. It leaves the
 * hidden vectors of the rows that are read in act.ahead_kept.
 *
 * A pass of guesses (struct step, is_ahead) follows when the next tokens are known. It computes the
 * last row of each sequence, whose keys and values replace those with a wrong next token. A further
 * guess is the same layer at the next position: its token is the guess, and its hidden vector is
 * that which the layer left: its stream (DeepSeek, GLM) or its normed output (Qwen).
 *
 *     the model's pass   keys of rows 0..p          keeps h(p)
 *     guesses            row p     (tp+1, h(p))     keeps h'(p)      guess of tp+2
 *                        row p + 1 (guess, h'(p))   keeps h'(p + 1)  guess of tp+3
 *
 * The embedding and the head are the model's, as in vLLM. Hidden vectors are outputs of the model's
 * last norm, also as in vLLM.
 *
 * An EAGLE-3 head (Li et al. 2025; eagle.c) is such a layer with tensors of another folder. Its
 * hidden vector is a product of three vectors of the stream, h = fc([stream a; stream b;
 * stream c]). The model's pass adds its three parts, each before the layer that has such an input.
 * The head lacks the projection: q, k and v are products of the joined norms, and its stream begins
 * with h. It guesses by a head of its own, often of fewer tokens.
 *
 *     row of the head    stream = h(p);  q, k, v of [norm(embedding of tp+1) ; norm(h(p))]
 *                        -> attention and MLP added to the stream -> norm -> its head -> tp+2
 *
 * A further guess has the stream in place of h.
 *
 * Ranks share the layer as they share the others. Rank 0 alone has the embedding, the hidden
 * vectors and the projection, or the parts of fc. It writes the input of the layer, and all_reduce
 * gives it to every rank. So the others need neither the next tokens nor the rows of hidden
 * vectors. */
#include <assert.h>

#include "engine/models/forward.h"

/* ahead_x = the input of the layer, from the next tokens and `hidden`: vectors of all rows, or
 * those that the pass before kept. x, the stream of the model's own layers, is free by now, and
 * receives the embeddings. Only on rank 0. */
static void join(const struct place *at, float *hidden) {
    const struct model_config *m = at->m;
    const struct eagle *eagle = &at->model->eagle;
    const struct model_activations *a = at->a;
    const struct tensors *layer = &at->model->layers[m->L - 1];
    struct place ends = *at, of_layer = *at;
    ends.layer = -1;
    of_layer.layer = m->L - 1, of_layer.t = layer, of_layer.m = at->ahead;
    const struct embedding embedding = {
        .tokens = eagle->embedding ? eagle->embedding : at->model->ends.w[ROLE_TOKEN_EMBEDDING],
        .scale = at->ahead->embedding_scale,
        .of_next = true};
    const struct join both = {{norm_of(&of_layer, ROLE_AHEAD_EMBEDDING_NORM, N_ROLES),
                               norm_of(&of_layer, ROLE_AHEAD_HIDDEN_NORM, N_ROLES)},
                              hidden == a->ahead_kept};
    assert(at->model->shard.rank == 0 && hidden);
    assert(embedding.tokens && both.norms[0].gain && both.norms[1].gain);
    ADD(&ends, OP_EMBED, .y = {a->x}, .embedding = embedding);
    ADD(&of_layer, OP_JOIN, .y = {a->ahead_joined}, .x = {a->x, hidden}, .join = both, .K = m->K);
    if (m->eagle.is_used) return;
    ADD(&of_layer, OP_MATMUL, .y = {a->ahead_x}, .x = {a->ahead_joined}, .n_products = 1,
        .products = {linear_of(layer, ROLE_AHEAD_PROJECTION, N_ROLES)});
}

/* Gives rank 0's input of the layer to all ranks: of an EAGLE-3 head that of attention. The stream
 * of such a head reaches them with attention's output. */
static void share(const struct place *at) {
    const struct model_activations *a = at->a;
    const bool is_head = at->m->eagle.is_used;
    if (at->model->shard.ranks > 1)
        ADD(at, OP_ALL_REDUCE, .times = is_head ? 2 : 0,
            .y = {is_head ? a->ahead_joined : a->ahead_x, a->part}, .K = at->m->K);
}

/* The place of the layer for all rows. */
static struct place layer_of(const struct place *at) {
    struct place layer = *at;
    layer.layer = at->m->L - 1;
    layer.t = &at->model->layers[layer.layer];
    layer.x = at->a->ahead_x;
    layer.m = at->ahead;
    if (at->m->eagle.is_used) layer.attn_in = at->a->ahead_joined;
    assert(!at->m->layer[layer.layer].is_recurrent && !at->m->mixes_both && at->m->P == 0);
    return layer;
}

void ahead_end_pass(const struct place *all, const struct place *read) {
    const struct model_config *m = all->m;
    const struct model_activations *a = all->a;
    const struct place layer = layer_of(all);
    assert(m->n_ahead == 1 && all->count == COUNT_ALL && read->count == COUNT_READ);
    if (all->model->shard.rank == 0) {
        if (!m->eagle.is_used)
            ADD(all, OP_NORM, .y = {a->ahead_hidden}, .x = {all->x},
                .norm = norm_of(all, ROLE_OUTPUT_NORM, ROLE_OUTPUT_NORM_BIAS), .K = m->K);
        ADD(read, OP_GATHER, .y = {a->ahead_kept}, .x = {a->ahead_hidden}, .K = m->K);
        ADD(read, OP_GATHER, .y = {read->x}, .x = {all->x}, .K = m->K);
        join(all, a->ahead_hidden);
    }
    share(all);
    if (m->latent.is_used)
        latent_keys(&layer);
    else
        attention_keys(&layer);
}

/* The norm before the head: a file without one for the layer uses the model's. */
static struct norm last_norm(const struct place *read) {
    struct place ends = *read;
    ends.t = &read->model->ends;
    if (read->t->vec[ROLE_AHEAD_OUTPUT_NORM]) return norm_of(read, ROLE_AHEAD_OUTPUT_NORM, N_ROLES);
    return norm_of(&ends, ROLE_OUTPUT_NORM, ROLE_OUTPUT_NORM_BIAS);
}

void ahead_tap(const struct place *at) {
    const struct eagle_config *eagle = &at->m->eagle;
    const int first = min_int(eagle->tap[0], min_int(eagle->tap[1], eagle->tap[2]));
    bool is_first = at->layer == first;
    struct place all = *at;
    if (!eagle->is_used || at->model->shard.rank > 0) return;
    all.layer = at->m->L - 1;
    for (int i = 0; i < N_TAPS; i++) {
        if (eagle->tap[i] != at->layer) continue;
        assert(at->count == COUNT_ALL && at->model->eagle.tap[i]);
        ADD(&all, is_first ? OP_MATMUL : OP_MATMUL_ADD, .y = {at->a->ahead_hidden}, .x = {at->x},
            .n_products = 1, .products = {{at->model->eagle.tap[i]}});
        is_first = false;
    }
}

/* The stream of an EAGLE-3 head begins with the vectors that the pass before kept. */
static void begin_stream(const struct place *at) {
    const struct model_activations *a = at->a;
    assert(at->m->eagle.is_used && at->layer == at->m->L - 1);
    ADD(at, OP_RECALL, .y = {a->ahead_x}, .x = {a->ahead_kept}, .K = at->m->K);
    if (at->m->eagle.norms_stream)
        ADD(at, OP_NORM, .y = {a->ahead_x}, .x = {a->ahead_x},
            .norm = norm_of(at, ROLE_AHEAD_HIDDEN_NORM, N_ROLES), .K = at->m->K);
}

/* Writes the logits of the next guesses of an EAGLE-3 head. */
static void read_head(const struct place *ends, const struct place *read) {
    const struct model *model = read->model;
    const struct eagle_config *eagle = &model->config.eagle;
    const struct model_activations *a = read->a;
    const struct lm_head head = {.linear = {model->eagle.head}};
    const struct norm norm = norm_of(read, ROLE_AHEAD_OUTPUT_NORM, N_ROLES);
    const struct spread spread = {model->eagle.to, model->config.V};
    float *logits = eagle->maps_ids ? a->guess_logits : a->logits;
    assert(norm.gain && head.linear.w && read->x == a->ahead_kept);
    ADD(ends, OP_LOGITS, .y = {logits}, .x = {read->x}, .norm = norm, .lm_head = head);
    if (eagle->maps_ids)
        ADD(ends, OP_SPREAD, .y = {a->logits}, .x = {logits}, .spread = spread, .K = eagle->V);
}

/* Writes the logits of the next guesses, and the hidden vectors from which they continue, unless
 * these are the stream. */
static void read_guesses(const struct place *ends, const struct place *read) {
    const struct model *model = read->model;
    const struct model_config *m = read->m;
    struct model_activations *a = read->a;
    const struct norm norm = last_norm(read);
    const struct lm_head head = {
        {model_head(model), model->ends.vec[ROLE_OUTPUT_BIAS], m->logit_scale}, m->logit_cap};
    assert(model->shard.rank == 0 && norm.gain && head.linear.w);
    ADD(ends, OP_LOGITS, .y = {a->logits}, .x = {read->x}, .norm = norm, .lm_head = head);
    if (read->x != a->ahead_kept)
        ADD(read, OP_NORM, .y = {a->ahead_kept}, .x = {read->x}, .norm = norm, .K = m->K);
}

void ahead_write_program(const struct place *of_model) {
    struct model *model = of_model->model;
    struct model_activations *a = &model->act;
    const struct place pass = {.model = model,
                               .program = &model->ahead,
                               .m = &model->part,
                               .a = a,
                               .layer = -1,
                               .t = &model->ends,
                               .count = COUNT_ALL,
                               .x = a->x,
                               .attn_out = a->attn_out,
                               .ahead = of_model->ahead};
    const struct place all = layer_of(&pass);
    struct place read = all, ends = pass;
    const bool keeps_stream = model->shard.rank == 0 && !model->part.ahead_is_normed;
    read.count = ends.count = COUNT_READ, read.attn_out = a->q;
    read.x = keeps_stream ? a->ahead_kept : a->logit_x; /* the join has read ahead_kept */
    program_free(&model->ahead);
    model->ahead = (struct program){.max_rows = a->max_rows, .max_read_rows = a->max_logit_rows};
    if (model->shard.rank == 0) join(&pass, a->ahead_kept);
    share(&pass);
    if (model->part.eagle.is_used && model->shard.rank == 0) begin_stream(&all);
    layer_mix(&all, COUNT_ALL_IF_READ);
    layer_gather(&read, &all);
    layer_end(&read);
    if (model->shard.rank == 0)
        (model->part.eagle.is_used ? read_head : read_guesses)(&ends, &read);
    assert(model->ahead.n > 0);
}
