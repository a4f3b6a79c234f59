/* The start on a device: the size of the block pool; and that a start without enough memory fails
 * with one sentence and frees everything, tested for each allocation of a start. Also the device
 * that "auto" selects. */
#include <check.h>
#include <emu_memory.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/scheduler.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

#define MIB ((size_t)1 << 20)

static char *file;

static void make_file(void) {
    const struct tiny_model tiny = {.V = 300,
                                    .K = 32,
                                    .F = 40,
                                    .L = 2,
                                    .H = 4,
                                    .G = 2,
                                    .D = 16,
                                    .context_length = 512,
                                    .dtype = DTYPE_F32,
                                    .seed = 3};
    file = tiny_model_temporary(&tiny);
}

static void drop_file(void) {
    unlink(file);
    free(file);
    emu_memory_set((size_t)16 << 30);
    emu_present(true);
    emu_fail_at(0);
    unsetenv("CUDA_EMU_FAIL");
}

static struct engine_config usual(void) {
    return (struct engine_config){.model = file,
                                  .threads = 1,
                                  .device = DEVICE_CUDA,
                                  .max_num_seqs = 4,
                                  .max_num_batched_tokens = 32,
                                  .block_size = 16};
}

static struct engine *open_one(const struct engine_config *config) {
    struct engine *engine;
    struct err err = {0};
    ck_assert_msg(engine_open(&engine, config, &err) == STATUS_OK, "%s", err.message);
    return engine;
}

/* If memory is short, the message must name its purpose, the amount, the free amount, and a
 * remedy. */
static void check_sentence(const struct err *err) {
    const char *m = err->message;
    ck_assert_int_eq(err->status, STATUS_USAGE);
    ck_assert_msg(strstr(m, "GPU") || strstr(m, "host"), "%s", m);
    ck_assert_msg(strstr(m, "MiB"), "%s", m);
    ck_assert_msg(strstr(m, "{") || strstr(m, "give a smaller model"), "%s", m);
    ck_assert_uint_lt(strlen(m), sizeof err->message - 1);
}

static void check_refused(const struct engine_config *config, const char *words) {
    struct engine *engine;
    struct err err = {0};
    ck_assert_int_ne(engine_open(&engine, config, &err), STATUS_OK);
    ck_assert_ptr_null(engine);
    check_sentence(&err);
    ck_assert_msg(strstr(err.message, words), "\"%s\" lacks \"%s\"", err.message, words);
    ck_assert_uint_eq(emu_memory_used(), 0);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* Types of caches and weights that allocate memory that the others do not. */
static const struct {
    enum kv_dtype kv_dtype;
    enum quantization quantization;
    bool host_samples;
} kinds[] = {{KV_DTYPE_FLOAT16, QUANTIZATION_NONE, false},
             {KV_DTYPE_FP8, QUANTIZATION_FP8, false},
             {KV_DTYPE_AUTO, QUANTIZATION_NONE, true}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

START_TEST(each_allocation_that_fails_ends_in_a_sentence) {
    struct engine_config config = usual();
    config.kv_dtype = kinds[_i].kv_dtype;
    config.quantization = kinds[_i].quantization;
    config.host_samples = kinds[_i].host_samples;
    config.swap_space = (int64_t)MIB;
    if (_i == 0) config.max_adapters = 2, config.max_adapter_rank = 4;
    emu_fail_at(0);
    engine_close(open_one(&config));
    int n = emu_allocations();
    ck_assert_int_gt(n, 30);
    ck_assert_uint_eq(emu_memory_used(), 0);
    for (int i = 1; i <= n; i++) {
        emu_fail_at(i);
        check_refused(&config, "");
    }
    emu_fail_at(n + 1);
    engine_close(open_one(&config));
}
END_TEST

START_TEST(weights_that_do_not_fit_are_refused) {
    struct engine_config config = usual();
    emu_memory_set(360000); /* room for the workspaces */
    check_refused(&config, "weight");
    check_refused(&config, "smaller model");
}
END_TEST

START_TEST(a_sequence_that_does_not_fit_is_refused) {
    struct engine_config config = usual();
    struct engine *engine = open_one(&config);
    int64_t cache = 512 * engine_memory(engine)->kv_bytes_per_token;
    /* includes pinned memory */
    size_t rest = emu_memory_used() - (size_t)engine_memory(engine)->kv_cache;
    engine_close(engine);
    emu_memory_set(rest + (size_t)cache);
    config.gpu_memory_utilization = 0.8;
    check_refused(&config, "{gpu-memory-utilization} 0.80 leaves");
    check_refused(&config, "KV cache of one sequence of 512 tokens");
    config.kv_memory = 2 * cache;
    check_refused(&config, "{kv-cache-memory} of");
    config = usual();
    config.gpu_memory_utilization = 1.5;
    runner_must_refuse(&config, "gpu-memory-utilization", "above 0 and at most 1");
}
END_TEST

/* ---- the size of the pool ------------------------------------------------------------------- */

/* The device's bytes, without pinned memory, stay within the given share. */
START_TEST(the_share_decides_the_pool) {
    struct engine_config config = usual();
    config.max_num_seqs = 200; /* so that sequences do not limit the pool */
    int64_t before = 0;
    emu_memory_set(24 * MIB);
    for (int percent = 50; percent <= 100; percent += 10) {
        config.gpu_memory_utilization = percent / 100.0;
        struct engine *engine = open_one(&config);
        const struct engine_memory *m = engine_memory(engine);
        int64_t budget = (int64_t)(24 * MIB) * percent / 100 - m->kept;
        int64_t taken = m->weights + m->scratch + m->sampling + m->steps + m->kv_cache;
        ck_assert_int_le(taken, budget);
        ck_assert_int_gt(taken, budget - (int64_t)MIB / 2); /* memory for loading is freed */
        ck_assert_int_gt(m->kv_cache, before);
        ck_assert_uint_eq(m->device.total, 24 * MIB);
        ck_assert_int_ge(m->sampling, 4 * 300 * 200);
        before = m->kv_cache;
        engine_close(engine);
    }
}
END_TEST

START_TEST(the_pool_is_no_more_than_sequences_can_use) {
    struct engine_config config = usual();
    struct engine *engine = open_one(&config);
    ck_assert_int_eq(engine_memory(engine)->n_blocks, 4 * 4 * 512 / 16);
    engine_close(engine);
    config.kv_memory = 100 * 16 * 256;
    engine = open_one(&config);
    ck_assert_int_eq(engine_memory(engine)->n_blocks, 100);
    engine_close(engine);
    ck_assert_uint_eq(emu_memory_used(), 0);
}
END_TEST

/* ---- the device ----------------------------------------------------------------------------- */

START_TEST(auto_takes_an_existing_gpu) {
    struct engine_config config = usual();
    config.device = DEVICE_AUTO;
    struct engine *engine = open_one(&config);
    ck_assert_ptr_nonnull(strstr(engine_backend_name(engine), "cuda sm_90"));
    ck_assert_ptr_nonnull(strstr(engine_backend_name(engine), "(device auto: emulated)"));
    engine_close(engine);
    emu_present(false);
    engine = open_one(&config);
    ck_assert_ptr_nonnull(strstr(engine_backend_name(engine), "cpu "));
    ck_assert_ptr_nonnull(strstr(engine_backend_name(engine), "no usable GPU was found"));
    ck_assert_uint_eq(engine_memory(engine)->device.total, 0);
    engine_close(engine);
    config.device = DEVICE_CUDA;
    runner_must_refuse(&config, "device", "no usable GPU was found");
}
END_TEST

/* Like a program that was built on another machine. */
START_TEST(a_program_without_code_for_the_gpu_says_so) {
    struct engine_config config = usual();
    struct engine *engine;
    struct err err = {0};
    setenv("CUDA_EMU_FAIL", "cudaFuncGetAttributes", 1);
    ck_assert_int_eq(engine_open(&engine, &config, &err), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(err.message, "was built for other GPUs than emulated"));
    config.device = DEVICE_AUTO;
    engine = open_one(&config);
    ck_assert_ptr_nonnull(strstr(engine_backend_name(engine), "cpu "));
    engine_close(engine);
}
END_TEST

/* Writes the log of opening an engine to `text`. */
static void opening_logs(const struct engine_config *config, char *text, size_t size) {
    FILE *log = tmpfile();
    const int stderr_was = dup(STDERR_FILENO);
    dup2(fileno(log), STDERR_FILENO);
    engine_close(open_one(config));
    dup2(stderr_was, STDERR_FILENO);
    close(stderr_was);
    rewind(log);
    const size_t n = fread(text, 1, size - 1, log);
    text[n] = 0;
    fclose(log);
}

static const struct {
    const char *device, *ptx, *words;
} codes[] = {
    {"90", "90", "emulated, sm_90, runs kernels built for sm_90; grids begin early"},
    {"80", "80", "sm_80, runs kernels built for sm_80; each grid begins after the previous one"},
    {"90", "80", "sm_90, runs kernels compiled by the driver for sm_90 from PTX of sm_80; each "},
};
enum { N_CODES = sizeof codes / sizeof *codes };

START_TEST(the_log_says_which_code_runs) {
    char text[4096];
    const struct engine_config config = usual();
    setenv("CUDA_EMU_ARCH", codes[_i].device, 1);
    setenv("CUDA_EMU_PTX", codes[_i].ptx, 1);
    opening_logs(&config, text, sizeof text);
    unsetenv("CUDA_EMU_ARCH");
    unsetenv("CUDA_EMU_PTX");
    ck_assert_msg(strstr(text, codes[_i].words), "\"%s\" lacks \"%s\"", text, codes[_i].words);
}
END_TEST

START_TEST(wgmma_wants_its_device) {
    struct engine_config config = usual();
    config.wgmma = true;
    engine_close(open_one(&config));
    setenv("CUDA_EMU_ARCH", "80", 1);
    runner_must_refuse(&config, "wgmma",
                       "has compute capability 8.0, and only 9.0 (H100, H200) has");
    unsetenv("CUDA_EMU_ARCH");
}
END_TEST

START_TEST(wgmma_is_refused_on_the_cpu) {
    struct engine_config config = usual();
    config.wgmma = true;
    config.device = DEVICE_CPU;
    runner_must_refuse(&config, "wgmma", "give {device} cuda, or leave it out");
}
END_TEST

START_TEST(a_persistent_step_wants_cooperative_grids) {
    struct engine_config config = usual();
    config.persistent_step = true;
    engine_close(open_one(&config));
    setenv("CUDA_EMU_COOPERATIVE", "0", 1);
    runner_must_refuse(&config, "persistent-step", "cannot launch cooperative grids");
    unsetenv("CUDA_EMU_COOPERATIVE");
}
END_TEST

static const struct {
    const char *option;
    struct engine_config with; /* fields that are not 0 apply */
} contradictions[] = {
    {"{device} cpu", {0}},
    {"{enforce-eager}", {.enforce_eager = true}},
    {"{dtype} float32", {.dtype = COMPUTE_FLOAT32}},
    {"{quantization}", {.quantization = QUANTIZATION_FP8}},
    {"{kv-cache-dtype} fp8", {.kv_dtype = KV_DTYPE_FP8}},
    {"{no-deterministic}", {.allow_batch_variant_gemm = true}},
};
enum { N_CONTRADICTIONS = sizeof contradictions / sizeof *contradictions };

START_TEST(an_impossible_persistent_step_is_refused) {
    const struct engine_config *with = &contradictions[_i].with;
    struct engine_config config = usual();
    config.persistent_step = true;
    if (_i == 0) config.device = DEVICE_CPU;
    config.enforce_eager = with->enforce_eager;
    config.dtype = with->dtype;
    config.quantization = with->quantization;
    config.kv_dtype = with->kv_dtype;
    config.allow_batch_variant_gemm = with->allow_batch_variant_gemm;
    runner_must_refuse(&config, "persistent-step", contradictions[_i].option);
}
END_TEST

/* Models, and the start's message about their steps. */
static const struct {
    struct tiny_model model;
    int max_seqs, max_logit_rows;
    const char *words;
} decided[] = {
    {{.H = 4, .G = 2, .D = 64}, 20, 0, "decode steps of up to 16 rows are one grid of 8 blocks"},
    {{.H = 4, .G = 2, .D = 64}, 3, 0, "decode steps of up to 3 rows are one grid of 8 blocks"},
    {{.H = 4, .G = 2, .D = 64}, 3, 16, "decode steps of up to 16 rows are one grid"}, /* drafts */
    {{.H = 4, .G = 2, .D = 16}, 4, 0, "because its heads are not of 64 or 128 numbers"},
    {{.H = 20, .G = 1, .D = 64}, 4, 0, "decode steps of up to 4 rows are one grid of 8 blocks"},
    {{.H = 4, .G = 2, .D = 64, .dtype = DTYPE_Q8_0},
     4,
     0,
     "because its weights are not of 16 bits"},
};
enum { N_DECIDED = sizeof decided / sizeof *decided };

/* Writes a model file and returns its path. The caller removes the file and frees the path. */
static char *file_of(struct tiny_model tiny) {
    tiny.V = 300;
    tiny.K = tiny.F = 64;
    tiny.L = 1;
    tiny.context_length = 512;
    if (!tiny.dtype) tiny.dtype = DTYPE_F32;
    return tiny_model_temporary(&tiny);
}

START_TEST(the_log_says_which_steps_are_one_grid) {
    char text[4096], *path = file_of(decided[_i].model);
    struct engine_config config = usual();
    config.model = path;
    config.max_num_seqs = decided[_i].max_seqs;
    config.max_logit_rows = decided[_i].max_logit_rows;
    config.persistent_step = true;
    opening_logs(&config, text, sizeof text);
    unlink(path);
    free(path);
    ck_assert_msg(strstr(text, "persistent-step: "), "%s", text);
    ck_assert_msg(strstr(text, decided[_i].words), "\"%s\" lacks \"%s\"", text, decided[_i].words);
}
END_TEST

/* The barrier's word, and the orders on the host and on the device. */
START_TEST(one_grid_takes_its_memory_at_the_start) {
    char *path = file_of(decided[0].model);
    struct engine_config config = usual();
    config.model = path;
    emu_fail_at(0);
    engine_close(open_one(&config));
    const int without = emu_allocations();
    config.persistent_step = true;
    emu_fail_at(0);
    engine_close(open_one(&config));
    const int n = emu_allocations();
    ck_assert_int_eq(n, without + 3);
    for (int i = 1; i <= n; i++) {
        emu_fail_at(i);
        check_refused(&config, "");
    }
    emu_fail_at(0);
    unlink(path);
    free(path);
}
END_TEST

START_TEST(inspect_shows_the_gpu_s_memory) {
    struct engine_config config = usual();
    struct err err = {0};
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    ck_assert_int_eq(engine_inspect(&config, (struct inspected){0}, out, &err), STATUS_OK);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "steps, attention"));
    ck_assert_ptr_nonnull(strstr(text, "share to use: 0.90"));
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_start");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_checked_fixture(core, make_file, drop_file);
    tcase_add_loop_test(core, each_allocation_that_fails_ends_in_a_sentence, 0, N_KINDS);
    tcase_add_test(core, weights_that_do_not_fit_are_refused);
    tcase_add_test(core, a_sequence_that_does_not_fit_is_refused);
    tcase_add_test(core, the_share_decides_the_pool);
    tcase_add_test(core, the_pool_is_no_more_than_sequences_can_use);
    tcase_add_test(core, auto_takes_an_existing_gpu);
    tcase_add_test(core, a_program_without_code_for_the_gpu_says_so);
    tcase_add_loop_test(core, the_log_says_which_code_runs, 0, N_CODES);
    tcase_add_test(core, wgmma_wants_its_device);
    tcase_add_test(core, wgmma_is_refused_on_the_cpu);
    tcase_add_test(core, a_persistent_step_wants_cooperative_grids);
    tcase_add_loop_test(core, an_impossible_persistent_step_is_refused, 0, N_CONTRADICTIONS);
    tcase_add_loop_test(core, the_log_says_which_steps_are_one_grid, 0, N_DECIDED);
    tcase_add_test(core, one_grid_takes_its_memory_at_the_start);
    tcase_add_test(core, inspect_shows_the_gpu_s_memory);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
