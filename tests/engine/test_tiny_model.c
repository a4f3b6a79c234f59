/* The engine's tests rely on models that tests make: they have the tensors that llama needs, the
 * same numbers in all types, and a vocabulary for a tokenizer. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "support/quantise.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

struct made {
    struct buf file;
    struct gguf *gguf;
};

static struct made make(const struct tiny_model *tiny) {
    struct made made = {0};
    struct err err = {0};
    tiny_model_bytes(tiny, &made.file);
    enum status status = gguf_open_memory(&made.gguf, made.file.data, made.file.length, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    return made;
}

static void discard(struct made *made) {
    gguf_close(made->gguf);
    buf_free(&made->file);
}

/* ---- quantising ----------------------------------------------------------------------------- */

/* Returns the largest error after quantising and reading back. */
static float worst_error(enum dtype type, const float *x, size_t n) {
    float *back = mem_alloc(n * sizeof *back);
    void *packed = mem_alloc(dtype_bytes(type, n));
    float worst = 0;
    quantise(type, x, packed, n);
    dequantise(type, packed, back, n);
    for (size_t i = 0; i < n; i++) worst = fmaxf(worst, fabsf(back[i] - x[i]));
    free(packed);
    free(back);
    return worst;
}

/* Numbers from -1 to 1: a step is 2/15 at 4 bits with a base, 1/8 without, and 1/127 at 8 bits. The
 * largest number that q4_0 cannot represent is one step away. */
START_TEST(quantising_errs_by_half_a_step) {
    float x[256];
    for (int i = 0; i < 256; i++) x[i] = sinf((float)(i * i));
    ck_assert(worst_error(DTYPE_F32, x, 256) == 0);
    ck_assert(worst_error(DTYPE_F16, x, 256) <= 0x1p-12f);
    ck_assert(worst_error(DTYPE_BF16, x, 256) <= 0x1p-9f);
    ck_assert(worst_error(DTYPE_Q8_0, x, 256) <= 0.51f / 127);
    ck_assert(worst_error(DTYPE_Q4_1, x, 256) <= 0.51f * 2 / 15);
    ck_assert(worst_error(DTYPE_Q4_0, x, 256) <= 1.01f / 8);
}
END_TEST

START_TEST(blocks_of_zeros_stay_zeros) {
    static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
    float x[64] = {0};
    for (int i = 0; i < 3; i++) ck_assert(worst_error(types[i], x, 64) == 0);
}
END_TEST

/* ---- the model ------------------------------------------------------------------------------ */

START_TEST(the_same_description_gives_the_same_bytes) {
    struct tiny_model tiny;
    tiny_model_defaults(&tiny);
    struct made first = make(&tiny), second = make(&tiny);
    tiny.seed = 2;
    struct made other = make(&tiny);
    ck_assert_uint_eq(first.file.length, second.file.length);
    ck_assert(memcmp(first.file.data, second.file.data, first.file.length) == 0);
    ck_assert_uint_eq(first.file.length, other.file.length);
    ck_assert(memcmp(first.file.data, other.file.data, first.file.length) != 0);
    discard(&first);
    discard(&second);
    discard(&other);
}
END_TEST

static void check_matrix(const struct gguf *gguf, const char *name, int N, int K, enum dtype type) {
    const struct weight *weight = NULL;
    struct err err = {0};
    enum status status = weights_matrix(&gguf->weights, name, N, K, &weight, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(weight->type, type);
}

START_TEST(all_tensors_of_a_llama_are_there) {
    static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16,
                                       DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
    struct tiny_model tiny;
    tiny_model_defaults(&tiny);
    tiny.untied = true;
    tiny.V = 320;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tiny.dtype = types[i];
        struct made made = make(&tiny);
        check_matrix(made.gguf, "token_embd.weight", 320, 64, types[i]);
        check_matrix(made.gguf, "output.weight", 320, 64, types[i]);
        check_matrix(made.gguf, "blk.1.attn_q.weight", 64, 64, types[i]);
        check_matrix(made.gguf, "blk.1.attn_k.weight", 32, 64, types[i]);
        check_matrix(made.gguf, "blk.1.attn_v.weight", 32, 64, types[i]);
        check_matrix(made.gguf, "blk.1.attn_output.weight", 64, 64, types[i]);
        check_matrix(made.gguf, "blk.1.ffn_gate.weight", 96, 64, types[i]);
        check_matrix(made.gguf, "blk.1.ffn_up.weight", 96, 64, types[i]);
        check_matrix(made.gguf, "blk.1.ffn_down.weight", 64, 96, types[i]);
        const struct weight *gain = NULL;
        ck_assert_int_eq(weights_vector(&made.gguf->weights, "output_norm.weight", 64, &gain, NULL),
                         STATUS_OK);
        discard(&made);
    }
}
END_TEST

START_TEST(rows_that_are_no_blocks_stay_in_float32) {
    struct tiny_model tiny;
    tiny_model_defaults(&tiny);
    tiny.dtype = DTYPE_Q8_0;
    tiny.F = 40;
    struct made made = make(&tiny);
    check_matrix(made.gguf, "blk.0.ffn_down.weight", 64, 40, DTYPE_F32);
    check_matrix(made.gguf, "blk.0.ffn_up.weight", 40, 64, DTYPE_Q8_0);
    ck_assert_ptr_null(weights_lookup(&made.gguf->weights, "output.weight"));
    discard(&made);
}
END_TEST

START_TEST(its_tokenizer_reads_and_writes_text) {
    static const char text[] = "the hello and \xf0\x9f\x98\x80\n";
    struct tiny_model tiny;
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    int32_t *ids = NULL;
    struct buf back = {0};
    tiny_model_defaults(&tiny);
    struct made made = make(&tiny);
    ck_assert_int_eq(gguf_tokenizer_read(&spec, made.gguf, NULL), STATUS_OK);
    ck_assert_msg(tokenizer_new(&tokenizer, &spec, &err) == STATUS_OK, "%s", err.message);
    int n = tokenizer_encode(tokenizer, text, strlen(text), SPECIAL_AS_TEXT, false, 100, &ids);
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(ids[0], tokenizer_find(tokenizer, "the", 3));
    detokenize(tokenizer, ids, n, true, &back);
    ck_assert_str_eq(back.data, text);
    ck_assert_int_eq(tokenizer_find(tokenizer, "<|im_end|>", 10), TINY_IM_END);
    ck_assert_int_eq(tokenizer_find(tokenizer, "A", 1), TINY_BYTE + 'A');
    buf_free(&back);
    free(ids);
    tokenizer_free(tokenizer);
    tokenizer_spec_free(&spec);
    discard(&made);
}
END_TEST

/* ---- the suite ------------------------------------------------------------------------------ */

int main(void) {
    const TTest *const tests[] = {
        quantising_errs_by_half_a_step,
        blocks_of_zeros_stay_zeros,
        the_same_description_gives_the_same_bytes,
        all_tensors_of_a_llama_are_there,
        rows_that_are_no_blocks_stay_in_float32,
        its_tokenizer_reads_and_writes_text,
    };
    Suite *suite = suite_create("support/tiny_model");
    TCase *cases = tcase_create("all");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
