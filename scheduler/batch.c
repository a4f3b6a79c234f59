#include "scheduler/batch.h"

#include <stdlib.h>
#include <string.h>

static size_t table_bytes(const struct batch *batch) {
    return ((size_t)batch->max_seqs + 1) * (size_t)batch->stride * sizeof *batch->table;
}

void batch_init(struct batch *batch, int max_seqs, int max_rows, int max_logit_rows, int stride,
                int block_size) {
    size_t seqs = (size_t)max_seqs, rows = (size_t)max_rows, logits = (size_t)max_logit_rows;
    *batch = (struct batch){.max_seqs = max_seqs,
                            .max_rows = max_rows,
                            .max_logit_rows = max_logit_rows,
                            .stride = stride,
                            .block_size = block_size};
    batch->lane = mem_calloc(seqs, sizeof(struct sequence *));
    batch->table = mem_large(table_bytes(batch));
    batch->token = mem_calloc(rows, sizeof(int32_t));
    batch->position = mem_calloc(rows, sizeof(int32_t));
    batch->slot = mem_calloc(rows, sizeof(int32_t));
    batch->row_start = mem_calloc(seqs + 1, sizeof(int32_t));
    batch->logit_row = mem_calloc(logits, sizeof(int32_t));
    batch->copy_from = mem_calloc(seqs, sizeof(int32_t));
    batch->copy_to = mem_calloc(seqs, sizeof(int32_t));
    batch->step = (struct step){.token = batch->token,
                                .position = batch->position,
                                .slot = batch->slot,
                                .row_start = batch->row_start,
                                .table = batch->table,
                                .table_stride = stride,
                                .logit_row = batch->logit_row,
                                .copy_from = batch->copy_from,
                                .copy_to = batch->copy_to};
}

void batch_free(struct batch *batch) {
    mem_large_free(batch->table, table_bytes(batch));
    free(batch->lane);
    free(batch->token);
    free(batch->position);
    free(batch->slot);
    free(batch->row_start);
    free(batch->logit_row);
    free(batch->copy_from);
    free(batch->copy_to);
}

/* ---- lanes ---------------------------------------------------------------------------------- */

static int32_t *lane_table(const struct batch *batch, int lane) {
    return batch->table + (size_t)lane * (size_t)batch->stride;
}

static void lane_set(struct batch *batch, int lane, struct sequence *sequence) {
    batch->lane[lane] = sequence;
    sequence->lane = lane;
    sequence->table = lane_table(batch, lane);
}

static void copy_table(int32_t *to, const struct sequence *sequence) {
    memcpy(to, sequence->table, (size_t)sequence->n_blocks * sizeof *to);
}

void batch_seat(struct batch *batch, struct sequence *sequence) {
    assert(batch->n_lanes < batch->max_seqs && sequence->n_blocks == 0);
    lane_set(batch, batch->n_lanes++, sequence);
}

void batch_leave(struct batch *batch, struct sequence *sequence) {
    assert(batch->lane[sequence->lane] == sequence && sequence->n_blocks == 0);
    struct sequence *last = batch->lane[--batch->n_lanes];
    if (last != sequence) {
        copy_table(sequence->table, last);
        lane_set(batch, sequence->lane, last);
    }
    sequence->table = NULL;
}

static void swap_lanes(struct batch *batch, int a, int b) {
    struct sequence *p = batch->lane[a], *q = batch->lane[b];
    int32_t *spare = lane_table(batch, batch->max_seqs);
    copy_table(spare, p);
    copy_table(lane_table(batch, a), q);
    memcpy(lane_table(batch, b), spare, (size_t)p->n_blocks * sizeof *spare);
    lane_set(batch, a, q);
    lane_set(batch, b, p);
}

/* Brings the lanes that compute to the front; returns how many they are. */
static int arrange(struct batch *batch) {
    int low = 0, high = batch->n_lanes - 1;
    for (;;) {
        while (low <= high && batch->lane[low]->rows > 0) low++;
        while (low <= high && batch->lane[high]->rows == 0) high--;
        if (low > high) return low;
        swap_lanes(batch, low, high);
    }
}

/* ---- the step ------------------------------------------------------------------------------- */

void batch_copy(struct batch *batch, int32_t from, int32_t to) {
    assert(from != to && batch->step.n_copies < batch->max_seqs);
    batch->copy_from[batch->step.n_copies] = from;
    batch->copy_to[batch->step.n_copies++] = to;
}

/* Behind the known tokens stands the one that the step in flight gives. */
static int32_t row_token(struct batch *batch, const struct sequence *sequence, int position) {
    if (position < sequence->n_tokens) return sequence->tokens[position];
    assert(position == sequence->n_tokens && sequence->n_coming == 1 && sequence->late_row >= 0);
    batch->step.n_late++;
    return late_token(sequence->late_row);
}

static void fill_rows(struct batch *batch, const struct sequence *sequence) {
    int size = batch->block_size, position = sequence->n_computed;
    int block = position / size, offset = position % size;
    assert((position + sequence->rows + size - 1) / size == sequence->n_blocks);
    for (int i = 0; i < sequence->rows; i++, position++) {
        int m = batch->step.M++;
        batch->token[m] = row_token(batch, sequence, position);
        batch->position[m] = position;
        batch->slot[m] = sequence->table[block] * size + offset;
        if (++offset == size) block++, offset = 0;
    }
}

static int add_logit_row(struct batch *batch, int row) {
    int r = batch->step.R++;
    assert(r < batch->max_logit_rows);
    batch->logit_row[r] = row;
    return r;
}

/* The rows that want logits are the last ones of a sequence's rows: scored ones follow what was
 * scored. */
static void fill_logit_rows(struct batch *batch, struct sequence *sequence, int first_row,
                            struct flight *flight) {
    int from = sequence->n_computed, rows = sequence->rows;
    int end = from + rows, last = sequence->request->n_prompt - 1;
    int position = from > sequence->n_scored ? from : sequence->n_scored;
    for (; position < end && position < last; position++)
        flight_score(flight, sequence, position + 1,
                     add_logit_row(batch, first_row + position - from));
    if (end == sequence_n_due(sequence) && sequence_samples(sequence))
        flight_sample(flight, sequence, add_logit_row(batch, first_row + rows - 1));
}

const struct step *batch_fill(struct batch *batch, struct flight *flight) {
    assert(flight->n_rows == 0 && flight->n_jobs == 0);
    batch->step.M = batch->step.R = batch->step.n_late = 0;
    batch->step.S = arrange(batch);
    for (int s = 0; s < batch->step.S; s++) {
        struct sequence *sequence = batch->lane[s];
        int first_row = batch->row_start[s] = batch->step.M;
        fill_rows(batch, sequence);
        fill_logit_rows(batch, sequence, first_row, flight);
        flight_depart(flight, sequence);
    }
    batch->row_start[batch->step.S] = batch->step.M;
    assert(batch->step.M <= batch->max_rows);
    return &batch->step;
}
