/* Experts: the router in float32, then the products of grouped.cu on rows grouped by expert. */
#include "kernels/cuda/experts/experts.cuh"

#include "kernels/cuda/rows/rows.cuh"
#include "kernels/cuda/runtime/runtime.cuh"

/* ---- memory --------------------------------------------------------------------------------- */

/* Reserves n elements of `size` bytes after *bytes. With memory NULL it only counts. */
static void *take(void *memory, size_t *bytes, size_t n, size_t size) {
    void *at = memory ? (char *)memory + *bytes : NULL;
    *bytes += (n * size + 255) / 256 * 256;
    return at;
}

static size_t lay_out(struct expert_workspace *work, enum dtype act, void *memory) {
    const struct expert_shape *s = &work->shape;
    const size_t M = (size_t)work->max_rows, slots = M * (size_t)s->n_used,
                 T = act == DTYPE_F32 ? 4 : 2;
    const size_t blocks = (size_t)routing_blocks(work->max_rows, s->n_used, s->E);
    struct routing *r = &work->routing;
    size_t bytes = 0;
    work->wide = (float *)take(memory, &bytes, M * s->K, sizeof(float));
    work->logits = (float *)take(memory, &bytes, M * s->E, sizeof(float));
    work->gate = (float *)take(memory, &bytes, M, sizeof(float));
    r->expert = (int32_t *)take(memory, &bytes, slots, sizeof(int32_t));
    r->weight = (float *)take(memory, &bytes, slots, sizeof(float));
    r->slot_of = (int32_t *)take(memory, &bytes, slots, sizeof(int32_t));
    r->row_of = (int32_t *)take(memory, &bytes, slots, sizeof(int32_t));
    r->first = (int32_t *)take(memory, &bytes, (size_t)s->E + 1, sizeof(int32_t));
    r->rows = (struct expert_rows *)take(memory, &bytes, blocks, sizeof *r->rows);
    work->x = take(memory, &bytes, slots * s->K, T);
    work->hidden = take(memory, &bytes, slots * s->F, T);
    work->up = take(memory, &bytes, slots * s->F, T);
    work->shared = take(memory, &bytes, M * s->K, T);
    return bytes;
}

enum status expert_workspace_open(struct expert_workspace *work, const struct expert_shape *shape,
                                  enum dtype act, int max_rows, struct err *err) {
    static const struct alloc_hint hint = {"the workspace of experts", "max-num-batched-tokens",
                                           "lower {max-num-batched-tokens}"};
    *work = {};
    work->shape = *shape;
    work->max_rows = max_rows;
    if (shape->E == 0) return STATUS_OK;
    assert(shape->E <= MAX_EXPERTS && shape->n_used <= MAX_USED_EXPERTS);
    const enum status status = device_alloc(&work->memory, lay_out(work, act, NULL), &hint, err);
    if (!status) lay_out(work, act, work->memory);
    return status;
}

void expert_workspace_close(struct expert_workspace *work) {
    cuda_check(cudaFree(work->memory), "freeing memory for experts");
}

/* ---- the op --------------------------------------------------------------------------------- */

/* Computes the logits of the router and the shared expert's gate from the normalised rows; or from
 * x after the router's own norm, before the rows are normalised for the experts. */
static void ask_router(struct expert_workspace *work, const struct gemm_workspace *gemm_work,
                       const struct experts *experts, int M) {
    const struct gemm_weights *router = &experts->router.w->packed;
    const size_t n = (size_t)M * (size_t)router->K;
    const float *rows = (const float *)gemm_work->normed;
    assert(router->format == GEMM_FLOAT && router->N == experts->E);
    if (gemm_work->act != DTYPE_F32) {
        route_widen(gemm_work->act, work->wide, gemm_work->normed, n, gemm_work->stream);
        rows = work->wide;
    }
    struct gemm_epilogue end = {experts->router.bias};
    end.scale = linear_scale(&experts->router);
    gemm(router, work->logits, rows, M, &end, gemm_work->stream);
    if (experts->shared_gate.w)
        gemm(&experts->shared_gate.w->packed, work->gate, rows, M, NULL, gemm_work->stream);
}

/* hidden = activation(gate(x)) * up(x), by slot. */
static void inner_products(struct expert_workspace *work, const struct gemm_workspace *gemm_work,
                           const struct mlp *mlp, const struct grouping *g, size_t slots) {
    const struct gemm_weights *gate = &mlp->gate.w->packed, *up = &mlp->up.w->packed;
    struct gemm_epilogue end = {mlp->gate.bias};
    if (gemm_is_pair(gate, up, GROUPED_ROWS)) {
        end.up_bias = mlp->up.bias;
        end.activation = mlp->activation;
        const struct gemm_job pair = {gate, work->hidden, &end, up};
        grouped_product(&pair, work->x, g, gemm_work->stream);
        return;
    }
    const struct gemm_epilogue up_end = {mlp->up.bias};
    const struct gemm_job of_gate = {gate, work->hidden, &end}, of_up = {up, work->up, &up_end};
    grouped_product(&of_gate, work->x, g, gemm_work->stream);
    grouped_product(&of_up, work->x, g, gemm_work->stream);
    rows_gate(gemm_work->act, mlp->activation, work->hidden, work->hidden, work->up,
              slots * (size_t)g->N, gemm_work->stream);
}

/* x = down(hidden), by slot: the output of each expert for each of its rows. */
static void mix(struct expert_workspace *work, const struct gemm_workspace *gemm_work,
                const struct experts *experts, int M) {
    const struct mlp *mlp = &experts->mlp;
    const int E = experts->E, n_used = experts->n_used, slots = M * n_used;
    const int F = mlp->down.w->packed.K, K = mlp->up.w->packed.K;
    const int blocks = routing_blocks(M, n_used, E);
    const struct grouping inner = {work->routing.rows, blocks, F},
                          outer = {work->routing.rows, blocks, K};
    assert(mlp->gate.w && mlp->up.w->packed.N == E * F && mlp->down.w->packed.N == E * K);
    assert(F <= work->shape.F && K <= work->shape.K &&
           slots <= work->max_rows * work->shape.n_used);
    rows_gather(gemm_work->act, work->x, gemm_work->normed, work->routing.row_of, slots, K,
                gemm_work->stream);
    inner_products(work, gemm_work, mlp, &inner, (size_t)slots);
    struct gemm_epilogue end = {mlp->down.bias};
    end.scale = linear_scale(&mlp->down);
    const struct gemm_job down = {&mlp->down.w->packed, work->x, &end};
    grouped_product(&down, work->hidden, &outer, gemm_work->stream);
}

void gemm_experts(struct gemm_workspace *gemm_work, struct expert_workspace *work, float *sum,
                  const float *x, const struct norm *norm, const struct experts *experts, int M) {
    const int K = experts->router.w->packed.K;
    assert(M <= work->max_rows && experts->E <= work->shape.E && norm);
    if (M == 0) return;
    assert(!experts->router_norm.gain || !experts->shared_gate.w);
    const struct norm *of_router = experts->router_norm.gain ? &experts->router_norm : norm;
    rows_norm(gemm_work->act, gemm_work->normed, x, of_router, M, K, gemm_work->stream);
    ask_router(work, gemm_work, experts, M);
    if (of_router != norm)
        rows_norm(gemm_work->act, gemm_work->normed, x, norm, M, K, gemm_work->stream);
    route_rows(&work->routing, work->logits, M, experts, gemm_work->stream);
    mix(work, gemm_work, experts, M);
    const bool has_shared = experts->shared.up.w;
    if (has_shared) gemm_mlp_alone(gemm_work, work->shared, &experts->shared, M);
    route_sum(gemm_work->act, sum, work->x, &work->routing, experts->n_used,
              has_shared ? work->shared : NULL, experts->shared_gate.w ? work->gate : NULL, M, K,
              gemm_work->stream);
}
