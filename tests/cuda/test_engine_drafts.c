/* Drafts on the CUDA backend. A sequence has the same bytes as in a run without others and without
 * drafts, for all sources of drafts, all sampling settings, and all events such as preemption. If
 * all drafts are accepted, the number of steps falls as expected, also for sequences with
 * penalties. Steps with drafts run as graphs. A draft model has a separate cache on the device.
 * ctest label: slow */
#include <assert.h>
#include <check.h>
#include <stdlib.h>

#include "support/same_bytes.h"
#include "support/suite_main.h"
#include "tests/cuda/nccl_stand_in.h"

enum { LENGTH = 256, ASKED = 6, CLIENTS = 8, BLOCK = 16, SEQUENCES = 24, MANY = 150 };

/* Only the emulation has this counter. */
__attribute__((weak)) unsigned long cuda_emu_graph_launches(void);

/* ---- requests ------------------------------------------------------------------------------- */

static const struct variety {
    enum dtype dtype;
    enum compute_dtype compute;
    enum kv_dtype kv;
    int ranks;
} varieties[] = {
    {DTYPE_Q8_0, COMPUTE_FLOAT32, KV_DTYPE_FLOAT32, 1},
    {DTYPE_Q8_0, COMPUTE_FLOAT16, KV_DTYPE_FP8, 1},
    {DTYPE_F32, COMPUTE_FLOAT16, KV_DTYPE_BFLOAT16, 2},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties, E4M3 = 1 };

/* All requests produce tokens. Two of three keep sampling state on the device between tokens. */
static void shape_requests(struct request_set *set) {
    for (int i = 0; i < set->n_asked; i++) {
        struct generation *g = &set->asked[i].generation;
        g->max_tokens = 14 + i % 5;
        g->n = i % 4 == 3 ? 2 : 1;
        g->min_tokens = min_int(g->min_tokens, g->max_tokens);
        g->n_stop_ids = g->n_stop_ids > 0 && i % 2 == 0;
        if (i % 3 > 0) g->prompt_logprobs = -1;
        if (i % 3 == 2) continue;
        g->sampling.frequency_penalty = 0.5f;
        g->sampling.repetition_penalty = 1.25f;
        g->sampling.penalty_last_n = g->sampling.no_repeat_ngram = 0;
        g->sampling.dry_multiplier = 0;
    }
}

static struct request_set *learn(int number) {
    const struct variety *v = &varieties[number];
    struct tiny_model tiny = {.V = 300,
                              .K = 32,
                              .F = 32,
                              .L = 1,
                              .H = 2,
                              .G = 2,
                              .D = 16,
                              .context_length = LENGTH,
                              .dtype = v->dtype,
                              .seed = 9};
    const struct model_choice model = {.kv_dtype = v->kv, .dtype = v->compute, .ranks = v->ranks};
    struct request_set *set = tiny_set_new(&tiny, &model);
    set->long_prompt = 20;
    request_set_init(set, (uint64_t)number + 21, ASKED, NULL, 0);
    shape_requests(set);
    request_set_learn(set);
    return set;
}

/* ---- runs ----------------------------------------------------------------------------------- */

static struct setting setting_of(int n_blocks, int in_flight, int wrong) {
    return (struct setting){.path = "plain",
                            .threads = 1,
                            .max_rows = 79,
                            .max_seqs = SEQUENCES,
                            .max_logit_rows = 64,
                            .block_size = BLOCK,
                            .n_blocks = n_blocks,
                            .caching = wrong % 2 > 0,
                            .in_flight = in_flight,
                            .max_drafts = 5,
                            .wrong = wrong,
                            .fixed_drafts = true};
}

static int fewest_blocks(const struct request_set *set) {
    int most = 0;
    for (int i = 0; i < set->n_asked; i++)
        most = max_int(most, (asked_slots(set, &set->asked[i]) + BLOCK - 1) / BLOCK);
    return most;
}

static struct tally run_all(const struct request_set *set, const struct setting *setting) {
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, setting);
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = run_add(run, &set->asked[i % set->n_asked]);
        if (i % 4 == 3) client->cancel_at = 6;
    }
    run_stepped(run);
    run_close(run);
    ck_assert_msg(run->tally.differences == 0, "%d blocks, %d in flight, %d %% wrong, model %d: %s",
                  setting->n_blocks, setting->in_flight, setting->wrong, setting->draft_model,
                  run->first_difference);
    const struct tally tally = run->tally;
    free(run);
    return tally;
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* Random, right, wrong and looked-up drafts; blocks for all sequences, and for little more than the
 * longest one. Preempted sequences are recomputed, or swapped back from the host's memory. */
START_TEST(bytes_are_those_without_drafts) {
    struct request_set *set = learn(_i);
    const int few = fewest_blocks(set) + (varieties[_i].ranks == 1);
    struct setting settings[] = {setting_of(MANY, 1, 33), setting_of(few, 1, 25),
                                 setting_of(MANY, 2, 100), setting_of(few, 2, 101)};
    struct tally sum = {0};
    if (varieties[_i].ranks == 1) settings[1].swap_slots = 100;
    settings[3].fixed_drafts = false;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const struct tally tally = run_all(set, &settings[i]);
        sum.drafts += tally.drafts, sum.accepted += tally.accepted;
        sum.preemptions += tally.preemptions, sum.swapped_in += tally.swapped_in;
    }
    ck_assert(sum.accepted > 0 && sum.drafts > sum.accepted);
    ck_assert(sum.preemptions > 0 || varieties[_i].ranks > 1);
    ck_assert(sum.swapped_in > 0 || varieties[_i].ranks > 1);
    tiny_set_drop(set);
}
END_TEST

/* The model drafts for itself, with the planned number of blocks and with blocks for one sequence.
 */
START_TEST(a_draft_model_has_a_cache_of_its_own) {
    struct request_set *set = learn(_i);
    struct setting settings[] = {setting_of(MANY, 1, 0), setting_of(fewest_blocks(set) + 2, 1, 0)};
    for (int i = 0; i < 2; i++) {
        settings[i].draft_model = true;
        settings[i].draft_short = i == 1;
        const struct tally tally = run_all(set, &settings[i]);
        ck_assert_msg(tally.accepted > 5 && tally.accepted * 4 > tally.drafts * 3,
                      "%d of %d drafts held", (int)tally.accepted, (int)tally.drafts);
    }
    tiny_set_drop(set);
}
END_TEST

/* Does each step verify as many drafts of a lone request as possible? */
static bool drafts_always(const struct generation *g) {
    return g->n == 1 && g->prompt_logprobs < 0 && !g->grammar && g->max_tokens > 0;
}

START_TEST(right_drafts_save_steps) {
    struct request_set *set = learn(_i);
    struct setting setting = setting_of(MANY, 1, 0);
    int n_counted = 0;
    setting.max_drafts = 3;
    const unsigned long before = cuda_emu_graph_launches ? cuda_emu_graph_launches() : 0;
    struct run *run = mem_calloc(1, sizeof *run);
    run_open(run, set, &setting);
    for (int i = 0; i < set->n_asked; i++) {
        const struct asked *asked = &set->asked[i];
        if (!drafts_always(&asked->generation)) continue;
        const uint64_t steps = run->scheduler->stats.steps;
        run_add(run, asked);
        run_stepped(run);
        const int n = asked->answer.choice[0].n, taken = (int)(run->scheduler->stats.steps - steps);
        ck_assert_int_eq(taken, 1 + (n - 1 + setting.max_drafts) / (setting.max_drafts + 1));
        n_counted += n > 4 && sampling_takes_slot(&asked->generation.sampling);
    }
    run_close(run);
    ck_assert_uint_eq(run->tally.differences, 0);
    ck_assert_int_gt(n_counted, 1);
    if (cuda_emu_graph_launches) ck_assert_uint_gt(cuda_emu_graph_launches(), before + 4);
    free(run);
    tiny_set_drop(set);
}
END_TEST

/* A step takes several times as long if each access is watched. */
int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    const bool watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine_drafts");
    TCase *core = tcase_create("core");
    setenv("CUDA_EMU_DEVICES", "2", 1);
    nccl_stand_in(NCCL_WORKS);
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, bytes_are_those_without_drafts, watched ? E4M3 : 0,
                        watched ? E4M3 + 1 : N_VARIETIES);
    tcase_add_loop_test(core, a_draft_model_has_a_cache_of_its_own, E4M3,
                        watched ? E4M3 + 1 : N_VARIETIES);
    tcase_add_loop_test(core, right_drafts_save_steps, E4M3, E4M3 + 1);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
