/* engine_port: the port to the real engine, and scheduler_new, which uses it. */
#include "scheduler/engine_port.h"

#include "scheduler/internal.h"
#include "scheduler/speculate.h"

static_assert(MAX_EXTRA_SAMPLES <= MAX_SHARED_SAMPLES, "the engine accepts all samples of a step");

static void port_submit(void *self, const struct step *step) {
    engine_submit(self, step);
}

static void port_sample(void *self, const struct sample *samples, int n) {
    engine_sample(self, samples, n);
}

static const struct sampled *port_wait(void *self) {
    return engine_wait(self);
}

static const float *port_hidden(void *self, int i) {
    return engine_hidden(self, i);
}

static bool port_failed(void *self, struct err *err) {
    return engine_failed(self, err);
}

static bool port_lost(void *self) {
    return engine_lost(self);
}

static void port_parallel(void *self, void (*fn)(void *arg, int i), void *arg, int n) {
    engine_parallel(self, fn, arg, n);
}

static bool port_swap_reserve(void *self, enum block_kind kind, int n) {
    return engine_swap_reserve(self, kind, n);
}

static void port_swap_out(void *self, enum block_kind kind, const int32_t *block,
                          const int32_t *host_block, int n) {
    engine_swap_out(self, kind, block, host_block, n);
}

static void port_swap_in(void *self, enum block_kind kind, const int32_t *host_block,
                         const int32_t *block, int n) {
    engine_swap_in(self, kind, host_block, block, n);
}

static void port_swap_arrive(void *self) {
    engine_swap_arrive(self);
}

static void port_part_get(const void *self, enum cache_part part, int i, void *out) {
    engine_part_get(self, part, i, out);
}

static void port_part_put(void *self, enum cache_part part, int i, const void *in) {
    engine_part_put(self, part, i, in);
}

static void port_unload(void *self) {
    engine_unload(self);
}

static enum status port_load(void *self, const struct engine_load_watch *watch, struct err *err) {
    return engine_load(self, watch, err);
}

static struct engine_port port_to(struct engine *engine) {
    return (struct engine_port){
        .self = engine,
        .V = engine_model(engine)->V,
        .K = engine_hidden_size(engine),
        .on_host = engine_on_host(engine),
        .in_flight = engine_in_flight(engine),
        .row_quantum = engine_row_quantum(engine),
        .submit = port_submit,
        .sample = port_sample,
        .wait = port_wait,
        .hidden = port_hidden,
        .failed = port_failed,
        .lost = port_lost,
        .parallel = port_parallel,
        .part_get = engine_has_parts(engine) ? port_part_get : NULL,
        .part_put = engine_has_parts(engine) ? port_part_put : NULL,
        .unload = port_unload,
        .load = port_load,
        .swap = {.self = engine,
                 .n_host_blocks = engine_host_blocks(engine, KV_BLOCKS),
                 .n_host_windows = engine_host_blocks(engine, KV_WINDOW_BLOCKS),
                 .reserve = port_swap_reserve,
                 .out = port_swap_out,
                 .in = port_swap_in,
                 .arrive = port_swap_arrive}};
}

/* The engine of a draft model was opened with the capacity that the draft model needs. */
static void add_draft_model(struct scheduler *s, struct engine *engine) {
    const struct engine_memory *memory = engine_memory(engine);
    const struct engine_port port = port_to(engine);
    const struct draft_room room = {.n_blocks = memory->n_blocks,
                                    .block_size = memory->block_size,
                                    .max_tokens = memory->max_model_len,
                                    .max_seqs = engine_max_logit_rows(engine),
                                    .max_rows = engine_max_rows(engine)};
    speculate_with_model(s, &port, &room);
}

struct scheduler *scheduler_new(const struct scheduler_config *config, struct engine *engine) {
    const struct engine_port port = port_to(engine);
    struct scheduler *s = scheduler_new_on(config, &port);
    if (config->draft_engine) add_draft_model(s, config->draft_engine);
    return s;
}
