/* DESIGN: a start that leaves nothing to be done for the first time: --warm-up.
 *
 * On a CPU the system gives memory when it is written first. A cache that many tokens have not been
 * through yet is such memory: where a host has to find it for a virtual machine, that takes up
 * to a tenth of a busy step. Here all of it is touched at once, so the process holds all of it.
 *
 * A device loads a kernel when it is launched first, and records a graph when a step of its shape
 * comes for the second time; each takes milliseconds, which some request would wait for. So
 * the engine runs steps before anybody has asked for one: prompts, from the longest step
 * down by halves, which go through the products of all sizes; then, twice each, the decode steps
 * that the backend would record (recorded_shape). One token is sampled in each.
 *
 * Rows have no slot, so they write no keys and values: they attend to what the cache was made of,
 * zeros, and what they compute is dropped. All sequences have the same table.
 */
#include <stdlib.h>

#include "engine/internal.h"

/* The arrays of any step: rows without slots. */
struct warm_step {
    struct step step;
    int32_t *token, *position, *slot, *row_start, *logit_row, *table, *window_table;
};

static int32_t *numbers(size_t n) {
    return mem_calloc(n, sizeof(int32_t));
}

static void warm_step_open(struct warm_step *w, const struct engine *engine) {
    const struct engine_memory *memory = &engine->memory;
    const size_t M = (size_t)engine->model.act.max_rows;
    const size_t S = (size_t)engine->model.act.max_logit_rows;
    const size_t line = (size_t)(memory->max_model_len / memory->block_size + 1);
    *w = (struct warm_step){{0},
                            numbers(M),
                            numbers(M),
                            numbers(M),
                            numbers(S + 1),
                            numbers(S),
                            numbers(S * line),
                            memory->n_window_blocks ? numbers(S * line) : NULL};
    for (size_t m = 0; m < M; m++) w->slot[m] = -1;
    for (size_t i = 0; i < S * line; i++) {
        w->table[i] = (int32_t)(i % line) % memory->n_blocks;
        if (w->window_table) w->window_table[i] = w->table[i] % memory->n_window_blocks;
    }
    w->step = (struct step){.token = w->token,
                            .position = w->position,
                            .slot = w->slot,
                            .row_start = w->row_start,
                            .table = w->table,
                            .table_stride = (int)line,
                            .logit_row = w->logit_row,
                            .window_table = w->window_table,
                            .window_slot = w->window_table ? w->slot : NULL};
}

static void warm_step_close(struct warm_step *w) {
    mem_free(w->token);
    mem_free(w->position);
    mem_free(w->slot);
    mem_free(w->row_start);
    mem_free(w->logit_row);
    mem_free(w->table);
    mem_free(w->window_table);
}

/* Runs the step to its end, and samples greedily from its first row of logits. */
static void run(struct engine *engine, const struct warm_step *w) {
    const struct sampling greedy = {.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1};
    const struct sample sample = {.sampling = &greedy, .history = w->token, .n_prompt = 1};
    struct step step = w->step;
    step.samples = &sample;
    step.n_samples = 1;
    engine_submit(engine, &step);
    engine_sample(engine, &sample, 1);
    engine_wait(engine);
}

/* n rows of one sequence, of which the last wants logits. */
static void run_prompt(struct engine *engine, struct warm_step *w, int n) {
    w->step.M = n;
    w->step.S = w->step.R = 1;
    for (int m = 0; m < n; m++) w->position[m] = m;
    w->row_start[1] = n;
    w->logit_row[0] = n - 1;
    run(engine, w);
}

/* n rows, twice: one of each of `seqs` sequences, the others as drafts of the last sequence. */
static void run_decode(struct engine *engine, struct warm_step *w, int n, int seqs, int position) {
    w->step.M = w->step.R = n;
    w->step.S = seqs;
    for (int m = 0; m < n; m++) {
        w->position[m] = m < seqs - 1 ? position : position - (n - 1 - m);
        w->logit_row[m] = m;
    }
    for (int s = 1; s < seqs; s++) w->row_start[s] = s;
    w->row_start[seqs] = n;
    for (int i = 0; i < 2; i++) run(engine, w);
}

/* Runs the steps that a backend which records them is to have run. */
static void run_steps(const struct opening *o) {
    struct engine *engine = o->engine;
    struct backend *b = engine->backend;
    struct warm_step w;
    int rows, position, n_run = 0;
    const uint64_t began = now_ns();
    warm_step_open(&w, engine);
    const int longest = min_int(engine->model.act.max_rows, engine->memory.max_model_len);
    for (int M = longest; M > 0; M /= 2) run_prompt(engine, &w, M);
    for (int i = 0; b->compute->recorded_shape(b, i, &rows, &position); i++) {
        const int seqs = min_int(rows, o->config.max_num_seqs);
        if (rows - seqs > position) continue;
        run_decode(engine, &w, rows, seqs, position);
        n_run++;
    }
    warm_step_close(&w);
    log_line(LOG_INFO, "warmed up in %.0f ms: prompts, and %d shapes of decode steps",
             (double)(now_ns() - began) * 1e-6, n_run);
}

static void touch_cache(struct engine *engine) {
    const uint64_t began = now_ns();
    ranks_begin_touch(engine->ranks);
    engine->backend->cache->kv_touch(engine->backend, engine->cache);
    ranks_end(engine->ranks, NULL); /* which cannot fail */
    engine->has_touched = true;
    log_line(LOG_INFO, "warmed up in %.0f ms: the cache's memory",
             (double)(now_ns() - began) * 1e-6);
}

enum status warm_up(struct opening *o, struct err *err) {
    struct backend *b = o->engine->backend;
    if (!o->config.warm_up) return STATUS_OK;
    if (b->cache->kv_touch) touch_cache(o->engine);
    if (b->compute->recorded_shape) run_steps(o);
    return engine_failed(o->engine, err) ? STATUS_SERVER_ERROR : STATUS_OK;
}
