/* Fingerprints as JSON: written, read back, and compared part by part. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "server/fingerprint/fingerprint.h"
#include "support/suite_main.h"

static struct fingerprint a, b;
static struct buf text;
static struct err err;

static void setup(void) {
    for (int i = 0; i < N_FINGERPRINT_PARTS; i++) snprintf(a.part[i], FINGERPRINT_BYTES, "p%d", i);
    buf_clear(&text);
    fingerprint_write(&text, &a);
}

static void teardown(void) {
    buf_free(&text);
}

START_TEST(a_fingerprint_is_read_as_it_was_written) {
    ck_assert_str_eq(text.data,
                     "{\"build\":\"p0\",\"model\":\"p1\",\"arithmetic\":\"p2\",\"length\":"
                     "\"p3\",\"template\":\"p4\",\"defaults\":\"p5\",\"names\":\"p6\"}");
    ck_assert_int_eq(fingerprint_read(&b, text.data, text.length, &err), STATUS_OK);
    ck_assert_ptr_null(fingerprint_difference(&a, &b, NULL));
}
END_TEST

START_TEST(each_part_that_differs_is_named) {
    for (int i = 0; i < N_FINGERPRINT_PARTS; i++) {
        enum fingerprint_part part = N_FINGERPRINT_PARTS;
        b = a;
        b.part[i][1]++;
        ck_assert_ptr_nonnull(fingerprint_difference(&a, &b, &part));
        ck_assert_int_eq(part, i);
    }
    b = a;
    b.part[FINGERPRINT_BUILD][0] = 'x';
    ck_assert_str_eq(fingerprint_difference(&a, &b, NULL), "the build");
}
END_TEST

START_TEST(a_text_that_is_no_fingerprint_is_refused) {
    static const char *const wrong[] = {"", "{}", "[1]", "{\"build\":1}", "{\"build\":\"x\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct err){0};
        ck_assert_int_eq(fingerprint_read(&b, wrong[i], strlen(wrong[i]), &err),
                         STATUS_INVALID_REQUEST);
        ck_assert(err.message[0]);
    }
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("fingerprint");
    TCase *tests = tcase_create("fingerprint");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_fingerprint_is_read_as_it_was_written);
    tcase_add_test(tests, each_part_that_differs_is_named);
    tcase_add_test(tests, a_text_that_is_no_fingerprint_is_refused);
    suite_add_tcase(s, tests);
    return s;
}

int main(void) {
    return suite_main(suite());
}
