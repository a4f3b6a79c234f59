/* Layers that guess ahead on the CUDA backend. In float32 the guesses are those of the reference,
 * alone and in company, after preemption, forks, and prefix hits. In all types the bytes are those
 * without guesses. Passes of guesses run as graphs of their own.
 * ctest label: slow */
#include <assert.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/poison.h"
#include "engine/internal.h"
#include "support/mixed_runs.h"
#include "support/suite_main.h"
#include "support/watched.h"

enum { ASKED = 4, SIZE = 4 };

/* Only the emulation has this counter. */
__attribute__((weak)) unsigned long cuda_emu_graph_launches(void);

/* If each access is watched, one run is enough: the kernels' own suite tests the shapes. */
static bool watched;

static unsigned long graph_launches(void) {
    return cuda_emu_graph_launches ? cuda_emu_graph_launches() : 0;
}

/* ---- guesses -------------------------------------------------------------------------------- */

/* Experts, latent attention, recurrent layers, and EAGLE-3 heads: with other heads than the
 * model's, and of fewer tokens. The first four in company, too. */
static const char *const folders[] = {"glm4moe",     "deepseek_v3",  "qwen3_5",
                                      "eagle_qwen3", "glm4moe.gguf", "glm4_moe_lite",
                                      "qwen3_5_moe", "qwen3_next",   "eagle_llama"};
enum { N_FOLDERS = sizeof folders / sizeof *folders, IN_COMPANY = 4 };

static bool is_head(int folder) {
    return strncmp(folders[folder], "eagle", 5) == 0;
}

/* Heads are trained: many of their guesses are accepted, and steps begin at fewer places. */
static int least_compared(int folder, int n) {
    return is_head(folder) ? n / 4 : n;
}

static const struct setting alone = {"plain", 1, 64, 2, 16, 64, 16, false, 1};

START_TEST(guesses_are_those_of_the_reference) {
    if (watched && _i > 0) return;
    const unsigned long before = graph_launches();
    struct watched *w = watched_new(folders[_i], &alone, DEVICE_CUDA, 1);
    for (int prompt = 0; prompt < WATCHED_PROMPTS; prompt++) {
        watched_ask(w, prompt, 1);
        watched_finish(w);
    }
    ck_assert_int_gt(w->n_compared, least_compared(_i, WATCHED_PROMPTS * 3 * (WATCHED_TOKENS - 8)));
    watched_free(w);
    ck_assert(!cuda_emu_graph_launches || graph_launches() > before);
}
END_TEST

/* Prompts in parts, forks and prefix hits; then few blocks, so that sequences are preempted. */
START_TEST(guesses_do_not_depend_on_company) {
    static const struct setting settings[] = {{"plain", 1, 17, 4, 16, 16, 40, true, 1},
                                              {"plain", 1, 64, 4, 16, 4, 24, false, 1},
                                              {"plain", 1, 64, 4, 16, 4, 24, false, 1, 100}};
    struct scheduler_stats stats = {0};
    for (int i = 0; i < 3 && !watched; i++) {
        if (i == 2 && strncmp(folders[_i], "qwen", 4) == 0) continue; /* states are not swapped */
        if (i == 1 && is_head(_i)) continue; /* the next setting preempts, too */
        struct watched *w = watched_new(folders[_i], &settings[i], DEVICE_CUDA, 1);
        for (int k = 0; k < 4; k++) watched_ask(w, k % 2, i == 0 && k == 3 ? 3 : 1);
        watched_finish(w);
        scheduler_stats(w->scheduler, &stats);
        ck_assert(i == 0 || stats.preemptions > 0);
        ck_assert(i < 2 || stats.swapped_in > 0);
        ck_assert_int_gt(w->n_compared, least_compared(_i, 20));
        watched_free(w);
    }
}
END_TEST

/* The last row is that of an accepted draft. */
START_TEST(guesses_after_accepted_drafts_are_right) {
    struct scheduler_stats stats;
    if (watched) return;
    struct watched *w = watched_new(folders[_i], &alone, DEVICE_CUDA, 1);
    w->predicts = WATCHED_TOKENS / 2;
    watched_ask(w, 1, 1);
    watched_finish(w);
    scheduler_stats(w->scheduler, &stats);
    ck_assert_uint_gt(stats.accepted_tokens, 4);
    ck_assert_int_gt(w->n_compared, least_compared(_i, WATCHED_TOKENS / 2));
    watched_free(w);
}
END_TEST

/* ---- the same bytes ------------------------------------------------------------------------- */

static const struct mixed_variety varieties[] = {
    {"tests/vectors/ahead/glm4moe", COMPUTE_FLOAT32, KV_DTYPE_FLOAT32, QUANTIZATION_NONE, ASKED,
     false, 41},
    {"tests/vectors/ahead/deepseek_v3", COMPUTE_FLOAT16, KV_DTYPE_FLOAT16, QUANTIZATION_FP8, ASKED,
     false, 42},
    /* a head with more heads than its model: those of another one of the same width */
    {"tests/vectors/ahead/eagle_llama", COMPUTE_BFLOAT16, KV_DTYPE_BFLOAT16, QUANTIZATION_NONE,
     ASKED, false, 44, "tests/vectors/ahead/eagle_qwen3_head"},
    {"tests/vectors/ahead/qwen3_5", COMPUTE_BFLOAT16, KV_DTYPE_BFLOAT16, QUANTIZATION_NONE, ASKED,
     false, 43},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

/* The set is learnt without guesses. */
static void check_same_bytes(const struct request_set *set, int i, struct tally *tally) {
    const int few = mixed_blocks(set, SIZE);
    const struct setting settings[] = {
        {"plain", 1, 24, 8, 24, SIZE, few + 2, true, 1, .checkpoints = 6, .checkpoint_blocks = 2},
        {"plain", 1, 33, 8, 16, SIZE, 4 * few, true, 1, .checkpoints = 12, .checkpoint_blocks = 1},
    };
    for (int k = 0; k < 2; k++) {
        struct setting setting = settings[k];
        if (k > 0 && (watched || set->model.eagle)) continue; /* one run is enough for a head */
        setting.max_drafts = 3;
        setting.guesses_ahead = setting.fixed_drafts = true;
        setting.eager = k == 1 && i == 0;
        setting.poison = set->has_states ? poison_on_cuda : NULL;
        setting.poison_state = set->has_states ? poison_state_on_cuda : NULL;
        mixed_run(set, &setting, tally);
    }
}

START_TEST(guesses_change_no_byte) {
    struct tally tally = {0};
    mixed_run_all(varieties, N_VARIETIES, watched, check_same_bytes, &tally);
    ck_assert(tally.drafts > 0 && tally.preemptions > 0);
    ck_assert(watched || (tally.tokens > 100 && tally.prefix_hits > 0));
}
END_TEST

/* ---- opening -------------------------------------------------------------------------------- */

static struct engine_config config_of(bool guesses_ahead) {
    return (struct engine_config){.model = "tests/vectors/ahead/qwen3_5",
                                  .stand_in_vocabulary = true,
                                  .threads = 1,
                                  .device = DEVICE_CUDA,
                                  .dtype = COMPUTE_FLOAT16,
                                  .max_model_len = 32,
                                  .max_num_seqs = 2,
                                  .max_num_batched_tokens = 8,
                                  .max_logit_rows = 4,
                                  .block_size = 16,
                                  .kv_memory = 1 << 20,
                                  .max_drafts = 2 * guesses_ahead,
                                  .warm_up = true,
                                  .guesses_ahead = guesses_ahead};
}

/* Guesses have a graph for each of the buckets 1, 2 and 4, which is launched once. */
START_TEST(warm_up_records_the_graphs_of_guesses) {
    unsigned long launches[2];
    for (int i = 0; i < 2; i++) {
        const struct engine_config config = config_of(i > 0);
        const unsigned long before = graph_launches();
        struct engine *engine;
        struct err err = {0};
        ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
        ck_assert_int_eq(engine_in_flight(engine), i > 0 ? 1 : 2);
        launches[i] = graph_launches() - before;
        engine_close(engine);
    }
    if (!cuda_emu_graph_launches) return;
    ck_assert_uint_ge(launches[0], 3);
    ck_assert_uint_eq(launches[1], launches[0] + 3);
}
END_TEST

static void check_refused(const struct engine_config *config, const char *option,
                          const char *words) {
    struct engine *engine;
    struct err err = {0};
    ck_assert_int_eq(engine_open(&engine, config, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, option);
    ck_assert_msg(strstr(err.message, words), "%s", err.message);
}

START_TEST(other_settings_are_refused_by_name) {
    struct engine_config config = config_of(true);
    config.in_flight = 2;
    check_refused(&config, "steps-in-flight", "does not work with the method \"mtp\"");
    config.in_flight = 0;
    config.persistent_step = true;
    check_refused(&config, "persistent-step", "the method \"mtp\" of {speculative-config}");
    config.persistent_step = false;
    config.model = "tests/vectors/ahead/glm4moe";
    config.ranks = 2;
    check_refused(&config, "tensor-parallel-size", "the layer that guesses ahead of the model");
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_engine_ahead");
    TCase *guesses = tcase_create("guesses"), *bytes = tcase_create("bytes"),
          *opening = tcase_create("opening");
    tcase_set_timeout(guesses, 600);
    tcase_set_timeout(bytes, 600);
    tcase_add_loop_test(guesses, guesses_are_those_of_the_reference, 0, N_FOLDERS);
    tcase_add_loop_test(guesses, guesses_do_not_depend_on_company, 0, IN_COMPANY);
    tcase_add_loop_test(guesses, guesses_after_accepted_drafts_are_right, 0, IN_COMPANY);
    tcase_add_test(bytes, guesses_change_no_byte);
    tcase_add_test(opening, warm_up_records_the_graphs_of_guesses);
    tcase_add_test(opening, other_settings_are_refused_by_name);
    suite_add_tcase(suite, guesses);
    suite_add_tcase(suite, bytes);
    suite_add_tcase(suite, opening);
    return suite_main(suite);
}
