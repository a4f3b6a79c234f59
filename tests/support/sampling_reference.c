/* The sampler in its simplest form: every id is weighed, and all candidates are sorted as a heap.
 * It is the oracle of engine/sampling/sampling.c, which examines few ids and must choose the same
 * ones. */
#include "support/sampling_reference.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampling/math.h"
#include "kernels/cpu/cpu.h"

struct candidate {
    float weight; /* e of step 5 */
    int32_t id;
};

struct reference {
    int V;
    float *weight;               /* [V] e of every id */
    float *distance;             /* [V] from the mean exponent */
    float *raw;                  /* [V] the original logits while they are changed */
    struct candidate *candidate; /* [V] */
};

struct reference *reference_new(int V) {
    struct reference *sampler = mem_calloc(1, sizeof *sampler);
    sampler->V = V;
    sampler->weight = mem_calloc((size_t)V, sizeof *sampler->weight);
    sampler->distance = mem_calloc((size_t)V, sizeof *sampler->distance);
    sampler->raw = mem_calloc((size_t)V, sizeof *sampler->raw);
    sampler->candidate = mem_calloc((size_t)V, sizeof *sampler->candidate);
    return sampler;
}

void reference_free(struct reference *sampler) {
    if (!sampler) return;
    free(sampler->weight);
    free(sampler->distance);
    free(sampler->raw);
    free(sampler->candidate);
    free(sampler);
}

/* ---- whole rows ----------------------------------------------------------------------------- */

static float largest(const float *x, int n) {
    float lane[LANES], best = -INFINITY;
    for (int i = 0; i < LANES; i++) lane[i] = -INFINITY;
    int k = 0;
    for (; k + LANES <= n; k += LANES) {
        for (int i = 0; i < LANES; i++) lane[i] = x[k + i] > lane[i] ? x[k + i] : lane[i];
    }
    for (int i = 0; i < LANES; i++) best = lane[i] > best ? lane[i] : best;
    for (; k < n; k++) best = x[k] > best ? x[k] : best;
    return best;
}

/* Returns a weight in units of 2^-44. */
static uint64_t share_of(float weight) {
    return (uint64_t)rint((double)weight * 0x1p44);
}

/* weight[i] = exp((x[i] - max) * inverse). Returns the sum of their shares. */
static uint64_t exponentials(float *weight, const float *x, int n, float max, float inverse) {
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        weight[i] = plain_weight((x[i] - max) * inverse);
        sum += share_of(weight[i]);
    }
    return sum;
}

static int32_t argmax(const float *x, int n) {
    float max = largest(x, n);
    for (int i = 0; i < n; i++) {
        if (x[i] == max) return i;
    }
    return 0; /* a row of NaN: any id will do; the request continues */
}

/* ---- logprobs ------------------------------------------------------------------------------- */

/* Is a better than b? Ties go to the lower id. */
static bool better(float a, int32_t a_id, float b, int32_t b_id) {
    return a > b || (a == b && a_id < b_id);
}

/* Finds the n best of x in order, by insertion: n is at most 20, and almost every id fails the
 * first comparison. */
static int best_of_row(const float *x, int V, int n, struct token_logprob *top) {
    int found = 0;
    for (int32_t id = 0; id < V && n > 0; id++) {
        if (found == n && !(x[id] > top[n - 1].logprob)) continue;
        int at = found < n ? found++ : n - 1;
        while (at > 0 && better(x[id], id, top[at - 1].logprob, top[at - 1].id)) {
            top[at] = top[at - 1];
            at--;
        }
        top[at] = (struct token_logprob){id, x[id]};
    }
    return found;
}

/* Returns the log of the sum of the exponentials of a row. It uses doubles: a logprob is the small
 * difference of two large numbers, and is rounded once. */
static double log_sum(struct reference *sampler, const float *logits) {
    float max = largest(logits, sampler->V);
    uint64_t sum = exponentials(sampler->weight, logits, sampler->V, max, 1.0f);
    return (double)max + log_positive((double)sum * 0x1p-44);
}

static float logprob_of(float logit, double lse) {
    return (float)((double)logit - lse);
}

static void score_chosen(const float *logits, int V, double lse, int32_t id, struct sampled *out) {
    out->id = id;
    out->logprob = logprob_of(logits[id], lse);
    out->rank = 1;
    for (int i = 0; i < V; i++) out->rank += logits[i] > logits[id];
}

static void score_top(const float *logits, int V, double lse, int n_top, struct sampled *out) {
    assert(n_top >= 0 && n_top <= MAX_TOP_LOGPROBS);
    out->n_top = best_of_row(logits, V, n_top, out->top);
    for (int i = 0; i < out->n_top; i++) out->top[i].logprob = logprob_of(out->top[i].logprob, lse);
}

void reference_score(struct reference *sampler, const float *logits, int32_t id, int n_top,
                     struct sampled *out) {
    double lse = log_sum(sampler, logits);
    score_chosen(logits, sampler->V, lse, id, out);
    score_top(logits, sampler->V, lse, n_top, out);
}

/* ---- changes to the logits ------------------------------------------------------------------ */

static bool has_penalties(const struct sampling *s) {
    return s->presence_penalty != 0 || s->frequency_penalty != 0 || s->repetition_penalty != 1;
}

static int occurrences(const int32_t *ids, int n, int32_t id) {
    int found = 0;
    for (int i = 0; i < n; i++) found += ids[i] == id;
    return found;
}

/* Step 3, literally, for each id at its first occurrence: quadratic, without a table of counts. */
static void apply_penalties(const struct sampling *s, float *logits, const int32_t *history,
                            int n_prompt, int n_output) {
    if (s->penalty_last_n > 0) { /* as if there were no earlier tokens, and all were generated */
        int skipped = n_prompt + n_output - s->penalty_last_n;
        history += skipped > 0 ? skipped : 0;
        n_output = n_prompt + n_output - (skipped > 0 ? skipped : 0);
        n_prompt = 0;
    }
    for (int i = 0; i < n_prompt + n_output; i++) {
        int32_t id = history[i];
        if (occurrences(history, i, id) > 0) continue;
        int count = occurrences(history + n_prompt, n_output, id);
        float l = logits[id];
        if (s->repetition_penalty != 1)
            l = l > 0 ? l / s->repetition_penalty : l * s->repetition_penalty;
        if (count > 0) l -= s->frequency_penalty * (float)count + s->presence_penalty;
        logits[id] = l;
    }
}

/* Does the id complete a bad word? */
static bool completes_bad_word(const struct sampling *s, int32_t id, const int32_t *output, int n) {
    for (int w = 0; w < s->n_bad_words; w++) {
        const struct bad_word *word = &s->bad_words[w];
        int met = 0;
        while (met < word->n_before && met < n && output[n - 1 - met] == word->before[met]) met++;
        if (word->last == id && met == word->n_before) return true;
    }
    return false;
}

static bool has_bit(const uint32_t *bits, int32_t id) {
    return !bits || (bits[id / 32] & ((uint32_t)1 << id % 32));
}

/* Returns how many of the last tokens of the history are also before place `at`: within the window,
 * and without breakers. */
static int repeat_before(const struct sampling *s, const int32_t *history, int n, int at) {
    int first = n > s->dry_last_n ? n - s->dry_last_n : 0, length = 0;
    while (at - 1 - length >= first && length < MAX_REPEAT) {
        int32_t id = history[n - 1 - length];
        if (s->dry_breakers && has_bit(s->dry_breakers, id)) break;
        if (history[at - 1 - length] != id) break;
        length++;
    }
    return length;
}

/* Returns the amount that DRY subtracts from an id, for all places of the id. */
static float repeat_penalty(const struct sampling *s, const int32_t *history, int n, int32_t id) {
    int longest = -1;
    for (int at = n > s->dry_last_n ? n - s->dry_last_n : 0; at < n; at++) {
        int length = history[at] == id ? repeat_before(s, history, n, at) : -1;
        if (length > longest) longest = length;
    }
    if (longest < s->dry_allowed_length) return 0;
    double penalty = (double)s->dry_multiplier;
    for (int i = s->dry_allowed_length; i < longest; i++) penalty *= (double)s->dry_base;
    return penalty < (double)FLT_MAX ? (float)penalty : FLT_MAX;
}

/* Does the id complete a run of n tokens that the history contains? */
static bool completes_ngram(const int32_t *history, int n_history, int n, int32_t id) {
    for (int at = 0; at + n <= n_history; at++) {
        bool same = history[at + n - 1] == id;
        for (int i = 0; same && i < n - 1; i++)
            same = history[at + i] == history[n_history - n + 1 + i];
        if (same) return true;
    }
    return false;
}

static void apply_repeats(const struct sample *sample, float *logits, int V) {
    const struct sampling *s = sample->sampling;
    int n = sample->n_prompt + sample->n_output;
    for (int32_t id = 0; id < V; id++) {
        if (occurrences(sample->history, n, id) == 0) continue;
        if (s->dry_multiplier > 0) logits[id] -= repeat_penalty(s, sample->history, n, id);
        if (s->no_repeat_ngram > 0 && completes_ngram(sample->history, n, s->no_repeat_ngram, id))
            logits[id] = -INFINITY;
    }
}

static void change_logits(const struct sample *sample, float *logits, int V) {
    const struct sampling *s = sample->sampling;
    const int32_t *output = sample->history + sample->n_prompt;
    for (int i = 0; i < s->n_bias; i++) logits[s->bias[i].id] += s->bias[i].bias;
    for (int i = 0; i < s->n_banned; i++) logits[s->banned[i]] = -INFINITY;
    for (int32_t id = 0; id < V; id++) {
        bool allowed = has_bit(s->allowed, id) && has_bit(sample->mask, id);
        if (!allowed || completes_bad_word(s, id, output, sample->n_output)) logits[id] = -INFINITY;
    }
    if (has_penalties(s))
        apply_penalties(s, logits, sample->history, sample->n_prompt, sample->n_output);
    apply_repeats(sample, logits, V);
}

/* ---- rules that need the whole row ---------------------------------------------------------- */

/* Returns the deviation of the finite logits of a row. Those far below the largest count as 256
 * below it. */
static double deviation(const float *logits, int V, float max) {
    unsigned __int128 sum = 0, squares = 0;
    double n = 0;
    for (int i = 0; i < V; i++) {
        if (!(logits[i] > -INFINITY)) continue;
        double below = (double)(max - logits[i]);
        if (!(below < 256)) below = 256;
        sum += (uint64_t)rint(ldexp(below, 36));
        squares += (uint64_t)rint(ldexp(below * below, 28));
        n++;
    }
    double mean = ldexp((double)(uint64_t)sum, -36) / n;
    double variance = ldexp((double)(uint64_t)squares, -28) / n - mean * mean;
    return variance > 0 ? sqrt(variance) : 0;
}

/* Sums the shares of all weights, and of each weight times the distance of its logit from the
 * largest. */
static void sum_up(const struct reference *r, const float *logits, float max, float inverse,
                   uint64_t *total, uint64_t *energy) {
    *total = *energy = 0;
    for (int i = 0; i < r->V; i++) {
        if (!(r->weight[i] > 0)) continue;
        *total += share_of(r->weight[i]);
        *energy += share_of(r->weight[i] * -((logits[i] - max) * inverse));
    }
}

/* Sets weights below `least` to 0. */
static void drop_below(struct reference *r, float least) {
    for (int i = 0; i < r->V; i++)
        if (!(r->weight[i] >= least)) r->weight[i] = 0;
}

/* Returns the smallest weight that mirostat keeps. */
static float mirostat_floor(const struct reference *r, float mu) {
    uint64_t total = 0;
    for (int i = 0; i < r->V; i++) total += share_of(r->weight[i]);
    double exponent = (double)mu * -0.69314718055994531;
    double floor =
        (double)plain_weight(exponent < 0 ? (float)exponent : 0) * ((double)total * 0x1p-44);
    return floor < 1 ? (float)floor : 1;
}

static float smaller(double a, double b) {
    return (float)(a < b ? a : b);
}

/* Returns the smallest weight that both epsilon_cutoff and eta_cutoff keep. */
static float cutoff(const struct reference *r, const struct sampling *s, const float *logits,
                    float max, float inverse) {
    uint64_t total, energy;
    sum_up(r, logits, max, inverse, &total, &energy);
    double whole = (double)total * 0x1p-44, epsilon = (double)s->epsilon_cutoff * whole;
    if (s->eta_cutoff <= 0) return smaller(epsilon, 1);
    double entropy = log_positive(whole) + (double)energy / (double)total;
    float power = plain_weight(entropy > 0 ? -(float)entropy : 0);
    double eta = sqrt((double)s->eta_cutoff) * (double)power;
    if (eta > (double)s->eta_cutoff) eta = (double)s->eta_cutoff;
    eta *= whole;
    return smaller(eta > epsilon ? eta : epsilon, 1);
}

static int by_distance(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Drops the ids that are further from the mean than typical_p reaches. */
static void keep_typical(struct reference *r, float part, const float *logits, float max,
                         float inverse) {
    uint64_t total, energy, sum = 0, wanted;
    sum_up(r, logits, max, inverse, &total, &energy);
    float center = (float)-((double)energy / (double)total);
    float *sorted = mem_calloc((size_t)r->V, sizeof *sorted), reach = 0;
    int n = 0;
    for (int i = 0; i < r->V; i++) {
        r->distance[i] = fabsf((logits[i] - max) * inverse - center);
        if (r->weight[i] > 0) sorted[n++] = r->distance[i];
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_distance);
    wanted = (uint64_t)ceil((double)part * (double)total);
    if (wanted > total) wanted = total;
    for (int k = 0; k < n && (k == 0 || sum < wanted);) {
        reach = sorted[k];
        for (int i = 0; i < r->V; i++) /* all ids at the same distance */
            if (r->weight[i] > 0 && r->distance[i] == reach) sum += share_of(r->weight[i]);
        while (k < n && sorted[k] == reach) k++;
    }
    free(sorted);
    for (int i = 0; i < r->V; i++)
        if (!(r->distance[i] <= reach)) r->weight[i] = 0;
}

/* Step 5 up to typical_p: sets the weights of dropped ids to 0. */
static void cut(struct reference *r, const struct sampling *s, const float *logits, float max,
                float inverse, float mu) {
    float least = s->min_p;
    if (s->mirostat_tau > 0) least = fmaxf(least, mirostat_floor(r, mu));
    if (s->epsilon_cutoff > 0 || s->eta_cutoff > 0)
        least = fmaxf(least, cutoff(r, s, logits, max, inverse));
    drop_below(r, least);
    if (s->top_n_sigma > 0) {
        double sigma = deviation(logits, r->V, max);
        for (int i = 0; i < r->V; i++)
            if (!(logits[i] >= (float)((double)max - (double)s->top_n_sigma * sigma)))
                r->weight[i] = 0;
    }
    if (s->typical_p > 0 && s->typical_p < 1) keep_typical(r, s->typical_p, logits, max, inverse);
}

/* ---- the draw ------------------------------------------------------------------------------- */

/* Returns the first id, in their order, at which the sum is above u * total. */
static int32_t pick_from_all(const float *weight, int V, uint64_t total, double u) {
    uint64_t target = (uint64_t)(u * (double)total), sum = 0;
    for (int i = 0; i < V; i++) {
        sum += share_of(weight[i]);
        if (sum > target) return i;
    }
    assert(false);
    return -1;
}

static bool heavier(const struct candidate *a, const struct candidate *b) {
    return better(a->weight, a->id, b->weight, b->id);
}

static void sift_down(struct candidate *heap, int n, int i) {
    struct candidate moved = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heavier(&heap[child + 1], &heap[child])) child++;
        if (!heavier(&heap[child], &moved)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* Removes the heaviest candidate and stores it after the new end of the heap. */
static struct candidate heap_pop(struct candidate *heap, int *n) {
    struct candidate top = heap[0];
    heap[0] = heap[--*n];
    heap[*n] = top;
    sift_down(heap, *n, 0);
    return top;
}

static int collect(struct candidate *candidate, const float *weight, int V) {
    int n = 0;
    for (int32_t id = 0; id < V; id++) {
        if (weight[id] > 0) {
            candidate[n++] = (struct candidate){weight[id], id};
        }
    }
    for (int i = n / 2 - 1; i >= 0; i--) sift_down(candidate, n, i);
    return n;
}

/* Returns the sum of the k heaviest. They are then in descending order at heap[n - 1], heap[n - 2],
 * ... */
static uint64_t pop_heaviest(struct candidate *heap, int n, int k) {
    uint64_t sum = 0;
    for (int left = n; k > 0; k--) sum += share_of(heap_pop(heap, &left).weight);
    return sum;
}

/* Returns how many of the kept ids xtc removes: all but the last that reach the threshold. */
static int count_excluded(const struct sampling *s, const struct candidate *heap, int n, int kept,
                          uint64_t sum, double chance) {
    int above = 0;
    float bound = (float)((double)s->xtc_threshold * ((double)sum * 0x1p-44));
    while (above < kept && heap[n - 1 - above].weight >= bound) above++;
    return chance < (double)s->xtc_probability && above > 1 ? above - 1 : 0;
}

static int32_t pick_from_best(struct reference *sampler, const struct sampling *s, double u,
                              double chance, float *mu) {
    struct candidate *heap = sampler->candidate;
    int n = collect(heap, sampler->weight, sampler->V);
    int k = s->top_k > 0 && s->top_k < n ? s->top_k : n, kept = 0;
    uint64_t total = pop_heaviest(heap, n, k), sum = 0, target, running = 0;
    uint64_t wanted = (uint64_t)ceil((double)s->top_p * (double)total);
    while (kept < k && (kept == 0 || sum < wanted)) {
        sum += share_of(heap[n - 1 - kept].weight);
        kept++;
    }
    int excluded = count_excluded(s, heap, n, kept, sum, chance);
    for (int i = 0; i < excluded; i++) sum -= share_of(heap[n - 1 - i].weight);
    target = (uint64_t)(u * (double)sum);
    for (int i = n - 1 - excluded;; i--) {
        running += share_of(heap[i].weight);
        if (running <= target) continue;
        double bits = log_positive((double)sum) - log_positive((double)share_of(heap[i].weight));
        bits = bits / 0.69314718055994531 - (double)s->mirostat_tau;
        if (s->mirostat_tau > 0) *mu = (float)((double)*mu - (double)s->mirostat_eta * bits);
        return heap[i].id;
    }
}

static int32_t draw(struct reference *sampler, const struct sampling *s, const float *logits,
                    int position, int choice, float *mu) {
    float max = largest(logits, sampler->V), inverse = 1.0f / s->temperature;
    if (!isfinite(max) || !isfinite(inverse)) return argmax(logits, sampler->V);
    uint64_t total = exponentials(sampler->weight, logits, sampler->V, max, inverse);
    double u = philox_uniform(s->seed, (uint32_t)position, (uint32_t)choice, FOR_DRAW);
    if (s->top_k <= 0 && s->top_p >= 1 && s->min_p <= 0 && !sampling_has_cuts(s)) {
        return pick_from_all(sampler->weight, sampler->V, total, u);
    }
    cut(sampler, s, logits, max, inverse, *mu);
    double chance = philox_uniform(s->seed, (uint32_t)position, (uint32_t)choice, FOR_XTC);
    return pick_from_best(sampler, s, u, chance, mu);
}

void reference_sample(struct reference *sampler, const struct sample *sample, float *logits,
                      struct sampled *out) {
    const struct sampling *s = sample->sampling;
    assert(s->temperature >= 0 && s->repetition_penalty > 0);
    bool scored = s->n_logprobs >= 0;
    bool changed = s->n_bias > 0 || s->n_banned > 0 || s->allowed || sample->mask ||
                   s->n_bad_words > 0 || has_penalties(s) || s->dry_multiplier > 0 ||
                   s->no_repeat_ngram > 0;
    double lse = scored ? log_sum(sampler, logits) : 0;
    *out = (struct sampled){.mirostat_mu = sample->mirostat_mu};
    if (scored) score_top(logits, sampler->V, lse, s->n_logprobs, out);
    const float *own = logits;
    if (changed && scored) own = memcpy(sampler->raw, logits, (size_t)sampler->V * sizeof *logits);
    if (changed) change_logits(sample, logits, sampler->V);
    out->id = s->temperature > 0
                  ? draw(sampler, s, logits, sample->position, sample->choice, &out->mirostat_mu)
                  : argmax(logits, sampler->V);
    if (sample->mask && largest(logits, sampler->V) == -INFINITY) out->id = -1;
    if (scored && out->id >= 0) score_chosen(own, sampler->V, lse, out->id, out);
}
