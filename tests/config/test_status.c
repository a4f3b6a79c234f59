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
    tcase_add_test(core, long_texts_are_cut_between_characters);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
