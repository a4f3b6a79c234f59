/* The products of adapters, on every path and with any neighbours: rows of different adapters, with
 * numbers of different types, and rows without one share an op. A row's bits are those of the
 * written order, and a row without an adapter has the bits of an op without adapters. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { ADAPTERS = 3, MAX_ROWS = 290, MAX_RANK = 19 };
static const int ranks[ADAPTERS + 1] = {0, 1, 8, MAX_RANK};
static const float scales[ADAPTERS + 1] = {0, 2, 0.5f, -1.25f};
/* Of the adapters, rotated from one projection to the next. */
static const enum dtype number_types[ADAPTERS] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
static const int row_counts[] = {1, 3, 16, 17, 40, MAX_ROWS};
enum { N_ROW_COUNTS = sizeof row_counts / sizeof *row_counts };

/* One projection with its adapters. */
struct projection {
    int N, K;
    enum dtype type;
    void *rows;
    float *a[ADAPTERS + 1], *b[ADAPTERS + 1], *bias;
    void *kept_a[ADAPTERS + 1], *kept_b[ADAPTERS + 1]; /* the same numbers in the adapter's type */
    struct low_rank low[ADAPTERS + 1];
    struct low_ranks ranks;
    struct matrix *w;
};

static struct row_adapters of_rows;
static int32_t adapter[MAX_ROWS];

/* Rounds n floats to the type, and returns them in it. The caller frees them. */
static void *keep(float *numbers, size_t n, enum dtype type) {
    if (type == DTYPE_F32) return memcpy(malloc(n * sizeof *numbers), numbers, n * sizeof *numbers);
    uint16_t *kept = malloc(n * sizeof *kept);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        kept[i] = type == DTYPE_F16 ? float_to_half(numbers[i]) : (uint16_t)(bits >> 16);
    }
    dequantise(type, kept, numbers, n);
    return kept;
}

static void make(struct projection *p, int N, int K, enum dtype type, uint64_t seed) {
    uint64_t state = seed;
    *p = (struct projection){.N = N, .K = K, .type = type};
    p->rows = random_weights(&state, type, (size_t)N * (size_t)K);
    p->bias = random_floats(&state, (size_t)N);
    for (int i = 1; i <= ADAPTERS; i++) {
        p->a[i] = random_floats(&state, (size_t)ranks[i] * (size_t)K);
        p->b[i] = random_floats(&state, low_rank_numbers(ranks[i], N));
        const enum dtype type_of = number_types[((uint64_t)i + seed) % ADAPTERS];
        p->kept_a[i] = keep(p->a[i], (size_t)ranks[i] * (size_t)K, type_of);
        p->kept_b[i] = keep(p->b[i], low_rank_numbers(ranks[i], N), type_of);
        p->low[i] = (struct low_rank){ranks[i], scales[i], p->kept_a[i], p->kept_b[i], type_of};
    }
    p->ranks = (struct low_ranks){&of_rows, p->low};
}

static void drop(struct projection *p) {
    free(p->rows), free(p->bias);
    for (int i = 1; i <= ADAPTERS; i++) {
        free(p->a[i]), free(p->b[i]);
        free(p->kept_a[i]), free(p->kept_b[i]);
    }
}

static void take(struct backend *b, struct projection *p) {
    ck_assert_int_eq(
        b->memory->matrix_new(b, &p->w, p->type, p->N, p->K, p->rows, MATRIX_NATIVE, NULL),
        STATUS_OK);
}

static struct linear linear_of(struct projection *p, bool adapts) {
    return (struct linear){p->w, p->bias, 0, adapts ? &p->ranks : NULL};
}

static struct backend *open_with(const char *path, int threads, int max_k) {
    struct backend_config config = {.threads = threads,
                                    .path = path,
                                    .max_rows = MAX_ROWS,
                                    .max_k = max_k,
                                    .max_adapter_rank = MAX_RANK};
    struct backend *b = NULL;
    ck_assert_int_eq(backend_cpu_open(&b, &config, NULL), STATUS_OK);
    return b;
}

/* Adds the change of adapter i to one row's outputs, as order.md says. `scale` is the
 * projection's. */
static void add_by_hand(const struct projection *p, int i, float scale, float *y, const float *x) {
    float inner[MAX_RANK];
    for (int r = 0; r < ranks[i]; r++) {
        float s[LANES] = {0};
        for (int k = 0; k < p->K; k++)
            s[k % LANES] = fmaf(x[k], p->a[i][r * p->K + k], s[k % LANES]);
        inner[r] = tree_sum(s);
    }
    for (int n = 0; n < p->N && i > 0; n++) {
        float sum = 0;
        for (int r = 0; r < ranks[i]; r++)
            sum = fmaf(inner[r], p->b[i][low_rank_at(ranks[i], n, r)], sum);
        y[n] = fmaf(sum, scales[i] * scale, y[n]);
    }
}

/* Three projections of normed rows, with one norm. */
static void check_matmul(struct backend *b, struct projection *p, const float *x,
                         const struct norm *norm, int M) {
    float *with[3], *without[3], *normed = mem_alloc((size_t)p->K * sizeof *normed);
    struct linear adapted[3], plain[3];
    for (int i = 0; i < 3; i++) {
        with[i] = mem_alloc((size_t)M * (size_t)p[i].N * sizeof(float));
        without[i] = mem_alloc((size_t)M * (size_t)p[i].N * sizeof(float));
        adapted[i] = linear_of(&p[i], true);
        plain[i] = linear_of(&p[i], false);
    }
    adapted[1].low = NULL; /* a projection between the others that is not adapted */
    b->compute->matmul(b, with, x, norm, adapted, 3, M);
    b->compute->matmul(b, without, x, norm, plain, 3, M);
    for (int i = 0; i < 3; i++) {
        for (int m = 0; m < M && i != 1; m++) {
            plain_rmsnorm(normed, x + m * p->K, norm->gain, p->K, norm->epsilon);
            add_by_hand(&p[i], adapter[m], 1, without[i] + m * p[i].N, normed);
        }
        assert_same_floats(with[i], without[i], (size_t)M * (size_t)p[i].N, b->path);
        free(with[i]), free(without[i]);
    }
    free(normed);
}

/* The scale of a projection applies to the adapter's change, too. */
static void check_add(struct backend *b, struct projection *p, const float *x, int M) {
    const size_t n = (size_t)M * (size_t)p->N;
    float *with = mem_calloc(n, sizeof *with), *want = mem_calloc(n, sizeof *want);
    struct linear adapted = linear_of(p, true), plain = linear_of(p, false);
    adapted.scale = plain.scale = 0.5f;
    b->compute->matmul(b, &want, x, NULL, &plain, 1, M);
    b->compute->matmul_add(b, with, x, &adapted, M);
    for (int m = 0; m < M; m++) add_by_hand(p, adapter[m], 0.5f, want + m * p->N, x + m * p->K);
    for (size_t i = 0; i < n; i++) want[i] = 0 + want[i];
    assert_same_floats(with, want, n, b->path);
    free(with), free(want);
}

/* A whole MLP: each row equals the same row alone, and rows of the base those without adapters. */
static void check_mlp(struct backend *b, struct projection *gate, struct projection *up,
                      struct projection *down, const float *x, const struct norm *norm, int M) {
    const size_t n = (size_t)M * (size_t)down->N;
    struct mlp adapted = {ACTIVATION_SILU, linear_of(gate, true), linear_of(up, true),
                          linear_of(down, true)};
    struct mlp plain = {ACTIVATION_SILU, linear_of(gate, false), linear_of(up, false),
                        linear_of(down, false)};
    float *y = mem_calloc(n, sizeof *y), *base = mem_calloc(n, sizeof *base);
    float *alone = mem_alloc((size_t)down->N * sizeof *alone);
    b->compute->mlp(b, y, x, norm, &adapted, M);
    b->compute->mlp(b, base, x, norm, &plain, M);
    int32_t all[MAX_ROWS];
    memcpy(all, adapter, sizeof all);
    for (int m = 0; m < M; m++) {
        const float *row = y + m * down->N;
        const size_t bytes = (size_t)down->N * sizeof *row;
        adapter[0] = all[m];
        memset(alone, 0, bytes);
        b->compute->mlp(b, alone, x + m * gate->K, norm, &adapted, 1);
        assert_same_floats(row, alone, (size_t)down->N, b->path);
        bool is_base = memcmp(row, base + m * down->N, bytes) == 0;
        ck_assert_int_eq(is_base, all[m] == 0);
    }
    memcpy(adapter, all, sizeof all);
    free(y), free(base), free(alone);
}

static void check_rows(struct backend *b, struct projection p[3], const float *x,
                       const struct norm *norm, int M, uint64_t *random) {
    for (int m = 0; m < M; m++) adapter[m] = random_below(random, ADAPTERS + 1);
    of_rows.adapter = adapter;
    check_matmul(b, p, x, norm, M);
    check_add(b, &p[0], x, M);
}

static const struct {
    int K, N[3];
    enum dtype type;
} shapes[] = {{64, {96, 40, 33}, DTYPE_Q8_0},
              {96, {64, 64, 48}, DTYPE_F32},
              {45, {50, 16, 7}, DTYPE_F32},
              {256, {32, 16, 16}, DTYPE_Q4_K},
              {64, {80, 24, 16}, DTYPE_BF16}};

START_TEST(products_follow_the_written_order) {
    struct projection p[3];
    uint64_t random = 5;
    const int K = shapes[_i].K;
    float *x = random_floats(&random, (size_t)MAX_ROWS * (size_t)K);
    float *gain = random_floats(&random, (size_t)K);
    const struct norm norm = {.gain = gain, .epsilon = 1e-5f};
    for (int i = 0; i < 3; i++) make(&p[i], shapes[_i].N[i], K, shapes[_i].type, 11 + (uint64_t)i);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_with(*path, 1 + (int)(path - backend_cpu_paths()), 256);
        for (int i = 0; i < 3; i++) take(b, &p[i]);
        for (int i = 0; i < N_ROW_COUNTS; i++) check_rows(b, p, x, &norm, row_counts[i], &random);
        for (int i = 0; i < 3; i++) b->memory->matrix_free(b, p[i].w);
        backend_close(b);
    }
    for (int i = 0; i < 3; i++) drop(&p[i]);
    free(x), free(gain);
}
END_TEST

static const struct {
    int K, F;
    enum dtype type;
} mlps[] = {{64, 96, DTYPE_Q8_0}, {45, 50, DTYPE_F32}, {64, 77, DTYPE_F16}};

START_TEST(an_mlp_does_not_depend_on_neighbours) {
    struct projection gate, up, down;
    uint64_t random = 9;
    const int K = mlps[_i].K, F = mlps[_i].F;
    float *x = random_floats(&random, (size_t)MAX_ROWS * (size_t)K);
    float *gain = random_floats(&random, (size_t)K);
    const struct norm norm = {.gain = gain, .epsilon = 1e-5f};
    make(&gate, F, K, mlps[_i].type, 3);
    make(&up, F, K, mlps[_i].type, 4);
    make(&down, K, F, mlps[_i].type == DTYPE_Q8_0 ? DTYPE_Q8_0 : DTYPE_F32, 5);
    of_rows.adapter = adapter;
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        for (int i = 0; i < N_ROW_COUNTS - 1; i++) {
            struct backend *b = open_with(*path, 1 + i % 3, 128);
            for (int m = 0; m < MAX_ROWS; m++) adapter[m] = random_below(&random, ADAPTERS + 1);
            take(b, &gate), take(b, &up), take(b, &down);
            check_mlp(b, &gate, &up, &down, x, &norm, row_counts[i]);
            b->memory->matrix_free(b, gate.w);
            b->memory->matrix_free(b, up.w);
            b->memory->matrix_free(b, down.w);
            backend_close(b);
        }
    drop(&gate), drop(&up), drop(&down);
    free(x), free(gain);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_low_rank");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, products_follow_the_written_order, 0, sizeof shapes / sizeof *shapes);
    tcase_add_loop_test(core, an_mlp_does_not_depend_on_neighbours, 0, sizeof mlps / sizeof *mlps);
    tcase_set_timeout(core, 300);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
