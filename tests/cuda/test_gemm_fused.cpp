/* Operations that a product may include: a norm of its rows, and the gate of a gated MLP. The bytes
 * equal those of the separate kernels, and of the kernels for many rows. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/rows/rows.cuh"
#include "tests/cuda/gemm_data.h"

/* Rows for both kernels for many rows, and for the smaller of the two. */
enum { MANY_ROWS = 70, SOME_ROWS = 17, MAX_FEW = GEMM_SKINNY_ROWS };
static const int few[] = {1, 3, 8, 9, MAX_FEW};

/* Rows first .. first + M of x. */
static buffer some_rows(enum dtype act, const floats &x, int K, int first, int M) {
    return buffer(packed(act, floats(x.begin() + first * K, x.begin() + (first + M) * K)));
}

/* Fails unless `part` equals rows first .. first + M of `all`. */
static void check_part(const std::vector<uint8_t> &part, const std::vector<uint8_t> &all, int first,
                       int M, const std::string &what) {
    const size_t row = part.size() / (size_t)M;
    ck_assert_msg(memcmp(part.data(), &all[(size_t)first * row], part.size()) == 0, "%s",
                  what.c_str());
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* A gate and up matrix as a pair, with the most ranges and with few. */
static void check_pair(const kind &k, enum dtype act, int N, int K) {
    matrix_on_device gate(k, act, make_rows(k, N, K, 1)), up(k, act, make_rows(k, N, K, 2));
    const struct gemm_job job = {&gate.w, nullptr, nullptr, &up.w};
    const floats x = make_x(act, MANY_ROWS, K);
    const auto all = multiplied(&job, some_rows(act, x, K, 0, MANY_ROWS), nullptr, MANY_ROWS);
    for (int M : {1, 8, 9, (int)MAX_FEW, 17, 64})
        check_part(multiplied(&job, some_rows(act, x, K, 3, M), nullptr, M), all, 3, M,
                   text("a pair of %s, K %d, %d rows", k.name, K, M));
}

START_TEST(a_pair_has_the_same_bits_in_any_batch) {
    const kind &k = kinds[_i];
    check_pair(k, short_types[_i % 2], 37, whole(k, 200));
    check_pair(k, short_types[(_i + 1) % 2], 16, whole(k, 17 * 64));
}
END_TEST

/* If the two matrices are exchanged, so are the halves. */
START_TEST(a_pair_has_its_own_matrices) {
    const int N = 40, K = 96, M = 5;
    const kind &k = kinds[_i];
    matrix_on_device a(k, DTYPE_BF16, make_rows(k, N, whole(k, K), 1));
    matrix_on_device b(k, DTYPE_BF16, make_rows(k, N, whole(k, K), 2));
    const buffer x(packed(DTYPE_BF16, make_x(DTYPE_BF16, M, whole(k, K))));
    const struct gemm_epilogue wide = {nullptr, nullptr, true};
    const struct gemm_job apart[] = {{&a.w, nullptr, &wide}, {&b.w, nullptr, &wide}};
    const struct gemm_job pair = {&a.w, nullptr, &wide, &b.w};
    const floats gate = unpacked(DTYPE_F32, multiplied(&apart[0], x, nullptr, M));
    const floats up = unpacked(DTYPE_F32, multiplied(&apart[1], x, nullptr, M));
    floats want(gate.size());
    for (size_t i = 0; i < want.size(); i++)
        want[i] = (float)((double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i]);
    check_close(unpacked(DTYPE_F32, multiplied(&pair, x, nullptr, M)), want, 1e-6, 1, k.name);
}
END_TEST

START_TEST(only_matrices_that_are_alike_are_a_pair) {
    auto make = [](int i, enum dtype act, int N, int K) {
        struct gemm_weights w;
        matrix_on_device::plan(&w, kinds[i], act, N, K);
        return w;
    };
    const struct gemm_weights w = make(2, DTYPE_BF16, 32, 256);
    for (const struct gemm_weights &other :
         {make(3, DTYPE_BF16, 32, 256), make(2, DTYPE_F16, 32, 256), make(2, DTYPE_BF16, 48, 256),
          make(2, DTYPE_BF16, 32, 320), make(2, DTYPE_F32, 32, 256)})
        ck_assert(!gemm_is_pair(&w, &other, 1));
    ck_assert(gemm_is_pair(&w, &w, 1000));
    const struct gemm_weights exact = make(0, DTYPE_F32, 32, 256);
    ck_assert(!gemm_is_pair(&exact, &exact, 1));
}
END_TEST

/* ---- norms ---------------------------------------------------------------------------------- */

constexpr float EPSILON = 1e-5f;

/* Rows of many magnitudes, the last row zero. */
static floats uneven_x(enum dtype act, int M, int K) {
    floats x = make_x(act, M, K);
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++)
            x[(size_t)(m * K + k)] *= m == M - 1 ? 0.0f : ldexpf(1, m % 13 - 6);
    return rounded(act, x);
}

/* Products of rows that rows_norm has normalized, in the kernel for many rows. */
static std::vector<uint8_t> normed_apart(const struct gemm_job *job, enum dtype act,
                                         const floats &x, const float *gain, int K) {
    buffer in(packed(act, x)), normed(packed(act, x));
    const struct norm norm = {NORM_RMS, gain, nullptr, EPSILON};
    rows_norm(act, normed.data, in.data, &norm, SOME_ROWS, K, test_stream());
    return multiplied(job, normed, nullptr, SOME_ROWS);
}

static void check_norm(const kind &k, enum dtype act, int N, int K, bool paired) {
    matrix_on_device w(k, act, make_rows(k, N, K, 1)), up(k, act, make_rows(k, N, K, 2));
    const struct gemm_job job = {&w.w, nullptr, nullptr, paired ? &up.w : nullptr};
    const floats x = uneven_x(act, SOME_ROWS, K);
    uint64_t state = 9;
    buffer gain(random_vector(&state, (size_t)K));
    const struct norm norm = {NORM_RMS, gain.as<float>(), nullptr, EPSILON};
    const auto all = normed_apart(&job, act, x, norm.gain, K);
    for (int M : few) {
        if (!gemm_takes_norm(&w.w, &norm, M)) continue;
        const int first = SOME_ROWS - M;
        check_part(multiplied(&job, some_rows(act, x, K, first, M), &norm, M), all, first, M,
                   text("a norm before %s, K %d, %d rows", k.name, K, M));
    }
}

/* Sums of squares of less than one vector per thread, and of more; K that ends within a slab. */
START_TEST(a_norm_has_the_bits_of_its_own_kernel) {
    const kind &k = kinds[_i];
    check_norm(k, short_types[_i % 2], 21, whole(k, 72), false);
    check_norm(k, short_types[(_i + 1) % 2], 16, whole(k, 200), true);
    check_norm(k, short_types[_i % 2], 5, whole(k, 2048 + 264), false);
}
END_TEST

/* Three matrices of two formats: each launch normalizes the rows again. */
START_TEST(products_that_are_joined_share_a_norm) {
    const int K = 96, N = 24, M = 4;
    const enum dtype act = DTYPE_BF16;
    matrix_on_device a(kinds[2], act, make_rows(kinds[2], N, K, 1));
    matrix_on_device b(kinds[5], act, make_rows(kinds[5], 2 * N, K, 2));
    matrix_on_device c(kinds[2], act, make_rows(kinds[2], 7, K, 3));
    const struct gemm_weights *w[] = {&a.w, &b.w, &c.w};
    uint64_t state = 9;
    buffer gain(random_vector(&state, K)), x(packed(act, uneven_x(act, M, K)));
    const struct norm norm = {NORM_RMS, gain.as<float>(), nullptr, EPSILON};
    struct gemm_job jobs[3];
    buffer y((size_t)(M * 4 * N) * 6);
    for (size_t i = 0; i < 3; i++) jobs[i] = {w[i], y.as<uint8_t>() + i * (size_t)(M * 4 * N) * 2};
    gemm_many(jobs, 3, x.data, &norm, M, test_stream());
    const auto got = y.read<uint8_t>();
    for (size_t i = 0; i < 3; i++) {
        const auto want = multiplied(&jobs[i], x, &norm, M);
        ck_assert(memcmp(&got[i * (size_t)(M * 4 * N) * 2], want.data(), want.size()) == 0);
    }
}
END_TEST

/* A launch with less shared memory runs between the recording and its replay. */
START_TEST(a_recorded_norm_keeps_its_memory) {
    const int K = 4096, N = 16, M = 8;
    matrix_on_device w(kinds[2], DTYPE_BF16, make_rows(kinds[2], N, K, 1));
    uint64_t state = 9;
    buffer gain(random_vector(&state, K)), x(packed(DTYPE_BF16, make_x(DTYPE_BF16, M, K)));
    buffer y((size_t)(M * N) * 2);
    const struct norm norm = {NORM_RMS, gain.as<float>(), nullptr, EPSILON};
    const struct gemm_job job = {&w.w, y.data};
    const auto want = multiplied(&job, x, &norm, M);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_OK(cudaStreamBeginCapture(test_stream(), cudaStreamCaptureModeThreadLocal));
    gemm_many(&job, 1, x.data, &norm, M, test_stream());
    CUDA_OK(cudaStreamEndCapture(test_stream(), &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    multiplied(&job, x, &norm, M - 1);
    CUDA_OK(cudaGraphLaunch(exec, test_stream()));
    ck_assert(y.read<uint8_t>() == want);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
}
END_TEST

/* A NaN of one request does not reach another. */
START_TEST(a_nan_stays_in_its_row) {
    const int K = 128, N = 20, M = 6;
    matrix_on_device w(kinds[2], DTYPE_BF16, make_rows(kinds[2], N, K, 3));
    const struct gemm_job job = {&w.w, nullptr};
    buffer gain(floats(K, 1.0f));
    const struct norm norm = {NORM_RMS, gain.as<float>(), nullptr, EPSILON};
    floats x = make_x(DTYPE_BF16, M, K);
    const auto want = multiplied(&job, buffer(packed(DTYPE_BF16, x)), &norm, M);
    x[2 * K + 5] = NAN;
    const auto got = multiplied(&job, buffer(packed(DTYPE_BF16, x)), &norm, M);
    for (int m = 0; m < M; m++)
        ck_assert((memcmp(&got[(size_t)(m * N * 2)], &want[(size_t)(m * N * 2)], N * 2) == 0) ==
                  (m != 2));
}
END_TEST

/* The norm is a separate kernel if the rows would need too much of a block's memory or are not
 * whole vectors. */
START_TEST(a_norm_is_taken_as_far_as_it_fits) {
    auto takes = [](int i, enum dtype act, int K, int M) {
        struct gemm_weights w;
        matrix_on_device::plan(&w, kinds[i], act, 16, K);
        const struct norm rms = {NORM_RMS}, layer = {NORM_LAYER};
        ck_assert(!gemm_takes_norm(&w, &layer, M)); /* LayerNorm is always a separate kernel */
        return gemm_takes_norm(&w, &rms, M);
    };
    for (int i : {2, 3, 5, 8}) {
        ck_assert(takes(i, DTYPE_BF16, 2048, 16) && !takes(i, DTYPE_BF16, 2048, 17));
        ck_assert(takes(i, DTYPE_BF16, 4096, 8) && !takes(i, DTYPE_BF16, 4096, 9));
        ck_assert(takes(i, DTYPE_F16, 32768, 1) && !takes(i, DTYPE_F16, 33024, 1));
    }
    ck_assert(takes(2, DTYPE_BF16, 72, 1) && !takes(2, DTYPE_BF16, 76, 1));
    ck_assert(!takes(2, DTYPE_F32, 64, 1));
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_gemm_fused");
    TCase *pairs = tcase_create("pairs"), *norms = tcase_create("norms");
    tcase_add_loop_test(pairs, a_pair_has_the_same_bits_in_any_batch, 0, N_FORMATS);
    tcase_add_loop_test(pairs, a_pair_has_its_own_matrices, 2, N_FORMATS);
    tcase_add_test(pairs, only_matrices_that_are_alike_are_a_pair);
    tcase_add_loop_test(norms, a_norm_has_the_bits_of_its_own_kernel, 0, N_FORMATS);
    tcase_add_test(norms, products_that_are_joined_share_a_norm);
    tcase_add_test(norms, a_recorded_norm_keeps_its_memory);
    tcase_add_test(norms, a_nan_stays_in_its_row);
    tcase_add_test(norms, a_norm_is_taken_as_far_as_it_fits);
    for (TCase *cases : {pairs, norms}) {
        tcase_set_timeout(cases, 300);
        suite_add_tcase(suite, cases);
    }
    return suite_main(suite);
}
