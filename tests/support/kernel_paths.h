/* Every path of the CPU backend that this machine can run, also by a trap. */
#ifndef PENSTOCK_TESTS_KERNEL_PATHS_H
#define PENSTOCK_TESTS_KERNEL_PATHS_H

#include "kernels/cpu/cpu.h"

enum { N_PATHS = 5 };

/* A path, and the base path that the machine must have. */
struct tested_path {
    const struct path *path;
    const char *base;
};

extern const struct tested_path all_paths[N_PATHS];

/* Has the machine the instructions of this path? */
bool machine_has(const char *name);

/* Returns a backend for max_rows that runs the i-th path. If the machine cannot run the base,
 * prints a line and returns NULL. */
struct backend *open_path(int i, int threads, int max_rows, int max_k);

#endif
