/* Matrix products compared with double precision, for all formats, types of activations and
 * epilogues; and compared with each other: a row's bits must not depend on the rest of the batch.
 */
#include <assert.h>
#include <math.h>
#include <memory>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/gemm_data.h"

/* ---- the reference -------------------------------------------------------------------------- */

/* Sums of x[M][K] times w[N][K]^T, and sums of the absolute values of the products. */
struct reference {
    std::vector<double> sum, size;
};
static reference multiply_exactly(const floats &x, const floats &w, int M, int N, int K) {
    reference r;
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                double product = (double)x[(size_t)(m * K + k)] * (double)w[(size_t)(n * K + k)];
                sum += product;
                size += fabs(product);
            }
            r.sum.push_back(sum);
            r.size.push_back(size);
        }
    return r;
}

/* Fails unless each output is within the error of float32 sums and one rounding to `act`. `slope`
 * is the factor by which the epilogue magnifies an error of a sum. */
static void check_products(const floats &got, const std::vector<double> &want,
                           const std::vector<double> &size, enum dtype act, double slope,
                           const std::string &what) {
    for (size_t i = 0; i < want.size(); i++) {
        double most = rounding_of(act) * fabs(want[i]) + slope * 2e-6 * (size[i] + 1e-3);
        if (!(fabs((double)got[i] - want[i]) <= most))
            ck_abort_msg("%s: number %zu of %zu is %.9g, not %.9g (+-%.3g)", what.c_str(), i,
                         want.size(), (double)got[i], want[i], most);
    }
}

/* Returns the bytes of a product of M rows. */
static std::vector<uint8_t> product(const struct gemm_weights *w, const buffer &x, int M,
                                    const struct gemm_epilogue *end = nullptr) {
    const struct gemm_job job = {w, nullptr, end};
    return multiplied(&job, x, nullptr, M);
}

static void check_product(const kind &k, enum dtype act, int M, int N, int K) {
    rows r = make_rows(k, N, K, 1);
    matrix_on_device w(k, act, r);
    floats x = make_x(act, M, K);
    buffer on_device(packed(act, x));
    floats got = unpacked(act, product(&w.w, on_device, M));
    floats weights = packed_as_act(k) ? rounded(act, r.weights) : r.weights;
    reference want = multiply_exactly(x, weights, M, N, K);
    check_products(got, want.sum, want.size, act, 1,
                   text("%s, activations %d, %d rows, %d x %d", k.name, act, M, N, K));
}

/* Shapes on and around the sizes of tiles, of both tiled kernels' blocks, of slabs and ranges; K on
 * and around vectors. */
static const int row_counts[] = {1, 8, 9, 16, 17, 33, 65, 129};
static const int shapes[][2] = {{1, 1}, {17, 64}, {16, 200}, {33, 1056}, {130, 328}, {15, 7}};

START_TEST(products_are_right) {
    const kind &k = kinds[_i];
    int turn = _i;
    for (enum dtype act : short_types)
        for (auto &shape : shapes) /* each shape with two of the row counts, in turn */
            for (int i = 0; i < 2; i++, turn += 3)
                check_product(k, act, row_counts[turn % 8], shape[0], whole(k, shape[1]));
}
END_TEST

/* ---- the same bits -------------------------------------------------------------------------- */

enum { MAX_ROWS = 137 };

/* Fails unless rows first .. first + M have the same bytes in a separate batch as among all rows.
 */
static void check_same(const struct gemm_weights *w, const floats &x, int first, int M,
                       const std::vector<uint8_t> &all) {
    auto K = (size_t)w->K, row = all.size() / MAX_ROWS;
    floats part(x.begin() + first * w->K, x.begin() + (long)((size_t)(first + M) * K));
    auto bytes = product(w, buffer(packed(w->act, part)), M);
    ck_assert_msg(memcmp(bytes.data(), &all[(size_t)first * row], bytes.size()) == 0,
                  "rows %d to %d have other bytes than among %d", first, first + M, MAX_ROWS);
}

START_TEST(a_row_has_the_same_bits_in_any_batch) {
    const kind &k = kinds[_i];
    for (enum dtype act : activation_types) {
        if (act == DTYPE_F32 && _i > 0) continue; /* one format in float32 */
        int N = 37, K = whole(k, 333);
        matrix_on_device w(k, act, make_rows(k, N, K, 3));
        floats x = make_x(act, MAX_ROWS, K);
        auto all = product(&w.w, buffer(packed(act, x)), MAX_ROWS);
        ck_assert_msg(product(&w.w, buffer(packed(act, x)), MAX_ROWS) == all, "launched twice");
        for (int M : {1, 2, 3, 8, 9, 16, 17, 33, 64}) check_same(&w.w, x, 0, M, all);
        check_same(&w.w, x, 20, 100, all);
        check_same(&w.w, x, 136, 1, all);
        check_same(&w.w, x, 90, 11, all);
    }
}
END_TEST

/* Ranges of 9 slabs and more, so the skinny kernel fills its buffers for weights three times. */
START_TEST(long_ranges_are_right) {
    const kind &k = kinds[_i];
    enum dtype act = short_types[_i % 2];
    int N = 5, K = whole(k, 16 * 9 * 64 + 40), M = 17;
    rows r = make_rows(k, N, K, 4);
    matrix_on_device w(k, act, r);
    floats x = make_x(act, M, K), few(x.begin(), x.begin() + 9 * K);
    auto all = product(&w.w, buffer(packed(act, x)), M);
    auto part = product(&w.w, buffer(packed(act, few)), 9);
    ck_assert_msg(memcmp(part.data(), all.data(), part.size()) == 0, "the kernels differ");
    reference want =
        multiply_exactly(x, packed_as_act(k) ? rounded(act, r.weights) : r.weights, M, N, K);
    check_products(unpacked(act, all), want.sum, want.size, act, 1, text("%s, long", k.name));
}
END_TEST

/* A NaN of one request does not reach another, also not through the padding of K. */
START_TEST(a_nan_stays_in_its_row) {
    const kind &k = kinds[_i];
    for (enum dtype act : activation_types)
        for (int M : {5, 20, 70}) {
            int N = 20, K = whole(k, 72);
            matrix_on_device w(k, act, make_rows(k, N, K, 3));
            floats x = make_x(act, M, K);
            auto want = product(&w.w, buffer(packed(act, x)), M);
            for (int i = 0; i < K; i++) x[(size_t)i] = NAN;
            auto got = product(&w.w, buffer(packed(act, x)), M);
            size_t row = want.size() / (size_t)M;
            ck_assert_msg(memcmp(&got[row], &want[row], want.size() - row) == 0,
                          "%s, activations %d, %d rows", k.name, act, M);
            for (float y : unpacked(act, {got.begin(), got.begin() + (long)row})) ck_assert(y != y);
        }
}
END_TEST

/* ---- epilogues, packing --------------------------------------------------------------------- */

struct ending {
    bool gated, bias, residual, float_out, activate;
    enum activation activation;
    float scale, cap;
};

static double activated_exactly(enum activation kind, double x) {
    if (kind == ACTIVATION_SILU) return x / (1 + exp(-x));
    if (kind == ACTIVATION_RELU) return x > 0 ? x : 0;
    if (kind == ACTIVATION_RELU_SQUARED) return x > 0 ? x * x : 0;
    if (kind == ACTIVATION_GELU) return 0.5 * x * (1 + erf(x / sqrt(2)));
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* An activation's slope is at most 1.13, except that of the square. */
static double slope_at(enum activation kind, double x) {
    return kind == ACTIVATION_RELU_SQUARED ? 2 * fmax(x, 0) + 1 : 1.13;
}

/* Applies the epilogue to sums; sizes grow by the added numbers. */
static void end_exactly(const ending &e, reference *r, const reference *up, const floats &bias,
                        const floats &residual, int N) {
    for (size_t i = 0; i < r->sum.size(); i++) {
        size_t n = i % (size_t)N;
        double value = r->sum[i] + (e.bias ? (double)bias[n] : 0);
        const double slope = slope_at(e.activation, value);
        if (e.gated || e.activate) value = activated_exactly(e.activation, value);
        if (e.activate || (e.gated && slope > 1.13)) r->size[i] = slope * r->size[i] + 1;
        if (e.gated) {
            const double gate = value;
            double other = up->sum[i] + (e.bias ? (double)bias[(size_t)N + n] : 0);
            r->size[i] =
                (r->size[i] + 1) * (fabs(other) + 1) + (up->size[i] + 1) * (fabs(gate) + 1);
            value = gate * other;
        }
        value *= (double)e.scale;
        if (e.cap != 0) value = (double)e.cap * tanh(value / (double)e.cap);
        r->size[i] += 1;
        r->sum[i] = value + (e.residual ? (double)residual[i] : 0);
    }
}

static void check_ending(const kind &k, enum dtype act, const ending &e, int M, int N, int K) {
    rows a = make_rows(k, N, K, 1), b = make_rows(k, N, K, 2);
    matrix_on_device w(k, act, a), gated(k, act, b);
    uint64_t state = 77;
    floats x = make_x(act, M, K), bias = random_vector(&state, (size_t)(2 * N));
    floats residual = rounded(act, random_vector(&state, (size_t)(M * N)));
    buffer on_device(packed(act, x)), biases(bias), residuals(packed(act, residual));
    struct gemm_epilogue end = {e.bias ? biases.as<float>() : nullptr,
                                e.residual ? residuals.data : nullptr,
                                e.float_out,
                                e.bias ? biases.as<float>() + N : nullptr,
                                e.activate,
                                e.activation,
                                e.scale,
                                e.cap};
    enum dtype out = e.float_out ? DTYPE_F32 : act;
    const struct gemm_job job = {&w.w, nullptr, &end, e.gated ? &gated.w : nullptr};
    floats got = unpacked(out, multiplied(&job, on_device, nullptr, M));
    auto weights = [&](const rows &r) {
        return packed_as_act(k) ? rounded(act, r.weights) : r.weights;
    };
    reference want = multiply_exactly(x, weights(a), M, N, K);
    reference up = multiply_exactly(x, weights(b), M, N, K);
    end_exactly(e, &want, &up, bias, residual, N);
    check_products(got, want.sum, want.size, out, 2,
                   text("%s, activations %d, %d rows, ending %d%d%d%d%d, activation %d, cap %g",
                        k.name, act, M, e.gated, e.bias, e.residual, e.float_out, e.activate,
                        e.activation, (double)e.cap));
}

/* The kernel for few rows and both shapes of the kernel for many rows, for one format. */
static void check_endings(const ending &e, int *turn) {
    const int K = 96, N = *turn % 2 ? 21 : 39;
    for (enum dtype act : activation_types)
        for (int M : {5, 40, 70}) {
            const kind &k = kinds[(*turn)++ % N_FORMATS];
            if (e.gated && act == DTYPE_F32) continue; /* float32 has no pairs */
            /* gated squares leave the range of float16 */
            if (e.gated && e.activation == ACTIVATION_RELU_SQUARED && act == DTYPE_F16) continue;
            check_ending(k, act, e, M, N, whole(k, K));
        }
}

START_TEST(epilogues_are_right) {
    for (int bits = 1; bits < 16; bits++) {
        int turn = bits;
        check_endings({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, false,
                       ACTIVATION_SILU, 1, 0},
                      &turn);
    }
}
END_TEST

START_TEST(activations_are_right) {
    int turn = _i;
    for (bool gated : {true, false})
        check_endings({gated, turn % 2 == 0, false, false, !gated, (enum activation)_i, 1, 0},
                      &turn);
}
END_TEST

START_TEST(scales_and_caps_are_right) {
    int turn = 0;
    for (float cap : {0.0f, 2.5f})
        check_endings({false, true, false, true, false, ACTIVATION_SILU, 0.375f, cap}, &turn);
}
END_TEST

START_TEST(a_residual_may_be_the_output) {
    const kind &k = kinds[2];
    for (int M : {3, 40}) {
        int N = 24, K = 64;
        matrix_on_device w(k, DTYPE_BF16, make_rows(k, N, K, 1));
        uint64_t state = 1;
        floats residual = random_vector(&state, (size_t)(M * N));
        buffer x(packed(DTYPE_BF16, make_x(DTYPE_BF16, M, K)));
        buffer apart(packed(DTYPE_BF16, residual)), y(packed(DTYPE_BF16, residual));
        struct gemm_epilogue end = {nullptr, apart.data, false},
                             in_place = {nullptr, y.data, false};
        auto want = product(&w.w, x, M, &end);
        gemm(&w.w, y.data, x.data, M, &in_place, test_stream());
        ck_assert(y.read<uint8_t>() == want);
    }
}
END_TEST

/* Queries, keys and values in one matrix have the results of separate matrices. */
START_TEST(matrices_may_be_packed_in_parts) {
    const kind &k = kinds[_i];
    for (enum dtype act : activation_types) {
        int N = 75, K = whole(k, 70), cut = k.scale_columns ? 48 : 32;
        rows all = make_rows(k, N, K, 1);
        matrix_on_device whole_one(k, act, all), parts(k, act, N, K);
        auto part = [&](int first, int count) {
            size_t row = all.bytes.size() / (size_t)N;
            size_t scale = k.fp8 ? (size_t)across(k, K) : 0, by = (size_t)scale_rows(k);
            rows p{count, K, {}, {}, {}};
            p.bytes.assign(all.bytes.begin() + (long)(row * (size_t)first),
                           all.bytes.begin() + (long)(row * (size_t)(first + count)));
            if (k.fp8)
                p.scales.assign(all.scales.begin() + (long)((size_t)first / by * scale),
                                all.scales.begin() +
                                    (long)(((size_t)(first + count) + by - 1) / by * scale));
            return p;
        };
        parts.pack(k, cut, part(cut, N - cut));
        parts.pack(k, 0, part(0, cut));
        ck_assert_msg(whole_one.memory.bytes == parts.memory.bytes, "sizes");
        buffer x(packed(act, make_x(act, 2, K)));
        ck_assert_msg(product(&whole_one.w, x, 2) == product(&parts.w, x, 2), "%s in parts",
                      k.name);
    }
}
END_TEST

/* ---- several products of one launch --------------------------------------------------------- */

/* Products of the same x by gemm_many have the bytes of separate launches. */
static void check_many(const std::vector<const kind *> &of, const std::vector<int> &outputs,
                       enum dtype act, int M, int K) {
    std::vector<std::unique_ptr<matrix_on_device>> w;
    std::vector<std::unique_ptr<buffer>> y;
    std::vector<struct gemm_job> jobs;
    buffer x(packed(act, make_x(act, M, K))), bias(floats(4096, 0.5f));
    const struct gemm_epilogue end = {bias.as<float>(), nullptr, true};
    for (size_t i = 0; i < of.size(); i++) {
        w.emplace_back(new matrix_on_device(*of[i], act, make_rows(*of[i], outputs[i], K, i + 1)));
        y.emplace_back(new buffer((size_t)M * (size_t)outputs[i] * 4));
        const bool pair = i >= 2 && gemm_is_pair(&w[i]->w, &w[i - 2]->w, M);
        jobs.push_back(
            {&w[i]->w, y[i]->data, i == 1 ? &end : nullptr, pair ? &w[i - 2]->w : nullptr});
    }
    gemm_many(jobs.data(), (int)jobs.size(), x.data, nullptr, M, test_stream());
    for (size_t i = 0; i < of.size(); i++) {
        auto want = multiplied(&jobs[i], x, nullptr, M), got = y[i]->read<uint8_t>();
        got.resize(want.size());
        ck_assert_msg(got == want, "product %zu of %zu, %d rows, %s", i, of.size(), M, of[i]->name);
    }
}

START_TEST(products_may_share_a_launch) {
    const kind *all[] = {&kinds[2], &kinds[5], &kinds[8], &kinds[1]};
    for (enum dtype act : activation_types)
        for (int M : {1, 8, 13, 20, 70}) {
            check_many({all[0], all[3], all[0]}, {37, 5, 130}, act, M, 72);
            check_many({all[0], all[3], all[0]}, {37, 20, 37}, act, M, 72);
            check_many({all[1], all[1]}, {16, 33}, act, M, 96);
            if (M > 8 && M < 70)
                check_many({all[0], all[1], all[0], all[3], all[2], all[1], all[0]},
                           {16, 40, 3, 20, 20, 17, 33}, act, M, 96);
        }
}
END_TEST

/* One matrix has 8 ranges, the others as many as slabs, so in one block some warps are idle. */
START_TEST(shared_launches_bear_other_ranges) {
    for (int M : {2, 12})
        check_many({&kinds[5], &kinds[5], &kinds[5]}, {20, 4096, 7}, DTYPE_BF16, M, 9 * 64 + 32);
}
END_TEST

/* ---- K divided among blocks ------------------------------------------------------------------ */

/* Memory for sharing. Its check at the end fails unless the counters are zero again. */
struct shared_memory {
    buffer counters{std::vector<int32_t>(GEMM_SCRATCH_COUNTERS)};
    buffer parts;
    struct gemm_scratch all;
    explicit shared_memory(size_t bytes)
        : parts(bytes), all{counters.as<int32_t>(), parts.as<float>(), bytes} {}
    void check() {
        for (int32_t counter : counters.read<int32_t>()) ck_assert_int_eq(counter, 0);
    }
};

/* A matrix, a pair and a narrow matrix in one launch, whose blocks divide ranges of 11 slabs and
 * more among them, have the bytes of separate launches. */
START_TEST(shared_k_keeps_the_bits) {
    const kind &k = kinds[_i];
    const enum dtype act = short_types[_i % 2];
    const int M = _i % 3 ? 17 + 20 * (_i % 3) : 66, K = whole(k, 11 * 64 - 24);
    matrix_on_device w(k, act, make_rows(k, 37, K, 1)), gate(k, act, make_rows(k, 21, K, 2)),
        up(k, act, make_rows(k, 21, K, 3)), narrow(k, act, make_rows(k, 3, K, 4));
    buffer x(packed(act, make_x(act, M, K)));
    buffer y[] = {buffer((size_t)M * 37 * 2), buffer((size_t)M * 21 * 2),
                  buffer((size_t)M * 3 * 2)};
    struct gemm_job jobs[] = {
        {&w.w, y[0].data}, {&gate.w, y[1].data, nullptr, &up.w}, {&narrow.w, y[2].data}};
    shared_memory memory(gemm_scratch_bytes(act, M, K));
    const struct gemm_flight apart = gemm_flight(jobs, 3, M, nullptr);
    ck_assert_int_eq(gemm_flight(jobs, 3, M, &memory.all).blocks, apart.blocks * 8);
    for (int again = 0; again < 2; again++) {
        gemm_many(jobs, 3, x.data, nullptr, M, test_stream(), &memory.all);
        for (int i = 0; i < 3; i++)
            ck_assert_msg(y[i].read<uint8_t>() == multiplied(&jobs[i], x, nullptr, M),
                          "product %d of %s, %d rows", i, k.name, M);
        memory.check();
    }
}
END_TEST

/* Without enough memory nothing is shared. Products in float32 and of few rows are never shared. */
START_TEST(sharing_wants_memory) {
    struct gemm_weights w;
    matrix_on_device::plan(&w, kinds[2], DTYPE_BF16, 64, 1024);
    const struct gemm_job job = {&w, nullptr};
    for (int M : {32, 128}) {
        const int alone = gemm_flight(&job, 1, M, nullptr).blocks;
        const size_t sums = (size_t)alone * 16 * (M == 32 ? 32 * 32 : 128 * 128) * sizeof(float);
        struct gemm_scratch scratch = {nullptr, nullptr, sums};
        ck_assert_int_eq(gemm_flight(&job, 1, M, &scratch).blocks, alone * 16);
        scratch.bytes = sums - 1;
        ck_assert_int_eq(gemm_flight(&job, 1, M, &scratch).blocks, alone);
        ck_assert_uint_ge(gemm_scratch_bytes(DTYPE_BF16, M, 1024), sums);
    }
    ck_assert_uint_eq(gemm_scratch_bytes(DTYPE_F32, 2048, 4096), 0);
    ck_assert_uint_eq(gemm_scratch_bytes(DTYPE_F16, GEMM_SKINNY_ROWS, 4096), 0);
    ck_assert_uint_eq(gemm_scratch_bytes(DTYPE_F16, 2048, 14336), 32 << 20);
}
END_TEST

/* A single matrix of Llama-3.1-8B keeps an H200 busy at 32 rows: two blocks on nearly all of its
 * 132 multiprocessors, and more bytes in flight than the 23 KB per multiprocessor that 4.3 TB/s at
 * 0.7 us need. */
START_TEST(llama_fills_the_device) {
    static const int shapes[][2] = {{4096, 4096},  {1024, 4096},  {1024, 4096}, {4096, 4096},
                                    {14336, 4096}, {14336, 4096}, {4096, 14336}};
    const struct gemm_scratch scratch = {nullptr, nullptr,
                                         gemm_scratch_bytes(DTYPE_BF16, 2048, 14336)};
    for (auto &shape : shapes)
        for (int M : {17, 32, 64, 128}) {
            struct gemm_weights w;
            matrix_on_device::plan(&w, kinds[2], DTYPE_BF16, shape[0], shape[1]);
            const struct gemm_job job = {&w, nullptr};
            const struct gemm_flight flight = gemm_flight(&job, 1, M, &scratch);
            ck_assert_msg(flight.blocks >= (M == 128 ? 112 : 256) && flight.bytes >= 24 << 10,
                          "%d x %d, %d rows: %d blocks of %d bytes", shape[0], shape[1], M,
                          flight.blocks, flight.bytes);
        }
}
END_TEST

/* The largest ratio of packed bytes to file bytes. Some types are packed as larger ones. */
static double packed_as_larger(enum dtype type) {
    switch (type) {
    case DTYPE_IQ4_NL:
        return 1.9; /* packed as Q8_0 */
    case DTYPE_Q3_K:
        return 1.92; /* packed as Q6_K */
    case DTYPE_INT4:
        return 1.15; /* minima in float32 */
    case DTYPE_INT4H:
        return 1.28; /* packed as INT4 */
    case DTYPE_TQ1_0:
    case DTYPE_TQ2_0:
    case DTYPE_Q2_0:
        return 2.7; /* packed as Q4_0 */
    case DTYPE_Q1_0:
        return 4.1; /* the same */
    default:
        return 1.03;
    }
}

/* A packed matrix is no larger than its file, except for padding and the types above. */
START_TEST(packed_bytes_are_those_of_the_file) {
    for (const kind &k : kinds) {
        if (k.type == DTYPE_F32 && !k.fp8) continue;
        int N = 512, K = 4096;
        struct gemm_weights w;
        size_t bytes = matrix_on_device::plan(&w, k, DTYPE_BF16, N, K);
        size_t file = k.fp8 ? (size_t)(N * K) : dtype_bytes(k.type, (size_t)(N * K));
        double more = (double)bytes / (double)file;
        if (packed_as_act(k) && k.type != DTYPE_F16 && k.type != DTYPE_BF16) continue;
        ck_assert_msg(more < (k.scale_columns ? 1.07 : packed_as_larger(k.type)),
                      "%s: %g of the file", k.name, more);
    }
}
END_TEST

/* ---- float32 -------------------------------------------------------------------------------- */

/* Fails unless the bytes are those of the CPU's oracle mode. */
static void check_oracle(const kind &k, int M, int N, int K) {
    rows r = make_rows(k, N, K, 9);
    matrix_on_device w(k, DTYPE_F32, r);
    floats x = make_x(DTYPE_F32, M, K), want((size_t)(M * N));
    floats got = unpacked(DTYPE_F32, product(&w.w, buffer(packed(DTYPE_F32, x)), M));
    struct backend *cpu = open_backend("plain", 1, M, K);
    struct matrix *matrix;
    struct err err;
    ck_assert_int_eq(
        cpu->memory->matrix_new(cpu, &matrix, k.type, N, K, r.bytes.data(), MATRIX_FLOAT32, &err),
        0);
    float *y = want.data();
    const struct linear linear = {matrix, nullptr};
    cpu->compute->matmul(cpu, &y, x.data(), nullptr, &linear, 1, M);
    cpu->memory->matrix_free(cpu, matrix);
    backend_close(cpu);
    assert_same_floats(got.data(), want.data(), want.size(), k.name);
}

START_TEST(float32_is_the_oracle) {
    for (const kind &k : kinds)
        if (!k.fp8)
            for (int M : {1, 16, 18}) check_oracle(k, M, 67, whole(k, 70));
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    const bool watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_gemm");
    TCase *products = tcase_create("products"), *bits = tcase_create("bits");
    TCase *endings = tcase_create("endings"), *packing = tcase_create("packing");
    TCase *exact = tcase_create("float32");
    tcase_add_loop_test(products, products_are_right, 0, N_KINDS);
    tcase_add_loop_test(products, long_ranges_are_right, 0, N_FORMATS);
    /* the kernels of other formats have the same watched accesses */
    tcase_add_loop_test(bits, a_row_has_the_same_bits_in_any_batch, 0, watched ? 2 : N_FORMATS);
    tcase_add_loop_test(bits, a_nan_stays_in_its_row, 0, 4);
    tcase_add_test(endings, epilogues_are_right);
    tcase_add_loop_test(endings, activations_are_right, 0, ACTIVATION_RELU_SQUARED + 1);
    tcase_add_test(endings, scales_and_caps_are_right);
    tcase_add_test(endings, a_residual_may_be_the_output);
    tcase_add_test(products, products_may_share_a_launch);
    tcase_add_test(products, shared_launches_bear_other_ranges);
    tcase_add_loop_test(bits, shared_k_keeps_the_bits, 0, N_FORMATS);
    tcase_add_test(products, sharing_wants_memory);
    tcase_add_test(products, llama_fills_the_device);
    tcase_add_loop_test(packing, matrices_may_be_packed_in_parts, 0, N_KINDS);
    tcase_add_test(packing, packed_bytes_are_those_of_the_file);
    tcase_add_test(exact, float32_is_the_oracle);
    for (TCase *cases : {products, bits, endings, packing, exact}) {
        tcase_set_timeout(cases, 300);
        suite_add_tcase(suite, cases);
    }
    return suite_main(suite);
}
