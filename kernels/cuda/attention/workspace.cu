/* Attention in the backend. */
#include "kernels/cuda/attention/workspace.cuh"

#include "kernels/cuda/runtime/runtime.cuh"

/* ---- memory --------------------------------------------------------------------------------- */

static bool is_wide(const struct kv_view *kv, int D_value) {
    return kv->D > ATTENTION_MAX_D || D_value < kv->D;
}

/* See struct attention_wide; 0 also for heads that are not wide. */
static int wide_tiles(const struct attention_workspace *work, const struct kv_view *kv,
                      int D_value) {
    const struct attention_wide *wide = work->limits.wide;
    if (!wide || !is_wide(kv, D_value)) return 0;
    return wide->tiles(work->act, kv, D_value, work->block_bytes);
}

static struct kv_view view_of(const struct kv_config *c, struct kv_heads heads) {
    return {kv_type_of(c->dtype), heads.G, heads.D, c->block_size};
}

/* Do all layers run attention_float, which reads neither items nor parts? */
static bool all_run_alone(const struct attention_workspace *work, const struct kv_config *c) {
    bool alone = true;
    for (int i = 0; i < c->L && alone; i++) {
        const struct kv_heads heads = kv_heads_of(c, i);
        const struct kv_view kv = view_of(c, heads);
        const int D_value = kv_value_size(heads);
        alone = is_wide(&kv, D_value) && wide_tiles(work, &kv, D_value) == 0;
    }
    return alone;
}

/* The query heads of a block: more than 16 if all layers have latent attention with a kernel. */
static int most_heads_of(const struct attention_workspace *work, const struct kv_config *c) {
    int tiles = c->L > 0 ? ATTENTION_MOST_HEADS / SPLIT_VECTORS : 1;
    for (int i = 0; i < c->L && tiles > 1; i++) {
        const struct kv_heads heads = kv_heads_of(c, i);
        const struct kv_view kv = view_of(c, heads);
        const int own = heads.D_shared ? wide_tiles(work, &kv, heads.D_shared) : 1;
        tiles = min_int(tiles, max_int(own, 1));
    }
    assert(tiles == 1 || tiles == 2 || tiles == 4);
    return tiles * SPLIT_VECTORS;
}

static int largest_value(const struct kv_config *c) {
    int largest = 0;
    for (int i = 0; i < c->L; i++) largest = max_int(largest, kv_value_size(kv_heads_of(c, i)));
    return largest;
}

/* The query heads of a window's layers. */
static int query_heads(const struct step_limits *limits, int window) {
    const int own = limits->windows[window].H;
    return own ? own : limits->H;
}

/* Parts for one row per sequence: a sequence of n positions has n / SPAN + 1 spans. */
static int64_t parts_wanted(const struct attention_workspace *work, const struct kv_config *c,
                            int H, int G) {
    const struct step_limits *limits = &work->limits;
    if (all_run_alone(work, c)) return 0;
    const int64_t whole = (int64_t)limits->max_context / SPAN + 1;
    const int64_t cached = (int64_t)c->n_blocks * c->block_size / SPAN + limits->max_seqs;
    const int64_t spans = min_int64(whole * limits->max_seqs, cached);
    const int heads = attention_heads(H, G, work->most_heads);
    return max_int64(spans * heads, whole * work->most_heads);
}

static enum status take_zeros(void **out, size_t bytes, struct err *err) {
    static const struct alloc_hint work = {
        "the workspace of attention", "max-num-seqs",
        "lower {max-num-seqs}, {max-model-len} or {gpu-memory-utilization}"};
    return device_calloc(out, bytes ? bytes : sizeof(float), &work, err);
}

static int64_t blocks_of(const struct kv_config *c, int layer) {
    return c->n_window_blocks > 0 && c->has_window[layer] ? c->n_window_blocks : c->n_blocks;
}

/* Their kernel reads single numbers, so all sizes serve up to the largest. */
static enum status check_latents(struct kv_heads heads, struct err *err) {
    assert(heads.D_shared > 0 && heads.D_shared <= heads.D);
    if (heads.D <= ATTENTION_WIDEST && heads.D_shared <= ATTENTION_WIDEST_VALUE) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "device",
                   "{device} cuda takes latent vectors of at most %d numbers, and keys of at most "
                   "%d, and the model's have %d and %d; give {device} cpu",
                   ATTENTION_WIDEST_VALUE, ATTENTION_WIDEST, heads.D_shared, heads.D);
}

static enum status check_heads(enum dtype act, const struct step_limits *limits,
                               const struct kv_config *c, int layer, struct err *err) {
    const struct kv_heads heads = kv_heads_of(c, layer);
    const int G = heads.G, D = heads.D;
    const struct kv_view kv = {kv_type_of(c->dtype), G, D, c->block_size};
    for (int i = 0; i < max_int(limits->n_windows, 1); i++) {
        const int own = limits->windows[i].G, H = query_heads(limits, i);
        if ((own == 0 || own == G) && H % G != 0)
            return err_set(err, STATUS_USAGE, NULL,
                           "%d query heads cannot share %d key-value heads", H, G);
    }
    if (blocks_of(c, layer) * G * c->block_size > INT32_MAX) /* the limit of the kernels' indices */
        return err_set(err, STATUS_USAGE, "kv-cache-memory",
                       "a KV cache on the GPU holds at most 2^31 keys a layer");
    if (heads.D_shared) return check_latents(heads, err);
    if (D <= ATTENTION_WIDEST_VALUE && (act == DTYPE_F32 || attention_fits(act, &kv)))
        return STATUS_OK;
    return err_set(err, STATUS_USAGE, "device",
                   "{device} cuda takes heads of a multiple of %d numbers up to %d with this KV "
                   "cache, and the model's have %d",
                   act == DTYPE_F32         ? 1
                   : c->dtype == DTYPE_E4M3 ? 16
                                            : 8,
                   ATTENTION_WIDEST_VALUE, D);
}

static bool has_chunks(const struct attention_workspace *work, const struct kv_config *c) {
    bool serves = work->limits.chunks != nullptr;
    for (int i = 0; i < c->L && serves; i++) {
        const struct kv_heads heads = kv_heads_of(c, i);
        const struct kv_view kv = {kv_type_of(c->dtype), heads.G, heads.D, c->block_size};
        serves = !heads.D_shared && work->limits.chunks->serves(&kv);
    }
    return serves;
}

struct attention_sizes {
    size_t parts, counters; /* bytes */
};

/* Plans the memory of a window's plan and stores the sizes in the workspace. */
static attention_sizes plan_window(struct attention_workspace *work, int window,
                                   const struct kv_config *config) {
    const struct step_limits *limits = &work->limits;
    const int G = work->G[window], H = query_heads(limits, window);
    const int64_t parts = min_int64(parts_wanted(work, config, H, G), INT32_MAX);
    const int items = attention_max_items(limits->max_rows, limits->max_seqs, limits->max_context,
                                          H, G, parts, work->most_heads);
    work->max_parts[window] = parts;
    work->max_items = max_int(work->max_items, items);
    struct attention_plan largest = {};
    largest.head_parts = attention_head_parts(H, G, work->most_heads);
    largest.n_parts = parts;
    largest.n_counters = attention_max_counters(limits->max_rows, limits->max_seqs);
    return {attention_parts_bytes(&largest, G, largest_value(config)),
            attention_counters_bytes(&largest, G)};
}

/* The sizes of all memory; 0 if nothing is planned. */
static attention_sizes plan_sizes(struct attention_workspace *work, enum dtype act,
                                  const struct step_limits *limits,
                                  const struct kv_config *config) {
    attention_sizes most = {};
    *work = attention_workspace{};
    work->act = act;
    work->limits = *limits;
    if (limits->n_windows == 0) work->limits.n_windows = 1;
    work->kinds = config->n_window_blocks > 0 ? N_BLOCK_KINDS : 1;
    work->has_attention = config->L > 0;
    work->has_states = config->state_layers > 0;
    work->block_bytes = device_block_bytes();
    work->most_heads = most_heads_of(work, config);
    for (int i = 0; i < work->limits.n_windows; i++) {
        const int own = work->limits.windows[i].G;
        work->G[i] = own ? own : config->G;
    }
    for (int i = 0; i < work->limits.n_windows && act != DTYPE_F32 && config->L > 0; i++) {
        const attention_sizes sizes = plan_window(work, i, config);
        if (sizes.parts > most.parts) most.parts = sizes.parts;
        if (sizes.counters > most.counters) most.counters = sizes.counters;
    }
    return most;
}

size_t attention_workspace_bytes(struct attention_workspace *work, enum dtype act,
                                 const struct step_limits *limits, const struct kv_config *config) {
    const struct attention_sizes sizes = plan_sizes(work, act, limits, config);
    return sizes.parts + sizes.counters;
}

enum status attention_workspace_new(struct attention_workspace *work, enum dtype act,
                                    const struct step_limits *limits,
                                    const struct kv_config *config, struct err *err) {
    enum status status = STATUS_OK;
    for (int i = 0; i < config->L && !status; i++)
        status = check_heads(act, limits, config, i, err);
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
    work->D = largest_value(config);
    work->chunks = has_chunks(work, config);
    return STATUS_OK;
}

void attention_workspace_free(struct attention_workspace *work) {
    cuda_check(cudaFree(work->parts), "freeing attention's parts");
    cuda_check(cudaFree(work->counters), "freeing attention's counters");
    *work = attention_workspace{};
}

/* ---- a step --------------------------------------------------------------------------------- */

struct attention_sight attention_workspace_sight(const struct attention_workspace *work,
                                                 int window) {
    assert(window < work->limits.n_windows);
    return {work->limits.windows[window].length, work->limits.both_ways};
}

int attention_workspace_plan(struct attention_workspace *work, int window,
                             struct attention_item *items, const struct step *step, int rows) {
    if (work->act == DTYPE_F32 || !work->has_attention) return 0;
    struct attention_plan *plan = &work->plan[window];
    const struct attention_sight sight = attention_workspace_sight(work, window);
    const bool decodes = step->R == step->M && !sight.both_ways;
    attention_make_plan(plan, items, step, query_heads(&work->limits, window), work->G[window],
                        &sight, work->max_parts[window],
                        work->chunks && step->M >= CHUNK_STEP_ROWS && !decodes, work->most_heads);
    plan->is_fixed = rows > 0;
    assert(!rows || plan->n_chunks == 0); /* all rows of a graph want logits */
    assert(plan->n_items <= work->max_items);
    /* Blocks without work end at once but cost some nanoseconds each: at most half of them are
     * such. */
    int room = rows ? rows : plan->n_items;
    while (room < plan->n_items && room < work->max_items) room *= 2;
    if (room > work->max_items) room = work->max_items;
    for (int i = plan->n_items; i < room; i++) items[i] = {};
    plan->n_items = room;
    return room;
}

/* The plan for layers with this window and heads; backend_config lists all of them. */
static int plan_of(const struct attention_workspace *work, int window, int H, int G) {
    int plan = 0;
    while (plan < work->limits.n_windows &&
           (work->limits.windows[plan].length != window || work->G[plan] != G ||
            query_heads(&work->limits, plan) != H))
        plan++;
    assert(plan < work->limits.n_windows);
    return plan;
}

/* The numbers of a layer's keys that are its values; 0: it has values. */
static int shared_numbers(const struct kv_cache *cache, int layer) {
    return kv_alike(cache, &layer)->D_shared;
}

void attention_workspace_run(struct attention_workspace *work, void *y, const void *q,
                             const struct kv_cache *cache, int layer,
                             const struct device_step *step, const struct attention *how,
                             cudaStream_t stream) {
    const struct kv_view kv = kv_view_of(cache, layer);
    assert(how->cap >= 0 && how->both_ways == work->limits.both_ways);
    const enum block_kind kind = cache->layer[layer].kind;
    /* the plan has them */
    assert(work->kinds == 1 || (kind == KV_WINDOW_BLOCKS) == (how->window > 0));
    const int plan = plan_of(work, how->window, how->H, kv.G);
    struct attention_args args = {};
    args.y = y;
    args.q = q;
    args.kv = kv;
    args.position = step->position;
    args.seen = work->seen[plan];
    args.table = step->table;
    args.table_stride = 1; /* rows and items contain the offset of their line */
    args.H = how->H;
    args.scale = how->scale;
    args.cap = how->cap;
    args.sinks = how->sinks;
    args.slopes = how->slopes;
    args.items = work->items[plan];
    args.parts = work->parts;
    args.counters = work->counters;
    const int D_shared = shared_numbers(cache, layer), D_value = D_shared ? D_shared : kv.D;
    const int tiles = wide_tiles(work, &kv, D_value);
    assert(work->act == DTYPE_F32 || D_value <= work->D);
    if (work->act == DTYPE_F32 || (is_wide(&kv, D_value) && !tiles))
        attention_float(work->act, &args, D_value, step->line[kind], step->M, stream);
    else if (tiles)
        work->limits.wide->run(work->act, &args, &work->plan[plan], tiles, stream);
    else
        attention_run(work->act, &args, &work->plan[plan], stream, work->limits.chunks);
}
