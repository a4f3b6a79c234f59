/* Ops on rows: compared with double precision, and the same bytes on every path, alone or in a
 * batch, with any number of threads. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { MAX_ROWS = 70 };
static const int lengths[] = {1, 15, 16, 33, 64, 576, 1536};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

/* Runs `op` on M rows in plain C, and on every path with 1 to 4 threads. The results must have the
 * same bytes. */
struct rows {
    int M, K;
    const float *x, *more;
    float *y;
};

static void check_rows(void (*op)(struct backend *b, const struct rows *rows), int K) {
    uint64_t state = 77 + (uint64_t)K;
    size_t n = (size_t)MAX_ROWS * (size_t)K;
    float *x = random_floats(&state, n), *more = random_floats(&state, n);
    float *right = mem_alloc(n * sizeof *right), *y = mem_alloc(n * sizeof *y);
    struct backend *plain = open_backend("plain", 1, MAX_ROWS, K);
    op(plain, &(struct rows){MAX_ROWS, K, x, more, right});
    backend_close(plain);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        for (int threads = 1; threads <= 4; threads++) {
            int M = threads == 1 ? 1 : MAX_ROWS - threads;
            struct backend *b = open_backend(*path, threads, MAX_ROWS, K);
            op(b, &(struct rows){M, K, x, more, y});
            assert_same_floats(y, right, (size_t)M * (size_t)K, *path);
            backend_close(b);
        }
    }
    free(x), free(more), free(right), free(y);
}

static void do_rmsnorm(struct backend *b, const struct rows *r) {
    for (int m = 0; m < r->M; m++)
        cpu_of(b)->path->rmsnorm(r->y + m * r->K, r->x + m * r->K, r->more, r->K, 1e-5f);
}

/* y[n] = silu(gate) * up, computed as inputs of float weights. */
static void gate_row(const struct path *path, float *y, const float *gate, const float *up, int n) {
    struct activations a = {.M = 1, .K = n, .width = 1, .floats = true, .x = y};
    for (int i = 0; i < blocks_of(n); i++) {
        int left = n - i * BLOCK, count = left < BLOCK ? left : BLOCK;
        float x[BLOCK] = {0}, times[BLOCK] = {0};
        memcpy(x, gate + i * BLOCK, (size_t)count * sizeof *x);
        memcpy(times, up + i * BLOCK, (size_t)count * sizeof *x);
        path->activate(x, times, BLOCK, ACTIVATION_SILU);
        path->put_block(&a, 0, i, 1, x, count);
    }
}

static void do_gate(struct backend *b, const struct rows *r) {
    for (int m = 0; m < r->M; m++)
        gate_row(cpu_of(b)->path, r->y + m * r->K, r->x + m * r->K, r->more + m * r->K, r->K);
}

/* Adds 16 columns at a time, like the outputs of a panel. */
static void do_add_panels(struct backend *b, const struct rows *r) {
    memcpy(r->y, r->x, (size_t)(r->M * r->K) * sizeof(float));
    for (int m = 0; m < r->M; m++)
        for (int k = 0; k < r->K; k += LANES) {
            float panel[LANES] = {0};
            int n = r->K - k < LANES ? r->K - k : LANES;
            memcpy(panel, r->more + m * r->K + k, (size_t)n * sizeof *panel);
            cpu_of(b)->path->add_panel(r->y + m * r->K + k, (size_t)r->K, panel, 1, n);
        }
    for (int i = 0; i < r->M * r->K; i++) ck_assert(r->y[i] == r->x[i] + r->more[i]);
}

START_TEST(paths_give_the_same_bytes) {
    check_rows(do_rmsnorm, lengths[_i]);
    check_rows(do_gate, lengths[_i]);
    check_rows(do_add_panels, lengths[_i]);
}
END_TEST

START_TEST(rows_are_accurate) {
    int K = lengths[_i];
    uint64_t state = 9;
    float *x = random_floats(&state, (size_t)K), *g = random_floats(&state, (size_t)K);
    float *y = mem_alloc((size_t)K * sizeof *y), *z = mem_alloc((size_t)K * sizeof *z);
    plain_rmsnorm(y, x, g, K, 1e-5f);
    gate_row(&path_plain, z, x, g, K);
    double sum = 0;
    for (int k = 0; k < K; k++) sum += (double)x[k] * (double)x[k];
    for (int k = 0; k < K; k++) {
        double norm = (double)x[k] / sqrt(sum / K + (double)1e-5f) * (double)g[k];
        double silu = (double)x[k] / (1 + exp(-(double)x[k])) * (double)g[k];
        ck_assert_double_le(fabs(norm - (double)y[k]), 4e-7 * fabs(norm) + 1e-30);
        ck_assert_double_le(fabs(silu - (double)z[k]), 4e-7 * fabs(silu) + 1e-30);
    }
    free(x), free(g), free(y), free(z);
}
END_TEST

/* ---- the exponential ------------------------------------------------------------------------ */

/* The error is below 1.1 units in the last place over the whole range (measured 1.01). order.md
 * states it. */
START_TEST(exponential_is_accurate) {
    double worst = 0;
    for (double x = -87.33; x < 88.37; x += 0.000731) {
        float at = (float)x;
        double right = exp((double)at), error = fabs((double)plain_exp(at) - right);
        double unit = ldexp(1, ilogb(right) - 23);
        worst = fmax(worst, error / unit);
    }
    ck_assert_double_lt(worst, 1.1);
    ck_assert(plain_exp(0) == 1.0f && plain_exp(-0.0f) == 1.0f);
    ck_assert(plain_exp(-88) == 0 && plain_exp(-INFINITY) == 0);
    ck_assert(isfinite(plain_exp(INFINITY)) && plain_exp(1000) == plain_exp(INFINITY));
    ck_assert(isnan(plain_exp(NAN)));
}
END_TEST

START_TEST(silu_of_extremes) {
    static const float gate[] = {0,     -0.0f,  100,    -100, 1e30f, -1e30f, 88,  -88.5f,
                                 3e38f, -3e38f, 1e-40f, 1,    -1,    20,     -20, 0.5f};
    enum { N = sizeof gate / sizeof *gate };
    float up[N], right[N], y[N];
    for (int i = 0; i < N; i++) {
        up[i] = 1;
        right[i] = gate[i] / (1.0f + plain_exp(-gate[i]));
        ck_assert(isfinite(right[i]));
    }
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_backend(*path, 1, 1, N);
        gate_row(cpu_of(b)->path, y, gate, up, N);
        assert_same_floats(y, right, N, *path);
        backend_close(b);
    }
}
END_TEST

/* ---- rope ----------------------------------------------------------------------------------- */

/* A float32 cache of one layer stores the keys of each head as [D][B] and its values as
 * [B][D_padded]. */
static void assert_written(const struct kv_cache *cache, const float *k, const float *v, int n) {
    const struct kv_kind *kv = kv_kind(cache, 0);
    for (int m = 0; m < n; m++) {
        for (int g = 0; g < kv->G; g++, k += kv->D, v += kv->D) {
            int offset = m % kv->B;
            const float *keys = (const float *)kv_head_keys(kv, 0, m / kv->B, g);
            const float *values = (const float *)kv_head_values(kv, 0, m / kv->B, g);
            for (int d = 0; d < kv->D; d++) {
                ck_assert(memcmp(&keys[d * kv->B + offset], &k[d], sizeof *k) == 0);
                ck_assert(values[offset * kv->D_padded + d] == v[d]);
            }
        }
    }
}

/* Rotates x [n][heads][D] as queries at the given positions. The keys are the same numbers, and the
 * values are the same numbers without rotation. */
static void turn(struct backend *b, float *x, int heads, int D, const struct rope *rope,
                 const int32_t *position, int n) {
    struct kv_config config = {1, heads, D, (n + 3) / 4, 4, DTYPE_F32};
    struct kv_cache *cache = NULL;
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    int32_t slot[MAX_ROWS];
    for (int i = 0; i < n; i++) slot[i] = i;
    struct step step = {.M = n, .position = position, .slot = slot};
    size_t bytes = (size_t)(n * heads * D) * sizeof *x;
    float *k = mem_alloc(bytes), *v = mem_alloc(bytes);
    memcpy(k, x, bytes), memcpy(v, x, bytes);
    b->compute->step_begin(b, &step, cache);
    b->compute->rope_write(b, cache, 0, &(struct heads){.H = heads, .rope = *rope}, x, k, v);
    assert_written(cache, x, v, n);
    b->cache->kv_free(b, cache);
    free(k), free(v);
}

struct rope_case {
    int heads, D, D_rope;
    enum rope_layout layout;
};
static const struct rope_case rope_cases[] = {
    {9, 64, 64, ROPE_ADJACENT}, {9, 64, 64, ROPE_HALVES},    {2, 80, 32, ROPE_HALVES},
    {3, 20, 14, ROPE_ADJACENT}, {1, 2, 2, ROPE_HALVES},      {1, 8, 0, ROPE_ADJACENT},
    {5, 96, 96, ROPE_HALVES},   {2, 100, 100, ROPE_HALVES},  {3, 100, 58, ROPE_HALVES},
    {4, 80, 80, ROPE_ADJACENT}, {2, 112, 90, ROPE_ADJACENT},
};
enum { N_ROPE = sizeof rope_cases / sizeof *rope_cases };

START_TEST(rope_turns_pairs) {
    const struct rope_case c = rope_cases[_i];
    uint64_t state = 3;
    size_t n = (size_t)MAX_ROWS * (size_t)(c.heads * c.D);
    float inv_freq[64], *x = random_floats(&state, n), *right = mem_alloc(n * sizeof *right);
    float *y = mem_alloc(n * sizeof *y);
    int32_t position[MAX_ROWS];
    for (int i = 0; i < 64; i++) inv_freq[i] = powf(10000, -(float)i / 32);
    for (int i = 0; i < MAX_ROWS; i++) position[i] = i * 61;
    const struct rope rope = {c.D_rope, inv_freq, c.layout};
    memcpy(right, x, n * sizeof *x);
    struct backend *plain = open_backend("plain", 1, MAX_ROWS, 64);
    turn(plain, right, c.heads, c.D, &rope, position, MAX_ROWS);
    backend_close(plain);
    for (size_t i = 0; i < n; i++) {
        int d = (int)(i % (size_t)c.D), pairs = c.D_rope / 2,
            m = (int)(i / (size_t)(c.heads * c.D));
        bool adjacent = c.layout == ROPE_ADJACENT;
        bool second = adjacent ? d % 2 : d >= pairs;
        int pair = adjacent ? d / 2 : d - (second ? pairs : 0);
        size_t other = adjacent ? i ^ 1 : second ? i - (size_t)pairs : i + (size_t)pairs;
        if (d >= c.D_rope) {
            ck_assert(right[i] == x[i]);
            continue;
        }
        double angle = (double)((float)position[m] * inv_freq[pair]);
        double value =
            (double)x[i] * cos(angle) + (second ? 1 : -1) * (double)x[other] * sin(angle);
        ck_assert_double_eq_tol((double)right[i], value, 1e-5);
    }
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        for (int threads = 1; threads <= 3; threads++) {
            int first = threads * 7, rows = threads == 1 ? 1 : MAX_ROWS - first;
            size_t from = (size_t)first * (size_t)(c.heads * c.D),
                   count = (size_t)rows * (size_t)(c.heads * c.D);
            struct backend *b = open_backend(*path, threads, MAX_ROWS, 64);
            memcpy(y, x + from, count * sizeof *x);
            turn(b, y, c.heads, c.D, &rope, position + first, rows);
            assert_same_floats(y, right + from, count, *path);
            backend_close(b);
        }
    }
    free(x), free(right), free(y);
}
END_TEST

/* Uses more lists of frequencies than there are tables, and new steps: all angles are right. */
START_TEST(rope_tables_are_of_this_step) {
    float inv_freq[6][2], x[4], right[4];
    struct backend *b = open_backend(NULL, 1, 4, 32), *fresh = open_backend(NULL, 1, 4, 32);
    for (int i = 0; i < 6; i++) inv_freq[i][0] = 0.1f * (float)(i + 1), inv_freq[i][1] = 0.01f;
    for (int i = 0; i < 20; i++) {
        int32_t position = i / 7;
        for (int j = 0; j < 4; j++) x[j] = right[j] = (float)(j + 1);
        float copy[2] = {inv_freq[i % 6][0], inv_freq[i % 6][1]};
        turn(b, x, 1, 4, &(struct rope){4, inv_freq[i % 6], ROPE_HALVES}, &position, 1);
        turn(fresh, right, 1, 4, &(struct rope){4, copy, ROPE_HALVES}, &position, 1);
        assert_same_floats(x, right, 4, "angles");
    }
    backend_close(b), backend_close(fresh);
}
END_TEST

/* ---- moving rows, halves, work of the host -------------------------------------------------- */

START_TEST(gather_and_download) {
    struct backend *b = open_backend(NULL, 2, 8, 32);
    float *x = b->memory->buffer_new(b, 8 * 3 * sizeof *x),
          *y = b->memory->buffer_new(b, 2 * 3 * sizeof *y);
    float host[6];
    ck_assert_uint_eq((uintptr_t)x % 64, 0);
    for (int i = 0; i < 24; i++) ck_assert(x[i] == 0), x[i] = (float)i;
    const int32_t logit_row[2] = {2, 7};
    struct step step = {.M = 8, .R = 2, .logit_row = logit_row};
    b->compute->step_begin(b, &step, NULL);
    b->compute->gather(b, y, x, 3);
    b->memory->download(b, host, y, sizeof host);
    for (int i = 0; i < 6; i++) ck_assert(host[i] == (float)(logit_row[i / 3] * 3 + i % 3));
    b->memory->buffer_free(b, x, 8 * 3 * sizeof *x);
    b->memory->buffer_free(b, y, 2 * 3 * sizeof *y);
    backend_close(b);
}
END_TEST

static void square(void *arg, int i) {
    ((int *)arg)[i] += i * i;
}

START_TEST(parallel_runs_each_once) {
    int squares[100] = {0};
    struct backend *b = open_backend(NULL, 3, 1, 32);
    b->device->parallel(b, square, squares, 100);
    b->device->parallel(b, square, squares, 0);
    for (int i = 0; i < 100; i++) ck_assert_int_eq(squares[i], i * i);
    backend_close(b);
}
END_TEST

/* ---- choosing a path and threads ------------------------------------------------------------ */

static enum status open_path(const char *path, int threads, char *opened, struct err *err) {
    struct backend_config config = {threads, path, 1, 32};
    struct backend *b = NULL;
    enum status status = backend_cpu_open(&b, &config, err);
    if (status == STATUS_OK) strcpy(opened, b->path);
    backend_close(b);
    return status;
}

START_TEST(paths_are_forced_or_refused) {
    char opened[32];
    struct err err = {0};
    const char *const *paths = backend_cpu_paths();
    int n = 0;
    while (paths[n]) n++;
    ck_assert_str_eq(paths[n - 1], "plain");
    unsetenv("PENSTOCK_CPU");
    ck_assert_int_eq(open_path(NULL, 1, opened, &err), STATUS_OK);
    ck_assert_str_eq(opened, paths[0]);
    for (int i = 0; i < n; i++) {
        setenv("PENSTOCK_CPU", paths[i], 1);
        ck_assert_int_eq(open_path(NULL, 1, opened, &err), STATUS_OK);
        ck_assert_str_eq(opened, paths[i]);
    }
    ck_assert_int_eq(open_path(paths[0], 1, opened, &err),
                     STATUS_OK); /* the argument takes precedence */
    ck_assert_str_eq(opened, paths[0]);
    setenv("PENSTOCK_CPU", "abacus", 1);
    ck_assert_int_eq(open_path(NULL, 1, opened, &err), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(err.message, "abacus"));
    ck_assert_ptr_nonnull(strstr(err.message, "plain"));
    unsetenv("PENSTOCK_CPU");
    ck_assert_int_eq(open_path("neon9", 1, opened, &err), STATUS_USAGE);
    ck_assert_int_eq(open_path(NULL, -1, opened, &err), STATUS_USAGE);
    ck_assert_int_eq(open_path(NULL, 100000, opened, &err), STATUS_USAGE);
}
END_TEST

START_TEST(threads_suit_the_process) {
    int threads = backend_cpu_threads();
    ck_assert_int_ge(threads, 1);
    ck_assert_int_le(threads, (int)sysconf(_SC_NPROCESSORS_CONF));
    struct backend *b = open_backend(NULL, 0, 1, 32);
    ck_assert_int_eq(b->n_threads, threads);
    backend_close(b);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_rows");
    TCase *rows = tcase_create("rows"), *other = tcase_create("backend");
    tcase_add_loop_test(rows, paths_give_the_same_bytes, 0, N_LENGTHS);
    tcase_add_loop_test(rows, rows_are_accurate, 0, N_LENGTHS);
    tcase_add_test(rows, exponential_is_accurate);
    tcase_add_test(rows, silu_of_extremes);
    tcase_add_loop_test(rows, rope_turns_pairs, 0, N_ROPE);
    tcase_add_test(rows, rope_tables_are_of_this_step);
    tcase_add_test(other, gather_and_download);
    tcase_add_test(other, parallel_runs_each_once);
    tcase_add_test(other, paths_are_forced_or_refused);
    tcase_add_test(other, threads_suit_the_process);
    tcase_set_timeout(rows, 120);
    suite_add_tcase(suite, rows);
    suite_add_tcase(suite, other);
    return suite_main(suite);
}
