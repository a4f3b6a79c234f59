/* server/bench_device: `penstock bench` where a device computes. Internal to server/. */
#ifndef PENSTOCK_SERVER_BENCH_DEVICE_H
#define PENSTOCK_SERVER_BENCH_DEVICE_H

#include "engine/engine.h"

/* Tokens of context that a decode test begins with. */
#define BENCH_CONTEXT 16

/* Prints speeds of prompts and batches, the time between decode steps, and for each class of
 * kernels its time, bandwidth and arithmetic with their shares of what was measured as the device's
 * limits. */
void bench_device(struct engine *engine, const struct options *options, const int *prompts,
                  int n_prompts, const int *batches, int n_batches);

/* The middle one of some values, which it sorts. */
double bench_median(double *values, int n);

#endif
