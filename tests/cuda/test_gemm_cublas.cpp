/* Products by cuBLAS, with stand-ins for the library's functions. The library is loaded only if the
 * user asks for it; it receives the right shapes; each device has a separate handle; and failures
 * are handled if the library is missing or fails. */
#include <cublas_v2.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/runtime/cublas.cuh"
#include "tests/cuda/support.h"

/* ---- the stand-in --------------------------------------------------------------------------- */

static int looked_up, products, fails_at; /* the product that fails; 0: all succeed */
static bool is_missing, is_broken;
static cudaStream_t chosen, expected; /* NULL: a stream that the test does not know */

/* A handle identifies its device. */
static int devices[MAX_RANKS];
static cublasStatus_t create(cublasHandle_t *handle) {
    int device;
    CUDA_OK(cudaGetDevice(&device));
    devices[device] = device;
    *handle = reinterpret_cast<cublasHandle_t>(&devices[device]);
    return is_broken ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t set_stream(cublasHandle_t handle, cudaStream_t stream) {
    int device;
    CUDA_OK(cudaGetDevice(&device));
    ck_assert_int_eq(*reinterpret_cast<int *>(handle), device);
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

/* c[n][m] = alpha times a[k][m] of columns, transposed, times b[k][n], plus the old c if beta is 1,
 * in cuBLAS's notation. */
static cublasStatus_t gemm_ex(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m,
                              int n, int k, const void *alpha, const void *a, cudaDataType a_type,
                              int lda, const void *b, cudaDataType b_type, int ldb,
                              const void *beta, void *c, cudaDataType c_type, int ldc,
                              cublasComputeType_t compute, cublasGemmAlgo_t) {
    if (++products == fails_at) return CUBLAS_STATUS_NOT_INITIALIZED;
    ck_assert(chosen && (!expected || chosen == expected));
    ck_assert(ta == CUBLAS_OP_T && tb == CUBLAS_OP_N && compute == CUBLAS_COMPUTE_32F);
    const float before = *static_cast<const float *>(beta);
    const float scale = *static_cast<const float *>(alpha);
    ck_assert(before == 0 || before == 1);
    CUDA_OK(cudaStreamSynchronize(chosen));
    floats A = download(a_type, a, (size_t)(lda * m)), B = download(b_type, b, (size_t)(ldb * n));
    floats C((size_t)(ldc * n));
    if (before == 1) C = download(c_type, c, C.size());
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            float sum = 0;
            for (int l = 0; l < k; l++) sum += A[(size_t)(i * lda + l)] * B[(size_t)(j * ldb + l)];
            C[(size_t)(j * ldc + i)] += scale * sum;
        }
    auto bytes = packed(dtype_of(c_type), C);
    CUDA_OK(cudaMemcpyAsync(c, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, chosen));
    CUDA_OK(cudaStreamSynchronize(chosen));
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
    looked_up = products = fails_at = 0;
    is_missing = missing, is_broken = broken;
    expected = test_stream();
    cublas_find_with(find);
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* Compares a product of random float32 weights with the project's kernels. */
static void check(enum dtype act, int M, int K, bool asked, bool float_out,
                  enum gemm_format format) {
    const int N = 19;
    uint64_t state = 4;
    buffer rows(random_vector(&state, (size_t)(N * K)));
    buffer x(packed(act, random_vector(&state, (size_t)(M * K))));
    buffer bias(random_vector(&state, (size_t)N));
    floats y[2], sum[2];
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
        struct gemm_epilogue end = {bias.as<float>(), nullptr, float_out};
        end.activate = !float_out;
        end.activation = ACTIVATION_GELU_TANH;
        end.scale = float_out ? 0.5f : 1;
        end.cap = float_out ? 7 : 0;
        enum dtype out = float_out ? DTYPE_F32 : act;
        buffer on_device((size_t)(M * N) * (out == DTYPE_F32 ? 4 : 2));
        gemm(&w, on_device.data, x.data, M, &end, test_stream());
        y[turn] = read_activations(out, on_device);
        if (float_out) continue; /* a residual has the type of activations */
        struct gemm_epilogue more = {bias.as<float>(), on_device.data};
        more.scale = 0.375f;
        gemm(&w, on_device.data, x.data, M, &more, test_stream());
        sum[turn] = read_activations(out, on_device);
    }
    check_close(y[0], y[1], 2 * rounding_of(float_out ? DTYPE_F32 : act), 1, "by cuBLAS");
    check_close(sum[0], sum[1], 4 * rounding_of(act), 1, "added by cuBLAS");
}

START_TEST(it_is_used_when_asked_for) {
    for (enum dtype act : activation_types) {
        start(false, false);
        check(act, 3, 64, true, false, GEMM_ROWS);
        check(act, 20, 128, true, true, GEMM_ROWS);
        /* 3 rows run on the project's kernel */
        ck_assert_int_eq(products, act == DTYPE_F32 ? 3 : 1);
        ck_assert_int_eq(looked_up, 3); /* once for each function */
    }
}
END_TEST

START_TEST(it_is_not_touched_unless_asked_for) {
    start(false, false);
    check(DTYPE_BF16, 3, 64, false, false, GEMM_16);
    check(DTYPE_F32, 3, 64, false, false, GEMM_FLOAT);
    check(DTYPE_BF16, 20, 33, true, false, GEMM_16); /* 33 columns are not whole slabs */
    ck_assert_int_eq(looked_up, 0);
}
END_TEST

START_TEST(without_it_products_are_ours) {
    for (bool broken : {false, true}) {
        start(!broken, broken);
        check(DTYPE_BF16, 3, 64, true, false, GEMM_16);
        check(DTYPE_F32, 3, 64, true, false, GEMM_FLOAT);
        ck_assert_int_eq(products, 0);
    }
}
END_TEST

START_TEST(each_device_has_its_own) {
    setenv("CUDA_EMU_DEVICES", "2", 1);
    int n = 0;
    CUDA_OK(cudaGetDeviceCount(&n));
    start(false, false);
    ck_assert(cublas_open());
    for (int device = n > 1 ? 1 : 0; device >= 0; device--) {
        CUDA_OK(cudaSetDevice(device));
        ck_assert(cublas_open());
        uint64_t state = 4;
        buffer x(packed(DTYPE_BF16, random_vector(&state, 64))), y(4);
        cublas_product(DTYPE_BF16, y.data, x.data, x.data, 1, 1, 64, true, false, 1, test_stream());
        finish();
    }
    ck_assert_int_eq(products, n > 1 ? 2 : 1);
    unsetenv("CUDA_EMU_DEVICES");
}
END_TEST

/* ---- the backend ---------------------------------------------------------------------------- */

enum { B_K = 128, B_F = 48, B_ROWS = 40 };

static enum status open_backend_of(struct backend **b, enum dtype act,
                                   bool allow_batch_variant_gemm, struct err *err) {
    struct backend_config config = {1, nullptr, B_ROWS, B_K, act, {}, nullptr, 1, B_ROWS, 1};
    config.allow_batch_variant_gemm = allow_batch_variant_gemm;
    return backend_cuda_open(b, &config, err);
}

/* Returns x after a gated MLP and an added product. All matrices have one type. */
static floats run_ops(struct backend *b, enum dtype act, enum dtype type, int M) {
    struct err err;
    const enum matrix_form form = act == DTYPE_F32 ? MATRIX_FLOAT32 : MATRIX_NATIVE;
    uint64_t state = 8;
    const int N[] = {B_F, B_F, B_K, B_K}, K[] = {B_K, B_K, B_F, B_K};
    struct matrix *w[4];
    for (int i = 0; i < 4; i++) {
        void *rows = random_weights(&state, type, (size_t)(N[i] * K[i]));
        const enum dtype kept = K[i] % dtype_block_elements(type) ? DTYPE_F32 : type;
        const floats plain = random_vector(&state, (size_t)(N[i] * K[i]));
        const void *from = kept == type ? rows : plain.data();
        ck_assert_int_eq(b->memory->matrix_new(b, &w[i], kept, N[i], K[i], from, form, &err),
                         STATUS_OK);
        free(rows);
    }
    floats gains(B_K, 0.5f);
    const auto x = packed(
        act, rounded(DTYPE_BF16, rounded(DTYPE_F16, random_vector(&state, (size_t)(M * B_K)))));
    float *gain = static_cast<float *>(b->memory->buffer_new(b, B_K * 4));
    float *rows = static_cast<float *>(b->memory->buffer_new(b, x.size()));
    b->memory->upload(b, gain, gains.data(), B_K * 4);
    b->memory->upload(b, rows, x.data(), x.size());
    const struct norm norm = {NORM_RMS, gain, nullptr, 1e-5f};
    const struct mlp mlp = {ACTIVATION_SILU, {w[0], nullptr}, {w[1], nullptr}, {w[2], nullptr}};
    const struct linear last = {w[3], nullptr};
    products = 0;
    b->compute->mlp(b, rows, rows, &norm, &mlp, M);
    float *other = static_cast<float *>(b->memory->buffer_new(b, x.size()));
    b->compute->matmul(b, &other, rows, &norm, &last, 1, M);
    b->compute->matmul_add(b, rows, other, &last, M);
    std::vector<uint8_t> got(x.size());
    b->memory->download(b, got.data(), rows, got.size());
    for (struct matrix *one : w) b->memory->matrix_free(b, one);
    b->memory->buffer_free(b, gain, B_K * 4);
    b->memory->buffer_free(b, rows, x.size());
    b->memory->buffer_free(b, other, x.size());
    backend_close(b);
    return unpacked(act, got);
}

static floats run_cuda(bool allow_batch_variant_gemm, enum dtype act, enum dtype type, int M,
                       int *by_library) {
    struct backend *b;
    struct err err;
    ck_assert_msg(open_backend_of(&b, act, allow_batch_variant_gemm, &err) == STATUS_OK, "%s",
                  err.message);
    const floats y = run_ops(b, act, type, M);
    *by_library = products;
    return y;
}

/* The library multiplies many rows by matrices whose rows are whole slabs: 128 columns are, 48 are
 * not. For few rows the project's kernel reads the library's layout. The results are near. */
static void check_ops(enum dtype act, enum dtype type, int M, int expected_products) {
    start(false, false);
    expected = nullptr;
    int free_products, own_products;
    struct backend *cpu = open_backend("plain", 1, B_ROWS, B_K);
    const floats want = run_ops(cpu, DTYPE_F32, type, M);
    const floats got = run_cuda(true, act, type, M, &free_products);
    const floats own = run_cuda(false, act, type, M, &own_products);
    ck_assert_int_eq(own_products, 0);
    ck_assert_msg(free_products == expected_products, "%d products of %s, %d rows", free_products,
                  dtype_name(type), M);
    double size = 0;
    for (float value : want) size = fmax(size, fabs((double)value));
    const double off = act == DTYPE_F32 ? 1e-5 : 8 * rounding_of(act);
    check_close(got, want, off, size, text("%d rows, %s", M, dtype_name(act)));
    check_close(own, want, off, size, text("%d rows of our own, %s", M, dtype_name(act)));
}

START_TEST(a_backend_uses_it_for_floats) {
    for (enum dtype act : {DTYPE_F16, DTYPE_BF16}) {
        check_ops(act, DTYPE_F32, 5, 0);
        check_ops(act, DTYPE_BF16, 16, 0);
        check_ops(act, DTYPE_F16, 17, 4);
        check_ops(act, DTYPE_F32, B_ROWS, 4);
    }
}
END_TEST

START_TEST(a_backend_does_not_use_it_for_others) {
    check_ops(DTYPE_BF16, DTYPE_Q8_0, 20, 0);
    check_ops(DTYPE_F32, DTYPE_F32, B_ROWS, 0); /* the rows between the ops use all memory */
}
END_TEST

/* To the host any failure looks like the device's: it is recorded, all later products are skipped,
 * and the process continues and reports it. */
START_TEST(a_failure_is_the_device_s) {
    struct backend *b;
    struct err err;
    start(false, false);
    expected = nullptr;
    ck_assert_int_eq(open_backend_of(&b, DTYPE_BF16, true, &err), STATUS_OK);
    float *rows = static_cast<float *>(b->memory->buffer_new(b, B_ROWS * B_K * 2));
    struct matrix *w;
    const floats zeros(B_K * B_K, 0.0f);
    ck_assert_int_eq(
        b->memory->matrix_new(b, &w, DTYPE_F32, B_K, B_K, zeros.data(), MATRIX_NATIVE, &err),
        STATUS_OK);
    const struct linear linear = {w, nullptr};
    fails_at = 2;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(b->device->failed(b, &err), i > 1);
        b->compute->matmul_add(b, rows, rows, &linear, B_ROWS);
    }
    ck_assert_ptr_nonnull(strstr(err.message, "The GPU has failed: a product of cuBLAS"));
    ck_assert_int_eq(products, 2);
    b->memory->matrix_free(b, w);
    b->memory->buffer_free(b, rows, B_ROWS * B_K * 2);
    backend_close(b);
}
END_TEST

START_TEST(a_backend_says_that_it_is_not_there) {
    for (bool broken : {false, true}) {
        struct backend *b;
        struct err err;
        start(!broken, broken);
        ck_assert_int_eq(open_backend_of(&b, DTYPE_BF16, true, &err), STATUS_USAGE);
        ck_assert_str_eq(err.param, "deterministic");
        ck_assert_ptr_nonnull(strstr(err.message, "cuBLAS could not be loaded"));
        ck_assert_int_eq(open_backend_of(&b, DTYPE_BF16, false, &err), STATUS_OK);
        backend_close(b);
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
    tcase_add_test(cases, each_device_has_its_own);
    tcase_add_test(cases, a_backend_uses_it_for_floats);
    tcase_add_test(cases, a_backend_does_not_use_it_for_others);
    tcase_add_test(cases, a_failure_is_the_device_s);
    tcase_add_test(cases, a_backend_says_that_it_is_not_there);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
