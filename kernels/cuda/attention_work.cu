/* Attention as the backend runs it. */
#include "kernels/cuda/attention_work.cuh"

#include "kernels/cuda/room.cuh"

/* ---- memory --------------------------------------------------------------------------------- */

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Parts for a row of each sequence: a sequence of n positions has n / SPLIT splits and one more. */
static int64_t parts_wanted(const struct step_limits *limits, const struct kv_config *c) {
    const int64_t whole = (int64_t)limits->max_context / SPLIT + 1;
    const int64_t cached = (int64_t)c->n_blocks * c->block_size / SPLIT + limits->max_seqs;
    const int64_t splits = smaller(whole * limits->max_seqs, cached);
    const int heads = attention_heads(limits->H, c->G);
    if (heads > SPLIT_VECTORS) return 0; /* such rows are never split */
    return larger(splits * heads, whole * SPLIT_VECTORS);
}

static enum status take_zeros(void **out, size_t bytes, struct err *err) {
    static const struct room work = {
        "what attention works in", "max-num-seqs",
        "lower --max-num-seqs, --max-model-len or --gpu-memory-utilization"};
    return room_zeros(out, bytes ? bytes : sizeof(float), &work, err);
}

static enum status check_heads(enum dtype act, const struct step_limits *limits,
                               const struct kv_config *c, struct err *err) {
    const struct kv_view kv = {kv_type_of(c->dtype), c->G, c->D, c->block_size};
    if (limits->H % c->G != 0)
        return err_set(err, STATUS_USAGE, NULL, "%d query heads cannot share %d key-value heads",
                       limits->H, c->G);
    if (act == DTYPE_F32 ? c->D <= ATTENTION_MOST_D : attention_can(act, &kv)) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "device",
                   "--device cuda takes heads of a multiple of %d numbers up to %d with this KV "
                   "cache, and the model's have %d",
                   act == DTYPE_F32         ? 1
                   : c->dtype == DTYPE_E4M3 ? 16
                                            : 8,
                   ATTENTION_MOST_D, c->D);
}

struct attention_sizes {
    size_t parts, counters; /* bytes */
};

/* How large everything is to be; 0 where nothing is planned. */
static attention_sizes plan_sizes(struct attention_work *work, enum dtype act,
                                  const struct step_limits *limits,
                                  const struct kv_config *config) {
    *work = attention_work{};
    work->act = act;
    work->limits = *limits;
    if (act == DTYPE_F32) return {};
    work->most_parts = smaller(parts_wanted(limits, config), INT32_MAX);
    work->most_items = attention_most_items(limits->max_rows, limits->max_seqs, limits->max_context,
                                            limits->H, config->G, work->most_parts);
    struct attention_plan largest = {};
    largest.head_parts = attention_head_parts(limits->H, config->G);
    largest.n_parts = work->most_parts;
    largest.n_counters = attention_most_counters(limits->max_rows, limits->max_seqs);
    return {attention_parts_bytes(&largest, config->G, config->D),
            attention_counters_bytes(&largest, config->G)};
}

size_t attention_work_bytes(struct attention_work *work, enum dtype act,
                            const struct step_limits *limits, const struct kv_config *config) {
    const struct attention_sizes sizes = plan_sizes(work, act, limits, config);
    return sizes.parts + sizes.counters;
}

enum status attention_work_new(struct attention_work *work, enum dtype act,
                               const struct step_limits *limits, const struct kv_config *config,
                               struct err *err) {
    enum status status = check_heads(act, limits, config, err);
    if (status) return status;
    const struct attention_sizes sizes = plan_sizes(work, act, limits, config);
    if (act == DTYPE_F32) return STATUS_OK;
    void *parts = nullptr, *counters = nullptr;
    status = take_zeros(&parts, sizes.parts, err);
    if (!status) status = take_zeros(&counters, sizes.counters, err);
    if (status) {
        cudaFree(parts);
        *work = attention_work{};
        return status;
    }
    work->parts = (float *)parts;
    work->counters = (int32_t *)counters;
    work->G = config->G;
    work->D = config->D;
    return STATUS_OK;
}

void attention_work_free(struct attention_work *work) {
    cuda_must(cudaFree(work->parts), "freeing attention's parts");
    cuda_must(cudaFree(work->counters), "freeing attention's counters");
    *work = attention_work{};
}

/* ---- a step --------------------------------------------------------------------------------- */

/* Blocks without work end at once, yet cost some nanoseconds each: at most every other one is
 * such. */
static int room_of_class(const struct attention_work *work, int rows, int n) {
    int room = rows;
    while (room < n && room < work->most_items) room *= 2;
    return room < work->most_items ? room : work->most_items;
}

int attention_work_plan(struct attention_work *work, struct attention_item *items,
                        const struct step *step, int rows) {
    if (work->act == DTYPE_F32) return 0;
    struct attention_plan *plan = &work->plan;
    attention_make_plan(plan, items, step, work->limits.H, work->G, 0, work->most_parts);
    assert(plan->n_items <= work->most_items);
    const int room = rows ? room_of_class(work, rows, plan->n_items) : plan->n_items;
    for (int i = plan->n_items; i < room; i++) items[i] = {};
    plan->n_items = room;
    return room;
}

void attention_work_run(struct attention_work *work, void *y, const void *q,
                        const struct kv_cache *cache, int layer, const struct device_step *step,
                        float scale, cudaStream_t stream) {
    struct attention_args args = {};
    args.y = y;
    args.q = q;
    args.kv = kv_view_of(cache, layer);
    args.position = step->position;
    args.table = step->table;
    args.table_stride = 1; /* see the line that a row or an item names */
    args.H = work->limits.H;
    args.scale = scale;
    if (work->act == DTYPE_F32) {
        attention_float(&args, step->line, step->M, stream);
        return;
    }
    assert(cache->config.G == work->G && cache->config.D == work->D);
    args.items = work->items;
    args.parts = work->parts;
    args.counters = work->counters;
    attention_run(work->act, &args, &work->plan, stream);
}
