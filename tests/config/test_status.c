/* Errors: the contents of a message, and how it is cut. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "support/suite_main.h"

START_TEST(text_of_a_file_does_not_control_the_terminal) {
    struct err err;
    err_set(&err, STATUS_BAD_FILE, "k\x1b[2J", "token '%s'",
            "\x1b]0;x\x07\r\n\x7f\xC2\x9B"
            "1m\xC3\xA9");
    ck_assert_str_eq(err.message, "token ' ]0;x      1m\xC3\xA9'");
    ck_assert_str_eq(err.param, "k [2J");
}
END_TEST

/* The message of an error that quotes one character of this code point. */
static const char *quoted(uint32_t code_point, struct err *err) {
    char text[5] = "";
    utf8_write(code_point, text);
    err_set(err, STATUS_USAGE, NULL, "%s", text);
    return err->message;
}

START_TEST(exactly_the_control_characters_become_spaces) {
    struct err err;
    for (uint32_t c = 1; c < 0x100; c++) {
        char same[5] = "";
        size_t n = utf8_write(c, same);
        bool is_control = c < 0x20 || (c >= 0x7F && c <= 0x9F);
        const char *spaces = n == 1 ? " " : "  ";
        ck_assert_msg(strcmp(quoted(c, &err), is_control ? spaces : same) == 0, "U+%04X", c);
    }
    ck_assert_str_eq(quoted(0x101, &err), "\xC4\x81");
}
END_TEST

START_TEST(long_texts_are_cut_between_characters) {
    struct err err;
    char text[1300] = "";
    for (int i = 0; i < 400; i++) strcat(text, "\xE2\x82\xAC");
    err_set(&err, STATUS_USAGE, text, "%s", text);
    ck_assert_uint_eq(strlen(err.param), 63);
    ck_assert_uint_eq(strlen(err.message), 1023);
    err_set(&err, STATUS_USAGE, NULL, "a%s", text);
    ck_assert_uint_eq(strlen(err.message), 1021);
    ck_assert_uint_eq(strlen(err.param), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_status");
    TCase *core = tcase_create("core");
    tcase_add_test(core, text_of_a_file_does_not_control_the_terminal);
    tcase_add_test(core, exactly_the_control_characters_become_spaces);
    tcase_add_test(core, long_texts_are_cut_between_characters);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
