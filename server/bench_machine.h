/* server/bench_machine: what the machine could do at most, measured in the run that wants to know
 * its share of it. Internal to server/. All compute threads of the engine work at once; each figure
 * is the best of a few passes. */
#ifndef PENSTOCK_SERVER_BENCH_MACHINE_H
#define PENSTOCK_SERVER_BENCH_MACHINE_H

#include "engine/engine.h"

/* Bytes a second read from memory: more of it than the caches of most machines hold. */
double machine_read_rate(struct engine *engine);

/* A rate of multiply-adds a second out of registers, and the instruction that reached it. */
struct machine_rate {
    double per_second; /* 0: this machine has none of the instructions that are known here */
    const char *instruction;
};

/* Bytes times bytes into 32-bit sums, by the best instruction that this CPU has. */
struct machine_rate machine_int8_rate(struct engine *engine);

/* float32 by fma. */
struct machine_rate machine_float_rate(struct engine *engine);

#endif
