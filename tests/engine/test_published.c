/* The shapes of published models: their config.json, cut to 2 layers (tests/vectors/published/), as
 * `--load-format dummy` takes it. With all its layers each has as many weights as it was published
 * with; the two smallest also run. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/models/model.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

static const struct published {
    const char *name, *architecture;
    int layers;
    int64_t parameters;
    int windowed; /* of the 2 layers */
} models[] = {
    {"gpt2", "gpt2", 12, 124439808, 0},
    {"gemma-2b", "gemma", 18, 2506172416, 0},
    {"Llama-2-7b-hf", "llama", 32, 6738415616, 0},
    {"opt-1.3b", "opt", 24, 1315758080 - 2 * 2048, 0}, /* 2 rows of positions are not used */
    {"opt-125m", "opt", 12, 125239296 - 2 * 768, 0},
    {"opt-350m", "opt", 24, 331196416 - 2 * 1024, 0},
    {"Llama-3.2-1B", "llama", 16, 1235814400, 0},
    {"Mistral-7B-v0.1", "mistral", 32, 7241732096, 2},
    {"Qwen3-0.6B", "qwen3", 28, 596049920, 0},
    {"Meta-Llama-3-8B-Instruct", "llama", 32, 8030261248, 0},
    {"Olmo-3-7B-Think", "olmo2", 32, 7298011136, 2},
    {"gpt-oss-20b", "gpt-oss", 24, 20914757184, 1},
};
enum { N_MODELS = sizeof models / sizeof *models };

static void path_of(char path[96], const char *name) {
    snprintf(path, 96, "tests/vectors/published/%s", name);
}

START_TEST(shapes_are_those_that_were_published) {
    static struct model_config config;
    const struct published *m = &models[_i];
    struct model_file file;
    struct err err = {0};
    char path[96];
    int64_t of_layers = 0;
    path_of(path, m->name);
    ck_assert_msg(model_file_open(&file, path, MODEL_SHAPE, &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(model_config_read(&config, &file, &err) == STATUS_OK, "%s", err.message);
    ck_assert_str_eq(config.architecture, m->architecture);
    ck_assert_int_eq(config.L, 2);
    const struct weights *weights = model_file_weights(&file);
    for (int i = 0; i < weights->n; i++)
        if (strncmp(weights->tensor[i].name, "blk.", 4) == 0)
            of_layers += weights->tensor[i].n_elements;
    ck_assert_int_eq(config.n_parameters + of_layers / 2 * (m->layers - 2), m->parameters);
    int windowed = 0;
    for (int i = 0; i < config.L; i++) windowed += config.layer[i].window > 0;
    ck_assert_int_eq(windowed, m->windowed);
    model_file_close(&file);
}
END_TEST

/* Random weights of such a shape give numbers, the same ones each time. */
START_TEST(the_smallest_run) {
    static const char *const names[] = {"gpt2", "opt-125m"};
    char path[96];
    path_of(path, names[_i]);
    struct engine_config config = {.model = path,
                                   .dummy = true,
                                   .threads = 1,
                                   .max_num_seqs = 8,
                                   .max_num_batched_tokens = 8,
                                   .max_model_len = 64,
                                   .block_size = 16};
    static const int32_t ids[] = {1, 50000, 77};
    float first = 0;
    for (int turn = 0; turn < 2; turn++) {
        struct engine *engine;
        struct err err = {0};
        ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
        const float *row = runner_logits(engine, ids, 0, 3);
        ck_assert(isfinite(row[0]) && row[0] != row[1] && (turn == 0 || row[0] == first));
        first = row[0];
        engine_close(engine);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/published");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_loop_test(all, shapes_are_those_that_were_published, 0, N_MODELS);
    tcase_add_loop_test(all, the_smallest_run, 0, 2);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
