/* Gives a program on emulated devices the stand-in for NCCL. With NCCL_STAND_IN_BREAK=1 in the
 * environment, gatherings of rank 1 fail after a SIGRTMIN. */
#include "tests/cuda/nccl_stand_in.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* It only writes variables that a gathering reads later. */
static void on_signal(int) {
    nccl_stand_in(NCCL_FAILS_AT_1);
}

static bool give() {
    const char *breaks = getenv("NCCL_STAND_IN_BREAK");
    nccl_stand_in(NCCL_WORKS);
    if (!breaks || !*breaks) return true;
    if (strcmp(breaks, "1") != 0) {
        fprintf(stderr, "NCCL_STAND_IN_BREAK=%s must be 1: the rank whose gatherings fail\n",
                breaks);
        exit(2);
    }
    signal(SIGRTMIN, on_signal);
    return true;
}

[[maybe_unused]] static const bool is_given = give();
