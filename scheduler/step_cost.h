/* step_cost: what a step of decodes takes, by its rows, learnt while serving. Speculation asks it
 * whether a further row is worth its time. No token depends on it.
 *
 * Engine thread only. */
#ifndef PENSTOCK_STEP_COST_H
#define PENSTOCK_STEP_COST_H

#include <stdbool.h>
#include <stdint.h>

/* Steps of more rows are neither learnt nor asked for. */
enum { MAX_COST_ROWS = 128 };

struct step_cost {
    float expected[MAX_COST_ROWS + 1]; /* before anything is known: relative to one row */
    float measured[MAX_COST_ROWS + 1]; /* ns, a moving average; 0: never was */
    float ns[MAX_COST_ROWS + 1];       /* what is believed */
    bool known;                        /* something was measured */
};

/* Begins with what such an engine takes as a rule. */
void step_cost_init(struct step_cost *cost, bool on_host);

/* A step of so many rows, all of sequences that decode, has taken so long. */
void step_cost_note(struct step_cost *cost, int rows, uint64_t ns);

/* Of a step of 1..MAX_COST_ROWS rows. */
static inline float step_cost_ns(const struct step_cost *cost, int rows) {
    return cost->ns[rows];
}

#endif
