/* Kernels between the products: norms, gates, sums, adapters, embedding, rotary angles, writes of
 * the cache and moves of its blocks. Activations are in the L2 cache, as in the forward pass, where
 * another kernel has just written them. */
#include "kernels/cuda/rows/rows.cuh"
#include "bench/gpu/times.h"
#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/attention/rope.cuh"
#include "kernels/cuda/gemm/matrix.cuh"
#include "kernels/cuda/gemm/ops.cuh"
#include "kernels/cuda/low_rank/low_rank.cuh"

#include <stdio.h>
#include <stdlib.h>

constexpr int BLOCK = 16;
constexpr enum dtype ACT = DTYPE_BF16;
constexpr size_t SIZE = 2;

using memory = std::shared_ptr<timed_memory>;

static memory activations(int M, int K) {
    return std::make_shared<timed_memory>((size_t)M * (size_t)K * SIZE, BF16_SMALL);
}
static memory floats(size_t n) {
    return std::make_shared<timed_memory>(n * 4, BF16_SMALL);
}
static memory numbers(const std::vector<int32_t> &of) {
    return std::make_shared<timed_memory>(of);
}

static std::string named(const char *kernel, const model &m, int M) {
    return fields("kernel", kernel, "model", m.name, "rows", M);
}

/* ---- rows ----------------------------------------------------------------------------------- */

static point norm_point(const model &m, int M) {
    const double row = (double)M * m.K * SIZE;
    return {named(m.gated ? "rmsnorm" : "layernorm", m, M), 2 * row + 4.0 * m.K, 0, 1,
            [=]() -> call {
                memory x = activations(M, m.K), y = activations(M, m.K);
                memory gain = floats((size_t)m.K), bias = floats((size_t)m.K);
                return [=](int) {
                    const struct norm norm = {m.gated ? NORM_RMS : NORM_LAYER, gain->as<float>(),
                                              m.gated ? nullptr : bias->as<float>(), 1e-5f};
                    rows_norm(ACT, y->data, x->data, &norm, M, m.K, the_stream());
                };
            }};
}

static point gate_point(const model &m, int M) {
    const double row = (double)M * m.F * SIZE;
    return {named(m.gated ? "silu gate" : "gelu", m, M), (m.gated ? 3 : 2) * row, 0, 1,
            [=]() -> call {
                memory gate = activations(M, m.F), up = m.gated ? activations(M, m.F) : nullptr;
                memory y = activations(M, m.F);
                const size_t n = (size_t)M * (size_t)m.F;
                return [=](int) {
                    rows_gate(ACT, up ? ACTIVATION_SILU : ACTIVATION_GELU_TANH, y->data, gate->data,
                              up ? up->data : nullptr, n, the_stream());
                };
            }};
}

static point bias_point(const model &m, int M) {
    return {named("bias", m, M), 2.0 * M * m.K * SIZE, 0, 1, [=]() -> call {
                memory x = activations(M, m.K), bias = floats((size_t)m.K);
                return [=](int) {
                    rows_bias(ACT, x->data, bias->as<float>(), 1, M, m.K, the_stream());
                };
            }};
}

static std::vector<int32_t> spread(int n, int most) {
    std::vector<int32_t> all;
    for (int i = 0; i < n; i++) all.push_back((int32_t)((int64_t)i * 7919 % most));
    return all;
}

static point gather_point(const model &m, int M) {
    return {named("gather", m, M), 2.0 * M * m.K * SIZE, 0, 1, [=]() -> call {
                memory x = activations(M, m.K), y = activations(M, m.K),
                       row = numbers(spread(M, M));
                return [=](int) {
                    rows_gather(ACT, y->data, x->data, row->as<int32_t>(), M, m.K, the_stream());
                };
            }};
}

static point embed_point(const model &m, int M, enum dtype type) {
    const size_t row = dtype_bytes(type, (size_t)m.K);
    struct gemm_source source = {};
    source.type = type;
    struct gemm_weights planned;
    const size_t bytes = gemm_plan(&planned, ACT, &source, m.V, m.K);
    const std::string name = std::string("embed ") + dtype_name(type);
    return {named(name.c_str(), m, M), (double)M * (double)(row + (size_t)m.K * SIZE), 0, 1,
            [=]() -> call {
                memory rows = std::make_shared<timed_memory>(bytes, BF16_SMALL);
                memory y = activations(M, m.K), token = numbers(spread(M, m.V));
                return [=](int) {
                    struct gemm_weights embedding = planned;
                    gemm_place(&embedding, rows->data);
                    embed_rows(y->data, &embedding, token->as<int32_t>(), nullptr, 1, false, M,
                               the_stream());
                };
            }};
}

/* ---- adapters ------------------------------------------------------------------------------- */

constexpr int LORAS = 4, LORA_RANK = 16;

/* Four adapters of rank 16 of a product from K to K numbers. */
struct adapters {
    std::shared_ptr<timed_memory> numbers, entries, tiles, inner, outputs, x, sum;
    struct adapter_tiles of_step;
    struct low_rank_workspace work = {};

    adapters(const model &m, int M) {
        const size_t each = (size_t)LORA_RANK * (size_t)m.K;
        numbers = floats(2 * LORAS * each);
        std::vector<struct low_rank> entry(1);
        for (size_t i = 0; i < LORAS; i++)
            entry.push_back({LORA_RANK, 1, numbers->as<float>() + 2 * i * each,
                             numbers->as<float>() + (2 * i + 1) * each, DTYPE_F32});
        entries = std::make_shared<timed_memory>(entry);
        std::vector<int32_t> of_row, open(LORAS + 1);
        for (int r = 0; r < M; r++) of_row.push_back(1 + r * LORAS / M);
        std::vector<struct adapter_tile> tile((size_t)adapter_tiles_most(M, LORAS));
        adapter_tiles_fill(tile.data(), of_row.data(), nullptr, M, M, LORAS, open.data());
        tiles = std::make_shared<timed_memory>(tile);
        of_step = {tiles->as<struct adapter_tile>(), (int)tile.size()};
        inner = floats((size_t)M * LOW_RANK_JOBS * LORA_RANK);
        outputs = floats((size_t)M * (size_t)m.K);
        x = activations(M, m.K), sum = activations(M, m.K);
        work.act = ACT, work.stream = the_stream(), work.max_rank = LORA_RANK;
        work.inner = inner->as<float>();
    }
    struct low_rank_job job(int N) const {
        return {entries->as<struct low_rank>(), sum->data, outputs->as<float>(), N, 1};
    }
};

static point adapters_point(const model &m, int M, bool is_sum) {
    const double matrix = (double)min_int(M, LORAS) * LORA_RANK * m.K * 4;
    const double rows = (double)M * m.K * (is_sum ? 4 + 2 * SIZE : SIZE);
    return {named(is_sum ? "adapters B and sum" : "adapters A", m, M), matrix + rows, 0, 1,
            [=]() -> call {
                auto of = std::make_shared<adapters>(m, M);
                return [=](int) {
                    const struct low_rank_job job = of->job(m.K);
                    if (is_sum)
                        low_rank_sum(&of->work, &of->of_step, &job, of->sum->data);
                    else
                        low_rank_inner(&of->work, &of->of_step, &job, 1, of->x->data, M, m.K);
                };
            }};
}
static point adapters_a_point(const model &m, int M) {
    return adapters_point(m, M, false);
}
static point adapters_b_point(const model &m, int M) {
    return adapters_point(m, M, true);
}

/* ---- heads ---------------------------------------------------------------------------------- */

static point angles_point(const model &m, int M) {
    const int pairs = m.D / 2;
    return {named("angles", m, M), 8.0 * M * pairs, 0, 1, [=]() -> call {
                memory cosine = floats((size_t)(M * pairs)), sine = floats((size_t)(M * pairs));
                memory position = numbers(spread(M, m.context)), freq = floats((size_t)pairs);
                return [=](int) {
                    struct angle_table table = {};
                    table.cosine = cosine->as<float>(), table.sine = sine->as<float>();
                    table.max_pairs = pairs;
                    const struct rope rope = {m.D, freq->as<float>(), ROPE_HALVES};
                    angles_make(&table, position->as<int32_t>(), &rope, M, the_stream());
                };
            }};
}

/* Makes a cache of L layers. */
static std::shared_ptr<struct kv_cache> make_cache(const model &m, int L, int n_blocks,
                                                   enum dtype dtype) {
    const struct kv_config config = {L, m.G, m.D, n_blocks, BLOCK, dtype};
    struct kv_cache *cache = nullptr;
    struct err err = {};
    if (kv_cache_new(&cache, &config, &err)) {
        fprintf(stderr, "gpu_times: no cache of %d blocks\n", n_blocks);
        exit(1);
    }
    return std::shared_ptr<struct kv_cache>(cache, kv_cache_free);
}

/* Each row belongs to a different sequence, as in decode. */
static std::vector<int32_t> slots_of(int M, int n_blocks) {
    std::vector<int32_t> slots = spread(M, n_blocks);
    for (int32_t &slot : slots) slot *= BLOCK;
    return slots;
}

static point prepare_point(const model &m, int M, const char *name, enum dtype dtype) {
    const double vectors = (double)M * (2 * m.H + 2 * m.G) * m.D * SIZE;
    const double written = (double)M * 2 * m.G * m.D * (dtype == DTYPE_E4M3 ? 1 : SIZE);
    return {named(name, m, M), vectors + written, 0, 1, [=]() -> call {
                const int n_blocks = M;
                auto cache = make_cache(m, 1, n_blocks, dtype);
                memory q = activations(M, m.H * m.D), k = activations(M, m.G * m.D);
                memory v = activations(M, m.G * m.D), slot = numbers(slots_of(M, n_blocks));
                memory angle = floats((size_t)(M * m.D / 2));
                return [=](int) {
                    struct rope_args args = {};
                    args.q = {q->data, m.H, nullptr, nullptr};
                    args.k = {k->data, m.G, nullptr, nullptr};
                    args.v = {v->data, m.G, nullptr, nullptr};
                    args.M = M, args.D = m.D, args.D_rope = m.gated ? m.D : 0;
                    args.epsilon = 1e-5f, args.layout = ROPE_HALVES;
                    args.cosine = args.sine = angle->as<float>();
                    args.cache = cache.get();
                    args.slot = slot->as<int32_t>();
                    rope_prepare(ACT, &args, the_stream());
                };
            }};
}

static point prepare_bf16_point(const model &m, int M) {
    return prepare_point(m, M, "rope+kv write", DTYPE_BF16);
}
static point prepare_e4m3_point(const model &m, int M) {
    return prepare_point(m, M, "rope+kv write e4m3", DTYPE_E4M3);
}

/* ---- blocks --------------------------------------------------------------------------------- */

enum move { COPY, GATHER, SCATTER };

static point move_point(const model &m, enum move move, int n) {
    static const char *const names[] = {"block copy", "block gather", "block scatter"};
    const double bytes = 2.0 * n * 2 * m.L * BLOCK * m.G * m.D * SIZE;
    return {
        named(names[move], m, n), bytes, 0, 1, [=]() -> call {
            auto cache = make_cache(m, m.L, 2 * n, DTYPE_BF16);
            std::vector<int32_t> first, second;
            for (int i = 0; i < n; i++) first.push_back(2 * i), second.push_back(2 * i + 1);
            memory from = numbers(first), to = numbers(second);
            auto stage =
                std::make_shared<timed_memory>(kv_stage_bytes(cache.get(), KV_BLOCKS, n), ANY);
            return [=](int) {
                if (move == COPY)
                    kv_copy(cache.get(), KV_BLOCKS, from->as<int32_t>(), to->as<int32_t>(), n,
                            the_stream());
                else if (move == GATHER)
                    kv_gather(stage->data, cache.get(), KV_BLOCKS, first.data(), n, the_stream());
                else
                    kv_scatter(cache.get(), KV_BLOCKS, stage->data, first.data(), n, the_stream());
            };
        }};
}

std::vector<point> list_rows(bool tiny) {
    std::vector<point> points;
    for (const model &m : models(tiny))
        for (int M : row_counts(tiny)) {
            for (auto make :
                 {norm_point, gate_point, bias_point, gather_point, angles_point,
                  prepare_bf16_point, prepare_e4m3_point, adapters_a_point, adapters_b_point})
                points.push_back(make(m, M));
            for (enum dtype type : {DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_K})
                if (m.K % dtype_block_elements(type) == 0)
                    points.push_back(embed_point(m, M, type));
            for (enum move move : {COPY, GATHER, SCATTER})
                if (M <= KV_LIST) points.push_back(move_point(m, move, M));
        }
    return points;
}
