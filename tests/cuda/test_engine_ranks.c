/* Tiny models on two ranks of the CUDA backend, each with an emulated device, and a stand-in for
 * NCCL. In float32 the tokens equal those of one rank on the CPU. A request's bytes do not depend
 * on other requests, with preemption, and with two steps in flight. Only rank 0's device knows the
 * pending tokens of those. A rank whose NCCL fails ends the work of all. Each device has its part
 * of each adapter. ctest label: slow */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/internal.h"
#include "support/adapter_file.h"
#include "support/same_bytes.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"
#include "tests/cuda/nccl_stand_in.h"

unsigned long cuda_emu_graph_launches(void); /* of the emulation */

enum { LENGTH = 640, SHORT_LENGTH = 96, ASKED = 4, RANKS = 2 };

static const struct variety {
    enum dtype dtype;
    enum compute_dtype act;
    enum kv_dtype kv;
    const char *file; /* NULL: a tiny model is made */
} varieties[] = {
    {DTYPE_F32, COMPUTE_FLOAT32, KV_DTYPE_FLOAT32, NULL},
    {DTYPE_Q8_0, COMPUTE_BFLOAT16, KV_DTYPE_FLOAT16, NULL},
    /* layers with experts and layers with MLPs, and a shared expert */
    {DTYPE_BF16, COMPUTE_FLOAT32, KV_DTYPE_FLOAT32, "tests/vectors/folders/qwen2moe_mixed"},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

static char *model_file(const struct variety *v) {
    struct tiny_model tiny = {.V = 300,
                              .K = 32,
                              .F = 64,
                              .L = 2,
                              .H = 4,
                              .G = 2,
                              .D = 16,
                              .context_length = LENGTH,
                              .dtype = v->dtype,
                              .seed = 3};
    return tiny_model_temporary(&tiny);
}

/* ---- adapters ------------------------------------------------------------------------------- */

enum { N_ADAPTERS = 3 };

/* Files of adapters with numbers of different types. */
static char *adapters[N_ADAPTERS];

static void open_small(struct engine **engine, const char *file, enum device device, int ranks) {
    const struct engine_config config = {.model = file,
                                         .threads = 1,
                                         .ranks = ranks,
                                         .device = device,
                                         .dtype = COMPUTE_FLOAT32,
                                         .max_model_len = 64,
                                         .max_num_seqs = 4,
                                         .max_num_batched_tokens = 16,
                                         .block_size = 16,
                                         .kv_memory = 1 << 20,
                                         .max_adapters = N_ADAPTERS,
                                         .max_adapter_rank = 17};
    struct err err = {0};
    ck_assert_msg(!engine_open(engine, &config, &err), "%s", err.message);
}

static void write_adapters(const char *file) {
    static const enum dtype types[N_ADAPTERS] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    static const int ranks[N_ADAPTERS] = {1, 8, 17};
    struct engine *engine;
    open_small(&engine, file, DEVICE_CPU, 1);
    for (int k = 0; k < N_ADAPTERS; k++) {
        const struct made_adapter made = {.rank = ranks[k],
                                          .alpha = 2.0f * (float)ranks[k],
                                          .seed = (uint64_t)k + 1,
                                          .a_type = types[k],
                                          .b_type = types[k]};
        adapters[k] = adapter_file_temporary(&made, engine_model(engine));
    }
    engine_close(engine);
}

static void remove_adapters(void) {
    for (int k = 0; k < N_ADAPTERS; k++) {
        unlink(adapters[k]);
        free(adapters[k]);
        adapters[k] = NULL;
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

/* With adapters if their files were written. */
static struct request_set *learn(const struct variety *v, const char *file, enum device device,
                                 int ranks) {
    struct request_set *set = mem_calloc(1, sizeof *set);
    *set = (struct request_set){.model = {.file = file,
                                          .kv_dtype = v->kv,
                                          .max_model_len = v->file ? SHORT_LENGTH : LENGTH,
                                          .device = device,
                                          .dtype = v->act,
                                          .ranks = ranks},
                                .reference_path = "plain",
                                .long_prompt = v->file ? 40 : 140,
                                .longest = v->file ? 24 : 40,
                                .reads = true};
    set->n_adapters = adapters[0] ? N_ADAPTERS : 0;
    for (int k = 0; k < set->n_adapters; k++) set->adapter[k] = adapters[k];
    request_set_init(set, 1, ASKED, NULL, 0);
    for (int k = 0; k < ASKED; k++) set->asked[k].adapter = k % (set->n_adapters + 1);
    request_set_learn(set);
    return set;
}

static uint64_t run_mixed(const struct request_set *set, const struct setting *setting) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    for (int i = 0; i < MAX_CLIENTS; i++) {
        struct client *client = run_add(run, &set->asked[1 + i % (set->n_asked - 1)]);
        if (i % 5 == 4) client->cancel_at = client->submit_at + 3;
    }
    run_stepped(run);
    if (set->n_adapters > 0) {
        run_reload_adapters(run, 1); /* under other numbers */
        for (int i = 1; i < set->n_asked; i++) run_add(run, &set->asked[i]);
        run_stepped(run);
    }
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%d rows: %s", setting->max_rows,
                  run->first_difference);
    uint64_t preemptions = run->tally.preemptions;
    free(run);
    return preemptions;
}

static int few_blocks(const struct request_set *set, int block_size) {
    int largest = 0;
    for (int i = 1; i < set->n_asked; i++) {
        int blocks = (asked_slots(set, &set->asked[i]) + block_size - 1) / block_size;
        largest = blocks > largest ? blocks : largest;
    }
    return largest;
}

START_TEST(two_ranks_give_the_bytes_of_one) {
    const struct variety *v = &varieties[_i];
    char *made = v->file ? NULL : model_file(v);
    const char *file = made ? made : v->file;
    nccl_stand_in(NCCL_WORKS);
    struct request_set *two = learn(v, file, DEVICE_CUDA, RANKS);
    ck_assert_int_gt(nccl_stand_in_meetings(), 100);
    if (v->act == COMPUTE_FLOAT32) {
        struct request_set *one = learn(v, file, DEVICE_CPU, 1);
        request_sets_agree(one, two);
        request_set_drop(one);
    }
    const unsigned long launched = cuda_emu_graph_launches();
    const struct setting settings[] = {
        {"plain", 2, 33, 8, 8, 5, 300, true, 2},
        {"plain", 2, 29, 8, 8, 4, few_blocks(two, 4), true, 2},
    };
    run_mixed(two, &settings[0]);
    ck_assert_uint_gt(run_mixed(two, &settings[1]), 0);
    ck_assert_uint_gt(cuda_emu_graph_launches() - launched, 20); /* steps were graphs on both */
    ck_assert_int_eq(nccl_stand_in_open(), 0);
    request_set_drop(two);
    if (made) unlink(made);
    free(made);
}
END_TEST

static const int32_t prompt[] = {5, 9, 40};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

/* Rank 0's device waits for the lost rank until the group is aborted. */
START_TEST(a_rank_whose_nccl_fails_ends_the_passes_of_all) {
    char *file = model_file(&varieties[0]);
    const struct engine_config config = {.model = file,
                                         .ranks = RANKS,
                                         .device = DEVICE_CUDA,
                                         .dtype = COMPUTE_FLOAT32,
                                         .enforce_eager = _i == 0,
                                         .max_num_seqs = 4,
                                         .max_num_batched_tokens = 16,
                                         .block_size = 16};
    struct engine *engine;
    struct err err = {0};
    nccl_stand_in(NCCL_WORKS);
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    ck_assert_ptr_nonnull(runner_prompt_logits(engine, prompt, N_PROMPT, -1));
    ck_assert(!engine_failed(engine, &err));
    nccl_stand_in(NCCL_FAILS_AT_1);
    ck_assert_ptr_null(runner_prompt_logits(engine, prompt, N_PROMPT, -1));
    ck_assert(engine_failed(engine, &err));
    ck_assert_str_eq(err.message, "Rank 1 of 2 is lost: NCCL has failed: gathering the ranks' "
                                  "rows: out of luck.");
    ck_assert_ptr_null(runner_prompt_logits(engine, prompt, N_PROMPT, -1)); /* and does not wait */
    engine_close(engine);
    ck_assert_int_eq(nccl_stand_in_open(), 0);
    unlink(file);
    free(file);
}
END_TEST

/* Steps have rows of several adapters and of none. In float32 the tokens are those of two ranks and
 * of one on the CPU. */
START_TEST(adapters_are_divided_among_gpus) {
    const struct variety *v = &varieties[_i];
    char *file = model_file(v);
    nccl_stand_in(NCCL_WORKS);
    write_adapters(file);
    struct request_set *two = learn(v, file, DEVICE_CUDA, RANKS);
    for (int ranks = 1; v->act == COMPUTE_FLOAT32 && ranks <= RANKS; ranks++) {
        struct request_set *cpu = learn(v, file, DEVICE_CPU, ranks);
        request_sets_agree(cpu, two);
        request_set_drop(cpu);
    }
    const struct setting settings[] = {
        {"plain", 2, 33, 8, 8, 5, 300, true, 2},
        {"plain", 2, 29, 8, 8, 4, few_blocks(two, 4), true, 2},
    };
    run_mixed(two, &settings[0]);
    ck_assert_uint_gt(run_mixed(two, &settings[1]), 0);
    ck_assert_int_eq(nccl_stand_in_open(), 0);
    request_set_drop(two);
    remove_adapters();
    unlink(file);
    free(file);
}
END_TEST

/* Each device has room for its part of the planned memory, and no more. */
START_TEST(each_gpu_has_its_share_of_the_memory) {
    char *file = model_file(&varieties[0]);
    struct engine *engine;
    nccl_stand_in(NCCL_WORKS);
    open_small(&engine, file, DEVICE_CUDA, RANKS);
    const struct model_adapters *all = &engine->model.adapters;
    ck_assert_int_eq(all->copies.bytes, all->bytes / RANKS);
    ck_assert_int_eq(engine_memory(engine)->adapters, all->bytes / RANKS);
    engine_close(engine);
    unlink(file);
    free(file);
}
END_TEST

START_TEST(a_persistent_step_is_for_one_rank) {
    char *file = model_file(&varieties[1]);
    struct engine_config config = {.model = file,
                                   .ranks = RANKS,
                                   .device = DEVICE_CUDA,
                                   .max_num_seqs = 4,
                                   .max_num_batched_tokens = 16,
                                   .block_size = 16,
                                   .persistent_step = true};
    nccl_stand_in(NCCL_WORKS);
    runner_must_refuse(&config, "persistent-step", "{tensor-parallel-size}");
    unlink(file);
    free(file);
}
END_TEST

int main(void) {
    setenv("CUDA_EMU_DEVICES", "2", 1);
    Suite *suite = suite_create("cuda_engine_ranks");
    TCase *core = tcase_create("core"), *lora = tcase_create("adapters");
    tcase_set_timeout(core, 300);
    tcase_set_timeout(lora, 300);
    tcase_add_loop_test(core, two_ranks_give_the_bytes_of_one, 0, N_VARIETIES);
    tcase_add_loop_test(core, a_rank_whose_nccl_fails_ends_the_passes_of_all, 0, 2);
    tcase_add_loop_test(lora, adapters_are_divided_among_gpus, 0, 2);
    tcase_add_test(lora, each_gpu_has_its_share_of_the_memory);
    tcase_add_test(core, a_persistent_step_is_for_one_rank);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, lora);
    return suite_main(suite);
}
