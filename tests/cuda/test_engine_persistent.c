/* Decode steps as one grid (--persistent-step), through the scheduler. They produce the bytes of
 * runs without other requests in which each kernel is a separate launch. Batch sizes rise and fall
 * through the buckets. Steps with prompts are launched as usual. */
#include <assert.h>
#include <check.h>
#include <stdlib.h>

#include "support/same_bytes.h"
#include "support/suite_main.h"

enum { LENGTH = 640, ASKED = 5, MANY = 160, SEQUENCES = 11, ROWS = 29, BLOCK = 16 };

/* Only the emulation has these counters. */
__attribute__((weak)) unsigned long emu_cooperative_run(void);
__attribute__((weak)) unsigned long cuda_emu_graph_launches(void);

static unsigned long persistent_steps(void) {
    return emu_cooperative_run ? emu_cooperative_run() : 0;
}

static unsigned long graph_launches(void) {
    return cuda_emu_graph_launches ? cuda_emu_graph_launches() : 0;
}

/* ---- requests ------------------------------------------------------------------------------- */

struct variety {
    enum compute_dtype compute;
    enum kv_dtype kv;
    int D;
    bool untied;
};
static const struct variety varieties[] = {
    {COMPUTE_BFLOAT16, KV_DTYPE_FLOAT16, 64, false},
    {COMPUTE_BFLOAT16, KV_DTYPE_BFLOAT16, 128, true},
    {COMPUTE_FLOAT16, KV_DTYPE_FLOAT16, 128, false},
    {COMPUTE_FLOAT16, KV_DTYPE_BFLOAT16, 64, false},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

static struct tiny_model model_of(const struct variety *v) {
    return (struct tiny_model){.V = 300,
                               .K = 64,
                               .F = 128,
                               .L = v == varieties ? 2 : 1,
                               .H = 4,
                               .G = 2,
                               .D = v->D,
                               .context_length = LENGTH,
                               .dtype = DTYPE_F32,
                               .untied = v->untied,
                               .seed = 7};
}

static struct request_set *learn(const struct tiny_model *tiny, const struct variety *v) {
    const struct model_choice model = {.kv_dtype = v->kv, .dtype = v->compute};
    struct request_set *set = tiny_set_new(tiny, &model);
    set->long_prompt = tiny->L == 2 ? 262 : 70; /* two spans; two splits */
    request_set_init(set, 14, ASKED, NULL, 0);
    request_set_shorten(set, 7);
    const unsigned long before = persistent_steps();
    request_set_learn(set);
    /* the expected bytes are computed without persistent steps */
    ck_assert_uint_eq(persistent_steps(), before);
    return set;
}

/* ---- runs ----------------------------------------------------------------------------------- */

static struct setting setting_of(int in_flight) {
    return (struct setting){.path = "plain",
                            .threads = 1,
                            .max_rows = ROWS,
                            .max_seqs = SEQUENCES,
                            .max_logit_rows = SEQUENCES,
                            .block_size = BLOCK,
                            .n_blocks = MANY,
                            .caching = true,
                            .in_flight = in_flight,
                            .persistent_step = true};
}

/* Runs all requests, which arrive one after another, so that the number of rows rises and falls.
 * Returns the number of persistent steps. */
static unsigned long run_all(const struct request_set *set, const struct setting *setting) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    const unsigned long before = persistent_steps();
    for (int i = 0; i < set->n_asked; i++) run_add(run, &set->asked[i])->submit_at = 4 * i;
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%s", run->first_difference);
    ck_assert_uint_gt(run->tally.tokens, 20);
    free(run);
    return persistent_steps() - before;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static struct request_set *common; /* of the first variety */

static void learn_common(void) {
    const struct tiny_model tiny = model_of(&varieties[0]);
    common = learn(&tiny, &varieties[0]);
}

static void drop_common(void) {
    tiny_set_drop(common);
}

START_TEST(bytes_are_those_of_single_kernels) {
    const struct tiny_model tiny = model_of(&varieties[_i]);
    struct request_set *set = _i ? learn(&tiny, &varieties[_i]) : common;
    const struct setting setting = setting_of(2 - _i % 2);
    const unsigned long graphs = graph_launches();
    const unsigned long n = run_all(set, &setting);
    ck_assert_msg(n > 4 || !emu_cooperative_run, "%lu persistent steps", n);
    ck_assert_uint_eq(graph_launches(), graphs); /* they replace all graphs */
    if (set != common) tiny_set_drop(set);
}
END_TEST

/* The grid cannot multiply quantised codes, so these steps are graphs. */
START_TEST(other_models_have_graphs) {
    struct tiny_model tiny = model_of(&varieties[0]);
    tiny.dtype = DTYPE_Q8_0;
    tiny.L = 1;
    struct request_set *set = learn(&tiny, &varieties[0]);
    const struct setting setting = setting_of(2);
    const unsigned long graphs = graph_launches();
    ck_assert_uint_eq(run_all(set, &setting), 0);
    ck_assert(graph_launches() > graphs || !cuda_emu_graph_launches);
    tiny_set_drop(set);
}
END_TEST

/* More query heads per key-value head than a block of attention takes: the group is cut. */
START_TEST(groups_of_many_heads_are_part_of_the_grid) {
    struct tiny_model tiny = model_of(&varieties[0]);
    tiny.H = 20;
    tiny.G = 1;
    tiny.L = 1;
    struct request_set *set = learn(&tiny, &varieties[0]);
    const struct setting setting = setting_of(2);
    ck_assert(run_all(set, &setting) > 4 || !emu_cooperative_run);
    tiny_set_drop(set);
}
END_TEST

/* Two steps are kept; there are more sizes. */
START_TEST(steps_take_each_other_s_place) {
    struct setting setting = setting_of(2);
    setting.graphs = 2;
    ck_assert(run_all(common, &setting) > 0 || !emu_cooperative_run);
}
END_TEST

/* A step takes several times as long if each access is watched. */
int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    const bool watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine_persistent");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_unchecked_fixture(core, learn_common, drop_common);
    tcase_add_loop_test(core, bytes_are_those_of_single_kernels, 0, watched ? 1 : N_VARIETIES);
    if (!watched) {
        tcase_add_test(core, other_models_have_graphs);
        tcase_add_test(core, groups_of_many_heads_are_part_of_the_grid);
        tcase_add_test(core, steps_take_each_other_s_place);
    }
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
