/* Ops with a state per sequence, in steps of any size: the code that their suites share. A suite
 * describes its op as a struct state_op. The checks compare the bytes of every CPU path, of steps
 * of any size and of copied states with those of the plain path in one step. */
#ifndef PENSTOCK_TESTS_STATE_ROWS_H
#define PENSTOCK_TESTS_STATE_ROWS_H

#include "kernels/cpu/cpu.h"

enum { STATE_ROWS = 23, STATE_LAYER = 1, STATE_SEQUENCES = 3 };

/* An op on the rows of one sequence. */
struct state_op {
    int width;        /* numbers of a row of outputs */
    int state_floats; /* numbers that a sequence keeps in a layer */
    float *right;     /* [STATE_ROWS][width] set by state_op_begin */
    /* Runs the op on rows first..first + n - 1 of `seqs` equal sequences, inside a step:
     * y[seqs * n][width]. */
    void (*run)(struct backend *b, struct kv_cache *cache, const void *data, float *y, int first,
                int n, int seqs);
    const void *data; /* for `run` */
};

/* Computes `right` on the plain path, in one step. */
void state_op_begin(struct state_op *op);
void state_op_end(struct state_op *op);

/* Copies rows first..first + n - 1 of width N for each of `seqs` sequences. mem_free frees them. */
float *state_rows_copy(const float *rows, int N, int first, int n, int seqs);

/* A step of a few rows continues where the last one ended, on every path, with any number of
 * threads, alone or beside other sequences. */
void check_steps_of_any_size(const struct state_op *op);

/* A copied state continues like the first. */
void check_copied_states(const struct state_op *op);

/* A step of 9 rows copies the state after some rows. The rows after a copy have the same
 * bytes. */
void check_states_after_rows(const struct state_op *op);

#endif
