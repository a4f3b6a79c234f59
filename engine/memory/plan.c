#include "engine/memory/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define DEFAULT_MAX_BYTES (512 * MIB) /* KV memory if no size is given */
#define DEFAULT_SHARE 4 /* the default takes at most this fraction of the free memory */
#define MAX_SEQS 65536
#define MAX_ROWS (1 << 20)

static bool on_cuda(const struct engine_config *config) {
    return config->device == DEVICE_CUDA;
}

/* ---- the type of keys and values ------------------------------------------------------------ */

enum { ON_CPU = 1, ON_CUDA = 2, ON_CUDA_IN_FLOAT32 = 4, IN_PAIRS = 8 };

static const struct kv_type {
    enum dtype dtype;
    int flags;
} kv_types[] = {
    [KV_DTYPE_INT16] = {DTYPE_I16, ON_CPU | IN_PAIRS},
    [KV_DTYPE_Q8_0] = {DTYPE_Q8_0, ON_CPU | IN_PAIRS},
    [KV_DTYPE_FLOAT16] = {DTYPE_F16, ON_CPU | ON_CUDA},
    [KV_DTYPE_FLOAT32] = {DTYPE_F32, ON_CPU | ON_CUDA_IN_FLOAT32},
    [KV_DTYPE_BFLOAT16] = {DTYPE_BF16, ON_CUDA},
    [KV_DTYPE_FP8] = {DTYPE_E4M3, ON_CUDA},
};

/* Does the configured device support this type? */
static enum status check_kv_device(const struct engine_config *config, const char *name, int flags,
                                   struct err *err) {
    const bool cuda = on_cuda(config);
    if (!cuda && !(flags & ON_CPU))
        return err_set(err, STATUS_USAGE, "kv-cache-dtype",
                       "{kv-cache-dtype} %s is for {device} cuda; on the CPU give int16, q8_0, "
                       "float16 or float32",
                       name);
    if (!cuda || flags & ON_CUDA) return STATUS_OK;
    if (!(flags & ON_CUDA_IN_FLOAT32))
        return err_set(
            err, STATUS_USAGE, "kv-cache-dtype",
            "{kv-cache-dtype} %s is for the CPU; with {device} cuda give float16, bfloat16 or fp8",
            name);
    if (config->dtype == COMPUTE_FLOAT32) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "kv-cache-dtype",
                   "{kv-cache-dtype} %s on {device} cuda needs {dtype} float32; else give float16, "
                   "bfloat16 or fp8",
                   name);
}

/* The meaning of "auto". */
static enum kv_dtype usual_kv_dtype(const struct engine_config *config,
                                    const struct model_config *model) {
    const bool bf16 = strcmp(model->quantisation, dtype_name(DTYPE_BF16)) == 0;
    if (config->dtype == COMPUTE_FLOAT32) return KV_DTYPE_FLOAT32;
    if (!on_cuda(config)) return KV_DTYPE_INT16;
    return bf16 && config->dtype != COMPUTE_FLOAT16 ? KV_DTYPE_BFLOAT16 : KV_DTYPE_FLOAT16;
}

enum status memory_plan_kv_dtype(const struct engine_config *config,
                                 const struct model_config *model, enum dtype *out,
                                 struct err *err) {
    const enum kv_dtype asked = config->kv_dtype ? config->kv_dtype : usual_kv_dtype(config, model);
    const char *name = value_name(kv_dtype_names, (int)asked);
    const struct kv_type *type = &kv_types[asked];
    enum status status = check_kv_device(config, name, type->flags, err);
    if (status) return status;
    if (type->flags & IN_PAIRS && config->block_size % 2)
        return err_set(
            err, STATUS_USAGE, "block-size",
            "{block-size} %d is odd, and a KV cache of %s takes positions in pairs; give "
            "an even one, or {kv-cache-dtype} float16",
            config->block_size, name);
    *out = type->dtype;
    return STATUS_OK;
}

const char *memory_kv_name(enum dtype dtype) {
    int i = KV_DTYPE_INT16;
    while (kv_types[i].dtype != dtype) {
        i++;
        assert(i < (int)(sizeof kv_types / sizeof *kv_types));
    }
    return value_name(kv_dtype_names, i);
}

/* ---- settings ------------------------------------------------------------------------------- */

static enum status check_range(const char *option, int value, int least, int most,
                               struct err *err) {
    if (value >= least && value <= most) return STATUS_OK;
    return err_set(err, STATUS_USAGE, option, "{%s} %d is out of range; %d to %d is possible",
                   option, value, least, most);
}

static enum status check_settings(const struct engine_config *config, struct err *err) {
    enum status status = check_range("block-size", config->block_size, 1, MAX_BLOCK_SIZE, err);
    if (status == STATUS_OK)
        status = check_range("max-num-seqs", config->max_num_seqs, 1, MAX_SEQS, err);
    if (status == STATUS_OK)
        status =
            check_range("max-num-batched-tokens", config->max_num_batched_tokens, 1, MAX_ROWS, err);
    if (status != STATUS_OK) return status;
    if (config->kv_memory < 0) {
        return err_set(err, STATUS_USAGE, "kv-cache-memory",
                       "{kv-cache-memory} cannot be negative; 0 lets it be chosen");
    }
    double share = config->gpu_memory_utilization;
    if (!(share >= 0 && share <= 1))
        return err_set(err, STATUS_USAGE, "gpu-memory-utilization",
                       "{gpu-memory-utilization} is a share of the GPU's memory, above 0 and at "
                       "most 1");
    return STATUS_OK;
}

/* Rows of a step, unless a longer context is requested. */
enum { ENCODER_ROWS = 2048 };

void memory_fit_encoder(struct engine_config *config, const struct model_config *model) {
    int length = config->max_model_len, *rows = &config->max_num_batched_tokens;
    if (!model->is_encoder) return;
    if (length == 0) length = min_int(model->context_length, max_int(*rows, ENCODER_ROWS));
    *rows = min_int(max_int(*rows, length), MAX_ROWS);
    config->max_model_len = config->max_model_len ? config->max_model_len : length;
    config->max_logit_rows = *rows;
}

static enum status plan_length(struct engine_memory *plan, const struct model_config *info,
                               const struct engine_config *config, struct err *err) {
    plan->max_model_len = config->max_model_len ? config->max_model_len : info->context_length;
    int longest = max_int(info->context_length, info->longest_context);
    if (plan->max_model_len >= 1 && plan->max_model_len <= longest) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "max-model-len",
                   "{max-model-len} %d is out of range; the model was %s 1 to %d tokens",
                   config->max_model_len,
                   longest > info->context_length ? "stretched to" : "trained for", longest);
}

/* ---- the KV pool ---------------------------------------------------------------------------- */

/* The division of the pool. One sequence of full length needs `chain` blocks and at least `least`
 * window blocks: those that a row sees, and those that a step adds before it ends. */
struct pool_shares {
    int64_t chain, block_bytes;
    int64_t seen, least, window_bytes;
    /* blocks of both kinds for the usual length, at which both should be exhausted together */
    int64_t usual, usual_seen;
};

enum { USUAL_WINDOWS = 8 }; /* the usual length, in windows */

static int64_t chain_of(const struct engine_memory *plan) {
    return ((int64_t)plan->max_model_len + plan->block_size - 1) / plan->block_size;
}

static struct pool_shares shares_of(const struct engine_memory *plan,
                                    const struct engine_config *config) {
    int64_t B = plan->block_size, usual = plan->max_model_len;
    struct pool_shares s = {.chain = chain_of(plan),
                            .block_bytes = plan->kv_bytes_per_token * B,
                            .window_bytes = plan->window_bytes_per_token * B};
    s.usual = s.chain;
    if (plan->window == 0) return s;
    s.seen = window_blocks_seen(plan->window, plan->block_size);
    s.least = s.seen + (config->max_num_batched_tokens + B - 1) / B;
    usual = min_int64(usual, (int64_t)USUAL_WINDOWS * plan->window);
    s.usual = (usual + B - 1) / B;
    s.usual_seen = min_int64(s.usual, s.seen);
    return s;
}

/* Bytes of a sequence of full length. */
static int64_t bytes_of_one(const struct pool_shares *s) {
    return s->chain * s->block_bytes + s->least * s->window_bytes;
}

/* Bytes per token of the layers with their own keys and values: of layers with windows, of the
 * others, or, with `both`, of all. Each rank keeps all rows of latent attention. */
static int64_t token_bytes(const struct model_config *info, const struct engine_config *config,
                           enum dtype dtype, bool windows, bool both) {
    struct kv_heads all[MAX_LAYERS], heads[MAX_LAYERS];
    struct kv_config kv = {.block_size = config->block_size, .dtype = dtype, .heads = heads};
    int n = config_kv_heads(info, all);
    for (int i = 0; i < n; i++)
        if (both || (info->layer[i].window > 0) == windows) heads[kv.L++] = all[i];
    const int copies = info->latent.is_used && config->ranks > 1 ? config->ranks : 1;
    return kv.L > 0 ? copies * (int64_t)kv_token_bytes(&kv) : 0;
}

/* Layers with windows use window blocks if that saves memory. */
static void plan_windows(struct engine_memory *plan, const struct model_config *info,
                         const struct engine_config *config, enum dtype dtype) {
    /* the rows of an encoder are all in one step, and see both ways */
    for (int i = 0; i < info->L && !info->is_encoder; i++)
        plan->window = max_int(plan->window, info->layer[i].window);
    struct pool_shares s = shares_of(plan, config);
    bool saves = config->window_blocks > 0 || s.least < s.chain;
    if (plan->window == 0 || config->window_blocks == 0 || !saves) {
        plan->window = 0;
        return;
    }
    plan->window_bytes_per_token = token_bytes(info, config, dtype, true, false);
    plan->kv_bytes_per_token = token_bytes(info, config, dtype, false, false);
}

int memory_window_blocks(const struct engine_memory *plan, const struct engine_config *config,
                         int64_t n_blocks) {
    assert(n_blocks >= 0);
    if (plan->window == 0) return 0;
    const struct pool_shares s = shares_of(plan, config);
    int64_t windows = s.least - s.seen + (n_blocks * s.usual_seen + s.usual - 1) / s.usual;
    windows = min_int64(windows, s.least + n_blocks - s.chain);
    windows = max_int64(windows, s.least);
    if (config->window_blocks > 0) windows = config->window_blocks;
    return (int)min_int64(windows, n_blocks);
}

int64_t memory_pool_bytes(const struct engine_memory *plan, const struct engine_config *config,
                          int64_t n_blocks) {
    assert(n_blocks >= 0);
    int64_t windows = memory_window_blocks(plan, config, n_blocks);
    return (n_blocks * plan->kv_bytes_per_token + windows * plan->window_bytes_per_token) *
           plan->block_size;
}

/* A slot's number is block * block_size + offset in an int32, which limits the slots of a pool. */
static int64_t most_blocks(const struct engine_memory *plan) {
    return INT32_MAX / plan->block_size;
}

/* Memory left after weights and scratch. */
static int64_t left_for_kv(const struct engine_memory *plan, const struct machine_memory *machine) {
    int64_t left = machine->available - plan->weights - plan->scratch - plan->adapters;
    left -= plan->n_states * plan->state_bytes;
    return left > 0 ? left : 0;
}

static enum status refuse_small_pool(const struct engine_memory *plan, int64_t given, int64_t need,
                                     struct err *err) {
    int64_t block_bytes = plan->kv_bytes_per_token * plan->block_size;
    int64_t rest = given - (need - block_bytes * chain_of(plan)); /* after the window blocks */
    int64_t length = block_bytes > 0 && rest > 0 ? rest / block_bytes * plan->block_size : 0;
    char remedy[64] = "";
    if (length > 0) snprintf(remedy, sizeof remedy, ", or {max-model-len} %" PRId64, length);
    return err_set(err, STATUS_USAGE, "kv-cache-memory",
                   "{kv-cache-memory} of %" PRId64 " bytes is too small for one sequence of %d "
                   "tokens: give at least %" PRId64 " (%" PRId64 " bytes a token)%s",
                   given, plan->max_model_len, need, plan->kv_bytes_per_token, remedy);
}

static enum status refuse_small_machine(const struct engine_memory *plan,
                                        const struct machine_memory *machine, int64_t left,
                                        int64_t need, struct err *err) {
    int64_t rest = left - (need - plan->kv_bytes_per_token * plan->block_size * chain_of(plan));
    int64_t length = 0;
    if (plan->kv_bytes_per_token > 0 && rest > 0)
        length = rest / plan->kv_bytes_per_token / plan->block_size * plan->block_size;
    if (length > 0)
        return err_set(err, STATUS_USAGE, "max-model-len",
                       "the KV cache of one sequence of %d tokens takes %" PRId64
                       " MiB, and %" PRId64 " MiB are left beside weights and scratch; give "
                       "{max-model-len} %" PRId64 " or less",
                       plan->max_model_len, need / MIB, left / MIB, length);
    return err_set(err, STATUS_USAGE, "max-num-batched-tokens",
                   "the %" PRId64
                   " MiB of free memory leave nothing for keys and values beside weights (%" PRId64
                   " MiB) and scratch (%" PRId64 " MiB); lower "
                   "{max-num-batched-tokens} or {max-num-seqs}, or give a smaller model",
                   machine->available / MIB, plan->weights / MIB, plan->scratch / MIB);
}

/* The default pool: modest, because no size is given, but large enough for every sequence to
 * finish. */
static int64_t default_bytes(const struct engine_memory *plan, const struct engine_config *config,
                             const struct machine_memory *machine, const struct pool_shares *s) {
    int64_t share = min_int64(machine->available / DEFAULT_SHARE, left_for_kv(plan, machine));
    int64_t all = config->max_num_seqs * (s->chain * s->block_bytes + s->seen * s->window_bytes) +
                  (s->least - s->seen) * s->window_bytes;
    int64_t bytes = min_int64(min_int64(share, DEFAULT_MAX_BYTES), all);
    return max_int64(bytes, bytes_of_one(s));
}

/* Divides the pool's bytes, which hold at least one sequence of full length, so that sequences of
 * usual length exhaust blocks and window blocks together. */
static void divide_pool(struct engine_memory *plan, const struct engine_config *config,
                        const struct pool_shares *s, int64_t bytes) {
    int64_t windows = 0, blocks, chains = s->chain * config->max_num_seqs;
    if (plan->window > 0) {
        int64_t beyond = bytes - (s->least - s->seen) * s->window_bytes;
        int64_t one = s->usual * s->block_bytes + s->usual_seen * s->window_bytes;
        double sequences = (double)beyond / (double)one;
        windows = s->least - s->seen + (int64_t)(sequences * (double)s->usual_seen);
        int64_t most = (bytes - s->chain * s->block_bytes) / s->window_bytes;
        windows = min_int64(max_int64(windows, s->least), most);
        if (config->window_blocks > 0) windows = config->window_blocks;
    }
    if (s->block_bytes > 0)
        blocks = (bytes - windows * s->window_bytes) / s->block_bytes;
    else if (plan->window > 0) /* they take no memory except in the scheduler */
        blocks = min_int64(max_int64(windows * s->usual / s->usual_seen, s->chain), chains);
    else
        blocks = max_int64(min_int64(chains, MOST_EMPTY_BLOCKS), s->chain);
    if (s->block_bytes == 0) blocks = max_int64(blocks, config->window_blocks);
    blocks = min_int64(blocks, most_blocks(plan));
    plan->n_blocks = (int)blocks;
    plan->n_window_blocks = (int)min_int64(windows, blocks);
    plan->kv_cache = blocks * s->block_bytes + plan->n_window_blocks * s->window_bytes;
}

static enum status plan_pool(struct engine_memory *plan, const struct engine_config *config,
                             const struct machine_memory *machine, struct err *err) {
    const struct pool_shares s = shares_of(plan, config);
    int64_t bytes, need = bytes_of_one(&s), left = left_for_kv(plan, machine);
    if (config->window_blocks > 0)
        need = s.chain * s.block_bytes + config->window_blocks * s.window_bytes;
    if (config->kv_memory > 0) {
        bytes = config->kv_memory;
        if (bytes < need) return refuse_small_pool(plan, bytes, need, err);
    } else {
        bytes = default_bytes(plan, config, machine, &s);
        if (need > left) return refuse_small_machine(plan, machine, left, need, err);
    }
    divide_pool(plan, config, &s, bytes);
    assert(plan->n_blocks >= s.chain && plan->n_blocks <= most_blocks(plan));
    if (plan->kv_cache > left) /* the whole pool may be used */
        return err_set(err, STATUS_USAGE, "kv-cache-memory",
                       "{kv-cache-memory} of %" PRId64 " MiB is more than this machine has "
                       "free beside weights and scratch: %" PRId64 " MiB",
                       config->kv_memory / MIB, left / MIB);
    return STATUS_OK;
}

/* Plans the machine's pool, or estimates the device's before anything is allocated. */
static enum status plan_any_pool(struct engine_memory *plan, const struct model_config *info,
                                 const struct engine_config *config,
                                 const struct machine_memory *machine, struct err *err) {
    if (!on_cuda(config) || machine->device.total == 0)
        return plan_pool(plan, config, machine, err);
    int64_t need = memory_pool_bytes(plan, config, chain_of(plan));
    if (config->kv_memory > 0 && config->kv_memory < need)
        return refuse_small_pool(plan, config->kv_memory, need, err);
    memory_device_begin(plan, config, &machine->device);
    memory_device_estimate(plan, info, config);
    return STATUS_OK;
}

/* Plans the states of cached prefixes. On a device their memory is a part of the pool's, which
 * becomes smaller. */
static void plan_checkpoints(struct engine_memory *plan, const struct model_config *info,
                             const struct engine_config *config,
                             const struct machine_memory *machine) {
    const bool on_device = on_cuda(config) && machine->device.total > 0;
    const int64_t left =
        on_device ? memory_device_left(plan, config) : left_for_kv(plan, machine) - plan->kv_cache;
    memory_plan_checkpoints(plan, config, left);
    if (on_device) memory_device_estimate(plan, info, config);
}

/* The numbers of adapters: the given bytes, which must fit beside weights and scratch. With a GPU
 * they are in the host's memory and, again, in the device's, which counts them in its pool. Each of
 * several GPUs has its share. */
static enum status plan_adapters(struct engine_memory *plan, const struct engine_config *config,
                                 const struct machine_memory *machine, struct err *err) {
    int64_t left = machine->available;
    if (!on_cuda(config)) left -= plan->weights + plan->scratch;
    if (config->max_adapters == 0) return STATUS_OK;
    assert(config->adapter_memory > 0);
    plan->adapters = config->adapter_memory;
    if (plan->adapters < left) {
        if (on_cuda(config) && config->ranks > 1) plan->adapters /= config->ranks;
        return STATUS_OK;
    }
    return err_set(err, STATUS_USAGE, "lora-memory",
                   "%d adapters of rank %d take up to %" PRId64 " MiB, and %" PRId64
                   " MiB of the host's memory are free for them; lower {max-loras} or "
                   "{max-lora-rank}, or give a smaller {lora-memory}",
                   config->max_adapters, config->max_adapter_rank, plan->adapters / MIB,
                   left > 0 ? left / MIB : 0);
}

/* ---- the rest ------------------------------------------------------------------------------- */

/* Returns the widest part of a row's keys that every rank has whole: those of latent attention, the
 * latent vectors of queries, and the first products of a decay per channel. */
static int64_t whole_keys(const struct model_config *info) {
    const struct latent_config *l = &info->latent;
    const int64_t first = info->state.by_channel ? 2 * (int64_t)info->state.dk : 0;
    const int64_t latent = l->is_used ? max_int64(l->q_rank, (int64_t)info->G * info->D) : 0;
    return max_int64(first, latent);
}

/* Returns the numbers of a row's experts. The ranks of a CPU copy its inputs for each expert and
 * divide the hidden numbers. With an MLP beside them the outputs of both are kept. */
static int64_t expert_numbers(const struct model_config *info, int64_t ranks, bool copied) {
    const struct expert_config *e = &info->experts;
    const int64_t hidden = max_int64(e->F, e->F_shared), copies = copied ? ranks : 1;
    if (!e->is_used) return 0;
    assert(e->n_used > 0 && e->n_used <= e->E);
    return e->n_used * (copies * info->K + hidden) + copies * ((int64_t)info->K + e->E) +
           (e->beside_mlp ? ranks * info->K : 0);
}

/* A step's rows in float32. On every rank: the residual stream, its normalised copy and a block's
 * output. Divided among ranks: q and the attention's output; k and v, but for whole_keys; gate and
 * up; the layers' own inputs; the logits. A layer that guesses ahead has four more rows. */
static int64_t scratch_bytes(const struct model_config *info, const struct engine_config *config) {
    int64_t M = config->max_num_batched_tokens;
    int64_t R = config->max_logit_rows > 0 ? config->max_logit_rows : config->max_num_seqs;
    const struct config_widths most = config_widest(info);
    int64_t ranks = config->ranks > 1 ? config->ranks : 1, K = info->K;
    int64_t q = most.q, kv = most.kv + (ranks - 1) * whole_keys(info);
    int64_t inputs = ranks * (int64_t)info->L * info->P, ahead = info->n_ahead * K;
    int64_t joined = info->eagle.is_used ? 3 * (ranks - 1) * K : 0; /* and a wider part */
    int64_t latent = info->latent.is_used ? config_latent_width(info) : 0;
    int64_t gates =
        info->state.kind == STATE_DELTA ? (int64_t)info->H * info->D : 0; /* of attention */
    if (info->mixes_both) gates = config_recurrent_width(info); /* the outputs of states */
    int64_t row = gates + 3 * ranks * K + 2 * q + 2 * kv + 2 * (int64_t)most.F + latent +
                  expert_numbers(info, ranks, !on_cuda(config)) + (ranks + 3) * ahead + joined;
    int64_t read = (info->is_encoder ? K : info->V) + ahead + info->eagle.V;
    /* a row's products with the matrices A of a few projections, its place in a part, and the
     * inputs of one product */
    if (config->max_adapters > 0)
        row += ranks * (4 * (int64_t)config->max_adapter_rank + 18 + K) + most.F + q;
    /* on a GPU room for the outputs of two products */
    if (config->max_adapters > 0 && on_cuda(config)) row += max_int64(most.F, 2 * K);
    return (M * (row + 2 * inputs) + R * (read + inputs)) * (int64_t)sizeof(float);
}

enum status memory_plan(struct engine_memory *out, const struct model_config *info,
                        const struct engine_config *config, const struct machine_memory *machine,
                        struct err *err) {
    enum dtype dtype = DTYPE_F16;
    struct engine_memory plan = {.block_size = config->block_size, .is_encoder = info->is_encoder};
    enum status status = check_settings(config, err);
    if (status == STATUS_OK) status = memory_plan_kv_dtype(config, info, &dtype, err);
    if (status == STATUS_OK) status = plan_length(&plan, info, config, err);
    if (status != STATUS_OK) return status;
    plan.weights = config->dtype == COMPUTE_FLOAT32 ? info->n_parameters * 4 : info->file_bytes;
    if (on_cuda(config) && config->ranks > 1) plan.weights /= config->ranks; /* per device */
    const struct eagle_config *eagle = &info->eagle;
    plan.weights += config->dtype == COMPUTE_FLOAT32 ? eagle->n_parameters * 4 : eagle->file_bytes;
    plan.scratch = scratch_bytes(info, config);
    plan.kv_bytes_per_token = token_bytes(info, config, dtype, false, true);
    assert(plan.kv_bytes_per_token > 0 || info->lacks_attention);
    status = memory_plan_swap(&plan, info, config, machine, on_cuda(config), err);
    plan_windows(&plan, info, config, dtype);
    if (!status) status = memory_plan_states(&plan, info, config, err);
    if (!status) status = plan_adapters(&plan, config, machine, err);
    if (!status) status = plan_any_pool(&plan, info, config, machine, err);
    if (status != STATUS_OK) return status;
    if (plan.n_states > 0) plan_checkpoints(&plan, info, config, machine);
    *out = plan;
    return STATUS_OK;
}

double engine_memory_sequences(const struct engine_memory *memory) {
    double all = (double)memory->n_blocks * memory->block_size / memory->max_model_len;
    if (memory->n_window_blocks == 0) return all;
    double seen = window_blocks_seen(memory->window, memory->block_size);
    return memory->n_window_blocks < all * seen ? memory->n_window_blocks / seen : all;
}
