/* Settings that follow from other options: server/options/settings.c. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "server/options/table.h"
#include "support/suite_main.h"

enum { MAX_WORDS = 16 };

static struct options options;

/* Parses the arguments of `serve`, a text that is split at spaces. The next call frees the
 * options. */
static void settled(const char *line) {
    static char words[512];
    char *arguments[MAX_WORDS] = {"serve", "m"};
    int n = 2;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        ck_assert_int_lt(n, MAX_WORDS);
        arguments[n++] = word;
    }
    options_free(&options);
    struct err err = {0};
    bool help;
    char *environment[] = {NULL};
    enum status status =
        options_parse(&options, arguments[0], n - 1, arguments + 1, environment, &help, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", line, err.message);
}

START_TEST(adapters_have_room_if_there_are_any_or_may_be_some) {
    static const struct {
        const char *line;
        int max_adapters;
    } cases[] = {
        {"", 0},
        {"--max-loras 3", 0},
        {"--lora a=p", 1},
        {"--lora a=p --lora b=q", 2},
        {"--lora a=p --max-loras 7", 7},
        {"--enable-runtime-lora --admin-key k", 4},
        {"--enable-runtime-lora --admin-key k --lora a=p", 5},
        {"--enable-runtime-lora --admin-key k --max-loras 2", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        settled(cases[i].line);
        ck_assert_msg(options.engine.max_adapters == cases[i].max_adapters, "%s: %d", cases[i].line,
                      options.engine.max_adapters);
    }
}
END_TEST

START_TEST(drafts_need_logit_rows_and_one_step_in_flight) {
    static const struct {
        const char *line;
        int max_drafts, logit_rows, in_flight;
        bool guesses;
    } cases[] = {
        {"--max-num-seqs 8", 0, 8, 0, false},
        {"--max-num-seqs 8 --steps-in-flight 2", 0, 8, 2, false},
        {"--max-num-seqs 8 --speculative-config "
         "{\"method\":\"ngram\",\"num_speculative_tokens\":3}",
         3, 11, 1, false},
        {"--max-num-seqs 5 --speculative-config suffix --steps-in-flight 2", 15, 20, 2, false},
        {"--max-num-seqs 5 --speculative-config "
         "{\"method\":\"mtp\",\"num_speculative_tokens\":1}",
         1, 6, 1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        settled(cases[i].line);
        const struct engine_config *engine = &options.engine;
        ck_assert_msg(engine->max_drafts == cases[i].max_drafts, "%s: %d", cases[i].line,
                      engine->max_drafts);
        ck_assert_int_eq(engine->max_logit_rows, cases[i].logit_rows);
        ck_assert_int_eq(engine->in_flight, cases[i].in_flight);
        ck_assert(engine->guesses_ahead == cases[i].guesses);
    }
}
END_TEST

START_TEST(memory_of_the_gpu_is_a_share_or_a_default) {
    settled("--gpu-memory-utilization 0");
    ck_assert(options.engine.gpu_memory_utilization == -1);
    settled("--gpu-memory-utilization 0.25");
    ck_assert(options.engine.gpu_memory_utilization == 0.25);
    settled("--state-checkpoints 1MiB");
    ck_assert_int_eq(options.engine.state_checkpoints, 1 << 20);
    settled("--state-checkpoints 1MiB --no-enable-prefix-caching");
    ck_assert_int_eq(options.engine.state_checkpoints, 0);
    ck_assert_int_eq(options.engine.window_blocks, -1);
}
END_TEST

START_TEST(words_become_the_settings_of_the_engine) {
    settled("");
    ck_assert(!options.engine.allow_batch_variant_gemm && !options.engine.dummy);
    settled("--no-deterministic --load-format dummy");
    ck_assert(options.engine.allow_batch_variant_gemm && options.engine.dummy);
}
END_TEST

START_TEST(booleans_have_four_pairs_of_words) {
    static const char *const words[] = {"false", "true", "no", "YES", "off", "On", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char line[64];
        snprintf(line, sizeof line, "--enable-prefix-caching=%s", words[i]);
        settled(line);
        ck_assert_msg(options.scheduler.prefix_caching == (i % 2 == 1), "%s", line);
    }
}
END_TEST

START_TEST(times_are_converted) {
    static const struct {
        const char *line;
        bool is_auto;
        uint64_t target_ns;
    } cases[] = {
        {"", true, 0},
        {"--itl-target-ms 0", false, 0},
        {"--itl-target-ms 1", false, 1000000},
        {"--itl-target-ms 60000", false, 60000000000u},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        settled(cases[i].line);
        ck_assert_msg(options.scheduler.itl_auto == cases[i].is_auto, "%s", cases[i].line);
        ck_assert_uint_eq(options.scheduler.itl_target_ns, cases[i].target_ns);
    }
    settled("--request-timeout 7 --unload-when-idle 9");
    ck_assert_int_eq(options.http.request_timeout_ms, 7000);
    ck_assert_uint_eq(options.scheduler.unload_after_ns, 9000000000u);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_options_settled");
    TCase *core = tcase_create("core");
    suite_add_tcase(suite, core);
    tcase_add_test(core, adapters_have_room_if_there_are_any_or_may_be_some);
    tcase_add_test(core, drafts_need_logit_rows_and_one_step_in_flight);
    tcase_add_test(core, memory_of_the_gpu_is_a_share_or_a_default);
    tcase_add_test(core, words_become_the_settings_of_the_engine);
    tcase_add_test(core, booleans_have_four_pairs_of_words);
    tcase_add_test(core, times_are_converted);
    return suite_main(suite);
}
