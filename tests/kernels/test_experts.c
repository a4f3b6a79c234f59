/* The op over experts, compared with its steps in plain C, with each expert as a separate matrix
 * and each row alone: the same bytes on every path, for every form of weights, number of rows and
 * threads. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { MAX_ROWS = 300, E = 6, N_USED = 3 };
static const int row_counts[] = {1, 2, 5, 17, 40, 300};
enum { N_ROW_COUNTS = sizeof row_counts / sizeof *row_counts };

/* ---- choosing ------------------------------------------------------------------------------- */

static void route(const float *logits, int n_experts, int n_used, bool normalises, int32_t *expert,
                  float *weight) {
    const struct experts experts = {.E = n_experts, .n_used = n_used, .normalises = normalises};
    route_row(logits, &experts, expert, weight);
}

START_TEST(the_largest_are_chosen_by_rising_number) {
    static const float logits[E] = {0.5f, -1, 3, 2, 3.5f, -2};
    int32_t expert[N_USED];
    float weight[N_USED];
    route(logits, E, N_USED, true, expert, weight);
    static const int32_t want[N_USED] = {2, 3, 4};
    ck_assert_mem_eq(expert, want, sizeof want);
    double sum = exp(3 - 3.5) + exp(2 - 3.5) + 1;
    for (int i = 0; i < N_USED; i++)
        ck_assert_double_eq_tol((double)weight[i], exp((double)logits[expert[i]] - 3.5) / sum,
                                1e-6);
}
END_TEST

START_TEST(of_equals_the_lower_number_is_chosen) {
    static const float logits[E] = {1, 2, 2, 1, 2, 2};
    int32_t expert[N_USED];
    float weight[N_USED];
    route(logits, E, N_USED, true, expert, weight);
    static const int32_t want[N_USED] = {1, 2, 4};
    ck_assert_mem_eq(expert, want, sizeof want);
    route(logits, E, 1, true, expert, weight);
    ck_assert_int_eq(expert[0], 1);
    ck_assert(weight[0] == 1);
}
END_TEST

START_TEST(weights_are_of_all_experts_unless_normalised) {
    float logits[40], weight[2];
    int32_t expert[2];
    double sum = 0;
    for (int e = 0; e < 40; e++) logits[e] = sinf((float)e), sum += exp((double)logits[e]);
    route(logits, 40, 2, false, expert, weight);
    for (int i = 0; i < 2; i++)
        ck_assert_double_eq_tol((double)weight[i], exp((double)logits[expert[i]]) / sum, 1e-6);
    route(logits, 40, 2, true, expert, weight);
    ck_assert_double_eq_tol((double)weight[0] + (double)weight[1], 1, 1e-6);
}
END_TEST

/* The exp of a difference from the largest logit is at most 1. */
START_TEST(large_logits_do_not_overflow) {
    static const float logits[E] = {-150, 200, 10, 199, -3, 0};
    int32_t expert[2];
    float weight[2];
    for (int normalises = 0; normalises < 2; normalises++) {
        route(logits, E, 2, normalises, expert, weight);
        ck_assert_double_eq_tol((double)weight[0], 1 / (1 + exp(-1)), 1e-6);
        ck_assert_double_eq_tol((double)weight[1], exp(-1) / (1 + exp(-1)), 1e-6);
    }
}
END_TEST

static const float of_groups[8] = {0, 3, 1, 1, 2, 2.5f, -4, 5};

/* With sigmoids the correction is used to compare scores, but not in the weights. */
START_TEST(sigmoids_are_chosen_with_their_correction) {
    static const float correction[8] = {0.9f, -0.5f, 0, 0, 0, 0, 0.3f, -0.2f};
    struct experts experts = {
        .E = 8, .n_used = 3, .by_sigmoid = true, .correction = correction, .weight_scale = 2.5f};
    int32_t expert[3];
    float weight[3];
    static const int32_t want[3] = {0, 4, 5};
    for (int normalises = 0; normalises < 2; normalises++) {
        double sum = 0;
        experts.normalises = normalises;
        route_row(of_groups, &experts, expert, weight);
        ck_assert_mem_eq(expert, want, sizeof want);
        for (int i = 0; i < 3; i++) sum += 1 / (1 + exp(-(double)of_groups[want[i]]));
        for (int i = 0; i < 3; i++)
            ck_assert_double_eq_tol(
                (double)weight[i],
                2.5 / (1 + exp(-(double)of_groups[want[i]])) / (normalises ? sum : 1), 1e-6);
    }
}
END_TEST

/* The groups of a softmax rank by their best expert: 3 and 5 are in groups 0 and 2 of pairs,
 * although the sum of group 1 is larger than that of group 0. Weights are those of the whole
 * softmax. */
START_TEST(groups_of_a_softmax_rank_by_their_best) {
    static const float logits[6] = {3, -9, 2.9f, 2.9f, 5, 0};
    static const int32_t want[3] = {0, 4, 5};
    const struct experts experts = {
        .E = 6, .n_used = 3, .n_groups = 3, .n_used_groups = 2, .weight_scale = 4};
    int32_t expert[3];
    float weight[3];
    double all = 0;
    for (int e = 0; e < 6; e++) all += exp((double)logits[e]);
    route_row(logits, &experts, expert, weight);
    ck_assert_mem_eq(expert, want, sizeof want);
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq_tol((double)weight[i], 4 * exp((double)logits[want[i]]) / all, 1e-6);
}
END_TEST

/* A softmax with a correction is compared and weighed in the same way. */
START_TEST(softmaxes_are_chosen_with_their_correction) {
    static const float correction[8] = {0.9f, 0, 0.3f, 0, 0, -0.2f, 0, -0.9f};
    static const int32_t want[3] = {0, 1, 2};
    struct experts experts = {.E = 8, .n_used = 3, .correction = correction};
    int32_t expert[3];
    float weight[3];
    double all = 0, sum = 0;
    for (int e = 0; e < 8; e++) all += exp((double)of_groups[e]);
    for (int i = 0; i < 3; i++) sum += exp((double)of_groups[want[i]]);
    for (int normalises = 0; normalises < 2; normalises++) {
        experts.normalises = normalises;
        route_row(of_groups, &experts, expert, weight);
        ck_assert_mem_eq(expert, want, sizeof want);
        for (int i = 0; i < 3; i++)
            ck_assert_double_eq_tol((double)weight[i],
                                    exp((double)of_groups[want[i]]) / (normalises ? sum : all),
                                    1e-6);
    }
}
END_TEST

/* Pairs have .5 + .95, .73 + .73, .88 + .92, .02 + .99: the third and the second are best. */
START_TEST(only_the_best_groups_count) {
    struct experts experts = {
        .E = 8, .n_used = 3, .by_sigmoid = true, .n_groups = 4, .n_used_groups = 2};
    int32_t expert[3];
    float weight[3];
    static const int32_t two[3] = {2, 4, 5}, three[3] = {1, 4, 5}, all[3] = {1, 5, 7};
    static const int32_t *const want[] = {two, three, all};
    for (int n = 2; n <= 4; n++) {
        experts.n_used_groups = n;
        route_row(of_groups, &experts, expert, weight);
        ck_assert_mem_eq(expert, want[n - 2], sizeof two);
    }
    static const float tied[8] = {1, 2, 2, 1, 0, 3, 1, 2};
    experts.n_used_groups = 1, experts.n_used = 2;
    route_row(tied, &experts, expert, weight);
    ck_assert(expert[0] == 0 && expert[1] == 1);
}
END_TEST

/* NaN logits of a broken model must not leave a row with fewer experts, or with the same expert
 * twice. */
START_TEST(nans_leave_a_choice) {
    float logits[E], weight[N_USED];
    int32_t expert[N_USED];
    for (int bits = 0; bits < 1 << E; bits++) {
        for (int e = 0; e < E; e++) logits[e] = bits >> e & 1 ? NAN : (float)((e * 5) % E);
        route(logits, E, N_USED, false, expert, weight);
        for (int i = 0; i < N_USED; i++) ck_assert(expert[i] >= 0 && expert[i] < E);
        for (int i = 1; i < N_USED; i++) ck_assert(expert[i] > expert[i - 1]);
    }
}
END_TEST

/* ---- the op --------------------------------------------------------------------------------- */

/* Weights as in a file. The shared expert has the width F_shared; 0: no shared expert. */
struct world {
    int K, F, F_shared;
    bool normalises;
    enum dtype type, down_type;
    void *gate, *up, *down, *shared_gate, *shared_up, *shared_down;
    float *router, *weigher, *x, *gain;
    /* with biases the gates are clamped; NULL: no biases */
    float *router_bias, *gate_bias, *up_bias, *down_bias;
    struct norm router_norm; /* without gains: the router gets the same rows as the experts */
    float *router_gain, *expert_scale;
};

static struct world make_world(int K, int F, int F_shared, enum dtype type, enum dtype down_type) {
    uint64_t state = 77 + (uint64_t)type * 64 + (uint64_t)down_type;
    size_t all = (size_t)E * (size_t)F * (size_t)K,
           shared = (size_t)(F_shared ? F_shared : 1) * (size_t)K;
    struct world w = {.K = K, .F = F, .F_shared = F_shared, .type = type, .down_type = down_type};
    w.normalises = F_shared == 0;
    w.gate = random_weights(&state, type, all);
    w.up = random_weights(&state, type, all);
    w.down = random_weights(&state, down_type, all);
    w.shared_gate = random_weights(&state, DTYPE_F32, shared);
    w.shared_up = random_weights(&state, DTYPE_F32, shared);
    w.shared_down = random_weights(&state, DTYPE_F32, shared);
    w.router = random_floats(&state, (size_t)E * (size_t)K);
    w.weigher = random_floats(&state, (size_t)K);
    w.x = random_floats(&state, (size_t)MAX_ROWS * (size_t)K);
    w.gain = random_floats(&state, (size_t)K);
    /* two experts that are always tied: every row uses both, or neither, or the lower one */
    memcpy(w.router + 4 * K, w.router + K, (size_t)K * sizeof(float));
    return w;
}

static struct world add_biases(struct world w) {
    uint64_t state = 5;
    size_t F = (size_t)E * (size_t)w.F;
    w.router_bias = random_floats(&state, E);
    w.gate_bias = random_floats(&state, F);
    w.up_bias = random_floats(&state, F);
    w.down_bias = random_floats(&state, (size_t)E * (size_t)w.K);
    for (size_t i = 0; i < F; i += 3) w.gate_bias[i] += 9, w.up_bias[i] -= 9;
    w.router_bias[4] = w.router_bias[1]; /* keeps them tied */
    return w;
}

static struct world add_norm_of_router(struct world w) {
    uint64_t state = 6;
    w.router_gain = random_floats(&state, (size_t)w.K);
    w.router_norm = (struct norm){.gain = w.router_gain, .epsilon = 1e-3f};
    w.expert_scale = random_floats(&state, E);
    return w;
}

static void free_world(struct world *w) {
    free(w->router_gain), free(w->expert_scale);
    free(w->router_bias), free(w->gate_bias), free(w->up_bias), free(w->down_bias);
    free(w->gate), free(w->up), free(w->down), free(w->router), free(w->weigher);
    free(w->shared_gate), free(w->shared_up), free(w->shared_down), free(w->x), free(w->gain);
}

static struct backend *open_for(const struct world *w, const char *path, int threads, int M) {
    struct backend *b;
    int F = w->F > w->F_shared ? w->F : w->F_shared;
    struct backend_config config = {.threads = threads,
                                    .path = path,
                                    .max_rows = M,
                                    .max_k = w->K > F ? w->K : F,
                                    .experts = {E, N_USED, w->K, F}};
    ck_assert_int_eq(backend_cpu_open(&b, &config, NULL), STATUS_OK);
    return b;
}

static struct linear take(struct backend *b, enum dtype type, int N, int K, const void *rows) {
    struct linear linear = {0};
    enum matrix_form form = type == DTYPE_F32 ? MATRIX_FLOAT32 : MATRIX_NATIVE;
    ck_assert_int_eq(b->memory->matrix_new(b, &linear.w, type, N, K, rows, form, NULL), STATUS_OK);
    return linear;
}

static struct experts take_experts(struct backend *b, const struct world *w) {
    struct experts x = {.E = E, .n_used = N_USED, .normalises = w->normalises};
    int K = w->K, F = w->F;
    x.router = take(b, DTYPE_F32, E, K, w->router);
    x.router.bias = w->router_bias;
    x.router.scale = w->router_gain ? 0.25f : 0;
    x.router_norm = w->router_norm;
    x.expert_scale = w->expert_scale;
    x.mlp = (struct mlp){w->gate_bias ? ACTIVATION_CLAMPED : ACTIVATION_SILU,
                         take(b, w->type, E * F, K, w->gate), take(b, w->type, E * F, K, w->up),
                         take(b, w->down_type, E * K, F, w->down)};
    x.mlp.gate.bias = w->gate_bias, x.mlp.up.bias = w->up_bias, x.mlp.down.bias = w->down_bias;
    if (w->F_shared == 0) return x;
    x.shared_gate = take(b, DTYPE_F32, 1, K, w->weigher);
    x.shared = (struct mlp){ACTIVATION_SILU, take(b, DTYPE_F32, w->F_shared, K, w->shared_gate),
                            take(b, DTYPE_F32, w->F_shared, K, w->shared_up),
                            take(b, DTYPE_F32, K, w->F_shared, w->shared_down)};
    return x;
}

static void free_experts(struct backend *b, struct experts *x) {
    struct matrix *all[] = {x->router.w,      x->mlp.gate.w,    x->mlp.up.w,    x->mlp.down.w,
                            x->shared_gate.w, x->shared.gate.w, x->shared.up.w, x->shared.down.w};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) b->memory->matrix_free(b, all[i]);
}

/* sum[K] += weight * down(hidden), for one row and the matrices of one expert. */
static void add_mlp(struct backend *b, const struct mlp *mlp, float *sum, const float *h,
                    float weight, int K, int F) {
    float *gate = mem_alloc((size_t)F * sizeof *gate), *up = mem_alloc((size_t)F * sizeof *up);
    float *y = mem_alloc((size_t)K * sizeof *y);
    const struct linear both[] = {mlp->gate, mlp->up};
    b->compute->matmul(b, (float *const[]){gate, up}, h, NULL, both, 2, 1);
    if (mlp->activation == ACTIVATION_CLAMPED)
        plain_activate(gate, up, (size_t)F, ACTIVATION_CLAMPED);
    else
        for (int f = 0; f < F; f++) gate[f] = gate[f] / (1.0f + plain_exp(-gate[f])) * up[f];
    b->compute->matmul(b, &y, gate, NULL, &mlp->down, 1, 1);
    for (int k = 0; k < K; k++) sum[k] = sum[k] + weight * y[k];
    free(gate), free(up), free(y);
}

static struct mlp expert_alone(struct backend *b, const struct world *w, int e) {
    size_t N = (size_t)w->F, K = (size_t)w->K;
    const char *gate = w->gate, *up = w->up, *down = w->down;
    size_t in = dtype_bytes(w->type, N * K) * (size_t)e,
           out = dtype_bytes(w->down_type, N * K) * (size_t)e;
    struct mlp mlp = {w->gate_bias ? ACTIVATION_CLAMPED : ACTIVATION_SILU,
                      take(b, w->type, w->F, w->K, gate + in),
                      take(b, w->type, w->F, w->K, up + in),
                      take(b, w->down_type, w->K, w->F, down + out)};
    if (!w->gate_bias) return mlp;
    mlp.gate.bias = w->gate_bias + (size_t)e * N, mlp.up.bias = w->up_bias + (size_t)e * N;
    mlp.down.bias = w->down_bias + (size_t)e * K;
    return mlp;
}

/* Computes the router's logits, from the rows after the router's own norm, or from the rows of the
 * experts. */
static void ask_router(struct backend *b, const struct world *w, const struct experts *whole,
                       const float *h, float *logits) {
    size_t K = (size_t)w->K;
    float *own = mem_alloc(MAX_ROWS * K * sizeof *own);
    for (int m = 0; m < MAX_ROWS && w->router_gain; m++)
        plain_rmsnorm(own + (size_t)m * K, w->x + (size_t)m * K, w->router_gain, w->K,
                      w->router_norm.epsilon);
    b->compute->matmul(b, &logits, w->router_gain ? own : h, NULL, &whole->router, 1, MAX_ROWS);
    free(own);
}

/* Returns the expected x[MAX_ROWS][K]. Computes one expert after the other. */
static float *make_right(const struct world *w) {
    struct backend *b = open_for(w, "plain", 1, MAX_ROWS);
    size_t K = (size_t)w->K;
    struct experts whole = take_experts(b, w);
    float *sum = mem_alloc(MAX_ROWS * K * sizeof *sum), *h = mem_alloc(MAX_ROWS * K * sizeof *h);
    float logits[MAX_ROWS * E], shared[MAX_ROWS], weight[MAX_ROWS][N_USED];
    int32_t expert[MAX_ROWS][N_USED];
    memcpy(sum, w->x, MAX_ROWS * K * sizeof *sum);
    for (int m = 0; m < MAX_ROWS; m++)
        plain_rmsnorm(h + (size_t)m * K, w->x + (size_t)m * K, w->gain, w->K, 1e-5f);
    ask_router(b, w, &whole, h, logits);
    for (int m = 0; m < MAX_ROWS; m++) route_row(logits + m * E, &whole, expert[m], weight[m]);
    for (int e = 0; e < E; e++) {
        struct mlp mlp = expert_alone(b, w, e);
        for (int m = 0; m < MAX_ROWS; m++)
            for (int i = 0; i < N_USED; i++)
                if (expert[m][i] == e)
                    add_mlp(b, &mlp, sum + (size_t)m * K, h + (size_t)m * K, weight[m][i], w->K,
                            w->F);
        free_experts(b, &(struct experts){.mlp = mlp});
    }
    if (w->F_shared)
        b->compute->matmul(b, (float *const[]){shared}, h, NULL, &whole.shared_gate, 1, MAX_ROWS);
    for (int m = 0; w->F_shared && m < MAX_ROWS; m++)
        add_mlp(b, &whole.shared, sum + (size_t)m * K, h + (size_t)m * K,
                1.0f / (1.0f + plain_exp(-shared[m])), w->K, w->F_shared);
    free_experts(b, &whole);
    backend_close(b);
    free(h);
    return sum;
}

/* Runs the op twice: leftovers of the first run in the scratch must not affect the second. */
static void check_rows(struct backend *b, const struct world *w, const float *right, int M) {
    const struct norm norm = {.gain = w->gain, .epsilon = 1e-5f};
    size_t n = (size_t)M * (size_t)w->K;
    struct experts experts = take_experts(b, w);
    float *x = mem_alloc(n * sizeof *x);
    for (int i = 0; i < 2; i++) {
        memcpy(x, w->x, n * sizeof *x);
        b->compute->experts(b, x, x, &norm, &experts, M);
        assert_same_floats(x, right, n, b->path);
        b->compute->experts(b, x, x, &norm, &experts, (M + 1) / 2);
    }
    free_experts(b, &experts);
    free(x);
}

static void check_world(struct world w) {
    float *right = make_right(&w);
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        for (int i = 0; i < N_ROW_COUNTS; i++) {
            int M = row_counts[i], threads = 1 + (i + (int)(path - backend_cpu_paths())) % 4;
            struct backend *b = open_for(&w, *path, threads, M);
            check_rows(b, &w, right, M);
            backend_close(b);
        }
    free(right);
    free_world(&w);
}

START_TEST(the_op_is_its_steps) {
    static const struct {
        enum dtype type, down;
    } types[] = {{DTYPE_Q4_1, DTYPE_Q6_K}, {DTYPE_Q4_K, DTYPE_Q8_0}, {DTYPE_BF16, DTYPE_F16},
                 {DTYPE_F32, DTYPE_F32},   {DTYPE_Q8_0, DTYPE_Q5_1}, {DTYPE_Q6_K, DTYPE_BF16}};
    check_world(make_world(256, 256, 0, types[_i].type, types[_i].down));
}
END_TEST

START_TEST(a_shared_expert_is_added_last) {
    check_world(make_world(64, 32, 96, DTYPE_Q8_0, DTYPE_Q4_0));
    check_world(make_world(64, 96, 32, DTYPE_BF16, DTYPE_BF16));
}
END_TEST

START_TEST(each_expert_has_its_biases) {
    check_world(add_biases(make_world(64, 96, 0, DTYPE_Q8_0, DTYPE_BF16)));
    check_world(add_biases(make_world(48, 16, 0, DTYPE_F32, DTYPE_F32)));
    check_world(add_biases(make_world(64, 32, 0, DTYPE_MXFP4, DTYPE_MXFP4)));
}
END_TEST

/* The router has a separate norm and scales its products; the weights have scales. */
START_TEST(the_router_may_have_its_own_norm) {
    check_world(add_norm_of_router(make_world(64, 96, 0, DTYPE_Q8_0, DTYPE_BF16)));
    check_world(add_norm_of_router(make_world(48, 16, 0, DTYPE_F32, DTYPE_F32)));
}
END_TEST

START_TEST(each_expert_has_its_scale) {
    static const float scale[E] = {1, 2, 3, 4, 5, 6}, logits[E] = {0, 9, 0, 0, 9, 8.5f};
    struct experts experts = {.E = E, .n_used = N_USED, .normalises = true};
    int32_t expert[N_USED];
    float plain[N_USED], scaled[N_USED];
    route_row(logits, &experts, expert, plain);
    experts.expert_scale = scale;
    route_row(logits, &experts, expert, scaled);
    for (int i = 0; i < N_USED; i++) ck_assert(scaled[i] == plain[i] * scale[expert[i]]);
}
END_TEST

/* Hidden blocks of 32 are half empty. */
START_TEST(widths_of_sixteen_fit) {
    check_world(make_world(48, 16, 0, DTYPE_F32, DTYPE_F32));
    check_world(make_world(80, 48, 16, DTYPE_F16, DTYPE_BF16));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_experts");
    TCase *core = tcase_create("core");
    tcase_add_test(core, the_largest_are_chosen_by_rising_number);
    tcase_add_test(core, of_equals_the_lower_number_is_chosen);
    tcase_add_test(core, weights_are_of_all_experts_unless_normalised);
    tcase_add_test(core, large_logits_do_not_overflow);
    tcase_add_test(core, sigmoids_are_chosen_with_their_correction);
    tcase_add_test(core, softmaxes_are_chosen_with_their_correction);
    tcase_add_test(core, groups_of_a_softmax_rank_by_their_best);
    tcase_add_test(core, only_the_best_groups_count);
    tcase_add_test(core, nans_leave_a_choice);
    tcase_add_loop_test(core, the_op_is_its_steps, 0, 6);
    tcase_add_test(core, a_shared_expert_is_added_last);
    tcase_add_test(core, each_expert_has_its_biases);
    tcase_add_test(core, the_router_may_have_its_own_norm);
    tcase_add_test(core, each_expert_has_its_scale);
    tcase_add_test(core, widths_of_sixteen_fit);
    tcase_set_timeout(core, 300);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
