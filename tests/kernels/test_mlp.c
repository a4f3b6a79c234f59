/* The ops that combine several steps, compared with the separate steps in plain C: the same bytes
 * on every path, for every type, number of rows and threads. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { MAX_ROWS = 300 };
static const int row_counts[] = {1, 2, 5, 15, 16, 17, 40, 300};
enum { N_ROW_COUNTS = sizeof row_counts / sizeof *row_counts };

/* The weights of an MLP as in a file. */
struct world {
    int K, F;
    enum dtype type, down_type;
    void *gate, *up, *down;
    float *x, *gain;
};

static struct world make_world(int K, int F, enum dtype type, enum dtype down_type) {
    uint64_t state = 31 + (uint64_t)type * 64 + (uint64_t)down_type;
    size_t n = (size_t)K * (size_t)F;
    struct world w = {.K = K, .F = F, .type = type, .down_type = down_type};
    w.gate = random_weights(&state, type, n);
    w.up = random_weights(&state, type, n);
    w.down = random_weights(&state, down_type, n);
    w.x = random_floats(&state, (size_t)MAX_ROWS * (size_t)K);
    w.gain = random_floats(&state, (size_t)K);
    return w;
}

static void free_world(struct world *w) {
    free(w->gate), free(w->up), free(w->down), free(w->x), free(w->gain);
}

static struct matrix *take(struct backend *b, enum dtype type, int N, int K, const void *rows) {
    struct matrix *w = NULL;
    ck_assert_int_eq(b->memory->matrix_new(b, &w, type, N, K, rows, MATRIX_NATIVE, NULL),
                     STATUS_OK);
    return w;
}

/* y[M][N] = x times the matrix, without other steps. */
static void multiply(struct backend *b, float *y, const float *x, enum dtype type, int N, int K,
                     const void *rows, int M) {
    struct matrix *w = take(b, type, N, K, rows);
    b->compute->matmul(b, &y, x, NULL, &(struct linear){w, NULL}, 1, M);
    b->memory->matrix_free(b, w);
}

/* ---- one step after the other --------------------------------------------------------------- */

/* The expected results for MAX_ROWS rows. */
struct right {
    float *normed_gate; /* norm(x) times gate */
    float *added;       /* x times the gate's first outputs, at most as many as inputs */
    float *mlp;
};

static struct right make_right(const struct world *w) {
    size_t wide = (size_t)MAX_ROWS * (size_t)w->F, narrow = (size_t)MAX_ROWS * (size_t)w->K;
    struct backend *b = open_backend("plain", 1, MAX_ROWS, w->K > w->F ? w->K : w->F);
    struct right right = {mem_alloc(wide * sizeof(float)), mem_alloc(narrow * sizeof(float)),
                          mem_alloc(narrow * sizeof(float))};
    float *normed = mem_alloc(narrow * sizeof(float)), *up = mem_alloc(wide * sizeof(float));
    float *hidden = mem_alloc(wide * sizeof(float));
    for (int m = 0; m < MAX_ROWS; m++)
        plain_rmsnorm(normed + m * w->K, w->x + m * w->K, w->gain, w->K, 1e-5f);
    multiply(b, right.normed_gate, normed, w->type, w->F, w->K, w->gate, MAX_ROWS);
    multiply(b, up, normed, w->type, w->F, w->K, w->up, MAX_ROWS);
    for (size_t i = 0; i < wide; i++) {
        float gate = right.normed_gate[i];
        hidden[i] = gate / (1.0f + plain_exp(-gate)) * up[i];
    }
    multiply(b, right.mlp, hidden, w->down_type, w->K, w->F, w->down, MAX_ROWS);
    for (size_t i = 0; i < narrow; i++) right.mlp[i] = w->x[i] + right.mlp[i];
    multiply(b, right.added, w->x, w->type, w->K < w->F ? w->K : w->F, w->K, w->gate, MAX_ROWS);
    free(normed), free(up), free(hidden);
    backend_close(b);
    return right;
}

static void free_right(struct right *right) {
    free(right->normed_gate), free(right->added), free(right->mlp);
}

/* ---- the ops -------------------------------------------------------------------------------- */

static void check_matmul(struct backend *b, const struct world *w, const struct right *right,
                         int M) {
    const struct norm norm = {.gain = w->gain, .epsilon = 1e-5f};
    size_t n = (size_t)M * (size_t)w->F;
    struct matrix *gate = take(b, w->type, w->F, w->K, w->gate);
    float *y = mem_alloc(n * sizeof *y);
    b->compute->matmul(b, &y, w->x, &norm, &(struct linear){gate, NULL}, 1, M);
    assert_same_floats(y, right->normed_gate, n, b->path);
    memset(y, 0xff, n * sizeof *y);
    b->compute->logits(b, y, w->x, &norm, &(struct lm_head){.linear = {gate}}, M);
    assert_same_floats(y, right->normed_gate, n, b->path);
    b->memory->matrix_free(b, gate);
    free(y);
}

/* Adds the first outputs of the gate, as many as there are inputs, to existing numbers. */
static void check_add(struct backend *b, const struct world *w, const struct right *right, int M) {
    int N = w->K < w->F ? w->K : w->F;
    size_t n = (size_t)M * (size_t)N;
    struct matrix *gate = take(b, w->type, N, w->K, w->gate);
    float *sum = mem_alloc(n * sizeof *sum), *want = mem_alloc(n * sizeof *sum);
    for (size_t i = 0; i < n; i++) sum[i] = (float)i / 64, want[i] = sum[i] + right->added[i];
    b->compute->matmul_add(b, sum, w->x, &(struct linear){gate, NULL}, M);
    assert_same_floats(sum, want, n, b->path);
    b->memory->matrix_free(b, gate);
    free(sum), free(want);
}

/* Runs the op twice: leftovers of the first run in the scratch must not affect the second. */
static void check_mlp(struct backend *b, const struct world *w, const struct right *right, int M) {
    const struct norm norm = {.gain = w->gain, .epsilon = 1e-5f};
    size_t n = (size_t)M * (size_t)w->K;
    struct matrix *gate = take(b, w->type, w->F, w->K, w->gate);
    struct matrix *up = take(b, w->type, w->F, w->K, w->up);
    struct matrix *down = take(b, w->down_type, w->K, w->F, w->down);
    const struct mlp mlp = {ACTIVATION_SILU, {gate, NULL}, {up, NULL}, {down, NULL}};
    float *x = mem_alloc(n * sizeof *x);
    for (int i = 0; i < 2; i++) {
        memcpy(x, w->x, n * sizeof *x);
        b->compute->mlp(b, x, x, &norm, &mlp, M);
        assert_same_floats(x, right->mlp, n, b->path);
        b->compute->mlp(b, x, x, &norm, &mlp, M);
        ck_assert(memcmp(x, right->mlp, n * sizeof *x) != 0);
    }
    b->memory->matrix_free(b, gate);
    b->memory->matrix_free(b, up);
    b->memory->matrix_free(b, down);
    free(x);
}

static void check_world(struct world w) {
    struct right right = make_right(&w);
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        for (int i = 0; i < N_ROW_COUNTS; i++) {
            int M = row_counts[i], threads = 1 + (i + (int)(path - backend_cpu_paths())) % 4;
            struct backend *b = open_backend(*path, threads, M, w.K > w.F ? w.K : w.F);
            check_matmul(b, &w, &right, M);
            check_add(b, &w, &right, M);
            check_mlp(b, &w, &right, M);
            backend_close(b);
        }
    free_right(&right);
    free_world(&w);
}

START_TEST(ops_are_their_steps) {
    static const enum dtype down[] = {DTYPE_Q4_1, DTYPE_Q6_K, DTYPE_F16, DTYPE_F32, DTYPE_Q8_0};
    static const enum dtype type[] = {DTYPE_Q4_1, DTYPE_Q4_K, DTYPE_BF16, DTYPE_F32, DTYPE_F16};
    check_world(make_world(256, 512, type[_i], down[_i]));
}
END_TEST

/* A hidden size that is not a multiple of a block, which is possible only for two-byte and float
 * weights. */
START_TEST(sizes_need_not_fit) {
    check_world(make_world(64, 77, DTYPE_Q8_0, DTYPE_F16));
    check_world(make_world(45, 50, DTYPE_F32, DTYPE_F32));
    check_world(make_world(96, 33, DTYPE_Q5_1, DTYPE_F32));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_mlp");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, ops_are_their_steps, 0, 5);
    tcase_add_test(core, sizes_need_not_fit);
    tcase_set_timeout(core, 300);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
