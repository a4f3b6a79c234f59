/* BERT's tokenizer in a GGUF file: the ids and pairs equal those of the tokenizer.json that it was
 * converted from, for all texts of tests/vectors/hf_tokenizers/bert_uncased.jsonl. */
#include <check.h>
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/model_file.h"
#include "engine/files/text/folder_text.h"
#include "support/llama_keys.h"
#include "support/suite_main.h"
#include "support/tokenizer_fixture.h"

#define LINES "tests/vectors/hf_tokenizers/bert_uncased.jsonl"

/* Writes the model's tokens as converters do: a word's start gets U+2581, other parts lose "##",
 * special tokens stay. Returns their number. */
static int write_tokens(struct gguf_writer *writer) {
    struct tokenizer_spec spec;
    struct err err = {0};
    size_t length;
    char *text = fixture_read("tests/vectors/hf_tokenizers/bert_uncased.json", &length);
    ck_assert_msg(!tokenizer_json_read(&spec, "t", text, length, 0, &err), "%s", err.message);
    const char *tokens[1000];
    int32_t types[1000];
    struct buf names[1000] = {{0}};
    int n = 0;
    for (; n < spec.n_tokens && !(spec.added[n] & ADDED_ONLY); n++) {
        const char *token = spec.token[n];
        bool is_part = spec.token_length[n] > 2 && memcmp(token, "##", 2) == 0;
        bool is_special = spec.type[n] != TOKEN_NORMAL;
        types[n] = is_special ? TOKEN_CONTROL : TOKEN_NORMAL;
        buf_puts(&names[n], is_special || is_part ? "" : "\xe2\x96\x81");
        buf_add(&names[n], token + 2 * is_part, spec.token_length[n] - 2 * (size_t)is_part);
        buf_add(&names[n], "", 1);
        tokens[n] = names[n].data;
    }
    ck_assert_int_gt(n, 500);
    gguf_writer_strings(writer, "tokenizer.ggml.tokens", tokens, NULL, (size_t)n);
    gguf_writer_array(writer, "tokenizer.ggml.token_type", GGUF_INT32, (size_t)n, types,
                      (size_t)n * 4);
    for (int i = 0; i < n; i++) buf_free(&names[i]);
    tokenizer_spec_free(&spec);
    free(text);
    return n;
}

static struct tokenizer *gguf_tokenizer(bool has_keys, bool lowers, int *n) {
    struct gguf_writer writer = {0};
    struct buf file = {0};
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer;
    struct err err = {0};
    gguf_writer_string(&writer, "tokenizer.ggml.model", "bert");
    *n = write_tokens(&writer);
    if (has_keys) { /* what a converter writes for a template with [CLS] and [SEP] */
        gguf_writer_u32(&writer, "tokenizer.ggml.unknown_token_id", 1);
        gguf_writer_u32(&writer, "tokenizer.ggml.cls_token_id", 2);
        gguf_writer_u32(&writer, "tokenizer.ggml.seperator_token_id", 3);
        gguf_writer_bool(&writer, "tokenizer.ggml.add_bos_token", true);
        gguf_writer_bool(&writer, "tokenizer.ggml.add_sep_token", false);
    }
    if (!lowers) gguf_writer_bool(&writer, "tokenizer.ggml.normalizer.lowercase", false);
    struct gguf *gguf = llama_keys_open(&writer, &file);
    ck_assert_msg(!gguf_tokenizer_read(&spec, gguf, &err), "%s", err.message);
    ck_assert_int_eq(spec.kind, TOKENIZER_WORDPIECE);
    ck_assert_msg(!tokenizer_new(&tokenizer, &spec, &err), "%s", err.message);
    tokenizer_spec_free(&spec);
    gguf_close(gguf);
    buf_free(&file);
    return tokenizer;
}

/* ---- one line ------------------------------------------------------------------------------- */

struct comparison {
    const struct tokenizer *tokenizer;
    int n_tokens, n_compared;
};

static void expect_ids(const cJSON *wanted, const int32_t *ids, int n) {
    ck_assert_int_eq(cJSON_GetArraySize(wanted), n);
    for (int i = 0; i < n; i++) ck_assert_int_eq(cJSON_GetArrayItem(wanted, i)->valueint, ids[i]);
}

static void compare_line(void *context, const cJSON *line) {
    static const char second[] = "A second text: caf\xC3\xA9.";
    struct comparison *comparison = context;
    const cJSON *around = cJSON_GetObjectItem(line, "around"), *item;
    int32_t *ids;
    int n_first;
    cJSON_ArrayForEach(item, around) {
        if (item->valueint >= comparison->n_tokens) return; /* an added token: not in GGUF */
    }
    struct buf text = fixture_text(line);
    if (strstr(text.data, "\xe2\x96\x81")) { /* the format's mark within a word is ambiguous */
        buf_free(&text);
        return;
    }
    int n = tokenizer_encode(comparison->tokenizer, text.data, text.length, SPECIAL_PARSED, true,
                             1 << 20, &ids);
    expect_ids(around, ids, n);
    mem_free(ids);
    if (!strstr(text.data, "[")) { /* pairs read special tokens as text */
        n = tokenizer_encode_pair(comparison->tokenizer, (struct span){text.data, text.length},
                                  (struct span){second, sizeof second - 1}, 1 << 20, &ids,
                                  &n_first);
        expect_ids(cJSON_GetObjectItem(line, "pair"), ids, n);
        ck_assert_int_eq(n_first, cJSON_GetObjectItem(line, "n_first")->valueint);
        mem_free(ids);
    }
    comparison->n_compared++;
    buf_free(&text);
}

START_TEST(ids_and_pairs_equal_those_of_the_folder) {
    for (int has_keys = 0; has_keys < 2; has_keys++) {
        struct comparison comparison = {0};
        struct tokenizer *tokenizer = gguf_tokenizer(has_keys, true, &comparison.n_tokens);
        comparison.tokenizer = tokenizer;
        fixture_lines(LINES, compare_line, &comparison);
        ck_assert_int_gt(comparison.n_compared, 150);
        tokenizer_free(tokenizer);
    }
}
END_TEST

/* ---- keys ----------------------------------------------------------------------------------- */

START_TEST(a_key_keeps_capitals_and_accents) {
    int n_tokens;
    struct tokenizer *small = gguf_tokenizer(true, true, &n_tokens);
    struct tokenizer *cased = gguf_tokenizer(true, false, &n_tokens);
    static const char text[] = "The water";
    int32_t *low, *high;
    int n_low = tokenizer_encode(small, text, 9, SPECIAL_AS_TEXT, false, 99, &low);
    int n_high = tokenizer_encode(cased, text, 9, SPECIAL_AS_TEXT, false, 99, &high);
    ck_assert_int_ge(n_low, 2);
    ck_assert_int_ge(n_high, 2);
    ck_assert_int_ne(low[0], 1);
    ck_assert_int_eq(high[0], 1); /* no token has a capital */
    ck_assert_int_eq(low[n_low - 1], high[n_high - 1]);
    mem_free(low);
    mem_free(high);
    tokenizer_free(small);
    tokenizer_free(cased);
}
END_TEST

START_TEST(text_is_words_with_spaces_between) {
    int n_tokens;
    struct tokenizer *tokenizer = gguf_tokenizer(true, true, &n_tokens);
    static const char text[] = "Water flows, quickly.";
    struct buf out = {0};
    int32_t *ids;
    int n = tokenizer_encode(tokenizer, text, sizeof text - 1, SPECIAL_AS_TEXT, false, 99, &ids);
    detokenize(tokenizer, ids, n, true, &out);
    ck_assert_str_eq(out.data, "water flows , quickly .");
    buf_free(&out);
    mem_free(ids);
    tokenizer_free(tokenizer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_gguf_bert");
    TCase *cases = tcase_create("all");
    tcase_add_test(cases, ids_and_pairs_equal_those_of_the_folder);
    tcase_add_test(cases, a_key_keeps_capitals_and_accents);
    tcase_add_test(cases, text_is_words_with_spaces_between);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
