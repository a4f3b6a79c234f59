/* Each model family on the CUDA backend: in float32 the tokens equal the CPU's and the logprobs are
 * near them; in 16 bits the bytes do not depend on how a sequence is split into steps. So all
 * combinations of options that a family needs run through the engine: biases, QK norm, LayerNorm,
 * learned positions, ungated and tanh GELU, windows, caps, norms after a branch. */
#include <assert.h>
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/sequence_runner.h"
#include "support/suite_main.h"

enum { V = 299, LENGTH = 44 };

static const char *const models[] = {
    "families/qwen2.gguf",
    "families/qwen3.gguf",
    "families/gpt2.gguf",
    "families/gemma.gguf",
    "families/gemma2.gguf",
    "families/phi3.gguf",
    "families/smollm3.gguf",
    "folders/mistral",
    "folders/opt_350m",
    "families/granite.gguf",
    "families/olmo2.gguf",
    "families/olmo3.gguf",
    "families/gemma3.gguf",
    "families/mixtral.gguf",
    "families/qwen2moe.gguf",
    "families/qwen3moe.gguf",
    "folders/qwen2moe",
    "families/phi3_long.gguf",
    "families/glm4.gguf",
    "families/starcoder2.gguf",
    "families/stablelm_12b.gguf",
    "families/cohere2.gguf",
    "families/exaone4.gguf",
    "families/olmoe.gguf",
    "families/granitemoe.gguf",
    "families/gpt_oss.gguf",
    "folders/gpt_oss_mxfp4",
    "families/glm4moe.gguf",
    "families/seed_oss.gguf",
    "families/mistral3.gguf",
    "families/gemma4.gguf",
    "folders/gemma4_large",
    "families/gemma4_moe.gguf",
    "families/phi.gguf",
    "families/glm.gguf",
    "families/command_r_plus.gguf",
    "families/granite4.gguf",
    "families/granite4_nope.gguf",
    "families/minimax_m2.gguf",
    "families/qwen2_5_vl.gguf",
    "families/qwen3_vl.gguf",
    "families/qwen3_vl_moe.gguf",
    "families/falcon.gguf",
    "families/falcon_40b.gguf",
    "families/gptneox.gguf",
    "families/gptneox_sequential.gguf",
    "families/arcee.gguf",
    "families/nemotron.gguf",
    "families/hunyuan.gguf",
    "families/apertus.gguf",
    "families/ernie4_5_moe.gguf",
    "folders/qwen3_5",
    "families/qwen3_5.gguf",
    "families/qwen3_5_moe.gguf",
    "families/qwen3_next.gguf",
    "families/granite4_h_moe.gguf",
    "families/granite4_h.gguf",
    "folders/falcon_h1_norm",
    "families/nemotron_h.gguf",
    "families/falcon_h1.gguf",
    "families/mamba2.gguf",
    "folders/bamba",
    "families/deepseek_v2.gguf",
    "folders/deepseek_v2",
    "families/deepseek_v3.gguf",
    "folders/deepseek_v3",
    "families/glm4_moe_lite.gguf",
    "folders/kimi_k2",
    "families/kimi_linear.gguf",
    "folders/kimi_linear_wide",
    "folders/mistral4",
    "families/deepseek_v2_lite.gguf",
    "families/dots1.gguf",
    "folders/solar_open",
    "folders/cwm",
    "families/jais2.gguf",
    "families/exaone_moe.gguf",
    "families/hunyuan_moe.gguf",
    "families/afmoe.gguf",
    "folders/smolvlm",
};
enum { N_MODELS = sizeof models / sizeof *models };

static struct engine *open_model(const char *model, enum device device, enum compute_dtype dtype) {
    char file[64];
    struct err err = {0};
    struct engine *engine;
    snprintf(file, sizeof file, "tests/vectors/%s", model);
    struct engine_config config = {.model = file,
                                   .stand_in_vocabulary = true,
                                   .threads = 1,
                                   .device = device,
                                   .dtype = dtype,
                                   .cpu_path = device == DEVICE_CPU ? "plain" : NULL,
                                   .max_num_seqs = 64,
                                   .max_num_batched_tokens = 64,
                                   .block_size = 16,
                                   .kv_memory = 1 << 20};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s: %s", file, err.message);
    ck_assert_int_eq(engine_model(engine)->V, V);
    return engine;
}

static void make_prompt(int32_t id[LENGTH]) {
    for (int i = 0; i < LENGTH; i++) id[i] = (11 + 37 * i) % V;
}

/* Logits of all rows, [LENGTH][V], in steps of `chunk` rows. The caller frees them. */
static float *all_logits(struct engine *engine, int chunk) {
    int32_t id[LENGTH];
    make_prompt(id);
    float *out = mem_alloc((size_t)LENGTH * V * sizeof *out);
    for (int at = 0; at < LENGTH; at += chunk) {
        const int n = at + chunk < LENGTH ? chunk : LENGTH - at;
        memcpy(out + (size_t)at * V, runner_logits(engine, id, at, n), (size_t)n * V * sizeof *out);
    }
    return out;
}

/* Recurrent layers compute the CPU's bytes from equal inputs (test_recurrent.cpp), but their norms
 * enlarge the differences of other ops: the sums of a state's first rows may be nearly zero. */
static float tolerance_of(const struct engine *engine) {
    return config_recurrent_layers(engine_model(engine)) > 0 ? 5e-4f : 1e-4f;
}

START_TEST(float32_agrees_with_the_cpu) {
    struct engine *cpu = open_model(models[_i], DEVICE_CPU, COMPUTE_FLOAT32);
    struct engine *cuda = open_model(models[_i], DEVICE_CUDA, COMPUTE_FLOAT32);
    float *want = all_logits(cpu, LENGTH), *got = all_logits(cuda, LENGTH);
    const float tolerance = tolerance_of(cpu);
    for (int i = 0; i < LENGTH; i++) {
        const float *a = want + (size_t)i * V, *b = got + (size_t)i * V;
        ck_assert_int_eq(runner_argmax(a, V), runner_argmax(b, V));
        for (int v = 0; v < V; v++)
            ck_assert_msg(fabsf(a[v] - b[v]) < tolerance, "%s: row %d, id %d: %g, not %g",
                          models[_i], i, v, (double)b[v], (double)a[v]);
    }
    free(want), free(got);
    engine_close(cpu), engine_close(cuda);
}
END_TEST

/* If each access is watched, one size runs the same kernels as all of them. */
static bool watched;

START_TEST(steps_of_any_size_give_the_same_bytes) {
    static const int chunks[] = {7, 1, 17};
    struct engine *engine = open_model(models[_i], DEVICE_CUDA, COMPUTE_BFLOAT16);
    float *whole = all_logits(engine, LENGTH);
    for (size_t i = 0; i < (watched ? 1 : sizeof chunks / sizeof *chunks); i++) {
        float *parts = all_logits(engine, chunks[i]);
        ck_assert_msg(memcmp(parts, whole, (size_t)LENGTH * V * sizeof *parts) == 0,
                      "%s in steps of %d", models[_i], chunks[i]);
        free(parts);
    }
    free(whole);
    engine_close(engine);
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_families");
    for (int half = 0; half < 2; half++) { /* ctest runs them beside each other */
        TCase *models_of = tcase_create(half == 0 ? "even" : "odd");
        tcase_set_timeout(models_of, 300);
        for (int i = half; i < N_MODELS; i += 2) {
            suite_add_models(models_of, float32_agrees_with_the_cpu, models, i, i + 1);
            suite_add_models(models_of, steps_of_any_size_give_the_same_bytes, models, i, i + 1);
        }
        suite_add_tcase(suite, models_of);
    }
    return suite_main(suite);
}
