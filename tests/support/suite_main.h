/* What the mains of suites share. */
#ifndef PENSTOCK_TESTS_SUITE_MAIN_H
#define PENSTOCK_TESTS_SUITE_MAIN_H

#include <check.h>
#include <stdbool.h>

/* Runs the suite, prints what failed, frees it. Returns main's exit code. */
int suite_main(Suite *suite);

/* Does a sanitizer or the emulation's checker watch the kernels here, so that they take several
 * times as long? `program` is main's first argument. */
bool suite_is_watched(const char *program);

#endif
