/* The arithmetic of the memory plan. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "engine/memory/memory.h"
#include "support/suite_main.h"

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)

/* SmolLM2-135M: 2 * 30 * 3 heads per token, each with 64 codes of two bytes and a scale of four. */
static const struct model_config info = {
    .V = 49152,
    .K = 576,
    .F = 1536,
    .L = 30,
    .H = 9,
    .G = 3,
    .D = 64,
    .context_length = 8192,
    .n_parameters = 134515008,
    .file_bytes = 98362432,
};
#define TOKEN_BYTES (180 * (2 * 64 + 4))
#define NUMBERS (180 * 64)
#define BLOCK_BYTES (16 * TOKEN_BYTES)
#define CHAIN 512 /* blocks of 8192 tokens */

static struct engine_config usual(void) {
    return (struct engine_config){
        .max_num_seqs = 16, .max_num_batched_tokens = 512, .block_size = 16};
}

static struct engine_memory planned(const struct engine_config *config, int64_t available) {
    struct machine_memory machine = {.total = available, .available = available};
    struct engine_memory memory = {0};
    struct err err = {0};
    enum status status = memory_plan(&memory, &info, config, &machine, &err);
    ck_assert_msg(status == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(memory.kv_cache,
                     (int64_t)memory.n_blocks * memory.block_size * memory.kv_bytes_per_token);
    return memory;
}

static void expect_refused(const struct engine_config *config, int64_t available, const char *param,
                           const char *message) {
    struct machine_memory machine = {.total = available, .available = available};
    struct engine_memory memory = {.n_blocks = -1};
    struct err err = {0};
    ck_assert_int_eq(memory_plan(&memory, &info, config, &machine, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, param);
    ck_assert_msg(strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message, message);
    ck_assert_int_eq(memory.n_blocks, -1);
}

/* ---- the pool ------------------------------------------------------------------------------- */

START_TEST(the_default_is_half_a_gibibyte_of_much_memory) {
    struct engine_config config = usual();
    struct engine_memory memory = planned(&config, 64 * GIB);
    ck_assert_int_eq(memory.n_blocks, 512 * MIB / BLOCK_BYTES);
    ck_assert_int_eq(memory.kv_bytes_per_token, TOKEN_BYTES);
    ck_assert_int_eq(memory.max_model_len, 8192);
    ck_assert_int_eq(memory.weights, 98362432);
}
END_TEST

START_TEST(the_default_is_a_quarter_of_little_memory) {
    struct engine_config config = usual();
    ck_assert_int_eq(planned(&config, 1 * GIB).n_blocks, 256 * MIB / BLOCK_BYTES);
}
END_TEST

START_TEST(the_default_is_no_more_than_all_sequences_can_use) {
    struct engine_config config = usual();
    config.max_num_seqs = 2;
    ck_assert_int_eq(planned(&config, 64 * GIB).n_blocks, 2 * CHAIN);
    config.max_num_seqs = 16;
    config.max_model_len = 1000; /* 63 blocks */
    ck_assert_int_eq(planned(&config, 64 * GIB).n_blocks, 16 * 63);
}
END_TEST

START_TEST(one_full_sequence_always_fits) {
    struct engine_config config = usual();
    ck_assert_int_eq(planned(&config, 400 * MIB).n_blocks, CHAIN);
    config.max_num_seqs = 1;
    ck_assert_int_eq(planned(&config, 64 * GIB).n_blocks, CHAIN);
}
END_TEST

START_TEST(a_machine_too_small_for_one_sequence_is_refused) {
    struct engine_config config = usual();
    expect_refused(&config, 200 * MIB, "max-model-len", "takes 185 MiB");
    expect_refused(&config, 200 * MIB, "max-model-len", "or less");
    expect_refused(&config, 50 * MIB, "max-num-batched-tokens", "the 50 MiB of free memory");
    expect_refused(&config, 0, "max-num-batched-tokens", "or give a smaller model");
    config.max_num_batched_tokens = 1 << 20;
    expect_refused(&config, GIB, "max-num-batched-tokens", "lower {max-num-batched-tokens}");
    config = usual();
    config.max_model_len = 2048;
    ck_assert_int_eq(planned(&config, 200 * MIB).max_model_len, 2048);
}
END_TEST

START_TEST(given_memory_is_taken_in_whole_blocks) {
    struct engine_config config = usual();
    config.kv_memory = 1000 * BLOCK_BYTES + BLOCK_BYTES - 1;
    ck_assert_int_eq(planned(&config, 64 * GIB).n_blocks, 1000);
    config.kv_memory = CHAIN * BLOCK_BYTES;
    ck_assert_int_eq(planned(&config, 64 * GIB).n_blocks, CHAIN);
    config.kv_memory = INT64_MAX;
    ck_assert_int_eq(planned(&config, 64 * 1024 * GIB).n_blocks, INT32_MAX / 16);
    config.kv_memory = 65 * GIB;
    expect_refused(&config, 64 * GIB, "kv-cache-memory", "more than this machine has free");
}
END_TEST

START_TEST(given_memory_too_small_is_refused_with_the_least_that_fits) {
    struct engine_config config = usual();
    config.kv_memory = CHAIN * BLOCK_BYTES - 1;
    expect_refused(&config, 64 * GIB, "kv-cache-memory",
                   "give at least 194641920 (23760 bytes a token), or "
                   "{max-model-len} 8176");
    config.kv_memory = BLOCK_BYTES - 1;
    expect_refused(&config, 64 * GIB, "kv-cache-memory", "(23760 bytes a token)");
    config.kv_memory = -1;
    expect_refused(&config, 64 * GIB, "kv-cache-memory", "cannot be negative");
}
END_TEST

START_TEST(types_of_keys_and_values) {
    struct engine_config config = usual();
    config.kv_dtype = KV_DTYPE_FLOAT32;
    ck_assert_int_eq(planned(&config, 64 * GIB).kv_bytes_per_token, 4 * NUMBERS);
    config.kv_dtype = KV_DTYPE_Q8_0;
    ck_assert_int_eq(planned(&config, 64 * GIB).kv_bytes_per_token, TOKEN_BYTES - NUMBERS);
    config.kv_dtype = KV_DTYPE_FLOAT16;
    config.dtype = COMPUTE_FLOAT32;
    ck_assert_int_eq(planned(&config, 64 * GIB).kv_bytes_per_token, 2 * NUMBERS);
    config.dtype = COMPUTE_AUTO;
    config.device = DEVICE_CUDA;
    config.kv_dtype = KV_DTYPE_BFLOAT16;
    ck_assert_int_eq(planned(&config, 64 * GIB).kv_bytes_per_token, 2 * NUMBERS);
    config.kv_dtype = KV_DTYPE_FP8; /* 30 layers of 3 heads have 2 scales each in a block of 16 */
    ck_assert_int_eq(planned(&config, 64 * GIB).kv_bytes_per_token,
                     NUMBERS + (30 * 3 * 2 * 4 + 15) / 16);
    config.kv_dtype = KV_DTYPE_FP8;
    config.block_size = 1;
    ck_assert_int_eq(planned(&config, 64 * GIB).kv_bytes_per_token, NUMBERS + 30 * 3 * 2 * 4);
    config = usual();
    config.dtype = COMPUTE_FLOAT32;
    config.kv_dtype = KV_DTYPE_AUTO;
    struct engine_memory memory = planned(&config, 64 * GIB);
    ck_assert_int_eq(memory.kv_bytes_per_token, 4 * NUMBERS);
    ck_assert_int_eq(memory.weights, 4 * info.n_parameters);
    config.kv_dtype = KV_DTYPE_Q8_0;
    config.block_size = 15;
    expect_refused(&config, 64 * GIB, "block-size", "{block-size} 15 is odd");
}
END_TEST

static const struct {
    const char *weights;
    enum device device;
    enum compute_dtype dtype;
    enum kv_dtype asked;
    enum dtype type;
} automatic[] = {
    {"bf16", DEVICE_CUDA, COMPUTE_AUTO, KV_DTYPE_AUTO, DTYPE_BF16},
    {"bf16", DEVICE_CUDA, COMPUTE_BFLOAT16, KV_DTYPE_AUTO, DTYPE_BF16},
    {"bf16", DEVICE_CUDA, COMPUTE_FLOAT16, KV_DTYPE_AUTO, DTYPE_F16},
    {"bf16", DEVICE_CUDA, COMPUTE_FLOAT32, KV_DTYPE_AUTO, DTYPE_F32},
    {"bf16", DEVICE_CUDA, COMPUTE_AUTO, KV_DTYPE_FLOAT16, DTYPE_F16},
    {"bf16", DEVICE_CPU, COMPUTE_AUTO, KV_DTYPE_AUTO, DTYPE_I16},
    {"f16", DEVICE_CUDA, COMPUTE_AUTO, KV_DTYPE_AUTO, DTYPE_F16},
    {"q4_k", DEVICE_CUDA, COMPUTE_BFLOAT16, KV_DTYPE_AUTO, DTYPE_F16},
    {"q4_k", DEVICE_CPU, COMPUTE_FLOAT32, KV_DTYPE_AUTO, DTYPE_F32},
};
enum { N_AUTOMATIC = sizeof automatic / sizeof *automatic };

START_TEST(without_a_wish_the_weights_decide) {
    for (int i = 0; i < N_AUTOMATIC; i++) {
        struct engine_config config = usual();
        struct model_config model = info;
        struct err err = {0};
        enum dtype type;
        config.device = automatic[i].device;
        config.dtype = automatic[i].dtype;
        config.kv_dtype = automatic[i].asked;
        snprintf(model.quantisation, sizeof model.quantisation, "%s", automatic[i].weights);
        ck_assert_int_eq(memory_plan_kv_dtype(&config, &model, &type, &err), STATUS_OK);
        ck_assert_msg(type == automatic[i].type, "case %d: %s", i, dtype_name((int)type));
    }
}
END_TEST

START_TEST(types_of_the_other_device_are_refused) {
    struct engine_config config = usual();
    config.kv_dtype = KV_DTYPE_FP8;
    expect_refused(&config, 64 * GIB, "kv-cache-dtype", "fp8 is for {device} cuda");
    config.kv_dtype = KV_DTYPE_BFLOAT16;
    expect_refused(&config, 64 * GIB, "kv-cache-dtype", "on the CPU give int16");
    config.device = DEVICE_CUDA;
    config.kv_dtype = KV_DTYPE_INT16;
    expect_refused(&config, 64 * GIB, "kv-cache-dtype", "int16 is for the CPU");
    config.kv_dtype = KV_DTYPE_FLOAT32;
    expect_refused(&config, 64 * GIB, "kv-cache-dtype", "needs {dtype} float32");
    config.dtype = COMPUTE_FLOAT32;
    ck_assert_int_gt(planned(&config, 64 * GIB).n_blocks, 0);
}
END_TEST

/* ---- on a GPU ------------------------------------------------------------------------------- */

static struct engine_config on_gpu(void) {
    struct engine_config config = usual();
    config.device = DEVICE_CUDA;
    return config;
}

/* A pool costs its blocks plus half a MiB. */
static int64_t cost_of(void *arg, int n_blocks) {
    (void)arg;
    return (int64_t)n_blocks * 2 * NUMBERS * 16 + MIB / 2;
}

static enum status pool_of(struct engine_memory *memory, const struct engine_config *config,
                           int64_t free_then, int64_t free_now, struct err *err) {
    struct device_memory device = {16 * (size_t)GIB, (size_t)free_then},
                         now = {16 * (size_t)GIB, (size_t)free_now};
    struct pool_cost cost = {cost_of, NULL};
    *memory = (struct engine_memory){
        .block_size = 16, .max_model_len = 8192, .kv_bytes_per_token = 2 * NUMBERS};
    memory_device_begin(memory, config, &device);
    return memory_device_pool(memory, config, &now, &cost, err);
}

START_TEST(the_pool_gets_the_rest_of_the_share) {
    struct engine_config config = on_gpu();
    struct engine_memory memory;
    struct err err = {0};
    config.gpu_memory_utilization = 0.5;
    ck_assert_int_eq(pool_of(&memory, &config, 15 * GIB, 14 * GIB, &err), STATUS_OK);
    ck_assert_int_eq(memory.kept, 512 * MIB);
    int64_t left = 8 * GIB - 512 * MIB - GIB, block = 16 * 2 * NUMBERS;
    ck_assert_int_eq(memory.n_blocks, (left - MIB / 2) / block);
    ck_assert_int_eq(memory.steps, MIB / 2);
    /* other processes use so much memory that the share is not available */
    ck_assert_int_eq(pool_of(&memory, &config, 5 * GIB, 4 * GIB, &err), STATUS_OK);
    ck_assert_int_eq(memory.n_blocks, (4 * GIB - 512 * MIB - MIB / 2) / block);
    config.gpu_memory_utilization = 0; /* nine tenths, more than two sequences can fill */
    config.max_num_seqs = 2;
    ck_assert_int_eq(pool_of(&memory, &config, 16 * GIB, 15 * GIB, &err), STATUS_OK);
    ck_assert_int_eq(memory.n_blocks, 4 * 2 * CHAIN);
}
END_TEST

/* The plan reserves memory for a draft model: its fixed memory, and its part of each block. The
 * draft model gets as many blocks as the target, or as many as fit. */
START_TEST(a_draft_model_has_its_share) {
    struct engine_config config = on_gpu();
    struct device_memory before = {16 * (size_t)GIB, 15 * (size_t)GIB};
    struct device_memory now = {16 * (size_t)GIB, 14 * (size_t)GIB};
    struct pool_cost cost = {cost_of, NULL};
    int64_t block = 16 * 2 * NUMBERS, left = 8 * GIB - 512 * MIB - GIB - MIB / 2;
    struct engine_memory memory = {.block_size = 16,
                                   .max_model_len = 8192,
                                   .kv_bytes_per_token = 2 * NUMBERS,
                                   .draft = 512 * MIB,
                                   .draft_block = block / 2};
    struct engine_memory drafting = memory;
    struct err err = {0};
    config.gpu_memory_utilization = 0.5;
    memory_device_begin(&memory, &config, &before);
    ck_assert_int_eq(memory_device_pool(&memory, &config, &now, &cost, &err), STATUS_OK);
    ck_assert_int_eq(memory.n_blocks, (left - 512 * MIB) / (block + block / 2));
    ck_assert_int_eq(memory.kv_cache, memory.n_blocks * block);
    drafting.draft = drafting.draft_block = 0;
    drafting.given_blocks = 3 * CHAIN;
    drafting.given = GIB + MIB / 2 + 4 * CHAIN * block;
    memory_device_begin(&drafting, &config, &before);
    ck_assert_int_eq(memory_device_pool(&drafting, &config, &now, &cost, &err), STATUS_OK);
    ck_assert_int_eq(drafting.n_blocks, 3 * CHAIN);
    drafting.given = GIB + MIB / 2 + 2 * CHAIN * block;
    ck_assert_int_eq(memory_device_pool(&drafting, &config, &now, &cost, &err), STATUS_OK);
    ck_assert_int_eq(drafting.n_blocks, 2 * CHAIN);
    drafting.given = GIB + MIB;
    ck_assert_int_eq(memory_device_pool(&drafting, &config, &now, &cost, &err), STATUS_USAGE);
    config.kv_memory = 14 * GIB - 256 * MIB;
    ck_assert_int_eq(memory_device_pool(&memory, &config, &now, &cost, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "and of the draft model 512.0"), "%s", err.message);
}
END_TEST

START_TEST(a_gpu_too_small_for_one_sequence_is_refused_with_settings_that_fit) {
    struct engine_config config = on_gpu();
    struct engine_memory memory;
    struct err err = {0};
    ck_assert_int_eq(pool_of(&memory, &config, 2 * GIB, 600 * MIB, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "gpu-memory-utilization");
    ck_assert_msg(strstr(err.message, "{max-model-len} 3968 or less"), "%s", err.message);
    ck_assert_int_eq(pool_of(&memory, &config, 2 * GIB, 100 * MIB, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "a smaller model"), "%s", err.message);
    config.kv_memory = GIB;
    ck_assert_int_eq(pool_of(&memory, &config, 2 * GIB, 600 * MIB, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "kv-cache-memory");
    config.gpu_memory_utilization = 1.01;
    expect_refused(&config, 64 * GIB, "gpu-memory-utilization", "at most 1");
    config.gpu_memory_utilization = -1;
    expect_refused(&config, 64 * GIB, "gpu-memory-utilization", "above 0");
}
END_TEST

START_TEST(a_gpu_s_pool_is_estimated_before) {
    struct engine_config config = on_gpu();
    struct machine_memory machine = {64 * GIB, 64 * GIB, {8 * (size_t)GIB, 8 * (size_t)GIB}};
    struct engine_memory memory;
    struct err err = {0};
    ck_assert_int_eq(memory_plan(&memory, &info, &config, &machine, &err), STATUS_OK);
    int64_t all = memory.weights + memory.scratch + memory.sampling + memory.steps +
                  memory.kv_cache + memory.kept;
    ck_assert_int_le(all, 8 * GIB * 9 / 10);
    ck_assert_int_gt(all, 8 * GIB * 9 / 10 - 4 * MIB);
    ck_assert_int_eq(memory.sampling, 16 * (int64_t)sampling_slot_bytes(49152));
    config.kv_memory = 16 * 2 * NUMBERS * 600;
    ck_assert_int_eq(memory_plan(&memory, &info, &config, &machine, &err), STATUS_OK);
    ck_assert_int_eq(memory.n_blocks, 600);
    config.kv_memory = 16 * 2 * NUMBERS * 500;
    ck_assert_int_eq(memory_plan(&memory, &info, &config, &machine, &err), STATUS_USAGE);
}
END_TEST

/* Their numbers take a part of the pool's memory, and their products a part of the scratch. */
START_TEST(a_gpu_has_room_for_adapters) {
    struct engine_config config = on_gpu();
    struct machine_memory machine = {64 * GIB, 64 * GIB, {8 * (size_t)GIB, 8 * (size_t)GIB}};
    struct engine_memory without, memory;
    struct err err = {0};
    ck_assert_int_eq(memory_plan(&without, &info, &config, &machine, &err), STATUS_OK);
    config.max_adapters = 4, config.max_adapter_rank = 16, config.adapter_memory = GIB;
    ck_assert_int_eq(memory_plan(&memory, &info, &config, &machine, &err), STATUS_OK);
    int64_t all = memory.weights + memory.scratch + memory.sampling + memory.adapters +
                  memory.steps + memory.kv_cache + memory.kept;
    ck_assert_int_eq(memory.adapters, GIB);
    ck_assert_int_gt(memory.scratch, without.scratch);
    ck_assert_int_le(all, 8 * GIB * 9 / 10);
    ck_assert_int_gt(all, 8 * GIB * 9 / 10 - 4 * MIB);
    config.adapter_memory = 65 * GIB; /* the host keeps them, too */
    ck_assert_int_eq(memory_plan(&memory, &info, &config, &machine, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "lora-memory");
}
END_TEST

/* Its sequences leave with their steps, so the pool has the blocks of two steps, and nothing is
 * sampled or swapped. */
START_TEST(an_encoder_needs_only_the_blocks_of_its_steps) {
    struct engine_config config = on_gpu();
    struct machine_memory machine = {64 * GIB, 64 * GIB, {8 * (size_t)GIB, 8 * (size_t)GIB}};
    struct model_config encoder = info;
    struct engine_memory memory;
    struct err err = {0};
    encoder.is_encoder = true;
    encoder.n_parameters = 8000000000; /* keys and values of a decoder would be worth swapping */
    config.swap_space = -1;
    memory_fit_encoder(&config, &encoder);
    ck_assert_int_eq(config.device, DEVICE_CUDA);
    ck_assert_int_eq(config.max_num_batched_tokens, 2048);
    ck_assert_int_eq(config.max_logit_rows, 2048);
    ck_assert_int_eq(memory_plan(&memory, &encoder, &config, &machine, &err), STATUS_OK);
    ck_assert_int_eq(memory.n_blocks, 2 * (2048 / 16 + 16));
    ck_assert_int_eq(memory.sampling, (int64_t)sampling_slot_bytes(encoder.V));
    ck_assert_int_eq(memory.swap, 0);
}
END_TEST

/* A token of this small model is recomputed faster than it is copied. For a large model the copy is
 * faster. */
START_TEST(swap_space_is_planned_for_gpus_if_it_pays) {
    struct engine_config config = on_gpu();
    config.swap_space = -1;
    ck_assert_int_eq(planned(&config, 64 * GIB).swap, 0);
    struct model_config large = info;
    struct machine_memory machine = {64 * GIB, 64 * GIB, {0, 0}};
    struct engine_memory memory;
    struct err err = {0};
    large.n_parameters = 8000000000;
    ck_assert_int_eq(memory_plan(&memory, &large, &config, &machine, &err), STATUS_OK);
    ck_assert_int_eq(memory.swap, 4 * GIB);
    machine.available = 12 * GIB;
    ck_assert_int_eq(memory_plan(&memory, &large, &config, &machine, &err), STATUS_OK);
    ck_assert_int_eq(memory.swap, 3 * GIB);
    config.device = DEVICE_CPU;
    ck_assert_int_eq(planned(&config, 64 * GIB).swap, 0);
    config.swap_space = GIB;
    expect_refused(&config, 64 * GIB, "swap-space", "is for {device} cuda");
    config.device = DEVICE_CUDA;
    ck_assert_int_eq(planned(&config, 64 * GIB).swap, GIB);
    config.swap_space = 65 * GIB;
    expect_refused(&config, 64 * GIB, "swap-space", "more than this machine has free");
    config.swap_space = 0;
    ck_assert_int_eq(planned(&config, 64 * GIB).swap, 0);
}
END_TEST

/* A model whose first 20 layers are recurrent, with states of 3 * 4096 numbers: 960 KiB. */
#define STATE_BYTES (20 * 3 * 4096 * 4)

/* On a GPU `available` is the device's memory. */
static enum status plan_recurrent(struct engine_memory *memory, const struct engine_config *config,
                                  int64_t available, struct err *err) {
    struct model_config model = info;
    struct machine_memory machine = {.total = available, .available = available};
    if (config->device == DEVICE_CUDA)
        machine.device = (struct device_memory){(size_t)available, (size_t)available};
    model.C = 4096;
    model.taps = 4;
    for (int i = 0; i < model.L; i++) {
        model.layer[i].is_recurrent = i < 20;
        model.layer[i].n_recurrent = min_int(i, 20);
    }
    return memory_plan(memory, &model, config, &machine, err);
}

START_TEST(states_are_planned_for_sequences_drafts_and_cached_prefixes) {
    struct engine_config config = usual();
    struct engine_memory memory;
    struct err err = {0};
    ck_assert_int_eq(plan_recurrent(&memory, &config, 64 * GIB, &err), STATUS_OK);
    ck_assert_int_eq(memory.state_bytes, STATE_BYTES);
    ck_assert_int_eq(memory.n_states, 16);
    ck_assert(memory.n_checkpoints == 0 && memory.n_draft_states == 0);
    ck_assert_int_eq(memory.checkpoint_every % 16, 0);
    int64_t token = memory.kv_bytes_per_token;
    ck_assert_int_ge((memory.checkpoint_every + 16) * token, STATE_BYTES);
    config.max_drafts = 5;
    config.state_checkpoints = 10 * STATE_BYTES + 1;
    ck_assert_int_eq(plan_recurrent(&memory, &config, 64 * GIB, &err), STATUS_OK);
    ck_assert_int_eq(memory.n_draft_states, 20);
    ck_assert_int_eq(memory.n_checkpoints, 10);
    ck_assert_int_eq(memory.n_states, 16 + 20 + 10);
    config.max_num_seqs = 2;
    ck_assert_int_eq(plan_recurrent(&memory, &config, 64 * GIB, &err), STATUS_OK);
    ck_assert_int_eq(memory.n_draft_states, 10);
    config.state_checkpoints = STATE_BYTES - 1;
    ck_assert_int_eq(plan_recurrent(&memory, &config, 64 * GIB, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "state-checkpoints");
    ck_assert_msg(strstr(err.message, "give at least 983040"), "%s", err.message);
    config.state_checkpoints = GIB;
    expect_refused(&config, 64 * GIB, "state-checkpoints", "this model has none");
}
END_TEST

/* A quarter of the memory of keys and values, if half of the rest holds it. */
START_TEST(checkpoints_get_a_share_of_the_cache_by_default) {
    struct engine_config config = usual();
    struct engine_memory memory;
    struct err err = {0};
    config.state_checkpoints = -1;
    ck_assert_int_eq(plan_recurrent(&memory, &config, 64 * GIB, &err), STATUS_OK);
    int64_t share = memory.kv_cache / 4 / STATE_BYTES;
    int64_t useful = (int64_t)memory.n_blocks * 16 / memory.checkpoint_every + 16;
    ck_assert_int_eq(memory.n_checkpoints, min_int64(share, useful));
    ck_assert_int_eq(memory.n_states, 16 + memory.n_checkpoints);
    ck_assert_int_gt(memory.n_checkpoints, 0);
    int64_t all = memory.weights + memory.scratch + 16 * STATE_BYTES + memory.kv_cache;
    config.kv_memory = memory.kv_cache;
    ck_assert_int_eq(plan_recurrent(&memory, &config, all + 4 * STATE_BYTES, &err), STATUS_OK);
    ck_assert_int_eq(memory.n_checkpoints, 2);
    ck_assert_int_eq(plan_recurrent(&memory, &config, all, &err), STATUS_OK);
    ck_assert_int_eq(memory.n_checkpoints, 0);
    config.state_checkpoints = -1;
    ck_assert_int_eq(planned(&config, 64 * GIB).n_checkpoints, 0); /* no recurrent layers */
}
END_TEST

/* All states are within the GPU's share. Cached prefixes take a quarter of the memory of keys and
 * values, or with a stated cache a half of the rest. */
START_TEST(a_gpu_has_room_for_states) {
    struct engine_config config = on_gpu();
    struct engine_memory memory;
    struct err err = {0};
    const int64_t share = 4 * GIB * 9 / 10;
    config.state_checkpoints = config.swap_space = -1;
    ck_assert_int_eq(plan_recurrent(&memory, &config, 4 * GIB, &err), STATUS_OK);
    const int64_t states = memory.n_states * STATE_BYTES;
    const int64_t fixed = memory.weights + memory.scratch + memory.sampling + memory.kept;
    const int64_t rest = share - fixed - states - memory.steps - memory.kv_cache;
    ck_assert_int_eq(memory.n_states, 16 + memory.n_checkpoints);
    ck_assert_int_gt(memory.n_checkpoints, 100);
    ck_assert_int_le(memory.n_checkpoints * STATE_BYTES, (share - fixed) / 4);
    ck_assert(rest >= 0 && rest < 4 * MIB && memory.swap == 0);
    config.kv_memory = memory_pool_bytes(&memory, &config, 512 + 100);
    ck_assert_int_eq(plan_recurrent(&memory, &config, 4 * GIB, &err), STATUS_OK);
    ck_assert(memory.n_blocks == 512 + 100 && memory.n_checkpoints > 0);
    ck_assert_int_le(memory.n_checkpoints * STATE_BYTES, config.kv_memory / 4);
    config.kv_memory = 0, config.swap_space = GIB;
    ck_assert_int_eq(plan_recurrent(&memory, &config, 4 * GIB, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "swap-space");
}
END_TEST

/* The pool of a device leaves out the memory of states, which is not a part of its cost. */
START_TEST(a_pool_on_the_device_leaves_room_for_states) {
    struct engine_config config = on_gpu();
    struct device_memory now = {16 * (size_t)GIB, 15 * (size_t)GIB};
    struct pool_cost cost = {cost_of, NULL};
    struct engine_memory memory, without;
    struct err err = {0};
    ck_assert_int_eq(pool_of(&without, &config, 15 * GIB, 15 * GIB, &err), STATUS_OK);
    memory = without;
    memory.n_states = 20, memory.state_bytes = GIB / 2;
    ck_assert_int_eq(memory_device_pool(&memory, &config, &now, &cost, &err), STATUS_OK);
    const int64_t less = cost_of(NULL, without.n_blocks) - cost_of(NULL, memory.n_blocks);
    ck_assert_int_le(cost_of(NULL, memory.n_blocks) + 10 * GIB, 16 * GIB * 9 / 10 - memory.kept);
    ck_assert_int_gt(less, 0);
    ck_assert_int_eq(memory.steps, MIB / 2);
}
END_TEST

START_TEST(scratch_grows_with_rows_and_logits) {
    struct engine_config config = usual();
    int64_t before = planned(&config, 64 * GIB).scratch;
    config.max_num_batched_tokens++;
    int64_t row = 4 * (3 * 576 + 2 * 9 * 64 + 2 * 3 * 64 + 2 * 1536);
    ck_assert_int_eq(planned(&config, 64 * GIB).scratch, before + row);
    config.max_logit_rows = 17;
    ck_assert_int_eq(planned(&config, 64 * GIB).scratch, before + row + 4 * 49152);
}
END_TEST

START_TEST(settings_out_of_range_are_refused) {
    struct engine_config config = usual();
    config.block_size = 0;
    expect_refused(&config, GIB, "block-size", "{block-size} 0 is out of range; 1 to 256");
    config.block_size = 257;
    expect_refused(&config, GIB, "block-size", "{block-size} 257 is out of range; 1 to 256");
    config = usual();
    config.max_num_seqs = 0;
    expect_refused(&config, GIB, "max-num-seqs", "out of range");
    config = usual();
    config.max_num_batched_tokens = -5;
    expect_refused(&config, GIB, "max-num-batched-tokens", "out of range");
    config = usual();
    config.max_model_len = 8193;
    expect_refused(&config, GIB, "max-model-len", "trained for 1 to 8192 tokens");
    config.max_model_len = -1;
    expect_refused(&config, GIB, "max-model-len", "out of range");
}
END_TEST

/* ---- the suite ------------------------------------------------------------------------------ */

int main(void) {
    const TTest *const tests[] = {
        the_default_is_half_a_gibibyte_of_much_memory,
        the_default_is_a_quarter_of_little_memory,
        the_default_is_no_more_than_all_sequences_can_use,
        one_full_sequence_always_fits,
        a_machine_too_small_for_one_sequence_is_refused,
        given_memory_is_taken_in_whole_blocks,
        given_memory_too_small_is_refused_with_the_least_that_fits,
        types_of_keys_and_values,
        without_a_wish_the_weights_decide,
        types_of_the_other_device_are_refused,
        the_pool_gets_the_rest_of_the_share,
        a_draft_model_has_its_share,
        a_gpu_too_small_for_one_sequence_is_refused_with_settings_that_fit,
        a_gpu_s_pool_is_estimated_before,
        a_gpu_has_room_for_adapters,
        an_encoder_needs_only_the_blocks_of_its_steps,
        swap_space_is_planned_for_gpus_if_it_pays,
        states_are_planned_for_sequences_drafts_and_cached_prefixes,
        checkpoints_get_a_share_of_the_cache_by_default,
        a_gpu_has_room_for_states,
        a_pool_on_the_device_leaves_room_for_states,
        scratch_grows_with_rows_and_logits,
        settings_out_of_range_are_refused,
    };
    Suite *suite = suite_create("engine/memory_plan");
    TCase *cases = tcase_create("all");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
