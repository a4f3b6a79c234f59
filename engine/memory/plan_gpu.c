/* The memory of a GPU. --gpu-memory-utilization sets the process's share. Weights, scratch and
 * sampling do not depend on the cache and are allocated first. A part stays reserved. The rest is
 * for the KV cache and the work memory of attention, which grows with the cache. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "engine/memory/memory.h"

#define MIB ((int64_t)1 << 20)
#define MOST_KEPT (512 * MIB)
#define KEPT_SHARE 32 /* at most this fraction of the device's memory is reserved */
/* The pool has at most this many times the blocks that all sequences can fill: more would only
 * cache prefixes that are rarely reused. */
#define MOST_POOLS 4
/* A swapped token's keys and values cross the host's link twice, beside the steps; a recomputed
 * token takes 2 operations per parameter of a step. Assumes 20 GB/s each way and 200 TFLOP/s for
 * prefill. */
#define WORTH_SWAPPING 20000 /* operations per byte from which swapping is cheaper */
#define SWAP_SHARE 4         /* fraction of the host's free memory, unless requested otherwise */
#define DEFAULT_SWAP (4096 * MIB)

static int64_t chain_of(const struct engine_memory *plan) {
    return ((int64_t)plan->max_model_len + plan->block_size - 1) / plan->block_size;
}

/* The memory that the process may use. */
static int64_t budget(const struct engine_memory *plan) {
    int64_t share = (int64_t)((double)plan->device.total * plan->share);
    return min_int64(share, (int64_t)plan->device.free) - plan->kept - plan->draft;
}

/* The blocks of an encoder's steps in flight: its sequences leave with their steps. */
static int64_t encoder_blocks(const struct engine_memory *plan,
                              const struct engine_config *config) {
    int64_t rows = config->max_num_batched_tokens, B = plan->block_size;
    int64_t step = (rows + B - 1) / B + config->max_num_seqs;
    return max_int64(MAX_IN_FLIGHT * step, chain_of(plan));
}

static int64_t states_of(const struct engine_memory *plan) {
    return plan->n_states * plan->state_bytes;
}

/* A draft engine has at most as many blocks as the engine that it serves. */
static int64_t most_blocks(const struct engine_memory *plan, const struct engine_config *config) {
    if (plan->given > 0) return plan->given_blocks;
    int64_t most = MOST_POOLS * chain_of(plan) * config->max_num_seqs;
    if (plan->kv_bytes_per_token + plan->window_bytes_per_token == 0)
        most = max_int64(min_int64(most / MOST_POOLS, MOST_EMPTY_BLOCKS), chain_of(plan));
    if (plan->is_encoder) most = encoder_blocks(plan, config);
    return min_int64(most, INT32_MAX / plan->block_size);
}

void memory_device_begin(struct engine_memory *plan, const struct engine_config *config,
                         const struct device_memory *device) {
    int64_t total = (int64_t)device->total;
    plan->device = *device;
    plan->share =
        config->gpu_memory_utilization > 0 ? config->gpu_memory_utilization : DEFAULT_UTILIZATION;
    plan->kept = min_int64(total / KEPT_SHARE, MOST_KEPT);
    assert(plan->share > 0 && plan->share <= 1 && plan->kept >= 0);
}

/* ---- the pool on the device ----------------------------------------------------------------- */

/* The maximum number of blocks, up to `most`, that fits; 0 if not even one does. */
static int64_t fitting(const struct pool_cost *cost, int64_t left, int64_t most) {
    int64_t low = 0, high = most;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (cost->bytes(cost->arg, (int)middle) <= left)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The planned size of a pool, with `work` bytes per block. */
struct planned_pool {
    const struct engine_memory *plan;
    const struct engine_config *config;
    int64_t work;
};

static int64_t planned_bytes(void *arg, int n_blocks) {
    const struct planned_pool *pool = arg;
    return memory_pool_bytes(pool->plan, pool->config, n_blocks) + n_blocks * pool->work;
}

/* The number of blocks for config->kv_memory. If all layers have windows, blocks take no memory,
 * and the number is the maximum that can be useful. */
static int64_t asked_blocks(const struct engine_memory *plan, const struct engine_config *config) {
    struct planned_pool pool = {plan, config, 0};
    const struct pool_cost cost = {planned_bytes, &pool};
    int64_t most = INT32_MAX / plan->block_size;
    if (plan->kv_bytes_per_token == 0) most = most_blocks(plan, config);
    return fitting(&cost, config->kv_memory, most);
}

static void set_blocks(struct engine_memory *plan, const struct engine_config *config,
                       int64_t blocks) {
    assert(blocks >= chain_of(plan) && blocks <= INT32_MAX / plan->block_size);
    plan->n_blocks = (int)blocks;
    plan->n_window_blocks = memory_window_blocks(plan, config, blocks);
    plan->kv_cache = memory_pool_bytes(plan, config, blocks);
}

void memory_device_estimate(struct engine_memory *plan, const struct model_config *info,
                            const struct engine_config *config) {
    int64_t R = config->max_logit_rows > 0 ? config->max_logit_rows : config->max_num_seqs;
    /* attention's parts: for each 256 positions and each head, D numbers and two more */
    int64_t work =
        (int64_t)(config_widest(info).q + 2 * info->H) * (int64_t)sizeof(float) * plan->block_size;
    struct planned_pool pool = {plan, config, work / 256};
    const struct pool_cost cost = {planned_bytes, &pool};
    plan->sampling = (int64_t)sampling_slot_bytes(info->V) * (info->is_encoder ? 1 : R);
    int64_t left = budget(plan) - plan->weights - plan->scratch - plan->sampling - plan->adapters -
                   states_of(plan);
    int64_t blocks = config->kv_memory > 0 ? asked_blocks(plan, config)
                                           : fitting(&cost, left, most_blocks(plan, config));
    if (blocks < chain_of(plan)) blocks = chain_of(plan);
    set_blocks(plan, config, blocks);
    plan->steps = plan->n_blocks * pool.work;
    /* a model that has only recurrent layers keeps no keys and values */
    assert(plan->n_blocks > 0 && plan->kv_cache >= 0 && plan->steps >= 0);
}

int64_t memory_device_left(const struct engine_memory *plan, const struct engine_config *config) {
    const int64_t used = plan->weights + plan->scratch + plan->sampling + plan->adapters +
                         states_of(plan) + plan->kv_cache + plan->steps;
    const bool is_apart = config->kv_memory > 0 || plan->kv_cache == 0;
    return is_apart ? budget(plan) - used : plan->kv_cache;
}

/* The size of a pool together with that of a draft engine. */
struct drafted_pool {
    const struct pool_cost *cost;
    int64_t draft_block;
};

static int64_t drafted_bytes(void *arg, int n_blocks) {
    const struct drafted_pool *pool = arg;
    int64_t bytes = pool->cost->bytes(pool->cost->arg, n_blocks);
    bool is_much = __builtin_add_overflow(bytes, n_blocks * pool->draft_block, &bytes);
    return is_much ? INT64_MAX : bytes;
}

static const char *and_draft(char *out, size_t size, const struct engine_memory *plan) {
    *out = 0;
    if (plan->draft > 0) snprintf(out, size, ", and of the draft model %.1f", mib(plan->draft));
    return out;
}

static enum status refuse_sequence(const struct engine_memory *plan, int64_t need, int64_t left,
                                   int64_t blocks, struct err *err) {
    char remedy[64], draft[64];
    int64_t length = blocks * plan->block_size;
    if (length > 0)
        snprintf(remedy, sizeof remedy, "{max-model-len} %" PRId64 " or less", length);
    else
        snprintf(remedy, sizeof remedy, "a smaller model or fewer {max-num-seqs}");
    return err_set(err, STATUS_USAGE, "gpu-memory-utilization",
                   "the KV cache of one sequence of %d tokens takes %.1f MiB of the GPU, and of "
                   "its %.1f MiB {gpu-memory-utilization} %.2f leaves %.1f beside weights (%.1f), "
                   "activations (%.1f) and sampling (%.1f)%s; raise it, or give %s",
                   plan->max_model_len, mib(need), mib((int64_t)plan->device.total), plan->share,
                   mib(left > 0 ? left : 0), mib(plan->weights), mib(plan->scratch),
                   mib(plan->sampling), and_draft(draft, sizeof draft, plan), remedy);
}

static enum status refuse_given(const struct engine_config *config, int64_t need, int64_t left,
                                int64_t blocks, const struct engine_memory *plan, struct err *err) {
    char draft[64];
    return err_set(err, STATUS_USAGE, "kv-cache-memory",
                   "{kv-cache-memory} of %.1f MiB takes %.1f MiB of the GPU with the workspace of "
                   "attention, and %.1f are free beside weights (%.1f), activations (%.1f) and "
                   "sampling (%.1f)%s; %.1f MiB would fit",
                   mib(config->kv_memory), mib(need), mib(left > 0 ? left : 0), mib(plan->weights),
                   mib(plan->scratch), mib(plan->sampling), and_draft(draft, sizeof draft, plan),
                   mib(memory_pool_bytes(plan, config, blocks)));
}

/* The total memory of the engine; a draft engine has the memory reserved for it. */
static int64_t allowed(const struct engine_memory *plan) {
    return plan->given > 0 ? min_int64(plan->given, (int64_t)plan->device.free) : budget(plan);
}

enum status memory_device_pool(struct engine_memory *plan, const struct engine_config *config,
                               const struct device_memory *now, const struct pool_cost *cost,
                               struct err *err) {
    struct drafted_pool pool = {cost, plan->draft_block};
    const struct pool_cost all = {drafted_bytes, &pool};
    int64_t chain = chain_of(plan);
    int64_t used = (int64_t)plan->device.free - (int64_t)now->free;
    int64_t left = allowed(plan) - used - states_of(plan), blocks;
    int64_t most = most_blocks(plan, config);
    if (config->kv_memory > 0) {
        int64_t asked = asked_blocks(plan, config);
        left = (int64_t)now->free - plan->draft - states_of(plan);
        blocks = fitting(&all, left, asked);
        if (blocks < asked)
            return refuse_given(config, drafted_bytes(&pool, (int)asked), left, blocks, plan, err);
    } else {
        blocks = fitting(&all, left, most > chain ? most : chain);
        if (blocks < chain)
            return refuse_sequence(plan, drafted_bytes(&pool, (int)chain), left, blocks, err);
    }
    set_blocks(plan, config, blocks);
    plan->steps = cost->bytes(cost->arg, (int)blocks) - plan->kv_cache;
    if (plan->steps < 0) plan->steps = 0; /* a token's bytes are rounded up */
    return STATUS_OK;
}

/* ---- swap memory of the host ---------------------------------------------------------------- */

enum status memory_plan_swap(struct engine_memory *plan, const struct model_config *info,
                             const struct engine_config *config,
                             const struct machine_memory *machine, bool on_cuda, struct err *err) {
    bool asked = config->swap_space > 0;
    if (asked && !on_cuda)
        return err_set(
            err, STATUS_USAGE, "swap-space",
            "{swap-space} is for {device} cuda, which can swap keys and values to the host's "
            "memory; on the CPU they are already there: give more {kv-cache-memory}");
    if (asked && config->ranks > 1)
        return err_set(err, STATUS_USAGE, "swap-space",
                       "{swap-space} is for one GPU; with {tensor-parallel-size} leave it out, and "
                       "preempted sequences are recomputed");
    if (asked && config->swap_space > machine->available)
        return err_set(err, STATUS_USAGE, "swap-space",
                       "{swap-space} of %.1f MiB is more than this machine has free: %.1f MiB",
                       mib(config->swap_space), mib(machine->available));
    assert(plan->kv_bytes_per_token > 0 || info->lacks_attention);
    if (asked && config_recurrent_layers(info) > 0)
        return err_set(err, STATUS_USAGE, "swap-space",
                       "{swap-space}: the states of recurrent layers are not swapped, so preempted "
                       "sequences of this model are recomputed; leave it out");
    if (config_recurrent_layers(info) > 0) return STATUS_OK;
    int64_t operations = 2 * info->n_parameters / plan->kv_bytes_per_token; /* per byte */
    bool worth =
        on_cuda && config->ranks <= 1 && config->swap_space < 0 && operations >= WORTH_SWAPPING;
    if (info->is_encoder) worth = false; /* its sequences are never preempted */
    plan->swap = asked   ? config->swap_space
                 : worth ? min_int64(DEFAULT_SWAP, machine->available / SWAP_SHARE)
                         : 0;
    assert(plan->swap >= 0 && (plan->swap == 0 || on_cuda));
    return STATUS_OK;
}
