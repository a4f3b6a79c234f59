/* cuts: the rules of step 5 that need the whole row to select ids: top_n_sigma, epsilon_cutoff,
 * eta_cutoff, typical_p and mirostat. Internal to engine/.
 *
 * Each rule keeps the ids between two bounds, so all rules together are four numbers. Only
 * typical_p has an upper bound: the likeliest tokens may be less surprising than typical ones. A
 * rule that is off has a bound that all ids meet. */
#ifndef PENSTOCK_ENGINE_CUTS_H
#define PENSTOCK_ENGINE_CUTS_H

#include <math.h>

#include "kernels/sampling.h"

/* An id is kept if its logit is at least `least`, its weight e is above 0 and at least
 * `min_weight`, and its exponent x = (logit - max) / temperature is within `reach` of `center`. */
struct cuts {
    float least, min_weight, center, reach;
};

static inline bool cuts_keep(const struct cuts *cuts, float logit, float exponent, float weight) {
    return weight > 0 && weight >= cuts->min_weight && logit >= cuts->least &&
           fabsf(exponent - cuts->center) <= cuts->reach;
}

/* The cuts for logits[V], whose maximum `max` is a number; `mu` is mirostat's, in bits. weight[V]
 * and distance[V] are scratch. At least one id is kept. */
struct cuts cuts_of(const struct sampling *s, const struct logit_ops *ops, const float *logits,
                    int V, float max, float mu, float *weight, float *distance);

/* Mirostat's mu after drawing a token with `share` of `total` (Basu et al. 2021, version 2). */
float mirostat_next(const struct sampling *s, float mu, uint64_t share, uint64_t total);

#endif
