#include "kernels/cuda/experts/route.cuh"

#include "kernels/cuda/runtime/ptx.cuh"

enum { ELEMENT_THREADS = 256, NONE = 1 << 30 };

template <class T>
__global__ void __launch_bounds__(ELEMENT_THREADS) widen_kernel(float *y, const T *x, size_t n) {
    grid_begin();
    const size_t at = (size_t)blockIdx.x * ELEMENT_THREADS + threadIdx.x;
    if (at < n) y[at] = to_float(x[at]);
}

void route_widen(enum dtype act, float *y, const void *x, size_t n, cudaStream_t stream) {
    const dim3 grid((unsigned)((n + ELEMENT_THREADS - 1) / ELEMENT_THREADS));
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        launch(widen_kernel<T>, grid, dim3(ELEMENT_THREADS), 0, stream, y, (const T *)x, n);
    });
}

/* ---- a row's experts: one warp per row ------------------------------------------------------ */

/* The choice and the weights of a row's experts; see struct experts. */
struct routing_rule {
    int E, n_used, n_groups, n_used_groups;
    bool normalises, by_sigmoid;
    const float *correction, *expert_scale;
    float scale;
};

/* A logit and its expert. NaNs are chosen only if nothing else is left. */
struct expert_candidate {
    float logit;
    int expert; /* NONE: no candidate */
};
__device__ __forceinline__ bool is_before(const struct expert_candidate &a,
                                          const struct expert_candidate &b) {
    if (a.expert == NONE || b.expert == NONE) return a.expert < b.expert;
    if (a.logit != a.logit || b.logit != b.logit) return a.logit == a.logit;
    return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

/* The best of a lane's remaining experts: lane, lane + 32, .., except those in `taken`. */
__device__ __forceinline__ struct expert_candidate best_left(const float *logits, int E,
                                                             unsigned taken, int lane) {
    struct expert_candidate best = {0.0f, NONE};
    for (int i = 0; lane + i * WARP < E; i++) {
        const struct expert_candidate next = {logits[lane + i * WARP], lane + i * WARP};
        if (!(taken >> i & 1) && is_before(next, best)) best = next;
    }
    return best;
}

__device__ __forceinline__ struct expert_candidate warp_best(struct expert_candidate best) {
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const struct expert_candidate other = {__shfl_xor_sync(FULL_MASK, best.logit, apart),
                                               __shfl_xor_sync(FULL_MASK, best.expert, apart)};
        if (is_before(other, best)) best = other;
    }
    return {__shfl_sync(FULL_MASK, best.logit, 0), __shfl_sync(FULL_MASK, best.expert, 0)};
}

/* The n best of a row in falling order. */
__device__ __forceinline__ void choose(int *chosen, const float *row, int E, int n, int lane) {
    unsigned taken = 0;
    for (int i = 0; i < n; i++) {
        const struct expert_candidate best = warp_best(best_left(row, E, taken, lane));
        if (best.expert % WARP == lane) taken |= 1u << best.expert / WARP;
        if (lane == 0) chosen[i] = best.expert;
    }
    __syncwarp();
}

__device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* Do scores, not logits, determine a row's experts? */
__device__ __forceinline__ bool has_scores(const struct routing_rule &rule) {
    return rule.by_sigmoid || rule.correction || rule.n_used_groups < rule.n_groups;
}

/* Excludes the experts outside the best groups; one lane per group. A group ranks by the sum of its
 * two largest values, for a softmax by its largest. */
__device__ __forceinline__ void drop_groups(float *choice, const struct routing_rule &rule,
                                            int lane) {
    __shared__ float best[MAX_EXPERT_GROUPS];
    __shared__ int chosen[MAX_EXPERT_GROUPS];
    const int size = rule.E / rule.n_groups;
    if (lane < rule.n_groups) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < size; i++) {
            const float next = choice[lane * size + i];
            second = fmaxf(second, fminf(first, next));
            first = fmaxf(first, next);
        }
        best[lane] = rule.by_sigmoid ? first + second : first;
    }
    __syncwarp();
    choose(chosen, best, rule.n_groups, rule.n_used_groups, lane);
    for (int e = lane; e < rule.E; e += WARP) {
        bool stays = false;
        for (int i = 0; i < rule.n_used_groups; i++) stays = stays || chosen[i] == e / size;
        if (!stays) choice[e] = -INFINITY;
    }
    __syncwarp();
}

/* The largest logit of a row. */
__device__ __forceinline__ float largest(const float *row, int E, int lane) {
    float most = -INFINITY;
    for (int e = lane; e < E; e += WARP) most = fmaxf(most, row[e]);
    return warp_max(most);
}

/* The sum of the exponentials of a row's logits, less the largest. */
__device__ __forceinline__ float sum_of_exponentials(const float *row, int E, float max, int lane) {
    float sum = 0.0f;
    for (int e = lane; e < E; e += WARP) sum = sum + expf(row[e] - max);
    return warp_sum(sum);
}

/* The values by which a row's experts are chosen: its logits, or scores with their correction. */
__device__ __forceinline__ const float *choice_of(const float *row, float *choice,
                                                  const struct routing_rule &rule, int lane) {
    if (!has_scores(rule)) return row;
    const float max = rule.by_sigmoid ? 0.0f : largest(row, rule.E, lane);
    const float sum = rule.by_sigmoid ? 1.0f : sum_of_exponentials(row, rule.E, max, lane);
    for (int e = lane; e < rule.E; e += WARP) {
        const float score = rule.by_sigmoid ? sigmoid(row[e]) : expf(row[e] - max) / sum;
        choice[e] = score + (rule.correction ? rule.correction[e] : 0.0f);
    }
    __syncwarp();
    if (rule.n_used_groups < rule.n_groups) drop_groups(choice, rule, lane);
    return choice;
}

__global__ void __launch_bounds__(WARP)
    route_kernel(int32_t *expert, float *weight, const float *logits, struct routing_rule rule) {
    __shared__ int chosen[MAX_USED_EXPERTS], rising[MAX_USED_EXPERTS];
    __shared__ float choice[MAX_EXPERTS];
    grid_begin();
    const int lane = threadIdx.x, E = rule.E, n_used = rule.n_used;
    const float *row = logits + (size_t)blockIdx.x * E;
    const size_t at = (size_t)blockIdx.x * n_used;
    choose(chosen, choice_of(row, choice, rule, lane), E, n_used, lane);
    const float max = has_scores(rule) ? largest(row, E, lane) : row[chosen[0]];
    for (int i = lane; i < n_used; i += WARP) { /* in rising order */
        int before = 0;
        for (int j = 0; j < n_used; j++) before += chosen[j] < chosen[i];
        rising[before] = chosen[i];
    }
    __syncwarp();
    auto score = [&](int e) { return rule.by_sigmoid ? sigmoid(row[e]) : expf(row[e] - max); };
    float sum = 0.0f;
    if (rule.normalises) {
        for (int i = 0; i < n_used; i++) sum = sum + score(rising[i]);
        if (has_scores(rule)) sum = sum + 1e-20f;
    } else if (rule.by_sigmoid) {
        sum = 1.0f;
    } else {
        sum = sum_of_exponentials(row, E, max, lane);
    }
    for (int i = lane; i < n_used; i += WARP) {
        expert[at + i] = rising[i];
        const float scaled = score(rising[i]) / sum * rule.scale;
        weight[at + i] = rule.expert_scale ? scaled * rule.expert_scale[rising[i]] : scaled;
    }
}

/* ---- an expert's rows: one warp per expert -------------------------------------------------- */

/* Slots are assigned in the order of the experts, and within an expert in the order of the rows. */
__global__ void __launch_bounds__(WARP) group_kernel(struct routing r, int slots, int n_used) {
    grid_begin();
    const int e = (int)blockIdx.x, lane = threadIdx.x;
    int next = 0;
    for (int i = lane; i < slots; i += WARP) next += r.expert[i] < e;
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        next += __shfl_xor_sync(FULL_MASK, next, apart);
    if (lane == 0) r.first[e] = next;
    for (int from = 0; from < slots; from += WARP) {
        const int i = from + lane;
        const bool is_mine = i < slots && r.expert[i] == e;
        const unsigned mine = __ballot_sync(FULL_MASK, is_mine);
        if (is_mine) {
            const int slot = next + __popc(mine & ((1u << lane) - 1));
            r.row_of[slot] = i / n_used;
            r.slot_of[i] = slot;
        }
        next += __popc(mine);
    }
    if (lane == 0 && e == (int)gridDim.x - 1) r.first[e + 1] = next;
}

/* Divides each expert's slots into blocks; the last warp pads the list. */
__global__ void __launch_bounds__(WARP) blocks_kernel(struct routing r, int E, int n) {
    grid_begin();
    const int e = (int)blockIdx.x, lane = threadIdx.x;
    int before = 0;
    for (int i = lane; i < e; i += WARP)
        before += (r.first[i + 1] - r.first[i] + GROUPED_ROWS - 1) / GROUPED_ROWS;
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        before += __shfl_xor_sync(FULL_MASK, before, apart);
    if (e == E) {
        for (int i = before + lane; i < n; i += WARP) r.rows[i] = {0, 0, 0};
        return;
    }
    const int first = r.first[e], end = r.first[e + 1];
    for (int i = lane; first + i * GROUPED_ROWS < end; i += WARP) {
        const int from = first + i * GROUPED_ROWS;
        r.rows[before + i] = {e, from, min(GROUPED_ROWS, end - from)};
    }
}

void route_rows(const struct routing *routing, const float *logits, int M,
                const struct experts *experts, cudaStream_t stream) {
    const int E = experts->E, n_used = experts->n_used;
    assert(E <= MAX_EXPERTS && MAX_EXPERTS <= WARP * WARP && n_used <= MAX_USED_EXPERTS);
    const struct routing_rule rule = {E,
                                      n_used,
                                      experts->n_groups,
                                      experts->n_used_groups,
                                      experts->normalises,
                                      experts->by_sigmoid,
                                      experts->correction,
                                      experts->expert_scale,
                                      experts_weight_scale(experts)};
    assert(rule.n_groups <= MAX_EXPERT_GROUPS && MAX_EXPERT_GROUPS <= WARP);
    launch(route_kernel, dim3(M), dim3(WARP), 0, stream, routing->expert, routing->weight, logits,
           rule);
    launch(group_kernel, dim3(E), dim3(WARP), 0, stream, *routing, M * n_used, n_used);
    launch(blocks_kernel, dim3(E + 1), dim3(WARP), 0, stream, *routing, E,
           routing_blocks(M, n_used, E));
}

/* ---- the sum: one block per row ------------------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(ELEMENT_THREADS)
    sum_kernel(T *sum, const T *y, struct routing r, int n_used, const T *shared, const float *gate,
               int K) {
    grid_begin();
    const size_t row = blockIdx.x, at = row * n_used;
    const float shared_weight = gate ? 1.0f / (1.0f + expf(-gate[row])) : 1.0f;
    for (int k = threadIdx.x; k < K; k += ELEMENT_THREADS) {
        float value = to_float(sum[row * K + k]);
        for (int i = 0; i < n_used; i++)
            value = value + r.weight[at + i] * to_float(y[(size_t)r.slot_of[at + i] * K + k]);
        if (shared) value = value + shared_weight * to_float(shared[row * K + k]);
        sum[row * K + k] = from_float<T>(value);
    }
}

void route_sum(enum dtype act, void *sum, const void *y, const struct routing *routing, int n_used,
               const void *shared, const float *gate, int M, int K, cudaStream_t stream) {
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        launch(sum_kernel<T>, dim3(M), dim3(ELEMENT_THREADS), 0, stream, (T *)sum, (const T *)y,
               *routing, n_used, (const T *)shared, gate, K);
    });
}
