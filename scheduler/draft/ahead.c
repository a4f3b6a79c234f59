/* DESIGN: drafts from the model's own layer that guesses ahead (multi-token prediction: DeepSeek-AI
 * 2024; engine/models/forward_ahead.c).
 *
 * The layer keeps its keys and values in the sequence's own blocks, so this file keeps nothing per
 * sequence. The model's pass writes them, except in a sequence's last row, whose next token was not
 * known. So the first pass after each step computes that row for all running sequences, even if
 * they do not draft: later drafts would read keys of a wrong token. Further passes are only for
 * sequences that draft:
 *
 *     pass 0     a: row p, b: row q     the next token is known now; the first draft of a
 *     pass 1     a: row p + 1           its first draft, and the hidden vector of pass 0
 *
 * The rows of pass 1 and later belong to drafts. The model's next pass writes these positions
 * again, with its own hidden vectors, or later rows do if the drafts are refused. Such a row needs
 * a slot in the sequence's last block. If the block is full, the draft is left out.
 *
 * Sequences may share the last block: choices of one prompt, or equal texts. Then the first
 * sequence writes the last row for all, and rows of drafts are left out. If another one continues
 * with another token, it reads one key of a wrong token.
 *
 * Samples are drawn as the model's will be: with the request's settings, history and random
 * numbers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/draft/draft.h"

struct draft_ahead {
    struct draft_runner runner;
    int stride; /* blocks of the longest sequence */
    struct step step;
    int32_t *token, *position, *slot, *hidden_row; /* [max_seqs] */
    int32_t *row_start;                            /* [max_seqs + 1] */
    int32_t *table;                                /* [max_seqs][stride] */
    int32_t *logit_row;                            /* [max_seqs] */
    struct sample *samples;                        /* [max_seqs] */
    struct draft_job **sampled;                    /* [max_seqs] the job of each sample */
};

struct draft_ahead *draft_ahead_new(const struct draft_runner *runner) {
    struct draft_ahead *ahead = mem_calloc(1, sizeof *ahead);
    const size_t n = (size_t)runner->max_seqs;
    assert(runner->max_seqs > 0 && runner->max_rows >= runner->max_seqs);
    assert(runner->block_size > 0 && runner->max_tokens > 0);
    ahead->runner = *runner;
    ahead->stride = (runner->max_tokens + runner->block_size - 1) / runner->block_size;
    ahead->token = mem_calloc(n, sizeof *ahead->token);
    ahead->position = mem_calloc(n, sizeof *ahead->position);
    ahead->slot = mem_calloc(n, sizeof *ahead->slot);
    ahead->hidden_row = mem_calloc(n, sizeof *ahead->hidden_row);
    ahead->row_start = mem_calloc(n + 1, sizeof *ahead->row_start);
    ahead->table = mem_calloc(n * (size_t)ahead->stride, sizeof *ahead->table);
    ahead->logit_row = mem_calloc(n, sizeof *ahead->logit_row);
    ahead->samples = mem_calloc(n, sizeof *ahead->samples);
    ahead->sampled = mem_calloc(n, sizeof(struct draft_job *));
    return ahead;
}

void draft_ahead_free(struct draft_ahead *ahead) {
    if (!ahead) return;
    mem_free(ahead->token);
    mem_free(ahead->position);
    mem_free(ahead->slot);
    mem_free(ahead->hidden_row);
    mem_free(ahead->row_start);
    mem_free(ahead->table);
    mem_free(ahead->logit_row);
    mem_free(ahead->samples);
    mem_free(ahead->sampled);
    mem_free(ahead);
}

/* The layer's keys and values are in the sequence's own blocks. */
static size_t ahead_state_bytes(const void *self, int max_tokens) {
    (void)self;
    (void)max_tokens;
    return 0;
}

static void begin_guesses(struct draft_ahead *ahead) {
    ahead->step = (struct step){.token = ahead->token,
                                .next = ahead->token,
                                .is_ahead = true,
                                .hidden_row = ahead->hidden_row,
                                .position = ahead->position,
                                .slot = ahead->slot,
                                .row_start = ahead->row_start,
                                .table = ahead->table,
                                .table_stride = ahead->stride,
                                .logit_row = ahead->logit_row};
}

static int32_t slot_of(const struct draft_ahead *ahead, const struct draft_job *job, int position) {
    const int size = ahead->runner.block_size;
    assert(position >= 0 && position / size < job->place.n_blocks);
    return job->place.table[position / size] * size + position % size;
}

/* Does a row of the pass write the slot already? */
static bool is_taken(const struct draft_ahead *ahead, int32_t slot) {
    for (int m = 0; m < ahead->step.M; m++)
        if (ahead->slot[m] == slot) return true;
    return false;
}

/* Adds the row at `position`, whose next token is known or a draft. */
static void add_guess(struct draft_ahead *ahead, const struct draft_job *job, int position) {
    const struct draft_place *place = &job->place;
    const int m = ahead->step.M++;
    assert(m < ahead->runner.max_seqs && place->n_blocks <= ahead->stride);
    assert(position >= 0 && position < place->n_slots);
    memcpy(ahead->table + (size_t)m * (size_t)ahead->stride, place->table,
           (size_t)place->n_blocks * sizeof *ahead->table);
    ahead->token[m] = job->context.tokens[position + 1];
    ahead->position[m] = position;
    ahead->slot[m] = slot_of(ahead, job, position);
    ahead->hidden_row[m] = place->hidden_row;
    ahead->row_start[m + 1] = ahead->step.M;
    ahead->step.S = ahead->step.M;
}

/* Makes the last added row yield the next draft of the sequence. */
static void ahead_add_sample(struct draft_ahead *ahead, struct draft_job *job) {
    const int r = ahead->step.R++;
    assert(job->draft.n < job->most);
    ahead->logit_row[r] = ahead->step.M - 1;
    ahead->samples[r] = job->sample[job->draft.n];
    ahead->samples[r].row = r;
    ahead->sampled[r] = job;
}

/* Runs the pass and stores its drafts. A job without a result ends. */
static void ahead_run_pass(struct draft_ahead *ahead) {
    const int R = ahead->step.R;
    const struct sampled *results =
        ahead->runner.run(ahead->runner.self, &ahead->step, ahead->samples, R);
    for (int r = 0; r < R; r++) {
        struct draft_job *job = ahead->sampled[r];
        if (!results || results[r].id < 0) {
            job->most = job->draft.n;
            continue;
        }
        job->place.hidden_row = r;
        job->context.tokens[job->context.n + job->draft.n++] = results[r].id;
        assert(job->draft.n <= job->most);
    }
}

/* The last row of each sequence. Only one whose last known token is the row's next one drafts. */
static void run_last_rows(struct draft_ahead *ahead, struct draft_job *jobs, int n) {
    begin_guesses(ahead);
    for (int i = 0; i < n; i++) {
        struct draft_job *job = &jobs[i];
        const int last = job->place.n_computed - 1;
        assert(job->place.hidden_row >= 0 && last >= 0 && last + 1 < job->context.n);
        const bool skips = job->place.shares && is_taken(ahead, slot_of(ahead, job, last));
        if (last + 2 != job->context.n || skips) job->most = 0;
        job->draft = (struct draft){0};
        if (skips) continue;
        add_guess(ahead, job, last);
        if (job->most > 0) ahead_add_sample(ahead, job);
    }
    if (ahead->step.S > 0) ahead_run_pass(ahead);
}

/* The row of each draft yields the next one. Returns false if all jobs are done. */
static bool run_draft_rows(struct draft_ahead *ahead, struct draft_job *jobs, int n) {
    begin_guesses(ahead);
    for (int i = 0; i < n; i++) {
        struct draft_job *job = &jobs[i];
        const int position = job->place.n_computed - 1 + job->draft.n;
        if (job->draft.n == 0 || job->draft.n == job->most) continue;
        if (position >= job->place.n_slots || job->place.shares)
            job->most = job->draft.n;
        else
            add_guess(ahead, job, position), ahead_add_sample(ahead, job);
    }
    if (ahead->step.S > 0) ahead_run_pass(ahead);
    return ahead->step.S > 0;
}

static void ahead_propose_all(void *self, struct draft_job *jobs, int n) {
    struct draft_ahead *ahead = self;
    assert(n <= ahead->runner.max_seqs);
    run_last_rows(ahead, jobs, n);
    while (run_draft_rows(ahead, jobs, n)) {
    }
    for (int i = 0; i < n; i++)
        if (jobs[i].draft.n > 0) jobs[i].draft.match = MAX_DRAFT_MATCH;
}

struct drafter drafter_ahead(struct draft_ahead *ahead) {
    return (struct drafter){
        .self = ahead, .state_bytes = ahead_state_bytes, .propose_all = ahead_propose_all};
}
