/* cuts: which ids the rules of step 5 keep that need the whole row: top_n_sigma, epsilon_cutoff,
 * eta_cutoff, typical_p and mirostat. Internal to engine/.
 *
 * Each rule keeps what stands between two bounds, so together they are four numbers: typical_p
 * alone bounds from above too, as the likeliest tokens may be less surprising than is typical.
 * Without a rule its bound is one that all ids meet. */
#ifndef PENSTOCK_ENGINE_CUTS_H
#define PENSTOCK_ENGINE_CUTS_H

#include <math.h>

#include "kernels/kernels.h"

/* An id is kept if its logit is at least `least`, its weight e above 0 and at least `min_weight`,
 * and its exponent x = (logit - max) / temperature within `reach` of `center`. */
struct cuts {
    float least, min_weight, center, reach;
};

static inline bool cuts_keep(const struct cuts *cuts, float logit, float exponent, float weight) {
    return weight > 0 && weight >= cuts->min_weight && logit >= cuts->least &&
           fabsf(exponent - cuts->center) <= cuts->reach;
}

/* The cuts for logits[V], whose largest is `max`, a number; `mu` is mirostat's, in bits. weight[V]
 * and distance[V] are scratch. One id is kept at least. */
struct cuts cuts_of(const struct sampling *s, const struct logit_ops *ops, const float *logits,
                    int V, float max, float mu, float *weight, float *distance);

/* Mirostat's mu after a token with `share` of `total` was drawn (Basu et al. 2021, version 2). */
float mirostat_next(const struct sampling *s, float mu, uint64_t share, uint64_t total);

#endif
