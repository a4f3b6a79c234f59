/* The options of the ops that model families other than llama use: biases, layer norms,
 * activations, norms of heads, windows, caps, scales, learned positions. Each op is compared with
 * its separate steps in plain C: the same bytes on every path, for every form of weights, number of
 * rows and threads. Paths whose instructions this machine lacks run by a trap, as in
 * test_missing_ops.c. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/instructions.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { MAX_ROWS = 40, N_ROW_COUNTS = 5 };
static const int row_counts[N_ROW_COUNTS] = {1, 2, 15, 17, MAX_ROWS};

/* Each path, and the base path that the machine must have. */
static const struct tested_path {
    const struct path *path;
    const char *base;
} all_paths[] = {{&path_plain, "plain"},
                 {&path_avx2, "avx2"},
                 {&path_avxvnni, "avx2"},
                 {&path_avx512vnni, "avx512vnni"},
                 {&path_amx, "avx512vnni"}};
enum { N_PATHS = sizeof all_paths / sizeof *all_paths };

static bool machine_has(const char *name) {
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        if (strcmp(*path, name) == 0) return true;
    return false;
}

/* Returns a backend that runs a path. If the machine cannot run the base, prints a line and returns
 * NULL. */
static struct backend *open_path(int i, int threads, int max_k) {
    if (!machine_has(all_paths[i].base)) {
        printf("%s needs %s: not tested here\n", all_paths[i].path->name, all_paths[i].base);
        return NULL;
    }
    struct backend *b = open_backend("plain", threads, MAX_ROWS, max_k);
    cpu_of(b)->path = all_paths[i].path;
    return b;
}

static struct linear take(struct backend *b, enum dtype type, int N, int K, const void *rows,
                          const float *bias) {
    struct linear linear = {.bias = bias};
    ck_assert_int_eq(b->memory->matrix_new(b, &linear.w, type, N, K, rows, MATRIX_NATIVE, NULL),
                     STATUS_OK);
    return linear;
}

/* Returns y[MAX_ROWS][N] = x times the matrix in plain C, and no more. The caller frees it. */
static float *multiply(enum dtype type, int N, int K, const void *rows, const float *x) {
    struct backend *b = open_backend("plain", 1, MAX_ROWS, K);
    struct linear linear = take(b, type, N, K, rows, NULL);
    float *y = mem_alloc((size_t)MAX_ROWS * (size_t)N * sizeof *y);
    b->compute->matmul(b, &y, x, NULL, &linear, 1, MAX_ROWS);
    b->memory->matrix_free(b, linear.w);
    backend_close(b);
    return y;
}

static void add_bias(float *y, const float *bias, int N) {
    for (int i = 0; i < MAX_ROWS * N; i++) y[i] = y[i] + bias[i % N];
}

static float *normed_rows(const float *x, const struct norm *norm, int K) {
    float *y = mem_alloc((size_t)MAX_ROWS * (size_t)K * sizeof *y);
    for (int m = 0; m < MAX_ROWS; m++)
        plain_layernorm(y + m * K, x + m * K, norm->gain, norm->bias, K, norm->epsilon);
    return y;
}

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
        struct backend *b = open_path(p, 1, 64);
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

/* x += norm(y), and y becomes zero. Checks both kinds of norm, with 1 to 4 threads. */
START_TEST(norm_add_adds_and_clears) {
    enum { K = 333 };
    uint64_t state = 23;
    size_t n = (size_t)MAX_ROWS * K;
    float *x = random_floats(&state, n), *y = random_floats(&state, n);
    float *gain = random_floats(&state, K), *bias = random_floats(&state, K);
    const struct norm norm = {_i ? NORM_LAYER : NORM_RMS, gain, _i ? bias : NULL, 1e-6f};
    float *right = mem_alloc(n * sizeof *right), *sum = mem_alloc(n * sizeof *sum);
    float *branch = mem_alloc(n * sizeof *branch), row[K];
    for (int m = 0; m < MAX_ROWS; m++) {
        path_norm(&path_plain, row, y + m * K, &norm, K);
        for (int k = 0; k < K; k++) right[m * K + k] = x[m * K + k] + row[k];
    }
    for (int i = 0; i < N_PATHS * N_ROW_COUNTS; i++) {
        int M = row_counts[i % N_ROW_COUNTS];
        struct backend *b = open_path(i / N_ROW_COUNTS, 1 + i % 4, K);
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

/* ---- products ------------------------------------------------------------------------------- */

/* A matrix of each form, with all options of a product. */
struct product_case {
    enum dtype type;
    int N, K;
    void *rows;
    float *x, *bias, *gain, *norm_bias;
    struct norm norm;
};

static struct product_case product_case_new(enum dtype type) {
    bool blocks = dtype_block_elements((int)type) > 1;
    uint64_t state = 3 + (uint64_t)type;
    struct product_case c = {.type = type, .N = 37, .K = blocks ? 256 : 45};
    c.rows = random_weights(&state, type, (size_t)(c.N * c.K));
    c.x = random_floats(&state, (size_t)(MAX_ROWS * c.K));
    c.bias = random_floats(&state, (size_t)c.N);
    c.gain = random_floats(&state, (size_t)c.K);
    c.norm_bias = random_floats(&state, (size_t)c.K);
    c.norm = (struct norm){NORM_LAYER, c.gain, c.norm_bias, 1e-5f};
    return c;
}

static void product_case_free(struct product_case *c) {
    free(c->rows), free(c->x), free(c->bias), free(c->gain), free(c->norm_bias);
}

/* norm(x) times the matrix, + bias, and then scaled as logits; x times the matrix, + bias, added
 * unscaled and scaled. */
struct product_right {
    float *normed, *logits, *added, *added_scaled;
};
static const float SCALE = 0.375f, CAP = 7.5f;

static struct product_right product_right_new(const struct product_case *c) {
    struct product_right right;
    float *normed = normed_rows(c->x, &c->norm, c->K);
    right.normed = multiply(c->type, c->N, c->K, c->rows, normed);
    right.logits = multiply(c->type, c->N, c->K, c->rows, normed);
    right.added = multiply(c->type, c->N, c->K, c->rows, c->x);
    right.added_scaled = mem_alloc((size_t)(MAX_ROWS * c->N) * sizeof(float));
    add_bias(right.normed, c->bias, c->N);
    add_bias(right.logits, c->bias, c->N);
    add_bias(right.added, c->bias, c->N);
    for (int i = 0; i < MAX_ROWS * c->N; i++) {
        float y = right.logits[i] * SCALE;
        right.logits[i] = CAP * plain_tanh(y / CAP);
        right.added_scaled[i] = (float)i / 64 + right.added[i] * SCALE;
        right.added[i] = (float)i / 64 + right.added[i];
    }
    free(normed);
    return right;
}

static void check_products(struct backend *b, const struct product_case *c,
                           const struct product_right *right, int M) {
    size_t n = (size_t)(M * c->N);
    const char *name = cpu_of(b)->path->name;
    struct linear linear = take(b, c->type, c->N, c->K, c->rows, c->bias);
    float *y = mem_calloc(n, sizeof *y);
    b->compute->matmul(b, &y, c->x, &c->norm, &linear, 1, M);
    assert_same_floats(y, right->normed, n, name);
    for (size_t i = 0; i < n; i++) y[i] = (float)i / 64;
    b->compute->matmul_add(b, y, c->x, &linear, M);
    assert_same_floats(y, right->added, n, name);
    linear.scale = SCALE;
    for (size_t i = 0; i < n; i++) y[i] = (float)i / 64;
    b->compute->matmul_add(b, y, c->x, &linear, M);
    assert_same_floats(y, right->added_scaled, n, name);
    const struct lm_head head = {.linear = linear, .cap = CAP};
    b->compute->logits(b, y, c->x, &c->norm, &head, M);
    assert_same_floats(y, right->logits, n, name);
    b->memory->matrix_free(b, linear.w);
    free(y);
}

START_TEST(products_take_norms_biases_scales_and_caps) {
    struct product_case c = product_case_new(all_types[_i]);
    struct product_right right = product_right_new(&c);
    for (int i = 0; i < N_PATHS * N_ROW_COUNTS; i++) {
        struct backend *b = open_path(i / N_ROW_COUNTS, 1 + i % 3, c.K);
        if (!b) continue;
        check_products(b, &c, &right, row_counts[i % N_ROW_COUNTS]);
        backend_close(b);
    }
    free(right.normed), free(right.logits), free(right.added), free(right.added_scaled);
    product_case_free(&c);
}
END_TEST

/* Matrices of one call, with a bias and without. */
START_TEST(matrices_of_a_call_have_their_own_biases) {
    struct product_case c = product_case_new(DTYPE_Q5_1);
    float *plain = multiply(c.type, c.N, c.K, c.rows, c.x), *right[3];
    for (int i = 0; i < 3; i++) {
        right[i] = mem_alloc((size_t)(MAX_ROWS * c.N) * sizeof(float));
        memcpy(right[i], plain, (size_t)(MAX_ROWS * c.N) * sizeof(float));
    }
    add_bias(right[0], c.bias, c.N);
    add_bias(right[2], c.gain, c.N);
    for (int p = 0; p < N_PATHS; p++) {
        struct backend *b = open_path(p, 2, c.K);
        if (!b) continue;
        float *y[3];
        struct linear linear[3];
        for (int i = 0; i < 3; i++) {
            y[i] = mem_alloc((size_t)(MAX_ROWS * c.N) * sizeof(float));
            linear[i] = take(b, c.type, c.N, c.K, c.rows, i == 0 ? c.bias : i == 1 ? NULL : c.gain);
        }
        b->compute->matmul(b, y, c.x, NULL, linear, 3, MAX_ROWS);
        for (int i = 0; i < 3; i++) {
            assert_same_floats(y[i], right[i], (size_t)(MAX_ROWS * c.N), cpu_of(b)->path->name);
            b->memory->matrix_free(b, linear[i].w), free(y[i]);
        }
        backend_close(b);
    }
    for (int i = 0; i < 3; i++) free(right[i]);
    free(plain);
    product_case_free(&c);
}
END_TEST

/* ---- MLPs ----------------------------------------------------------------------------------- */

struct mlp_case {
    enum dtype type, down_type;
    int K, F;
    void *gate, *up, *down;
    float *x, *gate_bias, *up_bias, *down_bias;
};

static struct mlp_case mlp_case_new(enum dtype type, enum dtype down_type, int K, int F) {
    uint64_t state = 41 + (uint64_t)type;
    struct mlp_case c = {.type = type, .down_type = down_type, .K = K, .F = F};
    c.gate = random_weights(&state, type, (size_t)(F * K));
    c.up = random_weights(&state, type, (size_t)(F * K));
    c.down = random_weights(&state, down_type, (size_t)(K * F));
    c.x = random_floats(&state, (size_t)(MAX_ROWS * K));
    c.gate_bias = random_floats(&state, (size_t)F);
    c.up_bias = random_floats(&state, (size_t)F);
    c.down_bias = random_floats(&state, (size_t)K);
    return c;
}

static void mlp_case_free(struct mlp_case *c) {
    free(c->gate), free(c->up), free(c->down), free(c->x);
    free(c->gate_bias), free(c->up_bias), free(c->down_bias);
}

static float *mlp_right(const struct mlp_case *c, enum activation activation, bool gated) {
    float *gate = multiply(c->type, c->F, c->K, gated ? c->gate : c->up, c->x);
    float *up = multiply(c->type, c->F, c->K, c->up, c->x);
    add_bias(gate, gated ? c->gate_bias : c->up_bias, c->F);
    add_bias(up, c->up_bias, c->F);
    if (activation == ACTIVATION_XIELU)
        plain_xielu(gate, (size_t)(MAX_ROWS * c->F), &xielu_numbers);
    else
        plain_activate(gate, gated ? up : NULL, (size_t)(MAX_ROWS * c->F), activation);
    float *y = multiply(c->down_type, c->K, c->F, c->down, gate);
    add_bias(y, c->down_bias, c->K);
    for (int i = 0; i < MAX_ROWS * c->K; i++) y[i] = c->x[i] + (gated ? y[i] * SCALE : y[i]);
    free(gate), free(up);
    return y;
}

static void check_mlp(struct backend *b, const struct mlp_case *c, enum activation activation,
                      bool gated, const float *right, int M) {
    struct mlp mlp = {activation, take(b, c->type, c->F, c->K, c->gate, c->gate_bias),
                      take(b, c->type, c->F, c->K, c->up, c->up_bias),
                      take(b, c->down_type, c->K, c->F, c->down, c->down_bias)};
    struct matrix *gate = mlp.gate.w;
    mlp.xielu = xielu_numbers;
    if (!gated) mlp.gate = (struct linear){0};
    if (gated) mlp.down.scale = SCALE;
    float *x = mem_alloc((size_t)(M * c->K) * sizeof *x);
    memcpy(x, c->x, (size_t)(M * c->K) * sizeof *x);
    b->compute->mlp(b, x, x, NULL, &mlp, M);
    assert_same_floats(x, right, (size_t)(M * c->K), cpu_of(b)->path->name);
    b->memory->matrix_free(b, gate);
    b->memory->matrix_free(b, mlp.up.w);
    b->memory->matrix_free(b, mlp.down.w);
    free(x);
}

static void check_mlp_case(struct mlp_case c, enum activation activation) {
    bool is_gated = activation == ACTIVATION_CLAMPED, is_alone = activation == ACTIVATION_XIELU;
    for (int gated = is_gated; gated < (is_alone ? 1 : 2); gated++) {
        float *right = mlp_right(&c, activation, gated);
        for (int i = 0; i < N_PATHS * N_ROW_COUNTS; i++) {
            struct backend *b = open_path(i / N_ROW_COUNTS, 1 + i % 4, c.K > c.F ? c.K : c.F);
            if (!b) continue;
            check_mlp(b, &c, activation, gated, right, row_counts[i % N_ROW_COUNTS]);
            backend_close(b);
        }
        free(right);
    }
    mlp_case_free(&c);
}

START_TEST(mlps_take_every_activation_gated_or_not) {
    check_mlp_case(mlp_case_new(DTYPE_Q4_1, DTYPE_Q8_0, 64, 96), (enum activation)_i);
    check_mlp_case(mlp_case_new(DTYPE_Q5_0, DTYPE_F16, 32, 77), (enum activation)_i);
    check_mlp_case(mlp_case_new(DTYPE_F32, DTYPE_F32, 45, 50), (enum activation)_i);
}
END_TEST

START_TEST(mlps_of_superblocks) {
    check_mlp_case(mlp_case_new(DTYPE_Q4_K, DTYPE_Q6_K, 256, 256), ACTIVATION_GELU);
    check_mlp_case(mlp_case_new(DTYPE_BF16, DTYPE_BF16, 40, 33), ACTIVATION_RELU);
}
END_TEST

/* ---- embeddings ----------------------------------------------------------------------------- */

/* With the first type, which lies between the token and the position, and with a norm. */
static void check_normed_embedding(struct backend *b, const struct embedding *embedding, int K,
                                   const int32_t *token, const int32_t *position) {
    uint64_t state = 62;
    float *gain = random_floats(&state, (size_t)K), *bias = random_floats(&state, (size_t)K);
    float *type = mem_alloc((size_t)K * sizeof *type), *place = mem_alloc((size_t)K * sizeof *type);
    size_t n = (size_t)(MAX_ROWS * K);
    float *right = mem_alloc(n * sizeof *right), *y = mem_alloc(n * sizeof *y);
    struct embedding normed = *embedding;
    normed.types = embedding->positions; /* any rows */
    normed.norm = &(struct norm){NORM_LAYER, gain, bias, 1e-12f};
    matrix_row(normed.types, 0, type);
    for (int m = 0; m < MAX_ROWS; m++) {
        float *row = right + (size_t)(m * K);
        matrix_row(embedding->tokens, token[m], row);
        matrix_row(embedding->positions, position[m], place);
        for (int k = 0; k < K; k++) row[k] = (row[k] + type[k]) + place[k];
        plain_layernorm(row, row, gain, bias, K, 1e-12f);
    }
    b->compute->embed(b, y, &normed);
    assert_same_floats(y, right, n, cpu_of(b)->path->name);
    free(gain), free(bias), free(type), free(place), free(right), free(y);
}

START_TEST(embeddings_are_scaled_and_have_positions) {
    enum { V = 19, POSITIONS = 30 };
    enum dtype type = all_types[_i];
    int K = dtype_block_elements((int)type) > 1 ? 256 : 45;
    uint64_t state = 61;
    void *rows = random_weights(&state, type, (size_t)(V * K));
    void *more = random_weights(&state, type, (size_t)(POSITIONS * K));
    int32_t token[MAX_ROWS], position[MAX_ROWS];
    for (int i = 0; i < MAX_ROWS; i++) token[i] = i * 7 % V, position[i] = i * 11 % POSITIONS;
    size_t n = (size_t)(MAX_ROWS * K);
    float *right = mem_alloc(n * sizeof *right), *y = mem_alloc(n * sizeof *y);
    for (int p = 0; p < N_PATHS; p++) {
        struct backend *b = open_path(p, 1 + p % 3, K);
        if (!b) continue;
        struct linear tokens = take(b, type, V, K, rows, NULL);
        struct linear positions = take(b, type, POSITIONS, K, more, NULL);
        float *row = mem_alloc((size_t)K * sizeof *row);
        for (int m = 0; m < MAX_ROWS; m++) {
            matrix_row(tokens.w, token[m], right + m * K);
            matrix_row(positions.w, position[m], row);
            for (int k = 0; k < K; k++) right[m * K + k] = right[m * K + k] * 8.5f + row[k];
        }
        struct step step = {.M = MAX_ROWS, .token = token, .position = position};
        b->compute->step_begin(b, &step, NULL);
        b->compute->embed(b, y, &(struct embedding){tokens.w, 8.5f, positions.w});
        assert_same_floats(y, right, n, cpu_of(b)->path->name);
        /* existing rows get only positions */
        for (int m = 0; m < MAX_ROWS; m++) {
            matrix_row(positions.w, position[m], row);
            for (int k = 0; k < K; k++) right[m * K + k] = right[m * K + k] + row[k];
        }
        b->compute->embed(b, y, &(struct embedding){.positions = positions.w});
        assert_same_floats(y, right, n, cpu_of(b)->path->name);
        check_normed_embedding(b, &(struct embedding){tokens.w, 1, positions.w}, K, token,
                               position);
        free(row);
        b->memory->matrix_free(b, tokens.w), b->memory->matrix_free(b, positions.w);
        backend_close(b);
    }
    free(rows), free(more), free(right), free(y);
}
END_TEST

/* ---- norms of heads ------------------------------------------------------------------------- */

struct heads_case {
    int H, G, D, D_rope;
    enum rope_layout layout;
    enum head_norms norms;
    int q_scale_every; /* 0: queries are not scaled */
    bool norms_last;
};
static const struct heads_case heads_cases[] = {
    {6, 2, 64, 64, ROPE_HALVES, HEAD_NORMS_ALIKE, 0},
    {3, 3, 20, 14, ROPE_ADJACENT, HEAD_NORMS_ALIKE, 5},
    {4, 1, 33, 0, ROPE_HALVES, HEAD_NORMS_ALIKE, 2},
    {6, 2, 20, 20, ROPE_HALVES, HEAD_NORMS_TOGETHER, 0},
    {6, 2, 20, 6, ROPE_HALVES, HEAD_NORMS_OWN, 7},
    {6, 2, 20, 20, ROPE_HALVES, HEAD_NORMS_ALIKE, 3, .norms_last = true}};
enum { N_HEADS_CASES = sizeof heads_cases / sizeof *heads_cases };

/* Writes rows at positions 0.. into a cache of one layer. */
static void write_heads(struct backend *b, const struct heads_case *c, const struct heads *heads,
                        float *q, float *k, float *v) {
    struct kv_config config = {1, c->G, c->D, MAX_ROWS / 4, 4, DTYPE_F32};
    struct kv_cache *cache = NULL;
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    int32_t numbers[MAX_ROWS];
    for (int i = 0; i < MAX_ROWS; i++) numbers[i] = i;
    struct step step = {.M = MAX_ROWS, .position = numbers, .slot = numbers};
    b->compute->step_begin(b, &step, cache);
    b->compute->rope_write(b, cache, 0, heads, q, k, v);
    for (int m = 0; m < MAX_ROWS; m++)
        for (int i = 0; i < c->G * c->D; i++) {
            const struct kv_kind *kv = kv_kind(cache, 0);
            const float *keys = (const float *)kv_head_keys(kv, 0, m / 4, i / c->D);
            ck_assert(memcmp(&keys[i % c->D * 4 + m % 4], &k[m * c->G * c->D + i], 4) == 0);
        }
    b->cache->kv_free(b, cache);
}

static void norm_head(float *y, const float *x, const float *gain, int width, bool is_layernorm) {
    if (is_layernorm)
        plain_layernorm(y, x, gain, NULL, width, 1e-6f);
    else
        plain_rmsnorm(y, x, gain, width, 1e-6f);
}

START_TEST(heads_are_normed_before_or_after_they_rotate) {
    const struct heads_case *c = &heads_cases[_i];
    uint64_t state = 71;
    size_t n_q = (size_t)(MAX_ROWS * c->H * c->D), n_k = (size_t)(MAX_ROWS * c->G * c->D);
    float *q = random_floats(&state, n_q), *k = random_floats(&state, n_k);
    bool together = c->norms == HEAD_NORMS_TOGETHER, own = c->norms == HEAD_NORMS_OWN;
    int q_width = together ? c->H * c->D : c->D, k_width = together ? c->G * c->D : c->D;
    float *q_gain = random_floats(&state, (size_t)(c->H * c->D));
    float *k_gain = random_floats(&state, (size_t)(c->G * c->D)), inv_freq[32];
    float *q_scale = random_floats(&state, MAX_ROWS);
    for (int i = 0; i < 32; i++) inv_freq[i] = powf(10000, -(float)i / 32);
    struct heads heads = {.H = c->H, .rope = {c->D_rope, inv_freq, c->layout}};
    float *right_q = mem_alloc(n_q * sizeof *q), *right_k = mem_alloc(n_k * sizeof *k);
    memcpy(right_q, q, n_q * sizeof *q), memcpy(right_k, k, n_k * sizeof *k);
    struct backend *plain = open_path(0, 1, 64);
    if (c->norms_last) write_heads(plain, c, &heads, right_q, right_k, k);
    for (size_t i = 0; i < n_q; i += (size_t)q_width)
        norm_head(right_q + i, right_q + i, q_gain + (own ? i % (size_t)(c->H * c->D) : 0), q_width,
                  own);
    for (size_t i = 0; i < n_k; i += (size_t)k_width)
        norm_head(right_k + i, right_k + i, k_gain + (own ? i % (size_t)(c->G * c->D) : 0), k_width,
                  own);
    if (!c->norms_last) write_heads(plain, c, &heads, right_q, right_k, k);
    backend_close(plain);
    for (int i = 0; c->q_scale_every && i < (int)n_q; i++)
        right_q[i] = right_q[i] * q_scale[i / (c->H * c->D) / c->q_scale_every];
    heads.q_gain = q_gain, heads.k_gain = k_gain, heads.epsilon = 1e-6f;
    heads.norms = c->norms, heads.norms_last = c->norms_last;
    if (c->q_scale_every) heads.q_scale = q_scale, heads.q_scale_every = c->q_scale_every;
    float *y_q = mem_alloc(n_q * sizeof *q), *y_k = mem_alloc(n_k * sizeof *k);
    for (int p = 0; p < N_PATHS; p++) {
        struct backend *b = open_path(p, 1 + p % 3, 64);
        if (!b) continue;
        memcpy(y_q, q, n_q * sizeof *q), memcpy(y_k, k, n_k * sizeof *k);
        write_heads(b, c, &heads, y_q, y_k, k);
        assert_same_floats(y_q, right_q, n_q, cpu_of(b)->path->name);
        assert_same_floats(y_k, right_k, n_k, cpu_of(b)->path->name);
        backend_close(b);
    }
    free(q), free(k), free(q_gain), free(k_gain), free(q_scale);
    free(right_q), free(right_k), free(y_q), free(y_k);
}
END_TEST

int main(void) {
    instructions_carry_out();
    Suite *suite = suite_create("kernels_op_options");
    TCase *core = tcase_create("options");
    tcase_add_test(core, tanh_is_accurate);
    tcase_add_loop_test(core, activations_are_accurate, 0, ACTIVATION_RELU_SQUARED + 1);
    tcase_add_loop_test(core, activations_have_the_same_bytes, 0, ACTIVATION_RELU_SQUARED + 1);
    tcase_add_test(core, xielu_is_accurate_and_the_same);
    tcase_add_loop_test(core, layernorm_is_accurate_and_the_same, 0, 5);
    tcase_add_loop_test(core, norm_add_adds_and_clears, 0, 2);
    tcase_add_loop_test(core, products_take_norms_biases_scales_and_caps, 0, N_TYPES);
    tcase_add_test(core, matrices_of_a_call_have_their_own_biases);
    tcase_add_test(core, clamped_gates_are_accurate_and_the_same);
    tcase_add_loop_test(core, mlps_take_every_activation_gated_or_not, 0, ACTIVATION_XIELU + 1);
    tcase_add_test(core, mlps_of_superblocks);
    tcase_add_loop_test(core, embeddings_are_scaled_and_have_positions, 0, N_TYPES);
    tcase_add_loop_test(core, heads_are_normed_before_or_after_they_rotate, 0, N_HEADS_CASES);
    tcase_set_timeout(core, 300);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
