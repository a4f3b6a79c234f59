/* Ops on rows against double precision, for every type of activations and awkward lengths. */
#include "kernels/cuda/rows.cuh"

#include <math.h>

#include "tests/cuda/support.h"

/* On and around a vector, a warp, a block of threads, and more than 48 KiB of shared memory. */
static const int lengths[] = {1, 7, 8, 33, 64, 255, 576, 2048, 2056, 13000};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

/* ---- norms ---------------------------------------------------------------------------------- */

struct norm_case {
    int M, K;
    bool layer, residual;
    floats x, add, gain, bias;
};

static norm_case make_norm(enum dtype act, int M, int K, bool layer, bool residual) {
    uint64_t state = 11 + (uint64_t)K;
    size_t n = (size_t)M * (size_t)K;
    norm_case c{M, K, layer, residual, {}, {}, {}, {}};
    c.x = rounded(act, random_vector(&state, n));
    c.add = rounded(act, random_vector(&state, n));
    c.gain = random_vector(&state, (size_t)K);
    c.bias = random_vector(&state, (size_t)K);
    for (float &value : c.x) value += layer ? 3.0f : 0.0f; /* a mean to take away */
    c.x = rounded(act, c.x);
    return c;
}

/* y of one row, from x as it is stored after the addition. */
static void norm_row(const norm_case &c, const float *x, float *y) {
    double sum = 0, squares = 0;
    for (int k = 0; k < c.K; k++) sum += (double)x[k];
    double mean = c.layer ? sum / c.K : 0;
    for (int k = 0; k < c.K; k++) squares += ((double)x[k] - mean) * ((double)x[k] - mean);
    double r = 1 / sqrt(squares / c.K + (double)1e-5f);
    for (int k = 0; k < c.K; k++)
        y[k] = (float)(((double)x[k] - mean) * r * (double)c.gain[(size_t)k] +
                       (c.layer ? (double)c.bias[(size_t)k] : 0));
}

static void check_norm(enum dtype act, const norm_case &c) {
    buffer x(packed(act, c.x)), add(packed(act, c.add)), gain(c.gain), bias(c.bias), y(x.bytes);
    rows_norm(act, y.data, x.data, c.residual ? add.data : nullptr, gain.as<float>(),
              c.layer ? bias.as<float>() : nullptr, c.M, c.K, 1e-5f, test_stream());
    floats after = c.x, want(c.x.size());
    for (size_t i = 0; c.residual && i < after.size(); i++) after[i] += c.add[i];
    after = rounded(act, after);
    for (int m = 0; m < c.M; m++) norm_row(c, &after[(size_t)(m * c.K)], &want[(size_t)(m * c.K)]);
    std::string what = text("norm of %d x %d, type %d, layer %d, residual %d", c.M, c.K, act,
                            c.layer, c.residual);
    check_close(read_activations(act, x), after, 0, 0, what + ": x");
    check_close(read_activations(act, y), want, rounding_of(act), c.layer ? 1 : 0.02, what);
}

START_TEST(norms_are_right) {
    int K = lengths[_i];
    for (enum dtype act : activation_types)
        for (int M : {1, 3})
            for (int kind = 0; kind < 4; kind++)
                check_norm(act, make_norm(act, M, K, kind & 1, kind & 2));
}
END_TEST

/* The first launch after the addition reads what it has stored itself: in place too. */
START_TEST(a_norm_may_be_in_place) {
    norm_case c = make_norm(DTYPE_BF16, 5, 64, false, false);
    buffer x(packed(DTYPE_BF16, c.x)), gain(c.gain);
    floats want(c.x.size());
    for (int m = 0; m < c.M; m++) norm_row(c, &c.x[(size_t)(m * c.K)], &want[(size_t)(m * c.K)]);
    rows_norm(DTYPE_BF16, x.data, x.data, nullptr, gain.as<float>(), nullptr, c.M, c.K, 1e-5f,
              test_stream());
    check_close(read_activations(DTYPE_BF16, x), want, rounding_of(DTYPE_BF16), 0.02, "in place");
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_rows");
    TCase *norms = tcase_create("norms");
    tcase_set_timeout(norms, 120);
    tcase_add_loop_test(norms, norms_are_right, 0, N_LENGTHS);
    tcase_add_test(norms, a_norm_may_be_in_place);
    suite_add_tcase(suite, norms);
    return suite_main(suite);
}
