/* Products of 17 and more rows by mma.sync and by wgmma: their times, and how many results differ
 * in bits. Also products with fp8 weights, for which wgmma needs the rows in e4m3. Only devices of
 * capability 9.0 have wgmma; other devices list none of these points. */
#include "bench/gpu/times.h"

#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/wgmma/wgmma.cuh"

#include <algorithm>
#include <math.h>

struct wgmma_shape {
    const char *matrix;
    int N, K;
};

/* A matrix of bfloat16 or fp8, rows, and the memory for both kinds of multiplication. */
struct two_ways {
    gemm_weights w;
    bool fp8;
    int M;
    size_t stride; /* distance of the matrix's copies */
    int copies;
    static int copies_of(const wgmma_shape &s) {
        return cold_copies((size_t)s.N * (size_t)s.K * 2, 16);
    }
    std::unique_ptr<timed_memory> weights, x, y, counters, parts, wide;
    two_ways(const wgmma_shape &s, int rows, bool fp8);
    void multiply(bool by_wgmma, int copy) const;
    std::vector<uint16_t> product(bool by_wgmma) const;
};

static gemm_source bf16_rows(const void *rows) {
    gemm_source source = {};
    source.type = DTYPE_BF16;
    source.rows = rows;
    return source;
}

/* One scale per row, for both kinds. */
static gemm_source fp8_rows(const void *rows, const float *scales, int K) {
    gemm_source source = {};
    source.fp8 = source.e4m3 = true;
    source.rows = rows;
    source.scales = scales;
    source.scale_rows = 1;
    source.scale_columns = K;
    return source;
}

two_ways::two_ways(const wgmma_shape &s, int rows, bool of_fp8) : fp8(of_fp8), M(rows) {
    const size_t inputs = (size_t)M * (size_t)s.K * 2, outputs = (size_t)M * (size_t)s.N * 2;
    const timed_memory matrix((size_t)s.N * (size_t)s.K * 2, fp8 ? E4M3_ORDINARY : BF16_SMALL);
    timed_memory scales(std::vector<float>((size_t)s.N, 0.001f));
    const gemm_source source =
        fp8 ? fp8_rows(matrix.data, scales.as<float>(), s.K) : bf16_rows(matrix.data);
    stride = (gemm_plan(&w, DTYPE_BF16, &source, s.N, s.K) + 255) / 256 * 256;
    copies = copies_of(s);
    weights = std::make_unique<timed_memory>(stride * (size_t)copies);
    x = std::make_unique<timed_memory>(inputs, BF16_SMALL);
    y = std::make_unique<timed_memory>(outputs);
    counters = std::make_unique<timed_memory>(std::vector<int32_t>(GEMM_SCRATCH_COUNTERS));
    parts = std::make_unique<timed_memory>(gemm_scratch_bytes(DTYPE_BF16, M, std::max(s.N, s.K)));
    wide = std::make_unique<timed_memory>(fp8 ? wide_e4m3_bytes(M, s.K)
                                              : wide_bytes(DTYPE_BF16, M, s.K));
    gemm_place(&w, weights->data);
    gemm_pack(&w, &source, 0, s.N, the_stream());
    cuda_check(cudaStreamSynchronize(the_stream()), "packing");
    weights->repeat(stride);
}

void two_ways::multiply(bool by_wgmma, int copy) const {
    gemm_weights mine = w;
    const gemm_scratch scratch = {
        counters->as<int32_t>(),         parts->as<float>(), parts->bytes,
        by_wgmma ? wide->data : nullptr, wide->bytes,        by_wgmma ? &wgmma_products : nullptr};
    if (fp8) mine.format = by_wgmma ? GEMM_E4M3 : GEMM_FP8; /* the packed bytes are equal */
    gemm_place(&mine, weights->data + (size_t)(copy % copies) * stride);
    gemm(&mine, y->data, x->data, M, nullptr, the_stream(), &scratch);
}

std::vector<uint16_t> two_ways::product(bool by_wgmma) const {
    std::vector<uint16_t> bits(y->bytes / 2);
    multiply(by_wgmma, 0);
    cuda_check(
        cudaMemcpyAsync(bits.data(), y->data, y->bytes, cudaMemcpyDeviceToHost, the_stream()),
        "reading a product");
    cuda_check(cudaStreamSynchronize(the_stream()), "multiplying");
    return bits;
}

static double value_of(uint16_t bits) {
    return (double)__bfloat162float(__ushort_as_bfloat16(bits));
}

/* Compares both kinds. Returns fields: how many numbers have other bits, and the largest difference
 * as a share of the largest number of its row. */
static std::string differing(const two_ways &ways) {
    const std::vector<uint16_t> by_mma = ways.product(false), by_wgmma = ways.product(true);
    const size_t row = by_mma.size() / (size_t)ways.M;
    int n = 0;
    double largest = 0;
    for (size_t i = 0; i < by_mma.size(); i += row) {
        double size = 0, apart = 0;
        for (size_t k = i; k < i + row; k++) {
            n += by_mma[k] != by_wgmma[k];
            size = std::max(size, fabs(value_of(by_mma[k])));
            apart = std::max(apart, fabs(value_of(by_mma[k]) - value_of(by_wgmma[k])));
        }
        if (apart > 0) largest = std::max(largest, apart / std::max(size, 1e-30));
    }
    return fields("numbers", (double)by_mma.size(), "differ", n, "largest", largest);
}

/* One kind for M rows. */
static point one_way(const wgmma_shape &s, int M, bool fp8, bool by_wgmma) {
    auto ways = share<two_ways>([=] { return std::make_shared<two_ways>(s, M, fp8); });
    const double N = s.N, K = s.K, rows = M;
    return {fields("kernel", by_wgmma ? "wgmma" : "mma.sync", "weights", fp8 ? "fp8" : "bf16",
                   "matrix", s.matrix, "N", s.N, "K", s.K, "rows", M),
            (fp8 ? 1 : 2) * N * K + 2 * (rows * K + rows * N),
            2 * rows * N * K,
            two_ways::copies_of(s),
            [=]() -> call {
                auto mine = ways->get();
                return [=](int i) { mine->multiply(by_wgmma, i); };
            },
            nullptr};
}

/* Both kinds compared; its time is that of wgmma on cached weights. */
static point comparison(const wgmma_shape &s, int M) {
    auto ways = share<two_ways>([=] { return std::make_shared<two_ways>(s, M, false); });
    const double N = s.N, K = s.K, rows = M;
    return {fields("kernel", "differ", "weights", "bf16", "matrix", s.matrix, "N", s.N, "K", s.K,
                   "rows", M),
            2 * N * K + 2 * (rows * K + rows * N),
            2 * rows * N * K,
            1,
            [=]() -> call {
                auto mine = ways->get();
                return [=](int) { mine->multiply(true, 0); };
            },
            [=] { return differing(*ways->get()); }};
}

struct wgmma_place {
    wgmma_shape shape;
    int rows;
    bool fp8;
};

/* Llama-3.1-8B's matrices, with gate and up as one matrix. */
static std::vector<wgmma_place> places(bool tiny) {
    using numbers = std::vector<int>;
    const std::vector<wgmma_shape> shapes = tiny
                                                ? std::vector<wgmma_shape>{{"tiny", 136, 128}}
                                                : std::vector<wgmma_shape>{{"qkv", 6144, 4096},
                                                                           {"o", 4096, 4096},
                                                                           {"gate+up", 28672, 4096},
                                                                           {"down", 4096, 14336}};
    std::vector<wgmma_place> all;
    if (!has_wgmma()) return all;
    for (const wgmma_shape &s : shapes) {
        for (int M : tiny ? numbers{24, 70} : numbers{32, 64, 128, 256, 512, 2048})
            all.push_back({s, M, false});
        for (int M : tiny ? numbers{3} : numbers{1, 16, 32, 64, 512, 2048})
            all.push_back({s, M, true});
    }
    return all;
}

/* mma.sync has a list of its own, so its times are known whatever wgmma does. */
std::vector<point> list_mma(bool tiny) {
    std::vector<point> points;
    for (const wgmma_place &p : places(tiny))
        points.push_back(one_way(p.shape, p.rows, p.fp8, false));
    return points;
}

std::vector<point> list_wgmma(bool tiny) {
    std::vector<point> points;
    for (const wgmma_place &p : places(tiny))
        if (!p.fp8) points.push_back(comparison(p.shape, p.rows));
    for (const wgmma_place &p : places(tiny))
        points.push_back(one_way(p.shape, p.rows, p.fp8, true));
    return points;
}
