#include "scheduler/batch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t table_bytes(const struct batch *batch) {
    return ((size_t)batch->max_seqs + 1) * (size_t)batch->stride * sizeof *batch->table;
}

/* Allocates the arrays for window blocks, as long as those for blocks. */
static void batch_init_windows(struct batch *batch) {
    batch->window_table = mem_large(table_bytes(batch));
    batch->window_slot = mem_calloc((size_t)batch->max_rows, sizeof(int32_t));
    batch->window_from = mem_calloc((size_t)batch->max_seqs, sizeof(int32_t));
    batch->window_to = mem_calloc((size_t)batch->max_seqs, sizeof(int32_t));
    batch->step.window_table = batch->window_table;
    batch->step.window_slot = batch->window_slot;
    batch->step.window_copy_from = batch->window_from;
    batch->step.window_copy_to = batch->window_to;
}

void batch_init(struct batch *batch, int max_seqs, int max_rows, int max_logit_rows, int stride,
                int block_size, const struct window_pool *windows) {
    assert(max_seqs > 0 && max_rows > 0 && max_logit_rows > 0);
    size_t seqs = (size_t)max_seqs, rows = (size_t)max_rows, logits = (size_t)max_logit_rows;
    *batch = (struct batch){.max_seqs = max_seqs,
                            .max_rows = max_rows,
                            .max_logit_rows = max_logit_rows,
                            .stride = stride,
                            .block_size = block_size,
                            .windows = windows};
    batch->sequence = mem_calloc(seqs, sizeof(struct sequence *));
    batch->table = mem_large(table_bytes(batch));
    batch->token = mem_calloc(rows, sizeof(int32_t));
    batch->next = mem_calloc(rows, sizeof(int32_t));
    batch->position = mem_calloc(rows, sizeof(int32_t));
    batch->slot = mem_calloc(rows, sizeof(int32_t));
    batch->adapter = mem_calloc(rows, sizeof(int32_t));
    batch->type = mem_calloc(rows, sizeof(int32_t));
    batch->row_start = mem_calloc(seqs + 1, sizeof(int32_t));
    batch->logit_row = mem_calloc(logits, sizeof(int32_t));
    batch->copy_from = mem_calloc(seqs, sizeof(int32_t));
    batch->copy_to = mem_calloc(seqs, sizeof(int32_t));
    batch->state = mem_calloc(seqs, sizeof(int32_t));
    batch->state_from = mem_calloc(seqs, sizeof(int32_t));
    batch->state_to = mem_calloc(seqs, sizeof(int32_t));
    batch->state_after = mem_calloc(rows, sizeof(int32_t));
    batch->step = (struct step){.token = batch->token,
                                .next = batch->next,
                                .position = batch->position,
                                .slot = batch->slot,
                                .row_start = batch->row_start,
                                .table = batch->table,
                                .table_stride = stride,
                                .logit_row = batch->logit_row,
                                .copy_from = batch->copy_from,
                                .copy_to = batch->copy_to,
                                .state = batch->state,
                                .state_after = batch->state_after,
                                .state_from = batch->state_from,
                                .state_to = batch->state_to};
    if (windows->n > 0) batch_init_windows(batch);
}

void batch_free(struct batch *batch) {
    mem_large_free(batch->table, table_bytes(batch));
    if (batch->window_table) mem_large_free(batch->window_table, table_bytes(batch));
    mem_free(batch->window_slot);
    mem_free(batch->window_from);
    mem_free(batch->window_to);
    mem_free(batch->sequence);
    mem_free(batch->token);
    mem_free(batch->next);
    mem_free(batch->position);
    mem_free(batch->slot);
    mem_free(batch->adapter);
    mem_free(batch->type);
    mem_free(batch->row_start);
    mem_free(batch->logit_row);
    mem_free(batch->copy_from);
    mem_free(batch->copy_to);
    mem_free(batch->state);
    mem_free(batch->state_from);
    mem_free(batch->state_to);
    mem_free(batch->state_after);
}

/* ---- batch rows ----------------------------------------------------------------------------- */

static int32_t *table_of(const struct batch *batch, int batch_row) {
    return batch->table + (size_t)batch_row * (size_t)batch->stride;
}

static void batch_place(struct batch *batch, int batch_row, struct sequence *sequence) {
    batch->sequence[batch_row] = sequence;
    sequence->batch_row = batch_row;
    sequence->kv.table = table_of(batch, batch_row);
}

static void copy_table(int32_t *to, const struct sequence *sequence) {
    memcpy(to, sequence->kv.table, (size_t)sequence->kv.n_blocks * sizeof *to);
}

void batch_add(struct batch *batch, struct sequence *sequence) {
    assert(batch->n_sequences < batch->max_seqs && sequence->kv.n_blocks == 0);
    batch_place(batch, batch->n_sequences++, sequence);
}

void batch_remove(struct batch *batch, struct sequence *sequence) {
    assert(batch->sequence[sequence->batch_row] == sequence && sequence->kv.n_blocks == 0);
    struct sequence *last = batch->sequence[--batch->n_sequences];
    if (last != sequence) {
        copy_table(sequence->kv.table, last);
        batch_place(batch, sequence->batch_row, last);
    }
    sequence->kv.table = NULL;
}

static void exchange_rows(struct batch *batch, int a, int b) {
    assert(a >= 0 && b >= 0);
    struct sequence *p = batch->sequence[a], *q = batch->sequence[b];
    int32_t *spare = table_of(batch, batch->max_seqs);
    copy_table(spare, p);
    copy_table(table_of(batch, a), q);
    memcpy(table_of(batch, b), spare, (size_t)p->kv.n_blocks * sizeof *spare);
    batch_place(batch, a, q);
    batch_place(batch, b, p);
}

/* Moves the sequences that compute to the front. Returns their number. */
static int arrange(struct batch *batch) {
    int low = 0, high = batch->n_sequences - 1;
    for (;;) {
        while (low <= high && batch->sequence[low]->rows > 0) low++;
        while (low <= high && batch->sequence[high]->rows == 0) high--;
        if (low > high) return low;
        exchange_rows(batch, low, high);
    }
}

/* ---- the step ------------------------------------------------------------------------------- */

void batch_copy(struct batch *batch, int32_t from, int32_t to) {
    assert(from != to && batch->step.n_copies < batch->max_seqs);
    if (batch->windows->n > 0) {
        batch->window_from[batch->step.n_copies] = batch->windows->of[from];
        batch->window_to[batch->step.n_copies] = batch->windows->of[to];
    }
    batch->copy_from[batch->step.n_copies] = from;
    batch->copy_to[batch->step.n_copies++] = to;
}

void batch_copy_state(struct batch *batch, int32_t from, int32_t to) {
    assert(from != to && batch->step.n_state_copies < batch->max_seqs);
    batch->state_from[batch->step.n_state_copies] = from;
    batch->state_to[batch->step.n_state_copies++] = to;
}

static void fill_rows(struct batch *batch, const struct sequence *sequence) {
    int size = batch->block_size, position = sequence->n_computed;
    int block = position / size, offset = position % size;
    assert((position + sequence->rows + size - 1) / size == sequence->kv.n_blocks);
    for (int i = 0; i < sequence->rows; i++, position++) {
        int m = batch->step.M++;
        if (position < sequence->n_tokens + sequence->drafts.n) {
            batch->token[m] = sequence->tokens[position];
        } else { /* the token after the known ones, which the step in flight samples */
            assert(position == sequence->n_tokens && sequence->n_pending == 1);
            assert(sequence->pending_row >= 0);
            batch->token[m] = pending_token(sequence->pending_row);
            batch->step.n_pending++;
        }
        const bool ends = position + 1 >= sequence->n_tokens + sequence->drafts.n;
        batch->next[m] = ends ? batch->token[m] : sequence->tokens[position + 1];
        batch->position[m] = position;
        batch->slot[m] = sequence->kv.table[block] * size + offset;
        if (++offset == size) block++, offset = 0;
    }
}

/* Writes the window blocks that the sequence watches, and the window slots of its rows, which begin
 * at first_row. */
static void fill_windows(struct batch *batch, const struct sequence *sequence, int first_row) {
    int size = batch->block_size, position = sequence->n_computed;
    int32_t *table = batch->window_table + (sequence->kv.table - batch->table);
    for (int i = sequence->kv.first_seen; i < sequence->kv.n_blocks; i++) {
        table[i] = batch->windows->of[sequence->kv.table[i]];
        assert(table[i] >= 0);
    }
    for (int i = 0; i < sequence->rows; i++, position++)
        batch->window_slot[first_row + i] = table[position / size] * size + position % size;
}

/* Writes the states that recurrent layers keep after the rows before drafts. */
static void fill_states(struct batch *batch, const struct sequence *sequence, int first_row) {
    const struct sequence_kv *kv = &sequence->kv;
    int first = first_row + kv->first_row_state - 1 - sequence->n_computed;
    for (int i = 0; i < sequence->rows; i++) batch->state_after[first_row + i] = -1;
    assert(kv->n_row_states == 0 || (kv->n_row_states == sequence->drafts.n && first >= first_row));
    for (int i = 0; i < kv->n_row_states; i++) batch->state_after[first + i] = kv->row_state[i];
}

/* Sets the adapter of a sequence's rows, which begin at first_row. Steps of the base model alone
 * have no array. */
static void fill_adapter(struct batch *batch, const struct sequence *sequence, int first_row) {
    const int32_t adapter = sequence->request->generation->adapter;
    for (int i = 0; i < sequence->rows; i++) batch->adapter[first_row + i] = adapter;
    if (adapter > 0) batch->step.adapter = batch->adapter;
}

/* Sets the token types of a sequence's rows, which begin at first_row. Steps without a pair of
 * texts have no array. */
static void fill_types(struct batch *batch, const struct sequence *sequence, int first_row) {
    const struct generation *g = sequence->request->generation;
    const int second = g->n_prompt - g->n_second;
    assert(g->n_second >= 0 && second >= 0);
    for (int i = 0; i < sequence->rows; i++)
        batch->type[first_row + i] = g->n_second > 0 && sequence->n_computed + i >= second;
    if (g->n_second > 0) batch->step.type = batch->type;
}

static int add_logit_row(struct batch *batch, int row) {
    int r = batch->step.R++;
    assert(r < batch->max_logit_rows);
    batch->logit_row[r] = row;
    return r;
}

/* Adds a prompt row that is scored or read. The hidden rows follow all logit rows. */
static void fill_scored_row(struct batch *batch, struct sequence *sequence, int position, int row,
                            struct inflight *inflight) {
    const struct generation *generation = sequence->request->generation;
    if (!generation_reads(generation))
        inflight_score(inflight, sequence, position + 1, add_logit_row(batch, row));
    else if (generation->hidden != HIDDEN_NONE)
        inflight_hide(inflight, sequence, row);
    else
        inflight_read(inflight, sequence, position, add_logit_row(batch, row));
}

/* Adds the logit rows. Scored rows follow those that were scored before. The last known token and
 * each draft yield a token. */
static void fill_logit_rows(struct batch *batch, struct sequence *sequence, int first_row,
                            struct inflight *inflight) {
    int from = sequence->n_computed, rows = sequence->rows;
    int end = from + rows, last = sequence->request->score_end;
    int drafts = sequence->drafts.n;
    int position = from > sequence->n_scored ? from : sequence->n_scored;
    for (; position < end && position < last; position++)
        fill_scored_row(batch, sequence, position, first_row + position - from, inflight);
    if (end < sequence_n_schedulable(sequence) + drafts || !sequence_samples(sequence)) return;
    for (position = end - drafts; position <= end; position++)
        inflight_sample(inflight, sequence, position,
                        add_logit_row(batch, first_row + position - 1 - from));
}

static void add_hidden_rows(struct batch *batch, const struct inflight *inflight) {
    for (int i = 0; i < inflight->n_hidden; i++) add_logit_row(batch, inflight->hidden[i].row);
    batch->step.n_hidden = inflight->n_hidden;
}

const struct step *batch_fill(struct batch *batch, struct inflight *inflight) {
    assert(inflight->n_rows == 0 && inflight->n_samples == 0 && inflight->n_hidden == 0);
    batch->step.M = batch->step.R = batch->step.n_pending = 0;
    batch->step.adapter = batch->step.type = NULL;
    batch->step.S = arrange(batch);
    for (int s = 0; s < batch->step.S; s++) {
        struct sequence *sequence = batch->sequence[s];
        int first_row = batch->row_start[s] = batch->step.M;
        batch->state[s] = sequence->kv.state;
        fill_rows(batch, sequence);
        fill_states(batch, sequence, first_row);
        fill_adapter(batch, sequence, first_row);
        fill_types(batch, sequence, first_row);
        if (batch->windows->n > 0) fill_windows(batch, sequence, first_row);
        fill_logit_rows(batch, sequence, first_row, inflight);
        inflight_begin(inflight, sequence);
    }
    add_hidden_rows(batch, inflight);
    batch->row_start[batch->step.S] = batch->step.M;
    assert(batch->step.M <= batch->max_rows);
    return &batch->step;
}
