/* Each family on a tiny random model, as a GGUF file and as a folder: transformers' tokens and
 * logprobs in float32 (tests/vectors/make_families.py, make_folders.py), on all CPU paths; the same
 * bytes on all paths and for any division of a sequence into steps; and the same tokens if two
 * ranks share the model. ctest label: slow */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/sequence_runner.h"
#include "support/suite_main.h"

enum { V = 299, MAX_LENGTH = 96, N_PROMPTS = 2 };

static const char *const models[] = {
    "families/qwen2.gguf",
    "families/qwen3.gguf",
    "families/gpt2.gguf",
    "families/gemma.gguf",
    "families/gemma2.gguf",
    "families/phi3.gguf",
    "families/smollm3.gguf",
    "folders/llama",
    "folders/mistral",
    "folders/ministral3",
    "families/mistral3.gguf",
    "folders/qwen2",
    "folders/qwen3",
    "folders/gpt2",
    "folders/gemma",
    "folders/gemma2",
    "folders/phi3",
    "folders/opt",
    "folders/opt_350m",
    "folders/smollm3",
    "families/granite.gguf",
    "folders/granite",
    "families/gemma3.gguf",
    "folders/gemma3",
    "families/phi3_long.gguf",
    "families/glm4.gguf",
    "families/ernie4_5.gguf",
    "families/starcoder2.gguf",
    "families/stablelm.gguf",
    "families/cohere2.gguf",
    "families/exaone4.gguf",
    "families/seed_oss.gguf",
    "folders/llama_biased",
    "folders/glm4",
    "folders/ernie4_5",
    "folders/seed_oss",
    "folders/starcoder2",
    "folders/stablelm",
    "families/stablelm_12b.gguf",
    "folders/stablelm_12b",
    "folders/cohere2",
    "folders/exaone4",
    "families/granitemoe.gguf",
    "folders/granitemoe",
    "folders/qwen2moe_mixed",
    "folders/gpt_oss",
    "families/gemma4.gguf",
    "folders/gemma4",
    "folders/gemma4_large",
    "families/gemma4_moe.gguf",
    "folders/gemma4_moe",
    "folders/ministral",
    "folders/glm",
    "folders/command_r",
    "folders/granite4",
    "folders/phi",
    "families/phi.gguf",
    "families/glm.gguf",
    "families/command_r.gguf",
    "families/command_r_plus.gguf",
    "folders/command_r_plus",
    "families/granite4.gguf",
    "families/granite4_nope.gguf",
    "folders/granite4_nope",
    "families/qwen2_5_vl.gguf",
    "folders/qwen2_5_vl",
    "families/qwen3_vl.gguf",
    "folders/qwen3_vl",
    "folders/gemma4_unified",
    "families/falcon_40b.gguf",
    "folders/falcon_40b",
    "folders/falcon_11b",
    "families/gptneox.gguf",
    "folders/gptneox",
    "families/gptneox_sequential.gguf",
    "folders/gptneox_sequential",
    "families/arcee.gguf",
    "folders/arcee",
    "families/nemotron.gguf",
    "folders/nemotron",
    "families/hunyuan.gguf",
    "folders/hunyuan",
    "families/apertus.gguf",
    "folders/apertus",
    "folders/ernie4_5_moe",
    "families/dots1.gguf",
    "folders/dots1",
    "folders/solar_open",
    "folders/cwm",
    "families/jais2.gguf",
    "folders/jais2",
    "families/exaone_moe.gguf",
    "folders/exaone_moe",
    "families/hunyuan_moe.gguf",
    "folders/hunyuan_moe",
    "families/afmoe.gguf",
    "folders/afmoe",
    "folders/internvl",
    "folders/smolvlm",
    "families/falcon_h1.gguf",
    "families/granite4_h.gguf",
    "families/lfm2.gguf",
    "families/mamba2.gguf",
    "families/nemotron_h.gguf",
    "families/qwen3_5.gguf",
    "folders/bamba",
    "folders/falcon_h1",
    "folders/granite4_h",
    "folders/lfm2",
    "folders/kimi_linear_wide",
    /* packed, in blocks of 32 that two ranks cannot share */
    "folders/gptq",
    "folders/gptq-act-order",
    "folders/gptq-falcon",
    "folders/awq",
    "folders/awq-experts",
    "folders/packed-int4",
    "folders/packed-int4-middle",
    "folders/packed-int8",
    "folders/int8",
    "folders/float8-rows",
    "folders/float8-blocks",
    "folders/float8-structure",
    "folders/float8-ministral3",
    "folders/float8-mistral4",
    "folders/float8-mistral4-blocks",
    "folders/float8-exponents",
    "folders/float8-128-llama",
    "folders/float8-128-qwen3",
    "folders/float8-128-experts",
    "folders/nvfp4",
    "folders/nvfp4-modelopt",
    "folders/bnb-nf4",
    "folders/bnb-fp4",
    "folders/float8-modelopt",
    "folders/bnb-int8",
    /* only on one rank: norms over all heads, then experts that are too narrow, one key head, or
     * heads, key heads or groups that two ranks cannot share */
    "families/olmo2.gguf",
    "folders/olmo2",
    "families/olmo3.gguf",
    "folders/olmo3",
    "families/minimax_m2.gguf",
    "folders/minimax_m2",
    "families/olmoe.gguf",
    "folders/olmoe",
    "families/mixtral.gguf",
    "folders/mixtral",
    "families/qwen2moe.gguf",
    "folders/qwen2moe",
    "families/qwen3moe.gguf",
    "families/falcon.gguf",
    "folders/falcon",
    "families/qwen3_vl_moe.gguf",
    "folders/qwen3_vl_moe",
    "folders/qwen3moe",
    "folders/qwen3moe_mixed",
    "families/ernie4_5_moe.gguf",
    "families/glm4moe.gguf",
    "folders/glm4moe",
    "families/gpt_oss.gguf",
    "folders/gpt_oss_mxfp4",
    "families/lfm2_moe.gguf",
    "folders/lfm2_moe",
    "folders/qwen3_5",
    "families/qwen3_5_moe.gguf",
    "folders/qwen3_5_moe",
    "families/qwen3_next.gguf",
    "folders/qwen3_next",
    "families/granite4_h_moe.gguf",
    "folders/granite4_h_moe",
    "folders/mamba2",
    "folders/nemotron_h",
    "folders/falcon_h1_norm",
    "folders/deepseek_v3",
    "folders/deepseek_v2",
    "folders/deepseek_v2_lite",
    "folders/glm4_moe_lite",
    "folders/kimi_k2",
    "folders/kimi_linear",
    "families/deepseek_v3.gguf",
    "families/deepseek_v2.gguf",
    "families/deepseek_v2_lite.gguf",
    "families/glm4_moe_lite.gguf",
    "families/kimi_linear.gguf",
    "families/mistral4.gguf",
    "folders/mistral4",
};
enum { N_MODELS = sizeof models / sizeof *models, N_ONE_RANK = 49, N_NARROW = 41, N_PACKED = 25 };

static const struct {
    enum compute_dtype dtype;
    enum kv_dtype kv;
} caches[] = {
    {COMPUTE_FLOAT32, KV_DTYPE_FLOAT32},
    {COMPUTE_AUTO, KV_DTYPE_INT16},
    {COMPUTE_AUTO, KV_DTYPE_Q8_0},
    {COMPUTE_AUTO, KV_DTYPE_FLOAT16},
};
enum { N_CACHES = sizeof caches / sizeof *caches };

/* A prompt and its continuation. */
struct golden {
    int n_prompt, n; /* number of ids of the prompt, and of all */
    int32_t id[MAX_LENGTH];
    double logprob[MAX_LENGTH]; /* of the ids after the prompt */
};

static void read_golden(const char *model, struct golden golden[N_PROMPTS]) {
    char path[64], word[64];
    snprintf(path, sizeof path, "tests/vectors/%.*s.txt", (int)strcspn(model, "."), model);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    memset(golden, 0, N_PROMPTS * sizeof *golden);
    struct golden *g = golden - 1;
    bool in_prompt = false, in_comment = false;
    while (fscanf(file, "%63s", word) == 1) {
        if (strcmp(word, "prompt") == 0) {
            in_prompt = true, in_comment = false, g++;
            ck_assert(g < golden + N_PROMPTS);
        } else if (strcmp(word, "tokens") == 0) {
            in_prompt = false;
        } else if (strcmp(word, "#") == 0) {
            in_comment = true;
        } else if (!in_comment) {
            ck_assert(g >= golden && g->n < MAX_LENGTH);
            char *rest;
            g->id[g->n] = (int32_t)strtol(word, &rest, 10);
            if (!in_prompt) g->logprob[g->n] = strtod(rest + 1, NULL);
            g->n++;
            if (in_prompt) g->n_prompt = g->n;
        }
    }
    fclose(file);
    for (int i = 0; i < N_PROMPTS; i++) ck_assert_int_eq(golden[i].n, golden[i].n_prompt + 32);
}

static struct engine_config settings_of(char file[64], const char *model) {
    snprintf(file, 64, "tests/vectors/%s", model);
    return (struct engine_config){.model = file,
                                  .stand_in_vocabulary = true,
                                  .threads = 2,
                                  .max_num_seqs = 64,
                                  .max_num_batched_tokens = 64,
                                  .block_size = 16};
}

static struct engine *open_model(const char *model, const char *path, int ranks,
                                 enum compute_dtype dtype, enum kv_dtype kv_dtype) {
    char file[64];
    struct err err = {0};
    struct engine *engine;
    struct engine_config config = settings_of(file, model);
    config.ranks = ranks;
    config.dtype = dtype;
    config.kv_dtype = kv_dtype;
    config.cpu_path = path;
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s: %s", file, err.message);
    ck_assert_int_eq(engine_model(engine)->V, V);
    return engine;
}

/* Returns the logits of all rows except the last, [n - 1][V], in steps of `chunk` rows. The caller
 * frees them. */
static float *all_logits(struct engine *engine, const struct golden *g, int chunk) {
    float *out = mem_alloc((size_t)g->n * V * sizeof *out);
    for (int at = 0; at < g->n - 1; at += chunk) {
        int n = at + chunk < g->n - 1 ? chunk : g->n - 1 - at;
        memcpy(out + (size_t)at * V, runner_logits(engine, g->id, at, n),
               (size_t)n * V * sizeof *out);
    }
    return out;
}

/* Returns the largest difference of a logprob from the reference. Fails unless all tokens are the
 * reference's choices. */
static double compare(const float *logits, const struct golden *g, const char *what) {
    double worst = 0;
    for (int i = g->n_prompt; i < g->n; i++) {
        const float *row = logits + (size_t)(i - 1) * V;
        double logprob = (double)row[g->id[i]] - runner_logsumexp(row, V);
        ck_assert_msg(runner_argmax(row, V) == g->id[i], "%s: token %d is %d, not %d", what, i,
                      runner_argmax(row, V), g->id[i]);
        worst = fmax(worst, fabs(logprob - g->logprob[i]));
    }
    return worst;
}

static void check_model(const char *model, const char *path, int ranks) {
    struct golden golden[N_PROMPTS];
    char what[64];
    snprintf(what, sizeof what, "%s, %s, ranks %d", model, path ? path : "best path", ranks);
    read_golden(model, golden);
    struct engine *engine = open_model(model, path, ranks, COMPUTE_FLOAT32, KV_DTYPE_AUTO);
    for (int i = 0; i < N_PROMPTS; i++) {
        float *logits = all_logits(engine, &golden[i], 64);
        double worst = compare(logits, &golden[i], what);
        printf("%s: logprobs within %.2g\n", what, worst);
        ck_assert_msg(worst < 1e-4, "%s: logprobs differ by %g", what, worst);
        free(logits);
    }
    engine_close(engine);
}

START_TEST(tokens_are_those_of_transformers) {
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        check_model(models[_i], *path, 1);
}
END_TEST

START_TEST(two_ranks_give_the_same_tokens) {
    check_model(models[_i], NULL, 2);
}
END_TEST

/* A file that stretches positions by one list of factors up to a length and by another beyond it.
 * The served length selects the list, from the first token on. */
START_TEST(a_short_context_takes_the_short_factors) {
    struct golden golden[N_PROMPTS];
    char file[64];
    struct err err = {0};
    struct engine *engine;
    struct engine_config config = settings_of(file, "families/phi3_short.gguf");
    config.dtype = COMPUTE_FLOAT32;
    config.max_model_len = 72;
    read_golden("families/phi3_short.gguf", golden);
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    for (int i = 0; i < N_PROMPTS; i++) {
        float *logits = all_logits(engine, &golden[i], 64);
        ck_assert_double_lt(compare(logits, &golden[i], file), 1e-4);
        free(logits);
    }
    engine_close(engine);
}
END_TEST

/* A norm over all heads would need the sums of all ranks. Experts are not cut below a tile. */
START_TEST(models_that_cannot_be_divided_refuse_ranks) {
    char file[64];
    struct err err = {0};
    struct engine *engine;
    struct engine_config config = settings_of(file, models[_i]);
    config.ranks = 2;
    ck_assert_int_eq(engine_open(&engine, &config, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "tensor-parallel-size");
    const char *why = _i < N_MODELS - N_NARROW ? "normalises its queries over all heads"
                                               : "-size} 2 does not divide this model";
    ck_assert_msg(strstr(err.message, why), "%s", err.message);
}
END_TEST

/* The drafts of others are verified, but its own states cannot be set back. */
START_TEST(a_recurrent_model_drafts_for_none) {
    char file[64];
    struct err err = {0};
    struct engine *engine, *drafter;
    struct engine_config config = settings_of(file, "families/lfm2.gguf");
    config.max_drafts = 4;
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_eq(engine_memory(engine)->n_draft_states, 16);
    config.drafts_for = engine;
    ck_assert_int_eq(engine_open(&drafter, &config, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, "speculative-config");
    ck_assert_msg(strstr(err.message, "name a draft model without such layers"), "%s", err.message);
    engine_close(engine);
}
END_TEST

static void check_equal(const float *parts, const float *whole, int n, const char *what) {
    size_t bytes = (size_t)(n - 1) * V * sizeof *parts;
    ck_assert_msg(memcmp(parts, whole, bytes) == 0, "the bytes differ: %s", what);
}

/* With all types of caches. */
START_TEST(all_paths_give_the_same_bytes) {
    struct golden golden[N_PROMPTS];
    read_golden(models[_i], golden);
    for (size_t c = 0; c < N_CACHES; c++) {
        float *first = NULL;
        for (const char *const *path = backend_cpu_paths(); *path; path++) {
            struct engine *engine = open_model(models[_i], *path, 1, caches[c].dtype, caches[c].kv);
            float *logits = all_logits(engine, &golden[1], 64);
            engine_close(engine);
            if (first) check_equal(logits, first, golden[1].n, *path);
            if (first)
                free(logits);
            else
                first = logits;
        }
        free(first);
    }
}
END_TEST

START_TEST(steps_of_any_size_give_the_same_bytes) {
    static const int chunks[] = {1, 7, 16, 37};
    struct golden golden[N_PROMPTS];
    read_golden(models[_i], golden);
    for (size_t c = 0; c < N_CACHES; c++) {
        struct engine *engine = open_model(models[_i], NULL, 1, caches[c].dtype, caches[c].kv);
        float *whole = all_logits(engine, &golden[1], 64);
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            float *parts = all_logits(engine, &golden[1], chunks[i]);
            check_equal(parts, whole, golden[1].n, models[_i]);
            free(parts);
        }
        free(whole);
        engine_close(engine);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine/families");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    suite_add_models(all, tokens_are_those_of_transformers, models, 0, N_MODELS);
    suite_add_models(all, two_ranks_give_the_same_tokens, models, 0,
                     N_MODELS - N_ONE_RANK - N_PACKED);
    tcase_add_test(all, a_short_context_takes_the_short_factors);
    suite_add_models(all, models_that_cannot_be_divided_refuse_ranks, models, N_MODELS - N_ONE_RANK,
                     N_MODELS);
    tcase_add_test(all, a_recurrent_model_drafts_for_none);
    suite_add_models(all, all_paths_give_the_same_bytes, models, 0, N_MODELS);
    suite_add_models(all, steps_of_any_size_give_the_same_bytes, models, 0, N_MODELS);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
