/* The time after which a refused client is told to come back. */
#include <check.h>

#include "config/pace.h"
#include "support/suite_main.h"

#define SECOND 1000000000ull

START_TEST(an_unmeasured_pace_says_one_second) {
    struct pace pace = {0};
    ck_assert_int_eq(pace_seconds(&pace, 100 * SECOND, 1), 1);
    pace_begin(&pace, 100 * SECOND);
    ck_assert_int_eq(pace_seconds(&pace, 100 * SECOND, 1), 1);
    ck_assert_int_eq(pace_seconds(&pace, 99 * SECOND, 1), 1);
}
END_TEST

START_TEST(an_even_pace_is_learnt_and_multiplied) {
    struct pace pace = {0};
    pace_begin(&pace, 10 * SECOND);
    for (int i = 1; i <= 40; i++) pace_note(&pace, (uint64_t)(10 + 3 * i) * SECOND);
    ck_assert_int_eq(pace_seconds(&pace, 130 * SECOND, 1), 3);
    ck_assert_int_eq(pace_seconds(&pace, 130 * SECOND, 4), 12);
    ck_assert_int_eq(pace_seconds(&pace, 130 * SECOND, 100), PACE_MAX_S);
}
END_TEST

START_TEST(a_changed_pace_is_learnt) {
    struct pace pace = {0};
    uint64_t now = SECOND;
    pace_begin(&pace, now);
    for (int i = 0; i < 40; i++) pace_note(&pace, now += 20 * SECOND);
    ck_assert_int_eq(pace_seconds(&pace, now, 1), 20);
    for (int i = 0; i < 200; i++) pace_note(&pace, now += SECOND / 10);
    ck_assert_int_eq(pace_seconds(&pace, now, 1), 1);
    ck_assert_int_eq(pace_seconds(&pace, now, 50), 6);
}
END_TEST

START_TEST(a_late_end_counts_for_the_time_that_has_passed) {
    struct pace pace = {0};
    pace_begin(&pace, SECOND);
    pace_note(&pace, 3 * SECOND);
    ck_assert_int_eq(pace_seconds(&pace, 3 * SECOND, 1), 2);
    ck_assert_int_eq(pace_seconds(&pace, 20 * SECOND, 1), 17);
    ck_assert_int_eq(pace_seconds(&pace, 20 * SECOND, 2), 19);
}
END_TEST

START_TEST(an_idle_time_does_not_count) {
    struct pace pace = {0};
    pace_begin(&pace, SECOND);
    pace_note(&pace, 3 * SECOND);
    pace_begin(&pace, 1000 * SECOND);
    ck_assert_int_eq(pace_seconds(&pace, 1000 * SECOND, 1), 2);
    pace_note(&pace, 1002 * SECOND);
    pace_begin(&pace, 900 * SECOND); /* older than the last end */
    ck_assert_int_eq(pace_seconds(&pace, 1002 * SECOND, 1), 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_pace");
    TCase *core = tcase_create("core");
    tcase_add_test(core, an_unmeasured_pace_says_one_second);
    tcase_add_test(core, an_even_pace_is_learnt_and_multiplied);
    tcase_add_test(core, a_changed_pace_is_learnt);
    tcase_add_test(core, a_late_end_counts_for_the_time_that_has_passed);
    tcase_add_test(core, an_idle_time_does_not_count);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
