/* Quantisation: the same bits as ggml's reference (tests/vectors/make_quantise.py). Q4_K and Q6_K
 * use a different rounding; their errors are as small as their bits allow. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

/* Checks one type of the file of vectors. Returns false at its end. */
static bool check_vector(FILE *file, const float *weights, size_t n) {
    int32_t head[2];
    if (fread(head, sizeof head, 1, file) != 1) return false;
    enum dtype type = (enum dtype)head[0];
    size_t bytes = (size_t)head[1], block = (size_t)dtype_block_bytes(head[0]);
    ck_assert_uint_eq(dtype_bytes(type, n), bytes);
    uint8_t *right = mem_alloc(bytes), *got = mem_alloc(bytes);
    ck_assert_uint_eq(fread(right, 1, bytes, file), bytes);
    quantise_blocks(type, weights, got, n);
    for (size_t i = 0; i < bytes; i++)
        ck_assert_msg(got[i] == right[i], "%s: byte %zu of block %zu is %d, not %d",
                      dtype_name(head[0]), i % block, i / block, got[i], right[i]);
    free(right), free(got);
    return true;
}

START_TEST(blocks_are_those_of_the_reference) {
    FILE *file = fopen("tests/vectors/quantise.bin", "rb");
    int32_t n;
    int types = 0;
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fread(&n, sizeof n, 1, file), 1);
    float *weights = mem_alloc((size_t)n * sizeof *weights);
    ck_assert_uint_eq(fread(weights, sizeof *weights, (size_t)n, file), (size_t)n);
    while (check_vector(file, weights, (size_t)n)) types++;
    ck_assert_int_eq(types, 5);
    free(weights);
    fclose(file);
}
END_TEST

/* Returns the root mean square error of n weights in a type, relative to their root mean square. */
static double error_of(enum dtype type, const float *weights, size_t n) {
    uint8_t *blocks = mem_alloc(dtype_bytes(type, n));
    float *got = mem_alloc(n * sizeof *got);
    double error = 0, square = 0;
    quantise_blocks(type, weights, blocks, n);
    dequantise(type, blocks, got, n);
    for (size_t i = 0; i < n; i++) {
        error += pow((double)got[i] - (double)weights[i], 2);
        square += pow((double)weights[i], 2);
    }
    free(blocks), free(got);
    return sqrt(error / square);
}

/* One weight in 500 is 20 times as large as the others, which makes its block's errors larger. */
START_TEST(errors_of_k_types_are_small) {
    enum { N = 256 * 64 };
    static const float sizes[] = {1e-3f, 1, 30};
    uint64_t state = 5;
    for (int i = 0; i < 3; i++) {
        float *weights = random_floats(&state, N);
        for (int k = 0; k < N; k++) weights[k] *= sizes[i];
        double four = error_of(DTYPE_Q4_K, weights, N), six = error_of(DTYPE_Q6_K, weights, N);
        double plain = error_of(DTYPE_Q4_1, weights, N);
        ck_assert_msg(four < 0.095 && four < 0.93 * plain, "q4_k: %g, q4_1 %g", four, plain);
        ck_assert_msg(six < 0.03, "q6_k: %g", six);
        free(weights);
    }
}
END_TEST

/* Weights that a type can represent are unchanged. */
START_TEST(representable_numbers_are_exact) {
    float weights[256];
    for (int k = 0; k < 256; k++) weights[k] = (float)(k % 16) * 0.5f - 2.0f * (float)(k / 32 % 2);
    ck_assert(error_of(DTYPE_Q4_K, weights, 256) < 2e-3);
    for (int k = 0; k < 256; k++) weights[k] = (float)(k % 64 - 32) * 0.25f;
    ck_assert(error_of(DTYPE_Q6_K, weights, 256) < 2e-2);
    memset(weights, 0, sizeof weights);
    weights[255] = 1;
    ck_assert(error_of(DTYPE_Q4_K, weights, 256) < 1e-2);
    ck_assert(error_of(DTYPE_Q6_K, weights, 256) < 1e-2);
}
END_TEST

/* Halves are rounded away from 0, as in the reference. */
START_TEST(halves_are_rounded_away_from_zero) {
    float x[32] = {127, 0.5f, -0.5f, 2.5f, -2.5f, 4.5f, 0.49999997f, -0.49999997f};
    static const int8_t right[] = {127, 1, -1, 3, -3, 5, 0, 0, 0};
    uint8_t block[34];
    quantise_blocks(DTYPE_Q8_0, x, block, 32);
    ck_assert_mem_eq(block + 2, right, sizeof right);
}
END_TEST

/* The scales of the small blocks are bytes; the largest one uses the full range. */
START_TEST(scales_of_q6_k_use_their_bytes) {
    uint64_t state = 9;
    uint8_t blocks[4 * 210];
    float *weights = random_floats(&state, 4 * 256);
    quantise_blocks(DTYPE_Q6_K, weights, blocks, 4 * 256);
    for (int i = 0; i < 4; i++) {
        int most = 0;
        for (int k = 0; k < 16; k++) {
            int scale = (int8_t)blocks[i * 210 + 192 + k];
            if (abs(scale) > most) most = abs(scale);
        }
        ck_assert_int_ge(most, 127);
    }
    free(weights);
}
END_TEST

static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,
                                   DTYPE_Q5_1, DTYPE_Q4_K, DTYPE_Q6_K};

START_TEST(zeros_are_zeros_and_broken_weights_stay_broken) {
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    enum { N = 512 };
    uint8_t blocks[N * 2];
    for (int b = 0; b < 3; b++) {
        float weights[N] = {0}, got[N];
        weights[300] = broken[b];
        quantise_blocks(types[_i], weights, blocks, N);
        dequantise(types[_i], blocks, got, N);
        int n = dtype_block_elements((int)types[_i]);
        for (int i = 0; i < N; i++)
            ck_assert_msg(i / n == 300 / n ? isnan(got[i]) : got[i] == 0, "%s: weight %d is %g",
                          dtype_name((int)types[_i]), i, (double)got[i]);
    }
}
END_TEST

/* ---- every path ----------------------------------------------------------------------------- */

/* Writes blocks whose results could depend on the order of numbers, their signs or their range. */
static void put_odd_blocks(float *x) {
    static const float odd[][4] = {
        {0.0f, -0.0f, 0.0f, -0.0f}, /* the first of two zeros */
        {-0.0f, 0.0f, -0.0f, -0.0f},
        {-0.0f, 0.0f, 3, 5},
        {0.0f, -0.0f, -3, -5},
        {2, -2, 2, -2}, /* the largest with either sign */
        {-2, 2, -2, 2},
        {127, 0.5f, -2.5f, 126.5f}, /* halves */
        {-127, 63.5f, 0.49999997f, -0.49999997f},
        {3e38f, -3e38f, 1, 0}, /* a range that overflows a float */
        {1e-45f, -1e-44f, 3e-39f, 0},
        {1e-8f, 2e-8f, -6e-8f, 4e-8f}, /* scales that are small halves, or 0 */
        {7e4f, 1e7f, -9e6f, 0},        /* a scale that is too large for a half */
        {INFINITY, 1, 2, 3},
        {1, 2, -INFINITY, 3},
        {1, NAN, 2, 3},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (size_t k = 0; k < 32; k++) x[32 * i + k] = odd[i][(k + k / 4 * i) % 4];
}

enum { N_FLOATS = 1024 + 768 }; /* a piece and a part of a piece */

/* Returns rows of a float type. */
static void *rows_of(enum dtype type, const float *x) {
    uint8_t *rows = mem_alloc(N_FLOATS * 4);
    memcpy(rows, x, N_FLOATS * 4);
    for (size_t i = 0; type != DTYPE_F32 && i < N_FLOATS; i++) {
        uint16_t half = float_to_half(x[i]);
        memcpy(rows + 2 * i, type == DTYPE_F16 ? (const void *)&half : (const char *)(x + i) + 2,
               2);
    }
    return rows;
}

START_TEST(every_path_gives_the_plain_ones_bits) {
    static const enum dtype floats[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    enum dtype to = types[_i];
    uint64_t state = 11;
    float *x = random_floats(&state, N_FLOATS);
    put_odd_blocks(x + 512);
    for (int i = 0; i < 3; i++) {
        void *rows = rows_of(floats[i], x);
        uint8_t right[2 * N_FLOATS], got[2 * N_FLOATS];
        plain_weights.quantise(to, right, floats[i], rows, N_FLOATS);
        for (const char *const *path = backend_cpu_paths(); *path; path++) {
            backend_cpu_weight_ops(*path)->quantise(to, got, floats[i], rows, N_FLOATS);
            for (size_t k = 0; k < dtype_bytes(to, N_FLOATS); k++)
                ck_assert_msg(got[k] == right[k], "%s of %s by %s: byte %zu is %d, not %d",
                              dtype_name((int)to), dtype_name((int)floats[i]), *path, k, got[k],
                              right[k]);
        }
        free(rows);
    }
    free(x);
}
END_TEST

/* Makes a file with the first `bytes` bytes of the rows, after `offset` bytes. */
static struct file_place file_of(const void *rows, size_t bytes, int64_t offset) {
    char path[] = "/tmp/penstock-quantise-XXXXXX";
    struct file_place place = {mkstemp(path), offset};
    ck_assert_int_ge(place.fd, 0);
    unlink(path);
    ck_assert_int_eq(pwrite(place.fd, rows, bytes, offset), (ssize_t)bytes);
    return place;
}

/* Making a cache frees the scratch that making matrices used. */
static void check_scratch_goes(struct backend *b) {
    const struct kv_config config = {
        .L = 1, .G = 1, .D = 32, .n_blocks = 1, .block_size = 16, .dtype = DTYPE_I16};
    struct kv_cache *cache;
    ck_assert_uint_gt(cpu_of(b)->packing_bytes, 0);
    ck_assert(!b->cache->kv_new(b, &cache, &config, NULL));
    ck_assert_uint_eq(cpu_of(b)->packing_bytes, 0);
    b->cache->kv_free(b, cache);
}

/* A matrix that is quantised while its panels are written has the same bytes as a matrix of blocks
 * that were quantised before. */
static void check_on_the_way(const char *path, enum dtype to, enum dtype from, const float *x) {
    enum { K = 256, N = N_FLOATS / K * 6 + 1 };
    struct backend *b = open_backend(path, 2, 1, K);
    uint8_t *rows = mem_alloc(N * K * 4), *blocks = mem_alloc(dtype_bytes(to, N * K));
    size_t piece = dtype_bytes(from, N_FLOATS);
    void *given = rows_of(from, x);
    for (size_t at = 0; at < dtype_bytes(from, N * K); at += piece) {
        size_t left = dtype_bytes(from, N * K) - at;
        memcpy(rows + at, given, left < piece ? left : piece);
    }
    plain_weights.quantise(to, blocks, from, rows, N * K);
    size_t bytes = dtype_bytes(from, N * K);
    uint8_t *zeros = mem_calloc(1, bytes);
    const struct file_place place[] = {
        {.fd = -1}, file_of(rows, bytes, 40), file_of(rows, bytes - 1, 8)};
    for (int form = MATRIX_NATIVE; form <= MATRIX_FLOAT32; form++) {
        struct matrix *a, *w;
        struct err err;
        ck_assert(!b->memory->matrix_new(b, &a, to, N, K, blocks, form, &err));
        for (int i = 0; i < 3; i++) {
            /* if the file is complete, the rows are read from it */
            const void *at = i == 1 ? zeros : rows;
            ck_assert(
                !b->memory->matrix_quantised(b, &w, to, from, N, K, at, place[i], form, &err));
            ck_assert_int_eq(a->type, w->type);
            ck_assert_uint_eq(a->bytes, w->bytes);
            ck_assert_msg(memcmp(a->panels, w->panels, w->bytes) == 0, "%s of %s by %s, place %d",
                          dtype_name((int)to), dtype_name((int)from), path, i);
            b->memory->matrix_free(b, w);
        }
        b->memory->matrix_free(b, a);
    }
    for (int i = 1; i < 3; i++) close(place[i].fd);
    free(zeros);
    check_scratch_goes(b);
    backend_close(b);
    free(given), free(blocks), free(rows);
}

START_TEST(a_matrix_is_quantised_on_the_way) {
    static const enum dtype floats[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    uint64_t state = 13;
    float *x = random_floats(&state, N_FLOATS);
    put_odd_blocks(x + 512);
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        for (int i = 0; i < 3; i++) check_on_the_way(*path, types[_i], floats[i], x);
    free(x);
}
END_TEST

/* Reads a matrix of many pieces with several threads in parallel. */
START_TEST(threads_read_pieces_of_their_own) {
    enum { K = 256, N = 8192 };
    struct backend *b = open_backend(backend_cpu_paths()[0], 2, 1, K);
    uint64_t state = 17;
    float *rows = random_floats(&state, N * K);
    struct file_place memory = {.fd = -1}, file = file_of(rows, N * K * sizeof *rows, 0);
    struct matrix *right, *got;
    struct err err;
    ck_assert(!b->memory->matrix_quantised(b, &right, DTYPE_Q8_0, DTYPE_F32, N, K, rows, memory,
                                           MATRIX_NATIVE, &err));
    for (int i = 0; i < 5; i++) {
        ck_assert(!b->memory->matrix_quantised(b, &got, DTYPE_Q8_0, DTYPE_F32, N, K, rows, file,
                                               MATRIX_NATIVE, &err));
        ck_assert(memcmp(got->panels, right->panels, right->bytes) == 0);
        b->memory->matrix_free(b, got);
    }
    b->memory->matrix_free(b, right);
    backend_close(b);
    close(file.fd);
    free(rows);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_quantise");
    TCase *core = tcase_create("blocks");
    tcase_add_test(core, blocks_are_those_of_the_reference);
    tcase_add_test(core, errors_of_k_types_are_small);
    tcase_add_test(core, representable_numbers_are_exact);
    tcase_add_test(core, halves_are_rounded_away_from_zero);
    tcase_add_test(core, scales_of_q6_k_use_their_bytes);
    tcase_add_loop_test(core, zeros_are_zeros_and_broken_weights_stay_broken, 0, 7);
    tcase_add_loop_test(core, every_path_gives_the_plain_ones_bits, 0, 7);
    tcase_add_loop_test(core, a_matrix_is_quantised_on_the_way, 0, 7);
    tcase_add_test(core, threads_read_pieces_of_their_own);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
