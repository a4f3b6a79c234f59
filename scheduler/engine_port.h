/* engine_port: what the scheduler needs of an engine, as a table, so that a simulation can stand in
 * for it. engine_port.c fills it with engine.h's functions. */
#ifndef PENSTOCK_ENGINE_PORT_H
#define PENSTOCK_ENGINE_PORT_H

#include "engine/engine.h"
#include "scheduler/kv/swap.h"

/* Each function is the one of engine.h with the same name, where its contract is; all are called on
 * the engine thread. */
struct engine_port {
    void *self;
    int V;
    bool on_host;    /* the host's own processor computes */
    int in_flight;   /* steps that may be submitted before the first is waited for */
    int row_quantum; /* rows that products compute at once */
    void (*submit)(void *self, const struct step *step);
    void (*sample)(void *self, const struct sample *samples, int n);
    const struct sampled *(*wait)(void *self);
    bool (*failed)(void *self, struct err *err); /* called only after a wait that gave NULL */
    void (*parallel)(void *self, void (*fn)(void *arg, int i), void *arg, int n);
    struct swap_port swap;
};

#endif
