/* Progress: no output within the first second, then one line that is rewritten, or a log line every
 * five seconds. The tests shift the start instead of the clock. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/commands/commands.h"
#include "support/suite_main.h"

#define SECOND_NS 1000000000ull

/* Returns the text that the function writes to standard error. It is valid until the next call. */
static const char *written(struct progress *progress, double part) {
    static char text[4096];
    int ends[2], saved = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    if (part >= 0)
        progress_step(progress, "weights", part);
    else
        progress_end(progress);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    close(ends[0]);
    return text;
}

START_TEST(the_first_second_is_silent) {
    struct progress progress;
    for (int rewrites = 0; rewrites < 2; rewrites++) {
        progress_begin(&progress, "loading", rewrites);
        ck_assert_str_eq(written(&progress, 0.9), "");
        ck_assert_str_eq(written(&progress, -1), "");
    }
}
END_TEST

START_TEST(a_terminal_sees_one_line_that_goes_away) {
    struct progress progress;
    progress_begin(&progress, "loading", true);
    progress.began_ns -= 2 * SECOND_NS;
    ck_assert_str_eq(written(&progress, 0.5),
                     "\rloading weights [===============               ]  50 %\033[K");
    ck_assert_str_eq(written(&progress, 1.0),
                     "\rloading weights [==============================] 100 %\033[K");
    ck_assert_str_eq(written(&progress, -1), "\r\033[K");
}
END_TEST

START_TEST(a_log_gets_a_line_every_five_seconds) {
    struct progress progress;
    log_setup(LOG_INFO, LOG_TEXT);
    progress_begin(&progress, "loading", false);
    progress.began_ns -= 2 * SECOND_NS;
    ck_assert_ptr_nonnull(strstr(written(&progress, 0.25), " loading weights: 25 % after 2 s\n"));
    ck_assert_str_eq(written(&progress, 0.5), "");
    progress.shown_ns -= 6 * SECOND_NS;
    ck_assert_ptr_nonnull(strstr(written(&progress, 0.75), " loading weights: 75 % after 2 s\n"));
    ck_assert_str_eq(written(&progress, -1), "");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_progress");
    TCase *cases = tcase_create("core");
    suite_add_tcase(suite, cases);
    tcase_add_test(cases, the_first_second_is_silent);
    tcase_add_test(cases, a_terminal_sees_one_line_that_goes_away);
    tcase_add_test(cases, a_log_gets_a_line_every_five_seconds);
    return suite_main(suite);
}
