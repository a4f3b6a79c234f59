#include "scheduler/plan/step_cost.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>

struct knot {
    int rows;
    float cost;
};

/* Measured on one thread with AVX-512 VNNI and Q4_1 weights: few rows are limited by the bytes of
 * the weights, more rows by products, and a 17th row starts another tile. */
static const struct knot host[] = {{1, 1.0f},   {2, 1.30f},  {4, 1.78f},  {8, 2.64f},
                                   {12, 3.41f}, {16, 4.01f}, {17, 5.76f}, {MAX_COST_ROWS, 28.0f}};
/* On a device the weights are read once for up to about a hundred rows. */
static const struct knot device[] = {{1, 1.0f}, {16, 1.1f}, {64, 1.4f}, {MAX_COST_ROWS, 2.0f}};

/* How much a step moves other row counts back to the expected form. */
static const float forgetting = 1.0f / 400;

/* The factor by which each step with prompts reduces the weight of older ones. */
static const double keeping = 0.98;

/* The deviation of steps with decodes and prompts from the expected time is averaged over about
 * averaged_steps steps. The 99% quantile is the mean plus this number of deviations. */
static const double averaged_steps = 64, deviations = 2.4;

/* Updates the estimates. Between two measured row counts the estimate has the expected form, scaled
 * to meet both. Outside of them it is scaled like the nearest. */
static void believe(struct step_cost *cost) {
    int below = 0;
    float scale_below = 0;
    for (int m = 1; m <= MAX_COST_ROWS + 1; m++) {
        bool end = m == MAX_COST_ROWS + 1;
        if (!end && cost->measured[m] == 0) continue;
        float scale = end ? scale_below : cost->measured[m] / cost->expected[m];
        if (below == 0) scale_below = scale;
        for (int i = below + 1; i < m; i++) {
            float share = (float)(i - below) / (float)(m - below);
            cost->ns[i] = cost->expected[i] * (scale_below + (scale - scale_below) * share);
        }
        if (!end) cost->ns[m] = cost->measured[m];
        below = m;
        scale_below = scale;
    }
}

/* Learns that a step took `times` the expected time. An outlier was interrupted, and counts only up
 * to a limit. */
static void note_ratio(struct prefill_cost *p, double times) {
    double apart = times - p->mean, far = 0.1 + 4 * sqrt(p->variance);
    if (fabs(apart) > far) apart = apart > 0 ? far : -far;
    p->mean += apart / averaged_steps;
    p->variance += (apart * apart - p->variance) / averaged_steps;
    double quantile = p->mean + deviations * sqrt(p->variance);
    p->quantile_99 = quantile < 1 ? 1 : quantile > 2 ? 2 : quantile;
}

void step_cost_init(struct step_cost *cost, bool on_host) {
    *cost = (struct step_cost){0};
    const struct knot *knot = on_host ? host : device;
    cost->expected[knot->rows] = knot->cost;
    for (; knot->rows < MAX_COST_ROWS; knot++) {
        float slope = (knot[1].cost - knot->cost) / (float)(knot[1].rows - knot->rows);
        for (int m = knot->rows; m <= knot[1].rows; m++)
            cost->expected[m] = knot->cost + slope * (float)(m - knot->rows);
    }
    for (int m = 1; m <= MAX_COST_ROWS; m++) cost->ns[m] = cost->expected[m];
    cost->prefill.mean = 1.1; /* an initial guess: most machines are shared */
    note_ratio(&cost->prefill, cost->prefill.mean);
}

/* Moves row counts that do not run for a long time back to the expected form, scaled like the
 * current step. Otherwise one slow step could make its row count, and all larger ones, too
 * expensive to be tried again. */
static void forget_others(struct step_cost *cost, int rows) {
    float scale = cost->measured[rows] / cost->expected[rows];
    for (int m = 1; m <= MAX_COST_ROWS; m++)
        if (cost->measured[m] > 0 && m != rows)
            cost->measured[m] += (cost->expected[m] * scale - cost->measured[m]) * forgetting;
}

/* A moving average over about eight steps. An interrupted step counts as at most twice the
 * estimate. The first step has no estimate. */
void step_cost_note(struct step_cost *cost, int rows, uint64_t ns) {
    assert(rows >= 1);
    if (rows > MAX_COST_ROWS || ns == 0) return;
    float *measured = &cost->measured[rows], now = (float)ns;
    if (cost->known && now > 2 * cost->ns[rows]) now = 2 * cost->ns[rows];
    *measured = *measured > 0 ? *measured + (now - *measured) / 8 : now;
    cost->known = true;
    forget_others(cost, rows);
    believe(cost);
}

/* ---- prompts -------------------------------------------------------------------------------- */

double step_cost_decodes_ns(const struct step_cost *cost, int rows) {
    assert(rows >= 0);
    if (!cost->known) return 0;
    if (rows <= MAX_COST_ROWS) return step_cost_ns(cost, rows > 0 ? rows : 1);
    return (double)cost->ns[MAX_COST_ROWS] * rows / MAX_COST_ROWS;
}

static double step_ns(const struct step_cost *cost, const struct step_shape *shape) {
    return step_cost_decodes_ns(cost, shape->decode_rows) +
           shape->prefill_rows * cost->prefill.per_row + shape->pairs * cost->prefill.per_pair;
}

/* Solves the sums for the two unknowns. If the contexts of all steps were similar, the pairs
 * explain nothing; the small term then keeps the time per pair near 0. */
static void step_cost_solve(struct prefill_cost *p) {
    double pairs2 = p->pairs2 * 1.001 + 1e-9;
    double determinant = p->rows2 * pairs2 - p->rows_pairs * p->rows_pairs;
    double per_pair = (p->rows2 * p->pairs_ns - p->rows_pairs * p->rows_ns) / determinant;
    p->per_pair = per_pair > 0 ? per_pair : 0;
    double per_row = (p->rows_ns - p->per_pair * p->rows_pairs) / p->rows2;
    p->per_row = per_row > 0 ? per_row : 0;
}

void step_cost_note_prefill(struct step_cost *cost, const struct step_shape *shape, uint64_t ns) {
    struct prefill_cost *p = &cost->prefill;
    double rows = shape->prefill_rows, took = (double)ns, expected = step_ns(cost, shape);
    assert(rows > 0 && shape->pairs >= 0);
    if (p->known && expected > 0) {
        if (shape->decode_rows > 0) note_ratio(p, took / expected);
        if (took > 2 * expected) took = 2 * expected; /* it was interrupted */
    }
    double added = took - step_cost_decodes_ns(cost, shape->decode_rows);
    if (added < 0) added = 0;
    p->rows2 = p->rows2 * keeping + rows * rows;
    p->rows_pairs = p->rows_pairs * keeping + rows * shape->pairs;
    p->pairs2 = p->pairs2 * keeping + shape->pairs * shape->pairs;
    p->rows_ns = p->rows_ns * keeping + rows * added;
    p->pairs_ns = p->pairs_ns * keeping + shape->pairs * added;
    p->known = true;
    step_cost_solve(p);
}

int step_cost_rows_in(const struct step_cost *cost, const struct step_shape *shape, int from,
                      float target_ns) {
    const struct prefill_cost *p = &cost->prefill;
    if (!p->known) return INT_MAX;
    double left = target_ns / p->quantile_99 - step_ns(cost, shape);
    double each = p->per_row + from * p->per_pair;
    if (left <= 0) return 0;
    return left < each * INT_MAX ? (int)(left / each) : INT_MAX;
}

/* ---- queues --------------------------------------------------------------------------------- */

void step_cost_queue(const struct step_cost *cost, int decode_rows, int rows,
                     struct queue_cost *out) {
    assert(decode_rows >= 0 && rows >= 1);
    *out = (struct queue_cost){.per_row = cost->prefill.known ? cost->prefill.per_row : 0,
                               .per_token = cost->known ? (double)cost->ns[1] : 0,
                               .decodes =
                                   decode_rows > 0 ? step_cost_decodes_ns(cost, decode_rows) : 0,
                               .rows = rows};
}

double queue_cost_ns(const struct queue_cost *cost, double rows, int tokens) {
    double steps = cost->decodes > 0 ? ceil(rows / cost->rows) : 0;
    return rows * cost->per_row + steps * cost->decodes + tokens * cost->per_token;
}
