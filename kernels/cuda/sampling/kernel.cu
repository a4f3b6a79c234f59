/* Sampling: one block per row. sampling/select.cuh explains the search for the best ids. */
#include "kernels/cuda/sampling/sampling.cuh"

#include "kernels/cuda/runtime/ptx.cuh"
#include "kernels/cuda/sampling/cuts.cuh"
#include "kernels/cuda/sampling/select.cuh"

/* ---- rankings ------------------------------------------------------------------------------- */

/* Ranks by the logit, without sums. */
struct by_logit {
    __device__ __forceinline__ unsigned rank(float logit) const {
        return logit == logit ? rank_of_logit(logit) : NO_RANK;
    }
    __device__ __forceinline__ uint64 share(unsigned) const {
        return 0;
    }
};

/* ---- the best ------------------------------------------------------------------------------- */

/* The largest number of a row and the lowest id that has it; -inf and 0 for a row without numbers.
 * Also the largest number of this thread, if it had one. */
struct best {
    float logit;
    int id;
    float own;
    bool any;
};

template <int THREADS, int N>
__device__ __forceinline__ struct best best_of(const workspace<THREADS> &w,
                                               const struct logit_row &row) {
    float own = -INFINITY;
    int id = -1;
    for_ids<THREADS, N>(row, 0, row.V, [&](int i, float logit) {
        if (logit > own || (id < 0 && logit == logit)) {
            own = logit;
            id = i;
        }
    });
    const unsigned rank = id < 0 ? NO_RANK : rank_of_logit(own);
    const unsigned least = block_smallest<THREADS>(w, rank);
    if (least == NO_RANK) return {-INFINITY, 0, own, false};
    const unsigned first = block_smallest<THREADS>(w, rank == least ? (unsigned)id : NO_RANK);
    return {logit_of_rank(least), (int)first, own, id >= 0};
}

/* The worst among the best ids of pairs of threads: at least as many ids as pairs are at least as
 * good. A pair without ids makes it worse than all ids. */
template <int THREADS, class RANK>
__device__ __forceinline__ unsigned floor_of(const workspace<THREADS> &w, const RANK &ranking,
                                             const struct best &best) {
    const unsigned own = best.any ? ranking.rank(best.own) : NO_RANK;
    const unsigned other = __shfl_xor_sync(FULL_MASK, own, 1);
    return block_largest<THREADS>(w, own < other ? own : other);
}

/* ---- logprobs ------------------------------------------------------------------------------- */

/* Logarithm of a sum of shares; `own` is a thread's part. */
template <int THREADS>
__device__ __forceinline__ double log_of_sum(const workspace<THREADS> &w, float max, uint64 own) {
    const uint64 shares = block_total<THREADS>(w, own);
    if (threadIdx.x == 0) /* once, because divisions of doubles are slow */
        *w.key =
            (uint64)__double_as_longlong((double)max + log_positive((double)shares * SHARE_UNIT));
    __syncthreads();
    return __longlong_as_double((long long)*w.key);
}

/* Calls put(place, id, logit) for the n best ids in order, starting with place 0. They are
 * collected in the list of winners, and each counts the winners before it. */
template <int THREADS, int N, class F>
__device__ __forceinline__ void for_best(selection<THREADS, N, by_logit> &s, int n, F put) {
    const struct found last = select_key(s, false, (uint64)n);
    const bool in_list = s.has_list;
    uint64 *winners = s.w.sum; /* the histogram is not needed any more */
    if (threadIdx.x == 0) *s.w.count = 0;
    __syncthreads();
    for_keys(s, in_list, [&](uint64 key) {
        if (key <= last.key) winners[atomicAdd(s.w.count, 1u)] = key;
    });
    __syncthreads();
    if ((int)threadIdx.x < n) {
        const uint64 own = winners[threadIdx.x];
        int before = 0;
        for (int i = 0; i < n; i++) before += winners[i] < own;
        put(before, id_of_key(own), logit_of_rank(rank_of_key(own)));
    }
    __syncthreads(); /* the next histogram reuses their memory */
}

/* Lists the logprobs of t's ids or of the best ids. Returns the logarithm of the row's sum. */
template <int THREADS, int N>
__device__ __forceinline__ double
score_row(const workspace<THREADS> &w, const struct logit_row &row, const struct best &best,
          const struct sample_row &t, struct sample_result *result) {
    selection<THREADS, N, by_logit> s = {w, row, {}, false, {0, 0}};
    uint64 own = 0;
    const struct amount all = list_best(s, floor_of<THREADS>(w, s.ranking, best), [&](float logit) {
        own += share_of(weight_of(logit - best.logit));
    });
    const double lse = log_of_sum<THREADS>(w, best.logit, own);
    const int n = t.n_ids > 0 ? 0 : min(t.sampling.n_logprobs, (int)all.count);
    const auto put = [&](int place, int id, float logit) {
        result->best[place] = {id, (float)((double)logit - lse)};
    };
    for (int i = threadIdx.x; i < t.n_ids; i += THREADS) put(i, t.ids[i], row.logits[t.ids[i]]);
    if (t.n_ids > 0) __syncthreads(); /* the row is read before it is changed */
    if (n > 0) for_best(s, n, put);
    if (threadIdx.x == 0) result->n_best = max(t.n_ids, n);
    return lse;
}

/* The logprob and rank of the chosen token. */
template <int THREADS, int N>
__device__ __forceinline__ void score_chosen(const workspace<THREADS> &w,
                                             const struct logit_row &row, double lse, int id,
                                             struct sample_result *result) {
    const float chosen = row.logits[id];
    unsigned better = 0;
    for_ids<THREADS, N>(row, 0, row.V, [&](int, float logit) { better += logit > chosen; });
    better = (unsigned)block_total<THREADS>(w, better);
    if (threadIdx.x > 0) return;
    result->logprob = (float)((double)chosen - lse);
    result->rank = 1 + (int)better;
}

/* ---- biases and bans ------------------------------------------------------------------------ */

/* A row's biases, followed by its bans. The first entry of an id handles all entries of that id. */
struct changes {
    const struct logit_bias *bias;
    const int32_t *banned;
    int n_bias, n;
    __device__ __forceinline__ int id(int entry) const {
        return entry < n_bias ? bias[entry].id : banned[entry - n_bias];
    }
    __device__ __forceinline__ bool is_first(int entry) const {
        for (int i = 0; i < entry; i++)
            if (id(i) == id(entry)) return false;
        return true;
    }
};

/* Changes the logits in place and saves the old values. */
template <int THREADS>
__device__ __forceinline__ void change_logits(const struct changes &c, float *logits, float *kept) {
    for (int entry = threadIdx.x; entry < c.n; entry += THREADS) {
        if (!c.is_first(entry)) continue;
        const int id = c.id(entry);
        float logit = kept[entry] = logits[id];
        for (int i = entry; i < c.n; i++) {
            if (c.id(i) != id) continue;
            logit = i < c.n_bias ? logit + c.bias[i].bias : -INFINITY;
        }
        logits[id] = logit;
    }
}

template <int THREADS>
__device__ __forceinline__ void restore_logits(const struct changes &c, float *logits,
                                               const float *kept) {
    for (int entry = threadIdx.x; entry < c.n; entry += THREADS)
        if (c.is_first(entry)) logits[c.id(entry)] = kept[entry];
}

/* ---- the history ---------------------------------------------------------------------------- */

/* apply_changes of engine/sampling/changes.c. All ids are distinct. */
template <int THREADS>
__device__ __forceinline__ void change_by_history(const struct sample_row &t, float *logits) {
    const float penalty = t.sampling.repetition_penalty;
    for (int i = threadIdx.x; i < t.n_changes; i += THREADS) {
        struct logit_change &change = t.changes[i];
        float l = change.kept = logits[change.id];
        if (change.count != 0 && penalty != 1.0f) l = l > 0.0f ? l / penalty : l * penalty;
        if (change.count > 0)
            l -= t.sampling.frequency_penalty * (float)change.count + t.sampling.presence_penalty;
        logits[change.id] = change.minus == INFINITY ? -INFINITY : l - change.minus;
    }
    if (t.n_changes > 0) __syncthreads();
}

template <int THREADS>
__device__ __forceinline__ void restore_history(const struct sample_row &t, float *logits) {
    for (int i = threadIdx.x; i < t.n_changes; i += THREADS)
        logits[t.changes[i].id] = t.changes[i].kept;
    if (t.n_changes > 0) __syncthreads();
}

/* ---- beams ---------------------------------------------------------------------------------- */

/* Replaces a row by its log-softmax. It is not restored, because only the beam reads the row. */
template <int THREADS>
__device__ __forceinline__ void take_log_softmax(float *logits, int V, double lse) {
    for (int id = threadIdx.x; id < V; id += THREADS)
        logits[id] = (float)((double)logits[id] - lse);
    __syncthreads();
}

/* Writes the n_best best ids of a row to as many results as needed. */
template <int THREADS, int N>
__device__ __forceinline__ void
write_candidates(const workspace<THREADS> &w, const struct logit_row &row, const struct best &best,
                 int n_best, struct sample_result *result) {
    selection<THREADS, N, by_logit> s = {w, row, {}, false, {0, 0}};
    const struct amount all = list_best(s, floor_of<THREADS>(w, s.ranking, best), [](float) {});
    const int n = n_best < (int)all.count ? n_best : (int)all.count;
    const int parts = (n_best + SAMPLE_MAX_BEST - 1) / SAMPLE_MAX_BEST;
    if ((int)threadIdx.x < parts) {
        const int left = n - (int)threadIdx.x * SAMPLE_MAX_BEST;
        struct sample_result *part = &result[threadIdx.x];
        *part = {};
        part->n_best = left > SAMPLE_MAX_BEST ? SAMPLE_MAX_BEST : left > 0 ? left : 0;
    }
    __syncthreads();
    if (n == 0) return;
    for_best(s, n, [&](int place, int id, float logprob) {
        struct sample_result *part = &result[place / SAMPLE_MAX_BEST];
        part->best[place % SAMPLE_MAX_BEST] = {id, logprob};
        if (place % SAMPLE_MAX_BEST == 0) part->id = id;
    });
}

/* ---- bad words ------------------------------------------------------------------------------ */

/* Calls fn(last token) for each word whose other tokens are the end of the output. */
template <int THREADS, class F>
__device__ __forceinline__ void for_words_due(const struct sample_words &words, int n, int n_output,
                                              F fn) {
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const struct bad_word &word = words.word[i];
        if (word.n_before > n_output) continue;
        int met = 0;
        while (met < word.n_before &&
               word.before[met] == words.tail[(n_output - 1 - met) % SAMPLE_TAIL])
            met++;
        if (met == word.n_before) fn(word.last);
    }
}

/* ---- the draw ------------------------------------------------------------------------------- */

/* The share that the row's random number u selects. Sums are integers, so exceeding u times the
 * total means reaching the next integer. It is at most the total, because u < 1. */
__device__ __forceinline__ uint64 share_passed(const struct sample_row &t, uint64 total) {
    const double u =
        philox_uniform(t.sampling.seed, (uint32_t)t.position, (uint32_t)t.choice, FOR_DRAW);
    return (uint64)(u * (double)total) + 1;
}

/* The share at which top_p of the total is reached; at least one id is kept. */
__device__ __forceinline__ uint64 share_wanted(float top_p, uint64 total) {
    const double wanted = (double)top_p * (double)total;
    return wanted > 1.0 ? (uint64)ceil(wanted) : 1;
}

/* Adds the shares of each warp's run of [from, to) into the sums of digits. */
template <int THREADS, int N>
__device__ __forceinline__ void add_runs(const workspace<THREADS> &w, const struct logit_row &row,
                                         const struct by_weight &ranking, int from, int to) {
    uint64 own = 0;
    for_ids<THREADS, N>(row, from, to, [&](int, float logit) {
        const unsigned rank = ranking.rank(logit);
        if (rank != NO_RANK) own += ranking.share(rank);
    });
    own = warp_total(own);
    clear_histogram<THREADS>(w);
    __syncthreads();
    if (threadIdx.x % WARP == 0) w.sum[threadIdx.x / WARP] = own;
    __syncthreads();
}

/* Narrows [from, to) to the run in which the wanted share is reached, and makes the share relative
 * to that run. */
template <int THREADS, int N>
__device__ __forceinline__ void enter_run(const workspace<THREADS> &w, int *from, int *to,
                                          uint64 *wanted) {
    if (threadIdx.x < WARP) find_crossing<THREADS>(w, true, *wanted);
    __syncthreads();
    const int run = run_of_warp<THREADS, N>(*from, *to);
    *wanted -= w.crossing->before.sum;
    *from += w.crossing->digit * run;
    *to = *from + run < *to ? *from + run : *to;
}

/* Draws from all ids in their order: each warp sums a run, and the run with the drawn share is
 * divided again. */
template <int THREADS, int N>
__device__ __forceinline__ int
draw_from_all(const workspace<THREADS> &w, const struct logit_row &row,
              const struct by_weight &ranking, const struct sample_row &t) {
    int from = 0, to = row.V;
    add_runs<THREADS, N>(w, row, ranking, from, to);
    uint64 wanted = share_passed(t, block_total<THREADS>(w, w.sum[threadIdx.x]));
    enter_run<THREADS, N>(w, &from, &to, &wanted);
    while (to - from > 1) {
        add_runs<THREADS, 1>(w, row, ranking, from, to);
        enter_run<THREADS, 1>(w, &from, &to, &wanted);
    }
    return from;
}

/* Exclude top choices (XTC): the total share of the heaviest ids that may not be drawn. These are
 * all kept ids that reach the threshold except the last. */
template <int THREADS, int N>
__device__ uint64 share_excluded(selection<THREADS, N, by_weight> &s, const struct sample_row &t,
                                 const struct amount &kept) {
    const struct sampling &how = t.sampling;
    const double chance =
        philox_uniform(how.seed, (uint32_t)t.position, (uint32_t)t.choice, FOR_XTC);
    if (!(chance < (double)how.xtc_probability)) return 0;
    const float bound = (float)((double)how.xtc_threshold * ((double)kept.sum * SHARE_UNIT));
    unsigned own = 0;
    for_keys(s, false, [&](uint64 key) { own += weight_of_rank(rank_of_key(key)) >= bound; });
    unsigned above = (unsigned)block_total<THREADS>(s.w, own);
    if (above > kept.count) above = kept.count;
    return above > 1 ? select_key(s, false, above - 1).upto.sum : 0;
}

template <int THREADS, int N>
__device__ __forceinline__ int draw(const workspace<THREADS> &w, const struct logit_row &row,
                                    const struct sample_row &t, const struct best &best,
                                    struct sample_result *result) {
    const struct sampling &how = t.sampling;
    /* used for temperature 0 too if it is not finite */
    const float inverse = 1.0f / how.temperature;
    if (!isfinite(best.logit) || !isfinite(inverse)) return best.id;
    const bool is_cut = has_cuts(how);
    struct by_weight ranking = {best.logit, inverse, fminf(how.min_p, 1.0f)};
    if (how.top_k <= 0 && how.top_p >= 1.0f && how.min_p <= 0.0f && !is_cut)
        return draw_from_all<THREADS, N>(w, row, ranking, t);
    if (is_cut) ranking = cut<THREADS, N>(w, row, how, best.logit, t.mirostat_mu);
    selection<THREADS, N, by_weight> s = {w, row, ranking, false, {0, 0}};
    const struct amount all = list_best(s, floor_of<THREADS>(w, ranking, best), [](float) {});
    struct found last = {0, all};
    uint64 excluded = 0, left = 0;
    enum { TOP_K, TOP_P, CHOICE, END };
#pragma unroll 1 /* one loop, so that the selection is compiled once */
    for (int stage = TOP_K; stage < END; stage++) {
        const uint64 total = last.upto.sum;
        uint64 wanted = (uint64)how.top_k;
        if (stage == TOP_K && (how.top_k <= 0 || (unsigned)how.top_k >= all.count)) continue;
        if (stage == TOP_P && !(how.top_p < 1.0f)) continue;
        if (stage == TOP_P) wanted = share_wanted(how.top_p, total);
        if (stage == CHOICE && how.xtc_probability > 0) excluded = share_excluded(s, t, last.upto);
        if (stage == CHOICE) left = total - excluded, wanted = excluded + share_passed(t, left);
        last = select_key(s, stage != TOP_K, wanted);
    }
    if (how.mirostat_tau > 0 && threadIdx.x == 0) {
        const uint64 share = ranking.share(rank_of_key(last.key));
        result->mirostat_mu = mirostat_next(how, t.mirostat_mu, share, left);
    }
    return id_of_key(last.key);
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* The row for sampling, without biases and bans. */
__device__ __forceinline__ struct logit_row
row_with_counts(const struct sample_batch &b, const struct sample_row &t, const float *logits) {
    const struct sampling &how = t.sampling;
    const uint32_t *counts = t.slot >= 0 ? b.counts + (size_t)t.slot * b.V : nullptr;
    if (t.changes) return {logits, counts, t.mask, b.V, 1.0f, 0.0f, 0.0f};
    return {logits,
            counts,
            t.mask,
            b.V,
            how.repetition_penalty,
            how.frequency_penalty,
            how.presence_penalty};
}

/* Read again at each use, to save registers. */
__device__ __forceinline__ struct sample_place place_of(const struct sample_batch &b, int i) {
    return b.places ? b.places[i] : sample_place{i, i, i, -1, 1};
}

template <int THREADS, int N>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS) sample_kernel(struct sample_batch b) {
    using W = workspace<THREADS>;
    grid_begin();
    __shared__ unsigned count[W::DIGITS], listed[1];
    __shared__ uint64 sum[W::DIGITS], list[W::LIST], part[W::WARPS], key[1];
    __shared__ struct crossing crossing[1];
    __shared__ float kept[SAMPLE_MAX_CHANGES];
    const W w = {count, sum, list, listed, part, key, crossing};
    const struct sample_row t = b.rows[blockIdx.x];
    const struct sampling &how = t.sampling;
    struct sample_result *result = &b.results[place_of(b, blockIdx.x).result];
    float *logits = b.logits + (size_t)place_of(b, blockIdx.x).logits * b.V;
    const struct changes changes = {how.bias, how.banned, how.n_bias, how.n_bias + how.n_banned};
    const struct logit_row own = {logits, nullptr, nullptr, b.V, 1.0f, 0.0f, 0.0f};
    const struct logit_row row = row_with_counts(b, t, logits);
    uint32_t *counts = t.slot >= 0 ? b.counts + (size_t)t.slot * b.V : nullptr;
    const int n_words = t.slot >= 0 ? how.n_bad_words : 0;
    const bool beam = t.n_best > 0, scored = how.n_logprobs >= 0;
    const bool changed = changes.n > 0 || t.n_changes > 0 || row.counts || row.mask || beam;

    if (threadIdx.x == 0) {
        result->logprob = 0;
        result->rank = result->n_best = 0;
        result->mirostat_mu = t.mirostat_mu;
    }
    struct best best = {};
    double lse = 0;
    if (scored || !changed) best = best_of<THREADS, N>(w, own);
    if (scored) lse = score_row<THREADS, N>(w, own, best, t, result);
    if (changes.n > 0) { /* all readers of the row have passed a barrier */
        change_logits<THREADS>(changes, logits, kept);
        __syncthreads();
    }
    if (beam) take_log_softmax<THREADS>(logits, b.V, lse);
    change_by_history<THREADS>(t, logits);
    if (n_words > 0) {
        for_words_due<THREADS>(b.words[t.slot], n_words, t.n_output,
                               [&](int id) { atomicOr(&counts[id], SAMPLE_DUE); });
        __syncthreads();
    }
    if (changed) best = best_of<THREADS, N>(w, row);
    const int given = place_of(b, blockIdx.x).scored;
    const bool none = row.mask && best.logit == -INFINITY && !beam;
    int id = given >= 0 ? given : none ? -1 : best.id;
    if (given < 0 && !none && !beam) id = draw<THREADS, N>(w, row, t, best, result);
    if (beam) write_candidates<THREADS, N>(w, row, best, t.n_best, result);
    if (!beam) restore_history<THREADS>(t, logits);
    if (changes.n > 0 && !beam) {
        restore_logits<THREADS>(changes, logits, kept);
        __syncthreads();
    }
    if (scored && !none && !beam) score_chosen<THREADS, N>(w, own, lse, id, result);
    if (n_words > 0) {
        __syncthreads();
        for_words_due<THREADS>(b.words[t.slot], n_words, t.n_output,
                               [&](int last) { atomicAnd(&counts[last], ~SAMPLE_DUE); });
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    result->id = id;
    const struct sample_place place = place_of(b, blockIdx.x);
    if (place.id >= 0) b.ids[place.id] = id;
    if (t.slot < 0 || !place.counted || none) return;
    counts[id] += 1;
    if (n_words > 0) b.words[t.slot].tail[t.n_output % SAMPLE_TAIL] = id;
}

/* ---- slots ---------------------------------------------------------------------------------- */

enum { COUNT_THREADS = 256 };

__global__ void __launch_bounds__(COUNT_THREADS)
    count_kernel(uint32_t *counts, struct sample_words *words, int V, struct sample_past past) {
    grid_begin();
    const int i = blockIdx.x * COUNT_THREADS + threadIdx.x, n = past.n_prompt + past.n_output;
    if (past.allowed && i < V && !(past.allowed[i / 32] >> i % 32 & 1))
        atomicOr(&counts[i], SAMPLE_FORBIDDEN);
    if (past.bad_words && i < past.n_bad_words) words->word[i] = past.bad_words[i];
    if (i >= n) return;
    if (i < past.n_prompt) {
        atomicOr(&counts[past.history[i]], SAMPLE_IN_PROMPT);
        return;
    }
    atomicAdd(&counts[past.history[i]], 1u);
    if (past.n_bad_words > 0 && i >= n - SAMPLE_TAIL)
        words->tail[(past.n_held + i - past.n_prompt) % SAMPLE_TAIL] = past.history[i];
}

/* ---- launching ------------------------------------------------------------------------------ */

/* Small vocabularies occur in tests and toy models. */
enum { LARGE_V = 8192, LARGE_THREADS = 512, SMALL_THREADS = 128 };

void sample_rows(const struct sample_batch *batch, cudaStream_t stream) {
    assert(batch->V > 0 && batch->V <= SAMPLE_MAX_V);
    const bool large = batch->V >= LARGE_V, wide = batch->V % Vec16<float>::N == 0;
    void (*kernel)(struct sample_batch) =
        large  ? wide ? sample_kernel<LARGE_THREADS, 4> : sample_kernel<LARGE_THREADS, 1>
         : wide ? sample_kernel<SMALL_THREADS, 4>
               : sample_kernel<SMALL_THREADS, 1>;
    launch(kernel, dim3(batch->R), dim3(large ? LARGE_THREADS : SMALL_THREADS), 0, stream, *batch);
}

void sample_count_more(uint32_t *counts, struct sample_words *words, int V,
                       const struct sample_past *past, cudaStream_t stream) {
    assert(past->n_prompt >= 0 && past->n_output >= 0 && past->n_held >= 0);
    assert(past->n_prompt <= INT32_MAX - past->n_output && past->n_bad_words <= MAX_BAD_WORDS);
    int n = past->n_prompt + past->n_output;
    if (past->allowed && V > n) n = V;
    if (past->bad_words && past->n_bad_words > n) n = past->n_bad_words;
    const int blocks = n / COUNT_THREADS + (n % COUNT_THREADS > 0);
    launch(count_kernel, dim3(blocks), dim3(COUNT_THREADS), 0, stream, counts, words, V, *past);
}

void sample_count(uint32_t *counts, struct sample_words *words, int V,
                  const struct sample_past *past, cudaStream_t stream) {
    cuda_check(cudaMemsetAsync(counts, 0, (size_t)V * sizeof *counts, stream), "clearing counts");
    sample_count_more(counts, words, V, past, stream);
}
