/* engine_port: the little of an engine that the scheduler needs, so that a simulation can stand
 * in for it. The engine's own port is in engine_port.c, which is the only file here that calls
 * engine.h's
 * functions. */
#ifndef PENSTOCK_ENGINE_PORT_H
#define PENSTOCK_ENGINE_PORT_H

#include "scheduler/sequence.h"

/* One token to be chosen, or one prompt token to be scored, from a row of logits. All but the last
 * token of `history` is known when the job is submitted, and that one when it is waited for. */
struct sample_job {
    struct sequence *sequence;
    int row; /* logit row of its step */
    /* its sequence has ended since: it may be passed over, and must not be looked into */
    bool dropped;
    bool shared; /* other jobs read the same logits: they must not be changed */
    bool score;  /* score history[position] with n_top others; otherwise choose the token at
                    `position` */
    int n_top;
    const struct sampling *sampling;
    const int32_t *history; /* [n_prompt + n_output], and the scored token behind */
    int n_prompt, n_output;
    int position, choice;
    struct sampled out;
};

struct engine_port {
    void *self;
    int V;
    int in_flight; /* steps that may be submitted before the first is waited for */
    /* Submits a step and what is to be sampled from it. Its arrays are read before this returns,
     * or, where another step is in flight, before the wait for that one has returned. The jobs stay
     * where they are until their own wait. */
    void (*submit)(void *self, const struct step *step, struct sample_job *jobs, int n);
    /* Waits for the oldest step and fills in what has come of its jobs. False where the device has
     * failed: nothing has come, and nothing will come of any step. */
    bool (*wait)(void *self, struct sample_job *jobs, int n);
    /* After that: which call of the device did. NULL where no step fails. */
    void (*why)(void *self, struct err *err);
    /* How long tokens have been chosen, within all waits together. NULL where the device does. */
    uint64_t (*sampling_ns)(void *self);
    /* Slots of the host's memory that blocks can be swapped to, or 0, and then these are NULL: the
     * functions of engine.h. All is in the order of the calls: a step that was submitted before has
     * been launched by then, as there is no other in flight. */
    int n_slots;
    bool (*swap_reserve)(void *self, int n);
    void (*swap_out)(void *self, const int32_t *block, const int32_t *slot, int n);
    void (*swap_in)(void *self, const int32_t *slot, const int32_t *block, int n);
    void (*swap_arrive)(void *self);
    void (*close)(void *self); /* frees the port, not the engine */
};

#endif
