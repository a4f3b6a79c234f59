/* Products: each matrix of each model in each format, and cuBLAS's product of the same shape. */
#include "bench/gpu/times.h"

#include "kernels/cuda/gemm/gemm.cuh"

#include <algorithm>
#include <string.h>

/* ---- matrices ------------------------------------------------------------------------------- */

/* The end of a product in the forward pass. */
enum ending { PLAIN, BIAS, RESIDUAL, GATED, FLOATS };

struct shape {
    const char *matrix;
    int N, K;
    enum ending ending;
    int matrices() const { /* GATED: the gate's matrix and the gated one */
        return ending == GATED ? 2 : 1;
    }
    int rows() const {
        return matrices() * N;
    }
};

static std::vector<shape> shapes_of(const model &m) {
    const shape gated = {"gate+up", m.F, m.K, GATED}, up = {"up", m.F, m.K, BIAS};
    return {
        {"qkv", (m.H + 2 * m.G) * m.D, m.K, m.gated ? PLAIN : BIAS},
        {"o", m.K, m.H * m.D, RESIDUAL},
        m.gated ? gated : up,
        {"down", m.K, m.F, RESIDUAL},
        {"head", m.V, m.K, FLOATS},
    };
}

struct format {
    const char *name;
    enum dtype type, act;
    bool fp8;
};
static const format formats[] = {
    {"bf16", DTYPE_BF16, DTYPE_BF16, false}, {"f16", DTYPE_F16, DTYPE_F16, false},
    {"fp8", DTYPE_BF16, DTYPE_BF16, true},   {"q8_0", DTYPE_Q8_0, DTYPE_BF16, false},
    {"q4_0", DTYPE_Q4_0, DTYPE_BF16, false}, {"q4_1", DTYPE_Q4_1, DTYPE_BF16, false},
    {"q4_k", DTYPE_Q4_K, DTYPE_BF16, false}, {"q6_k", DTYPE_Q6_K, DTYPE_BF16, false},
    {"f32", DTYPE_F32, DTYPE_F32, false},
};

/* Returns a pattern: floats of ordinary size, or any codes. */
static pattern codes_of(const format &f) {
    if (f.fp8) return E4M3_ORDINARY;
    if (f.type == DTYPE_F16) return F16_SMALL;
    return dtype_block_elements(f.type) == 1 ? BF16_SMALL : ANY;
}

/* Returns rows of K elements in a file's format: random codes, and scales of ordinary size. */
static std::vector<uint16_t> random_rows(const format &f, size_t bytes) {
    std::vector<uint16_t> words = random_words(bytes / 2, codes_of(f));
    if (f.fp8 || dtype_block_elements(f.type) == 1) return words;
    const uint16_t scale = 0x1c00; /* 2^-8 in float16 */
    const size_t step = (size_t)dtype_block_bytes(f.type) / 2;
    const bool has_min = f.type == DTYPE_Q4_1 || f.type == DTYPE_Q4_K;
    for (size_t i = 0; i < words.size(); i += step) {
        words[i + (f.type == DTYPE_Q6_K ? 104 : 0)] = scale;
        if (has_min) words[i + 1] = scale;
    }
    return words;
}

/* One matrix, or two of equal shape, in several copies. */
struct weights {
    gemm_weights w;
    size_t apart;  /* distance of the two in bytes */
    size_t stride; /* distance of copies in bytes */
    std::unique_ptr<timed_memory> memory;
    gemm_weights copy(int i, int which) const {
        gemm_weights mine = w;
        gemm_place(&mine, memory->data + (size_t)i * stride + (size_t)which * apart);
        return mine;
    }
};

static size_t up_to_256(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

static gemm_source source_of(const format &f) {
    gemm_source source = {};
    source.type = f.type;
    source.fp8 = f.fp8;
    source.scale_rows = 1;
    source.scale_columns = f.fp8 ? 1 << 20 : 0; /* one scale per row */
    return source;
}

static int copies_of(const format &f, const shape &s) {
    gemm_weights w = {};
    const gemm_source source = source_of(f);
    const size_t bytes = gemm_plan(&w, f.act, &source, s.N, s.K);
    return cold_copies(bytes * (size_t)s.matrices(), 512);
}

static std::shared_ptr<weights> make_weights(const format &f, const shape &s) {
    auto made = std::make_shared<weights>();
    gemm_source source = source_of(f);
    made->apart = up_to_256(gemm_plan(&made->w, f.act, &source, s.N, s.K));
    made->stride = made->apart * (size_t)s.matrices();
    made->memory = std::make_unique<timed_memory>(made->stride * (size_t)copies_of(f, s));
    const size_t row = f.fp8 ? (size_t)s.K : dtype_bytes(f.type, (size_t)s.K);
    const std::vector<uint16_t> some = random_rows(f, row * 64);
    timed_memory rows(row * (size_t)std::max(s.N, 64));
    rows.put(some.data(), some.size() * 2);
    rows.repeat(some.size() * 2);
    timed_memory scales(std::vector<float>((size_t)s.N, 0x1p-8f));
    source.rows = rows.data;
    source.scales = scales.as<float>();
    for (int i = 0; i < s.matrices(); i++) {
        const gemm_weights first = made->copy(0, i);
        gemm_pack(&first, &source, 0, s.N, the_stream());
    }
    made->memory->repeat(made->stride);
    cuda_check(cudaStreamSynchronize(the_stream()), "packing");
    return made;
}

/* ---- timed work ----------------------------------------------------------------------------- */

static size_t activation_bytes(enum dtype act) {
    return act == DTYPE_F32 ? 4 : 2;
}

static pattern activations(enum dtype act) {
    return act == DTYPE_F16 ? F16_SMALL : BF16_SMALL;
}

static call product_call(const std::shared_ptr<weights> &w, const format &f, const shape &s, int M,
                         int copies) {
    const size_t size = activation_bytes(f.act);
    auto x = std::make_shared<timed_memory>((size_t)M * (size_t)s.K * size, activations(f.act));
    auto y =
        std::make_shared<timed_memory>((size_t)M * (size_t)s.N * (s.ending == FLOATS ? 4 : size));
    auto bias = std::make_shared<timed_memory>((size_t)s.rows() * 4, BF16_SMALL);
    auto residual =
        std::make_shared<timed_memory>((size_t)M * (size_t)s.N * size, activations(f.act));
    const size_t parts_bytes = gemm_scratch_bytes(f.act, M, std::max(s.N, s.K));
    auto parts = std::make_shared<timed_memory>(std::max(parts_bytes, (size_t)16));
    auto counters = std::make_shared<timed_memory>(std::vector<int32_t>(GEMM_SCRATCH_COUNTERS));
    return [=](int i) {
        const gemm_scratch scratch = {counters->as<int32_t>(), parts->as<float>(), parts_bytes};
        gemm_epilogue end = {};
        end.bias = s.ending == BIAS ? bias->as<float>() : nullptr;
        end.residual = s.ending == RESIDUAL ? residual->data : nullptr;
        end.float_out = s.ending == FLOATS;
        const gemm_weights mine = w->copy(i % copies, 0), up = w->copy(i % copies, 1);
        const gemm_job job = {&mine, y->data, &end, s.ending == GATED ? &up : nullptr};
        gemm_many(&job, 1, x->data, nullptr, M, the_stream(), &scratch);
    };
}

static point product_point(const std::shared_ptr<shared<weights>> &w, const model &m,
                           const format &f, const shape &s, int M) {
    gemm_weights planned = {};
    const gemm_source source = source_of(f);
    const double size = (double)activation_bytes(f.act), rows = M;
    const double weight_bytes =
        (double)gemm_plan(&planned, f.act, &source, s.N, s.K) * s.matrices();
    const double y = rows * s.N * (s.ending == FLOATS ? 4 : size);
    const double bytes =
        weight_bytes + rows * s.K * size + y + (s.ending == RESIDUAL ? rows * s.N * size : 0);
    const int copies = copies_of(f, s);
    return {fields("kernel", "product", "model", m.name, "matrix", s.matrix, "N", s.rows(), "K",
                   s.K, "format", f.name, "rows", M),
            bytes, 2.0 * M * s.rows() * s.K, copies,
            [=]() -> call { return product_call(w->get(), f, s, M, copies); }};
}

/* cuBLAS's bfloat16 product, without an epilogue. */
static point cublas_point(const std::shared_ptr<shared<timed_memory>> &w, const model &m,
                          const shape &s, int M) {
    const size_t N = (size_t)s.rows(), K = (size_t)s.K, rows = (size_t)M;
    const size_t stride = up_to_256(2 * N * K), y_bytes = rows * N * (s.ending == FLOATS ? 4 : 2);
    const int copies = cold_copies(2 * N * K, 512);
    return {fields("kernel", "cublas", "model", m.name, "matrix", s.matrix, "N", s.rows(), "K", s.K,
                   "format", "bf16", "rows", M),
            (double)(2 * N * K + 2 * rows * K + y_bytes), 2.0 * M * s.rows() * s.K, copies,
            [=]() -> call {
                auto x = std::make_shared<timed_memory>(2 * rows * K, BF16_SMALL);
                auto y = std::make_shared<timed_memory>(y_bytes);
                auto memory = w->get();
                return [=](int i) {
                    cublas_run(y->data, x->data, memory->data + (size_t)(i % copies) * stride, M,
                               s.rows(), s.K, s.ending == FLOATS);
                };
            }};
}

/* ---- the list ------------------------------------------------------------------------------- */

/* The oracle mode is slow by design, so a few of its figures are enough. With `tiny`, only one
 * matrix is timed in all formats. */
static bool is_wanted(const format &f, const model &m, const shape &s, int M, bool tiny) {
    if (s.K % (f.fp8 ? 1 : dtype_block_elements(f.type)) != 0) return false;
    if (tiny && s.ending != RESIDUAL && f.type != DTYPE_BF16 && f.type != DTYPE_Q4_1) return false;
    if (f.type == DTYPE_F32)
        return M <= 32 && m.K < 1024 && s.ending != FLOATS && s.ending != GATED;
    return true;
}

static void list_matrix(std::vector<point> *points, const model &m, const shape &s, bool tiny) {
    if (!tiny && cublas_ready()) {
        const size_t bytes = 2 * (size_t)s.rows() * (size_t)s.K;
        auto w = share<timed_memory>([=] {
            return std::make_shared<timed_memory>(
                up_to_256(bytes) * (size_t)cold_copies(bytes, 512), BF16_SMALL);
        });
        for (int M : row_counts(tiny)) points->push_back(cublas_point(w, m, s, M));
    }
    for (const format &f : formats) {
        const format *chosen = &f;
        auto w = share<weights>([=] { return make_weights(*chosen, s); });
        for (int M : row_counts(tiny))
            if (is_wanted(f, m, s, M, tiny)) points->push_back(product_point(w, m, f, s, M));
    }
}

std::vector<point> list_products(bool tiny) {
    std::vector<point> points;
    for (const model &m : models(tiny))
        for (const shape &s : shapes_of(m)) list_matrix(&points, m, s, tiny);
    return points;
}
