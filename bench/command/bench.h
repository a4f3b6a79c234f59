/* bench/command: what the files of `penstock bench` share.
 *
 *   bench.c     the command: reads the lists, opens the engine, runs the parts
 *   host.c      tables of a CPU            device.c   tables of a GPU
 *   driver.c    steps without a scheduler  machine.c  what the CPU could do at most
 *   http.c      the same batches through the whole server
 */
#ifndef PENSTOCK_BENCH_COMMAND_H
#define PENSTOCK_BENCH_COMMAND_H

#include "engine/engine.h"

/* Tokens of context that a decode test starts with. */
#define BENCH_CONTEXT 16

/* What is measured. */
#define BENCH_MAX_LIST 32
struct bench_list {
    int value[BENCH_MAX_LIST];
    int n, max; /* how many values, and the largest */
};
struct bench {
    struct engine *engine;
    const struct options *options;
    struct bench_list prompts, batches; /* lengths in tokens, sizes in sequences */
};

/* The median of some values, which it sorts. */
double bench_median(double *values, int n);

/* ---- host.c, device.c: tables --------------------------------------------------------------- */

/* Print the speed of every prompt and batch with its share of the machine's measured limits, and
 * what the time of a step is spent on. */
void bench_host(const struct bench *bench);
void bench_device(const struct bench *bench);

/* ---- http.c --------------------------------------------------------------------------------- */

/* Serves each batch over HTTP, on a port of its own on 127.0.0.1, and prints its speed and what the
 * time of its steps is spent on. Returns the exit code. */
int bench_http(const struct bench *bench);

/* ---- driver.c: an engine without scheduler and HTTP ----------------------------------------- */

/* The arrays of a step, allocated once for the largest. */
struct driver {
    struct engine *engine;
    struct step step;
    int32_t *token, *position, *slot, *row_start, *table, *logit_row;
    struct sample *samples; /* [max_seqs] */
    int blocks_each, block_size;
    /* of layers with windows, if these have blocks of their own; a sequence uses its share in
     * turn */
    int32_t *window_slot, *window_table;
    int n_window_blocks, n_blocks;
    int sharing; /* the sequences that the table is for */
};

/* For steps of up to max_rows rows, of max_seqs sequences that share the cache evenly. */
void driver_init(struct driver *d, struct engine *engine, int max_rows, int max_seqs);
void driver_free(struct driver *d);

/* Runs `rows` tokens of each of S sequences from `position` on, and samples from the last row of
 * each. Returns the seconds. */
double driver_step(struct driver *d, int S, int rows, int position);

/* Runs a prompt of n tokens, in chunks. Returns the seconds. */
double driver_prefill(struct driver *d, int n, int chunk);

/* Runs n steps in which each of S sequences has one row, from `position` on. As when serving, a
 * device has two steps in flight, and each gets its pending tokens on the device. Returns the
 * seconds. */
double driver_decode(struct driver *d, int S, int n, int position);

/* ---- machine.c: the limits of a CPU --------------------------------------------------------- */

/* All compute threads of the engine work at once; each figure is the best of a few passes. */

/* Bytes a second read from memory, over more of it than the caches of most machines hold. */
double machine_read_rate(struct engine *engine);

/* Multiply-adds a second in registers, and the instruction that reached it. */
struct machine_rate {
    double per_second; /* 0: the CPU has none of the instructions that are tried */
    const char *instruction;
};

/* Bytes times bytes, summed in 32 bits. */
struct machine_rate machine_int8_rate(struct engine *engine);

/* float32, by fused multiply-adds. */
struct machine_rate machine_float_rate(struct engine *engine);

#endif
