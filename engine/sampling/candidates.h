/* candidates: ids that may be chosen and their weights, sorted. Internal to engine/. */
#ifndef PENSTOCK_ENGINE_CANDIDATES_H
#define PENSTOCK_ENGINE_CANDIDATES_H

#include <stdint.h>

struct candidate {
    float weight; /* 0 < weight <= 1 */
    int32_t id;
};

struct candidates {
    struct candidate *best;  /* [V] */
    struct candidate *spare; /* [V] while they are put in order */
};

void candidates_init(struct candidates *candidates, int V);
void candidates_free(struct candidates *candidates);

/* Sorts the first n by falling weight; equal ones keep their order. */
void candidates_sort(struct candidates *candidates, int n);

/* Returns the length of the shortest run of the n best whose sum of shares reaches `wanted`, or n;
 * *sum is the sum of the run. */
int candidates_reaching(const struct candidate *best, int n, uint64_t wanted, uint64_t *sum);

/* Returns the first candidate at which the running sum of shares reaches `wanted`. The sum of all
 * must reach it. */
const struct candidate *candidates_pick(const struct candidate *best, uint64_t wanted);

#endif
