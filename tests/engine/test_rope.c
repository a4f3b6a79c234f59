/* The frequencies of rotary positions compared with those of transformers, for each kind of
 * stretch: tests/vectors/rope.txt, made by tests/vectors/make_rope.py. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/models/model.h"
#include "support/hf_config_text.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

enum { MAX_PAIRS = 64, N_CASES = 17 };

/* Returns the rotary config of a model with this config.json. */
static struct rope_config read_rope(const char *text) {
    static struct model_config config;
    struct err err = {0};
    struct model_file file = {.path = "x/config.json"};
    ck_assert_int_eq(hf_config_parse(&file.hf, text, strlen(text), &err), STATUS_OK);
    ck_assert_msg(model_config_read(&config, &file, &err) == STATUS_OK, "%s", err.message);
    model_file_close(&file);
    return config.rope;
}

static void check_frequencies(const struct rope_config *rope, int length, char *words) {
    float inv_freq[MAX_PAIRS];
    int n = 0;
    ck_assert_int_le(rope->D_rope / 2, MAX_PAIRS);
    rope_frequencies(inv_freq, rope, NULL, length);
    for (char *word = strtok(words, " \n"); word; word = strtok(NULL, " \n"), n++) {
        double right = strtod(word, NULL);
        ck_assert_int_lt(n, rope->D_rope / 2);
        ck_assert_msg(fabs((double)inv_freq[n] - right) < 1e-6 * right,
                      "kind %d, length %d, pair %d: %.9g, not %.9g", rope->stretch.kind, length, n,
                      (double)inv_freq[n], right);
    }
    ck_assert_int_eq(n, rope->D_rope / 2);
}

START_TEST(frequencies_are_those_of_transformers) {
    static char line[4096];
    FILE *file = fopen("tests/vectors/rope.txt", "r");
    struct rope_config rope = {0};
    int length = 0, n = 0;
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file)) {
        char *rest = strchr(line, ' ') + 1;
        float scale = rope.stretch.attention_factor;
        if (strncmp(line, "config", 6) == 0) {
            rope = read_rope(rest);
        } else if (strncmp(line, "length", 6) == 0) {
            length = atoi(rest);
        } else if (strncmp(line, "scale", 5) == 0) {
            ck_assert_double_eq_tol((double)(scale == 0 ? 1 : scale), strtod(rest, NULL), 1e-6);
        } else if (strncmp(line, "frequencies", 11) == 0) {
            check_frequencies(&rope, length, rest);
            n++;
        }
    }
    fclose(file);
    ck_assert_int_eq(n, N_CASES);
}
END_TEST

/* A stretch sets the largest --max-model-len. */
START_TEST(stretched_contexts_may_be_longer) {
    static const struct {
        const char *scaling;
        int longest;
    } cases[] = {{"{\"type\": \"linear\", \"factor\": 4}", 512},
                 {"{\"type\": \"dynamic\", \"factor\": 2.5}", 320},
                 {"{\"type\": \"yarn\", \"factor\": 4}", 512},
                 {"{\"type\": \"yarn\", \"factor\": 4, "
                  "\"original_max_position_embeddings\": 16}",
                  128}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct model_config config;
        char text[512];
        struct err err = {0};
        struct model_file file = {.path = "x/config.json"};
        snprintf(text, sizeof text,
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, "
                 "\"intermediate_size\": 96, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
                 "\"vocab_size\": 300, \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 128, "
                 "\"rope_scaling\": %s}",
                 cases[i].scaling);
        ck_assert_int_eq(hf_config_parse(&file.hf, text, strlen(text), &err), STATUS_OK);
        ck_assert_msg(model_config_read(&config, &file, &err) == STATUS_OK, "%s", err.message);
        ck_assert_int_eq(config.context_length, 128);
        ck_assert_int_eq(config.longest_context, cases[i].longest);
        model_file_close(&file);
    }
}
END_TEST

/* With a factor of 0 a frequency would be infinite, and all logits NaN. */
START_TEST(factors_that_are_no_factors_are_refused) {
    static const float bad[] = {0, -1, INFINITY, NAN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        float factors[] = {1, 1, 1, 2, bad[i], 4, 8, 8};
        struct tiny_model tiny;
        struct engine *engine = NULL;
        struct err err = {0};
        tiny_model_defaults(&tiny);
        tiny.rope_factors = factors;
        char *path = tiny_model_temporary(&tiny);
        struct engine_config config = {.model = path,
                                       .threads = 1,
                                       .max_num_seqs = 1,
                                       .max_num_batched_tokens = 8,
                                       .block_size = 16};
        ck_assert_int_eq(engine_open(&engine, &config, &err), STATUS_BAD_FILE);
        ck_assert_msg(strstr(err.message, "tensor rope_freqs.weight: number 4 is "), "%s",
                      err.message);
        ck_assert_str_eq(err.param, "rope_freqs.weight");
        ck_assert_msg(strncmp(err.message, path, strlen(path)) == 0, "%s", err.message);
        unlink(path);
        free(path);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/rope");
    TCase *all = tcase_create("all");
    tcase_add_test(all, frequencies_are_those_of_transformers);
    tcase_add_test(all, stretched_contexts_may_be_longer);
    tcase_add_test(all, factors_that_are_no_factors_are_refused);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
