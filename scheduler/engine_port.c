/* engine_port: the port to the real engine, and scheduler_new, which makes it. */
#include "scheduler/engine_port.h"

#include "scheduler/internal.h"

static_assert(MAX_EXTRA_SAMPLES <= MAX_SHARED_SAMPLES, "the engine takes what a step may sample");

static void port_submit(void *self, const struct step *step) {
    engine_submit(self, step);
}

static void port_sample(void *self, const struct sample *samples, int n) {
    engine_sample(self, samples, n);
}

static const struct sampled *port_wait(void *self) {
    return engine_wait(self);
}

static bool port_failed(void *self, struct err *err) {
    return engine_failed(self, err);
}

static void port_parallel(void *self, void (*fn)(void *arg, int i), void *arg, int n) {
    engine_parallel(self, fn, arg, n);
}

static bool port_swap_reserve(void *self, int n) {
    return engine_swap_reserve(self, n);
}

static void port_swap_out(void *self, const int32_t *block, const int32_t *host_block, int n) {
    engine_swap_out(self, block, host_block, n);
}

static void port_swap_in(void *self, const int32_t *host_block, const int32_t *block, int n) {
    engine_swap_in(self, host_block, block, n);
}

static void port_swap_arrive(void *self) {
    engine_swap_arrive(self);
}

struct scheduler *scheduler_new(const struct scheduler_config *config, struct engine *engine) {
    const struct engine_port port = {.self = engine,
                                     .V = engine_model(engine)->V,
                                     .on_host = engine_on_host(engine),
                                     .in_flight = engine_in_flight(engine),
                                     .row_quantum = engine_row_quantum(engine),
                                     .submit = port_submit,
                                     .sample = port_sample,
                                     .wait = port_wait,
                                     .failed = port_failed,
                                     .parallel = port_parallel,
                                     .swap = {.self = engine,
                                              .n_host_blocks = engine_host_blocks(engine),
                                              .reserve = port_swap_reserve,
                                              .out = port_swap_out,
                                              .in = port_swap_in,
                                              .arrive = port_swap_arrive}};
    return scheduler_new_on(config, &port);
}
