/* Strings of the template interpreter: the owner of each byte, sharing, searching, characters. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite_main.h"
#include "support/template_fixture.h"

static struct render *r;

static void begin(void) {
    r = fixture_render_new(1 << 24);
}

static void end(void) {
    fixture_render_free(r);
}

static const struct string *mine(const char *text) {
    return string_copy(r, text, strlen(text), false).string;
}

static const struct string *users(const char *text) {
    return string_copy(r, text, strlen(text), true).string;
}

/* Checks the bytes and their owners: `owners` has 'u' for the user's. */
static void expect_string(const struct string *text, const char *wanted, const char *owners) {
    ck_assert_msg(string_is(text, wanted), "wanted <%s>, got <%.*s>", wanted, (int)text->length,
                  text->data);
    for (size_t i = 0; i < text->length; i++) {
        ck_assert_msg(string_is_user(text, i) == (owners[i] == 'u'), "<%s>: byte %zu", wanted, i);
    }
}

START_TEST(every_byte_knows_its_owner) {
    const struct string *sum = string_append(r, mine("ab"), users("cd")).string;
    expect_string(sum, "abcd", "..uu");
    expect_string(string_append(r, sum, mine("e")).string, "abcde", "..uu.");
    expect_string(string_part(r, sum, 1, 2).string, "bc", ".u");
    expect_string(string_append(r, users("x"), users("y")).string, "xy", "uu");
    expect_string(string_append(r, mine(""), users("y")).string, "y", "u");
    struct template_builder *b = builder_new(r);
    for (int i = 0; i < 100; i++) builder_add(r, b, "m", 1, i % 3 == 0); /* grows with its mask */
    const struct string *many = builder_value(r, b).string;
    for (size_t i = 0; i < 100; i++) ck_assert(string_is_user(many, i) == (i % 3 == 0));
}
END_TEST

/* A string grows in its builder only once: a second sum of it must not overwrite the first. */
START_TEST(two_sums_of_one_string_differ) {
    const struct string *base = string_append(r, mine("a"), mine("b")).string;
    const struct string *first = string_append(r, base, mine("1")).string;
    const struct string *second = string_append(r, base, users("2")).string;
    expect_string(base, "ab", "..");
    expect_string(first, "ab1", "...");
    expect_string(second, "ab2", "..u");
}
END_TEST

START_TEST(a_builder_has_a_limit) {
    struct template_builder *b = builder_new(r);
    b->limit = 10;
    builder_puts(r, b, "0123456789");
    EXPECT_FAILURE(r, "longer than 10 bytes", builder_puts(r, b, "x"));
    ck_assert_uint_eq(b->length, 10);
}
END_TEST

START_TEST(finds_parts) {
    const struct string *text = mine("abcabc");
    ck_assert_int_eq(string_find(r, text, mine("bc"), 0), 1);
    ck_assert_int_eq(string_find(r, text, mine("bc"), 2), 4);
    ck_assert_int_eq(string_find(r, text, mine("bc"), 5), -1);
    ck_assert_int_eq(string_find(r, text, mine(""), 6), 6);
    ck_assert_int_eq(string_find(r, text, mine(""), 7), -1);
    ck_assert_int_eq(string_find_last(r, text, mine("bc")), 4);
    ck_assert_int_eq(string_find_last(r, text, mine("")), 6);
    ck_assert_int_eq(string_find_last(r, text, mine("x")), -1);
    ck_assert_int_eq(string_find_last(r, mine("aaa"), mine("aa")), 1);
}
END_TEST

/* Each byte that does not continue a character starts one, also in invalid UTF-8. */
START_TEST(counts_characters) {
    const struct string *text = mine("a\xC3\xA9\xE2\x82\xAC\xFF\x80");
    ck_assert_uint_eq(string_points(r, text), 4);
    ck_assert_uint_eq(string_offset(text, 0, 2), 3);
    ck_assert_uint_eq(string_offset(text, 0, 9), text->length);
    ck_assert_uint_eq(string_next(text, 3), 6);
    ck_assert_int_eq(string_point(text, 1, 3), 0xE9);
    ck_assert_int_eq(string_point(text, 6, 8), -1);
    ck_assert_uint_eq(string_points(r, mine("\x80\x80")), 1);
    ck_assert_uint_eq(string_points(r, mine("")), 0);
}
END_TEST

START_TEST(strips_characters) {
    expect_string(string_strip(r, users(" \t\xC2\xA0 a b \n"), NULL, true, true).string, "a b",
                  "uuu");
    expect_string(string_strip(r, mine(" a "), NULL, true, false).string, "a ", "..");
    expect_string(string_strip(r, mine(" a "), NULL, false, true).string, " a", "..");
    expect_string(string_strip(r, mine("xyaxby"), mine("yx"), true, true).string, "axb", "...");
    expect_string(
        string_strip(r, mine("\xC3\xA9\x61\xC3\xA9"), mine("\xC3\xA9"), true, true).string, "a",
        ".");
    expect_string(string_strip(r, mine("\xC3\xA8\x61"), mine("\xC3\xA9"), true, true).string,
                  "\xC3\xA8\x61", "...");
    expect_string(string_strip(r, mine("  "), NULL, true, true).string, "", "");
}
END_TEST

START_TEST(maps_characters) {
    expect_string(string_map(r, users("a\xC3\xA9\xC3\x9Fz"), point_upper).string, "A\xC3\x89SSZ",
                  "uuuuuu");
    expect_string(string_map(r, mine("\xC4\xB0\xFF Q"), point_lower).string, "i\xFF q", "....");
    expect_string(string_map(r, mine("\xC3\x9F"), point_lower).string, "\xC3\x9F", "..");
    expect_string(string_map(r, mine(""), point_lower).string, "", "");
}
END_TEST

START_TEST(compares_bytes) {
    ck_assert_int_eq(string_compare(mine("a"), mine("b")), -1);
    ck_assert_int_eq(string_compare(mine("b"), mine("ab")), 1);
    ck_assert_int_eq(string_compare(mine("a"), mine("ab")), -1);
    ck_assert_int_eq(string_compare(mine("ab"), users("ab")), 0);
    ck_assert_int_eq(string_compare(mine("\xC3\xA9"), mine("z")), 1);
    ck_assert(string_equal(mine("ab"), users("ab")));
    ck_assert(!string_equal(mine("ab"), mine("a")));
}
END_TEST

START_TEST(knows_classes_of_characters) {
    static const int32_t spaces[] = {9, 13, 0x1C, 0x20, 0x85, 0xA0, 0x1680, 0x200A, 0x2029, 0x3000};
    static const int32_t others[] = {8, 14, 0x1B, 0x21, 0x84, 0x180E, 0x200B, 0x2030, -1};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        ck_assert_msg(point_is_space(spaces[i]), "U+%04X", (unsigned)spaces[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ck_assert_msg(!point_is_space(others[i]), "U+%04X", (unsigned)others[i]);
    }
    ck_assert(point_is_printable(' ') && point_is_printable('~') && point_is_printable(0xE9));
    ck_assert(!point_is_printable(0x7F) && !point_is_printable(0xA0));
    ck_assert(!point_is_printable(0x200B) && !point_is_printable(0xE000));
    ck_assert(point_is_cased('a') && point_is_cased(0x1C5) && !point_is_cased('1'));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_string");
    TCase *tests = tcase_create("strings");
    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, every_byte_knows_its_owner);
    tcase_add_test(tests, two_sums_of_one_string_differ);
    tcase_add_test(tests, a_builder_has_a_limit);
    tcase_add_test(tests, finds_parts);
    tcase_add_test(tests, counts_characters);
    tcase_add_test(tests, strips_characters);
    tcase_add_test(tests, maps_characters);
    tcase_add_test(tests, compares_bytes);
    tcase_add_test(tests, knows_classes_of_characters);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
