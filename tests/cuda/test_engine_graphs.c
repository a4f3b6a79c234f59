/* Decode steps as CUDA graphs, through the scheduler. Replayed steps produce the bytes of runs
 * without other requests and without graphs. Batch sizes rise and fall through the buckets, with
 * one step in flight and with two. The tests cover preemption, cancellation, a limit on graphs that
 * makes them replace each other, and a device that refuses to record. ctest label: slow */
#include <assert.h>
#include <check.h>
#include <stdlib.h>

#include "support/same_bytes.h"
#include "support/suite_main.h"

enum { LENGTH = 640, ASKED = 10, BLOCK = 4, SEQUENCES = 11, MANY = 160, N_SHAPES = 15 };

/* Only the emulation has these counters. */
__attribute__((weak)) unsigned long cuda_emu_graph_launches(void);
__attribute__((weak)) unsigned long cuda_emu_captures(void);

static unsigned long launches(void) {
    return cuda_emu_graph_launches ? cuda_emu_graph_launches() : 0;
}

static unsigned long captures(void) {
    return cuda_emu_captures ? cuda_emu_captures() : 0;
}

static unsigned long captures_at_start; /* when the last run's engine was opened */

/* ---- requests ------------------------------------------------------------------------------- */

struct variety {
    enum dtype dtype;
    enum compute_dtype compute;
    enum kv_dtype kv;
    int block; /* slots of a block if they are a part of the model, as in e4m3 */
};
static const struct variety varieties[] = {
    {DTYPE_F32, COMPUTE_FLOAT32, KV_DTYPE_FLOAT32, BLOCK},
    {DTYPE_F32, COMPUTE_BFLOAT16, KV_DTYPE_FLOAT16, BLOCK},
    {DTYPE_Q8_0, COMPUTE_FLOAT16, KV_DTYPE_FP8, 16},
};
enum { FLOAT32, BFLOAT16, E4M3, N_VARIETIES };

static struct request_set *learn(int number) {
    const struct variety *v = &varieties[number];
    struct tiny_model tiny = {.V = 300,
                              .K = 32,
                              .F = 32,
                              .L = 2,
                              .H = 2,
                              .G = 1,
                              .D = 16,
                              .context_length = LENGTH,
                              .dtype = v->dtype,
                              .seed = 7};
    const struct model_choice model = {.kv_dtype = v->kv, .dtype = v->compute};
    struct request_set *set = tiny_set_new(&tiny, &model);
    set->long_prompt = 8;
    request_set_init(set, 14, ASKED, NULL, 0);
    request_set_shorten(set, 12);
    const unsigned long before = launches();
    request_set_learn(set);
    ck_assert_uint_eq(launches(), before); /* the expected bytes are computed without graphs */
    return set;
}

/* ---- runs ----------------------------------------------------------------------------------- */

static struct setting setting_of(int number, int in_flight, int n_blocks, int graphs) {
    return (struct setting){.path = "plain",
                            .threads = 1,
                            .max_rows = 29,
                            .max_seqs = SEQUENCES,
                            .max_logit_rows = SEQUENCES,
                            .block_size = varieties[number].block,
                            .n_blocks = n_blocks,
                            .caching = true,
                            .in_flight = in_flight,
                            .graphs = graphs};
}

/* Runs all requests except the first, which arrive one after another, so that the number of rows
 * rises and falls. With `cancels` every third one is cancelled while it runs. Returns the number of
 * graphs that were launched. */
static unsigned long run_all(const struct request_set *set, const struct setting *setting,
                             bool cancels, struct tally *tally) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    const unsigned long before = launches();
    captures_at_start = captures();
    for (int i = 1; i < set->n_asked; i++) {
        struct client *client = run_add(run, &set->asked[i]);
        client->submit_at = 2 * i;
        if (!cancels || i % 3 != 0) continue;
        client->cancel_at = 2 * i + 5;
        client->cancel_choice = -1;
    }
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%d in flight, %d graphs, %d blocks: %s",
                  setting->in_flight, setting->graphs, setting->n_blocks, run->first_difference);
    ck_assert_uint_gt(run->tally.tokens, 20);
    if (tally) *tally = run->tally;
    free(run);
    return launches() - before;
}

static void check_used(unsigned long n) {
    ck_assert(n > 8 || !cuda_emu_graph_launches);
}

/* Returns the number of blocks that the largest request needs. With this number the others are
 * preempted. */
static int fewest_blocks(const struct request_set *set) {
    int most = 0;
    for (int i = 1; i < set->n_asked; i++) {
        const int blocks = (asked_slots(set, &set->asked[i]) + BLOCK - 1) / BLOCK;
        most = blocks > most ? blocks : most;
    }
    return most;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static struct request_set *common; /* of most tests, in bfloat16 */

static void learn_common(void) {
    common = learn(BFLOAT16);
}

/* A test that fails does not undo its settings. */
static void forget_settings(void) {
    unsetenv("CUDA_EMU_ARCH");
    unsetenv("CUDA_EMU_FAIL");
}

static void drop_common(void) {
    tiny_set_drop(common);
}

START_TEST(bytes_are_those_without_graphs) {
    struct request_set *set = _i == BFLOAT16 ? common : learn(_i);
    for (int in_flight = 1; in_flight <= MAX_IN_FLIGHT; in_flight++) {
        const struct setting setting = setting_of(_i, in_flight, MANY, 0);
        check_used(run_all(set, &setting, in_flight == 2, NULL));
    }
    if (set != common) tiny_set_drop(set);
}
END_TEST

START_TEST(sequences_give_way_under_graphs) {
    struct tally tally;
    const struct setting setting = setting_of(BFLOAT16, 2, fewest_blocks(common), 0);
    check_used(run_all(common, &setting, false, &tally));
    ck_assert_uint_gt(tally.preemptions, 0);
}
END_TEST

/* Two graphs are kept; there are five buckets. */
START_TEST(graphs_take_each_other_s_place) {
    const struct setting few = setting_of(BFLOAT16, 2, MANY, 2),
                         all = setting_of(BFLOAT16, 2, MANY, 0);
    const unsigned long with_few = run_all(common, &few, false, NULL);
    const unsigned long with_all = run_all(common, &all, false, NULL);
    ck_assert(with_few > 0 || !cuda_emu_graph_launches);
    ck_assert(with_few < with_all || !cuda_emu_graph_launches);
}
END_TEST

START_TEST(a_refused_recording_is_launched_plainly) {
    static const char *const refused[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                          "cudaGraphInstantiate"};
    const struct setting setting = setting_of(BFLOAT16, 2, MANY, 0);
    setenv("CUDA_EMU_FAIL", refused[_i], 1);
    const unsigned long n = run_all(common, &setting, false, NULL);
    ck_assert(n == 0 || !cuda_emu_graph_launches);
}
END_TEST

/* An older device adds the products of a sum in another order, so it has its own bytes. */
START_TEST(an_older_device_has_graphs_too) {
    setenv("CUDA_EMU_ARCH", "80", 1);
    struct request_set *set = learn(BFLOAT16);
    const struct setting setting = setting_of(BFLOAT16, 2, MANY, 0);
    check_used(run_all(set, &setting, false, NULL));
    tiny_set_drop(set);
}
END_TEST

START_TEST(eager_steps_are_no_graphs) {
    struct setting setting = setting_of(BFLOAT16, 2, MANY, 0);
    setting.eager = true;
    ck_assert_uint_eq(run_all(common, &setting, false, NULL), 0);
}
END_TEST

/* Five buckets, each for contexts of up to 256, 512 and 640. */
START_TEST(after_a_warm_up_nothing_is_recorded) {
    struct setting setting = setting_of(BFLOAT16, 2, MANY, 0);
    unsigned long before = captures();
    check_used(run_all(common, &setting, false, NULL));
    ck_assert_uint_eq(captures_at_start, before);
    ck_assert(captures() > before || !cuda_emu_captures);
    setting.warm_up = true;
    before = captures();
    check_used(run_all(common, &setting, false, NULL));
    ck_assert(captures_at_start >= before + N_SHAPES || !cuda_emu_captures);
    ck_assert_uint_eq(captures(), captures_at_start);
}
END_TEST

START_TEST(a_warm_up_captures_only_graphs_that_are_kept) {
    struct setting setting = setting_of(BFLOAT16, 1, MANY, 3);
    const unsigned long before = captures();
    setting.warm_up = true;
    run_all(common, &setting, false, NULL);
    ck_assert(captures_at_start == before + 3 || !cuda_emu_captures);
}
END_TEST

/* A step takes several times as long if each access is watched. */
int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    const bool watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine_graphs");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_unchecked_fixture(core, learn_common, drop_common);
    tcase_add_checked_fixture(core, NULL, forget_settings);
    tcase_add_loop_test(core, bytes_are_those_without_graphs, watched ? E4M3 : FLOAT32,
                        N_VARIETIES);
    tcase_add_test(core, sequences_give_way_under_graphs);
    tcase_add_test(core, graphs_take_each_other_s_place);
    tcase_add_test(core, after_a_warm_up_nothing_is_recorded);
    if (!watched) {
        tcase_add_loop_test(core, a_refused_recording_is_launched_plainly, 0, 3);
        tcase_add_test(core, an_older_device_has_graphs_too);
        tcase_add_test(core, eager_steps_are_no_graphs);
        tcase_add_test(core, a_warm_up_captures_only_graphs_that_are_kept);
    }
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
