/* Adapters on the CUDA backend. In float32 the tokens equal the CPU's. The bytes of a request do
 * not depend on its neighbours: rows of several adapters and of none share steps, in chunks, with
 * preemption, with one step in flight and with two, as graphs and
 * without, and after the adapters were loaded again under other numbers. Copies on the device move
 * if its room is divided.
 * ctest label: slow */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/internal.h"
#include "support/adapter_file.h"
#include "support/same_bytes.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

enum { LENGTH = 48, ASKED = 5, CLIENTS = 6, SIZE = 4, N_ADAPTERS = 3 };

/* Only the emulation has these counters. */
__attribute__((weak)) unsigned long cuda_emu_graph_launches(void);
__attribute__((weak)) unsigned long emu_cooperative_run(void);

static unsigned long graph_launches(void) {
    return cuda_emu_graph_launches ? cuda_emu_graph_launches() : 0;
}

static unsigned long persistent_steps(void) {
    return emu_cooperative_run ? emu_cooperative_run() : 0;
}

struct variety {
    const char *file; /* NULL: a tiny llama */
    enum dtype dtype;
    enum compute_dtype compute;
    enum kv_dtype kv;
    int D; /* of a tiny llama; 0: 16 */
};

/* Float32; a pair of gate and up in one launch; an MLP without a gate; convolutions; one that can
 * run as one grid; latent attention. */
static const struct variety varieties[] = {
    {NULL, DTYPE_F32, COMPUTE_FLOAT32, KV_DTYPE_FLOAT32},
    {NULL, DTYPE_Q8_0, COMPUTE_BFLOAT16, KV_DTYPE_BFLOAT16},
    {"tests/vectors/families/gpt2.gguf", DTYPE_F32, COMPUTE_BFLOAT16, KV_DTYPE_FLOAT16},
    {"tests/vectors/families/lfm2.gguf", DTYPE_F32, COMPUTE_FLOAT32, KV_DTYPE_FLOAT32},
    {NULL, DTYPE_F32, COMPUTE_BFLOAT16, KV_DTYPE_BFLOAT16, 64},
    {"tests/vectors/families/deepseek_v2.gguf", DTYPE_F32, COMPUTE_FLOAT32, KV_DTYPE_FLOAT32},
    {"tests/vectors/families/deepseek_v3.gguf", DTYPE_F32, COMPUTE_BFLOAT16, KV_DTYPE_FLOAT16},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties, ONE_GRID = 4 };

/* If each access is watched, one run is enough: the kernels' own suite tests the shapes. */
static bool watched;

/* ---- models and adapters -------------------------------------------------------------------- */

static char *models[N_VARIETIES], *adapters[N_VARIETIES][N_ADAPTERS];
static const struct tiny_model tiny_shape = {.V = 300,
                                             .K = 32,
                                             .F = 64,
                                             .L = 2,
                                             .H = 2,
                                             .G = 1,
                                             .D = 16,
                                             .context_length = LENGTH,
                                             .seed = 7};

static const char *file_of(int i) {
    struct tiny_model tiny = tiny_shape;
    tiny.dtype = varieties[i].dtype;
    if (varieties[i].D) tiny.D = varieties[i].D;
    if (varieties[i].file) return varieties[i].file;
    if (!models[i]) models[i] = tiny_model_temporary(&tiny);
    return models[i];
}

static struct engine *open_small(const char *file, enum device device, int64_t adapter_memory) {
    struct engine_config config = {.model = file,
                                   .threads = 1,
                                   .device = device,
                                   .dtype = COMPUTE_FLOAT32,
                                   .max_model_len = 16,
                                   .max_num_seqs = 4,
                                   .max_num_batched_tokens = 16,
                                   .block_size = 16,
                                   .kv_memory = 1 << 20,
                                   .max_adapters = 3,
                                   .max_adapter_rank = 32,
                                   .adapter_memory = adapter_memory};
    struct engine *engine;
    struct err err = {0};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    return engine;
}

static void write_adapters(int i) {
    static const int ranks[N_ADAPTERS] = {1, 8, 17};
    struct engine *engine = open_small(file_of(i), DEVICE_CPU, 0);
    for (int k = 0; k < N_ADAPTERS; k++) {
        const struct made_adapter made = {.rank = ranks[k],
                                          .alpha = 2.0f * (float)ranks[k],
                                          .seed = (uint64_t)k + 1,
                                          .only = k == 1 ? ROLE_O : 0};
        adapters[i][k] = adapter_file_temporary(&made, engine_model(engine));
    }
    engine_close(engine);
}

static void remove_files(void) {
    for (int i = 0; i < N_VARIETIES; i++) {
        if (models[i]) unlink(models[i]);
        free(models[i]);
        models[i] = NULL;
        for (int k = 0; k < N_ADAPTERS; k++) {
            if (adapters[i][k]) unlink(adapters[i][k]);
            free(adapters[i][k]);
            adapters[i][k] = NULL;
        }
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

/* The same requests for all devices: they are drawn from the variety's number. */
static struct request_set *learn(int i, enum device device) {
    const struct variety *v = &varieties[i];
    struct request_set *set = mem_calloc(1, sizeof *set);
    if (!adapters[i][0]) write_adapters(i);
    *set =
        (struct request_set){.model = {.file = file_of(i),
                                       .kv_dtype = v->kv,
                                       .max_model_len = LENGTH,
                                       .device = device,
                                       .dtype = v->compute,
                                       .wgmma = cuda_emu_graph_launches && device == DEVICE_CUDA},
                             .n_adapters = N_ADAPTERS,
                             .reference_path = "plain",
                             .long_prompt = LENGTH / 2,
                             .longest = LENGTH / 3};
    for (int k = 0; k < N_ADAPTERS; k++) set->adapter[k] = adapters[i][k];
    request_set_init(set, (uint64_t)i + 61, ASKED, NULL, 0);
    for (int k = 0; k < ASKED; k++) set->asked[k].adapter = k % (N_ADAPTERS + 1);
    request_set_shorten(set, 5);
    request_set_learn(set);
    return set;
}

static int blocks_for_largest(const struct request_set *set) {
    int largest = 0;
    for (int i = 0; i < set->n_asked; i++)
        largest = max_int(largest, (asked_slots(set, &set->asked[i]) + SIZE - 1) / SIZE);
    return largest;
}

static void run_all(struct run *run, int every) {
    for (int i = 0; i < CLIENTS; i++)
        run_add(run, &run->set->asked[i % run->set->n_asked])->submit_at = i * every;
    run_stepped(run);
}

/* Runs all requests, and once more after the adapters were loaded again in another order. */
static void run_twice(const struct request_set *set, const struct setting *setting,
                      struct tally *tally) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    run_all(run, setting->n_blocks % 3);
    run_reload_adapters(run, 1);
    run_all(run, 1);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%s: %d rows, %d blocks, %d in flight: %s",
                  set->model.file, setting->max_rows, setting->n_blocks, setting->in_flight,
                  run->first_difference);
    tally->preemptions += run->tally.preemptions;
    tally->tokens += run->tally.tokens;
    free(run);
}

/* Many blocks; few, so that sequences are preempted; drafts of which a third is wrong. Emulation is
 * slow, so each model has one of the settings. */
static void check_same_bytes(const struct request_set *set, int i, struct tally *tally) {
    const int few = blocks_for_largest(set);
    const struct setting settings[] = {
        {"plain", 1, 33, 8, 8, SIZE, few + 2, true, 2},
        {"plain", 1, 17, 8, 8, SIZE, 6 * few, true, 2},
        {"plain", 1, 24, 8, 24, SIZE, 2 * few, false, 1, .max_drafts = 3, .wrong = 33},
    };
    run_twice(set, &settings[i % 3], tally);
}

START_TEST(bytes_are_the_same_in_any_company) {
    struct tally tally = {0};
    const unsigned long before = graph_launches();
    for (int i = watched ? ONE_GRID - 1 : 0; i < (watched ? ONE_GRID : N_VARIETIES); i++) {
        if (i == ONE_GRID) continue;
        struct request_set *cuda = learn(i, DEVICE_CUDA);
        if (varieties[i].compute == COMPUTE_FLOAT32) {
            struct request_set *cpu = learn(i, DEVICE_CPU);
            request_sets_agree(cpu, cuda);
            request_set_drop(cpu);
        }
        check_same_bytes(cuda, i, &tally);
        request_set_drop(cuda);
    }
    ck_assert(tally.preemptions > 0 && tally.tokens > 50);
    ck_assert(!cuda_emu_graph_launches || graph_launches() > before);
}
END_TEST

/* With --persistent-step, steps of the base model alone are one grid, also in an engine with
 * adapters; the others are graphs. */
START_TEST(steps_without_adapters_are_one_grid) {
    struct request_set *set = learn(ONE_GRID, DEVICE_CUDA);
    /* the grid needs blocks of 16 positions */
    const struct setting setting = {"plain", 1, 17, 8, 8, 16, 40, true, 2, .persistent_step = true};
    struct run *run = mem_calloc(1, sizeof *run);
    const unsigned long before = persistent_steps();
    run_open(run, set, &setting);
    for (int i = 0; i < ASKED; i += N_ADAPTERS + 1) run_add(run, &set->asked[i]);
    run_stepped(run);
    const unsigned long of_base = persistent_steps(), graphs = graph_launches();
    ck_assert(!emu_cooperative_run || of_base > before);
    for (int i = 1; i <= N_ADAPTERS; i++) run_add(run, &set->asked[i]);
    run_stepped(run);
    run_close(run);
    ck_assert_uint_eq(persistent_steps(), of_base);
    ck_assert(!cuda_emu_graph_launches || graph_launches() > graphs);
    ck_assert_msg(run->tally.differences == 0, "%s", run->first_difference);
    free(run);
    request_set_drop(set);
}
END_TEST

/* ---- copies on the device ------------------------------------------------------------------- */

/* Copies the logits after a prompt of three tokens to logits[V]. */
static void logits_of(struct engine *engine, int number, float *logits) {
    const int32_t ids[] = {5, 9, 40};
    const float *got = runner_prompt_logits(engine, ids, 3, number);
    ck_assert_ptr_nonnull(got);
    memcpy(logits, got, (size_t)tiny_shape.V * sizeof *logits);
}

static int load(struct engine *engine, const char *path, int64_t *bytes) {
    struct adapter_facts facts;
    struct err err = {0};
    int number;
    ck_assert_msg(engine_adapter_load(engine, path, &number, &facts, &err) == STATUS_OK, "%s",
                  err.message);
    if (bytes) *bytes = facts.bytes;
    return number;
}

/* The logits of an adapter that is alone in memory. */
static void alone(const char *path, float *logits, int64_t *bytes) {
    struct engine *engine = open_small(file_of(0), DEVICE_CUDA, 0);
    logits_of(engine, load(engine, path, bytes), logits);
    engine_close(engine);
}

static void must_be(struct engine *engine, int number, const float *want, const char *what) {
    float got[300];
    ck_assert_int_eq(tiny_shape.V, sizeof got / sizeof *got);
    logits_of(engine, number, got);
    ck_assert_msg(memcmp(got, want, sizeof got) == 0, "%s", what);
}

/* Memory for a small adapter and a large one: after a small one between the end and the beginning
 * has gone, the large one fits only if the other moves. */
START_TEST(copies_move_if_their_room_is_divided) {
    enum { SMALL, OTHER, LARGE, N };
    static const int ranks[N] = {8, 8, 16};
    char *path[N];
    float want[N][300];
    int64_t bytes[N];
    struct engine *engine = open_small(file_of(0), DEVICE_CPU, 0);
    for (int i = 0; i < N; i++) {
        const struct made_adapter made = {.rank = ranks[i], .alpha = 16, .seed = (uint64_t)i + 91};
        path[i] = adapter_file_temporary(&made, engine_model(engine));
    }
    engine_close(engine);
    for (int i = 0; i < N; i++) alone(path[i], want[i], &bytes[i]);
    ck_assert(memcmp(want[SMALL], want[OTHER], sizeof *want) != 0);
    engine = open_small(file_of(0), DEVICE_CUDA, bytes[OTHER] + bytes[LARGE]);
    const int small = load(engine, path[SMALL], NULL), other = load(engine, path[OTHER], NULL);
    must_be(engine, small, want[SMALL], "the first copy");
    must_be(engine, other, want[OTHER], "the second copy");
    const int64_t before = engine->model.adapters.copies.place[other].first;
    ck_assert(before > 0);
    engine_adapter_unload(engine, small);
    const int large = load(engine, path[LARGE], NULL);
    ck_assert_int_eq(large, small);
    must_be(engine, large, want[LARGE], "a copy after the others were dropped");
    must_be(engine, other, want[OTHER], "a copy that has moved");
    ck_assert(engine->model.adapters.copies.place[other].first != before);
    must_be(engine, large, want[LARGE], "a copy beside one that has moved");
    engine_close(engine);
    for (int i = 0; i < N; i++) unlink(path[i]), free(path[i]);
}
END_TEST

/* A number that is used again must not find the copy of its last adapter. */
START_TEST(a_number_that_is_used_again_gets_a_new_copy) {
    float want[2][300];
    if (!adapters[0][0]) write_adapters(0);
    alone(adapters[0][0], want[0], NULL);
    alone(adapters[0][2], want[1], NULL);
    struct engine *engine = open_small(file_of(0), DEVICE_CUDA, 0);
    for (int i = 0; i < 4; i++) {
        const int number = load(engine, adapters[0][i % 2 * 2], NULL);
        ck_assert_int_eq(number, 1);
        must_be(engine, number, want[i % 2], "a number that is used again");
        engine_adapter_unload(engine, number);
    }
    engine_close(engine);
}
END_TEST

/* Unloading frees the copies; they are made again after the weights are. */
START_TEST(copies_return_after_the_model_was_unloaded) {
    const struct engine_load_watch watch = {0};
    struct err err = {0};
    float want[300];
    if (!adapters[0][0]) write_adapters(0);
    alone(adapters[0][2], want, NULL);
    struct engine *engine = open_small(file_of(0), DEVICE_CUDA, 0);
    const int number = load(engine, adapters[0][2], NULL);
    must_be(engine, number, want, "before");
    engine_unload(engine);
    ck_assert_ptr_null(engine->model.adapters.copies.numbers);
    ck_assert_msg(engine_load(engine, &watch, &err) == STATUS_OK, "%s", err.message);
    must_be(engine, number, want, "after");
    engine_close(engine);
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine_adapters");
    TCase *company = tcase_create("company"), *core = tcase_create("core");
    tcase_set_timeout(company, 600);
    tcase_add_unchecked_fixture(company, NULL, remove_files);
    tcase_add_test(company, bytes_are_the_same_in_any_company);
    tcase_add_test(company, steps_without_adapters_are_one_grid);
    suite_add_tcase(suite, company);
    tcase_set_timeout(core, 600);
    tcase_add_unchecked_fixture(core, NULL, remove_files);
    tcase_add_test(core, copies_move_if_their_room_is_divided);
    tcase_add_test(core, a_number_that_is_used_again_gets_a_new_copy);
    tcase_add_test(core, copies_return_after_the_model_was_unloaded);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
