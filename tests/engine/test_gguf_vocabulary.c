/* The vocabulary in a GGUF file's keys, the ids that end a generation, and the message for each
 * kind of error. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/models/model.h"
#include "support/llama_keys.h"
#include "support/suite_main.h"

#define MODEL "models/SmolLM2-135M-Instruct.Q4_1.gguf"

static const float scores[] = {0, -1, -2, -3, -4, -5};

/* ---- the tokenizer -------------------------------------------------------------------------- */

static void expect_spec_refused(struct gguf_writer *writer, const char *param,
                                const char *message) {
    struct tokenizer_spec spec;
    struct buf file = {0};
    struct err err = {0};
    struct gguf *gguf = llama_keys_open(writer, &file);
    ck_assert_int_eq(gguf_tokenizer_read(&spec, gguf, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.param, param);
    ck_assert_msg(strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message, message);
    ck_assert_ptr_null(spec.token);
    gguf_close(gguf);
    buf_free(&file);
}

START_TEST(the_real_vocabulary_is_read) {
    struct gguf *gguf = NULL;
    struct tokenizer_spec spec;
    struct err err = {0};
    ck_assert_msg(gguf_open(&gguf, MODEL, &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(gguf_tokenizer_read(&spec, gguf, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(spec.kind, TOKENIZER_BYTE_BPE);
    ck_assert_str_eq(spec.pre, "smollm");
    ck_assert(spec.n_tokens == 49152 && spec.n_merges == 48900);
    ck_assert(spec.bos == 1 && spec.eos == 2 && spec.unknown == 0);
    ck_assert(!spec.add_bos && !spec.add_eos && !spec.add_space_prefix);
    ck_assert(spec.token_length[2] == 10 && memcmp(spec.token[2], "<|im_end|>", 10) == 0);
    ck_assert_int_eq(spec.type[2], TOKEN_CONTROL);
    ck_assert(spec.merge_length[2] == 3 && memcmp(spec.merge[2], "i n", 3) == 0);
    ck_assert_ptr_null(spec.score);
    tokenizer_spec_free(&spec);
    gguf_close(gguf);
}
END_TEST

START_TEST(sentencepiece_has_scores_and_its_own_defaults) {
    struct gguf_writer writer = {0};
    struct buf file = {0};
    struct tokenizer_spec spec;
    llama_keys(&writer, "tokenizer.ggml.model");
    gguf_writer_string(&writer, "tokenizer.ggml.model", "llama");
    gguf_writer_array(&writer, "tokenizer.ggml.scores", GGUF_FLOAT32, 6, scores, sizeof scores);
    struct gguf *gguf = llama_keys_open(&writer, &file);
    ck_assert_int_eq(gguf_tokenizer_read(&spec, gguf, NULL), STATUS_OK);
    ck_assert_int_eq(spec.kind, TOKENIZER_SENTENCEPIECE);
    ck_assert(spec.score[5] == -5 && spec.merge == NULL && spec.pre == NULL);
    ck_assert(spec.add_bos && !spec.add_eos && spec.add_space_prefix);
    ck_assert(spec.bos == -1 && spec.eos == -1 && spec.unknown == -1);
    tokenizer_spec_free(&spec);
    gguf_close(gguf);
    buf_free(&file);
}
END_TEST

START_TEST(unigram_has_sentencepieces_normalizers) {
    static const uint8_t map[] = {4, 0, 0, 0, 0, 0, 0, 0, 'x', 0};
    struct gguf_writer writer = {0};
    struct buf file = {0};
    struct tokenizer_spec spec;
    llama_keys(&writer, "tokenizer.ggml.model");
    gguf_writer_string(&writer, "tokenizer.ggml.model", "t5");
    gguf_writer_array(&writer, "tokenizer.ggml.scores", GGUF_FLOAT32, 6, scores, sizeof scores);
    gguf_writer_array(&writer, "tokenizer.ggml.precompiled_charsmap", GGUF_UINT8, 10, map,
                      sizeof map);
    gguf_writer_bool(&writer, "tokenizer.ggml.remove_extra_whitespaces", true);
    struct gguf *gguf = llama_keys_open(&writer, &file);
    ck_assert_int_eq(gguf_tokenizer_read(&spec, gguf, NULL), STATUS_OK);
    ck_assert(spec.kind == TOKENIZER_UNIGRAM && spec.n_normalizers == 2 && spec.in_floats);
    ck_assert(spec.normalizers[0].kind == STEP_CHARACTER_MAP);
    ck_assert(spec.normalizers[0].content.length == 10);
    ck_assert(spec.normalizers[1].kind == STEP_SQUEEZE_SPACES);
    ck_assert(!spec.add_bos && spec.add_eos && spec.add_space_prefix && !spec.has_steps);
    tokenizer_spec_free(&spec);
    gguf_close(gguf);
    buf_free(&file);
}
END_TEST

/* ---- merges of characters ------------------------------------------------------------------- */

/* Reads a byte-level BPE vocabulary with another pre-tokenizer, and checks the ids of a text. */
static void expect_ids(const char *pre, bool lowers, const char *text, const char *wanted) {
    static const char *const tokens[] = {"<unk>",
                                         "<0x21>",
                                         "a",
                                         "b",
                                         "ab",
                                         "\n",
                                         "\xe2\x96\x81",
                                         "\xe2\x96\x81"
                                         "ab"};
    static const char *const merges[] = {"a b", "\xe2\x96\x81 ab"};
    static const int32_t types[] = {2, 6, 1, 1, 1, 1, 1, 1};
    struct gguf_writer writer = {0};
    struct buf file = {0}, ids = {0};
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer;
    struct err err = {0};
    int32_t *id = NULL;
    gguf_writer_string(&writer, "tokenizer.ggml.model", "gpt2");
    gguf_writer_string(&writer, "tokenizer.ggml.pre", pre);
    gguf_writer_strings(&writer, "tokenizer.ggml.tokens", tokens, NULL, 8);
    gguf_writer_array(&writer, "tokenizer.ggml.token_type", GGUF_INT32, 8, types, sizeof types);
    gguf_writer_strings(&writer, "tokenizer.ggml.merges", merges, NULL, 2);
    gguf_writer_u32(&writer, "tokenizer.ggml.unknown_token_id", 0);
    if (lowers) gguf_writer_bool(&writer, "tokenizer.ggml.normalizer.lowercase", true);
    struct gguf *gguf = llama_keys_open(&writer, &file);
    ck_assert_msg(gguf_tokenizer_read(&spec, gguf, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(spec.kind, TOKENIZER_CHARACTER_BPE);
    ck_assert_msg(tokenizer_new(&tokenizer, &spec, &err) == STATUS_OK, "%s", err.message);
    int n = tokenizer_encode(tokenizer, text, strlen(text), SPECIAL_PARSED, true, 16, &id);
    for (int i = 0; i < n; i++) buf_printf(&ids, "%s%d", i ? " " : "", (int)id[i]);
    ck_assert_str_eq(ids.data, wanted);
    buf_free(&ids);
    mem_free(id);
    tokenizer_free(tokenizer);
    tokenizer_spec_free(&spec);
    gguf_close(gguf);
    buf_free(&file);
}

START_TEST(some_names_of_pre_tokenizers_merge_characters) {
    static const char *const like_gemma4[] = {"gemma4", "sarvam-moe", "granite-embed-multi-311m"};
    for (int i = 0; i < 3; i++) expect_ids(like_gemma4[i], false, "ab ab!\nb", "4 7 1 5 3");
    expect_ids("whitespace", false, "ab  a\tb", "4 2 3");
    expect_ids("whitespace", false, "AB ab", "0 0 4");
    expect_ids("whitespace", true, "AB ab", "4 4");
}
END_TEST

START_TEST(wrong_vocabularies_are_refused) {
    static const char *const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.merges"};
    struct gguf_writer writer = {0};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        llama_keys(&writer, keys[i]);
        expect_spec_refused(&writer, keys[i], "is missing");
    }
    llama_keys(&writer, "tokenizer.ggml.model");
    gguf_writer_string(&writer, "tokenizer.ggml.model", "rwkv");
    expect_spec_refused(&writer, "tokenizer.ggml.model", "\"rwkv\" is not supported");
    llama_keys(&writer, "tokenizer.ggml.tokens");
    gguf_writer_strings(&writer, "tokenizer.ggml.tokens", NULL, NULL, 0);
    expect_spec_refused(&writer, "tokenizer.ggml.tokens", "found 0");
    llama_keys(&writer, "tokenizer.ggml.token_type");
    gguf_writer_array(&writer, "tokenizer.ggml.token_type", GGUF_INT32, 5, llama_word_types, 20);
    expect_spec_refused(&writer, "tokenizer.ggml.token_type", "expected 6 entries, one a token");
    llama_keys(&writer, "tokenizer.ggml.token_type");
    gguf_writer_array(&writer, "tokenizer.ggml.token_type", GGUF_UINT8, 6, llama_word_types, 6);
    expect_spec_refused(&writer, "tokenizer.ggml.token_type", "found array of uint8");
    llama_keys(&writer, "tokenizer.ggml.eos_token_id");
    gguf_writer_u32(&writer, "tokenizer.ggml.eos_token_id", 6);
    expect_spec_refused(&writer, "tokenizer.ggml.eos_token_id", "expected 0 to 5, found 6");
    llama_keys(&writer, "tokenizer.ggml.model");
    gguf_writer_string(&writer, "tokenizer.ggml.model", "llama");
    expect_spec_refused(&writer, "tokenizer.ggml.scores", "is missing");
}
END_TEST

START_TEST(overlong_tokens_are_refused) {
    struct gguf_writer writer = {0};
    char *token = mem_calloc(1, 70000);
    memset(token, 'x', 69999);
    llama_keys(&writer, "tokenizer.ggml.tokens");
    gguf_writer_strings(&writer, "tokenizer.ggml.tokens", (const char *const[]){"a", token}, NULL,
                        2);
    expect_spec_refused(&writer, "tokenizer.ggml.tokens", "entry 1 has 69999 bytes");
    free(token);
}
END_TEST

/* ---- the suite ------------------------------------------------------------------------------ */

int main(void) {
    const TTest *const tests[] = {
        the_real_vocabulary_is_read,
        sentencepiece_has_scores_and_its_own_defaults,
        unigram_has_sentencepieces_normalizers,
        some_names_of_pre_tokenizers_merge_characters,
        wrong_vocabularies_are_refused,
        overlong_tokens_are_refused,
    };
    Suite *suite = suite_create("engine/gguf_vocabulary");
    TCase *cases = tcase_create("all");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
