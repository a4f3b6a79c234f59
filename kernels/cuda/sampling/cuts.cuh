/* The rules that need sums over the whole row to select ids: engine/sampling/cuts.c on a device,
 * with the same bits. Partial sums are integers, so their order does not matter. */
#ifndef PENSTOCK_CUDA_SAMPLE_CUTS_CUH
#define PENSTOCK_CUDA_SAMPLE_CUTS_CUH

#include "kernels/cuda/sampling/select.cuh"

/* Ranks by the weight, exp((logit - max) / temperature). Close logits may have equal or swapped
 * weights; the order is that of the weights. An id counts if its logit is at least `least`, its
 * weight is above 0 and at least `min_weight`, and its exponent is within `reach` of `center`. */
struct by_weight {
    float max, inverse, min_weight;
    float least = -INFINITY, center = 0, reach = INFINITY;
    __device__ __forceinline__ float exponent(float logit) const {
        return (logit - max) * inverse;
    }
    __device__ __forceinline__ float distance(float logit) const {
        return fabsf(exponent(logit) - center);
    }
    __device__ __forceinline__ unsigned rank(float logit) const {
        const float weight = weight_of(exponent(logit));
        const bool kept = weight > 0.0f && weight >= min_weight && logit >= least;
        return kept && distance(logit) <= reach ? rank_of_weight(weight) : NO_RANK;
    }
    __device__ __forceinline__ uint64 share(unsigned rank) const {
        return share_of(weight_of_rank(rank));
    }
};

/* The standard deviation of the finite logits. */
template <int THREADS, int N>
__device__ double deviation(const workspace<THREADS> &w, const struct logit_row &row, float max) {
    uint64 n = 0, sum = 0, squares = 0;
    for_ids<THREADS, N>(row, 0, row.V, [&](int, float logit) {
        if (!(logit > -INFINITY)) return;
        const float below = max - logit;
        const double d = (double)(below < SIGMA_REACH ? below : SIGMA_REACH);
        n += 1;
        sum += __double2ull_rn(d * SIGMA_UNITS);
        squares += __double2ull_rn(d * d * SIGMA_SQUARE_UNITS);
    });
    n = block_total<THREADS>(w, n);
    sum = block_total<THREADS>(w, sum);
    squares = block_total<THREADS>(w, squares);
    const double mean = (double)sum / SIGMA_UNITS / (double)n;
    const double variance = (double)squares / SIGMA_SQUARE_UNITS / (double)n - mean * mean;
    return variance > 0 ? sqrt(variance) : 0;
}

/* Over the counting ids: the sum of their shares, and the sum of weight times -exponent. */
struct mass {
    uint64 total, energy;
    __device__ __forceinline__ double mean_exponent() const {
        return -((double)energy / (double)total);
    }
};

template <int THREADS, int N>
__device__ struct mass mass_kept(const workspace<THREADS> &w, const struct logit_row &row,
                                 const struct by_weight &ranking) {
    struct mass own = {0, 0};
    for_ids<THREADS, N>(row, 0, row.V, [&](int, float logit) {
        const unsigned rank = ranking.rank(logit);
        if (rank == NO_RANK) return;
        own.total += ranking.share(rank);
        own.energy += share_of(weight_of_rank(rank) * -ranking.exponent(logit));
    });
    own.total = block_total<THREADS>(w, own.total);
    own.energy = block_total<THREADS>(w, own.energy);
    return own;
}

/* The smallest probability that eta_cutoff keeps: min(eta, sqrt(eta) exp(-entropy)). */
__device__ inline double eta_floor(float eta, const struct mass &mass) {
    const double entropy = log_positive((double)mass.total * SHARE_UNIT) - mass.mean_exponent();
    const float negative = (float)-entropy;
    const double least = sqrt((double)eta) * (double)weight_of(negative > 0 ? 0 : negative);
    return least < (double)eta ? least : (double)eta;
}

/* The weight of an id with this probability; at most the largest weight. */
__device__ inline float weight_at(double probability, const struct mass &mass) {
    const double weight = probability * ((double)mass.total * SHARE_UNIT);
    return weight < 1 ? (float)weight : 1;
}

/* The smallest distance from the center within which the shares reach `wanted`, found digit by
 * digit. All shares together reach it. Distances are positive, so the order of their bits is their
 * order. */
template <int THREADS, int N>
__device__ float reach_of(const workspace<THREADS> &w, const struct logit_row &row,
                          const struct by_weight &ranking, uint64 wanted) {
    unsigned known = 0;
    for (int shift = 32, next; shift > 0; shift = next) {
        next = shift > w.DIGIT_BITS ? shift - w.DIGIT_BITS : 0;
        const unsigned mask = (1u << (shift - next)) - 1;
        clear_histogram<THREADS>(w);
        __syncthreads();
        for_ids<THREADS, N>(row, 0, row.V, [&](int, float logit) {
            const unsigned rank = ranking.rank(logit);
            const unsigned bits = __float_as_uint(ranking.distance(logit));
            if (rank == NO_RANK || (uint64)bits >> shift != known) return;
            atomicAdd(&w.count[bits >> next & mask], 1u);
            atomicAdd(&w.sum[bits >> next & mask], ranking.share(rank));
        });
        __syncthreads();
        if (threadIdx.x < WARP) find_crossing<THREADS>(w, true, wanted);
        __syncthreads();
        known = known << (shift - next) | (unsigned)w.crossing->digit;
        wanted -= w.crossing->before.sum;
    }
    return __uint_as_float(known);
}

/* Mirostat's mu after drawing a token with `share` of `total`. */
constexpr double BIT = 0.69314718055994531; /* log 2 */
__device__ inline float mirostat_next(const struct sampling &how, float mu, uint64 share,
                                      uint64 total) {
    const double surprise = (log_positive((double)total) - log_positive((double)share)) / BIT;
    return (float)((double)mu - (double)how.mirostat_eta * (surprise - (double)how.mirostat_tau));
}

/* sampling_has_cuts of kernels/sampling.h. */
__device__ inline bool has_cuts(const struct sampling &how) {
    return how.top_n_sigma > 0 || how.epsilon_cutoff > 0 || how.eta_cutoff > 0 ||
           (how.typical_p > 0 && how.typical_p < 1) || how.xtc_probability > 0 ||
           how.mirostat_tau > 0;
}

/* Builds the ranking of a row by applying the rules that need the whole row, one after the other.
 */
template <int THREADS, int N>
__device__ struct by_weight cut(const workspace<THREADS> &w, const struct logit_row &row,
                                const struct sampling &how, float max, float mu) {
    struct by_weight kept = {max, 1.0f / how.temperature, 0};
    const struct mass all = mass_kept<THREADS, N>(w, row, kept);
    kept.min_weight = fmaxf(how.min_p, weight_at((double)how.epsilon_cutoff, all));
    if (how.eta_cutoff > 0)
        kept.min_weight = fmaxf(kept.min_weight, weight_at(eta_floor(how.eta_cutoff, all), all));
    if (how.mirostat_tau > 0) {
        const double exponent = (double)mu * -BIT;
        const float power = weight_of(exponent < 0 ? (float)exponent : 0.0f);
        kept.min_weight = fmaxf(kept.min_weight, weight_at((double)power, all));
    }
    if (how.top_n_sigma > 0) {
        const double sigma = deviation<THREADS, N>(w, row, max);
        kept.least = (float)((double)max - (double)how.top_n_sigma * sigma);
    }
    if (how.typical_p > 0 && how.typical_p < 1) {
        const struct mass left = mass_kept<THREADS, N>(w, row, kept);
        const double wanted = ceil((double)how.typical_p * (double)left.total);
        kept.center = (float)left.mean_exponent();
        const uint64 share = wanted < 1 ? 1 : (uint64)wanted;
        kept.reach = reach_of<THREADS, N>(w, row, kept, share < left.total ? share : left.total);
    }
    return kept;
}

#endif
