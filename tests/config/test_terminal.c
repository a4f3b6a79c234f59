/* Output to a descriptor: escape codes are written only to terminals that understand them. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "support/suite_main.h"

static int terminal;

static void open_terminal(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert_int_ge(master, 0);
    ck_assert_int_eq(grantpt(master), 0);
    ck_assert_int_eq(unlockpt(master), 0);
    terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(terminal, 0);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
}

START_TEST(terminals_have_codes_and_colours) {
    open_terminal();
    ck_assert(terminal_has_codes(terminal));
    ck_assert_str_eq(terminal_style(terminal, TERMINAL_PLAIN), "\033[0m");
    for (enum terminal_style style = TERMINAL_PLAIN; style <= TERMINAL_PROMPT; style++) {
        const char *code = terminal_style(terminal, style);
        ck_assert_int_eq(strncmp(code, "\033[", 2), 0);
        ck_assert_int_eq(code[strlen(code) - 1], 'm');
    }
}
END_TEST

START_TEST(no_color_takes_colours_away_and_nothing_else) {
    open_terminal();
    setenv("NO_COLOR", "1", 1);
    ck_assert_str_eq(terminal_style(terminal, TERMINAL_ERROR), "");
    ck_assert(terminal_has_codes(terminal));
    setenv("NO_COLOR", "", 1);
    ck_assert_str_ne(terminal_style(terminal, TERMINAL_ERROR), "");
}
END_TEST

START_TEST(dumb_and_unnamed_terminals_have_none) {
    static const char *const names[] = {"dumb", ""};
    open_terminal();
    for (int i = 0; i < 2; i++) {
        setenv("TERM", names[i], 1);
        ck_assert(!terminal_has_codes(terminal));
        ck_assert_str_eq(terminal_style(terminal, TERMINAL_NOTE), "");
    }
    unsetenv("TERM");
    ck_assert(!terminal_has_codes(terminal));
}
END_TEST

START_TEST(files_have_none) {
    open_terminal();
    int file = open("/dev/null", O_WRONLY);
    ck_assert(!terminal_has_codes(file));
    ck_assert_str_eq(terminal_style(file, TERMINAL_ERROR), "");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_terminal");
    TCase *cases = tcase_create("core");
    suite_add_tcase(suite, cases);
    tcase_add_test(cases, terminals_have_codes_and_colours);
    tcase_add_test(cases, no_color_takes_colours_away_and_nothing_else);
    tcase_add_test(cases, dumb_and_unnamed_terminals_have_none);
    tcase_add_test(cases, files_have_none);
    return suite_main(suite);
}
