#include "scheduler/step_cost.h"

#include <assert.h>
#include <stddef.h>

struct knot {
    int rows;
    float cost;
};

/* Measured on one thread with AVX-512 VNNI and Q4_1 weights: few rows are bound by the weights'
 * bytes, more by products, and a 17th row begins another tile. */
static const struct knot host[] = {{1, 1.0f},   {2, 1.30f},  {4, 1.78f},  {8, 2.64f},
                                   {12, 3.41f}, {16, 4.01f}, {17, 5.76f}, {MAX_COST_ROWS, 28.0f}};
/* On a device weights are read once for up to about a hundred rows. */
static const struct knot device[] = {{1, 1.0f}, {16, 1.1f}, {64, 1.4f}, {MAX_COST_ROWS, 2.0f}};

/* How much of the way back to the expected form a step of another row count brings. */
static const float forgetting = 1.0f / 400;

/* Between two row counts that were measured, what is believed keeps to the expected form, scaled
 * to meet both; outside of them it is scaled as the nearest. */
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
}

/* Row counts that are not run for long come back to the expected form, scaled as what is run: else
 * one slow step could make its row count, and all above it, too dear ever to be tried again. */
static void forget_others(struct step_cost *cost, int rows) {
    float scale = cost->measured[rows] / cost->expected[rows];
    for (int m = 1; m <= MAX_COST_ROWS; m++)
        if (cost->measured[m] > 0 && m != rows)
            cost->measured[m] += (cost->expected[m] * scale - cost->measured[m]) * forgetting;
}

/* A moving average over about eight steps. One that was interrupted counts as twice as long at
 * most, as what was measured or else believed; about the very first nothing is believed. */
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
