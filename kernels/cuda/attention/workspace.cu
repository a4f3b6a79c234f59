/* Attention as the backend runs it. */
#include "kernels/cuda/attention/workspace.cuh"

#include "kernels/cuda/runtime/runtime.cuh"

/* ---- memory --------------------------------------------------------------------------------- */

/* Parts for a row of each sequence: a sequence of n positions has n / SPLIT splits and one more. */
static int64_t parts_wanted(const struct step_limits *limits, const struct kv_config *c) {
    const int64_t whole = (int64_t)limits->max_context / SPLIT + 1;
    const int64_t cached = (int64_t)c->n_blocks * c->block_size / SPLIT + limits->max_seqs;
    const int64_t splits = min_int64(whole * limits->max_seqs, cached);
    const int heads = attention_heads(limits->H, c->G);
    if (heads > SPLIT_VECTORS) return 0; /* such rows are never split */
    return max_int64(splits * heads, whole * SPLIT_VECTORS);
}

static enum status take_zeros(void **out, size_t bytes, struct err *err) {
    static const struct alloc_hint work = {
        "the workspace of attention", "max-num-seqs",
        "lower --max-num-seqs, --max-model-len or --gpu-memory-utilization"};
    return device_calloc(out, bytes ? bytes : sizeof(float), &work, err);
}

/* Of a layer. */
static int64_t most_blocks(const struct kv_config *c) {
    bool any = c->n_window_blocks == 0;
    for (int i = 0; i < c->L && !any; i++) any = !c->has_window[i];
    return any ? c->n_blocks : c->n_window_blocks;
}

static enum status check_heads(enum dtype act, const struct step_limits *limits,
                               const struct kv_config *c, struct err *err) {
    const struct kv_view kv = {kv_type_of(c->dtype), c->G, c->D, c->block_size};
    if (limits->H % c->G != 0)
        return err_set(err, STATUS_USAGE, NULL, "%d query heads cannot share %d key-value heads",
                       limits->H, c->G);
    if (most_blocks(c) * c->G * c->block_size > INT32_MAX) /* the kernels number them so */
        return err_set(err, STATUS_USAGE, "kv-cache-memory",
                       "a KV cache on the GPU holds at most 2^31 keys a layer");
    if (act == DTYPE_F32 ? c->D <= ATTENTION_MAX_D : attention_can(act, &kv)) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "device",
                   "--device cuda takes heads of a multiple of %d numbers up to %d with this KV "
                   "cache, and the model's have %d",
                   act == DTYPE_F32         ? 1
                   : c->dtype == DTYPE_E4M3 ? 16
                                            : 8,
                   ATTENTION_MAX_D, c->D);
}

struct attention_sizes {
    size_t parts, counters; /* bytes */
};

/* The sizes of all memory; 0 if nothing is planned. */
static attention_sizes plan_sizes(struct attention_workspace *work, enum dtype act,
                                  const struct step_limits *limits,
                                  const struct kv_config *config) {
    *work = attention_workspace{};
    work->act = act;
    work->limits = *limits;
    if (limits->n_windows == 0) work->limits.n_windows = 1;
    work->kinds = config->n_window_blocks > 0 ? KV_KINDS : 1;
    if (act == DTYPE_F32) return {};
    work->max_parts = min_int64(parts_wanted(limits, config), INT32_MAX);
    work->max_items = attention_max_items(limits->max_rows, limits->max_seqs, limits->max_context,
                                          limits->H, config->G, work->max_parts);
    struct attention_plan largest = {};
    largest.head_parts = attention_head_parts(limits->H, config->G);
    largest.n_parts = work->max_parts;
    largest.n_counters = attention_max_counters(limits->max_rows, limits->max_seqs);
    return {attention_parts_bytes(&largest, config->G, config->D),
            attention_counters_bytes(&largest, config->G)};
}

size_t attention_workspace_bytes(struct attention_workspace *work, enum dtype act,
                                 const struct step_limits *limits, const struct kv_config *config) {
    const struct attention_sizes sizes = plan_sizes(work, act, limits, config);
    return sizes.parts + sizes.counters;
}

enum status attention_workspace_new(struct attention_workspace *work, enum dtype act,
                                    const struct step_limits *limits,
                                    const struct kv_config *config, struct err *err) {
    enum status status = check_heads(act, limits, config, err);
    if (status) return status;
    const struct attention_sizes sizes = plan_sizes(work, act, limits, config);
    if (act == DTYPE_F32) return STATUS_OK;
    void *parts = nullptr, *counters = nullptr;
    status = take_zeros(&parts, sizes.parts, err);
    if (!status) status = take_zeros(&counters, sizes.counters, err);
    if (status) {
        cudaFree(parts);
        *work = attention_workspace{};
        return status;
    }
    work->parts = (float *)parts;
    work->counters = (int32_t *)counters;
    work->G = config->G;
    work->D = config->D;
    return STATUS_OK;
}

void attention_workspace_free(struct attention_workspace *work) {
    cuda_check(cudaFree(work->parts), "freeing attention's parts");
    cuda_check(cudaFree(work->counters), "freeing attention's counters");
    *work = attention_workspace{};
}

/* ---- a step --------------------------------------------------------------------------------- */

int attention_workspace_plan(struct attention_workspace *work, int window,
                             struct attention_item *items, const struct step *step, int rows) {
    if (work->act == DTYPE_F32) return 0;
    struct attention_plan *plan = &work->plan[window];
    attention_make_plan(plan, items, step, work->limits.H, work->G, work->limits.windows[window],
                        work->max_parts);
    assert(plan->n_items <= work->max_items);
    /* Blocks without work end at once but cost some nanoseconds each: at most half are such. */
    int room = rows ? rows : plan->n_items;
    while (room < plan->n_items && room < work->max_items) room *= 2;
    if (room > work->max_items) room = work->max_items;
    for (int i = plan->n_items; i < room; i++) items[i] = {};
    plan->n_items = room;
    return room;
}

void attention_workspace_run(struct attention_workspace *work, void *y, const void *q,
                             const struct kv_cache *cache, int layer,
                             const struct device_step *step, const struct attention *how,
                             cudaStream_t stream) {
    int plan = 0;
    while (plan < work->limits.n_windows && work->limits.windows[plan] != how->window) plan++;
    assert(plan < work->limits.n_windows); /* backend_config listed all of them */
    assert(how->H == work->limits.H && how->cap >= 0);
    const enum kv_kind kind = cache->layer[layer].kind;
    assert(work->kinds == 1 || (kind == KV_WINDOW) == (how->window > 0)); /* as planned */
    struct attention_args args = {};
    args.y = y;
    args.q = q;
    args.kv = kv_view_of(cache, layer);
    args.position = step->position;
    args.table = step->table;
    args.table_stride = 1; /* rows and items name the start of their line */
    args.H = work->limits.H;
    args.scale = how->scale;
    args.cap = how->cap;
    args.window = how->window;
    args.sinks = how->sinks;
    if (work->act == DTYPE_F32) {
        attention_float(&args, step->line[kind], step->M, stream);
        return;
    }
    assert(cache->config.G == work->G && cache->config.D == work->D);
    args.items = work->items[plan];
    args.parts = work->parts;
    args.counters = work->counters;
    attention_run(work->act, &args, &work->plan[plan], stream);
}
