/* engine_port: the little of an engine that the scheduler needs, so that a simulation can stand
 * in for it. The engine's own port is in engine_port.c, which is the only file here that calls
 * engine.h's
 * functions. */
#ifndef PENSTOCK_ENGINE_PORT_H
#define PENSTOCK_ENGINE_PORT_H

#include "scheduler/sequence.h"

/* One token to be chosen, or one prompt token to be scored, from a row of logits. */
struct sample_job {
    struct sequence *sequence;
    float *logits; /* [V] */
    bool shared;   /* other jobs read the same logits: they must not be changed */
    bool score;    /* score history[position] with n_top others; otherwise choose the token at
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
    void (*submit)(void *self, const struct step *step);
    float *(*wait)(void *self); /* [R][V] */
    void (*sample)(void *self, struct sample_job *jobs, int n);
    void (*close)(void *self); /* frees the port, not the engine */
};

#endif
