/* Paths whose instructions this machine may lack (AMX, AVX-VNNI), with a trap that emulates these
 * instructions: the same bytes as the plain path. If the machine has the instructions, it runs them
 * directly, and test_kernels_matmul tests the path as well. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/features.h"
#include "support/instructions.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { N = 20, MAX_ROWS = 100 };

/* The quantised types, for which these paths have separate products. */
static const enum dtype types[] = {
#define ENTRY(TYPE, ...) DTYPE_##TYPE,
    QUANT_TYPES(ENTRY)
#undef ENTRY
};
enum { N_QUANTISED = sizeof types / sizeof *types };

/* A path and its base path. The machine must have the instructions of the base. */
struct lacking {
    const struct path *path;
    const char *base;
};
static const struct lacking amx = {&path_amx, "avx512vnni"}, avxvnni = {&path_avxvnni, "avx2"};

static bool has(const char *name) {
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        if (strcmp(*path, name) == 0) return true;
    return false;
}

/* Can the machine run the base of the path? Prints a line if it cannot. */
static bool can_run(const struct lacking *l) {
    if (!has(l->base)) printf("%s needs %s: not tested here\n", l->path->name, l->base);
    return has(l->base);
}

/* Returns y[M][N] by a path, whether or not the machine has it. The caller frees it. */
static float *product(const struct path *path, int threads, enum dtype type, int K,
                      const void *rows, const float *x, int M) {
    struct backend *b = open_backend("plain", threads, MAX_ROWS, K);
    struct matrix *w = NULL;
    ck_assert_int_eq(b->memory->matrix_new(b, &w, type, N, K, rows, false, NULL), STATUS_OK);
    float *y = mem_calloc((size_t)M * N, sizeof *y);
    cpu_of(b)->path = path;
    b->compute->matmul(b, &y, x, NULL, &(struct linear){w, NULL}, 1, M);
    b->memory->matrix_free(b, w);
    backend_close(b);
    return y;
}

/* Returns inputs with outliers, a block of zeros, and a block so small that it counts as zeros. */
static float *inputs(uint64_t *state, int K) {
    float *x = random_floats(state, (size_t)MAX_ROWS * (size_t)K);
    memset(x + K, 0, 32 * sizeof *x);
    for (int k = 0; k < 32; k++) x[2 * K + k] *= 1e-36f;
    for (int m = 0; m < MAX_ROWS; m += 7) x[m * K + m % K] = m % 2 ? 3e4f : -1e-3f;
    return x;
}

/* Asserts that the instructions that the path adds were run, by the machine or by the trap. */
static void assert_ran(const struct lacking *l, long before) {
    ck_assert_msg(has(l->path->name) || instructions_carried_out() > before,
                  "%s ran without its instructions", l->path->name);
}

static void check_rows(const struct lacking *l, enum dtype type, int K, const int *counts, int n) {
    uint64_t state = 31 * (uint64_t)K + (uint64_t)type;
    void *rows = random_weights(&state, type, (size_t)N * (size_t)K);
    float *x = inputs(&state, K);
    float *right = product(&path_plain, 1, type, K, rows, x, MAX_ROWS);
    long before = instructions_carried_out();
    for (int i = 0; i < n; i++) {
        char what[96];
        snprintf(what, sizeof what, "%s %s K %d, rows %d", l->path->name, dtype_name((int)type), K,
                 counts[i]);
        float *y = product(l->path, 1 + i % 3, type, K, rows, x, counts[i]);
        assert_same_floats(y, right, (size_t)counts[i] * N, what);
        free(y);
    }
    assert_ran(l, before);
    free(rows), free(x), free(right);
}

/* K, rounded up to whole blocks. */
static int depth(enum dtype type, int K) {
    int block = dtype_block_elements((int)type);
    return (K + block - 1) / block * block;
}

/* Types of long blocks have more work, and every trap takes some microseconds, so they test every
 * third number of rows, which includes every number of rows of a last tile. */
START_TEST(amx_of_every_number_of_rows) {
    int counts[MAX_ROWS], n = 0, step = depth(types[_i], 64) > 64 ? 3 : 1;
    for (int rows = 1; rows <= MAX_ROWS; rows += step) counts[n++] = rows;
    if (can_run(&amx)) check_rows(&amx, types[_i], depth(types[_i], 64), counts, n);
}
END_TEST

/* Depths of one block, of a whole stretch, and of one block more, with whole tiles and the last
 * tiles of each kernel. */
START_TEST(amx_of_every_depth) {
    static const int depths[] = {32, 1024, 1056}, counts[] = {32, 33, 40, 44};
    for (int i = 0; i < 3 && can_run(&amx); i++)
        check_rows(&amx, types[_i], depth(types[_i], depths[i]), counts, 4);
}
END_TEST

START_TEST(avxvnni_of_rows_and_depths) {
    static const int depths[] = {32, 576}, counts[] = {1, 2, 4, 3, 16, 18, 33};
    for (int i = 0; i < 2 && can_run(&avxvnni); i++)
        check_rows(&avxvnni, types[_i], depth(types[_i], depths[i]), counts, i ? 3 : 7);
}
END_TEST

START_TEST(avxvnni_of_two_byte_weights) {
    static const int counts[] = {1, 2, 5, 17};
    if (can_run(&avxvnni)) check_rows(&avxvnni, _i ? DTYPE_BF16 : DTYPE_F16, 70, counts, 4);
}
END_TEST

/* ---- attention ------------------------------------------------------------------------------ */

enum {
    HEADS = 4,
    KV_HEADS = 2,
    D = 20,
    SLOTS = 16,
    TOKENS = 83,
    TABLE = (TOKENS + SLOTS - 1) / SLOTS
};

/* Returns the attention of one step of TOKENS rows by a path. The caller frees it. */
static float *attend(const struct path *path, enum dtype type, int window, const float *q, float *k,
                     float *v) {
    int32_t numbers[TOKENS], table[TABLE], start[2] = {0, TOKENS}, token[TOKENS] = {0};
    for (int i = 0; i < TOKENS; i++) numbers[i] = i;
    for (int i = 0; i < TABLE; i++) table[i] = i;
    struct step step = {.M = TOKENS,
                        .token = token,
                        .position = numbers,
                        .slot = numbers,
                        .S = 1,
                        .row_start = start,
                        .table = table,
                        .table_stride = TABLE};
    struct kv_config config = {1, KV_HEADS, D, TABLE, SLOTS, type};
    struct backend *b = open_backend("plain", 2, TOKENS, 32);
    struct kv_cache *cache = NULL;
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    float *y = mem_calloc((size_t)TOKENS * HEADS * D, sizeof *y);
    cpu_of(b)->path = path;
    b->compute->step_begin(b, &step, cache);
    b->compute->rope_write(b, cache, 0, &(struct heads){0}, NULL, k, v);
    const struct attention attention = {HEADS, 0.2f, window ? 4.0f : 0.0f, window};
    b->compute->attention(b, y, q, cache, 0, &attention);
    b->cache->kv_free(b, cache);
    backend_close(b);
    return y;
}

static void check_attention(const struct lacking *l, enum dtype type, int window) {
    uint64_t state = 5;
    float *q = random_floats(&state, (size_t)TOKENS * HEADS * D);
    float *k = random_floats(&state, (size_t)TOKENS * KV_HEADS * D);
    float *v = random_floats(&state, (size_t)TOKENS * KV_HEADS * D);
    float *right = attend(&path_plain, type, window, q, k, v);
    float *y = attend(l->path, type, window, q, k, v);
    assert_same_floats(y, right, (size_t)TOKENS * HEADS * D, l->path->name);
    free(q), free(k), free(v), free(right), free(y);
}

/* Checks both without a window and a cap, and with both. */
START_TEST(attention_over_every_cache) {
    static const enum dtype caches[] = {DTYPE_I16, DTYPE_Q8_0, DTYPE_F16, DTYPE_F32};
    int window = _i < 4 ? 0 : 21;
    long before = instructions_carried_out();
    if (can_run(&amx)) check_attention(&amx, caches[_i % 4], window);
    if (!can_run(&avxvnni)) return;
    check_attention(&avxvnni, caches[_i % 4], window);
    if (_i % 4 < 2) assert_ran(&avxvnni, before);
}
END_TEST

/* All codes and all inputs are at an end of their range. */
static void check_largest(const struct lacking *l, enum dtype type, uint8_t byte) {
    enum { K = 256, M = 16 };
    uint64_t state = 17;
    float x[M * K];
    for (int i = 0; i < M * K; i++) x[i] = i / K % 3 == 0 || (i / K % 3 == 1 && i % 2) ? 1 : -1;
    void *rows = filled_weights(&state, type, N * K, byte);
    float *right = product(&path_plain, 1, type, K, rows, x, M);
    float *y = product(l->path, 1, type, K, rows, x, M);
    assert_same_floats(y, right, M * N, l->path->name);
    free(rows), free(right), free(y);
}

START_TEST(the_largest_sums_are_exact) {
    static const uint8_t bytes[] = {0xff, 0x00, 0x80, 0x7f};
    for (int i = 0; i < 4; i++) {
        if (can_run(&amx)) check_largest(&amx, types[_i], bytes[i]);
        if (can_run(&avxvnni)) check_largest(&avxvnni, types[_i], bytes[i]);
    }
}
END_TEST

/* The rest of a path is the source of the other paths, compiled again. */
static void check_rest(const struct lacking *l) {
    enum { K = 333 };
    uint64_t state = 3;
    float *x = random_floats(&state, K), *z = random_floats(&state, K), right[K], y[K];
    plain_rmsnorm(right, x, z, K, 1e-5f);
    l->path->rmsnorm(y, x, z, K, 1e-5f);
    assert_same_floats(y, right, K, l->path->name);
    memcpy(right, z, sizeof right), memcpy(y, z, sizeof y);
    plain_add_panel(right, LANES, x, K / LANES, LANES);
    l->path->add_panel(y, LANES, x, K / LANES, LANES);
    assert_same_floats(y, right, K, l->path->name);
    struct activations a = {.M = 1, .K = BLOCK, .width = 1, .floats = true, .x = right};
    plain_put_block(&a, 0, 0, 1, x, BLOCK - 1);
    a.x = y;
    l->path->put_block(&a, 0, 0, 1, x, BLOCK - 1);
    assert_same_floats(y, right, K, l->path->name);
    uint8_t blocks[2][10 * 24];
    for (enum dtype to = DTYPE_Q4_0; to <= DTYPE_Q8_0; to++) {
        if (!dtype_name((int)to)) continue;
        plain_weights.quantise(to, blocks[0], DTYPE_F32, x, 5 * BLOCK);
        l->path->weights->quantise(to, blocks[1], DTYPE_F32, x, 5 * BLOCK);
        ck_assert_mem_eq(blocks[1], blocks[0], dtype_bytes(to, 5 * BLOCK));
    }
    free(x), free(z);
}

START_TEST(the_rest_of_the_paths_runs_too) {
    if (can_run(&amx)) check_rest(&amx);
    if (can_run(&avxvnni)) check_rest(&avxvnni);
}
END_TEST

int main(void) {
    instructions_carry_out();
    Suite *suite = suite_create("kernels_lacking");
    TCase *core = tcase_create("lacking instructions");
    tcase_add_loop_test(core, amx_of_every_number_of_rows, 0, N_QUANTISED);
    tcase_add_loop_test(core, amx_of_every_depth, 0, N_QUANTISED);
    tcase_add_loop_test(core, avxvnni_of_rows_and_depths, 0, N_QUANTISED);
    tcase_add_loop_test(core, avxvnni_of_two_byte_weights, 0, 2);
    tcase_add_loop_test(core, attention_over_every_cache, 0, 8);
    tcase_add_loop_test(core, the_largest_sums_are_exact, 0, N_QUANTISED);
    tcase_add_test(core, the_rest_of_the_paths_runs_too);
    tcase_set_timeout(core, 300);
    suite_add_tcase(suite, core);
    int status = suite_main(suite);
    printf("%ld instructions carried out in place of the machine\n", instructions_carried_out());
    return status;
}
