/* tests/support/faults: allocations that fail.
 *
 * Counts the allocations through config/memory.c of all threads that are not spared. Only one
 * count at a time. */
#ifndef PENSTOCK_TESTS_FAULTS_H
#define PENSTOCK_TESTS_FAULTS_H

#include "config/config.h"

enum fault_kind {
    FAULT_ONCE,   /* one allocation fails */
    FAULT_ALWAYS, /* that one and all later ones */
};

/* From now on, the allocation after n others fails. */
void faults_begin(int n, enum fault_kind kind);

/* Ends the count. Returns the number of failed allocations. */
int faults_end(void);

/* Sets whether the calling thread is spared, for the parts of a test that are not under test. */
void faults_spare(bool spared);

#endif
