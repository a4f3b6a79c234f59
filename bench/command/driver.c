/* Drives an engine step by step, for `penstock bench`. */
#include <assert.h>
#include <stdlib.h>

#include "bench/command/bench.h"

static const struct sampling greedy = SAMPLING_GREEDY;

void driver_init(struct driver *d, struct engine *engine, int max_rows, int max_seqs) {
    assert(max_rows > 0 && max_seqs > 0);
    const struct engine_memory *memory = engine_memory(engine);
    *d = (struct driver){.engine = engine, .block_size = memory->block_size};
    d->blocks_each = memory->n_blocks / max_seqs;
    d->n_blocks = d->blocks_each * max_seqs;
    d->n_window_blocks = memory->n_window_blocks;
    d->samples = mem_calloc((size_t)max_seqs, sizeof *d->samples);
    step_arrays_alloc(&d->arrays, &d->step, max_rows, max_seqs, d->blocks_each,
                      d->n_window_blocks > 0);
    for (int i = 0; i < d->n_blocks; i++) d->arrays.table[i] = i;
}

/* Divides the window blocks evenly among S sequences. Block i of a sequence is block i modulo the
 * size of its share, which is large enough for the window of a row and the rows of a step. */
static void share_window_blocks(struct driver *d, int S) {
    int share = d->n_window_blocks / S, n = S == 1 ? d->n_blocks : d->blocks_each;
    if (d->sharing == S) return;
    d->sharing = S;
    for (int s = 0; s < S; s++)
        for (int i = 0; i < n; i++)
            d->arrays.window_table[s * d->blocks_each + i] = s * share + i % share;
}

void driver_free(struct driver *d) {
    step_arrays_free(&d->arrays);
    mem_free(d->samples);
}

static void fill_step(struct driver *d, int S, int rows, int position, bool pending) {
    assert(S > 0 && rows > 0 && position >= 0);
    int M = 0;
    if (d->n_window_blocks > 0) share_window_blocks(d, S);
    for (int s = 0; s < S; s++) {
        d->arrays.row_start[s] = M;
        for (int i = 0; i < rows; i++, M++) {
            int at = position + i;
            d->arrays.token[M] =
                pending ? pending_token(s) : (at * 131 + s * 7919) % engine_model(d->engine)->V;
            d->arrays.position[M] = at;
            int block = s * d->blocks_each + at / d->block_size, offset = at % d->block_size;
            d->arrays.slot[M] = d->arrays.table[block] * d->block_size + offset;
            if (d->n_window_blocks > 0)
                d->arrays.window_slot[M] = d->arrays.window_table[block] * d->block_size + offset;
        }
        d->arrays.logit_row[s] = M - 1;
        d->samples[s] = (struct sample){.row = s,
                                        .sampling = &greedy,
                                        .position = position + rows,
                                        .history = d->arrays.token,
                                        .sequence = (uint64_t)s};
    }
    d->arrays.row_start[S] = M;
    d->step.M = M;
    d->step.S = d->step.R = S;
    d->step.n_pending = pending ? M : 0;
    d->step.samples = d->samples;
    d->step.n_samples = S;
}

static void submit(struct driver *d) {
    engine_submit(d->engine, &d->step);
    engine_sample(d->engine, d->samples, d->step.R);
}

static double seconds_since(uint64_t start) {
    return (double)(now_ns() - start) * 1e-9;
}

double driver_step(struct driver *d, int S, int rows, int position) {
    uint64_t start = now_ns();
    fill_step(d, S, rows, position, false);
    submit(d);
    engine_wait(d->engine);
    return seconds_since(start);
}

double driver_prefill(struct driver *d, int n, int chunk) {
    uint64_t start = now_ns();
    for (int at = 0; at < n; at += chunk) driver_step(d, 1, n - at < chunk ? n - at : chunk, at);
    return seconds_since(start);
}

double driver_decode(struct driver *d, int S, int n, int position) {
    assert(S > 0 && n > 0 && position >= 0);
    int max_in_flight = engine_in_flight(d->engine), in_flight = 0;
    uint64_t start = now_ns();
    for (int i = 0; i < n; i++) {
        fill_step(d, S, 1, position + i, in_flight > 0);
        submit(d);
        if (++in_flight == max_in_flight) engine_wait(d->engine), in_flight--;
    }
    for (; in_flight > 0; in_flight--) engine_wait(d->engine);
    return seconds_since(start);
}
