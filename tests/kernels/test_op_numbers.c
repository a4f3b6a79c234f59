/* Functions of one number and of rows that model families other than llama use: activations, gates
 * and norms. Each is compared with a formula in double precision, and has the same bytes on every
 * path. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/instructions.h"
#include "support/kernel_data.h"
#include "support/kernel_paths.h"
#include "support/suite_main.h"

enum { MAX_ROWS = 40, N_ROW_COUNTS = 5 };
static const int row_counts[N_ROW_COUNTS] = {1, 2, 15, 17, MAX_ROWS};

/* ---- one number ----------------------------------------------------------------------------- */

START_TEST(tanh_is_accurate) {
    double worst = 0;
    for (double x = 1e-30; x < 100; x *= 1.0000117) {
        float at = (float)x;
        double right = tanh((double)at);
        worst = fmax(worst, fabs((double)plain_tanh(at) - right) / right);
        ck_assert(plain_tanh(-at) == -plain_tanh(at));
    }
    ck_assert_double_lt(worst, 2e-7);
    ck_assert(plain_tanh(0) == 0 && plain_tanh(INFINITY) == 1 && plain_tanh(-1e30f) == -1);
    ck_assert(isnan(plain_tanh(NAN)));
}
END_TEST

static double right_activation(double x, enum activation activation) {
    switch (activation) {
    case ACTIVATION_SILU:
        return x / (1 + exp(-x));
    case ACTIVATION_GELU:
        return x * erfc(-x / sqrt(2)) / 2;
    case ACTIVATION_GELU_TANH:
        return x * (1 + tanh(sqrt(8 / acos(-1)) / 2 * (x + 0.044715 * x * x * x))) / 2;
    case ACTIVATION_RELU_SQUARED:
        return x > 0 ? x * x : 0;
    default:
        return x > 0 ? x : 0;
    }
}

/* The error of an erf, or a tanh, that would cause the error of the result. order.md states it. */
START_TEST(activations_are_accurate) {
    static const double bounds[] = {5e-7, 2e-7, 2.5e-7, 1e-30, 2.5e-6};
    double worst = 0;
    for (double x = -20; x < 20; x += 0.0000317) {
        float at = (float)x;
        double error = fabs((double)plain_activation(at, (enum activation)_i) -
                            right_activation((double)at, (enum activation)_i));
        if (at != 0) worst = fmax(worst, 2 * error / fabs((double)at));
    }
    ck_assert_double_lt(worst, bounds[_i]);
    ck_assert(plain_activation(0, (enum activation)_i) == 0);
    double large = right_activation((double)1e30f, (enum activation)_i);
    ck_assert(plain_activation(1e30f, (enum activation)_i) == (float)large);
    ck_assert(fabsf(plain_activation(-1e4f, (enum activation)_i)) < 1e-30f);
    ck_assert(isnan(plain_activation(NAN, (enum activation)_i)));
}
END_TEST

static void check_activate(const struct path *path, enum activation activation) {
    static const float extremes[] = {0,     -0.0f,  100,    -100,   1e30f, -1e30f, 88, -88.5f,
                                     3e38f, -3e38f, 1e-40f, -1e-9f, 6,     -6,     20, -20};
    enum { N = 20 * LANES };
    uint64_t state = 7;
    float *x = random_floats(&state, N), *times = random_floats(&state, N), right[N], y[N];
    memcpy(x, extremes, sizeof extremes);
    /* up to the range in which each activation is linear or constant */
    for (int i = LANES; i < N; i++) x[i] *= (float)(i / LANES);
    for (int gated = 0; gated < 2; gated++) {
        memcpy(right, x, sizeof right), memcpy(y, x, sizeof y);
        for (int i = 0; i < N; i++) {
            right[i] = plain_activation(x[i], activation);
            if (gated) right[i] = right[i] * times[i];
        }
        path->activate(y, gated ? times : NULL, N, activation);
        assert_same_floats(y, right, N, path->name);
    }
    free(x), free(times);
}

START_TEST(activations_have_the_same_bytes) {
    for (int i = 0; i < N_PATHS; i++)
        if (machine_has(all_paths[i].base)) check_activate(all_paths[i].path, (enum activation)_i);
}
END_TEST

static const struct xielu xielu_numbers = {0.8f, 0.3f, 0.5f, -1e-6f};

/* The rules of struct xielu in double precision. */
static double right_xielu(double x) {
    double p = (double)xielu_numbers.positive, n = (double)xielu_numbers.negative;
    double b = (double)xielu_numbers.linear, limit = (double)xielu_numbers.limit;
    return (x > 0 ? p * x * x : n * (expm1(fmin(x, limit)) - x)) + b * x;
}

START_TEST(xielu_is_accurate_and_the_same) {
    enum { N = 64 * LANES };
    static const float extremes[] = {0, -0.0f, NAN, 1e30f, -1e30f, 3e38f, -1e-40f, -90};
    static float x[N], right[N], y[N];
    for (int i = 0; i < N; i++) x[i] = ((float)i - N / 2) * 0.03125f;
    memcpy(right, x, sizeof right);
    plain_xielu(right, N, &xielu_numbers);
    for (int i = 0; i < N; i++)
        ck_assert_double_eq_tol((double)right[i], right_xielu((double)x[i]),
                                3e-7 * (1e-3 + fabs((double)x[i]) + (double)(x[i] * x[i])));
    memcpy(x, extremes, sizeof extremes);
    plain_xielu(memcpy(right, x, sizeof right), N, &xielu_numbers);
    ck_assert(fabsf(right[0]) < 1e-6f && isnan(right[2]) && right[3] == INFINITY);
    for (int i = 0; i < N_PATHS; i++) {
        if (!machine_has(all_paths[i].base)) continue;
        all_paths[i].path->xielu(memcpy(y, x, sizeof x), N, &xielu_numbers);
        assert_same_floats(y, right, N, all_paths[i].path->name);
    }
}
END_TEST

/* ---- norms ---------------------------------------------------------------------------------- */

/* Gates and ups within the limits, at the limits, and beyond. */
START_TEST(clamped_gates_are_accurate_and_the_same) {
    enum { SIDE = 64, N = SIDE * SIDE };
    static float gate[N], up[N], right[N], y[N];
    for (int i = 0; i < N; i++) {
        gate[i] = (float)(i % SIDE) * 0.5f - 16, up[i] = (float)(i / SIDE) * 0.5f - 16;
        double g = fmin((double)gate[i], 7), u = fmax(fmin((double)up[i], 7), -7);
        double want = g / (1 + exp(-1.702 * g)) * (u + 1);
        right[i] = gate[i];
        plain_activate(&right[i], &up[i], 1, ACTIVATION_CLAMPED);
        ck_assert_double_eq_tol((double)right[i], want, 1e-6 * (fabs(want) + 1));
    }
    gate[3] = up[5] = NAN;
    plain_activate(memcpy(right, gate, sizeof gate), up, N, ACTIVATION_CLAMPED);
    for (int p = 0; p < N_PATHS; p++) {
        struct backend *b = open_path(p, 1, MAX_ROWS, 64);
        if (!b) continue;
        cpu_of(b)->path->activate(memcpy(y, gate, sizeof gate), up, N, ACTIVATION_CLAMPED);
        assert_same_floats(y, right, N, cpu_of(b)->path->name);
        backend_close(b);
    }
}
END_TEST

START_TEST(layernorm_is_accurate_and_the_same) {
    static const int lengths[] = {1, 15, 16, 33, 576};
    int K = lengths[_i];
    uint64_t state = 13 + (uint64_t)K;
    float *x = random_floats(&state, (size_t)K), *gain = random_floats(&state, (size_t)K);
    float *bias = random_floats(&state, (size_t)K), *right = mem_alloc((size_t)K * sizeof *right);
    float *y = mem_alloc((size_t)K * sizeof *y);
    double mean = 0, variance = 0;
    for (int k = 0; k < K; k++) x[k] += 3, mean += (double)x[k] / K;
    for (int k = 0; k < K; k++) variance += ((double)x[k] - mean) * ((double)x[k] - mean) / K;
    plain_layernorm(right, x, gain, bias, K, 1e-5f);
    for (int k = 0; k < K; k++) {
        double z = ((double)x[k] - mean) / sqrt(variance + (double)1e-5f) * (double)gain[k];
        ck_assert_double_le(fabs(z + (double)bias[k] - (double)right[k]), 2e-4 * (1 + fabs(z)));
    }
    for (int i = 0; i < N_PATHS; i++) {
        if (!machine_has(all_paths[i].base)) continue;
        all_paths[i].path->layernorm(y, x, gain, bias, K, 1e-5f);
        assert_same_floats(y, right, (size_t)K, all_paths[i].path->name);
    }
    plain_layernorm(right, x, gain, NULL, K, 1e-5f);
    for (int i = 0; i < N_PATHS; i++) {
        if (!machine_has(all_paths[i].base)) continue;
        memcpy(y, x, (size_t)K * sizeof *y); /* in place */
        all_paths[i].path->layernorm(y, y, gain, NULL, K, 1e-5f);
        assert_same_floats(y, right, (size_t)K, all_paths[i].path->name);
    }
    free(x), free(gain), free(bias), free(right), free(y);
}
END_TEST

/* x += norm(y) or norm(x + y), and y becomes zero. Checks both kinds of norm, with 1 to 4
 * threads. */
START_TEST(norm_add_adds_and_clears) {
    enum { K = 333 };
    uint64_t state = 23;
    size_t n = (size_t)MAX_ROWS * K;
    float *x = random_floats(&state, n), *y = random_floats(&state, n);
    float *gain = random_floats(&state, K), *bias = random_floats(&state, K);
    const bool is_layer = _i % 2, of_sum = _i / 2;
    const struct norm norm = {.kind = is_layer ? NORM_LAYER : NORM_RMS,
                              .gain = gain,
                              .bias = is_layer ? bias : NULL,
                              .epsilon = 1e-6f,
                              .of_sum = of_sum};
    float *right = mem_alloc(n * sizeof *right), *sum = mem_alloc(n * sizeof *sum);
    float *branch = mem_alloc(n * sizeof *branch), row[K];
    for (int m = 0; m < MAX_ROWS; m++) {
        for (int k = 0; k < K; k++) row[k] = of_sum ? x[m * K + k] + y[m * K + k] : y[m * K + k];
        path_norm(&path_plain, row, row, &norm, K);
        for (int k = 0; k < K; k++) right[m * K + k] = x[m * K + k] + row[k];
    }
    for (int i = 0; i < N_PATHS * N_ROW_COUNTS; i++) {
        int M = row_counts[i % N_ROW_COUNTS];
        struct backend *b = open_path(i / N_ROW_COUNTS, 1 + i % 4, MAX_ROWS, K);
        if (!b) continue;
        memcpy(sum, x, n * sizeof *x), memcpy(branch, y, n * sizeof *y);
        b->compute->norm_add(b, sum, branch, &norm, M, K);
        assert_same_floats(sum, right, (size_t)M * K, cpu_of(b)->path->name);
        for (int k = 0; k < M * K; k++) ck_assert(branch[k] == 0);
        ck_assert(M == MAX_ROWS || memcmp(branch + M * K, y + M * K, K * sizeof *y) == 0);
        backend_close(b);
    }
    free(x), free(y), free(gain), free(bias), free(right), free(sum), free(branch);
}
END_TEST

int main(void) {
    instructions_carry_out();
    Suite *suite = suite_create("kernels_op_numbers");
    TCase *core = tcase_create("numbers");
    tcase_add_test(core, tanh_is_accurate);
    tcase_add_loop_test(core, activations_are_accurate, 0, ACTIVATION_RELU_SQUARED + 1);
    tcase_add_loop_test(core, activations_have_the_same_bytes, 0, ACTIVATION_RELU_SQUARED + 1);
    tcase_add_test(core, xielu_is_accurate_and_the_same);
    tcase_add_loop_test(core, layernorm_is_accurate_and_the_same, 0, 5);
    tcase_add_loop_test(core, norm_add_adds_and_clears, 0, 4);
    tcase_add_test(core, clamped_gates_are_accurate_and_the_same);
    tcase_set_timeout(core, 300);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
