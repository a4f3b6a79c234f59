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
#include "support/kernel_paths.h"
#include "support/suite_main.h"

enum { MAX_ROWS = 40, N_ROW_COUNTS = 5 };
static const int row_counts[N_ROW_COUNTS] = {1, 2, 15, 17, MAX_ROWS};

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
    for (int m = 0; m < MAX_ROWS; m++) path_norm(&path_plain, y + m * K, x + m * K, norm, K);
    return y;
}

/* ---- products ------------------------------------------------------------------------------- */

/* A matrix of each form, with all options of a product. */
struct product_case {
    enum dtype type;
    int N, K;
    void *rows;
    float *x, *bias, *gain, *norm_bias;
    struct norm norm;
};

static struct product_case product_case_new(enum dtype type, enum norm_kind kind) {
    bool blocks = dtype_block_elements((int)type) > 1;
    uint64_t state = 3 + (uint64_t)type;
    struct product_case c = {.type = type, .N = 37, .K = blocks ? 256 : 45};
    c.rows = random_weights(&state, type, (size_t)(c.N * c.K));
    c.x = random_floats(&state, (size_t)(MAX_ROWS * c.K));
    c.bias = random_floats(&state, (size_t)c.N);
    c.gain = random_floats(&state, (size_t)c.K);
    c.norm_bias = random_floats(&state, (size_t)c.K);
    c.norm = (struct norm){kind, c.gain, kind == NORM_LAYER ? c.norm_bias : NULL, 1e-5f};
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
    struct product_case c = product_case_new(all_types[_i / 2], _i % 2 ? NORM_RMS : NORM_LAYER);
    struct product_right right = product_right_new(&c);
    for (int i = 0; i < N_PATHS * N_ROW_COUNTS; i++) {
        struct backend *b = open_path(i / N_ROW_COUNTS, 1 + i % 3, MAX_ROWS, c.K);
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
    struct product_case c = product_case_new(DTYPE_Q5_1, NORM_LAYER);
    float *plain = multiply(c.type, c.N, c.K, c.rows, c.x), *right[3];
    for (int i = 0; i < 3; i++) {
        right[i] = mem_alloc((size_t)(MAX_ROWS * c.N) * sizeof(float));
        memcpy(right[i], plain, (size_t)(MAX_ROWS * c.N) * sizeof(float));
    }
    add_bias(right[0], c.bias, c.N);
    add_bias(right[2], c.gain, c.N);
    for (int p = 0; p < N_PATHS; p++) {
        struct backend *b = open_path(p, 2, MAX_ROWS, c.K);
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

static const struct xielu xielu_numbers = {0.8f, 0.3f, 0.5f, -1e-6f};

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
            struct backend *b =
                open_path(i / N_ROW_COUNTS, 1 + i % 4, MAX_ROWS, c.K > c.F ? c.K : c.F);
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

/* With a type, which lies between the token and the position, and with a norm. Rows have the first
 * type, or types of their own. */
static void check_normed_embedding(struct backend *b, const struct embedding *embedding, int K,
                                   struct step *step, bool is_typed) {
    const int32_t *token = step->token, *position = step->position;
    int32_t types[MAX_ROWS];
    uint64_t state = 62;
    float *gain = random_floats(&state, (size_t)K), *bias = random_floats(&state, (size_t)K);
    float *type = mem_alloc((size_t)K * sizeof *type), *place = mem_alloc((size_t)K * sizeof *type);
    size_t n = (size_t)(MAX_ROWS * K);
    float *right = mem_alloc(n * sizeof *right), *y = mem_alloc(n * sizeof *y);
    struct embedding normed = *embedding;
    normed.types = embedding->positions; /* any rows */
    normed.norm = (struct norm){NORM_LAYER, gain, bias, 1e-12f};
    for (int m = 0; m < MAX_ROWS; m++) {
        float *row = right + (size_t)(m * K);
        types[m] = is_typed ? m * 5 % 3 : 0;
        matrix_row(normed.types, types[m], type);
        matrix_row(embedding->tokens, token[m], row);
        matrix_row(embedding->positions, position[m], place);
        for (int k = 0; k < K; k++) row[k] = (row[k] + type[k]) + place[k];
        plain_layernorm(row, row, gain, bias, K, 1e-12f);
    }
    step->type = is_typed ? types : NULL;
    b->compute->embed(b, y, &normed);
    step->type = NULL;
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
        struct backend *b = open_path(p, 1 + p % 3, MAX_ROWS, K);
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
        for (int typed = 0; typed < 2; typed++)
            check_normed_embedding(b, &(struct embedding){tokens.w, 1, positions.w}, K, &step,
                                   typed);
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
    {6, 2, 20, 20, ROPE_HALVES, HEAD_NORMS_ALIKE, 3, .norms_last = true},
    {6, 2, 20, 0, ROPE_HALVES, HEAD_NORMS_LAYER, 0}};
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

static void norm_head(float *y, const float *x, const float *gain, const float *bias, int width,
                      bool is_layernorm) {
    if (is_layernorm)
        plain_layernorm(y, x, gain, bias, width, 1e-6f);
    else
        plain_rmsnorm(y, x, gain, width, 1e-6f);
}

START_TEST(heads_are_normed_before_or_after_they_rotate) {
    const struct heads_case *c = &heads_cases[_i];
    uint64_t state = 71;
    size_t n_q = (size_t)(MAX_ROWS * c->H * c->D), n_k = (size_t)(MAX_ROWS * c->G * c->D);
    float *q = random_floats(&state, n_q), *k = random_floats(&state, n_k);
    bool together = head_norms_are_of_rows(c->norms), own = c->norms == HEAD_NORMS_OWN;
    bool is_layer = c->norms == HEAD_NORMS_LAYER;
    int q_width = together ? c->H * c->D : c->D, k_width = together ? c->G * c->D : c->D;
    float *q_gain = random_floats(&state, (size_t)(c->H * c->D));
    float *k_gain = random_floats(&state, (size_t)(c->G * c->D)), inv_freq[32];
    float *q_scale = random_floats(&state, MAX_ROWS);
    float *q_bias = random_floats(&state, (size_t)(c->H * c->D));
    float *k_bias = random_floats(&state, (size_t)(c->G * c->D));
    for (int i = 0; i < 32; i++) inv_freq[i] = powf(10000, -(float)i / 32);
    struct heads heads = {.H = c->H, .rope = {c->D_rope, inv_freq, c->layout}};
    float *right_q = mem_alloc(n_q * sizeof *q), *right_k = mem_alloc(n_k * sizeof *k);
    memcpy(right_q, q, n_q * sizeof *q), memcpy(right_k, k, n_k * sizeof *k);
    struct backend *plain = open_path(0, 1, MAX_ROWS, 64);
    if (c->norms_last) write_heads(plain, c, &heads, right_q, right_k, k);
    for (size_t i = 0; i < n_q; i += (size_t)q_width)
        norm_head(right_q + i, right_q + i, q_gain + (own ? i % (size_t)(c->H * c->D) : 0),
                  is_layer ? q_bias : NULL, q_width, own || is_layer);
    for (size_t i = 0; i < n_k; i += (size_t)k_width)
        norm_head(right_k + i, right_k + i, k_gain + (own ? i % (size_t)(c->G * c->D) : 0),
                  is_layer ? k_bias : NULL, k_width, own || is_layer);
    if (!c->norms_last) write_heads(plain, c, &heads, right_q, right_k, k);
    backend_close(plain);
    for (int i = 0; c->q_scale_every && i < (int)n_q; i++)
        right_q[i] = right_q[i] * q_scale[i / (c->H * c->D) / c->q_scale_every];
    heads.q_gain = q_gain, heads.k_gain = k_gain, heads.epsilon = 1e-6f;
    heads.norms = c->norms, heads.norms_last = c->norms_last;
    if (is_layer) heads.q_bias = q_bias, heads.k_bias = k_bias;
    if (c->q_scale_every) heads.q_scale = q_scale, heads.q_scale_every = c->q_scale_every;
    float *y_q = mem_alloc(n_q * sizeof *q), *y_k = mem_alloc(n_k * sizeof *k);
    for (int p = 0; p < N_PATHS; p++) {
        struct backend *b = open_path(p, 1 + p % 3, MAX_ROWS, 64);
        if (!b) continue;
        memcpy(y_q, q, n_q * sizeof *q), memcpy(y_k, k, n_k * sizeof *k);
        write_heads(b, c, &heads, y_q, y_k, k);
        assert_same_floats(y_q, right_q, n_q, cpu_of(b)->path->name);
        assert_same_floats(y_k, right_k, n_k, cpu_of(b)->path->name);
        backend_close(b);
    }
    free(q), free(k), free(q_gain), free(k_gain), free(q_scale), free(q_bias), free(k_bias);
    free(right_q), free(right_k), free(y_q), free(y_k);
}
END_TEST

int main(void) {
    instructions_carry_out();
    Suite *suite = suite_create("kernels_op_options");
    TCase *core = tcase_create("options");
    tcase_add_loop_test(core, products_take_norms_biases_scales_and_caps, 0, 2 * N_TYPES);
    tcase_add_test(core, matrices_of_a_call_have_their_own_biases);
    tcase_add_loop_test(core, mlps_take_every_activation_gated_or_not, 0, ACTIVATION_XIELU + 1);
    tcase_add_test(core, mlps_of_superblocks);
    tcase_add_loop_test(core, embeddings_are_scaled_and_have_positions, 0, N_TYPES);
    tcase_add_loop_test(core, heads_are_normed_before_or_after_they_rotate, 0, N_HEADS_CASES);
    tcase_set_timeout(core, 300);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
