/* step_cost: the time of a step, learnt while serving: that of decodes by their rows, and the time
 * that prompt rows add. Speculation uses it to decide if another row is worth its time, and a plan
 * with an ITL target to limit its prompt rows. Tokens do not depend on it.
 *
 * Engine thread only. */
#ifndef PENSTOCK_STEP_COST_H
#define PENSTOCK_STEP_COST_H

#include <stdbool.h>
#include <stdint.h>

/* Steps with more rows are neither learnt nor estimated. */
enum { MAX_COST_ROWS = 128 };

/* The contents of a step. */
struct step_shape {
    int decode_rows;  /* of sequences that decode, including their drafts */
    int prefill_rows; /* of prompts */
    double pairs;     /* pairs of a prompt row and a position before it */
};

/* The time of a prompt row: per_row + position * per_pair ns, by least squares over the last steps.
 * Older steps have less weight. */
struct prefill_cost {
    double rows2, rows_pairs, pairs2, rows_ns, pairs_ns; /* sums of products over those steps */
    double per_row, per_pair;
    double mean, variance; /* of the times of steps with decodes, divided by the expected times */
    double quantile_99;    /* the 99% quantile of that ratio */
    bool known;
};

struct step_cost {
    float expected[MAX_COST_ROWS + 1]; /* initial form, relative to one row */
    float measured[MAX_COST_ROWS + 1]; /* ns, a moving average; 0: not measured */
    float ns[MAX_COST_ROWS + 1];       /* ns, the estimate */
    bool known;                        /* something was measured */
    struct prefill_cost prefill;
};

/* Sets the typical costs of such an engine. */
void step_cost_init(struct step_cost *cost, bool on_host);

/* Learns the time of a step whose rows are all of sequences that decode. */
void step_cost_note(struct step_cost *cost, int rows, uint64_t ns);

/* Learns the time of a step with prompt rows. */
void step_cost_note_prefill(struct step_cost *cost, const struct step_shape *shape, uint64_t ns);

/* Returns the ns of the decodes of a step with this many of their rows; 0: not known. Without
 * decodes, reading the weights takes as long as one. */
double step_cost_decodes_ns(const struct step_cost *cost, int rows);

/* Returns how many rows of a prompt from position `from` on may be added to a step of this shape,
 * so that the 99% quantile of its time stays below target_ns; may be 0. Returns INT_MAX before
 * steps with prompts were measured. */
int step_cost_rows_in(const struct step_cost *cost, const struct step_shape *shape, int from,
                      float target_ns);

/* The cost of prompts that wait, for estimates beside the engine thread. Zero: not known. */
struct queue_cost {
    double per_row;   /* ns of a prompt row */
    double per_token; /* ns of a step with one decode */
    double decodes;   /* ns of the decodes in a step that computes prompts; 0: without decodes */
    int rows;         /* prompt rows in such a step */
};

/* Sets the cost while decode_rows rows of each step belong to sequences that decode, and `rows` to
 * prompts. */
void step_cost_queue(const struct step_cost *cost, int decode_rows, int rows,
                     struct queue_cost *out);

/* Returns the ns of computing prompt rows, and then tokens one by one. */
double queue_cost_ns(const struct queue_cost *cost, double rows, int tokens);

/* Returns the estimate for a step of 1..MAX_COST_ROWS rows. */
static inline float step_cost_ns(const struct step_cost *cost, int rows) {
    return cost->ns[rows];
}

#endif
