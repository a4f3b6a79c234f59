/* Loops that keep enough independent sums in registers that only the instruction's own rate bounds
 * them: what the multiply-adds of a path can come to at most. What they sum is of no interest. */
#ifndef PENSTOCK_KERNELS_PEAK_H
#define PENSTOCK_KERNELS_PEAK_H

#include "kernels/cpu/cpu.h"

enum {
    PEAK_ROUNDS = 20000,
    PEAK_SUMS = 12, /* latency of an fma times two a cycle, with some to spare */
    PEAK_LOOPS = PEAK_ROUNDS * PEAK_SUMS,
};

/* Results are written here, or the compiler would drop the loops. */
static volatile int peak_sink;

void peak_float_avx2(void *arg, int part);
void peak_float_avx512vnni(void *arg, int part);

#endif
