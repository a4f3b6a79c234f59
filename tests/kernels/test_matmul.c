/* Products: each type compared with double precision, and the same bytes on every path, for every
 * number of rows and threads. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/kernel_data.h"
#include "support/suite_main.h"

static struct matrix *matrix_of(struct backend *b, enum dtype type, int N, int K, const void *rows,
                                bool as_float) {
    struct matrix *w = NULL;
    struct err err = {0};
    ck_assert_msg(b->memory->matrix_new(b, &w, type, N, K, rows, as_float, &err) == STATUS_OK, "%s",
                  err.message);
    return w;
}

/* Returns y[M][N] for one matrix. The caller frees it. */
static float *product(struct backend *b, enum dtype type, int N, int K, const void *rows,
                      const float *x, int M, bool as_float) {
    struct matrix *w = matrix_of(b, type, N, K, rows, as_float);
    float *y = mem_calloc((size_t)M * (size_t)N, sizeof *y);
    b->compute->matmul(b, &y, x, NULL, &(struct linear){w, NULL}, 1, M);
    b->memory->matrix_free(b, w);
    return y;
}

/* ---- accuracy ------------------------------------------------------------------------------- */

/* The maximum error from rounding activations to 8 bits in blocks of 32. Half a step in each, all
 * in one direction, never occurs, so the tolerance is six standard deviations of a uniform error.
 * With two-byte weights the steps are 1/8191 for inputs and 1/4096 for weights. With float weights
 * or as_float the only error is the rounding of a chain of K fma. */
static double tolerance(const float *x, const float *w, int K, enum dtype type) {
    bool half = type == DTYPE_F16 || type == DTYPE_BF16;
    double variance = 0, sum = 0;
    for (int k = 0; k < K; k++) {
        double most = 0, most_w = 0;
        for (int j = k / 32 * 32; j < K && j < k / 32 * 32 + 32; j++)
            most = fmax(most, fabs(x[j])), most_w = fmax(most_w, fabs(w[j]));
        double step = most / (half ? 8191 : 127), step_w = half ? most_w / 4096 : 0;
        variance += (step * step * w[k] * w[k] + step_w * step_w * x[k] * x[k]) / 12;
        sum += fabs((double)x[k] * w[k]);
    }
    return (type == DTYPE_F32 ? 0 : 6 * sqrt(variance)) + sum * K * 0x1p-24;
}

static void check_accuracy(enum dtype type, bool as_float) {
    enum { N = 37, M = 5 };
    const int K = 512;
    uint64_t state = 7 + (uint64_t)type;
    struct backend *b = open_backend(NULL, 2, 16, K);
    void *rows = random_weights(&state, type, (size_t)N * (size_t)K);
    float *x = random_floats(&state, (size_t)M * (size_t)K);
    float *w = mem_alloc((size_t)N * (size_t)K * sizeof *w);
    dequantise(type, rows, w, (size_t)N * (size_t)K);
    float *y = product(b, type, N, K, rows, x, M, as_float);
    for (int m = 0; m < M; m++) {
        for (int n = 0; n < N; n++) {
            double sum = 0;
            for (int k = 0; k < K; k++) sum += (double)x[m * K + k] * (double)w[n * K + k];
            double error = fabs(sum - (double)y[m * N + n]);
            ck_assert_msg(error <= tolerance(x + m * K, w + n * K, K, as_float ? DTYPE_F32 : type),
                          "%s: %g is off by %g", dtype_name((int)type), sum, error);
        }
    }
    free(rows), free(x), free(w), free(y);
    backend_close(b);
}

START_TEST(every_type_is_accurate) {
    check_accuracy(all_types[_i], false);
}
END_TEST

START_TEST(every_type_is_accurate_as_float) {
    check_accuracy(all_types[_i], true);
}
END_TEST

/* ---- the same bytes ------------------------------------------------------------------------- */

enum { MAX_ROWS = 70 };

static void check_paths(enum dtype type, int N, int K, bool as_float, const int *row_counts,
                        int n_counts) {
    uint64_t state = 1000 * (uint64_t)N + (uint64_t)K + (uint64_t)type;
    void *rows = random_weights(&state, type, (size_t)N * (size_t)K);
    float *x = random_floats(&state, (size_t)MAX_ROWS * (size_t)K);
    memset(x + K, 0, 32 * sizeof *x); /* a block of zeros */
    /* a block so small that it counts as zeros */
    for (int k = 0; k < 32; k++) x[2 * K + k] *= 1e-36f;
    struct backend *plain = open_backend("plain", 1, MAX_ROWS, K);
    float *right = product(plain, type, N, K, rows, x, MAX_ROWS, as_float);
    backend_close(plain);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        for (int i = 0; i < n_counts; i++) {
            int M = row_counts[i];
            struct backend *b = open_backend(*path, 1 + i % 4, MAX_ROWS, K);
            char what[96];
            snprintf(what, sizeof what, "%s %s N %d K %d, rows %d", *path, dtype_name((int)type), N,
                     K, M);
            float *y = product(b, type, N, K, rows, x, M, as_float);
            assert_same_floats(y, right, (size_t)M * (size_t)N, what);
            free(y);
            backend_close(b);
        }
    }
    free(rows), free(x), free(right);
}

/* Every number of rows of a tile, and some that need several tiles: row i is the same as in the
 * call of 70 rows. */
START_TEST(rows_do_not_depend_on_each_other) {
    int counts[22] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                      12, 13, 14, 15, 16, 17, 18, 19, 31, 48, 70};
    check_paths(all_types[_i], 50, 256, false, counts, 22);
}
END_TEST

START_TEST(shapes_of_every_kind) {
    static const int shapes[][2] = {{1, 32},    {16, 96}, {17, 64}, {333, 32},
                                    {15, 1536}, {40, 64}, {19, 32}};
    int counts[6] = {1, 2, 3, 4, 6, 20};
    enum dtype type = all_types[_i];
    for (int i = 0; i < 7; i++) {
        int elements = dtype_block_elements((int)type);
        int K = shapes[i][1] * (elements > 32 ? elements / 32 : 1);
        if (elements == 1) K += i - 2; /* float rows need not be whole blocks */
        check_paths(type, shapes[i][0], K > 3000 ? 1536 : K, i % 2 == 1, counts, 6);
    }
}
END_TEST

/* All codes and all inputs are at an end of their range: the largest sums, which no path may
 * saturate. One row, a few and more have kernels of their own. */
START_TEST(the_largest_sums_are_exact) {
    enum { N = 16, K = 256, M = 5 };
    static const uint8_t bytes[] = {0xff, 0x00, 0x80, 0x7f};
    uint64_t state = 17;
    float x[M * K];
    for (int k = 0; k < M * K; k++) {
        const float signs[] = {1, -1, k % 2 ? 1.0f : -1.0f};
        x[k] = signs[k / K % 3];
    }
    for (int i = 0; i < 4; i++) {
        void *rows = filled_weights(&state, all_types[_i], N * K, bytes[i]);
        struct backend *plain = open_backend("plain", 1, M, K);
        float *right = product(plain, all_types[_i], N, K, rows, x, M, false);
        backend_close(plain);
        for (const char *const *path = backend_cpu_paths(); *path; path++) {
            struct backend *b = open_backend(*path, 1, M, K);
            for (int m = 1; m <= M; m++) {
                float *y = product(b, all_types[_i], N, K, rows, x, m, false);
                assert_same_floats(y, right, (size_t)m * N, *path);
                free(y);
            }
            backend_close(b);
        }
        free(rows), free(right);
    }
}
END_TEST

/* Several matrices of a call, of different types and sizes, have the same results as each alone. */
START_TEST(matrices_share_a_call) {
    enum { M = 9 };
    const int K = 512, sizes[3] = {40, 3, 100};
    const enum dtype types[3] = {DTYPE_Q4_1, DTYPE_F16, DTYPE_Q6_K};
    uint64_t state = 99;
    float *x = random_floats(&state, (size_t)M * (size_t)K), *y[3], *alone[3];
    struct backend *b = open_backend(NULL, 2, M, K);
    struct matrix *w[3];
    for (int i = 0; i < 3; i++) {
        void *rows = random_weights(&state, types[i], (size_t)sizes[i] * (size_t)K);
        w[i] = matrix_of(b, types[i], sizes[i], K, rows, false);
        alone[i] = product(b, types[i], sizes[i], K, rows, x, M, false);
        y[i] = mem_alloc((size_t)M * (size_t)sizes[i] * sizeof(float));
        free(rows);
    }
    b->compute->matmul(b, y, x, NULL, (struct linear[]){{w[0]}, {w[1]}, {w[2]}}, 3, M);
    for (int i = 0; i < 3; i++) {
        assert_same_floats(y[i], alone[i], (size_t)M * (size_t)sizes[i], dtype_name((int)types[i]));
        free(y[i]), free(alone[i]);
        b->memory->matrix_free(b, w[i]);
    }
    free(x);
    backend_close(b);
}
END_TEST

/* An infinity or a NaN among the inputs reaches the outputs of its row only. */
START_TEST(infinities_and_nan_are_not_hidden) {
    const int K = 64, N = 20;
    uint64_t state = 5;
    void *rows = random_weights(&state, DTYPE_Q4_1, (size_t)N * (size_t)K);
    float *x = random_floats(&state, 3 * (size_t)K);
    x[40] = INFINITY;
    x[K + 3] = NAN;
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_backend(*path, 1, 3, K);
        float *y = product(b, DTYPE_Q4_1, N, K, rows, x, 3, false);
        for (int n = 0; n < N; n++) {
            ck_assert(!isfinite(y[n]) && !isfinite(y[N + n]));
            ck_assert(isfinite(y[2 * N + n]));
        }
        free(y);
        backend_close(b);
    }
    free(rows), free(x);
}
END_TEST

/* ---- matrices ------------------------------------------------------------------------------- */

START_TEST(embedding_reads_a_matrix_back) {
    enum { N = 37 };
    const int K = 512;
    enum dtype type = all_types[_i / 2];
    uint64_t state = 3 + (uint64_t)type;
    struct backend *b = open_backend(NULL, 2, N, K);
    void *rows = random_weights(&state, type, (size_t)N * (size_t)K);
    float *right = mem_alloc((size_t)N * (size_t)K * sizeof *right);
    dequantise(type, rows, right, (size_t)N * (size_t)K);
    struct matrix *w = matrix_of(b, type, N, K, rows, _i % 2);
    int32_t token[N];
    for (int i = 0; i < N; i++) token[i] = N - 1 - i;
    struct step step = {.M = N, .token = token};
    b->compute->step_begin(b, &step, NULL);
    float *y = mem_alloc((size_t)N * (size_t)K * sizeof *y);
    b->compute->embed(b, y, &(struct embedding){.tokens = w, .scale = 1});
    bool rounded = (type == DTYPE_F16 || type == DTYPE_BF16) && _i % 2 == 0;
    for (int i = 0; i < N && !rounded; i++) /* kernels/test_pack_half.c checks the rounded ones */
        assert_same_floats(y + i * K, right + token[i] * K, (size_t)K, dtype_name((int)type));
    size_t file_bytes =
        _i % 2 ? (size_t)N * (size_t)K * 4 : dtype_bytes(type, (size_t)N * (size_t)K);
    /* one scale for 32 weights instead of 256 in the file, or of two bytes instead of one */
    bool wider = type == DTYPE_TQ1_0 || type == DTYPE_TQ2_0 || type == DTYPE_MXFP4 ||
                 type == DTYPE_Q1_0 || type == DTYPE_Q2_0;
    size_t bit = (size_t)48 * (size_t)K / 8, bits = type == DTYPE_Q1_0 ? 2 : 1;
    size_t more = wider && _i % 2 == 0 ? bits * bit : file_bytes / 16;
    ck_assert_uint_le(b->memory->matrix_bytes(w), file_bytes / 37 * 48 + more);
    b->memory->matrix_free(b, w);
    free(rows), free(right), free(y);
    backend_close(b);
}
END_TEST

START_TEST(a_matrix_that_cannot_be_is_refused) {
    static const struct {
        int type, N, K;
    } wrong[] = {{DTYPE_Q4_1, 4, 33},       {DTYPE_Q4_K, 4, 128}, {DTYPE_F32, 0, 8},
                 {DTYPE_F32, 4, 0},         {DTYPE_F32, -1, 8},   {99, 4, 32},
                 {DTYPE_F32, INT32_MAX, 8}, {DTYPE_Q8_0, 4, -32}};
    struct backend *b = open_backend(NULL, 1, 1, 256);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct matrix *w = NULL;
        struct err err = {0};
        ck_assert_int_eq(b->memory->matrix_new(b, &w, (enum dtype)wrong[i].type, wrong[i].N,
                                               wrong[i].K, "", false, &err),
                         STATUS_BAD_FILE);
        ck_assert_ptr_null(w);
        ck_assert(err.message[0]);
    }
    backend_close(b);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_matmul");
    TCase *accuracy = tcase_create("accuracy"), *bytes = tcase_create("same bytes");
    TCase *matrices = tcase_create("matrices");
    tcase_add_loop_test(accuracy, every_type_is_accurate, 0, N_TYPES);
    tcase_add_loop_test(accuracy, every_type_is_accurate_as_float, 0, N_TYPES);
    tcase_add_loop_test(bytes, rows_do_not_depend_on_each_other, 0, N_TYPES);
    tcase_add_loop_test(bytes, shapes_of_every_kind, 0, N_TYPES);
    tcase_add_loop_test(bytes, the_largest_sums_are_exact, 0, N_TYPES);
    tcase_add_test(bytes, matrices_share_a_call);
    tcase_add_test(bytes, infinities_and_nan_are_not_hidden);
    tcase_add_loop_test(matrices, embedding_reads_a_matrix_back, 0, 2 * N_TYPES);
    tcase_add_test(matrices, a_matrix_that_cannot_be_is_refused);
    tcase_set_timeout(bytes, 300);
    suite_add_tcase(suite, accuracy);
    suite_add_tcase(suite, bytes);
    suite_add_tcase(suite, matrices);
    return suite_main(suite);
}
