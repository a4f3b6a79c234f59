/* Sampling: one row of logits in, one token out.
 *
 * The order of operations is part of the contract. It is vLLM's order, so users see the results
 * that they expect:
 *   1. logprobs, if requested, of the model's own distribution: log-softmax of the untouched
 *      logits
 *   2. logit_bias is added. Banned ids (end tokens before min_tokens), ids that are not allowed,
 *      ids outside the mask (of a grammar) and the last tokens of bad words that are due become
 *      -inf. If a mask leaves no id, no token is chosen: the id is -1
 *   3. repetition penalty over prompt and output: l > 0 ? l / r : l * r   (Keskar et al. 2019)
 *      then l -= frequency * count + presence * (count > 0) over the output; with penalty_last_n
 *      all three over the last penalty_last_n tokens of both
 *      then DRY: if an id continues a repeat, l -= multiplier * base^(its length - allowed)
 *      then ids that would complete a repeated n-gram become -inf
 *   4. temperature 0, or too small to divide by: the largest logit; ties go to the lowest id
 *   5. otherwise e = exp((l - max) / temperature), p = e / (the sum of all e). Each rule keeps
 *      some candidates, at least one:
 *        top_n_sigma: those with l >= max - n * (the standard deviation of the finite logits)
 *        min_p: those with e >= min_p (the best one has e = 1)
 *        epsilon_cutoff: those with p >= epsilon
 *        eta_cutoff: those with p >= min(eta, sqrt(eta) * exp(-entropy of p))
 *        mirostat: those with p >= 2^-mu
 *        typical_p: among the rest, those whose -log p is nearest to the entropy, until their sum
 *          reaches typical_p of the total; including all that are as near as the last
 *        top_k: the k largest, ties to the lower id
 *        top_p: in descending order the shortest run whose sum reaches top_p of the rest
 *        xtc: with probability xtc_probability, among those with at least xtc_threshold of the
 *          rest only the last in that order, and all that follow it
 *   6. one uniform number u from Philox, keyed by the seed, at counter (position, choice), picks
 *      from the running sum: the first id at which the sum is above u times the total of the rest,
 *      in the order of ids or, after the cuts of step 5, by falling e
 *   7. mirostat: with s = -log2 of the token's part of that total, mu -= eta * (s - tau) for the
 *      next token of the sequence; the first mu is 2 tau
 *
 * No function of libm is called: exp and log consist of additions and products in a fixed order, so
 * every machine gives the same token. Sums are over shares: each e is rounded to a multiple of
 * 2^-44 (weight_share), so sums are sums of integers and equal on a GPU, in any order. An id with
 * less than 2^-45 of the best is never drawn.
 *
 * DESIGN. A vocabulary is large and the set of candidates is small, so the row is read as few times
 * as possible, and only by the vector functions of kernels.h. The first reading stores the maxima
 * of its columns. If k maxima reach a logit, at least k logits of the row reach it. So a few counts
 * over the maxima, a sixteenth of the row, give a bound that the k best logits reach. The ids that
 * reach it are collected from the blocks whose maxima do, and only these are weighed and sorted.
 * Step 5 orders by e, which is rounded: close logits may have equal or swapped e. So bounds are
 * lowered by SLACK, several times the maximum rounding error, and the final order is that of e.
 *
 * A mask usually leaves either a few ids or nearly all. A few ids are gathered and sampled as a
 * separate row: they keep their order, the others have share 0, and sums are integers, so the same
 * id is drawn. Otherwise the mask is applied to the row while its maxima are read.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampling/sampling.h"

#include "engine/sampling/candidates.h"
#include "engine/sampling/changes.h"
#include "engine/sampling/cuts.h"
#include "engine/sampling/math.h"

/* The margin of bounds on logits, in units of the temperature. It covers two errors. The relative
 * error of e is below 3e-7, so exponents that differ by less than 6e-7 may give e in the wrong
 * order. The exponent itself is rounded twice, which adds at most 2e-5 if it is -87, the least
 * exponent whose e is not 0. */
#define SLACK 1e-4
#define LEAST_EXPONENT (-87.0)

/* If a mask leaves at most this many ids, they are sampled as a separate row. */
enum { MAX_FEW = 2048 };

struct sampler {
    int V, n_maxima;
    const struct logit_ops *ops;
    float *maxima;  /* [n_maxima] of the last row read */
    float *weight;  /* [V] e of every id */
    float *raw;     /* [V] the original logits while they are changed; or the masked logits */
    int32_t *place; /* [V] index of an id among the changes; zero between calls */
    struct logit_change *change; /* [V] the changes by the history */
    float *value;                /* [V] logits collected from the row, ... */
    int32_t *id;                 /* [V] ... and their ids */
    float *few;                  /* [MAX_FEW] logits that a mask leaves, ... */
    int32_t *few_id;             /* [MAX_FEW] ... and their ids */
    struct candidates candidates;
};

struct sampler *sampler_new(int V, const char *path) {
    struct sampler *sampler = mem_calloc(1, sizeof *sampler);
    sampler->V = V;
    sampler->n_maxima = (int)logit_maxima(V);
    sampler->ops = backend_cpu_logit_ops(path);
    sampler->maxima = mem_calloc((size_t)sampler->n_maxima, sizeof *sampler->maxima);
    sampler->weight = mem_calloc((size_t)V, sizeof *sampler->weight);
    sampler->raw = mem_calloc((size_t)V, sizeof *sampler->raw);
    sampler->place = mem_calloc((size_t)V, sizeof *sampler->place);
    sampler->change = mem_calloc((size_t)V, sizeof *sampler->change);
    sampler->value = mem_calloc((size_t)V, sizeof *sampler->value);
    sampler->id = mem_calloc((size_t)V, sizeof *sampler->id);
    sampler->few = mem_calloc(MAX_FEW, sizeof *sampler->few);
    sampler->few_id = mem_calloc(MAX_FEW, sizeof *sampler->few_id);
    candidates_init(&sampler->candidates, V);
    return sampler;
}

void sampler_free(struct sampler *sampler) {
    if (!sampler) return;
    mem_free(sampler->maxima);
    mem_free(sampler->weight);
    mem_free(sampler->raw);
    mem_free(sampler->place);
    mem_free(sampler->change);
    mem_free(sampler->value);
    mem_free(sampler->id);
    mem_free(sampler->few);
    mem_free(sampler->few_id);
    candidates_free(&sampler->candidates);
    mem_free(sampler);
}

/* ---- a row ---------------------------------------------------------------------------------- */

/* A row of logits whose maxima are in the sampler. */
struct row {
    const float *logits;
    float max;
    uint64_t total; /* sum of the shares at temperature 1 while the sampler has the weights; or 0 */
};

static struct row read_row(struct sampler *sampler, const float *logits) {
    return (struct row){logits, sampler->ops->maxima(sampler->maxima, logits, sampler->V), 0};
}

/* Applies a mask to the logits. The result is `to`, which may be the logits. */
static struct row mask_row(struct sampler *sampler, const uint32_t *mask, const float *logits,
                           float *to) {
    float max = sampler->ops->mask(to, sampler->maxima, logits, mask, sampler->V);
    return (struct row){to, max, 0};
}

/* Collects at most `most` ids whose logits reach the bound, in their order. Returns their number.
 */
static int collect(struct sampler *sampler, const struct row *row, float bound, int most) {
    return sampler->ops->collect(sampler->value, sampler->id, most, row->logits, sampler->V,
                                 sampler->maxima, bound);
}

/* The lowest id with the largest logit. For a row of NaN it returns id 0, so that the request
 * continues. */
static int32_t best_id(struct sampler *sampler, const struct row *row) {
    return collect(sampler, row, row->max, 1) > 0 ? sampler->id[0] : 0;
}

/* Returns a bound that at least k logits reach, and few more than k; -inf if there are fewer than
 * k. If possible it counts only the maxima, because each belongs to a different logit. */
static float bound_of_best(const struct sampler *sampler, const struct row *row, int k) {
    bool few = k <= sampler->n_maxima / 2;
    const float *x = few ? sampler->maxima : row->logits;
    int n = few ? sampler->n_maxima : sampler->V, count;
    float low, high = row->max;
    if (sampler->ops->count_above(x, n, -INFINITY) < k) return -INFINITY;
    for (float step = 1;; step *= 2) {
        low = row->max - step;
        count = sampler->ops->count_above(x, n, low);
        if (count >= k) break;
        if (step > FLT_MAX / 4) return -INFINITY;
        high = low;
    }
    for (int i = 0; i < 16 && count > k + k / 4 + 8; i++) {
        float middle = low + (high - low) / 2;
        int above = sampler->ops->count_above(x, n, middle);
        if (above >= k) {
            low = middle;
            count = above;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- logprobs ------------------------------------------------------------------------------- */

/* Sorts the n best of the collected ids by insertion: n is at most 64, and ties stay in the order
 * of their ids. */
static int best_of_collected(const struct sampler *sampler, int collected, int n,
                             struct token_logprob *top) {
    int found = 0;
    for (int i = 0; i < collected; i++) {
        float value = sampler->value[i];
        if (found == n && !(value > top[n - 1].logprob)) continue;
        int at = found < n ? found++ : n - 1;
        for (; at > 0 && value > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (struct token_logprob){sampler->id[i], value};
    }
    return found;
}

/* The log of the sum of a row's exponentials. It is a double because a logprob is the small
 * difference of two large numbers and should be rounded only once. */
static double log_sum(struct sampler *sampler, struct row *row) {
    row->total = sampler->ops->weights(sampler->weight, row->logits, sampler->V, row->max, 1.0f);
    return (double)row->max + log_positive((double)row->total * SHARE_UNIT);
}

static float logprob_of(float logit, double lse) {
    return (float)((double)logit - lse);
}

static void score_chosen(const struct sampler *sampler, const float *logits, float max, double lse,
                         int32_t id, struct sampled *out) {
    out->id = id;
    out->logprob = logprob_of(logits[id], lse);
    out->rank = 1;
    if (logits[id] < max) out->rank += sampler->ops->count_above(logits, sampler->V, logits[id]);
}

/* Lists the logprobs of the sample's ids, or of the n_top best. */
static void list_logprobs(struct sampler *sampler, const struct sample *sample,
                          const struct row *row, double lse, int n_top, struct sampled *out) {
    assert(n_top >= 0 && n_top <= MAX_TOP_LOGPROBS && sample->n_ids <= MAX_TOP_LOGPROBS);
    out->n_top = sample->n_ids;
    for (int i = 0; i < sample->n_ids; i++)
        out->top[i] = (struct token_logprob){sample->ids[i], row->logits[sample->ids[i]]};
    if (sample->n_ids == 0 && n_top > 0) {
        int n = collect(sampler, row, bound_of_best(sampler, row, n_top), sampler->V);
        out->n_top = best_of_collected(sampler, n, n_top, out->top);
    }
    for (int i = 0; i < out->n_top; i++) out->top[i].logprob = logprob_of(out->top[i].logprob, lse);
}

void sampler_score(struct sampler *sampler, const struct sample *sample, const float *logits,
                   struct sampled *out) {
    struct row row = read_row(sampler, logits);
    double lse = log_sum(sampler, &row);
    assert(!sample->sampling);
    score_chosen(sampler, logits, row.max, lse, sample->scored, out);
    list_logprobs(sampler, sample, &row, lse, sample->n_top, out);
}

/* ---- the history ---------------------------------------------------------------------------- */

static void change_by_history(struct sampler *sampler, const struct sample *sample, float *logits) {
    int n = list_changes(sample, sampler->place, sampler->change);
    apply_changes(sample->sampling, sampler->change, n, logits);
}

/* ---- the best for beams --------------------------------------------------------------------- */

/* Transformers applies the repetition penalty to the log-softmax, not to the logits. The result
 * differs, because the penalty multiplies; so it is applied after the log-softmax here, too. The id
 * of each part is its first one. */
void sampler_best(struct sampler *sampler, const struct sample *sample, float *logits,
                  struct sampled *out) {
    struct token_logprob best[MAX_BEST];
    assert(sample->n_best > 0 && sample->n_best <= MAX_BEST);
    struct row row = read_row(sampler, logits);
    double lse = log_sum(sampler, &row);
    bias_and_forbid(sample, logits, sampler->V);
    if (sample->mask) mask_row(sampler, sample->mask, logits, logits);
    for (int i = 0; i < sampler->V; i++) logits[i] = logprob_of(logits[i], lse);
    change_by_history(sampler, sample, logits);
    row = read_row(sampler, logits);
    int n = collect(sampler, &row, bound_of_best(sampler, &row, sample->n_best), sampler->V);
    n = best_of_collected(sampler, n, sample->n_best, best);
    for (int part = 0; part < sample_parts(sample->n_best); part++) {
        int from = part * MAX_TOP_LOGPROBS, left = max_int(n - from, 0);
        out[part] = (struct sampled){.n_top = min_int(left, MAX_TOP_LOGPROBS)};
        memcpy(out[part].top, best + from, (size_t)out[part].n_top * sizeof *best);
        if (left > 0) out[part].id = best[from].id;
    }
}

/* ---- the draw ------------------------------------------------------------------------------- */

/* The sum that the drawn id must reach: more than u of the total. It is at most the total, because
 * u < 1. */
static uint64_t sum_drawn(double u, uint64_t total) {
    return (uint64_t)(u * (double)total) + 1;
}

/* The sum at which top_p of the total is reached; at least one id is kept. */
static uint64_t sum_kept(float top_p, uint64_t total) {
    double wanted = (double)top_p * (double)total;
    uint64_t whole = (uint64_t)wanted;
    return whole + ((double)whole < wanted || whole == 0);
}

/* Sums of up to 16 blocks, starting at `start`. */
static void sum_blocks(const struct sampler *sampler, int start, uint64_t *sum) {
    int left = sampler->V - start;
    if (left >= LOGIT_RUNS * LOGIT_BLOCK) {
        sampler->ops->run_sums(sum, sampler->weight + start);
        return;
    }
    for (; left > 0; left -= LOGIT_BLOCK, start += LOGIT_BLOCK, sum++) {
        int n = left < LOGIT_BLOCK ? left : LOGIT_BLOCK;
        *sum = 0;
        for (int i = 0; i < n; i++) *sum += weight_share(sampler->weight[start + i]);
    }
}

/* The first id from `start` on at which the running sum reaches `wanted`. */
static int32_t pick_from_block(const struct sampler *sampler, int start, uint64_t wanted) {
    uint64_t sum = 0;
    int32_t id = start;
    for (;; id++) {
        assert(id < sampler->V);
        sum += weight_share(sampler->weight[id]);
        if (sum >= wanted) return id;
    }
}

/* The first id at which the running sum, in the order of ids, reaches `wanted`, which is at most
 * the total. Skips whole blocks. */
static int32_t pick_from_all(const struct sampler *sampler, uint64_t wanted) {
    uint64_t block[LOGIT_RUNS];
    for (int i = 0;; i++) {
        int start = i * LOGIT_BLOCK, run = i % LOGIT_RUNS;
        assert(start < sampler->V);
        if (run == 0) sum_blocks(sampler, start, block);
        if (block[run] >= wanted) return pick_from_block(sampler, start, wanted);
        wanted -= block[run];
    }
}

/* Every weight that is above 0 and at least min_weight belongs to a logit of at least this. */
static float least_logit(const struct sampling *s, const struct row *row, float min_weight) {
    double exponent = min_weight > 0 ? log_positive((double)min_weight) : LEAST_EXPONENT;
    if (exponent < LEAST_EXPONENT) exponent = LEAST_EXPONENT;
    double least = (double)row->max + (double)s->temperature * (exponent - SLACK);
    return least < -(double)FLT_MAX ? -INFINITY : (float)least;
}

/* The k heaviest have logits of at least this. */
static float least_of_best(const struct sampler *sampler, const struct sampling *s,
                           const struct row *row, int k) {
    double least = (double)bound_of_best(sampler, row, k) - SLACK * (double)s->temperature;
    return least < -(double)FLT_MAX ? -INFINITY : (float)least;
}

/* Makes candidates, in the order of ids, from the logits that reach the bound and that the cuts
 * keep. Returns their number. */
static int weigh(struct sampler *sampler, const struct sampling *s, const struct row *row,
                 const struct cuts *cuts, float bound) {
    int collected = collect(sampler, row, bound, sampler->V), n = 0;
    float *value = sampler->value, inverse = 1.0f / s->temperature;
    sampler->ops->weights(value, value, collected, row->max, inverse);
    for (int i = 0; i < collected; i++) {
        float logit = row->logits[sampler->id[i]];
        if (cuts_keep(cuts, logit, (logit - row->max) * inverse, value[i]))
            sampler->candidates.best[n++] = (struct candidate){value[i], sampler->id[i]};
    }
    return n;
}

/* Exclude top choices (XTC): the number of the heaviest candidates, with the sum of shares `sum`,
 * that may not be drawn. */
static int count_excluded(const struct sampling *s, const struct candidate *best, int n,
                          uint64_t sum, int position, int choice) {
    int above = 0;
    if (!(philox_uniform(s->seed, (uint32_t)position, (uint32_t)choice, FOR_XTC) <
          (double)s->xtc_probability))
        return 0;
    float bound = (float)((double)s->xtc_threshold * ((double)sum * SHARE_UNIT));
    while (above < n && best[above].weight >= bound) above++;
    return above > 1 ? above - 1 : 0;
}

/* With rules other than top_p, all ids whose weight counts are collected. The k heaviest are not
 * enough, because typical_p may drop the heaviest ones before top_k keeps k. */
static int32_t pick_from_best(struct sampler *sampler, const struct sample *sample,
                              const struct row *row, const struct cuts *cuts, float *mu) {
    const struct sampling *s = sample->sampling;
    int position = sample->position, choice = sample->choice;
    int most = s->top_k > 0 && s->top_k < sampler->V ? s->top_k : sampler->V;
    float bound = fmaxf(least_logit(s, row, cuts->min_weight), cuts->least);
    if (most < sampler->V && cuts->reach == INFINITY)
        bound = fmaxf(bound, least_of_best(sampler, s, row, most));
    int n = weigh(sampler, s, row, cuts, bound), k = most < n ? most : n, skipped = 0;
    uint64_t total = 0, sum;
    candidates_sort(&sampler->candidates, n);
    const struct candidate *best = sampler->candidates.best;
    for (int i = 0; i < k; i++) total += weight_share(best[i].weight);
    int kept = candidates_reaching(best, k, s->top_p < 1 ? sum_kept(s->top_p, total) : total, &sum);
    if (s->xtc_probability > 0) skipped = count_excluded(s, best, kept, sum, position, choice);
    for (int i = 0; i < skipped; i++) sum -= weight_share(best[i].weight);
    double u = philox_uniform(s->seed, (uint32_t)position, (uint32_t)choice, FOR_DRAW);
    const struct candidate *picked = candidates_pick(best + skipped, sum_drawn(u, sum));
    if (s->mirostat_tau > 0) *mu = mirostat_next(s, *mu, weight_share(picked->weight), sum);
    return picked->id;
}

/* The number of collected candidates whose rank is certain: those heavier than a logit clearly
 * above the bound. */
static int count_certain(const struct sampler *sampler, const struct sampling *s,
                         const struct row *row, float bound, int n) {
    float clear = bound + 2 * (float)SLACK * s->temperature, weight;
    int certain = 0;
    if (!(clear < row->max)) return 0;
    sampler->ops->weights(&weight, &clear, 1, row->max, 1.0f / s->temperature);
    while (certain < n && sampler->candidates.best[certain].weight >= weight) certain++;
    return certain;
}

/* With top_p alone: collects more and more of the heaviest ids, until the ids whose rank is certain
 * sum to top_p. */
static int32_t pick_from_nucleus(struct sampler *sampler, const struct sampling *s,
                                 const struct row *row, uint64_t total, double u) {
    const struct cuts none = {-INFINITY, 0, 0, INFINITY};
    uint64_t wanted = sum_kept(s->top_p, total), sum;
    float least = least_logit(s, row, 0);
    for (int k = 64;; k = k < sampler->V / 8 ? 8 * k : sampler->V + 1) {
        float bound = fmaxf(least, least_of_best(sampler, s, row, k));
        int n = weigh(sampler, s, row, &none, bound);
        candidates_sort(&sampler->candidates, n);
        bool all = bound <= least;
        int certain = all ? n : count_certain(sampler, s, row, bound, n);
        candidates_reaching(sampler->candidates.best, certain, wanted, &sum);
        assert(sum >= wanted || !all);
        if (sum >= wanted) return candidates_pick(sampler->candidates.best, sum_drawn(u, sum))->id;
    }
}

/* *mu is mirostat's and is updated for the next token. */
static int32_t draw(struct sampler *sampler, const struct sample *sample, const struct row *row,
                    float *mu) {
    const struct sampling *s = sample->sampling;
    if (!isfinite(row->max) || !isfinite(1.0f / s->temperature)) return best_id(sampler, row);
    if (s->top_k > 0 || s->min_p > 0 || sampling_has_cuts(s)) {
        struct cuts cuts = cuts_of(s, sampler->ops, row->logits, sampler->V, row->max, *mu,
                                   sampler->weight, sampler->value);
        return pick_from_best(sampler, sample, row, &cuts, mu);
    }
    double u =
        philox_uniform(s->seed, (uint32_t)sample->position, (uint32_t)sample->choice, FOR_DRAW);
    uint64_t total = row->total; /* if it is set, the sampler still has the weights */
    if (total == 0 || s->temperature != 1)
        total = sampler->ops->weights(sampler->weight, row->logits, sampler->V, row->max,
                                      1.0f / s->temperature);
    if (s->top_p < 1) return pick_from_nucleus(sampler, s, row, total, u);
    return pick_from_all(sampler, sum_drawn(u, total));
}

/* ---- the token ------------------------------------------------------------------------------ */

static int32_t choose(struct sampler *sampler, const struct sample *sample, const struct row *row,
                      float *mu) {
    if (sample->sampling->temperature > 0) return draw(sampler, sample, row, mu);
    return best_id(sampler, row);
}

/* Samples from the ids that the mask leaves, or returns -1. Writes the masked row to `to`, which
 * may be the logits. */
static int32_t choose_masked(struct sampler *sampler, const struct sample *sample,
                             const float *logits, float *to, float *mu) {
    struct sampler few = *sampler;
    few.V = gather_allowed(sample->mask, logits, sampler->V, MAX_FEW, few.few, few.few_id);
    if (few.V < 0) {
        struct row row = mask_row(sampler, sample->mask, logits, to);
        return row.max > -INFINITY ? choose(sampler, sample, &row, mu) : -1;
    }
    few.n_maxima = (int)logit_maxima(few.V);
    struct row row = read_row(&few, few.few);
    return row.max > -INFINITY ? few.few_id[choose(&few, sample, &row, mu)] : -1;
}

void sampler_sample(struct sampler *sampler, const struct sample *sample, float *logits,
                    struct sampled *out) {
    const struct sampling *s = sample->sampling;
    assert(s->temperature >= 0 && s->repetition_penalty > 0 && s->min_p <= 1);
    assert(s->n_bad_words >= 0 && s->n_bad_words <= MAX_BAD_WORDS);
    bool scored = s->n_logprobs >= 0, changed = changes_logits(sample);
    const float *own = logits;
    float own_max = 0, *mu = &out->mirostat_mu;
    double lse = 0;
    struct row row = {0};
    *out = (struct sampled){.mirostat_mu = sample->mirostat_mu};
    if (scored || !(changed || sample->mask)) row = read_row(sampler, logits);
    if (scored) {
        lse = log_sum(sampler, &row);
        own_max = row.max;
        list_logprobs(sampler, sample, &row, lse, s->n_logprobs, out);
    }
    if (changed && scored) own = memcpy(sampler->raw, logits, (size_t)sampler->V * sizeof *logits);
    if (changed) {
        bias_and_forbid(sample, logits, sampler->V);
        change_by_history(sampler, sample, logits);
        if (!sample->mask) row = read_row(sampler, logits);
    }
    out->id = sample->mask
                  ? choose_masked(sampler, sample, logits, changed ? logits : sampler->raw, mu)
                  : choose(sampler, sample, &row, mu);
    assert(out->id >= (sample->mask ? -1 : 0) && out->id < sampler->V);
    if (scored && out->id >= 0) score_chosen(sampler, own, own_max, lse, out->id, out);
}
