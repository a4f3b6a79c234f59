/* The end of every suite's main. */
#ifndef PENSTOCK_TESTS_SUITE_MAIN_H
#define PENSTOCK_TESTS_SUITE_MAIN_H

#include <check.h>

/* Runs the suite, prints what failed, frees it. Returns main's exit code. */
int suite_main(Suite *suite);

#endif
