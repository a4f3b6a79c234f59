/* These rules need sums over the whole row. Each summand is rounded to an integer number of units,
 * like shares (kernels/sampling.h), so a sum is exact and a GPU's is equal in any order of
 * addition. The few operations on sums use doubles. */
#include "engine/sampling/cuts.h"

#include <assert.h>
#include <math.h>

#include "engine/sampling/math.h"

/* ---- top_n_sigma (Tang et al. 2024) --------------------------------------------------------- */

/* The standard deviation of the finite logits. Distances from the maximum are limited to
 * SIGMA_REACH, so that sums of 2^19 of them fit in 64 bits. */
static double deviation(const float *logits, int V, float max) {
    uint64_t n = 0, sum = 0, squares = 0;
    for (int i = 0; i < V; i++) {
        if (!(logits[i] > -INFINITY)) continue;
        float below = max - logits[i];
        double d = (double)(below < SIGMA_REACH ? below : SIGMA_REACH);
        n++;
        sum += (uint64_t)rint(d * SIGMA_UNITS);
        squares += (uint64_t)rint(d * d * SIGMA_SQUARE_UNITS);
    }
    assert(n > 0);
    double mean = (double)sum / SIGMA_UNITS / (double)n;
    double variance = (double)squares / SIGMA_SQUARE_UNITS / (double)n - mean * mean;
    return variance > 0 ? sqrt(variance) : 0;
}

/* ---- epsilon and eta (Hewitt et al. 2022) --------------------------------------------------- */

/* For a set of ids: the sum of their shares, and the sum of weight times -exponent in the same
 * unit. */
struct cut_mass {
    uint64_t total, energy;
};

/* The mean exponent. The entropy is the logarithm of the total minus this. */
static double mean_exponent(const struct cut_mass *mass) {
    return -((double)mass->energy / (double)mass->total);
}

/* exp(x), or 1 if x is above 0, with the bits of weights. */
static double exponential(const struct logit_ops *ops, double x) {
    float exponent = x < 0 ? (float)x : 0, power;
    ops->weights(&power, &exponent, 1, 0, 1);
    return (double)power;
}

/* The smallest probability that eta_cutoff keeps: min(eta, sqrt(eta) exp(-entropy)). */
static double eta_floor(const struct logit_ops *ops, float eta, const struct cut_mass *mass) {
    double entropy = log_positive((double)mass->total * SHARE_UNIT) - mean_exponent(mass);
    double floor = sqrt((double)eta) * exponential(ops, -entropy);
    return floor < (double)eta ? floor : (double)eta;
}

/* The weight of an id with this probability; at most the largest weight. */
static float weight_at(double probability, const struct cut_mass *mass) {
    double weight = probability * ((double)mass->total * SHARE_UNIT);
    return weight < 1 ? (float)weight : 1;
}

/* ---- typical (Meister et al. 2022) ---------------------------------------------------------- */

/* The smallest distance within which the shares of the ids with weights reach `wanted`. All shares
 * together reach it. Distances are positive, so their bits sort like the distances; each round
 * finds the next 11 bits. */
static float reach_of(const float *weight, const float *distance, int V, uint64_t wanted) {
    enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
    uint32_t known = 0;
    for (int shift = 22; shift >= 0; shift -= DIGIT_BITS) {
        uint64_t sum[DIGITS] = {0};
        for (int i = 0; i < V; i++) {
            uint32_t bits;
            memcpy(&bits, &distance[i], sizeof bits);
            bool begins_so = (uint64_t)bits >> (shift + DIGIT_BITS) == known;
            if (begins_so) sum[bits >> shift & (DIGITS - 1)] += weight_share(weight[i]);
        }
        uint32_t digit = 0;
        for (; sum[digit] < wanted; digit++) {
            wanted -= sum[digit];
            assert(digit + 1 < DIGITS);
        }
        known = known << DIGIT_BITS | digit;
    }
    float reach;
    memcpy(&reach, &known, sizeof reach);
    return reach;
}

/* ---- mirostat (Basu et al. 2021) ------------------------------------------------------------ */

#define BIT 0.69314718055994531 /* log 2 */

float mirostat_next(const struct sampling *s, float mu, uint64_t share, uint64_t total) {
    double surprise = (log_positive((double)total) - log_positive((double)share)) / BIT;
    return (float)((double)mu - (double)s->mirostat_eta * (surprise - (double)s->mirostat_tau));
}

/* ---- all cuts ------------------------------------------------------------------------------- */

/* The mass of the ids that the cuts keep. The weights of other ids become 0. */
static struct cut_mass mass_kept(const struct cuts *cuts, const float *logits, int V, float max,
                                 float inverse, float *weight) {
    struct cut_mass mass = {0, 0};
    for (int i = 0; i < V; i++) {
        float exponent = (logits[i] - max) * inverse;
        if (!cuts_keep(cuts, logits[i], exponent, weight[i])) {
            weight[i] = 0;
            continue;
        }
        mass.total += weight_share(weight[i]);
        mass.energy += weight_share(weight[i] * -exponent);
    }
    assert(mass.total > 0);
    return mass;
}

static void keep_typical(struct cuts *cuts, float part, const float *logits, int V, float max,
                         float inverse, float *weight, float *distance) {
    struct cut_mass kept = mass_kept(cuts, logits, V, max, inverse, weight);
    cuts->center = (float)mean_exponent(&kept);
    for (int i = 0; i < V; i++) distance[i] = fabsf((logits[i] - max) * inverse - cuts->center);
    uint64_t wanted = (uint64_t)ceil((double)part * (double)kept.total);
    if (wanted > kept.total) wanted = kept.total;
    if (wanted == 0) wanted = 1;
    cuts->reach = reach_of(weight, distance, V, wanted);
}

struct cuts cuts_of(const struct sampling *s, const struct logit_ops *ops, const float *logits,
                    int V, float max, float mu, float *weight, float *distance) {
    struct cuts cuts = {-INFINITY, s->min_p, 0, INFINITY};
    bool is_typical = s->typical_p > 0 && s->typical_p < 1;
    bool by_probability = s->epsilon_cutoff > 0 || s->eta_cutoff > 0 || s->mirostat_tau > 0;
    assert(V > 0 && isfinite(max) && s->temperature > 0);
    if (s->top_n_sigma > 0)
        cuts.least = (float)((double)max - (double)s->top_n_sigma * deviation(logits, V, max));
    if (!is_typical && !by_probability) return cuts;
    float inverse = 1.0f / s->temperature;
    ops->weights(weight, logits, V, max, inverse);
    if (by_probability) {
        struct cuts none = {-INFINITY, 0, 0, INFINITY};
        struct cut_mass all = mass_kept(&none, logits, V, max, inverse, weight);
        float epsilon = weight_at((double)s->epsilon_cutoff, &all);
        float eta = s->eta_cutoff > 0 ? weight_at(eta_floor(ops, s->eta_cutoff, &all), &all) : 0;
        cuts.min_weight = fmaxf(cuts.min_weight, fmaxf(epsilon, eta));
        if (s->mirostat_tau > 0)
            cuts.min_weight =
                fmaxf(cuts.min_weight, weight_at(exponential(ops, (double)mu * -BIT), &all));
    }
    if (is_typical) keep_typical(&cuts, s->typical_p, logits, V, max, inverse, weight, distance);
    return cuts;
}
