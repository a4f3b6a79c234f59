/* Weights of every type: rows of the embedding have the bits of the CPU's dequantise, and the plain
 * product is right. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/embed.cuh"
#include "kernels/cuda/matmul_plain.cuh"
#include "kernels/cuda/matrix.cuh"
#include "tests/cuda/support.h"

/* A matrix on the device, and its weights as floats. */
struct weights {
    struct matrix *matrix = nullptr;
    floats values;
    weights(enum dtype type, int N, int K, bool as_float = false) : values((size_t)N * (size_t)K) {
        uint64_t state = 5 + (uint64_t)type;
        void *rows = random_weights(&state, type, values.size());
        dequantise(type, rows, values.data(), values.size());
        struct err err = {};
        enum status status = matrix_make(&matrix, type, N, K, rows, as_float, &err);
        free(rows);
        ck_assert_msg(status == STATUS_OK, "%s", err.message);
    }
    ~weights() {
        finish();
        matrix_drop(matrix);
    }
    weights(const weights &) = delete;
    weights &operator=(const weights &) = delete;
};

static int length_of(enum dtype type, int blocks) {
    int elements = dtype_block_elements(type);
    return elements == 1 ? 11 * blocks : elements * blocks;
}

/* ---- embedding ------------------------------------------------------------------------------ */

static void check_embedding(enum dtype act, enum dtype type, bool as_float) {
    const int V = 7, K = length_of(type, 3);
    weights w(type, V, K, as_float);
    const std::vector<int32_t> tokens = {6, 0, 3, 3};
    buffer token(tokens), y(tokens.size() * (size_t)K * (act == DTYPE_F32 ? 4 : 2));
    embed_rows(act, y.data, w.matrix, token.as<int32_t>(), nullptr, (int)tokens.size(),
               test_stream());
    floats want;
    for (int32_t id : tokens)
        want.insert(want.end(), w.values.begin() + id * K, w.values.begin() + (id + 1) * K);
    check_close(read_activations(act, y), rounded(act, want), 0, 0,
                text("embedding of type %s, activations %s", dtype_name(type), dtype_name(act)));
}

START_TEST(embeddings_have_the_cpu_s_bits) {
    for (enum dtype act : activation_types) {
        check_embedding(act, all_types[_i], false);
        check_embedding(act, all_types[_i], true);
    }
}
END_TEST

/* ---- the plain product ---------------------------------------------------------------------- */

static floats product(const floats &x, const floats &w, int M, int N, int K, floats *sizes) {
    floats y((size_t)(M * N));
    sizes->assign(y.size(), 0);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                double term = (double)x[(size_t)(m * K + k)] * (double)w[(size_t)(n * K + k)];
                sum += term;
                size += fabs(term);
            }
            y[(size_t)(m * N + n)] = (float)sum;
            (*sizes)[(size_t)(m * N + n)] = (float)size;
        }
    return y;
}

/* As the CPU's float product does it. */
static floats in_order(const floats &x, const floats &w, int M, int N, int K) {
    floats y((size_t)(M * N), 0.0f);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++)
            for (int k = 0; k < K; k++)
                y[(size_t)(m * N + n)] =
                    fmaf(x[(size_t)(m * K + k)], w[(size_t)(n * K + k)], y[(size_t)(m * N + n)]);
    return y;
}

static void check_product(enum dtype act, enum dtype out, enum dtype type, int M, int N, int K) {
    uint64_t state = 3 + (uint64_t)K;
    weights w(type, N, K);
    floats x = rounded(act, random_vector(&state, (size_t)(M * K))), sizes;
    buffer in(packed(act, x)), y((size_t)(M * N) * (out == DTYPE_F32 ? 4 : 2));
    matmul_plain(act, out, y.data, in.data, w.matrix, M, test_stream());
    floats want = product(x, w.values, M, N, K, &sizes);
    floats got = read_activations(out, y);
    if (out == DTYPE_F32) check_close(got, in_order(x, w.values, M, N, K), 0, 0, "in order");
    for (size_t i = 0; i < got.size(); i++) {
        double most = rounding_of(out) * fabs((double)want[i]) + 1e-6 * (double)sizes[i];
        ck_assert_msg(fabs((double)got[i] - (double)want[i]) <= most,
                      "%d x %d x %d of %s, activations %s: number %zu is %g, not %g", M, N, K,
                      dtype_name(type), dtype_name(act), i, (double)got[i], (double)want[i]);
    }
}

START_TEST(plain_products_are_right) {
    const enum dtype type = all_types[_i];
    for (enum dtype act : activation_types) {
        check_product(act, act, type, 1, 1, length_of(type, 1));
        check_product(act, act, type, 3, 9, length_of(type, 3));
        check_product(act, DTYPE_F32, type, 2, 5, length_of(type, 4));
    }
}
END_TEST

/* ---- refusals ------------------------------------------------------------------------------- */

START_TEST(shapes_that_cannot_be_are_refused) {
    struct matrix *matrix = nullptr;
    struct err err = {};
    const float zeros[40] = {};
    ck_assert_int_eq(matrix_make(&matrix, DTYPE_Q4_0, 1, 40, zeros, false, &err), STATUS_BAD_FILE);
    ck_assert_int_eq(matrix_make(&matrix, DTYPE_F32, 0, 40, zeros, false, &err), STATUS_BAD_FILE);
    ck_assert_int_eq(matrix_make(&matrix, (enum dtype)99, 1, 40, zeros, false, &err),
                     STATUS_BAD_FILE);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_weights");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, embeddings_have_the_cpu_s_bits, 0, N_TYPES);
    tcase_add_loop_test(core, plain_products_are_right, 0, N_TYPES);
    tcase_add_test(core, shapes_that_cannot_be_are_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
