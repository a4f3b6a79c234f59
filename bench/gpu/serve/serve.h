/* gpu_serve: times a whole server except for HTTP on a device, with models of random weights.
 *
 * Each part of the program is a list of steps, each with the time that it needs. Its figures are
 * written immediately as lines of JSON, so that they survive a later crash. A step without enough
 * time is written as left out. A line is written before a step begins, so bench/gpu/points.py can
 * name a step that hangs or crashes, and start the program again after it. */
#ifndef PENSTOCK_BENCH_GPU_SERVE_H
#define PENSTOCK_BENCH_GPU_SERVE_H

#include "bench/gpu/serve/load.h"

struct run {
    const char *part;
    FILE *out;
    uint64_t end_ns, step_end_ns; /* of the program; of the current step */
    int from, next;      /* steps before number `from` are skipped; the next one's number */
    bool wgmma;          /* a pass with --wgmma */
    bool tiny;           /* small enough for the emulation; the figures are meaningless */
    bool failed, absent; /* absent: the device lacks its instructions */
};

/* Returns the remaining seconds of the current step. */
double time_left(const struct run *run);

/* Begins a step that takes about `seconds`, and at most `most`. Returns false if it is skipped, or
 * if the time does not suffice; then it is written as left out. */
bool worth_starting(struct run *run, const char *id, double seconds, double most);

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

/* Opens an engine for a part. Returns NULL on failure, after writing it; run->absent if the device
 * lacks the instructions for --wgmma. */
struct engine *open_engine(struct run *run, const char *id, const struct setup *setup);

/* Parts of the program. */
void run_tokens(struct run *run); /* same tokens on CPU and device, alone and in batches */
void run_llama(struct run *run);  /* G1, G2, G4 to G7, G10; with --wgmma G2, G4 to G6 */
void run_fp8(struct run *run);    /* G8 */
void run_small(struct run *run);  /* G9 */

/* Computes the bytes and operations of a decode step: S sequences of `context` positions. */
void count_step(const struct engine *engine, int S, double context, double *bytes, double *flops);

#endif
