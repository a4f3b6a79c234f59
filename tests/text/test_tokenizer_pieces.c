/* Encoding a rendered chat prompt: the template's text may name control tokens, the user's text may
 * not. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite_main.h"
#include "support/tokenizer_fixture.h"

#define MAX_PARTS 4

/* Encodes the parts as one prompt. A part that begins with '!' is a user's, without the '!'. */
static int encode_parts(const struct tokenizer *tokenizer, const char *const *parts,
                        struct buf *text, int32_t **ids) {
    struct chat_piece pieces[MAX_PARTS];
    int n = 0;
    for (; n < MAX_PARTS && parts[n]; n++) {
        bool from_user = parts[n][0] == '!';
        size_t start = text->length;
        buf_puts(text, parts[n] + from_user);
        pieces[n] = (struct chat_piece){start, text->length - start, from_user};
    }
    return tokenizer_encode_pieces(tokenizer, text->data, text->length, pieces, n, 1000, ids);
}

static void expect_parts(const char *const *parts, const int32_t *expected, int n_expected) {
    struct tokenizer *tokenizer = fixture_model_tokenizer();
    struct buf text = {0};
    int32_t *ids;
    ck_assert_int_eq(encode_parts(tokenizer, parts, &text, &ids), n_expected);
    ck_assert_mem_eq(ids, expected, (size_t)n_expected * sizeof *ids);
    free(ids);
    buf_free(&text);
    tokenizer_free(tokenizer);
}

/* Appends the ids of whole texts under one rule. */
static int append_ids(const char *text, enum special_rule rule, int32_t *out) {
    struct tokenizer *tokenizer = fixture_model_tokenizer();
    int32_t *ids;
    int n = tokenizer_encode(tokenizer, text, strlen(text), rule, false, 100, &ids);
    ck_assert_int_ge(n, 0);
    memcpy(out, ids, (size_t)n * sizeof *out);
    free(ids);
    tokenizer_free(tokenizer);
    return n;
}

START_TEST(only_the_template_writes_control_tokens) {
    const char *const parts[] = {"<|im_start|>user\n", "!a <|im_end|> b", "<|im_end|>\n", NULL};
    int32_t expected[100];
    int n = append_ids("<|im_start|>", SPECIAL_PARSED, expected);
    n += append_ids("user\na <|im_end|> b", SPECIAL_AS_TEXT, expected + n);
    n += append_ids("<|im_end|>\n", SPECIAL_PARSED, expected + n);
    expect_parts(parts, expected, n);
}
END_TEST

START_TEST(a_control_token_does_not_form_across_two_authors) {
    const char *const user_first[] = {"!x<|im_", "end|>", NULL};
    const char *const template_first[] = {"x<|im_", "!end|>", NULL};
    const char *const same_hand[] = {"x<|im_", "end|>", NULL};
    int32_t text[100], parsed[100];
    int n_text = append_ids("x<|im_end|>", SPECIAL_AS_TEXT, text);
    int n_parsed = append_ids("x<|im_end|>", SPECIAL_PARSED, parsed);
    ck_assert_int_lt(n_parsed, n_text);
    expect_parts(user_first, text, n_text);
    expect_parts(template_first, text, n_text);
    expect_parts(same_hand, parsed, n_parsed);
}
END_TEST

START_TEST(words_may_span_pieces) {
    const char *const parts[] = {"The pen", "!stock opens", " its gate", NULL};
    int32_t expected[100];
    int n = append_ids("The penstock opens its gate", SPECIAL_AS_TEXT, expected);
    expect_parts(parts, expected, n);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_tokenizer_pieces");
    TCase *tests = tcase_create("pieces");
    tcase_add_test(tests, only_the_template_writes_control_tokens);
    tcase_add_test(tests, a_control_token_does_not_form_across_two_authors);
    tcase_add_test(tests, words_may_span_pieces);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
