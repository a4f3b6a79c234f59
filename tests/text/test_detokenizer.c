/* Decoding: bytes become whole characters with the replacements of Python's decoder, in any
 * portions; special tokens; the first space. */
#include <check.h>
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite_main.h"
#include "support/tokenizer_fixture.h"

/* ---- Python's replacing decoder ------------------------------------------------------------- */

struct bytes_test {
    const struct tokenizer *tokenizer;
    int32_t id[256]; /* the token of each single byte */
};

static struct bytes_test bytes_test_of(const struct tokenizer *tokenizer) {
    struct bytes_test test = {.tokenizer = tokenizer};
    for (int32_t id = tokenizer_size(tokenizer) - 1; id >= 0; id--) {
        size_t length;
        const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
        if (length == 1) test.id[(uint8_t)bytes[0]] = id;
    }
    return test;
}

static struct buf unhex(const cJSON *line, const char *key) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "hex", cJSON_GetObjectItem(line, key)->valuestring);
    struct buf out = fixture_text(object);
    cJSON_Delete(object);
    return out;
}

/* The output so far is always a prefix of the right text, and ends with a whole character. */
static void check_beginning(const struct buf *out, const struct buf *expected) {
    ck_assert_uint_le(out->length, expected->length);
    ck_assert_mem_eq(out->data, expected->data, out->length);
    if (out->length < expected->length) {
        ck_assert_int_ne((uint8_t)expected->data[out->length] & 0xC0, 0x80);
    }
}

static void decode_line(void *context, const cJSON *line) {
    const struct bytes_test *test = context;
    struct buf bytes = unhex(line, "hex"), expected = unhex(line, "decoded"), out = {0};
    buf_add(&out, "", 0);
    struct detokenizer detokenizer = {.tokenizer = test->tokenizer};
    for (size_t i = 0; i < bytes.length; i++) {
        detokenizer_add(&detokenizer, test->id[(uint8_t)bytes.data[i]], &out);
        ck_assert_uint_le(detokenizer.n_held, 3);
        check_beginning(&out, &expected);
    }
    detokenizer_finish(&detokenizer, &out);
    ck_assert_uint_eq(out.length, expected.length);
    ck_assert_mem_eq(out.data, expected.data, out.length);
    buf_free(&bytes);
    buf_free(&expected);
    buf_free(&out);
}

START_TEST(bytes_become_the_text_of_python) {
    struct tokenizer *tokenizer = fixture_tokenizer(_i ? "gemma" : "gpt-2");
    struct bytes_test test = bytes_test_of(tokenizer);
    int n = fixture_lines("tests/vectors/detokenizer.jsonl", decode_line, &test);
    ck_assert_int_ge(n, 2000);
    tokenizer_free(tokenizer);
}
END_TEST

/* ---- streaming ------------------------------------------------------------------------------ */

static struct buf stream(const struct tokenizer *tokenizer, const int32_t *ids, int n,
                         const struct buf *whole) {
    struct detokenizer detokenizer = {.tokenizer = tokenizer};
    struct buf out = {0};
    buf_add(&out, "", 0);
    for (int i = 0; i < n; i++) {
        detokenizer_add(&detokenizer, ids[i], &out);
        check_beginning(&out, whole);
    }
    detokenizer_finish(&detokenizer, &out);
    return out;
}

/* Random tokens cut characters at all possible places. */
START_TEST(a_stream_gives_the_same_as_the_whole) {
    static const char *const names[] = {"gpt-2", "deepseek-llm", "llama", "gemma"};
    struct tokenizer *tokenizer = fixture_tokenizer(names[_i]);
    uint64_t state = 17;
    for (int round = 0; round < 3000; round++) {
        int32_t ids[40];
        int n = (int)(fixture_random(&state) % 40);
        int32_t among = round % 2 ? tokenizer_size(tokenizer) : 300;
        for (int i = 0; i < n; i++) ids[i] = (int32_t)(fixture_random(&state) % (uint32_t)among);
        struct buf whole = {0};
        buf_add(&whole, "", 0);
        detokenize(tokenizer, ids, n, false, &whole);
        struct buf out = stream(tokenizer, ids, n, &whole);
        ck_assert_str_eq(out.data, whole.data);
        buf_free(&out);
        buf_free(&whole);
    }
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(an_emoji_is_sent_when_it_is_complete) {
    struct tokenizer *tokenizer = fixture_tokenizer("gpt-2");
    struct bytes_test test = bytes_test_of(tokenizer);
    struct detokenizer detokenizer = {.tokenizer = tokenizer};
    struct buf out = {0};
    static const uint8_t emoji[] = {0xF0, 0x9F, 0x98, 0x80};
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(out.length, 0);
        detokenizer_add(&detokenizer, test.id[emoji[i]], &out);
    }
    ck_assert_str_eq(out.data, "\xF0\x9F\x98\x80");
    ck_assert_int_eq(detokenizer.n_held, 0);
    buf_free(&out);
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(an_unfinished_character_ends_as_one_replacement) {
    struct tokenizer *tokenizer = fixture_tokenizer("gpt-2");
    struct bytes_test test = bytes_test_of(tokenizer);
    struct detokenizer detokenizer = {.tokenizer = tokenizer};
    struct buf out = {0};
    detokenizer_add(&detokenizer, test.id[0xF0], &out);
    detokenizer_add(&detokenizer, test.id[0x9F], &out);
    detokenizer_finish(&detokenizer, &out);
    ck_assert_str_eq(out.data, "\xEF\xBF\xBD");
    detokenizer_finish(&detokenizer, &out);
    ck_assert_str_eq(out.data, "\xEF\xBF\xBD");
    buf_free(&out);
    tokenizer_free(tokenizer);
}
END_TEST

/* ---- special tokens and the first space ----------------------------------------------------- */

static void expect_shown(const struct tokenizer *tokenizer, const char *text, bool skip_special,
                         const char *expected) {
    int32_t *ids;
    int n = tokenizer_encode(tokenizer, text, strlen(text), SPECIAL_PARSED, false, 1000, &ids);
    struct buf out = {0};
    buf_add(&out, "", 0);
    detokenize(tokenizer, ids, n, skip_special, &out);
    ck_assert_str_eq(out.data, expected);
    buf_free(&out);
    free(ids);
}

START_TEST(special_tokens_are_skipped_if_asked_and_added_ones_never) {
    struct tokenizer *tokenizer = fixture_tokenizer("gpt-2");
    expect_shown(tokenizer, "a<|im_end|>b<tool_call>", false, "a<|im_end|>b<tool_call>");
    expect_shown(tokenizer, "a<|im_end|>b<tool_call>", true, "ab<tool_call>");
    expect_shown(tokenizer, "<|im_end|>", true, "");
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(sentencepiece_takes_its_own_space_back) {
    struct tokenizer *tokenizer = fixture_tokenizer("llama");
    expect_shown(tokenizer, "the water", false, "the water");
    expect_shown(tokenizer, "  the water", false, "  the water");
    expect_shown(tokenizer, "<s>the water", true, "the water");
    expect_shown(tokenizer, "<s>the water", false, "<s> the water");
    expect_shown(tokenizer, "<tool_call>the water", false, "<tool_call>the water");
    tokenizer_free(tokenizer);
    tokenizer = fixture_tokenizer("gemma");
    expect_shown(tokenizer, "the water", false, "the water");
    expect_shown(tokenizer, " the water", false, " the water");
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(a_continued_text_keeps_its_space) {
    struct tokenizer *tokenizer = fixture_tokenizer("llama");
    struct detokenizer detokenizer = {.tokenizer = tokenizer, .started = true};
    struct buf out = {0};
    int32_t id = tokenizer_find(tokenizer, "\xE2\x96\x81the", 6);
    ck_assert_int_ge(id, 0);
    detokenizer_add(&detokenizer, id, &out);
    ck_assert_str_eq(out.data, " the");
    buf_free(&out);
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(ids_out_of_range_give_no_text) {
    struct tokenizer *tokenizer = fixture_tokenizer("gpt-2");
    const int32_t ids[] = {-1, INT32_MAX, tokenizer_size(tokenizer), 0, INT32_MIN};
    struct buf out = {0};
    detokenize(tokenizer, ids, 5, true, &out);
    ck_assert_str_eq(out.data, "!");
    buf_free(&out);
    tokenizer_free(tokenizer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_detokenizer");
    TCase *tests = tcase_create("detokenizer");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, bytes_become_the_text_of_python, 0, 2);
    tcase_add_loop_test(tests, a_stream_gives_the_same_as_the_whole, 0, 4);
    tcase_add_test(tests, an_emoji_is_sent_when_it_is_complete);
    tcase_add_test(tests, an_unfinished_character_ends_as_one_replacement);
    tcase_add_test(tests, special_tokens_are_skipped_if_asked_and_added_ones_never);
    tcase_add_test(tests, sentencepiece_takes_its_own_space_back);
    tcase_add_test(tests, a_continued_text_keeps_its_space);
    tcase_add_test(tests, ids_out_of_range_give_no_text);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
