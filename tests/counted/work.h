/* work: the cost of code, counted instead of timed. A count is the same on each machine.
 *
 * The build makes instrumented copies of libraries for a suite (counted_suite in CMakeLists.txt).
 * Each basic block that they execute is a unit of work, and so are WORK_BYTES bytes that they pass
 * to the string and memory functions of the C library. In these suites the processor time of a
 * thread is its work, at one nanosecond a unit, so time limits are counted too. */
#ifndef TESTS_WORK_H
#define TESTS_WORK_H

#include <stdint.h>

enum { WORK_BYTES = 8 };

/* Returns the work of all threads so far. Counts are exact if one thread runs counted code at a
 * time; otherwise some units are lost. */
uint64_t work_done(void);

#endif
