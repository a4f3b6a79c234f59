/* gpu_serve: a whole server but for HTTP, timed on a device with models of random weights.
 *
 * Each part of the program is a list of figures, every one with a time that it is worth starting
 * in. A figure is written as a line of JSON at once, so that what was measured outlives a crash;
 * one that there is no time for is written too, as left out. */
#ifndef PENSTOCK_BENCH_GPU_SERVE_H
#define PENSTOCK_BENCH_GPU_SERVE_H

#include "bench/gpu/serve/load.h"

struct run {
    const char *part;
    FILE *out;
    uint64_t end_ns;
    bool tiny; /* shapes and numbers that the emulation can run; no figure means anything */
    bool failed;
};

/* Seconds that are left. */
double time_left(const struct run *run);

/* Is there time for a figure that takes about so many seconds? Otherwise it is written as left
 * out. */
bool worth_starting(struct run *run, const char *id, double seconds);

/* A figure of a model: a value with its unit, what a step (or all steps, if it says so) must
 * move and compute at least, and how long that took; zeros if they do not apply. */
struct figure {
    const char *id, *model, *what, *unit;
    double value, us, bytes, flops;
    const char *note; /* or NULL */
};
void write_figure(struct run *run, const struct figure *figure);

/* Writes that a figure could not be had, and remembers that the program has failed. */
void write_failure(struct run *run, const char *id, const char *why);

/* `real`, or a shape that the emulation can run. */
const struct shape *shape_of(const struct run *run, const struct shape *real);

extern const struct shape llama_8b, smollm2_135m, gpt2_sized;

/* The parts. */
void run_tokens(struct run *run); /* the same tokens on CPU and device, and in any company */
void run_llama(struct run *run);  /* G1, G2, G4 to G7, G10 */
void run_fp8(struct run *run);    /* G8 */
void run_small(struct run *run);  /* G9 */

/* What a decode step of S sequences with `context` positions each must move and compute. */
void count_step(const struct engine *engine, int S, double context, double *bytes, double *flops);

#endif
