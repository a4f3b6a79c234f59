/* UTF-8: complete characters, prefixes of characters, and the places to cut a text. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "support/suite_main.h"

/* Is a character read back, and is each of its prefixes recognised? */
static bool comes_back(uint32_t point) {
    char bytes[4];
    size_t n = utf8_write(point, bytes);
    bool right = utf8_character(bytes, n) == n && utf8_code_point(bytes, n) == point &&
                 utf8_unfinished(bytes, n) == 0;
    for (size_t part = 1; part < n; part++) {
        right &= utf8_character(bytes, part) == 0 && utf8_partial(bytes, part) == part &&
                 utf8_unfinished(bytes, part) == part;
    }
    return right;
}

START_TEST(every_code_point_is_read_as_written) {
    for (uint32_t point = 0; point <= 0x10FFFF; point++) {
        if (point == 0xD800) point = 0xE000;
        if (!comes_back(point)) ck_abort_msg("U+%04X changes in a round trip", (unsigned)point);
    }
}
END_TEST

/* One U+FFFD replaces the longest prefix of a character in invalid bytes. */
static void check_broken(const char *bytes, size_t subpart) {
    ck_assert_uint_eq(utf8_character(bytes, strlen(bytes)), 0);
    ck_assert_uint_eq(utf8_maximal_subpart(bytes, strlen(bytes)), subpart);
}

START_TEST(invalid_characters_have_length_0) {
    check_broken("\x80", 1);
    check_broken("\xC1\x81", 1);         /* overlong */
    check_broken("\xE0\x80\x80", 1);     /* overlong */
    check_broken("\xED\xA0\x80", 1);     /* a surrogate */
    check_broken("\xF4\x90\x80\x80", 1); /* above U+10FFFF */
    check_broken("\xF5\x80\x80\x80", 1);
    check_broken("\xE2\x82"
                 "a",
                 2);
    check_broken("\xF0\x9F\x98"
                 "a",
                 3);
    ck_assert_uint_eq(utf8_valid_prefix("a\xC3\xA9\xFFz", 5), 3);
    ck_assert_uint_eq(utf8_valid_prefix("a\xC3\xA9", 2), 1);
    ck_assert_uint_eq(utf8_character("", 0), 0);
}
END_TEST

START_TEST(a_text_is_cut_between_characters) {
    const char *text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
    static const int cuts[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
    for (int limit = 0; limit < 12; limit++)
        ck_assert_int_eq(utf8_cut(text, strlen(text), limit), cuts[limit]);
    ck_assert_int_eq(utf8_cut("a\xC3\xA9", 2, 2), 2); /* the byte after the text is not read */
    ck_assert_int_eq(utf8_count(text, strlen(text)), 4);
    ck_assert_int_eq(utf8_count(NULL, 0), 0);
    ck_assert_uint_eq(utf8_unfinished("ab\xE2\x82", 4), 2);
    ck_assert_uint_eq(utf8_unfinished("ab\x82\x82", 4), 0);
    ck_assert_uint_eq(utf8_unfinished(NULL, 0), 0);
}
END_TEST

/* C0, DEL, C1 and invalid bytes are not printable. All other characters are. */
START_TEST(controls_and_invalid_bytes_are_not_printable) {
    for (uint32_t point = 0; point < 0x800; point++) {
        char bytes[4];
        size_t n = utf8_write(point, bytes);
        bool is_control = point < 0x20 || (point >= 0x7F && point < 0xA0);
        ck_assert_msg(printable_prefix(bytes, n) == (is_control ? 0 : n), "U+%04X", point);
    }
    ck_assert_uint_eq(printable_prefix("a\n", 2), 1);
    ck_assert_uint_eq(printable_prefix("\xC3\xA9z", 3), 2);
    ck_assert_uint_eq(printable_prefix("\xC3\xA9", 1), 0);
    ck_assert(is_printable("", 0) && is_printable("a\xC3\xA9 \xE2\x82\xAC", 7));
    ck_assert(!is_printable("ab\x07", 3) && is_printable("ab\x07", 2));
    ck_assert(!is_printable("\x80", 1) && !is_printable("ab\xE2\x82", 4));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_utf8");
    TCase *core = tcase_create("core");
    tcase_add_test(core, every_code_point_is_read_as_written);
    tcase_add_test(core, invalid_characters_have_length_0);
    tcase_add_test(core, a_text_is_cut_between_characters);
    tcase_add_test(core, controls_and_invalid_bytes_are_not_printable);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
