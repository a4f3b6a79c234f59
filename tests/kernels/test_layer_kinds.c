/* Layers that differ from each other: caches with heads of different numbers and sizes, values with
 * a norm or copied from the keys, layers without keys, and gates that multiply given rows. Each is
 * compared with its steps in plain C: the same bytes on every path of this machine. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { ROWS = 21, B = 4, L = 4, H = 4, WIDEST = 96 };
static const struct kv_heads heads_of_layers[L] = {{2, 20}, {1, 48}, {2, 20}, {1, 48}};

/* ---- caches --------------------------------------------------------------------------------- */

static struct kv_cache *cache_new(struct backend *b) {
    struct kv_cache *cache = NULL;
    const struct kv_config config = {.L = L,
                                     .n_blocks = ROWS / B + 2,
                                     .block_size = B,
                                     .dtype = DTYPE_F32,
                                     .heads = heads_of_layers};
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    ck_assert_int_eq(cache->n_kinds, 2);
    return cache;
}

static float key_at(const struct kv_cache *cache, int layer, int row, int g, int d) {
    const struct kv_kind *kv = kv_kind(cache, layer);
    const uint8_t *keys = kv_head_keys(kv, cache->layer[layer].place, row / B, g);
    float value;
    memcpy(&value, keys + (size_t)(d * B + row % B) * sizeof value, sizeof value);
    return value;
}

static float value_at(const struct kv_cache *cache, int layer, int row, int g, int d) {
    const struct kv_kind *kv = kv_kind(cache, layer);
    const uint8_t *values = kv_head_values(kv, cache->layer[layer].place, row / B, g);
    float value;
    memcpy(&value, values + (size_t)(row % B * kv->D_padded + d) * sizeof value, sizeof value);
    return value;
}

/* The inputs of a layer's rows, and the expected results. */
struct rows {
    float *q, *k, *v, *want_k, *want_v;
};

static struct rows rows_new(int layer, const float *ones, bool are_keys) {
    const struct kv_heads *heads = &heads_of_layers[layer];
    uint64_t state = 91 + (uint64_t)layer;
    size_t n = (size_t)(ROWS * heads->G * heads->D), D = (size_t)heads->D;
    struct rows r = {.q = random_floats(&state, (size_t)(ROWS * H) * D),
                     .k = random_floats(&state, n),
                     .v = random_floats(&state, n),
                     .want_k = mem_alloc(n * sizeof(float)),
                     .want_v = mem_alloc(n * sizeof(float))};
    for (size_t i = 0; i < n; i += D) {
        plain_rmsnorm(r.want_k + i, r.k + i, ones + 1, (int)D, 1e-6f);
        plain_rmsnorm(r.want_v + i, (are_keys ? r.k : r.v) + i, ones, (int)D, 1e-6f);
    }
    return r;
}

static void rows_free(struct rows *r) {
    free(r->q), free(r->k), free(r->v), free(r->want_k), free(r->want_v);
}

static void check_rows(const struct kv_cache *cache, int layer, const struct rows *r,
                       const char *path) {
    const struct kv_heads *heads = &heads_of_layers[layer];
    for (int i = 0; i < ROWS * heads->G * heads->D; i++) {
        int d = i % heads->D, g = i / heads->D % heads->G, row = i / heads->D / heads->G;
        float key = key_at(cache, layer, row, g, d), value = value_at(cache, layer, row, g, d);
        ck_assert_msg(memcmp(&key, &r->want_k[i], sizeof key) == 0, "%s: key %d of layer %d", path,
                      i, layer);
        ck_assert_msg(memcmp(&value, &r->want_v[i], sizeof value) == 0, "%s: value %d of layer %d",
                      path, i, layer);
    }
}

/* Writes rows to all layers. Then queries that only read layer 1 change nothing in it. */
static void check_path(const char *path, const float *gains) {
    struct backend *b = open_backend(path, 2, ROWS, WIDEST);
    struct kv_cache *cache = cache_new(b);
    int32_t numbers[ROWS];
    for (int i = 0; i < ROWS; i++) numbers[i] = i;
    const struct step step = {.M = ROWS, .position = numbers, .slot = numbers};
    struct rows rows[L];
    b->compute->step_begin(b, &step, cache);
    for (int i = 0; i < L; i++) {
        const struct heads heads = {.H = H,
                                    .q_gain = gains + 1,
                                    .k_gain = gains + 1,
                                    .epsilon = 1e-6f,
                                    .v_gain = gains,
                                    .values_are_keys = i >= 2};
        rows[i] = rows_new(i, gains, i >= 2);
        b->compute->rope_write(b, cache, i, &heads, rows[i].q, rows[i].k, rows[i].v);
    }
    struct rows more = rows_new(1, gains, false);
    size_t n = (size_t)(ROWS * H * heads_of_layers[1].D);
    float *q = mem_alloc(n * sizeof *q);
    memcpy(q, more.q, n * sizeof *q);
    const struct heads alone = {.H = H, .q_gain = gains + 1, .epsilon = 1e-6f};
    b->compute->rope_write(b, cache, 1, &alone, q, NULL, NULL);
    assert_same_floats(q, rows[1].q, n, path);
    for (int i = 0; i < L; i++) check_rows(cache, i, &rows[i], path), rows_free(&rows[i]);
    rows_free(&more), free(q);
    b->cache->kv_free(b, cache);
    backend_close(b);
}

START_TEST(layers_have_heads_and_values_of_their_own) {
    float gains[WIDEST + 1] = {1};
    for (int i = 0; i <= WIDEST; i++) gains[i] = 0.5f + 0.01f * (float)i;
    for (const char *const *path = backend_cpu_paths(); *path; path++) check_path(*path, gains);
}
END_TEST

START_TEST(a_token_takes_what_its_layers_take) {
    const struct kv_config all = {
        .L = L, .block_size = B, .dtype = DTYPE_F16, .heads = heads_of_layers};
    const struct kv_config first = {.L = 1, .G = 2, .D = 20, .block_size = B, .dtype = DTYPE_F16};
    const struct kv_config second = {.L = 1, .G = 1, .D = 48, .block_size = B, .dtype = DTYPE_F16};
    ck_assert_uint_eq(kv_token_bytes(&all), 2 * (kv_token_bytes(&first) + kv_token_bytes(&second)));
}
END_TEST

/* Layers of one shape are of two kinds if only some have window blocks. */
START_TEST(window_blocks_make_kinds_of_their_own) {
    static const bool has_window[L] = {true, false, false, true};
    struct backend *b = open_backend("plain", 1, ROWS, WIDEST);
    const struct kv_config config = {.L = L,
                                     .n_blocks = 9,
                                     .block_size = B,
                                     .dtype = DTYPE_F32,
                                     .n_window_blocks = 3,
                                     .has_window = has_window,
                                     .heads = heads_of_layers};
    struct kv_cache *cache = NULL;
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    ck_assert_int_eq(cache->n_kinds, 4);
    for (int i = 0; i < L; i++) {
        const struct kv_kind *kv = kv_kind(cache, i);
        ck_assert(kv->has_window == has_window[i] && kv->n_blocks == (has_window[i] ? 3 : 9));
        ck_assert(kv->G == heads_of_layers[i].G && kv->D == heads_of_layers[i].D && kv->L == 1);
    }
    b->cache->kv_free(b, cache);
    backend_close(b);
}
END_TEST

START_TEST(too_many_kinds_are_refused) {
    static const struct kv_heads heads[] = {{1, 2}, {1, 4}, {1, 6}, {1, 8}, {1, 10}};
    struct backend *b = open_backend("plain", 1, ROWS, WIDEST);
    struct kv_config config = {
        .L = 5, .n_blocks = 1, .block_size = B, .dtype = DTYPE_F32, .heads = heads};
    struct kv_cache *cache = NULL;
    struct err err = {0};
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "at most 4 kinds"), "%s", err.message);
    config.L = 4;
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, &err), STATUS_OK);
    b->cache->kv_free(b, cache);
    backend_close(b);
}
END_TEST

/* ---- rows ----------------------------------------------------------------------------------- */

static struct linear take(struct backend *b, int N, int K, const float *rows) {
    struct linear linear = {NULL};
    ck_assert_int_eq(
        b->memory->matrix_new(b, &linear.w, DTYPE_F32, N, K, rows, MATRIX_NATIVE, NULL), STATUS_OK);
    return linear;
}

/* Columns FIRST.. of wider rows multiply the outputs of a gate, which are not a whole number of
 * blocks. */
START_TEST(gates_multiply_rows_that_are_given) {
    enum { K = 24, F = 40, FIRST = 7, STRIDE = 61 };
    uint64_t state = 5;
    float *x = random_floats(&state, ROWS * K), *times = random_floats(&state, ROWS * STRIDE);
    float *gate = random_floats(&state, F * K), *down = random_floats(&state, K * F);
    float hidden[ROWS * F], right[ROWS * K], y[ROWS * K];
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_backend(*path, 2, ROWS, WIDEST);
        const struct linear of_gate = take(b, F, K, gate), of_down = take(b, K, F, down);
        const struct mlp mlp = {.activation = ACTIVATION_GELU_TANH,
                                .gate = of_gate,
                                .down = {of_down.w, NULL, 0.75f},
                                .times = times,
                                .times_first = FIRST,
                                .times_stride = STRIDE};
        b->compute->matmul(b, (float *const[]){hidden}, x, NULL, &of_gate, 1, ROWS);
        for (int i = 0; i < ROWS * F; i++)
            hidden[i] = plain_activation(hidden[i], ACTIVATION_GELU_TANH) *
                        times[i / F * STRIDE + FIRST + i % F];
        memcpy(right, x, sizeof right), memcpy(y, x, sizeof y);
        b->compute->matmul_add(b, right, hidden, &mlp.down, ROWS);
        b->compute->mlp(b, y, x, NULL, &mlp, ROWS);
        assert_same_floats(y, right, ROWS * K, *path);
        b->memory->matrix_free(b, of_gate.w), b->memory->matrix_free(b, of_down.w);
        backend_close(b);
    }
    free(x), free(times), free(gate), free(down);
}
END_TEST

/* Returns the resident pages of mapped memory. */
static size_t resident(void *memory, size_t bytes) {
    size_t pages = bytes / 4096, n = 0; /* whole pages */
    unsigned char *has = mem_alloc(pages);
    ck_assert_int_eq(mincore(memory, pages * 4096, has), 0);
    for (size_t i = 0; i < pages; i++) n += has[i] & 1;
    free(has);
    return n;
}

START_TEST(a_touched_cache_has_its_memory) {
    const struct kv_config config = {
        .L = L, .n_blocks = 5000, .block_size = 16, .dtype = DTYPE_I16, .heads = heads_of_layers};
    struct backend *b = open_backend(NULL, 2, ROWS, WIDEST);
    struct kv_cache *cache = NULL;
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    for (int k = 0; k < cache->n_kinds; k++)
        ck_assert_uint_eq(resident(cache->kind[k].values, cache->kind[k].values_bytes), 0);
    b->cache->kv_touch(b, cache);
    for (int k = 0; k < cache->n_kinds; k++) {
        const struct kv_kind *kv = &cache->kind[k];
        ck_assert_uint_gt(kv->keys_bytes, 8 << 20); /* several slices and a part of one */
        ck_assert_uint_eq(resident(kv->keys, kv->keys_bytes), kv->keys_bytes / 4096);
        ck_assert_uint_eq(resident(kv->values, kv->values_bytes), kv->values_bytes / 4096);
    }
    b->cache->kv_free(b, cache);
    backend_close(b);
}
END_TEST

/* Uses more rows than a step, as the rows of all layers together are. The sum is multiplied. */
START_TEST(a_sum_behind_a_norm_is_scaled) {
    enum { K = 20, ALL = 5 * ROWS };
    uint64_t state = 7;
    float *x = random_floats(&state, ALL * K), *y = random_floats(&state, ALL * K);
    float *gain = random_floats(&state, K), right[ALL * K];
    const struct norm norm = {.kind = NORM_RMS, .gain = gain, .epsilon = 1e-6f, .sum_scale = 1.75f};
    for (int m = 0; m < ALL; m++) plain_rmsnorm(right + m * K, y + m * K, gain, K, 1e-6f);
    for (int i = 0; i < ALL * K; i++) right[i] = (x[i] + right[i]) * 1.75f;
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_backend(*path, 2, ROWS, WIDEST);
        float sum[ALL * K], branch[ALL * K];
        memcpy(sum, x, sizeof sum), memcpy(branch, y, sizeof branch);
        b->compute->norm_add(b, sum, branch, &norm, ALL, K);
        assert_same_floats(sum, right, ALL * K, *path);
        for (int i = 0; i < ALL * K; i++) ck_assert(branch[i] == 0);
        backend_close(b);
    }
    free(x), free(y), free(gain);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_layer_kinds");
    TCase *core = tcase_create("core");
    tcase_add_test(core, layers_have_heads_and_values_of_their_own);
    tcase_add_test(core, a_token_takes_what_its_layers_take);
    tcase_add_test(core, window_blocks_make_kinds_of_their_own);
    tcase_add_test(core, too_many_kinds_are_refused);
    tcase_add_test(core, gates_multiply_rows_that_are_given);
    tcase_add_test(core, a_sum_behind_a_norm_is_scaled);
    tcase_add_test(core, a_touched_cache_has_its_memory);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
