/* The division of the KV pool between layers with windows and others: the memory of a long
 * sequence, that one sequence always fits, and the cases in which all layers keep all positions. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "engine/memory/memory.h"
#include "support/suite_main.h"

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)

/* The dimensions of a model. Each `full_every`-th layer has no window; 0: all have one. */
struct shape {
    int L, G, D, window, full_every, context;
};
static const struct shape gemma3_1b = {26, 1, 256, 512, 6, 32768};
static const struct shape gpt_oss_20b = {24, 8, 64, 128, 2, 131072};
static const struct shape mistral_7b = {32, 8, 128, 4096, 0, 32768};

static struct model_config model;

static void set_model(const struct shape *s) {
    model = (struct model_config){.V = 1000,
                                  .K = 64,
                                  .F = 64,
                                  .L = s->L,
                                  .H = s->G,
                                  .G = s->G,
                                  .D = s->D,
                                  .context_length = s->context,
                                  .n_parameters = 1000,
                                  .file_bytes = 1000};
    for (int i = 0; i < s->L; i++)
        if (s->full_every == 0 || (i + 1) % s->full_every != 0) model.layer[i].window = s->window;
}

static struct engine_config usual(void) {
    return (struct engine_config){
        .max_num_seqs = 16, .max_num_batched_tokens = 512, .block_size = 16, .window_blocks = -1};
}

static enum status plan(struct engine_memory *memory, const struct engine_config *config,
                        struct err *err) {
    const struct machine_memory machine = {.total = 64 * GIB, .available = 64 * GIB};
    *memory = (struct engine_memory){0};
    return memory_plan(memory, &model, config, &machine, err);
}

static struct engine_memory planned(const struct engine_config *config) {
    struct engine_memory memory;
    struct err err = {0};
    ck_assert_msg(plan(&memory, config, &err) == STATUS_OK, "%s", err.message);
    int64_t slots = memory.block_size;
    ck_assert_int_eq(memory.kv_cache,
                     memory.n_blocks * slots * memory.kv_bytes_per_token +
                         memory.n_window_blocks * slots * memory.window_bytes_per_token);
    return memory;
}

/* Returns the bytes of a sequence of `tokens` tokens, as a fraction of the bytes if all layers kept
 * all positions. */
static double share_of(const struct shape *shape, int tokens) {
    set_model(shape);
    struct engine_config config = usual();
    struct engine_memory windows = planned(&config);
    config.window_blocks = 0;
    struct engine_memory all = planned(&config);
    ck_assert(windows.n_window_blocks > 0 && windows.window == shape->window);
    ck_assert(all.n_window_blocks == 0 && all.window == 0 && all.window_bytes_per_token == 0);
    ck_assert_int_eq(windows.kv_bytes_per_token + windows.window_bytes_per_token,
                     all.kv_bytes_per_token);
    double seen = window_blocks_seen(shape->window, 16);
    double bytes = (double)tokens * (double)windows.kv_bytes_per_token +
                   seen * 16 * (double)windows.window_bytes_per_token;
    return bytes / ((double)tokens * (double)all.kv_bytes_per_token);
}

START_TEST(a_long_sequence_takes_a_part) {
    ck_assert_double_lt(share_of(&gemma3_1b, 32768), 0.17);
    ck_assert_double_lt(share_of(&gpt_oss_20b, 32768), 0.505);
    ck_assert_double_lt(share_of(&mistral_7b, 32768), 0.126);
}
END_TEST

/* The pool is half a gibibyte, which sequences eight windows long fill evenly. */
START_TEST(more_sequences_fit) {
    static const struct {
        const struct shape *shape;
        double before, after; /* sequences of 4096 tokens */
    } cases[] = {{&gemma3_1b, 4.8, 17}, {&gpt_oss_20b, 2.6, 4.4}};
    struct engine_config config = usual();
    set_model(cases[_i].shape);
    config.max_model_len = 4096;
    config.max_num_seqs = 64;
    struct engine_memory memory = planned(&config);
    ck_assert_int_le(memory.kv_cache, 512 * MIB);
    ck_assert_double_gt(engine_memory_sequences(&memory), cases[_i].after);
    config.window_blocks = 0;
    memory = planned(&config);
    ck_assert_double_lt(engine_memory_sequences(&memory), cases[_i].before);
}
END_TEST

/* For each pool size: the plan stays within it, and one sequence of full length fits. One byte less
 * than that needs is refused. */
START_TEST(the_bytes_are_kept_to) {
    static const struct shape *const shapes[] = {&gemma3_1b, &gpt_oss_20b, &mistral_7b};
    struct engine_config config = usual();
    set_model(shapes[_i]);
    struct engine_memory memory = planned(&config);
    int64_t chain = (memory.max_model_len + 15) / 16;
    int64_t least = window_blocks_seen(memory.window, 16) + 512 / 16;
    int64_t need = 16 * (chain * memory.kv_bytes_per_token + least * memory.window_bytes_per_token);
    for (int64_t more = 0; more < need; more += need / 7) {
        config.kv_memory = need + more;
        memory = planned(&config);
        ck_assert_int_le(memory.kv_cache, config.kv_memory);
        ck_assert_int_ge(memory.n_blocks, chain);
        ck_assert_int_ge(memory.n_window_blocks, least);
        ck_assert_int_le(memory.n_window_blocks, memory.n_blocks);
    }
    struct err err = {0};
    config.kv_memory = need - 1;
    ck_assert_int_eq(plan(&memory, &config, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "kv-cache-memory");
    ck_assert_ptr_nonnull(strstr(err.message, "too small for one sequence"));
}
END_TEST

/* If a window and a step fill the context anyway, or if the caller does not keep tables of window
 * blocks. */
START_TEST(all_layers_keep_all_blocks_if_windows_save_nothing) {
    struct engine_config config = usual();
    set_model(&gemma3_1b);
    config.max_model_len = 1040;
    ck_assert_int_eq(planned(&config).n_window_blocks, 0);
    config.max_model_len = 1041; /* 33 blocks that a row sees, 32 of a step, and one more */
    ck_assert_int_gt(planned(&config).n_window_blocks, 0);
    config.window_blocks = 0;
    ck_assert_int_eq(planned(&config).n_window_blocks, 0);
}
END_TEST

/* ---- on a GPU ------------------------------------------------------------------------------- */

struct planned_cost {
    const struct engine_memory *memory;
    const struct engine_config *config;
};

/* The work memory of steps grows with the blocks, too. */
static int64_t cost_of(void *arg, int n_blocks) {
    const struct planned_cost *cost = arg;
    return memory_pool_bytes(cost->memory, cost->config, n_blocks) + (int64_t)n_blocks * 1000;
}

static struct engine_memory planned_on_gpu(const struct engine_config *config) {
    const struct machine_memory machine = {
        .total = 64 * GIB, .available = 64 * GIB, .device = {16 * GIB, 16 * GIB}};
    struct engine_memory memory = {0};
    struct err err = {0};
    ck_assert_msg(memory_plan(&memory, &model, config, &machine, &err) == STATUS_OK, "%s",
                  err.message);
    return memory;
}

static struct engine_memory pool_on_gpu(const struct engine_config *config) {
    struct engine_memory memory = planned_on_gpu(config);
    struct planned_cost arg = {&memory, config};
    const struct pool_cost cost = {cost_of, &arg};
    const struct device_memory now = {16 * GIB, 10 * GIB}; /* a pool of 8 GiB */
    struct err err = {0};
    ck_assert_msg(memory_device_pool(&memory, config, &now, &cost, &err) == STATUS_OK, "%s",
                  err.message);
    ck_assert_int_eq(memory.kv_cache, memory_pool_bytes(&memory, config, memory.n_blocks));
    ck_assert_int_eq(memory.n_window_blocks,
                     memory_window_blocks(&memory, config, memory.n_blocks));
    return memory;
}

/* The number of window blocks follows from the number of blocks: at least as many as one sequence
 * needs, at most the number of blocks, otherwise in the proportion of sequences eight windows
 * long. */
START_TEST(a_gpu_s_pool_is_divided) {
    static const struct {
        const struct shape *shape;
        double more; /* times as many sequences of 32k tokens */
    } cases[] = {{&gemma3_1b, 3}, {&gpt_oss_20b, 1.7}, {&mistral_7b, 3.5}};
    struct engine_config config = usual();
    set_model(cases[_i].shape);
    config.device = DEVICE_CUDA;
    config.max_model_len = 32768;
    struct engine_memory memory = pool_on_gpu(&config), estimate = planned_on_gpu(&config);
    int seen = window_blocks_seen(memory.window, 16), least = seen + 512 / 16;
    ck_assert(estimate.n_window_blocks > 0 && estimate.window == cases[_i].shape->window);
    ck_assert_int_eq(memory_window_blocks(&memory, &config, 2048), least);
    ck_assert_int_le(memory_window_blocks(&memory, &config, 2050), least + 2);
    ck_assert_int_eq(memory_window_blocks(&memory, &config, 10), 10);
    double usual_blocks = 8.0 * memory.window / 16;
    double windows = least - seen + memory.n_blocks * seen / usual_blocks;
    ck_assert_double_le(fabs(memory.n_window_blocks - windows), 1);
    double with = engine_memory_sequences(&memory);
    config.window_blocks = 0;
    memory = pool_on_gpu(&config);
    ck_assert(memory.n_window_blocks == 0 && memory.window == 0);
    ck_assert_double_gt(with, cases[_i].more * engine_memory_sequences(&memory));
}
END_TEST

/* The plan stays within the requested bytes, and one more block would not fit. */
START_TEST(a_gpu_s_bytes_are_kept_to) {
    static const struct shape *const shapes[] = {&gemma3_1b, &gpt_oss_20b};
    struct engine_config config = usual();
    set_model(shapes[_i]);
    config.device = DEVICE_CUDA;
    config.max_model_len = 8192;
    struct engine_memory memory = planned_on_gpu(&config);
    int64_t need = memory_pool_bytes(&memory, &config, 512);
    for (int64_t more = 0; more < 9 * need; more += need / 3 + 1) {
        config.kv_memory = need + more;
        memory = planned_on_gpu(&config);
        ck_assert_int_le(memory.kv_cache, config.kv_memory);
        ck_assert_int_ge(memory.n_blocks, 512);
        ck_assert_int_gt(memory_pool_bytes(&memory, &config, memory.n_blocks + 1),
                         config.kv_memory);
    }
    const struct machine_memory machine = {
        .total = 64 * GIB, .available = 64 * GIB, .device = {16 * GIB, 16 * GIB}};
    struct err err = {0};
    config.kv_memory = need - 1;
    ck_assert_int_eq(memory_plan(&memory, &model, &config, &machine, &err), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(err.message, "too small for one sequence"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/memory_windows");
    TCase *core = tcase_create("core");
    tcase_add_test(core, a_long_sequence_takes_a_part);
    tcase_add_loop_test(core, more_sequences_fit, 0, 2);
    tcase_add_loop_test(core, the_bytes_are_kept_to, 0, 3);
    tcase_add_test(core, all_layers_keep_all_blocks_if_windows_save_nothing);
    tcase_add_loop_test(core, a_gpu_s_pool_is_divided, 0, 3);
    tcase_add_loop_test(core, a_gpu_s_bytes_are_kept_to, 0, 2);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
