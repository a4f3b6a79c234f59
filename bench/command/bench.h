/* bench/command: declarations that the files of `penstock bench` share.
 *
 *   bench.c     the command: reads the lists, opens the engine, runs the parts
 *   host.c      tables of a CPU            device.c   tables of a GPU
 *   driver.c    steps without a scheduler  machine.c  upper limits of the CPU
 *   http.c      the same batches through the whole server
 *   scaling.c   the report of --scaling
 */
#ifndef PENSTOCK_BENCH_COMMAND_H
#define PENSTOCK_BENCH_COMMAND_H

#include "engine/engine.h"
#include "server/options/options.h"

/* Context of a decode test at its start, in tokens. */
#define BENCH_CONTEXT 16

/* The values to measure. */
#define BENCH_MAX_LIST 32
struct bench_list {
    int value[BENCH_MAX_LIST];
    int n, max; /* number of values, and the largest */
};
struct bench {
    struct engine *engine;
    const struct options *options;
    struct bench_list prompts, batches; /* lengths in tokens, sizes in sequences */
};

struct driver;

/* Returns the median of n values. Sorts them. */
double bench_median(double *values, int n);

/* ---- host.c, device.c: tables --------------------------------------------------------------- */

/* Print the speed of each prompt and batch, its share of the machine's measured limits, and the
 * time of each part of a step. */
void bench_host(const struct bench *bench);
void bench_device(const struct bench *bench);

/* Return the seconds of a prompt of n tokens, and of a decode step of `batch` sequences: the
 * median of --bench-repeats runs. */
double bench_prefill_seconds(struct driver *d, const struct options *options, int n);
double bench_decode_seconds(struct driver *d, const struct options *options, int batch);

/* ---- scaling.c ------------------------------------------------------------------------------ */

/* The limit of rows in the report's table. */
enum { SCALING_ROWS = 16 };

/* Writes the numbers of threads to measure: 1, 2, 4 and so on, and `most` last. Returns how many
 * they are. */
int scaling_threads(int most, int threads[SCALING_ROWS]);

/* Prints a report of the machine, its limits and the model's speed by the number of threads. It
 * opens an engine for each. Returns the exit code. */
int bench_scaling(const struct options *options);

/* ---- http.c --------------------------------------------------------------------------------- */

/* Serves each batch over HTTP, on a free port of 127.0.0.1, and prints its speed and the time of
 * each part of its steps. Returns the exit code. */
int bench_http(const struct bench *bench);

/* ---- driver.c: an engine without scheduler and HTTP ----------------------------------------- */

/* The arrays of a step, allocated once for the largest step. */
struct driver {
    struct engine *engine;
    struct step step;
    /* window_slot and window_table: if layers with windows have separate blocks; each sequence uses
     * its share cyclically */
    struct step_arrays arrays;
    struct sample *samples; /* [max_seqs] */
    int blocks_each, block_size;
    int n_window_blocks, n_blocks;
    int sharing; /* number of sequences for which window_table is valid */
};

/* Prepares steps of up to max_rows rows and max_seqs sequences, which share the cache evenly. */
void driver_init(struct driver *d, struct engine *engine, int max_rows, int max_seqs);
void driver_free(struct driver *d);

/* Runs `rows` tokens from `position` in each of S sequences, and samples from the last row of each.
 * Returns the seconds. */
double driver_step(struct driver *d, int S, int rows, int position);

/* Runs a prompt of n tokens, in chunks. Returns the seconds. */
double driver_prefill(struct driver *d, int n, int chunk);

/* Runs n decode steps of S sequences from `position`. As in the server, a device has two steps in
 * flight, and a step reads the previous step's tokens on the device. Returns the seconds. */
double driver_decode(struct driver *d, int S, int n, int position);

/* ---- machine.c: the limits of a CPU --------------------------------------------------------- */

/* All compute threads of the engine run concurrently. Each figure is the best of several passes. */

/* Returns the rate of memory reads in bytes per second, over more memory than most caches hold. */
double machine_read_rate(struct engine *engine);

/* Multiply-adds per second in registers, and the fastest instruction. */
struct machine_rate {
    double per_second; /* 0: the CPU lacks all known instructions */
    const char *instruction;
};

/* Products of bytes, summed in 32 bits. */
struct machine_rate machine_int8_rate(struct engine *engine);

/* Fused multiply-adds of float32. */
struct machine_rate machine_float_rate(struct engine *engine);

#endif
