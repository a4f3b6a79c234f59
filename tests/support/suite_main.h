/* The parts that the main functions of suites share. */
#ifndef PENSTOCK_TESTS_SUITE_MAIN_H
#define PENSTOCK_TESTS_SUITE_MAIN_H

#include <check.h>
#include <stdbool.h>

/* Runs the suite, prints the failures, and frees it. Returns the exit code of main. */
int suite_main(Suite *suite);

/* Adds a test for each of models[first] to models[last - 1]. With PENSTOCK_ONLY=TEXT it runs only
 * models whose names contain the text: one family takes seconds, all families take minutes. */
void suite_add_models(TCase *tcase, const TTest *test, const char *const *models, int first,
                      int last);

/* Does a sanitizer or the emulation's checker slow the kernels down several times? `program` is the
 * first argument of main. */
bool suite_is_watched(const char *program);

#endif
