#include "check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_TESTS = 256, MAX_FIXTURES = 4 };

/* A program has one suite. */
struct test {
    const TTest *test;
    int from, to;
};
struct Suite {
    const char *name;
    struct test tests[MAX_TESTS];
    int n, run, failed;
    void (*setup[MAX_FIXTURES])(void), (*teardown[MAX_FIXTURES])(void);
    int n_fixtures;
    void (*before)(void), (*after)(void); /* each test, or NULL */
    jmp_buf leave;
};
static struct Suite the_suite;
struct TCase {
    char none;
};
static struct TCase the_cases;
struct SRunner {
    Suite *suite;
};
static struct SRunner the_runner;

Suite *suite_create(const char *name) {
    the_suite.name = name;
    return &the_suite;
}

TCase *tcase_create(const char *name) {
    (void)name;
    return &the_cases;
}

void suite_add_tcase(Suite *suite, TCase *cases) {
    (void)suite, (void)cases;
}

void tcase_set_timeout(TCase *cases, double seconds) {
    (void)cases, (void)seconds;
}

void tcase_add_unchecked_fixture(TCase *cases, void (*setup)(void), void (*teardown)(void)) {
    (void)cases;
    if (the_suite.n_fixtures == MAX_FIXTURES) abort();
    the_suite.setup[the_suite.n_fixtures] = setup;
    the_suite.teardown[the_suite.n_fixtures++] = teardown;
}

void tcase_add_checked_fixture(TCase *cases, void (*setup)(void), void (*teardown)(void)) {
    (void)cases;
    if (the_suite.before || the_suite.after) abort();
    the_suite.before = setup;
    the_suite.after = teardown;
}

void tcase_add_loop_test(TCase *cases, const TTest *test, int from, int to) {
    (void)cases;
    if (the_suite.n == MAX_TESTS) abort();
    the_suite.tests[the_suite.n++] = (struct test){test, from, to};
}

void tcase_add_test(TCase *cases, const TTest *test) {
    tcase_add_loop_test(cases, test, 0, 1);
}

SRunner *srunner_create(Suite *suite) {
    the_runner.suite = suite;
    return &the_runner;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run_test(Suite *suite, const TTest *test, int i) {
    const double start = seconds();
    printf("%s:%d ", test->name, i);
    fflush(stdout);
    suite->run++;
    if (suite->before) suite->before();
    if (setjmp(suite->leave)) {
        suite->failed++;
    } else {
        test->run(i);
        printf("passed in %.2f s\n", seconds() - start);
        fflush(stdout);
    }
    if (suite->after) suite->after();
}

/* Calls fixtures. Returns false if one of them fails. */
static bool call_all(Suite *suite, void (*const *fixtures)(void)) {
    if (setjmp(suite->leave)) {
        suite->failed++;
        return false;
    }
    for (int i = 0; i < suite->n_fixtures; i++)
        if (fixtures[i]) fixtures[i]();
    return true;
}

static void run_tests(Suite *suite) {
    for (int t = 0; t < suite->n; t++)
        for (int i = suite->tests[t].from; i < suite->tests[t].to; i++)
            run_test(suite, suite->tests[t].test, i);
}

void srunner_run_all(SRunner *runner, enum print_output output) {
    (void)output;
    Suite *suite = runner->suite;
    if (call_all(suite, suite->setup)) {
        run_tests(suite);
        call_all(suite, suite->teardown);
    }
    printf("%s: Checks: %d, Failures: %d\n", suite->name, suite->run, suite->failed);
}

int srunner_ntests_failed(SRunner *runner) {
    return runner->suite->failed;
}

void srunner_free(SRunner *runner) {
    (void)runner;
}

void check_fail(const char *file, int line, const char *format, ...) {
    printf("FAILED\n%s:%d:F: ", file, line);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
    longjmp(the_suite.leave, 1);
}

void check_numbers(const char *file, int line, const char *text, bool right, intmax_t a,
                   intmax_t b) {
    if (!right) check_fail(file, line, "%s: %jd and %jd", text, a, b);
}

void check_strings(const char *file, int line, const char *text, bool right, const char *a,
                   const char *b) {
    if (!right) check_fail(file, line, "%s: \"%s\" and \"%s\"", text, a, b);
}
