/* The tokenizer's tables: spellings and bytes, lookups, the trie of special tokens, normal form
 * C. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"
#include "support/suite_main.h"

/* ---- byte_alphabet.c ------------------------------------------------------------------------ */

static void expect_decoded(enum tokenizer_kind kind, int type, const char *name, const char *wanted,
                           size_t length) {
    char out[64];
    size_t n = alphabet_decode(kind, type, name, strlen(name), out);
    ck_assert_msg(n == length && memcmp(out, wanted, n) == 0, "%s: %.*s", name, (int)n, out);
}

/* GPT-2's alphabet is a bijection between the 256 bytes and 256 characters below U+0144. */
START_TEST(every_byte_has_one_character) {
    bool seen[256] = {false};
    int n_characters = 0;
    for (uint32_t c = 1; c < 0x200; c++) {
        char name[4], out[4];
        size_t length = utf8_write(c, name);
        size_t n = alphabet_decode(TOKENIZER_BYTE_BPE, TOKEN_NORMAL, name, length, out);
        if (n == length && memcmp(name, out, n) == 0 && (c < 0x21 || c > 0x7E)) continue;
        ck_assert_uint_eq(n, 1);
        ck_assert_msg(!seen[(uint8_t)out[0]], "U+%04X", (unsigned)c);
        seen[(uint8_t)out[0]] = true;
        n_characters++;
    }
    ck_assert_int_eq(n_characters, 256);
    expect_decoded(TOKENIZER_BYTE_BPE, TOKEN_NORMAL, "\xC4\xA0the", " the", 4);
    expect_decoded(TOKENIZER_BYTE_BPE, TOKEN_NORMAL, "\xC4\x8A", "\n", 1);
    expect_decoded(TOKENIZER_BYTE_BPE, TOKEN_NORMAL, "\xC3\xA9\xC5\x83\xC2\xAE", "\xE9\xAD\xAE", 3);
    /* U+0144 is outside */
    expect_decoded(TOKENIZER_BYTE_BPE, TOKEN_NORMAL, "\xC5\x84", "\xC5\x84", 2);
}
END_TEST

START_TEST(spellings_depend_on_kind_and_type) {
    static const char outside[] = "a\xE2\x82\xAC"; /* the euro sign is not in the alphabet */
    expect_decoded(TOKENIZER_BYTE_BPE, TOKEN_NORMAL, outside, outside, 4);
    expect_decoded(TOKENIZER_BYTE_BPE, TOKEN_CONTROL, "\xC4\xA0x", "\xC4\xA0x", 3);
    expect_decoded(TOKENIZER_BYTE_BPE, TOKEN_USER_DEFINED, "\xC4\xA0x", "\xC4\xA0x", 3);
    expect_decoded(TOKENIZER_SENTENCEPIECE, TOKEN_NORMAL, "\xE2\x96\x81x\xE2\x96\x81", " x ", 3);
    expect_decoded(TOKENIZER_SENTENCEPIECE, TOKEN_USER_DEFINED, "\xE2\x96\x81", " ", 1);
    expect_decoded(TOKENIZER_SENTENCEPIECE, TOKEN_CONTROL, "\xE2\x96\x81", "\xE2\x96\x81", 3);
    expect_decoded(TOKENIZER_SENTENCEPIECE, TOKEN_NORMAL, "\xE2\x96", "\xE2\x96", 2);
    expect_decoded(TOKENIZER_SENTENCEPIECE, TOKEN_BYTE, "<0x0A>", "\n", 1);
    expect_decoded(TOKENIZER_SENTENCEPIECE, TOKEN_NORMAL, "<0x0A>", "<0x0A>", 6);
}
END_TEST

START_TEST(byte_tokens_have_one_form) {
    ck_assert_int_eq(alphabet_byte_token("<0x0A>", 6), 0x0A);
    ck_assert_int_eq(alphabet_byte_token("<0xfF>", 6), 0xFF);
    static const char *const wrong[] = {"<0x0A",  "<0x0AA>", "<0y0A>", "<0x0G>",
                                        "<0xFG>", "<0xG0>",  "<0x0A)"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_msg(alphabet_byte_token(wrong[i], strlen(wrong[i])) == -1, "%s", wrong[i]);
    }
}
END_TEST

/* ---- vocabulary.c --------------------------------------------------------------------------- */

START_TEST(a_pair_table_keeps_the_last_meaning) {
    struct pair_table table;
    pair_table_init(&table, 1000);
    for (uint32_t i = 0; i < 1000; i++) pair_table_put(&table, i % 31, i, i, (int32_t)i);
    for (uint32_t i = 0; i < 1000; i++) {
        const struct pair_entry *pair = pair_table_find(&table, i % 31, i);
        ck_assert(pair && pair->rank == i && pair->value == (int32_t)i);
        ck_assert_ptr_null(pair_table_find(&table, i, i % 31 + 1000));
    }
    pair_table_put(&table, 1, 1, 7, 8);
    ck_assert_uint_eq(table.n, 1000);
    ck_assert_int_eq(pair_table_find(&table, 1, 1)->value, 8);
    free(table.pair);
}
END_TEST

/* Strings of all lengths up to three words, which differ in one byte. */
START_TEST(a_string_table_compares_whole_strings) {
    char data[40 * 80];
    size_t start[81];
    struct strings strings = {data, start};
    start[0] = 0;
    for (int i = 0; i < 80; i++) {
        size_t length = (size_t)i / 2;
        memset(data + start[i], 'x', length);
        if (i % 2 && length) data[start[i] + length / 2] = 'y';
        data[start[i] + length] = 0;
        start[i + 1] = start[i] + length + 1;
    }
    struct string_table table;
    string_table_init(&table, &strings, 80);
    for (int i = 0; i < 80; i++) {
        int32_t other = string_table_add(&table, i);
        ck_assert_int_eq(other, i == 1 ? 0 : -1); /* two of length 0 are equal */
    }
    for (int32_t i = 0; i < 80; i++) {
        size_t length;
        const char *text = strings_get(&strings, i, &length);
        ck_assert_int_eq(string_table_find(&table, text, length), i == 1 ? 0 : i);
    }
    ck_assert_int_eq(string_table_find(&table, "z", 1), -1);
    free(table.slot);
}
END_TEST

/* ---- special_tokens.c ----------------------------------------------------------------------- */

static const char *const names[] = {"a", "<|x|>", "<|x|>y", "<add>", "<|x"};
static const int32_t types[] = {TOKEN_NORMAL, TOKEN_CONTROL, TOKEN_CONTROL, TOKEN_USER_DEFINED,
                                TOKEN_NORMAL};

static struct token_vocabulary small_vocabulary(void) {
    uint32_t length[5];
    for (int i = 0; i < 5; i++) length[i] = (uint32_t)strlen(names[i]);
    const struct tokenizer_spec spec = {
        .n_tokens = 5, .token = names, .token_length = length, .type = types};
    struct token_vocabulary vocabulary = {0};
    struct err err = {0};
    ck_assert_int_eq(vocabulary_init(&vocabulary, &spec, NULL, &err), STATUS_OK);
    return vocabulary;
}

START_TEST(finds_the_longest_special_token) {
    struct token_vocabulary vocabulary = small_vocabulary();
    struct special special = {0};
    special_init(&special, &vocabulary, SPECIAL_EXACT, NULL);
    static const struct {
        const char *text;
        enum special_rule rule;
        size_t at, length;
        int32_t id;
    } cases[] = {
        {"ab<|x|>c", SPECIAL_PARSED, 2, 5, 1}, {"<|x|>yy", SPECIAL_PARSED, 0, 6, 2},
        {"<|x|", SPECIAL_PARSED, 4, 0, -1},    {"<|x|>", SPECIAL_AS_TEXT, 5, 0, -1},
        {"<<add>", SPECIAL_AS_TEXT, 1, 5, 3},  {"<|x|><add>", SPECIAL_AS_TEXT, 5, 5, 3},
        {"aaa", SPECIAL_PARSED, 3, 0, -1},     {"", SPECIAL_PARSED, 0, 0, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct special_match match;
        size_t n = strlen(cases[i].text), at = n, length = 0;
        if (special_next(&special, cases[i].rule, cases[i].text, n, 0, n, 0, &match)) {
            at = match.begin;
            length = match.end - match.begin;
        }
        ck_assert_msg(at == cases[i].at && length == cases[i].length, "%s: at %zu, %zu bytes",
                      cases[i].text, at, length);
        if (length) ck_assert_int_eq(match.id, cases[i].id);
    }
    special_free(&special);
    vocabulary_clear(&vocabulary);
}
END_TEST

/* ---- normalize.c ---------------------------------------------------------------------------- */

static void normalizes(const char *text, const char *wanted) {
    struct buf out = {0};
    normalize_form(STEP_NFC, text, strlen(text), &out);
    buf_add(&out, "", 1);
    ck_assert_msg(strcmp(out.data, wanted) == 0, "%s becomes %s", text, out.data);
    buf_free(&out);
}

START_TEST(normal_form_c_composes_and_orders) {
    normalizes("e\xCC\x81", "\xC3\xA9");                                /* e, acute */
    normalizes("\xC3\xA9", "\xC3\xA9");                                 /* composed already */
    normalizes("e\xCC\x81\xCC\xA3", "\xE1\xBA\xB9\xCC\x81");            /* the dot below is first */
    normalizes("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"); /* Hangul */
    normalizes("\xE2\x84\xAB", "\xC3\x85");                             /* the Angstrom sign */
    normalizes("a\xFF\x65\xCC\x81\x80", "a\xFF\xC3\xA9\x80");           /* invalid bytes stay */
    normalizes("\xCC\x81", "\xCC\x81");
    ck_assert(!normalize_needed("caf\xC3\xA9", 5) && normalize_needed("e\xCC\x81", 3));
}
END_TEST

/* Marks of one class keep their order, through all levels of the merge sort. */
START_TEST(marks_of_one_class_keep_their_order) {
    struct buf text = {0}, wanted = {0}, out = {0};
    buf_puts(&text, "q");
    buf_puts(&wanted, "q");
    for (int i = 0; i < 37; i++) buf_puts(&text, i % 3 ? "\xCC\x80" : "\xCC\xA3"); /* 230, 220 */
    for (int i = 0; i < 13; i++) buf_puts(&wanted, "\xCC\xA3");
    for (int i = 0; i < 24; i++) buf_puts(&wanted, "\xCC\x80");
    normalize_form(STEP_NFC, text.data, text.length, &out);
    ck_assert_uint_eq(out.length, wanted.length);
    ck_assert_mem_eq(out.data, wanted.data, out.length);
    buf_clear(&out);
    /* all of class 230: unchanged */
    normalize_form(STEP_NFC, "q\xCC\x82\xCC\x80\xCC\x82", 7, &out);
    ck_assert_mem_eq(out.data, "q\xCC\x82\xCC\x80\xCC\x82", 7);
    buf_free(&text);
    buf_free(&wanted);
    buf_free(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_vocabulary");
    TCase *tests = tcase_create("tables");
    tcase_add_test(tests, every_byte_has_one_character);
    tcase_add_test(tests, spellings_depend_on_kind_and_type);
    tcase_add_test(tests, byte_tokens_have_one_form);
    tcase_add_test(tests, a_pair_table_keeps_the_last_meaning);
    tcase_add_test(tests, a_string_table_compares_whole_strings);
    tcase_add_test(tests, finds_the_longest_special_token);
    tcase_add_test(tests, normal_form_c_composes_and_orders);
    tcase_add_test(tests, marks_of_one_class_keep_their_order);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
