/* Opens the backend of an engine and those of its other ranks. */
#include <stdio.h>

#include "engine/adapters/adapters.h"
#include "engine/internal.h"
#include "engine/quantise/quantise.h"

/* Refuses --persistent-step together with a setting that it does not support. */
static enum status check_one_grid(const struct opening *o, struct err *err) {
    const struct engine_config *config = &o->config;
    const struct model_config *m = &o->engine->model.config;
    const struct {
        bool given;
        const char *option, *why;
    } others[] = {
        {config->device != DEVICE_CUDA, "{device} cpu", "it is for steps on a GPU"},
        {config->enforce_eager, "{enforce-eager}", "that launches kernel by kernel"},
        {config->dtype == COMPUTE_FLOAT32, "{dtype} float32", "it computes in 16 bits"},
        {config->quantization != QUANTIZATION_NONE, "{quantization}",
         "it multiplies 16-bit weights"},
        {config->kv_dtype == KV_DTYPE_FP8, "{kv-cache-dtype} fp8",
         "it reads 16-bit keys and values"},
        {config->allow_batch_variant_gemm, "{no-deterministic}", "its products are not cuBLAS's"},
        {m->is_encoder, "an encoder", "it is for decode steps"},
        {m->n_ahead > 0,
         m->eagle.is_used ? "the method \"eagle3\" of {speculative-config}"
                          : "the method \"mtp\" of {speculative-config}",
         "its grid does not join embeddings and hidden vectors"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others && config->persistent_step; i++)
        if (others[i].given)
            return err_set(err, STATUS_USAGE, "persistent-step",
                           "{persistent-step} does not work with %s: %s; leave one out",
                           others[i].option, others[i].why);
    return STATUS_OK;
}

/* Refuses several GPUs. */
static enum status refuse_gpus(const struct engine_config *config, const char *name,
                               const char *part, struct err *err) {
    assert(config->ranks > 1 && name && part);
    return err_set(
        err, STATUS_USAGE, "tensor-parallel-size",
        "{tensor-parallel-size} %d: the %s of the model \"%s\" can be divided only among "
        "ranks on CPUs; give 1, or {device} cpu",
        config->ranks, part, name);
}

/* Refuses settings that recurrent layers do not support. */
static enum status check_recurrent(const struct opening *o, struct err *err) {
    const struct engine_config *config = &o->config;
    const char *name = o->engine->model.config.architecture;
    if (o->engine->memory.n_states == 0) return STATUS_OK;
    if (config->ranks > 1 && config->device == DEVICE_CUDA)
        return refuse_gpus(config, name, "recurrent layers", err);
    if (config->drafts_for)
        return err_set(err, STATUS_USAGE, "speculative-config",
                       "{speculative-config}: the recurrent layers of the model \"%s\" cannot take "
                       "back their own drafts; name a draft model without such layers",
                       name);
    return STATUS_OK;
}

/* Refuses adapters where they are not computed, and ranks of matrices that are out of range. */
static enum status check_adapters(const struct opening *o, struct err *err) {
    const struct engine_config *config = &o->config;
    const char *why = NULL;
    if (config->max_adapters == 0) return STATUS_OK;
    if (config->device == DEVICE_CUDA && config->ranks > 1 && config->peers)
        why = "GPUs in several processes: adapters are divided only among those of one process";
    if (o->engine->model.config.is_encoder) why = "an encoder: adapters are for decoders";
    if (config->ranks > 1 && o->engine->model.config.state.kind != STATE_CONV)
        why = "{tensor-parallel-size}: adapters of recurrent layers are not divided among ranks";
    if (why)
        return err_set(err, STATUS_USAGE, "lora",
                       "{lora} and {enable-runtime-lora} do not work with %s; leave one out", why);
    assert(config->max_adapter_rank >= 1 && config->max_adapter_rank <= MAX_ADAPTER_RANK);
    return STATUS_OK;
}

/* Refuses settings that an EAGLE-3 head does not support. */
static enum status check_eagle(const struct engine_config *config, struct err *err) {
    const struct {
        bool given;
        const char *option, *fix;
    } others[] = {{config->weight_cache != NULL, "{weight-cache}", "leave it out"},
                  {config->max_adapters > 0, "{lora} and {enable-runtime-lora}", "leave them out"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return err_set(err, STATUS_USAGE, "speculative-config",
                           "the method \"eagle3\" of {speculative-config} does not work with %s; "
                           "%s, or draft without a head",
                           others[i].option, others[i].fix);
    return STATUS_OK;
}

/* Refuses settings that a layer that guesses ahead does not support. A guess follows a step whose
 * tokens are known. */
static enum status check_ahead(const struct opening *o, struct err *err) {
    if (o->engine->model.config.n_ahead == 0) return STATUS_OK;
    if (o->config.ranks > 1 && o->config.device == DEVICE_CUDA)
        return refuse_gpus(&o->config, o->engine->model.config.architecture,
                           "layer that guesses ahead", err);
    if (o->engine->model.config.eagle.is_used) {
        enum status status = check_eagle(&o->config, err);
        if (status) return status;
    }
    if (o->config.in_flight <= 1) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "steps-in-flight",
                   "{steps-in-flight} %d does not work with the method \"%s\" of "
                   "{speculative-config}, which guesses after each step; give 1, or leave it out",
                   o->config.in_flight, o->engine->model.config.eagle.is_used ? "eagle3" : "mtp");
}

/* Refuses settings that latent attention does not support. */
static enum status check_latents(const struct opening *o, struct err *err) {
    const struct model_config *m = &o->engine->model.config;
    if (m->latent.is_used && o->config.ranks > 1 && o->config.device == DEVICE_CUDA)
        return refuse_gpus(&o->config, m->architecture, "latent attention", err);
    if (!m->latent.is_used || o->config.kv_dtype != KV_DTYPE_FP8) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "kv-cache-dtype",
                   "{kv-cache-dtype} fp8: the cache of the latent attention of the model \"%s\" "
                   "holds float16, bfloat16 or float32; give one of these",
                   m->architecture);
}

/* Refuses settings that contradict the device, each other or the model. Types of the KV cache are
 * checked in memory/plan.c. */
enum status settings_check(struct opening *o, struct err *err) {
    const struct engine_config *config = &o->config;
    const bool is_encoder = o->engine->model.config.is_encoder;
    bool halves = config->dtype == COMPUTE_BFLOAT16 || config->dtype == COMPUTE_FLOAT16;
    bool fp8 = config->quantization == QUANTIZATION_FP8, cuda = config->device == DEVICE_CUDA;
    if (halves && !cuda)
        return err_set(
            err, STATUS_USAGE, "dtype",
            "{dtype} %s is for activations on a GPU; give {device} cuda, or {dtype} auto",
            value_name(compute_dtype_names, config->dtype));
    if (config->wgmma && !cuda)
        return err_set(err, STATUS_USAGE, "wgmma",
                       "{wgmma} is for products on a GPU; give {device} cuda, or leave it out");
    if (is_encoder && (config->drafts_for || config->drafter))
        return err_set(err, STATUS_USAGE, "speculative-config",
                       "an encoder gives no text, so there is nothing to draft: leave out "
                       "{speculative-config}, or name decoders");
    if (config->cpu_affinity && (cuda || config->ranks > 1))
        return err_set(err, STATUS_USAGE, "cpu-affinity",
                       "{cpu-affinity} binds the threads of one CPU rank; %s, or leave it out",
                       cuda ? "serve on the CPU" : "use one rank");
    if (config->weight_cache && (cuda || config->dummy))
        return err_set(err, STATUS_USAGE, "weight-cache",
                       "{weight-cache} keeps a model's weights for a CPU; %s, or leave it out",
                       cuda ? "give {device} cpu" : "give {load-format} auto");
    if (fp8 && !cuda)
        return err_set(err, STATUS_USAGE, "quantization",
                       "{quantization} fp8 is made for a GPU; give {device} cuda, or serve a file "
                       "of q8_0 or q4_k from the CPU");
    if (fp8 && config->dtype == COMPUTE_FLOAT32)
        return err_set(err, STATUS_USAGE, "quantization",
                       "{quantization} fp8 contradicts {dtype} float32; give only one");
    if (quantization_is_blocks(config->quantization)) {
        const struct weights *weights = model_file_weights(&o->file);
        if (quantised_bytes(weights, config->quantization) ==
            quantised_bytes(weights, QUANTIZATION_NONE))
            return err_set(err, STATUS_USAGE, "quantization",
                           "{quantization} %s is for float matrices, but it would not make any "
                           "matrix of %s smaller; leave it out",
                           value_name(quantization_names, config->quantization), config->model);
    }
    enum status status = check_one_grid(o, err);
    if (!status) status = check_recurrent(o, err);
    if (!status) status = check_adapters(o, err);
    if (!status) status = check_ahead(o, err);
    if (!status) status = check_latents(o, err);
    if (status) return status;
    return shard_check(&o->engine->model.config, model_file_weights(&o->file), config->ranks, err);
}

/* Returns the maximum number of rows of a step that a CUDA graph may record: all its rows may be
 * logit rows. 0: no graphs. An encoder lacks rows of logits. Ranks record the same steps: NCCL
 * requires that a gathering is in a graph on all ranks, or outside a graph on all. */
static int graph_rows(const struct engine_config *config, bool is_encoder) {
    if (config->enforce_eager || is_encoder) return 0;
    return min_int(config->max_num_batched_tokens, config->max_logit_rows);
}

/* The numbers of the widest product of latent attention, its inputs or outputs. Absorbed queries,
 * H * D numbers, are wider, but only products per head write them. */
static int latent_width(const struct model_config *m) {
    const struct latent_config *l = &m->latent;
    assert(l->is_used && l->rank > 0);
    int head = max_int(l->rank, max_int(l->D_unrotated, l->D_value));
    int all = m->H * max_int(l->D_unrotated + l->D_rope, l->D_value);
    return max_int(max_int(l->q_rank, all), head);
}

struct backend_config backend_plan(const struct engine *engine,
                                   const struct engine_config *config) {
    struct model_config m = shard_config(&engine->model.config, config->ranks);
    const struct config_widths layers = config_widest(&m);
    int widest = m.K > layers.F ? m.K : layers.F;
    if (m.n_ahead > 0) widest = max_int(widest, 2 * m.K); /* an embedding and a hidden vector */
    widest = max_int(widest, m.latent.is_used ? latent_width(&m) : layers.q);
    if (m.K_embedding > widest) widest = m.K_embedding;
    if (m.C > 0) widest = max_int(widest, max_int(config_recurrent_width(&m), m.state.dk));
    int expert = m.experts.F > m.experts.F_shared ? m.experts.F : m.experts.F_shared;
    if (expert > widest) widest = expert;
    enum dtype half = config->dtype == COMPUTE_FLOAT16 ? DTYPE_F16 : DTYPE_BF16;
    struct backend_config wanted = {
        .threads =
            config->peers ? ranks_own_threads(config->threads, config->peers) : config->threads,
        .affinity = config->cpu_affinity,
        .path = config->cpu_path,
        .max_rows = config->max_num_batched_tokens,
        .max_k = widest,
        .activations = config->dtype == COMPUTE_FLOAT32 ? DTYPE_F32 : half,
        .experts = {.E = m.experts.E, .n_used = m.experts.n_used, .K = m.K, .F = expert},
        .max_seqs = config->max_num_seqs,
        .max_context = engine->memory.max_model_len,
        .heads = max_int(m.H, 1), /* a model may have recurrent layers only */
        .allow_batch_variant_gemm = config->allow_batch_variant_gemm,
        .wgmma = config->wgmma,
        .persistent_step = config->persistent_step,
        .graph_rows = graph_rows(config, m.is_encoder),
        .graphs = config->max_graphs,
        .max_adapter_rank = config->max_adapters > 0 ? config->max_adapter_rank : 0,
        .max_adapters = config->max_adapters,
        .both_ways = m.is_encoder,
        .guesses_ahead = m.n_ahead > 0,
    };
    wanted.n_windows = model_windows(&m, wanted.windows);
    return wanted;
}

/* Starts the other ranks, which open their backends and load their weights. Sets rank 0's threads
 * and group in `wanted`. */
static enum status open_ranks(struct opening *o, struct backend_config *wanted, struct err *err) {
    struct engine *engine = o->engine;
    int n = o->config.ranks;
    bool on_cuda = o->config.device == DEVICE_CUDA;
    enum status status = ranks_open(&engine->ranks, n, on_cuda, o->gpu, o->config.peers, err);
    if (status) return status;
    if (wanted->threads == 0) wanted->threads = backend_cpu_threads();
    const struct ranks_plan plan = {&engine->model.config, model_file_weights(&o->file),
                                    model_file_eagle(&o->file), &o->config, *wanted};
    ranks_begin_load(engine->ranks, &plan);
    if (!o->config.peers) wanted->threads = ranks_threads(wanted->threads, 0, n);
    wanted->group = ranks_group(engine->ranks);
    return STATUS_OK;
}

enum status backend_open(struct opening *o, struct err *err) {
    struct engine *engine = o->engine;
    struct backend_config wanted = backend_plan(engine, &o->config);
    enum status status = o->config.ranks > 1 ? open_ranks(o, &wanted, err) : STATUS_OK;
    if (status) return status;
    status = o->config.device == DEVICE_CUDA ? backend_cuda_open(&engine->backend, &wanted, err)
                                             : backend_cpu_open(&engine->backend, &wanted, err);
    if (status) {
        ranks_end(engine->ranks, NULL);
        return status;
    }
    engine->model.backend = engine->backend;
    const struct backend *b = engine->backend;
    if (o->again) return STATUS_OK; /* other threads read the rest */
    engine->on_host = b->host_memory;
    engine->n_threads = b->n_threads;
    char others[40] = "";
    if (o->config.ranks > 1)
        snprintf(others, sizeof others, " in the first of %d ranks", o->config.ranks);
    snprintf(engine->backend_name, sizeof engine->backend_name, "%s %s, %d thread%s%s%s", b->name,
             b->path, b->n_threads, b->n_threads == 1 ? "" : "s", others, o->why);
    return STATUS_OK;
}
