/* gpu_serve: times a whole server except for HTTP on a device, with models of random weights.
 *
 * Each part of the program is a list of figures, each with the time that it needs. A figure is
 * written immediately as a line of JSON, so that it survives a later crash. A figure without enough
 * time is written as left out. */
#ifndef PENSTOCK_BENCH_GPU_SERVE_H
#define PENSTOCK_BENCH_GPU_SERVE_H

#include "bench/gpu/serve/load.h"

struct run {
    const char *part;
    FILE *out;
    uint64_t end_ns;
    bool tiny; /* small enough for the emulation; the figures are meaningless */
    bool failed;
};

/* Returns the remaining seconds. */
double time_left(const struct run *run);

/* Is there time for a figure that takes about `seconds`? If not, writes it as left out. */
bool worth_starting(struct run *run, const char *id, double seconds);

/* A figure of a model: a value with its unit, the bytes and operations that a step (or, if it says
 * so, all steps) needs at least, and the time; zeros if they do not apply. */
struct figure {
    const char *id, *model, *what, *unit;
    double value, us, bytes, flops;
    const char *note; /* or NULL */
};
void write_figure(struct run *run, const struct figure *figure);

/* Writes that a figure failed, and marks the program as failed. */
void write_failure(struct run *run, const char *id, const char *why);

/* Returns `real`, or with `tiny` a shape for the emulation. */
const struct shape *shape_of(const struct run *run, const struct shape *real);

extern const struct shape llama_8b, smollm2_135m, gpt2_sized;

/* Parts of the program. */
void run_tokens(struct run *run); /* same tokens on CPU and device, alone and in batches */
void run_llama(struct run *run);  /* G1, G2, G4 to G7, G10 */
void run_fp8(struct run *run);    /* G8 */
void run_small(struct run *run);  /* G9 */

/* Computes the bytes and operations of a decode step: S sequences of `context` positions. */
void count_step(const struct engine *engine, int S, double context, double *bytes, double *flops);

#endif
