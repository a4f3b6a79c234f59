/* The type that a matrix is quantised to follows from the length of its rows, its name and its old
 * type. The blocks do not depend on the division of rows among threads. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/quantise/quantise.h"
#include "kernels/backend.h"
#include "support/suite_main.h"

/* The types for the layers' matrices and the ends (embedding, head): for rows that are whole blocks
 * of 256, and for other rows that are whole blocks of 32. */
static const struct {
    enum quantization wanted;
    enum dtype layers, ends, layers_32, ends_32;
} rules[] = {
    {QUANTIZATION_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0},
    {QUANTIZATION_Q4_0, DTYPE_Q4_0, DTYPE_Q6_K, DTYPE_Q4_0, DTYPE_Q8_0},
    {QUANTIZATION_Q4_1, DTYPE_Q4_1, DTYPE_Q6_K, DTYPE_Q4_1, DTYPE_Q8_0},
    {QUANTIZATION_Q5_0, DTYPE_Q5_0, DTYPE_Q6_K, DTYPE_Q5_0, DTYPE_Q8_0},
    {QUANTIZATION_Q5_1, DTYPE_Q5_1, DTYPE_Q6_K, DTYPE_Q5_1, DTYPE_Q8_0},
    {QUANTIZATION_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q5_0, DTYPE_Q8_0},
    {QUANTIZATION_Q6_K, DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q8_0, DTYPE_Q8_0},
};
enum { N_RULES = sizeof rules / sizeof *rules };

static const enum dtype floats[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
static const char *const layers[] = {"blk.0.attn_q.weight", "blk.11.attn_output.weight",
                                     "blk.0.ffn_down.weight", "blk.0.ffn_gate_exps.weight",
                                     "attn_output.weight"};
static const char *const ends[] = {"token_embd.weight", "output.weight"};
static const char *const kept[] = {
    "position_embd.weight", "token_types.weight",     "blk.0.ffn_gate_inp.weight",
    "rope_freqs.weight",    "output_norm.weight",     "blk.0.attn_norm.weight",
    "blk.0.attn_q.bias",    "token_embd_norm.weight", "rope_factors_long.weight",
};
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* ---- types ---------------------------------------------------------------------------------- */

static void expect_type(enum quantization wanted, const char *name, enum dtype from, int64_t K,
                        enum dtype right) {
    enum dtype found = quantised_type(wanted, name, from, K);
    ck_assert_msg(found == right, "%s of %s, rows of %d: %s, not %s", name, dtype_name((int)from),
                  (int)K, dtype_name((int)found), dtype_name((int)right));
    ck_assert_int_eq(K % dtype_block_elements((int)found), 0);
}

/* For all lengths up to some blocks of 256, and each wanted type. */
START_TEST(the_length_of_rows_chooses_the_type) {
    for (int64_t K = 1; K <= 1025; K++)
        for (int f = 0; f < COUNT(floats); f++) {
            bool whole = K % 256 == 0, odd = K % 32 != 0;
            enum dtype layer = whole ? rules[_i].layers : rules[_i].layers_32;
            enum dtype end = whole ? rules[_i].ends : rules[_i].ends_32;
            for (int i = 0; i < COUNT(layers); i++)
                expect_type(rules[_i].wanted, layers[i], floats[f], K, odd ? floats[f] : layer);
            for (int i = 0; i < COUNT(ends); i++)
                expect_type(rules[_i].wanted, ends[i], floats[f], K, odd ? floats[f] : end);
        }
}
END_TEST

START_TEST(some_matrices_keep_their_type) {
    for (int f = 0; f < COUNT(floats); f++)
        for (int i = 0; i < COUNT(kept); i++)
            expect_type(rules[_i].wanted, kept[i], floats[f], 256, floats[f]);
    for (int type = 0; type <= WEIGHT_MAX_TYPE; type++) {
        bool is_float = type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
        if (!dtype_name(type) || is_float) continue;
        expect_type(rules[_i].wanted, layers[0], (enum dtype)type, 256, (enum dtype)type);
        expect_type(rules[_i].wanted, ends[0], (enum dtype)type, 256, (enum dtype)type);
    }
}
END_TEST

START_TEST(without_blocks_nothing_changes) {
    static const enum quantization none[] = {QUANTIZATION_NONE, QUANTIZATION_FP8};
    for (int i = 0; i < COUNT(none); i++)
        for (int f = 0; f < COUNT(floats); f++)
            expect_type(none[i], layers[0], floats[f], 256, floats[f]);
}
END_TEST

/* ---- bytes ---------------------------------------------------------------------------------- */

static void add(struct weights *weights, const char *name, int n_dims, int64_t K, int64_t N,
                bool is_transposed) {
    struct weight weight = {.type = DTYPE_F32, .n_dims = n_dims, .dim = {K, N}};
    struct err err;
    snprintf(weight.name, sizeof weight.name, "%s", name);
    if (is_transposed) weight.dim[0] = N, weight.dim[1] = K;
    ck_assert_int_eq(weight_measure(&weight, &err), STATUS_OK);
    weight.is_transposed = is_transposed;
    ck_assert_int_eq(weights_add(weights, &weight, &err), STATUS_OK);
}

/* Matrices of odd rows and vectors stay unquantised. A matrix that is stored by columns counts with
 * the rows that it will have. */
START_TEST(bytes_are_those_of_each_matrix_in_its_type) {
    struct weights weights;
    weights_init(&weights, 7);
    add(&weights, "token_embd.weight", 2, 96, 5, false);
    add(&weights, "blk.0.attn_q.weight", 2, 512, 3, false);
    add(&weights, "blk.0.attn_k.weight", 2, 96, 256, true);
    add(&weights, "blk.0.attn_v.weight", 2, 33, 7, false);
    add(&weights, "blk.0.attn_output.weight", 2, 33, 32, true);
    add(&weights, "blk.0.attn_q.bias", 1, 512, 1, false);
    add(&weights, "blk.0.attn_sinks.weight", 1, 512, 1, false);
    size_t right = dtype_bytes(rules[_i].ends_32, 96) * 5 + dtype_bytes(rules[_i].layers, 512) * 3 +
                   dtype_bytes(rules[_i].layers_32, 96) * 256 +
                   (size_t)(33 * 7 + 33 * 32 + 2 * 512) * 4;
    ck_assert_int_eq(quantised_bytes(&weights, rules[_i].wanted), (int64_t)right);
    ck_assert_int_eq(planned_bytes(&weights, rules[_i].wanted, 7), (int64_t)right);
    ck_assert_int_eq(planned_bytes(&weights, QUANTIZATION_NONE, 7), 7);
    weights_free(&weights);
}
END_TEST

/* ---- rows ----------------------------------------------------------------------------------- */
/* so that threads have several rows at a time, and a few last ones */

enum { SHORT = 256, MANY = 1027 };

static const struct {
    int64_t n_rows;
    int K;
} shapes[] = {{1, SHORT}, {3, 512}, {MANY, SHORT}, {2, 66048}, {259, 768}};

/* Rows with different contents. */
static float *make_rows(int64_t n) {
    float *rows = mem_alloc((size_t)n * sizeof *rows);
    for (int64_t i = 0; i < n; i++) rows[i] = sinf((float)i * 0.37f) * (float)(1 + i % 1009);
    return rows;
}

static struct backend *open_backend(void) {
    struct backend *backend;
    struct err err;
    struct backend_config config = {.threads = 3, .max_rows = 1, .max_k = 32, .max_seqs = 1};
    ck_assert_int_eq(backend_cpu_open(&backend, &config, &err), STATUS_OK);
    return backend;
}

START_TEST(blocks_of_many_rows_are_those_of_each_row) {
    struct backend *backend = open_backend();
    enum dtype to = rules[_i].layers;
    for (int s = 0; s < COUNT(shapes); s++) {
        int64_t n = shapes[s].n_rows;
        int K = shapes[s].K;
        size_t bytes = dtype_bytes(to, (size_t)K);
        float *rows = make_rows(n * K);
        uint8_t *together = mem_calloc((size_t)n + 1, bytes), *alone = mem_alloc(bytes);
        quantise_rows(backend, to, together, DTYPE_F32, rows, n, K);
        for (int64_t i = 0; i < n; i++) {
            quantise_rows(backend, to, alone, DTYPE_F32, rows + i * K, 1, K);
            ck_assert_msg(memcmp(together + (size_t)i * bytes, alone, bytes) == 0,
                          "%s: row %d of %d of %d", dtype_name((int)to), (int)i, (int)n, K);
        }
        for (size_t i = 0; i < bytes; i++) ck_assert_int_eq(together[(size_t)n * bytes + i], 0);
        mem_free(rows), mem_free(together), mem_free(alone);
    }
    backend_close(backend);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/quantised_type");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, the_length_of_rows_chooses_the_type, 0, N_RULES);
    tcase_add_loop_test(all, some_matrices_keep_their_type, 0, N_RULES);
    tcase_add_test(all, without_blocks_nothing_changes);
    tcase_add_loop_test(all, bytes_are_those_of_each_matrix_in_its_type, 0, N_RULES);
    tcase_add_loop_test(all, blocks_of_many_rows_are_those_of_each_row, 0, N_RULES);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
