/* The arrays of a step, for those that make steps without a scheduler. */
#include <assert.h>

#include "kernels/kernels.h"

static int32_t *step_numbers(size_t n) {
    return mem_calloc(n, sizeof(int32_t));
}

void step_arrays_alloc(struct step_arrays *arrays, struct step *step, int rows, int seqs,
                       int table_stride, bool has_windows) {
    assert(rows > 0 && seqs > 0 && table_stride >= 0);
    const size_t M = (size_t)rows, S = (size_t)seqs, n_blocks = S * (size_t)table_stride;
    *arrays = (struct step_arrays){.token = step_numbers(M),
                                   .position = step_numbers(M),
                                   .slot = step_numbers(M),
                                   .row_start = step_numbers(S + 1),
                                   .logit_row = step_numbers(S),
                                   .table = step_numbers(n_blocks),
                                   .state = step_numbers(S),
                                   .window_slot = has_windows ? step_numbers(M) : NULL,
                                   .window_table = has_windows ? step_numbers(n_blocks) : NULL};
    for (int s = 0; s < seqs; s++) arrays->state[s] = s;
    for (int m = 0; m < rows; m++) {
        arrays->slot[m] = -1;
        if (has_windows) arrays->window_slot[m] = -1;
    }
    *step = (struct step){.token = arrays->token,
                          .next = arrays->token,
                          .position = arrays->position,
                          .slot = arrays->slot,
                          .row_start = arrays->row_start,
                          .table = arrays->table,
                          .table_stride = table_stride,
                          .state = arrays->state,
                          .logit_row = arrays->logit_row,
                          .window_slot = arrays->window_slot,
                          .window_table = arrays->window_table};
}

void step_fill(struct step_arrays *arrays, struct step *step, int rows, int seqs, int read,
               int position) {
    assert(seqs > 0 && seqs <= rows && read <= rows && rows - seqs <= position);
    step->M = rows;
    step->S = seqs;
    step->R = read;
    for (int m = 0; m < rows; m++)
        arrays->position[m] = m < seqs - 1 ? position : position - (rows - 1 - m);
    for (int s = 0; s < seqs; s++) arrays->row_start[s] = s;
    arrays->row_start[seqs] = rows;
    for (int r = 0; r < read; r++) arrays->logit_row[r] = rows - read + r;
}

void step_arrays_free(struct step_arrays *arrays) {
    mem_free(arrays->token);
    mem_free(arrays->position);
    mem_free(arrays->slot);
    mem_free(arrays->row_start);
    mem_free(arrays->logit_row);
    mem_free(arrays->table);
    mem_free(arrays->state);
    mem_free(arrays->window_slot);
    mem_free(arrays->window_table);
    *arrays = (struct step_arrays){0};
}
