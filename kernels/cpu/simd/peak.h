/* Loops with enough independent sums in registers to be limited only by the instruction's rate.
 * They measure a path's peak rate of multiply-adds. Their results are ignored. */
#ifndef PENSTOCK_KERNELS_PEAK_H
#define PENSTOCK_KERNELS_PEAK_H

#include "kernels/cpu/cpu.h"

enum {
    PEAK_ROUNDS = 20000,
    PEAK_SUMS = 12, /* fma latency times two per cycle, with a margin */
    PEAK_LOOPS = PEAK_ROUNDS * PEAK_SUMS,
};

/* Receives the results; without it the compiler would drop the loops. */
static volatile int peak_sink;

void peak_float_avx2(void *arg, int part);
void peak_float_avx512vnni(void *arg, int part);

#endif
