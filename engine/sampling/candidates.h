/* candidates: ids that may be chosen and their weights, put in order. Internal to engine/. */
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

/* Puts the first n in the order of falling weights; equal ones stay in the order they have. */
void candidates_sort(struct candidates *candidates, int n);

#endif
