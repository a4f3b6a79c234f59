/* Inputs of an encoder that run through a scheduler together, for tests that compare the bits of
 * their vectors. One run is open at a time. */
#ifndef PENSTOCK_TESTS_ENCODER_RUN_H
#define PENSTOCK_TESTS_ENCODER_RUN_H

#include "engine/engine.h"
#include "scheduler/scheduler.h"

enum { ENCODER_INPUTS = 64, ENCODER_CONTEXT = 320, ENCODER_MAX_K = 128, ENCODER_V = 299 };

struct encoder_run {
    struct engine *engine;
    struct scheduler *scheduler;
    int n_ended; /* of the inputs that run */
    int32_t ids[ENCODER_INPUTS][ENCODER_CONTEXT];
    struct generation inputs[ENCODER_INPUTS];
    double sums[ENCODER_INPUTS][ENCODER_MAX_K]; /* the results of the inputs */
};

/* Draws inputs of up to `longest` tokens, read at the first, the last or all tokens. Some are of
 * two texts. */
void encoder_run_draw(struct encoder_run *run, int longest);

/* Opens an engine for at most ENCODER_CONTEXT tokens, with blocks of 16, and a scheduler. Fails the
 * test if that fails. */
void encoder_run_open(struct encoder_run *run, const struct engine_config *config);
void encoder_run_close(struct encoder_run *run);

/* Runs the inputs order[0..n) together. Their results are in `sums`. */
void encoder_run_together(struct encoder_run *run, const int *order, int n);

#endif
