/* Products with as few launches as possible: for few rows the norm is part of the product, and a
 * gate and its up projection are one product if their formats are equal. */
#include "kernels/cuda/gemm/ops.cuh"

#include "kernels/cuda/rows/rows.cuh"
#include "kernels/cuda/runtime/runtime.cuh"

enum {
    WORK_ALIGNMENT = 256,
    COUNTER_BYTES =
        (GEMM_SCRATCH_COUNTERS * 4 + WORK_ALIGNMENT - 1) / WORK_ALIGNMENT * WORK_ALIGNMENT
};

enum status gemm_workspace_open(struct gemm_workspace *work, enum dtype act, int max_rows,
                                int max_k, const struct gemm_generation *generation,
                                cudaStream_t stream, struct err *err) {
    static const struct alloc_hint hint = {"the workspace of matrix products",
                                           "max-num-batched-tokens",
                                           "lower {max-num-batched-tokens}"};
    const size_t wanted = (size_t)max_rows * (size_t)max_k * (act == DTYPE_F32 ? 4 : 2);
    const size_t bytes = (wanted + WORK_ALIGNMENT - 1) / WORK_ALIGNMENT * WORK_ALIGNMENT;
    *work = {};
    work->act = act;
    work->stream = stream;
    work->numbers = (size_t)max_rows * (size_t)max_k;
    enum status status = device_alloc(&work->memory, 3 * bytes, &hint, err);
    if (status) return status;
    void *counters = nullptr;
    work->scratch.bytes = gemm_scratch_bytes(act, max_rows, max_k);
    status = device_calloc(&counters, COUNTER_BYTES + work->scratch.bytes, &hint, err);
    work->scratch.counters = (int32_t *)counters;
    work->scratch.parts = (float *)((char *)counters + COUNTER_BYTES);
    if (!status && generation) {
        const size_t plain = generation->bytes(act, max_rows, max_k);
        const bool has_e4m3 = generation->e4m3_bytes && act != DTYPE_F32;
        const size_t e4m3 = has_e4m3 ? generation->e4m3_bytes(max_rows, max_k) : 0;
        work->scratch.generation = generation;
        work->scratch.wide_bytes = plain > e4m3 ? plain : e4m3;
        status = device_alloc(&work->scratch.wide, work->scratch.wide_bytes, &hint, err);
    }
    if (status) return status;
    work->normed = work->memory;
    work->gate = (char *)work->memory + bytes;
    work->up = (char *)work->memory + 2 * bytes;
    return STATUS_OK;
}

void gemm_workspace_close(struct gemm_workspace *work) {
    cuda_check(cudaFree(work->memory), "freeing memory for products");
    cuda_check(cudaFree(work->scratch.counters), "freeing memory for parts of products");
    cuda_check(cudaFree(work->scratch.wide), "freeing memory for products of many rows");
    low_rank_close(&work->low);
}

/* Returns the input rows of some products. Fuses the norm if every product supports it; otherwise
 * applies it now and clears *norm. */
static const void *norm_rows_if_needed(struct gemm_workspace *work, const struct gemm_job *jobs,
                                       int n, const float *x, const struct norm **norm, int M) {
    if (!*norm) return x;
    bool fused = true;
    for (int i = 0; i < n; i++)
        fused = fused && gemm_takes_norm(jobs[i].w, *norm, M, &work->scratch);
    if (fused) return x;
    assert((size_t)M * (size_t)jobs->w->K <= work->numbers);
    rows_norm(work->act, work->normed, x, *norm, M, jobs->w->K, work->stream);
    *norm = NULL;
    return work->normed;
}

static void multiply(struct gemm_workspace *work, const struct gemm_job *jobs, int n,
                     const float *x, const struct norm *norm, int M) {
    const void *rows = norm_rows_if_needed(work, jobs, n, x, &norm, M);
    gemm_many(jobs, n, rows, norm, M, work->stream, &work->scratch);
}

/* Is a matrix stored as float32 beside activations of 16 bits? Its outputs are float32, too. */
static bool is_wide(const struct gemm_workspace *work, const struct linear *linear) {
    return work->act != DTYPE_F32 && linear->w->packed.act == DTYPE_F32;
}

/* Multiplies by the wide ones of n matrices. Their inputs take the place of `gate` and `up`. */
static void multiply_wide(struct gemm_workspace *work, float *const *y, const float *x,
                          const struct norm *norm, const struct linear *linear, int n, int M) {
    float *wide = nullptr;
    for (int i = 0; i < n; i++) {
        if (!is_wide(work, &linear[i])) continue;
        const struct gemm_weights *w = &linear[i].w->packed;
        struct gemm_epilogue end = {linear[i].bias};
        end.scale = linear_scale(&linear[i]);
        assert((size_t)M * (size_t)w->K <= work->numbers);
        if (!wide) {
            wide = (float *)work->gate;
            rows_hidden(work->act, wide, x, norm, 0, M, w->K, work->stream);
        }
        gemm(w, y[i], wide, M, &end, work->stream);
    }
}

/* ---- adapters ------------------------------------------------------------------------------- */

/* Returns the tiles of a projection's rows; NULL if no row has an adapter that could change it. */
static const struct adapter_tiles *tiles_of(const struct gemm_workspace *work,
                                            const struct linear *linear) {
    if (!linear->low || !work->low.tiles) return NULL;
    const struct adapter_tiles *tiles = &work->low.tiles[linear->low->rows->are_read];
    return tiles->n > 0 ? tiles : NULL;
}

static struct low_rank_job job_of(const struct linear *linear, void *y, const float *from) {
    return {linear->low ? linear->low->of : NULL, y, from, linear->w->packed.N,
            linear_scale(linear)};
}

/* Computes the inner products of norm(x). A fused norm leaves no rows, so they are made here. */
static void begin_changes(struct gemm_workspace *work, const struct adapter_tiles *tiles,
                          const struct low_rank_job *jobs, int n, const void *x,
                          const struct norm *norm, int M, int K) {
    assert((size_t)M * (size_t)K <= work->numbers);
    if (norm) rows_norm(work->act, work->normed, x, norm, M, K, work->stream);
    low_rank_inner(&work->low, tiles, jobs, n, norm ? work->normed : x, M, K);
}

/* Adds the adapters' changes to the outputs of products. */
static void change_products(struct gemm_workspace *work, float *const *y, const float *x,
                            const struct norm *norm, const struct linear *linear, int n, int M) {
    struct low_rank_job jobs[LOW_RANK_JOBS];
    const struct adapter_tiles *all = NULL;
    int count = 0;
    for (int i = 0; i < n; i++) {
        const struct adapter_tiles *tiles = tiles_of(work, &linear[i]);
        if (!tiles) continue;
        assert(!is_wide(work, &linear[i]) && count < LOW_RANK_JOBS && (!all || all == tiles));
        all = tiles;
        jobs[count++] = job_of(&linear[i], y[i], NULL);
    }
    if (count == 0) return;
    begin_changes(work, all, jobs, count, x, norm, M, linear->w->packed.K);
    low_rank_change(&work->low, all, jobs, count);
}

/* sum += x times linear with its changes. The product is kept in float32, so that the sum of a
 * row without an adapter is rounded once, as without this step's adapters. */
static void add_changed(struct gemm_workspace *work, const struct adapter_tiles *tiles, float *sum,
                        const void *x, const struct linear *linear, int M) {
    const struct gemm_weights *w = &linear->w->packed;
    const struct low_rank_job job = job_of(linear, NULL, work->low.outputs[0]);
    struct gemm_epilogue end = {linear->bias};
    end.scale = linear_scale(linear);
    end.float_out = true;
    assert((size_t)M * (size_t)w->N <= work->numbers);
    begin_changes(work, tiles, &job, 1, x, NULL, M, w->K);
    gemm(w, work->low.outputs[0], x, M, &end, work->stream, &work->scratch);
    low_rank_sum(&work->low, tiles, &job, sum);
}

/* work->gate = activation(gate(n)) * up(n) with the changes of both. Products that are not a pair
 * round gate and up before the activation, with adapters and without. */
static void gated_changed(struct gemm_workspace *work, const struct adapter_tiles *tiles,
                          const float *x, const struct norm *norm, const struct mlp *mlp, int M) {
    const struct gemm_weights *gate = &mlp->gate.w->packed, *up = &mlp->up.w->packed;
    const bool is_pair = gemm_is_pair(gate, up, M) && linear_scale(&mlp->gate) == 1;
    const bool in_float = is_pair || work->act == DTYPE_F32;
    struct low_rank_workspace *low = &work->low;
    void *y[2] = {in_float ? low->outputs[0] : work->gate, in_float ? low->outputs[1] : work->up};
    const struct low_rank_job changes[] = {job_of(&mlp->gate, y[0], low->outputs[0]),
                                           job_of(&mlp->up, y[1], low->outputs[1])};
    struct gemm_epilogue ends[] = {{mlp->gate.bias}, {mlp->up.bias}};
    ends[0].scale = linear_scale(&mlp->gate);
    ends[0].float_out = ends[1].float_out = in_float;
    const struct gemm_job apart[] = {{gate, y[0], &ends[0]}, {up, y[1], &ends[1]}};
    begin_changes(work, tiles, changes, 2, x, norm, M, gate->K);
    multiply(work, apart, 2, x, norm, M);
    if (in_float) {
        low_rank_activate(low, tiles, changes, 2, mlp->activation, work->gate);
        return;
    }
    low_rank_change(low, tiles, changes, 2);
    rows_gate(work->act, mlp->activation, work->gate, work->gate, work->up,
              (size_t)M * (size_t)gate->N, work->stream);
}

/* work->gate = activation(up(n)) with its change. */
static void ungated_changed(struct gemm_workspace *work, const struct adapter_tiles *tiles,
                            const float *x, const struct norm *norm, const struct mlp *mlp, int M) {
    const struct gemm_weights *up = &mlp->up.w->packed;
    const bool is_apart = mlp->activation == ACTIVATION_XIELU;
    void *y = is_apart ? work->gate : work->low.outputs[0];
    const struct low_rank_job change = job_of(&mlp->up, y, work->low.outputs[0]);
    struct gemm_epilogue end = {mlp->up.bias};
    end.float_out = !is_apart;
    const struct gemm_job job = {up, y, &end};
    begin_changes(work, tiles, &change, 1, x, norm, M, up->K);
    multiply(work, &job, 1, x, norm, M);
    if (!is_apart) {
        low_rank_activate(&work->low, tiles, &change, 1, mlp->activation, work->gate);
        return;
    }
    low_rank_change(&work->low, tiles, &change, 1);
    rows_xielu(work->act, work->gate, &mlp->xielu, (size_t)M * (size_t)up->N, work->stream);
}

/* ---- ops ------------------------------------------------------------------------------------ */

void gemm_matmul(struct gemm_workspace *work, float *const *y, const float *x,
                 const struct norm *norm, const struct linear *linear, int n, int M) {
    struct gemm_job jobs[GEMM_MAX_JOBS];
    struct gemm_epilogue ends[GEMM_MAX_JOBS];
    for (int i = 0; i < n;) {
        int count = 0;
        for (; i < n && count < GEMM_MAX_JOBS; i++) {
            if (is_wide(work, &linear[i])) continue;
            ends[count] = {linear[i].bias};
            ends[count].scale = linear_scale(&linear[i]);
            jobs[count] = {&linear[i].w->packed, y[i], &ends[count]};
            count++;
        }
        if (count > 0) multiply(work, jobs, count, x, norm, M);
    }
    multiply_wide(work, y, x, norm, linear, n, M);
    change_products(work, y, x, norm, linear, n, M);
}

void gemm_matmul_add(struct gemm_workspace *work, float *sum, const void *x,
                     const struct linear *linear, int M) {
    const struct adapter_tiles *tiles = tiles_of(work, linear);
    if (tiles) {
        add_changed(work, tiles, sum, x, linear, M);
        return;
    }
    struct gemm_epilogue end = {linear->bias, sum};
    end.scale = linear_scale(linear);
    gemm(&linear->w->packed, sum, x, M, &end, work->stream, &work->scratch);
}

/* work->gate = activation(gate(n)) times given rows, where n = norm(x). */
static void gated_by(struct gemm_workspace *work, const float *x, const struct norm *norm,
                     const struct mlp *mlp, int M) {
    const struct gemm_weights *gate = &mlp->gate.w->packed;
    /* the rows have the activations' type, as all arguments of ops */
    const size_t element = work->act == DTYPE_F32 ? 4 : 2;
    const char *times = (const char *)mlp->times + (size_t)mlp->times_first * element;
    const struct gemm_epilogue end = {mlp->gate.bias};
    const struct gemm_job job = {gate, work->gate, &end};
    multiply(work, &job, 1, x, norm, M);
    rows_gate_apart(work->act, mlp->activation, work->gate, work->gate, times, M, gate->N,
                    mlp->times_stride, work->stream);
}

/* work->gate = activation(gate(n)) * up(n), where n = norm(x). A pair cannot scale its gate before
 * the activation. */
static void gated(struct gemm_workspace *work, const float *x, const struct norm *norm,
                  const struct mlp *mlp, int M) {
    const struct gemm_weights *gate = &mlp->gate.w->packed, *up = &mlp->up.w->packed;
    struct gemm_epilogue end = {mlp->gate.bias};
    assert(gate->N == up->N && gate->K == up->K);
    if (gemm_is_pair(gate, up, M) && linear_scale(&mlp->gate) == 1) {
        end.up_bias = mlp->up.bias;
        end.activation = mlp->activation;
        const struct gemm_job pair = {gate, work->gate, &end, up};
        multiply(work, &pair, 1, x, norm, M);
        return;
    }
    end.scale = linear_scale(&mlp->gate);
    const struct gemm_epilogue up_end = {mlp->up.bias};
    const struct gemm_job apart[] = {{gate, work->gate, &end}, {up, work->up, &up_end}};
    multiply(work, apart, 2, x, norm, M);
    rows_gate(work->act, mlp->activation, work->gate, work->gate, work->up,
              (size_t)M * (size_t)gate->N, work->stream);
}

/* work->gate = activation(up(n)), where n = norm(x). xIELU has numbers, which the epilogues of
 * products do not take, so it runs after the product. */
static void ungated(struct gemm_workspace *work, const float *x, const struct norm *norm,
                    const struct mlp *mlp, int M) {
    const struct gemm_weights *up = &mlp->up.w->packed;
    const bool is_apart = mlp->activation == ACTIVATION_XIELU;
    struct gemm_epilogue end = {mlp->up.bias};
    end.activate = !is_apart;
    end.activation = mlp->activation;
    const struct gemm_job job = {up, work->gate, &end};
    multiply(work, &job, 1, x, norm, M);
    if (is_apart)
        rows_xielu(work->act, work->gate, &mlp->xielu, (size_t)M * (size_t)up->N, work->stream);
}

void gemm_mlp(struct gemm_workspace *work, float *sum, const float *x, const struct norm *norm,
              const struct mlp *mlp, int M) {
    const int F = mlp->down.w->packed.K;
    assert((size_t)M * (size_t)F <= work->numbers);
    assert((mlp->up.w ? mlp->up.w : mlp->gate.w)->packed.N == F);
    assert(mlp->up.scale == 0 && (!mlp->times || (!mlp->up.w && mlp->gate.scale == 0)));
    assert(mlp->activation != ACTIVATION_XIELU || !mlp->gate.w);
    const struct adapter_tiles *tiles = tiles_of(work, mlp->gate.w ? &mlp->gate : &mlp->up);
    assert(!tiles || !mlp->times);
    if (mlp->times)
        gated_by(work, x, norm, mlp, M);
    else if (mlp->gate.w && tiles)
        gated_changed(work, tiles, x, norm, mlp, M);
    else if (mlp->gate.w)
        gated(work, x, norm, mlp, M);
    else if (tiles)
        ungated_changed(work, tiles, x, norm, mlp, M);
    else
        ungated(work, x, norm, mlp, M);
    gemm_matmul_add(work, sum, work->gate, &mlp->down, M);
}

void gemm_mlp_alone(struct gemm_workspace *work, void *y, const struct mlp *mlp, int M) {
    assert(mlp->gate.w && (size_t)M * (size_t)mlp->up.w->packed.N <= work->numbers);
    gated(work, (const float *)work->normed, NULL, mlp, M);
    struct gemm_epilogue end = {mlp->down.bias};
    end.scale = linear_scale(&mlp->down);
    gemm(&mlp->down.w->packed, y, work->gate, M, &end, work->stream, &work->scratch);
}

void gemm_logits(struct gemm_workspace *work, float *y, const float *x, const struct norm *norm,
                 const struct lm_head *head, int R) {
    struct gemm_epilogue end = {head->linear.bias, nullptr, true};
    end.scale = linear_scale(&head->linear);
    end.cap = head->cap;
    const struct gemm_job job = {&head->linear.w->packed, y, &end};
    multiply(work, &job, 1, x, norm, R);
}
