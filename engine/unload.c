/* DESIGN: gives an engine's memory back and loads it again.
 *
 *     opened --engine_unload--> unloaded --engine_load--> opened
 *                                   ^______ fails ________|
 *
 * An engine has two parts. The first is small and lasts from engine_open to engine_close: config,
 * tokenizer, templates, plan of memory, adapters. Any thread may read it. The second is large and
 * belongs to the engine thread: backend, weights, cache, scratch. engine_unload frees the second
 * part, and engine_load runs the stages of open.c that make it. They write nothing in the first
 * part, so readers need no lock.
 *
 * The files are opened again by their paths. If a stamp of names, sizes and times has changed, the
 * load fails, because other weights would give other bytes. The plan of memory is not made again:
 * the number of blocks is the one that the scheduler knows. On a CPU the machine must have the
 * planned memory free, so a load does not end other processes or this one. A device refuses by
 * itself.
 */
#include <assert.h>
#include <inttypes.h>

#include "engine/internal.h"

enum { MIB = 1 << 20 };

static char *copy_text(const char *text) {
    return text ? mem_strdup(text) : NULL;
}

void engine_keep_opening(struct engine *engine, const struct opening *o) {
    struct engine_config *kept = &engine->config;
    assert(!o->again && !engine->paths[0] && o->config.model);
    *kept = o->config;
    engine->stamp = o->file.stamp;
    engine->paths[0] = copy_text(kept->model);
    engine->paths[1] = copy_text(kept->weight_cache);
    engine->paths[2] = copy_text(kept->cpu_affinity);
    engine->paths[3] = copy_text(kept->eagle);
    kept->model = engine->paths[0];
    kept->weight_cache = engine->paths[1];
    kept->cpu_affinity = engine->paths[2];
    kept->eagle = engine->paths[3];
    kept->chat_template = NULL; /* the text is not read again */
    kept->drafter = NULL;       /* its memory is in the plan */
    kept->progress = NULL;
}

void engine_free_kept(struct engine *engine) {
    for (int i = 0; i < 4; i++) mem_free(engine->paths[i]);
}

void engine_unload(struct engine *engine) {
    assert(engine->backend && engine->n_in_flight == 0);
    engine_free_loaded(engine);
    engine->has_touched = false;
    assert(!engine->backend && !engine->cache);
}

static enum status check_room(const struct engine *engine, struct err *err) {
    const struct engine_memory *plan = &engine->memory;
    struct machine_memory machine = {0};
    int64_t needed = plan->weights + plan->scratch + plan->kv_cache;
    needed += plan->n_states * plan->state_bytes;
    machine_memory_read(&machine);
    if (!engine->on_host || needed <= machine.available) return STATUS_OK;
    return err_set(err, STATUS_UNAVAILABLE, NULL,
                   "it takes %" PRId64 " MiB, and the machine has %" PRId64 " MiB free",
                   needed / MIB, machine.available / MIB);
}

/* A family's reader lists tensors in the file, so the config is read again, and dropped. */
static enum status open_files(struct opening *o, struct err *err) {
    const enum model_use use = o->config.dummy ? MODEL_SHAPE : MODEL_WHOLE;
    struct model_config *config;
    enum status status = model_file_open(&o->file, o->config.model, use, err);
    if (status) return status;
    o->file.has_stand_in |= o->config.stand_in_vocabulary;
    config = mem_calloc(1, sizeof *config);
    if (o->file.stamp != o->engine->stamp)
        status =
            err_set(err, STATUS_UNAVAILABLE, NULL,
                    "%s was changed after the start: restart the server to serve the new model",
                    o->config.model);
    if (!status) status = model_file_guess(&o->file, &o->config, err);
    if (!status) status = model_config_read(config, &o->file, err);
    if (!status && config->eagle.stamp != o->engine->model.config.eagle.stamp)
        status = err_set(err, STATUS_UNAVAILABLE, NULL,
                         "%s was changed after the start: restart the server to draft with it",
                         o->config.eagle);
    mem_free(config);
    if (status) model_file_close(&o->file);
    return status;
}

static enum status load(struct opening *o, struct err *err) {
    enum status status = check_room(o->engine, err);
    if (!status) status = open_files(o, err);
    if (status) return status;
    status = engine_open_memory(o, err);
    if (!status) status = model_file_check(&o->file, err);
    model_file_close(&o->file);
    if (status) engine_free_loaded(o->engine);
    return status;
}

enum status engine_load(struct engine *engine, const struct engine_load_watch *watch,
                        struct err *err) {
    struct opening o = {.engine = engine, .again = true, .config = engine->config};
    struct err why = {0};
    assert(!engine->backend && engine->paths[0] && engine->n_in_flight == 0);
    o.config.progress = watch->progress;
    o.config.progress_arg = watch->arg;
    o.config.gives_up = watch->gives_up;
    if (!load(&o, &why)) {
        assert(engine->backend && engine->cache);
        return STATUS_OK;
    }
    assert(!engine->backend);
    return err_set(err, STATUS_UNAVAILABLE, NULL, "The model cannot be loaded again: %s.",
                   why.message);
}
