/* step_cost: what a step takes, learnt while serving: that of decodes by their rows, and what rows
 * of prompts add to it. Speculation asks whether a further row is worth its time, and a plan with
 * an ITL target how many rows of prompts there is time for. No token depends on it.
 *
 * Engine thread only. */
#ifndef PENSTOCK_STEP_COST_H
#define PENSTOCK_STEP_COST_H

#include <stdbool.h>
#include <stdint.h>

/* Steps of more rows are neither learnt nor asked for. */
enum { MAX_COST_ROWS = 128 };

/* What a step consists of. */
struct step_shape {
    int decode_rows;  /* of sequences that decode, with their drafts */
    int prefill_rows; /* of prompts */
    double pairs;     /* of a prompt's row and a position before it */
};

/* What a prompt's row takes: per_row + position * per_pair ns, as least squares over the last steps
 * have it, of which each older one counts a little less. */
struct prefill_cost {
    double rows2, rows_pairs, pairs2, rows_ns, pairs_ns; /* sums of products over those steps */
    double per_row, per_pair;
    double mean, variance; /* of what steps with decodes took, as a multiple of what was expected */
    double late;           /* the multiple that 99 of 100 such steps keep below */
    bool known;
};

struct step_cost {
    float expected[MAX_COST_ROWS + 1]; /* before anything is known: relative to one row */
    float measured[MAX_COST_ROWS + 1]; /* ns, a moving average; 0: never was */
    float ns[MAX_COST_ROWS + 1];       /* what is believed */
    bool known;                        /* something was measured */
    struct prefill_cost prefill;
};

/* Begins with what such an engine takes as a rule. */
void step_cost_init(struct step_cost *cost, bool on_host);

/* A step of so many rows, all of sequences that decode, has taken so long. */
void step_cost_note(struct step_cost *cost, int rows, uint64_t ns);

/* A step with rows of prompts has taken so long. */
void step_cost_note_prefill(struct step_cost *cost, const struct step_shape *shape, uint64_t ns);

/* The rows of a prompt from position `from` on that may join a step of so many decodes, beside what
 * has joined it already, so that 99 of 100 such steps end in target_ns; may be none. Before steps
 * with prompts were measured: INT_MAX. */
int step_cost_rows_in(const struct step_cost *cost, const struct step_shape *shape, int from,
                      float target_ns);

/* Of a step of 1..MAX_COST_ROWS rows. */
static inline float step_cost_ns(const struct step_cost *cost, int rows) {
    return cost->ns[rows];
}

#endif
