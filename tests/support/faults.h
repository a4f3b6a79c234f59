/* tests/support/faults: allocations that fail.
 *
 * Counts the allocations of all threads that pass config/memory.c, except for those of threads that
 * are spared. One count at a time. */
#ifndef PENSTOCK_TESTS_FAULTS_H
#define PENSTOCK_TESTS_FAULTS_H

#include "config/config.h"

enum fault_kind {
    FAULT_ONCE,   /* one allocation fails */
    FAULT_ALWAYS, /* that one and all that follow */
};

/* From here on the allocation after n others fails. */
void faults_begin(int n, enum fault_kind kind);

/* Ends it. Returns how many allocations have failed. */
int faults_end(void);

/* Spares the calling thread, or not. For the part of a test that is not under test. */
void faults_spare(bool spared);

#endif
