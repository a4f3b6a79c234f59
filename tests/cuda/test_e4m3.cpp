/* Products of e4m3 by wgmma: fp8 weights times rows that are converted to e4m3. They are compared
 * with a model on the host that adds in the same order (docs/cuda/tensor-cores.md, "e4m3
 * activations") and cuts as the tensor cores do (fused_sum.h), and few rows are compared with many;
 * both to the last bit. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/rows/rows.cuh"
#include "kernels/cuda/wgmma/wgmma.cuh"
#include "tests/cuda/fused_sum.h"
#include "tests/cuda/gemm_data.h"

static const kind e4m3 = {"e4m3", DTYPE_F32, 0, true, 1, true};

/* ---- the model ------------------------------------------------------------------------------ */

static float value_of(uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 127) == 127) return NAN;
    const float size =
        exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return code & 128 ? -size : size;
}
/* Returns the nearest e4m3 number, the even code on a tie, and at most 448. */
static float nearest_e4m3(float x) {
    if (isnan(x)) return NAN;
    int best = 0;
    for (int code = 1; code < 127; code++) {
        const double a = fabs((double)fabsf(x) - value_of((uint8_t)best)),
                     b = fabs((double)fabsf(x) - value_of((uint8_t)code));
        if (b < a || (b == a && code % 2 == 0)) best = code;
    }
    return copysignf(value_of((uint8_t)best), x);
}

/* Rows as the kernel should convert them. */
struct quantised {
    floats codes, scales;
};
static quantised quantise(const floats &x, int M, int K) {
    quantised q = {floats(x.size()), floats((size_t)M)};
    for (int m = 0; m < M; m++) {
        const float *row = &x[(size_t)(m * K)];
        float most = 448 * FLT_MIN;
        for (int k = 0; k < K; k++) most = fmaxf(most, fabsf(row[k]));
        const float inverse = 448 / most;
        q.scales[(size_t)m] = most / 448;
        for (int k = 0; k < K; k++) q.codes[(size_t)(m * K + k)] = nearest_e4m3(row[k] * inverse);
    }
    return q;
}

/* The columns of a slab are stored in another order, but those of a product are adjacent: 32 of
 * them. Zeros follow the last column. */
static float chain_of(const float *x, const float *w, int slab, int slabs, int K) {
    float left[128] = {}, right[128] = {};
    const int first = slab * 64, n = slabs * 64 < K - first ? slabs * 64 : K - first;
    memcpy(left, x + first, (size_t)n * sizeof *x);
    memcpy(right, w + first, (size_t)n * sizeof *w);
    return fused_sum(0, left, right, slabs * 64, E4M3_RULE);
}

/* The sum of an output over all ranges. */
static float sum_of(const float *x, const float *w, int K, int ranges) {
    const int slabs = (K + 63) / 64;
    float total = 0;
    for (int range = 0; range < ranges; range++) {
        float acc = 0;
        const int end = (range + 1) * slabs / ranges;
        for (int slab = range * slabs / ranges; slab < end; slab += 2)
            acc = acc + chain_of(x, w, slab, end - slab < 2 ? 1 : 2, K);
        total = total + acc;
    }
    return total;
}

/* The expected output: x times the codes of a matrix, times the scales. */
static float output_of(const quantised &x, int m, const rows &w, int n, int ranges) {
    floats codes((size_t)w.K);
    for (int k = 0; k < w.K; k++) codes[(size_t)k] = value_of(w.bytes[(size_t)(n * w.K + k)]);
    return sum_of(&x.codes[(size_t)(m * w.K)], codes.data(), w.K, ranges) * w.scales[(size_t)n] *
           x.scales[(size_t)m];
}
static floats outputs_of(const quantised &x, int M, const rows &w, int ranges) {
    floats y((size_t)(M * w.N));
    for (int m = 0; m < M; m++)
        for (int n = 0; n < w.N; n++) y[(size_t)(m * w.N + n)] = output_of(x, m, w, n, ranges);
    return y;
}

/* ---- the device ----------------------------------------------------------------------------- */

/* Exactly the memory that a launch needs, and memory for sharing if asked. check() fails unless the
 * counters are zero again. */
struct e4m3_memory {
    buffer rows, counters, parts;
    struct gemm_scratch scratch;
    e4m3_memory(int M, int K, bool shares)
        : rows(wide_e4m3_bytes(M, K)), counters(std::vector<int32_t>(GEMM_SCRATCH_COUNTERS)),
          parts(shares ? 8 << 20 : 16), scratch() {
        scratch = {counters.as<int32_t>(), parts.as<float>(), parts.bytes, rows.data, rows.bytes,
                   &wgmma_products};
    }
    void check() {
        for (int32_t counter : counters.read<int32_t>()) ck_assert_int_eq(counter, 0);
    }
};

/* Returns the float32 outputs of M rows. */
static floats multiply(const struct gemm_weights &w, enum dtype act, const floats &x, int M,
                       bool shares = false, const struct norm *norm = nullptr) {
    buffer in(packed(act, x)), y((size_t)(M * w.N * 4));
    e4m3_memory memory(M, w.K, shares);
    const struct gemm_epilogue end = {nullptr, nullptr, true};
    const struct gemm_job job = {&w, y.data, &end};
    gemm_many(&job, 1, in.data, norm, M, test_stream(), &memory.scratch);
    const floats got = y.read<float>();
    memory.check();
    return got;
}

static void check_equal(const floats &got, const floats &want, const std::string &what) {
    ck_assert_uint_eq(got.size(), want.size());
    for (size_t i = 0; i < got.size(); i++)
        ck_assert_msg(memcmp(&got[i], &want[i], 4) == 0 || (isnan(got[i]) && isnan(want[i])),
                      "%s: number %zu is %a and should be %a", what.c_str(), i, (double)got[i],
                      (double)want[i]);
}

static floats random_x(enum dtype act, int M, int K, uint64_t seed) {
    uint64_t state = seed;
    return rounded(act, random_vector(&state, (size_t)(M * K)));
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* Shapes on and around the sizes of blocks of rows, tiles, slabs, chains, ranges and the ring. */
static const struct {
    int M, N, K;
    bool shares;
} shapes[] = {{1, 130, 840, true},   {3, 20, 8, false},     {16, 16, 72, true},
              {17, 33, 2184, false}, {64, 15, 136, true},   {65, 130, 328, false},
              {66, 40, 3000, true},  {128, 17, 64, false},  {129, 5, 192, true},
              {9, 300, 128, true},   {137, 128, 712, true}, {8, 144, 4160, false}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(sums_are_the_models) {
    const auto &s = shapes[_i];
    const enum dtype act = short_types[_i % 2];
    const rows w = make_rows(e4m3, s.N, s.K, 1);
    matrix_on_device packed_w(e4m3, act, w);
    ck_assert_int_eq(packed_w.w.format, GEMM_E4M3);
    const floats x = random_x(act, s.M, s.K, 7);
    check_equal(multiply(packed_w.w, act, x, s.M, s.shares),
                outputs_of(quantise(x, s.M, s.K), s.M, w, packed_w.w.ranges),
                text("%d rows, %d x %d", s.M, s.N, s.K));
}
END_TEST

/* Two matrices and a pair in one launch, with a bias, a scale, a residual and 16-bit outputs. */
START_TEST(a_launch_takes_several) {
    const int Ms[] = {5, 40, 70}, M = Ms[_i], N = 72, K = 584;
    const enum dtype act = short_types[_i % 2];
    const rows a = make_rows(e4m3, N, K, 1), b = make_rows(e4m3, 3, K, 2),
               gate = make_rows(e4m3, N, K, 3), up = make_rows(e4m3, N, K, 4);
    matrix_on_device on[] = {{e4m3, act, a}, {e4m3, act, b}, {e4m3, act, gate}, {e4m3, act, up}};
    const floats x = random_x(act, M, K, 3), bias((size_t)N, 0.5f), before = random_x(act, M, 3, 5);
    buffer in(packed(act, x)), biases(bias),
        y[] = {buffer((size_t)(M * N * 4)), buffer(packed(act, before)),
               buffer((size_t)(M * N * 2))};
    struct gemm_epilogue first = {biases.as<float>(), nullptr, true}, added = {nullptr, y[1].data},
                         gated = {};
    added.scale = 0.25f;
    gated.activation = ACTIVATION_RELU;
    const struct gemm_job jobs[] = {{&on[0].w, y[0].data, &first},
                                    {&on[1].w, y[1].data, &added},
                                    {&on[2].w, y[2].data, &gated, &on[3].w}};
    e4m3_memory memory(M, K, _i != 2);
    gemm_many(jobs, 3, in.data, nullptr, M, test_stream(), &memory.scratch);
    memory.check();
    const quantised q = quantise(x, M, K);
    const int ranges = on[0].w.ranges, of_pair = ranges < 8 ? ranges : 8;
    floats want = outputs_of(q, M, a, ranges), sum = outputs_of(q, M, b, ranges),
           left = outputs_of(q, M, gate, of_pair), right = outputs_of(q, M, up, of_pair);
    for (float &v : want) v = v + 0.5f;
    for (size_t i = 0; i < sum.size(); i++) sum[i] = sum[i] * 0.25f + before[i];
    for (size_t i = 0; i < left.size(); i++) left[i] = (left[i] < 0 ? 0 : left[i]) * right[i];
    check_equal(y[0].read<float>(), want, "a product with a bias");
    check_equal(read_activations(act, y[1]), rounded(act, sum), "a product with a residual");
    check_equal(read_activations(act, y[2]), rounded(act, left), "a pair");
}
END_TEST

/* A row has the same bits in a batch of one row and among others, first or last. */
START_TEST(rows_do_not_know_of_one_another) {
    const int N = 70, K = 1096, most = 150;
    const enum dtype act = short_types[_i];
    matrix_on_device w(e4m3, act, make_rows(e4m3, N, K, 1));
    const floats x = random_x(act, most, K, 2), all = multiply(w.w, act, x, most, true);
    for (int M : {1, 15, 16, 17, 63, 64, 65, 128, 129})
        for (int first : {0, most - M}) {
            const floats some(x.begin() + first * K, x.begin() + (first + M) * K);
            check_equal(multiply(w.w, act, some, M, M % 2 == 0),
                        floats(all.begin() + first * N, all.begin() + (first + M) * N),
                        text("%d rows from %d", M, first));
        }
}
END_TEST

/* More pieces than an H200 has multiprocessors, each of one slab, so blocks process several pieces.
 */
START_TEST(blocks_take_several_pieces) {
    const int M = 132 * 128 + 1, K = 8, N = 2;
    const rows w = make_rows(e4m3, N, K, 1);
    matrix_on_device on(e4m3, DTYPE_BF16, w);
    const floats x = random_x(DTYPE_BF16, M, K, 4), got = multiply(on.w, DTYPE_BF16, x, M);
    for (int first = 0; first < M; first += 44 * 128) { /* in the first piece up to the last one */
        const floats one(x.begin() + first * K, x.begin() + (first + 1) * K);
        check_equal(floats(got.begin() + first * N, got.begin() + (first + 1) * N),
                    outputs_of(quantise(one, 1, K), 1, w, 1), text("row %d", first));
    }
}
END_TEST

/* ---- rows ----------------------------------------------------------------------------------- */

/* A norm before the product has the bits of the separate norm kernel, for rows of less than one
 * vector per thread and of more. */
START_TEST(a_norm_has_the_bits_of_its_own_kernel) {
    const int Ms[] = {2, 33, 65}, Ks[] = {72, 2312, 200}, M = Ms[_i], K = Ks[_i];
    const enum dtype act = short_types[_i % 2];
    matrix_on_device w(e4m3, act, make_rows(e4m3, 21, K, 1));
    uint64_t state = 9;
    const floats x = random_x(act, M, K, 6);
    buffer gain(random_vector(&state, (size_t)K)), in(packed(act, x)), normed((size_t)(M * K) * 2);
    const struct norm norm = {NORM_RMS, gain.as<float>(), nullptr, 1e-3f};
    ck_assert(gemm_takes_norm(&w.w, &norm, M));
    rows_norm(act, normed.data, in.data, &norm, M, K, test_stream());
    check_equal(multiply(w.w, act, x, M, false, &norm),
                multiply(w.w, act, read_activations(act, normed), M), text("%d of %d", M, K));
}
END_TEST
START_TEST(other_norms_are_kernels) {
    matrix_on_device w(e4m3, DTYPE_F16, make_rows(e4m3, 16, 64, 1));
    buffer gain(floats(64, 1.0f));
    const struct norm norm = {NORM_LAYER, gain.as<float>(), nullptr, 1e-3f};
    ck_assert(!gemm_takes_norm(&w.w, &norm, 1));
}
END_TEST

/* Kinds of rows, by their numbers at columns 3 and 9 among small numbers. */
static const struct {
    const char *name;
    float at_3, at_9, others;
} kinds_of_rows[] = {
    {"zeros", 0, 0, 0},
    {"a power of two is the largest", 64, -64, 0.5f},
    {"the largest has no room above it", -448, 447, 3},
    {"an outlier leaves others subnormal", 1000, -2, 0.01f},
    {"an outlier leaves nothing else", 0x1p15f, 1, 0x1p-14f},
    {"numbers below what a scale can be", 0x1p-126f, -0x1p-126f, 0x1p-130f},
    {"infinity", INFINITY, 1, 0.5f},
    {"NaN", NAN, -1, 0.5f},
};
enum { N_KINDS_OF_ROWS = sizeof kinds_of_rows / sizeof *kinds_of_rows };

static floats rows_of_kinds(int K) {
    floats x;
    for (const auto &kind : kinds_of_rows)
        for (int k = 0; k < K; k++)
            x.push_back(k == 3   ? kind.at_3
                        : k == 9 ? kind.at_9
                        : k % 3  ? kind.others
                                 : -kind.others);
    return rounded(DTYPE_BF16, x);
}

/* All kinds in one step, so that a NaN has neighbours. */
START_TEST(rows_of_all_kinds) {
    const int K = 136, N = 24, M = N_KINDS_OF_ROWS;
    const rows w = make_rows(e4m3, N, K, 1);
    matrix_on_device on(e4m3, DTYPE_BF16, w);
    const floats x = rows_of_kinds(K), got = multiply(on.w, DTYPE_BF16, x, M),
                 want = outputs_of(quantise(x, M, K), M, w, on.w.ranges);
    for (int m = 0; m < M; m++) {
        check_equal(floats(got.begin() + m * N, got.begin() + (m + 1) * N),
                    floats(want.begin() + m * N, want.begin() + (m + 1) * N),
                    kinds_of_rows[m].name);
        for (int n = 0; n < N; n++) ck_assert_int_eq(isnan(got[(size_t)(m * N + n)]), m >= M - 2);
    }
}
END_TEST

/* Exact numbers: an identity matrix shows the codes, and the scale is a power of two if the largest
 * number is 448 times a power of two. */
START_TEST(codes_are_the_nearest) {
    const int K = 64, M = 20;
    rows w = {K, K, std::vector<uint8_t>((size_t)(K * K)), floats((size_t)K, 1.0f), {}};
    for (int k = 0; k < K; k++) w.bytes[(size_t)(k * K + k)] = 0x38; /* 1 */
    matrix_on_device on(e4m3, DTYPE_F16, w);
    floats x = random_x(DTYPE_F16, M, K, 8), want = x;
    for (int m = 0; m < M; m++) {
        x[(size_t)(m * K)] = 448;
        x[(size_t)(m * K + 1)] = 1.0625f + 0.125f * (float)(m % 8); /* halfway between two codes */
        for (int k = 0; k < K; k++)
            want[(size_t)(m * K + k)] = nearest_e4m3(x[(size_t)(m * K + k)]) + 0.0f; /* no -0 */
    }
    check_equal(multiply(on.w, DTYPE_F16, rounded(DTYPE_F16, x), M), want, "codes");
}
END_TEST

/* ---- which matrices ------------------------------------------------------------------------- */

/* Matrices with scales per block, or with rows that vectors do not divide, keep 16-bit rows. Rows
 * are converted to e4m3 only if asked. */
START_TEST(others_keep_their_format) {
    const struct {
        bool asked;
        int scale_columns, K;
        enum dtype act;
        enum gemm_format format;
    } cases[] = {{true, 0, 64, DTYPE_BF16, GEMM_E4M3}, {true, 0, 72, DTYPE_F16, GEMM_E4M3},
                 {true, 0, 68, DTYPE_BF16, GEMM_FP8},  {true, 64, 128, DTYPE_BF16, GEMM_FP8},
                 {false, 0, 64, DTYPE_BF16, GEMM_FP8}, {true, 0, 64, DTYPE_F32, GEMM_FLOAT}};
    for (const auto &c : cases) {
        kind k = e4m3;
        k.e4m3 = c.asked;
        k.scale_columns = c.scale_columns;
        struct gemm_weights w;
        matrix_on_device::plan(&w, k, c.act, 16, c.K);
        ck_assert_int_eq(w.format, c.format);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_e4m3");
    TCase *sums = tcase_create("sums"), *of_rows = tcase_create("rows");
    tcase_add_loop_test(sums, sums_are_the_models, 0, N_SHAPES);
    tcase_add_loop_test(sums, a_launch_takes_several, 0, 3);
    tcase_add_loop_test(sums, rows_do_not_know_of_one_another, 0, 2);
    tcase_add_test(sums, blocks_take_several_pieces);
    tcase_add_loop_test(of_rows, a_norm_has_the_bits_of_its_own_kernel, 0, 3);
    tcase_add_test(of_rows, other_norms_are_kernels);
    tcase_add_test(of_rows, rows_of_all_kinds);
    tcase_add_test(of_rows, codes_are_the_nearest);
    tcase_add_test(of_rows, others_keep_their_format);
    for (TCase *tests : {sums, of_rows}) {
        tcase_set_timeout(tests, 300);
        suite_add_tcase(suite, tests);
    }
    return suite_main(suite);
}
