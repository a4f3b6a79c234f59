/* The scheduler's settings: those of the options, completed by those of the opened engine, for
 * which this suite has a stand-in. */
#include <check.h>
#include <string.h>

#include "server/options/table.h"
#include "support/suite_main.h"

/* Each number is another, so that none can take another's place. */
static const struct engine_memory memory = {.max_model_len = 1001,
                                            .n_blocks = 1002,
                                            .block_size = 1003,
                                            .n_window_blocks = 1004,
                                            .window = 1005,
                                            .n_states = 1006,
                                            .n_checkpoints = 1007,
                                            .n_draft_states = 1008,
                                            .checkpoint_every = 1009};
static struct model_config model;

const struct engine_memory *engine_memory(const struct engine *engine) {
    (void)engine;
    return &memory;
}

const struct model_config *engine_model(const struct engine *engine) {
    (void)engine;
    return &model;
}

int engine_max_rows(const struct engine *engine) {
    (void)engine;
    return 1010;
}

int engine_max_logit_rows(const struct engine *engine) {
    (void)engine;
    return 1011;
}

START_TEST(the_engine_completes_the_settings) {
    const struct options options = {
        .engine = {.max_num_seqs = 1012, .max_logit_rows = 1, .max_num_batched_tokens = 2},
        .scheduler = {.prefix_caching = true, .max_queued_tokens = 1013, .itl_target_ns = 1014}};
    struct scheduler_config config = scheduler_config_from(&options, NULL);
    ck_assert_int_eq(config.max_num_seqs, 1012);
    ck_assert_int_eq(config.max_num_batched_tokens, 1010);
    ck_assert_int_eq(config.max_logit_rows, 1011);
    ck_assert_int_eq(config.max_model_len, 1001);
    ck_assert_int_eq(config.n_blocks, 1002);
    ck_assert_int_eq(config.block_size, 1003);
    ck_assert_int_eq(config.n_window_blocks, 1004);
    ck_assert_int_eq(config.window, 1005);
    ck_assert_int_eq(config.n_states, 1006);
    ck_assert_int_eq(config.n_checkpoints, 1007);
    ck_assert_int_eq(config.n_draft_states, 1008);
    ck_assert_int_eq(config.checkpoint_every, 1009);
    ck_assert(config.max_queued_tokens == 1013 && config.itl_target_ns == 1014);
    ck_assert(config.prefix_caching && !config.whole_prompts);
}
END_TEST

/* An encoder reads a prompt in one step, so it shares no prefixes. */
START_TEST(an_encoder_takes_whole_prompts) {
    const struct options options = {.scheduler = {.prefix_caching = true}};
    model.is_encoder = true;
    struct scheduler_config config = scheduler_config_from(&options, NULL);
    ck_assert(config.whole_prompts && !config.prefix_caching);
    model.is_encoder = false;
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_scheduler_settings");
    TCase *core = tcase_create("core");
    suite_add_tcase(suite, core);
    tcase_add_test(core, the_engine_completes_the_settings);
    tcase_add_test(core, an_encoder_takes_whole_prompts);
    return suite_main(suite);
}
