/* The ops of the forward pass. Each queues its kernels on the backend's stream and returns. */
#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/attention/latent.cuh"
#include "kernels/cuda/backend.cuh"
#include "kernels/cuda/gemm/ops.cuh"
#include "kernels/cuda/recurrent/recurrent.cuh"
#include "kernels/cuda/rows/rows.cuh"

/* ---- a step --------------------------------------------------------------------------------- */

static void op_step_begin(struct backend *b, const struct step *step, struct kv_cache *cache) {
    struct cuda *cuda = cuda_of(b);
    cuda->angles.inv_freq = NULL;
    if (cuda_failed()) return;
    if (cuda->laid_out) return;
    step_upload(&cuda->step, step, 0, &cuda->attention, cache->config.block_size, cuda->stream);
    step_copied(b);
    step_copy_blocks(&cuda->step.at, step, cache, cuda->stream);
    if (step->n_state_copies > 0)
        states_copy(cache, cuda->step.at.state_from, cuda->step.at.state_to, step->n_state_copies,
                    cuda->stream);
}

/* A pass that a graph may replace. */
struct queued_pass {
    struct backend *b;
    const struct program *program;
    const struct step *step; /* padded to the graph's rows */
    struct kv_cache *cache;
};

static void queue_program(void *arg) {
    const struct queued_pass *pass = (const struct queued_pass *)arg;
    program_run(pass->b, pass->program, pass->step, pass->cache);
}

static void op_run(struct backend *b, const struct program *program, const struct step *step,
                   struct kv_cache *cache) {
    struct cuda *cuda = cuda_of(b);
    if (cuda_failed()) return;
    const int rows = graphs_rows(&cuda->graphs, step);
    if (rows == 0) {
        program_run(b, program, step, cache);
        return;
    }
    step_upload(&cuda->step, step, rows, &cuda->attention, cache->config.block_size, cuda->stream);
    step_copied(b);
    struct step padded = *step;
    padded.M = padded.R = rows;
    struct queued_pass pass = {b, program, &padded, cache};
    const bool adapts = step->adapter != NULL;
    const bool one_grid = !adapts && rows <= cuda->persistent.max_rows;
    struct graph_key key = {rows, {}, step->sampled, cache, one_grid, adapts, program};
    for (int w = 0; w < MAX_WINDOWS; w++) {
        key.items[w] = cuda->attention.plan[w].n_items;
        if (cuda->attention.plan[w].n_whole > 0) key.one_grid = false;
    }
    cuda->laid_out = true;
    graphs_run(&cuda->graphs, &key, cuda->stream, queue_program, &pass);
    cuda->laid_out = false;
    b->one_grid_steps = cuda->persistent.launched;
}

/* Considers a step that writes nothing. */
static bool consider_one_grid(struct backend *b, const struct program *program,
                              const struct step *step, struct kv_cache *cache) {
    struct cuda *cuda = cuda_of(b);
    const int rows = step->M;
    struct queued_pass pass = {b, program, step, cache};
    step_upload(&cuda->step, step, rows, &cuda->attention, cache->config.block_size, cuda->stream);
    cuda->laid_out = true;
    const bool fits = persistent_consider(&cuda->persistent, rows, queue_program, &pass);
    cuda->laid_out = false;
    return fits;
}

static enum status op_plan_run(struct backend *b, const struct program *program,
                               struct kv_cache *cache, struct err *err) {
    struct cuda *cuda = cuda_of(b);
    if (!cuda->persistent.word) return STATUS_OK;
    struct step step;
    struct step_arrays arrays;
    step_arrays_alloc(&arrays, &step, STEP_ROWS, STEP_ROWS, 1, true);
    int rows = graphs_bucket(&cuda->graphs, 0);
    for (int i = 1; rows > 0 && rows <= STEP_ROWS; i++) {
        const int seqs = min_int(rows, cuda->limits.max_seqs);
        if (rows - seqs >= cuda->limits.max_context) break;
        step_fill(&arrays, &step, rows, seqs, rows, rows - seqs);
        if (!consider_one_grid(b, program, &step, cache)) break;
        rows = graphs_bucket(&cuda->graphs, i);
    }
    step_arrays_free(&arrays);
    return persistent_plan(&cuda->persistent, cuda->graphs.max_graphs, err);
}

/* All buckets with short contexts, then with contexts that double in length, up to the number of
 * kept graphs of a program. */
static bool op_recorded_shape(struct backend *b, int i, int *rows, int *position) {
    const struct cuda *cuda = cuda_of(b);
    const int longest = cuda->limits.max_context;
    int n = 0;
    while (graphs_bucket(&cuda->graphs, n) > 0) n++;
    if (n == 0 || i >= cuda->graphs.max_graphs / programs_of(cuda)) return false;
    const int doublings = i / n;
    const int64_t context = (int64_t)SPAN << doublings;
    const bool is_new = doublings == 0 || (cuda->act != DTYPE_F32 && context / 2 < longest);
    *rows = graphs_bucket(&cuda->graphs, i % n);
    *position = (int)min_int64(context, longest) - 1;
    return is_new;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void op_embed(struct backend *b, float *y, const struct embedding *embedding) {
    struct cuda *cuda = cuda_of(b);
    const struct device_step *at = &cuda->step.at;
    const int32_t *tokens = embedding->of_next ? at->next : at->token;
    assert(tokens || !embedding->tokens);
    if (embedding->tokens)
        embed_rows(y, &embedding->tokens->packed, tokens, at->sampled, embedding->scale, false,
                   at->M, cuda->stream);
    assert(!embedding->types || at->type);
    if (embedding->types)
        embed_rows(y, &embedding->types->packed, at->type, NULL, 1, true, at->M, cuda->stream);
    if (embedding->positions)
        embed_rows(y, &embedding->positions->packed, at->position, NULL, 1, true, at->M,
                   cuda->stream);
    if (embedding->norm.gain)
        rows_norm(cuda->act, y, y, &embedding->norm, at->M, embedding->tokens->packed.K,
                  cuda->stream);
}

static void op_norm(struct backend *b, float *y, const float *x, const struct norm *norm, int M,
                    int K) {
    assert(norm);
    rows_norm(cuda_of(b)->act, y, x, norm, M, K, cuda_of(b)->stream);
}

static void op_join(struct backend *b, float *y, const float *a, const float *other,
                    const struct join *join, int M, int K) {
    struct cuda *cuda = cuda_of(b);
    const struct device_step *at = &cuda->step.at;
    assert(M == at->M && (!join->recalls || at->hidden_row));
    rows_join(cuda->act, y, a, other, join, at->hidden_row, M, K, cuda->stream);
}

static void op_gather(struct backend *b, float *y, const float *x, int K) {
    struct cuda *cuda = cuda_of(b);
    const struct device_step *at = &cuda->step.at;
    assert(at->R <= at->M && K > 0);
    rows_gather(cuda->act, y, x, at->logit_row, at->R, K, cuda->stream);
}

static void op_recall(struct backend *b, float *y, const float *x, int M, int K) {
    struct cuda *cuda = cuda_of(b);
    const struct device_step *at = &cuda->step.at;
    assert(M == at->M && K > 0 && at->hidden_row);
    rows_gather(cuda->act, y, x, at->hidden_row, M, K, cuda->stream);
}

static void op_spread(struct backend *b, float *y, const float *x, const struct spread *spread,
                      int R, int K) {
    rows_spread(y, x, spread, R, K, cuda_of(b)->stream);
}

/* ---- heads ---------------------------------------------------------------------------------- */

/* A norm over all heads of a row needs the whole row before the first head is rotated. */
static void norm_together(struct cuda *cuda, const struct heads *heads, float *q, float *k,
                          const struct kv_cache *cache) {
    const int M = cuda->step.at.M, D = cache->config.D;
    const enum norm_kind kind = heads->norms == HEAD_NORMS_LAYER ? NORM_LAYER : NORM_RMS;
    const struct norm q_norm = {kind, heads->q_gain, heads->q_bias, heads->epsilon};
    const struct norm k_norm = {kind, heads->k_gain, heads->k_bias, heads->epsilon};
    rows_norm(cuda->act, q, q, &q_norm, M, heads->H * D, cuda->stream);
    if (k) rows_norm(cuda->act, k, k, &k_norm, M, cache->config.G * D, cuda->stream);
}

/* The arguments for the vectors of a step's rows. */
static struct rope_args rope_args_of(struct cuda *cuda, const struct kv_cache *cache,
                                     const struct heads *heads, float *q, float *k, float *v) {
    const bool apart = head_norms_are_of_rows(heads->norms) && heads->q_gain;
    const bool own = heads->norms == HEAD_NORMS_OWN;
    struct rope_args args = {};
    if (apart) norm_together(cuda, heads, q, k, cache);
    args.q = {q, heads->H, NULL, apart ? NULL : heads->q_gain, own};
    args.k = {k, cache->config.G, NULL, apart ? NULL : heads->k_gain, own};
    /* each warp reads its own vector, and no key is changed in place */
    float *values = heads->values_are_keys ? k : v;
    args.v = {values, cache->config.G, NULL, heads->v_gain, false};
    args.M = cuda->step.at.M;
    args.D = cache->config.D;
    args.D_rope = heads->rope.D_rope;
    args.layout = heads->rope.layout;
    args.epsilon = heads->epsilon;
    args.q_scale = heads->q_scale;
    args.q_scale_every = heads->q_scale_every;
    return args;
}

/* Rotates queries and keys in place, so that only their norms and the write are left. */
static void rotate_first(const struct cuda *cuda, struct rope_args *args) {
    struct rope_args first = *args;
    first.q.gain = first.k.gain = first.q_scale = NULL;
    first.v.x = NULL;
    rope_prepare(cuda->act, &first, cuda->stream);
    args->D_rope = 0;
}

static void op_rope_write(struct backend *b, struct kv_cache *whole, int layer,
                          const struct heads *heads, float *q, float *k, float *v) {
    struct cuda *cuda = cuda_of(b);
    const struct rope *rope = &heads->rope;
    assert(layer >= 0 && layer < whole->config.L && heads->H > 0);
    const struct kv_cache *cache = kv_alike(whole, &layer);
    assert((!k || !heads->q_gain == !heads->k_gain) && !k == !v);
    assert(!heads->values_are_keys || !head_norms_are_of_rows(heads->norms));
    assert(!heads->q_bias == (heads->norms != HEAD_NORMS_LAYER));
    assert(!heads->q_scale || heads->q_scale_every > 1);
    assert(!heads->norms_last || (heads->norms == HEAD_NORMS_ALIKE && !heads->values_are_keys));
    assert(cuda->step.at.M <= cuda->limits.max_rows && rope->D_rope <= cache->config.D);
    struct rope_args args = rope_args_of(cuda, cache, heads, q, k, v);
    args.position = cuda->step.at.position;
    if (rope->D_rope > 0) {
        angles_make(&cuda->angles, cuda->step.at.position, rope, args.M, cuda->stream);
        args.cosine = cuda->angles.cosine;
        args.sine = cuda->angles.sine;
    }
    if (heads->norms_last) rotate_first(cuda, &args);
    args.cache = cache;
    args.layer = layer;
    args.slot = cuda->step.at.slot[cache->layer[layer].kind];
    rope_prepare(cuda->act, &args, cuda->stream);
}

static void op_latent_write(struct backend *b, struct kv_cache *whole, int layer,
                            const struct latent *latent, float *q, const float *from, float *k) {
    struct cuda *cuda = cuda_of(b);
    const struct device_step *at = &cuda->step.at;
    assert(layer >= 0 && layer < whole->config.L && latent->H == cuda->limits.H);
    assert(latent->norm.kind == NORM_RMS && latent->norm.gain && at->M <= cuda->limits.max_rows);
    const struct kv_cache *cache = kv_alike(whole, &layer);
    angles_make(&cuda->angles, at->position, &latent->rope, at->M, cuda->stream);
    struct latent_args args = {};
    args.q = q;
    args.from = from;
    args.k = k;
    args.M = at->M;
    args.H = latent->H;
    args.rank = latent->rank;
    args.D_unrotated = latent->D_unrotated;
    args.D_rope = latent->rope.D_rope;
    args.gain = latent->norm.gain;
    args.epsilon = latent->norm.epsilon;
    args.layout = latent->rope.layout;
    args.cosine = cuda->angles.cosine;
    args.sine = cuda->angles.sine;
    args.q_scale = latent->q_scale;
    args.q_scale_every = latent->q_scale_every;
    args.position = at->position;
    args.slot = at->slot[cache->layer[layer].kind];
    latent_prepare(cuda->act, &args, cache, layer, cuda->stream);
}

static void op_attention(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                         int layer, const struct attention *attention) {
    struct cuda *cuda = cuda_of(b);
    assert(layer >= 0 && layer < cache->config.L && attention->scale > 0);
    attention_workspace_run(&cuda->attention, y, q, cache, layer, &cuda->step.at, attention,
                            cuda->stream);
    if (!attention->gate) return;
    assert(!kv_alike(cache, &layer)->D_shared);
    const int D = kv_alike(cache, &layer)->config.D;
    const size_t numbers = (size_t)cuda->step.at.M * (size_t)attention->H * (size_t)D;
    recurrent_gate(cuda->act, y, attention->gate, numbers, cuda->stream);
}

/* ---- recurrent layers ----------------------------------------------------------------------- */

static void op_short_conv(struct backend *b, float *y, const float *in, const float *out,
                          const float *x, struct kv_cache *cache, int layer,
                          const struct short_conv *conv) {
    struct cuda *cuda = cuda_of(b);
    const struct state_rows rows = states_of(cache, layer, &cuda->step.at);
    recurrent_conv(cuda->act, y, in, out, x, &rows, conv, cuda->stream);
}

static void op_delta_rule(struct backend *b, float *y, const struct delta_rows *of,
                          struct kv_cache *cache, int layer, const struct delta_rule *rule) {
    struct cuda *cuda = cuda_of(b);
    const struct state_rows rows = states_of(cache, layer, &cuda->step.at);
    recurrent_delta(cuda->act, y, of, &rows, rule, cuda->step.at.M, cuda->stream);
}

static void op_state_space(struct backend *b, float *y, const struct space_rows *of,
                           struct kv_cache *cache, int layer, const struct state_space *space) {
    struct cuda *cuda = cuda_of(b);
    const struct state_rows rows = states_of(cache, layer, &cuda->step.at);
    recurrent_space(cuda->act, y, of, &rows, space, cuda->step.at.M, cuda->stream);
}

/* ---- products ------------------------------------------------------------------------------- */

static void op_matmul(struct backend *b, float *const *y, const float *x, const struct norm *norm,
                      const struct linear *linear, int n, int M) {
    gemm_matmul(&cuda_of(b)->gemm, y, x, norm, linear, n, M);
}

static void op_matmul_add(struct backend *b, float *sum, const float *x,
                          const struct linear *linear, int M) {
    gemm_matmul_add(&cuda_of(b)->gemm, sum, x, linear, M);
}

static void op_matmul_heads(struct backend *b, float *y, const float *x,
                            const struct head_linear *linear, int M) {
    gemm_heads(&cuda_of(b)->gemm, y, x, linear, M);
}

static void op_mlp(struct backend *b, float *sum, const float *x, const struct norm *norm,
                   const struct mlp *mlp, int M) {
    gemm_mlp(&cuda_of(b)->gemm, sum, x, norm, mlp, M);
}

static void op_experts(struct backend *b, float *sum, const float *x, const struct norm *norm,
                       const struct experts *experts, int M) {
    struct cuda *cuda = cuda_of(b);
    gemm_experts(&cuda->gemm, &cuda->experts, sum, x, norm, experts, M);
}

static void op_norm_add(struct backend *b, float *x, float *y, const struct norm *norm, int M,
                        int K) {
    assert(norm->gain && M >= 0);
    rows_norm_add(cuda_of(b)->act, x, y, norm, M, K, cuda_of(b)->stream);
}

static void op_all_reduce(struct backend *b, float *x, float *part, int M, int K) {
    struct cuda *cuda = cuda_of(b);
    all_reduce_run(&cuda->all_reduce, cuda->act, x, part, M, K, cuda->stream);
}

static void op_logits(struct backend *b, float *y, const float *x, const struct norm *norm,
                      const struct lm_head *head, int R) {
    gemm_logits(&cuda_of(b)->gemm, y, x, norm, head, R);
}

static void op_hidden(struct backend *b, float *y, const float *x, const struct norm *norm,
                      int from, int R, int K) {
    rows_hidden(cuda_of(b)->act, y, x, norm, from, R, K, cuda_of(b)->stream);
}

const struct compute_ops cuda_compute_ops = {
    .run = op_run,
    .plan_run = op_plan_run,
    .recorded_shape = op_recorded_shape,
    .step_begin = op_step_begin,
    .embed = op_embed,
    .matmul = op_matmul,
    .matmul_add = op_matmul_add,
    .mlp = op_mlp,
    .experts = op_experts,
    .norm_add = op_norm_add,
    .all_reduce = op_all_reduce,
    .logits = op_logits,
    .hidden = op_hidden,
    .rope_write = op_rope_write,
    .attention = op_attention,
    .matmul_heads = op_matmul_heads,
    .latent_write = op_latent_write,
    .short_conv = op_short_conv,
    .delta_rule = op_delta_rule,
    .state_space = op_state_space,
    .gather = op_gather,
    .recall = op_recall,
    .spread = op_spread,
    .norm = op_norm,
    .join = op_join,
};
