/* Products by cuBLAS, with functions of our own in the place of the library's: that it is loaded
 * when asked for and not before, that it is told the right shapes, and what happens where it is
 * not. */
#include <cublas_v2.h>
#include <string.h>

#include "kernels/cuda/cublas.cuh"
#include "kernels/cuda/gemm.cuh"
#include "tests/cuda/support.h"

/* ---- the stand-in --------------------------------------------------------------------------- */

static int looked_up, products;
static bool is_missing, is_broken;
static cudaStream_t chosen;

static cublasStatus_t create(cublasHandle_t *handle) {
    *handle = reinterpret_cast<cublasHandle_t>(&looked_up);
    return is_broken ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t set_stream(cublasHandle_t, cudaStream_t stream) {
    chosen = stream;
    return CUBLAS_STATUS_SUCCESS;
}

static enum dtype dtype_of(cudaDataType type) {
    return type == CUDA_R_32F ? DTYPE_F32 : type == CUDA_R_16F ? DTYPE_F16 : DTYPE_BF16;
}
static floats download(cudaDataType type, const void *from, size_t n) {
    std::vector<uint8_t> bytes(n * (type == CUDA_R_32F ? 4 : 2));
    CUDA_OK(cudaMemcpy(bytes.data(), from, bytes.size(), cudaMemcpyDeviceToHost));
    return unpacked(dtype_of(type), bytes);
}

/* c[n][m] = a[k][m] of columns, transposed, times b[k][n], as cuBLAS counts. */
static cublasStatus_t gemm_ex(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m,
                              int n, int k, const void *alpha, const void *a, cudaDataType a_type,
                              int lda, const void *b, cudaDataType b_type, int ldb,
                              const void *beta, void *c, cudaDataType c_type, int ldc,
                              cublasComputeType_t compute, cublasGemmAlgo_t) {
    products++;
    ck_assert(chosen == test_stream());
    ck_assert(ta == CUBLAS_OP_T && tb == CUBLAS_OP_N && compute == CUBLAS_COMPUTE_32F);
    ck_assert(*static_cast<const float *>(alpha) == 1 && *static_cast<const float *>(beta) == 0);
    CUDA_OK(cudaStreamSynchronize(chosen));
    floats A = download(a_type, a, (size_t)(lda * m)), B = download(b_type, b, (size_t)(ldb * n));
    floats C((size_t)(ldc * n));
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++)
            for (int l = 0; l < k; l++)
                C[(size_t)(j * ldc + i)] += A[(size_t)(i * lda + l)] * B[(size_t)(j * ldb + l)];
    auto bytes = packed(dtype_of(c_type), C);
    CUDA_OK(cudaMemcpy(c, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    return CUBLAS_STATUS_SUCCESS;
}

static void *find(const char *name) {
    looked_up++;
    if (is_missing) return nullptr;
    if (!strcmp(name, "cublasCreate_v2")) return reinterpret_cast<void *>(create);
    if (!strcmp(name, "cublasSetStream_v2")) return reinterpret_cast<void *>(set_stream);
    if (!strcmp(name, "cublasGemmEx")) return reinterpret_cast<void *>(gemm_ex);
    return nullptr;
}

static void start(bool missing, bool broken) {
    looked_up = products = 0;
    is_missing = missing, is_broken = broken;
    cublas_find_with(find);
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* A product of random float32 weights, against our own. */
static void check(enum dtype act, int M, bool asked, bool float_out, enum gemm_format format) {
    int N = 19, K = 33;
    uint64_t state = 4;
    buffer rows(random_vector(&state, (size_t)(N * K)));
    buffer x(packed(act, random_vector(&state, (size_t)(M * K))));
    floats y[2];
    for (int turn = 0; turn < 2; turn++) {
        struct gemm_source source = {};
        source.type = DTYPE_F32;
        source.rows = rows.data;
        source.cublas = asked && turn == 0;
        struct gemm_weights w;
        buffer memory(gemm_plan(&w, act, &source, N, K));
        if (turn == 0) ck_assert_int_eq(w.format, format);
        gemm_place(&w, memory.data);
        gemm_pack(&w, &source, 0, N, test_stream());
        struct gemm_epilogue end = {nullptr, nullptr, float_out};
        enum dtype out = float_out ? DTYPE_F32 : act;
        buffer on_device((size_t)(M * N) * (out == DTYPE_F32 ? 4 : 2));
        gemm(&w, on_device.data, x.data, M, &end, test_stream());
        y[turn] = read_activations(out, on_device);
    }
    check_close(y[0], y[1], 2 * rounding_of(float_out ? DTYPE_F32 : act), 1, "by cuBLAS");
}

START_TEST(it_is_used_when_asked_for) {
    for (enum dtype act : activation_types) {
        start(false, false);
        check(act, 3, true, false, GEMM_ROWS);
        check(act, 20, true, true, GEMM_ROWS);
        ck_assert_int_eq(products, 2);
        ck_assert_int_eq(looked_up, 3); /* once for each function */
    }
}
END_TEST

START_TEST(it_is_not_touched_unless_asked_for) {
    start(false, false);
    check(DTYPE_BF16, 3, false, false, GEMM_16);
    check(DTYPE_F32, 3, false, false, GEMM_FLOAT);
    ck_assert_int_eq(looked_up, 0);
}
END_TEST

START_TEST(without_it_products_are_ours) {
    for (bool broken : {false, true}) {
        start(!broken, broken);
        check(DTYPE_BF16, 3, true, false, GEMM_16);
        check(DTYPE_F32, 3, true, false, GEMM_FLOAT);
        ck_assert_int_eq(products, 0);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_gemm_cublas");
    TCase *cases = tcase_create("cublas");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, it_is_used_when_asked_for);
    tcase_add_test(cases, it_is_not_touched_unless_asked_for);
    tcase_add_test(cases, without_it_products_are_ours);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
