/* server/bench_driver: an engine driven without scheduler and HTTP, for `penstock bench`. Internal
 * to server/. Where the device samples, decode steps go as they do when serving: two in flight,
 * each taking the tokens of the one before where it has left them. */
#ifndef PENSTOCK_SERVER_BENCH_DRIVER_H
#define PENSTOCK_SERVER_BENCH_DRIVER_H

#include "engine/engine.h"

/* The arrays of a step, planned once for the largest. */
struct driver {
    struct engine *engine;
    struct step step;
    int32_t *token, *position, *slot, *row_start, *table, *logit_row;
    struct sample *samples; /* [max_seqs] */
    int blocks_each, block_size;
};

/* For steps of up to max_rows rows, of max_seqs sequences that share the cache evenly. */
void driver_init(struct driver *d, struct engine *engine, int max_rows, int max_seqs);
void driver_free(struct driver *d);

/* Runs `rows` tokens of each of S sequences from `position` on; the last row of each is sampled
 * from. Seconds. */
double driver_step(struct driver *d, int S, int rows, int position);

/* Runs a prompt of n tokens, in chunks. Seconds. */
double driver_prefill(struct driver *d, int n, int chunk);

/* Runs n steps in which each of S sequences has one row, from `position` on. Seconds. */
double driver_decode(struct driver *d, int S, int n, int position);

#endif
