/* Weights of two-byte floats, which are stored as blocks of integers: the same bytes on every path,
 * the errors of products and of weights that are read back, and special weights. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/kernel_data.h"
#include "support/suite_main.h"

static const enum dtype types[2] = {DTYPE_F16, DTYPE_BF16};

/* Returns y[M][N] for one matrix. The caller frees it. */
static float *product(struct backend *b, enum dtype type, int N, int K, const void *rows,
                      const float *x, int M) {
    struct matrix *w = NULL;
    struct err err = {0};
    ck_assert_msg(b->memory->matrix_new(b, &w, type, N, K, rows, false, &err) == STATUS_OK, "%s",
                  err.message);
    float *y = mem_calloc((size_t)M * (size_t)N, sizeof *y);
    b->compute->matmul(b, &y, x, NULL, &(struct linear){w, NULL}, 1, M);
    b->memory->matrix_free(b, w);
    return y;
}

static void put(uint16_t *weights, size_t i, enum dtype type, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    weights[i] = type == DTYPE_F16 ? float_to_half(value) : (uint16_t)(bits >> 16);
}

/* ---- the same bytes ------------------------------------------------------------------------- */

enum { MAX_ROWS = 40 };

/* Returns weights with rows of zeros, of a few outliers, and of subnormal halves. */
static uint16_t *awkward_weights(uint64_t *state, enum dtype type, int N, int K) {
    uint16_t *weights = random_weights(state, type, (size_t)N * (size_t)K);
    for (int n = 0; n < N; n++) {
        uint16_t *row = weights + (size_t)n * (size_t)K;
        for (int k = 0; k < K && n % 5 == 1; k++) row[k] = 0;
        for (int k = 0; k < K && n % 5 == 2; k += 37) put(row, (size_t)k, type, 1000);
        for (int k = 0; k < K && n % 5 == 3; k++)
            put(row, (size_t)k, type, (float)(k - 7) * 0x1p-24f);
    }
    return weights;
}

static float *awkward_inputs(uint64_t *state, int K) {
    float *x = random_floats(state, (size_t)MAX_ROWS * (size_t)K);
    for (int m = 0; m < MAX_ROWS; m++) {
        float *row = x + (size_t)m * (size_t)K;
        for (int k = 0; k < K && m % 5 == 1; k++) row[k] = 0;
        for (int k = 0; k < K && m % 5 == 2; k += 29) row[k] *= 100;
        for (int k = 0; k < K && m % 5 == 3; k++) row[k] *= 1e-33f;
        for (int k = 0; k < K && m % 5 == 4; k++) row[k] *= 1e36f;
    }
    return x;
}

/* Row i of a call with any number of rows is the same as in the plain path's call with 40. */
static void check_shape(enum dtype type, int N, int K, const int *counts, int n_counts) {
    uint64_t state = 1000 * (uint64_t)N + (uint64_t)K + (uint64_t)type;
    uint16_t *rows = awkward_weights(&state, type, N, K);
    float *x = awkward_inputs(&state, K);
    struct backend *plain = open_backend("plain", 1, MAX_ROWS, K);
    float *right = product(plain, type, N, K, rows, x, MAX_ROWS);
    backend_close(plain);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_backend(*path, 2, MAX_ROWS, K);
        for (int i = 0; i < n_counts; i++) {
            char what[96];
            snprintf(what, sizeof what, "%s %s N %d K %d, rows %d", *path, dtype_name((int)type), N,
                     K, counts[i]);
            float *y = product(b, type, N, K, rows, x, counts[i]);
            assert_same_floats(y, right, (size_t)counts[i] * (size_t)N, what);
            free(y);
        }
        backend_close(b);
    }
    free(rows), free(x), free(right);
}

START_TEST(every_length_of_a_row) {
    for (int K = 1; K <= 100; K++)
        check_shape(types[_i], 1 + K * 7 % 40, K, (int[]){1 + K % MAX_ROWS}, 1);
}
END_TEST

START_TEST(every_number_of_rows) {
    int counts[MAX_ROWS];
    for (int i = 0; i < MAX_ROWS; i++) counts[i] = i + 1;
    check_shape(types[_i], 37, 50, counts, MAX_ROWS);
}
END_TEST

START_TEST(lengths_of_models) {
    check_shape(types[_i], 50, 576, (int[]){1, 7, 40}, 3);
    check_shape(types[_i], 17, 1536, (int[]){1, 12, 33}, 3);
}
END_TEST

/* All weights and inputs have the largest code: the sum of 32 products is just below 2^31. */
START_TEST(the_largest_sums_are_exact) {
    enum { N = 17, K = 32, M = 2 };
    enum dtype type = types[_i];
    float largest = type == DTYPE_F16 ? 2047.0f / 2048 : 255.0f / 256, x[M * K];
    uint16_t rows[N * K];
    for (int i = 0; i < N * K; i++) put(rows, (size_t)i, type, largest);
    for (int k = 0; k < K; k++) x[k] = 1, x[K + k] = -1;
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_backend(*path, 1, M, K);
        float *y = product(b, type, N, K, rows, x, M);
        for (int n = 0; n < N; n++) {
            ck_assert_double_lt(fabs((double)y[n] - 32 * (double)largest), 32 * 0x1p-22);
            ck_assert(y[N + n] == -y[n]);
        }
        free(y);
        backend_close(b);
    }
}
END_TEST

/* ---- accuracy ------------------------------------------------------------------------------- */

/* Returns the variance of a product's error, if the roundings of both sides are independent. */
static double variance(const float *x, const float *w, int K) {
    double sum = 0;
    for (int from = 0; from < K; from += 32) {
        int to = from + 32 < K ? from + 32 : K;
        double most_x = 0, most_w = 0, squares_x = 0, squares_w = 0;
        for (int k = from; k < to; k++) {
            most_x = fmax(most_x, fabs(x[k])), most_w = fmax(most_w, fabs(w[k]));
            squares_x += (double)x[k] * x[k], squares_w += (double)w[k] * w[k];
        }
        sum +=
            most_x * most_x / 8191 / 8191 * squares_w + most_w * most_w / 4096 / 4096 * squares_x;
    }
    return sum / 12;
}

/* With `outliers`, some inputs and weights are 100 times as large. */
static void check_accuracy(enum dtype type, bool outliers) {
    enum { N = 40, K = 576, M = 20 };
    uint64_t state = 11 + (uint64_t)type;
    uint16_t *rows = random_weights(&state, type, N * K);
    float *x = random_floats(&state, M * K), *w = mem_alloc(N * K * sizeof *w);
    for (int i = 0; i < M * K && outliers; i++) x[i] *= i % K % 97 == 5 ? 100.0f : 1.0f;
    for (int i = 0; i < N * K && outliers; i += 89) put(rows, (size_t)i, type, 10);
    dequantise(type, rows, w, N * K);
    struct backend *b = open_backend(NULL, 2, M, K);
    float *y = product(b, type, N, K, rows, x, M);
    double squares = 0, size = 0;
    for (int i = 0; i < M * N; i++) {
        const float *xs = x + i / N * K, *ws = w + i % N * K;
        double sum = 0, sigma = sqrt(variance(xs, ws, K));
        for (int k = 0; k < K; k++) sum += (double)xs[k] * (double)ws[k];
        double error = sum - (double)y[i];
        ck_assert_msg(fabs(error) <= 6 * sigma + fabs(sum) * 0x1p-20, "%g is off by %g", sum,
                      error);
        squares += error * error, size += sum * sum;
    }
    printf("%s%s: error %.2g of the products\n", dtype_name((int)type),
           outliers ? " with outliers" : "", sqrt(squares / size));
    free(rows), free(x), free(w), free(y);
    backend_close(b);
}

START_TEST(products_are_close_to_double_precision) {
    check_accuracy(types[_i / 2], _i % 2);
}
END_TEST

/* A weight is read back within half a step, 1/8192 of the largest of its block, and exactly if all
 * its bits are above the step. */
START_TEST(embedding_reads_weights_back) {
    enum { N = 33, K = 75 };
    enum dtype type = types[_i];
    uint64_t state = 3;
    uint16_t *rows = random_weights(&state, type, N * K);
    float w[N * K], y[N * K];
    dequantise(type, rows, w, N * K);
    struct backend *b = open_backend(NULL, 1, N, K);
    struct matrix *matrix;
    struct err err = {0};
    ck_assert_int_eq(b->memory->matrix_new(b, &matrix, type, N, K, rows, false, &err), STATUS_OK);
    int32_t token[N];
    for (int i = 0; i < N; i++) token[i] = i;
    struct step step = {.M = N, .token = token};
    b->compute->step_begin(b, &step, NULL);
    b->compute->embed(b, y, &(struct embedding){.tokens = matrix, .scale = 1});
    for (int i = 0; i < N * K; i++) {
        float most = 0;
        int from = i / K * K + i % K / 32 * 32, to = (i / K + 1) * K;
        for (int j = from; j < to && j < from + 32; j++) most = fmaxf(most, fabsf(w[j]));
        ck_assert(fabsf(y[i] - w[i]) <= most / 8192);
        if (fabsf(w[i]) > most / (type == DTYPE_BF16 ? 32 : 4)) ck_assert(y[i] == w[i]);
    }
    b->memory->matrix_free(b, matrix);
    backend_close(b);
    free(rows);
}
END_TEST

/* ---- infinities and NaN --------------------------------------------------------------------- */

/* An infinity or a NaN reaches only the outputs of its row of weights, or of inputs. */
START_TEST(infinities_and_nan_are_not_hidden) {
    enum { N = 20, K = 70, M = 3 };
    enum dtype type = types[_i];
    uint64_t state = 5;
    uint16_t *rows = random_weights(&state, type, N * K);
    float *x = random_floats(&state, M * K);
    memset(rows + 7 * K, 0, K * sizeof *rows);
    put(rows, 3 * K + 64, type, INFINITY);
    put(rows, 4 * K + 9, type, NAN);
    put(rows, 5 * K, type, -INFINITY);
    x[K + 40] = INFINITY;
    x[2 * K + 69] = NAN;
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_backend(*path, 1, M, K);
        float *y = product(b, type, N, K, rows, x, M);
        for (int n = 0; n < N; n++) {
            ck_assert(isfinite(y[n]) == (n < 3 || n > 5));
            ck_assert(!isfinite(y[N + n]) && !isfinite(y[2 * N + n]));
        }
        free(y);
        backend_close(b);
    }
    free(rows), free(x);
}
END_TEST

/* The ends of the range: bfloats so small that they count as zero, and the largest ones. */
START_TEST(the_smallest_and_the_largest_weights) {
    enum { N = 3, K = 32 };
    static const float values[N] = {0x1p-126f, 0x1p-100f, 0x1.fep127f};
    uint16_t rows[N * K];
    float x[K];
    for (int i = 0; i < N * K; i++) put(rows, (size_t)i, DTYPE_BF16, values[i / K]);
    for (int k = 0; k < K; k++) x[k] = 0x1p-6f;
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_backend(*path, 1, 1, K);
        float *y = product(b, DTYPE_BF16, N, K, rows, x, 1);
        ck_assert(y[0] == 0);
        for (int n = 1; n < N; n++) ck_assert(fabsf(y[n] / values[n] - 0.5f) < 1e-6f);
        free(y);
        backend_close(b);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_half");
    TCase *t = tcase_create("two-byte weights");
    tcase_add_loop_test(t, every_length_of_a_row, 0, 2);
    tcase_add_loop_test(t, every_number_of_rows, 0, 2);
    tcase_add_loop_test(t, lengths_of_models, 0, 2);
    tcase_add_loop_test(t, the_largest_sums_are_exact, 0, 2);
    tcase_add_loop_test(t, products_are_close_to_double_precision, 0, 4);
    tcase_add_loop_test(t, embedding_reads_weights_back, 0, 2);
    tcase_add_loop_test(t, infinities_and_nan_are_not_hidden, 0, 2);
    tcase_add_test(t, the_smallest_and_the_largest_weights);
    tcase_set_timeout(t, 300);
    suite_add_tcase(suite, t);
    return suite_main(suite);
}
