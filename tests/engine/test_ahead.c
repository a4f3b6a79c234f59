/* A model's layer that guesses ahead: its part of the model, and the refused files and settings.
 * tests/scheduler/test_ahead.c compares its guesses. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"
#include "support/suite_main.h"

static struct engine_config config_of(const char *model) {
    return (struct engine_config){.model = model,
                                  .stand_in_vocabulary = true,
                                  .threads = 1,
                                  .max_num_seqs = 2,
                                  .max_num_batched_tokens = 8,
                                  .block_size = 16,
                                  .kv_memory = 1 << 20,
                                  .max_drafts = 2,
                                  .guesses_ahead = true};
}

static struct engine *open_model(const struct engine_config *config) {
    struct engine *engine;
    struct err err = {0};
    ck_assert_msg(engine_open(&engine, config, &err) == STATUS_OK, "%s", err.message);
    return engine;
}

static void check_refused(const struct engine_config *config, enum status wanted,
                          const char *words) {
    struct engine *engine;
    struct err err = {0};
    ck_assert_int_eq(engine_open(&engine, config, &err), wanted);
    ck_assert_msg(strstr(err.message, words) != NULL, "%s", err.message);
    ck_assert_ptr_null(engine);
}

/* The layer is one more in the cache and in the weights, and has a program of its own. */
START_TEST(the_layer_is_planned_and_loaded) {
    struct engine_config config = config_of("tests/vectors/ahead/glm4moe");
    struct engine *with = open_model(&config);
    config.guesses_ahead = false;
    struct engine *without = open_model(&config);
    const int64_t more = engine_memory(with)->kv_bytes_per_token,
                  less = engine_memory(without)->kv_bytes_per_token;
    ck_assert(engine_model(without)->L == 3 && engine_model(with)->L == 4);
    ck_assert(engine_model(without)->n_unread_layers == 1 && engine_model(without)->n_ahead == 0);
    ck_assert(engine_model(with)->n_unread_layers == 0 && engine_model(with)->n_ahead == 1);
    ck_assert_int_eq(more * 3, less * 4);
    ck_assert_int_eq(engine_model(with)->n_parameters, engine_model(without)->n_parameters);
    ck_assert_int_gt(engine_memory(with)->weights, engine_memory(without)->weights);
    ck_assert(with->model.ahead.n > 0 && without->model.ahead.n == 0);
    engine_close(with);
    engine_close(without);
}
END_TEST

/* Freed and loaded again, it has the same programs. */
START_TEST(the_layer_is_loaded_again) {
    struct engine_config config = config_of("tests/vectors/ahead/qwen3_5");
    struct engine *engine = open_model(&config);
    const struct engine_load_watch watch = {0};
    struct err err = {0};
    const int n = engine->model.ahead.n;
    engine_unload(engine);
    ck_assert_int_eq(engine->model.ahead.n, 0);
    ck_assert_msg(engine_load(engine, &watch, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(engine->model.ahead.n, n);
    engine_close(engine);
}
END_TEST

START_TEST(a_model_without_such_a_layer_is_refused) {
    struct engine_config config = config_of("tests/vectors/families/qwen2.gguf");
    check_refused(&config, STATUS_BAD_FILE,
                  "which is not served in a model of the architecture \"qwen2\"");
    config.model = "tests/vectors/families/glm4moe.gguf";
    check_refused(&config, STATUS_BAD_FILE, "and the model lacks it; use a file with such a layer");
    config.model = "tests/vectors/families/qwen3_5.gguf";
    check_refused(&config, STATUS_BAD_FILE, "and the model lacks it");
}
END_TEST

/* Folders whose layer was left out, all but some tensors. */
START_TEST(missing_tensors_are_named) {
    struct engine_config config = config_of("tests/vectors/folders/glm4moe");
    check_refused(&config, STATUS_BAD_FILE, "missing model.layers.3.input_layernorm.weight");
    config.model = "tests/vectors/folders/deepseek_v3";
    check_refused(&config, STATUS_BAD_FILE, "missing model.layers.3.input_layernorm.weight");
    config.model = "tests/vectors/folders/qwen3_next";
    check_refused(&config, STATUS_BAD_FILE, "missing ");
}
END_TEST

static bool has_op(const struct program *program, enum op op) {
    for (int i = 0; i < program->n; i++)
        if (program->rows[i].op == op) return true;
    return false;
}

/* Rank 0 has the projection and its inputs, and gives the layer's input to the others. */
START_TEST(ranks_divide_the_layer) {
    struct engine_config config = config_of("tests/vectors/ahead/qwen3_5");
    struct engine *one = open_model(&config);
    config.ranks = 2;
    struct engine *engine = open_model(&config);
    const struct model *model = &engine->model;
    const int last = model->config.L - 1;
    ck_assert(model->part.n_ahead == 1 && config_width(&model->part, last) == 20);
    ck_assert(has_op(&model->ahead, OP_JOIN) && has_op(&model->ahead, OP_ALL_REDUCE));
    ck_assert(!has_op(&one->model.ahead, OP_ALL_REDUCE));
    ck_assert_int_eq(engine_memory(engine)->kv_bytes_per_token,
                     engine_memory(one)->kv_bytes_per_token);
    engine_close(engine);
    engine_close(one);
    config.model = "tests/vectors/ahead/glm4moe";
    check_refused(&config, STATUS_USAGE, "experts of 16 in blocks of 16");
}
END_TEST

START_TEST(several_gpus_and_steps_are_refused) {
    struct engine_config config = config_of("tests/vectors/ahead/glm4moe");
    struct engine engine = {.model.config.n_ahead = 1};
    struct opening o = {.engine = &engine, .config = config};
    struct err err = {0};
    o.config.device = DEVICE_CUDA;
    o.config.ranks = 2;
    ck_assert_int_eq(settings_check(&o, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "the layer that guesses ahead of the model"), "%s",
                  err.message);
    o.config.ranks = 1;
    o.config.in_flight = 2;
    ck_assert_int_eq(settings_check(&o, &err), STATUS_USAGE);
    ck_assert_msg(strstr(err.message, "{steps-in-flight} 2 does not work with"), "%s", err.message);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_ahead");
    TCase *core = tcase_create("core");
    tcase_add_test(core, the_layer_is_planned_and_loaded);
    tcase_add_test(core, the_layer_is_loaded_again);
    tcase_add_test(core, a_model_without_such_a_layer_is_refused);
    tcase_add_test(core, missing_tensors_are_named);
    tcase_add_test(core, ranks_divide_the_layer);
    tcase_add_test(core, several_gpus_and_steps_are_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
