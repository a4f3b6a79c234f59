/* DESIGN: drafts from a smaller model of the same vocabulary (Leviathan et al. 2023).
 *
 * The draft model decodes like the main model, and the sampler draws from its logits as it will
 * from those of the main model: with the same settings, history and random number at each position.
 * So if both models agree, the drawn token is the same, at any temperature. Sequences share the
 * passes of the draft model:
 *
 *     pass 0     a: 3 rows, b: 1 row    the tokens that are not computed yet; first drafts
 *     pass 1     a: 1 row,  b: 1 row    the row of the first draft gives the second
 *     pass 2     a: 1 row               b is finished
 *
 * The verification sends no message to the draft model. The state remembers the last drafts, and
 * the known tokens show how many of them were accepted. The next rows overwrite those of refused
 * drafts. So whatever happened to the sequence in between (it was preempted, found in the prefix
 * cache, not drafted for), the next pass computes the missing rows. A long text is computed in
 * parts over several calls, and the sequence gets no drafts until it is complete.
 *
 * Blocks are allocated as a sequence grows. If none is free, the sequence whose last drafts are the
 * oldest loses its blocks, then the last of the jobs. They are recomputed when it is drafted for
 * again. A sequence without room gets no drafts.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/list.h"
#include "scheduler/draft/draft.h"

/* The state of a sequence. */
struct held {
    struct list_node node; /* in `holders` while the state has blocks */
    uint64_t round;        /* number of the last call with a job for it */
    int n_computed;        /* positions in the KV cache of the draft model */
    int n_known;           /* number of known tokens at that call */
    int n_drafts;          /* number of drafts from that call */
    int32_t draft[MAX_DRAFTS];
    int n_blocks;
    int32_t block[]; /* [n_blocks] */
};

struct draft_model {
    struct draft_runner runner;
    int n_free;
    int32_t *free; /* [n_free], up to n_blocks */
    /* list of struct held; the one whose last drafts are the oldest is first */
    struct list holders;
    uint64_t round;
    int stride; /* blocks of the longest sequence */
    struct step step;
    int32_t *token, *position, *slot; /* [max_rows] */
    int32_t *row_start;               /* [max_seqs + 1] */
    int32_t *table;                   /* [max_seqs][stride] */
    int32_t *logit_row;               /* [max_seqs] */
    struct sample *samples;           /* [max_seqs] */
    struct draft_job **sampled;       /* [max_seqs] the job of each sample */
};

static int blocks_for(const struct draft_model *model, int n) {
    return (n + model->runner.block_size - 1) / model->runner.block_size;
}

struct draft_model *draft_model_new(const struct draft_runner *runner) {
    struct draft_model *model = mem_calloc(1, sizeof *model);
    size_t rows = (size_t)runner->max_rows, seqs = (size_t)runner->max_seqs;
    assert(runner->max_seqs > 0 && runner->max_rows >= runner->max_seqs);
    assert(runner->n_blocks > 0 && runner->block_size > 0 && runner->max_tokens > 0);
    model->runner = *runner;
    model->stride = min_int(blocks_for(model, runner->max_tokens), runner->n_blocks);
    list_init(&model->holders);
    model->free = mem_calloc((size_t)runner->n_blocks, sizeof *model->free);
    for (int i = runner->n_blocks - 1; i >= 0; i--) model->free[model->n_free++] = i;
    model->token = mem_calloc(rows, sizeof *model->token);
    model->position = mem_calloc(rows, sizeof *model->position);
    model->slot = mem_calloc(rows, sizeof *model->slot);
    model->row_start = mem_calloc(seqs + 1, sizeof *model->row_start);
    model->table = mem_calloc(seqs * (size_t)model->stride, sizeof *model->table);
    model->logit_row = mem_calloc(seqs, sizeof *model->logit_row);
    model->samples = mem_calloc(seqs, sizeof *model->samples);
    model->sampled = mem_calloc(seqs, sizeof(struct draft_job *));
    return model;
}

void draft_model_free(struct draft_model *model) {
    if (!model) return;
    assert(model->holders.n == 0 && model->n_free == model->runner.n_blocks);
    mem_free(model->free);
    mem_free(model->token);
    mem_free(model->position);
    mem_free(model->slot);
    mem_free(model->row_start);
    mem_free(model->table);
    mem_free(model->logit_row);
    mem_free(model->samples);
    mem_free(model->sampled);
    mem_free(model);
}

static size_t model_state_bytes(const void *self, int max_tokens) {
    const struct draft_model *model = self;
    int blocks = min_int(blocks_for(model, max_tokens), model->stride);
    return sizeof(struct held) + (size_t)blocks * sizeof(int32_t);
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Frees the blocks of a sequence. Nothing of it remains in the cache. */
static void model_release(struct draft_model *model, struct held *held) {
    while (held->n_blocks > 0) model->free[model->n_free++] = held->block[--held->n_blocks];
    list_detach(&held->node);
    held->n_computed = 0;
    assert(model->n_free <= model->runner.n_blocks);
}

static void model_left(void *self, void *state) {
    model_release(self, state);
}

/* Frees the blocks of another sequence for job i. Returns false if no sequence can give blocks
 * up. */
static bool give_way(struct draft_model *model, struct draft_job *jobs, int n, int i) {
    list_each(node, &model->holders) {
        struct held *held = list_entry(node, struct held, node);
        if (held->round == model->round) continue;
        model_release(model, held);
        return true;
    }
    while (--n > i) {
        struct held *held = jobs[n].context.state;
        if (jobs[n].most == 0 || held->n_blocks == 0) continue;
        model_release(model, held);
        return true;
    }
    return false;
}

static bool take_blocks(struct draft_model *model, struct draft_job *jobs, int n, int i) {
    const struct draft_job *job = &jobs[i];
    struct held *held = job->context.state;
    /* the last draft needs no row */
    int blocks = blocks_for(model, job->context.n + job->most - 1);
    if (blocks > model->stride) return false; /* the whole pool is too small for it */
    while (held->n_blocks < blocks) {
        if (model->n_free == 0 && !give_way(model, jobs, n, i)) return false;
        held->block[held->n_blocks++] = model->free[--model->n_free];
        if (!held->node.list) list_append(&model->holders, &held->node);
    }
    return true;
}

/* ---- a pass --------------------------------------------------------------------------------- */

static void begin_pass(struct draft_model *model) {
    model->step = (struct step){.token = model->token,
                                .position = model->position,
                                .slot = model->slot,
                                .row_start = model->row_start,
                                .table = model->table,
                                .table_stride = model->stride,
                                .logit_row = model->logit_row};
}

/* Adds the next rows of a sequence. */
static void add_rows(struct draft_model *model, const struct draft_job *job, int rows) {
    struct held *held = job->context.state;
    struct step *step = &model->step;
    int size = model->runner.block_size;
    assert(step->S < model->runner.max_seqs && step->M + rows <= model->runner.max_rows);
    assert(held->n_computed + rows <= held->n_blocks * size);
    memcpy(model->table + (size_t)step->S * (size_t)model->stride, held->block,
           (size_t)held->n_blocks * sizeof *held->block);
    for (int i = 0; i < rows; i++) {
        int position = held->n_computed++;
        model->token[step->M] = job->context.tokens[position];
        model->position[step->M] = position;
        model->slot[step->M++] = held->block[position / size] * size + position % size;
    }
    model->row_start[++step->S] = step->M;
}

/* Makes the last added row yield the next draft of the sequence. */
static void model_add_sample(struct draft_model *model, struct draft_job *job) {
    int r = model->step.R++;
    model->logit_row[r] = model->step.M - 1;
    model->samples[r] = job->sample[job->draft.n];
    model->samples[r].row = r;
    model->sampled[r] = job;
}

/* Runs the pass and stores its drafts. A job without a result gets no further drafts in this
 * call. */
static void model_run_pass(struct draft_model *model) {
    int R = model->step.R;
    const struct sampled *results =
        model->runner.run(model->runner.self, &model->step, model->samples, R);
    for (int r = 0; r < R; r++) {
        struct draft_job *job = model->sampled[r];
        struct held *held = job->context.state;
        if (!results || results[r].id < 0) {
            job->most = job->draft.n;
            continue;
        }
        held->draft[held->n_drafts++] = results[r].id;
        job->context.tokens[job->context.n + job->draft.n++] = results[r].id;
        assert(held->n_drafts == job->draft.n && job->draft.n <= job->most);
    }
}

/* ---- drafts --------------------------------------------------------------------------------- */

/* Keeps the rows of accepted drafts. The row of the last known token is always computed, since it
 * yields the first draft. */
static void keep_what_held(struct held *held, const struct draft_context *c) {
    int n = 0;
    assert(held->n_known <= c->n);
    while (n < held->n_drafts && held->n_known + n < c->n &&
           c->tokens[held->n_known + n] == held->draft[n])
        n++;
    held->n_computed = min_int(held->n_computed, min_int(held->n_known + n, c->n - 1));
    held->n_known = c->n;
    held->n_drafts = 0;
}

/* Jobs without room are skipped. */
static void model_prepare(struct draft_model *model, struct draft_job *jobs, int n) {
    model->round++;
    for (int i = 0; i < n; i++) {
        struct held *held = jobs[i].context.state;
        int room = model->runner.max_tokens - jobs[i].context.n;
        jobs[i].draft = (struct draft){0};
        jobs[i].most = max_int(min_int(jobs[i].most, room), 0);
        if (jobs[i].most == 0) continue;
        held->round = model->round;
        keep_what_held(held, &jobs[i].context);
        if (held->node.list) list_move(&model->holders, &held->node);
    }
    for (int i = 0; i < n; i++)
        if (jobs[i].most > 0 && !take_blocks(model, jobs, n, i)) jobs[i].most = 0;
}

/* Adds the rows of known tokens that are not computed yet, as far as the pass has room. */
static void add_due(struct draft_model *model, struct draft_job *job) {
    const struct held *held = job->context.state;
    int due = job->context.n - held->n_computed;
    int rows = min_int(due, model->runner.max_rows - model->step.M);
    if (rows == 0) return;
    add_rows(model, job, rows);
    if (rows == due) model_add_sample(model, job);
}

/* Does the job need more rows than a sequence that was drafted for at the last call? */
static bool catches_up(const struct draft_job *job) {
    const struct held *held = job->context.state;
    return job->context.n - held->n_computed > 1 + MAX_DRAFTS;
}

/* Long texts get the rows that the other jobs leave, so they delay no other job. */
static void run_first(struct draft_model *model, struct draft_job *jobs, int n) {
    begin_pass(model);
    for (int i = 0; i < n; i++)
        if (jobs[i].most > 0 && !catches_up(&jobs[i])) add_due(model, &jobs[i]);
    for (int i = 0; i < n; i++)
        if (jobs[i].most > 0 && catches_up(&jobs[i])) add_due(model, &jobs[i]);
    if (model->step.S > 0) model_run_pass(model);
}

/* The row of each draft yields the next one. Returns false if all jobs are done. */
static bool run_next(struct draft_model *model, struct draft_job *jobs, int n) {
    begin_pass(model);
    for (int i = 0; i < n; i++) {
        if (jobs[i].draft.n == 0 || jobs[i].draft.n == jobs[i].most) continue;
        add_rows(model, &jobs[i], 1);
        model_add_sample(model, &jobs[i]);
    }
    if (model->step.S > 0) model_run_pass(model);
    return model->step.S > 0;
}

static void propose_all(void *self, struct draft_job *jobs, int n) {
    struct draft_model *model = self;
    assert(n <= model->runner.max_seqs);
    model_prepare(model, jobs, n);
    run_first(model, jobs, n);
    while (run_next(model, jobs, n)) {
    }
    for (int i = 0; i < n; i++)
        if (jobs[i].draft.n > 0) jobs[i].draft.match = MAX_DRAFT_MATCH;
}

struct drafter drafter_model(struct draft_model *model) {
    return (struct drafter){.self = model,
                            .state_bytes = model_state_bytes,
                            .propose_all = propose_all,
                            .left = model_left};
}

void draft_model_check(const struct draft_model *model) {
    int n = model->runner.n_blocks, used = 0;
    bool *seen = mem_calloc((size_t)n, sizeof *seen);
    for (int i = 0; i < model->n_free; i++) {
        assert(!seen[model->free[i]]);
        seen[model->free[i]] = true;
    }
    list_each(node, &model->holders) {
        const struct held *held = list_entry(node, struct held, node);
        assert(held->n_blocks > 0 && held->n_drafts <= MAX_DRAFTS);
        assert(held->n_computed <= held->n_blocks * model->runner.block_size);
        for (int i = 0; i < held->n_blocks; i++, used++) {
            assert(!seen[held->block[i]]);
            seen[held->block[i]] = true;
        }
    }
    assert(model->n_free + used == n);
    mem_free(seen);
}
