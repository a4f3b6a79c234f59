/* engine_port: the engine functions that the scheduler calls, as a table, so that a simulation can
 * replace the engine. engine_port.c fills it with the functions of engine.h. */
#ifndef PENSTOCK_ENGINE_PORT_H
#define PENSTOCK_ENGINE_PORT_H

#include "engine/engine.h"
#include "scheduler/kv/swap.h"

/* Each function has the contract of the function of engine.h with the same name. All are called on
 * the engine thread. */
struct engine_port {
    void *self;
    int V, K;        /* the vocabulary, and the numbers of a hidden vector */
    bool on_host;    /* the CPU computes */
    int in_flight;   /* steps that may be in flight together */
    int row_quantum; /* rows that products compute together */
    void (*submit)(void *self, const struct step *step);
    void (*sample)(void *self, const struct sample *samples, int n);
    const struct sampled *(*wait)(void *self);
    const float *(*hidden)(void *self, int i);
    bool (*failed)(void *self, struct err *err); /* called only after wait has returned NULL */
    /* is another rank of the engine lost? Any time. NULL: none can be */
    bool (*lost)(void *self);
    void (*parallel)(void *self, void (*fn)(void *arg, int i), void *arg, int n);
    /* NULL: the parts of the cache have no bytes that a store could keep */
    void (*part_get)(const void *self, enum cache_part part, int i, void *out);
    void (*part_put)(void *self, enum cache_part part, int i, const void *in);
    struct swap_port swap;
    /* engine_unload and engine_load; NULL: the engine stays loaded */
    void (*unload)(void *self);
    enum status (*load)(void *self, const struct engine_load_watch *watch, struct err *err);
};

#endif
