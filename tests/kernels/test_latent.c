/* Latent attention: its keys and queries are those of the formulas, its cache gives the bytes of a
 * cache that holds all numbers twice, on every path, for every type of cache, and the products per
 * head are those of separate matrices. ctest label: slow */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { ROWS = 277, MOST_HEADS = 26, UNROTATED = 5, MOST_BLOCKS = ROWS };

static const struct latent_case {
    int H, rank, D_rope, B;
    enum rope_layout layout;
    int scale_every; /* of queries; 0: they are not scaled */
} cases[] = {{3, 48, 16, 16, ROPE_ADJACENT, 7},
             {5, 64, 8, 4, ROPE_HALVES},
             {MOST_HEADS, 128, 2, 32, ROPE_ADJACENT},
             {1, 16, 70, 6, ROPE_ADJACENT},
             {2, 512, 64, 16, ROPE_ADJACENT}}; /* of published models */
enum { N_CASES = sizeof cases / sizeof *cases };

static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_I16, DTYPE_Q8_0};
enum { N_TYPES_OF_CACHES = sizeof types / sizeof *types };

/* The inputs of ROWS rows of one sequence, and its step over blocks in falling order. */
struct latent_data {
    const struct latent_case *c;
    int D;
    struct latent latent;
    float *k, *from, *q, *gain, *inv_freq, *q_scale;
    int32_t position[ROWS], slot[ROWS], table[MOST_BLOCKS], row_start[2];
};

static struct latent_data *data_new(const struct latent_case *c) {
    struct latent_data *d = mem_calloc(1, sizeof *d);
    uint64_t state = 17;
    const size_t H = (size_t)c->H, rope = (size_t)c->D_rope;
    d->c = c;
    d->D = c->rank + c->D_rope;
    d->k = random_floats(&state, (size_t)(ROWS * d->D));
    d->from = random_floats(&state, ROWS * H * (UNROTATED + rope));
    d->q = random_floats(&state, ROWS * H * (size_t)d->D);
    d->gain = random_floats(&state, (size_t)c->rank);
    d->q_scale = random_floats(&state, ROWS);
    d->inv_freq = mem_calloc(rope, sizeof *d->inv_freq);
    for (int i = 0; i < c->D_rope / 2; i++) d->inv_freq[i] = 1.0f / (float)(1 + 3 * i);
    d->latent = (struct latent){.H = c->H,
                                .rank = c->rank,
                                .D_unrotated = UNROTATED,
                                .rope = {c->D_rope, d->inv_freq, c->layout, 1.25f},
                                .norm = {NORM_RMS, d->gain, NULL, 1e-6f}};
    if (c->scale_every) d->latent.q_scale = d->q_scale, d->latent.q_scale_every = c->scale_every;
    const int n_blocks = (ROWS + c->B - 1) / c->B;
    for (int i = 0; i < n_blocks; i++) d->table[i] = n_blocks - 1 - i;
    for (int i = 0; i < ROWS; i++) {
        d->position[i] = i;
        d->slot[i] = d->table[i / c->B] * c->B + i % c->B;
    }
    d->row_start[1] = ROWS;
    return d;
}

static void data_free(struct latent_data *d) {
    free(d->k), free(d->from), free(d->q), free(d->gain), free(d->q_scale);
    mem_free(d->inv_freq), mem_free(d);
}

static struct step step_of(const struct latent_data *d, int first, int n, int32_t row_start[2]) {
    row_start[0] = 0, row_start[1] = n;
    return (struct step){.M = n,
                         .S = 1,
                         .position = d->position + first,
                         .slot = d->slot + first,
                         .row_start = row_start,
                         .table = d->table,
                         .table_stride = MOST_BLOCKS};
}

static struct kv_cache *cache_new(struct backend *b, const struct latent_data *d, enum dtype type,
                                  bool shares) {
    struct kv_cache *cache = NULL;
    const struct kv_heads heads = {1, d->D, shares ? d->c->rank : 0};
    const struct kv_config config = {.L = 1,
                                     .n_blocks = (ROWS + d->c->B - 1) / d->c->B,
                                     .block_size = d->c->B,
                                     .dtype = type,
                                     .heads = &heads};
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    ck_assert(cache->kind[0].shares == shares && !cache->kind[0].values == shares);
    return cache;
}

/* Writes all rows in steps of n rows. Returns the queries, [ROWS][H][D]; the caller frees them. */
static float *write_latents(struct backend *b, struct kv_cache *cache, const struct latent_data *d,
                            int n) {
    const size_t D = (size_t)d->D, H = (size_t)d->c->H;
    const size_t from = H * (UNROTATED + (size_t)d->c->D_rope);
    float *k = mem_alloc(ROWS * D * sizeof *k), *q = mem_alloc(ROWS * H * D * sizeof *q);
    memcpy(k, d->k, ROWS * D * sizeof *k), memcpy(q, d->q, ROWS * H * D * sizeof *q);
    for (int row = 0; row < ROWS; row += n) {
        int32_t row_start[2];
        const size_t at = (size_t)row;
        const struct step step = step_of(d, row, row + n < ROWS ? n : ROWS - row, row_start);
        b->compute->step_begin(b, &step, cache);
        b->compute->latent_write(b, cache, 0, &d->latent, q + at * H * D, d->from + at * from,
                                 k + at * D);
    }
    mem_free(k);
    return q;
}

/* The keys in a cache of float32, [ROWS][D]. */
static float *keys_of(const struct kv_cache *cache, const struct latent_data *d) {
    float *keys = mem_alloc((size_t)(ROWS * d->D) * sizeof *keys);
    const int B = d->c->B;
    for (int i = 0; i < ROWS; i++)
        for (int n = 0; n < d->D; n++)
            memcpy(keys + i * d->D + n,
                   kv_head_keys(&cache->kind[0], 0, d->table[i / B], 0) +
                       sizeof *keys * (size_t)(n * B + i % B),
                   sizeof *keys);
    return keys;
}

/* The attention of rows first.. in steps of n, [ROWS][H][size]. */
static float *attend(struct backend *b, struct kv_cache *cache, const struct latent_data *d,
                     int first, int n) {
    const struct attention attention = {.H = d->c->H, .scale = 0.1f};
    const size_t H = (size_t)d->c->H, size = (size_t)cache->kind[0].D_value;
    float *y = mem_calloc(ROWS * H * size, sizeof *y);
    for (int row = first; row < ROWS; row += n) {
        int32_t row_start[2];
        const size_t at = (size_t)row;
        const struct step step = step_of(d, row, row + n < ROWS ? n : ROWS - row, row_start);
        b->compute->step_begin(b, &step, cache);
        b->compute->attention(b, y + at * H * size, d->q + at * H * (size_t)d->D, cache, 0,
                              &attention);
    }
    return y;
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* One number of x after the rotation of its pairs, in double. */
static double rotated(const struct latent_data *d, const float *x, int i, int position) {
    const int half = d->c->D_rope / 2;
    const bool adjacent = d->c->layout == ROPE_ADJACENT;
    const int pair = adjacent ? i / 2 : i % half,
              other = adjacent ? i ^ 1 : (i + half) % (2 * half);
    const bool is_first = adjacent ? i % 2 == 0 : i < half;
    const double angle = (double)position * (double)d->inv_freq[pair];
    const double sine = is_first ? -sin(angle) : sin(angle);
    return 1.25 * ((double)x[i] * cos(angle) + (double)x[other] * sine);
}

/* Checks head h of row m: the scale of its position applies to all its numbers. */
static void check_query(const struct latent_data *d, const float *q, const float *from, int m,
                        int h) {
    const int rank = d->c->rank, every = d->c->scale_every;
    const double scale = every ? (double)d->q_scale[m / every] : 1;
    for (int i = 0; i < d->D; i++) {
        const double was = i < rank ? (double)d->q[(m * d->c->H + h) * d->D + i]
                                    : rotated(d, from + UNROTATED, i - rank, m);
        ck_assert_double_eq_tol((double)q[i], was * scale, 1e-4 * (1 + fabs(was * scale)));
    }
}

START_TEST(keys_and_queries_are_those_of_the_formulas) {
    struct latent_data *d = data_new(&cases[_i]);
    struct backend *b = open_backend("plain", 2, ROWS, 256);
    struct kv_cache *cache = cache_new(b, d, DTYPE_F32, true);
    const int rank = d->c->rank, H = d->c->H, from = UNROTATED + d->c->D_rope;
    float *q = write_latents(b, cache, d, 50), *keys = keys_of(cache, d);
    for (int m = 0; m < ROWS; m += 23) {
        const float *k = d->k + m * d->D;
        double squares = 0;
        for (int i = 0; i < rank; i++) squares += (double)k[i] * (double)k[i];
        for (int i = 0; i < d->D; i++) {
            double want = i < rank ? (double)k[i] / sqrt(squares / rank + 1e-6) * (double)d->gain[i]
                                   : rotated(d, k + rank, i - rank, m);
            ck_assert_double_eq_tol((double)keys[m * d->D + i], want, 1e-4 * (1 + fabs(want)));
        }
        for (int h = 0; h < H; h++)
            check_query(d, q + (m * H + h) * d->D, d->from + (m * H + h) * from, m, h);
    }
    mem_free(q), mem_free(keys);
    b->cache->kv_free(b, cache);
    backend_close(b);
    data_free(d);
}
END_TEST

/* The attention of a cache that holds the numbers of `keys` as keys and as values, as
 * [ROWS][H][rank]. */
static float *attend_twice(const struct latent_data *d, enum dtype type, const float *keys) {
    struct backend *b = open_backend("plain", 1, ROWS, 256);
    struct kv_cache *cache = cache_new(b, d, type, false);
    const size_t n = (size_t)(ROWS * d->D), H = (size_t)d->c->H, rank = (size_t)d->c->rank;
    const struct heads heads = {.H = d->c->H};
    float *k = mem_alloc(n * sizeof *k), *v = mem_alloc(n * sizeof *v);
    float *q = mem_calloc(ROWS * H * (size_t)d->D, sizeof *q);
    int32_t row_start[2];
    const struct step step = step_of(d, 0, ROWS, row_start);
    memcpy(k, keys, n * sizeof *k), memcpy(v, keys, n * sizeof *v);
    b->compute->step_begin(b, &step, cache);
    b->compute->rope_write(b, cache, 0, &heads, q, k, v);
    float *whole = attend(b, cache, d, 0, ROWS), *part = mem_alloc(ROWS * H * rank * sizeof *part);
    for (size_t i = 0; i < ROWS * H; i++)
        memcpy(part + i * rank, whole + i * (size_t)d->D, rank * sizeof *part);
    mem_free(k), mem_free(v), mem_free(q), mem_free(whole);
    b->cache->kv_free(b, cache);
    backend_close(b);
    return part;
}

/* On every path, with threads, in steps of any size; decoding reads the last rows. */
START_TEST(the_bytes_are_those_of_a_cache_with_separate_values) {
    struct latent_data *d = data_new(&cases[_i / N_TYPES_OF_CACHES]);
    const enum dtype type = types[_i % N_TYPES_OF_CACHES];
    const size_t H = (size_t)d->c->H, rank = (size_t)d->c->rank, n = ROWS * H * rank;
    struct backend *plain = open_backend("plain", 1, ROWS, 256);
    struct kv_cache *floats = cache_new(plain, d, DTYPE_F32, true);
    mem_free(write_latents(plain, floats, d, ROWS));
    float *keys = keys_of(floats, d), *want = attend_twice(d, type, keys);
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        for (int i = 0; i < 3; i++) {
            static const int rows[] = {ROWS, 64, 7}, threads[] = {1, 3, 2};
            struct backend *b = open_backend(*path, threads[i], ROWS, 256);
            struct kv_cache *cache = cache_new(b, d, type, true);
            mem_free(write_latents(b, cache, d, rows[i]));
            float *y = attend(b, cache, d, 0, rows[i]);
            assert_same_floats(y, want, n, *path);
            mem_free(y);
            y = attend(b, cache, d, ROWS - 2, 1);
            const size_t at = (ROWS - 2) * H * rank;
            assert_same_floats(y + at, want + at, n - at, *path);
            mem_free(y);
            b->cache->kv_free(b, cache);
            backend_close(b);
        }
    mem_free(keys), mem_free(want);
    plain->cache->kv_free(plain, floats);
    backend_close(plain);
    data_free(d);
}
END_TEST

START_TEST(a_row_takes_no_memory_for_values) {
    const struct kv_heads shared = {1, 576, 512}, twice = {1, 576};
    struct kv_config config = {.L = 1, .block_size = 16, .dtype = DTYPE_F16, .heads = &shared};
    ck_assert_uint_eq(kv_token_bytes(&config), 2 * 576);
    config.dtype = DTYPE_Q8_0;
    ck_assert_uint_eq(kv_token_bytes(&config), 576 + 9 * sizeof(float));
    config.dtype = DTYPE_F16, config.heads = &twice;
    ck_assert_uint_eq(kv_token_bytes(&config), 2 * 2 * 576);
}
END_TEST

/* y of one head is that of op matmul with the head's rows of the matrix. */
START_TEST(products_per_head_are_those_of_separate_matrices) {
    enum { H = 3, N = 32, K = 20, X = 27, Y = 40, M = 37 };
    static const enum dtype floats[] = {DTYPE_F32, DTYPE_BF16};
    const enum dtype type = floats[_i];
    uint64_t state = 5;
    float *x = random_floats(&state, M * H * X);
    uint8_t *w = random_weights(&state, type, H * N * K);
    const enum matrix_form form = type == DTYPE_F32 ? MATRIX_FLOAT32 : MATRIX_NATIVE;
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_backend(*path, 2, M, 64);
        struct matrix *all = NULL;
        ck_assert(!b->memory->matrix_new(b, &all, type, H * N, K, w, form, NULL));
        const struct head_linear linear = {all, H, N, X, Y};
        float *y = mem_calloc(M * H * Y, sizeof *y), *part = mem_alloc(M * K * sizeof *part);
        float *want = mem_alloc(M * N * sizeof *want);
        b->compute->matmul_heads(b, y, x, &linear, M);
        for (size_t h = 0; h < H; h++) {
            struct matrix *one = NULL;
            const void *rows = w + h * N * dtype_bytes(type, K);
            ck_assert(!b->memory->matrix_new(b, &one, type, N, K, rows, form, NULL));
            for (size_t m = 0; m < M; m++)
                memcpy(part + m * K, x + (m * H + h) * X, K * sizeof *part);
            b->compute->matmul(b, &want, part, NULL, &(struct linear){one, NULL}, 1, M);
            for (size_t m = 0; m < M; m++) {
                const float *found = y + (m * H + h) * Y;
                assert_same_floats(found, want + m * N, N, *path);
                for (size_t i = N; i < Y; i++) ck_assert(found[i] == 0);
            }
            b->memory->matrix_free(b, one);
        }
        free(y), free(part), free(want);
        b->memory->matrix_free(b, all);
        backend_close(b);
    }
    free(x), free(w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels/latent");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_loop_test(core, keys_and_queries_are_those_of_the_formulas, 0, N_CASES);
    tcase_add_loop_test(core, the_bytes_are_those_of_a_cache_with_separate_values, 0,
                        N_CASES * N_TYPES_OF_CACHES);
    tcase_add_test(core, a_row_takes_no_memory_for_values);
    tcase_add_loop_test(core, products_per_head_are_those_of_separate_matrices, 0, 2);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
