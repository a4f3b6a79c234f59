/* A config.json in place of a model file: what is read out of it, what is refused and with which
 * words, and that a model of random weights runs, in the same way every time. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/hf_config.h"
#include "engine/model_file.h"
#include "support/suite_main.h"

#define ARCHITECTURE "\"architectures\": [\"LlamaForCausalLM\"]"
#define SHAPE                                                                                      \
    "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 8, "                   \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 300, "                \
    "\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 128"
#define LLAMA3                                                                                     \
    "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "                      \
    "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}"

static struct hf_config read_config(const char *text) {
    struct hf_config config;
    struct err err = {0};
    ck_assert_msg(hf_config_read(&config, text, strlen(text), &err) == STATUS_OK, "%s",
                  err.message);
    return config;
}

START_TEST(shapes_are_read) {
    struct hf_config c = read_config("{" ARCHITECTURE ", " SHAPE "}");
    ck_assert(c.K == 64 && c.F == 96 && c.L == 8 && c.H == 4 && c.G == 2 && c.D == 16);
    ck_assert(c.V == 300 && c.context_length == 128 && !c.tied && c.dtype == DTYPE_BF16);
    ck_assert(c.rope_theta == 10000 && c.rms_epsilon == 1e-5 && !c.stretch.is_asked);
    c = read_config("{" ARCHITECTURE ", " SHAPE ", \"head_dim\": 32, \"torch_dtype\": \"float32\", "
                    "\"tie_word_embeddings\": true, \"rope_theta\": 5e5, \"rope_scaling\": " LLAMA3
                    "}");
    ck_assert(c.D == 32 && c.tied && c.dtype == DTYPE_F32 && c.rope_theta == 5e5);
    ck_assert(c.stretch.is_asked && c.stretch.factor == 8 && c.stretch.original_context == 8192);
    c = read_config("{" ARCHITECTURE ", " SHAPE ", \"dtype\": \"float16\", \"rope_parameters\": "
                    "{\"rope_theta\": 1e6}, \"sliding_window\": null}");
    ck_assert(c.dtype == DTYPE_F16 && c.rope_theta == 1e6 && !c.stretch.is_asked);
}
END_TEST

START_TEST(what_is_wrong_is_named) {
    static const struct {
        const char *text, *param, *words;
    } wrong[] = {
        {"", "", "not a JSON object"},
        {"[1]", "", "not a JSON object"},
        {"{\"architectures\": [\"GPT2LMHeadModel\"]}", "architectures", "\"GPT2LMHeadModel\""},
        {"{\"architectures\": [\"\\u001b[2J\"]}", "architectures", "\"\""},
        {"{" SHAPE "}", "architectures", "is not supported"},
        {"{" ARCHITECTURE "}", "vocab_size", "is missing"},
        {"{" ARCHITECTURE ", \"vocab_size\": \"3\"}", "vocab_size", "a number"},
        {"{" ARCHITECTURE ", \"vocab_size\": 256}", "vocab_size", "257 to"},
        {"{" ARCHITECTURE ", \"vocab_size\": 300.5}", "vocab_size", "whole number"},
        {"{" ARCHITECTURE ", \"vocab_size\": 1e300}", "vocab_size", "found 1e+300"},
        {"{" ARCHITECTURE ", \"head_dim\": 7, " SHAPE "}", "head_dim", "even"},
        {"{" ARCHITECTURE ", \"hidden_size\": 66, " SHAPE "}", "num_attention_heads", "divide"},
        {"{" ARCHITECTURE ", \"num_key_value_heads\": 3, " SHAPE "}", "num_key_value_heads",
         "divide"},
        {"{" ARCHITECTURE ", " SHAPE ", \"mlp_bias\": true}", "mlp_bias", "only false"},
        {"{" ARCHITECTURE ", " SHAPE ", \"hidden_act\": \"gelu\"}", "hidden_act", "\"gelu\""},
        {"{" ARCHITECTURE ", " SHAPE ", \"sliding_window\": 64}", "sliding_window", "shorter"},
        {"{" ARCHITECTURE ", " SHAPE ", \"rope_scaling\": {\"type\": \"yarn\"}}", "rope_scaling",
         "\"yarn\""},
        {"{" ARCHITECTURE ", " SHAPE ", \"rope_scaling\": {\"type\": \"llama3\"}}", "factor",
         "missing"},
        {"{" ARCHITECTURE ", " SHAPE ", \"torch_dtype\": \"int4\"}", "torch_dtype", "\"int4\""},
        {"{" ARCHITECTURE ", " SHAPE ", \"tie_word_embeddings\": 1}", "tie_word_embeddings",
         "true or false"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct hf_config config;
        struct err err = {0};
        ck_assert_int_eq(hf_config_read(&config, wrong[i].text, strlen(wrong[i].text), &err),
                         STATUS_BAD_FILE);
        ck_assert_str_eq(err.param, wrong[i].param);
        ck_assert_msg(strstr(err.message, wrong[i].words) != NULL, "%s", err.message);
    }
}
END_TEST

/* The first factors of Llama 3.1 8B are 1, the last ones 8. */
START_TEST(frequencies_are_stretched) {
    struct hf_config c =
        read_config("{" ARCHITECTURE ", " SHAPE ", \"head_dim\": 128, \"rope_theta\": 5e5, "
                    "\"rope_scaling\": " LLAMA3 "}");
    struct gguf *gguf;
    const struct weight *factors;
    struct err err = {0};
    float divisor[64];
    ck_assert_int_eq(hf_config_lay_out(&gguf, &c, "", &err), STATUS_OK);
    ck_assert_int_eq(weights_vector(&gguf->weights, "rope_freqs.weight", 64, &factors, &err), 0);
    dequantise(DTYPE_F32, factors->data, divisor, 64);
    ck_assert(divisor[0] == 1 && divisor[28] == 1 && divisor[36] == 8 && divisor[63] == 8);
    for (int i = 1; i < 64; i++) ck_assert(divisor[i] >= divisor[i - 1]);
    gguf_close(gguf);
}
END_TEST

/* ---- random weights ------------------------------------------------------------------------- */

START_TEST(weights_do_not_depend_on_the_parts) {
    static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0,
                                       DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0,
                                       DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};
    enum { N = 64, K = 1024 };
    float *values = mem_alloc(N * K * sizeof *values);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct random_weights w;
        size_t bytes = N * dtype_bytes(types[t], K);
        uint8_t *whole = mem_alloc(bytes), *parts = mem_alloc(bytes);
        random_weights_plan(&w, types[t], K, 7);
        random_weights_fill(&w, whole, 0, bytes);
        for (size_t at = 0, next; at < bytes; at = next) {
            next = at + 37 * (size_t)w.piece_bytes;
            random_weights_fill(&w, parts, at, next < bytes ? next : bytes);
        }
        ck_assert_int_eq(memcmp(whole, parts, bytes), 0);
        dequantise(types[t], whole, values, N * K);
        double sum = 0, squares = 0;
        for (int i = 0; i < N * K; i++) sum += values[i], squares += values[i] * values[i];
        double size = sqrt(squares / N); /* of a row times K numbers of size 1 */
        ck_assert_msg(size > 0.7 && size < 1.42, "%s: %g", dtype_name((int)types[t]), size);
        ck_assert_msg(fabs(sum / (N * K)) < 0.2 * size / sqrt(K), "%s", dtype_name((int)types[t]));
        free(whole), free(parts);
    }
    free(values);
}
END_TEST

/* ---- a model -------------------------------------------------------------------------------- */

/* The logits of four tokens, from a config.json of a dtype. */
static float *logits_of(const char *dtype, int threads) {
    char folder[] = "/tmp/penstock-config-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    fprintf(file, "{" ARCHITECTURE ", " SHAPE ", \"torch_dtype\": \"%s\"}", dtype);
    fclose(file);
    struct engine_config config = {.model = path,
                                   .threads = threads,
                                   .float32 = true,
                                   .dummy = true,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 8,
                                   .block_size = 16};
    struct engine *engine;
    struct err err = {0};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    ck_assert_str_eq(engine_model(engine)->name, strrchr(folder, '/') + 1);
    int n_ends;
    engine_end_ids(engine, &n_ends);
    ck_assert_int_eq(n_ends, 0);
    int32_t token[] = {5, 70, 299, 0}, position[] = {0, 1, 2, 3}, start[] = {0, 4}, table[] = {0};
    struct step step = {.M = 4,
                        .token = token,
                        .position = position,
                        .slot = position,
                        .S = 1,
                        .row_start = start,
                        .table = table,
                        .table_stride = 1,
                        .R = 1,
                        .logit_row = &position[3]};
    engine_submit(engine, &step);
    float *logits =
        memcpy(mem_alloc(300 * sizeof(float)), engine_wait(engine), 300 * sizeof(float));
    engine_close(engine);
    unlink(path);
    rmdir(folder);
    return logits;
}

/* Float weights are the same numbers in every type; eight layers neither blow logits up nor let
 * them vanish. */
START_TEST(a_random_model_runs) {
    float *bf16 = logits_of("bfloat16", 1), *f32 = logits_of("float32", 2);
    double squares = 0;
    ck_assert_int_eq(memcmp(bf16, f32, 300 * sizeof(float)), 0);
    for (int i = 0; i < 300; i++) squares += f32[i] * f32[i];
    ck_assert(squares / 300 > 0.25 && squares / 300 < 4);
    free(bf16), free(f32);
}
END_TEST

START_TEST(without_weights_it_must_be_asked_for) {
    struct engine_config config = {.model = "no/config.json"};
    struct gguf *gguf;
    struct err err = {0};
    ck_assert_int_eq(model_file_open(&gguf, &config, &err), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(err.message, "--load-format dummy"));
    config.dummy = true;
    ck_assert_int_eq(model_file_open(&gguf, &config, &err), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, "No such file"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_hf_config");
    TCase *core = tcase_create("core");
    tcase_add_test(core, shapes_are_read);
    tcase_add_test(core, what_is_wrong_is_named);
    tcase_add_test(core, frequencies_are_stretched);
    tcase_add_test(core, weights_do_not_depend_on_the_parts);
    tcase_add_test(core, a_random_model_runs);
    tcase_add_test(core, without_weights_it_must_be_asked_for);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
