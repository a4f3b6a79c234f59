/* The parts that the main functions of suites share. */
#ifndef PENSTOCK_TESTS_SUITE_MAIN_H
#define PENSTOCK_TESTS_SUITE_MAIN_H

#include <check.h>
#include <stdbool.h>

/* Runs the suite, prints the failures, and frees it. Returns the exit code of main. */
int suite_main(Suite *suite);

/* Does a sanitizer or the emulation's checker slow the kernels down several times? `program` is the
 * first argument of main. */
bool suite_is_watched(const char *program);

#endif
