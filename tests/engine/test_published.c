/* The shapes of published models: their config.json, cut to one or two layers of each kind
 * (tests/vectors/published/), as read with `--load-format dummy`. With all layers each has as many
 * weights as the published model. The two smallest also run. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/models/model.h"
#include "support/sequence_runner.h"
#include "support/suite_main.h"

static const struct published {
    const char *name, *architecture;
    /* number of layers of the published model that each layer of the test represents */
    int layers[4];
    int64_t parameters;
    int windowed; /* number of the test's layers with windows */
} models[] = {
    {"gpt2", "gpt2", {6, 6}, 124439808, 0},
    {"gemma-2b", "gemma", {9, 9}, 2506172416, 0},
    {"Llama-2-7b-hf", "llama", {16, 16}, 6738415616, 0},
    {"opt-1.3b", "opt", {12, 12}, 1315758080 - 2 * 2048, 0}, /* 2 rows of positions are unused */
    {"opt-125m", "opt", {6, 6}, 125239296 - 2 * 768, 0},
    {"opt-350m", "opt", {12, 12}, 331196416 - 2 * 1024, 0},
    {"Llama-3.2-1B", "llama", {8, 8}, 1235814400, 0},
    {"Mistral-7B-v0.1", "mistral", {16, 16}, 7241732096, 2},
    {"Qwen3-0.6B", "qwen3", {14, 14}, 596049920, 0},
    {"Meta-Llama-3-8B-Instruct", "llama", {16, 16}, 8030261248, 0},
    {"Olmo-3-7B-Think", "olmo2", {16, 16}, 7298011136, 2},
    {"gemma-3-4b-it", "gemma3", {29, 5}, 3880263168, 1}, /* its config.json omits usual values */
    {"cwm", "cwm", {16, 48}, 32581097472, 1},
    {"Jais-2-8B-Chat", "jais2", {16, 16}, 8090401280, 0},
    {"gpt-oss-20b", "gpt-oss", {12, 12}, 20914757184, 1},
    /* the text decoder's weights as transformers counts them, plus one factor per layer: layers
     * with and without windows, in E2B also layers that read the keys of others */
    {"gemma-4-E2B", "gemma4", {12, 3, 16, 4}, 4628569344 + 35, 2},
    {"gemma-4-31B", "gemma4", {50, 10}, 30697345280 + 60, 1},
    {"gemma-4-26B-A4B", "gemma4", {25, 5}, 25233141760 + 30, 1},
    {"pythia-1b", "gptneox", {8, 8}, 1011781632, 0},
    {"falcon-7b", "falcon", {16, 16}, 6921720704, 0},
    {"falcon-40b", "falcon", {30, 30}, 41303293952, 0},
    {"Qwen3-VL-4B-Instruct", "qwen3vl", {18, 18}, 4022468096, 0}, /* its text part */
    /* layers: a dense one and one with experts, both of delta rules; one of attention. The
     * correction of scores is a buffer, which transformers does not count */
    {"Kimi-Linear-48B-A3B-Instruct", "kimi-linear", {1, 19, 7}, 49122675072 + 26 * 256, 0},
    /* corrections of scores are buffers here, too */
    {"dots.llm1.inst", "dots1", {1, 61}, 142774373888 + 61 * 128, 0},
    {"Solar-Open-100B", "solar_open", {24, 24}, 102651793408 + 48 * 128, 0},
    /* a dense layer, layers with windows and without */
    {"K-EXAONE-236B-A23B", "exaone-moe", {1, 35, 12}, 236571150336 + 47 * 128, 2},
    {"Hunyuan-A13B-Instruct", "hunyuan-moe", {16, 16}, 80393183232, 0},
    /* dense layers and others, the latter with windows and without. The corrections are weights */
    {"Trinity-Nano-Preview", "afmoe", {2, 40, 14}, 6120003328, 2},
    {"Mistral-Small-4-119B-2603", "mistral4", {18, 18}, 118972826624, 0}, /* its text part */
};
enum { N_MODELS = sizeof models / sizeof *models };

static void path_of(char path[96], const char *name) {
    snprintf(path, 96, "tests/vectors/published/%s", name);
}

/* Returns the number of weights that the published model has in addition to the test's, for one
 * tensor. */
static int64_t further_weights(const struct published *m, const struct weight *weight, int L) {
    int layer, n_layers = 0;
    for (int i = 0; i < L; i++) n_layers += m->layers[i];
    if (sscanf(weight->name, "blk.%d.", &layer) == 1)
        return weight->n_elements * (m->layers[layer] - 1);
    bool is_of_all_layers = strcmp(weight->name, "per_layer_token_embd.weight") == 0 ||
                            strcmp(weight->name, "per_layer_model_proj.weight") == 0;
    return is_of_all_layers ? weight->n_elements / L * (n_layers - L) : 0;
}

START_TEST(shapes_are_those_that_were_published) {
    static struct model_config config;
    const struct published *m = &models[_i];
    struct model_file file;
    struct err err = {0};
    char path[96];
    int64_t further = 0;
    int n_kinds = 0;
    path_of(path, m->name);
    ck_assert_msg(model_file_open(&file, path, MODEL_SHAPE, &err) == STATUS_OK, "%s", err.message);
    ck_assert_msg(model_config_read(&config, &file, &err) == STATUS_OK, "%s", err.message);
    ck_assert_str_eq(config.architecture, m->architecture);
    while (n_kinds < 4 && m->layers[n_kinds]) n_kinds++;
    ck_assert_int_eq(config.L, n_kinds);
    const struct weights *weights = model_file_weights(&file);
    for (int i = 0; i < weights->n; i++)
        further += further_weights(m, &weights->tensor[i], config.L);
    ck_assert_int_eq(config.n_parameters + further, m->parameters);
    int windowed = 0;
    for (int i = 0; i < config.L; i++) windowed += config.layer[i].window > 0;
    ck_assert_int_eq(windowed, m->windowed);
    model_file_close(&file);
}
END_TEST

/* Random weights of such a shape produce finite numbers, the same ones each time. */
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
