/* Attention over the paged cache: decode rows with contexts of several lengths, chunks of prompts,
 * and both in one step. Tables are scattered over a pool of blocks that is larger than the L2
 * cache. If the pool is smaller than the blocks of all sequences, they share blocks, far apart in
 * time. */
#include "kernels/cuda/attention/attention.cuh"
#include "bench/gpu/times.h"
#include "kernels/cuda/wgmma/wgmma.cuh"

#include <algorithm>

constexpr int BLOCK = 16, MAX_TABLES = 512;

struct cache_kind {
    const char *name;
    enum kv_type type;
    enum dtype act;
    size_t bytes;
    pattern numbers;
};
static const cache_kind kinds[] = {
    {"bf16", KV_BF16, DTYPE_BF16, 2, BF16_LARGE},
    {"f16", KV_F16, DTYPE_F16, 2, F16_LARGE},
    {"e4m3", KV_E4M3, DTYPE_BF16, 1, E4M3_ORDINARY},
};

/* ---- cache ---------------------------------------------------------------------------------- */

/* A pool of blocks of one layer. */
struct pool {
    int n_blocks;
    std::unique_ptr<timed_memory> keys, values, key_scale, value_scale;
};

static size_t block_bytes(const model &m, const cache_kind &kind) {
    return (size_t)BLOCK * (size_t)m.G * (size_t)m.D * kind.bytes; /* of the keys */
}

/* Limits each of keys and values to 2 GiB. */
static int pool_blocks(const model &m, const cache_kind &kind, bool tiny) {
    const size_t most = (size_t)1 << (tiny ? 20 : 31);
    return (int)std::min(most / block_bytes(m, kind), (size_t)1 << 21);
}

static std::shared_ptr<pool> make_pool(const model &m, const cache_kind &kind, bool tiny) {
    auto made = std::make_shared<pool>();
    made->n_blocks = pool_blocks(m, kind, tiny);
    const size_t n = (size_t)made->n_blocks, bytes = n * block_bytes(m, kind);
    made->keys = std::make_unique<timed_memory>(bytes, kind.numbers);
    made->values = std::make_unique<timed_memory>(bytes, kind.numbers);
    const std::vector<float> scales(n * (size_t)m.G, 0x1p-7f);
    made->key_scale = std::make_unique<timed_memory>(scales);
    made->value_scale = std::make_unique<timed_memory>(scales);
    return made;
}

/* ---- step ----------------------------------------------------------------------------------- */

/* Sequences of a step with equal shapes. Their rows have positions before .. before + rows - 1. */
struct group {
    int sequences, rows, before;
};
using groups = std::vector<group>;

/* A step's arrays, and its work list. */
struct work {
    std::vector<int32_t> position, row_start;
    struct step step; /* without its table, which the plan does not read */
    size_t table_numbers;
    attention_plan plan;
    std::vector<attention_item> items;
    std::vector<attention_range> seen; /* by each row */
};

/* Returns a place for block i of all sequences. Places differ as long as the pool has enough. */
static int32_t place_of(int64_t i, int n_blocks) {
    return (int32_t)(i * 7919 % n_blocks); /* a prime, so that all places are used */
}

static void add_sequences(work *w, const group &g) {
    for (int s = 0; s < g.sequences; s++) {
        for (int i = 0; i < g.rows; i++) w->position.push_back(g.before + i);
        w->row_start.push_back((int32_t)w->position.size());
    }
}

static work make_work(const model &m, const groups &all, bool chunks) {
    work w = {};
    int stride = 1;
    w.row_start.push_back(0);
    for (const group &g : all) {
        add_sequences(&w, g);
        stride = std::max(stride, (g.before + g.rows + BLOCK - 1) / BLOCK);
    }
    w.table_numbers = (size_t)stride * (w.row_start.size() - 1);
    w.step.M = (int)w.position.size();
    w.step.S = (int)w.row_start.size() - 1;
    w.step.position = w.position.data();
    w.step.row_start = w.row_start.data();
    w.step.table_stride = stride;
    w.items.resize(
        (size_t)attention_max_items(w.step.M, w.step.S, stride * BLOCK, m.H, m.G, INT32_MAX));
    const struct attention_sight all_earlier = {};
    attention_make_plan(&w.plan, w.items.data(), &w.step, m.H, m.G, &all_earlier, INT32_MAX,
                        chunks);
    w.items.resize((size_t)w.plan.n_items);
    for (int s = 0; s < w.step.S; s++)
        for (int row = w.row_start[(size_t)s]; row < w.row_start[(size_t)s + 1]; row++)
            w.seen.push_back(attention_seen(&w.step, s, row, &all_earlier));
    return w;
}

/* The inputs of a launch, on the device. */
struct job {
    std::shared_ptr<pool> cache;
    attention_plan plan;
    int n_tables;
    size_t table_numbers;
    std::unique_ptr<timed_memory> tables, position, seen, items, parts, counters, q, y;
    attention_args args;
};

static void fill_args(job *j, const model &m, const cache_kind &kind, const work &w) {
    attention_args &a = j->args;
    const pool &p = *j->cache;
    a = {};
    a.y = j->y->data;
    a.q = j->q->data;
    a.kv = {kind.type,
            m.G,
            m.D,
            BLOCK,
            p.keys->data,
            p.values->data,
            p.key_scale->as<float>(),
            p.value_scale->as<float>()};
    a.position = j->position->as<int32_t>();
    a.seen = j->seen->as<attention_range>();
    a.table_stride = w.step.table_stride;
    a.H = m.H;
    a.scale = m.D == 64 ? 0.125f : 0.088388348f;
    a.items = j->items->as<attention_item>();
    a.parts = j->parts->as<float>();
    a.counters = j->counters->as<int32_t>();
}

static std::shared_ptr<job> make_job(const std::shared_ptr<pool> &cache, const model &m,
                                     const cache_kind &kind, const groups &all, int n_tables,
                                     bool chunks) {
    auto j = std::make_shared<job>();
    const work w = make_work(m, all, chunks);
    j->cache = cache;
    j->plan = w.plan;
    j->n_tables = n_tables;
    j->table_numbers = w.table_numbers;
    std::vector<int32_t> tables;
    for (size_t i = 0; i < (size_t)n_tables * w.table_numbers; i++)
        tables.push_back(place_of((int64_t)i, cache->n_blocks));
    j->tables = std::make_unique<timed_memory>(tables);
    j->position = std::make_unique<timed_memory>(w.position);
    j->seen = std::make_unique<timed_memory>(w.seen);
    j->items = std::make_unique<timed_memory>(w.items);
    j->parts = std::make_unique<timed_memory>(attention_parts_bytes(&w.plan, m.G, m.D));
    const std::vector<uint8_t> zeros(attention_counters_bytes(&w.plan, m.G) + 4, 0);
    j->counters = std::make_unique<timed_memory>(zeros);
    const size_t bytes = (size_t)w.step.M * (size_t)m.H * (size_t)m.D * 2;
    j->q = std::make_unique<timed_memory>(bytes, kind.act == DTYPE_F16 ? F16_LARGE : BF16_LARGE);
    j->y = std::make_unique<timed_memory>(bytes);
    fill_args(j.get(), m, kind, w);
    return j;
}

/* ---- points --------------------------------------------------------------------------------- */

static double seen_positions(const group &g) { /* summed over all rows */
    return (double)g.sequences * g.rows * (g.before + (g.rows + 1) / 2.0);
}

static point step_point(const std::shared_ptr<shared<pool>> &cache, const model &m,
                        const cache_kind &kind, const char *what, const groups &all, int context,
                        bool chunks = false) {
    double rows = 0, positions = 0, pairs = 0;
    for (const group &g : all) {
        rows += (double)g.sequences * g.rows;
        positions += (double)g.sequences * (g.before + g.rows);
        pairs += seen_positions(g);
    }
    const double head = m.D * (double)kind.bytes;
    const double kv = positions * m.G * 2 * head, qy = rows * m.H * m.D * 4;
    const int copies = cold_copies((size_t)kv, MAX_TABLES);
    return {fields("kernel", "attention", "step", what, "model", m.name, "cache", kind.name, "rows",
                   (int)rows, "context", context),
            kv + qy, 4.0 * m.H * m.D * pairs, copies, [=]() -> call {
                auto j = make_job(cache->get(), m, kind, all, copies, chunks);
                const enum dtype act = kind.act;
                return [=](int i) {
                    attention_args args = j->args;
                    args.table =
                        j->tables->as<int32_t>() + (size_t)(i % j->n_tables) * j->table_numbers;
                    attention_run(act, &args, &j->plan, the_stream(), &wgmma_chunks);
                };
            }};
}

static void list_decode(std::vector<point> *points, const std::shared_ptr<shared<pool>> &cache,
                        const model &m, const cache_kind &kind, bool tiny) {
    static const std::vector<int> real = {128, 512, 1024, 2048, 4096, 8192}, small = {20, 300};
    for (int M : row_counts(tiny))
        for (int context : tiny ? small : real)
            if (context <= m.context && (long)M * context <= (tiny ? 400 : 512l * 8192))
                points->push_back(
                    step_point(cache, m, kind, "decode", {{M, 1, context - 1}}, context));
}

/* Lists a step of one chunk, and the same step by wgmma if that is supported. */
static void list_chunk(std::vector<point> *points, const std::shared_ptr<shared<pool>> &cache,
                       const model &m, const cache_kind &kind, const group &chunk, bool tiny) {
    const kv_view kv = {kind.type, m.G, m.D, BLOCK};
    const int context = chunk.before + chunk.rows;
    points->push_back(step_point(cache, m, kind, "chunk", {chunk}, context));
    if (has_wgmma() && wgmma_chunks.serves(&kv) && (tiny || chunk.rows >= CHUNK_STEP_ROWS))
        points->push_back(step_point(cache, m, kind, "chunk by wgmma", {chunk}, context, true));
}

/* Lists chunks at the start and at the end of a long prompt, and a chunk with decode rows. */
static void list_chunks(std::vector<point> *points, const std::shared_ptr<shared<pool>> &cache,
                        const model &m, const cache_kind &kind, bool tiny) {
    static const std::vector<int> real = {16, 32, 128, 512, 2048}, small = {20};
    for (int M : tiny ? small : real) {
        if (M > m.context) continue;
        list_chunk(points, cache, m, kind, {1, M, 0}, tiny);
        if (M < m.context) list_chunk(points, cache, m, kind, {1, M, m.context - M}, tiny);
    }
    const int context = std::min(tiny ? 20 : 1024, m.context), rows = tiny ? 18 : 512;
    points->push_back(step_point(cache, m, kind, "mixed",
                                 {{tiny ? 2 : 32, 1, context - 1}, {1, rows, 0}}, context));
}

std::vector<point> list_attention(bool tiny) {
    std::vector<point> points;
    for (const model &m : models(tiny))
        for (const cache_kind &kind : kinds) {
            /* the large models are enough */
            if (kind.type != KV_BF16 && m.K < 2048 && !tiny) continue;
            const model *of = &m;
            const cache_kind *with = &kind;
            auto cache = share<pool>([=] { return make_pool(*of, *with, tiny); });
            list_decode(&points, cache, m, kind, tiny);
            list_chunks(&points, cache, m, kind, tiny);
        }
    return points;
}
