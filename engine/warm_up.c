/* DESIGN: --warm-up: a start after which nothing happens for the first time.
 *
 * On a CPU the system provides memory at its first write. A host that must find memory for a
 * virtual machine makes this cost up to a tenth of a busy step. So all memory of the cache is
 * touched at once, and the process holds all of it.
 *
 * A device loads a kernel at its first launch, and records a graph when a step's shape occurs for
 * the second time. Each takes milliseconds, and a request would wait. So the engine runs steps
 * before the first request: prompts, from the longest step down by halves, which use the products
 * of all sizes; then, twice each, the decode steps that the backend records (recorded_shape). Each
 * step samples one token, and with an encoder it reads a hidden vector.
 *
 * A layer that guesses ahead has a program of its own, so its decode steps run, too.
 *
 * Rows have no slot, so they write neither keys nor values. They attend to the cache's initial
 * zeros, and their results are dropped. All sequences share one block table.
 */
#include <assert.h>
#include <stdlib.h>

#include "engine/internal.h"

/* A step of rows without slots. */
struct warm_step {
    struct step step;
    struct step_arrays arrays;
    int32_t *hidden_row; /* [M] zeros */
};

static void warm_step_open(struct warm_step *w, const struct engine *engine) {
    const struct engine_memory *memory = &engine->memory;
    const int M = engine->model.act.max_rows, S = engine->model.act.max_logit_rows;
    const int line = memory->max_model_len / memory->block_size + 1;
    struct step_arrays *arrays = &w->arrays;
    step_arrays_alloc(arrays, &w->step, M, S, line, memory->n_window_blocks > 0);
    w->hidden_row = mem_calloc((size_t)M, sizeof *w->hidden_row);
    w->step.hidden_row = w->hidden_row;
    for (size_t i = 0; i < (size_t)S * (size_t)line; i++) {
        arrays->table[i] = (int32_t)(i % (size_t)line) % memory->n_blocks;
        if (arrays->window_table)
            arrays->window_table[i] = arrays->table[i] % memory->n_window_blocks;
    }
}

/* Runs a step (step_fill) to its end. Samples greedily from its first row of logits, if any. */
static void run(struct engine *engine, struct warm_step *w, int rows, int seqs, int read,
                int position) {
    const struct sampling greedy = SAMPLING_GREEDY;
    const struct sample sample = {.sampling = &greedy, .history = w->arrays.token, .n_prompt = 1};
    const bool is_encoder = engine->model.config.is_encoder;
    step_fill(&w->arrays, &w->step, rows, seqs, read, position);
    w->step.samples = &sample;
    w->step.n_samples = !is_encoder;
    w->step.n_hidden = is_encoder ? w->step.R : 0;
    engine_submit(engine, &w->step);
    engine_sample(engine, &sample, w->step.n_samples);
    engine_wait(engine);
}

/* Runs the steps that the backend records. */
static void run_steps(const struct opening *o) {
    struct engine *engine = o->engine;
    struct backend *b = engine->backend;
    struct warm_step w;
    const int programs = engine->model.config.n_ahead > 0 ? 2 : 1;
    int rows, position, n_run = 0;
    const uint64_t began = now_ns();
    warm_step_open(&w, engine);
    const int longest = min_int(engine->model.act.max_rows, engine->memory.max_model_len);
    for (int M = longest; M > 0; M /= 2) run(engine, &w, M, 1, 1, M - 1);
    for (int i = 0; b->compute->recorded_shape(b, i, &rows, &position); i++) {
        const int seqs = min_int(rows, o->config.max_num_seqs);
        if (rows - seqs > position) continue;
        for (int time = 0; time < 2 * programs; time++) {
            w.step.is_ahead = time % programs > 0;
            run(engine, &w, rows, seqs, rows, position);
        }
        n_run++;
    }
    step_arrays_free(&w.arrays);
    mem_free(w.hidden_row);
    log_line(LOG_INFO, "warmed up in %.0f ms: prompts, and %d shapes of decode steps",
             (double)(now_ns() - began) * 1e-6, n_run);
}

static void touch_cache(struct engine *engine) {
    const uint64_t began = now_ns();
    ranks_begin_touch(engine->ranks);
    engine->backend->cache->kv_touch(engine->backend, engine->cache);
    ranks_end(engine->ranks, NULL); /* engine_failed reports a lost rank */
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
